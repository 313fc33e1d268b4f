"""Online migration: a live classic group becomes a consumer group, member by member, and back (s40-s59)."""

from __future__ import annotations

import pytest

from kip848_client.errors import ConfigError, ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from kip848_client.testing.coordinator.classic.rebalance import CLASSIC_TIMERS
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig, MigrationPolicy
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.wire.messages.consumer_protocol import decode_assignment, embedded_version
from tests.support.classic_harness import ALL, REBALANCE_MS, SESSION_MS, MigrationHarness, assignment, subscription

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def listed(h: MigrationHarness) -> tuple[str, str]:
    state, kind, _ = h.listed()["g"]
    return kind, state


# --- upgrade


def test_an_upgrade_in_the_middle_of_a_rebalance_sends_every_member_to_join_again() -> None:
    """Otherwise the coordinator takes a member for the owner of partitions that it was never told of.

    A group that has just become a classic one again records targets, and a static member that comes back on the new
    protocol brings nothing that would move the group.
    """
    h = MigrationHarness()
    a, _ = h.mixed()
    h.join("s", ["foo"], instance="i")
    s = h.join_group("", instance="i", protocols=subscription()).answer.member_id
    h.consumer_heartbeat("n", -1)
    assert listed(h) == ("classic", "PreparingRebalance")
    h.join("s2", ["foo"], instance="i")
    assert h.beat(a, h.group.members[a].member_epoch) == REBALANCE
    assert s not in h.group.members
    h.verify_log()


def test_an_upgrade_of_a_group_with_unowned_partitions_moves_it() -> None:
    """A leader may have left partitions out; a consumer group would never assign them."""
    h = MigrationHarness()
    (a,) = h.classic_group([0, 1, 2])
    h.join("n", [])
    assert h.beat(a, 1) == REBALANCE


def test_an_upgrade_with_partitions_of_topics_that_a_static_member_gave_up_moves_the_group() -> None:
    """It came back with other topics, which moves no classic group; as many partitions are no sign of order."""
    h = MigrationHarness()
    h.create_topic("bar", partitions=6)
    old = h.join_group(instance="i", protocols=subscription()).answer.member_id
    h.sync_group(old, 1, {old: assignment(*ALL)}, instance="i")
    a = h.join_group(instance="i", protocols=subscription("bar")).answer.member_id
    assert listed(h) == ("classic", "Stable")
    h.join("n", [])
    assert h.beat(a, 1) == REBALANCE


def test_an_upgrade_puts_the_timers_of_members_into_the_place_of_those_of_the_classic_group() -> None:
    """No timer of a round that is over fires later, and a member that falls silent is removed."""
    h = MigrationHarness()
    a, b = h.classic_group([0, 1, 2], [3, 4, 5])
    promised = h.join_group(protocols=subscription()).answer.member_id
    h.join_group(a, protocols=subscription())
    h.advance(1_000)
    h.join("n", ["foo"])
    keys = [TimerKey(kind, "g", one) for kind in CLASSIC_TIMERS for one in ("", promised, a, b)]
    assert [key for key in keys if h.coordinator.timer(key) is not None] == []
    h.advance(SESSION_MS - 1)
    assert set(h.group.members) == {a, b, "n"}
    h.advance(1)
    assert set(h.group.members) == {"n"}


def test_a_member_that_offers_another_assignor_than_the_present_one_is_converted_too() -> None:
    """It joined since the vote; what it subscribes to is in what it offers first."""
    h = MigrationHarness()
    data = subscription()["range"]
    a, _ = h.joining(protocols={"range": data, "sticky": data})
    h.sync_group(a, 1, {a: assignment(*ALL)})
    b, _ = h.joining(protocols={"sticky": subscription("foo", "bar")["range"]})
    h.join("n", [])
    assert h.member(b).metadata.subscribed_topic_names == ("bar", "foo")


