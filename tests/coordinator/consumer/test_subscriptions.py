"""Patterns (RE2), matched in the background for the whole group; the subscriptions that a target is computed from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions, resolve
from kip848_client.testing.coordinator.core.inputs import RegexResolved
from kip848_client.testing.coordinator.core.result import ResolveRegexes
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from tests.support.coordinator_harness import FAST, Harness

SLOW = replace(FAST, consumer_regex_refresh_min_interval_ms=10_000)
"""Kafka's 10 s between two matches."""


def _topics() -> Harness:
    h = Harness(config=SLOW)
    h.create_topic("foo1", partitions=2)
    h.create_topic("bar", partitions=1)
    return h


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        *[(pattern, pattern) for pattern in ("[", "(?=a)b", r"(a)\1", "*", "(", "a{1001}", "(?<!x)y")],
        ("a" * 1023 + "[", "a" * 1023 + "["),
        ("a" * 1025, "a" * 40 + "..."),
        ("\ud800", r"'\ud800'"),
    ],
    ids=repr,
)
def test_a_pattern_that_re2_does_not_take_is_refused(pattern: str, shown: str) -> None:
    """The user is told that the pattern is wrong, and why; the group is not touched."""
    h = _topics()
    response = h.join("m", None, regex=pattern)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"`{shown}`" in (response.error_message or "")
    assert "RE2" in (response.error_message or "")
    assert (h.log, h.tasks) == ([], [])


def test_a_pattern_with_explosive_backtracking_is_matched_in_no_time() -> None:
    """One user's pattern cannot stop the coordinator for all (Python's re needs seconds for this one)."""
    image = TopicsImage((TopicInfo("a" * 200 + "b", UUID(int=1), 1),), version=1)
    assert resolve(ResolveRegexes("g", ("(a+)+$",), image), wall_ms=0).topics == {"(a+)+$": frozenset()}


def test_a_pattern_of_another_engine_matches_nothing() -> None:
    """A log of a coordinator that took more than RE2 does not stop the patterns of its groups."""
    task = ResolveRegexes("g", ("(?=a)b", "b.*"), _topics().image)
    assert resolve(task, wall_ms=0).topics == {"(?=a)b": frozenset(), "b.*": frozenset({"bar"})}


def test_a_new_pattern_is_resolved_in_the_background_and_then_assigned() -> None:
    """A consumer by pattern joins at once, and gets its topics with its next heartbeats."""
    h = _topics()
    response = h.join("m", None, regex="foo.*")
    assert (response.error_code, response.member_epoch, h.received(response)) == (ErrorCode.NONE, 1, {})
    assert h.tasks == [ResolveRegexes("g", ("foo.*",), h.image)]
    h.heartbeat("m", 1)
    assert len(h.tasks) == 1, "one at a time"
    assert h.run_tasks() == 1
    assert h.record_names() == ["regex", "epoch"]
    assert (h.group.group_epoch, h.group.state) == (2, GroupState.ASSIGNING)
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo1": [0, 1]})
    assert not h.tasks
    h.verify_log()


def test_the_whole_name_must_match() -> None:
    """``foo`` is not a search: foo1 stays out."""
    h = _topics()
    h.join("m", None, regex="foo")
    h.run_tasks()
    assert h.record_names() == ["regex"]
    assert h.received(h.heartbeat("m", 1, owned={}, topics=[], rebalance_timeout_ms=1)) == {}


def test_a_pattern_that_matches_nothing_moves_no_member_that_has_its_topics_by_name() -> None:
    """A group is not disturbed for a match that changes nothing."""
    h = _topics()
    h.join("m", ["bar"], regex="foo")
    h.run_tasks()
    assert h.record_names() == ["regex"]


def test_a_match_that_changes_nothing_moves_no_group_whose_target_is_behind() -> None:
    """With an assignment interval the target still holds what was unsubscribed; one rebalance is enough for that."""
    h = _topics()
    h.set_group_config(consumer_assignment_interval_ms="10000")
    h.join("m", ["bar"], regex="foo.*")
    h.run_tasks()
    h.advance(10_000)
    h.heartbeat("m", 1)
    h.heartbeat("m", 2, topics=[], owned={"foo1": [0, 1], "bar": [0]})
    assert (h.group.group_epoch, h.group.target_epoch) == (3, 2)
    h.step(RegexResolved("g", {"foo.*": frozenset({"foo1"})}, version=2, wall_ms=h.wall_ms))
    assert h.group.group_epoch == 3


def test_names_and_pattern_add_up() -> None:
    """A member that subscribes by names and by a pattern gets the topics of both."""
    h = _topics()
    response = h.join("m", ["bar"], regex="foo.*")
    assert h.received(response) == {"bar": [0]}
    h.run_tasks()
    assert h.received(h.heartbeat("m", 1)) == {"foo1": [0, 1], "bar": [0]}


def test_an_empty_pattern_is_no_pattern() -> None:
    """librdkafka sends "" where it means none; that does not subscribe to everything."""
    h = _topics()
    h.join("m", ["bar"], regex="")
    assert h.member("m").metadata.subscribed_topic_regex is None
    assert not h.tasks


