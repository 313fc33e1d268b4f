"""Consumers in processes of their own, restarted and killed while records keep coming.

Environment:
    KIP848_ROLLING_RESTART_S: how long the rolling restart goes on; 20 seconds without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.real.fleet import Fleet, Stream, seconds
from tests.interop.real.group import ON_KAFKA, Group
from tests.interop.real.ledger import judge
from tests.support.waiting import wait_until

pytestmark = [*ON_KAFKA, pytest.mark.slow]

PARTITIONS = 12
MEMBERS = 4
ROLLING_RESTART_S = seconds("KIP848_ROLLING_RESTART_S", 20)


def stable(group: Group, fleet: Fleet) -> Callable[[], bool]:
    """A condition to wait for: the members are the processes that run now, and have what they are to have."""

    def holds() -> bool:
        here = {member.client_id for member in group.shown().members if member.epoch > 0}
        return here == {worker.name for worker in fleet.running} and group.is_stable(len(here))

    return holds


@pytest.mark.timeout(240 + 4 * ROLLING_RESTART_S)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_rolling_restart_loses_nothing_and_repeats_nothing(group: Group, tmp_path: Path, static: bool) -> None:
    """A deployment replaces one process after the other under load: dynamic members for half of the time, then static.

    Every record is read, none twice (each batch is committed, and each process leaves in good order), no partition ever
    has two readers, and no commit fails, although every one of them races with heartbeats that move its epoch.
    """
    topic = group.topic(partitions=PARTITIONS)
    if static:  # a slot whose process starts slowly, on a machine that is busy, must not be given away meanwhile
        group.configure(consumer_session_timeout_ms=60_000)
    restarts = 0
    with (
        Fleet(tmp_path, topic, group.conf({"enable_auto_commit": False})) as fleet,
        Stream(group.bootstrap_servers, topic, partitions=PARTITIONS, records_per_second=300) as stream,
    ):
        slots = [{"group_instance_id": f"slot-{number}"} if static else {} for number in range(MEMBERS)]
        for slot in slots:
            fleet.start(**slot)
        wait_until(stable(group, fleet), what="four stable members")
        first_epoch = group.shown().epoch
        until_s = time.monotonic() + ROLLING_RESTART_S / 2
        while time.monotonic() < until_s or restarts < MEMBERS:
            fleet.stop(fleet.running[0])
            fleet.start(**slots[restarts % MEMBERS])
            wait_until(stable(group, fleet), what="four stable members")
            restarts += 1
        last_epoch = group.shown().epoch
        stream.stop()
        wait_until(lambda: group.committed(stream.written) == stream.written, what="the last commits")
        for worker in list(fleet.running):
            fleet.stop(worker)
        ledger = fleet.ledger()

    findings = judge(ledger, written=stream.written)
    assert not findings.wrong, findings.wrong[:5]
    assert ledger.errors() == []
    assert findings.repeated == 0
    # A static member that comes back within its session moves nothing; a dynamic one is a leave and a join.
    assert last_epoch == first_epoch if static else last_epoch >= first_epoch + 2 * restarts


@pytest.mark.timeout(300)
def test_a_process_killed_with_sigkill_costs_no_committed_offset_and_no_record(group: Group, tmp_path: Path) -> None:
    """After a kill, and a session timeout, the others go on exactly at the last commit."""
    # A survivor that pauses for longer on a busy machine is removed as well, and its commit fails.
    group.configure(consumer_session_timeout_ms=10_000)
    topic = group.topic(partitions=PARTITIONS)
    with (
        Fleet(tmp_path, topic, group.conf({"enable_auto_commit": False})) as fleet,
        Stream(group.bootstrap_servers, topic, partitions=PARTITIONS, records_per_second=300) as stream,
    ):
        for _ in range(3):
            fleet.start()
        wait_until(stable(group, fleet), what="three stable members")
        for _ in range(3):
            before = group.committed(stream.written)
            fleet.kill(fleet.running[0])
            fleet.start()
            wait_until(stable(group, fleet), what="three stable members")
            after = group.committed(stream.written)
            assert all(after[place] >= offset for place, offset in before.items()), (before, after)
        stream.stop()
        wait_until(lambda: group.committed(stream.written) == stream.written, what="the last commits")
        for worker in list(fleet.running):
            fleet.stop(worker)
        ledger = fleet.ledger()

    findings = judge(ledger, written=stream.written)
    assert not findings.wrong, findings.wrong[:5]
    assert ledger.errors() == []
