"""`AsyncLeaderElection`: `LeaderElection` for asyncio and trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self, TypeAlias

import anyio
import anyio.to_thread

from kip848_client.aio.worker import AsyncWorker
from kip848_client.common.callables import check_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.config.consumer import merge_settings
from kip848_client.config.reader import ConfigValue
from kip848_client.worker.election import ElectionBase
from kip848_client.worker.events import LossReason, OwnedUnit
from kip848_client.worker.runner_ends import RunnerEnd

AsyncElected: TypeAlias = Callable[[int], Awaitable[object]]
AsyncLost: TypeAlias = Callable[[LossReason, float], Awaitable[object]]
AsyncLeaderRunner: TypeAlias = Callable[[int, anyio.Event], Awaitable[object]]
"""Runs with the fencing token, until the event is set."""

_USE_PLAIN: Final = "give an async function, or use LeaderElection"


class AsyncLeaderElection(ElectionBase):
    """As `LeaderElection`, with coroutine functions; used in an ``async with`` block.

    Args:
        config, name: as of `LeaderElection`.
        on_elected, on_lost: coroutine functions, awaited with the same arguments.
        on_runner_end: as of `LeaderElection`.

    Example::

        async with AsyncLeaderElection({"bootstrap.servers": "127.0.0.1:9092", "group.id": "jobs"}) as election:
            while await election.wait_for_leadership():
                while election.is_leader:
                    await run_next_job(fencing_token=election.token)
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        name: str = "leader",
        on_elected: AsyncElected | None = None,
        on_lost: AsyncLost | None = None,
        on_runner_end: RunnerEnd = "restart",
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        super().__init__()
        for key, callback in (("on_elected", on_elected), ("on_lost", on_lost)):
            if callback is not None:
                check_async(callback, name=key, instead=_USE_PLAIN)
        check_takes(on_elected, "token", name="on_elected")
        check_takes(on_lost, "reason", "deadline", name="on_lost")
        self._on_elected: Final = on_elected
        self._on_lost: Final = on_lost
        self._worker: Final = AsyncWorker(
            merge_settings(config, settings),
            units=[name],
            on_assigned=self._elected,
            on_revoked=self._stop,
            on_lost=self._abandon,
            on_runner_end=on_runner_end,
            clock=clock,
        )
        self._base = self._worker
        self._worker._elects = True

    async def close(self, timeout_s: float = 30.0) -> None:
        """Stop taking part, as `LeaderElection.close`.

        Args:
            timeout_s: in seconds, how long to wait for what the leader runs, and for the coordinator.

        Raises:
            IllegalStateError: called inside what the leader runs.
        """
        self._check_outside("close")
        await self._worker.close(timeout_s)

    async def hand_over(self, timeout_s: float = 30.0) -> None:
        """Stop taking part without a gap, as `LeaderElection.hand_over`.

        Args:
            timeout_s: in seconds, for all of it.

        Raises:
            IllegalStateError: called inside what the leader runs.
        """
        self._check_outside("hand_over")
        await self._worker.hand_over(timeout_s)

    def runner(self, function: AsyncLeaderRunner) -> AsyncLeaderRunner:
        """Decorate the coroutine function that the leader runs as a task: ``function(token, stop)``.

        Raises:
            IllegalStateError: the election was started.
        """
        check_async(function, name="the runner", instead=_USE_PLAIN)
        check_takes(function, "token", "stop", name="the runner")
        self._worker._set_runner(lambda owned, stop: function(owned.token, stop))
        return function

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the election was closed; False if *timeout_s* seconds passed.

        Raises:
            Kip848Error: the error that stopped it.
        """
        return await self._worker.wait(timeout_s)

    async def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this is the leader; False if *timeout_s* seconds passed, or the election was closed.

        Raises:
            Kip848Error: the error that stopped it.
        """
        won = await self._worker.wait_for(lambda _: self.is_leader, timeout_s)
        error = self.error
        if not won and error is not None:
            raise error
        return won

    async def wait_for_loss(self, timeout_s: float | None = None) -> bool:
        """Wait until this is no longer the leader, or *timeout_s* seconds passed; return whether that is so."""
        return await self._worker.wait_for(lambda _: not self.is_leader, timeout_s)

    @property
    def worker(self) -> AsyncWorker:
        """The worker behind it."""
        return self._worker

    async def __aenter__(self) -> Self:
        await self._worker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._worker.__aexit__(kind, error, trace)

    # --- in the event loop

    async def _elected(self, worker: AsyncWorker, units: list[OwnedUnit]) -> None:
        token = self._begin(units[0])
        worker._set_moved()
        if self._on_elected is not None:
            await self._on_elected(token)

    async def _stop(self, worker: AsyncWorker, units: list[OwnedUnit]) -> None:
        await self._abandon(worker, units)
        await anyio.to_thread.run_sync(self._wait_for_calls, abandon_on_cancel=True)

    async def _abandon(self, worker: AsyncWorker, units: list[OwnedUnit]) -> None:
        loss = self._end()
        worker._set_moved()
        if loss is not None and self._on_lost is not None:
            await self._on_lost(*loss)
