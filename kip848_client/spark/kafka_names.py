"""``kafka.*`` options as the client's configuration: Java's names in librdkafka's spelling, and refusals. Pure."""

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
    "-keystore truststore.jks > ca.pem) and set kafka.ssl.ca.location=ca.pem; every executor needs the file"
)
_KEY_AS_PEM: Final = (
    "is a store of Java, which is not read here: write it as PEM (keytool -importkeystore -srckeystore keystore.jks "
    "-destkeystore keystore.p12 -deststoretype PKCS12; openssl pkcs12 -in keystore.p12 -out client.pem) and set "
    "kafka.ssl.certificate.location=client.pem, kafka.ssl.key.location=client.pem and kafka.ssl.key.password; every "
    "executor needs the file"
)
_STORES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ssl.truststore": (_CA_AS_PEM, ("ssl.ca.location",)),
    "ssl.keystore": (_KEY_AS_PEM, ("ssl.certificate.location", "ssl.key.location")),
}
"""Java's stores: what to do with one, and the keys that name the same file if its type is PEM."""

_LOGIN: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required\s+(.*);", re.DOTALL
)
_LOGIN_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*""")
_LOGIN_EXAMPLE: Final = (
    "set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password instead; what is understood here is "
    "org.apache.kafka.common.security.scram.ScramLoginModule (or plain.PlainLoginModule) required "
    'username="..." password="...";'
)

_SOURCE_OWNS: Final[Mapping[str, str]] = {
    "enable.auto.commit": "is not supported: the source commits finished batches; turn that off with commit=off",
    "auto.commit.interval.ms": "is not supported: the source commits when a batch is finished",
    "auto.offset.reset": "is not supported: use startingOffsets, or the option auto.offset.reset (without kafka.) for "
    "partitions without a committed offset",
    "key.deserializer": "is not supported: keys are bytes; decode them with functions of DataFrame",
    "value.deserializer": "is not supported: values are bytes; decode them with functions of DataFrame",
    "key.serializer": "is not supported: this source only reads",
    "value.serializer": "is not supported: this source only reads",
    "interceptor.classes": "is not supported: there are no interceptors",
    "enable.partition.eof": "is not supported: the source sets it",
    "max.poll.records": "does not apply: limit a batch with maxOffsetsPerTrigger",
}


def client_config(
    kafka: Mapping[str, str], *, reset: str, bootstrap_servers: str | None, group_id: str | None
) -> dict[str, str]:
    """The client's configuration.

    Args:
        kafka: options that began with ``kafka.``, without it.
        reset: auto.offset.reset.
        bootstrap_servers, group_id: given without the prefix; the same as with it.

    Raises:
        ConfigError: a key is refused, or given twice with different values.
    """
    config: dict[str, str] = {}
    for name, text in translated(kafka).items():
        if name in _SOURCE_OWNS:
            raise ConfigError(f"kafka.{name} {_SOURCE_OWNS[name]}")
        config[JAVA_NAMES.get(name, name)] = text
    for name, given in (("bootstrap.servers", bootstrap_servers), ("group.id", group_id)):
        if given is not None and config.setdefault(name, given) != given:
            raise ConfigError(f"{name} and kafka.{name} differ; give one of them")
    if not config.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers is missing: give host:port, separated by commas")
    if "group.id" in config and not config["group.id"].strip():
        raise ConfigError("kafka.group.id is blank; name the group")
    config["auto.offset.reset"] = reset
    config["enable.auto.commit"] = "false"
    return config


def translated(kafka: Mapping[str, str]) -> dict[str, str]:
    """Java's login and stores as librdkafka's keys.

    Raises:
        ConfigError: they cannot be, or contradict the others; a password is not repeated.
    """
    left = dict(kafka)
    login = left.pop("sasl.jaas.config", None)
    found = _login(login) if login is not None else {}
    for store, (refusal, names) in _STORES.items():
        location = left.pop(f"{store}.location", None)
        kind = left.pop(f"{store}.type", "JKS").upper()
        password = left.pop(f"{store}.password", None)
        if location is None and password is None:
            continue
        if kind != "PEM" or location is None:
            given = f"kafka.{store}.password" if location is None else f"kafka.{store}.location={location}"
            raise ConfigError(f"{given} {refusal}")
        found |= dict.fromkeys(names, location)
    for name, text in found.items():
        if left.setdefault(name, text) != text:
            raise ConfigError(f"kafka.{name} and Java's setting for the same differ; give one of them")
    return left


def _login(text: str) -> dict[str, str]:
    module = _LOGIN.fullmatch(text.strip())
    options = module[1].strip() if module is not None else ""
    pairs = list(_LOGIN_OPTION.finditer(options))
    given = {pair[1]: re.sub(r"\\(.)", r"\1", pair[2] if pair[2] is not None else pair[3]) for pair in pairs}
    if given.keys() != {"username", "password"} or "".join(pair[0] for pair in pairs) != options:
        raise ConfigError(f"kafka.sasl.jaas.config is a Java setting that cannot be translated: {_LOGIN_EXAMPLE}")
    return {f"sasl.{name}": value for name, value in given.items()}
