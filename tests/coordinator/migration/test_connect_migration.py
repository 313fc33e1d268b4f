"""Classic groups of Kafka Connect become connect groups, and back; the numbers are those of the specification."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup
from kip848_client.wire.messages.classic_connect_protocol import (
    PROTOCOL_VERSIONS,
    ClassicAssignment,
    ClassicWorker,
    ConnectorTasks,
    decode_classic_assignment,
    encode_classic,
)
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest, Member
from kip848_client.wire.messages.join_group import JoinGroupResponse
from tests.support.classic_harness import REBALANCE_MS, SESSION_MS, Call, ClassicHarness
from tests.support.connect_harness import CONNECT, FIVE, ConnectHarness, as_text, offer, on_wire, told
from tests.support.coordinator_harness import Harness

NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
ANY_VERSION = (offer(versions=(-1, 0)),)


def connectors(text: str) -> tuple[ConnectorTasks, ...]:
    """Units from text, as Kafka Connect writes them."""
    return tuple(ConnectorTasks(item.name, item.indexes) for item in on_wire(text) or ())


class Fleet(ConnectHarness, ClassicHarness):  # type: ignore[misc]  # `beat` is that of native workers
    """A coordinator for classic workers and native ones."""

    def __init__(self, **settings: Any) -> None:
        Harness.__init__(self, replace(CONNECT, classic_initial_rebalance_delay_ms=0, **settings))

    def classic_fleet(self, shares: dict[str, str], *, protocol: str, offset: int = 7) -> dict[str, OldWorker]:
        """A stable classic group of workers with these units, the first one being the leader."""
        workers = {name: OldWorker(self, name, protocol, offset=offset) for name in shares}
        calls = {name: worker.join() for name, worker in workers.items()}
        if len(workers) > 1:
            first = next(iter(workers))
            calls[first] = workers[first].join()
        given = {
            workers[name].member_id: encode_classic(
                ClassicAssignment(leader=self.classic.leader or "", config_offset=offset, assigned=connectors(share)),
                version=PROTOCOL_VERSIONS.get(protocol, 0),
            )
            for name, share in shares.items()
        }
        for name in reversed(shares):
            workers[name].generation = calls[name].answer.generation_id
            sync = self.sync_group(
                workers[name].member_id,
                workers[name].generation,
                given if name == next(iter(shares)) else None,
                protocol_type="connect",
                protocol=protocol,
            )
            workers[name].waiting = sync
        for worker in workers.values():
            worker.take(worker.waiting.answer.assignment)
        return workers


class OldWorker:
    """What a worker of Kafka Connect does with the answers that it gets."""

    def __init__(self, fleet: Fleet, name: str, protocol: str, *, offset: int) -> None:
        self.fleet, self.name, self.protocol, self.offset = fleet, name, protocol, offset
        self.version = PROTOCOL_VERSIONS.get(protocol, 0)
        self.member_id = ""
        self.generation = -1
        self.running: set[str] = set()
        self.told = ClassicAssignment()
        self.waiting: Any = None

    def join(self) -> Call[JoinGroupResponse]:
        """Send JoinGroup; a worker of the eager protocol has stopped everything by then."""
        if not self.version:
            self.running.clear()
        held = ClassicAssignment(assigned=connectors(" ".join(sorted(self.running))))
        allocation = encode_classic(held, version=self.version) if self.version and self.running else None
        said = ClassicWorker(url=f"http://{self.name}:8083/", config_offset=self.offset, allocation=allocation)
        options: dict[str, Any] = {
            "protocols": {self.protocol: encode_classic(said, version=self.version)},
            "protocol_type": "connect",
        }
        if not self.member_id:
            self.member_id, call = self.fleet.joining(**options)
            return call
        return self.fleet.join_group(self.member_id, **options)

    def rebalance(self) -> ClassicAssignment:
        """Join and sync once, as a group that answers at once lets it."""
        joined = self.join()
        assert joined.code == NONE
        assert (joined.answer.leader, joined.answer.members) == ("", ())
        assert joined.answer.protocol_name == self.protocol
        self.generation = joined.answer.generation_id
        synced = self.fleet.sync_group(self.member_id, self.generation, protocol_type="connect", protocol=self.protocol)
        assert synced.code == NONE
        return self.take(synced.answer.assignment)

    def settle(self) -> None:
        """Rebalance as long as the coordinator, the assignment or the configuration asks for it."""
        for _ in range(10):
            if self.beat() == NONE and not self.told.revoked and self.told.config_offset == self.offset:
                return
            self.rebalance()
        raise AssertionError(f"{self.name} joins again and again; it was told {self.told}")

    def beat(self) -> ErrorCode:
        """Send Heartbeat."""
        return ClassicHarness.beat(self.fleet, self.member_id, self.generation)

    def take(self, data: bytes) -> ClassicAssignment:
        """Start and stop units."""
        assert data[:2] == self.version.to_bytes(2, "big"), "these bytes are not of its protocol"
        self.told = decode_classic_assignment(bytes(data))
        given, revoked = ({*as_names(one)} for one in (self.told.assigned, self.told.revoked))
        assert not given & self.running, f"{self.name} runs {sorted(given & self.running)} already"
        self.running = (self.running - revoked) | given
        return self.told


def as_names(items: tuple[ConnectorTasks, ...] | None) -> list[str]:
    """Units as text."""
    return [item.connector if task < 0 else f"{item.connector}/{task}" for item in items or () for task in item.tasks]


def check_sole_owners(fleet: Fleet, *workers: OldWorker, native: str) -> None:
    """No unit runs on two workers."""
    for name in native.split():
        held = set(fleet.runs(name).split())
        for worker in workers:
            assert not held & worker.running, f"{name} and {worker.name} run {held & worker.running}"


@pytest.mark.parametrize("protocol", ["sessioned", "compatible", "default", "a protocol of a fork of Kafka Connect"])
def test_a_native_worker_takes_over_a_classic_group(protocol: str) -> None:
    """Scenarios 69, 70 and 72: old workers keep what they need not give up, and start nothing that another runs."""
    fleet = Fleet()
    old = fleet.classic_fleet({"a": "A A/0 A/1", "b": "B B/0"}, protocol=protocol)
    a, b = old["a"], old["b"]

    joined = fleet.enter("native", catalogue=(7, FIVE), worker_id="n:8083")

    assert (joined.member_epoch, fleet.connect.group_epoch) == (a.generation + 1, a.generation + 1)
    assert fleet.runs(a.member_id) == "A A/0 A/1"
    assert fleet.connect.members[a.member_id].metadata.worker_id == "a:8083"
    assert fleet.coordinator.classic_groups() == ()
    for worker in (a, b):
        assert worker.beat() == REBALANCE
        given = worker.rebalance()
        assert (given.leader, given.config_offset, given.delay_ms) == ("native", 7, 0)
        if not worker.version:
            assert worker.running == set(fleet.runs(worker.member_id).split())
        check_sole_owners(fleet, a, b, native="native")
        worker.settle()
    owned = as_text(told(fleet.beat("native", joined.member_epoch, owned="")).assigned)
    shares = [len(a.running), len(b.running), len(owned.split())]
    assert sorted(shares) == [1, 2, 2]
    assert {*a.running, *b.running, *owned.split()} == set(FIVE.split())
    assert (a.beat(), b.beat()) == (NONE, NONE)
    fleet.verify_log()


def test_a_native_worker_computes_for_classic_ones() -> None:
    """Scenarios 69 and 72 with `cooperative`: they keep their units until its plan, and forward requests to it."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A A/0"}, protocol="sessioned")["a"]
    refused = fleet.enter("n", catalogue=(7, "A A/0"), offers=(offer(),))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "version -1" in (refused.error_message or "")

    joined = fleet.enter("n", catalogue=(7, "A A/0"), offers=ANY_VERSION)

    assert joined.should_compute_assignment
    assert (joined.member_epoch, a.beat()) == (a.generation, NONE), "nothing moves before there is a plan"
    assert fleet.connect.target_of(a.member_id) == {"A": (-1, 0)}
    prepared = fleet.prepare("n", joined.member_epoch)
    shown = {member.member_id: member for member in prepared.members}[a.member_id]
    assert (shown.metadata_version, shown.worker_url) == (-1, "http://a:8083/")
    assert shown.metadata_bytes[:2] == b"\0\2"
    message = ConnectGroupInstallAssignmentRequest(
        "g", "n", joined.member_epoch, prepared.group_epoch, 0, (Member(a.member_id, (), 0, b"x"),)
    )
    assert "versions -1 to -1" in (fleet.send(message, version=0).error_message or "")
    assert fleet.install("n", joined.member_epoch, prepared.group_epoch, {a.member_id: "A", "n": "A/0"}) == NONE
    a.settle()
    assert (a.running, a.told.leader) == ({"A"}, "n")
    assert fleet.beat("n", joined.member_epoch, owned="").error_code == NONE
    assert fleet.runs("n") == "A/0"
    fleet.verify_log()


