"""The transaction coordinator without a broker: epochs at their end, time, records."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.transactions import coordinator as coordinator_module
from kip848_client.testing.transactions.coordinator import TransactionAnswer, TransactionCoordinator
from kip848_client.testing.transactions.records import record_of, transaction_of
from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionState, offsets_partition

LAST_EPOCH = 32_766
EXPIRATION_MS = 10_000
FOO = ("foo", 0)


class Driver:
    """A coordinator whose outcomes are finished as a shell does it; the clock is `now_ms`."""

    def __init__(self, *, ids_max: int = 100) -> None:
        ids = itertools.count(100)
        self.coordinator = TransactionCoordinator(
            timeout_ms_max=900_000, expiration_ms=EXPIRATION_MS, ids_max=ids_max, new_producer_id=lambda: next(ids)
        )
        self.now_ms = 1_000
        self.records: list[TransactionMetadata] = []

    def init(self, *, producer_id: int = -1, epoch: int = -1) -> TransactionAnswer:
        return self.finish(
            self.coordinator.init_producer_id(
                "tx", timeout_ms=5_000, producer_id=producer_id, epoch=epoch, now_ms=self.now_ms
            )
        )

    def init_other(self, name: str) -> None:
        self.finish(self.coordinator.init_producer_id(name, timeout_ms=5_000, now_ms=self.now_ms))

    def forget(self) -> TransactionMetadata | None:
        return self.finish(self.coordinator.forget(now_ms=self.now_ms)).transaction

    def add(self, producer_id: int, epoch: int) -> TransactionAnswer:
        return self.finish(
            self.coordinator.add_partitions(
                "tx", producer_id=producer_id, epoch=epoch, partitions=(FOO,), now_ms=self.now_ms
            )
        )

    def end(self, producer_id: int, epoch: int, *, commit: bool = True) -> TransactionAnswer:
        return self.finish(
            self.coordinator.end(
                "tx", producer_id=producer_id, epoch=epoch, commit=commit, moves_epoch=True, now_ms=self.now_ms
            )
        )

    def finish(self, outcome: TransactionAnswer) -> TransactionAnswer:
        for change in outcome.changes:
            self.records.append(change)
            self.coordinator.replay(change)
            if change.is_ending:
                self.finish(self.coordinator.completed("tx", now_ms=self.now_ms))
        return outcome

    def at_the_last_epoch(self) -> int:
        """Move the id to the last epoch that a producer can be given; returns the producer id."""
        producer_id = self.init().producer_id
        known = self.coordinator.get("tx")
        assert known is not None
        self.coordinator.replay(replace(known, epoch=LAST_EPOCH))
        return producer_id


def answer(outcome: TransactionAnswer) -> tuple[int, int, int]:
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


def test_a_new_life_begins_without_what_the_last_one_did() -> None:
    """A tool would show a transaction that is over, and a zombie could repeat the last request of it."""
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.add(producer_id, 0)
    driver.end(producer_id, 0)
    assert driver.init().transaction == TransactionMetadata(
        transactional_id="tx", producer_id=producer_id, epoch=2, timeout_ms=5_000, updated_ms=1_000, client_version=2
    )


@pytest.mark.parametrize(("opens", "began_ms"), [(True, 1_000), (False, 2_000)])
def test_an_abort_that_moves_the_epoch_needs_no_open_transaction(opens: bool, began_ms: int) -> None:
    """A client of KIP-890 aborts when it does not know whether its first batch was written."""
    driver = Driver()
    producer_id = driver.init().producer_id
    if opens:
        driver.add(producer_id, 0)
    driver.now_ms = 2_000
    ended = driver.coordinator.end(
        "tx", producer_id=producer_id, epoch=0, commit=False, moves_epoch=True, now_ms=driver.now_ms
    )
    assert ended.transaction is not None
    assert (ended.transaction.started_ms, ended.transaction.client_version) == (began_ms, 2)
    driver.coordinator.replay(ended.transaction)
    assert driver.end(producer_id, 1, commit=False).error == ErrorCode.PRODUCER_FENCED  # before the markers are written


def test_an_end_before_the_last_epoch_goes_on_with_the_last_one() -> None:
    """A producer id that is given up early costs a record and a new id."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    known = driver.coordinator.get("tx")
    assert known is not None
    driver.coordinator.replay(replace(known, epoch=LAST_EPOCH - 1))
    driver.add(old, LAST_EPOCH - 1)
    assert answer(driver.end(old, LAST_EPOCH - 1)) == (0, old, LAST_EPOCH)


