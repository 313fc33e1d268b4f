"""Connect groups in the coordinator; the numbers are those of the scenarios in their specification."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.connect_group_heartbeat import Catalog, ConnectGroupHeartbeatRequest, UnitsOfName
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest, Member
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.connect_harness import FIVE, ConnectHarness, as_text, offer, on_wire, tokens, told

INVALID = ErrorCode.INVALID_REQUEST
COOPERATIVE = (offer(),)

JOIN: dict[str, Any] = {"owned": "", "assignor": "uniform", "rebalance_timeout_ms": 60_000}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        pytest.param("", 0, JOIN, INVALID, id="1-empty-member-id"),
        pytest.param("w", 0, JOIN | {"rebalance_timeout_ms": -1}, INVALID, id="2-join-without-timeout"),
        pytest.param("w", 0, JOIN | {"rebalance_timeout_ms": 0}, INVALID, id="2-join-with-timeout-0"),
        pytest.param("w", 0, JOIN | {"owned": None}, INVALID, id="3-join-without-owned-units"),
        pytest.param("w", 0, JOIN | {"owned": "A"}, INVALID, id="3-join-with-owned-units"),
        pytest.param("w", 0, JOIN | {"offers": COOPERATIVE}, INVALID, id="4-both-kinds-of-assignor"),
        pytest.param("w", 0, JOIN | {"assignor": None}, INVALID, id="4-no-assignor"),
        pytest.param(
            "w",
            0,
            JOIN | {"assignor": None, "offers": (offer(versions=(0, 2), version=3),)},
            INVALID,
            id="5-version-outside-its-range",
        ),
        pytest.param("w", 0, JOIN | {"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR, id="6-unknown-assignor"),
        pytest.param("w", 5, {}, ErrorCode.GROUP_ID_NOT_FOUND, id="7-unknown-group"),
        pytest.param("w", -2, {}, INVALID, id="9-static-leave-without-instance"),
        pytest.param("w", 0, JOIN | {"catalogue": (-1, "")}, INVALID, id="catalogue-offset-below-0"),
        pytest.param("w", 0, JOIN | {"worker_id": " "}, INVALID, id="blank-worker-id"),
        pytest.param("w", -3, {"instance": "i"}, INVALID, id="epoch-below-minus-2"),
    ],
)
def test_a_wrong_heartbeat_is_refused_and_makes_no_group(
    member_id: str, epoch: int, fields: dict[str, Any], code: int
) -> None:
    """Scenarios 1-7 and 9: a worker with a bug hears what is wrong, and disturbs no other member."""
    harness = ConnectHarness()

    response = harness.beat(member_id, epoch, **fields)

    assert response.error_code == code, response.error_message
    assert response.error_message
    assert harness.coordinator.ids_of(ConnectGroup) == ()


@pytest.mark.parametrize(
    ("known", "says"), [(False, "Group workers not found."), (True, "Group workers is not a connect group.")]
)
def test_who_leaves_or_plans_for_a_group_that_is_not_there_is_told_which(known: bool, says: str) -> None:
    """The name may be one of a consumer group, which an operator then looks for."""
    harness = ConnectHarness()
    harness.group_id = "workers"
    if known:
        harness.create_topic("t", partitions=1)
        harness.join("consumer", ["t"])

    left, prepared, described = harness.beat("w", -1), harness.prepare("w", 1), harness.described()

    assert (left.error_code, left.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, says)
    assert (described.error_code, described.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, says)
    assert prepared.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("others", "named"), [("B C D E F", "B, C, D, E, F)"), ("B C D E F G", "B, C, D, E, F, ...)")])
def test_two_lists_of_units_with_one_version_name_what_differs(others: str, named: str) -> None:
    """The operator sees which configuration is the old one, also of a thousand units."""
    harness = ConnectHarness()
    harness.enter("w", catalogue=(3, "A"))
    refused = harness.enter("v", catalogue=(3, f"A {others}"))
    assert refused.error_code == INVALID
    assert named in (refused.error_message or "")


def test_a_consumer_group_is_no_connect_group_and_the_other_way_round() -> None:
    """Scenarios 8 and 76: one name never means two groups."""
    harness = ConnectHarness()
    harness.create_topic("t", partitions=1)
    harness.join("consumer", ["t"])
    assert harness.enter("w").error_code == ErrorCode.GROUP_ID_NOT_FOUND

    harness.group_id = "workers"
    harness.enter("w", catalogue=(0, "A"))
    joined: ConsumerGroupHeartbeatResponse = harness.join("consumer", ["t"])
    committed = harness.commit("", -1, {"t": {0: 1}})
    topic = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    in_transaction = harness.send(build(TxnOffsetCommitRequest, group_id="workers", topics=[topic]), version=5)
    classic = JoinGroupRequest(
        group_id="workers",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range"),),
    )
    refused = harness.send(classic, version=5)

    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert committed["t", 0] == ErrorCode.GROUP_ID_NOT_FOUND
    assert in_transaction.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.fetch(None) == {}
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "given",
    [
        (UnitsOfName(name="B", indexes=(-1,)), UnitsOfName(name="A", indexes=(-1,))),
        (UnitsOfName(name="A", indexes=(-1,)), UnitsOfName(name="A", indexes=(0,))),
        (UnitsOfName(name="A", indexes=(1, 0)),),
        (UnitsOfName(name="A", indexes=(0, 0)),),
        (UnitsOfName(name="A", indexes=()),),
        (UnitsOfName(name="A", indexes=(-2,)),),
        (UnitsOfName(name=" ", indexes=(0,)),),
        (UnitsOfName(name="A", indexes=tuple(range(100_000))), UnitsOfName(name="B", indexes=(0,))),
    ],
    ids=[
        "names-descend",
        "name-twice",
        "indexes-descend",
        "index-twice",
        "no-index",
        "index-below-1",
        "blank",
        "too-many",
    ],
)
def test_units_out_of_order_repeated_or_too_many_are_refused(given: tuple[UnitsOfName, ...]) -> None:
    """Scenario 10: a list with a unit twice would be two lists that mean the same."""
    harness = ConnectHarness()
    message = ConnectGroupHeartbeatRequest(
        group_id="g",
        member_id="w",
        rebalance_timeout_ms=1,
        server_assignor="uniform",
        owned_units=(),
        catalog=Catalog(offset=0, units=given),
    )

    assert harness.send(message, version=0).error_code == INVALID


def test_the_catalogue_of_the_highest_offset_counts() -> None:
    """Scenarios 11-16: two deployments with different lists under one version would take units from each other."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(7, "A B"))
    assert harness.connect.group_epoch == 1  # 11: one bump for the join and the catalogue

    assert harness.beat("w1", 1, catalogue=(7, "A B")).error_code == 0
    assert harness.record_names() == []  # 12

    response = harness.beat("w1", 1, catalogue=(8, "A B"))
    assert (harness.connect.group_epoch, response.catalog_offset) == (1, 8)  # 13
    assert harness.record_names() == ["ConnectGroupCatalogKey"]

    response = harness.beat("w1", 1, owned="A B", catalogue=(9, "A B C"))
    assert (harness.connect.group_epoch, tokens(response)) == (2, {"A": 1, "B": 1, "C": 2})  # 14

    response = harness.beat("w1", 2, catalogue=(8, "A"))
    assert (response.error_code, response.catalog_offset, harness.record_names()) == (0, 9, [])  # 15

    response = harness.beat("w1", 2, catalogue=(9, "A"))
    assert (response.error_code, harness.record_names()) == (INVALID, [])  # 16
    assert response.error_message is not None
    assert "differs in B, C" in response.error_message
    harness.verify_log()