def test_offsets_of_the_name_do_not_make_it_a_classic_group_as_well() -> None:
    """A tool would otherwise be shown an empty classic group beside the workers that run."""
    fleet = Fleet()
    fleet.create_topic("foo", partitions=1)
    fleet.commit("", -1, {"foo": {0: 5}}, version=2)
    fleet.classic_fleet({"a": "A A/0"}, protocol="sessioned")
    fleet.enter("n", catalogue=(7, "A A/0"))
    assert fleet.listed() == {"g": ("Reconciling", "connect", "connect")}
    assert fleet.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_last_native_worker_takes_a_plan_that_is_not_there_yet_with_it() -> None:
    """The group is a classic one again, and no round of it is left to be answered."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A A/0"}, protocol="sessioned")["a"]
    assert fleet.enter("n", catalogue=(7, "A A/0"), offers=ANY_VERSION).should_compute_assignment
    assert fleet.chosen == "n"
    fleet.beat("n", -1)
    assert (set(fleet.classic.members), fleet.flying()) == ({a.member_id}, None)


def test_an_increment_is_added_to_what_the_worker_ran() -> None:
    """Scenario 71: the stored assignment of `sessioned` is no more than the last change."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A A/0"}, protocol="sessioned")["a"]
    call = a.join()
    a.generation = call.answer.generation_id
    change = ClassicAssignment(config_offset=7, assigned=connectors("B"), revoked=connectors("A/0"))
    fleet.sync_group(
        a.member_id,
        a.generation,
        {a.member_id: encode_classic(change, version=2)},
        protocol_type="connect",
        protocol="sessioned",
    )

    fleet.enter("n", catalogue=(7, "A A/0 B"))

    assert fleet.runs(a.member_id) == "A B"


