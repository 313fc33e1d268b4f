"""Security keys: one reading for both planes, and a refusal that says what to do for all that one of them cannot."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kip848_client.common.model import SaslSettings, SecuritySettings
from kip848_client.config import ConfigValue, ConsumerConfig, parse_consumer_config
from kip848_client.config.security import for_librdkafka
from kip848_client.errors import ConfigError
from tests.security.certificates import Authority, Identity
from tests.support.wrong_arguments import never_awaited

BASE: dict[str, ConfigValue] = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}
SCRAM: dict[str, ConfigValue] = {
    **BASE,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "scram-sha-256",
    "sasl.username": "alice",
    "sasl.password": "canary",
}


def parse(conf: dict[str, ConfigValue], **more: ConfigValue) -> ConsumerConfig:
    return parse_consumer_config({**conf, **{key.replace("_", "."): value for key, value in more.items()}})


def test_without_a_word_about_security_everything_is_plaintext() -> None:
    """A configuration without any security key must keep working as plaintext."""
    config = parse(BASE)
    assert config.security == SecuritySettings()
    assert config.security.protocol == "plaintext"
    assert "security.protocol" not in config.data_plane


def test_one_configuration_reaches_both_planes() -> None:
    """If the planes could differ, one would log in as another member, or trust another member."""
    config = parse(SCRAM)
    assert config.security.protocol == config.data_plane["security.protocol"] == "sasl_ssl"
    assert config.security.sasl == SaslSettings("SCRAM-SHA-256", username="alice", password="canary")
    assert config.data_plane["sasl.mechanism"] == config.data_plane["sasl.mechanisms"] == "SCRAM-SHA-256"
    assert config.data_plane["sasl.username"] == "alice"
    assert config.data_plane["sasl.password"] == "canary"


def test_the_data_plane_trusts_what_the_control_plane_trusts() -> None:
    """librdkafka looks for a bundle of its own choice if it is told of none."""
    paths = ssl.get_default_verify_paths()
    assert parse(SCRAM).data_plane.get("ssl.ca.location") == (paths.cafile or paths.capath)


def test_a_certificate_of_our_own_reaches_both_planes(authority: Authority, client_identity: Identity) -> None:
    """With mutual TLS both our connections and librdkafka's must show the client certificate."""
    files: dict[str, ConfigValue] = {
        **BASE,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.ca_file),
        "ssl.certificate.location": str(client_identity.certificate),
        "ssl.key.location": str(client_identity.key),
    }
    tls = parse(files).security.tls
    assert tls is not None
    assert (tls.ca_location, tls.key_location) == (str(authority.ca_file), str(client_identity.key))
    assert parse(files).data_plane["ssl.ca.location"] == str(authority.ca_file)

    texts: dict[str, ConfigValue] = {
        **BASE,
        "security.protocol": "ssl",
        "ssl.ca.pem": authority.ca_file.read_text(),
        "ssl.certificate.pem": client_identity.certificate.read_text(),
        "ssl.key.pem": client_identity.key.read_text(),
    }
    config = parse(texts)
    assert "PRIVATE KEY" not in repr(config)
    assert "ssl.ca.location" not in config.data_plane


