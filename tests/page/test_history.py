"""The file of the page: what an operator finds in it after a restart, after a week, and when it is full."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kip848_client.errors import ConfigError
from kip848_client.journal import JournalEvent
from kip848_client.tools.page.analysis import clipped, timeline_of, what_went_wrong, with_beginnings
from kip848_client.tools.page.history import HistoryFile, HistoryReader, held
from kip848_client.tools.recorder.sampling import CommitSampler
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.findings import Finding, findings_of
from tests.report.logs import bumped, counted, group_became
from tests.report.play import PlayedGroup
from tests.report.test_findings import committed, joined, left

HOUR_MS = 3_600_000
GROUP = "g"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups.sqlite"


@pytest.fixture
def history(path: Path) -> Iterator[HistoryFile]:
    with contextlib.closing(HistoryFile(path, cluster_id="c1")) as made:
        yield made


@pytest.fixture
def reader(history: HistoryFile) -> Iterator[HistoryReader]:
    with contextlib.closing(history.reader()) as made:
        yield made


def of_group(group_id: str, *events: JournalEvent) -> list[JournalEvent]:
    return [replace(event, group_id=group_id) for event in events]


def an_hour(begin_ms: int = 0) -> list[JournalEvent]:
    """``a`` and ``b`` read and commit every second; ``a`` dies, and comes back; the group is out for a minute."""
    at = begin_ms
    return of_group(
        GROUP,
        *(joined(at, "a"), joined(at, "b", "/10.0.0.2"), counted(at, "a", 0, 1), counted(at, "b", 2)),
        group_became(at, "Stable"),
        *(each for second in range(1, 300) for each in (_commit(at, second, "a", 0, 1), _commit(at, second, "b", 2))),
        *(_commit(at, second, "b", 2) for second in range(300, 310)),
        *(left(at + 310_000, "a"), bumped(at + 310_000, 2, "member_left"), counted(at + 311_000, "b", 0, 1, 2)),
        group_became(at + 311_000, "Stable"),
        *(_commit(at, second, "b", 0, 1, 2) for second in range(312, 400)),
        *(left(at + 400_000, "b"), bumped(at + 400_000, 3, "member_left"), group_became(at + 400_000, "Empty")),
        *(joined(at + 460_000, "c"), bumped(at + 460_000, 4, "member_joined"), counted(at + 460_000, "c", 0, 1, 2)),
        group_became(at + 460_000, "Stable"),
        *(_commit(at, second, "c", 0, 1, 2) for second in range(461, 700)),
    )


def _commit(begin_ms: int, second: int, member: str, *indexes: int) -> JournalEvent:
    return committed(begin_ms + second * 1_000, member, *indexes)


def sampled(events: Iterable[JournalEvent]) -> tuple[list[JournalEvent], list[JournalEvent]]:
    """What the file gets, and what is not in it yet."""
    sampler = CommitSampler()
    kept = [each for event in events for each in sampler.take(event)]
    return kept, sampler.untold(GROUP)


def texts(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in findings]


def test_a_log_with_few_commits_tells_of_the_same_times(history: HistoryFile, reader: HistoryReader) -> None:
    """A week of all commits of a thousand groups would not fit; what was unread must be the same without them."""
    events = an_hour()
    kept, latest = sampled(events)
    assert len(kept) < len(events) / 5
    history.write(kept, places={})
    (timeline,) = build_timelines(events)
    end_ms = events[-1].ts_ms
    told = what_went_wrong(reader, GROUP, latest, from_ms=0, to_ms=end_ms, is_now=True)
    assert texts(told) == texts(findings_of(timeline))
    assert "outage" in {each.kind for each in told}


@pytest.mark.parametrize(("minutes", "how"), [(5, "leave"), (5, "die"), (180, "leave"), (180, "die")])
def test_an_outage_of_minutes_or_hours_is_told_alike(
    minutes: int, how: str, history: HistoryFile, reader: HistoryReader
) -> None:
    """Since when, how long, how many records waited, and who went: the truth is within what both say."""
    group = PlayedGroup("a", "b", "c", group_id=GROUP)
    out_ms = group.now_ms
    for name in "abc":
        getattr(group, how)(name)
    group.run(minutes * 60_000)
    back_ms = group.now_ms
    for name in "abc":
        group.join(name)
        group.run(2_000)
    group.run(60_000)
    kept, latest = sampled(group.events)
    history.write(kept, places={})
    (timeline,) = build_timelines(group.events)
    on_page = what_went_wrong(reader, GROUP, latest, from_ms=back_ms - 60_000, to_ms=group.now_ms, is_now=True)
    (outage,) = [each for each in findings_of(timeline) if each.kind == "outage"]
    assert outage in on_page
    assert outage.least_ms is not None
    assert outage.most_ms is not None
    assert outage.least_ms <= back_ms - out_ms <= outage.most_ms <= back_ms - out_ms + 2_000
    truth = 6 * (back_ms - out_ms) // 100
    assert truth <= outage.records <= truth + 20
    assert outage.why == {"leave": "deploy" if minutes < 10 else "left", "die": "died"}[how]


def test_a_look_at_an_hour_of_last_week_begins_at_a_snapshot(history: HistoryFile, reader: HistoryReader) -> None:
    """It need not read all that was before, and knows who owned what when the hour began."""
    history.write(an_hour(), places={})
    state = of_group(GROUP, joined(HOUR_MS, "c"), counted(HOUR_MS, "c", 0, 1, 2), group_became(HOUR_MS, "Stable"))
    history.write_snapshot(GROUP, state, ts_ms=HOUR_MS)
    history.write(of_group(GROUP, left(3 * HOUR_MS, "c"), group_became(3 * HOUR_MS, "Empty")), places={})
    log = reader.log(GROUP, from_ms=2 * HOUR_MS, to_ms=4 * HOUR_MS)
    assert (log.start_ms, len(log.events)) == (HOUR_MS, 5)
    timeline = timeline_of(reader, GROUP, (), from_ms=3 * HOUR_MS, to_ms=4 * HOUR_MS, is_now=True)
    assert timeline is not None
    picture = clipped(timeline, from_ms=2.5 * HOUR_MS, to_ms=4.0 * HOUR_MS)
    owned_until = {lane.partition: lane.held[-1].end_ms for lane in picture.partitions}
    assert owned_until == dict.fromkeys(("t-0", "t-1", "t-2"), 3.0 * HOUR_MS)
    earlier = reader.log(GROUP, from_ms=0, to_ms=HOUR_MS // 2)
    assert len(earlier.events) == len(an_hour()), "before a snapshot all is there"


def test_a_restart_goes_on_where_the_file_ends(history: HistoryFile, path: Path) -> None:
    """Records that are told by the file are not written a second time, and none is left out."""
    history.write(an_hour(), places={3: 17})
    history.write((), places={3: 18, 4: 2})
    history.close()
    with contextlib.closing(HistoryFile(path, cluster_id="c1")) as again:
        assert again.places == {3: 18, 4: 2}


@pytest.mark.parametrize(("cluster_id", "groups"), [("c2", ()), ("c1", ("orders-*",))])
def test_a_file_of_other_groups_is_refused(
    history: HistoryFile, path: Path, cluster_id: str, groups: tuple[str, ...]
) -> None:
    """Groups of two clusters have the same names; mixed up, the page would tell of outages that never were."""
    history.close()
    with pytest.raises(ConfigError, match="choose another file"):
        HistoryFile(path, cluster_id=cluster_id, groups=groups)


def test_two_pages_do_not_write_one_file(path: Path) -> None:
    """Each change was in it twice, and each time without a reader."""
    with held(path), pytest.raises(ConfigError, match=rf"another page writes it \(process {os.getpid()}\)"), held(path):
        pass
    with held(path):
        pass


@pytest.mark.parametrize("name", ["a folder", "no such/groups.sqlite", "text"])
def test_a_file_that_cannot_be_used_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """The page said that the cluster did not answer."""
    (tmp_path / "a folder").mkdir()
    (tmp_path / "text").write_text("no file of SQLite, but a long enough one\n" * 100)
    with pytest.raises(ConfigError, match="cannot be used"), held(tmp_path / name):
        pass


def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    """A mistyped path added tables to somebody else's database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table customers (name text)")
    with pytest.raises(ConfigError, match="of another one; choose another file"), held(path):
        pass
    assert list(path.parent.iterdir()) == [path]


