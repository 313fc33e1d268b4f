"""A coordinator with classic groups, driven by hand: requests that may be answered later, and short names for them.

The group is ``g``, its topic ``foo`` has six partitions, and there is no initial delay unless the test says so.
`MigrationHarness` adds members with real assignments, beside members on the new protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, cast

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig, MigrationPolicy
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Response
from tests.support.coordinator_harness import Harness

SESSION_MS = 10_000
REBALANCE_MS = 20_000
ALL = [0, 1, 2, 3, 4, 5]
"""The partitions of foo."""
FOO = encode_subscription(ConsumerProtocolSubscription(topics=("foo",)), version=0)

ResponseT = TypeVar("ResponseT", bound=Response)


class Call(Generic[ResponseT]):
    """A request that was sent, and its answer once there is one."""

    def __init__(self, harness: ClassicHarness, number: int) -> None:
        self._harness = harness
        self.number = number

    @property
    def is_parked(self) -> bool:
        """Whether there is no answer yet."""
        return self.number not in self._harness.answers

    @property
    def answer(self) -> ResponseT:
        """The answer, which must be there."""
        assert not self.is_parked, "the request is still parked"
        return cast("ResponseT", self._harness.answers[self.number])

    @property
    def code(self) -> ErrorCode:
        """The error code of the answer."""
        return ErrorCode(self.answer.error_code)  # type: ignore[attr-defined]  # all that are used here have one


class ClassicHarness(Harness):
    """See the module. Times are milliseconds."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 2**31 - 1, members_max: int = 100_000) -> None:
        super().__init__(
            CoordinatorConfig(
                classic_initial_rebalance_delay_ms=delay_ms, classic_max_size=size_max, members_max=members_max
            )
        )
        self.create_topic("foo", partitions=6)

    # --- requests

    def join_group(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | Iterable[str] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "client",
        group_id: str | None = None,
    ) -> Call[JoinGroupResponse]:
        """Send a JoinGroup of a consumer that reads foo."""
        offered = protocols if isinstance(protocols, Mapping) else dict.fromkeys(protocols, FOO)
        message = build(
            JoinGroupRequest,
            group_id=self.group_id if group_id is None else group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": data} for name, data in offered.items()],
        )
        return Call(self, self.post(message, version=version, client_id=client_id))

    def sync_group(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
        version: int = 5,
    ) -> Call[SyncGroupResponse]:
        """Send a SyncGroup."""
        message = build(
            SyncGroupRequest,
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[{"member_id": given, "assignment": data} for given, data in (assignments or {}).items()],
        )
        return Call(self, self.post(message, version=version))

    def beat(self, member_id: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        """Send a Heartbeat, and return its code."""
        message = HeartbeatRequest(self.group_id, generation, member_id, instance)
        return ErrorCode(self.send(message, version=4).error_code)

    def leave_group(self, *members: str | tuple[str, str]) -> list[ErrorCode]:
        """Send a LeaveGroup for members by id, or by (id, instance id); return their codes."""
        identities = [member if isinstance(member, tuple) else (member, None) for member in members]
        listed = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in identities]
        response = self.send(build(LeaveGroupRequest, group_id=self.group_id, members=listed), version=5)
        assert response.error_code == ErrorCode.NONE
        assert [(item.member_id, item.group_instance_id) for item in response.members] == identities
        return [ErrorCode(item.error_code) for item in response.members]

    def commit_code(self, member_id: str, generation: int, *, version: int = 9) -> ErrorCode:
        """Commit an offset of foo 0, and return its code."""
        return ErrorCode(self.commit(member_id, generation, {"foo": {0: 5}}, version=version)["foo", 0])

    def consumer_heartbeat(self, member_id: str, epoch: int, *, instance: str | None = None) -> ErrorCode:
        """Send a ConsumerGroupHeartbeat that joins with foo, or not; return its code."""
        if epoch == 0:
            answer = self.join(member_id, ["foo"], instance=instance, rebalance_timeout_ms=REBALANCE_MS)
        else:
            answer = self.heartbeat(member_id, epoch, instance=instance)
        return ErrorCode(answer.error_code)

    def describe(self, *, version: int = 6) -> DescribedGroup:
        """Send a DescribeGroups."""
        return self.send(DescribeGroupsRequest(groups=(self.group_id,)), version=version).groups[0]

    def listed(self) -> dict[str, tuple[str, str, str]]:
        """Send a ListGroups: group id -> (state, type, protocol type)."""
        response = self.send(ListGroupsRequest(), version=5)
        return {item.group_id: (item.group_state, item.group_type, item.protocol_type) for item in response.groups}

    # --- whole steps

    def newcomer(self, **options: object) -> str:
        """Join a dynamic member: both rounds. Returns its id; its JoinGroup may be parked."""
        return self.joining(**options)[0]

    def joining(self, **options: object) -> tuple[str, Call[JoinGroupResponse]]:
        """Join a dynamic member: both rounds. Returns its id and the JoinGroup."""
        first = self.join_group(**options)  # type: ignore[arg-type]
        assert first.code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.answer.member_id
        return member_id, self.join_group(member_id, **options)  # type: ignore[arg-type]

    def stable(self, *names: str, protocols: Iterable[str] = ("range",)) -> list[str]:
        """A stable group of dynamic members; each one's assignment is its name."""
        ids: list[str] = []
        calls: list[Call[JoinGroupResponse]] = []
        for _ in names:
            member_id, call = self.joining(protocols=protocols)
            ids.append(member_id)
            calls.append(call)
        if len(ids) > 1:
            calls[0] = self.join_group(ids[0], protocols=protocols)
        assert not any(call.is_parked for call in calls)
        self.sync_all(dict(zip(ids, names, strict=True)))
        return ids

    def sync_all(self, assignments: Mapping[str, str]) -> None:
        """Every member sends its SyncGroup, the leader last."""
        group = self.classic
        given = {member_id: name.encode() for member_id, name in assignments.items()}
        protocol = group.protocol
        followers = [
            self.sync_group(member_id, group.generation, protocol=protocol)
            for member_id in given
            if member_id != group.leader
        ]
        assert group.leader is not None
        leader = self.sync_group(group.leader, group.generation, given, protocol=protocol)
        assert {call.code for call in (*followers, leader)} == {ErrorCode.NONE}
        assert self.state_is(ClassicState.STABLE)

    # --- state

    @property
    def classic(self) -> ClassicGroup:
        """The group, which must exist and be classic."""
        group = self.coordinator.classic_group(self.group_id)
        assert group is not None, f"there is no classic group {self.group_id!r}"
        return group

    def state_is(self, state: ClassicState) -> bool:
        """Whether the group is in *state*."""
        return self.classic.state is state


