"""`OwnerThread`: one thread that runs the calls of many tasks, one after the other. Knows nothing of Kafka.

A task hands in *work*, a function, and waits for it. Work may *call out*: have something run by the waiting task, in
the event loop, while the thread waits for its end. Work that is handed in from there runs inside the waiting work.

Does not own: what the work is, and the calls of the listener (`consumer`).
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
import queue
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from kip848_client.aio.lookout import Lookout
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import IllegalStateError, RequestTimeoutError
from kip848_client.network.ownership import HomeProcess

ResultT = TypeVar("ResultT")


class CallCancelledError(BaseException):
    """Raised inside work whose task was cancelled, as KeyboardInterrupt is raised in a program."""


class _End:
    """The thread is no longer needed."""


class _Returned:
    """The call out of this thread has ended.

    Args:
        error: the exception that it raised.
    """

    def __init__(self, error: BaseException | None) -> None:
        self.error: Final = error


class _CallOut:
    """A function that the waiting task has to run."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Final = call
        self.context: Final = contextvars.copy_context()
        self.inbox: Final[queue.SimpleQueue[object]] = queue.SimpleQueue()
        self.open = True
        """Whether calls that are made inside still belong here (event loop only)."""

    def end(self, error: BaseException | None) -> None:
        """Let the work go on (event loop)."""
        self.open = False
        self.inbox.put(_Returned(error))


