"""Classic groups: their rounds (K1 to K5), who is refused (K10), what their members say, and what they read. K1 to K11.

The rules of the coordinator are told here a second time, from the requests and from the group before them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kip848_client.coordinator.classic.group import ClassicGroup, ClassicState, Parked
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.errors import ErrorCode
from kip848_client.member.events import MemberEffect, MemberEvent, SendRequest, SubscriptionChanged
from kip848_client.model import Subscription, TopicPartition
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.process import Process
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Request


class ClassicRounds(Observer):
    """K2: each completed join phase adds one to the generation, and nothing else moves it.

    K3: one leader, who is a member; all members of a stable group offer its protocol. K4: a parked request is answered
    within the rebalance timeout. K5: a member gets what the leader handed in for it, once for each generation.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._before: ClassicGroup | None = None
        self._loads = 0
        self._handed_in: Mapping[str, bytes] | None = None
        """By the leader, in this step."""
        self._parked_ms: dict[Parked, int] = {}

    @about(SyncGroupRequest)
    def served(self, client_id: str, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        after = self._cluster.coordinator.classic_group(request.group_id)
        if response.error_code or after is None:
            return
        before = self._mirror.classic
        if before is not None and before.state is ClassicState.COMPLETING and request.member_id == before.leader:
            self._handed_in = {each.member_id: each.assignment for each in request.assignments}
        if after.state is not ClassicState.STABLE or after.members[request.member_id].assignment != response.assignment:
            fail("K5", f"{client_id} is given {response.assignment!r} of {_text(after)}")

    def group_changed(self, changes: Sequence[Change]) -> None:
        before, after = self._before, self._mirror.classic
        loaded, self._loads = self._mirror.loads != self._loads, self._mirror.loads
        handed_in, self._handed_in = self._handed_in, None
        self._before = after
        self._look_at_parked(after, loaded=loaded)
        if after is None or after is before:
            return
        try:
            after.check_invariants()
        except AssertionError as broken:
            fail("K3", f"{broken}: {_text(after)}")
        if before is None or loaded:
            return
        moved = after.generation - before.generation
        completes = after.state is not before.state and after.state in (ClassicState.COMPLETING, ClassicState.EMPTY)
        if moved not in (0, 1) or (completes and not moved) or (moved and after.state in _KEEPING):
            fail("K2", f"from generation {before.generation} in {before.state} to {after.generation} in {after.state}")
        if after.state is not ClassicState.STABLE:
            return
        given = _assignments(after)
        if before.state is ClassicState.STABLE and given != _assignments(before):
            fail("K5", f"a stable group went from {_assignments(before)} to {given}")
        if before.state is ClassicState.COMPLETING and self._cluster.up:
            wanted = {} if handed_in is None else handed_in
            if handed_in is None or any(
                member.assignment != wanted.get(member_id, b"") for member_id, member in after.members.items()
            ):
                fail("K5", f"the leader handed in {handed_in}, and given is {given}")

    def _look_at_parked(self, group: ClassicGroup | None, *, loaded: bool) -> None:
        now_ms = self._world.now_ms
        parked = () if group is None else (*group.awaiting_join.values(), *group.awaiting_sync.values())
        since = {} if loaded else self._parked_ms
        self._parked_ms = {request: since.get(request, now_ms) for request in parked}
        if self._parked_ms and group is not None and self._cluster.up:
            waits_ms = now_ms - min(self._parked_ms.values())
            if waits_ms > group.rebalance_timeout_ms:
                fail("K4", f"a request is parked for {waits_ms} ms: {_text(group)}")

    def converged(self) -> None:
        """Nothing is parked at rest."""
        if self._parked_ms:
            fail("K4", f"requests are parked, and the group rests: {self._mirror.classic}")


_KEEPING: Final = (ClassicState.PREPARING, ClassicState.STABLE)
"""States that a group enters with the generation that it has."""


def _text(group: ClassicGroup) -> str:
    return f"{group.state}@{group.generation} of {sorted(group.members)}, leader {group.leader}"


def _assignments(group: ClassicGroup) -> list[tuple[str | None, bytes]]:
    """By instance id where there is one: a static member that is back has what its former self had."""
    return sorted((member.instance_id or member_id, member.assignment) for member_id, member in group.members.items())


class ClassicFencing(Observer):
    """K7, K10: which requests count for a member and generation; a refused one changes nothing.

    K7: in a consumer group a Heartbeat is told to join again exactly when a JoinGroup would move its member on.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror

    @about(JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        match request, response:
            case HeartbeatRequest(), HeartbeatResponse(error_code=code):
                wanted = self._generation_verdict(request) or self._beat_verdict(request)
                if code != wanted:
                    number = "K7" if ErrorCode.REBALANCE_IN_PROGRESS in (code, wanted) else "K10"
                    fail(number, f"{client_id} sent {request} and was told {code}, not {wanted.name}")
                self._changes_nothing(client_id, request, code)
            case SyncGroupRequest(), SyncGroupResponse(error_code=code):
                if not self._is_parked(request.member_id):
                    if not code and (wanted := self._generation_verdict(request)):
                        fail("K10", f"{client_id} sent {request}, was told {code}, and not {wanted.name}")
                    self._changes_nothing(client_id, request, code)
            case JoinGroupRequest(), JoinGroupResponse(error_code=code):
                if request.member_id and not self._is_parked(request.member_id) and code not in _CHANGING:
                    self._changes_nothing(client_id, request, code)
            case LeaveGroupRequest(), LeaveGroupResponse(members=members):
                codes = [member.error_code for member in members]
                self._changes_nothing(client_id, request, min(codes, default=0))
            case _:
                pass

    def _is_parked(self, member_id: str) -> bool:
        """Whether another member's request may have caused the answer."""
        group = self._mirror.classic
        return group is not None and (member_id in group.awaiting_join or member_id in group.awaiting_sync)

    def _changes_nothing(self, client_id: str, request: Request[Any], code: int) -> None:
        if code and self._cluster.version != self._mirror.version:
            fail("K10", f"{client_id} was refused with {code}, and yet something changed: {request}")

    def _generation_verdict(self, request: HeartbeatRequest | SyncGroupRequest) -> ErrorCode:
        """Whether the sender is a member of that generation, in a group of either kind."""
        classic, members = self._mirror.classic, self._mirror.members
        if classic is not None:
            ids = {one: member.instance_id for one, member in classic.members.items()}
            generation = classic.generation
        else:
            ids = {one: seen.member.metadata.instance_id for one, seen in members.items()}
            seen = members.get(request.member_id)
            generation = seen.epoch if seen is not None else 0
            if seen is not None and seen.member.metadata.classic is None:
                del ids[request.member_id]
        if request.group_instance_id is not None:
            holders = [one for one, instance in ids.items() if instance == request.group_instance_id]
            if holders and request.member_id not in holders:
                return ErrorCode.FENCED_INSTANCE_ID
        if request.member_id not in ids:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == request.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _beat_verdict(self, request: HeartbeatRequest) -> ErrorCode:
        """REBALANCE_IN_PROGRESS if the member has to join again."""
        mirror = self._mirror
        if mirror.classic is not None:
            joins = mirror.classic.state is ClassicState.PREPARING
        else:
            seen = mirror.members[request.member_id]
            alone = all(each.member.metadata.classic is not None for each in mirror.members.values())
            newest = mirror.group_epoch if alone else mirror.target_epoch
            held = {p for one, each in mirror.members.items() if one != request.member_id for p in each.held}
            topics = self._cluster.topics.image.by_id
            missing = {p for p in seen.target - seen.held if p[0] in topics}
            joins = seen.epoch < newest or bool(seen.pending) or (bool(missing) and not missing & held)
        return ErrorCode.REBALANCE_IN_PROGRESS if joins else ErrorCode.NONE


_CHANGING: Final = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED)
"""A JoinGroup with these codes may change the group: it hands an id out, or shuts a member out of one that is full."""


