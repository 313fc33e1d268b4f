"""A whole GroupMember, threads included, whose coordinator is a script: no socket, no broker, no librdkafka.

`ScriptedCoordinator` answers on the background thread. What is not to be answered stays open until the thread ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import anyio
import anyio.abc

from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.consumer.group.app_thread import AppThread
from kip848_client.consumer.group.commit_manager import CommitManager
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.consumer.group.heartbeat_manager import AppEffect, HeartbeatRequestManager, SteppedMember
from kip848_client.consumer.group.listener_invoker import ListenerInvoker
from kip848_client.journal import MemoryJournal
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    DescribeTopics,
    FailureKind,
    LeaveMode,
    ListOffsets,
    MemberEvent,
    MetadataUpdated,
    OffsetsListed,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    SendRequest,
)
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.member import Member
from kip848_client.network.observer import MemberObserver
from kip848_client.network.presence import AppPresence
from kip848_client.network.queues import AppQueue
from kip848_client.network.requests import MemberRequest
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.schema import Request, Response
from tests.support.offset_answers import commit_answer, fetch_answer

ORDERS: Final = UUID(int=1)
P0, P1 = NamedPartition("orders", 0), NamedPartition("orders", 1)
_VERSIONS: Final = {
    int(ApiKey.CONSUMER_GROUP_HEARTBEAT): (0, 1),
    int(ApiKey.OFFSET_COMMIT): (2, 9),
    int(ApiKey.OFFSET_FETCH): (1, 9),
}


class ScriptedCoordinator:
    """Answers like a coordinator of one member that gives it `partitions`; tests replace single answers.

    Attributes:
        sent: every request, in order.
        silent: classes of requests that are never answered.
        answers: class of request -> answer instead of the usual one.
        gone: no request reaches anybody.
    """

    def __init__(self, *, interval_ms: int = 50) -> None:
        self.interval_ms = interval_ms
        self.partitions: tuple[int, ...] = (0, 1)
        self.epoch = 1
        self.sent: list[Request[Response]] = []
        self.silent: set[type[Request[Response]]] = set()
        self.answers: dict[type[Request[Response]], Callable[[Request[Response]], Response]] = {}
        self.gone = False
        self.closed = False

    def start(self, effect: MemberRequest, on_end: Callable[[MemberEvent | None], None]) -> bool:
        return False

    async def perform(self, effect: MemberRequest) -> MemberEvent | None:
        await anyio.lowlevel.checkpoint()
        if self.gone:
            return RequestFailed(effect.request_id, FailureKind.DISCONNECTED, "no coordinator is there")
        match effect:
            case SendRequest(request=request):
                self.sent.append(request)
                if type(request) in self.silent:
                    await anyio.sleep_forever()
                special = self.answers.get(type(request))
                answer = special(request) if special is not None else self._answer(request)
                return ResponseReceived(effect.request_id, answer)
            case ConnectCoordinator():
                return CoordinatorConnected(effect.request_id, _VERSIONS)
            case RequestMetadata():
                return MetadataUpdated({ORDERS: "orders"}, effect.request_id)
            case ListOffsets():
                offsets = dict.fromkeys(effect.timestamps, OffsetAndMetadata(0))
                return OffsetsListed(effect.request_id, offsets=offsets, errors={})
            case DescribeTopics():
                raise AssertionError("only members on the classic protocol ask for topics")

    async def aclose(self) -> None:
        self.closed = True

    def heartbeats(self) -> list[ConsumerGroupHeartbeatRequest]:
        """The heartbeats so far."""
        return [request for request in self.sent if isinstance(request, ConsumerGroupHeartbeatRequest)]

    def _answer(self, request: Request[Response]) -> Response:
        match request:
            case FindCoordinatorRequest(coordinator_keys=(group_id,)):
                return FindCoordinatorResponse(
                    coordinators=(Coordinator(key=group_id, node_id=1, host="a", port=1, error_code=0),)
                )
            case ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch):
                if epoch < 0:
                    return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
                assignment = Assignment(topic_partitions=(TopicPartitions(ORDERS, self.partitions),))
                return ConsumerGroupHeartbeatResponse(
                    member_id=member_id,
                    member_epoch=self.epoch,
                    heartbeat_interval_ms=self.interval_ms,
                    assignment=assignment,
                )
            case OffsetCommitRequest():
                return commit_answer(request)
            case OffsetFetchRequest():
                return fetch_answer(request, lambda _topic, _index: 10)
            case _:
                raise AssertionError(f"the script has no answer for {request}")


class NotedRecords:
    """A record source that reads nothing: it notes what it is told; `processed` is what an application would report."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.processed: dict[NamedPartition, OffsetAndMetadata] = {}

    def warm(self, topics: Iterable[str]) -> None:
        self.calls.append(("warm", sorted(topics)))

    def start(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        self.calls.append(("start", sorted((p.partition, at.offset) for p, at in positions.items())))

    def hold(self, partitions: Iterable[NamedPartition]) -> None:
        self.calls.append(("hold", sorted(p.partition for p in partitions)))

    def stop(self, partitions: Iterable[NamedPartition]) -> None:
        gone = sorted(partitions)
        self.calls.append(("stop", [p.partition for p in gone]))
        for partition in gone:
            self.processed.pop(partition, None)

    def stop_all(self) -> None:
        self.calls.append(("stop_all", None))

    def positions(self) -> Mapping[NamedPartition, OffsetAndMetadata]:
        return self.processed

    def names(self) -> list[str]:
        """What was called, in order."""
        return [name for name, _ in self.calls]


class NotedCallbacks:
    """A listener that notes its calls, and does what `act` says inside."""

    def __init__(self, act: Callable[[str], object] = lambda _: None) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.act = act

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        self._note("assigned", partitions)

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        self._note("revoked", partitions)

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        self._note("lost", partitions)

    def _note(self, name: str, partitions: tuple[TopicIdPartition, ...]) -> None:
        self.calls.append((name, [partition.partition for partition in partitions]))
        self.act(name)


class Bench:
    """The parts of one member, put together around a script."""

    def __init__(
        self,
        coordinator: ScriptedCoordinator,
        *,
        clock: Clock | None = None,
        member: SteppedMember | None = None,
        auto_commit_interval_ms: int | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.clock = clock or SystemClock()
        self.records = NotedRecords()
        self.callbacks = NotedCallbacks()
        self.journal = MemoryJournal()
        observer = MemberObserver(group_id="g", client_id="c", clock=self.clock, journal=self.journal)
        config = MemberConfig(
            group_id="g",
            member_id="m",
            auto_commit_interval_ms=auto_commit_interval_ms,
            request_timeout_ms=60_000,
        )
        queue: AppQueue[AppEffect] = AppQueue()
        commits = CommitManager()
        presence = AppPresence()
        self.manager = HeartbeatRequestManager(
            member or Member(config, rng=random.Random(1)),
            make_performer=lambda tasks, report: coordinator,
            app_queue=queue,
            commits=commits,
            presence=presence,
            observer=observer,
            clock=self.clock,
            name="kip848-heartbeat-test",
        )
        listeners = ListenerInvoker(report=lambda done: self.thread.post(done), observer=observer)  # noqa: PLW0108  below  # noqa: PLW0108  below
        self.thread = AppThread(
            self.manager,
            queue=queue,
            commits=commits,
            presence=presence,
            listeners=listeners,
            records=self.records,
            clock=self.clock,
        )
        self.member = GroupMember(
            self.thread,
            manager=self.manager,
            commits=commits,
            listeners=listeners,
            clock=self.clock,
            default_api_timeout_ms=5_000,
            auto_commit=auto_commit_interval_ms is not None,
        )
        self.released = False

    def close(self, timeout_s: float = 5.0, mode: LeaveMode = LeaveMode.DEFAULT) -> list[BaseException]:
        """Close the member; returns what was raised on the way."""

        def release() -> None:
            self.released = True

        return self.member.close(timeout_ms=int(timeout_s * 1_000), mode=mode, release=release)


def poll_until(
    bench: Bench,
    condition: Callable[[], object],
    *,
    survives: tuple[type[BaseException], ...] = (),
    timeout_s: float = 60.0,
) -> list[BaseException]:
    """Poll as an application does, until *condition* holds. Returns what poll() raised and the application survived."""
    raised: list[BaseException] = []
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"did not come about; told {bench.callbacks.calls}, {bench.manager.view}"
        try:
            bench.member.poll(0.01)
        except survives as error:
            raised.append(error)
    return raised


@contextmanager
def closing(bench: Bench) -> Iterator[Bench]:
    """End the bench's thread whatever the test did."""
    try:
        yield bench
    finally:
        bench.close(timeout_s=0.2)
        bench.manager.stop(timeout_s=5.0)
