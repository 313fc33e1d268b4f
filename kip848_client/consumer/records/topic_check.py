"""Topics that ``process()`` needs: whether they exist, are kept long enough and not compacted; made on request.

One of the few homes of confluent_kafka.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kip848_client.common.logs import LogEvent, log_event
from kip848_client.consumer.records.data_plane import KafkaError, KafkaException, translate
from kip848_client.consumer.records.librdkafka_log import LIBRDKAFKA_LOGGER
from kip848_client.errors import ConfigError

if TYPE_CHECKING:
    from kip848_client.config.consumer import ConsumerConfig

_TIMEOUT_S: Final = 30.0
_KEPT_MS_LEAST: Final = 7 * 24 * 3_600_000
_PASSED_ON: Final = (
    "bootstrap.servers",
    "client.id",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "https.",
    "oauth_cb",
)
"""Of the consumer's configuration: what is needed to reach the brokers."""


def check_topics(
    config: ConsumerConfig, kept_ms: Mapping[str, int], *, partitions: int | None, replication_factor: int, what: str
) -> None:
    """Look at topics, and create those that are missing.

    Args:
        kept_ms: topic -> how long it has to keep records at least.
        partitions: how many a missing topic gets; None: all must exist.
        what: which topics they are, for errors.

    Raises:
        ConfigError: one is missing, compacted, or does not keep its records for long enough.
        Kip848Error: no broker answers, or it refuses to create one.
    """
    kit: Any = importlib.import_module("confluent_kafka.admin")
    conf = {key: value for key, value in config.data_plane.items() if key.startswith(_PASSED_ON)}
    admin = kit.AdminClient({**conf, "logger": logging.getLogger(LIBRDKAFKA_LOGGER)})
    try:
        found = admin.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise translate(error, what=what) from error
    missing = [topic for topic in kept_ms if topic not in found]
    if missing and partitions is None:
        raise ConfigError(
            f"{what}: there is no topic {', '.join(missing)}; create them, or give partitions= to have them created"
        )
    if missing:
        assert partitions is not None
        new = [
            kit.NewTopic(
                topic,
                partitions,
                replication_factor,
                config={
                    "cleanup.policy": "delete",
                    "retention.ms": str(max(_KEPT_MS_LEAST, 2 * kept_ms[topic])),
                },
            )
            for topic in missing
        ]
        for future in admin.create_topics(new, request_timeout=_TIMEOUT_S).values():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                    raise translate(error, what=f"{what}: a topic cannot be created") from error
    there = [topic for topic in kept_ms if topic in found]
    resources = [kit.ConfigResource(kit.ResourceType.TOPIC, topic) for topic in there]
    for resource, future in admin.describe_configs(resources, request_timeout=_TIMEOUT_S).items() if there else ():
        try:
            settings = future.result(_TIMEOUT_S)
        except KafkaException as error:  # it may not be allowed to ask
            told = translate(error, what=f"{what}: the settings of {resource.name} are not known")
            log_event(logging.INFO, LogEvent.DATA_PLANE_ERROR, error=told)
        else:
            _check(resource.name, {name: entry.value for name, entry in settings.items()}, kept_ms, what)


def _check(topic: str, settings: Mapping[str, str | None], kept_ms: Mapping[str, int], what: str) -> None:
    if "compact" in (settings.get("cleanup.policy") or ""):
        raise ConfigError(
            f"{what}: topic {topic} is compacted, which loses all but the last record of a key; set its "
            "cleanup.policy to delete"
        )
    retention_ms = int(settings.get("retention.ms") or -1)
    if 0 <= retention_ms < kept_ms[topic]:
        raise ConfigError(
            f"{what}: topic {topic} keeps records for {retention_ms:,} ms, and they wait for {kept_ms[topic]:,} ms in "
            "it; raise its retention.ms"
        )
