"""The referee watches simulated groups: what our member does under faults breaks no rule, and a fault in it is named.

The network loses, repeats and delays messages, coordinators crash, applications stand still: what would be a false
alarm with any client shows here first, and each time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.testing.simulation import SCENARIOS, run
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.judge.client.simulated import watch

Heartbeat = ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize("scenario", ["storm", "zombies", "classic", "migration", "static", "churn"])
@pytest.mark.parametrize("seed", [5, 11])
def test_no_rule_is_broken_in_a_simulated_group(scenario: str, seed: int) -> None:
    """A judge that cries wolf is not asked a second time."""
    report = run(SCENARIOS[scenario], seed=seed, watch=[watch], keep_history=False)
    assert report.violation is None, str(report.violation)


@pytest.mark.parametrize(("scenario", "seed"), [("zombies", 7_100_011), ("classic", 1_200_000_136)])
def test_a_process_that_stood_still_is_not_late(scenario: str, seed: int) -> None:
    """A paused container would be blamed for a rebalance that it could not take part in (it sleeps for 10 and 15 s)."""
    report = run(SCENARIOS[scenario], seed=seed, watch=[watch], keep_history=False)
    assert report.violation is None, str(report.violation)


def test_a_coordinator_that_lost_its_last_generations_is_no_fault_of_its_members() -> None:
    """It crashed before it kept them, and a member uses the older one that it is told then (seed: 3, then 2)."""
    report = run(SCENARIOS["classic"], seed=1_100_000_056, watch=[watch], keep_history=False)
    assert report.violation is None, str(report.violation)


def test_what_a_listener_was_at_work_on_may_be_reported_after_the_target_has_left_it_out() -> None:
    """As Java reports it: a full heartbeat in between did not name it yet (seed: the member closes meanwhile)."""
    report = run(SCENARIOS["migration"], seed=820_000_039, watch=[watch], keep_history=False)
    assert report.violation is None, str(report.violation)


def joins_with_null(request: Heartbeat) -> Heartbeat:
    return request if request.member_epoch else replace(request, topic_partitions=None)


def never_says_all(request: Heartbeat) -> Heartbeat:
    if request.member_epoch < 1:
        return request
    return replace(request, subscribed_topic_names=None, subscribed_topic_regex=None, rebalance_timeout_ms=-1)


def never_reports(request: Heartbeat) -> Heartbeat:
    return request if request.member_epoch < 1 else replace(request, topic_partitions=None)


def counts_by_itself(request: Heartbeat) -> Heartbeat:
    return request if request.member_epoch < 1 else replace(request, member_epoch=request.member_epoch + 1)


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        (joins_with_null, {"R10"}),
        (never_says_all, {"R40"}),
        (never_reports, {"R40", "R72"}),
        (counts_by_itself, {"R36"}),
    ],
)
def test_a_fault_in_the_core_is_named_in_a_simulated_group(
    fault: Callable[[Heartbeat], Heartbeat], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same faults as over TCP, with a network that fails as well."""
    build = Heartbeats.build
    monkeypatch.setattr(Heartbeats, "build", lambda *args, **kwargs: fault(build(*args, **kwargs)))
    report = run(SCENARIOS["storm"], seed=3, watch=[watch], keep_history=False)
    assert report.violation is not None
    assert str(report.violation).partition(":")[0] in rules