def test_a_lock_file_of_another_program_is_left_alone(path: Path) -> None:
    """It was overwritten."""
    lock = path.with_name(f"{path.name}.lock")
    lock.write_bytes(b"\xff\xfe precious")
    with pytest.raises(ConfigError, match=r"\.lock is not of this program"), held(path):
        pass
    assert lock.read_bytes() == b"\xff\xfe precious"


def test_a_page_that_writes_for_long_is_named(path: Path) -> None:
    """A second one said that the database is locked."""
    with held(path), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        with pytest.raises(ConfigError, match="another page writes it"), held(path):
            pass


def test_old_events_go_and_the_state_stays(history: HistoryFile, reader: HistoryReader) -> None:
    """A group in which nothing happens for weeks still has its members, and the file does not grow for it."""
    history.write(an_hour(), places={})
    assert history.old_groups(before_ms=HOUR_MS) == [GROUP]
    assert history.old_groups(before_ms=300_000) == []
    state = of_group(GROUP, joined(700_000, "c"), counted(700_000, "c", 0, 1, 2), group_became(700_000, "Stable"))
    history.write_snapshot(GROUP, state, ts_ms=700_000, delete_before=True)
    assert history.old_groups(before_ms=HOUR_MS) == [], "once is enough"
    timeline = timeline_of(reader, GROUP, (), from_ms=5 * HOUR_MS, to_ms=6 * HOUR_MS, is_now=True)
    assert timeline is not None
    assert [(lane.member, lane.states[-1].end_ms) for lane in timeline.members] == [("c-client", 6.0 * HOUR_MS)]


