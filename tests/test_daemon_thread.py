"""Threads of the library as Python without the GIL makes them: there a new one has its maker's context by default."""

from __future__ import annotations

import contextvars
import threading

import anyio
import anyio.to_thread
import pytest

from kip848_client import AsyncConsumer, EmbeddedBroker
from kip848_client.admin import AsyncAdmin


class Inheriting(threading.Thread):
    """As ``sys.flags.thread_inherit_context`` has it."""

    def start(self) -> None:
        context, run = contextvars.copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
        super().start()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_clients_work_inside_an_event_loop_without_the_gil(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: on Python 3.14t the heartbeat thread takes the application's event loop for its own, and dies."""
    monkeypatch.setattr(threading, "Thread", Inheriting)

    async def use() -> tuple[bytes | None, bool]:
        with EmbeddedBroker(topics={"orders": 1}) as broker:
            broker.produce("orders", "one")
            conf = {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
            async with AsyncConsumer(conf) as consumer:
                await consumer.subscribe(["orders"])
                while (message := await consumer.poll(1.0)) is None:
                    pass
                async with AsyncAdmin(conf) as admin:
                    listed = await admin.list_groups(timeout_s=30)
                return message.value(), [one.group_id for one in listed.found] == ["g"]

    assert anyio.run(use, backend=backend) == (b"one", True)