@pytest.mark.parametrize(("votes_again", "says"), [(False, "a:8083"), (True, "b:8083")])
def test_a_worker_is_what_it_says_in_the_chosen_protocol(votes_again: bool, says: str) -> None:
    """One that came after the vote need not offer that one; then what it offers first says what it is."""
    fleet = Fleet()
    a, b = (_says(name, version=version) for name, version in (("a", 2), ("b", 1)))
    first, _ = fleet.joining(protocol_type="connect", protocols={"sessioned": a, "compatible": b})
    second, _ = fleet.joining(protocol_type="connect", protocols={"compatible": b})
    if votes_again:
        fleet.join_group(first, protocol_type="connect", protocols={"sessioned": a, "compatible": b})
    fleet.enter("n", catalogue=(7, "A"))
    found = {member_id: worker.metadata.worker_id for member_id, worker in fleet.connect.members.items()}
    assert found == {first: says, second: "b:8083", "n": None}


def test_workers_with_several_protocols_use_the_one_that_all_have() -> None:
    """A rolling upgrade of Kafka Connect: the assignor must read what is written, and each its own bytes."""
    fleet = Fleet()
    fleet.enter("n", catalogue=(7, "A"), offers=ANY_VERSION)
    a, b = (_says(name, version=version) for name, version in (("a", 2), ("b", 1)))
    (member_id, first), (_, second) = (
        fleet.joining(protocol_type="connect", protocols=protocols)
        for protocols in ({"sessioned": a, "compatible": b}, {"compatible": b})
    )
    assert (first.answer.protocol_name, second.answer.protocol_name) == ("sessioned", "compatible")
    again = fleet.join_group(member_id, protocol_type="connect", protocols={"sessioned": a, "compatible": b})
    assert again.answer.protocol_name == "compatible"
    fleet.enter("n", offers=ANY_VERSION)
    prepared = {member.member_id: member.metadata_bytes for member in fleet.prepare("n", 0).members}
    assert prepared[member_id] == b


def _says(name: str, *, version: int) -> bytes:
    return encode_classic(ClassicWorker(url=f"http://{name}:8083/", config_offset=7), version=version)


def test_a_group_whose_bytes_cannot_be_read_stays_classic() -> None:
    """The group may belong to another program, whose members must not be disturbed."""
    fleet = Fleet()
    fleet.joining(protocol_type="connect", protocols={"sessioned": b"?"})
    refused = fleet.enter("n", catalogue=(7, "A"))
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "cannot be read" in (refused.error_message or "")
    assert fleet.coordinator.ids_of(ConnectGroup) == ()