def test_a_unit_that_leaves_the_catalogue_is_stopped_although_the_target_lags() -> None:
    """Scenarios 17 and 18: a deleted unit must not go on running until a worker has computed a plan."""
    harness = ConnectHarness()
    _installed(harness, w1="A A/0 A/1", w2="B B/0")

    harness.beat("w1", 2, catalogue=(10, "A A/0 A/1"))
    stopped = harness.beat("w2", 2)
    same = harness.beat("w1", 2)

    assert (as_text(told(stopped).assigned), stopped.member_epoch) == ("", 2)
    assert same.assignment is None
    assert harness.connect.target_epoch == 2

    harness.beat("w1", 2, catalogue=(11, FIVE))
    assert harness.runs("w2") == ""  # 18: it was not confirmed yet
    planner = harness.chosen
    epoch = harness.prepare(planner, 2).group_epoch
    assert harness.install(planner, 2, epoch, w1="A A/0 A/1", w2="B B/0") == 0
    back = harness.beat("w2", 2, owned="")
    assert tokens(back) == {"B": epoch, "B/0": epoch}
    harness.verify_log()


def test_an_empty_group_forgets_its_catalogue() -> None:
    """Scenario 19: a list that begins at offset 0 again is taken from the next workers."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(9, "A"))

    harness.beat("w1", -1)
    response = harness.enter("w2", catalogue=(0, "B"))

    assert (response.error_code, tokens(response)) == (0, {"B": 3})
    harness.verify_log()


def test_the_first_two_workers_of_a_client_side_group() -> None:
    """Scenarios 20 and 21: the table of section 10, row by row."""
    harness = ConnectHarness()
    response = harness.enter("w1", catalogue=(1, FIVE), offers=COOPERATIVE)
    assert (response.member_epoch, response.should_compute_assignment, response.assignor_status) == (0, True, 0)
    for _ in range(5):
        harness.enter("w1", catalogue=(1, FIVE), offers=COOPERATIVE)
    assert (harness.connect.group_epoch, harness.connect.target_epoch) == (1, 0)  # 1
    assert harness.prepare("w1", 0).assignment_epoch == 0
    assert harness.install("w1", 0, 1, w1=FIVE) == 0  # 2
    response = harness.enter("w1", offers=COOPERATIVE)
    assert (response.member_epoch, harness.runs("w1")) == (1, FIVE)  # 3
    response = harness.enter("w2", offers=COOPERATIVE)
    assert (response.member_epoch, tokens(response), response.should_compute_assignment) == (1, {}, False)  # 4
    assert harness.beat("w1", 1).should_compute_assignment  # 5
    harness.prepare("w1", 1)
    assert harness.install("w1", 1, 2, w1="A A/0 A/1", w2="B B/0") == 0  # 6
    response = harness.beat("w2", 1)
    assert response.assignment is not None  # 7
    assert (response.member_epoch, as_text(response.assignment.pending)) == (2, "B B/0")
    response = harness.beat("w1", 1)
    assert (response.member_epoch, tokens(response)) == (1, {"A": 1, "A/0": 1, "A/1": 1})  # 8
    assert harness.beat("w2", 2).assignment is None  # 9
    assert harness.beat("w1", 1, owned="A A/0 A/1").member_epoch == 2  # 10
    response = harness.beat("w2", 2)
    assert tokens(response) == {"B": 2, "B/0": 2}  # 11
    assert str(harness.connect.state) == "Stable"
    harness.verify_log()


def test_a_worker_that_joins_while_another_computes_waits_for_the_next_round() -> None:
    """Scenario 22: a fleet that starts at once makes progress."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, FIVE), offers=COOPERATIVE)
    harness.prepare("w1", 0)

    harness.enter("w2", offers=COOPERATIVE)
    installed = harness.install("w1", 0, 1, w1=FIVE)

    assert installed == 0
    assert (harness.connect.group_epoch, harness.connect.target_epoch) == (2, 1)
    assert harness.enter("w1", offers=COOPERATIVE).should_compute_assignment
    assert harness.connect.target_of("w2") == {}