def test_nothing_is_left_of_a_group_that_is_gone_for_long(
    history: HistoryFile, reader: HistoryReader, path: Path
) -> None:
    """A job that makes a group for each of its runs would fill the file with their names."""
    history.write([*an_hour(), *of_group("another", joined(1, "a"))], places={})
    history.forget(GROUP)
    history.prune(before_ms=0)
    assert reader.log(GROUP, from_ms=0, to_ms=HOUR_MS).events == ()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select group_id from groups").fetchall() == [("another",)]
    history.write(of_group("another", left(2, "a")), places={})
    assert len(reader.log("another", from_ms=0, to_ms=HOUR_MS).events) == 2


def test_pruning_deletes_what_a_snapshot_stands_for(history: HistoryFile, reader: HistoryReader) -> None:
    """Without its snapshot an event would say nothing; with it the older ones are only weight."""
    history.write(an_hour(), places={})
    assert history.prune(before_ms=HOUR_MS) == 0
    history.write_snapshot(GROUP, of_group(GROUP, joined(HOUR_MS, "c")), ts_ms=HOUR_MS)
    history.write(of_group(GROUP, left(2 * HOUR_MS, "c")), places={})
    assert history.prune(before_ms=HOUR_MS) == len(an_hour())
    assert len(reader.log(GROUP, from_ms=2 * HOUR_MS, to_ms=3 * HOUR_MS).events) == 2


def test_a_file_that_is_too_large_loses_its_oldest_events(path: Path) -> None:
    """The disk of the machine must not fill up, whatever the groups do."""
    with contextlib.closing(HistoryFile(path, cluster_id="c1", size_max=300_000)) as history:
        for hour in range(12):
            history.write(an_hour(hour * HOUR_MS), places={})
        assert history.size > 300_000
        while history.prune_to_size():
            pass
        assert history.size <= 300_000


