"""What the recorder reads out of a real coordinator's records: KIP-848 groups, classic ones, and both in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.journal import JournalEvent, MemoryJournal, read_journal
from kip848_client.report import Figures, build_timelines, figures_of
from tests.interop.conftest import CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs, MakeTheirs
from tests.interop.real.members import Feed, OurMember, settled, take_turns
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

PARTITIONS = 4


class Recording:
    """Records one group of the shared broker."""

    def __init__(self, broker: KafkaBroker | ExternalKafka, group_id: str, folder: Path) -> None:
        self._bootstrap = broker.bootstrap_servers
        self._group_id = group_id
        self._out = folder / "groups.jsonl"

    def events(self) -> list[JournalEvent]:
        """All that the topic has of the group."""
        arguments = ["--bootstrap", self._bootstrap, "--group", self._group_id, "--out", str(self._out)]
        assert main(["groups", "record", "--no-follow", *arguments]) == 0
        return list(read_journal(self._out))

    def figures(self) -> Figures:
        """Their report."""
        (timeline,) = build_timelines(self.events())
        return figures_of(timeline)


@pytest.fixture
def recording(kafka_broker: KafkaBroker | ExternalKafka, group_id: str, tmp_path: Path) -> Recording:
    """Of the test's group."""
    return Recording(kafka_broker, group_id, tmp_path)