def test_a_worker_that_does_not_stop_its_units_in_time_is_removed() -> None:
    """Scenario 24: a hung worker does not hold its units for ever."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"))
    harness.enter("w2")
    harness.beat("w1", 1)  # told to stop B
    for _ in range(2):
        harness.advance(29_999)
        harness.beat("w1", 1)
        harness.beat("w2", 2)

    harness.advance(3)

    assert set(harness.connect.members) == {"w2"}
    assert harness.connect.group_epoch == 3
    harness.beat("w2", 2)
    assert harness.runs("w2") == "A B"
    harness.verify_log()


def test_a_static_worker_gets_its_units_back_with_their_tokens() -> None:
    """A worker that restarts within its session runs the same units again: nothing moves (scenario 28)."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B"), instance="i1")
    harness.enter("w2", instance="i2")
    harness.beat("w1", 1, owned="A B")
    harness.beat("w1", 1, owned="A")
    before = tokens(harness.enter("w2", instance="i2"))

    harness.beat("w2", -2, instance="i2")
    harness.advance(10_000)
    response = harness.enter("w3", instance="i2")

    assert (tokens(response), harness.connect.group_epoch) == (before, 2)
    harness.verify_log()


@pytest.mark.parametrize(
    ("ranges", "outcome"),
    [
        ({"A": (1, 5, 5), "B": (3, 4, 4), "C": (2, 4, 4)}, "A"),  # 29
        ({"A": (1, 3, 1), "B": (1, 5, 5), "C": (3, 7, 7)}, ErrorCode.UNSUPPORTED_ASSIGNOR),  # 30
        ({"A": (1, 3, 3), "B": (1, 5, 5), "C": (3, 7, 7)}, "C"),  # 30
    ],
)
def test_the_worker_that_reads_all_versions_computes(ranges: dict[str, tuple[int, int, int]], outcome: object) -> None:
    """Scenarios 29 and 30: a rolling upgrade of the assignor never leaves a group without a plan."""
    harness = ConnectHarness()
    code = 0
    for member_id, (low, high, version) in ranges.items():
        code = harness.enter(member_id, offers=(offer(versions=(low, high), version=version),)).error_code
    if isinstance(outcome, str):
        assert harness.chosen == outcome
    else:
        assert code == outcome
        assert set(harness.connect.members) == {"A", "B"}


