"""``broker.aio``: blocking calls of a broker as ones that asynchronous code awaits, on asyncio and trio."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class AsyncWait(Generic[P, ResultT]):
    """The waiting call of one subject."""

    def __init__(self, wait_for: Callable[P, ResultT]) -> None:
        self.wait_for: Final = awaited(wait_for)


def awaited(call: Callable[P, ResultT]) -> Callable[P, Awaitable[ResultT]]:
    """*call* in a thread, so that the event loop goes on; same arguments, result and errors.

    A call that is cancelled goes on in its thread until it returns.
    """

    @functools.wraps(call)
    async def wait(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        from anyio import to_thread  # here: a broker that is not awaited starts without it

        return await to_thread.run_sync(functools.partial(call, *args, **kwargs), abandon_on_cancel=True)

    return wait