def test_a_kip_848_group_is_recorded_as_its_members_saw_it(
    kafka_topic: CreateTopic,
    ours: MakeOurs,
    administrator: Administrator,
    group_id: str,
    recording: Recording,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A report of a real cluster that says "rebalances 0" sends people elsewhere."""
    topic = kafka_topic(partitions=PARTITIONS)
    first = ours("first").subscribe(topic)
    take_turns(first, until=settled(administrator, group_id, first), what="one stable member")
    second = ours("second").subscribe(topic)
    take_turns(first, second, until=settled(administrator, group_id, first, second), what="two stable members")
    first.close()
    take_turns(second, until=lambda: len(second.partitions) == PARTITIONS, what="everything to the second")
    second.close()

    figures, events = recording.figures(), recording.events()
    group = administrator.group(group_id)
    assert figures.members == 2
    assert figures.partitions == PARTITIONS
    assert figures.moves == PARTITIONS
    assert figures.without_reader.count > 0
    assert {member.member: (member.gained, member.given) for member in figures.by_member} == {
        "first": (0, PARTITIONS),
        "second": (PARTITIONS, 0),
    }
    epochs = [event.group_epoch for event in events if event.event == "group_epoch_bumped"]
    assert epochs == list(range(epochs[0] or 0, group.epoch + 1))
    states = [event.fields["new"] for event in events if event.event == "group_state_changed"]
    assert states[-1] == group.state == "Empty"
    assert all(rebalance.end_ms is not None for rebalance in figures.rebalances)
    assert "unknown" not in {reason for rebalance in figures.rebalances for reason in rebalance.reasons}
    shown = {name for event in events for name in (event.fields.get("assigned") or {})}  # type: ignore[union-attr]
    assert shown == {topic}, "topic ids have names"
    assert "damaged" not in capsys.readouterr().err


def test_a_classic_group_of_librdkafka_is_recorded(
    kafka_topic: CreateTopic, feed: Feed, theirs: MakeTheirs, recording: Recording
) -> None:
    """Most groups of a real cluster are classic ones."""
    topic = kafka_topic(partitions=PARTITIONS)
    feed.write(topic, 5, partitions=PARTITIONS)
    first = theirs("first", group_protocol="classic", auto_offset_reset="earliest").subscribe(topic)
    take_turns(first, until=lambda: len(first.partitions) == PARTITIONS, what="everything to the first")
    second = theirs("second", group_protocol="classic").subscribe(topic)
    take_turns(first, second, until=lambda: len(second.partitions) == PARTITIONS // 2, what="half to the second")
    first.close()
    take_turns(second, until=lambda: len(second.partitions) == PARTITIONS, what="everything to the second")
    second.close()

    figures, events = recording.figures(), recording.events()
    assert {member.member for member in figures.by_member} == {"first", "second"}
    assert figures.moves == PARTITIONS
    generations = [event.group_epoch for event in events if event.event == "classic_generation_began"]
    assert len(generations) >= 3
    assert generations == sorted(generations, key=lambda number: number or 0)
    assert figures.commits.accepted > 0


def test_a_group_of_both_protocols_is_recorded_as_one(
    kafka_topic: CreateTopic,
    ours: MakeOurs,
    theirs: MakeTheirs,
    administrator: Administrator,
    group_id: str,
    recording: Recording,
) -> None:
    """A migration is when people look: the group changes its protocol, and its partitions move from old to new."""
    topic = kafka_topic(partitions=PARTITIONS)
    old = theirs("old", group_protocol="classic", partition_assignment_strategy="cooperative-sticky").subscribe(topic)
    take_turns(old, until=lambda: len(old.partitions) == PARTITIONS, what="everything to the old one")
    new = ours("new").subscribe(topic)
    take_turns(
        old,
        new,
        until=lambda: (
            len(new.partitions) == PARTITIONS // 2 == len(old.partitions) and administrator.is_stable(group_id, 2)()
        ),
        what="half to the new one",
    )
    old.close()
    take_turns(new, until=settled(administrator, group_id, new), what="everything to the new one")

    figures, events = recording.figures(), recording.events()
    assert figures.moves == PARTITIONS
    assert {member.member for member in figures.by_member} == {"old", "new"}
    assert any(event.event == "classic_generation_began" for event in events)
    converted = [event.fields["type"] for event in events if event.event == "group_converted"]
    assert converted == ["consumer"]
    assert figures.without_reader.count < 2 * PARTITIONS


def scripted_course(administrator: Administrator, topic: str, group_id: str, make: Callable[[str], OurMember]) -> None:
    """Three members join, one dies, the two that are left are replaced one by one, the topic grows, all leave."""
    joined: list[OurMember] = []

    def until_settled(what: str) -> None:
        take_turns(*joined, until=settled(administrator, group_id, *joined), what=what)

    def join(name: str) -> None:
        joined.append(make(name).subscribe(topic))
        until_settled(f"{name} joined")

    for name in ("a", "b", "c"):
        join(name)
    joined.pop(1).vanish()
    until_settled("the partitions of the one that died")
    for name in ("d", "e"):
        joined.pop(0).close()
        until_settled("one left for a restart")
        join(name)
    administrator.add_partitions(topic, 8)
    take_turns(*joined, until=lambda: sum(len(each.partitions) for each in joined) == 8, what="the new partitions")
    until_settled("the new partitions")
    joined.pop(0).close()
    until_settled("the last but one left")
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
    kafka_topic: CreateTopic, ours: MakeOurs, administrator: Administrator, group_id: str, recording: Recording
) -> None:
    """The same deployment, on a real cluster and in a test with the embedded broker: one question, one answer."""
    topic = kafka_topic(partitions=6)
    journal = MemoryJournal()
    with EmbeddedBroker({topic: 6}, journal=journal) as broker:
        scripted_course(
            Administrator(broker.bootstrap_servers), topic, group_id,
            lambda name: ours(name, at=broker.bootstrap_servers, enable_auto_commit=False),
        )  # fmt: skip
        broker.wait_for_group(group_id, members=0)
    (timeline,) = build_timelines(journal.events)
    expected = told_by(figures_of(timeline))
    scripted_course(administrator, topic, group_id, lambda name: ours(name, enable_auto_commit=False))
    wait_until(lambda: administrator.group(group_id).state == "Empty")

    found = told_by(recording.figures())
    assert set(expected["members"]) == {"a", "b", "c", "d", "e"}
    assert found == expected