def test_s40_an_eager_member_gives_up_everything_and_comes_back_to_its_part() -> None:
    """The first new process of a rolling restart takes its share; the old ones go on with theirs."""
    h = MigrationHarness()
    (a,) = h.classic_group(ALL)
    n = h.join("n", ["foo"])
    assert (n.member_epoch, h.received(n)) == (2, {})
    assert listed(h) == ("consumer", "Reconciling")
    assert h.describe().error_message == "Group g is not a classic group."
    assert [h.commit_code(a, generation) for generation in (1, 2)] == [NONE, ILLEGAL]
    assert (h.beat(a, 1), h.sync_group(a, 1).code) == (REBALANCE, REBALANCE)
    assert h.rejoin(a, version=0) == 2
    kept = h.synced(a, 2)
    assert len(kept) == 3
    assert h.beat(a, 2) == NONE
    given = h.received(h.heartbeat("n", 2))
    assert given == {"foo": [n for n in ALL if n not in kept]}
    codes = h.commit(a, 1, {"foo": {kept[0]: 1, given["foo"][0]: 1}}, version=8)
    assert set(codes.values()) == {ILLEGAL}, "one of the two was given up"
    assert set(h.commit(a, 1, {"foo": {kept[0]: 1}}, version=8).values()) == {NONE}
    assert [h.commit_code(a, generation) for generation in (2, 9)] == [NONE, ILLEGAL]
    assert listed(h) == ("consumer", "Stable")
    h.verify_log()


def test_s41_a_cooperative_member_reads_on_what_it_keeps() -> None:
    """A migration does not stop those who need not give everything up."""
    h = MigrationHarness()
    (a,) = h.classic_group(ALL, version=3)
    h.join("n", ["foo"])
    assert h.beat(a, 1) == REBALANCE
    assert h.rejoin(a, owned=ALL, version=3) == 1
    kept = h.synced(a, 1)
    assert len(kept) == 3
    assert h.received(h.heartbeat("n", 2)) is None, "a partition that is not given up yet is not assigned"
    assert h.beat(a, 1) == REBALANCE
    assert h.rejoin(a, owned=kept, version=3) == 2
    assert (h.synced(a, 2), h.beat(a, 2)) == (kept, NONE)
    assert h.received(h.heartbeat("n", 2)) == {"foo": [n for n in ALL if n not in kept]}
    h.verify_log()


def test_s42_joins_that_wait_are_sent_to_join_again() -> None:
    """No call waits for a round that will never end."""
    h = MigrationHarness()
    a, _ = h.classic_group([0, 1, 2], [3, 4, 5])
    waiting = h.join_group(a, protocols=subscription())
    assert waiting.is_parked
    h.join("n", ["foo"])
    assert (waiting.code, waiting.answer.member_id) == (REBALANCE, a)
    assert h.assigned(a) == {"foo": [0, 1, 2]}
    h.verify_log()


def test_s42_syncs_that_wait_are_sent_to_join_again() -> None:
    """A sync that waits during an upgrade would never be answered; it is told to join again."""
    h = MigrationHarness()
    a, b = h.classic_group([0, 1, 2], [3, 4, 5])
    h.join_group(a, protocols=subscription())
    h.join_group(b, protocols=subscription())
    waiting = h.sync_group(b, 3)
    h.join("n", ["foo"])
    assert waiting.code == REBALANCE
    assert h.member(b).member_epoch == 3
    h.verify_log()


