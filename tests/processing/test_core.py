"""The core of ``process()``: order, retries, commits, revocations, back-pressure."""

from __future__ import annotations

import random

import pytest

from kip848_client.common.model import OffsetAndMetadata
from kip848_client.member.processing.marks import decode_marks, encode_marks
from kip848_client.member.processing.work import Item
from tests.processing.harness import P, Played, Q

NO = ValueError("no")


def test_records_of_one_lane_run_one_after_the_other() -> None:
    """One key, many slots: strictly in order."""
    played = Played(10)
    played.take(*range(5), lanes="aaaaa")
    for offset in range(5):
        assert played.started == [*range(offset + 1)]
        played.end(offset)


def test_lanes_and_records_without_a_lane_run_at_once() -> None:
    """Different keys, and records without a key, do not wait for each other; slots are the limit."""
    played = Played(4)
    played.take(*range(6), lanes="abc---")
    assert played.started == [0, 1, 2, 3]
    played.end(1)
    assert played.started == [0, 1, 2, 3, 4]


def test_partitions_take_turns() -> None:
    """A partition with many records does not keep another one waiting."""
    played = Played(1)
    played.take(0)
    played.take(1, 2, 3)
    played.take(0, partition=Q)
    played.end(0)
    played.end(1)
    assert played.started == [0, 1, 0]


def test_a_commit_does_not_pass_a_record_in_hand() -> None:
    """What is done behind it travels as marks; a new owner handles only the rest, though offsets have gaps."""
    played = Played(10)
    played.core.assigned(P, 0)
    played.take(0, 3, 4, 9)
    played.end(3, 4, 9)
    assert played.commit() == (0, [(3, 10)])
    assert played.commit() is None, "nothing has changed"
    other = Played(10)
    other.core.assigned(P, 0, [(3, 10)])
    other.take(0, 3, 4, 9, 12)
    assert other.started == [0, 12]
    other.end(0, 12)
    assert other.commit() == (13, [])


def test_alternating_marks_hold_starts_back_before_they_are_too_long() -> None:
    """Metadata is bounded: no record above what it holds is started, until the first one is done."""
    played = Played(2, buffer=100_000, metadata_bytes=60)
    played.take(*range(3000), lanes="".join("a" if offset % 2 == 0 else "-" for offset in range(3000)))
    while (0, played.started[-1]) in played.running and played.started[-1] != 0:
        played.end(played.started[-1])
    assert len(played.started) < 2000
    text = played.core.to_commit()[P].metadata
    assert len(decode_marks(0, text) or ()) == played.started[-1] // 2 + 1
    played.end(0)
    assert 2 in played.started[-2:]


@pytest.mark.parametrize("seed", range(20))
def test_marks_hold_all_that_is_done_in_whichever_order_calls_end(seed: int) -> None:
    """What a commit has no room for is handled again after an orderly end."""
    rng = random.Random(seed)
    room = rng.choice([20, 64, 200, 1_000])
    played = Played(rng.choice([5, 50, 500]), buffer=100_000, metadata_bytes=room)
    played.core.assigned(P, 0, [(3, 5), (7, 10)])
    offset = 0
    for _ in range(60):
        for _ in range(40):
            offset += rng.choice([1, 1, 1, 2, 100])
            played.take(offset, lanes=rng.choice("--ab"))
        running = sorted(played.running)
        kept = rng.sample(running, min(len(running), 2))
        played.end(*[at for _, at in rng.sample(running, rng.randint(0, len(running))) if (0, at) not in kept])
        progress = played.core._partitions[P].progress
        assert encode_marks(progress.low_mark, progress.done_beyond, bytes_max=room)[1]
    while played.running:
        played.end(*[at for _, at in played.running])
    assert len(played.started) >= 2_400 - 5, "nothing is held back for ever"


def test_a_failed_record_waits_alone() -> None:
    """The retry of one key delays neither other keys nor, after it, its own order."""
    played = Played(10)
    played.take(0, 1, 2, lanes="aab")
    played.end(0, error=NO)
    played.core.retry(played.failed[0], played.now, in_ms=100)
    played.end(2)
    assert played.started == [0, 2]
    played.advance(100)
    assert played.started == [0, 2, 0]
    assert played.running[0, 0].attempt == 2
    played.end(0)
    assert played.started == [0, 2, 0, 1]