def test_what_is_completed_twice_or_not_at_all_changes_nothing() -> None:
    """The markers of a transaction may be written twice, after a crash."""
    driver = Driver()
    driver.init()
    assert [driver.coordinator.completed(name, now_ms=1) for name in ("tx", "other")] == [
        TransactionAnswer(),
        TransactionAnswer(),
    ]


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("g", 3),
        ("orders", 31),
        ("polygenelubricants", 0),
        ("my-group", 12),
        ("a long name of a group", 41),
        ("\U0001d11e", 44),
    ],
)
def test_the_offsets_of_a_group_stand_for_the_partition_that_keeps_it_in_kafka(group_id: str, partition: int) -> None:
    """Tools show that partition; the number is Java's ``Math.abs(groupId.hashCode()) % 50``, and 0 for the lowest."""
    assert offsets_partition(group_id) == ("__consumer_offsets", partition)


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


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH, 1])
def test_only_the_last_epoch_of_the_previous_producer_id_holds_the_id(epoch: int) -> None:
    """A zombie of weeks ago would get the producer id that the present producer writes with."""
    driver = Driver()
    old = driver.at_the_last_epoch()
    driver.init(producer_id=old, epoch=LAST_EPOCH)
    expected = (0, old + 1, 0) if epoch == LAST_EPOCH else (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert answer(driver.init(producer_id=old, epoch=epoch)) == expected
    assert driver.init(producer_id=old + 7, epoch=LAST_EPOCH).error == ErrorCode.PRODUCER_FENCED


def _one_epoch_on() -> Driver:
    """Producer 100 at epoch 1, whose epoch 0 was shut out; no transaction is open."""
    driver = Driver()
    driver.init()
    driver.init()
    return driver


ENDING = {"producer_id": 100, "epoch": 1, "commit": True, "now_ms": 1_000}
ADDING = {"producer_id": 100, "epoch": 1, "partitions": (FOO,), "now_ms": 1_000}


@pytest.mark.parametrize(
    ("request_name", "transactional_id", "sent", "error"),
    [
        ("init_producer_id", "", {"timeout_ms": 1, "now_ms": 1}, ErrorCode.INVALID_REQUEST),
        ("init_producer_id", "tx", {"timeout_ms": 1, "now_ms": 1, "epoch": 1}, ErrorCode.INVALID_REQUEST),
        ("init_producer_id", "tx", {"timeout_ms": 1, "now_ms": 1, "producer_id": 100}, ErrorCode.INVALID_REQUEST),
        ("init_producer_id", "tx", {"timeout_ms": 0, "now_ms": 1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("init_producer_id", "tx", {"timeout_ms": 900_001, "now_ms": 1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("init_producer_id", "tx", {"timeout_ms": 900_000, "now_ms": 1}, ErrorCode.NONE),
        ("init_producer_id", "tx", {"timeout_ms": 1, "now_ms": 1}, ErrorCode.NONE),
        ("add_partitions", "", ADDING, ErrorCode.INVALID_REQUEST),
        ("add_partitions", "other", ADDING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("add_partitions", "tx", ADDING | {"producer_id": 99}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("add_partitions", "tx", ADDING | {"epoch": 0}, ErrorCode.PRODUCER_FENCED),
        ("end", "", ENDING | {"moves_epoch": True}, ErrorCode.INVALID_REQUEST),
        ("end", "other", ENDING | {"moves_epoch": True}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end", "tx", ENDING | {"moves_epoch": True, "producer_id": 99}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end", "tx", ENDING | {"moves_epoch": True, "epoch": 2}, ErrorCode.PRODUCER_FENCED),
        ("end", "tx", ENDING | {"moves_epoch": True, "epoch": 0}, ErrorCode.PRODUCER_FENCED),
        ("end", "tx", ENDING | {"moves_epoch": True}, ErrorCode.INVALID_TXN_STATE),
        ("end", "tx", ENDING | {"moves_epoch": False, "producer_id": 99}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end", "tx", ENDING | {"moves_epoch": False, "epoch": 0}, ErrorCode.PRODUCER_FENCED),
        ("abort", "other", {"now_ms": 1}, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("abort", "tx", {"now_ms": 1}, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_kafka_s_code(
    request_name: str, transactional_id: str, sent: dict[str, Any], error: ErrorCode
) -> None:
    """The code decides whether a producer tries again, begins anew or stops for good."""
    coordinator = _one_epoch_on().coordinator
    outcome = getattr(coordinator, request_name)(transactional_id, **sent)
    assert outcome.error == error
    assert (outcome.transaction is None) == (error != ErrorCode.NONE)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"partition": ("foo", 1)}, ErrorCode.TRANSACTION_ABORTABLE),
        ({"epoch": 0}, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_write_is_verified_against_the_open_transaction(sent: dict[str, Any], error: ErrorCode) -> None:
    """A batch that no transaction owns would never be aborted, and would stop every reader of committed records."""
    driver = _one_epoch_on()
    full: dict[str, Any] = {"producer_id": 100, "epoch": 1, "partition": FOO} | sent
    verify = partial(driver.coordinator.verify, "tx", **full)
    assert verify() == (error if error == ErrorCode.PRODUCER_FENCED else ErrorCode.TRANSACTION_ABORTABLE)
    driver.add(100, 1)
    assert verify() == error


def test_one_id_too_many_takes_the_place_of_the_id_that_is_idle_for_longest() -> None:
    """A test suite that makes up an id for each test would be refused after some thousands, for seven days."""
    driver = Driver(ids_max=3)
    driver.add(driver.init().producer_id, 0)  # it was not used for longest, but its transaction is open
    driver.init_other("a")
    driver.init_other("b")
    driver.init_other("c")
    assert [known.transactional_id for known in driver.coordinator] == ["b", "c", "tx"]
    assert [record.transactional_id for record in driver.records[-2:]] == ["a", "c"], "a's end is in the log"


def test_an_id_is_refused_while_all_others_have_open_transactions() -> None:
    """A program that makes up ids and leaves their transactions open would fill the memory of the broker."""
    driver = Driver(ids_max=1)
    driver.add(driver.init().producer_id, 0)
    refused = driver.coordinator.init_producer_id("a", timeout_ms=5_000, now_ms=1)
    assert (refused.error, refused.changes) == (ErrorCode.POLICY_VIOLATION, ())


def test_deadlines_of_transactions_that_ended_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that commits every few milliseconds would fill the memory until its first deadline comes."""
    monkeypatch.setattr(coordinator_module, "_DEADLINES_KEPT", 3)
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.init_other("idle")
    kept = []
    for epoch in range(20):
        driver.add(producer_id, epoch)
        kept.append(len(driver.coordinator._deadlines))
        driver.now_ms += 1
        driver.end(producer_id, epoch)
    assert kept == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6]
    driver.add(producer_id, 20)
    assert driver.coordinator.deadline_ms() == driver.now_ms + 5_000


def test_the_first_deadline_is_known_after_old_ones_were_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction would be aborted late, and hold up its readers."""
    monkeypatch.setattr(coordinator_module, "_DEADLINES_KEPT", -3)
    driver = Driver()
    driver.add(driver.init().producer_id, 0)
    driver.init_other("a")
    driver.finish(
        driver.coordinator.add_partitions("a", producer_id=101, epoch=0, partitions=(FOO,), now_ms=driver.now_ms + 1)
    )
    assert driver.coordinator.deadline_ms() == driver.now_ms + 5_000


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
    assert driver.forget() == TransactionMetadata.forgotten("tx")
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
    assert [driver.forget(), driver.forget(), driver.forget()] == [*map(TransactionMetadata.forgotten, "ab"), None]


def test_an_id_that_is_used_again_is_forgotten_later() -> None:
    """The id that was not used for longest comes first."""
    driver = Driver()
    for name in ("a", "b", "a"):
        driver.init_other(name)
        driver.now_ms += 1
    assert driver.coordinator.expiration_ms() == 1_001 + EXPIRATION_MS
    driver.now_ms += EXPIRATION_MS
    assert [driver.forget(), driver.forget()] == [*map(TransactionMetadata.forgotten, "ba")]


def test_a_partition_that_is_in_the_transaction_makes_no_record() -> None:
    """Each batch of a long transaction would make the log longer."""
    driver = Driver()
    producer_id = driver.init().producer_id
    driver.add(producer_id, 0)
    assert driver.add(producer_id, 0) == TransactionAnswer()


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
