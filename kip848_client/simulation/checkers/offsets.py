"""C8: a member's requests other than heartbeats, and its use of the answers: backoff, commits, names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import BrokerError, ConnectionLostError, FencedError, Kip848Error, RequestTimeoutError
from kip848_client.member.events import AUTOMATIC_COMMIT_ID, CommitDone, OffsetsFetched, StateChanged
from kip848_client.member.states import MemberState, Phase
from kip848_client.model import TopicIdPartition, TopicPartition
from kip848_client.simulation.checkers.heartbeats import least_backoff_ms, most_backoff_ms
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.offset_questions import UNREAD
from kip848_client.simulation.process import Process
from kip848_client.simulation.topics import Topics
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import Response

_Asked: TypeAlias = frozenset[tuple[str, UUID, int]]


class _Pace(msgspec.Struct):
    """When one member may retry lookups of its coordinator and of offsets. Times of its own clock."""

    lookup_ms: int = 0
    fetches: dict[_Asked, int] = msgspec.field(default_factory=dict)
    under_way: dict[_Asked, OffsetFetchRequest] = msgspec.field(default_factory=dict)
    """The request for each set of partitions that was sent last, and not before partitions came or went."""
    state: MemberState | None = None
    """Before the effects that were not seen yet."""

    def forget(self) -> None:
        """The owned partitions changed: failures of earlier requests do not count any more."""
        self.fetches.clear()
        self.under_way.clear()


class RetryPace(Observer):
    """C8: a failed request is retried only after its backoff (R21, R26, R92, R93).

    An automatic commit with a transient failure is retried after the backoff, not after a whole interval.
    """

    def __init__(self) -> None:
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)

    @about(FindCoordinatorRequest, OffsetFetchRequest)
    def sent(self, consumer: Process, request: Any) -> None:
        pace, now_ms = self._paces[consumer.name], consumer.now_ms
        if isinstance(request, FindCoordinatorRequest):
            allowed_ms, what = pace.lookup_ms, "looks for the coordinator"
        else:
            asked = _asked(request)
            if any(name == UNREAD.topic for name, _, _ in asked):
                return  # its application asks, each time anew
            allowed_ms, what = pace.fetches.get(asked, 0), "asks for offsets"
            pace.under_way[asked] = request
        if now_ms < allowed_ms:
            fail("C8", f"{consumer.name} {what} {allowed_ms - now_ms} ms before its back-off is over")

    @about(
        FindCoordinatorRequest, OffsetFetchRequest, ConsumerGroupHeartbeatRequest, JoinGroupRequest, HeartbeatRequest
    )
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        pace = self._paces[consumer.name]
        match response:
            case (
                ConsumerGroupHeartbeatResponse(error_code=0)
                | JoinGroupResponse(error_code=0)
                | HeartbeatResponse(error_code=0 | ErrorCode.REBALANCE_IN_PROGRESS)
            ):
                pace.lookup_ms = 0  # the coordinator that was found is one
            case FindCoordinatorResponse():
                pace.lookup_ms = consumer.now_ms + least_backoff_ms(consumer, 0)
            case OffsetFetchResponse():
                asked = _asked(request)
                if pace.under_way.get(asked) is not request:
                    return
                failed = response.error_code or any(
                    group.error_code or any(item.error_code for topic in group.topics for item in topic.partitions)
                    for group in response.groups
                )
                if failed:
                    pace.fetches[asked] = consumer.now_ms + least_backoff_ms(consumer, 0)
                else:
                    pace.fetches.pop(asked, None)
            case _:
                pass

    @about(FindCoordinatorRequest, OffsetFetchRequest)
    def unanswered(self, consumer: Process, request: Any) -> None:
        pace, until_ms = self._paces[consumer.name], consumer.now_ms + least_backoff_ms(consumer, 0)
        if isinstance(request, FindCoordinatorRequest):
            pace.lookup_ms = until_ms
            return
        if pace.under_way.get(asked := _asked(request)) is request:
            pace.fetches[asked] = until_ms

    def commit_ended(self, consumer: Process, effect: CommitDone) -> None:
        if effect.commit_id != AUTOMATIC_COMMIT_ID or not _passes(effect.error):
            return
        if self._paces[consumer.name].state is MemberState.RECONCILING:
            return  # a run gave up its commit: the next one is due by the interval
        in_sync = consumer.member.phase is Phase.IN_SYNC and bool(consumer.view.assigned) and not consumer.leaving
        deadline_ms = consumer.member.deadline_ms()
        if in_sync and (deadline_ms is None or deadline_ms > consumer.now_ms + most_backoff_ms(consumer, 0)):
            fail("C8", f"{consumer.name}: an automatic commit failed with {effect.error!r}, and is put off")

    def listener_begins(self, consumer: Process, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """Partitions come or go: their next owner knows nothing of earlier failures."""
        self._paces[consumer.name].forget()

    def listener_ended(
        self, consumer: Process, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        self._paces[consumer.name].forget()

    def state_changed(self, consumer: Process, effect: StateChanged) -> None:
        self._paces[consumer.name].forget()
        self._paces[consumer.name].state = effect.new


def _asked(request: OffsetFetchRequest) -> _Asked:
    return frozenset(
        (topic.name, topic.topic_id, index)
        for group in request.groups
        for topic in group.topics or ()
        for index in topic.partition_indexes
    )


_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Codes of a commit's answer that a later commit may not get."""


