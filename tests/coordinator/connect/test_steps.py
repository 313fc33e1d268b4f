"""What a heartbeat of a worker leads to: its answer, the records, the event log, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.testing.coordinator.connect import connect_records as records
from kip848_client.testing.coordinator.connect.catalogue import UNIT_COUNT_MAX, read_units
from kip848_client.wire.messages.connect_group_heartbeat import UnitsOfName
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest, Member
from tests.support.connect_harness import CONNECT, ConnectHarness, as_text, offer, on_wire, tokens, told

OWN = (offer("own"),)
ALL: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "owned": "A B", "assignor": "uniform"}
TARGET = "ConnectGroupTargetMemberKey"


def _target(harness: ConnectHarness, worker: str) -> set[str]:
    target = harness.connect.target_of(worker)
    return {name if index < 0 else f"{name}/{index}" for name, indexes in target.items() for index in indexes}


@pytest.mark.parametrize("missing", [None, "rebalance_timeout_ms", "owned", "assignor"])
def test_a_heartbeat_with_every_field_is_told_the_assignment_again(missing: str | None) -> None:
    """The worker sends it after a failure: the answer that told the assignment may have been lost."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"))
    response = harness.beat("w1", 1, **{name: value for name, value in ALL.items() if name != missing})
    assert (response.assignment is not None) == (missing is None)


def test_what_a_worker_does_not_say_again_stays_as_it_was() -> None:
    """A heartbeat says only what is new; a join says everything."""
    harness = ConnectHarness()
    harness.beat("w1", 0, owned="", rebalance_timeout_ms=1, assignor="eager", worker_id="host", worker_url="http://h")
    harness.beat("w1", 1)
    described = harness.described()
    (worker,) = described.members
    assert (described.assignor_name, worker.worker_id, worker.worker_url) == ("eager", "host", "http://h")
    assert harness.connect.members["w1"].metadata.rebalance_timeout_ms == 1
    harness.beat("w1", 1, assignor="")
    assert harness.described().assignor_name == "uniform"


def test_a_worker_is_told_what_it_waits_for_and_what_it_has() -> None:
    """An operator sees which unit another worker does not stop."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A/0 A/1 B"))
    harness.enter("w2", catalogue=(2, "A/0 A/1 B C D"))
    waits = _target(harness, "w2") - {"C", "D"}
    given = told(harness.enter("w2"))
    assert {*as_text(given.assigned).split()} == {"C", "D"} & _target(harness, "w2")
    assert {*as_text(given.pending).split()} == waits != set()
    assert all(item.indexes for item in given.pending)


def test_the_event_log_tells_of_joins_targets_and_leaves() -> None:
    """Without these events ``kip848 report`` could not draw a Connect group."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"), instance="i", worker_id="host")
    harness.beat("w1", 1)
    assert [(event.event, event.member_id, event.fields) for event in harness.events] == [
        ("group_epoch_bumped", None, {"reason": "group_created"}),
        ("target_assignment_computed", None, {"assignor": "uniform", "members": {"w1": {"A": (-1,), "B": (-1,)}}}),
        ("member_joined", "w1", {"topics": [], "instance_id": "i", "client_host": "/127.0.0.1", "worker_id": "host"}),
        (
            "member_assignment_changed",
            "w1",
            {"state": "STABLE", "assigned": {"A": [-1], "B": [-1]}, "pending_revocation": {}},
        ),
        ("group_state_changed", None, {"old": "Empty", "new": "Stable"}),
    ]
    harness.events.clear()
    harness.enter("w1", instance="i", worker_id="new name")
    assert "member_joined" not in [event.event for event in harness.events], "it joins again"
    harness.beat("w1", -2, instance="i")
    harness.events.clear()
    harness.enter("w2", instance="i", worker_id="host")
    assert [(event.event, event.member_id, event.fields.get("reason")) for event in harness.events[:2]] == [
        ("member_left", "w1", "replaced"),
        ("member_joined", "w2", None),
    ]


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    """The log would grow with every heartbeat of a worker that waits for another one."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"))
    harness.enter("w2")
    harness.beat("w2", 2)
    harness.events.clear()
    assert harness.beat("w2", 2).error_code == 0
    assert (harness.record_names(), harness.events) == ([], [])
    harness.beat("w1", 1, catalogue=(2, "A B C"))
    assert harness.record_names().count(TARGET) == 1, "the other target is what it was"


def test_a_static_worker_that_is_back_leaves_nothing_of_its_old_id() -> None:
    """Its place, its target and its list of assignors are those of the new id; no timer waits for the old one."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"), instance="i")
    harness.beat("w1", 1, instance="i", sequence=5)
    harness.beat("w1", -2, instance="i", sequence=6)
    response = harness.enter("w2", instance="i")
    assert (tokens(response), harness.connect.static_members) == ({"A": 1, "B": 1}, {"i": "w2"})
    assert _target(harness, "w2") == {"A", "B"}
    harness.verify_log()
    assert harness.beat("w2", -1, instance="i").error_code == 0
    assert harness.coordinator.deadline_ms() is None
    late = harness.beat("w1", 0, owned="", rebalance_timeout_ms=1, assignor="uniform", sequence=5)
    assert late.error_code == 0, "another process may have this id"