def test_a_classic_group_that_all_have_left_becomes_a_connect_group() -> None:
    """After all classic workers have stopped, no migration is needed."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A"}, protocol="sessioned")["a"]
    fleet.leave_group(a.member_id)
    fleet.enter("n", catalogue=(7, "A"))
    assert fleet.record_names()[0] == "classic†"
    assert fleet.runs("n") == "A"
    fleet.verify_log()


def test_a_classic_worker_is_told_to_join_again_when_its_unit_is_no_more() -> None:
    """It would run a deleted connector until the next plan."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A B"}, protocol="sessioned", offset=9)["a"]
    fleet.enter("n", catalogue=(7, "A"), offers=ANY_VERSION)
    assert a.beat() == REBALANCE


@pytest.mark.parametrize("protocol", ["sessioned", "default"])
def test_a_static_worker_that_goes_back_to_the_classic_protocol_gives_the_group_back(protocol: str) -> None:
    """A restart of the last upgraded process with its old version."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A"}, protocol=protocol)["a"]
    fleet.enter("n", catalogue=(7, "A B"), instance="i")
    a.settle()
    held = fleet.connect.target_of(a.member_id)
    call = fleet.join_group(
        instance="i", protocol_type="connect", protocols={protocol: _says("i", version=PROTOCOL_VERSIONS[protocol])}
    )
    assert (fleet.classic.state, call.is_parked, a.beat()) == (ClassicState.PREPARING, True, REBALANCE)
    given = decode_classic_assignment(fleet.classic.members[a.member_id].assignment)
    assert as_names(given.assigned) == ([] if a.version else list(held))
    assert "n" not in fleet.classic.members
    joined = a.join()
    assert (joined.code, call.code, call.answer.generation_id) == (NONE, NONE, joined.answer.generation_id)
    fleet.verify_log()


def test_a_unit_that_two_workers_claim_stays_with_the_first() -> None:
    """One of them did not hear of the last rebalance."""
    fleet = Fleet()
    old = fleet.classic_fleet({"a": "A", "b": "A B"}, protocol="compatible")
    fleet.enter("n", catalogue=(7, "A B"))
    first, second = sorted(worker.member_id for worker in old.values())
    held = {member_id: set(fleet.runs(member_id).split()) for member_id in (first, second)}
    assert "A" in held[first]
    assert "A" not in held[second]


def test_a_newer_configuration_is_waited_for() -> None:
    """Scenario 73: a classic worker joins again, and disturbs no other, until the catalogue has its offset."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A B"}, protocol="sessioned")["a"]
    joined = fleet.enter("n", catalogue=(7, "A B"))
    a.settle()
    a.offset = 8
    epoch = fleet.connect.group_epoch
    for _ in range(3):
        assert a.rebalance().config_offset == 7
    assert fleet.connect.group_epoch == epoch

    fleet.beat("n", joined.member_epoch, catalogue=(8, "A B"))

    assert a.beat() == REBALANCE
    assert a.rebalance().config_offset == 8
    assert (a.beat(), fleet.connect.group_epoch) == (NONE, epoch)
    fleet.verify_log()


def test_the_last_native_worker_gives_the_group_back() -> None:
    """Scenario 74: the old workers choose a leader at once, and none of them stops its units for that."""
    fleet = Fleet()
    old = fleet.classic_fleet({"a": "A", "b": "B"}, protocol="sessioned")
    joined = fleet.enter("n", catalogue=(7, "A B"))
    for worker in old.values():
        worker.settle()

    assert fleet.beat("n", -1).error_code == NONE

    assert [event.event for event in fleet.events[-3:]] == ["member_left", "group_converted", "group_state_changed"]
    assert fleet.classic.generation == joined.member_epoch
    assert fleet.state_is(ClassicState.PREPARING)
    assert {worker.beat() for worker in old.values()} == {REBALANCE}
    calls = [worker.join() for worker in old.values()]
    assert {call.code for call in calls} == {NONE}
    (leader,) = [call.answer for call in calls if call.answer.members]
    assert leader.leader == leader.member_id
    fleet.verify_log()


