"""The questions of somebody who is on call: what stood still, for how long, why, and whose fault it was."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from kip848_client.cli import main
from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.figures import handovers_of
from kip848_client.tools.report.findings import Finding, all_at_once, at_rest, findings_of, findings_of_all
from kip848_client.tools.report.timeline.pauses import Pauses
from tests.report.logs import bumped, counted, group_became, said


def _found(*events: JournalEvent) -> list[Finding]:
    (timeline,) = build_timelines(events)
    return findings_of(timeline)


HOUR_MS = 3_600_000


def _told(finding: Finding) -> tuple[str, str, float | None, str, int]:
    return finding.kind, finding.why, finding.ms, finding.rests, finding.partitions


def joined(ts_ms: int, member: str, host: str = "/10.0.0.1", instance_id: str | None = None) -> JournalEvent:
    return said(
        ts_ms, "member_joined", member, source="coordinator", topics=["t"], client_host=host, instance_id=instance_id
    )


def committed(ts_ms: int, member: str, *indexes: int) -> JournalEvent:
    offsets: dict[str, JsonValue] = {f"t-{index}": ts_ms for index in indexes}
    return said(ts_ms, "offsets_committed", member, source="coordinator", offsets=offsets)


def left(ts_ms: int, member: str, reason: str = "removed") -> JournalEvent:
    return said(ts_ms, "member_left", member, source="coordinator", reason=reason)


def _a_death(*, last_commit_ms: int) -> list[JournalEvent]:
    """``a`` commits every second until *last_commit_ms* and is removed at 20,000; ``b`` takes over."""
    return [
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), counted(0, "b", 2)),
        group_became(0, "Stable"),
        *(committed(at, "a", 0, 1) for at in range(1_000, last_commit_ms + 1, 1_000)),
        *(left(20_000, "a"), bumped(20_000, 2, "member_left"), group_became(20_000, "Reconciling")),
        *(counted(21_500, "b", 0, 1, 2), group_became(21_500, "Stable"), committed(22_000, "b", 0, 1, 2)),
    ]


def test_a_member_that_was_silent_before_it_was_removed_has_died() -> None:
    """A record of a removal does not say whether the member left or was killed; its commits do."""
    (finding,) = _found(*_a_death(last_commit_ms=8_000))
    assert _told(finding) == ("stand-still", "died", 15_000, "at most", 2)
    assert list(finding.who) == ["a-client (10.0.0.1)"]
    assert finding.text == (
        "2 of 3 partitions (t-0, t-1) had no reader for between 1.50 s and 15.00 s, while at least 27,000 records "
        "waited: a-client (10.0.0.1) died or lost its "
        "connection (no commit for 12.00 s before)"
    )


def test_a_member_that_needs_two_seconds_to_leave_has_not_surely_died() -> None:
    """On a busy machine it stops committing, closes, and is removed two seconds later."""
    often = [committed(at, "a", 0, 1) for at in range(300, 18_001, 300)]
    events = _a_death(last_commit_ms=0)
    (finding,) = _found(*events[:5], *often, *events[5:])
    assert (finding.why, finding.text.rpartition(": ")[2]) == (
        "",
        "a-client (10.0.0.1) left or died (no commit for 2.00 s before)",
    )


def test_a_session_that_ended_is_told_without_a_commit() -> None:
    """On a topic without traffic no gap is proved, and a crash must not be nothing."""
    (finding,) = _found(
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), counted(0, "b", 2)),
        *(left(3_000, "a", "session_timeout"), bumped(3_000, 2, "member_left"), group_became(3_000, "Reconciling")),
        *(counted(3_060, "b", 0, 1, 2), group_became(3_060, "Stable")),
    )
    assert _told(finding) == ("died", "died", None, "exact", 2)
    assert finding.text.startswith("a-client (10.0.0.1) died or lost its connection: its session ended")


def test_a_member_that_committed_until_its_end_has_left() -> None:
    """A scale-down is no failure of a machine."""
    (finding,) = _found(*_a_death(last_commit_ms=20_000))
    assert _told(finding) == ("stand-still", "left", 3_000, "at most", 2)


@pytest.mark.parametrize(("session_ms", "why"), [(6_000, "left"), (2_000, "died")])
def test_a_member_that_was_silent_for_less_than_its_session_has_not_died(session_ms: int, why: str) -> None:
    """On a busy machine a member committed nothing for a second before it left, and was called dead.

    One that died may have committed after its last heartbeat, so that it was silent for less than the whole session.
    """
    events = _a_death(last_commit_ms=18_700)
    events[0] = msgspec.structs.replace(events[0], fields={**events[0].fields, "session_timeout_ms": session_ms})
    events = [each for each in events if each.event != "offsets_committed" or each.ts_ms > 20_000]
    events[4:4] = [committed(at, "a", 0, 1) for at in range(10_000, 18_701, 100)]
    (finding,) = _found(*events)
    assert finding.why == why


def test_a_member_that_commits_rarely_left_or_died() -> None:
    """Its silence says nothing; a cause that is made up sends people to the wrong machine."""
    events = [
        *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), counted(0, "b", 1), group_became(0, "Stable")),
        *(committed(at, "a", 0) for at in (5_000, 10_000, 15_000)),
        *(left(25_000, "a"), group_became(25_000, "Reconciling"), counted(26_000, "b", 0, 1)),
        *(committed(27_000, "b", 0), group_became(27_000, "Stable")),
    ]
    (finding,) = _found(*events)
    assert (finding.why, finding.text.partition(": ")[2]) == (
        "",
        "a-client (10.0.0.1) left or died (no commit for 10.00 s before)",
    )


def test_the_same_member_that_is_back_was_too_slow_between_two_polls() -> None:
    """A process that was started again has another member id."""
    (finding,) = _found(*_a_death(last_commit_ms=20_000), joined(25_000, "a"))
    assert (finding.why, finding.text.partition(": ")[2]) == (
        "late poll",
        "a-client (10.0.0.1) was too slow between two polls, and came back after 5.00 s",
    )


def test_the_same_member_whose_commits_are_too_far_apart_hung_or_was_late() -> None:
    """A process that was stopped for 17 s, with a session of 10 s, "was too slow between two polls"."""
    events = _a_death(last_commit_ms=8_000)
    events = [each for each in events if each.event != "offsets_committed" or each.ts_ms > 20_000]
    events[4:4] = [committed(at, "a", 0, 1) for at in (300, 5_300, 10_300)]
    (finding,) = _found(*events, joined(27_000, "a"))
    assert (finding.why, finding.text.partition(": ")[2]) == (
        "hung or late",
        "a-client (10.0.0.1) hung, lost its connection or was too slow between two polls (no commit for 9.70 s before)"
        ", and came back after 7.00 s",
    )


def test_a_member_that_had_not_read_for_long_before_it_was_started_again_was_stuck() -> None:
    """After 90 s without a reader, the sentence named the restart of 3.7 s."""
    again = msgspec.structs.replace(joined(113_700, "a2"), client_id="a-client")
    (finding,) = _found(
        *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), counted(0, "b", 1), group_became(0, "Stable")),
        *(committed(at, "a", 0) for at in range(1_000, 20_001, 1_000)),
        *(
            said(at, "offsets_committed", "a", source="coordinator", offsets={"t-0": 20_000})
            for at in (60_000, 109_900)
        ),
        *(left(110_000, "a"), group_became(110_000, "Reconciling"), counted(110_000, "b", 1)),
        *(again, counted(113_700, "a2", 0), group_became(113_700, "Stable"), committed(114_000, "a2", 0)),
    )
    assert finding.why == "stuck"
    assert finding.text == (
        "1 of 2 partitions (t-0) had no reader for between 3.70 s and 95.00 s, while at least 93,700 records "
        "waited: their owner had them for 90.00 s without "
        "committing anything new; then a-client (10.0.0.1) was started again, after 3.70 s"
    )


def test_a_client_that_flaps_before_a_deploy_is_flapping() -> None:
    """It had gone eight times, and the deploy a minute later was all that was said."""
    events = [*(joined(0, name, f"/10.0.0.{number}") for number, name in enumerate("abc")), group_became(0, "Stable")]

    def restarts(name: str, number: int, at_ms: int, *, old: str, new: str) -> list[JournalEvent]:
        back = msgspec.structs.replace(joined(at_ms + 2_000, new, f"/10.0.0.{number}"), client_id=f"{name}-client")
        return [msgspec.structs.replace(left(at_ms, old, "leave"), client_id=f"{name}-client"), back]

    ids = ["a", *(f"a{count}" for count in range(9))]
    for count in range(8):
        events += restarts("a", 0, 10_000 + 20_000 * count, old=ids[count], new=ids[count + 1])
    for number, name in enumerate("bca"):
        old = ids[8] if name == "a" else name
        events += restarts(name, "abc".index(name), 240_000 + 20_000 * number, old=old, new=f"{name}-new")
    found = {each.kind: each for each in _found(*events)}
    assert list(found["flapping"].who) == ["a-client (10.0.0.0)"]
    assert found["flapping"].text.startswith("a-client (10.0.0.0) went 9 times in")
    assert list(found["deploy"].who) == ["b-client (10.0.0.1)", "c-client (10.0.0.2)"]


@pytest.mark.parametrize(("poll_ms", "why"), [(30_000, "hung"), (12_000, "late poll")])
def test_the_same_member_that_was_silent_and_is_back_hung_or_polled_late(poll_ms: int, why: str) -> None:
    """One asks for a look at the machine, the other for max.poll.interval.ms and the handler: it did not die."""
    events = _a_death(last_commit_ms=8_000)
    fields = {**events[0].fields, "rebalance_timeout_ms": poll_ms}
    events[0] = msgspec.structs.replace(events[0], fields=fields)
    (finding,) = _found(*events, joined(25_000, "a"))
    assert (finding.why, finding.ms) == (why, 15_000)
    assert "no commit for 12.00 s" in finding.text
    assert finding.text.endswith("came back after 5.00 s")


def test_members_that_died_and_were_started_again_are_no_deploy() -> None:
    """Crashes of most members of a group looked like somebody's intention."""
    events = _a_death(last_commit_ms=8_000)
    again = [msgspec.structs.replace(joined(23_000, "a2"), client_id="a-client"), counted(23_100, "a2", 0)]
    again += [committed(at, "a2", 0) for at in range(23_500, 50_000, 1_000)]
    again += [counted(23_000, "b", 1, 2), *(committed(at, "b", 1, 2) for at in range(23_000, 40_000, 1_000))]
    again += [left(50_000, "b"), counted(50_000, "a2", 0, 1, 2), committed(51_000, "a2", 0, 1, 2)]
    again += [msgspec.structs.replace(joined(52_000, "b2", "/10.0.0.2"), client_id="b-client")]
    assert [each.why for each in _found(*events, *again)] == ["died", "died"]


