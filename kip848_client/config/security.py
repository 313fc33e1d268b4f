"""The security keys: ``security.protocol``, ``sasl.*``, ``ssl.*`` and ``oauth_cb``, as librdkafka spells them.

One reading serves both planes, so that they cannot differ. A setting that the control plane cannot honour as
librdkafka does is refused here, before either plane exists. docs/security.md lists all checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kip848_client.common.addresses import host_in, is_loopback
from kip848_client.common.model import SaslSettings, SecuritySettings, TlsSettings
from kip848_client.config.keys import TOKEN_KEYS
from kip848_client.config.reader import ConfigReader, ConfigValue
from kip848_client.errors import ConfigError

ALLOW_UNENCRYPTED: Final = "kip848.allow.unencrypted.credentials"
"""Our key: allows passwords and tokens on an unencrypted network."""

OWN_SECURITY_KEYS: Final = frozenset({ALLOW_UNENCRYPTED})
"""Keys that librdkafka does not know."""

_PROTOCOLS: Final[Mapping[str, tuple[bool, bool]]] = {
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
"""security.protocol -> (TLS, SASL)."""

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_WITH_TOKENS: Final = frozenset({"OAUTHBEARER", "AWS_MSK_IAM"})
"""MSK takes the token of an OAUTHBEARER login wherever it takes Java's own mechanism AWS_MSK_IAM."""

_SENT_AS_IT_IS: Final = frozenset({"PLAIN", "OAUTHBEARER"})
"""Mechanisms that send the secret itself."""

_OTHER_MECHANISMS: Final[Mapping[str, str]] = {
    "GSSAPI": "Kerberos is not offered here: only librdkafka could log in with it, see docs/security.md",
}

_BY_OPENSSL: Final = "is not offered here; leave it out, or set it in OpenSSL's own file"
_OF_FILES: Final = "is a key of Java's client, which only files of commands and Spark may have"

_REFUSED: Final[Mapping[str, str]] = {
    "ssl_key": "is not read here; set ssl.key.pem or ssl.key.location",
    "ssl_certificate": "is not read here; set ssl.certificate.pem or ssl.certificate.location",
    "ssl_ca": "is not read here; set ssl.ca.pem or ssl.ca.location",
    "ssl.truststore.location": "is a key of Java's client; set ssl.ca.location to a PEM file",
    "ssl.truststore.password": "is a key of Java's client; set ssl.ca.location to a PEM file",
    "sasl.jaas.config": f"{_OF_FILES}; set sasl.username and sasl.password, or the keys of sasl.oauthbearer",
    "sasl.login.callback.handler.class": f"{_OF_FILES}; leave it out: the keys of sasl.oauthbearer say the same",
    "sasl.client.callback.handler.class": f"{_OF_FILES}; leave it out",
    "ssl.ca.certificate.stores": "is for Windows only; set ssl.ca.location or ssl.ca.pem",
    "ssl.curves.list": _BY_OPENSSL,
    "ssl.sigalgs.list": _BY_OPENSSL,
    "ssl.providers": _BY_OPENSSL,
    "ssl.engine.id": _BY_OPENSSL,
    "ssl.engine.location": _BY_OPENSSL,
}

_REFUSED_IF_TRUE: Final[Mapping[str, str]] = {
    "enable.sasl.oauthbearer.unsecure.jwt": (
        "is not offered: an unsigned token proves nothing. For a test broker that takes one, return it from oauth_cb"
    ),
}


def security_protocol(reader: ConfigReader) -> str:
    """security.protocol in lower case.

    Raises:
        ConfigError: there is no such protocol.
    """
    return reader.one_of("security.protocol", {name: name for name in _PROTOCOLS}, default="plaintext")


def read_security(reader: ConfigReader, *, hosts: Iterable[str]) -> tuple[SecuritySettings, dict[str, ConfigValue]]:
    """Read every security key.

    Args:
        hosts: of bootstrap.servers.

    Returns:
        The settings of the control plane, and the keys that make the data plane do the same.

    Raises:
        ConfigError: a key is missing, does not fit the others, or asks for what the control plane cannot do.
    """
    protocol = security_protocol(reader)
    encrypted, authenticated = _PROTOCOLS[protocol]
    _refuse(reader, protocol=protocol)
    if "oauth_cb" in reader.conf and not authenticated:
        # Otherwise confluent_kafka waits ten seconds for a token that is never requested, and gives up.
        raise ConfigError(f"oauth_cb is for sasl.mechanism=OAUTHBEARER; security.protocol is {protocol}")
    if protocol == "plaintext":
        return SecuritySettings(), {}
    data_plane: dict[str, ConfigValue] = {"security.protocol": protocol}
    tls = _read_tls(reader, data_plane) if encrypted else None
    sasl = _read_sasl(reader, data_plane, tuple(hosts)) if authenticated else None
    shows_secret = sasl is not None and tls is None and sasl.mechanism in _SENT_AS_IT_IS
    if sasl is None or not shows_secret or reader.flag(ALLOW_UNENCRYPTED, default=False):
        return SecuritySettings(tls, sasl), data_plane
    _refuse_remote(sasl, hosts)
    return SecuritySettings(tls, sasl, loopback_only=True), data_plane