def test_a_second_member_with_the_same_pattern_has_its_topics_at_once() -> None:
    """Scaling out does not wait for another match."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    response = h.join("b", None, regex="foo.*")
    assert response.member_epoch == 3
    assert (h.target("a"), h.target("b")) == ({"foo1": [0]}, {"foo1": [1]})
    assert not h.tasks


def test_a_second_member_has_its_pattern_matched_again_if_topics_were_created() -> None:
    """It would read the old topics only, until a later heartbeat of either member."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.create_topic("foo2", partitions=1)
    h.advance(10_001)
    h.join("b", None, regex="foo.*")
    assert [task.regexes for task in h.tasks] == [("foo.*",)]


def test_another_pattern_is_matched_together_with_those_already_there() -> None:
    """A second application version with another pattern gets its topics, too."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    response = h.join("b", None, regex="b.*")
    assert (response.member_epoch, h.received(response)) == (2, {})
    assert not h.tasks, "the last match was just now"
    h.advance(10_001)
    h.heartbeat("b", 2)
    assert [task.regexes for task in h.tasks] == [("b.*", "foo.*")]
    h.run_tasks()
    assert h.received(h.heartbeat("b", 2)) == {"bar": [0]}
    assert h.assigned("a") == {"foo1": [0, 1]}


def test_the_last_subscriber_takes_its_pattern_along() -> None:
    """A pattern without subscribers would be stored and matched again for ever."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    response = h.heartbeat("a", 2, topics=["bar"], regex="")
    assert h.record_names()[:3] == ["member", "regex†", "epoch"]
    assert (response.member_epoch, h.received(response)) == (2, {})
    assert h.heartbeat("a", 2, owned={}).member_epoch == 3
    assert h.assigned("a") == {"bar": [0]}
    assert not h.group.resolved_regexes
    h.verify_log()


@pytest.mark.parametrize("how", ["leave", "session"])
def test_a_pattern_is_forgotten_when_its_last_member_goes(how: str) -> None:
    """A pattern of a member that left or died would be stored and matched for ever."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    if how == "leave":
        h.heartbeat("a", -1)
        result = h.results[-1]
    else:
        (result,) = h.advance(45_000)
    assert h.record_names(result) == ["current†", "target†", "member†", "regex†", "epoch", "target_epoch"]
    h.verify_log()


def test_a_created_topic_is_found_with_the_first_heartbeat_after_the_minimum_interval() -> None:
    """A topic that is created later is consumed without a restart; many creations cause one match."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.create_topic("foo2", partitions=1)
    h.advance(10_000)
    h.heartbeat("a", 2)
    assert not h.tasks
    h.advance(1)
    h.heartbeat("a", 2)
    assert h.run_tasks() == 1
    assert h.received(h.heartbeat("a", 2)) == {"foo1": [0, 1], "foo2": [0]}


def test_a_topic_that_grows_or_goes_needs_no_new_match() -> None:
    """Only new names can change what a pattern matches."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.advance(20_000)
    h.add_partitions("foo1", partitions=3)
    h.delete_topic("bar")
    response = h.heartbeat("a", 2)
    assert h.received(response) == {"foo1": [0, 1, 2]}
    assert not h.tasks


def test_patterns_are_matched_again_after_the_refresh_interval() -> None:
    """A permission can change which topics members may see, without a new topic."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    for _ in range(20):
        h.advance(30_000)
        h.heartbeat("a", 2)
        assert not h.tasks
    h.advance(1)
    h.heartbeat("a", 2)
    assert h.run_tasks() == 1
    assert h.record_names() == ["regex"], "nothing changed: no rebalance"


def test_a_wall_clock_that_is_set_back_holds_no_match_up() -> None:
    """A machine whose clock is corrected by an hour would otherwise not see a new topic for an hour."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.wall_clock_set_by_ms = -3_600_000
    h.create_topic("foo2", partitions=1)
    h.advance(1_000)
    h.heartbeat("a", 2)
    assert h.run_tasks() == 1
    assert h.received(h.heartbeat("a", 2)) == {"foo1": [0, 1], "foo2": [0]}


def test_a_topic_that_no_member_may_see_is_not_matched() -> None:
    """A pattern does not reveal topics that its owner is not allowed to describe."""
    h = _topics()
    h.create_topic("foo-secret", partitions=1)
    h.join("a", None, regex="foo.*")
    (task,) = h.tasks
    assert resolve(task, wall_ms=0, is_visible=lambda name: "secret" not in name).topics == {
        "foo.*": frozenset({"foo1"})
    }


def test_a_result_that_comes_after_the_group_is_gone_is_ignored() -> None:
    """A late answer does not bring a group back."""
    h = _topics()
    result = h.step(RegexResolved("gone", {"foo.*": frozenset({"foo1"})}, version=1, wall_ms=0))
    assert not result.records
    assert h.coordinator.groups() == ()


def test_a_result_for_a_pattern_that_was_dropped_meanwhile_is_ignored() -> None:
    """A late answer does not keep a pattern alive."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.heartbeat("a", 1, topics=["bar"], regex="")
    h.run_tasks()
    assert h.record_names() == []
    assert not h.group.resolved_regexes


