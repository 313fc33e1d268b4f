"""Assignments that come, change and go, seen from the coordinator: what is revoked, assigned and reported."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.model import TopicPartition as Name
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import COMMIT, FETCH, HEARTBEAT, HOLD, Parts, ScriptedCoordinator, without_heartbeats
from tests.interop.client.watched import Watched
from tests.support.waiting import outlast, wait_until

pytestmark = pytest.mark.interop

"""A topic id that the cluster does not know."""


def chapter(scripted: ScriptedCoordinator, since: int) -> list[str]:
    """The story from there on, without quiet heartbeats."""
    return without_heartbeats(scripted.story[since:])


STEPS: list[tuple[list[int], list[int], list[str]]] = [
    ([0], [0, 1], ["assigned orders-1", "report 2 orders-0 orders-1"]),
    ([0, 1], [0], ["revoked orders-1", "assigned nothing", "report 2 orders-0"]),
    ([0], [1], ["revoked orders-0", "assigned orders-1", "report 2 orders-1"]),
    ([0], [], ["revoked orders-0", "assigned nothing", "report 2 nothing"]),
    ([0, 1], [1, 2], ["revoked orders-0", "assigned orders-2", "report 2 orders-1 orders-2"]),
    (
        [],
        [3, 1, 2, 0],
        ["assigned orders-0 orders-1 orders-2 orders-3", "report 2 orders-0 orders-1 orders-2 orders-3"],
    ),
]


@pytest.mark.parametrize(("had", "gets", "told"), STEPS, ids=[f"{had} to {gets}" for had, gets, _ in STEPS])
def test_from_one_assignment_to_another(
    scripted: ScriptedCoordinator, watch: Watch, had: list[int], gets: list[int], told: list[str]
) -> None:
    scripted.start_with({"orders": had})
    names = " ".join(f"orders-{number}" for number in had) or "nothing"
    member = watch().subscribe().drive_to(f"report 1 {names}", "heartbeat 1")
    begin = len(scripted.story)
    scripted.give({"orders": gets})
    member.drive_to(told[-1]).drive_for(0.1)
    assert chapter(scripted, begin) == told
    assert member.assigned == sorted(gets)


def test_a_kept_partition_keeps_its_place_and_its_pause(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    produce("orders", 4, partitions=[0, 1])
    member.drive(lambda: len(member.records) == 4)
    member.consumer.pause([TopicPartition("orders", 0)])
    produce("orders", 4, partitions=[0])
    scripted.give({"orders": [0, 1]})
    member.drive_to("report 2 orders-0 orders-1").drive(lambda: len(member.records) == 8).drive_for(0.1)
    assert {partition for _, partition, _ in member.records[4:]} == {1}
    member.consumer.resume([TopicPartition("orders", 0)])
    member.drive(lambda: len(member.records) == 12)
    assert [offset for _, partition, offset in member.records if partition == 0] == list(range(8))


def test_a_paused_partition_comes_back_unpaused(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    member.consumer.pause([TopicPartition("orders", 0)])
    scripted.give({"orders": []})
    member.drive_to("report 2 nothing")
    produce("orders", 3, partitions=[0])
    scripted.give({"orders": [0]})
    member.drive(lambda: len(member.records) == 3)
    assert member.consumer.paused() == []


def test_a_topic_that_becomes_known_follows(
    scripted: ScriptedCoordinator, member: Watched, broker: EmbeddedBroker
) -> None:
    """The coordinator hears of a new topic before the brokers that are asked for its name."""
    scripted.hide_topics = True
    later = broker.create_topic("later", 1)
    scripted.topic_id("later")
    scripted.give({"orders": [0]}, ids={str(later): [0]})
    begin = len(scripted.story)
    member.drive_to("report 2 orders-0").drive_for(0.2)
    assert chapter(scripted, begin) == ["report 2 orders-0"]
    scripted.hide_topics = False
    member.drive_to("assigned later-0", "report 2 later-0 orders-0")
    assert member.consumer.state is MemberState.STABLE


def test_a_topic_that_was_created_again_is_another_one(
    scripted: ScriptedCoordinator, member: Watched, broker: EmbeddedBroker, produce: Produce
) -> None:
    """Same name, new id: revoked and assigned afresh, and read from its beginning."""
    produce("orders", 5, partitions=[0])
    member.drive(lambda: len(member.records) == 5)
    broker.recreate_topic("orders", 4)
    begin = len(scripted.story)
    scripted.give({"orders": [0]})
    member.drive_to("revoked orders-0", "assigned orders-0", "report 2 orders-0")
    assert chapter(scripted, begin) == ["revoked orders-0", "assigned orders-0", "report 2 orders-0"]
    produce("orders", 3, partitions=[0])
    member.drive(lambda: len(member.records) == 8)
    assert [offset for _, _, offset in member.records[5:]] == [0, 1, 2]


def test_order_of_a_run_with_automatic_commits(scripted: ScriptedCoordinator, watch: Watch, produce: Produce) -> None:
    scripted.start_with({"orders": [0]})
    produce("orders", 5, partitions=[0])
    member = watch(enable_auto_commit=True).subscribe()
    member.drive(lambda: len(member.records) == 5)
    begin = len(scripted.story)
    scripted.give({"orders": [1]})
    member.drive_to("report 2 orders-1")
    assert chapter(scripted, begin) == ["commit 2", "revoked orders-0", "assigned orders-1", "report 2 orders-1"]
    assert scripted.committed == {Name("orders", 0): 5}


def test_nothing_of_a_revoked_partition_is_delivered_after_the_run_began(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce
) -> None:
    """Prefetched records too: they were not committed, and belong to another member now."""
    produce("orders", 300, partitions=[0, 1])
    scripted.start_with({"orders": [0, 1]})
    member = watch(enable_auto_commit=True).subscribe()
    while len(member.records) < 20:
        message = member.consumer.poll(1.0)
        if message is not None:
            member.records.append((str(message.topic()), message.partition() or 0, message.offset() or 0))
    scripted.give({"orders": [0]})
    seen = len(scripted.heartbeats)
    wait_until(lambda: len(scripted.heartbeats) >= seen + 2)
    taken = len(member.records)
    while sum(1 for _, partition, _ in member.records if partition == 0) < 300:
        message = member.consumer.poll(1.0)
        if message is not None:
            member.records.append((str(message.topic()), message.partition() or 0, message.offset() or 0))
    assert {partition for _, partition, _ in member.records[taken:]} == {0}
    handed_out = sum(1 for _, partition, _ in member.records if partition == 1)
    assert scripted.committed.get(Name("orders", 1), 0) == handed_out


def test_nothing_is_fetched_or_looked_up_before_the_assigned_callback_returned(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    produce("orders", 3, partitions=[1])
    asked: list[int] = []

    def slow(_: Any) -> None:
        outlast(0.2)
        asked.append(len(scripted.of(FETCH)))

    before = len(scripted.of(FETCH))
    member.hooks["assigned"] = slow
    scripted.give({"orders": [0, 1]})
    member.drive(lambda: len(member.records) == 3)
    assert asked == [before]


def test_a_seek_inside_assigned_needs_no_committed_offset(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    produce("orders", 9, partitions=[1])
    scripted.committed[Name("orders", 1)] = 2
    member.hooks["assigned"] = lambda partitions: member.consumer.seek(TopicPartition("orders", 1, 6))
    before = len(scripted.of(FETCH))
    scripted.give({"orders": [0, 1]})
    member.drive(lambda: len(member.records) >= 3).drive_for(0.1)
    assert [offset for _, _, offset in member.records] == [6, 7, 8]
    assert len(scripted.of(FETCH)) == before


@pytest.mark.parametrize("late", ["commit", "revoked", "assigned"])
def test_what_comes_late_from_an_earlier_life_changes_nothing(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce, late: str
) -> None:
    """A run waits, the member is fenced, joins again and has a new target: the old end must not end the new run."""
    produce("orders", 5, partitions=[0])
    scripted.start_with({"orders": [0]})
    member = watch(enable_auto_commit=True).subscribe().drive_to("report 1 orders-0")
    member.drive(lambda: len(member.records) == 5)
    if late == "commit":
        scripted.script(COMMIT, HOLD)
    else:
        member.hooks[late] = lambda _: fence_and_wait(scripted)
    scripted.give({"orders": [1]})
    if late == "commit":
        member.drive(lambda: "commit 2" in scripted.story)
        fence_and_wait(scripted)
    member.drive(lambda: any(words.startswith("lost") for words in scripted.story) or late == "revoked")
    scripted.give({"orders": [2]})
    member.hooks.clear()
    if late == "commit":
        held = scripted.held(COMMIT)
        held.answer(scripted.model(held.request))
    member.drive_to("join", "assigned orders-2", "report 3 orders-2").drive_for(0.1)
    assert member.assigned == [2]
    assert scripted.story.count("assigned orders-2") == 1


def fence_and_wait(scripted: ScriptedCoordinator) -> None:
    scripted.script(HEARTBEAT, 110)
    seen = len(scripted.heartbeats)
    wait_until(lambda: len(scripted.heartbeats) > seen)
    outlast(0.05)  # the application is busy while the background learns of it


PARTS: list[Parts] = [{"orders": [0]}, {"orders": [0, 1]}, {"orders": [1, 2]}, {}, {"orders": [0, 1, 2, 3]}]


def test_many_targets_in_a_row_end_with_the_last(scripted: ScriptedCoordinator, member: Watched) -> None:
    for number in range(40):
        scripted.give(PARTS[number % len(PARTS)])
        member.poll(0.005)
    scripted.give({"orders": [2]})
    member.drive_to(f"report {scripted.epoch} orders-2")
    assert member.assigned == [2]
    has: set[str] = set()
    for words in member.told:
        kind, *names = words.split()
        changed = set(names) - {"nothing"}
        if kind == "assigned":
            assert not has & changed, "assigned twice without being revoked"
            has |= changed
        else:
            assert changed <= has
            assert changed
            has -= changed
    assert has == {"orders-2"}


def test_without_a_listener_one_poll_is_a_whole_run(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """There is no callback to wait for, so the run does not wait for a second poll()."""
    scripted.start_with({"orders": [0]})
    member = watch()
    member.consumer.subscribe(["orders"])
    member.drive_to("report 1 orders-0", "heartbeat 1")
    for parts, report in (({"orders": [1]}, "report 2 orders-1"), ({}, "report 3 nothing")):
        scripted.give(parts)
        wait_until(lambda: member.consumer._group.view.poll_wanted)
        member.consumer.poll(0)
        wait_until(lambda report=report: report in scripted.story)  # type: ignore[misc]
    assert member.told == []


def test_fencing_takes_the_epoch_away_exactly_once(scripted: ScriptedCoordinator, member: Watched) -> None:
    """What commits carry: the epoch, then none, then the one of the new life; nothing in between."""
    epochs = [member.consumer.member_epoch]
    scripted.script(HEARTBEAT, 110)
    scripted.give({"orders": [0]}, epoch=8)

    def look() -> bool:
        if member.consumer.member_epoch != epochs[-1]:
            epochs.append(member.consumer.member_epoch)
        return "report 8 orders-0" in scripted.story

    member.hooks["lost"] = lambda _: look()
    member.drive(look)
    assert epochs == [1, -1, 8]
