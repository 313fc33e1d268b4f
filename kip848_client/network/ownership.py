"""Lets one thread at a time read from a consumer, in the process that made it. Knows nothing of records or groups."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import FrameType, TracebackType
from typing import ClassVar, Final

from kip848_client.errors import ForkedProcessError, IllegalStateError
from kip848_client.network.queues import Bell

FORKED: Final = -1
"""Instead of a thread's number: no thread may enter."""


def forked_process_error() -> ForkedProcessError:
    """The error of every use of a consumer in a child of the process that made it."""
    return ForkedProcessError(
        "this consumer was made before fork(); its threads and connections belong to the parent process. "
        "Make a new consumer in the child"
    )


class HomeProcess:
    """The process that made this object. Asked wherever the application's code ran: it may have called fork()."""

    __slots__ = ("_forks",)

    forks: ClassVar[int] = 0
    """How often fork() led to this process: counted, because asking the system for its number takes longer."""

    def __init__(self) -> None:
        self._forks = HomeProcess.forks

    @property
    def left(self) -> bool:
        """Whether this is a child."""
        return HomeProcess.forks != self._forks

    def check(self) -> None:
        """Raise if this is a child.

        Raises:
            ForkedProcessError: it is.
        """
        if HomeProcess.forks != self._forks:
            raise forked_process_error()


class OneThread:
    """Entered by every call that reads or changes what is read. The same thread may enter again (from a listener);
    another one may not.

    A second thread does not wait: two threads that read from one consumer are a bug of the program, and raise an error.

    A KeyboardInterrupt may come between any two steps here. In any state that it leaves behind, the thread that got it
    can enter and leave again, and everything is in order after that: the consumer has still to be closed.
    """

    owner: int | None = None
    """Thread that is inside, or None; `FORKED` for ever in a child process of the one that made the consumer."""

    def __init__(self) -> None:
        self._depth = 0
        self._outermost: FrameType | None = None
        """Frame of the outermost call of the thread that is inside."""
        self.last: int | None = None
        """The thread that entered last: what was read and not handed out is its business."""
        self._left: Bell | None = None
        """Of a thread that waits for the one that is inside."""

    def __enter__(self) -> None:
        me = threading.get_ident()
        holder = self.__dict__.setdefault("owner", me)  # looks and takes in one step, without a lock to be left locked
        if holder != me:
            self._refuse(holder)
        self.last = me
        caller = sys._getframe(1)
        if not self._depth or not is_inside(caller, self._outermost):  # or it was interrupted on its way out
            self._depth = 0
            self._outermost = caller
        self._depth += 1

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self.owner != FORKED:  # a child that was forked inside a call leaves it as well
            self._outermost = None
            self.__dict__.pop("owner", None)
            if self._left is not None:
                self._left.ring()

    def _refuse(self, holder: int) -> None:
        if holder == FORKED:
            raise forked_process_error()
        raise IllegalStateError(
            f"two threads read from one consumer: {thread_name(holder)} is inside it, and {thread_name()} calls what "
            "polls, consumes, iterates, seeks, subscribes or assigns. Give each thread its own consumer. Other calls, "
            "such as commit(), pause() and position(), may come from any thread. To end the loop of another thread "
            "call hand_over() or close()"
        )

    def check_process(self) -> None:
        """Raise in a child of the process that made the consumer.

        Raises:
            ForkedProcessError: this is one.
        """
        if self.owner == FORKED:
            raise forked_process_error()

    @property
    def held(self) -> bool:
        """Whether the current thread is inside."""
        return self.owner == threading.get_ident()

    @property
    def is_reader(self) -> bool:
        """Whether no other thread has been inside since this one was."""
        return self.last is None or self.last == threading.get_ident()

    def try_enter(self) -> bool:
        """Enter if no other thread is inside; then ``__exit__`` must follow. Does not count as reading."""
        me = threading.get_ident()
        if self.__dict__.setdefault("owner", me) != me:
            return False
        caller = sys._getframe(1)
        if not self._depth or not is_inside(caller, self._outermost):
            self._depth = 0
            self._outermost = caller
        self._depth += 1
        return True

    def await_others(self, timeout_s: float) -> bool:
        """Wait until no other thread is inside, at most *timeout_s*; look at other conditions, too. Whether none is."""
        self._left = Bell()  # before the look: who leaves after it rings
        if self.owner in {None, threading.get_ident()}:
            return True
        self._left.wait(timeout_s)
        return self.owner in {None, threading.get_ident()}


def thread_name(ident: int | None = None) -> str:
    """The name of a thread of this process, by default the current one, for the text of an error."""
    if ident is None:
        return repr(threading.current_thread().name)
    return next((repr(thread.name) for thread in threading.enumerate() if thread.ident == ident), f"thread {ident}")


def is_alive(ident: int | None) -> bool:
    """Whether a thread of this process has not ended."""
    return any(thread.ident == ident for thread in threading.enumerate())


def is_inside(frame: FrameType | None, outermost: FrameType | None) -> bool:
    """Whether *frame* is *outermost*, or was called by it, through others or not."""
    while frame is not None and frame is not outermost:
        frame = frame.f_back
    return frame is not None


class ForkGuard:
    """Finds out in a child process that it is one, for every living consumer.

    Args:
        gate: closed for good in the child.
        leaked: objects that must never be destroyed in the child: librdkafka's handle would wait for threads that are
            not there, and the event loop's sockets and selector are shared with the parent.
    """

    _living: ClassVar[weakref.WeakSet[ForkGuard]] = weakref.WeakSet()

    def __init__(self, gate: OneThread, *, leaked: tuple[object, ...]) -> None:
        self.gate: Final = gate
        self.leaked: Final = leaked
        ForkGuard._living.add(self)

    @staticmethod
    def before_fork() -> None:
        """Make ready what the child needs, if it will have consumers."""
        if ForkGuard._living:
            import ctypes  # noqa: F401  here, where no other thread can hold the lock of this import

    @staticmethod
    def in_child() -> None:
        """Close the gates, and keep what leaks."""
        HomeProcess.forks += 1
        if not ForkGuard._living:
            return
        import ctypes  # known already

        for guard in list(ForkGuard._living):
            guard.gate.owner = FORKED
            for item in guard.leaked:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=ForkGuard.before_fork, after_in_child=ForkGuard.in_child)
