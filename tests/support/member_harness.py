"""A member with a scripted coordinator and a scripted application around it, on a clock that moves when told.

The harness performs the effects of every step: requests wait in `sent` until the test answers them, listener calls wait
in `calls`, calls of client-side assignors in `user_calls`. FindCoordinator, the connection and metadata are answered at
once, unless the test says otherwise. Every step is checked against `MemberInvariants`.
`ClassicMemberHarness` adds what only the classic protocol has.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.interface import PartitionAssignor
from kip848_client.assignors.client.user_data import SubscriptionFrame, write_subscription_frame
from kip848_client.common.clock import ManualClock
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription
from kip848_client.config.assignors import is_cooperative
from kip848_client.errors import Kip848Error
from kip848_client.member.core.assignor_events import (
    AssignorCall,
    AssignorDone,
    AssignorFailed,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.core.assignor_values import advertised, compute
from kip848_client.member.core.events import (
    AppPolled,
    AssignPartitions,
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    DescribeTopics,
    Fail,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveMode,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    ManuallyAssigned,
    MemberEffect,
    MemberEvent,
    MetadataUpdated,
    OffsetsFetched,
    OffsetsListed,
    PausePartitions,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StartFetching,
    StateChanged,
    StopFetching,
    SubscriptionChanged,
    SurfaceError,
    Tick,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.core.settings import GroupProtocol, MemberConfig, ResetPolicy
from kip848_client.member.core.states import MemberState, Phase
from kip848_client.member.member import Member
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as Partitions
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Request, Response
from tests.support.member_invariants import MemberInvariants
from tests.support.offset_answers import NO_OFFSET, commit_answer, fetch_answer

GROUP = "orders-group"
MEMBER_ID = "11111111-1111-1111-1111-111111111111"
INTERVAL_MS = 1000
MAX_POLL_MS = 10_000
ASSIGNOR_LIMIT_MS = 5_000
TOPIC_IDS = {"t": UUID(int=1), "u": UUID(int=2), "v": UUID(int=3)}
"""Topics of the cluster; a test may add or change ids in its own copy (`MemberHarness.topic_ids`)."""

ROUNDS = frozenset({ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT})
"""The APIs of client-side assignment."""

RequestT = TypeVar("RequestT", bound=Request[Response])
EffectT = TypeVar("EffectT")
ListenerEffect = AssignPartitions | RevokePartitions | LosePartitions

_KINDS: dict[type[ListenerEffect], str] = {
    AssignPartitions: "assigned",
    RevokePartitions: "revoked",
    LosePartitions: "lost",
}


class NoJitter(random.Random):
    """Randomness whose middle is all there is, so that waits can be written down."""

    def uniform(self, a: float, b: float) -> float:
        """The middle."""
        return (a + b) / 2


class Call(msgspec.Struct, frozen=True):
    """A listener call that the application has not finished."""

    kind: str
    partitions: tuple[str, ...]
    token: int


def partition(text: str) -> NamedPartition:
    """``"t-0"`` as a partition."""
    topic, _, index = text.rpartition("-")
    return NamedPartition(topic, int(index))


def positions(**offsets: int) -> dict[NamedPartition, OffsetAndMetadata]:
    """``positions(t_0=5)``: consumed up to 5 in partition 0 of t."""
    return {partition(key.replace("_", "-")): OffsetAndMetadata(value) for key, value in offsets.items()}


def named_assignment(
    topic_ids: Mapping[str, UUID],
    assignment: Mapping[str, Iterable[int]],
    *,
    pending: Mapping[str, Iterable[int]] | None = None,
    failure: int = 0,
    version: int = 0,
    metadata: bytes = b"",
    name: str = "",
) -> Assignment:
    """An assignment on the wire, from names; *failure* and what follows it are said by the assignor *name*."""
    given, awaited = (
        tuple(TopicPartitions(topic_ids[topic], tuple(indexes)) for topic, indexes in named.items())
        for named in (assignment, pending or {})
    )
    return Assignment(given, failure, awaited, version, metadata, name)


def assignor(metadata: bytes = b"", *, reason: int = 0, name: str = "mine") -> Assignor:
    """A client-side assignor as a heartbeat carries it."""
    return Assignor(name, 0, 1, reason, 1, metadata)


@dataclass
class MemberHarness:
    """Arrange with the methods named like users and coordinators act, assert with those named ``expect``.

    Args:
        settings: of the member, besides group and member id.
        coordinator_found: answer FindCoordinator and the connection at once.
        metadata_answered: answer RequestMetadata at once, with the topics in `topic_ids`.
        listeners_finish: end every listener call at once, without an error.
        heartbeat_version: the highest one of the coordinator; None if it has none.
        describes: the coordinator offers ConsumerGroupDescribe.
        rounds: the APIs of client-side assignment that it offers.
        described_at_once: ``metadata()`` of the assignor returns *metadata* at once.
        noticed_at_once: ``on_assignment()`` returns at once.
    """

    settings: dict[str, object] = field(default_factory=dict)
    coordinator_found: bool = True
    metadata_answered: bool = True
    listeners_finish: bool = False
    heartbeat_version: int | None = 1
    describes: bool = False
    rng: random.Random = field(default_factory=NoJitter)
    rounds: frozenset[ApiKey] = ROUNDS
    described_at_once: bool = True
    noticed_at_once: bool = True
    metadata: bytes = b""

    def __post_init__(self) -> None:
        defaults: dict[str, object] = {
            "group_id": GROUP,
            "member_id": MEMBER_ID,
            "max_poll_interval_ms": MAX_POLL_MS,
            "rebalance_timeout_ms": MAX_POLL_MS,
            "auto_commit_interval_ms": None,
            "auto_offset_reset": ResetPolicy.EARLIEST,
            "assignor_timeout_ms": ASSIGNOR_LIMIT_MS,
        }
        self.config = MemberConfig(**(defaults | self.settings))  # type: ignore[arg-type]
        self.clock = ManualClock()
        self.member = Member(self.config, rng=self.rng)
        self.invariants = MemberInvariants(self.member)
        self.topic_ids = dict(TOPIC_IDS)
        self.sent: list[SendRequest] = []
        """Requests that were not answered yet, oldest first."""
        self.waiting: list[ConnectCoordinator | RequestMetadata | ListOffsets] = []
        self.calls: list[Call] = []
        """Listener calls that are not over, oldest first."""
        self.user_calls: list[AssignorCall] = []
        """Calls of client-side assignors that have not returned."""
        self.history: list[str] = []
        """Everything that happened, one word each: what scenarios compare."""
        self.effects: list[MemberEffect] = []
        """All effects, in order."""
        self.app_polled_ms: int | None = None
        self._call_number = 1000
        self._automatic: list[MemberEvent] = []

    # --- the engine

    def step(self, event: MemberEvent) -> list[MemberEffect]:
        """One step, and the answers that come by themselves. Returns the effects of all of it."""
        seen: list[MemberEffect] = []
        events: list[MemberEvent] = [event]
        while events:
            current = events.pop(0)
            effects = self.member.step(current, now_ms=self.now_ms)
            self.invariants.check(current, effects, now_ms=self.now_ms)
            for effect in effects:
                self._perform(effect)
            events += self._automatic
            self._automatic = []
            seen += effects
            assert len(seen) < 10_000, "the member goes round in circles"
        self.effects += seen
        return seen

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case SendRequest(request_id, _, FindCoordinatorRequest()) if self.coordinator_found:
                self._automatic.append(ResponseReceived(request_id, self.coordinator_answer()))
            case SendRequest(_, _, request):
                self.sent.append(effect)
                self.history.append(_word(request))
            case ConnectCoordinator(request_id) if self.coordinator_found:
                self._automatic.append(CoordinatorConnected(request_id, self.versions))
            case RequestMetadata(request_id, topic_ids) if self.metadata_answered:
                names = {topic_id: name for name, topic_id in self.topic_ids.items() if topic_id in topic_ids}
                self._automatic.append(MetadataUpdated(names, request_id))
            case ConnectCoordinator() | RequestMetadata() | ListOffsets():
                self.waiting.append(effect)
            case AssignPartitions() | RevokePartitions() | LosePartitions():
                names_of = tuple(str(item) for item in sorted(effect.partitions))
                call = Call(_KINDS[type(effect)], names_of, effect.token)
                self.history.append(f"{call.kind}({','.join(names_of)})")
                if self.listeners_finish:
                    self._automatic.append(ListenerDone(effect.token))
                else:
                    self.calls.append(call)
            case PausePartitions(paused):
                self.history.append(f"pause({','.join(str(item) for item in sorted(paused))})")
            case StartFetching(started):
                self.history.append(f"fetch({','.join(f'{key}@{started[key].offset}' for key in sorted(started))})")
            case StopFetching(stopped):
                self.history.append(f"stop({','.join(str(item) for item in sorted(stopped))})")
            case LeaveDone():
                self.history.append("left")
            case SurfaceError(error) | Fail(error):
                self.history.append(type(error).__name__)
            case DescribeAssignors(call_id) if self.described_at_once:
                self._automatic.append(AssignorsDescribed((assignor(self.metadata),), call_id))
            case CallOnAssignment(call_id) if self.noticed_at_once:
                self.history.append(f"on_assignment({effect.group_metadata.member_epoch})")
                self._automatic.append(OnAssignmentDone(call_id))
            case DescribeAssignors() | RunAssignor() | CallOnAssignment():
                self.user_calls.append(effect)
            case StateChanged() | CommitDone() | OffsetsFetched():
                pass

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API versions of the coordinator."""
        versions: dict[int, tuple[int, int]] = {ApiKey.OFFSET_COMMIT: (2, 10), ApiKey.OFFSET_FETCH: (1, 10)}
        if self.heartbeat_version is not None:
            versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, self.heartbeat_version)
        if self.describes:
            versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = (0, 1)
        return versions | dict.fromkeys(map(int, self.rounds), (0, 0))

    # --- the clock

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.now_ms()

    def advance(self, ms: int) -> None:
        """Let time pass, with a tick at every deadline on the way."""
        end_ms = self.now_ms + ms
        while True:
            deadline_ms = self.member.deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.clock.advance(max(0, deadline_ms - self.now_ms))
            self.tick()
            next_ms = self.member.deadline_ms()
            assert next_ms is None or next_ms > self.now_ms, "the member asks for a tick that brings nothing"
        self.clock.advance(end_ms - self.now_ms)
        self.tick()

    def tick(self) -> list[MemberEffect]:
        """The shell wakes up."""
        return self.step(Tick(self.app_polled_ms))

    # --- the application

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """subscribe()."""
        self.step(SubscriptionChanged(Subscription(frozenset(topics), pattern)))

    def poll(
        self,
        consumed: Mapping[NamedPartition, OffsetAndMetadata] | None = None,
        stored: Mapping[NamedPartition, OffsetAndMetadata] | None = None,
    ) -> list[MemberEffect]:
        """poll(); reported to the member only if it wants that, as the shell does it."""
        self.app_polled_ms = self.now_ms
        if self.member.view().poll_wanted:
            return self.step(AppPolled(consumed or {}, stored))
        return self.tick()

    def finish_call(self, kind: str, *partitions_: str, error: BaseException | None = None) -> list[MemberEffect]:
        """The oldest listener call ends; it must be this one."""
        assert self.calls, f"no listener runs, expected {kind}"
        call = self.calls.pop(0)
        assert (call.kind, call.partitions) == (kind, partitions_)
        return self.step(ListenerDone(call.token, error))

    def commit(
        self,
        offsets: Mapping[NamedPartition, OffsetAndMetadata],
        *,
        kind: CommitKind = CommitKind.SYNC,
        timeout_ms: int = 60_000,
        revoking: bool = False,
        without_callback: bool = False,
    ) -> int:
        """commit(). Returns the number of the call."""
        self._call_number += 1
        deadline_ms = None if kind is CommitKind.ASYNC else self.now_ms + timeout_ms
        self.step(CommitRequested(self._call_number, offsets, kind, deadline_ms, revoking, without_callback))
        return self._call_number

    def committed(self, *partitions_: str, timeout_ms: int = 60_000) -> int:
        """committed(). Returns the number of the call."""
        self._call_number += 1
        wanted = frozenset(partition(name) for name in partitions_)
        self.step(FetchOffsetsRequested(self._call_number, wanted, self.now_ms + timeout_ms))
        return self._call_number

    def leave(
        self, *, timeout_ms: int = 30_000, mode: LeaveMode = LeaveMode.DEFAULT, closing: bool = False
    ) -> list[MemberEffect]:
        """unsubscribe() or close()."""
        self._call_number += 1
        return self.step(LeaveRequested(self._call_number, self.now_ms + timeout_ms, mode, closing))

    def assign(
        self,
        offsets: Mapping[NamedPartition, OffsetAndMetadata | None],
        consumed: Mapping[NamedPartition, OffsetAndMetadata] | None = None,
    ) -> list[MemberEffect]:
        """assign()."""
        return self.step(ManuallyAssigned(offsets, consumed or {}))

    # --- answers

    def coordinator_answer(self, *, error_code: int = 0, node_id: int = 1) -> FindCoordinatorResponse:
        """What FindCoordinator answers."""
        found = {"key": GROUP, "node_id": node_id, "host": "127.0.0.1", "port": 9092, "error_code": error_code}
        return build(FindCoordinatorResponse, coordinators=[found | {"error_message": None}])

    def requests(self, request_type: type[RequestT]) -> list[RequestT]:
        """Unanswered requests of one type."""
        return [item.request for item in self.sent if isinstance(item.request, request_type)]

    def take(self, request_type: type[Request[Response]]) -> SendRequest:
        """Take the oldest unanswered request of one type."""
        for item in self.sent:
            if isinstance(item.request, request_type):
                self.sent.remove(item)
                return item
        raise AssertionError(f"no {request_type.__name__} was sent; unanswered: {self.sent}")

    def answer(self, request_type: type[Request[Response]], response: Response) -> list[MemberEffect]:
        """Answer the oldest request of one type."""
        return self.step(ResponseReceived(self.take(request_type).request_id, response))

    def fail(
        self, request_type: type[Request[Response]], kind: FailureKind = FailureKind.DISCONNECTED
    ) -> list[MemberEffect]:
        """The oldest request of one type gets no answer."""
        return self.step(RequestFailed(self.take(request_type).request_id, kind, "scripted"))

    def find_coordinator(self, *, error_code: int = 0, node_id: int = 1) -> None:
        """Answer FindCoordinator, and let the connection come up (use with ``coordinator_found=False``)."""
        self.answer(FindCoordinatorRequest, self.coordinator_answer(error_code=error_code, node_id=node_id))
        if not error_code:
            connect = self.take_waiting(ConnectCoordinator)
            self.step(CoordinatorConnected(connect.request_id, self.versions))

    def take_waiting(self, effect_type: type[EffectT]) -> EffectT:
        """Take the oldest effect of one type that waits for an event."""
        return _oldest(self.waiting, effect_type)

    def answer_heartbeat(
        self,
        *,
        epoch: int = 1,
        assignment: Mapping[str, Iterable[int]] | None = None,
        error: int = 0,
        message: str | None = None,
        interval_ms: int = INTERVAL_MS,
        member_id: str | None = None,
        compute: bool = False,
        **told: Any,
    ) -> list[MemberEffect]:
        """Answer the oldest heartbeat; no assignment means no news.

        Args:
            compute: the member is asked to compute the target.
            told: what goes with an assignment of client-side assignors, see `named_assignment`.
        """
        heartbeat = self.take(ConsumerGroupHeartbeatRequest)
        assert isinstance(heartbeat.request, ConsumerGroupHeartbeatRequest)
        response = ConsumerGroupHeartbeatResponse(
            error_code=error,
            error_message=message,
            member_id=heartbeat.request.member_id if member_id is None else member_id,
            member_epoch=epoch if not error else 0,
            heartbeat_interval_ms=interval_ms if not error else 0,
            assignment=named_assignment(self.topic_ids, assignment, **told) if assignment is not None else None,
            should_compute_assignment=compute,
        )
        return self.step(ResponseReceived(heartbeat.request_id, response))

    def fail_heartbeat(self, kind: FailureKind = FailureKind.TIMED_OUT) -> list[MemberEffect]:
        """The oldest heartbeat gets no answer."""
        return self.fail(ConsumerGroupHeartbeatRequest, kind)

    def answer_commit(self, errors: int | Mapping[str, int] = 0) -> list[MemberEffect]:
        """Answer the oldest commit: one code for all partitions, or one each by name."""
        item = self.take(OffsetCommitRequest)
        assert isinstance(item.request, OffsetCommitRequest)
        answer = commit_answer(
            item.request,
            lambda topic, index: errors if isinstance(errors, int) else errors.get(f"{topic.name}-{index}", 0),
        )
        return self.step(ResponseReceived(item.request_id, answer))

    def answer_fetch(
        self,
        offsets: Mapping[str, int] | None = None,
        *,
        error: int = 0,
        errors: Mapping[str, int] | None = None,
    ) -> list[MemberEffect]:
        """Answer the oldest OffsetFetch: -1, no commit, for every partition that is not named."""
        item = self.take(OffsetFetchRequest)
        assert isinstance(item.request, OffsetFetchRequest)
        answer = fetch_answer(
            item.request,
            lambda topic, index: (offsets or {}).get(f"{topic.name}-{index}", NO_OFFSET),
            lambda topic, index: (errors or {}).get(f"{topic.name}-{index}", 0),
            error=error,
        )
        return self.step(ResponseReceived(item.request_id, answer))

    def answer_list_offsets(self, offset: int = 0) -> list[MemberEffect]:
        """Answer the oldest ListOffsets with one offset for all."""
        item = self.take_waiting(ListOffsets)
        return self.step(
            OffsetsListed(item.request_id, {key: OffsetAndMetadata(offset) for key in item.timestamps}, {})
        )

    def describe(
        self,
        target: Mapping[str, Iterable[int]],
        *,
        epoch: int,
        others: Iterable[int],
        target_epoch: int | None = None,
        own_epoch: int | None = None,
        error: int = 0,
        targets: Mapping[int, Mapping[str, Iterable[int]]] | None = None,
        leaving: Iterable[int] = (),
        slots: Mapping[int, str] | None = None,
    ) -> list[MemberEffect]:
        """Answer the oldest ConsumerGroupDescribe: the group is in *epoch*, and the others have these epochs.

        Args:
            targets: of the others, by their place in *others*.
            leaving: places of those that subscribe to nothing.
            slots: of the others, by their place.
        """

        def assigned(partitions: Mapping[str, Iterable[int]]) -> dict[str, object]:
            return {
                "topic_partitions": [
                    {"topic_id": self.topic_ids[topic], "topic_name": topic, "partitions": tuple(indexes)}
                    for topic, indexes in partitions.items()
                ]
            }

        itself = {
            "member_id": MEMBER_ID,
            "member_epoch": epoch if own_epoch is None else own_epoch,
            "target_assignment": assigned(target),
        }
        members = [
            {
                "member_id": f"other-{place}",
                "member_epoch": at,
                "instance_id": (slots or {}).get(place),
                "subscribed_topic_names": () if place in leaving else ("t",),
                "target_assignment": assigned((targets or {}).get(place, {})),
            }
            for place, at in enumerate(others)
        ]
        group = {
            "error_code": error,
            "group_id": GROUP,
            "group_epoch": epoch,
            "assignment_epoch": epoch if target_epoch is None else target_epoch,
            "members": [*members, itself],
        }
        return self.answer(ConsumerGroupDescribeRequest, build(ConsumerGroupDescribeResponse, groups=[group]))

    # --- client-side assignors

    def take_call(self, call_type: type[EffectT]) -> EffectT:
        """Take the oldest call of one type that has not returned."""
        return _oldest(self.user_calls, call_type)

    def finish_assign(
        self, target: Mapping[str, Mapping[str, Iterable[int]]] | None = None, *, error: int = 0
    ) -> list[MemberEffect]:
        """``assign()`` returns member id -> topic -> partitions."""
        call = self.take_call(RunAssignor)
        return self.step(AssignorDone(call.call_id, self.installed(target or {}), error))

    def finish_notice(self) -> list[MemberEffect]:
        """``on_assignment()`` returns."""
        return self.step(OnAssignmentDone(self.take_call(CallOnAssignment).call_id))

    def finish_metadata(self, metadata: bytes = b"") -> list[MemberEffect]:
        """``metadata()`` returns."""
        return self.step(AssignorsDescribed((assignor(metadata),), self.take_call(DescribeAssignors).call_id))

    def request_reassignment(self, reason: int) -> list[MemberEffect]:
        """The application asks for a new assignment."""
        return self.step(ReassignmentRequested(reason))

    def installed(self, target: Mapping[str, Mapping[str, Iterable[int]]]) -> tuple[InstallMember, ...]:
        """A target as Install carries it."""
        return tuple(
            build(
                InstallMember,
                member_id=member_id,
                partitions=[
                    {"topic_id": self.topic_ids[topic], "partitions": indexes} for topic, indexes in topics.items()
                ],
            )
            for member_id, topics in target.items()
        )

    @property
    def failures(self) -> list[str]:
        """What was reported to the log."""
        return [str(effect.error) for effect in self.emitted(AssignorFailed)]

    def answer_prepare(
        self, *, error: int = 0, group_epoch: int = 7, name: str = "mine", members: Iterable[str] = (MEMBER_ID,)
    ) -> list[MemberEffect]:
        """Answer the oldest Prepare: members without targets, all subscribed to t with two partitions."""
        if error:
            response = ConsumerGroupPrepareAssignmentResponse(error_code=error, error_message="scripted")
        else:
            topic_id = self.topic_ids["t"]
            common = {"member_epoch": 1, "subscribed_topic_ids": [topic_id], "assignor": {"metadata_version": 1}}
            response = build(
                ConsumerGroupPrepareAssignmentResponse,
                group_epoch=group_epoch,
                assignor_name=name,
                members=[common | {"member_id": one} for one in members],
                topics=[{"topic_id": topic_id, "topic_name": "t", "num_partitions": 2}],
            )
        return self.answer(ConsumerGroupPrepareAssignmentRequest, response)

    def answer_install(self, *, error: int = 0) -> list[MemberEffect]:
        """Answer the oldest Install."""
        message = "scripted" if error else None
        return self.answer(
            ConsumerGroupInstallAssignmentRequest,
            ConsumerGroupInstallAssignmentResponse(error_code=error, error_message=message),
        )

    @property
    def prepares(self) -> list[ConsumerGroupPrepareAssignmentRequest]:
        """Prepare requests without an answer."""
        return self.requests(ConsumerGroupPrepareAssignmentRequest)

    @property
    def installs(self) -> list[ConsumerGroupInstallAssignmentRequest]:
        """Install requests without an answer."""
        return self.requests(ConsumerGroupInstallAssignmentRequest)

    # --- expectations

    def expect_heartbeat(self, *, epoch: int | None = None, full: bool | None = None) -> ConsumerGroupHeartbeatRequest:
        """Exactly one heartbeat waits for its answer; look at it."""
        heartbeats = self.requests(ConsumerGroupHeartbeatRequest)
        assert len(heartbeats) == 1, f"expected one heartbeat, {len(heartbeats)} are unanswered"
        heartbeat = heartbeats[0]
        if epoch is not None:
            assert heartbeat.member_epoch == epoch
        if full is not None:
            said = (heartbeat.subscribed_topic_names, heartbeat.topic_partitions)
            assert all(item is not None for item in said) is full
            assert (heartbeat.rebalance_timeout_ms > 0) is full
        return heartbeat

    def expect_no_heartbeat(self) -> None:
        """No heartbeat waits for its answer."""
        assert not self.requests(ConsumerGroupHeartbeatRequest)

    def reported(self, heartbeat: ConsumerGroupHeartbeatRequest) -> dict[str, list[int]] | None:
        """What a heartbeat says it has, by name; None if it says nothing."""
        if heartbeat.topic_partitions is None:
            return None
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return {names[topic.topic_id]: list(topic.partitions) for topic in heartbeat.topic_partitions}

    def emitted(self, effect_type: type[EffectT]) -> list[EffectT]:
        """All effects of one type so far."""
        return [effect for effect in self.effects if isinstance(effect, effect_type)]

    def commit_error(self, call: int) -> Kip848Error | None:
        """How a commit ended; it must have ended once."""
        ends = [effect for effect in self.emitted(CommitDone) if effect.commit_id == call]
        assert len(ends) == 1, f"commit {call} ended {len(ends)} times"
        return ends[0].error

    def fetch_result(self, call: int) -> OffsetsFetched:
        """How a fetch ended; it must have ended once."""
        ends = [effect for effect in self.emitted(OffsetsFetched) if effect.fetch_id == call]
        assert len(ends) == 1, f"fetch {call} ended {len(ends)} times"
        return ends[0]

    def state(self) -> MemberState:
        """The public state."""
        return self.member.view().state

    def phase(self) -> Phase:
        """The phase."""
        return self.member.snapshot().phase

    @property
    def owned(self) -> list[str]:
        """What the application has, by name."""
        return [str(item) for item in sorted(self.member.view().assigned)]

    @property
    def readable(self) -> list[str]:
        """What may be handed out, by name."""
        return [str(item) for item in sorted(self.member.view().readable)]

    def forget_history(self) -> None:
        """Look only at what comes from here on."""
        self.history.clear()
        self.effects.clear()

    # --- shortcuts

    def join(self, assignment: Mapping[str, Iterable[int]] | None = None, *, topics: Iterable[str] = ("t",)) -> None:
        """Subscribe, poll, join, and be given *assignment* (nothing by default), up to the answer to the join."""
        self.subscribe(*topics)
        self.poll()
        self.answer_heartbeat(epoch=1, assignment=assignment if assignment is not None else {})

    def become_stable(self, assignment: Mapping[str, Iterable[int]] | None = None, *, offset: int = 0) -> None:
        """Be a member that has *assignment* and acknowledged it, fetching from *offset*, with nothing under way."""
        self.join(assignment)
        self.reconcile()
        self.answer_heartbeat(epoch=1)
        if assignment and any(assignment.values()):
            names = [f"{topic}-{index}" for topic, indexes in assignment.items() for index in indexes]
            self.answer_fetch(dict.fromkeys(names, offset))
        assert self.state() is MemberState.STABLE
        assert not self.sent
        self.forget_history()

    def reconcile(self, consumed: Mapping[NamedPartition, OffsetAndMetadata] | None = None) -> None:
        """Poll, and finish every listener call that comes of it."""
        self.poll(consumed)
        while self.calls:
            call = self.calls[0]
            self.finish_call(call.kind, *call.partitions)

    def assign_more(self, assignment: Mapping[str, Iterable[int]], *, epoch: int = 2) -> None:
        """Let the next interval heartbeat bring *assignment*."""
        if not self.requests(ConsumerGroupHeartbeatRequest):
            self.advance(INTERVAL_MS)
        self.answer_heartbeat(epoch=epoch, assignment=assignment)


