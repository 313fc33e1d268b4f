"""A kind of group that the coordinator does not know is a class of `GroupKind`, and one entry in the list of kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, cast

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest, GroupMessage
from kip848_client.testing.coordinator.core.kind import GroupKind, route
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult, Reply, SoftChange
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.kinds import KINDS
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.group_record_keys import GroupKey
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import Int32, MessageSpec, RecordPart, Request, Response, record, request, response, wire

SESSION_MS = 1_000


class SeatResponse(Response, frozen=True):
    """The answer: how many are seated now."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.STREAMS_GROUP_HEARTBEAT, "0", flexible="0+")

    seated: Annotated[Int32, wire("0+")] = 0


class SeatRequest(Request[SeatResponse], frozen=True):
    """One more member takes a seat."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.STREAMS_GROUP_HEARTBEAT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""


class SeatsKey(GroupKey, frozen=True):
    """The record of a group."""

    WIRE: ClassVar[MessageSpec] = record(30_999, "0", flexible="none")


class SeatsValue(RecordPart, frozen=True):
    """How many are seated."""

    WIRE: ClassVar[MessageSpec] = record(30_999, "0", flexible="none")

    seated: Annotated[Int32, wire("0+")] = 0


class SeatGroup:
    """A group whose members are only counted."""

    kind: ClassVar[str] = "seats"
    protocol_type: ClassVar[str | None] = None
    has_private_topics: ClassVar[bool] = False
    offset_expiry: ClassVar[OffsetExpiry] = OffsetExpiry()

    def __init__(self, group_id: str, seated: int) -> None:
        self.group_id = group_id
        self.size = seated

    @property
    def state(self) -> str:
        return "Stable" if self.size else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.size

    def reads(self, topic: str) -> bool:
        return False

    def tombstones(self) -> Iterator[GroupRecord]:
        yield _record(self.group_id, None)

    def check_invariants(self) -> None:
        assert self.size >= 0


class SeatKind(GroupKind[SeatGroup]):
    """The kind."""

    GROUP: ClassVar[type[SeatGroup]] = SeatGroup
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = (SeatsKey,)
    TIMERS: ClassVar[frozenset[TimerKind]] = frozenset({TimerKind.SESSION})

    def replay(self, key: Any, value: Any) -> None:
        if value is None:
            self.state.forget_group(key.group_id)
        else:
            self.state.put_group(SeatGroup(key.group_id, value.seated))

    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        return [_session(group.group_id, now_ms) for group in self.state.all_of(SeatGroup)]

    def time_is_up(
        self, group: SeatGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        return CoordinatorResult(records=(_record(group.group_id, 0),))

    def remove_members(
        self, group: SeatGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        left = group.size - len(leaving)
        return [ErrorCode.NONE] * len(leaving), CoordinatorResult(records=(_record(group.group_id, left),))


def _seat(state: CoordinatorState, request: ApiRequest, message: SeatRequest, *, now_ms: int) -> CoordinatorResult:
    group = state.find(SeatGroup, message.group_id)
    seated = 1 if group is None else group.size + 1
    return CoordinatorResult(
        replies=(Reply(request.request_id, SeatResponse(seated=seated)),),
        records=(_record(message.group_id, seated),),
        soft=(_session(message.group_id, now_ms),),
    )


SeatKind.ROUTES = (route(SeatRequest, _seat),)


def _record(group_id: str, seated: int | None) -> GroupRecord:
    value = None if seated is None else SeatsValue(seated=seated)
    return GroupRecord(cast("Any", SeatsKey(group_id=group_id)), cast("Any", value))


def _session(group_id: str, now_ms: int) -> ArmTimer:
    return ArmTimer(TimerKey(TimerKind.SESSION, group_id, ""), deadline_ms=now_ms + SESSION_MS, member_epoch=0)


class Bench:
    """A coordinator that has this kind, too, and its log."""

    def __init__(self) -> None:
        self.log: list[GroupRecord] = []
        self.coordinator = self.new()

    def new(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(CoordinatorConfig(), rng=random.Random(1), kinds=(*KINDS, SeatKind))
        for kept in self.log:
            coordinator.replay(kept)
        coordinator.loaded(now_ms=0)
        return coordinator

    def perform(self, result: CoordinatorResult) -> None:
        self.log += result.records
        for kept in result.records:
            self.coordinator.replay(kept)
        self.coordinator.apply(result)
        self.coordinator.check_invariants()

    def send(self, message: GroupMessage, version: int) -> Any:
        result = self.coordinator.handle(ApiRequest(1, version, message, wall_ms=0), now_ms=0)
        self.perform(result)
        (reply,) = result.replies
        return reply.response


@pytest.fixture
def seats() -> Bench:
    """The group g with two members."""
    bench = Bench()
    bench.send(SeatRequest(group_id="g"), 0)
    assert bench.send(SeatRequest(group_id="g"), 0).seated == 2
    return bench


def test_its_groups_are_listed_loaded_and_deleted_like_all_others(seats: Bench) -> None:
    """A new kind would otherwise need an edit wherever groups are listed, loaded or deleted."""
    (listed,) = seats.send(ListGroupsRequest(), 5).groups
    assert (listed.group_type, listed.group_state) == ("seats", "Stable")
    delete = DeleteGroupsRequest(groups_names=("g",))
    assert [one.error_code for one in seats.send(delete, 2).results] == [ErrorCode.NON_EMPTY_GROUP]
    left = seats.send(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"),)), 5)
    assert [one.error_code for one in left.members] == [ErrorCode.NONE]
    seats.coordinator = seats.new()
    seats.perform(seats.coordinator.expire(now_ms=SESSION_MS, wall_ms=SESSION_MS))
    assert [one.error_code for one in seats.send(delete, 2).results] == [ErrorCode.NONE]
    assert seats.send(ListGroupsRequest(), 5).groups == ()


def test_what_it_does_not_do_is_refused_as_in_kafka(seats: Bench) -> None:
    """A consumer that takes the group's name learns that it is taken, and does no harm."""
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range"),),
    )
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=(), topic_partitions=()
    )
    fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))
    assert seats.send(join, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")
    assert seats.send(sync, 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert seats.send(HeartbeatRequest(group_id="g"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert seats.send(heartbeat, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert seats.send(OffsetDeleteRequest(group_id="g"), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [(one.error_code, one.topics) for one in seats.send(fetch, 9).groups] == [(0, ())]
