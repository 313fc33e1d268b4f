"""Handlers in processes: a record that ends its process is found, fails alone, and the others go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, DeadLetters, ProcessingFailure
from kip848_client.errors import ArgumentTypeError, HandlerDiedError, ProcessingError
from kip848_client.testing import EmbeddedBroker
from tests.processing.orders import fill, member_conf
from tests.support.waiting import wait_until


def _two() -> Executor:
    return ProcessPoolExecutor(2)


def _deadly(record: Any, outputs: Any) -> None:
    if record.offset() == 5:
        os._exit(9)
    outputs.produce("done", key=record.key(), value=record.value())


def test_a_record_that_ends_its_process_goes_to_the_dead_letters(kip848_broker: EmbeddedBroker) -> None:
    """An image that takes all memory stopped its group for ever, with each start again."""
    fill(kip848_broker, 12, keys=4)
    kip848_broker.topics.create("done")
    kip848_broker.topics.create("dead")
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    failures: list[ProcessingFailure] = []
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(
            _deadly,
            executor=_two,
            outputs=producer,
            dead_letter=DeadLetters(producer, "dead"),
            on_failure=failures.append,
            until="end",
        )
    [failure] = failures
    assert isinstance(failure.error, HandlerDiedError)
    assert "orders-0 at offset 5 ended with exit code 9" in str(failure.error)
    assert [record.offset() for record in failure.error.records] == [5]
    assert [record.value for record in kip848_broker.records("dead")] == [b"5"]
    done = [int(record.value or b"") for record in kip848_broker.records("done")]
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    for key in range(4):
        own = [number for number in done if number % 4 == key]
        assert own == sorted(own)
    assert kip848_broker.groups.committed("g")["orders", 0] == 12


def _hang_or_die(record: Any, folder: Path) -> None:
    if record.offset() == 0:
        os._exit(9)
    if record.offset() == 1:
        (folder / str(os.getpid())).touch()
        time.sleep(600)


def test_a_process_that_hangs_is_ended_after_timeout_s(kip848_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """One suspect that hangs would keep the others waiting, and then the pool."""
    fill(kip848_broker, 4)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(
            partial(_hang_or_die, folder=tmp_path), executor=_two, timeout_s=1, on_error="skip", until="end", grace_s=1
        )
    assert kip848_broker.groups.committed("g")["orders", 0] == 4
    for pid in _pids(tmp_path):
        wait_until(lambda pid=pid: not _lives(pid), what="the process is ended")  # type: ignore[misc]


def test_a_hand_over_ends_processes_that_hang(kip848_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The program could not end: Python waits for its processes. What was in hand is not committed."""
    fill(kip848_broker, 2)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])

        def end(pids: list[int]) -> None:
            wait_until(lambda: set(_pids(tmp_path)) - set(pids), what="the second record runs alone")
            consumer.hand_over(timeout_s=1)

        def first_failed(_: ProcessingFailure) -> None:
            watcher.append(threading.Thread(target=end, args=[_pids(tmp_path)]))
            watcher[0].start()

        watcher: list[threading.Thread] = []
        consumer.process(
            partial(_hang_or_die, folder=tmp_path),
            executor=_two,
            on_failure=first_failed,
            on_error="skip",
            grace_s=0,
        )
        watcher[0].join()
    assert kip848_broker.groups.committed("g")["orders", 0] == 1, "the first one was skipped"
    for pid in _pids(tmp_path):
        wait_until(lambda pid=pid: not _lives(pid), what="the process is ended")  # type: ignore[misc]


def _pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _broken() -> None:
    raise ValueError("no model")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: ProcessPoolExecutor(1, initializer=_broken), "cannot run anything"),
        (lambda made: ProcessPoolExecutor(1) if made == 1 else 1 / 0, "cannot run anything .ZeroDivisionError"),
        (lambda made: ProcessPoolExecutor(1) if made == 1 else None, "executor= made None"),
    ],
)
def test_a_pool_that_cannot_run_anything_is_no_failure_of_records(
    kip848_broker: EmbeddedBroker, make: Callable[[int], Any], text: str
) -> None:
    """A model that cannot be loaded ends every process: all records would go to the dead letters."""
    fill(kip848_broker, 6)
    made = [0]

    def factory() -> Any:
        made[0] += 1
        return make(made[0])

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=text):
            consumer.process(partial(_hang_or_die, folder=Path()), executor=factory, on_error="skip", concurrency=1)
    assert kip848_broker.groups.committed("g").get(("orders", 0)) in {None, 0}


def test_an_executor_that_is_none_is_refused(kip848_broker: EmbeddedBroker) -> None:
    """At once, and with what to give."""
    fill(kip848_broker, 1)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ArgumentTypeError, match=r"lambda: ProcessPoolExecutor\(4\)"):
            consumer.process(print, executor=4)  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match=r"lambda: ProcessPoolExecutor\(4\)"):
            consumer.process(print, executor=int)  # type: ignore[arg-type]