@pytest.mark.parametrize(
    ("given", "offered", "protocol_type"),
    [
        pytest.param(assignment(0, user_data=b"x"), subscription(), "consumer", id="s43"),
        pytest.param(assignment(), subscription(), "connect", id="s44"),
        pytest.param(assignment(), {"range": b"\xff"}, "consumer", id="s45"),
        pytest.param(b"\x00", subscription(), "consumer", id="malformed assignment"),
    ],
)
def test_a_group_that_cannot_be_converted_goes_on_as_it_was(
    given: bytes, offered: dict[str, bytes], protocol_type: str
) -> None:
    """An assignor that tells its members more than partitions would lose that; nothing is lost by a refusal."""
    h = MigrationHarness()
    a, _ = h.joining(protocols=offered, protocol_type=protocol_type)
    h.sync_group(a, 1, {a: given}, protocol_type=protocol_type)
    before = h.classic
    assert h.consumer_heartbeat("n", 0) == NOT_FOUND
    assert h.results[-1].records == ()
    assert (h.classic, h.beat(a, 1)) == (before, NONE)


def test_s45_a_refused_upgrade_answers_no_parked_request() -> None:
    """A client of another kind that takes a group's name by mistake disturbs no other member."""
    h = MigrationHarness()
    bad = {"range": b"\xff"}
    a, _ = h.joining(protocols=bad)
    _, join = h.joining(protocols=bad)
    assert h.join_group(a, protocols=bad).code == NONE
    sync = h.sync_group(join.answer.member_id, 2)
    assert h.consumer_heartbeat("n", 0) == NOT_FOUND
    assert sync.is_parked


