"""The two phases of the Spark sink on a real Kafka broker: transactions that others end than have opened them."""

from __future__ import annotations

from collections import Counter

import pytest

from kip848_client.client.transaction_ends import TransactionEnds
from kip848_client.spark.sink_task import BatchId, decide, write_task
from tests.interop.conftest import CreateTopic, unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.spark.sinks import BATCH, rows, seen, transactional, write_both

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.timeout(180)]


class CrashError(Exception):
    """The driver ends here."""


@pytest.mark.parametrize("crash", [None, "before the decision", "after the decision", "after the ends"])
def test_a_batch_is_seen_once(
    kafka_broker: KafkaBroker | ExternalKafka,
    kafka_topic: CreateTopic,
    monkeypatch: pytest.MonkeyPatch,
    crash: str | None,
) -> None:
    """What EndTxn and DescribeTransactions answer is Kafka's own business; the embedded broker only follows it."""
    servers, topic = kafka_broker.bootstrap_servers, kafka_topic(partitions=3)
    options = transactional(servers, topic, unique_name("sink"))
    written = write_both(options)
    assert not seen(servers, topic)

    def crashing(self: TransactionEnds, transactions: object, *, commit: bool) -> None:
        raise CrashError

    if crash == "after the decision":
        with monkeypatch.context() as patched:
            patched.setattr(TransactionEnds, "end", crashing)
            with pytest.raises(CrashError):
                decide(written, options, batch=BATCH)
    elif crash != "before the decision":
        decide(written, options, batch=BATCH)
    if crash is not None:
        decide(write_both(options), options, batch=BATCH)
    following = BatchId(BATCH.query, BATCH.number + 1)
    decide([write_task(rows("d"), options, task=0, batch=following)], options, batch=following)

    assert seen(servers, topic) == Counter("abcd")