def test_a_reader_that_begins_late_is_found_though_it_is_counted_as_the_owner() -> None:
    """A consumer that restores state for a minute in its callback was no stand-still. Its commits of positions that it
    has not read from look as if it read.
    """
    events = [
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), group_became(0, "Stable")),
        *(committed(at, "a", 0, 1) for at in range(1_000, 10_001, 1_000)),
        *(bumped(10_000, 2), counted(10_100, "a", 0), counted(10_200, "b", 1), group_became(10_200, "Stable")),
        *(committed(at, "a", 0) for at in range(11_000, 30_001, 1_000)),
        said(12_000, "offsets_committed", "b", source="coordinator", offsets={"t-1": 10_000}),
        *(committed(at, "b", 1) for at in range(18_000, 30_001, 1_000)),
    ]
    (finding,) = _found(*events)
    assert _told(finding) == ("stand-still", "member joined", 9_000, "at most", 1)
    assert finding.text.endswith("; b-client had them for 7.80 s before it committed anything new")


def test_a_partition_that_no_owner_read_for_long_is_one_stand_still() -> None:
    """In a deploy partitions pass through members that go before they have read anything."""
    (finding,) = _found(
        *(joined(0, "a"), counted(0, "a", 0), group_became(0, "Stable")),
        *(committed(at, "a", 0) for at in range(1_000, 10_001, 1_000)),
        *(bumped(10_000, 2), counted(10_000, "a"), counted(10_100, "b", 0), counted(11_000, "b")),
        *(counted(11_100, "c", 0), group_became(11_100, "Stable")),
        *(committed(at, "c", 0) for at in range(14_000, 30_001, 1_000)),
    )
    assert _told(finding) == ("stand-still", "member joined", 5_000, "at most", 1)