def test_the_units_of_others_stay_when_a_static_worker_is_back_with_another_list() -> None:
    """A restart with one unit more would move all others."""
    harness = ConnectHarness()
    for number in ("1", "2"):
        harness.enter(f"w{number}", catalogue=(1, "A B C"), instance=f"i{number}")
    before = {worker: _target(harness, worker) for worker in ("w1", "w2")}
    assert len(before["w2"]) == 1
    harness.beat("w2", -2, instance="i2")
    harness.enter("w3", catalogue=(2, "A B C D"), instance="i2")
    assert (_target(harness, "w1"), _target(harness, "w3")) == (before["w1"], before["w2"] | {"D"})
    assert harness.record_names().count(TARGET) == 2, "the new id takes its place, and gets one more"
    harness.beat("w3", -2, instance="i2")
    harness.enter("w4", catalogue=(3, "A B C D E F"), instance="i2")
    assert harness.record_names().count(TARGET) == 3


# --- client-side assignors


def test_one_of_several_units_that_leaves_the_catalogue_is_stopped_before_there_is_a_plan() -> None:
    """A deleted unit must not run on because the others do."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"), offers=OWN)
    harness.prepare("w1", 0)
    harness.install("w1", 0, 1, w1="A B")
    harness.enter("w1", offers=OWN)
    assert tokens(harness.beat("w1", 1, catalogue=(2, "A"))) == {"A": 1}


def test_a_sole_worker_may_change_its_assignor_and_its_mode() -> None:
    """It must not be refused because of what it offered itself."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"), offers=OWN)
    assert harness.described().is_client_side
    assert harness.enter("w1", offers=(offer("other"),)).error_code == 0
    harness.prepare("w1", 0)
    assert harness.install("w1", 0, harness.connect.group_epoch, error=1) == 0
    harness.enter("w1", offers=(offer("other", reason=1),))
    assert harness.flying() is not None

    response = harness.enter("w1")

    assert (response.error_code, response.assignor_status, tokens(response)) == (0, 0, {"A": 4})
    assert (harness.flying(), harness.described().is_client_side) == (None, False)


def test_the_metadata_of_a_client_side_plan_ends_with_it() -> None:
    """A worker would wait for a delay that no assignor knows of any more."""
    harness = ConnectHarness()
    offers = (offer("own", versions=(0, 1)),)
    harness.enter("w1", catalogue=(1, "A"), offers=offers, instance="i")
    harness.prepare("w1", 0)
    _install(harness, Member("w1", on_wire("A") or (), 1))
    response = harness.enter("w1", offers=offers, instance="i")
    assert (told(response).metadata_version, set(harness.connect.target_metadata)) == (1, {"w1"})
    harness.beat("w1", -2, instance="i")
    response = harness.enter("w2", instance="i")
    assert (response.error_code, told(response).metadata_version) == (0, 0)
    assert not harness.connect.target_metadata
    harness.verify_log()


def _install(harness: ConnectHarness, *members: Member) -> str | None:
    request = ConnectGroupInstallAssignmentRequest("g", "w1", 0, harness.connect.group_epoch, 0, members)
    return harness.send(request, version=0).error_message


