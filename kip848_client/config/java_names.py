"""Java's names and settings as librdkafka's: what Spark options and files of Java applications have. Pure.

Translated are logins with a user and a password, with tokens of an issuer and with the login handlers of Amazon, Google
and Strimzi, and stores of PEM and PKCS#12. For the rest the error says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kip848_client.errors import ConfigError

JAVA_NAMES: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
"""Java's name -> librdkafka's, where the values mean the same."""


_CA_AS_PEM: Final = (
    "is a store of Java, which librdkafka does not read: write its certificates to a PEM file (keytool -list -rfc "
    "-keystore truststore.jks > ca.pem) and set {prefix}ssl.ca.location=ca.pem"
)
_KEY_AS_PEM: Final = (
    "is a store of Java, which is not read here: write it as PKCS#12 (keytool -importkeystore -srckeystore "
    "keystore.jks -destkeystore keystore.p12 -deststoretype PKCS12) and set "
    "{prefix}ssl.keystore.location=keystore.p12, {prefix}ssl.keystore.type=PKCS12 and {prefix}ssl.keystore.password"
)
_STORES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ssl.truststore": (_CA_AS_PEM, ("ssl.ca.location",)),
    "ssl.keystore": (_KEY_AS_PEM, ("ssl.certificate.location", "ssl.key.location")),
}
"""Java's stores: what to do with one, and the keys that name the same file if its type is PEM."""

_LOGIN: Final = re.compile(r"([\w.]+)\s+(?i:required)\b\s*(.*?)\s*;", re.DOTALL)
_LOGIN_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([\w.$-]+))\s*""")
_KAFKA: Final = "org.apache.kafka.common.security."
_WITH_PASSWORD: Final = frozenset({f"{_KAFKA}plain.PlainLoginModule", f"{_KAFKA}scram.ScramLoginModule"})
_WITH_TOKENS: Final = f"{_KAFKA}oauthbearer.OAuthBearerLoginModule"
_OF_MSK: Final = "software.amazon.msk.auth.iam.IAMLoginModule"
_KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"
_LOGIN_EXAMPLE: Final = (
    "set {prefix}sasl.mechanism, {prefix}sasl.username and {prefix}sasl.password instead, or keys that begin with "
    "{prefix}sasl.oauthbearer.; what is understood here is "
    "org.apache.kafka.common.security.scram.ScramLoginModule (or plain.PlainLoginModule) required "
    'username="..." password="...";, oauthbearer.OAuthBearerLoginModule with clientId, clientSecret, scope and '
    "extension_..., and the modules of Amazon, Google and Strimzi"
)

_P: Final = "sasl.oauthbearer."
_TYPE: Final = f"{_P}metadata.authentication.type"
_OIDC: Final[Mapping[str, str]] = {f"{_P}method": "oidc"}
_HANDLERS: Final[Mapping[str, Mapping[str, str]]] = {
    f"{_KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler": _OIDC,
    f"{_KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler": _OIDC,
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler": _OIDC,
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": {_TYPE: "aws_msk_iam"},
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler": {},
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": {_TYPE: "gcp"},
}
"""Java's login handlers -> keys that say the same."""
_RETRIEVERS: Final[Mapping[str, Mapping[str, str]]] = {
    f"{_KAFKA}oauthbearer.{name}": keys
    for name, keys in {
        "DefaultJwtRetriever": {},
        "ClientCredentialsJwtRetriever": {},
        "FileJwtRetriever": {},
        "JwtBearerJwtRetriever": {f"{_P}grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
    }.items()
}
_CLASSES: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "sasl.login.callback.handler.class": _HANDLERS,
    "sasl.client.callback.handler.class": _HANDLERS,
    f"{_P}jwt.retriever.class": _RETRIEVERS,
}
"""Keys that name classes of Java."""
_TOKEN_OPTIONS: Final[Mapping[str, str]] = {
    "clientId": f"{_P}client.id",
    "clientSecret": f"{_P}client.secret",
    "scope": f"{_P}scope",
    # of Strimzi's handler
    "oauth.client.id": f"{_P}client.id",
    "oauth.client.secret": f"{_P}client.secret",
    "oauth.scope": f"{_P}scope",
    "oauth.token.endpoint.uri": f"{_P}token.endpoint.url",
    "oauth.client.assertion.location": f"{_P}assertion.file",
}
"""Options of a login with tokens -> keys."""
_FILE_OPTIONS: Final = frozenset({"oauth.access.token.location", "oauth.token.location"})
_TRUST_OPTIONS: Final = frozenset({"oauth.ssl.truststore.location", "oauth.ssl.truststore.type"})
_AWS_OPTIONS: Final = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion", "awsDebugCreds"})
_EXTENSION: Final = "extension_"

_DROPPED: Final = re.compile(
    r"sasl\.login\.(?:class|connect\.timeout\.ms|read\.timeout\.ms|retry\.backoff(?:\.max)?\.ms|refresh\.[a-z.]+)"
    r"|sasl\.oauthbearer\.(?:jwt\.validator\.class|scope\.claim\.name|clock\.skew\.seconds)"
)
"""Settings of how Java's client asks for tokens; ours has limits of its own."""