def test_a_commit_at_the_end_of_a_slow_callback_does_not_say_that_the_member_read_until_then() -> None:
    """The bound was too low by the four seconds that the callback took before it committed."""
    (finding,) = _found(
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0), counted(0, "b", 1)),
        *(group_became(0, "Stable"), *(committed(at, "a", 0) for at in range(1_000, 10_001, 1_000))),
        said(14_000, "offsets_committed", "a", source="coordinator", offsets={"t-0": 10_300}),
        *(left(14_100, "a"), bumped(14_100, 2, "member_left"), counted(14_200, "b", 0, 1)),
        *(group_became(14_200, "Stable"), committed(14_900, "b", 0)),
    )
    assert _told(finding) == ("stand-still", "left", 4_900, "at most", 1)


def test_a_topic_without_new_records_does_not_stand_still() -> None:
    """A deploy in the night was told as hours without a reader: the first record of the morning was its end."""
    assert (
        _found(
            *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), group_became(0, "Stable")),
            *(committed(at, "a", 0) for at in range(1_000, 10_001, 1_000)),
            *(left(20_000, "a"), bumped(20_000, 2, "member_left"), counted(20_100, "b", 0)),
            group_became(20_100, "Stable"),
            *(
                said(at + HOUR_MS, "offsets_committed", "b", source="coordinator", offsets={"t-0": 10_000 + at})
                for at in range(21_000, 31_000, 1_000)
            ),
        )
        == []
    )