@pytest.mark.parametrize(("version", "says"), [(1, None), (2, "reads metadata of versions 0 to 1, not 2")])
def test_a_worker_is_told_only_what_it_reads(version: int, says: str | None) -> None:
    """An assignor that is newer than a worker would stop it with bytes that it cannot read."""
    harness = ConnectHarness()
    offers = (offer("first", versions=(0, 5)), offer("own", versions=(0, 1), reason=3, data=b"mine"))
    harness.enter("w1", catalogue=(1, "A"), offers=offers[1:])
    harness.enter("w2", offers=offers)
    shown = {member.member_id: member for member in harness.prepare("w1", 0).members}["w2"]
    assert (shown.reason, shown.metadata_bytes) == (3, b"mine")
    message = _install(harness, Member("w1", on_wire("A") or ()), Member("w2", (), version, b"x"))
    assert message is None if says is None else says in (message or "")


@pytest.mark.parametrize(
    ("offers", "code"),
    [("x y", 0), ("y x", 0), ("x", 0), ("w", ErrorCode.UNSUPPORTED_ASSIGNOR), ("y z", ErrorCode.UNSUPPORTED_ASSIGNOR)],
)
def test_workers_need_an_assignor_that_all_of_them_have(offers: str, code: int) -> None:
    """No worker could plan for all; also where each two of them have one in common."""
    harness = ConnectHarness()
    for worker, has in (("w1", "x y"), ("w2", "x z"), ("w3", offers)):
        response = harness.enter(worker, offers=[offer(name) for name in has.split()])
    assert response.error_code == code
    assert ("no client-side assignor in common" in (response.error_message or "")) == bool(code)
    refused = harness.enter("w1", offers=(offer("y"),))
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR, "the second one does not have it"


def test_a_broker_without_client_side_assignors_keeps_the_workers_that_it_has() -> None:
    """An operator may switch them off; what runs goes on, and the status says that no plan will come."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"), offers=OWN)
    harness.prepare("w1", 0)
    harness.install("w1", 0, 1, w1="A")
    harness.config = replace(CONNECT, client_assignors=False)
    harness.restart()
    assert harness.enter("w1", offers=OWN).error_code == 0
    assert harness.described().assignor_status == 1
    refused = harness.enter("w2", offers=OWN)
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "kip848.client.assignors.enable" in (refused.error_message or "")


def test_a_group_that_lags_is_described_without_a_fault() -> None:
    """The next heartbeat computes the target; nothing is wrong."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"))
    harness.enter("w2")
    harness.beat("w2", -1)
    described = harness.described()
    assert (described.group_epoch, described.assignment_epoch, described.assignor_status) == (3, 2, 0)


def test_a_worker_that_cannot_plan_any_more_asks_in_vain() -> None:
    """Another one, which reads the metadata of the newcomer, is asked; a plan of the first would leave it out."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"), offers=OWN)
    harness.prepare("w1", 0)
    harness.enter("w2", offers=(offer("own", versions=(0, 2), version=2),))
    assert harness.chosen == "w1"
    assert harness.prepare("w1", 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.chosen == "w2"


# --- refusals


def test_a_request_names_its_group() -> None:
    """A client with a mistake would make a group without a name."""
    harness = ConnectHarness()
    harness.group_id = " "
    assert harness.enter("w").error_code == ErrorCode.INVALID_REQUEST


def test_as_many_units_as_are_allowed_are_read() -> None:
    """The limit of the documentation is one that works."""
    most = tuple(range(UNIT_COUNT_MAX))
    assert read_units((UnitsOfName(name="A", indexes=most),), field="Catalog") == {"A": most}


def test_a_worker_whose_state_is_not_known_must_rejoin() -> None:
    """In a log of a newer version: what the worker runs cannot be known, so it must stop everything."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"))
    record = records.current_record("g", member_id="w1", current=harness.connect.members["w1"].current)
    assert record.value is not None
    for coordinator in (harness.coordinator, harness._follower):
        coordinator.replay(replace(record, value=replace(record.value, state=99)))
    assert harness.beat("w1", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_log_that_deletes_a_group_with_workers_is_damaged() -> None:
    """No coordinator writes that; the workers would run what the next group gives to others."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"))
    *_, tombstone = harness.connect.tombstones()
    with pytest.raises(IllegalStateError):
        harness.coordinator.replay(tombstone)