def test_a_failed_match_is_tried_again() -> None:
    """A task that ends without topics does not block the patterns of its group."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.tasks.clear()
    h.step(RegexResolved("g", {}, version=1, wall_ms=h.wall_ms))
    h.heartbeat("a", 1)
    assert h.run_tasks() == 1
    assert h.received(h.heartbeat("a", 1)) == {"foo1": [0, 1]}


def test_a_changed_pattern_gives_the_old_topics_up_at_once() -> None:
    """A member stops reading what it no longer subscribes to, also while the new pattern is not matched yet."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.advance(10_001)
    response = h.heartbeat("a", 2, regex="b.*")
    assert h.received(response) == {}
    assert (h.pending("a"), h.group.group_epoch) == ({"foo1": [0, 1]}, 2), "one rebalance, when the topics are known"
    assert [task.regexes for task in h.tasks] == [("b.*",)]
    assert h.run_tasks() == 1
    response = h.heartbeat("a", 2, owned={})
    assert h.received(response) == {"bar": [0]}
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def test_partitions_of_a_member_whose_new_pattern_matches_nothing_go_to_the_others() -> None:
    """No partition stays with a member that gave it up, while another member still subscribes to it."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("a", [], regex="foo")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.join("b", [], regex="foo")
    h.heartbeat("a", 2)
    h.heartbeat("a", 2, owned={"foo": [0]})
    assert h.received(h.heartbeat("b", 3)) == {"foo": [1]}
    h.advance(10_001)

    h.heartbeat("a", 3, regex="nothing", owned={"foo": [0]})
    h.heartbeat("a", 3, owned={})
    h.run_tasks()

    assert h.heartbeat("a", 3, owned={}).member_epoch == 4
    assert h.received(h.heartbeat("b", 3)) == {"foo": [0, 1]}
    assert h.group.state is GroupState.STABLE


def test_patterns_are_matched_again_after_a_load() -> None:
    """Topics that were created while the coordinator was down are found."""
    h = _topics()
    h.join("a", None, regex="foo.*")
    h.run_tasks()
    h.heartbeat("a", 1)
    h.advance(20_000)
    h.image = TopicsImage((*h.image.topics, TopicInfo("foo9", UUID(int=99), 1)), version=h.image.version)
    h.restart()
    h.heartbeat("a", 2)
    assert h.run_tasks() == 1
    assert h.received(h.heartbeat("a", 2)) == {"foo1": [0, 1], "foo9": [0]}
    h.advance(20_000)
    h.heartbeat("a", 3)
    assert not h.tasks, "once is enough"


_MEMBERS = ("m1", "m2", "m3")
_TOPICS = ("t0", "t1", "t2")


def _consumers(coordinator: GroupCoordinator) -> ConsumerGroup:
    group = coordinator.group("g")
    assert group is not None
    return group


def _read(coordinator: GroupCoordinator) -> Mapping[str, tuple[UUID, ...]]:
    state = coordinator._state
    return dict(state.part(Subscriptions).of_group(_consumers(coordinator)))


def _from_nothing(coordinator: GroupCoordinator) -> Mapping[str, tuple[UUID, ...]]:
    state = coordinator._state
    group = _consumers(coordinator)
    return {
        member_id: state.part(Subscriptions).of_member(group, member.metadata)
        for member_id, member in group.members.items()
    }


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(_MEMBERS), st.sets(st.sampled_from(_TOPICS)) | st.none(), st.booleans()), max_size=20
    )
)
def test_reading_the_subscriptions_changes_no_group_and_misses_no_change(
    steps: list[tuple[str, set[str] | None, bool]],
) -> None:
    """Broken: a second reader, or a description between two targets, makes the next target forget a member."""
    h = Harness()
    for name in _TOPICS:
        h.create_topic(name, partitions=2)
    h.join("m0", ["t0"])
    for member_id, topics, is_read in steps:
        if topics is None:
            if member_id in h.group.members:
                h.heartbeat(member_id, -1)
        elif member_id in h.group.members:
            h.heartbeat(member_id, h.member(member_id).member_epoch, topics=sorted(topics))
        else:
            h.join(member_id, sorted(topics))
        if is_read:
            before = copy.deepcopy(vars(h.coordinator._state.groups["g"]))
            assert _read(h.coordinator) == _from_nothing(h.coordinator)
            assert vars(h.coordinator._state.groups["g"]) == before
    assert _read(h.coordinator) == _from_nothing(h.coordinator)


def test_a_long_history_of_changes_is_not_kept() -> None:
    """Broken: a group whose members come and go for a year fills the memory."""
    h = Harness()
    h.create_topic("t0", partitions=2)
    h.join("m0", ["t0"])
    for _ in range(200):
        h.join("m1", ["t0"])
        assert _read(h.coordinator) == _from_nothing(h.coordinator)
        h.heartbeat("m1", -1)
        assert _read(h.coordinator) == _from_nothing(h.coordinator)
    assert len(_consumers(h.coordinator).metadata_changes) < 150
