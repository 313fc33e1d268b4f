"""``process(transactional=...)`` in the core: what a transaction holds, and when it is due."""

from __future__ import annotations

import random

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.outbox import Outbox, Slice, cover
from kip848_client.member.processing.progress import PartitionProgress
from kip848_client.member.processing.work import Item, Work
from tests.processing.harness import P, Played, Q

RECORDS, WAIT_MS = 4, 200


def played(concurrency: int = 10, **limits: int) -> Played:
    return Played(concurrency, slice_records=RECORDS, slice_ms=WAIT_MS, **limits)


def take(core: Played) -> tuple[Slice, list[int], dict[NamedPartition, tuple[int, str]]]:
    """A slice, with the offsets of its records, and its commits."""
    slice_ = core.core.take_slice(core.now)
    core.perform()
    assert slice_ is not None
    done = [item.offset for work in slice_.works for item in work.items]
    return slice_, done, {name: (at.offset, at.metadata) for name, at in slice_.offsets.items()}


def end(core: Played, slice_: Slice, again_in_ms: int | None = None) -> None:
    """Let its transaction be committed, or aborted."""
    core.core.slice_ended(slice_, core.now, again_in_ms=again_in_ms)
    core.perform()


def test_a_transaction_is_due_by_time_or_by_records() -> None:
    """Results of a quiet topic are seen soon, and those of a busy one share the cost of a transaction."""
    core = played()
    core.take(0, 1, 2, 3)
    core.advance(7)
    core.end(0)
    assert core.core.slice_due_ms() == 7 + WAIT_MS
    core.end(1, 2, 3)
    assert core.core.slice_due_ms() == 0
    assert take(core)[1:] == ([0, 1, 2, 3], {P: (4, "")})
    assert core.core.slice_due_ms() is None


def test_a_slow_record_holds_up_no_transaction_and_is_not_in_it() -> None:
    """One call that takes a minute must not delay the results of the others, nor be taken for done."""
    core = played()
    core.take(0, 1, 2)
    core.end(1, 2)
    _, done, commits = take(core)
    assert done == [1, 2]
    assert commits[P][0] == 0
    assert decode_marks(0, commits[P][1]) == [(1, 3)]


def test_nothing_starts_while_a_full_slice_waits_for_the_transaction_before_it() -> None:
    """While no broker answers memory stays bounded, and the rest is handled later."""
    core = played(concurrency=4, buffer=100)
    core.take(*range(20))
    core.end(0, 1, 2, 3)
    first, _, _ = take(core)
    core.end(4, 5, 6, 7)
    assert core.started == list(range(11))
    end(core, first)
    take(core)
    assert core.started == list(range(12))


def test_an_aborted_transaction_is_written_again_with_what_was_done_since() -> None:
    """A broker that restarts costs a transaction, not a second call of each handler."""
    core = played()
    core.take(0, 1)
    core.end(0)
    first, _, _ = take(core)
    core.end(1)
    end(core, first, again_in_ms=50)
    assert core.core.slice_due_ms() == 50
    second, done, commits = take(core)
    assert (done, commits) == ([0, 1], {P: (2, "")})
    end(core, second)
    assert core.core.outbox is not None
    assert core.core.outbox.empty


def test_what_was_done_of_lost_partitions_is_not_written() -> None:
    """Their new owner handles these records: written here, too, their results would be there twice."""
    core = played()
    core.take(0)
    core.take(0, partition=Q)
    core.end(0)
    core.end(0, partition=Q)
    core.core.forget([P], core.now)
    assert take(core)[1:] == ([0], {Q: (1, "")})


def test_an_aborted_and_unfinished_end_goes_back_to_the_last_transaction() -> None:
    """Who reads on after process() must get all records whose results were not written."""
    core = played()
    core.take(5, 6, 7)
    core.end(5)
    end(core, take(core)[0])
    core.end(6)
    assert core.core.low_marks() == {P: 6}


def test_a_transaction_holds_no_record_that_its_marks_cannot_call_done() -> None:
    """Results that are written while the commit does not say so are written once more by the next owner."""
    for seed in range(20):
        rng = random.Random(seed)
        progress = PartitionProgress(0)
        committed: set[int] = set()
        said: set[int] = set()
        open_works: list[Work] = []
        offsets = sorted(rng.sample(range(3_000), 300))
        numbers = {offset: progress.deliver(offset) for offset in offsets}
        left = offsets[1:]  # the first one never ends
        while left or open_works:
            for _ in range(rng.randint(1, 40)):
                if left:
                    batch = sorted(rng.sample(left, min(len(left), rng.randint(1, 3))))
                    left = [offset for offset in left if offset not in batch]
                    for offset in batch:
                        number = numbers[offset]
                        assert number is not None
                        progress.done(number)
                    open_works.append(Work([Item(P, offset, None, 1, offset) for offset in batch], P, 1))
            before = len(open_works)
            at, held_back = cover(progress, open_works, bytes_max=60)
            for work in open_works:
                if work not in held_back:
                    committed.update(item.offset for item in work.items)
            if at is not None:
                marked = decode_marks(at.offset, at.metadata) or ()
                said = {o for o in offsets if o < at.offset or any(first <= o < end for first, end in marked)}
            assert said == committed, f"seed {seed}"
            open_works = held_back
            if len(open_works) == before and not left:
                break


def test_an_outbox_whose_works_do_not_fit_is_not_due_for_ever() -> None:
    """Marks that are full until the oldest record is done must not cost one empty transaction after the other."""
    outbox = Outbox(1, WAIT_MS)
    work = Work([Item(P, 3, None, 1, 3)], P, 1)
    outbox.add(work, 0)
    outbox.send([], held_back=outbox.take())
    outbox.committed()
    assert outbox.due_ms is None
    assert not outbox.full
    assert outbox.holds(P)