def test_a_due_retry_goes_before_new_records() -> None:
    """Under a steady stream of records a failed one is tried again in time."""
    played = Played(1)
    played.take(0, 1, 2)
    played.end(0, error=NO)
    played.core.retry(played.failed[0], played.now, in_ms=0)
    played.end(1)
    assert played.started == [0, 1, 0]


def test_a_commit_waits_for_the_dead_letter() -> None:
    """A record is in one of two places before the commit passes it."""
    played = Played(10)
    played.core.assigned(P, 0)
    played.take(0, 1, lanes="aa")
    played.end(0, error=NO)
    assert played.started == [0], "its lane waits, too"
    assert played.commit() is None
    played.core.buried(played.failed[0], played.now)
    played.perform()
    assert played.commit() == (1, [])
    assert played.started == [0, 1]


def test_a_stop_starts_nothing_more() -> None:
    """After a failure for good, what is done is committed and the failed record is not."""
    played = Played(2)
    played.take(*range(6))
    played.end(0, error=NO)
    played.core.stop()
    played.core.give_up(played.failed[0], played.now)
    played.end(1)
    assert played.commit() == (0, [(1, 2)])
    assert set(played.started) <= {0, 1, 2}


def test_a_stop_does_not_wait_for_records_that_are_to_be_tried_again() -> None:
    """Else the end waits for grace_s, busily: a retry that was due would be due for ever."""
    played = Played(2)
    played.take(0)
    played.end(0, error=NO)
    played.core.retry(played.failed[0], played.now, in_ms=10)
    played.core.stop()
    played.advance(20)
    assert not played.core.busy([P])
    assert played.core.next_due_ms() is None
    assert played.commit() is None


def test_a_revocation_lets_running_calls_end_and_commits_them() -> None:
    """The next owner repeats nothing that had begun, and begins with what had not."""
    played = Played(2)
    played.take(*range(6))
    played.core.revoke([P], played.now)
    assert played.core.busy([P])
    played.end(1, 0)
    assert not played.core.busy([P])
    assert played.started == [0, 1]
    assert played.commit() == (2, [])


def test_a_retry_is_left_to_the_next_owner() -> None:
    """It would wait for longer than the revocation may take."""
    played = Played(2)
    played.take(0, 1)
    played.end(0, error=NO)
    played.core.retry(played.failed[0], played.now, in_ms=60_000)
    played.end(1)
    played.core.revoke([P], played.now)
    assert not played.core.busy([P])
    assert played.commit() == (0, [(1, 2)])


def test_other_partitions_go_on_in_a_revocation() -> None:
    """A rebalance stops only what moves."""
    played = Played(2)
    played.take(0, 1)
    played.take(0, 1, partition=Q)
    played.core.revoke([P], played.now)
    played.end(0)
    played.end(0, partition=Q)
    assert (1, 1) in played.running


def test_results_after_a_loss_are_ignored() -> None:
    """The partition may be another member's: nothing of it is committed, also if it comes back."""
    played = Played(2)
    played.take(0, 1)
    played.core.forget([P], played.now)
    played.perform()
    assert sorted(played.cancelled) == [0, 1]
    played.core.assigned(P, 0)
    played.end(0, 1)
    assert played.commit() is None
    played.take(0, 1)
    assert played.started == [0, 1, 0, 1]


def test_a_call_that_takes_too_long_is_cancelled_and_counts_as_failed() -> None:
    """timeout_s."""
    played = Played(2, timeout_ms=1000, grace_ms=100)
    played.take(0)
    played.advance(1000)
    assert played.cancelled == [0]
    played.end(0, error=TimeoutError())
    assert [work.items[0].offset for work in played.failed] == [0]


@pytest.mark.parametrize("cancellable", [True, False])
def test_a_call_that_does_not_end_loses_its_record_and_keeps_its_slot(cancellable: bool) -> None:
    """A thread, or a task that swallows its cancellation: others go on, and the end comes when all slots are gone."""
    played = Played(2, timeout_ms=1000, grace_ms=100, cancellable=cancellable)
    played.take(*range(3))
    played.advance(500)
    played.end(1)
    assert played.started == [0, 1, 2]
    played.advance(500)
    played.advance(100 if cancellable else 0)
    assert [work.items[0].offset for work in played.failed] == [0]
    assert not played.given_up
    played.core.buried(played.failed[0], played.now, skipped=True)
    late = played.running.pop((0, 0))
    played.core.succeeded(late, played.now)
    played.end(2)
    assert played.commit() == (3, [])


