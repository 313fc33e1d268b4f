"""What the recorder reads out of a real coordinator's records: KIP-848 groups, classic ones, and both in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.journal import MemoryJournal, read_journal
from kip848_client.tools.report import Figures, build_timelines, figures_of
from tests.interop.real.group import ON_KAFKA, Group, group_of
from tests.interop.real.members import OurMember
from tests.support.driving import drive
from tests.support.waiting import wait_until

pytestmark = ON_KAFKA

PARTITIONS = 4


class Recording:
    """What the recorder reads of one group."""

    def __init__(self, group: Group, folder: Path) -> None:
        out = folder / "groups.jsonl"
        arguments = ["--bootstrap", group.bootstrap_servers, "--group", group.group_id, "--out", str(out)]
        assert main(["groups", "record", "--no-follow", *arguments]) == 0
        self.events = list(read_journal(out))
        (timeline,) = build_timelines(self.events)
        self.figures = figures_of(timeline)


def test_a_classic_group_of_librdkafka_is_recorded(group: Group, tmp_path: Path) -> None:
    """Most groups of a real cluster are classic ones."""
    topic = group.topic(partitions=PARTITIONS)
    group.write(topic, 5, partitions=PARTITIONS)
    first = group.theirs("first", group_protocol="classic", auto_offset_reset="earliest").subscribe(topic)
    drive(first, until=lambda: len(first.partitions) == PARTITIONS, what="everything to the first")
    second = group.theirs("second", group_protocol="classic").subscribe(topic)
    drive(first, second, until=lambda: len(second.partitions) == PARTITIONS // 2, what="half to the second")
    first.close()
    drive(second, until=lambda: len(second.partitions) == PARTITIONS, what="everything to the second")
    second.close()

    recording = Recording(group, tmp_path)
    figures, events = recording.figures, recording.events
    assert {member.member for member in figures.by_member} == {"first", "second"}
    assert figures.moves == PARTITIONS
    generations = [event.group_epoch for event in events if event.event == "classic_generation_began"]
    assert len(generations) >= 3
    assert generations == sorted(generations, key=lambda number: number or 0)
    assert figures.commits.accepted > 0


def test_a_group_of_both_protocols_is_recorded_as_one(group: Group, tmp_path: Path) -> None:
    """A migration is when people look: the group changes its protocol, and its partitions move from old to new."""
    topic = group.topic(partitions=PARTITIONS)
    old = group.theirs("old", group_protocol="classic", partition_assignment_strategy="cooperative-sticky").subscribe(
        topic
    )
    drive(old, until=lambda: len(old.partitions) == PARTITIONS, what="everything to the old one")
    new = group.ours("new").subscribe(topic)

    def are_shared() -> bool:
        return len(new.partitions) == PARTITIONS // 2 == len(old.partitions) and group.is_stable(2)

    drive(old, new, until=are_shared, what="half to the new one")
    old.close()
    group.settle(new)

    recording = Recording(group, tmp_path)
    figures, events = recording.figures, recording.events
    assert figures.moves == PARTITIONS
    assert {member.member for member in figures.by_member} == {"old", "new"}
    assert any(event.event == "classic_generation_began" for event in events)
    converted = [event.fields["type"] for event in events if event.event == "group_converted"]
    assert converted == ["consumer"]
    assert figures.without_reader.count < 2 * PARTITIONS


def scripted_course(group: Group, topic: str) -> None:
    """Three members join, one dies, the two that are left are replaced one by one, the topic grows, all leave."""
    joined: list[OurMember] = []

    def join(name: str) -> None:
        joined.append(group.ours(name, enable_auto_commit=False).subscribe(topic))
        group.settle(*joined)

    for name in ("a", "b", "c"):
        join(name)
    joined.pop(1).vanish()
    group.settle(*joined)
    for name in ("d", "e"):
        joined.pop(0).close()
        group.settle(*joined)
        join(name)
    group.add_partitions(topic, 8)
    drive(*joined, until=lambda: sum(len(each.partitions) for each in joined) == 8, what="the new partitions")
    group.settle(*joined)
    joined.pop(0).close()
    group.settle(*joined)
    joined.pop().close()


def told_by(figures: Figures) -> dict[str, Any]:
    """What a report says of a course, but for times, and for why a member left: no record says that.

    Epochs count from the first rebalance: Kafka 4.3 begins with 2 where we begin with 1 (docs/differences.md).
    """
    first = figures.rebalances[0].first_epoch
    return {
        "rebalances": [
            (each.first_epoch - first, each.last_epoch - first, [reason.partition(" (")[0] for reason in each.reasons])
            for each in figures.rebalances
            if each.end_ms is not None
        ],
        "members": {each.member: (each.gained, each.given, each.returned) for each in figures.by_member},
        "moved": (figures.partitions, figures.moves, figures.bounces, figures.stayed),
        "changes": figures.change.count,
        "read by two": list(figures.two_readers),
    }


@pytest.mark.slow
def test_one_course_has_the_same_report_from_kafkas_records_and_from_our_coordinators_log(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report on a real cluster and one from a test with the embedded broker must agree."""
    topic = group.topic(partitions=6)
    journal = MemoryJournal()
    with EmbeddedBroker({topic: 6}, journal=journal) as embedded, group_of(embedded.bootstrap_servers) as ours:
        scripted_course(ours, topic)
        embedded.wait_for_group(ours.group_id, members=0)
    (timeline,) = build_timelines(journal.events)
    expected = told_by(figures_of(timeline))
    scripted_course(group, topic)
    wait_until(lambda: group.shown().state == "Empty")

    recording = Recording(group, tmp_path)
    assert set(expected["members"]) == {"a", "b", "c", "d", "e"}
    assert told_by(recording.figures) == expected
    assert recording.figures.without_reader.count > 0
    topics = {name for event in recording.events for name in (event.fields.get("assigned") or {})}  # type: ignore[union-attr]
    assert topics == {topic}, "topic ids have names"
    assert "damaged" not in capsys.readouterr().err
