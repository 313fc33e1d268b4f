"""Questions to brokers that librdkafka carries: asked again while a broker is away or a leader is elected.

librdkafka answers some of them at once from what it remembers: during an outage it says "unknown partition" of every
partition, with or without one of that name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import describe_partitions
from kip848_client.consumer.records.data_plane import (
    KafkaError,
    KafkaException,
    TopicPartition,
    internal,
    translate,
)
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    Kip848Error,
    RequestTimeoutError,
    error_for_code,
)

if TYPE_CHECKING:
    from kip848_client.consumer.records.data_plane import ClusterMetadata

AnswerT = TypeVar("AnswerT")

_PAUSE_S: Final = 0.1
_ATTEMPT_S: Final = 1.0
_ATTEMPT_S_MAX: Final = 16.0
"""The first and the longest attempt. A broker may need longer than the first one."""

_UNKNOWN: Final = frozenset(
    {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
)


class ListTopics(Protocol):
    """`Fetcher.list_topics`."""

    def __call__(self, topic: str | None = None, *, timeout: float) -> ClusterMetadata:
        """Describe the cluster, or *topic* alone."""
        ...


class BetweenReads(Protocol):
    """Does something with librdkafka's consumer while nothing is read."""

    def __call__(self, work: Callable[[], AnswerT], /) -> AnswerT:
        """Do *work*, and return its result."""
        ...


def ask_brokers(
    list_topics: ListTopics,
    what: str,
    ask: Callable[[float], AnswerT],
    *,
    timeout_s: float,
    partitions: Iterable[TopicPartition] = (),
    before_pause: Callable[[], object],
    between_reads: BetweenReads,
) -> AnswerT:
    """Ask until there is an answer. Each attempt is short, as the thread that reads waits for it; then they grow.

    Args:
        list_topics: asks whether a partition exists.
        what: names the question in errors.
        ask: asks once, within so many seconds; -1 for ever. Partitions in its answer may have errors.
        timeout_s: for all attempts; negative for ever.
        partitions: which the question is about. If one does not exist, there is nothing to wait for.
        before_pause: called between attempts; an exception of it ends the call.
        between_reads: makes each attempt.

    Raises:
        RequestTimeoutError, ConnectionLostError: no broker answered in time.
        BrokerError: a partition does not exist, or had no leader until the time was over; or a broker refused.
        Kip848Error: any other failure, at once.
    """
    named = list(partitions)
    deadline_s = time.monotonic() + timeout_s if timeout_s >= 0 else math.inf

    attempt_s = _ATTEMPT_S

    def left_s() -> float:
        return min(attempt_s, max(0.0, deadline_s - time.monotonic()))

    while True:
        failure: Kip848Error
        code: int | None
        cause: KafkaException | None = None
        try:
            answer = between_reads(lambda: ask(left_s()))
            failed = _failed(answer)
            if failed is None:
                return answer
            failure, code = translate(failed, what=what), failed.code()
        except KafkaException as error:
            failure, code, cause = translate(error, what=what), _code(error), error
        if code in _UNKNOWN and named:
            try:
                failure = between_reads(lambda: _why_unknown(list_topics, named, what, timeout_s=left_s()))
            except KafkaException as error:
                failure, cause = translate(error, what=what), error
        if not _passing(failure) or time.monotonic() + _PAUSE_S >= deadline_s:
            raise failure from cause
        before_pause()
        attempt_s = min(2 * attempt_s, _ATTEMPT_S_MAX)
        time.sleep(_PAUSE_S)  # librdkafka does not tell when a broker is back: it is asked again


def _failed(answer: object) -> KafkaError | None:
    """The error of a partition in *answer*."""
    if not isinstance(answer, list):
        return None
    errors: list[KafkaError | None] = [partition.error for partition in answer]
    return next((error for error in errors if error is not None), None)


def _code(error: KafkaException) -> int | None:
    inner = error.args[0] if error.args else None
    return inner.code() if isinstance(inner, KafkaError) else None


def _why_unknown(
    list_topics: ListTopics, partitions: Iterable[TopicPartition], what: str, *, timeout_s: float
) -> BrokerError:
    """Whether a partition does not exist, or has no leader now, by the cluster's word."""
    for topic in sorted({partition.topic for partition in partitions}):
        described = list_topics(topic, timeout=timeout_s).topics[topic]
        wanted = [partition for partition in partitions if partition.topic == topic]
        missing = [partition for partition in wanted if partition.partition not in described.partitions]
        gone = described.error is not None and described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if gone or (missing and described.error is None):
            names = describe_partitions(map(internal, missing or wanted))
            error = error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what}: the cluster has no {names}")
            assert isinstance(error, BrokerError)
            return error
    error = error_for_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{what}: a partition has no leader now")
    assert isinstance(error, BrokerError)
    return error


def _passing(failure: Kip848Error) -> bool:
    """Whether the same question may be answered soon."""
    if isinstance(failure, BrokerError):
        return failure.retriable and failure.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return isinstance(failure, (ConnectionLostError, RequestTimeoutError)) and not isinstance(
        failure, AuthenticationError
    )