def test_all_slots_abandoned_is_an_end() -> None:
    """Nothing could go on: process() must say so, and not stand still for ever; but calls that are late may end yet."""
    played = Played(2, timeout_ms=1000, grace_ms=100, cancellable=False)
    played.take(*range(3))
    played.advance(1000)
    played.advance(99)
    assert not played.given_up
    played.advance(1)
    assert played.given_up


def test_more_slots_end_a_stand_still() -> None:
    """Whoever raises the concurrency because nothing goes on must not see process() end all the same."""
    played = Played(2, timeout_ms=1000, grace_ms=100, cancellable=False)
    played.take(*range(3))
    played.advance(1000)
    played.change(concurrency=3)
    assert played.started == [0, 1, 2]
    played.advance(100)
    assert not played.given_up


def test_a_late_end_is_no_end_of_a_stand_still_with_fewer_slots() -> None:
    """Two calls do not end, and there is one slot: process() would stand still without a word."""
    played = Played(3, timeout_ms=1000, grace_ms=100, cancellable=False)
    played.take(0, 1, 2)
    played.change(concurrency=1)
    played.advance(1000)
    played.end(0)
    played.advance(99)
    assert not played.given_up
    played.advance(1)
    assert played.given_up


def test_a_full_buffer_stops_reading_and_pauses_nothing_while_slots_are_taken() -> None:
    """Memory is bounded, and librdkafka keeps what it has fetched."""
    played = Played(2, buffer=4)
    played.take(*range(4))
    assert (played.core.may_read, played.core.pauses()) == (False, (set(), set()))
    played.end(0)
    assert played.core.may_read


def test_a_partition_whose_records_wait_for_each_other_is_paused_for_the_others() -> None:
    """A hot key fills the buffer with free slots left: other partitions are read."""
    played = Played(10, buffer=8)
    played.core.assigned(Q, 0)
    played.take(*range(8), lanes="aaaaaaaa")
    assert (played.core.may_read, played.core.pauses()) == (False, ({P}, set()))
    assert played.core.may_read
    played.take(0, partition=Q)
    assert (1, 0) in played.running
    for offset in range(6):
        played.end(offset)
    assert played.core.pauses() == (set(), {P})


def test_large_records_fill_the_buffer_by_their_bytes() -> None:
    """64 MiB, whatever the number of records."""
    played = Played(10, buffer=1000, buffer_bytes=3 << 20)
    played.take(*range(3), size=1 << 20)
    assert not played.core.may_read


def test_hot_keys_in_all_partitions_fill_the_buffer_and_no_more() -> None:
    """Once one partition was paused the others were read for ever: gigabytes in hand, with slots free."""
    played = Played(10, buffer=8)
    played.core.assigned(Q, 0)
    offsets = {P: 0, Q: 0}
    for _ in range(100):
        played.core.pauses()
        if played.core.may_read:
            read = next(name for name in offsets if name not in played.core.paused)
            played.take(offsets[read], lanes="a", partition=read)
            offsets[read] += 1
    assert offsets == {P: 8, Q: 4}, "all of the buffer, and then the share of the other one"


def test_large_records_are_read_until_their_bytes_fill_the_buffer() -> None:
    """Their number says nothing: one read brought 500 of them, and slots that are free are no reason for more."""
    played = Played(100, buffer_bytes=10_000_000)
    for name in (P, Q):
        played.core.assigned(name, 0)
    sizes = []
    for offset in range(100):
        played.core.pauses()
        if played.core.may_read:
            sizes.append(played.core.room_bytes)
            played.take(offset, size=4_000_000, partition=(P, Q)[offset % 2])
    assert sizes == [10_000_000, 6_000_000, 2_000_000]
    assert played.core.pauses() == (set(), set()), "they run, and do not wait for each other"