def test_without_a_worker_that_reads_all_the_units_go_on_running() -> None:
    """Scenario 31: the group stands still, healthy workers are not killed."""
    harness = ConnectHarness()
    harness.enter("A", catalogue=(1, "X Y"), offers=(offer(versions=(0, 5)),))
    harness.prepare("A", 0)
    harness.install("A", 0, 1, A="X Y")
    harness.enter("B", offers=(offer(versions=(0, 2), version=2),))
    harness.enter("C", offers=(offer(versions=(3, 5), version=5),))
    harness.enter("A", offers=(offer(versions=(0, 5)),))
    harness.prepare("A", 1)
    assert harness.install("A", 1, 3, B="X", C="Y") == 0
    harness.beat("A", 1, owned="")
    for worker in "BC":
        harness.beat(worker, 1)
    harness.beat("A", -1)

    status = [harness.beat(worker, 3).assignor_status for worker in "BC"]
    assert (status, harness.flying(), harness.described().assignor_status) == ([1, 1], None, 1)
    assert (harness.runs("B"), harness.runs("C"), str(harness.connect.state)) == ("X", "Y", "Assigning")
    response = harness.enter("D", offers=(offer(versions=(0, 5), version=3),))
    assert (response.assignor_status, response.should_compute_assignment) == (0, True)