def test_a_classic_group_that_waits_for_a_new_member_stands_still_because_of_it() -> None:
    """Its records have generations, and no reasons: the cause was left out."""
    (finding,) = _found(
        said(0, "classic_generation_began", source="coordinator", group_epoch=1, protocol="range"),
        *(joined(0, "a"), counted(0, "a", 0, 1), group_became(0, "Stable")),
        *(committed(at, "a", 0, 1) for at in range(1_000, 10_001, 1_000)),
        said(13_000, "classic_generation_began", source="coordinator", group_epoch=2, protocol="range"),
        *(joined(13_100, "b", "/10.0.0.2"), counted(13_100, "a", 0), counted(13_100, "b", 1)),
        *(group_became(13_100, "Stable"), committed(13_500, "a", 0), committed(13_500, "b", 1)),
        *(committed(at, "b", 1) for at in range(14_000, 20_001, 1_000)),
    )
    assert _told(finding) == ("stand-still", "member joined", 4_500, "at most", 2)
    assert list(finding.who) == ["b-client (10.0.0.2)"]


def test_partitions_that_a_classic_member_keeps_stand_still_while_it_waits_for_the_others() -> None:
    """With `range` all members stop until the slowest has joined; only what moved was told."""
    generations = [
        said(at, "classic_generation_began", source="coordinator", group_epoch=epoch, protocol="range")
        for epoch, at in ((1, 0), (2, 10_500), (3, 25_000))
    ]
    events = [
        *(generations[0], joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0), counted(0, "b", 1)),
        *(group_became(0, "Stable"), generations[1], group_became(10_500, "Stable")),
        *(committed(at, "a", 0) for at in range(1_000, 18_001, 1_000)),
        *(generations[2], joined(25_100, "c", "/10.0.0.3"), counted(25_100, "b"), counted(25_100, "c", 1)),
        *(group_became(25_100, "Stable"), *(committed(at, "a", 0) for at in range(26_000, 30_000, 1_000))),
    ]
    (timeline,) = build_timelines(events)
    (finding,) = findings_of(timeline)
    assert _told(finding) == ("stand-still", "member joined", 9_000, "at most", 1)
    assert [(each.before, each.after, each.gap_ms) for each in handovers_of(timeline) if each.partition == "t-0"] == [
        ("a-client", "a-client", 9_000)
    ]


def test_members_that_are_started_again_one_after_the_other_are_a_deploy() -> None:
    """Its stand-stills are one question, and not one for each member."""
    events = [group_became(0, "Stable")]
    for number, name in enumerate("ab"):
        begin = 10_000 + 20_000 * number
        events += [joined(0, name, f"/10.0.0.{number}"), counted(0, name, number)]
        events += [left(begin, name, "leave"), group_became(begin, "Reconciling")]
        again = said(begin + 3_000, "member_joined", f"{name}2", source="coordinator", client_host=f"/10.0.0.{number}")
        events += [
            msgspec.structs.replace(again, client_id=f"{name}-client"),
            counted(begin + 3_000, f"{name}2", number),
        ]
        events += [group_became(begin + 3_000, "Stable")]
    found = _found(*events)
    *stood, deploy = found
    assert [_told(each) for each in stood] == [("stand-still", "deploy", 3_000, "exact", 1)] * 2
    assert deploy.text == (
        "a deploy: 2 members were started again within 23.00 s; partitions stood still 2 times, for up to 3.00 s"
    )


