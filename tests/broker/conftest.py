"""A disk that is full, for the brokers of these tests, and producers that are closed when a test ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from kip848_client.errors import DataDirError
from kip848_client.testing.broker.storage.group_log import MemoryGroupLog
from tests.support.transactions import MakeProducer, RawProducer


class FullDisk(threading.Event):
    """Set while nothing can be written; `refused` once a write was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = threading.Event()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    """The disk under the log of the groups, of brokers without a data folder, too."""
    full, original = FullDisk(), MemoryGroupLog.append

    def append(log: MemoryGroupLog, records: Iterator[tuple[bytes, bytes | None]]) -> None:
        if full.is_set():
            full.refused.set()
            raise DataDirError("No space left on device")
        original(log, records)

    monkeypatch.setattr(MemoryGroupLog, "append", append)
    return full


@pytest.fixture
def raw_producer() -> Iterator[MakeProducer]:
    """Makes producers as `RawProducer` does; they are closed when the test ends, also when it fails."""
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(closing(RawProducer(*args)))