def test_the_last_installer_is_asked_first() -> None:
    """Scenario 32: the planner's duties do not wander with every worker that joins."""
    harness = ConnectHarness()
    harness.enter("w2", catalogue=(1, FIVE), offers=COOPERATIVE)
    harness.prepare("w2", 0)
    harness.install("w2", 0, 1, w2=FIVE)

    harness.enter("w1", offers=COOPERATIVE)

    assert harness.chosen == "w2"
    assert harness.prepare("w1", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID  # 33
    assert harness.prepare("w2", 7).error_code == ErrorCode.STALE_MEMBER_EPOCH  # 33
    harness.beat("w1", -1)
    assert harness.connect.last_installer == "w2"
    harness.enter("w3", offers=COOPERATIVE)
    harness.beat("w2", -1)
    assert harness.connect.last_installer == ""


@pytest.mark.parametrize(
    ("members", "deferred"),
    [
        pytest.param({"w1": "A A/0 B B/0"}, "", id="34-missing"),
        pytest.param({"w1": FIVE}, "A/1", id="35-assigned-and-deferred"),
        pytest.param({"w1": FIVE + " C"}, "", id="36-unknown-unit"),
        pytest.param({"w1": FIVE, "w9": ""}, "", id="36-unknown-member"),
        pytest.param({"w1": FIVE, "w2": "A"}, "", id="36-twice"),
        pytest.param({"w1": FIVE, "w2": "/1"}, "", id="a-unit-without-a-name"),
    ],
)
def test_an_assignment_that_is_not_whole_is_refused_and_can_be_repeated(members: dict[str, str], deferred: str) -> None:
    """Scenarios 34-36: an assignor with a bug loses no unit."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, FIVE), offers=COOPERATIVE)
    harness.enter("w2", offers=COOPERATIVE)
    epoch = harness.prepare("w1", 0).group_epoch

    assert harness.install("w1", 0, epoch, members, deferred=deferred) == ErrorCode.INVALID_ASSIGNMENT
    assert harness.record_names() == []
    assert harness.events[-1].event == "assignment_refused"
    assert harness.install("w1", 0, epoch, deferred="A/1", w1="A A/0 B B/0") == 0
    assert as_text(on_wire("A/1") or ()) == "A/1"
    assert harness.connect.deferred == {"A": (1,)}
    harness.verify_log()


def test_a_worker_that_takes_too_long_is_replaced_and_not_removed() -> None:
    """Scenario 37: a slow planner costs a round, not its units."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, FIVE), offers=COOPERATIVE)
    harness.enter("w2", offers=COOPERATIVE)
    harness.prepare("w1", 0)
    for _ in range(2):
        harness.advance(30_000)
        harness.enter("w1", offers=COOPERATIVE)
        response = harness.enter("w2", offers=COOPERATIVE)

    assert response.should_compute_assignment
    assert harness.install("w1", 0, 2, w1=FIVE) == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(harness.connect.members) == {"w1", "w2"}


def test_an_error_of_the_assignor_keeps_the_target() -> None:
    """Scenario 38: units run on, every worker hears of the error, and the next change tries again."""
    harness = ConnectHarness()
    _installed(harness, w1="A A/0 A/1", w2="B B/0")
    harness.enter("w3", offers=COOPERATIVE)
    harness.beat("w1", 2)
    epoch = harness.prepare("w1", 2).group_epoch

    assert harness.install("w1", 2, epoch, error=1) == 0
    response = harness.beat("w2", 2)

    assert (response.assignor_status, told(response).error, response.member_epoch) == (2, 1, epoch)
    assert harness.described().assignor_status == 2
    assert harness.runs("w2") == "B B/0"
    harness.enter("w4", offers=COOPERATIVE)
    assert harness.flying() is not None
    harness.verify_log()


def test_new_metadata_alone_reaches_each_worker_once() -> None:
    """Scenario 27: a plan that moves nothing still tells every worker when the next one is due."""
    harness = ConnectHarness()
    harness.advance(700)
    _installed(harness, w1="A A/0 A/1", w2="B B/0")
    harness.beat("w1", 2, offers=(offer(reason=1, data=b"1"),))
    epoch = harness.prepare("w1", 2).group_epoch
    members = tuple(
        Member(member_id, on_wire(text) or (), 0, b"delay")
        for member_id, text in (("w1", "A A/0 A/1"), ("w2", "B B/0"))
    )
    request = ConnectGroupInstallAssignmentRequest("g", "w1", 2, epoch, 0, members, (), b"state", 0)
    assert harness.send(request, version=0).error_code == 0

    answers = [harness.beat("w2", 2), harness.beat("w2", epoch)]

    assert told(answers[0]).metadata_bytes == b"delay"
    assert answers[1].assignment is None
    assert [event.event for event in harness.events].count("target_assignment_computed") == 2
    harness.advance(1_000)
    harness.beat("w1", 2)
    harness.beat("w1", epoch, offers=(offer(reason=1, data=b"2"),))
    prepared = harness.prepare("w1", epoch)
    assert (prepared.assignor_state, prepared.state_age_ms) == (b"state", 1_000)
    assert prepared.catalog.offset == harness.connect.catalogue.offset > 0
    harness.beat("w2", -1)
    assert harness.connect.target_metadata.keys() == {"w1"}
    harness.verify_log()
    harness.restart()
    harness.beat("w1", epoch)
    assert harness.prepare("w1", epoch).state_age_ms == -1  # 51: the delay starts again


@pytest.mark.parametrize(("count", "shown"), [(10, "A/8, A/9."), (11, "A/8, A/9, ....")])
def test_an_assignment_that_leaves_out_units_names_some_of_them(count: int, shown: str) -> None:
    """The author of an assignor sees which, also of a thousand units."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(0, " ".join(f"A/{index}" for index in range(count))), offers=COOPERATIVE)
    prepared = harness.prepare("w1", 0)
    assert prepared.catalog.offset == 0
    request = ConnectGroupInstallAssignmentRequest("g", "w1", 0, 1, 0, (Member("w1"),))
    assert (harness.send(request, version=0).error_message or "").endswith(shown)
    twice = ConnectGroupInstallAssignmentRequest("g", "w1", 0, 1, 0, (Member("w1"), Member("w1")))
    assert "twice" in (harness.send(twice, version=0).error_message or "")


def test_a_server_side_group_spreads_its_units_in_the_joining_call() -> None:
    """Scenarios 39, 40 and 67: no worker computes anything, and the log holds it all."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A B C D E"))
    harness.enter("w2")

    response = harness.enter("w3")

    sizes = [sum(map(len, harness.connect.target_of(worker).values())) for worker in ("w1", "w2", "w3")]
    assert (sizes, response.should_compute_assignment) == ([2, 2, 1], False)
    assert not any(getattr(answer, "error_code", 0) for answer in harness.answers.values())
    harness.verify_log()
    harness.restart()
    harness.advance(45_000)
    assert harness.connect.members == {}  # sessions run on after a restart


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (None, COOPERATIVE, "use a server-side assignor and this worker brings a client-side one"),
        (COOPERATIVE, None, "use a client-side assignor and this worker brings none"),
    ],
)
def test_workers_of_two_modes_do_not_mix(first: Any, second: Any, says: str) -> None:
    """A worker with other settings than the fleet is refused instead of changing how the fleet works."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"), offers=first)

    response = harness.enter("w2", offers=second)

    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert says in (response.error_message or "")
    assert set(harness.connect.members) == {"w1"}


def test_connect_groups_are_listed_and_deleted_when_empty() -> None:
    """``kip848 groups list`` shows Connect groups, and an operator can remove an empty one (scenario 75)."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(1, "A"))

    listed = harness.send(ListGroupsRequest(types_filter=("CONNECT",)), version=5)
    refused = harness.send(DeleteGroupsRequest(groups_names=("g",)), version=3)
    harness.beat("w1", -1)
    deleted = harness.send(DeleteGroupsRequest(groups_names=("g",)), version=2)

    assert [(group.group_id, group.protocol_type, group.group_type) for group in listed.groups] == [
        ("g", "connect", "connect")
    ]
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert "once they have left" in (refused.results[0].error_message or "")
    assert deleted.results[0].error_code == 0
    assert harness.coordinator.ids_of(ConnectGroup) == ()
    harness.verify_log()