def test_a_client_that_comes_and_goes_is_flapping() -> None:
    """Each of its visits makes all others give partitions up."""
    events = [joined(0, "b", "/10.0.0.2"), counted(0, "b", 0), group_became(0, "Stable")]
    for number in range(4):
        at = 10_000 * number
        events += [joined(at, "a"), left(at + 5_000, "a", "leave")]
    (finding,) = _found(*events)
    assert finding.text == (
        "a-client (10.0.0.1) went 4 times in 30.00 s, and joined again 3 times: 3 too slow between two polls, 1 left"
    )


def test_a_client_that_comes_back_every_two_hours_is_flapping_and_one_that_is_deployed_each_week_is_not() -> None:
    """A member that is too slow for one kind of record loses its partitions a dozen times a day, and never in a row."""

    def restarts(*starts_ms: int) -> list[JournalEvent]:
        return [
            each
            for number, start_ms in enumerate(starts_ms)
            for name in "ab"
            for each in (
                msgspec.structs.replace(joined(start_ms, f"{name}{number}"), client_id=name),
                msgspec.structs.replace(left(start_ms + 3_600_000, f"{name}{number}", "leave"), client_id=name),
            )
        ]

    b = [joined(0, "b", "/10.0.0.2"), group_became(0, "Stable")]
    a = [each for hour in range(0, 20, 2) for each in (joined(hour * HOUR_MS, "a"), left((hour + 1) * HOUR_MS, "a"))]
    (finding,) = _found(*b, *a)
    assert (finding.kind, finding.text[:36]) == ("flapping", "a-client (10.0.0.1) went 10 times in")
    assert _found(group_became(0, "Stable"), *restarts(*(week * 168 * HOUR_MS for week in range(8)))) == []


def test_a_client_that_flaps_beside_others_of_the_same_name_is_flapping() -> None:
    """Clients without a client.id of their own have one name on a host: the steady ones must not hide the one."""

    def same(each: JournalEvent) -> JournalEvent:
        return msgspec.structs.replace(each, client_id="rdkafka")

    events = [same(joined(0, "a")), same(joined(0, "b")), counted(0, "a", 0), counted(0, "b", 1)]
    for index in range(4):
        at_ms = 10_000 * (index + 1)
        events += [same(joined(at_ms, f"c{index}")), same(left(at_ms + 5_000, f"c{index}", "leave"))]
    (finding,) = _found(*events)
    assert (finding.kind, finding.ms) == ("flapping", 30_000)
    assert finding.text == (
        "rdkafka (10.0.0.1) went 4 times in 30.00 s, and joined again 3 times "
        "(beside 2 members with the same client id and host, which stayed): 3 started again, 1 left"
    )


def test_what_a_member_does_not_give_up_and_what_no_member_has_is_found() -> None:
    """A group that waits for one member looks busy, and nothing else is wrong with it."""
    target: JsonValue = {"a": {"t": [0]}, "b": {"t": [1, 2]}}
    events = [
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), group_became(0, "Stable")),
        *(bumped(1_000, 2), group_became(1_000, "Reconciling")),
        said(1_000, "target_assignment_computed", source="coordinator", assignor="range", members=target),
        said(
            *(1_000, "member_assignment_changed", "a"),
            source="coordinator",
            state="UNREVOKED_PARTITIONS",
            assigned={"t": [0]},
            pending_revocation={"t": [1]},
        ),
        committed(31_000, "a", 0),
    ]
    nothing, stuck = _found(*events)
    assert _told(nothing) == ("no reader", "", 31_000, "at least", 1)
    assert nothing.text.endswith("for at least 31.00 s: t-2")
    assert stuck.text == (
        "a-client (10.0.0.1) had not given up partitions at the end of the log, 30.00 s after it was told to"
    )


def test_static_members_that_expire_and_changes_of_the_assignor_are_found() -> None:
    """Both explain why partitions moved although no member was added."""
    members: JsonValue = {"a": {"t": [0]}}
    events = [
        *(joined(0, "a", instance_id="i-1"), counted(0, "a", 0), group_became(0, "Stable")),
        said(1, "target_assignment_computed", source="coordinator", assignor="range", members=members),
        *(left(10_000, "a", "static_leave"), left(55_000, "a"), group_became(55_000, "Empty")),
        said(60_000, "target_assignment_computed", source="coordinator", assignor="uniform", members=members),
    ]
    assert [each.text for each in _found(*events)] == [
        "static member i-1 of a-client (10.0.0.1) was removed after 45.00 s without it",
        "assignor range became uniform",
    ]


