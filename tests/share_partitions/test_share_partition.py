"""Records in flight (KIP-932): who gets which record, how often, and when it is done with."""

from __future__ import annotations

import time

import msgspec
import pytest

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import (
    AcknowledgementBatch,
    BatchOffsets,
    Change,
    RecordState,
    SharePartition,
    StateBatch,
)

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


class Queue:
    """A share partition over a log of batches of ten records, with everything kept at once."""

    def __init__(
        self, *, batches: int = 3, start_offset: int = 0, kept: tuple[StateBatch, ...] = (), **settings: object
    ) -> None:
        self.partition = SharePartition(start_offset=start_offset, batches=kept)
        self.settings = msgspec.structs.replace(ShareSettings(), **settings)
        self.log = [BatchOffsets(first, first + 9) for first in range(0, 10 * batches, 10)]
        self.now_ms = 0

    def acquire(
        self,
        member: str,
        most: int = 500,
        *,
        limit: bool = False,
        batch_size: int = 500,
        aborted: tuple[BatchOffsets, ...] = (),
    ) -> list[tuple[int, int, int]]:
        """First offset, last offset and delivery count of what the member got."""
        offset = self.partition.next_fetch_offset()
        if not self.partition.can_acquire(self.settings):
            return []
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for each in self.partition.acquire(
                member,
                [batch for batch in self.log if batch.last >= offset],
                fetch_offset=offset,
                max_records=most,
                batch_size=batch_size,
                record_limit=limit,
                settings=self.settings,
                now_ms=self.now_ms,
                aborted=aborted,
            )
        ]

    def say(self, member: str, first: int, last: int, *types: int) -> Change:
        change = self.partition.acknowledge(
            member, [AcknowledgementBatch(first, last, types)], settings=self.settings, now_ms=self.now_ms
        )
        return self.keep(change)

    def keep(self, change: Change) -> Change:
        self.partition.settle(change, kept=True)
        return change

    def pass_time(self, ms: int) -> Change:
        self.now_ms += ms
        return self.keep(self.partition.expire(now_ms=self.now_ms, settings=self.settings))

    def states(self) -> list[tuple[int, int, str, int, str]]:
        return [
            (each.first_offset, each.last_offset, each.state.name, each.delivery_count, each.owner)
            for each in self.partition.in_flight()
        ]


def test_two_members_never_have_the_same_record() -> None:
    """Two workers would do the same job twice."""
    queue = Queue()
    assert queue.acquire("a", 10) == [(0, 9, 1)]
    assert queue.acquire("b", 15) == [(10, 29, 1)]  # whole batches of the log
    assert queue.acquire("c") == []
    assert queue.partition.end_offset == 30


def test_an_accepted_record_moves_the_start_when_those_before_it_are_done_with() -> None:
    """Records in the middle are remembered, or a crash would deliver them again."""
    queue = Queue()
    queue.acquire("a", 10)
    assert queue.say("a", 3, 5, ACCEPT).batches == (StateBatch(3, 5, RecordState.ACKNOWLEDGED, 1),)
    assert (queue.partition.start_offset, queue.partition.delivery_complete_count) == (0, 3)
    queue.say("a", 0, 2, ACCEPT)
    assert (queue.partition.start_offset, queue.partition.delivery_complete_count) == (6, 0)
    queue.say("a", 6, 9, ACCEPT)
    assert (queue.partition.start_offset, queue.partition.end_offset, queue.states()) == (10, 10, [])


def test_a_released_record_is_delivered_again_and_archived_after_the_last_delivery() -> None:
    """A poison record that is delivered for ever keeps a worker busy for ever."""
    queue = Queue(batches=1, delivery_count_limit=2)
    queue.acquire("a")
    queue.say("a", 0, 8, ACCEPT)
    queue.say("a", 9, 9, RELEASE)
    assert queue.acquire("b") == [(9, 9, 2)]
    assert queue.say("b", 9, 9, RELEASE).batches == (StateBatch(9, 9, RecordState.ARCHIVED, 2),)
    assert queue.acquire("c") == []
    assert queue.partition.start_offset == 10


def test_each_record_of_an_acknowledgement_has_a_type_of_its_own() -> None:
    """A worker accepts some records of a batch and gives others back, in one request."""
    queue = Queue(batches=1)
    queue.acquire("a")
    queue.say("a", 0, 9, ACCEPT, ACCEPT, RELEASE, REJECT, ACCEPT, 0, 0, 0, ACCEPT, ACCEPT)
    assert queue.states() == [
        (2, 2, "AVAILABLE", 1, ""),
        (3, 3, "ARCHIVED", 1, ""),
        (4, 4, "ACKNOWLEDGED", 1, ""),
        (5, 7, "ARCHIVED", 1, ""),
        (8, 9, "ACKNOWLEDGED", 1, ""),
    ]
    assert queue.partition.delivery_complete_count == 7
    assert queue.acquire("b") == [(2, 2, 2)]


