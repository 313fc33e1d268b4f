"""Tokens by keys: what is asked of an issuer, and what its answers become."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip848_client.common.model import OAuthToken
from kip848_client.config import ConfigValue, parse_consumer_config
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError, Kip848Error
from kip848_client.logins.oauth_tokens import OAuthTokens
from tests.security.certificates import Authority, Identity
from tests.support.issuer import CLIENT, JWT_BEARER, SECRET, Issuer, client_key, decoded

P = "sasl.oauthbearer."


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


def tokens_of(keys: dict[str, Any], *, servers: str = "127.0.0.1:1") -> OAuthTokens:
    """The tokens of a new process, so that no test has those of another."""
    given = {key: text for key, text in keys.items() if text is not None}
    config = parse_consumer_config({"bootstrap.servers": servers, "group.id": "g", **given})
    found = config.data_plane["oauth_cb"]
    assert isinstance(found, OAuthTokens)
    return OAuthTokens(found.source)


def fetched(keys: dict[str, Any], **options: Any) -> OAuthToken:
    return tokens_of(keys, **options).token()


def test_a_client_with_a_secret_gets_a_token(issuer: Issuer) -> None:
    """Confluent Cloud, Keycloak, Entra, Okta: the keys of librdkafka, as they are."""
    began_s = time.time()
    token = fetched(issuer.login(scope="kafka.read kafka.write", extensions="logicalCluster=lkc-1,identityPoolId=p-2"))
    assert token.value == issuer.tokens[0]
    assert began_s + 3_600 <= token.expires_s <= time.time() + 3_600
    assert token.principal == CLIENT
    assert token.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "p-2"))
    asked = issuer.asked[0]
    assert asked.form == {"grant_type": "client_credentials", "scope": "kafka.read kafka.write"}
    assert asked.headers["Accept"] == "application/json"


def test_javas_names_of_the_client_mean_the_same(issuer: Issuer) -> None:
    """Kafka 4 and librdkafka 2.11 have second names, and no method has to be named in Java's files."""
    keys = issuer.login(client_credentials_client_id=CLIENT, client_credentials_client_secret=SECRET)
    for key in ("method", "client.id", "client.secret"):
        del keys[P + key]
    assert fetched(keys).principal == CLIENT


def test_id_and_secret_are_encoded_if_the_issuer_wants_it(issuer: Issuer) -> None:
    """A secret with a % is another one for issuers that follow RFC 6749 to the letter."""
    issuer.secret = "a%26b"
    assert fetched(issuer.login(client_secret="a&b", header_urlencode="true")).principal == CLIENT


def test_an_assertion_is_signed_with_the_clients_key(issuer: Issuer, tmp_path: Path) -> None:
    """Issuers that take no secrets: private_key_jwt."""
    key, pem = client_key()
    issuer.client_keys.append(key.public_key())
    file = tmp_path / "client.key"
    file.write_text(pem)
    (tmp_path / "template.json").write_text('{"header": {"kid": "7"}, "payload": {"team": "orders"}}')
    keys = issuer.login() | {
        f"{P}client.secret": None,
        f"{P}grant.type": JWT_BEARER,
        f"{P}assertion.private.key.file": str(file),
        f"{P}assertion.claim.iss": "orders",
        f"{P}assertion.claim.sub": "orders",
        f"{P}assertion.claim.aud": "https://issuer",
        f"{P}assertion.claim.jti.include": "true",
        f"{P}assertion.jwt.template.file": str(tmp_path / "template.json"),
    }
    assert fetched(keys).principal == "orders"
    form = issuer.asked[0].form
    assert form["grant_type"] == JWT_BEARER
    header, claims = (json.loads(decoded(part)) for part in form["assertion"].split(".")[:2])
    assert header == {"typ": "JWT", "kid": "7", "alg": "RS256"}
    assert claims["team"] == "orders"
    assert claims["aud"] == "https://issuer"
    assert claims["exp"] - claims["iat"] == 300
    assert claims["iat"] - claims["nbf"] == 60
    assert claims["jti"]


def test_a_finished_assertion_is_read_from_its_file_for_each_token(issuer: Issuer, tmp_path: Path) -> None:
    """Another program renews it; the first one would expire."""
    file = tmp_path / "assertion"
    file.write_text("stale")
    keys = issuer.login() | {f"{P}client.secret": None, f"{P}assertion.file": str(file)}
    tokens = tokens_of(keys)
    with pytest.raises(AuthenticationError):
        tokens.token()
    file.write_text("canary-assertion\n")
    assert tokens.token(now=True).principal == "bearer of the assertion"
    form = issuer.asked[-1].form
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert form["client_id"] == CLIENT