def test_findings_are_replaced_when_more_is_known(history: HistoryFile, reader: HistoryReader) -> None:
    """A stand-still that lasts is told once, with its latest length."""
    (first, *_) = findings_of(build_timelines(an_hour())[0])
    history.write_findings([first], group_id=GROUP, from_ms=0, found_ms=1)
    history.write_findings([replace(first, text="longer")], group_id=GROUP, from_ms=0, found_ms=2)
    assert [each.text for each in reader.findings(from_ms=0, to_ms=HOUR_MS)] == ["longer"]
    history.write_findings([], group_id=GROUP, from_ms=0, found_ms=3)
    assert reader.findings(from_ms=0, to_ms=HOUR_MS, group_id=GROUP) == []


def test_what_began_before_a_look_stays(history: HistoryFile, reader: HistoryReader) -> None:
    """A look at the last hour does not see that a stand-still lasted for four, and deleted what an earlier one saw."""
    (first, *_) = findings_of(build_timelines(an_hour())[0])
    long = replace(first, start_ms=5.0, ms=4.0 * HOUR_MS)
    history.write_findings([long], group_id=GROUP, from_ms=0, found_ms=1)
    history.write_findings([], group_id=GROUP, from_ms=3 * HOUR_MS, found_ms=2)
    assert reader.findings(from_ms=0, to_ms=4 * HOUR_MS) == [long]


def flapping(start_ms: int, ms: int, client: str = "a") -> Finding:
    return Finding("flapping", GROUP, start_ms, ms, "exact", 0, "restart", (client,), f"{client} went 9 times")


def test_what_goes_on_for_hours_is_one_finding_with_its_beginning(history: HistoryFile, reader: HistoryReader) -> None:
    """Each look at the last two hours added one: a client that flapped all day filled the first page."""
    for look in range(6):
        from_ms = look * HOUR_MS // 2
        earlier = reader.findings(from_ms=from_ms - HOUR_MS, to_ms=9 * HOUR_MS, group_id=GROUP)
        found = with_beginnings([flapping(from_ms + 5, HOUR_MS)], earlier)
        history.write_findings(found, group_id=GROUP, from_ms=from_ms, found_ms=look)
    (told,) = reader.findings(from_ms=0, to_ms=9 * HOUR_MS)
    assert (told.start_ms, told.ms) == (5, 5 * HOUR_MS // 2 + HOUR_MS)
    assert told.text == "a went 9 times; it began at 0.005 s"


def test_what_begins_anew_or_is_of_another_client_is_another_finding() -> None:
    """A client that flapped in the night has not flapped since then."""
    earlier = [flapping(0, HOUR_MS)]
    again, other = flapping(3 * HOUR_MS, HOUR_MS), flapping(HOUR_MS, HOUR_MS, client="b")
    assert list(with_beginnings([again, other], earlier)) == [again, other]


def test_two_clients_that_went_at_the_same_time_are_both_told(history: HistoryFile, reader: HistoryReader) -> None:
    """The second one took the place of the first one."""
    history.write_findings([flapping(5, 9), flapping(5, 9, "b")], group_id=GROUP, from_ms=0, found_ms=1)
    assert {each.who[0] for each in reader.findings(from_ms=0, to_ms=HOUR_MS)} == {"a", "b"}


def test_what_is_known_better_of_many_groups_replaces_what_was_known(
    history: HistoryFile, reader: HistoryReader
) -> None:
    """When the next group was back, the same pause of all groups was told for the second time."""
    first = replace(flapping(5_000, 9_000), kind="all groups")
    history.add_findings([first], found_ms=1)
    history.add_findings([replace(first, start_ms=5_500, ms=8_000, group_id="h")], found_ms=2)
    assert [each.start_ms for each in reader.findings(from_ms=0, to_ms=HOUR_MS)] == [5_500]


@pytest.mark.parametrize("group_id", ["", "a/b", "'; drop table events; --", "naïve \U0001f600", "\x00", "a" * 5_000])
def test_any_name_can_be_kept(history: HistoryFile, reader: HistoryReader, group_id: str) -> None:
    """Group ids are strangers' text."""
    history.write(of_group(group_id, joined(1, "a"), joined(2, "b")), places={})
    assert [each.group_id for each in reader.log(group_id, from_ms=0, to_ms=9).events] == [group_id] * 2
    assert reader.log("another", from_ms=0, to_ms=9).events == ()