def test_a_hot_key_of_large_records_leaves_room_for_other_partitions() -> None:
    """Its records wait for each other; all the others would wait for them, too."""
    played = Played(100, buffer=1_000, buffer_bytes=1_000_000)
    played.core.assigned(Q, 0)
    for offset in range(6):
        played.take(offset, lanes="a", size=100_000)
    assert played.core.pauses() == ({P}, set())
    assert played.core.may_read
    played.take(0, size=100_000, partition=Q)
    assert (1, 0) in played.running
    played.end(0, 1, 2, 3)
    assert played.core.pauses() == (set(), {P})


def test_batches_wait_for_records_or_time() -> None:
    """Bulk inserts: as many as asked for at once, or what is there after the wait; in order, of one lane."""
    played = Played(10, batch=3, batch_ms=50, buffer=100)
    played.take(*range(5), lanes="aaaab")
    assert [item.offset for item in played.running[0, 0].items] == [0, 1, 2]
    played.advance(50)
    assert [item.offset for item in played.running[0, 4].items] == [4]
    assert (0, 3) not in played.running, "its lane is busy"
    played.end(0)
    played.advance(50)
    assert [item.offset for item in played.running[0, 3].items] == [3]
    played.end(3, 4)
    assert played.commit() == (5, [])


def test_memory_does_not_grow_with_what_is_done_beyond() -> None:
    """One slow record and a million done ones behind it: one run."""
    played = Played(2, buffer=10)
    for offset in range(20_000):
        played.take(offset)
        if offset:
            played.end(offset)
    progress = played.core._partitions[P].progress
    assert progress.runs == 1
    assert encode_marks(0, progress.done_beyond, bytes_max=100)[1]


def test_nothing_of_a_call_that_has_ended_is_kept_until_its_time_out() -> None:
    """With timeout_s=3600, an hour of records would stay in memory."""
    played = Played(2, timeout_ms=3_600_000)
    played.take(0, 1)
    played.end(0, 1)
    assert played.core.next_due_ms() is None


def test_a_call_that_a_revocation_cancels_has_not_timed_out() -> None:
    """The time of its first attempt must not end the second one: it would go to the dead letters."""
    played = Played(2, timeout_ms=1000)
    played.take(0)
    played.advance(900)
    played.end(0, error=NO)
    played.core.retry(played.failed[0], played.now, in_ms=0)
    played.advance(0)
    played.core.revoke([P], played.now)
    played.core.cancel([P])
    played.advance(100)
    assert len(played.failed) == 1


def test_slots_that_a_loss_leaves_taken_are_an_end_too() -> None:
    """A partition was lost while its handlers hung: the next owner of the slots would wait for ever."""
    played = Played(1, grace_ms=100, cancellable=False)
    played.take(0)
    played.core.forget([P], played.now)
    played.take(0, partition=Q)
    played.advance(100)
    assert played.given_up


def test_a_position_without_a_committed_offset_is_committed_before_anything_is_done() -> None:
    """With auto.offset.reset=latest, the next owner would skip the record in hand, and what came meanwhile."""
    played = Played(2)
    played.core.assigned(P, -1)
    played.core.assigned(Q, -1)
    played.core.begins_at(Q, 7)
    played.take(5)
    assert played.core.to_commit() == {P: OffsetAndMetadata(5, metadata=""), Q: OffsetAndMetadata(7, metadata="")}
    assert not played.core.without_position


def test_marks_of_an_earlier_owner_are_committed_again() -> None:
    """Two rebalances in a row: what was done before both, and not read again between them, is not repeated."""
    played = Played(2)
    played.core.assigned(P, 0, [(3, 10), (20, 30)])
    assert played.commit() is None
    played.take(0, 1, 3)
    played.end(0)
    assert played.commit() == (1, [(3, 10), (20, 30)])
    played.end(1)
    assert played.commit() == (4, [(4, 10), (20, 30)])


def test_marks_are_forgotten_when_the_log_begins_anew() -> None:
    """After an unclean election, or in a topic that was created again, the same offsets are other records."""
    played = Played(10)
    played.core.assigned(P, 100, [(103, 110)])
    played.take(*range(3), 105)
    assert played.started == [0, 1, 2, 105]