@pytest.mark.parametrize(
    ("member", "first", "last", "code"),
    [
        ("b", 0, 9, ErrorCode.INVALID_RECORD_STATE),
        ("a", 10, 10, ErrorCode.INVALID_REQUEST),
        ("a", 5, 10, ErrorCode.INVALID_REQUEST),
    ],
)
def test_only_the_owner_of_a_record_acknowledges_it(member: str, first: int, last: int, code: ErrorCode) -> None:
    """A worker that lost its records to another one must not finish them."""
    queue = Queue()
    queue.acquire("a", 10)
    before = queue.states()
    with pytest.raises(BrokerError) as raised:
        queue.say(member, first, last, ACCEPT)
    assert raised.value.code == code
    assert queue.states() == before


def test_an_acknowledgement_counts_as_a_whole_or_not_at_all() -> None:
    """Half of an acknowledgement that was refused would lose records."""
    queue = Queue(batches=1)
    queue.acquire("a")
    before = queue.states()
    said = [AcknowledgementBatch(0, 5, (ACCEPT,)), AcknowledgementBatch(5, 9, (RELEASE,))]  # 5 is named twice
    with pytest.raises(BrokerError):
        queue.partition.acknowledge("a", said, settings=queue.settings, now_ms=0)
    assert queue.states() == before


def test_a_change_that_could_not_be_kept_is_taken_back() -> None:
    """With a full disk a record that was accepted in memory alone would come again after a restart, unexpectedly."""
    queue = Queue(batches=1)
    queue.acquire("a")
    before = queue.states()
    change = queue.partition.acknowledge(
        "a", [AcknowledgementBatch(2, 4, (ACCEPT,))], settings=queue.settings, now_ms=0
    )
    queue.partition.settle(change, kept=False)
    assert queue.states() == before


def test_a_lock_ends_after_its_time_and_a_renewed_one_later() -> None:
    """A worker that hangs must not keep its records; one that is slow and says so keeps them."""
    queue = Queue(batches=1, record_lock_duration_ms=1000)
    queue.acquire("a")
    queue.now_ms = 900
    queue.say("a", 0, 4, RENEW)
    assert queue.partition.deadline_ms() == 1000
    queue.pass_time(100)
    assert queue.states() == [(0, 4, "ACQUIRED", 1, "a"), (5, 9, "AVAILABLE", 1, "")]
    with pytest.raises(BrokerError) as raised:
        queue.say("a", 5, 5, ACCEPT)
    assert raised.value.code == ErrorCode.INVALID_RECORD_STATE
    assert queue.acquire("b") == [(5, 9, 2)]
    queue.pass_time(900)
    assert queue.acquire("b") == [(0, 4, 2)]


def test_a_group_may_forbid_renewal() -> None:
    queue = Queue(batches=1, renew_acknowledge_enable=False)
    queue.acquire("a")
    with pytest.raises(BrokerError) as raised:
        queue.say("a", 0, 0, RENEW)
    assert raised.value.code == ErrorCode.INVALID_RECORD_STATE


def test_the_end_of_a_session_frees_what_its_member_has() -> None:
    """The records of a worker that was killed go to the others at once."""
    queue = Queue()
    queue.acquire("a", 10)
    queue.acquire("b", 10)
    queue.say("a", 0, 3, ACCEPT)
    queue.keep(queue.partition.release("a", settings=queue.settings))
    assert queue.states() == [(4, 9, "AVAILABLE", 1, ""), (10, 19, "ACQUIRED", 1, "b")]
    assert queue.acquire("c", 6) == [(4, 9, 2)]


def test_with_a_limit_of_records_a_member_gets_no_more() -> None:
    """A worker with room for three jobs must not hold ten (KIP-1206)."""
    queue = Queue()
    assert queue.acquire("a", 3, limit=True) == [(0, 2, 1)]
    assert queue.acquire("b", 4, limit=True) == [(3, 6, 1)]
    assert queue.acquire("c", 500, limit=True) == [(7, 9, 1), (10, 29, 1)]


def test_a_large_fetch_is_cut_into_batches_of_the_wanted_size() -> None:
    """A member acknowledges batch by batch, so one failure does not touch all of them."""
    queue = Queue()
    assert queue.acquire("a", batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]


def test_batches_of_no_size_are_those_of_the_log() -> None:
    """Clients of other projects send a batch size of 0; an empty range among the others could not be acknowledged."""
    queue = Queue()
    assert queue.acquire("a", batch_size=0) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]


