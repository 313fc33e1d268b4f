"""``kafka.*`` options as the client's configuration: Java's names in librdkafka's spelling, and refusals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip848_client.config.java_names import JAVA_NAMES, translated
from kip848_client.errors import ConfigError

STORE_HINT: Final = "; every executor needs the file"

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
    for name, text in translated(kafka, prefix="kafka.", store_hint=STORE_HINT).items():
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