def test_a_coordinator_that_moves_explains_a_stand_still() -> None:
    """No member has a fault, and none should be looked for."""
    (finding,) = _found(
        *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), counted(0, "b", 1), group_became(0, "Stable")),
        *(counted(10_000, "a"), said(11_000, "coordinator_moved", source="coordinator", leader_epoch=2)),
        *(counted(14_000, "b", 0, 1), group_became(14_000, "Stable")),
    )
    assert (finding.kind, finding.ms, finding.why) == ("stand-still", 4_000, "coordinator moved")


def test_a_group_that_rebalances_all_the_time_is_found_and_a_short_log_is_not_extrapolated() -> None:
    """Two restarts within a minute of log are not 120 an hour."""

    def rebalanced(times: int) -> list[JournalEvent]:
        return [
            event
            for number in range(times)
            for event in (bumped(60_000 * number, number + 1), group_became(60_000 * number + 5, "Stable"))
        ]

    assert _found(*rebalanced(9)) == []
    (finding,) = _found(*rebalanced(70))
    assert (finding.kind, finding.text) == ("many rebalances", "70 rebalances within 69.0 min: member joined 70 times")


def test_what_is_not_wrong_is_said_too() -> None:
    """A reader has to know that a group without findings was looked at, and that nothing was wrong."""
    well = [msgspec.structs.replace(each, group_id="well") for each in (joined(0, "a"), counted(0, "a", 0))]
    timelines = build_timelines([*_a_death(last_commit_ms=8_000), *well])
    findings = [each for timeline in timelines for each in findings_of(timeline)]
    assert at_rest(timelines, findings) == [
        "nothing went wrong in 1 of 2 groups: well",
        "at the end of the log every partition of a group with members had a counted owner",
    ]


def test_a_group_that_all_members_have_left_is_found() -> None:
    """A service that was scaled to 0 reads nothing, and a report that says "nothing in this group" hides it."""
    events = [
        *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), counted(0, "b", 1), group_became(0, "Stable")),
        *(left(20_000, "a", "leave"), left(21_000, "b", "leave"), group_became(21_000, "Empty")),
    ]
    ended = said(81_000, "faults_ended", source="simulation")
    (timeline,) = build_timelines([*events, msgspec.structs.replace(ended, group_id=None)])
    (finding,) = findings_of(timeline)
    assert (finding.kind, finding.start_ms, finding.ms, finding.why) == ("no members", 21_000, 60_000, "left")
    assert finding.text == (
        "the group had no members at the end of the log, for 60.00 s; before: 2 members went (2 left: a-client "
        "(10.0.0.1), b-client (10.0.0.1))"
    )
    assert at_rest([timeline], [finding])[-1] == "1 group had no members then: orders"
    assert _found(*events) == [], "it may be in a restart"


def _an_outage(*, back_ms: int = 405_000, offset: int = 41_000) -> list[JournalEvent]:
    """``a`` and ``b`` leave at 20,000 and 21,000, and ``a`` is back at *back_ms*; *offset* is committed then."""
    again = msgspec.structs.replace(joined(back_ms, "a2"), client_id="a-client")
    return [
        *(joined(0, "a"), joined(0, "b"), counted(0, "a", 0), counted(0, "b", 1), group_became(0, "Stable")),
        *(committed(at, "a", 0) for at in range(1_000, 20_001, 1_000)),
        *(committed(at, "b", 1) for at in range(1_000, 20_001, 1_000)),
        *(left(20_000, "a", "leave"), group_became(20_000, "Reconciling"), counted(20_000, "b", 0, 1)),
        *(left(21_000, "b", "leave"), group_became(21_000, "Empty")),
        *(again, group_became(back_ms, "Reconciling"), counted(back_ms, "a2", 0, 1)),
        group_became(back_ms, "Stable"),
        *(
            said(back_ms + at, "offsets_committed", "a2", source="coordinator", offsets={"t-0": offset, "t-1": offset})
            for at in (1_000, 2_000)
        ),
    ]


def test_an_outage_of_the_whole_group_is_the_first_finding() -> None:
    """Nine groups that were off for six minutes had "no reader for at most 12.69 s", as nothing was to be read."""
    finding = _found(*_an_outage())[0]
    assert _told(finding) == ("outage", "restart", 384_000, "exact", 2)
    assert finding.text == (
        "the group had no member for 6 min 24 s, and at least 40,000 records waited in 2 of 2 partitions; back at "
        "405.000 s; before: 2 members went (1 started again: a-client (10.0.0.1); 1 left: b-client (10.0.0.1))"
    )
    (timeline,) = build_timelines(_an_outage())
    assert {each.gap_ms for each in handovers_of(timeline) if each.is_outage} == {384_000}