def test_no_more_records_are_in_flight_than_the_limit_allows() -> None:
    """A stuck record must not let the state of a partition grow without end."""
    queue = Queue(partition_max_record_locks=20)
    assert queue.acquire("a", 15) == [(0, 19, 1)]
    assert queue.acquire("b") == []
    queue.say("a", 5, 9, RELEASE)
    assert queue.acquire("b") == [(5, 9, 2)]


def test_records_near_their_last_delivery_come_in_small_numbers_and_at_last_alone() -> None:
    """One poison record must not take the healthy ones around it to the dead letters."""
    queue = Queue(batches=1)
    counts = []
    for _ in range(4):
        counts.append(queue.acquire("a"))
        queue.keep(queue.partition.release("a", settings=queue.settings))
    assert counts[:3] == [[(0, 9, 1)], [(0, 9, 2)], [(0, 9, 3)]]
    assert counts[3] == [(0, 4, 4)]  # half of them
    assert queue.acquire("a") == [(0, 0, 5)]


def test_records_of_aborted_transactions_are_archived_and_not_delivered() -> None:
    """A group that reads committed records would work on orders that were never placed."""
    queue = Queue()
    assert queue.acquire("a", aborted=(BatchOffsets(10, 19),)) == [(0, 9, 1), (20, 29, 1)]
    assert queue.states()[1] == (10, 19, "ARCHIVED", 1, "")


def test_offsets_that_the_log_lost_are_done_with() -> None:
    """Compaction or a cut log would otherwise stop the group at a record that does not exist."""
    queue = Queue()
    queue.log = queue.log[2:]
    assert queue.acquire("a") == [(20, 29, 1)]
    queue.say("a", 20, 29, ACCEPT)
    assert queue.partition.start_offset == 30


def test_retention_moves_the_start() -> None:
    """Deleted records cannot be delivered; those that a member still has are no longer asked for."""
    queue = Queue()
    queue.acquire("a", 10)
    queue.partition.log_start_moved(15)
    assert (queue.partition.start_offset, queue.partition.next_fetch_offset(), queue.states()) == (15, 15, [])
    queue.say("a", 0, 9, ACCEPT)
    assert queue.acquire("b") == [(15, 29, 1)]


def test_what_was_kept_begins_where_it_ended_and_its_gaps_are_delivered() -> None:
    """After a crash acquired records are free again, and accepted ones stay accepted."""
    kept = (StateBatch(3, 5, RecordState.ACKNOWLEDGED, 1), StateBatch(12, 14, RecordState.AVAILABLE, 2))
    queue = Queue(kept=kept)
    assert (queue.partition.start_offset, queue.partition.end_offset) == (0, 15)
    assert queue.acquire("a") == [(0, 2, 1), (6, 11, 1), (12, 14, 3), (15, 29, 1)]
    queue.say("a", 0, 2, ACCEPT)
    assert queue.partition.start_offset == 6


def test_dead_letters_name_the_reason() -> None:
    """An operator has to see whether the worker refused a record or never got through it."""
    queue = Queue(batches=1, delivery_count_limit=2, dead_letter_topic="dlq.jobs")
    queue.acquire("a")
    rejected = queue.say("a", 0, 0, REJECT)
    queue.say("a", 1, 8, ACCEPT)
    queue.say("a", 9, 9, RELEASE)
    queue.acquire("b")
    given_up = queue.say("b", 9, 9, RELEASE)
    assert [each.cause for each in (*rejected.dead_letters, *given_up.dead_letters)] == [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ]
    assert queue.partition.start_offset == 0  # until they have arrived
    for dead in (*rejected.dead_letters, *given_up.dead_letters):
        queue.keep(queue.partition.archived(dead))
    assert queue.partition.start_offset == 10


def test_a_batch_is_acknowledged_record_by_record_in_the_time_of_its_records() -> None:
    """Five seconds for 10,000 of them held up every other client of the broker."""

    def took_s(records: int) -> float:
        partition, settings = SharePartition(start_offset=0), ShareSettings(partition_max_record_locks=records)
        log = [BatchOffsets(0, records - 1)]
        began_s = time.thread_time()
        for _ in range(2):  # the second time the batch is in pieces
            partition.acquire(
                "a",
                log,
                fetch_offset=0,
                max_records=records,
                batch_size=records,
                record_limit=False,
                settings=settings,
                now_ms=0,
            )
            said = [AcknowledgementBatch(offset, offset, [RELEASE]) for offset in range(records)]
            partition.settle(partition.acknowledge("a", said, settings=settings, now_ms=0), kept=True)
        return time.thread_time() - began_s

    few = min(took_s(500) for _ in range(3))
    many = min(took_s(5_000) for _ in range(3))  # the collector may run in one of them
    assert many < 40 * few  # ten times as many; it was 100 times as long
