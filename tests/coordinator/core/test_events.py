"""Facts for the event log: what is told of a group's life, and how it is written."""

from __future__ import annotations

from uuid import UUID

from kip848_client.journal import EVENTS
from kip848_client.testing.coordinator.core.group_events import GroupEvent, to_journal
from tests.support.classic_harness import ClassicHarness
from tests.support.coordinator_harness import Harness


def _names(h: Harness) -> list[str]:
    return [event.event for event in h.events]


def test_a_rebalance_is_told_from_its_cause_to_its_end() -> None:
    """A reader of the event log sees why partitions moved, which member was waited for, and when it was over."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    assert _names(h) == [
        "group_epoch_bumped",
        "target_assignment_computed",
        "member_joined",
        "member_assignment_changed",
        "group_state_changed",
    ]
    h.events.clear()
    h.join("b", ["foo"])
    state = h.events[-1]
    assert (state.event, dict(state.fields)) == ("group_state_changed", {"old": "Stable", "new": "Reconciling"})
    h.events.clear()
    h.heartbeat("a", 1)
    h.heartbeat("a", 1)
    (event,) = h.events
    assert (event.member_id, event.member_epoch, event.group_epoch) == ("a", 1, 2)
    assert event.fields["state"] == "UNREVOKED_PARTITIONS"
    h.heartbeat("a", 1, owned={"foo": [0]})
    h.heartbeat("b", 2)
    assert dict(h.events[-1].fields) == {"old": "Reconciling", "new": "Stable"}
    h.heartbeat("b", -1)
    assert dict(h.events[-1].fields) == {"old": "Stable", "new": "Assigning"}


def test_a_rebalance_of_one_decision_has_an_end() -> None:
    """A group of one member whose topic grows would be shown, and alarmed of, as rebalancing until the next change."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    h.events.clear()
    h.add_partitions("foo", partitions=3)
    h.heartbeat("a", 1)
    assert _names(h)[0] == "group_epoch_bumped"
    assert (_names(h)[-1], dict(h.events[-1].fields)) == ("group_state_changed", {"old": "Stable", "new": "Stable"})


def test_why_a_member_left_is_told() -> None:
    """A consumer that was thrown out is distinguished from one that was closed."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    h.join("s", ["foo"], instance="i")
    h.heartbeat("s", -2, instance="i")
    h.join("t", ["foo"], instance="i")
    h.heartbeat("t", -1, instance="i")
    h.heartbeat("a", 1)
    h.join("c", ["foo"])
    h.heartbeat("a", h.member("a").member_epoch)
    h.advance(50_000)
    left = [(event.member_id, event.fields["reason"]) for event in h.events if event.event == "member_left"]
    assert left == [
        ("s", "static_leave"),
        ("s", "replaced"),
        ("t", "leave"),
        ("a", "rebalance_timeout"),
        ("c", "session_timeout"),
    ]


def test_refusals_and_commits_are_told() -> None:
    """Fenced zombies and refused commits can be found in the log."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"])
    h.events.clear()
    h.heartbeat("a", 9)
    h.commit("a", 1, {"foo": {0: 5}}, version=10)
    h.commit("a", 7, {"foo": {0: 6}})
    h.group_id = "none"
    h.commit("", -1, {"foo": {0: 7}})
    fenced, committed, refused, outside = h.events
    assert (fenced.event, dict(fenced.fields)) == ("member_fenced", {"error": "FENCED_MEMBER_EPOCH", "sent_epoch": 9})
    assert (committed.event, dict(committed.fields)) == ("offsets_committed", {"offsets": {"foo-0": 5}})
    assert (refused.event, refused.fields["error"]) == ("commit_refused", "STALE_MEMBER_EPOCH")
    told = [(event.event, event.member_id, event.group_epoch) for event in (committed, refused, outside)]
    assert told == [("offsets_committed", "a", 1), ("commit_refused", "a", 1), ("offsets_committed", None, 0)]