class MigrationHarness(ClassicHarness):
    """See the module. Kafka's session timeout for members on the new protocol."""

    def __init__(
        self,
        *,
        policy: MigrationPolicy = "bidirectional",
        size_max: int = 2**31 - 1,
        classic_size_max: int = 2**31 - 1,
        members_max: int = 100_000,
    ) -> None:
        Harness.__init__(
            self,
            CoordinatorConfig(
                migration_policy=policy,
                consumer_max_size=size_max,
                classic_max_size=classic_size_max,
                members_max=members_max,
                consumer_session_timeout_ms=45_000,
                consumer_heartbeat_interval_ms=5_000,
            ),
        )
        self.create_topic("foo", partitions=6)

    def classic_group(self, *shares: Iterable[int], version: int = 0) -> list[str]:
        """A stable classic group of dynamic members with these partitions of foo."""
        members = [self.joining(protocols=subscription(version=version)) for _ in shares]
        ids = [member_id for member_id, _ in members]
        if len(ids) > 1:
            self.join_group(ids[0], protocols=subscription(version=version))
        generation = self.classic.generation
        given = {member_id: assignment(*share) for member_id, share in zip(ids, shares, strict=True)}
        for member_id in reversed(ids):
            self.sync_group(member_id, generation, given)
        return ids

    def rejoin(self, member_id: str, *, owned: Iterable[int] = (), version: int = 1, **options: object) -> int:
        """A JoinGroup to a consumer group, which must be answered at once; returns the generation."""
        call: Call[JoinGroupResponse] = self.join_group(
            member_id,
            protocols=subscription(owned=owned, version=version),
            **options,  # type: ignore[arg-type]
        )
        assert call.code == ErrorCode.NONE, call.code
        answer = call.answer
        assert (answer.member_id, answer.protocol_type, answer.protocol_name) == (member_id, "consumer", "range")
        assert (answer.leader, answer.members, answer.skip_assignment) == ("", (), False)
        return answer.generation_id

    def synced(self, member_id: str, generation: int, **options: object) -> list[int]:
        """A SyncGroup to a consumer group: partitions of foo."""
        return self.read_sync(self.sync_group(member_id, generation, **options))  # type: ignore[arg-type]

    @staticmethod
    def read_sync(call: Call[SyncGroupResponse]) -> list[int]:
        """The partitions of foo in an answer to SyncGroup."""
        assert call.code == ErrorCode.NONE, call.code
        topics = decode_assignment(call.answer.assignment).assigned_partitions
        return [partition for topic in topics for partition in topic.partitions]

    def mixed(self) -> tuple[str, int]:
        """A group of a classic member with 0-2 and the new member ``n`` with 3-5, both in step; (classic id, epoch)."""
        (a,) = self.classic_group(ALL)
        self.join("n", ["foo"])
        generation = self.rejoin(a)
        kept = self.synced(a, generation)
        given = self.received(self.heartbeat("n", generation))
        assert given is not None
        assert sorted(kept + given["foo"]) == ALL
        return a, generation


def subscription(
    *topics: str, owned: Iterable[int] = (), version: int = 0, rack: str | None = None
) -> dict[str, bytes]:
    """What a member offers for ``range``: these topics, and what it owns of foo."""
    wanted = ConsumerProtocolSubscription(
        topics=topics or ("foo",),
        owned_partitions=(TopicPartition("foo", tuple(owned)),) if owned else (),
        rack_id=rack,
    )
    return {"range": encode_subscription(wanted, version=version)}


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    """Partitions of foo, as a leader writes them."""
    topics = (TopicPartition("foo", partitions),) if partitions else ()
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), version=0)
