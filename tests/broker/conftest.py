"""A broker of the topic ``orders`` with its journal, and a connection that speaks by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.broker.group_log import MemoryGroupLog
from kip848_client.errors import DataDirError
from kip848_client.journal import MemoryJournal
from tests.support.raw_connection import RawConnection


@pytest.fixture
def journal() -> MemoryJournal:
    """The event log of `broker`."""
    return MemoryJournal()


@pytest.fixture
def broker(request: pytest.FixtureRequest, journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    """A broker with four partitions of ``orders``; the marker ``kip848_broker`` of a test or module changes that."""
    arguments: dict[str, Any] = {"topics": {"orders": 4}, "journal": journal}
    for marker in reversed(list(request.node.iter_markers("kip848_broker"))):
        arguments |= marker.kwargs
    with EmbeddedBroker(**arguments) as running:
        yield running


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
def connection(broker: EmbeddedBroker) -> Iterator[RawConnection]:
    """A connection to `broker`."""
    with RawConnection(broker.bootstrap_servers) as opened:
        yield opened