class ClassicRequests(Observer):
    """K13: a JoinGroup lists exactly what its sender has, which is nothing if it is eager; and joins make no storm.

    K14: a leader gives each partition to one member, and none that another member still owns.
    """

    def __init__(self) -> None:
        self._joins: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_JOINS_MAX))
        self._led: dict[str, tuple[int, dict[str, ConsumerProtocolSubscription]]] = {}
        """Consumer -> generation that it leads, and what the members said."""
        self._subscribed: dict[str, Subscription] = {}
        """Consumer -> what its member was told last; a process that stands still tells it later."""

    def told(self, consumer: Process, event: MemberEvent) -> None:
        if isinstance(event, SubscriptionChanged):
            self._subscribed[consumer.name] = event.subscription

    def decided(self, consumer: Process, effects: Sequence[MemberEffect]) -> None:
        """Look at each JoinGroup at the moment at which it was made."""
        if not consumer.is_classic:
            return
        for effect in effects:
            if isinstance(effect, SendRequest) and isinstance(effect.request, JoinGroupRequest):
                self._joining(consumer, effect.request)

    def _joining(self, consumer: Process, request: JoinGroupRequest) -> None:
        has = {tip.topic_partition for tip in consumer.member.view().assigned}
        for protocol in request.protocols:
            if _owned(decode_subscription(bytes(protocol.metadata))) != has:
                fail("K13", f"{consumer.name} has {sorted(map(str, has))}, and joins with {request}")
        subscription = self._subscribed[consumer.name]
        strange = {partition.topic for partition in has} - subscription.topics
        if strange and subscription.pattern is None:
            fail(
                "K13",
                f"{consumer.name} has partitions of {sorted(strange)}, and does not subscribe to them any more",
            )
        if has and not consumer.config.cooperative:
            fail("K13", f"{consumer.name} is eager, and joins with {sorted(map(str, has))}")
        joins, now_ms = self._joins[consumer.name], consumer.world.now_ms
        if len(joins) == _JOINS_MAX and now_ms - joins[0] < _SECOND_MS:
            fail("K13", f"{consumer.name} joined {_JOINS_MAX} times within a second")
        joins.append(now_ms)

    @about(JoinGroupRequest)
    def answered(self, consumer: Process, request: Any, response: JoinGroupResponse) -> None:
        if response.members:
            said = {each.member_id: decode_subscription(bytes(each.metadata)) for each in response.members}
            self._led[consumer.name] = (response.generation_id, said)

    @about(SyncGroupRequest)
    def sent(self, consumer: Process, request: SyncGroupRequest) -> None:
        if not request.assignments:
            return
        generation, said = self._led[consumer.name]
        if generation != request.generation_id:
            fail("K14", f"{consumer.name} leads generation {generation}, and assigns for {request.generation_id}")
        given: dict[TopicPartition, str] = {}
        for each in request.assignments:
            for partition in _partitions(decode_assignment(bytes(each.assignment)).assigned_partitions):
                other = given.setdefault(partition, each.member_id)
                if other != each.member_id:
                    fail("K14", f"{consumer.name} gives {partition} to {other} and to {each.member_id}")
        for partition, member_id in given.items():
            claims = sorted(
                (subscription.generation_id, one)
                for one, subscription in said.items()
                if partition in _owned(subscription)
            )
            if partition.topic not in said[member_id].topics:
                fail("K14", f"{consumer.name} gives {partition} to {member_id}, who does not subscribe to it")
            if claims and claims[-1][1] != member_id:
                fail("K14", f"{consumer.name} gives {partition} to {member_id}, and owners are {claims}")


