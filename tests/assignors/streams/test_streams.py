"""`StreamsAssignor`: its bytes, its plans, and what members do with them. Numbers are those of the scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kip848_client import EmbeddedBroker
from kip848_client.assignors.client.check import violations
from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    MemberSpec,
    TopicSpec,
)
from kip848_client.assignors.streams import Owner, StreamsAssignor, Task, TaskRunner, Topology, TopologyError
from kip848_client.assignors.streams.assignor import ASSIGNMENT_ERROR, INCONSISTENT_TOPOLOGY, SHUTDOWN
from kip848_client.assignors.streams.messages import RUNNING, HostPartitions, MemberInfo, TaskAssignment
from kip848_client.common.model import TopicIdPartition
from kip848_client.consumer.consumer import Consumer
from kip848_client.errors import ConfigError

TOPIC_ID = UUID(int=9)
STATEFUL = Topology().subtopology("0", sources=["orders"], changelogs=["totals"])
BOTH = STATEFUL.subtopology("1", sources=["clicks"])


class Group:
    """A group that is assigned again and again; each process keeps the state of what it had."""

    def __init__(self, topology: Topology, counts: Mapping[str, int], **settings: Any) -> None:
        self.topology, self.counts, self.settings = topology, dict(counts), settings
        self.assignors: dict[str, StreamsAssignor] = {}
        self.target: dict[str, tuple[TopicIdPartition, ...]] = {}
        self.result = GroupAssignment()

    def join(self, name: str, *, process: int | None = None, **settings: Any) -> StreamsAssignor:
        """A new member without state."""
        number = len(self.assignors) + 1 if process is None else process
        made = StreamsAssignor(self.topology, process_id=UUID(int=number), **self.settings | settings)
        self.assignors[name] = made
        return made

    def spec(self) -> AssignmentSpec:
        """The group as the coordinator shows it."""
        members = {}
        for name, assignor in sorted(self.assignors.items()):
            told = assignor.metadata()
            members[name] = MemberSpec(
                name,
                self.topology.topics,
                metadata=told.metadata,
                version=told.version,
                reason=told.reason,
                target=self.target.get(name, ()),
            )
        topics = {topic: TopicSpec(TOPIC_ID, topic, count) for topic, count in sorted(self.counts.items())}
        return AssignmentSpec(group_epoch=1, members=members, topics=topics)

    def assign(self) -> GroupAssignment:
        """One assignment, told to all members."""
        spec = self.spec()
        first = next(iter(self.assignors.values()))
        self.result = first.assign(spec)
        if not self.result.error:
            assert not violations(spec, self.result)
            self.target = {
                name: tuple(TopicIdPartition(t, p, TOPIC_ID) for t, p in member.partitions)  # type: ignore[misc, arg-type]
                for name, member in self.result.members.items()
            }
        for name, assignor in self.assignors.items():
            told = MemberAssignment(self.target.get(name, ()), self._metadata(name))
            assignor.on_assignment(self.result.error, told, ConsumerGroupMetadata("g", name, 1))
        return self.result

    def _metadata(self, name: str) -> bytes:
        member = self.result.members.get(name)
        return b"" if member is None else member.metadata

    def roles(self, role: str) -> dict[Task, list[str]]:
        """Task -> the members that have it in a role."""
        found: dict[Task, list[str]] = {}
        for name, assignor in self.assignors.items():
            for task in getattr(assignor.assignment, role):
                found.setdefault(task, []).append(name)
        return found

    def catch_up(self, lag: int = 0) -> None:
        """Every copy reports the same lag."""
        for assignor in self.assignors.values():
            copies = [*assignor.assignment.standby, *assignor.assignment.warmup]
            known = dict.fromkeys(copies, lag)
            assignor.report_lag(known)


def test_77_what_members_tell_are_these_bytes() -> None:
    """Members of another version read these bytes; a changed layout splits a rolling upgrade."""
    info = MemberInfo(UUID(int=1), "h:1", (("zone", "a"),), UUID(int=2), {Task("0", 1): 5})
    told = bytes.fromhex(
        "0000000000000000000000000000000104683a3102057a6f6e65026100000000000000000000000000000000"
        "020202300000000100000000000000050000"
    )
    assert info.encode() == told
    assert MemberInfo.decode(told) == info


def test_77_what_members_are_told_are_these_bytes() -> None:
    """A member of another version reads its assignment in these bytes; a changed layout splits a rolling upgrade."""
    assignment = TaskAssignment(
        active=(Task("0", 0),),
        standby={Task("0", 1): {"c": (1,)}},
        hosts=(HostPartitions("h:1", {"t": (0,)}, {}),),
    )
    told = bytes.fromhex("02023000000000000202300000000102026302000000010000010204683a31020274020000000000010000")
    assert assignment.encode() == told
    assert TaskAssignment.decode(told) == assignment


@given(st.binary(max_size=80))
def test_foreign_bytes_are_a_value_error(data: bytes) -> None:
    """The group hears which member has them; nothing else may come out of the reader."""
    for kind in (MemberInfo, TaskAssignment):
        try:
            read = kind.decode(data)
        except ValueError:
            continue
        assert kind.decode(read.encode()) == read


def test_78_tasks_are_partition_numbers_over_all_sources() -> None:
    """A join needs partition 3 of both topics in one task; topics of different size cannot be joined."""
    topology = Topology().subtopology("0", sources=["orders", "users"], copartition=True)
    assert topology.tasks({"orders": 4, "users": 4})[Task("0", 3)] == (("orders", 3), ("users", 3))
    with pytest.raises(TopologyError, match="different partition counts"):
        topology.tasks({"orders": 4, "users": 3})
    group = Group(topology, {"orders": 4, "users": 3})
    group.join("a")
    assert group.assign().error == ASSIGNMENT_ERROR
    loose = Topology().subtopology("0", sources=["orders", "users"])
    assert loose.tasks({"orders": 2, "users": 1}) == {
        Task("0", 0): (("orders", 0), ("users", 0)),
        Task("0", 1): (("orders", 1),),
    }


def test_79_two_topologies_keep_the_target_until_all_run_one() -> None:
    """A rolling restart with a new topology must not move tasks to processes that do not know them."""
    group = Group(STATEFUL, {"orders": 4})
    group.join("a")
    b = group.join("b")
    group.assign()
    before = dict(group.target)
    b.change_topology(STATEFUL.subtopology("2", sources=["other"]))
    assert group.assign().error == INCONSISTENT_TOPOLOGY
    assert (group.target, b.error) == (before, INCONSISTENT_TOPOLOGY)
    b.change_topology(STATEFUL)
    assert group.assign().error == 0


def test_80_a_shutdown_reaches_every_process() -> None:
    """One process found that the data cannot be processed by any."""
    group = Group(STATEFUL, {"orders": 4})
    a, b = group.join("a"), group.join("b")
    group.assign()
    a.shut_down()
    assert group.assign().error == SHUTDOWN
    assert (a.error, b.error) == (SHUTDOWN, SHUTDOWN)


def test_81_a_process_without_state_warms_up_while_stateless_tasks_move() -> None:
    """A task that moves without its state stands still until the changelog is read."""
    group = Group(BOTH, {"orders": 8, "clicks": 8})
    group.join("a")
    group.assign()
    group.join("b")
    group.assign()
    assert {holder for task, (holder,) in group.roles("active").items() if task.subtopology == "0"} == {"a"}
    assert Counter(holder for task, (holder,) in group.roles("active").items() if task.subtopology == "1") == {
        "a": 4,
        "b": 4,
    }
    assert set(map(tuple, group.roles("warmup").values())) == {("b",)}
    assert len(group.roles("warmup")) == 2


@pytest.mark.parametrize(("lag", "moves"), [(10_000, True), (10_001, False)])
@pytest.mark.parametrize("standbys", [0, 1])
def test_82_a_warm_up_that_caught_up_takes_over(lag: int, moves: bool, standbys: int) -> None:
    """At the acceptable lag, and not a record sooner."""
    group = Group(STATEFUL, {"orders": 2}, standbys=standbys)
    group.join("a")
    group.assign()
    b = group.join("b")
    group.assign()
    (task,) = b.assignment.warmup or group.roles("standby")
    told = b.metadata()
    b.report_lag({task: lag})
    assert (b.metadata().reason == 2) is moves
    assert (b.metadata() != told) is moves
    group.assign()
    assert group.roles("active")[task] == (["b"] if moves else ["a"])
    if moves:
        assert group.roles("standby").get(task, []) == (["a"] if standbys else [])


def test_85_a_standby_is_never_in_the_process_of_the_active_task() -> None:
    """A crash of the process would take the active task and its copy at once."""
    group = Group(STATEFUL, {"orders": 6}, standbys=1)
    group.join("a1", process=1)
    group.join("a2", process=1)
    group.join("b", process=2)
    for _ in range(6):
        group.assign()
        group.catch_up()
    processes = {"a1": 1, "a2": 1, "b": 2}
    for task, (active,) in group.roles("active").items():
        for copy in group.roles("standby")[task]:
            assert processes[copy] != processes[active]


def test_86_standbys_differ_in_the_zone() -> None:
    """The loss of a zone must leave a copy."""
    group = Group(STATEFUL, {"orders": 3}, standbys=2, rack_tags=("zone",))
    for number in range(6):
        group.join(f"m{number}", tags={"zone": "abc"[number % 3]})
    group.assign()
    zones = {name: dict(assignor._info.tags)["zone"] for name, assignor in group.assignors.items()}
    for task, (active,) in group.roles("active").items():
        assert {zones[active], *(zones[copy] for copy in group.roles("standby")[task])} == {"a", "b", "c"}


def test_87_a_single_process_has_no_standby() -> None:
    """A standby that no process can take does not stop the others."""
    group = Group(STATEFUL, {"orders": 2}, standbys=1)
    group.join("a")
    assert group.assign().error == 0
    assert group.roles("standby") == {}


def test_88_a_lag_without_an_event_changes_nothing() -> None:
    """Each change would be an assignment of the whole group."""
    group = Group(STATEFUL, {"orders": 4})
    group.join("a")
    group.assign()
    b = group.join("b")
    group.assign()
    told = b.metadata()
    (task, *_) = b.assignment.warmup
    for lag in (90_000, 80_000, 50_000, 60_000, 20_000):
        b.report_lag({task: lag})
        assert b.metadata() is told


def test_89_a_warm_up_that_falls_behind_is_given_up() -> None:
    """A process that cannot keep up must not be warmed for ever."""
    group = Group(STATEFUL, {"orders": 4})
    group.join("a")
    group.assign()
    b = group.join("b")
    group.assign()
    (task, *_) = b.assignment.warmup
    for lag in range(50_000, 56_001, 1_000):
        b.report_lag({task: lag})
    assert b.metadata().reason == 3
    group.assign()
    assert group.roles("warmup") == {}
    b.report_lag({task: 100})
    b.report_lag(dict.fromkeys(b.assignment.warmup, 100))


def test_90_every_process_knows_who_answers() -> None:
    """A query may arrive anywhere, and is passed on."""
    group = Group(STATEFUL, {"orders": 2}, standbys=1)
    a = group.join("a", endpoint="a:1")
    b = group.join("b", endpoint="b:1")
    group.assign()
    owners = {number: a.owner_of("orders", number) for number in range(2)}
    assert set(owners.values()) == {Owner("a:1", ("b:1",)), Owner("b:1", ("a:1",))}
    assert owners == {number: b.owner_of("orders", number) for number in range(2)}
    assert a.owner_of("orders", 7) is None


class Handler:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Task]] = []

    def start(self, task: Task) -> None:
        """Write it down."""
        self.calls.append(("start", task))

    def stop(self, task: Task) -> None:
        """Write it down."""
        self.calls.append(("stop", task))

    def restore(self, task: Task, changelogs: Mapping[str, tuple[int, ...]]) -> None:
        """Write it down."""
        assert changelogs == {"totals": (task.partition,)}
        self.calls.append(("restore", task))

    def stop_restoring(self, task: Task) -> None:
        """Write it down."""
        self.calls.append(("stop_restoring", task))

    def new(self) -> list[tuple[str, Task]]:
        """What is new."""
        found, self.calls = self.calls, []
        return found


def told(assignor: StreamsAssignor, assignment: TaskAssignment) -> None:
    """Roles arrive."""
    assignor.on_assignment(0, MemberAssignment((), assignment.encode()), ConsumerGroupMetadata("g", "m", 1))


def test_an_async_handler_is_refused() -> None:
    """Nothing awaits its methods, so its tasks would never start, without any error."""

    class Awaited(Handler):
        async def start(self, task: Task) -> None:  # type: ignore[override]
            raise AssertionError("it is never awaited")

    topology = Topology().subtopology("0", sources=["orders"])
    with pytest.raises(ConfigError, match=r"Awaited\.start is an async function, which would never run here"):
        TaskRunner(StreamsAssignor(topology, process_id=UUID(int=1)), Awaited())  # type: ignore[arg-type]


def test_83_84_a_task_runs_while_all_of_its_partitions_are_here() -> None:
    """Roles arrive before partitions do, and a half task would join half of the records."""
    topology = Topology().subtopology("0", sources=["orders", "users"], copartition=True, changelogs=["totals"])
    assignor, handler = StreamsAssignor(topology, process_id=UUID(int=1)), Handler()
    runner = TaskRunner(assignor, handler)
    task, other = Task("0", 0), Task("0", 1)
    orders, users = (TopicIdPartition(topic, 0, TOPIC_ID) for topic in ("orders", "users"))
    told(assignor, TaskAssignment(active=(task,), warmup={other: {"totals": (1,)}}))
    runner.update()
    assert handler.new() == [("restore", other)]
    runner.assigned(None, [orders])
    assert handler.new() == []
    runner.assigned(None, [users])
    assert handler.new() == [("start", task)]
    told(assignor, TaskAssignment(standby={task: {"totals": (0,)}}))  # it moves, and a copy stays
    runner.update()
    assert handler.new() == [("stop_restoring", other)], "it runs until its partitions are revoked"
    runner.revoked(None, [users])
    assert handler.new() == [("stop", task), ("restore", task)]
    runner.update()
    assert handler.new() == []


def test_topics_of_different_length_are_looked_up() -> None:
    """The last tasks lack the shorter topic, and still start."""
    topology = Topology().subtopology("0", sources=["orders", "users"], changelogs=["totals"])
    assignor, handler = StreamsAssignor(topology, process_id=UUID(int=1)), Handler()
    runner = TaskRunner(assignor, handler)
    counts = {"orders": 2, "users": 1}
    consumer = SimpleNamespace(
        list_topics=lambda topic, timeout: SimpleNamespace(
            topics={topic: SimpleNamespace(partitions=dict.fromkeys(range(counts[topic])))}
        )
    )
    told(assignor, TaskAssignment(active=(Task("0", 0), Task("0", 1))))
    runner.assigned(consumer, [TopicIdPartition("orders", number, TOPIC_ID) for number in range(2)])
    assert handler.new() == [("start", Task("0", 1))]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_history_keeps_the_promises_and_comes_to_rest(data: st.DataObject) -> None:
    """Members join and leave while copies catch up: one active each, one role a process, few warm-ups, then balance."""
    counts = {"orders": data.draw(st.integers(1, 9)), "clicks": data.draw(st.integers(1, 6))}
    standbys = data.draw(st.integers(0, 2))
    group = Group(BOTH, counts, standbys=standbys)
    names = iter(f"m{number:02}" for number in range(100))
    group.join(next(names))
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            group.join(next(names), process=data.draw(st.integers(1, 5)))
        elif len(group.assignors) > 1:
            gone = data.draw(st.sampled_from(sorted(group.assignors)))
            del group.assignors[gone]
            group.target.pop(gone, None)
        group.assign()
        check_roles(group)
        if data.draw(st.booleans()):
            group.catch_up(data.draw(st.sampled_from([0, 10_000, 50_000])))
    for _ in range(40):
        group.catch_up()
        before = group.target
        group.assign()
        check_roles(group)
        if before == group.target and not group.roles("warmup"):
            break
    else:
        raise AssertionError("it does not come to rest")
    processes = {assignor._info.process_id for assignor in group.assignors.values()}
    if len(processes) == len(group.assignors):
        for kind in "01":
            held = Counter(owner for task, (owner,) in group.roles("active").items() if task.subtopology == kind)
            loads = [held[name] for name in group.assignors]
            assert max(loads) - min(loads) <= 1, loads


def check_roles(group: Group) -> None:
    """What holds after each assignment."""
    active = group.roles("active")
    assert len(active) == sum(group.counts.values())
    assert all(len(holders) == 1 for holders in active.values())
    assert len(group.roles("warmup")) <= 2
    process = {name: assignor._info.process_id for name, assignor in group.assignors.items()}
    for task in active:
        holders = [name for role in ("active", "standby", "warmup") for name in group.roles(role).get(task, [])]
        assert len({process[name] for name in holders}) == len(holders), (task, holders)


def test_members_of_a_real_group_get_tasks_and_partitions_together() -> None:
    """Through the wire, with the listener that starts them."""
    with EmbeddedBroker({"orders": 4}) as broker:
        handler = Handler()
        assignor = StreamsAssignor(STATEFUL, process_id=UUID(int=1))
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "classic"}
        with Consumer(conf | {"group.local.assignors": assignor}) as consumer:
            consumer.subscribe(list(STATEFUL.topics), **TaskRunner(assignor, handler).callbacks)
            while len(consumer.assignment()) < 4:
                consumer.poll(0.05)
            assert handler.new() == [("start", Task("0", number)) for number in range(4)]
        assert handler.new() == [("stop", Task("0", number)) for number in range(4)]


def test_running_is_what_an_active_task_reports() -> None:
    """Its state is the newest there is, whatever the application measured."""
    assignor = StreamsAssignor(STATEFUL, process_id=UUID(int=1))
    told(assignor, TaskAssignment(active=(Task("0", 0),)))
    assignor.report_lag({Task("0", 0): 17, Task("0", 1): None})
    assignor.change_topology(STATEFUL)
    assert MemberInfo.decode(assignor.metadata().metadata).lags == {Task("0", 0): RUNNING, Task("0", 1): -3}
