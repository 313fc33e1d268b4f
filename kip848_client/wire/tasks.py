"""Tasks of asyncio that end with the block that started them.

Not anyio's group, because anyio takes as long to load as most of a consumer does. Code that is started here runs in
either: workers and administration have groups of anyio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

__all__ = ["TaskStarter", "Tasks"]

ArgsT = TypeVarTuple("ArgsT")


class TaskStarter(Protocol):
    """Starts tasks that somebody else ends: `Tasks`, or a group of anyio."""

    def start_soon(
        self,
        func: Callable[[Unpack[ArgsT]], Coroutine[Any, Any, Any]],
        /,
        *args: *ArgsT,
        name: object = None,
    ) -> object:
        """Start a task that calls *func*."""
        ...


class Tasks(asyncio.TaskGroup):
    """An `asyncio.TaskGroup` whose tasks can be ended."""

    def __init__(self) -> None:
        super().__init__()
        self._started: Final[set[asyncio.Task[Any]]] = set()

    def start_soon(
        self,
        func: Callable[[Unpack[ArgsT]], Coroutine[Any, Any, Any]],
        /,
        *args: *ArgsT,
        name: object = None,
    ) -> None:
        """Start a task that calls *func*."""
        task = self.create_task(func(*args), name=None if name is None else str(name))
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    def cancel(self) -> None:
        """Cancel the tasks that run."""
        for task in list(self._started):
            task.cancel()
