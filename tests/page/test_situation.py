"""One sentence for each group: what an operator reads first, and in which order."""

from __future__ import annotations

from collections.abc import Iterable

from kip848_client.common.model import NamedPartition
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.lag_history import EndHistory, LagTrend
from kip848_client.tools.groups.metrics import GroupMetrics
from kip848_client.tools.page.analysis import outage_now
from kip848_client.tools.page.situation import GroupStory, Level, PlaceLag, Situation, lags, situation_of
from tests.recorder.test_watch import NOW_MS, commits_until_one_is_silent, event

ORDERS = [NamedPartition("orders", index) for index in range(2)]
DAY_MS = 86_400_000


class Group:
    """``billing``, as events and ends of topics make it."""

    def __init__(self) -> None:
        self.metrics = GroupMetrics(groups_max=1)
        self.metrics.begin(now_ms=NOW_MS)
        self.story = GroupStory()
        self.ends = EndHistory()

    def take(self, *events: JournalEvent) -> Group:
        for each in events:
            self.metrics.take(each, "consumer")
            if each.event != "offsets_committed":
                self.story.take(each, self.metrics.groups["billing"])
        return self

    def ends_at(self, *ends: int, second: float) -> Group:
        self.ends.add(dict(zip(ORDERS, ends, strict=False)), now_ms=NOW_MS + int(second * 1000))
        return self

    def at(self, second: float) -> Situation:
        track = self.metrics.groups["billing"]
        return situation_of(track, self.story, self.ends, now_ms=NOW_MS + int(second * 1000))


def settled() -> list[JournalEvent]:
    """``one`` and ``two`` have a partition each, and commit every second for ten seconds."""
    both = commits_until_one_is_silent()
    return [
        *(each for each in both if each.ts_ms <= NOW_MS + 10_000),
        event("group_state_changed", at_ms=0, old="Empty", new="Stable"),
    ]


def committed(seconds: Iterable[int], who: str, index: int) -> list[JournalEvent]:
    return [
        event("offsets_committed", who, at_ms=1_000 * second, offsets={f"orders-{index}": second}) for second in seconds
    ]


def test_a_group_that_reads_is_quiet() -> None:
    """Nothing is said of what is well."""
    row = Group().take(*settled()).ends_at(10, 10, second=10).at(10)
    assert (row.level, row.text, row.lag, row.members, row.partitions) == (Level.QUIET, "", 0, 2, 2)


def test_a_group_without_members_stands_still_if_records_wait() -> None:
    """The largest outage there is; the same group is quiet while nothing waits for it."""
    group = Group().take(
        *settled(),
        event("member_left", "one", at_ms=11_000, reason="removed"),
        event("member_left", "two", at_ms=12_000, reason="removed"),
        event("group_state_changed", at_ms=12_000, old="Stable", new="Empty"),
    )
    assert group.ends_at(10, 10, second=13).at(13).level == Level.QUIET
    row = group.ends_at(60, 110, second=60).at(60)
    assert (row.level, row.since_ms, row.lag) == (Level.STANDING, NOW_MS + 12_000, 150)
    assert row.text.startswith("no member, 150 records wait in 2 partitions; the last one: two is gone")
    outage = outage_now(row, None, now_ms=NOW_MS + 60_000)
    assert outage is not None
    assert (outage.kind, outage.ms, outage.records) == ("outage", 48_000, 150)
    assert outage.text.startswith("the group has had no member for 48.00 s, and is not back: 150 records wait")
    row = group.ends_at(60, 110, second=12 + DAY_MS / 1000).at(12 + DAY_MS / 1000)
    assert row.level == Level.ABANDONED, "one that nobody has missed for a day was stopped"


def test_a_tool_that_commits_is_no_group_that_is_out() -> None:
    """Mirrors and jobs commit for groups that never have members."""
    group = Group().take(event("offsets_committed", offsets={"orders-0": 5})).ends_at(50, second=60)
    group.story.gone = None
    assert (group.at(60).level, group.at(60).lag) == (Level.QUIET, 45)


def test_partitions_that_nobody_owns_stand_still() -> None:
    """A member that holds its partitions back, or an assignor that leaves one out."""
    group = Group().take(
        *settled(),
        event("target_assignment_computed", at_ms=11_000, assignor=None, members={"one": {"orders": [0, 1]}}),
        event("member_left", "two", at_ms=11_000, reason="removed"),
    )
    group.ends_at(10, 40, second=15)
    assert group.at(12).level < Level.STANDING, "it is so for a moment in every rebalance"
    row = group.at(15)
    assert (row.level, row.since_ms) == (Level.STANDING, NOW_MS + 11_000)
    assert row.text == "1 partition without an owner (orders 1), 30 records wait in 1 partition"


