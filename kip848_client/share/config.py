"""The configuration of a share consumer: its own keys, and those of connections, which are a consumer's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.config import ConsumerConfig, parse_consumer_config
from kip848_client.config.reader import ConfigReader, ConfigValue
from kip848_client.member.share.share_reader import ReaderSettings

_OWN: Final = (
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "max.poll.records",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "fetch.wait.max.ms",
    "fetch.max.wait.ms",
)
_SHARED: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "client.id",
    "client.rack",
    "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
    "key.deserializer",
    "value.deserializer",
    "on_deserialization_error",
)
_SECURITY: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "kip848.", "oauth", "https.")
_OF_GROUPS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "share.auto.offset.reset, a setting of the group (kip848 groups, or Kafka's kafka-configs)",
    "isolation.level": "share.isolation.level, a setting of the group",
    "enable.auto.commit": "share.acknowledgement.mode=implicit or explicit",
    "group.protocol": "nothing: a share group has one protocol",
    "group.instance.id": "nothing: members of a share group are dynamic",
    "session.timeout.ms": "share.session.timeout.ms, a setting of the group",
    "heartbeat.interval.ms": "share.heartbeat.interval.ms, a setting of the group",
    "max.poll.interval.ms": "nothing: a record that is not acknowledged in time goes to another member by itself",
}
"""Keys of a consumer that mean nothing here -> what to write instead."""


class ShareConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a share consumer, checked.

    Args:
        connections: the keys of connections, and the deserialisers.
        explicit: ``share.acknowledgement.mode=explicit``: every record is acknowledged by hand.
        max_poll_records: the most that one poll() returns, and that wait in the background.
    """

    connections: ConsumerConfig
    reader: ReaderSettings
    explicit: bool
    max_poll_records: int


def share_consumer_takes(key: str) -> bool:
    """Whether a share consumer has a setting of this name."""
    return key in _OWN or key in _SHARED or key.startswith(_SECURITY)


def parse_share_config(conf: Mapping[str, ConfigValue]) -> ShareConfig:
    """Check the configuration of a share consumer.

    Raises:
        ConfigError: keys are missing, unknown or out of range. The message names all of them.
    """
    reader = ConfigReader(conf, aliases={"fetch.max.wait.ms": "fetch.wait.max.ms"})
    for key in reader.conf:
        if key in _OF_GROUPS:
            reader.refuse(f"{key} is not a setting of a share consumer; use {_OF_GROUPS[key]}", None)
        elif not share_consumer_takes(key):
            near = difflib.get_close_matches(key, [*_OWN, *_SHARED], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            reader.refuse(f"{key} is not a setting of a share consumer{hint}", None)
    modes = {"implicit": "implicit", "explicit": "explicit"}
    mode = reader.one_of("share.acknowledgement.mode", modes, default="implicit")
    acquire_modes = {"batch_optimized": "batch_optimized", "record_limit": "record_limit"}
    acquire = reader.one_of("share.acquire.mode", acquire_modes, default="batch_optimized")
    max_poll_records = reader.integer("max.poll.records", default=500, low=1, high=1_000_000)
    min_bytes = reader.integer("fetch.min.bytes", default=1, low=0, high=100_000_000)
    max_bytes = reader.integer("fetch.max.bytes", default=50 * 1024 * 1024, low=1, high=2_147_483_647)
    max_wait_ms = reader.integer("fetch.wait.max.ms", default=500, low=0, high=300_000)
    reader.check()
    connections = parse_consumer_config({key: value for key, value in reader.conf.items() if key not in _OWN})
    return ShareConfig(
        connections=connections,
        reader=ReaderSettings(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            record_limit=acquire == "record_limit",
            request_timeout_ms=connections.request_timeout_ms,
            retry_backoff_ms=connections.retry_backoff_ms,
            retry_backoff_max_ms=connections.retry_backoff_max_ms,
        ),
        explicit=mode == "explicit",
        max_poll_records=max_poll_records,
    )
