"""The configuration of a topic: Kafka's names, defaults and ranges.

Most of them have no effect in this broker, which keeps all records. It checks, keeps and shows them, so that programs
which set them run unchanged. It refuses settings that it cannot fulfil.

Source:
    apache/kafka ``TopicConfig``, ``LogConfig``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.partitions.producer_batches import RecordRules

DEAD_LETTERS_ENABLED: Final = "errors.deadletterqueue.group.enable"
FLUSH_MESSAGES: Final = "flush.messages"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
MIN_IN_SYNC: Final = "min.insync.replicas"
CLEANUP_POLICY: Final = "cleanup.policy"
TIMESTAMP_BEFORE_MAX_MS: Final = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"
PARTITION_RACKS: Final = "kip848.partition.racks"
"""Ours, not Kafka's: where the replicas of each partition are said to be, see `partition_racks`."""

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_Check = Callable[[str], str | None]


def _integer(minimum: int, maximum: int = _INT64_MAX) -> _Check:
    def check(text: str) -> str | None:
        try:
            value = int(text)
        except ValueError:
            return "is not a whole number"
        return None if minimum <= value <= maximum else f"is not between {minimum} and {maximum}"

    return check


def _one_of(*allowed: str) -> _Check:
    return lambda text: None if text.strip().lower() in allowed else f"is not one of {', '.join(allowed)}"


def _ratio(text: str) -> str | None:
    try:
        return None if 0 <= float(text) <= 1 else "is not between 0 and 1"
    except ValueError:
        return "is not a number"


def _policies(text: str) -> str | None:
    chosen = {part.strip() for part in text.split(",") if part.strip()}
    return None if chosen <= {"delete", "compact"} else "names a policy other than delete and compact"


def _timestamp_type(text: str) -> str | None:
    return None if text in ("CreateTime", LOG_APPEND_TIME) else f"is neither CreateTime nor {LOG_APPEND_TIME}"


def _local_only(text: str) -> str | None:
    return None if text.lower() == "false" else "is not served by this broker, which has no tiered storage"


def _anything(text: str) -> str | None:
    del text
    return None


def _racks(text: str) -> str | None:
    if all(rack.strip() for part in text.split(",") for rack in part.split("/")):
        return None
    return "needs racks for each partition: a,b,c, or a/b,b/c where there are several replicas"


_BOOLEAN: Final = _one_of("true", "false")

