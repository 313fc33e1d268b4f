"""`LeaderElection`: one leader among several processes, as a worker with a single unit."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeAlias, TypeVar, overload

from kip848_client.common.callables import check_not_async, check_result_not_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.config.consumer import merge_settings
from kip848_client.config.reader import ConfigValue
from kip848_client.errors import IllegalStateError, Kip848Error, ListenerError
from kip848_client.network.queues import Bells
from kip848_client.worker.base import WorkerBase
from kip848_client.worker.events import LossReason, OwnedUnit
from kip848_client.worker.inside import enter, unit_here
from kip848_client.worker.observer import WorkerHealth
from kip848_client.worker.runner_ends import RunnerEnd
from kip848_client.worker.worker import Worker

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
Elected: TypeAlias = Callable[[int], object]
Lost: TypeAlias = Callable[[LossReason, float], object]
LeaderRunner: TypeAlias = Callable[[int, threading.Event], object]
"""Runs with the fencing token, until the event is set."""

_USE_ASYNC: Final = "give a plain function, or use AsyncLeaderElection"


class ElectionBase:
    """The common part of `LeaderElection` and `AsyncLeaderElection`: what may be asked, and calls of the leader."""

    def __init__(self) -> None:
        self._base: WorkerBase
        self._leading: OwnedUnit | None = None
        """From before on_elected until on_lost is due."""
        self._calls: Final[dict[object, None]] = {}
        self._idle: Final = Bells()

    @property
    def is_leader(self) -> bool:
        """Whether this is the leader now. Turns False before another can be elected, even without a broker."""
        return self._leading is not None and bool(self._base.assignment())

    @property
    def token(self) -> int | None:
        """The fencing token of this leadership, greater than all before; None if this is not the leader.

        Inside the runner and `leader_only` functions it is the one with which they were called, also when another
        leader has been elected since: a store that checks tokens refuses it then.
        """
        owned = unit_here(self._base) or (self._leading if self.is_leader else None)
        return None if owned is None else owned.token

    @property
    def error(self) -> Kip848Error | None:
        """The error that stopped it for good, or None."""
        return self._base.error

    def health(self) -> WorkerHealth:
        """The health of the worker behind it: its assignment is empty unless this is the leader. Never waits."""
        return self._base.health()

    @overload
    def leader_only(
        self, function: Callable[P, Coroutine[Any, Any, ResultT]]
    ) -> Callable[P, Coroutine[Any, Any, ResultT | None]]: ...

    @overload
    def leader_only(self, function: Callable[P, ResultT]) -> Callable[P, ResultT | None]: ...

    def leader_only(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function, also a coroutine function, that does something on the leader only.

        Elsewhere a call does nothing and returns None. A leader that stops being one waits for calls that have begun,
        unless its lease has ended; so a call that takes long should look at `is_leader`.
        """
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with self._as_leader() as leads:
                    return await function(*args, **kwargs) if leads else None

            return call_async

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._as_leader() as leads:
                return function(*args, **kwargs) if leads else None

        return call

    @contextmanager
    def _as_leader(self) -> Iterator[bool]:
        """Count a call of the leader; False if this is not the leader."""
        before = unit_here(self._base)
        call, leading = object(), None
        try:
            self._calls[call] = None  # before the look: who steps down waits for this call, or it sees that
            leading = self._leading if self.is_leader else None
            if leading is not None:
                enter(self._base, leading)
            yield leading is not None
        finally:
            self._calls.pop(call, None)
            self._idle.ring()
            if leading is not None:
                enter(self._base, before)

    def _begin(self, owned: OwnedUnit) -> int:
        self._leading = owned
        return owned.token

    def _end(self) -> tuple[LossReason, float] | None:
        """No call begins any more; None if that was so before."""
        loss = self._base.loss
        leading, self._leading = self._leading, None
        return None if leading is None or loss is None else (loss.reason, loss.deadline)

    def _wait_for_calls(self) -> None:
        """Wait for calls of the leader that have begun.

        Raises:
            ListenerError: some go on for too long.
        """
        timeout_s = self._base._stop_timeout_s
        begun = list(self._calls)  # later ones see that this is not the leader

        def under_way() -> int:
            return sum(call in self._calls for call in begun)

        if not self._idle.wait_for(lambda: not under_way(), timeout_s):
            raise ListenerError(f"{under_way()} calls of the leader go on {timeout_s:g} s after it should stop")

    def step_down(self) -> None:
        """Let another process lead, and stay a candidate; returns at once. Without another one this stays the leader.

        May be called inside what the leader runs, which is told to stop when the others are ready: `wait_for_loss`
        waits for that. Where this does not lead nothing happens.
        """
        leading = self._leading
        if leading is not None and self.is_leader:
            self._base.give_up([leading.unit])

    def _check_outside(self, call: str) -> None:
        """Refuse a call that would wait for itself.

        Raises:
            IllegalStateError: it is made inside what the leader runs.
        """
        if unit_here(self._base) is not None:
            raise IllegalStateError(f"{call}() inside what the leader runs would wait for itself; return first")


