"""Retry topics and ``kip848 retries`` on both brokers: each result once, whichever way its record has gone."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, DeadLetters, RetryTopics, processing_attempt
from kip848_client.cli import main
from tests.interop.conftest import unique_name
from tests.interop.embedded.clients import read_committed
from tests.interop.real.group import Group
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop]

RECORDS: Final = 20


@pytest.mark.timeout(4 * TIMEOUT_S)
def test_results_are_there_once_by_way_of_tiers_and_a_replay(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    """A payment that failed twice is made once; one that was refused is made once after it was handed in again."""
    source, dead, sink = group.topic(), group.topic(), group.topic()
    group.write(source, RECORDS, partitions=1)
    retries = RetryTopics(unique_name("retry"), ["50ms", "100ms"], partitions=2, replication_factor=1)
    producer = Producer(
        {"bootstrap.servers": group.bootstrap_servers, "transactional.id": unique_name("tx"), "log_level": 0}
    )
    mended = threading.Event()

    def handle(message: Any, tx: Any) -> None:
        tx.produce(sink, b"%d" % message.offset())
        if message.offset() == 4 and not mended.is_set():
            raise ValueError("no such customer")
        if message.offset() % 5 == 1 and processing_attempt().number < 3:
            raise OSError("down")

    def process(until: Callable[[], object]) -> None:
        with Consumer(group.conf({"auto_offset_reset": "earliest", "enable_auto_commit": False})) as consumer:

            def end() -> None:
                try:
                    wait_until(until, what="the results", every_s=0.2)
                finally:
                    consumer.hand_over()

            consumer.subscribe([source, *retries.topics])
            watcher = threading.Thread(target=end)
            watcher.start()
            letters = DeadLetters(producer, dead)
            given: dict[str, Any] = {"retry_later": retries, "dead_letter": letters, "transactional": producer}
            consumer.process(handle, **given, slice_ms=20)
            watcher.join()

    def results() -> Counter[bytes]:
        return Counter(one.value() or b"" for one in read_committed(group.bootstrap_servers, sink))

    def run(action: str, *arguments: str) -> str:
        capsys.readouterr()
        assert main(["retries", action, dead, *arguments, "--bootstrap", group.bootstrap_servers]) == 0
        return capsys.readouterr().out

    process(lambda: len(results()) == RECORDS - 1 and read_committed(group.bootstrap_servers, dead))
    (waiting,) = json.loads(run("list", "--json"))["waiting"]
    assert (waiting["group"], waiting["error"], waiting["records"]) == (group.group_id, "ValueError", 1)
    mended.set()
    assert [run("replay"), run("replay")] == [f"{dead}: 1 record replayed\n", f"{dead}: 0 records replayed\n"]
    process(lambda: len(results()) == RECORDS)
    assert results() == Counter(b"%d" % number for number in range(RECORDS))