def test_a_token_file_is_read_again_when_it_changes(issuer: Issuer, tmp_path: Path) -> None:
    """Kubernetes replaces the token of a service account while the pod runs."""
    file = tmp_path / "token"
    file.write_text(issuer.issue("first") + "\n")
    keys = issuer.login(token_endpoint_url=f"file://{file}") | {f"{P}client.id": None, f"{P}client.secret": None}
    tokens = tokens_of(keys)
    assert tokens.token().principal == "first"
    renewed = tmp_path / "renewed"
    renewed.write_text(issuer.issue("the second"))
    renewed.rename(file)
    assert tokens.token().principal == "the second"
    file.unlink()
    assert tokens.token().principal == "the second"  # it is still good
    assert issuer.asked == []


def test_a_token_file_with_a_stale_token_says_so(issuer: Issuer, tmp_path: Path) -> None:
    """The broker would only say that a token is not valid."""
    file = tmp_path / "token"
    file.write_text(issuer.issue(life_s=-7))
    keys = issuer.login(token_endpoint_url=f"file://{file}") | {f"{P}client.id": None, f"{P}client.secret": None}
    with pytest.raises(ConnectionLostError, match=r"expired \d+ s ago; see to the program"):
        fetched(keys)


def test_the_managed_identity_of_a_machine_of_azure(issuer: Issuer) -> None:
    """confluent-kafka takes the same keys."""
    keys = {
        **issuer.login(token_endpoint_url=f"{issuer.base}/metadata/identity/oauth2/token"),
        f"{P}client.id": None,
        f"{P}client.secret": None,
        f"{P}metadata.authentication.type": "azure_imds",
        f"{P}config": "query=api-version=2025-04-07&resource=api://kafka&client_id=me",
    }
    assert fetched(keys).principal == "managed identity"
    assert issuer.asked[0].path.endswith("?api-version=2025-04-07&resource=api://kafka&client_id=me")


def test_event_hubs_tell_the_resource_themselves() -> None:
    """Four lines are enough on a machine of Azure."""
    keys = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        f"{P}metadata.authentication.type": "azure_imds",
    }
    source: Any = tokens_of(keys, servers="shop.servicebus.windows.net:9093").source
    assert source.url == (
        "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
        "&resource=https%3A%2F%2Fshop.servicebus.windows.net"
    )


def test_a_pod_of_azure_logs_in_with_the_token_of_its_service_account(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workload identity: the environment of the pod has everything."""
    file = tmp_path / "federated"
    file.write_text("canary-assertion")
    monkeypatch.setenv("AZURE_CLIENT_ID", "6f3a")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", issuer.base)
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))
    keys = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        f"{P}metadata.authentication.type": "azure_workload_identity",
    }
    assert fetched(keys, servers="shop.servicebus.windows.net:9093").principal == "bearer of the assertion"
    asked = issuer.asked[0]
    assert asked.path == "/tenant/oauth2/v2.0/token"
    assert asked.form["scope"] == "https://shop.servicebus.windows.net/.default"
    assert asked.form["client_id"] == "6f3a"


def test_the_issuers_certificate_is_checked(authority: Authority, server_identity: Identity) -> None:
    """The client's secret goes only to an issuer that is the one that was meant."""
    with Issuer(identity=server_identity) as issuer:
        with pytest.raises(ConnectionLostError, match=r"not trusted \(.*\); set https\.ca\.location"):
            fetched(issuer.login())
        assert issuer.asked == []
        assert fetched(issuer.login() | {"https.ca.location": str(authority.ca_file)}).principal == CLIENT
        assert fetched(issuer.login() | {"https.ca.pem": authority.ca_file.read_text()}).principal == CLIENT


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (
            (401, b'{"error":"invalid_client","error_description":"canary-of-the-client is wrong"}'),
            AuthenticationError,
            r"refuses \(HTTP 401\): invalid_client: \.\.\. is wrong; check "
            r"sasl\.oauthbearer\.client\.id='orders-service', sasl\.oauthbearer\.client\.secret",
        ),
        ((404, b"<html>canary</html>"), AuthenticationError, r"HTTP 404\): a page of HTML; check"),
        ((503, b"busy"), ConnectionLostError, r"cannot answer now \(HTTP 503\): busy"),
        ((429, b""), ConnectionLostError, "HTTP 429"),
        (
            (302, b"https://user:canary@elsewhere/login?x=canary"),
            AuthenticationError,
            "redirects to https://elsewhere/",
        ),
        ((200, b"hello"), ConnectionLostError, "did not answer with a JSON object"),
        ((200, b'{"token_type":"Bearer"}'), ConnectionLostError, "without access_token, but with token_type"),
        ((200, b'{"access_token":"can ary"}'), AuthenticationError, "not printable ASCII"),
        ((200, b'{"access_token":"canary","expires_in":0.000001}'), ConnectionLostError, "expired"),
        ((200, b"[" * 100_000), ConnectionLostError, "JSON object"),
        ((200, b" " * 1_100_000), ConnectionLostError, "more than"),
    ],
)
def test_what_an_issuer_says_becomes_an_error_with_its_address(
    issuer: Issuer, answer: tuple[int, bytes], kind: type[Kip848Error], told: str
) -> None:
    """Who runs the service learns from the error alone whom to ask and what to change; no secret is in it."""
    issuer.answer = answer
    with pytest.raises(kind, match=told) as failure:
        fetched(issuer.login())
    assert type(failure.value) is kind
    assert f"127.0.0.1:{issuer.base.rpartition(':')[2]}" in str(failure.value)
    assert "canary" not in str(failure.value)
    assert len(str(failure.value)) < 700


