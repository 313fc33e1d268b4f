"""Any order of events: the member never raises, never makes an illegal move, and keeps its promises.

`MemberInvariants` looks at every step. A member with a client-side assignor is asked to compute, too, and user code
returns whenever it likes. At the end the world is healed, and the member must become stable; if it has an assignor, a
round is asked for and must be installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.core.assignor_events import (
    AssignorDone,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    RunAssignor,
)
from kip848_client.member.core.events import (
    CallAbandoned,
    CommitKind,
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    FailureKind,
    LeaveMode,
    ListenerDone,
    ListOffsets,
    MetadataUpdated,
    OffsetsListed,
    PositionLost,
    PositionSet,
    RequestFailed,
    RequestMetadata,
    Tick,
)
from kip848_client.member.core.settings import ResetPolicy
from kip848_client.member.core.states import FATAL, MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.member_harness import MEMBER_ID, TOPIC_IDS, MemberHarness, assignor

TOPICS = sorted(TOPIC_IDS)
PARTITIONS = [NamedPartition(topic, index) for topic in TOPICS for index in range(3)]

assignments = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(0, 2), unique=True), max_size=3)
offsets = st.dictionaries(
    st.sampled_from(PARTITIONS), st.integers(0, 1000).map(OffsetAndMetadata), min_size=0, max_size=4
)
passing_codes = st.sampled_from(
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ]
)
heartbeat_codes = st.sampled_from(
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    ]
)


round_codes = st.sampled_from(
    [
        0,
        0,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
    ]
)


class MemberMachine(RuleBasedStateMachine):
    """Events in any order, from a coordinator, a cluster and an application."""

    assigns = False
    """The member has a client-side assignor."""

    def __init__(self) -> None:
        super().__init__()
        self.h = MemberHarness()

    @initialize(
        version=st.sampled_from([0, 1]),
        auto_commit=st.booleans(),
        static=st.booleans(),
        policy=st.sampled_from(list(ResetPolicy)),
        seed=st.integers(0, 2**16),
    )
    def configure(self, version: int, auto_commit: bool, static: bool, policy: ResetPolicy, seed: int) -> None:
        self.h = MemberHarness(
            settings={
                "auto_commit_interval_ms": 2000 if auto_commit else None,
                "instance_id": "host-1" if static else None,
                "auto_offset_reset": policy,
                "client_assignors": (assignor(),) if self.assigns else (),
            },
            coordinator_found=False,
            metadata_answered=False,
            heartbeat_version=1 if self.assigns else version,
            rng=random.Random(seed),
            described_at_once=False,
            noticed_at_once=False,
        )
        self.h.subscribe("t")
        self.h.poll()

    # --- application

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    def subscribe(self, topics: list[str]) -> None:
        self.h.subscribe(*topics)

    @rule(consumed=offsets)
    def poll(self, consumed: dict[NamedPartition, OffsetAndMetadata]) -> None:
        self.h.poll(consumed)

    @rule(mode=st.sampled_from(list(LeaveMode)), timeout_ms=st.sampled_from([0, 500, 30_000]))
    def unsubscribe(self, mode: LeaveMode, timeout_ms: int) -> None:
        self.h.leave(mode=mode, timeout_ms=timeout_ms)

    @rule(
        what=offsets,
        kind=st.sampled_from([CommitKind.SYNC, CommitKind.ASYNC, CommitKind.AUTO_CLOSE]),
        timeout_ms=st.sampled_from([0, 300, 60_000]),
    )
    def commit(self, what: dict[NamedPartition, OffsetAndMetadata], kind: CommitKind, timeout_ms: int) -> None:
        self.h.commit(what, kind=kind, timeout_ms=timeout_ms)

    @rule(partition=st.sampled_from(PARTITIONS), timeout_ms=st.sampled_from([0, 300, 60_000]))
    def committed(self, partition: NamedPartition, timeout_ms: int) -> None:
        self.h.committed(str(partition), timeout_ms=timeout_ms)

    @rule(back=st.integers(0, 5))
    def abandon(self, back: int) -> None:
        self.h.step(CallAbandoned(self.h._call_number - back))

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(-2, 1000))
    def seek(self, partition: NamedPartition, offset: int) -> None:
        self.h.step(PositionSet(partition, OffsetAndMetadata(offset)))

    @rule(partition=st.sampled_from(PARTITIONS))
    def lose_position(self, partition: NamedPartition) -> None:
        self.h.step(PositionLost(partition, OffsetAndMetadata(5)))

    @rule(partition=st.sampled_from(PARTITIONS), explicit=st.booleans())
    def assign(self, partition: NamedPartition, explicit: bool) -> None:
        self.h.assign({partition: OffsetAndMetadata(5) if explicit else None})

    @precondition(lambda self: self.h.calls)
    @rule(fails=st.booleans(), newest=st.booleans())
    def finish_listener(self, fails: bool, newest: bool) -> None:
        call = self.h.calls.pop(-1 if newest else 0)
        self.h.step(ListenerDone(call.token, ValueError("scripted") if fails else None))

    # --- time

    @rule(ms=st.sampled_from([1, 100, 1000, 5000]))
    def pass_time(self, ms: int) -> None:
        self.h.advance(ms)

    @rule(ms=st.sampled_from([0, 50]), polling=st.booleans())
    def wake_up(self, ms: int, polling: bool) -> None:
        self.h.clock.advance(ms)
        self.h.step(Tick(self.h.now_ms if polling else None))

    # --- the network

    @precondition(lambda self: self.h.requests(ConsumerGroupHeartbeatRequest))
    @rule(
        bump=st.integers(0, 1),
        assignment=st.none() | assignments,
        interval_ms=st.sampled_from([0, 1000, 2000]),
    )
    def accept_heartbeat(self, bump: int, assignment: dict[str, list[int]] | None, interval_ms: int) -> None:
        epoch = max(1, self.h.member.snapshot().member_epoch + bump)
        self.h.answer_heartbeat(epoch=epoch, assignment=assignment, interval_ms=interval_ms, member_id="m-7")

    @precondition(lambda self: self.h.requests(ConsumerGroupHeartbeatRequest))
    @rule(code=heartbeat_codes)
    def refuse_heartbeat(self, code: int) -> None:
        self.h.answer_heartbeat(error=code)

    @precondition(lambda self: self.h.requests(OffsetCommitRequest))
    @rule(code=st.just(0) | passing_codes)
    def answer_commit(self, code: int) -> None:
        self.h.answer_commit(code)

    @precondition(lambda self: self.h.requests(OffsetFetchRequest))
    @rule(
        found=st.dictionaries(st.sampled_from([str(item) for item in PARTITIONS]), st.integers(0, 100), max_size=3),
        errors=st.dictionaries(st.sampled_from([str(item) for item in PARTITIONS]), passing_codes, max_size=1),
        code=st.just(0) | st.just(0) | passing_codes,
    )
    def answer_fetch(self, found: dict[str, int], errors: dict[str, int], code: int) -> None:
        self.h.answer_fetch(found, error=code, errors=errors)

    @precondition(lambda self: self.h.requests(FindCoordinatorRequest))
    @rule(code=st.just(0) | st.just(0) | passing_codes, node_id=st.integers(1, 2))
    def answer_lookup(self, code: int, node_id: int) -> None:
        self.h.answer(FindCoordinatorRequest, self.h.coordinator_answer(error_code=code, node_id=node_id))

    @precondition(lambda self: self.h.sent)
    @rule(
        position=st.integers(0, 3),
        kind=st.sampled_from([FailureKind.TIMED_OUT, FailureKind.DISCONNECTED, FailureKind.MALFORMED]),
    )
    def lose_request(self, position: int, kind: FailureKind) -> None:
        item = self.h.sent.pop(min(position, len(self.h.sent) - 1))
        self.h.step(RequestFailed(item.request_id, kind, "scripted"))

    @precondition(lambda self: self.h.waiting)
    @rule(works=st.booleans(), topics=st.lists(st.sampled_from(TOPICS), unique=True))
    def end_waiting(self, works: bool, topics: list[str]) -> None:
        item = self.h.waiting.pop(0)
        if not works:
            self.h.step(RequestFailed(item.request_id, FailureKind.DISCONNECTED, "scripted"))
            return
        match item:
            case ConnectCoordinator(request_id):
                self.h.step(CoordinatorConnected(request_id, self.h.versions))
            case RequestMetadata(request_id):
                names = {self.h.topic_ids[topic]: topic for topic in topics}
                self.h.step(MetadataUpdated(names, request_id))
            case ListOffsets(request_id, timestamps):
                found = {key: OffsetAndMetadata(7) for key in timestamps if key.topic in topics}
                failed: dict[NamedPartition, int] = {key: 6 for key in timestamps if key.topic not in topics}
                self.h.step(OffsetsListed(request_id, found, failed))

    @rule(topics=st.lists(st.sampled_from(TOPICS), unique=True))
    def refresh_metadata(self, topics: list[str]) -> None:
        self.h.step(MetadataUpdated({self.h.topic_ids[topic]: topic for topic in topics}))

    @rule(node_id=st.integers(1, 2))
    def break_connection(self, node_id: int) -> None:
        self.h.step(CoordinatorDisconnected(node_id))

    # --- client-side assignors

    @precondition(lambda self: self.assigns and self.h.requests(ConsumerGroupHeartbeatRequest))
    @rule(
        bump=st.integers(0, 1),
        flag=st.booleans(),
        assignment=st.none() | assignments,
        pending=assignments,
        error=st.sampled_from([0, 0, 3, -1]),
    )
    def accept_with_flag(
        self,
        bump: int,
        flag: bool,
        assignment: dict[str, list[int]] | None,
        pending: dict[str, list[int]],
        error: int,
    ) -> None:
        epoch = max(1, self.h.member.snapshot().member_epoch + bump)
        self.h.answer_heartbeat(epoch=epoch, compute=flag, assignment=assignment, pending=pending, failure=error)

    @precondition(lambda self: self.h.prepares)
    @rule(code=round_codes, name=st.sampled_from(["mine", "mine", "mine", "theirs"]))
    def answer_prepare(self, code: int, name: str) -> None:
        self.h.answer_prepare(error=code, name=name)

    @precondition(lambda self: self.h.installs)
    @rule(code=round_codes)
    def answer_install(self, code: int) -> None:
        self.h.answer_install(error=code)

    @precondition(lambda self: self.h.user_calls)
    @rule(error=st.sampled_from([0, 0, 7, -1]), metadata=st.sampled_from([b"", b"hot"]))
    def return_from_user_code(self, error: int, metadata: bytes) -> None:
        self._return(error=error, metadata=metadata)

    @precondition(lambda self: self.assigns)
    @rule(reason=st.sampled_from([1, 2]))
    def ask_for_reassignment(self, reason: int) -> None:
        self.h.request_reassignment(reason)

    @precondition(lambda self: self.assigns)
    @rule()
    def return_twice(self) -> None:
        self.h.step(OnAssignmentDone(10_000))
        self.h.step(AssignorDone(10_000))

    def _return(self, *, error: int = 0, metadata: bytes = b"") -> None:
        call = self.h.user_calls.pop(0)
        match call:
            case DescribeAssignors(call_id):
                self.h.step(AssignorsDescribed((assignor(metadata),), call_id))
            case CallOnAssignment(call_id):
                self.h.step(OnAssignmentDone(call_id))
            case RunAssignor(call_id):
                self.h.step(AssignorDone(call_id, self.h.installed({MEMBER_ID: {"t": [0, 1]}}), error))

    @invariant()
    def user_code_is_called_once_at_a_time(self) -> None:
        assert len(self.h.user_calls) <= 1, f"two calls of user code: {self.h.user_calls}"

    # --- the end

    def teardown(self) -> None:
        """The faults end, and user code returns: a subscribed member becomes stable, and computes when asked."""
        member = self.h
        if member.phase() in FATAL:
            return
        member.described_at_once = member.noticed_at_once = True
        while member.user_calls:
            self._return()
        while member.prepares:
            member.answer_prepare(error=ErrorCode.UNKNOWN_MEMBER_ID)
        while member.installs:
            member.answer_install(error=ErrorCode.UNKNOWN_MEMBER_ID)
        fall_in_line(member, lambda: member.state() is MemberState.STABLE and member.owned == ["t-0", "u-1"])
        if not self.assigns:
            return
        while member.prepares:
            member.answer_prepare(error=ErrorCode.UNKNOWN_MEMBER_ID)
        while not member.requests(ConsumerGroupHeartbeatRequest):
            member.advance(100)
        epoch = member.member.snapshot().member_epoch
        member.answer_heartbeat(epoch=epoch, compute=True, assignment={"t": [0], "u": [1]})
        assert len(member.prepares) == 1, "asked, and did not begin"
        member.answer_prepare()
        assert [type(call) for call in member.user_calls] == [RunAssignor]
        self._return()
        assert [install.error for install in member.installs] == [0]


def fall_in_line(member: MemberHarness, done: Callable[[], bool]) -> None:
    """Answer everything well until *done*; fails if that takes more than a minute of the member's time."""
    wanted = {"t": [0], "u": [1]}
    for _ in range(600):
        if member.phase() is Phase.IDLE:
            member.subscribe("t", "u")
        member.poll()
        while member.calls:
            call = member.calls.pop(0)
            member.step(ListenerDone(call.token))
        for item in list(member.waiting):
            member.waiting.remove(item)
            match item:
                case ConnectCoordinator(request_id):
                    member.step(CoordinatorConnected(request_id, member.versions))
                case RequestMetadata(request_id):
                    member.step(MetadataUpdated({value: key for key, value in TOPIC_IDS.items()}, request_id))
                case ListOffsets(request_id, timestamps):
                    member.step(OffsetsListed(request_id, dict.fromkeys(timestamps, OffsetAndMetadata(0)), {}))
        while member.requests(FindCoordinatorRequest):
            member.answer(FindCoordinatorRequest, member.coordinator_answer())
        while member.requests(OffsetCommitRequest):
            member.answer_commit()
        while member.requests(OffsetFetchRequest):
            member.answer_fetch()
        while heartbeats := member.requests(ConsumerGroupHeartbeatRequest):
            if heartbeats[0].member_epoch < 0:
                member.answer_heartbeat(epoch=heartbeats[0].member_epoch)
            else:
                member.answer_heartbeat(epoch=max(1, heartbeats[0].member_epoch), assignment=wanted)
        if done():
            return
        member.advance(100)
    raise AssertionError(f"the member is {member.phase()} with {member.owned} a minute after all faults ended")


class AssigningMemberMachine(MemberMachine):
    """A member with a client-side assignor."""

    assigns = True


TestMemberMachine = MemberMachine.TestCase
TestAssigningMemberMachine = AssigningMemberMachine.TestCase