def test_the_life_of_a_classic_group_is_told() -> None:
    """A slow rebalance of a classic group is seen from the join that began it to its end."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    b, _ = h.joining()
    h.join_group(a)
    h.sync_group(a, 2)
    h.leave_group(b)
    told = [(event.event, event.member_id, event.group_epoch, dict(event.fields)) for event in h.events]
    assert told == [
        ("member_joined", a, 0, {"topics": ["foo"], "instance_id": None, "client_host": "/127.0.0.1"}),
        ("classic_generation_began", None, 1, {"protocol": "range", "leader": a, "members": [a]}),
        ("group_state_changed", None, 1, {"old": "Empty", "new": "CompletingRebalance"}),
        ("group_state_changed", None, 1, {"old": "CompletingRebalance", "new": "Stable"}),
        ("member_joined", b, 1, {"topics": ["foo"], "instance_id": None, "client_host": "/127.0.0.1"}),
        ("group_state_changed", None, 1, {"old": "Stable", "new": "PreparingRebalance"}),
        ("classic_generation_began", None, 2, {"protocol": "range", "leader": a, "members": [a, b]}),
        ("group_state_changed", None, 2, {"old": "PreparingRebalance", "new": "CompletingRebalance"}),
        ("group_state_changed", None, 2, {"old": "CompletingRebalance", "new": "Stable"}),
        ("member_left", b, 2, {"reason": "leave"}),
        ("group_state_changed", None, 2, {"old": "Stable", "new": "PreparingRebalance"}),
    ]
    assert {event.client_id for event in h.events if event.member_id} == {"client"}


def test_a_static_member_of_a_classic_group_that_is_back_is_told() -> None:
    """A restart that moves nothing can still be found in the log."""
    h = ClassicHarness()
    old = h.join_group(instance="i").answer.member_id
    h.sync_group(old, 1)
    h.events.clear()
    new = h.join_group(instance="i").answer.member_id
    assert [(event.event, event.member_id, dict(event.fields)) for event in h.events] == [
        ("member_left", old, {"reason": "replaced"}),
        ("member_joined", new, {"topics": ["foo"], "instance_id": "i", "client_host": "/127.0.0.1"}),
    ]


def test_every_event_is_listed_and_can_be_written() -> None:
    """The names are a contract with those who read the log; ids of topics are written as names."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"], regex="f.*")
    h.run_tasks()
    h.heartbeat("a", 1, topics=["foo", "bar"])
    h.heartbeat("a", 2)
    h.heartbeat("a", -1)
    lines = [to_journal(event, ts_ms=5, topic_name=h.coordinator.topic_name) for event in h.events]
    assert {line.event for line in lines} <= EVENTS.keys()
    assert all(line.to_json() for line in lines)
    joined = next(line for line in lines if line.event == "member_joined")
    assert joined.fields == {"topics": ["foo"], "instance_id": None, "client_host": "/127.0.0.1"}
    resubscribed = next(line for line in lines if line.event == "subscription_changed")
    assert resubscribed.fields == {"topics": ["bar", "foo"], "regex": "f.*"}
    target = next(line for line in lines if line.event == "target_assignment_computed")
    assert target.fields == {"assignor": "uniform", "members": {"a": {"foo": [0, 1]}}}
    changed = next(line for line in lines if line.event == "member_assignment_changed")
    assert changed.fields["assigned"] == {"foo": [0, 1]}


def test_a_topic_that_is_gone_is_written_by_its_id() -> None:
    """An event about a deleted topic is not lost."""
    event = GroupEvent("member_assignment_changed", "g", fields={"assigned": {UUID(int=7): [1, 0]}})
    line = to_journal(event, ts_ms=5, topic_name=lambda _: None)
    assert line.fields == {"assigned": {"00000000-0000-0000-0000-000000000007": [0, 1]}}
