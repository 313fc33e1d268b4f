"""confluent_kafka as we use it: how its consumer is made, how its errors are translated, its group-metadata bytes.

One of the few homes of confluent_kafka. `fetcher` decides which partitions are fetched, and when.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import Consumer as RecordConsumer

if TYPE_CHECKING:
    from confluent_kafka import Producer as Producer  # noqa: PLC0414  for annotations
    from confluent_kafka.admin._metadata import ClusterMetadata as ClusterMetadata  # noqa: PLC0414  for annotations
    from confluent_kafka.admin._metadata import TopicMetadata as TopicMetadata  # noqa: PLC0414  for annotations

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.config import ConfigValue, nearest_key
from kip848_client.consumer.records.kafka_errors import ErrorDetails, describe_error
from kip848_client.consumer.records.librdkafka_log import LIBRDKAFKA_LOGGER
from kip848_client.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    Kip848Error,
    ProtocolError,
    RequestTimeoutError,
    error_for_code,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "PASSING_CODES",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ErrorDetails",
    "KafkaError",
    "KafkaException",
    "Message",
    "TopicPartition",
    "RecordConsumer",
    "check_group_metadata_layout",
    "create_record_consumer",
    "describe_error",
    "group_metadata_bytes",
    "internal",
    "is_own_lookup",
    "is_refused_lookup",
    "leader_epoch",
    "list_topics",
    "public",
    "public_commit",
    "translate",
]

_UNKNOWN_KEY: Final = re.compile(r'No such configuration property: "([^"]+)"')

_CONNECTION_LOST: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._FAIL,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._NODE_UPDATE,
        # since librdkafka 2.11: "broker handle destroyed", of a node that left the cluster's metadata
        getattr(KafkaError, "_DESTROY_BROKER", KafkaError._TRANSPORT),
    }
)

PASSING_CODES: Final = _CONNECTION_LOST | {
    KafkaError._TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}
"""Errors in place of records after which librdkafka goes on by itself."""

_LOOKUP_FAILED: Final = "FindCoordinator response error"

_CGMD_MAGIC: Final = b"CGMDv2:"
_CGMD_NO_INSTANCE: Final = b"\x01"
_CGMD_INSTANCE: Final = b"\x00"


def create_record_consumer(conf: Mapping[str, ConfigValue]) -> RecordConsumer:
    """Make the librdkafka consumer that fetches records: it is never a member, and commits nothing.

    Raises:
        ConfigError: librdkafka refuses a key or a value; the message names the nearest known key.
        ConnectionLostError, AuthenticationError: there is no token to log in with.
    """
    # list_topics() would import this in the middle of a poll(), in C. Ctrl-C during an import may be an ImportError, or
    # be lost: then it is noticed here, before anything is joined.
    import confluent_kafka.admin

    if (tokens := conf.get("oauth_cb")) is not None:
        from kip848_client.logins.oauth_tokens import OAuthTokens  # here: other logins need nothing of it

        if isinstance(tokens, OAuthTokens):
            tokens.token(now=True)  # confluent_kafka would wait ten seconds for it, and then not say why there is none
    # Without a logger librdkafka writes to stderr, past the application's logs.
    # By default it would commit its positions, to a group that it is not in.
    settings = {"logger": logging.getLogger(LIBRDKAFKA_LOGGER), **conf, "enable.auto.commit": False}
    unknown: list[str] = []
    while True:
        try:
            plane = confluent_kafka.Consumer(settings)
        except KafkaException as error:
            text = _told(error)
            found = _UNKNOWN_KEY.search(text)
            if found is None or found.group(1) not in settings:
                raise ConfigError("; ".join([*unknown, text])) from error
            # librdkafka names one at a time: without it, the next attempt names the next one.
            nearest = nearest_key(found.group(1))
            hint = f"; did you mean {nearest}?" if nearest is not None else ""
            unknown.append(f"{found.group(1)} is not a configuration key{hint}")
            del settings[found.group(1)]
        except (TypeError, ValueError) as error:
            raise ConfigError("; ".join([*unknown, str(error)])) from error
        else:
            if unknown:
                plane.close()
                raise ConfigError("; ".join(unknown))
            return plane


def list_topics(plane: RecordConsumer, topic: str | None = None, *, timeout: float) -> ClusterMetadata:
    """The metadata of the cluster, or of *topic* alone, as *plane* gets them.

    Raises:
        KafkaException: no answer within *timeout* seconds.
    """
    found: ClusterMetadata
    found = plane.list_topics(timeout=timeout) if topic is None else plane.list_topics(topic, timeout=timeout)
    return found


def translate(error: KafkaError | KafkaException, *, what: str) -> Kip848Error:
    """Our exception for librdkafka's; the caller raises it, ``from`` the original if that is an exception.

    Args:
        what: what was tried, for the message.
    """
    if isinstance(error, Kip848Error):  # raised by a callback of ours that librdkafka called
        return error
    kafka_error = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(kafka_error, KafkaError):
        return Kip848Error(f"{what}: {error}")
    text = f"{what}: {kafka_error.str()}"
    code = kafka_error.code()
    if code > 0:
        return error_for_code(code, text)
    if code in {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT}:
        return RequestTimeoutError(text)
    if code in {KafkaError._AUTHENTICATION, KafkaError._SSL}:
        return AuthenticationError(text)
    if code in _CONNECTION_LOST:
        return ConnectionLostError(text)
    if code in {KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._INVALID_ARG}:
        return IllegalStateError(text)
    if code in {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION}:
        return ProtocolError(text)
    return Kip848Error(f"{text} ({kafka_error.name()})")


def is_own_lookup(error: Kip848Error) -> bool:
    """Whether the error is about librdkafka's own lookup of a group coordinator, which is not used and is retried.

    Kafka refuses a login that follows another one within a second, for example, and librdkafka tells of that as of a
    look-up that failed.
    """
    return _LOOKUP_FAILED in str(error)


def is_refused_lookup(error: Kip848Error | KafkaError) -> bool:
    """Whether a broker refused that look-up for want of a right on the group, which reading records does not need."""
    text = str(error)
    return _LOOKUP_FAILED in text and "GROUP_AUTHORIZATION_FAILED" in text


def internal(partition: TopicPartition) -> NamedPartition:
    """Our name of a partition."""
    return NamedPartition(partition.topic, partition.partition)


def public(partition: NamedPartition, position: OffsetAndMetadata | None = None) -> TopicPartition:
    """confluent_kafka's name of a partition, with an offset if *position* is given; without metadata.

    Metadata belongs to a commit. librdkafka has no use for it, and what others committed may be text that
    confluent_kafka cannot carry: see `public_commit`.
    """
    if position is None:
        return TopicPartition(partition.topic, partition.partition)
    if position.leader_epoch < 0:
        return TopicPartition(partition.topic, partition.partition, position.offset)
    return TopicPartition(partition.topic, partition.partition, position.offset, leader_epoch=position.leader_epoch)


def public_commit(partition: NamedPartition, position: OffsetAndMetadata) -> TopicPartition:
    """A committed position with its metadata as confluent_kafka shows it: text up to the first NUL, None for none.

    confluent_kafka commits metadata with the NUL that ends a text in C, and raises ValueError for a text with one.
    """
    text = position.metadata.partition("\0")[0]
    if not text:
        return public(partition, position)
    if position.leader_epoch < 0:
        return TopicPartition(partition.topic, partition.partition, position.offset, text)
    return TopicPartition(partition.topic, partition.partition, position.offset, text, position.leader_epoch)


def leader_epoch(partition: TopicPartition) -> int:
    """The leader epoch of a partition, or -1 where confluent_kafka has None (which its stubs do not say)."""
    epoch: int | None = partition.leader_epoch
    return -1 if epoch is None else epoch


def group_metadata_bytes(*, group_id: str, member_epoch: int, member_id: str, instance_id: str | None) -> bytes:
    """The group metadata that librdkafka would give for this member with ``Consumer.consumer_group_metadata()``.

    ``Producer.send_offsets_to_transaction`` takes it. The layout is librdkafka's own and not documented: a test
    compares it with what the installed librdkafka writes.

    Source:
        librdkafka ``rd_kafka_consumer_group_metadata_write``: magic, int32 generation in the machine's byte order,
        group id, member id, then one byte 0 and the instance id, or one byte 1 without one. Strings end with NUL.
    """
    parts = [
        _CGMD_MAGIC,
        struct.pack("=i", member_epoch),
        group_id.encode() + b"\x00",
        member_id.encode() + b"\x00",
    ]
    parts.append(_CGMD_NO_INSTANCE if instance_id is None else _CGMD_INSTANCE + instance_id.encode() + b"\x00")
    return b"".join(parts)


def check_group_metadata_layout(plane: RecordConsumer, *, group_id: str) -> None:
    """Compare the bytes that the installed librdkafka writes for a consumer outside its group with ours.

    Raises:
        Kip848Error: they differ, so that what we write for a member cannot be trusted.
    """
    theirs: object = plane.consumer_group_metadata()
    if theirs != group_metadata_bytes(group_id=group_id, member_epoch=-1, member_id="", instance_id=None):
        raise Kip848Error(
            f"confluent-kafka {confluent_kafka.__version__} lays out group metadata in a way that this version does "
            "not know; use a version of confluent-kafka that its tests were run with, see docs/exactly-once.md"
        )


def _told(error: KafkaException) -> str:
    inner = error.args[0] if error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(error)