def translated(properties: Mapping[str, str], *, prefix: str = "", store_hint: str = "") -> dict[str, str]:
    """Java's login and stores as librdkafka's keys.

    Args:
        prefix: what names begin with where the user wrote them, for error texts.
        store_hint: what more to say of a file that is needed.

    Raises:
        ConfigError: they cannot be, or contradict the others; a password is not repeated.
    """
    left = dict(properties)
    login = left.pop("sasl.jaas.config", None)
    found = _login(login, prefix) if login is not None else {}
    for key, classes in _CLASSES.items():
        name = left.pop(key, None)
        if name is not None:
            if name.strip() not in classes:
                raise ConfigError(
                    f"{prefix}{key}={name} is a class of Java, which is not known here; leave it out and set the keys "
                    f"that begin with {prefix}{_P}, see docs/security.md"
                )
            found |= classes[name.strip()]
    left = {key: text for key, text in left.items() if not _DROPPED.fullmatch(key)}
    for store, (refusal, names) in _STORES.items():
        location = left.pop(f"{store}.location", None)
        kind = left.pop(f"{store}.type", "").upper()
        password = left.pop(f"{store}.password", None)
        if location is None and password is None:
            continue
        if not kind and location is not None and location.lower().endswith((".p12", ".pfx")):
            kind = "PKCS12"
        if store == "ssl.keystore" and kind == "PKCS12" and location is not None:
            found["ssl.keystore.location"] = location
            if password is not None:
                found["ssl.keystore.password"] = password
            left.pop("ssl.key.password", None)  # Java asks for it twice
            continue
        if kind != "PEM" or location is None:
            given = f"{prefix}{store}.password" if location is None else f"{prefix}{store}.location={location}"
            raise ConfigError(f"{given} {refusal.format(prefix=prefix)}{store_hint}")
        found |= dict.fromkeys(names, location)
    for name, text in found.items():
        if left.setdefault(name, text) != text:
            raise ConfigError(f"{prefix}{name} and Java's setting for the same differ; give one of them")
    return left


def _login(text: str, prefix: str) -> dict[str, str]:
    module = _LOGIN.fullmatch(text.strip())
    options = module[2] if module is not None else ""
    name = module[1] if module is not None else ""
    pairs = list(_LOGIN_OPTION.finditer(options))
    given = {pair[1]: re.sub(r"\\(.)", r"\1", pair[2] or pair[3] or pair[4] or "") for pair in pairs}
    found: dict[str, str] | None = None
    if name == _KERBEROS:
        raise ConfigError(f"{prefix}sasl.jaas.config: Kerberos is not offered here, see docs/security.md")
    if "".join(pair[0] for pair in pairs).strip() == options:
        if name in _WITH_PASSWORD and given.keys() == {"username", "password"}:
            found = {f"sasl.{key}": value for key, value in given.items()}
        elif name == _WITH_TOKENS:
            found = _token_keys(given, prefix)
        elif name == _OF_MSK and given.keys() <= _AWS_OPTIONS:
            found = _joined(f"{_P}config", given)
    if found is None:
        example = _LOGIN_EXAMPLE.format(prefix=prefix)
        raise ConfigError(f"{prefix}sasl.jaas.config is a Java setting that cannot be translated: {example}")
    return found


def _token_keys(given: Mapping[str, str], prefix: str) -> dict[str, str] | None:
    """Keys that say what the options of a login with tokens do; None if one is not known."""
    if any(name.startswith("unsecuredLogin") for name in given):
        raise ConfigError(f"{prefix}sasl.jaas.config makes unsigned tokens, which prove nothing; they are not offered")
    found: dict[str, str] = {}
    aws = {name: text for name, text in given.items() if name in _AWS_OPTIONS}
    extensions = {name.removeprefix(_EXTENSION): text for name, text in given.items() if name.startswith(_EXTENSION)}
    for name, text in given.items():
        if name in _TOKEN_OPTIONS:
            found[_TOKEN_OPTIONS[name]] = text
        elif name in _FILE_OPTIONS:
            found[f"{_P}token.endpoint.url"] = text if text.startswith("file:") else f"file://{text}"
        elif name in _TRUST_OPTIONS:
            found |= _trust(given, prefix)
        elif name not in _AWS_OPTIONS and not name.startswith(_EXTENSION):
            return None
    return found | _joined(f"{_P}config", aws) | _joined(f"{_P}extensions", extensions)


def _trust(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    if given.get("oauth.ssl.truststore.type", "JKS").upper() != "PEM":
        raise ConfigError(
            f"{prefix}sasl.jaas.config: oauth.ssl.truststore.location is a store of Java: write its certificates to a "
            f"PEM file (keytool -list -rfc -keystore truststore.jks > ca.pem) and set {prefix}https.ca.location=ca.pem"
        )
    location = given.get("oauth.ssl.truststore.location")
    return {} if location is None else {"https.ca.location": location}


def _joined(key: str, pairs: Mapping[str, str]) -> dict[str, str]:
    """*pairs* as the value of one key of librdkafka."""
    escaped = (f"{name}={text}".replace(",", "\\,") for name, text in pairs.items())
    return {key: ",".join(escaped)} if pairs else {}
