"""A process that may start no more threads, or open no more files: a typed error, and no call that waits for ever."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
import pytest

from kip848_client import Admin, AsyncConsumer, Consumer, EmbeddedBroker, Worker
from kip848_client.errors import OutOfResourcesError


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No thread of ours can be started; call it to let them start again."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("kip848"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return monkeypatch.undo


def no_file(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_consumer_without_a_thread_says_so(kip848_broker: EmbeddedBroker, no_threads: Callable[[], None]) -> None:
    """Broken: the error says nothing of the limit, or the call waits for ever for the thread; so does close()."""
    conf: Any = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "g"}
    consumer = Consumer(conf)
    with pytest.raises(OutOfResourcesError, match="ulimit -u"):
        consumer.subscribe(["orders"])

    async def main() -> None:
        awaited = AsyncConsumer(conf)
        for _ in range(2):
            with pytest.raises(OutOfResourcesError, match="kip848-async"):
                await awaited.subscribe(["orders"])
        no_threads()
        await awaited.close()

    asyncio.run(main())
    consumer.close()


def test_a_worker_without_a_thread_can_be_started_later(
    kip848_broker: EmbeddedBroker, no_threads: Callable[[], None]
) -> None:
    """Broken: it is neither started, nor can it be."""
    worker = Worker(
        {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "g"},
        units=["a"],
        on_assigned=lambda worker, units: None,
        on_revoked=lambda worker, units: None,
    )
    with pytest.raises(OutOfResourcesError):
        worker.start()
    no_threads()
    worker.start()
    worker.close()


def test_a_broker_without_a_thread_gives_its_port_back(no_threads: Callable[[], None]) -> None:
    """Broken: the port is taken until the process ends."""
    broker = EmbeddedBroker()
    with pytest.raises(OutOfResourcesError):
        broker.start()
    no_threads()
    with broker:
        assert broker.port


def test_admin_without_an_event_loop_says_so_and_works_later(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: the call waits for ever, and with it every other call of this client."""
    with Admin({"bootstrap.servers": kip848_broker.bootstrap_servers}) as admin:
        monkeypatch.setattr(anyio, "run", no_file)
        with pytest.raises(OutOfResourcesError, match="ulimit -n"):
            admin.list_groups()
        monkeypatch.undo()
        assert admin.list_groups().errors == {}


def test_a_broker_without_an_event_loop_gives_its_port_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a plain OSError, and the port is taken until the process ends."""
    broker = EmbeddedBroker()
    monkeypatch.setattr(asyncio, "SelectorEventLoop", no_file)
    with pytest.raises(OutOfResourcesError, match="ulimit -n"):
        broker.start()
    monkeypatch.undo()
    with broker:
        assert broker.port
