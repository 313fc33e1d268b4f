"""`Admin` and transactions: seen, ended in place of their producers, and aborted where no coordinator will end them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import Admin, EmbeddedBroker
from kip848_client.admin import NamedPartition
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.faults import answer
from kip848_client.wire.messages.list_transactions import ListTransactionsResponse
from tests.support.transactions import TOPIC, RawProducer, begun

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 2})


@pytest.fixture
def producer(kip848_broker: EmbeddedBroker) -> Iterator[RawProducer]:
    """One with an open transaction in partition 0."""
    with begun(kip848_broker) as made:
        assert made.add(0) == [0]
        assert made.produce(b"open").error_code == 0
        yield made


@pytest.fixture
def admin(kip848_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": kip848_broker.bootstrap_servers}) as made:
        yield made


def stable(admin: Admin) -> int | None:
    """How far readers of committed records get in partition 0."""
    partition = NamedPartition(TOPIC, 0)
    return admin.list_offsets([partition], isolation_level="read_committed")[partition]


def test_an_open_transaction_is_seen_and_aborted(producer: RawProducer, admin: Admin) -> None:
    """Its producer is gone, and readers wait for the time-out of its transaction."""
    (listed,) = admin.list_transactions(states=["Ongoing"], matching="t.").found
    described = admin.describe_transactions([listed.transactional_id, "unheard-of"])
    found = described["tx"]
    assert (found.state, found.partitions, found.producer_id) == ("Ongoing", ((TOPIC, 0),), producer.producer_id)
    assert found.started_ms is not None
    assert list(described.errors) == ["unheard-of"]
    assert stable(admin) == 0

    for _ in range(2):  # after a crash it is not known whether it was done
        admin.end_transactions([found.opened], commit=False).raise_errors()
    assert admin.describe_transactions(["tx"])["tx"].state == "CompleteAbort"
    assert stable(admin) == 2


def test_a_transaction_that_its_coordinator_will_end_does_not_hang(producer: RawProducer, admin: Admin) -> None:
    """To abort it in the partition would lose records of a producer that is alive."""
    assert admin.find_hanging_transactions([TOPIC], older_than_ms=-60_000).values == {(TOPIC, 0): (), (TOPIC, 1): ()}


def test_a_hanging_transaction_is_found_and_aborted(
    producer: RawProducer, admin: Admin, kip848_broker: EmbeddedBroker
) -> None:
    """No time-out ends it: readers of committed records would stand still for ever."""
    kip848_broker.faults.on("ListTransactions", answer(ListTransactionsResponse()))
    found = admin.find_hanging_transactions([(TOPIC, 0)], older_than_ms=-60_000)
    ((hanging,),) = found.values.values()
    assert (hanging.producer_id, hanging.first_offset) == (producer.producer_id, 0)
    assert admin.find_hanging_transactions([TOPIC]).values == {(TOPIC, 0): (), (TOPIC, 1): ()}, "it is too young"

    admin.abort_hanging_transaction(hanging)
    assert stable(admin) == 2


def test_offsets_of_an_open_transaction_are_waited_for(producer: RawProducer, admin: Admin) -> None:
    """A program that begins before them reads records again whose results are about to be committed."""
    assert producer.add_offsets("g") == 0
    assert producer.commit_offset("g", 3) == 0
    partition = NamedPartition(TOPIC, 0)
    waiting = admin.committed_offsets(["g"], partitions=[partition], require_stable=True, timeout_s=1.5)
    assert [one.code for one in waiting.errors.values() if isinstance(one, BrokerError)] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    ]
    assert admin.committed_offsets(["g"])["g"] == {}

    producer.end(commit=True)
    assert admin.committed_offsets(["g"], partitions=[partition], require_stable=True)["g"][partition].offset == 3