def test_a_topic_that_is_created_again_begins_anew_beside_what_is_in_hand() -> None:
    """Offsets of the old log made no commit of the new one possible, and process() ended with an obscure error."""
    played = Played()
    played.core.assigned(P, 100)
    played.take(100, 101, 102, lanes="abc")
    played.end(101)
    played.take(0, 1, 2, lanes="ade")
    assert played.started == [100, 101, 102, 1, 2], "order by key holds across the two"
    played.end(1)
    assert played.commit() == (0, [(1, 2)])
    played.end(100, 102)
    played.end(0)
    assert played.commit() == (2, [])


def commit_to_a_broker(played: Played, allowed: int, *, asks: bool = True) -> tuple[int, OffsetAndMetadata | None]:
    """Commit until nothing is to follow at once: how often, and what the broker has in the end."""
    stored = None
    for count in range(1, 30):
        offsets = played.core.to_commit(asks=asks)
        if any(len(at.metadata) > allowed for at in offsets.values()):
            again = played.core.refused(offsets, played.now)
        else:
            stored = offsets.get(P, stored)
            again = played.core.committed(offsets, played.now)
        played.perform()
        if not again:
            return count, stored
    raise AssertionError("it asks for ever")


@pytest.mark.parametrize("allowed", [0, 10, 20, 64, 65, 1_000, 4_095, 4_096, 10_000])
def test_commits_find_out_how_much_metadata_the_broker_takes(allowed: int) -> None:
    """It was found by halving, one interval a step: an orderly end repeated nine records of ten."""
    played = Played(5_000, buffer=10_000, metadata_known=False)
    played.core.assigned(P, 0)
    played.take(*range(5_000))
    assert len(played.started) < 400, "not further than each broker takes"
    assert played.core.commit_urgent
    count, _ = commit_to_a_broker(played, allowed)
    assert count <= 12
    assert max(0, min(allowed, 4_096) - 24) <= played.core.metadata_limit.sure <= allowed
    assert (len(played.started) > 400) == (allowed >= 1_000)
    done = [at for _, at in played.running if at % 3 == 1]
    played.end(*done)
    _, stored = commit_to_a_broker(played, allowed, asks=False)
    if allowed >= 64:
        assert stored is not None
        assert list(decode_marks(0, stored.metadata) or ()) == [(at, at + 1) for at in done]


def test_a_last_commit_does_not_begin_to_ask() -> None:
    """A job that ends at once leaves no metadata that says nothing."""
    played = Played(2, metadata_known=False)
    played.core.assigned(P, 0)
    played.take(0)
    played.end(0)
    assert played.core.to_commit() == {P: OffsetAndMetadata(1)}


def test_another_broker_may_take_less_metadata() -> None:
    """A coordinator moves in the middle of a rolling change of the setting."""
    played = Played(2)
    played.core.assigned(P, 0)
    played.take(0, 1, 2)
    played.end(0, 2)
    count, stored = commit_to_a_broker(played, 5)
    assert (count, stored) == (2, OffsetAndMetadata(1)), "committed, without marks"


def test_a_failed_batch_is_split_in_its_order() -> None:
    """One bad record no longer takes the others of its batch along; what came after them waits behind them."""
    played = Played(10, batch=3, batch_ms=50, buffer=100)
    played.take(0, 1, 2, 3, lanes="aaaa")
    played.end(0, error=ValueError())
    played.core.split(played.failed.pop(), played.now)
    played.perform()
    assert [item.offset for item in played.running[0, 0].items] == [0]
    played.end(0)
    played.end(1, error=ValueError())
    played.core.buried(played.failed.pop(), played.now)
    played.perform()
    played.end(2)
    assert played.commit() == (3, [])
    played.advance(50)
    assert [item.offset for item in played.running[0, 3].items] == [3]
    assert played.started == [0, 0, 1, 2, 3]


def test_a_status_looks_at_few_of_the_records_in_hand() -> None:
    """With 20,000 in hand it took 17 ms, thirteen times for each scrape, beside the event loop."""
    looked: list[str] = []

    class Watched(Item):
        def __getattribute__(self, name: str) -> object:
            looked.append(name)
            return super().__getattribute__(name)

    played = Played(100, buffer=1_000)
    played.core.arrived([Watched(P, offset, None, 1, offset) for offset in range(1_000)], 0)
    played.perform()
    looked.clear()
    status = played.core.status(5_000)
    assert len(looked) < 10
    assert (status.running, status.waiting_slot, status.oldest, status.oldest_s) == (100, 900, ("t", 0, 0), 5)