def test_before_the_first_generation_the_upgrade_is_to_be_tried_again() -> None:
    """There is no assignment yet to take over; Kafka removes all members and fails."""
    h = MigrationHarness()
    h.config = CoordinatorConfig(classic_initial_rebalance_delay_ms=1_000)
    h.restart()
    _, join = h.joining(protocols=subscription())
    assert h.consumer_heartbeat("n", 0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert join.is_parked
    h.advance(1_000)
    assert h.consumer_heartbeat("n", 0) == NONE


@pytest.mark.parametrize("topics", [("foo",), ("foo", "absent")])
def test_s47_a_member_without_topics_moves_no_partition(topics: tuple[str, ...]) -> None:
    """It needs nothing of what the others have."""
    h = MigrationHarness()
    a, _ = h.joining(protocols=subscription(*topics))
    h.sync_group(a, 1, {a: assignment(*ALL)})
    assert h.join("n", []).member_epoch == 1
    assert h.record_names() == [
        *["classic†", "member", "epoch", "target", "target_epoch", "current"],
        *["member", "current"],
    ]
    assert (h.beat(a, 1), h.synced(a, 1)) == (NONE, ALL)
    h.verify_log()


def test_a_partition_that_the_leader_gave_twice_is_given_once() -> None:
    """A mistake of an assignor ends with the conversion; the log must not hold two owners."""
    h = MigrationHarness()
    a, b = h.classic_group(ALL, [2, 3])
    h.join("n", [])
    assert (h.assigned(a), h.assigned(b)) == ({"foo": ALL}, {})
    h.verify_log()


def test_partitions_that_do_not_exist_are_not_taken_over() -> None:
    """A leader that knows other topics than the coordinator gives no member what it could not commit."""
    h = MigrationHarness()
    (a,) = h.classic_group([-1, *ALL, 6])
    h.join("n", [])
    assert h.assigned(a) == {"foo": ALL}


def test_the_joining_member_counts_for_the_size() -> None:
    """As on Kafka: a group that is full cannot be upgraded by one more."""
    h = MigrationHarness(size_max=1)
    (a,) = h.classic_group(ALL)
    assert h.consumer_heartbeat("n", 0) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (listed(h), h.beat(a, 1)) == (("classic", "Stable"), NONE)


def test_classic_members_of_a_consumer_group_survive_a_restart() -> None:
    """After a restart the coordinator knows the protocol and the session of each member."""
    h = MigrationHarness()
    a, generation = h.mixed()
    h.restart()
    assert (h.beat(a, generation), len(h.synced(a, generation))) == (NONE, 3)
    h.advance(SESSION_MS)
    assert list(h.group.members) == ["n"]
    h.verify_log()


# --- mixed groups


def test_s49_a_classic_member_that_joins_waits_until_others_let_go() -> None:
    """The way back, one process at a time; or a rolling restart that is not finished."""
    h = MigrationHarness()
    h.join("n", ["foo"])
    a, join = h.joining(protocols=subscription())
    assert (join.answer.generation_id, h.synced(a, 2)) == (2, [])
    assert h.beat(a, 2) == NONE
    kept = h.received(h.heartbeat("n", 1))
    assert kept is not None
    h.heartbeat("n", 1, owned=kept)
    assert (h.beat(a, 2), h.synced(a, 2)) == (REBALANCE, [])
    assert h.rejoin(a) == 2
    assert h.synced(a, 2) == [n for n in ALL if n not in kept["foo"]]
    assert listed(h) == ("consumer", "Stable")
    h.verify_log()


def test_a_classic_member_is_told_to_join_when_all_that_it_waits_for_is_free() -> None:
    """A JoinGroup before that would bring it nothing yet."""
    h = MigrationHarness()
    h.join("n", ["foo"])
    h.join("m", ["foo"])
    h.heartbeat("n", 1)
    h.heartbeat("n", 1, owned=h.assigned("n"))
    h.heartbeat("m", 2)
    a, _ = h.joining(protocols=subscription())
    h.synced(a, 3)
    for member, code in (("n", NONE), ("m", REBALANCE)):
        h.heartbeat(member, 2)
        h.heartbeat(member, 2, owned=h.assigned(member))
        assert h.beat(a, 3) == code


def test_a_classic_member_does_not_wait_for_a_topic_that_is_gone() -> None:
    """No heartbeat has brought another target yet, and the other partition is free."""
    h = MigrationHarness()
    h.create_topic("bar", partitions=1)
    h.create_topic("baz", partitions=1)
    h.create_topic("qux", partitions=6)
    h.join("n", ["foo", "bar"])
    h.join("m", ["qux", "baz"])
    a, _ = h.joining(protocols=subscription("bar", "baz"))
    h.synced(a, 3)
    assert h.target(a) == {"bar": [0], "baz": [0]}
    h.heartbeat("m", 2)
    h.heartbeat("m", 2, owned={"qux": ALL})
    assert h.beat(a, 3) == NONE
    h.delete_topic("bar")
    assert h.beat(a, 3) == REBALANCE


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_assignment_has_the_version_that_its_member_writes_itself(version: int) -> None:
    """An old client reads no newer one; topics that are gone are left out of it."""
    h = MigrationHarness()
    a, generation = h.mixed()
    assert h.rejoin(a, owned=h.assigned(a)["foo"], version=version) == generation
    assert embedded_version(h.sync_group(a, generation).answer.assignment) == version
    h.delete_topic("foo")
    assert h.synced(a, generation) == []


@pytest.mark.parametrize(("version", "code"), [(3, NONE), (4, ErrorCode.MEMBER_ID_REQUIRED)])
def test_a_dynamic_member_of_a_consumer_group_is_sent_its_id_first_if_it_knows_that(
    version: int, code: ErrorCode
) -> None:
    """KIP-394, as in a classic group: a client that gives up while it waits leaves no member behind."""
    h = MigrationHarness()
    h.join("n", ["foo"])
    offered = {**subscription(), "sticky": b""}
    assert h.join_group(protocols=offered, version=version).code == code
    assert len(h.group.members) == (2 if code == NONE else 1)


@pytest.mark.parametrize("limit", [{"size_max": 2}, {"members_max": 2}])
def test_a_full_group_takes_its_own_classic_members_only(limit: dict[str, int]) -> None:
    """``group.consumer.max.size`` and ``kip848.members.max`` also limit members that join by JoinGroup."""
    h = MigrationHarness(**limit)  # type: ignore[arg-type]
    h.join("n", ["foo"])
    a, join = h.joining(protocols=subscription())
    assert h.join_group("new", protocols=subscription()).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.rejoin(a) == join.answer.generation_id


def test_a_static_member_comes_back_to_a_full_group_with_the_classic_protocol() -> None:
    """Otherwise a rolling restart of a group of the size that it may have would lose its members one by one."""
    h = MigrationHarness(size_max=2)
    h.join("n", ["foo"])
    assert h.join_group(protocols=subscription(), instance="i").code == NONE
    assert h.join_group(protocols=subscription(), instance="j").code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join_group(protocols=subscription(), instance="i").code == NONE


def test_s50_the_classic_members_of_a_group_have_a_protocol_in_common() -> None:
    """Otherwise they could not be a classic group again."""
    h = MigrationHarness()
    a, _ = h.mixed()
    other = {"sticky": subscription()["range"]}
    refused = h.join_group(protocols=other)
    assert (refused.code, refused.answer.member_id) == (INCONSISTENT, "")
    assert h.join_group(a, protocols=other).code == INCONSISTENT
    assert h.join_group(protocols=subscription(), protocol_type="connect").code == INCONSISTENT
    both = {**subscription(), **other}
    assert h.join_group(protocols=both).code == ErrorCode.MEMBER_ID_REQUIRED, "one is enough"
    malformed = h.join_group("new", protocols={"range": b"\xff"})
    assert malformed.code == INCONSISTENT
    assert h.results[-1].records == ()


def test_s51_the_old_requests_do_not_know_members_on_the_new_protocol() -> None:
    """An epoch is not a generation: a classic heartbeat or sync for a new member is refused."""
    h = MigrationHarness()
    a, generation = h.mixed()
    assert (h.beat("n", generation), h.sync_group("n", generation).code) == (UNKNOWN, UNKNOWN)
    assert (h.beat(a, generation + 1), h.sync_group(a, generation - 1).code) == (ILLEGAL, ILLEGAL)
    assert h.sync_group(a, generation, protocol="sticky").code == INCONSISTENT
    assert h.sync_group(a, generation, protocol_type="connect").code == INCONSISTENT


@pytest.mark.parametrize("only_classic_are_left", [False, True])
def test_s52_an_administrator_removes_members_of_both_kinds(only_classic_are_left: bool) -> None:
    """``LeaveGroup`` by an administrator removes a member whichever protocol it speaks."""
    h = MigrationHarness()
    a, generation = h.mixed()
    if only_classic_are_left:
        assert h.leave_group("n") == [NONE]
        assert listed(h) == ("classic", "PreparingRebalance")
    else:
        assert h.leave_group(a, "zz") == [NONE, UNKNOWN]
        assert listed(h) == ("consumer", "Assigning")
        assert h.group.group_epoch == generation + 1
    h.verify_log()


def test_s53_who_is_told_to_join_and_does_not_is_removed() -> None:
    """A client that only heartbeats must not hold up the partitions of a group."""
    h = MigrationHarness()
    (a,) = h.classic_group(ALL)
    h.join("n", ["foo"])
    for _ in range(REBALANCE_MS // 5_000):
        assert h.beat(a, 1) == REBALANCE
        h.heartbeat("n", 2)
        h.advance(5_000)
    assert list(h.group.members) == ["n"]
    h.verify_log()


def test_s53_who_joins_and_does_not_fetch_its_assignment_is_removed() -> None:
    """A classic member that never sends SyncGroup would keep partitions that it does not read."""
    h = MigrationHarness()
    (a,) = h.classic_group(ALL)
    h.join("n", ["foo"])
    h.rejoin(a)
    for _ in range(REBALANCE_MS // 5_000):
        assert h.beat(a, 2) == NONE
        h.heartbeat("n", 2)
        h.advance(5_000)
    assert list(h.group.members) == ["n"]


def test_a_classic_member_that_is_silent_for_its_own_session_is_removed() -> None:
    """It said itself how long it may be silent; the session of the new protocol is another."""
    h = MigrationHarness()
    a, generation = h.mixed()
    h.advance(SESSION_MS - 1)
    assert h.beat(a, generation) == NONE
    h.advance(SESSION_MS - 1)
    assert a in h.group.members
    h.advance(1)
    assert list(h.group.members) == ["n"]


def test_a_member_changes_its_protocol_under_its_own_id() -> None:
    """A heartbeat makes a classic member a new one, a JoinGroup the other way round; neither moves a partition."""
    h = MigrationHarness()
    a, generation = h.mixed()
    kept = h.assigned(a)
    h.rejoin(a, owned=kept["foo"])
    assert h.heartbeat(a, generation).member_epoch == generation
    assert h.coordinator.timer(TimerKey(TimerKind.MIXED_SYNC, "g", a)) is None, "it sends no SyncGroup any more"
    assert (h.beat(a, generation), h.member(a).metadata.classic) == (UNKNOWN, None)
    assert h.rejoin(a, owned=kept["foo"]) == generation
    assert (h.beat(a, generation), h.synced(a, generation)) == (NONE, kept["foo"])
    assert listed(h) == ("consumer", "Stable")
    h.verify_log()


def test_offsets_are_fetched_by_members_of_their_own_generation() -> None:
    """A classic client knows ILLEGAL_GENERATION, and no STALE_MEMBER_EPOCH."""
    h = MigrationHarness()
    a, generation = h.mixed()
    h.commit_code(a, generation)
    assert h.fetch({"foo": [0]}, member_id=a, epoch=generation) == {("foo", 0): 5}
    assert h.fetch({"foo": [0]}, member_id=a, epoch=generation - 1) == ILLEGAL
    assert h.fetch({"foo": [0]}, member_id="n", epoch=generation - 1) == ErrorCode.STALE_MEMBER_EPOCH


# --- downgrade


def test_s54_the_last_new_member_leaves_a_classic_group_behind() -> None:
    """The way back: the old processes form their next generation among themselves."""
    h = MigrationHarness()
    a, generation = h.mixed()
    h.events.clear()
    assert h.consumer_heartbeat("n", -1) == NONE
    assert listed(h) == ("classic", "PreparingRebalance")
    assert [(event.event, event.member_id, dict(event.fields)) for event in h.events] == [
        ("member_left", "n", {"reason": "leave"}),
        ("group_converted", None, {"type": "classic", "members": [a]}),
        ("group_state_changed", None, {"old": "Stable", "new": "PreparingRebalance"}),
    ]
    assert (h.beat(a, generation), h.commit_code(a, generation)) == (REBALANCE, NONE)
    join = h.join_group(a, protocols=subscription()).answer
    assert (join.generation_id, join.leader, [m.member_id for m in join.members]) == (generation + 1, a, [a])
    assert h.read_sync(h.sync_group(a, generation + 1, {a: assignment(*ALL)})) == ALL
    assert (h.state_is(ClassicState.STABLE), h.beat(a, generation + 1)) == (True, NONE)
    assert h.consumer_heartbeat("n", generation) == NOT_FOUND
    h.verify_log()


def test_after_a_restart_a_downgraded_group_still_lets_its_members_join_again() -> None:
    """Otherwise the partitions of the last member on the new protocol stay unread until another one joins."""
    h = MigrationHarness()
    a, generation = h.mixed()
    target = h.target(a)
    h.consumer_heartbeat("n", -1)
    h.restart()
    (recorded,) = decode_assignment(h.classic.members[a].assignment).assigned_partitions
    assert list(recorded.partitions) == target["foo"]
    assert (h.beat(a, generation), h.commit_code(a, generation)) == (REBALANCE, NONE)
    assert h.join_group(a, protocols=subscription()).answer.generation_id == generation + 1
    h.sync_group(a, generation + 1, {a: assignment(*ALL)})
    h.restart()
    assert (h.state_is(ClassicState.STABLE), h.synced(a, generation + 1)) == (True, ALL)


def test_after_a_restart_the_members_of_a_downgraded_group_have_the_rebalance_timeout_to_join() -> None:
    """One that is gone holds the others up no longer than in any other rebalance."""
    h = MigrationHarness()
    a, generation = h.mixed()
    h.consumer_heartbeat("n", -1)
    h.restart()
    for _ in range(h.classic.rebalance_timeout_ms // 5_000):
        assert h.beat(a, generation) == REBALANCE
        h.advance(5_000)
    assert (a in h.classic.members, h.state_is(ClassicState.EMPTY)) == (False, True)


def test_s55_without_the_downgrade_the_classic_members_are_served_as_before() -> None:
    """No heartbeat computes their target any more, so they are told to join."""
    h = MigrationHarness(policy="upgrade")
    a, generation = h.mixed()
    h.consumer_heartbeat("n", -1)
    assert listed(h) == ("consumer", "Assigning")
    assert h.beat(a, generation) == REBALANCE
    assert h.rejoin(a, owned=h.assigned(a)["foo"]) == generation + 1
    assert (h.synced(a, generation + 1), listed(h)) == (ALL, ("consumer", "Stable"))
    h.verify_log()


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_s56_a_live_classic_group_is_not_upgraded_against_the_policy(policy: MigrationPolicy) -> None:
    """An operator decides when the new protocol comes."""
    h = MigrationHarness(policy=policy)
    (a,) = h.classic_group(ALL)
    assert (h.consumer_heartbeat("n", 0), h.beat(a, 1)) == (NOT_FOUND, NONE)
    h.leave_group(a)
    assert h.consumer_heartbeat("n", 0) == NONE, "an empty group converts"


def test_s57_a_live_consumer_group_takes_no_classic_members_if_that_is_disabled() -> None:
    """The other direction; members that are left the old way out."""
    h = MigrationHarness(policy="disabled")
    h.join("n", ["foo"])
    assert h.join_group(protocols=subscription()).code == INCONSISTENT
    assert h.consumer_heartbeat("n", -1) == NONE
    assert h.join_group(protocols=subscription()).code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_that_is_too_large_is_downgraded_when_it_has_shrunk() -> None:
    """``group.max.size`` holds for the classic group that it becomes."""
    h = MigrationHarness(classic_size_max=1)
    h.join("n", ["foo"])
    a, _ = h.joining(protocols=subscription())
    b, _ = h.joining(protocols=subscription())
    h.consumer_heartbeat("n", -1)
    assert listed(h)[0] == "consumer"
    h.leave_group(b)
    assert (listed(h), list(h.classic.members)) == (("classic", "PreparingRebalance"), [a])
    h.verify_log()


def test_s58_s59_a_static_member_takes_its_process_back_and_forth_without_a_rebalance() -> None:
    """A rolling restart of static members moves no partition in either direction."""
    h = MigrationHarness(classic_size_max=1)
    h.join("n", ["foo"], instance="i")
    h.events.clear()
    join = h.join_group("", instance="i", protocols=subscription()).answer
    a = join.member_id
    assert (join.error_code, join.generation_id, a[:2]) == (NONE, 1, "i-")
    assert (join.leader, join.members) == ("", ())  # a leader would compute an assignment
    assert listed(h) == ("classic", "Stable")
    assert [(e.event, e.member_id) for e in h.events] == [("member_left", "n"), ("group_converted", None)]
    kinds = (TimerKey(TimerKind.SESSION, "g", "n"), TimerKey(TimerKind.CLASSIC_SESSION, "g", a))
    assert [h.coordinator.timer(key) is not None for key in kinds] == [False, True]
    assert (h.synced(a, 1, instance="i"), h.beat(a, 1)) == (ALL, NONE)
    assert h.consumer_heartbeat("n", 1) == NOT_FOUND
    back = h.join("m", ["foo"], instance="i")
    assert (back.member_epoch, h.received(back)) == (1, {"foo": ALL})
    assert listed(h) == ("consumer", "Stable")
    assert h.beat(a, 1) == UNKNOWN
    h.verify_log()


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("topics", [("foo",), ("foo", "bar")])
def test_a_static_member_takes_the_last_place_at_once_if_nothing_has_to_move(
    topics: tuple[str, ...], is_settled: bool
) -> None:
    """Otherwise all join again: the others are not where the target wants them, or it reads other topics."""
    h = MigrationHarness()
    h.create_topic("bar", partitions=1)
    (a,) = h.classic_group(ALL)
    h.join("s", ["foo"], instance="i")
    if is_settled:
        h.synced(a, h.rejoin(a))
        h.heartbeat("s", 2, instance="i")
    call = h.join_group("", instance="i", protocols=subscription(*topics))
    stays = is_settled and topics == ("foo",)
    assert listed(h) == ("classic", "Stable" if stays else "PreparingRebalance")
    assert call.is_parked is not stays


def test_all_join_again_if_a_topic_grew_before_a_static_member_took_the_last_place() -> None:
    """Otherwise nobody reads its new partitions: clients compare with topics that have grown already."""
    h = MigrationHarness()
    h.join("s", ["foo"], instance="i")
    h.add_partitions("foo", partitions=len(ALL) + 1)
    call = h.join_group("", instance="i", protocols=subscription())
    members = call.answer.members
    assert [(call.answer.leader, member.group_instance_id) for member in members] == [(call.answer.member_id, "i")]
    assert listed(h) == ("classic", "CompletingRebalance")


def test_a_static_member_that_takes_the_last_place_with_other_topics_waits_for_the_next_generation() -> None:
    """Its assignment is not computed yet; in generation 0, which Kafka answers, it could fetch nothing."""
    h = MigrationHarness()
    h.create_topic("bar", partitions=1)
    a, generation = h.mixed()
    h.consumer_heartbeat("n", -1)
    h.join_group(a, protocols=subscription())
    h.sync_group(a, generation + 1, {a: assignment(*ALL)})
    h.join("s", ["foo"], instance="i")
    call = h.join_group("", instance="i", protocols=subscription("foo", "bar"))
    assert (call.is_parked, listed(h)) == (True, ("classic", "PreparingRebalance"))
    assert h.join_group(a, protocols=subscription()).answer.generation_id == call.answer.generation_id
    h.verify_log()


def test_a_static_classic_member_is_replaced_by_one_on_the_new_protocol_and_back() -> None:
    """In a mixed group too, a static member's successor takes over its assignment on either protocol."""
    h = MigrationHarness()
    h.join("n", ["foo"])
    first = h.join_group("", instance="i", protocols=subscription()).answer.member_id
    joined = h.join("s", ["foo"], instance="i")
    assert (joined.member_epoch, set(h.group.members)) == (2, {"n", "s"})
    again = h.join_group("", instance="i", protocols=subscription()).answer.member_id
    assert set(h.group.members) == {"n", again}
    arrived = [event.member_id for event in h.events if event.event == "member_joined"]
    assert arrived == ["n", first, "s", again]
    assert h.join_group(first, instance="i", protocols=subscription()).code == ErrorCode.FENCED_INSTANCE_ID
    assert h.join_group("x", instance="j", protocols=subscription()).code == UNKNOWN
    h.verify_log()


def test_an_unknown_policy_is_refused_at_the_start() -> None:
    """Kafka takes a misspelt policy for ``disabled``, and the migration fails on the day of the migration."""
    assert CoordinatorConfig.from_properties({"group.consumer.migration.policy": "UPGRADE"}).may_upgrade
    with pytest.raises(ConfigError, match=r"group\.consumer\.migration\.policy .*'both'"):
        CoordinatorConfig.from_properties({"group.consumer.migration.policy": "both"})