def test_both_planes_share_one_source_of_tokens() -> None:
    """An ``oauth_cb`` written for confluent-kafka serves the connections of both planes."""
    asked: list[object] = []

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return "canary", 2e10

    conf: dict[str, ConfigValue] = {
        **BASE,
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.config": "scope=x",
        "oauth_cb": callback,
    }
    config = parse(conf)
    for_data_plane = config.data_plane["oauth_cb"]
    assert callable(for_data_plane)
    assert config.security.sasl is not None
    assert config.security.sasl.token is not None
    assert config.security.sasl.token().value == "canary"
    assert for_data_plane("scope=x") == ("canary", 2e10, "", {})
    assert asked == ["scope=x"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"security.protocol": "tls"}, "plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ({"sasl.mechanism": "GSSAPI"}, "Kerberos is not offered"),
        ({"sasl.mechanism": "SCRAM-SHA-1"}, "not known here; choose one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": None}, "sasl.mechanism is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}, "differ; keep one"),
        ({"sasl.username": None}, "sasl.username is missing"),
        ({"sasl.password": None}, "sasl.password is missing"),
        ({"sasl.password": ""}, "sasl.password is empty"),
        ({"sasl.password": "a\0b"}, "cannot be sent"),
        ({"sasl.password": "\ud800"}, "cannot be sent"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs tokens: set oauth_cb"),
        ({"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "f"}, "oauth_cb must be callable"),
        ({"sasl.mechanism": "OAUTHBEARER", "oauth_cb": never_awaited}, "oauth_cb is an async function"),
        ({"oauth_cb": print}, "oauth_cb is for sasl.mechanism=OAUTHBEARER"),
        ({"oauth_cb": print, "security.protocol": "ssl"}, "oauth_cb is for sasl.mechanism=OAUTHBEARER"),
        ({"oauth_cb": print, "security.protocol": "plaintext"}, "oauth_cb is for sasl.mechanism=OAUTHBEARER"),
        ({"sasl.oauthbearer.method": "oidc"}, "is for sasl.mechanism=OAUTHBEARER; the mechanism is SCRAM-SHA-256"),
        ({"sasl.oauthbearer.client.secret": "canary"}, "is for sasl.mechanism=OAUTHBEARER"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": True}, "proves nothing"),
        ({"ssl.keystore.location": "/no/k.p12"}, "ssl.keystore.location: /no/k.p12: No such file"),
        ({"ssl.keystore.password": "canary"}, "without ssl.keystore.location"),
        ({"ssl.keystore.location": "/k", "ssl.key.pem": "k", "ssl.certificate.pem": "c"}, "both say who"),
        ({"ssl.truststore.location": "/t.jks"}, "set ssl.ca.location"),
        ({"sasl.jaas.config": "canary"}, "set sasl.username"),
        ({"ssl.curves.list": "X25519"}, "not offered here"),
        ({"ssl.ca.location": "/no/such.pem"}, "ssl.ca.location: /no/such.pem: No such file"),
        ({"ssl.ca.pem": "nothing"}, "ssl.ca.pem"),
        ({"ssl.ca.pem": "x", "ssl.ca.location": "/x"}, "both set; keep one"),
        ({"ssl.crl.location": "/no/such.crl"}, "ssl.crl.location"),
        ({"ssl.cipher.suites": "NOT-A-CIPHER"}, "ssl.cipher.suites"),
        ({"ssl.key.location": "/k"}, "without ssl.certificate"),
        ({"ssl.certificate.location": "/c"}, "without ssl.key"),
        ({"ssl.certificate.location": "/no/c", "ssl.key.location": "/no/k"}, "ssl.certificate.location: /no/c"),
        ({"ssl.endpoint.identification.algorithm": "sometimes"}, "https, none"),
        ({"bootstrap.servers": "PLAINTEXT://h:1"}, "does not fit security.protocol=sasl_ssl; write h:1"),
    ],
)
def test_what_one_plane_cannot_do_is_refused_with_the_way_out(keys: dict[str, ConfigValue], told: str) -> None:
    """A consumer whose heartbeats and records go different ways would be worse than one that does not start."""
    conf = {key: value for key, value in {**SCRAM, **keys}.items() if value is not None}
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")) as refusal:
        parse_consumer_config(conf)
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"sasl.username": "alice", "sasl.password": "canary"}, "set it, to sasl_ssl perhaps"),
        ({"ssl.ca.location": "/ca.pem"}, "set it, to ssl perhaps"),
    ],
)
def test_a_forgotten_security_protocol_is_noticed(keys: dict[str, ConfigValue], told: str) -> None:
    """librdkafka would go on in plaintext and only log it."""
    with pytest.raises(ConfigError, match=told):
        parse(BASE | keys)
    assert parse(BASE | keys | {"security.protocol": "plaintext"}).security.protocol == "plaintext"


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_password_is_not_sent_unencrypted_unless_the_user_allows_it(mechanism: str) -> None:
    """To brokers on this machine it may; over a network only with an option whose name says what it does."""
    secrets: dict[str, ConfigValue] = (
        {"oauth_cb": lambda _: ("t", 2e10)}
        if mechanism == "OAUTHBEARER"
        else {"sasl.username": "alice", "sasl.password": "canary"}
    )
    conf = {**BASE, **secrets, "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism}
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert parse({**conf, "bootstrap.servers": f"{host}:9092"}).security.loopback_only
    remote = {**conf, "bootstrap.servers": "localhost:9092,kafka.example:9092"}
    with pytest.raises(
        ConfigError, match=r"sends the secret unencrypted to kafka\.example.*kip848\.allow\.unencrypted\.credentials"
    ):
        parse(remote)
    allowed = parse({**remote, "kip848.allow.unencrypted.credentials": "true"})
    assert "kip848.allow.unencrypted.credentials" not in allowed.data_plane
    assert not allowed.security.loopback_only
    proved = parse({**SCRAM, "security.protocol": "sasl_plaintext", "bootstrap.servers": "kafka.example"})
    assert proved.security.protocol == "sasl_plaintext"
    assert not proved.security.loopback_only


def test_an_encrypted_key_needs_its_password(tmp_path: Path, client_identity: Identity) -> None:
    """Without one OpenSSL would ask on the terminal, and a service would hang."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(client_identity.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"right"),
        )
    )
    conf: dict[str, ConfigValue] = {
        **BASE,
        "security.protocol": "ssl",
        "ssl.certificate.location": str(client_identity.certificate),
        "ssl.key.location": str(encrypted),
    }
    assert parse(conf | {"ssl.key.password": "right"}).security.protocol == "ssl"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is missing"):
        parse(conf)
    with pytest.raises(ConfigError, match="does not open the key") as refusal:
        parse(conf | {"ssl.key.password": "canary"})
    assert "canary" not in str(refusal.value)


def test_a_key_of_another_certificate_is_noticed(client_identity: Identity, server_identity: Identity) -> None:
    """Two files that do not belong together: the most common mistake with mutual TLS."""
    conf: dict[str, ConfigValue] = {
        **BASE,
        "security.protocol": "ssl",
        "ssl.certificate.location": str(client_identity.certificate),
        "ssl.key.location": str(server_identity.key),
    }
    with pytest.raises(ConfigError, match="does not belong to the certificate"):
        parse(conf)


def test_secrets_are_in_no_repr() -> None:
    """A configuration is what people print first when something does not work."""
    config = parse(SCRAM)
    assert "canary" not in repr(config)
    assert "canary" not in repr(config.security)


@pytest.mark.parametrize("servers", ["localhost", "localhost:9092", "[::1]:9092", "SASL_PLAINTEXT://127.0.0.1:9092"])
def test_a_producer_on_this_machine_may_send_its_password_in_the_clear(servers: str) -> None:
    """Commands and Spark's sink make producers of librdkafka with the same checks as a consumer."""
    keys: dict[str, ConfigValue] = {**SCRAM, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    found = for_librdkafka({**keys, "bootstrap.servers": servers, "linger.ms": "5"})
    assert found["sasl.mechanism"] == "PLAIN"
    assert found["linger.ms"] == "5"
    with pytest.raises(ConfigError, match=r"sends the secret unencrypted to kafka\.example"):
        for_librdkafka({**keys, "bootstrap.servers": f"{servers},kafka.example:9092"})