def test_a_group_config_shortens_the_session() -> None:
    """GROUP overrides reach the lease, which every answer tells the worker."""
    harness = ConnectHarness()
    harness.set_group_config(connect_session_timeout_ms="2000", connect_heartbeat_interval_ms="200")

    response = harness.enter("w1", catalogue=(1, "A"))

    assert (response.session_timeout_ms, response.heartbeat_interval_ms) == (2_000, 200)
    harness.advance(2_000)
    assert harness.connect.members == {}


def _installed(harness: ConnectHarness, **targets: str) -> None:
    """Workers in client-side mode, all at epoch 2 and with these units."""
    for worker in targets:
        harness.enter(worker, catalogue=(1, FIVE), offers=COOPERATIVE)
    harness.prepare("w1", 0)
    assert harness.install("w1", 0, harness.connect.group_epoch, targets) == 0
    for worker in targets:
        harness.enter(worker, offers=COOPERATIVE)


def test_a_heartbeat_that_comes_late_frees_no_unit() -> None:
    """W13: a join that was given up says that nothing runs, and the worker has been given units since."""
    harness = ConnectHarness()
    join: dict[str, Any] = JOIN | {"catalogue": (0, "A B")}
    harness.beat("w1", 0, **join, sequence=1)
    harness.beat("w1", 0, **join, sequence=4)
    harness.enter("w2")
    assert harness.beat("w1", 1, sequence=5).assignment is not None, "w1 is to stop B"

    late = harness.beat("w1", 0, **join, sequence=1)

    assert late.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.beat("w1", 1, owned="", sequence=5).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, (
        "it came twice"
    )
    assert harness.beat("w2", 2).assignment is None
    assert harness.beat("w1", 1, owned="A", sequence=6).member_epoch == 2
    assert harness.runs("w2") == ""
    harness.beat("w2", 2)
    assert harness.runs("w2") == "B"
    assert harness.beat("w1", -1, sequence=7).error_code == 0
    assert harness.beat("w1", 0, **join, sequence=1).error_code == 0, "what has left is forgotten"


