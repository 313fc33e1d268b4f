"""Begin and end of partitions, offsets by time, and members of groups: for programs that do not consume.

One request for each broker, for any number of partitions. One of the few homes of confluent_kafka: it asks with
its AdminClient, which takes the same security settings as the data plane.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import tenacity
from confluent_kafka import ConsumerGroupState, IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in its __all__

from kip848_client.client.records.data_plane import KafkaError, TopicPartition, public, translate
from kip848_client.client.records.librdkafka_log import LIBRDKAFKA_LOGGER
from kip848_client.config import ConfigValue
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    Kip848Error,
    RequestTimeoutError,
)
from kip848_client.model import NamedPartition

AnswerT = TypeVar("AnswerT")

_EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_ELECTION_PAUSE_S: Final = 0.1
_ATTEMPT_S: Final = 10.0
_FIRST_ATTEMPT_S: Final = 1.0
"""Length of the first attempt; each further one is twice as long. librdkafka reports causes only between attempts."""

_TROUBLES_KEPT: Final = 32

_CONSUMER_KEYS: Final = (
    "auto.offset.reset",
    "check.crcs",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "fetch.",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "queued.",
)
"""Settings that an AdminClient would warn about."""

_REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})

_GONE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError._NOENT}
)
"""The last one is what librdkafka says when no partition that it was asked about has a leader."""


class GroupMemberNow(msgspec.Struct, frozen=True):
    """One member of a group.

    Args:
        assigned: partitions that it owns. target: partitions that it is to own; in a classic group the same as
            *assigned*.
    """

    member_id: str
    client_id: str
    host: str
    assigned: frozenset[NamedPartition]
    target: frozenset[NamedPartition]


class GroupNow(msgspec.Struct, frozen=True):
    """A group at one moment.

    Args:
        settled: every member owns its target, and no target is being computed.
        members: of a group that does not exist, none.
    """

    settled: bool
    members: tuple[GroupMemberNow, ...]


class LogOffsets:
    """Asks the leaders of partitions.

    Args:
        conf: a data plane's configuration; isolation.level decides what the end is.
        timeout_ms: of one question, with everything that is tried again for it.
        retries, retry_interval_ms: after a failure; while a leader is elected, or until a broker was reached for the
            first time, for the whole of timeout_ms.
    """

    def __init__(
        self, conf: Mapping[str, ConfigValue], *, timeout_ms: int, retries: int = 3, retry_interval_ms: int = 10
    ) -> None:
        self._timeout_s: Final = timeout_ms / 1_000
        self._retries: Final = retries
        self._retry_interval_s: Final = retry_interval_ms / 1_000
        self._servers: Final = str(conf["bootstrap.servers"])
        self._reached = False
        """Whether any broker ever answered."""
        self._troubles: Final[deque[KafkaError]] = deque(maxlen=_TROUBLES_KEPT)
        """Errors that librdkafka reports of connections."""
        uncommitted = str(conf.get("isolation.level", "read_committed")).lower() == "read_uncommitted"
        self._isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        settings: dict[str, Any] = {key: conf[key] for key in conf if not key.startswith(_CONSUMER_KEYS)}
        try:
            settings.setdefault("logger", logging.getLogger(LIBRDKAFKA_LOGGER))
            settings["error_cb"] = self._troubles.append
            self._admin = AdminClient(settings)
        except KafkaException as error:
            raise ConfigError(str(translate(error, what="looking up offsets"))) from error

    def begins(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The first offset of each partition; partitions that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        return self._list(dict.fromkeys(partitions, _EARLIEST))

    def ends(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The next offset of each partition, as far as it may be read; those that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        return self._list(dict.fromkeys(partitions, _LATEST))

    def high_watermarks(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The offset after the last record, of transactions that are still open too.

        Raises:
            Kip848Error: no answer.
        """
        specs = dict.fromkeys(partitions, _LATEST)
        return self._list(specs, isolation=IsolationLevel.READ_UNCOMMITTED)

    def at_times(self, times_ms: Mapping[NamedPartition, int]) -> dict[NamedPartition, int | None]:
        """The first offset at or after a time, ms since 1970; None where there is no such record.

        Raises:
            Kip848Error: no answer.
        """
        found = self._list({partition: OffsetSpec.for_timestamp(at) for partition, at in times_ms.items()})
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def partition_counts(self, topics: Iterable[str] | None) -> dict[str, int]:
        """How many partitions each topic has, of all topics if None; topics that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        counts: dict[str, int] = {}
        for topic in [None] if topics is None else sorted(topics):
            described = self._retry("topics", partial(self._describe, topic))
            for name, found in described.items():
                if found.error is None:
                    counts[name] = len(found.partitions)
                elif found.error.code() not in _GONE:
                    raise translate(found.error, what=f"metadata of {name}")
        return counts

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The id of each topic as it is now; topics that do not exist, and brokers without ids, leave none.

        Raises:
            Kip848Error: no answer.
        """
        names = sorted(topics)
        return self._retry("topic ids", partial(self._ids_once, names)) if names else {}

    def group(self, group_id: str) -> GroupNow:
        """The members of a group, and whether it is stable.

        Raises:
            Kip848Error: no answer, or describing the group is not allowed.
        """
        return self._retry(f"group {group_id!r}", partial(self._group_once, group_id))

    def _group_once(self, group_id: str, timeout_s: float) -> GroupNow:
        answers = self._admin.describe_consumer_groups([group_id], request_timeout=timeout_s)
        described = answers[group_id].result(timeout_s + 1)
        members = tuple(
            GroupMemberNow(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.host.removeprefix("/"),
                assigned=_names(member.assignment),
                target=_names(member.target_assignment or member.assignment),
            )
            for member in described.members
        )
        return GroupNow(described.state is ConsumerGroupState.STABLE, members)

    def _ids_once(self, names: list[str], timeout_s: float) -> dict[str, UUID]:
        ids: dict[str, UUID] = {}
        described = self._admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
        for name, answer in described.items():
            try:
                topic_id = answer.result(timeout_s + 1).topic_id
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    raise
                continue
            high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
            if high or low:
                ids[name] = UUID(int=(high % 2**64) << 64 | low % 2**64)
        return ids

    def _describe(self, topic: str | None, timeout_s: float) -> dict[str, Any]:
        if topic is None:
            return self._admin.list_topics(timeout=timeout_s).topics
        return self._admin.list_topics(topic, timeout=timeout_s).topics

    def _list(
        self, specs: Mapping[NamedPartition, Any], isolation: IsolationLevel | None = None
    ) -> dict[NamedPartition, int]:
        if not specs:
            return {}
        return self._retry("offsets", partial(self._list_once, specs, isolation or self._isolation))

    def _list_once(
        self, specs: Mapping[NamedPartition, Any], isolation: IsolationLevel, timeout_s: float, *, learn: bool = True
    ) -> dict[NamedPartition, int]:
        asked: dict[TopicPartition, Any] = {public(name): spec for name, spec in specs.items()}
        answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
        listed: dict[NamedPartition, int] = {}
        unknown: set[str] = set()
        for partition, answer in answers.items():
            try:
                listed[NamedPartition(partition.topic, partition.partition)] = answer.result(timeout_s + 1).offset
            except KafkaException as error:
                if error.args[0].code() not in _GONE:
                    raise
                unknown.add(partition.topic)
        # librdkafka looks partitions up in its own metadata, and the topic may have grown since.
        if unknown and learn and self.partition_counts(unknown):
            missing = {name: spec for name, spec in specs.items() if name not in listed}
            listed.update(self._list_once(missing, isolation, timeout_s, learn=False))
        return listed

    def _retry(self, what: str, ask: Callable[[float], AnswerT]) -> AnswerT:
        """Ask, and again after a failure: as often as was said; for the whole time-out if it is a passing one."""
        began_s = time.monotonic()
        deadline_s = began_s + self._timeout_s
        numbers = itertools.count()
        self._troubles.clear()

        def given_up(state: tenacity.RetryCallState) -> bool:
            failure = state.outcome.exception() if state.outcome is not None else None
            if time.monotonic() >= deadline_s or isinstance(failure, AuthenticationError):
                return True
            passing = failure is not None and (_passing(failure) or not self._reached)
            return state.attempt_number > self._retries and not passing

        def pause_s(state: tenacity.RetryCallState) -> float:
            return self._retry_interval_s if state.attempt_number <= self._retries else _ELECTION_PAUSE_S

        def told() -> AnswerT:
            longest_s = _ATTEMPT_S if self._reached else _FIRST_ATTEMPT_S * 2 ** min(next(numbers), 10)
            try:
                answer = ask(max(0.001, min(longest_s, deadline_s - time.monotonic())))
            except Kip848Error:
                raise
            except (KafkaException, TimeoutError) as error:
                raise self._failure(error, what, waited_s=time.monotonic() - began_s) from error
            self._reached = True
            self._admin.poll(0)  # otherwise librdkafka keeps its messages about connections for ever
            return answer

        # No message announces the end of a leader election, so ask again after a pause.
        again = tenacity.retry_if_exception_type(Kip848Error)
        return tenacity.Retrying(stop=given_up, wait=pause_s, retry=again, reraise=True)(told)

    def _failure(self, error: KafkaException | TimeoutError, what: str, *, waited_s: float) -> Kip848Error:
        """The exception for *error*; if brokers are silent, it names their addresses and the last errors."""
        self._admin.poll(0)
        failure = RequestTimeoutError("") if isinstance(error, TimeoutError) else translate(error, what=what)
        if not isinstance(failure, (RequestTimeoutError, ConnectionLostError)):
            self._reached |= isinstance(failure, BrokerError)
            return failure
        told = [trouble for trouble in self._troubles if trouble.code() != KafkaError._ALL_BROKERS_DOWN]
        refused = [trouble for trouble in told if trouble.code() in _REFUSALS]
        seen = f": {(refused or told)[-1].str()}" if told else ""
        if refused and not self._reached:
            return AuthenticationError(f"looking up {what}: no connection to {self._servers}{seen}")
        return type(failure)(
            f"looking up {what}: no broker answered in {waited_s:.0f} s; bootstrap.servers is {self._servers}{seen}. "
            "Check that a broker listens there, that this machine can reach it, and that security.protocol is what it "
            "speaks"
        )


def _names(assignment: Any) -> frozenset[NamedPartition]:
    return frozenset(NamedPartition(each.topic, each.partition) for each in assignment.topic_partitions)


def _passing(failure: BaseException) -> bool:
    """Whether a leader is being elected, or a broker restarts."""
    return isinstance(failure, ConnectionLostError) or (isinstance(failure, BrokerError) and failure.retriable)
