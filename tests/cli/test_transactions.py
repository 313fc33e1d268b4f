"""``kip848 transactions`` against the embedded broker: who holds readers back, and how to end it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.testing.faults import ALWAYS, answer
from kip848_client.wire.messages.list_transactions import ListTransactionsResponse
from tests.support.transactions import TOPIC, RawProducer, begun

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 2})


def run(broker: EmbeddedBroker, *arguments: str) -> int:
    return main(["transactions", *arguments, "--bootstrap", broker.bootstrap_servers])


@pytest.fixture
def producer(kip848_broker: EmbeddedBroker) -> Iterator[RawProducer]:
    """One with an open transaction in partition 0."""
    with begun(kip848_broker) as made:
        assert made.add(0) == [0]
        assert made.produce(b"open").error_code == 0
        yield made


def test_an_open_transaction_is_shown_with_the_records_that_wait_for_it_and_is_aborted(
    producer: RawProducer, kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers stand still, their lag grows, and no group has a fault."""
    assert run(kip848_broker, "list", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["transactions"]
    assert (one["transactional_id"], one["state"], one["producer_id"]) == ("tx", "Ongoing", producer.producer_id)
    assert one["partitions"] == [{"topic": TOPIC, "partition": 0, "readable": 0, "end": 1}]
    assert 0 <= one["open_ms"] < 60_000

    assert run(kip848_broker, "list") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "TRANSACTION"
    assert row.split()[-4:] == [f"{TOPIC}-0", "0", "1", "1"]

    assert run(kip848_broker, "list", "--open-for", "3600") == 0
    assert run(kip848_broker, "abort", "tx") == 0
    assert run(kip848_broker, "list") == 0
    assert run(kip848_broker, "abort", "tx") == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == ["no open transactions", "aborted tx", "no open transactions"]
    assert "transaction 'tx' is not open: its state is CompleteAbort" in told.err


def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
    producer: RawProducer, kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """It blocks readers for ever: nothing times it out."""
    assert run(kip848_broker, "hanging", TOPIC) == 0
    assert capsys.readouterr().out == "no hanging transactions\n"
    kip848_broker.faults.on("ListTransactions", answer(ListTransactionsResponse()), times=ALWAYS)
    assert run(kip848_broker, "hanging", TOPIC, "--older-than=-60") == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:5] == [f"{TOPIC}-0", f"{producer.producer_id},", "epoch", "0", "0"]
    assert run(kip848_broker, "hanging", TOPIC, "--older-than=-60", "--abort") == 0
    assert capsys.readouterr().out == f"aborted producer {producer.producer_id} in {TOPIC}-0\n"
