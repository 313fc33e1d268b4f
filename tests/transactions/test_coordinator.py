"""The transaction coordinator without a broker: epochs at their end, time, records."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from kip848_client.error_codes import ErrorCode
from kip848_client.transactions.coordinator import Outcome, TransactionCoordinator
from kip848_client.transactions.records import record_of, transaction_of
from kip848_client.transactions.transaction import Transaction, TransactionState

LAST_EPOCH = 32_766
EXPIRATION_MS = 10_000
FOO = ("foo", 0)


class Driver:
    """A coordinator whose outcomes are finished as a shell does it; the clock is `now_ms`."""

    def __init__(self) -> None:
        ids = itertools.count(100)
        self.coordinator = TransactionCoordinator(
            timeout_ms_max=900_000, expiration_ms=EXPIRATION_MS, new_producer_id=lambda: next(ids)
        )
        self.now_ms = 1_000
        self.records: list[Transaction] = []

    def init(self, *, producer_id: int = -1, epoch: int = -1) -> Outcome:
        return self.finish(
            self.coordinator.init_producer_id(
                "tx", timeout_ms=5_000, producer_id=producer_id, epoch=epoch, now_ms=self.now_ms
            )
        )

    def init_other(self, name: str) -> None:
        self.finish(self.coordinator.init_producer_id(name, timeout_ms=5_000, now_ms=self.now_ms))

    def forget(self) -> Transaction | None:
        return self.finish(self.coordinator.forget(now_ms=self.now_ms)).transaction

    def add(self, producer_id: int, epoch: int) -> Outcome:
        return self.finish(
            self.coordinator.add_partitions(
                "tx", producer_id=producer_id, epoch=epoch, partitions=(FOO,), now_ms=self.now_ms
            )
        )

    def end(self, producer_id: int, epoch: int, *, commit: bool = True) -> Outcome:
        return self.finish(
            self.coordinator.end(
                "tx", producer_id=producer_id, epoch=epoch, commit=commit, moves_epoch=True, now_ms=self.now_ms
            )
        )

    def finish(self, outcome: Outcome) -> Outcome:
        if outcome.transaction is not None:
            self.records.append(outcome.transaction)
            self.coordinator.replay(outcome.transaction)
            if outcome.transaction.is_ending:
                self.finish(self.coordinator.completed("tx", now_ms=self.now_ms))
        return outcome

    def at_the_last_epoch(self) -> int:
        """Move the id to the last epoch that a producer can be given; returns the producer id."""
        producer_id = self.init().producer_id
        known = self.coordinator.get("tx")
        assert known is not None
        self.coordinator.replay(replace(known, epoch=LAST_EPOCH))
        return producer_id


def answer(outcome: Outcome) -> tuple[int, int, int]:
    return outcome.error, outcome.producer_id, outcome.epoch


@pytest.mark.parametrize("is_given", [True, False])
def test_a_new_life_after_the_last_epoch_gets_a_new_producer_id(is_given: bool) -> None:
    """An epoch that wraps would let every earlier zombie write again."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    given = {"producer_id": old, "epoch": LAST_EPOCH} if is_given else {}
    new = driver.init(**given)
    assert answer(new) == (0, old + 1, 0)
    if is_given:
        assert answer(driver.init(**given)) == (0, old + 1, 0)  # the answer was lost


def test_an_end_at_the_last_epoch_goes_on_with_a_new_producer_id() -> None:
    """A producer that runs for weeks would be fenced by itself."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    driver.add(old, LAST_EPOCH)
    ended = driver.end(old, LAST_EPOCH)
    assert answer(ended) == (0, old + 1, 0)
    assert ended.transaction is not None
    assert (ended.transaction.producer_id, ended.transaction.epoch) == (old, LAST_EPOCH + 1)  # what the markers carry
    assert answer(driver.end(old, LAST_EPOCH)) == (0, old + 1, 0)
    assert driver.end(old, LAST_EPOCH, commit=False).error == ErrorCode.INVALID_TXN_STATE
    assert driver.add(old + 1, 0).error == 0


def test_a_fence_at_the_last_epoch_uses_the_one_that_no_producer_is_given() -> None:
    """The abort of a late transaction must shut its producer out at any epoch."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    driver.add(old, LAST_EPOCH)
    assert driver.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(old, LAST_EPOCH).error == ErrorCode.PRODUCER_FENCED
    assert answer(driver.init()) == (0, old + 1, 0)


def test_the_time_of_a_transaction_counts_from_its_first_partition() -> None:
    """A program that writes on and on would hold up readers for ever."""
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.add(producer_id, 0)
    driver.now_ms += 4_000
    driver.finish(
        driver.coordinator.add_partitions(
            "tx", producer_id=producer_id, epoch=0, partitions=(("foo", 1),), now_ms=driver.now_ms
        )
    )
    assert driver.coordinator.deadline_ms() == 6_000
    assert driver.coordinator.expire(now_ms=6_000).transaction is None
    expired = driver.finish(driver.coordinator.expire(now_ms=6_001)).transaction
    assert expired is not None
    assert (expired.state, expired.epoch) == (TransactionState.PREPARE_ABORT, 1)
    assert driver.coordinator.deadline_ms() is None


def test_an_id_without_an_open_transaction_is_forgotten_when_it_was_not_used_for_long() -> None:
    """Programs that make up an id for each process would fill the memory; an open transaction must end first."""
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.add(producer_id, 0)
    driver.now_ms += EXPIRATION_MS
    assert driver.forget() is None  # open
    driver.end(producer_id, 0)
    assert driver.coordinator.expiration_ms() == driver.now_ms + EXPIRATION_MS
    driver.now_ms += EXPIRATION_MS - 1
    assert driver.forget() is None
    driver.now_ms += 1
    assert driver.forget() == Transaction.forgotten("tx")
    assert (list(driver.coordinator), driver.coordinator.expiration_ms(), driver.forget()) == ([], None, None)
    assert driver.add(producer_id, 1).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answer(driver.init(producer_id=producer_id, epoch=1)) == (0, producer_id + 1, 0)


def test_open_transactions_do_not_keep_older_ids_from_being_forgotten() -> None:
    """The ids are looked at from the one that was used first."""
    driver = Driver()
    driver.init_other("a")
    driver.now_ms += 1
    driver.add(driver.init().producer_id, 0)
    driver.now_ms += 1
    driver.init_other("b")
    driver.now_ms += EXPIRATION_MS
    assert [driver.forget(), driver.forget(), driver.forget()] == [*map(Transaction.forgotten, "ab"), None]


def test_a_partition_that_is_in_the_transaction_makes_no_record() -> None:
    """Each batch of a long transaction would make the log longer."""
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.add(producer_id, 0)
    assert driver.add(producer_id, 0) == Outcome()


def test_every_transition_is_one_record_that_says_all() -> None:
    """A restart knows of a transaction what its last record says."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    driver.add(old, LAST_EPOCH)
    driver.end(old, LAST_EPOCH)
    driver.now_ms += EXPIRATION_MS
    driver.forget()
    states = [record.state.title for record in driver.records]
    assert states == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Dead"]
    assert [transaction_of(*record_of(record)) for record in driver.records] == driver.records
