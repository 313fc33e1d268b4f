"""The sink's options: checked, from what Spark hands over. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from kip848_client.common.model import Confidential
from kip848_client.config.java_names import JAVA_NAMES, translated
from kip848_client.errors import ConfigError
from kip848_client.spark.values.kafka_names import STORE_HINT

_KNOWN: Final[Mapping[str, str]] = {
    name.lower(): name for name in ("topic", "includeHeaders", "bootstrap.servers", "checkpointLocation", "path")
}

_OF_JAVA: Final[Mapping[str, tuple[str, int]]] = {
    "buffer.memory": ("queue.buffering.max.kbytes", 1_024),
    "max.request.size": ("message.max.bytes", 1),
}
"""Settings of Java's producer -> librdkafka's, and how many bytes are one of its units."""

_OWNED: Final[Mapping[str, str]] = {
    "key.serializer": "is not supported: keys are bytes or strings",
    "value.serializer": "is not supported: values are bytes or strings",
    "interceptor.classes": "is not supported: there are no interceptors",
    "group.id": "is for the source: leave it out",
    "max.block.ms": "does not apply: a task waits for room until delivery.timeout.ms is over; leave it out",
    "partitioner.class": "is not supported: keys choose partitions as in Java's producer, or a column partition does",
}

_COMMON: Final = ("bootstrap.servers", "security.", "sasl.", "ssl.", "kip848.", "https.")
"""Keys that the control plane needs, too."""

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as Kafka allows by default: from the first record of a batch until its transactions are ended."""


class SinkOptions(Confidential, frozen=True):
    """The target of a write.

    Args:
        producer: for librdkafka's producer; may hold secrets.
        control: the keys of it that our own connections need.
        topic: for all records; None if a column names it.
        transactional_id: of the query; each task's producer adds its number. None for no transactions.
        timeout_ms: of one question to brokers, and of storing what is left at the end of a task.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"producer", "control"})

    producer: Mapping[str, str]
    control: Mapping[str, str]
    topic: str | None
    transactional_id: str | None
    timeout_ms: int


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write.

    Raises:
        ConfigError: one is missing, unknown or wrong.
    """
    lower = {str(name).lower(): str(text) for name, text in options.items()}
    kafka = {name.removeprefix("kafka."): text for name, text in lower.items() if name.startswith("kafka.")}
    for name in lower:
        if not name.startswith("kafka.") and name not in _KNOWN:
            meant = f"did you mean kafka.{name}?" if "." in name else "it has topic, and options that begin with kafka."
            raise ConfigError(f"{name} is not an option of this sink; {meant}")
    if "path" in lower:
        raise ConfigError("save() and start() take no path; name the topic with the option topic, or in a column")
    for name, why in _OWNED.items():
        if name in kafka:
            raise ConfigError(f"kafka.{name} {why}")
    left = translated(kafka, prefix="kafka.", store_hint=STORE_HINT)
    producer = {JAVA_NAMES.get(name, name): text for name, text in left.items() if name not in _OF_JAVA}
    for name, (theirs, unit) in _OF_JAVA.items():
        if name in left:
            if not left[name].isdecimal() or int(left[name]) < 1:
                raise ConfigError(f"kafka.{name} must be a number of bytes, got {left[name]!r}")
            converted = str(max(1, int(left[name]) // unit))
            if producer.setdefault(theirs, converted) != converted:
                raise ConfigError(f"kafka.{name} and kafka.{theirs} mean the same and differ; give one of them")
    servers = lower.get("bootstrap.servers")
    if servers is not None and producer.setdefault("bootstrap.servers", servers) != servers:
        raise ConfigError("bootstrap.servers and kafka.bootstrap.servers differ; give one of them")
    if not producer.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers is missing: give host:port, separated by commas")
    transactional_id = producer.pop("transactional.id", None)
    if transactional_id is not None:
        if not transactional_id.strip():
            raise ConfigError("kafka.transactional.id is blank; name the query, in the same way in each of its runs")
        if producer.get("enable.idempotence", "true").lower() != "true":
            raise ConfigError("kafka.transactional.id needs an idempotent producer: leave enable.idempotence out")
        producer.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    timeout_text = producer.pop("default.api.timeout.ms", "120000")
    if not timeout_text.isdecimal() or int(timeout_text) < 1:
        raise ConfigError(f"kafka.default.api.timeout.ms must be a number of milliseconds, got {timeout_text!r}")
    topic = lower.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("topic is blank; name it, or leave the option out and have a column topic")
    return SinkOptions(
        producer=producer,
        control={name: text for name, text in producer.items() if name.startswith(_COMMON)},
        topic=topic,
        transactional_id=transactional_id,
        timeout_ms=int(timeout_text),
    )