@pytest.mark.parametrize("slower", [1, 10])
def test_what_waited_is_counted_though_a_member_commits_a_part_of_it_at_a_time(slower: int) -> None:
    """After an outage of five minutes the first commit is of a thousand records, and of most of them nothing was said.

    A member that has not caught up when the log ends tells of what it has read.
    """
    back_ms = 405_000
    events = [each for each in _an_outage(back_ms=back_ms) if each.ts_ms <= back_ms]
    for count in range(1, 90):
        offset = min(back_ms + 1_000 * count, 20_000 + 45_000 * count // slower)
        offsets: dict[str, JsonValue] = {"t-0": offset, "t-1": offset}
        at_ms = back_ms + 1_000 * count
        events.append(said(at_ms, "offsets_committed", "a2", source="coordinator", offsets=offsets))
    outage = _found(*events)[0]
    truth = 2 * (back_ms - 20_000)
    assert outage.kind == "outage"
    assert 0.75 * truth < outage.records <= truth


def test_the_only_member_that_died_and_was_replaced_at_once_has_died() -> None:
    """Its group was empty for a moment only; most of the time it was counted, and silent."""
    (finding,) = _found(
        *(joined(0, "a"), counted(0, "a", 0), group_became(0, "Stable")),
        *(committed(at, "a", 0) for at in range(1_000, 8_001, 1_000)),
        *(left(20_000, "a"), group_became(20_000, "Empty"), joined(21_500, "b", "/10.0.0.2")),
        *(group_became(21_500, "Reconciling"), counted(21_500, "b", 0), group_became(21_500, "Stable")),
        committed(22_000, "b", 0),
    )
    assert _told(finding) == ("stand-still", "died", 15_000, "at most", 1)


def test_a_group_without_members_for_which_nothing_waited_was_not_out() -> None:
    """Nobody is to be woken since a group was stopped, or since somebody skipped the records for it."""
    assert not [each for each in _found(*_an_outage(offset=20_000)) if each.kind == "outage"]
    events = _an_outage()
    skipped = said(100_000, "offsets_committed", source="coordinator", offsets={"t-0": 41_000, "t-1": 41_000})
    assert not [each for each in _found(*events, skipped) if each.kind == "outage"]


def test_stand_stills_that_follow_each_other_are_told_with_the_time_of_all() -> None:
    """They are one finding of the length of the longest, and all seemed to be over after that."""
    (finding,) = _found(
        *(counted(0, "a", 0), counted(0, "b", 1), counted(0, "c", 2)),
        *(counted(10_000, "a"), counted(19_000, "b"), counted(20_000, "d", 0)),
        *(counted(28_000, "c"), counted(29_000, "e", 1), counted(38_000, "f", 2)),
    )
    assert finding.ms == 10_000
    assert finding.text == "3 of 3 partitions had no reader for 10.00 s each, in turn from 10.000 s to 38.000 s"


def test_a_member_whose_join_is_not_in_the_log_may_leave() -> None:
    """The report ended with an IndexError."""
    assert _found(left(5_000, "a"), joined(6_000, "b"), group_became(6_000, "Stable")) == []


def test_a_group_at_rest_has_no_findings() -> None:
    """Nothing is invented."""
    assert _found(joined(0, "a"), counted(0, "a", 0), group_became(0, "Stable"), committed(9_000, "a", 0)) == []


def test_many_stand_stills_of_one_group_do_not_hide_its_flapping_member(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal has room for thirty lines, and thirty like the first one say nothing more."""
    events = [joined(0, "b", "/10.0.0.2"), counted(0, "b", 0), group_became(0, "Stable")]
    for at in range(0, 200_000, 5_000):
        events += [joined(at, "a"), counted(at, "a", 1), left(at + 2_000, "a", "leave"), counted(at + 4_000, "b", 0, 1)]
        events += [counted(at + 4_900, "b", 0)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f"{each.to_json()}\n" for each in events), encoding="utf-8")
    assert main(["report", str(log)]) == 0
    told = capsys.readouterr().out.split("group orders")[0]
    assert told.count("had no reader") == 3
    assert "joined again 39 times" in told
    assert "more, most of them like these" in told


def test_what_other_settings_would_have_saved_is_played_with_the_groups_own_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shorter session finds a dead member sooner; nobody should have to guess by how much."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f"{each.to_json()}\n" for each in _a_death(last_commit_ms=8_000)), encoding="utf-8")
    assert main(["report", str(log), "--what-if"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("what went wrong, the worst first:\n  7.000 s  orders: 2 of 3 partitions (t-0, t-1) had no ")
    assert "if a node dies (a group on KIP-848 of 2 members and 3 partitions" in told
    assert "1 life" in told
    longest = {name: float(s) for name, s in re.findall(r"  (\S[\w= ]+\S) +one partition unread for ([\d.]+) s", told)}
    assert longest["session=10000"] < 15 < 40 < longest["as it is"]
    assert "in the log                 one partition unread for 15.00 s (longest 15.00 s), in 1 stand-still of" in told
    assert "what is played differs from the log" in told, "its session was shorter than Kafka's default"


def test_static_membership_is_played_for_a_deploy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it would have helped in last night's deploy is the question; the answer was an error about a time-out."""
    log = tmp_path / "log.jsonl"
    events = [joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), counted(0, "b", 2)]
    events += [group_became(0, "Stable"), left(8_000, "a", "leave"), counted(12_000, "b", 0, 1, 2)]
    log.write_text("".join(f"{each.to_json()}\n" for each in [*events, joined(13_000, "a2")]), encoding="utf-8")
    assert main(["report", str(log), "--what-if"]) == 0
    told = capsys.readouterr().out
    assert "orders, if its members restart one by one (a group on KIP-848 of 2 members" in told
    moved = dict(re.findall(r"  (\S[\w=,]+) +one partition unread for .*, (\d+) moved", told))
    assert moved["static=yes"] == moved["heartbeat=1000,static=yes"] == "0"


@pytest.mark.parametrize(("waited", "paused", "found"), [(True, 4, 1), (False, 4, 0), (True, 2, 0)])
def test_groups_that_stop_committing_at_the_same_second_are_told_as_one(waited: bool, paused: int, found: int) -> None:
    """Nine groups without a commit for 10 s were no finding: nobody lost a partition.

    If no records came meanwhile, or most of the groups went on, nothing is said.
    """
    events = []
    for number in range(4):
        begin, end = (30_000, 40_000) if number < paused else (0, 0)
        offset = 0
        for at in range(0, 60_001, 500):
            if begin < at + number * 10 < end:
                offset += 50 if waited else 0
                continue
            offset += 50
            events.append(
                msgspec.structs.replace(
                    said(at + number * 10, "offsets_committed", "a", source="coordinator", offsets={"t-0": offset}),
                    group_id=f"g{number}",
                )
            )
    together = [each for each in findings_of_all(build_timelines(events)) if each.kind == "all groups"]
    assert len(together) == found
    for each in together:
        assert (each.start_ms, each.ms) == (30_000, 10_000)
        assert each.text.startswith("4 of 4 groups that commit stopped at once, and none committed for at least")


def test_a_group_that_commits_every_three_seconds_does_not_hide_what_stopped_the_others() -> None:
    """One of its pauses began just before the others went on, and what they had in common was too short to be told."""
    pauses = {f"g{number}": Pauses(0.0, 60_000.0, [(30_000.0 + number, 36_000.0)]) for number in range(4)}
    pauses["slow"] = Pauses(0.0, 60_000.0, [(at, at + 3_100.0) for at in (25_700.0, 28_800.0, 35_900.0, 39_000.0)])
    (found,) = all_at_once(pauses)
    assert (found.start_ms, found.ms) == (30_003, 5_997)
    assert found.text.startswith("4 of 5 groups")


def test_an_owner_that_is_counted_and_does_not_read_yet_makes_a_range() -> None:
    """16 of 21 lengths that were called exact were 0.1 to 2.6 s too short."""
    (finding,) = _found(
        *(
            joined(0, "a"),
            joined(0, "b", "/10.0.0.2"),
            counted(0, "a", 0),
            counted(0, "b", 1),
            group_became(0, "Stable"),
        ),
        *(committed(at, "a", 0) for at in range(1_000, 20_001, 1_000)),
        *(bumped(20_000, 2), counted(20_000, "a"), counted(22_000, "b", 0, 1), group_became(22_000, "Stable")),
        committed(22_400, "b", 0),
    )
    assert (finding.ms, finding.rests, finding.least_ms, finding.most_ms) == (2_000, "exact", 2_000, 2_400)
    assert finding.text.startswith("1 of 2 partitions (t-0) had no reader for between 2.00 s and 2.40 s")
