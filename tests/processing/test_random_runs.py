"""Many random runs of the core with crashes, losses and failures: what ``process()`` promises holds in each."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.work import Work
from tests.processing.harness import Played

PARTITIONS = [NamedPartition("t", number) for number in range(3)]


class Log:
    """A topic, its committed offsets, and what handlers did, over the lives of several owners."""

    def __init__(self, rng: random.Random) -> None:
        self.records: dict[NamedPartition, list[tuple[int, str]]] = {}
        for partition in PARTITIONS:
            offset, rows = 0, []
            for _ in range(rng.randint(0, 60)):
                offset += rng.choice([1, 1, 1, 2, 7])
                rows.append((offset, rng.choice("aabcdef-")))
            self.records[partition] = rows
        self.committed: dict[NamedPartition, tuple[int, str]] = {}
        self.done: dict[NamedPartition, set[int]] = defaultdict(set)
        self.order: dict[tuple[NamedPartition, str], list[int]] = defaultdict(list)
        """Offsets of a lane in the order in which they were first done."""


def play(seed: int) -> None:
    """One run: owners come and go until everything is done."""
    rng = random.Random(seed)
    log = Log(rng)
    for _ in range(200):
        life(log, rng)
        if all(len(log.done[partition]) == len(log.records[partition]) for partition in PARTITIONS):
            break
    else:
        raise AssertionError(f"seed {seed}: something is never done")
    for lane, offsets in log.order.items():
        if lane[1] != "-":
            assert offsets == sorted(offsets), f"seed {seed}: {lane} out of order"


def life(log: Log, rng: random.Random) -> None:
    """One owner of all partitions, from its assignment to a crash, a loss, or an orderly end."""
    cancellable = rng.random() < 0.5
    played = Played(
        rng.randint(1, 8),
        buffer=rng.randint(1, 20),
        timeout_ms=rng.choice([None, 50]),
        cancellable=cancellable,
        renewable=not cancellable and rng.random() < 0.5,
        batch=rng.choice([1, 1, 3]),
        batch_ms=rng.choice([0, 20]),
    )
    core = played.core
    left = {}
    for partition in PARTITIONS:
        offset, marks = log.committed.get(partition, (-1, ""))
        core.assigned(partition, offset, decode_marks(offset, marks) or () if offset >= 0 else ())
        left[partition] = [row for row in log.records[partition] if row[0] >= offset]
    for _ in range(rng.randint(5, 150)):
        step(log, rng, played, left)
        check(log, played)
    if rng.random() < 0.4:
        return  # a crash: nothing more is committed
    core.revoke(PARTITIONS, played.now)
    while core.busy(PARTITIONS) and played.running and rng.random() < 0.9:
        check_status(played)
        end_one(log, rng, played)
    commit(log, played)
    core.forget(PARTITIONS, played.now)
    check_status(played)


def step(log: Log, rng: random.Random, played: Played, left: dict[NamedPartition, list[tuple[int, str]]]) -> None:
    core = played.core
    kind = rng.random()
    if kind < 0.3 and core.may_read:
        core.pauses()
        partition = rng.choice(PARTITIONS)
        if partition not in core.paused:
            rows, left[partition] = left[partition][: (many := rng.randint(1, 4))], left[partition][many:]
            played.take(*[row[0] for row in rows], lanes="".join(row[1] for row in rows), partition=partition)
    elif kind < 0.85 and played.running:
        end_one(log, rng, played)
    elif kind < 0.9:
        commit(log, played)
    elif kind < 0.93 and core._bounds.renewable:
        break_pool(rng, played)
    else:
        played.advance(rng.randint(0, 40))
        core.pauses()
    if played.renewals and (played.running or rng.random() < 0.5):
        break_pool(rng, played)  # what was left in the old one
        played.renewals = 0
        core.renewed(played.now)
        played.perform()
    while played.failed:
        work = played.failed.pop()
        if rng.random() < 0.6:
            core.retry(work, played.now, in_ms=rng.randint(0, 60))
        elif len(work.items) > 1 and rng.random() < 0.5:
            core.split(work, played.now)
        else:  # a dead letter
            note(log, work)
            core.buried(work, played.now)
        played.perform()


def break_pool(rng: random.Random, played: Played) -> None:
    """A worker process dies: all calls end without a result."""
    running = list(played.running.values())
    played.running.clear()
    for work in running:
        played.core.crashed(work, rng.choice([ValueError(), ValueError(), None]), played.now)
    played.perform()
    assert not running or not played.running, "nothing starts without a pool"


def end_one(log: Log, rng: random.Random, played: Played) -> None:
    (number, offset), work = rng.choice(list(played.running.items()))
    counts = work.state == "running"
    if rng.random() < 0.2:
        played.end(offset, partition=PARTITIONS[number], error=ValueError())
    else:
        if counts:
            note(log, work)
        if work.state == "cancelled":
            played.running.pop((number, offset))
            played.core.failed(work, TimeoutError(), played.now)
            played.perform()
        else:
            played.end(offset, partition=PARTITIONS[number])


def note(log: Log, work: Work) -> None:
    partition = work.partition
    for offset in [item.offset for item in work.items]:
        if offset not in log.done[partition]:
            log.done[partition].add(offset)
            lane = next(lane for at, lane in log.records[partition] if at == offset)
            log.order[partition, lane].append(offset)


def commit(log: Log, played: Played) -> None:
    offsets = played.core.to_commit()
    played.core.committed(offsets, played.now)
    for partition, at in offsets.items():
        log.committed[partition] = (at.offset, at.metadata)


def check(log: Log, played: Played) -> None:
    """Nothing that is not done is committed, in the offset or its marks; slots are not exceeded."""
    for partition, (offset, marks) in log.committed.items():
        ranges = decode_marks(offset, marks) or ()
        for at, _ in log.records[partition]:
            if at < offset or any(first <= at < end for first, end in ranges):
                assert at in log.done[partition], f"{partition} at {at} is committed and not done"
    assert len(played.running) <= played.core._bounds.concurrency
    assert len(played.running) == 1 or not any(work.alone for work in played.running.values())
    check_status(played)


def check_status(played: Played) -> None:
    """The status, which looks at few records, says what counting the records says."""
    core = played.core
    works = [(work.state, len(work.items)) for work in core._works.values()]
    queues = [(lane.busy, len(lane.waiting)) for part in core._partitions.values() for lane in part.lanes.values()]
    status = core.status(played.now)
    counted = (
        sum(count for state, count in works if state in {"running", "cancelled"}),
        sum(not busy and count > 0 for busy, count in queues),
        sum(count - (not busy and count > 0) for busy, count in queues),
        sum(count for state, count in works if state == "waiting"),
        sum(count for state, count in works if state == "ended"),
        sum(count for state, count in works if state == "producing"),
    )
    seen = (
        *(status.running, status.waiting_slot, status.waiting_lane, status.waiting_retry),
        *(status.waiting_dead_letter, status.waiting_output),
    )
    assert seen == counted
    in_hand = [item for work in core._works.values() for item in work.items]
    in_hand += [item for part in core._partitions.values() for lane in part.lanes.values() for item in lane.waiting]
    assert (status.oldest is None) == (not in_hand)
    assert status.oldest_s * 1000 == max((played.now - item.taken_ms for item in in_hand), default=0)


@pytest.mark.parametrize("block", range(10))
def test_random_runs_keep_what_is_promised(block: int) -> None:
    """Every record is done at least once, lanes keep their order, and no commit passes a record in hand."""
    for seed in range(block * 30, block * 30 + 30):
        play(seed)