# --- pools of processes that break


def _crash(played: Played, *offsets: int) -> None:
    """The pool breaks with these calls in hand."""
    for offset in offsets:
        played.core.crashed(played.running.pop((0, offset)), NO, played.now)
    played.perform()


def test_a_broken_pool_lets_its_calls_run_again_one_by_one() -> None:
    """The record that breaks the pool alone has failed; the others are done, and then many run at once again."""
    played = Played(3, renewable=True)
    played.take(*range(6))
    _crash(played, 0, 1, 2)
    assert played.renewals == 1
    assert played.running == {}, "nothing runs without a pool"
    played.core.renewed(played.now)
    played.perform()
    assert played.started == [0, 1, 2, 0]
    played.end(0)
    assert played.started[4:] == [1]
    _crash(played, 1)
    assert [work.items[0].offset for work in played.failed] == [1]
    assert played.renewals == 2
    played.core.renewed(played.now)
    played.perform()
    assert played.started[5:] == [2]
    played.end(2)
    assert played.started[6:] == [3, 4, 5]


def test_a_call_that_broke_its_pool_alone_is_tried_again_alone() -> None:
    """Its retry would break the pool for the records beside it, again and again."""
    played = Played(2, renewable=True)
    played.take(0, 1, 2)
    _crash(played, 0, 1)
    played.core.renewed(played.now)
    played.perform()
    _crash(played, 0)
    played.core.retry(played.failed.pop(), played.now, in_ms=10)
    played.core.renewed(played.now)
    played.perform()
    played.end(1)
    assert played.started == [0, 1, 0, 1, 2]
    played.advance(10)
    assert played.started == [0, 1, 0, 1, 2], "it waits for the other one"
    assert played.core.next_due_ms() is None
    played.end(2)
    played.take(3)
    assert played.started == [0, 1, 0, 1, 2, 0]
    played.end(0)
    assert played.started[6:] == [3]
    assert played.core.status(played.now).retries == 1


def test_a_suspect_that_hangs_is_ended_with_its_pool() -> None:
    """The others would wait for its end for ever."""
    played = Played(2, renewable=True, cancellable=False, timeout_ms=100)
    played.take(0, 1)
    _crash(played, 0, 1)
    played.core.renewed(played.now)
    played.perform()
    played.advance(100)
    assert [work.items[0].offset for work in played.failed] == [0]
    assert played.renewals == 2
    _crash(played, 0)
    assert played.renewals == 2
    played.core.renewed(played.now)
    played.perform()
    assert played.started == [0, 1, 0, 1]


def test_a_pool_whose_processes_all_hang_is_made_anew() -> None:
    """Threads that hang end process(), as they cannot be ended; processes can."""
    played = Played(2, renewable=True, cancellable=False, timeout_ms=100, grace_ms=50)
    played.take(0, 1)
    played.advance(100)
    assert played.renewals == 0
    played.advance(50)
    assert played.renewals == 1
    assert not played.given_up


@pytest.mark.parametrize("end", ["revoke", "stop", "forget"])
def test_suspects_of_partitions_that_are_given_away_do_not_run_again(end: str) -> None:
    """Their next owner begins with them; other partitions go on."""
    played = Played(3, renewable=True)
    played.take(0, 1)
    played.take(7, partition=Q)
    for key in [(0, 0), (0, 1), (1, 7)]:
        played.core.crashed(played.running.pop(key), NO, played.now)
    if end == "stop":
        played.core.stop()
    elif end == "revoke":
        played.core.revoke([P], played.now)
    else:
        played.core.forget([P], played.now)
    played.core.renewed(played.now)
    played.perform()
    assert not played.core.busy([P])
    assert played.started[3:] == ([] if end == "stop" else [7])


def test_a_call_that_had_not_begun_when_its_pool_broke_is_no_failure() -> None:
    """The pool may break while a suspect is on its way there."""
    played = Played(1, renewable=True)
    played.take(0)
    for _ in range(3):
        played.core.crashed(played.running.pop((0, 0)), None, played.now)
        played.core.renewed(played.now)
        played.perform()
    assert played.failed == []
    played.end(0)
    assert played.commit() == (1, [])
