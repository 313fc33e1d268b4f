"""Names of kafka-python, aiokafka, confluent-kafka and Java that are missing here, and what to write instead.

Only for error texts: docs/porting.md explains the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from kip848_client.errors import ArgumentTypeError

_ONLY_CONSUMES: Final = "this package consumes; import it from your client as before"
_TO_BEGINNING: Final = "use seek(TopicPartition(topic, partition, OFFSET_BEGINNING)) for each partition"
_TO_END: Final = "use seek(TopicPartition(topic, partition, OFFSET_END)) for each partition"
_IS_ASYNCHRONOUS: Final = "commit() is asynchronous unless you pass asynchronous=False"
_SYNCHRONOUS: Final = "use commit(asynchronous=False)"
_WAKE_UP: Final = "use hand_over(), which any thread may call: iterations end, and handed_over becomes true"
_BY_NAME: Final = "give its name instead, in partition.assignment.strategy or group.remote.assignor"
_WATERMARKS: Final = "get_watermark_offsets(partition) returns the first offset and the end of one partition"
_TO_SUBSCRIBE: Final = "pass on_assign, on_revoke and on_lost to subscribe()"
_METADATA: Final = "list_topics() returns topics with their partitions"

NAMES: Final[Mapping[str, str]] = {
    "KafkaConsumer": "use Consumer",
    "DeserializingConsumer": "use Consumer, which takes key.deserializer and value.deserializer",
    "AIOKafkaConsumer": "use AsyncConsumer",
    "AIOConsumer": "use AsyncConsumer",
    "Producer": _ONLY_CONSUMES,
    "SerializingProducer": _ONLY_CONSUMES,
    "KafkaProducer": _ONLY_CONSUMES,
    "AIOKafkaProducer": _ONLY_CONSUMES,
    "AdminClient": _ONLY_CONSUMES,
    "KafkaAdminClient": _ONLY_CONSUMES,
    "ConsumerRecord": "records are of the class Message",
    "OffsetAndMetadata": "use TopicPartition(topic, partition, offset, metadata)",
    "RangePartitionAssignor": _BY_NAME,
    "RoundRobinPartitionAssignor": _BY_NAME,
    "StickyPartitionAssignor": _BY_NAME,
}
"""Names of modules."""

METHODS: Final[Mapping[str, str]] = {
    "seek_to_beginning": _TO_BEGINNING,
    "seek_to_end": _TO_END,
    "beginning_offsets": _WATERMARKS,
    "end_offsets": _WATERMARKS,
    "highwater": _WATERMARKS,
    "partitions_for_topic": _METADATA,
    "topics": _METADATA,
    "subscription": "keep the topics that you passed to subscribe()",
    "seek_to_committed": "use seek(partition) with each of committed(assignment())",
    "last_stable_offset": _WATERMARKS,
    "commit_async": _IS_ASYNCHRONOUS,
    "commit_sync": _SYNCHRONOUS,
    "wakeup": _WAKE_UP,
    "metrics": "see health(), stats_cb and the metrics of OpenTelemetry",
    "bootstrap_connected": "see health()",
    "getone": "use poll(timeout), in seconds",
    "getmany": "use consume(num_messages, timeout): so many messages, or as many as come in these seconds",
    "start": "leave it out: the first subscribe() joins the group",
    "stop": "use close()",
    "commitSync": _SYNCHRONOUS,
    "commitAsync": _IS_ASYNCHRONOUS,
    "seekToBeginning": _TO_BEGINNING,
    "seekToEnd": _TO_END,
    "beginningOffsets": _WATERMARKS,
    "endOffsets": _WATERMARKS,
    "offsetsForTimes": "use offsets_for_times()",
    "currentLag": "use lag()",
    "partitionsFor": _METADATA,
    "listTopics": "use list_topics()",
    "groupMetadata": "use group_metadata()",
    "enforceRebalance": "use request_reassignment(reason), with an assignor of your own",
}
"""Methods of consumers."""

KEYS: Final[Mapping[str, str]] = {
    "consumer.timeout.ms": "end the loop when poll(timeout) returns None",
    "max.poll.records": "pass a number to consume()",
    "api.version": "leave it out: versions are negotiated",
    "fetch.max.wait.ms": "use fetch.wait.max.ms",
    "exclude.internal.topics": "leave it out: a pattern must match the whole name of a topic",
    "metric.reporters": "see docs/observability.md for metrics",
    "interceptor.classes": "there are no interceptors",
    "default.offset.commit.callback": "use on_commit",
    "offset.commit.cb": "use on_commit",
    "rebalance.cb": _TO_SUBSCRIBE,
    "on.assign": _TO_SUBSCRIBE,
    "on.revoke": _TO_SUBSCRIBE,
    "on.lost": _TO_SUBSCRIBE,
    "on.delivery": "leave it out: it is for a producer",
    "sasl.plain.username": "use sasl.username",
    "sasl.plain.password": "use sasl.password",
    "ssl.cafile": "use ssl.ca.location",
    "ssl.certfile": "use ssl.certificate.location",
    "ssl.keyfile": "use ssl.key.location",
    "ssl.password": "use ssl.key.password",
    "ssl.crlfile": "use ssl.crl.location",
    "ssl.check.hostname": "use ssl.endpoint.identification.algorithm=none if names must not be checked",
    "ssl.context": "use the keys that begin with ssl.",
}
"""Configuration keys, with dots."""


def refuse_milliseconds(call: str, timeout_ms: object) -> NoReturn:
    """Name the argument of *call* that was meant by kafka-python's ``timeout_ms``.

    Raises:
        ArgumentTypeError: always.
    """
    seconds = timeout_ms / 1_000 if isinstance(timeout_ms, (int, float)) else "seconds"
    how = {
        "poll": f"write poll({seconds}), which returns one record, or consume(500, {seconds})",
        "consume": f"write consume(500, {seconds})",
    }[call]
    raise ArgumentTypeError(f"{call}() takes its timeout in seconds, and not timeout_ms={timeout_ms!r}: {how}")


def refuse_seek(arguments: tuple[object, ...]) -> NoReturn:
    """Say how to write ``seek(partition, offset)`` of other clients.

    Raises:
        ArgumentTypeError: always.
    """
    raise ArgumentTypeError(
        f"seek() takes one TopicPartition with its offset, and not ({', '.join(map(repr, arguments))}): write "
        'seek(TopicPartition("orders", 0, 5))'
    )


def missing_attribute(self: object, name: str) -> object:
    """``__getattr__`` of a consumer: Python's error, with a hint for a method of another client."""
    if name in METHODS:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: {METHODS[name]}")
    return object.__getattribute__(self, name)  # raises Python's own error, also that of a property which failed
