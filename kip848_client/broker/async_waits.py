"""The waiting calls of the embedded broker for asynchronous code, on asyncio and trio."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from kip848_client.broker.broker import EmbeddedBroker

__all__ = ["AsyncWaits"]

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class AsyncWaits:
    """Waits in a thread, so that the event loop goes on. Arguments, results and errors are those of the broker's calls.

    A wait that is cancelled goes on in its thread until its time is up.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.wait_for_group = _awaited(broker.wait_for_group)
        self.wait_for = _awaited(broker.wait_for)
        self.wait_for_records = _awaited(broker.wait_for_records)
        self.wait_for_transaction = _awaited(broker.wait_for_transaction)
        self.wait_for_request = _awaited(broker.requests.wait_for)


def _awaited(call: Callable[P, ResultT]) -> Callable[P, Awaitable[ResultT]]:
    @functools.wraps(call)
    async def wait(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        from anyio import to_thread  # here: a broker that nobody awaits starts without it

        return await to_thread.run_sync(functools.partial(call, *args, **kwargs), abandon_on_cancel=True)

    return wait
