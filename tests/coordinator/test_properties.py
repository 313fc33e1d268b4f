"""Random lives of a group: whatever clients, topics, clock and disk do, the promises of the protocol hold.

The clients are simple and honest, but slow, forgetful and mortal: answers get lost, revocations take their time,
processes die and come back, and zombies speak. After every step the harness compares the live state with the replayed
one; the rest of the invariants is checked here. At the end the faults stop and the group must come to rest.
"""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from kip848_client.coordinator import GroupSnapshot, GroupState, MemberSnapshot, MemberState
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor, ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.support.coordinator_harness import FAST, FailedAppend, Harness

TOPICS = ("t0", "t1", "t2")
PATTERNS = ("t.*", "t[01]", "nothing")
Parts = set[tuple[str, int]]


class Client(msgspec.Struct):
    """One consumer process.

    Attributes:
        assigned: what the coordinator last told it to own.
        reading: what it reads now; more than `assigned` while it revokes.
        repeat: its last answer was lost, so it must send everything.
        offers: its client-side assignors.
    """

    member_id: str
    topics: tuple[str, ...]
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    assigned: Parts = msgspec.field(default_factory=set)
    reading: Parts = msgspec.field(default_factory=set)
    repeat: bool = True
    alive: bool = True
    offers: tuple[Assignor, ...] = ()


def _by_topic(parts: Parts) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        found.setdefault(topic, []).append(number)
    return found