def _passes(error: Kip848Error | None) -> bool:
    if isinstance(error, BrokerError):
        return error.code in _PASSING
    return isinstance(error, ConnectionLostError | RequestTimeoutError)


class ToldOutcomes(Observer):
    """C8: the application gets the coordinator's answers to commits and fetches; only assigned topics are looked up."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._answer: dict[str, tuple[int, dict[TopicPartition, int], list[int]]] = {}
        """Consumer -> the step in which the last answer to a commit came, its codes, and these in order."""
        self._assigned: dict[str, frozenset[UUID]] = {}
        self._offsets: dict[str, tuple[int, dict[TopicPartition, int]]] = {}
        """Consumer -> the step in which the last committed offsets came, and these."""

    @about(OffsetCommitRequest, OffsetFetchRequest, ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        if isinstance(response, OffsetFetchResponse):
            self._offsets[consumer.name] = (
                consumer.world.steps,
                {
                    TopicPartition(topic.name or self._topics.names[topic.topic_id], item.partition_index): (
                        item.committed_offset
                    )
                    for group in response.groups
                    for topic in group.topics
                    for item in topic.partitions
                    if not item.error_code and item.committed_offset >= 0
                },
            )
            return
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            if response.assignment is not None:
                self._assigned[consumer.name] = frozenset(
                    topic.topic_id
                    for topics in (response.assignment.topic_partitions, response.assignment.pending_topic_partitions)
                    for topic in topics
                )
            return
        codes = {
            TopicPartition(asked.name or self._topics.names.get(asked.topic_id, ""), item.partition_index): (
                item.error_code
            )
            for asked, topic in zip(request.topics, response.topics, strict=True)
            for item in topic.partitions
        }
        in_order = [item.error_code for topic in response.topics for item in topic.partitions if item.error_code]
        self._answer[consumer.name] = (consumer.world.steps, codes, in_order)

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest) -> None:
        """A member that joins has no assignment."""
        if request.member_epoch == 0:
            self._assigned.pop(consumer.name, None)

    def commit_ended(self, consumer: Process, effect: CommitDone) -> None:
        if not effect.offsets:
            return
        step, codes, in_order = self._answer.get(consumer.name, (-1, {}, []))
        if effect.error is None:
            if step != consumer.world.steps:
                fail("C8", f"{consumer.name} is told that {effect.offsets} are committed, and no answer said so")
            bad = {str(key): codes.get(key) for key in effect.offsets if codes.get(key) != 0}
            if bad:
                fail("C8", f"{consumer.name} is told that offsets are committed which were refused: {bad}")
        elif step == consumer.world.steps and in_order and codes.keys() == effect.offsets.keys():
            first = next((code for code in in_order if code != _DENIED), _DENIED)
            said = _codes_of(effect.error)
            if said and first not in said:
                fail("C8", f"{consumer.name} is told {effect.error!r}, the first error was {first}")

    def offsets_told(self, consumer: Process, effect: OffsetsFetched) -> None:
        step, offsets = self._offsets.get(consumer.name, (-1, {}))
        told = {partition: position.offset for partition, position in effect.offsets.items()}
        if effect.error is not None:
            offsets = {}
        elif step != consumer.world.steps:
            fail("C8", f"{consumer.name} is told {effect}, and no answer said so")
        if told != offsets:
            fail("C8", f"{consumer.name} is told {told}, and the coordinator said {offsets}")

    def names_asked(self, consumer: Process, topic_ids: frozenset[UUID]) -> None:
        """Only what is assigned needs a name."""
        strange = topic_ids - self._assigned.get(consumer.name, frozenset())
        if strange or not topic_ids:
            fail("C8", f"{consumer.name} asks for the names of {sorted(map(str, strange))}, which it was not given")


_DENIED: Final = 29
"""TOPIC_AUTHORIZATION_FAILED is reported only if there is no other error."""


def _codes_of(error: BaseException | None) -> set[int]:
    found: set[int] = set()
    while error is not None:
        code = getattr(error, "code", None)
        if isinstance(code, int) and code:
            found.add(int(code))
        error = error.__cause__
    return found


class KnownCoordinator(Observer):
    """C8: a working coordinator is not looked up; a broker that is not the coordinator is not asked again (R20, R23).

    Transient errors are not reported to the application (R21, R22).
    """

    def __init__(self) -> None:
        self._forgotten: dict[str, object] = {}
        """Consumer -> the connection on which it was told that this broker is not the coordinator."""
        self._heard: dict[str, tuple[int, int]] = {}
        """Consumer -> the step in which a commit was refused so, and the code."""
        self._refused: dict[str, object] = {}
        """Consumer -> the connection on which a commit was refused so that it waited for."""
        self._passing: dict[str, int] = {}
        """Consumer -> the step in which a lookup failed with what passes by itself."""

    def sent(self, consumer: Process, request: Any) -> None:
        name, link = consumer.name, consumer.network.link
        if isinstance(request, FindCoordinatorRequest):
            if link is not None and link.open and self._forgotten.get(name) is not link:
                fail("C8", f"{name} looks for the coordinator, and is connected to it")
        elif isinstance(request, JoinGroupRequest | SyncGroupRequest):
            pass  # they go over a connection of their own, which may have to be opened first
        elif link is not None and self._refused.get(name) is link:
            fail("C8", f"{name} goes on with a broker that is not the coordinator: {request}")

    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        name = consumer.name
        if isinstance(response, FindCoordinatorResponse):
            codes = [response.error_code, *(found.error_code for found in response.coordinators)]
            if any(code in RETRIABLE for code in codes):
                self._passing[name] = consumer.world.steps
            return
        found = _codes_in(response)
        if found & _FORGET or (ErrorCode.REQUEST_TIMED_OUT in found and isinstance(request, OffsetCommitRequest)):
            self._forgotten[name] = consumer.network.link
            if isinstance(request, OffsetCommitRequest) and len(found) == 1:
                self._heard[name] = (consumer.world.steps, next(iter(found)))

    def commit_ended(self, consumer: Process, effect: CommitDone) -> None:
        """The application waited for that answer: it counts."""
        step, code = self._heard.get(consumer.name, (-1, 0))
        if step == consumer.world.steps and code in _codes_of(effect.error):
            self._refused[consumer.name] = consumer.network.link

    def unanswered(self, consumer: Process, request: Any) -> None:
        """A connection without answers counts as broken."""
        if not isinstance(request, FindCoordinatorRequest):
            self._forgotten[consumer.name] = consumer.network.link

    def error_surfaced(self, consumer: Process, error: Kip848Error) -> None:
        """The application is not told of transient errors, nor of a removal: the member joins again."""
        if isinstance(error, FencedError):
            fail("C8", f"{consumer.name} is told {error!r}, and joins again")
        if self._passing.get(consumer.name) == consumer.world.steps:
            fail("C8", f"{consumer.name} is told {error!r}, which passes by itself")


_FORGET: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def _codes_in(response: Response) -> set[int]:
    match response:
        case OffsetCommitResponse(topics=topics):
            return {item.error_code for topic in topics for item in topic.partitions} - {0}
        case OffsetFetchResponse(groups=groups):
            return {response.error_code, *(group.error_code for group in groups)} - {0}
        case _:
            return {getattr(response, "error_code", 0)} - {0}