def _oldest(waiting: list[Any], kind: type[EffectT]) -> EffectT:
    """Take the first of one kind."""
    found = next((item for item in waiting if isinstance(item, kind)), None)
    assert found is not None, f"no {kind.__name__} waits; there are {waiting}"
    waiting.remove(found)
    return found


def _word(request: Request[Response]) -> str:
    match request:
        case ConsumerGroupHeartbeatRequest():
            return f"heartbeat({request.member_epoch})"
        case OffsetCommitRequest():
            return f"commit({request.generation_id_or_member_epoch})"
        case OffsetFetchRequest():
            return "fetch offsets"
        case _:
            return type(request).__name__


Given = Mapping[str, Iterable[int]]


@dataclass
class ClassicMemberHarness(MemberHarness):
    """Arrange and assert as with `MemberHarness`.

    Args:
        assignors: built-in names, or objects, in order of preference.
        partition_counts: topics of the cluster.
        racks: of a topic's replicas, partition by partition.
        describes: brokers say which topics there are; else see `fail_describing`.
        offered: highest versions of old coordinators, by API key.
    """

    assignors: tuple[str | PartitionAssignor, ...] = ("cooperative-sticky",)
    runs_assignors: bool = True
    describes: bool = True
    describing: int = 0
    offered: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objects = tuple(BUILT_IN[each]() if isinstance(each, str) else each for each in self.assignors)
        self.settings = {
            "protocol": GroupProtocol.CLASSIC,
            "client_assignors": tuple(map(advertised, self.objects)),
            "cooperative": is_cooperative(self.objects),
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": INTERVAL_MS,
            **self.settings,
        }
        self.partition_counts = {"t": 6, "u": 6}
        self.racks: dict[str, tuple[frozenset[str], ...]] = {}
        self.told: list[CallOnAssignment] = []
        super().__post_init__()

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case DescribeTopics(request_id) if not self.describes:
                self.describing = request_id
            case DescribeTopics(request_id, topics):
                found = {
                    name: TopicDescription(TOPIC_IDS[name], count, self.racks.get(name, ()))
                    for name, count in self.partition_counts.items()
                    if name in topics or effect.pattern is not None
                }
                self._automatic.append(TopicsDescribed(request_id, found))
            case RunAssignor() if self.runs_assignors:
                self._automatic.append(compute(self.objects, effect)[0])
            case DescribeAssignors(call_id) if self.described_at_once:
                self._automatic.append(AssignorsDescribed(tuple(map(advertised, self.objects)), call_id))
            case CallOnAssignment():
                self.told.append(effect)
                super()._perform(effect)
            case _:
                super()._perform(effect)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API versions of the coordinator."""
        return {
            **super().versions,
            ApiKey.JOIN_GROUP: (0, 9),
            ApiKey.SYNC_GROUP: (0, 5),
            ApiKey.HEARTBEAT: (0, 4),
            ApiKey.LEAVE_GROUP: (0, 5),
            **{key: (0, version) for key, version in self.offered.items()},
        }

    # --- answers

    def answer_join(self, *, error: int = 0, generation: int = 1, leader: str = "other", **fields: Any) -> None:
        """Answer the JoinGroup under way; the member is "m-1"."""
        response = JoinGroupResponse(
            error_code=error,
            generation_id=-1 if error else generation,
            protocol_type="consumer",
            leader=leader,
            **{"member_id": "m-1", "protocol_name": self.objects[0].name, **fields},
        )
        self.answer(JoinGroupRequest, response)

    def answer_sync(self, given: Given | None = None, *, error: int = 0, user_data: bytes | None = None) -> None:
        """Answer the SyncGroup under way; None for *given* is an answer without bytes."""
        assigned = tuple(Partitions(topic, tuple(indexes)) for topic, indexes in (given or {}).items())
        data = encode_assignment(ConsumerProtocolAssignment(assigned, user_data))
        self.answer(SyncGroupRequest, SyncGroupResponse(error_code=error, assignment=b"" if given is None else data))

    def fail_describing(self) -> None:
        """Tell the member that no broker could say which topics there are."""
        self.step(RequestFailed(self.describing, FailureKind.TIMED_OUT, "no answer in time"))

    def finish_describing(self) -> None:
        """``metadata()`` of all assignors returns."""
        call_id = self.take_call(DescribeAssignors).call_id
        self.step(AssignorsDescribed(tuple(map(advertised, self.objects)), call_id))

    def answer_beat(self, error: int = 0) -> None:
        """Answer the heartbeat under way."""
        self.answer(HeartbeatRequest, HeartbeatResponse(error_code=error))

    def become_member(self, given: Given, *, generation: int = 1) -> None:
        """Subscribe to t, join, and take *given* up."""
        self.subscribe("t")
        self.poll()
        self.answer_join(generation=generation)
        self.answer_sync(given)
        self.listeners_finish = True
        self.poll()
        if any(given.values()):
            self.answer_fetch({f"{topic}-{index}": 0 for topic, indexes in given.items() for index in indexes})
        self.listeners_finish = False
        self.forget_history()

    def beat(self, error: int = 0) -> None:
        """Let a heartbeat become due, and answer it."""
        self.advance(INTERVAL_MS)
        self.answer_beat(error)

    def pass_time(self, ms: int) -> None:
        """Time passes; heartbeats are answered, and the application polls."""
        for _ in range(ms // 500):
            self.advance(500)
            self.poll()
            if self.requests(HeartbeatRequest):
                self.answer_beat()

    # --- the messages

    def joining(self) -> JoinGroupRequest:
        """The JoinGroup that has no answer yet; there is one."""
        (request,) = self.requests(JoinGroupRequest)
        return request

    def said(self) -> ConsumerProtocolSubscription:
        """The subscription in it."""
        return decode_subscription(self.joining().protocols[0].metadata)

    def listed(self) -> list[str]:
        """The partitions in it."""
        return [f"{each.topic}-{index}" for each in self.said().owned_partitions for index in each.partitions]

    def dealt(self) -> dict[str, list[str]]:
        """What the SyncGroup under way gives each member, by member id."""
        (request,) = self.requests(SyncGroupRequest)
        return {
            each.member_id: [
                f"{topic.topic}-{index}"
                for topic in decode_assignment(each.assignment).assigned_partitions
                for index in topic.partitions
            ]
            for each in request.assignments
        }


def a_member(
    member_id: str,
    owned: Given | None = None,
    *,
    generation: int = -1,
    topics: Iterable[str] = ("t",),
    user_data: bytes | None = None,
    frame: SubscriptionFrame | None = None,
    instance: str | None = None,
    rack: str | None = None,
) -> JoinGroupResponseMember:
    """A member, as the leader is told of it."""
    subscription = ConsumerProtocolSubscription(
        topics=tuple(topics),
        user_data=write_subscription_frame(frame) if frame is not None else user_data,
        owned_partitions=tuple(Partitions(topic, tuple(indexes)) for topic, indexes in (owned or {}).items()),
        generation_id=generation,
        rack_id=rack,
    )
    return JoinGroupResponseMember(member_id, instance, encode_subscription(subscription))


def held(**indexes: Iterable[int]) -> tuple[NamedPartition, ...]:
    """Partitions by topic, as a frame holds them."""
    return tuple(NamedPartition(topic, index) for topic, found in indexes.items() for index in found)