def test_members_that_commit_nothing_stand_still() -> None:
    """They heartbeat, so their state is Stable; all of their partitions wait."""
    group = Group().take(*settled()).ends_at(10, 10, second=10).ends_at(30, 30, second=30)
    row = group.at(30)
    assert (row.level, row.since_ms) == (Level.STANDING, NOW_MS + 10_000)
    assert row.text == "members commit nothing new: orders 0-1, 40 records wait in 2 partitions (one, two)"
    assert group.at(15).level == Level.QUIET, "a handler may take some seconds"


def test_a_silent_member_is_named() -> None:
    """It died or hangs, and its session has not ended."""
    group = Group().take(*commits_until_one_is_silent(), *settled()[-1:]).ends_at(10, 16, second=10)
    row = group.ends_at(16, 16, second=16).at(16)
    assert (row.level, row.text) == (Level.SILENT, "silent while others commit: one")
    assert row.since_ms == NOW_MS + 10_000


def test_a_group_that_a_transaction_holds_back_is_told_so() -> None:
    """Its members look well, and its lag grows."""
    group = Group().take(*settled()).ends_at(10, 40, second=40)
    group.metrics.groups["billing"].held = frozenset(ORDERS[1:])
    row = group.at(40)
    assert row.level == Level.HELD
    assert "held back by an open transaction" in row.text
    assert "orders-1 at 10" in row.text


def test_a_rebalance_is_bad_when_it_lasts() -> None:
    """The longest wait comes to the top."""
    group = Group().take(
        *settled(),
        event("group_epoch_bumped", at_ms=11_000, epoch=3, reason="member_joined"),
        event("group_state_changed", at_ms=11_000, old="Stable", new="Reconciling"),
    )
    group.ends_at(10, 10, second=11)
    assert (group.at(12).level, group.at(12).rebalances) == (Level.CHANGING, 1)
    row = group.at(40)
    assert (row.level, row.since_ms, row.text) == (Level.REBALANCING, NOW_MS + 11_000, "rebalancing: member joined")
    group.take(event("group_state_changed", at_ms=41_000, old="Reconciling", new="Stable"))
    assert (group.at(41).level, group.at(41).rebalances) == (Level.QUIET, 1)
    assert group.at(4_000).rebalances == 0, "of the last hour"


def test_a_lag_that_grows_is_told_with_its_speed() -> None:
    """It is not standing still, and will be a problem."""
    group = Group().take(*settled())
    for second in range(10, 70, 3):
        group.take(*committed([second], "one", 0), *committed([second], "two", 1))
        group.ends_at(second * 4, second * 4, second=second)
        group.story.trend.add(sum(each.lag or 0 for each in lags_of(group, second)), now_ms=NOW_MS + second * 1_000)
    row = group.at(68)
    assert row.level == Level.GROWING
    assert row.text.startswith("lag grows by ")
    assert row.per_s is not None
    assert row.per_s > 5
    assert row.since_ms is None, "it grew already when the page began"


def test_a_lag_that_grows_is_told_with_the_time_since_when() -> None:
    """When it began is what somebody looks for in the log of deploys."""
    trend = LagTrend()
    lags = [*((second, second % 2) for second in range(0, 300, 3)), *((300 + 3 * k, 40 * k) for k in range(1, 60))]
    for second, lag in lags:
        trend.add(lag, now_ms=1_000 * second)
    assert trend.since_ms is not None
    assert 290_000 <= trend.since_ms <= 303_000
    for second in range(480, 600, 3):
        trend.add(2_360, now_ms=1_000 * second)
    assert 290_000 <= trend.since_ms <= 303_000, "it stays high"
    trend.add(1, now_ms=600_000)
    assert trend.since_ms is None


def lags_of(group: Group, second: int) -> list[PlaceLag]:
    return lags(group.metrics.groups["billing"], group.ends, now_ms=NOW_MS + second * 1_000)


def test_owners_are_known_with_the_time_since_when() -> None:
    """A partition that did not move keeps its time when its owner gets another one."""
    group = Group().take(
        *settled(),
        event("member_left", "two", at_ms=11_000, reason="removed"),
        event(
            "member_assignment_changed", "one", at_ms=12_000, state="STABLE", assigned={"orders": [0, 1]},
            pending_revocation={},
        ),
    )  # fmt: skip
    assert {str(one): tuple(place) for one, place in group.story.owners.items()} == {
        "orders-0": ("one", NOW_MS),
        "orders-1": ("one", NOW_MS + 12_000),
    }


def test_names_cannot_hide_or_command_anything() -> None:
    """A client id may hold any character, such as one that writes from right to left."""
    group = Group().take(
        event("member_joined", "e\u202evil", topics=["orders"], instance_id=None),
        event("member_left", "e\u202evil", at_ms=1, reason="removed"),
    )
    assert group.at(1).last == "e\\u202evil is gone"