_JOINS_MAX: Final = 12
_SECOND_MS: Final = 1_000


def _partitions(topics: Sequence[Any]) -> set[TopicPartition]:
    return {TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions}


def _owned(subscription: ConsumerProtocolSubscription) -> set[TopicPartition]:
    return _partitions(subscription.owned_partitions)


class ClassicReading(Observer):
    """C1 in a classic group: no two members of its present generation read one partition.

    A member that did not join in the present generation may read until it hears of that; its commits are refused. So
    may one that missed a generation, whose assignment it does not know, while its claim is for an older one; and one of
    which a late JoinGroup was taken for what it owns now.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, consumers: Callable[[], Sequence[Process]]) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._consumers = consumers
        self._joined: dict[str, int] = {}
        """Member -> generation for which its JoinGroup counted last."""
        self._overtaken: set[str] = set()

    @about(JoinGroupRequest)
    def stale(self, client_id: str, request: Any) -> None:
        """It says what its sender owned then."""
        self._overtaken.add(client_id)

    @about(JoinGroupRequest)
    def answered(self, consumer: Process, request: Any, response: JoinGroupResponse) -> None:
        """What it says now counts again."""
        if not response.error_code:
            self._overtaken.discard(consumer.name)

    @about(JoinGroupRequest)
    def served(self, client_id: str, request: JoinGroupRequest, response: JoinGroupResponse) -> None:
        if response.error_code:
            return
        said = [decode_subscription(bytes(protocol.metadata)) for protocol in request.protocols]
        if any(each.owned_partitions and each.generation_id < response.generation_id - 1 for each in said):
            self._joined.pop(response.member_id, None)
        else:
            self._joined[response.member_id] = response.generation_id

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """A round that was not recorded never happened; members of another generation are told."""
        group = after.classic_group(self._mirror.group_id)
        self._joined = _generations(group)
        for consumer in self._consumers():
            if group is not None and consumer.view.member_epoch != group.generation:
                self._joined.pop(consumer.view.member_id, None)

    def group_changed(self, changes: Sequence[Change]) -> None:
        """A group that became a classic one has its members in its first generation, with what it counted as theirs.

        One that reads more was cut off while the group changed its kind twice, and is like one that has not joined.
        """
        converted, mirror = self._mirror.converted, self._mirror
        if converted is None:
            return
        self._joined = _generations(mirror.classic)
        for consumer in self._consumers():
            seen = converted.members.get(consumer.view.member_id)
            if seen is not None and not consumer.readable <= mirror.names(seen.held):
                self._joined.pop(consumer.view.member_id, None)

    def view_changed(self, consumer: Process) -> None:
        group = self._mirror.classic
        if group is None or not consumer.readable or not self._is_present(group, consumer):
            return
        for other in self._consumers():
            if (
                other is not consumer
                and (both := consumer.readable & other.readable)
                and self._is_present(group, other)
            ):
                fail("C1", f"{consumer.name} and {other.name} read {sorted(map(str, both))}: {_text(group)}")

    def _is_present(self, group: ClassicGroup, consumer: Process) -> bool:
        member_id = consumer.view.member_id
        if not consumer.is_classic or member_id not in group.members or consumer.name in self._overtaken:
            return False
        return self._joined.get(member_id) == group.generation


def _generations(group: ClassicGroup | None) -> dict[str, int]:
    return {} if group is None else dict.fromkeys(group.members, group.generation)