def test_an_issuer_that_hangs_up_or_is_not_there_may_come_back(issuer: Issuer) -> None:
    """The member goes on asking; its log says where."""
    issuer.away = True
    with pytest.raises(ConnectionLostError, match=r"the issuer http://127\.0\.0\.1:\d+/token cannot be reached"):
        fetched(issuer.login())
    with pytest.raises(ConnectionLostError, match="cannot be reached: Connection refused"):
        fetched(issuer.login(token_endpoint_url="http://127.0.0.1:1/token"))


def test_a_proxy_of_the_environment_is_used(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Company networks reach an issuer in no other way; curl and librdkafka do the same."""
    monkeypatch.setenv("http_proxy", issuer.base)
    monkeypatch.setenv("no_proxy", "")
    keys = issuer.login(token_endpoint_url="http://localhost:1/token")
    assert fetched(keys).principal == CLIENT
    assert issuer.asked[0].path == "http://localhost:1/token"


def test_clients_with_the_same_keys_share_one_token(issuer: Issuer) -> None:
    """Issuers count tokens, and some send a bill for them; a Spark task would ask for one each time."""
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **issuer.login()}
    first, second = (parse_consumer_config(conf).data_plane["oauth_cb"] for _ in range(2))
    other = parse_consumer_config(conf | {f"{P}scope": "x"}).data_plane["oauth_cb"]
    assert first is second
    assert first is not other


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"token.endpoint.url": None}, "token.endpoint.url is missing"),
        ({"client.secret": None}, "client.secret is missing"),
        ({"client.id": None}, "client.id is missing"),
        ({"token.endpoint.url": "ftp://issuer"}, "is not the http or https address"),
        ({"token.endpoint.url": "https://[::1"}, "is not the http or https address"),
        ({"token.endpoint.url": "http://issuer.example/token"}, "unencrypted; use https"),
        ({"token.endpoint.url": "file://elsewhere/token"}, "is not file:///PATH"),
        ({"token.endpoint.url": "file:///token"}, "client.id has no meaning with a token file"),
        ({"grant.type": "password"}, "grant.type must be one of"),
        ({"grant.type": JWT_BEARER}, "needs an assertion"),
        ({"assertion.file": "/a"}, "both prove who this client is"),
        ({"client.secret": None, "assertion.claim.iss": "x"}, "set sasl.oauthbearer.assertion.private.key.file"),
        ({"client.secret": None, "assertion.private.key.file": "/no/key"}, "/no/key: No such file"),
        ({"client.secret": None, "assertion.private.key.pem": "canary"}, "cannot be read as a PEM private key"),
        ({"extensions": "a=1,auth=2"}, "extensions is a list"),
        ({"metadata.authentication.type": "moon"}, "must be one of none, azure_imds"),
        ({"metadata.authentication.type": "azure_imds"}, "client.id has no meaning with azure_imds"),
        ({"method": "default", "token.endpoint.url": None, "client.id": None, "client.secret": None}, "needs tokens"),
        ({"client.credentials.client.id": "other"}, "are the same and differ"),
    ],
)
def test_keys_that_do_not_fit_each_other_are_refused(changed: dict[str, str | None], told: str) -> None:
    """What is ignored here would be a login that nobody meant."""
    keys: dict[str, ConfigValue] = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        f"{P}method": "oidc",
        f"{P}token.endpoint.url": "https://issuer.example/token",
        f"{P}client.id": CLIENT,
        f"{P}client.secret": SECRET,
        **{P + key: text for key, text in changed.items()},
    }
    with pytest.raises(ConfigError) as refusal:
        tokens_of(keys)
    assert told in str(refusal.value)
    assert "canary" not in str(refusal.value)


def test_a_callback_beside_keys_is_refused() -> None:
    """One of them would be ignored."""
    keys = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: ("t", 2e10),
        f"{P}method": "oidc",
    }
    with pytest.raises(ConfigError, match="both say where tokens come from"):
        tokens_of(keys)


def test_no_secret_is_printed(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """A repr in a traceback, or a debug log, is read by many."""
    caplog.set_level(logging.DEBUG)
    _, pem = client_key()
    config = parse_consumer_config(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            **issuer.login(token_endpoint_url=f"{issuer.url}?key=canary-query"),
        }
    )
    tokens: Any = config.data_plane["oauth_cb"]
    told = [repr(config), repr(tokens), repr(tokens.source), repr(tokens.token()), tokens.source.name, caplog.text]
    keyed = issuer.login() | {f"{P}client.secret": None, f"{P}assertion.private.key.pem": pem}
    told.append(repr(tokens_of(keyed).source))
    for text in told:
        assert "canary" not in text
        assert "PRIVATE KEY" not in text
        assert issuer.tokens[0] not in text
