"""Ctrl-C at any moment of reading: records come twice, perhaps, and are never skipped. With real signals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from kip848_client import EmbeddedBroker, TopicPartition
from kip848_client.consumer.records.data_plane import Message, RecordConsumer
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, keys_of
from tests.support.driving import Key, drive, key

pytestmark = pytest.mark.interop

COUNT = 10_000
PARTITIONS = range(4)


class InterruptError(BaseException):
    """What Ctrl-C is to a program."""


def _collects_garbage(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.endswith(("_weakrefset.py", "weakref.py")) or code.co_name == "gc_callback"


class InterruptedPlane:
    """A record consumer in which Ctrl-C comes as records are asked for; all else is the real one's."""

    def __init__(self, real: RecordConsumer) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        raise InterruptError


@contextmanager
def interrupts(every_s: float, armed: list[bool]) -> Iterator[None]:
    """Signals, again and again; they raise while *armed* is not empty.

    Not inside a callback of the garbage collector (hypothesis has one as well): Python prints what is raised there and
    goes on, so that no call is interrupted; the next signal comes soon.
    """

    def handler(_signal: int, frame: FrameType | None) -> None:
        if armed and frame is not None and not _collects_garbage(frame):
            raise InterruptError

    def fire() -> None:
        while not ended.wait(every_s):
            signal.pthread_kill(main, signal.SIGUSR1)

    main, ended = threading.get_ident(), threading.Event()
    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=fire)
    thread.start()
    try:
        yield
    finally:
        armed.clear()
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


# An interrupt inside Python's collector is printed and dropped by Python 3.13, too.
@pytest.mark.filterwarnings("ignore:Exception ignored in tp_clear")
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_no_record_is_skipped(broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, call: str) -> None:
    """A program that is interrupted, closes (which commits), and is started again, several times."""
    produce("orders", COUNT)
    seen: set[Key] = set()
    armed: list[bool] = []
    hits = 0
    deadline_s = time.monotonic() + 120
    with interrupts(0.25, armed):
        while hits < 6 and len(seen) < 4 * COUNT:
            consumer = make_consumer(enable_auto_commit=True).subscribe("orders")
            drive(consumer, until=lambda: consumer.partitions)  # noqa: B023  used before the next round
            seen.update(consumer.delivered)
            while time.monotonic() < deadline_s:
                batch = []
                armed.append(True)
                try:
                    if call == "consume":
                        batch = consumer.raw.consume(500, 0.05)
                    else:
                        message = consumer.raw.poll(0.05)
                        batch = [] if message is None else [message]
                    armed.clear()
                except InterruptError:
                    armed.clear()
                    hits += 1
                    break
                finally:
                    seen.update(key(message) for message in batch)
                if len(seen) == 4 * COUNT:
                    break
            consumer.raw.close()
    last = make_consumer().subscribe("orders")
    drive(last, until=lambda: seen | set(last.delivered) == keys_of("orders", COUNT))


@pytest.mark.parametrize("by", ["message", "offsets"])
def test_what_was_committed_by_hand_is_not_repeated(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Each record committed when it is done, then Ctrl-C as the next one is asked for: close(), which commits what was
    handed out, must not put the group back to before the first of them.
    """
    broker.topics.create("one", partitions=1)
    produce("one", 3)
    consumer = make_consumer(enable_auto_commit=True).subscribe("one")
    fetcher = consumer.raw._core.fetcher
    done = 0
    while done < 3:
        message = consumer.raw.poll(1.0)
        if message is not None:
            done += 1
            if by == "message":
                consumer.raw.commit(message, asynchronous=False)
            else:
                consumer.raw.commit(offsets=[TopicPartition("one", 0, done)], asynchronous=False)
    monkeypatch.setattr(fetcher, "plane", InterruptedPlane(fetcher.plane))
    with pytest.raises(InterruptError):
        consumer.raw.poll(1.0)
    consumer.raw.close()
    [committed] = make_consumer().raw.committed([TopicPartition("one", 0)])
    assert committed.offset == 3