_CONFIGS: Final[dict[str, tuple[str, _Check]]] = {
    CLEANUP_POLICY: ("delete", _policies),
    "compression.gzip.level": ("-1", _integer(-1, 9)),
    "compression.lz4.level": ("9", _integer(1, 17)),
    "compression.type": ("producer", _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": ("3", _integer(-131_072, 22)),
    "delete.retention.ms": ("86400000", _integer(0)),
    DEAD_LETTERS_ENABLED: ("false", _BOOLEAN),
    "file.delete.delay.ms": ("60000", _integer(0)),
    FLUSH_MESSAGES: (str(_INT64_MAX), _integer(1)),
    "flush.ms": (str(_INT64_MAX), _integer(0)),
    "follower.replication.throttled.replicas": ("", _anything),
    "index.interval.bytes": ("4096", _integer(0, _INT32_MAX)),
    "leader.replication.throttled.replicas": ("", _anything),
    "local.retention.bytes": ("-2", _integer(-2)),
    "local.retention.ms": ("-2", _integer(-2)),
    "max.compaction.lag.ms": (str(_INT64_MAX), _integer(1)),
    "max.decompressed.message.bytes": (str(_INT32_MAX - 8), _integer(0, _INT32_MAX)),
    MAX_MESSAGE_BYTES: ("1048588", _integer(0, _INT32_MAX)),
    TIMESTAMP_AFTER_MAX_MS: ("3600000", _integer(0)),
    TIMESTAMP_BEFORE_MAX_MS: (str(_INT64_MAX), _integer(0)),
    TIMESTAMP_TYPE: ("CreateTime", _timestamp_type),
    "min.cleanable.dirty.ratio": ("0.5", _ratio),
    "min.compaction.lag.ms": ("0", _integer(0)),
    MIN_IN_SYNC: ("1", _integer(1, _INT32_MAX)),
    "preallocate": ("false", _BOOLEAN),
    "remote.copy.lag.bytes": ("-1", _integer(-1)),
    "remote.copy.lag.ms": ("0", _integer(-1)),
    "remote.log.copy.disable": ("false", _BOOLEAN),
    "remote.log.delete.on.disable": ("false", _BOOLEAN),
    "remote.storage.enable": ("false", _local_only),
    "retention.bytes": ("-1", _integer(-1)),
    "retention.ms": ("604800000", _integer(-1)),
    "segment.bytes": ("1073741824", _integer(14, _INT32_MAX)),
    "segment.index.bytes": ("10485760", _integer(4, _INT32_MAX)),
    "segment.jitter.ms": ("0", _integer(0)),
    "segment.ms": ("604800000", _integer(1)),
    "unclean.leader.election.enable": ("false", _BOOLEAN),
}

_OURS: Final[dict[str, _Check]] = {PARTITION_RACKS: _racks}
"""Shown only on topics that have them."""

_CHECKS: Final = {name: check for name, (_, check) in _CONFIGS.items()} | _OURS

TOPIC_CONFIG_DEFAULTS: Final[Mapping[str, str]] = {name: default for name, (default, _) in _CONFIGS.items()}
"""Every name, sorted, with Kafka's default as text."""


def check_topic_configs(configs: Mapping[str, str | None]) -> None:
    """Refuse names and values that Kafka refuses, and what this broker cannot do.

    Raises:
        BrokerError: INVALID_CONFIG.
    """
    for name, value in configs.items():
        check = _CHECKS.get(name)
        if check is None:
            near = difflib.get_close_matches(name, _CHECKS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BrokerError(f"Unknown topic config name: {name}{hint}", code=ErrorCode.INVALID_CONFIG)
        if value is None:
            raise BrokerError(f"Null value not supported for topic config: {name}", code=ErrorCode.INVALID_CONFIG)
        fault = check(value)
        if fault is not None:
            raise BrokerError(
                f"Invalid value {value} for configuration {name}: it {fault}", code=ErrorCode.INVALID_CONFIG
            )


def config_of(configs: Mapping[str, str], name: str) -> str:
    """A configuration of a topic: its own, else Kafka's default."""
    return configs.get(name, TOPIC_CONFIG_DEFAULTS[name])


def record_rules(
    configs: Mapping[str, str], *, append_time_ms: int, earliest_now_ms: int, latest_now_ms: int
) -> RecordRules:
    """The demands of a topic with these configurations on single records.

    Args:
        append_time_ms: wall-clock time, the timestamp of all records if ``message.timestamp.type`` is LogAppendTime.
        earliest_now_ms: wall-clock time from which timestamps are too old.
        latest_now_ms: time from which they are too far ahead.
    """
    keys_required = "compact" in configs.get(CLEANUP_POLICY, "")
    if configs.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME:
        return RecordRules(keys_required=keys_required, append_time_ms=append_time_ms)
    before_ms = int(configs.get(TIMESTAMP_BEFORE_MAX_MS, _INT64_MAX))
    after_ms = int(configs.get(TIMESTAMP_AFTER_MAX_MS, TOPIC_CONFIG_DEFAULTS[TIMESTAMP_AFTER_MAX_MS]))
    return RecordRules(
        keys_required=keys_required,
        timestamp_min=earliest_now_ms - before_ms,
        timestamp_max=latest_now_ms + after_ms,
    )


def partition_racks(configs: Mapping[str, str], partition_count: int) -> tuple[frozenset[str], ...]:
    """The racks of a topic's partitions by its `PARTITION_RACKS`; empty without it.

    ``a,b,c`` lets partition 0 have a replica in rack a, 1 in b, 2 in c, 3 in a again and so on; ``a/b,b/c`` gives every
    partition two racks.
    """
    text = configs.get(PARTITION_RACKS)
    if text is None:
        return ()
    cycle = [frozenset(rack.strip() for rack in part.split("/")) for part in text.split(",")]
    return tuple(cycle[number % len(cycle)] for number in range(partition_count))


def racks_to_text(racks: Sequence[Iterable[str]]) -> str:
    """The `PARTITION_RACKS` that say so: for each partition, the racks of its replicas.

    Raises:
        BrokerError: INVALID_CONFIG; a partition has no rack, or a rack is blank or holds a comma or a slash.
    """
    parts = [sorted(set(part)) for part in racks]
    for number, part in enumerate(parts):
        if not part or any(not rack.strip() or "," in rack or "/" in rack for rack in part):
            raise BrokerError(
                f"racks of partition {number} are {part}; each needs one or more, without commas and slashes",
                code=ErrorCode.INVALID_CONFIG,
            )
    return ",".join("/".join(part) for part in parts)