def check_data_plane(security: SecuritySettings) -> None:
    """Refuse what librdkafka cannot check: it logs in to every broker that the cluster names.

    The control plane checks each address that it dials; librdkafka offers no hook for that.

    Raises:
        ConfigError: the secret would be sent unencrypted if the cluster named a remote broker.
    """
    if security.loopback_only and security.sasl is not None:
        raise ConfigError(
            f"sasl.mechanism={security.sasl.mechanism} over security.protocol=sasl_plaintext: librdkafka would send "
            "the secret to every broker that the cluster names; use sasl_ssl or a SCRAM mechanism, or "
            f"set {ALLOW_UNENCRYPTED}=true if all of them are on this machine or in a network that is trusted"
        )


def for_librdkafka(conf: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """The configuration of a client of librdkafka's own, such as a producer, that logs in as our connections do.

    Raises:
        ConfigError: a security key is missing, does not fit the others, or asks for what our connections cannot do.
        ConnectionLostError, AuthenticationError: there is no token to log in with.
    """
    reader = ConfigReader(conf, aliases={})
    servers = str(conf.get("bootstrap.servers", "")).split(",")
    secured: dict[str, ConfigValue] = {}
    with reader.at_once():
        security, secured = read_security(reader, hosts=[host_in(server.strip()) for server in servers])
    reader.check()
    if security.sasl is not None and security.sasl.token is not None:
        security.sasl.token()  # librdkafka would wait ten seconds for it, and then not say why there is none
    left_out = OWN_SECURITY_KEYS | TOKEN_KEYS
    return {key: value for key, value in reader.conf.items() if key not in left_out} | secured


def _refuse(reader: ConfigReader, *, protocol: str) -> None:
    for key, reason in _REFUSED.items():
        if key in reader.conf:
            raise ConfigError(f"{key} {reason}")
    for key, reason in _REFUSED_IF_TRUE.items():
        if reader.flag(key, default=False):
            raise ConfigError(f"{key} {reason}")
    if protocol == "plaintext" and "security.protocol" not in reader.conf:
        # With these keys and no protocol, librdkafka would send everything unencrypted, and never log in.
        for prefix, wanted in (("sasl.", "sasl_ssl"), ("ssl.", "ssl")):
            forgotten = sorted(key for key in reader.conf if key.startswith(prefix))
            if forgotten:
                raise ConfigError(f"{forgotten[0]} is set, but security.protocol is not; set it, to {wanted} perhaps")


def _read_tls(reader: ConfigReader, data_plane: dict[str, ConfigValue]) -> TlsSettings:
    from kip848_client.wire.tls import client_context  # here: plaintext needs nothing of it

    settings = TlsSettings(
        ca_location=_ca_location(reader),
        ca_pem=_one_of_two(reader, "ssl.ca.pem", other="ssl.ca.location"),
        crl_location=reader.not_blank("ssl.crl.location"),
        certificate_location=reader.not_blank("ssl.certificate.location"),
        certificate_pem=_one_of_two(reader, "ssl.certificate.pem", other="ssl.certificate.location"),
        key_location=reader.not_blank("ssl.key.location"),
        key_pem=_one_of_two(reader, "ssl.key.pem", other="ssl.key.location"),
        key_password=reader.optional_text("ssl.key.password"),
        keystore_location=reader.not_blank("ssl.keystore.location"),
        keystore_password=reader.optional_text("ssl.keystore.password"),
        cipher_suites=reader.not_blank("ssl.cipher.suites"),
        verify_certificate=reader.flag("enable.ssl.certificate.verification", default=True),
        verify_host_name=reader.one_of(
            "ssl.endpoint.identification.algorithm", {"https": "https", "none": "none"}, default="https"
        )
        == "https",
    )
    has_key = settings.key_location is not None or settings.key_pem is not None
    has_certificate = settings.certificate_location is not None or settings.certificate_pem is not None
    if has_key != has_certificate:
        given, missing = ("ssl.key", "ssl.certificate") if has_key else ("ssl.certificate", "ssl.key")
        raise ConfigError(f"{given}.* is set without {missing}.*; set {missing}.location or {missing}.pem as well")
    if settings.keystore_location is not None and has_certificate:
        raise ConfigError("ssl.keystore.location and ssl.certificate.* both say who this client is; keep one")
    if settings.keystore_location is None and settings.keystore_password is not None:
        raise ConfigError("ssl.keystore.password is set without ssl.keystore.location")
    client_context(settings)  # a file that cannot be read is found here and not at the first connection
    if settings.ca_location is None and settings.ca_pem is None and settings.verify_certificate:
        trusted = _trusted_by_the_machine()
        if trusted is not None:  # librdkafka would look for a bundle of its own choice
            data_plane["ssl.ca.location"] = trusted
    return settings


def _ca_location(reader: ConfigReader) -> str | None:
    location = reader.not_blank("ssl.ca.location")
    return None if location == "probe" else location


def _one_of_two(reader: ConfigReader, key: str, *, other: str) -> str | None:
    text = reader.not_blank(key)
    if text is not None and other in reader.conf:
        raise ConfigError(f"{key} and {other} are both set; keep one")
    return text


def _trusted_by_the_machine() -> str | None:
    import ssl  # here: plaintext needs nothing of them
    from pathlib import Path

    paths = ssl.get_default_verify_paths()
    bundle: str | None = paths.cafile
    if bundle is not None and Path(bundle).is_file():
        return bundle
    return paths.capath


def _read_sasl(reader: ConfigReader, data_plane: dict[str, ConfigValue], hosts: tuple[str, ...]) -> SaslSettings:
    mechanism = _read_mechanism(reader)
    if mechanism in _WITH_TOKENS:
        return _read_tokens(reader, data_plane, mechanism, hosts)
    data_plane["sasl.mechanism"] = data_plane["sasl.mechanisms"] = mechanism
    meaningless = sorted(TOKEN_KEYS & reader.conf.keys())
    if meaningless:
        raise ConfigError(f"{meaningless[0]} is for sasl.mechanism=OAUTHBEARER; the mechanism is {mechanism}")
    if "oauth_cb" in reader.conf:
        raise ConfigError(f"oauth_cb is for sasl.mechanism=OAUTHBEARER; the mechanism is {mechanism}")
    username, password = reader.text("sasl.username"), reader.text("sasl.password")
    check_user(username, password)
    return SaslSettings(mechanism, username=username, password=password)


def _read_tokens(
    reader: ConfigReader, data_plane: dict[str, ConfigValue], mechanism: str, hosts: tuple[str, ...]
) -> SaslSettings:
    from kip848_client.config.token_keys import read_token_source  # here: other mechanisms need nothing of tokens
    from kip848_client.logins.callback import CallbackSource
    from kip848_client.logins.oauth_tokens import OAuthTokens, shared_tokens

    source = read_token_source(
        reader,
        mechanism=mechanism,
        hosts=hosts,
        allow_open=reader.flag(ALLOW_UNENCRYPTED, default=False),
        is_loopback=is_loopback,
    )
    tokens = OAuthTokens(source) if isinstance(source, CallbackSource) else shared_tokens(source)
    data_plane["sasl.mechanism"] = data_plane["sasl.mechanisms"] = "OAUTHBEARER"
    data_plane["oauth_cb"] = tokens
    return SaslSettings("OAUTHBEARER", token=tokens.token, token_source=source.name)


def check_user(username: str, password: str) -> None:
    """Refuse a value that cannot be sent.

    Raises:
        ConfigError: a value is empty, not text, or has a NUL in it.
    """
    for key, value in (("sasl.username", username), ("sasl.password", password)):
        if not isinstance(value, str):
            raise ConfigError(f"{key} must be a string")
        if not value or "\0" in value or not _is_utf8(value):
            raise ConfigError(f"{key} is {'not usable: it cannot be sent as UTF-8 text' if value else 'empty'}")


def _read_mechanism(reader: ConfigReader) -> str:
    # librdkafka has both spellings for one setting.
    given = {key: reader.optional_text(key) for key in ("sasl.mechanism", "sasl.mechanisms") if key in reader.conf}
    named = {text.strip().upper() for text in given.values() if text is not None}
    if len(named) > 1:
        raise ConfigError("sasl.mechanism and sasl.mechanisms differ; keep one")
    if not named:
        raise ConfigError(
            f"sasl.mechanism is missing; the protocol {security_protocol(reader)} needs one of {', '.join(_MECHANISMS)}"
        )
    mechanism = named.pop()
    if mechanism in _MECHANISMS or mechanism in _WITH_TOKENS:
        return mechanism
    hint = _OTHER_MECHANISMS.get(mechanism, "it is not known here")
    raise ConfigError(f"sasl.mechanism={mechanism}: {hint}; choose one of {', '.join(_MECHANISMS)}")


def _refuse_remote(sasl: SaslSettings, hosts: Iterable[str]) -> None:
    remote = sorted({host for host in hosts if not is_loopback(host)})
    if remote:
        raise ConfigError(
            f"sasl.mechanism={sasl.mechanism} over security.protocol=sasl_plaintext sends the secret unencrypted to "
            f"{remote[0]}; use sasl_ssl or a SCRAM mechanism, or set {ALLOW_UNENCRYPTED}=true if that network is "
            "trusted"
        )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