class LeaderElection(ElectionBase):
    """One leader among N processes: a `Worker` with one unit.

    Used in a ``with`` block, which takes part in the election and at its end leaves it. The callbacks run on a thread
    of the election's own.

    Args:
        config: as of `Worker`.
        name: what the processes elect a leader for; the unit's name.
        on_elected: called with the fencing token when this has become the leader.
        on_lost: called with a `LossReason` and a deadline, in seconds of ``time.monotonic()``: stop what the leader
            does. No other leader is elected before it has returned, or the deadline has passed.
        on_runner_end: what follows if the leader's runner returns or raises before it was told to stop, or
            *on_elected* raises: ``restart`` here after a pause, which doubles each time; ``give_up``, so that another
            process leads; or ``end``, so that `wait` and `wait_for_leadership` raise `RunnerEndedError`.

    Example::

        with LeaderElection({"bootstrap.servers": "127.0.0.1:9092", "group.id": "jobs"}, name="scheduler") as election:
            while election.wait_for_leadership():
                while election.is_leader:
                    run_next_job(fencing_token=election.token)
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        name: str = "leader",
        on_elected: Elected | None = None,
        on_lost: Lost | None = None,
        on_runner_end: RunnerEnd = "restart",
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        super().__init__()
        for key, callback in (("on_elected", on_elected), ("on_lost", on_lost)):
            check_not_async(callback, name=key, instead=_USE_ASYNC)
        check_takes(on_elected, "token", name="on_elected")
        check_takes(on_lost, "reason", "deadline", name="on_lost")
        self._on_elected: Final = on_elected
        self._on_lost: Final = on_lost
        self._worker: Final = Worker(
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

    def start(self) -> Self:
        """Take part; returns at once."""
        self._worker.start()
        return self

    def close(self, timeout_s: float = 30.0) -> None:
        """Stop taking part; if this was the leader, another one follows with its next heartbeat.

        Args:
            timeout_s: in seconds, how long to wait for what the leader runs, and for the coordinator.

        Raises:
            IllegalStateError: called inside what the leader runs.
        """
        self._check_outside("close")
        self._worker.close(timeout_s)

    def hand_over(self, timeout_s: float = 30.0) -> None:
        """Stop taking part; another leader begins about a tenth of a second after this one has stopped.

        Args:
            timeout_s: in seconds, for all of it.

        Raises:
            IllegalStateError: called inside what the leader runs.
        """
        self._check_outside("hand_over")
        self._worker.hand_over(timeout_s)

    def runner(self, function: LeaderRunner) -> LeaderRunner:
        """Decorate the function that the leader runs, in a thread: ``function(token, stop)``.

        It is called each time this becomes the leader, and must return soon after the event *stop* is set. No other
        leader is elected before, unless the lease has ended. If it returns or raises earlier, *on_runner_end* says
        what follows.

        Raises:
            IllegalStateError: the election was started.
        """
        check_not_async(function, name="the runner", instead=_USE_ASYNC)
        check_takes(function, "token", "stop", name="the runner")
        self._worker._set_runner(lambda owned, stop: function(owned.token, stop))
        return function

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the election was closed; False if *timeout_s* seconds passed.

        Raises:
            Kip848Error: the error that stopped it.
        """
        return self._worker.wait(timeout_s)

    def wait_for_leadership(self, timeout_s: float | None = None) -> bool:
        """Wait until this is the leader; False if *timeout_s* seconds passed, or the election was closed.

        Raises:
            Kip848Error: the error that stopped it.
        """
        won = self._worker.wait_for(lambda _: self.is_leader, timeout_s)
        error = self.error
        if not won and error is not None:
            raise error
        return won

    def wait_for_loss(self, timeout_s: float | None = None) -> bool:
        """Wait until this is no longer the leader, or *timeout_s* seconds passed; return whether that is so."""
        return self._worker.wait_for(lambda _: not self.is_leader, timeout_s)

    @property
    def worker(self) -> Worker:
        """The worker behind it."""
        return self._worker

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- on the thread of callbacks

    def _elected(self, worker: Worker, units: list[OwnedUnit]) -> None:
        token = self._begin(units[0])
        worker._tell_waiters()
        if self._on_elected is not None:
            check_result_not_async(self._on_elected(token), name="on_elected", instead=_USE_ASYNC)

    def _stop(self, worker: Worker, units: list[OwnedUnit]) -> None:
        self._abandon(worker, units)
        self._wait_for_calls()

    def _abandon(self, worker: Worker, units: list[OwnedUnit]) -> None:
        loss = self._end()
        worker._tell_waiters()
        if loss is not None and self._on_lost is not None:
            check_result_not_async(self._on_lost(*loss), name="on_lost", instead=_USE_ASYNC)
