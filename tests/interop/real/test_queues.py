"""`ShareConsumer` on Apache Kafka, and on the embedded broker that stands for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer

from kip848_client import AcknowledgeType, ShareConsumer, ShareMessage
from tests.interop.real.group import Group
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop

MIB = 1024 * 1024


@pytest.fixture
def queue(group: Group) -> Group:
    """A share group that reads from the first record."""
    group.configure(share_auto_offset_reset="earliest")
    return group


def worker(queue: Group, topic: str, **settings: Any) -> ShareConsumer[Any, Any]:
    conf = {"bootstrap.servers": queue.bootstrap_servers, "group.id": queue.group_id}
    consumer: ShareConsumer[Any, Any] = ShareConsumer({**conf, **settings})
    consumer.subscribe([topic])
    return consumer


def by_hand(queue: Group, topic: str, **settings: Any) -> ShareConsumer[Any, Any]:
    return worker(queue, topic, **{"share.acknowledgement.mode": "explicit", **settings})


def take(consumer: ShareConsumer[Any, Any], count: int) -> list[ShareMessage[Any, Any]]:
    """That many records, of which none is acknowledged; they may come one after the other."""
    found = consumer.consume(count, TIMEOUT_S)

    def enough() -> bool:
        if len(found) < count:  # consume() would ask for acknowledgements of the first ones
            consumer._core.want(count - len(found))
            found.extend(consumer._core.take(count - len(found)))
        return len(found) >= count

    wait_until(enough, what=f"{count} records")
    return found


def test_each_word_has_its_meaning_and_its_outcome(queue: Group) -> None:
    """What is accepted or rejected never comes again, and what is released comes with its count."""
    topic = queue.topic()
    queue.write(topic, 3, partitions=1)
    with by_hand(queue, topic) as consumer:
        messages = take(consumer, 3)
        words = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
        for message, word in zip(messages, words, strict=True):
            consumer.acknowledge(message, word)
        assert list(consumer.commit().values()) == [None]
        (again,) = consumer.poll(TIMEOUT_S)
        assert (again.value(), again.delivery_count()) == (b"1", 2)
        consumer.acknowledge(again, AcknowledgeType.RENEW)
        assert list(consumer.commit().values()) == [None]
        consumer.acknowledge(again)
        assert list(consumer.commit().values()) == [None]
        assert consumer.poll(0.5) == []


def test_implicitly_a_commit_accepts(queue: Group) -> None:
    """The first loop that anybody writes."""
    topic = queue.topic()
    queue.write(topic, 1, partitions=1)
    with worker(queue, topic) as consumer:
        assert [message.value() for message in consumer.poll(TIMEOUT_S)] == [b"0"]
        assert list(consumer.commit().values()) == [None]
    with worker(queue, topic) as consumer:
        assert consumer.poll(1.0) == []


def test_a_thousand_in_hand_are_given_back_by_close(queue: Group) -> None:
    """A deploy would hold up each job for the time of a lock."""
    topic = queue.topic()
    queue.write(topic, 1_000, partitions=1)
    first = by_hand(queue, topic, **{"max.poll.records": 1_000})
    held = len(first.poll(TIMEOUT_S))
    first.close()
    with by_hand(queue, topic, **{"max.poll.records": 1_000}) as second:
        assert {message.delivery_count() for message in take(second, held)} == {2}


def test_a_job_of_five_mebibytes(queue: Group) -> None:
    """It is larger than what a fetch usually brings."""
    topic = queue.topic(config={"max.message.bytes": str(6 * MIB)})
    producer = Producer({"bootstrap.servers": queue.bootstrap_servers, "message.max.bytes": 6 * MIB, "log_level": 0})
    job = bytes(range(256)) * (5 * MIB // 256)
    producer.produce(topic, job)
    assert producer.flush(TIMEOUT_S) == 0
    with by_hand(queue, topic, **{"fetch.max.bytes": MIB}) as consumer:
        (message,) = consumer.poll(TIMEOUT_S)
        assert message.value() == job
        consumer.acknowledge(message)
        assert list(consumer.commit().values()) == [None]


def test_process_of_three_workers_does_each_job_once(queue: Group) -> None:
    """More workers than partitions."""
    topic = queue.topic()
    queue.write(topic, 300, partitions=1)
    done: Counter[bytes] = Counter()
    workers = [worker(queue, topic) for _ in range(3)]
    threads = [
        threading.Thread(
            target=one.process, args=(lambda message: done.update([message.value()]),), kwargs={"concurrency": 5}
        )
        for one in workers
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(done) == 300, what="300 jobs")
    for one in workers:
        one.hand_over()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for one in workers:
        one.close()
    assert set(done.values()) == {1}


WORKER = """
import os, signal, sys, threading
from kip848_client import ShareConsumer
servers, group, topic = sys.argv[1:]
with ShareConsumer({"bootstrap.servers": servers, "group.id": group}) as queue:
    queue.subscribe([topic])
    signal.signal(signal.SIGTERM, lambda *_: queue.hand_over())
    def handle(message):
        os.write(1, b"%d\\n" % message.offset())  # at once: two threads do it
        threading.Event().wait()
    queue.process(handle, concurrency=2, grace_s=0)
"""


def test_after_sigterm_the_next_worker_has_the_jobs_at_once(queue: Group) -> None:
    """They would wait for the end of their locks, of half a minute."""
    topic = queue.topic()
    queue.write(topic, 2, partitions=1)
    command = [sys.executable, "-c", WORKER, queue.bootstrap_servers, queue.group_id, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert {process.stdout.readline() for _ in range(2)} == {"0\n", "1\n"}
            with by_hand(queue, topic) as other:
                assert other.poll(0.5) == []  # it waits there when they come
                process.send_signal(signal.SIGTERM)
                assert {message.delivery_count() for message in take(other, 2)} == {2}
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
