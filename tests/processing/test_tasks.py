"""`TaskProcessor` alone: what wakes its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio

from kip848_client.aio.processing import TaskProcessor
from kip848_client.member.processing.settings import ProcessSettings
from kip848_client.member.processing.work import Item
from tests.processing.harness import P


def test_calls_that_begin_because_of_a_commit_are_ended_in_time() -> None:
    """A commit tells how much may be handled ahead; time-outs of what begins then came up to a second late."""
    anyio.run(_commit_lets_calls_begin)


async def _commit_lets_calls_begin() -> None:
    config = SimpleNamespace(group_id="g", client_id="c", auto_commit_interval_ms=None, max_poll_interval_ms=60_000)
    settings = ProcessSettings(
        concurrency=5_000,
        order="none",
        retry=None,
        on_error="stop",
        dead_letter=None,
        timeout_s=0.1,
        batch=None,
        split=False,
        buffer=10_000,
        buffer_bytes=1 << 20,
        drain_s=1,
        grace_s=1,
    )
    unused = cast("Any", None)
    processor = TaskProcessor(cast("Any", SimpleNamespace(config=config)), unused, unused, unused, settings)
    begun: list[object] = []
    processor._tasks = cast("Any", SimpleNamespace(start_soon=lambda _, work: begun.append(work)))
    processor.core.assigned(P, 0)
    processor.core.arrived([Item(P, offset, None, 1, None) for offset in range(5_000)], now_ms=0)
    processor.perform()
    before = len(begun)

    processor.commit_ended(processor.core.to_commit(asks=True), None)

    assert len(begun) > before
    assert processor._due.is_set()
