"""Java's names and settings as librdkafka's: what Spark options and files of Java applications have. Pure.

A store of Java, or a login that is more than a user and a password, cannot be translated; the error says what to write.
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
    "is a store of Java, which is not read here: write it as PEM (keytool -importkeystore -srckeystore keystore.jks "
    "-destkeystore keystore.p12 -deststoretype PKCS12; openssl pkcs12 -in keystore.p12 -out client.pem) and set "
    "{prefix}ssl.certificate.location=client.pem, {prefix}ssl.key.location=client.pem and {prefix}ssl.key.password"
)
_STORES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ssl.truststore": (_CA_AS_PEM, ("ssl.ca.location",)),
    "ssl.keystore": (_KEY_AS_PEM, ("ssl.certificate.location", "ssl.key.location")),
}
"""Java's stores: what to do with one, and the keys that name the same file if its type is PEM."""

_LOGIN: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required\s+(.*);", re.DOTALL
)
_LOGIN_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([\w.$-]+))\s*""")
_LOGIN_EXAMPLE: Final = (
    "set {prefix}sasl.mechanism, {prefix}sasl.username and {prefix}sasl.password instead; what is understood here is "
    "org.apache.kafka.common.security.scram.ScramLoginModule (or plain.PlainLoginModule) required "
    'username="..." password="...";'
)


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
    for store, (refusal, names) in _STORES.items():
        location = left.pop(f"{store}.location", None)
        kind = left.pop(f"{store}.type", "JKS").upper()
        password = left.pop(f"{store}.password", None)
        if location is None and password is None:
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
    options = module[1].strip() if module is not None else ""
    pairs = list(_LOGIN_OPTION.finditer(options))
    given = {pair[1]: re.sub(r"\\(.)", r"\1", pair[2] or pair[3] or pair[4] or "") for pair in pairs}
    if given.keys() != {"username", "password"} or "".join(pair[0] for pair in pairs) != options:
        example = _LOGIN_EXAMPLE.format(prefix=prefix)
        raise ConfigError(f"{prefix}sasl.jaas.config is a Java setting that cannot be translated: {example}")
    return {f"sasl.{name}": value for name, value in given.items()}