@pytest.mark.parametrize("attempts", [2, 4])
def test_a_join_that_comes_after_a_restart_frees_no_unit(attempts: int) -> None:
    """W13: the restarted coordinator would take it for a new join, and give units away that still run."""
    harness = ConnectHarness()
    for number in range(1, attempts + 1):
        harness.enter("w1", catalogue=(0, "A B"), sequence=number)
    harness.restart()
    harness.enter("w2")

    late = harness.enter("w1", catalogue=(0, "A B"), sequence=attempts - 1)

    assert late.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told(harness.beat("w1", 1, owned="A B", sequence=attempts + 1)).assigned
    harness.beat("w2", 2)
    assert harness.runs("w2") == "", "w1 has not stopped B"


def test_a_group_is_described_as_it_is() -> None:
    """`kip848 groups describe` shows these fields of each worker."""
    harness = ConnectHarness()
    harness.enter("w1", catalogue=(3, "A B"), worker_id="host:1")
    harness.enter("w2")
    harness.beat("w1", 1)
    group, other = harness.send(ConnectGroupDescribeRequest(group_ids=("g", "other")), version=0).groups
    assert (other.error_code, group.error_code) == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    assert (group.group_state, group.group_epoch, group.catalog_offset, group.unit_count) == ("Reconciling", 2, 3, 2)
    assert (group.assignor_name, group.is_client_side) == ("uniform", False)
    first, second = group.members
    assert (first.worker_id, first.state, as_text(first.assigned)) == ("host:1", "UNREVOKED_PARTITIONS", "A")
    assert (as_text(first.pending_revocation), as_text(second.target)) == ("B", "B")
