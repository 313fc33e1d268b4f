"""Which task reads from a consumer, and whether it has returned. Knows nothing of Kafka.

Another task that closes the consumer cannot know whether the records are processed that the reading task got last.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import trio

    Task: TypeAlias = asyncio.Task[object] | trio.lowlevel.Task


def current_task() -> Task | None:
    """The task that calls this; None outside of an event loop."""
    if asyncio._get_running_loop() is not None:
        return asyncio.current_task()
    lowlevel = sys.modules.get("trio.lowlevel")  # only a program that runs trio has it
    try:
        return None if lowlevel is None else lowlevel.current_task()
    except RuntimeError:  # a child of fork() has no event loop
        return None


def has_returned(task: Task) -> bool:
    """Whether *task* has come to its end; not if it goes on, was cancelled, or raised."""
    if isinstance(task, asyncio.Task):
        # Not exception(): asyncio would count the exception as seen, and not report it.
        return task.done() and not task.cancelled() and getattr(task, "_exception", task) is None
    # trio keeps no result. But what ends a task by an exception, also by Cancelled, cancels the nursery around it.
    nursery = task.parent_nursery
    if nursery is None or nursery.cancel_scope.cancel_called:
        return False
    return inspect.getcoroutinestate(task.coro) == inspect.CORO_CLOSED


def runs_only(task: Task, *functions: object) -> bool:
    """Whether *task* was made to call one of these coroutine functions, and nothing else.

    ``asyncio.create_task(consumer.poll())`` makes such a task, and before Python 3.12 ``asyncio.wait_for()``, too. It
    cannot be seen which task gets the result.
    """
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else task.coro
    code = getattr(coroutine, "cr_code", None)
    return any(code is getattr(function, "__code__", task) for function in functions)