@pytest.mark.parametrize(("protocol", "assignor"), [("sessioned", "cooperative"), ("default", "eager")])
def test_classic_workers_alone_go_on_where_there_is_no_way_back(protocol: str, assignor: str) -> None:
    """With the policy `upgrade` the group stays what it is, and its coordinator plans for the workers left."""
    fleet = Fleet(migration_policy="upgrade")
    a = fleet.classic_fleet({"a": "A B"}, protocol=protocol)["a"]
    joined = fleet.enter("n", catalogue=(7, "A B"), offers=(offer(assignor, versions=(-1, 0)),))
    prepared = fleet.prepare("n", joined.member_epoch)
    fleet.install("n", joined.member_epoch, prepared.group_epoch, {a.member_id: "A", "n": "B"})
    a.settle()
    fleet.beat("n", -1)
    a.settle()
    assert a.running == {"A", "B"}
    assert fleet.leave_group(a.member_id) == [NONE]
    assert fleet.connect.members == {}
    fleet.verify_log()


@pytest.mark.parametrize(
    ("joins", "waits_ms"),
    [pytest.param(False, REBALANCE_MS, id="joins-too-late"), pytest.param(True, REBALANCE_MS, id="syncs-too-late")],
)
def test_a_classic_worker_that_stops_in_the_middle_is_removed(joins: bool, waits_ms: int) -> None:
    """Its units would wait for it for ever: heartbeats alone keep its session."""
    fleet = Fleet()
    a = fleet.classic_fleet({"a": "A B"}, protocol="sessioned")["a"]
    fleet.enter("n", catalogue=(7, "A B"))
    assert a.beat() == REBALANCE
    if joins:
        a.generation = a.join().answer.generation_id
    for _ in range(waits_ms * 2 // SESSION_MS):
        a.beat()
        fleet.advance(SESSION_MS // 2)
    fleet.advance(SESSION_MS // 2)
    assert a.member_id not in fleet.connect.members


@pytest.mark.parametrize(
    ("settings", "change", "code"),
    [
        pytest.param({"migration_policy": "disabled"}, {}, ErrorCode.GROUP_ID_NOT_FOUND, id="no-upgrade"),
        pytest.param({"connect_max_size": 1}, {}, ErrorCode.GROUP_ID_NOT_FOUND, id="too-many"),
        pytest.param({}, {"catalogue": None}, ErrorCode.INVALID_REQUEST, id="no-catalogue"),
    ],
)
def test_a_group_that_cannot_be_taken_over_stays_classic(
    settings: dict[str, Any], change: dict[str, Any], code: ErrorCode
) -> None:
    """The old workers must not notice a worker that was started with a mistake."""
    fleet = Fleet(**settings)
    old = fleet.classic_fleet({"a": "A", "b": "B"}, protocol="sessioned")
    assert fleet.enter("n", **({"catalogue": (7, "A B")} | change)).error_code == code
    assert {worker.beat() for worker in old.values()} == {NONE}
    assert fleet.coordinator.ids_of(ConnectGroup) == ()


def test_consumers_and_workers_do_not_mix() -> None:
    """A name that is used twice is a mistake, and costs only the second one."""
    fleet = Fleet()
    fleet.create_topic("foo", partitions=1)
    (a,) = fleet.stable("x")
    assert fleet.enter("n", catalogue=(7, "A")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert ClassicHarness.beat(fleet, a, fleet.classic.generation) == NONE

    workers = Fleet()
    workers.enter("n", catalogue=(7, "A"))
    assert workers.join_group(version=3).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    no_assignment = encode_classic(ClassicWorker(url="u", allocation=b"x"), version=2)
    for name, data in (("default", b"\0\0\0"), ("sessioned", no_assignment)):
        garbage = workers.join_group(version=3, protocol_type="connect", protocols={name: data})
        assert garbage.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_worker_joins_and_leaves_a_native_group() -> None:
    """The way back of a rolling restart, while native workers are still there."""
    fleet = Fleet()
    fleet.enter("n", catalogue=(7, "A B"))
    a = OldWorker(fleet, "a", "sessioned", offset=7)
    call = a.join()
    a.generation = call.answer.generation_id
    a.rebalance()
    assert a.beat() == NONE, "it waits for the native worker"
    epoch = fleet.connect.group_epoch
    released = fleet.beat("n", 1, owned="A B")
    kept = as_text(told(released).assigned)
    fleet.beat("n", 1, owned=kept)
    a.settle()
    assert {kept, *a.running} == {"A", "B"}
    assert (fleet.leave_group(a.member_id), fleet.connect.group_epoch) == ([NONE], epoch + 1)
    fleet.verify_log()
