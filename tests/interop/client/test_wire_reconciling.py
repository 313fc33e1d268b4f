"""Assignments that come, change and go, seen from the coordinator: what is revoked, assigned and reported."""

from __future__ import annotations

import pytest

from kip848_client.model import TopicPartition as Name
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import ScriptedCoordinator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


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
