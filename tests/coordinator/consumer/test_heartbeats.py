"""Heartbeats of members that join or stay: which are refused, what an answer holds, and the shortcut."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast
from uuid import UUID

import pytest

from kip848_client.assignors.server.range import RangeAssignor
from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.result import ArmTimer
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.support.coordinator_harness import Harness

Send = Callable[[Harness], ConsumerGroupHeartbeatResponse]


def _in_group(group_id: str) -> Send:
    def send(h: Harness) -> ConsumerGroupHeartbeatResponse:
        h.group_id = group_id
        return h.join("m", ["foo"])

    return send


REFUSED: dict[str, tuple[Send, str]] = {
    "blank_group_id": (_in_group("  "), "GroupId"),
    "empty_group_id": (_in_group(""), "GroupId"),
    "join_without_rebalance_timeout": (lambda h: h.join("m", ["foo"], rebalance_timeout_ms=-1), "RebalanceTimeoutMs"),
    "join_with_rebalance_timeout_zero": (lambda h: h.join("m", ["foo"], rebalance_timeout_ms=0), "RebalanceTimeoutMs"),
    "join_without_owned_partitions": (
        lambda h: h.heartbeat("m", 0, topics=["foo"], rebalance_timeout_ms=5_000),
        "TopicPartitions",
    ),
    "join_owning_a_partition": (
        lambda h: h.heartbeat("m", 0, topics=["foo"], owned={"foo": [0]}, rebalance_timeout_ms=5_000),
        "TopicPartitions",
    ),
    "join_without_any_subscription": (lambda h: h.join("m", None), "SubscribedTopicNames"),
    "member_epoch_without_member_id": (lambda h: h.heartbeat("", 1), "MemberId"),
    "blank_member_id": (lambda h: h.heartbeat(" ", 1), "MemberId"),
    "join_v1_without_member_id": (lambda h: h.join("", ["foo"]), "MemberId"),
    "empty_instance_id": (lambda h: h.join("m", ["foo"], instance=""), "InstanceId"),
    "empty_rack_id": (lambda h: h.join("m", ["foo"], rack=""), "RackId"),
    "static_leave_without_instance_id": (lambda h: h.heartbeat("m", -2), "InstanceId"),
    "epoch_below_minus_two": (lambda h: h.heartbeat("m", -3), "MemberEpoch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_heartbeat_that_the_protocol_does_not_allow_is_an_invalid_request(case: str) -> None:
    """A broken client is told what is wrong with its request, and the group does not see it."""
    send, field = REFUSED[case]
    h = Harness()
    h.create_topic("foo", partitions=1)
    response = send(h)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert field in cast("str", response.error_message)
    assert not h.log


def test_a_member_may_join_without_topics() -> None:
    """A consumer that subscribes to nothing yet is in the group, at a real epoch, and owns nothing."""
    h = Harness()
    response = h.join("m", [], rebalance_timeout_ms=1)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 1)
    assert h.received(response) == {}


def test_version_0_may_leave_the_member_id_to_the_coordinator() -> None:
    """The oldest clients bring no id: they are given one and are known by it."""
    h = Harness()
    given = {str(h.join("", ["foo"], version=0).member_id) for _ in range(5)}
    assert (len(given), {UUID(member_id).version for member_id in given}) == (5, {4})
    response = h.join("", ["foo"], version=0)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id
    assert h.heartbeat(response.member_id, response.member_epoch, version=0).error_code == ErrorCode.NONE


def test_an_unknown_assignor_is_refused_and_the_known_ones_are_named() -> None:
    """A typing error in group.remote.assignor is told together with what would be right."""
    h = Harness()
    response = h.join("m", ["foo"], assignor="bar")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in cast("str", response.error_message)
    assert not h.log


def _two_topics() -> Harness:
    h = Harness()
    h.create_topic("foo", partitions=6)
    h.create_topic("bar", partitions=3)
    return h


def test_a_quiet_heartbeat_does_nothing_but_start_the_session_again() -> None:
    """The work of a heartbeat does not grow with the group."""
    h = _two_topics()
    h.join("m", ["foo"])
    h.heartbeat("m", 1)
    result = h.results[-1]
    assert (result.records, result.events, result.tasks) == ((), (), ())
    assert result.soft == (
        ArmTimer(TimerKey(TimerKind.SESSION, "g", "m"), deadline_ms=h.now_ms + 45_000, member_epoch=1),
    )


def test_a_full_request_is_answered_with_the_assignment_though_nothing_changed() -> None:
    """A client that is not sure what it was told hears it again."""
    h = _two_topics()
    h.join("m", ["foo"])
    response = h.heartbeat("m", 1, owned={"foo": range(6)}, topics=["foo"], rebalance_timeout_ms=5_000)
    assert h.received(response) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert h.record_names() == []


@pytest.mark.parametrize("missing", ["timeout", "topics", "owned"])
def test_a_request_that_lacks_a_field_is_not_full(missing: str) -> None:
    """The rule is exact: clients rely on null meaning unchanged."""
    h = _two_topics()
    h.join("m", ["foo"])
    response = h.heartbeat(
        "m",
        1,
        owned=None if missing == "owned" else {"foo": range(6)},
        topics=None if missing == "topics" else ["foo"],
        rebalance_timeout_ms=-1 if missing == "timeout" else 5_000,
    )
    assert response.assignment is None


def test_a_changed_rack_or_timeout_is_kept_without_a_rebalance() -> None:
    """A change that moves no partition must not disturb the group."""
    h = _two_topics()
    h.join("m", ["foo"])
    for change in ({"rack": "r1"}, {"rebalance_timeout_ms": 7_000}, {"client_id": "other"}):
        h.heartbeat("m", 1, **change)
        assert h.record_names() == ["member"]
    h.client_host = "/10.0.0.1"
    h.heartbeat("m", 1, client_id="other")
    assert h.record_names() == ["member"]
    metadata = h.member("m").metadata
    assert (metadata.rack_id, metadata.rebalance_timeout_ms, metadata.client_host) == ("r1", 7_000, "/10.0.0.1")
    assert h.group.group_epoch == 1


def test_a_subscription_sent_again_in_another_order_changes_nothing() -> None:
    """Clients repeat their subscription after errors; that must not cause rebalances."""
    h = _two_topics()
    h.join("m", ["foo", "bar"])
    h.heartbeat("m", 1, topics=["bar", "foo", "bar"])
    assert h.record_names() == []
    assert h.group.group_epoch == 1


def test_a_second_member_with_a_new_preferred_assignor_changes_the_assignor_only_with_a_majority() -> None:
    """The group uses what most members ask for."""
    h = _two_topics()
    h.join("a", ["foo"], assignor="range")
    assert _assignors(h) == ["range"]
    h.join("b", ["foo"], assignor="uniform")
    assert _assignors(h)[-1] == "uniform", "equal votes go to the one that is configured first"
    h.join("c", ["foo"], assignor="range")
    assert _assignors(h)[-1] == "range"


def test_a_change_of_the_preferred_assignor_alone_causes_a_new_target() -> None:
    """A changed ``group.remote.assignor`` takes effect in a running group."""
    h = _two_topics()
    h.join("a", ["foo"], assignor="range")
    h.join("b", ["foo"], assignor="range")
    epoch = h.group.group_epoch
    h.heartbeat("b", epoch, assignor="uniform")
    assert h.group.group_epoch == epoch + 1
    assert _assignors(h)[-1] == "uniform", "equal votes go to the one that is configured first"
    h.heartbeat("b", epoch + 1, assignor="uniform")
    assert h.group.group_epoch == epoch + 1


def test_a_member_that_changes_its_preferred_assignor_has_one_vote_less_for_the_other() -> None:
    """The majority decides, and not the latest change."""
    h = _two_topics()
    for member_id in ("a", "b", "c"):
        h.join(member_id, ["foo"], assignor="range")
    epoch = h.group.group_epoch
    h.heartbeat("c", epoch, assignor="uniform")
    assert (h.group.group_epoch, _assignors(h)[-1]) == (epoch, "range"), "two against one"
    h.heartbeat("b", h.member("b").member_epoch, assignor="uniform")
    assert (h.group.group_epoch, _assignors(h)[-1]) == (epoch + 1, "uniform")


def test_members_whose_part_stays_the_same_get_no_record() -> None:
    """A member that joins with topics of its own costs the others nothing, even if an assignor writes all anew."""

    class Anew:
        name = "range"

        def assign(self, spec: GroupSpec) -> TargetAssignment:
            return copy.deepcopy(SERVER_ASSIGNORS["range"].assign(spec))

    h = _two_topics()
    h.assignors = {**SERVER_ASSIGNORS, "range": Anew()}
    h.restart()
    h.join("a", ["foo"], assignor="range")
    h.join("b", ["bar"], assignor="range")
    assert h.record_names() == ["member", "epoch", "target", "target_epoch", "current"]


class _BrokenAssignor:
    """Fails while it is told to."""

    name = "range"

    def __init__(self) -> None:
        self.fails = True

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        if self.fails:
            raise ZeroDivisionError("no partitions")
        return RangeAssignor().assign(spec)


class _JunkAssignor:
    """Gives every member everything."""

    name = "range"

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        return {m: {t: tuple(range(spec.topics[t])) for t in topics} for m, topics in spec.subscriptions.items()}


def test_a_failing_assignor_leaves_the_group_as_it_was() -> None:
    """A bug in an assignor is told to the member that hit it; the next heartbeat tries again."""
    broken = _BrokenAssignor()
    h = Harness(assignors={"uniform": UniformAssignor(), "range": broken})
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    before = h.state()
    assert h.heartbeat("a", 1, assignor="range").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.state() == before
    broken.fails = False
    response = h.heartbeat("a", 1, assignor="range")
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)


def test_an_illegal_result_of_a_foreign_assignor_is_never_installed() -> None:
    """No assignor can make two members read one partition."""
    h = Harness(assignors={"uniform": UniformAssignor(), "range": _JunkAssignor()})
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    before = h.state()
    response = h.join("b", ["foo"], assignor="range")
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "given twice" in (response.error_message or "")
    assert h.state() == before


def test_members_that_join_a_large_group_together_share_targets() -> None:
    """A target for each of 5,000 joins would cost half a minute, in which no other group is served."""
    h = Harness()
    h.create_topic("t", partitions=300)
    for number in range(300):
        h.join(f"m{number:03}", ["t"])
    assert [len(h.target(f"m{number:03}")) for number in (99, 199, 299)] == [1, 0, 0], "from 100 members on it waits"

    h.advance(3)
    h.heartbeat("m000", h.member("m000").member_epoch)

    assert [len(h.target(f"m{number:03}")) for number in (99, 199, 299)] == [1, 1, 1]
    assert h.group.target_epoch == h.group.group_epoch == 300


def test_many_joins_within_the_assignment_interval_share_one_target() -> None:
    """A rolling start of a large group computes few targets (KIP-1263), and no member is left at epoch 0."""
    h = _two_topics()
    h.set_group_config(consumer_assignment_interval_ms="1000")
    h.advance(100_000)
    first = h.join("a", ["foo"])
    assert first.member_epoch == 1
    for number in range(5):
        response = h.join(f"b{number}", ["foo"])
        assert response.member_epoch == 1
        assert h.received(response) == {}
    assert (h.group.group_epoch, h.group.target_epoch, h.group.state) == (6, 1, GroupState.ASSIGNING)
    assert len(_assignors(h)) == 1
    h.advance(1_000)
    response = h.heartbeat("b0", 1)
    assert (response.member_epoch, h.group.target_epoch) == (6, 6)
    assert len(_assignors(h)) == 2


def _assignors(h: Harness) -> list[object]:
    return [event.fields["assignor"] for event in h.events if event.event == "target_assignment_computed"]


@pytest.fixture
def settled() -> Harness:
    """A group of one member, ``m1``, that owns all of ``t``."""
    harness = Harness()
    harness.create_topic("t", partitions=2)
    harness.join("m1", topics=["t"])
    return harness


def _group_state(harness: Harness) -> GroupState:
    group = harness.coordinator.snapshot(harness.group_id)
    assert group is not None
    return group.state


def test_a_steady_heartbeat_takes_it_and_keeps_the_member_alive(settled: Harness) -> None:
    """All but a few heartbeats are of this kind: a broker's capacity depends on them."""
    for _ in range(5):
        settled.advance(settled.config.consumer_session_timeout_ms - 1)
        answer = settled.heartbeat("m1", 1)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
    assert settled.shortcuts == 5


def test_a_heartbeat_with_possible_news_takes_the_long_way(settled: Harness) -> None:
    """A shortcut that swallowed a change would leave the group as it was for ever."""
    settled.heartbeat("m1", 1, topics=["t"])
    settled.heartbeat("m1", 1, owned={"t": [0, 1]})
    settled.heartbeat("m1", 0, topics=["t"], owned={}, rebalance_timeout_ms=5_000)
    settled.create_topic("u", partitions=1)
    settled.add_partitions("t", partitions=3)
    settled.heartbeat("m1", 1)
    assert settled.shortcuts == 0
    settled.heartbeat("m1", 2)
    settled.heartbeat("m1", 2)
    assert settled.shortcuts > 0, "the news was taken in"
    assert _group_state(settled) is GroupState.STABLE