class GroupLife(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.h = self.make_harness()
        self.clients: list[Client] = []
        self.h.create_topic("t0", partitions=3)

    def make_harness(self) -> Harness:
        """The coordinator under test."""
        return Harness(config=replace(FAST, consumer_regex_refresh_min_interval_ms=100))

    # What clients do

    @rule(
        topics=st.sets(st.sampled_from(TOPICS)),
        regex=st.none() | st.sampled_from(PATTERNS),
        static=st.booleans(),
        assignor=st.none() | st.sampled_from(["uniform", "range"]),
    )
    def start(self, topics: set[str], regex: str | None, static: bool, assignor: str | None) -> None:
        if len(self._alive()) >= 5:
            return
        number = len(self.clients)
        client = Client(f"m{number}", tuple(sorted(topics)), regex, f"i{number}" if static else None, assignor)
        self.clients.append(client)
        self._send(client)

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, data: st.DataObject, lost: bool) -> None:
        self._send(self._choose(data), lost=lost)

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        client = self._choose(data)
        client.reading &= client.assigned
        self._send(client)

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), topics=st.sets(st.sampled_from(TOPICS)), regex=st.none() | st.sampled_from(PATTERNS))
    def resubscribe(self, data: st.DataObject, topics: set[str], regex: str | None) -> None:
        client = self._choose(data)
        client.topics, client.regex = tuple(sorted(topics)), regex
        client.repeat = True
        self._send(client)

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), for_a_while=st.booleans(), new_id=st.booleans())
    def leave(self, data: st.DataObject, for_a_while: bool, new_id: bool) -> None:
        client = self._choose(data)
        client.alive = False
        if client.instance is None:
            self.h.heartbeat(client.member_id, -1)
            return
        self.h.heartbeat(client.member_id, -2 if for_a_while else -1, instance=client.instance)
        member_id = f"m{len(self.clients)}" if new_id else client.member_id
        self.clients.append(
            Client(member_id, client.topics, client.regex, client.instance, client.assignor, offers=client.offers)
        )
        self._send(self.clients[-1])

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self._choose(data).alive = False

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def administrator_removes_members(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self._alive()), min_size=1, unique_by=lambda one: one.member_id))
        named = tuple(MemberIdentity(member_id=one.member_id, group_instance_id=one.instance) for one in gone)
        group = self._group
        before = 0 if group is None else group.group_epoch
        response = self.h.send(LeaveGroupRequest(group_id="g", members=named), version=5)
        assert isinstance(response, LeaveGroupResponse)
        removed = any(not one.error_code for one in response.members)
        group = self._group
        assert (0 if group is None else group.group_epoch) == before + removed
        assert group is None or group.members.keys().isdisjoint(one.member_id for one in gone)

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), epoch=st.integers(-1, 30), says_owned=st.booleans())
    def zombie_speaks(self, data: st.DataObject, epoch: int, says_owned: bool) -> None:
        client = self._choose(data)
        group = self._group
        member = None if group is None else group.members.get(client.member_id)
        if epoch <= 0 or member is None or epoch in (member.member_epoch, member.previous_member_epoch):
            return
        before = self.h.state()
        response = self.h.heartbeat(client.member_id, epoch, owned={} if says_owned else None)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert self.h.state() == before

    # What happens around them

    @rule(ms=st.sampled_from([1, 200, 4_000, 20_000, 50_000]))
    def time_passes(self, ms: int) -> None:
        self.h.advance(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def topic_grows_or_is_created(self, name: str, partitions: int) -> None:
        topic = self.h.image.by_name.get(name)
        if topic is None:
            self.h.create_topic(name, partitions=partitions)
        elif partitions > topic.partition_count:
            self.h.add_partitions(name, partitions=partitions)

    @rule(name=st.sampled_from(TOPICS))
    def topic_is_deleted(self, name: str) -> None:
        if name in self.h.image.by_name:
            self.h.delete_topic(name)
            for client in self.clients:
                client.assigned = {part for part in client.assigned if part[0] != name}
                client.reading = {part for part in client.reading if part[0] != name}

    @rule()
    def patterns_are_matched(self) -> None:
        self.h.run_tasks()

    @rule()
    def coordinator_restarts(self) -> None:
        self.h.restart()
        self.h.tasks.clear()

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def disk_is_full_during_a_heartbeat(self, data: st.DataObject) -> None:
        before = self.h.state()
        self.h.fail_next_append = True
        client = self._choose(data)
        client.repeat = True
        self._send(client)
        if self.h.fail_next_append:
            self.h.fail_next_append = False
        else:
            assert self.h.state() == before

    # What must hold

    @invariant()
    def no_partition_is_read_by_two_members_of_the_group(self) -> None:
        group = self._group
        if group is None:
            return
        readers: dict[tuple[str, int], str] = {}
        for client in self._alive():
            member = group.members.get(client.member_id)
            if member is None or client.epoch not in (member.member_epoch, member.previous_member_epoch):
                continue  # cut off: it reads on until it hears that it was removed, and cannot commit
            for part in client.reading:
                other = readers.setdefault(part, client.member_id)
                assert other == client.member_id, f"{part} is read by {other} and {client.member_id}"

    @invariant()
    def a_member_at_the_target_s_epoch_holds_only_its_target(self) -> None:
        group = self._group
        if group is None:
            return
        for member in group.members.values():
            if member.member_epoch == group.target_epoch and member.member_epoch > 0:
                # A member gives up at once what it unsubscribed from; the target may follow later.
                assert group.group_epoch > group.target_epoch or member.pending_revocation.keys().isdisjoint(
                    self._subscribed_ids(group, member)
                )
                assert member.assigned_partitions <= member.target_partitions

    @invariant()
    def a_stable_group_owns_its_target_and_an_empty_one_nothing(self) -> None:
        group = self._group
        if group is None:
            return
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state is GroupState.STABLE:
            for member in group.members.values():
                assert member.member_epoch == group.target_epoch == group.group_epoch
                assert member.state is MemberState.STABLE
                assert member.assigned_partitions == member.target_partitions

    def teardown(self) -> None:
        """The faults stop: every living client does its part, and the group comes to rest."""
        self.h.advance(50_000)
        for round_ in range(40):
            for client in self._alive():
                self.h.run_tasks()
                client.reading &= client.assigned
                self._act(client)
            self.h.advance(200)
            if round_ > 2 and not self._alive():
                break
            group = self._group
            if round_ > 2 and group is not None and group.state is GroupState.STABLE:
                break
        else:
            raise AssertionError(f"the group does not come to rest: {self._group}")
        self.h.verify_log()
        if self._alive():
            self._check_coverage()

    # Inside

    def _act(self, client: Client) -> None:
        """What a healthy client does in its turn."""
        self._send(client)

    def _alive(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    def _choose(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self._alive()))

    @property
    def _group(self) -> GroupSnapshot | None:
        return self.h.coordinator.snapshot("g")

    def _send(self, client: Client, *, lost: bool = False) -> None:
        is_full = client.repeat or client.epoch == 0
        try:
            response = self.h.heartbeat(
                client.member_id,
                client.epoch,
                owned={} if client.epoch == 0 else _by_topic(client.reading),
                topics=client.topics if is_full else None,
                regex=client.regex or "" if is_full else None,
                rebalance_timeout_ms=5_000 if is_full else -1,
                instance=client.instance,
                assignor=client.assignor if is_full else None,
                offers=client.offers if is_full else None,
            )
        except FailedAppend:
            client.repeat = True
            return
        self._check_withholding(client, response)
        if lost:
            client.repeat = True
            return
        client.repeat = False
        match response.error_code:
            case ErrorCode.NONE:
                client.epoch = response.member_epoch
                received = self.h.received(response)
                if received is not None:
                    client.assigned = {(topic, number) for topic, numbers in received.items() for number in numbers}
                    client.reading |= client.assigned
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND:
                client.epoch, client.repeat = 0, True
                client.assigned, client.reading = set(), set()
            case code:
                raise AssertionError(f"{client} was answered {ErrorCode(code).name}: {response.error_message}")

    def _subscribed_ids(self, group: GroupSnapshot, member: MemberSnapshot) -> set[UUID]:
        names = set(member.metadata.subscribed_topic_names)
        resolved = group.resolved_regexes.get(member.metadata.subscribed_topic_regex or "")
        if resolved is not None:
            names |= resolved.topics
        return {self.h.topic_id(name) for name in names if name in self.h.image.by_name}

    def _check_withholding(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        """An answer never holds a partition that another member still counts as its own."""
        received = self.h.received(response)
        group = self._group
        if received is None or group is None:
            return
        for member in group.members.values():
            if member.member_id != client.member_id:
                held = member.assigned_partitions | member.pending_partitions
                for topic, numbers in received.items():
                    assert not held & {(self.h.topic_id(topic), number) for number in numbers}

    def _check_coverage(self) -> None:
        """Every partition of every subscribed topic is read by exactly one client."""
        group = self._group
        assert group is not None
        expected = {
            (name, number)
            for name in group.subscribed_topics
            if name in self.h.image.by_name
            for number in range(self.h.image.by_name[name].partition_count)
        }
        read = sorted(part for client in self._alive() for part in client.reading)
        assert read == sorted(expected)


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(stateful_step_count=40)