class _Job(Generic[ResultT]):
    """One piece of work, and the task that waits for it."""

    def __init__(self, work: Callable[[], ResultT]) -> None:
        self.work: Callable[[], ResultT] | None = work
        self.context: Final = contextvars.copy_context()
        self.started = False
        self.done = False
        self.error: BaseException | None = None
        self.result: ResultT
        self.asked: _CallOut | None = None
        self.cancelled = False
        """Its task wants it to end soon."""
        self.abandoned = False
        """No task waits for it."""
        self._tell_loop = teller()
        self._moved = anyio.Event()

    def tell(self) -> None:
        """Wake the task (this thread)."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
            self._tell_loop(self._moved.set)

    async def moved(self) -> None:
        """Wait until `tell` was called since the last time."""
        await self._moved.wait()
        self._moved = anyio.Event()

    def abandon(self) -> None:
        """The task has stopped waiting (event loop)."""
        self.abandoned = True
        if self.asked is not None:
            self.asked.end(CallCancelledError())


_INSIDE: Final[ContextVar[tuple[OwnerThread, _CallOut] | None]] = ContextVar("kip848_inside", default=None)
"""The present call out of the thread, as seen from inside it and from the tasks that it starts."""


class PresentLoop:
    """The event loop that uses a consumer now. Another one may follow it, as in a notebook, but not join it."""

    def __init__(self) -> None:
        self._loop: object = None

    def enter(self, *, awaited: bool) -> bool:
        """A call comes from the loop that runs here. Whether that is another one than before.

        Args:
            awaited: a task waits in a call.

        Raises:
            IllegalStateError: that task belongs to another loop, which runs.
        """
        loop = current_loop()
        if loop is self._loop:
            return False
        if awaited and getattr(self._loop, "is_running", bool)():
            raise IllegalStateError(
                "two event loops use this consumer at once: a task of another one waits in a call. Make a consumer for "
                "each loop, or hand this call to that loop (asyncio.run_coroutine_threadsafe)"
            )
        self._loop = loop
        return True


class OwnerThread:
    """Started by the first call.

    Attributes:
        name: of the thread.
        home: the process that has it.
        nudge: ends a wait inside the current work, so that it meets `check`; called in the event loop.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.nudge: Callable[[], object] = bool
        self._thread: threading.Thread | None = None
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._running: list[_Job[Any]] = []
        self._over = False
        self.home: Final = HomeProcess()
        self._lookout: Final = Lookout()
        self._loop: Final = PresentLoop()
        self._handed_in = 0  # written by the event loop only
        self._ended = 0  # written by the thread only

    # --- in the event loop

    @property
    def idle(self) -> bool:
        """Whether the thread has nothing to do, so that the event loop may use its objects."""
        return self._handed_in == self._ended

    @property
    def inside(self) -> bool:
        """Whether the current task was called out to."""
        return self._outer() is not None

    async def run(
        self,
        work: Callable[[], ResultT],
        *,
        interruptible: bool = True,
        start_by_s: float = math.inf,
        grace_s: float = math.inf,
        callouts_end_s: float = math.inf,
        undo: Callable[[ResultT], object] | None = None,
    ) -> ResultT:
        """Run *work* on the thread, and here the calls that it makes back.

        A cancelled task has its work interrupted where that waits, and waits itself for the end of it.

        Args:
            interruptible: whether the work of a cancelled task ends early.
            start_by_s: on the event loop's clock: when to give up waiting for work that is before this one.
            grace_s: how long a cancelled task waits; afterwards the work goes on without it, and may not call out.
            callouts_end_s: on the event loop's clock: what is called out to is cancelled then.
            undo: given the result if the task was cancelled while the work was ending; runs on the thread.

        Raises:
            RequestTimeoutError: it could not start in time. It will when it can, without its task.
            ForkedProcessError: this is a child of the process that made the consumer; it has no such thread.
            IllegalStateError: two event loops use it at once.
        """
        self.home.check()
        if self._over:
            return work()  # it has nothing to wait for
        outer = self._outer()
        if outer is None:
            self._loop.enter(awaited=self._lookout.waiting > 0)
        job = _Job(work)
        if outer is None:
            self._hand_in(job)
        else:
            outer.inbox.put(job)
        failure: BaseException | None = None
        grace_end_s = math.inf
        with self._lookout:
            while not job.done:
                try:
                    if failure is None:
                        with anyio.CancelScope(deadline=math.inf if job.started else start_by_s) as limit:
                            await job.moved()
                        if limit.cancelled_caught and not job.started:
                            job.abandon()
                            raise RequestTimeoutError("another call of this consumer, or its listener, has not ended")
                    else:
                        with anyio.CancelScope(shield=True, deadline=grace_end_s) as grace:
                            await job.moved()
                        if grace.cancelled_caught:
                            job.abandon()
                            raise failure
                except GeneratorExit:
                    job.cancelled = interruptible
                    job.abandon()
                    raise
                except BaseException as error:
                    if job.abandoned:
                        raise
                    if failure is None:
                        grace_end_s = anyio.current_time() + grace_s
                    if failure is None or isinstance(failure, anyio.get_cancelled_exc_class()):
                        failure = error  # the later one came through a shield: asyncio's own, which no scope may catch
                    if interruptible:
                        job.cancelled = True
                        self.nudge()
                    continue
                if job.asked is not None:
                    called_out, job.asked = job.asked, None
                    end_s = min(callouts_end_s, grace_end_s)
                    failure = await self._answer(called_out, shield=failure is not None, end_s=end_s) or failure
                    self.home.check()  # it may have forked
        if failure is not None:
            if job.error is None and undo is not None:
                result = job.result
                self._hand_in(_Job(lambda: undo(result)))
            raise failure
        if job.error is not None:
            try:
                raise job.error
            finally:
                job.error = None  # a traceback that holds its own frame would keep everything alive
        return job.result

    def end(self) -> None:
        """Let the thread end after its pending work; later work runs in the calling thread."""
        self._over = True
        self._inbox.put(_End())

    def _outer(self) -> _CallOut | None:
        inside = _INSIDE.get()
        if inside is None or inside[0] is not self or not inside[1].open:
            return None
        return inside[1]

    def _hand_in(self, job: _Job[ResultT]) -> None:
        if self._thread is None:
            thread = daemon_thread(self._main, self.name)
            thread.start()
            self._thread = thread
        self._handed_in += 1
        self._inbox.put(job)

    async def _answer(self, called_out: _CallOut, *, shield: bool, end_s: float) -> BaseException | None:
        """Run a call that the work made back. Returns a cancellation, which must leave the task once the work ends."""
        # Variables that the work has set in its context, such as a span, are set for its calls, too.
        moved = [
            (variable, variable.set(now)) for variable, now in called_out.context.items() if _differs(variable, now)
        ]
        moved.append((_INSIDE, _INSIDE.set((self, called_out))))
        error: BaseException | None = None
        try:
            with anyio.CancelScope(shield=shield, deadline=end_s) as limit:
                try:
                    answer = called_out.call()
                    if inspect.isawaitable(answer):
                        await answer
                except Exception as raised:  # noqa: BLE001  the work will raise it
                    error = raised
            if limit.cancelled_caught:
                error = RequestTimeoutError(
                    "it did not return before the time of the call was over, and was cancelled; give the call more time"
                )
        except BaseException as raised:  # `run` raises it when the work has ended
            called_out.end(CallCancelledError())
            if isinstance(raised, GeneratorExit):
                raise
            return raised
        finally:
            for variable, token in reversed(moved):
                variable.reset(token)
        called_out.end(error)
        return None

    # --- on the thread

    @property
    def wanted(self) -> bool:
        """Whether other work waits for the current one to end."""
        return not self._inbox.empty()

    def check(self) -> None:
        """Raise if the task that waits for the current work was cancelled.

        Raises:
            CallCancelledError: it was.
        """
        if self._running and self._running[-1].cancelled:
            raise CallCancelledError

    def call_out(self, call: Callable[[], object]) -> None:
        """Have the waiting task run *call*, and what it returns awaited if it can be; wait for the end.

        Raises:
            Exception: an exception of the call.
            CallCancelledError: it was cancelled, or its caller stopped waiting.
        """
        job = self._running[-1]
        called_out = _CallOut(call)
        job.asked = called_out
        if job.abandoned:
            raise CallCancelledError
        job.tell()
        while True:
            match called_out.inbox.get():
                case _Returned(error=None):
                    return
                case _Returned(error=BaseException() as error):
                    raise error
                case _Job() as inner:
                    self._perform(inner)

    def _main(self) -> None:
        while True:
            match self._inbox.get():
                case _Job() as job:
                    self._perform(job)
                    del job  # it holds what may be waiting to be let go
                case _End():
                    return

    def _perform(self, job: _Job[ResultT]) -> None:
        self._running.append(job)
        top = len(self._running) == 1
        job.started = True
        try:
            self.check()
            assert job.work is not None
            job.result = job.context.run(job.work)
        except BaseException as error:  # noqa: BLE001  raised in the task
            job.error = error
        finally:
            self._running.pop()
            job.work = None
        if top:
            self._ended += 1
        job.done = True
        job.tell()


def _differs(variable: ContextVar[Any], value: object) -> bool:
    return variable.get(_Job) is not value  # _Job stands for nothing: no variable has it


def current_loop() -> object:
    """The event loop that runs here: asyncio's loop, or trio's token.

    Raises:
        RuntimeError: none does.
    """
    token: object = anyio.lowlevel.current_token()
    return getattr(token, "native_token", token)  # anyio before 4.11 returned the loop itself


def teller() -> Callable[[Callable[[], object]], object]:
    """A function that runs another one soon in the current event loop, from another thread.

    Raises:
        RuntimeError: no event loop runs here.
    """
    loop = current_loop()
    soon: Callable[[Callable[[], object]], object]
    soon = getattr(loop, "call_soon_threadsafe", None) or getattr(loop, "run_sync_soon")  # noqa: B009  of asyncio, trio
    return soon
