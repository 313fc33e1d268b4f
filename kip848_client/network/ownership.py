"""Lets one thread at a time use a consumer, in the process that made it. Knows nothing of records or groups."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import FrameType, TracebackType
from typing import ClassVar, Final

from kip848_client.errors import ForkedProcessError, IllegalStateError

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

    __slots__ = ("_process_id",)

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is a child."""
        return os.getpid() != self._process_id

    def check(self) -> None:
        """Raise if this is a child.

        Raises:
            ForkedProcessError: it is.
        """
        if self.left:
            raise forked_process_error()


class OneThread:
    """Entered by every call of a consumer. The same thread may enter again (from a listener); another one may not.

    A second thread does not wait: two threads inside one consumer are a bug of the program, and raise an error.

    A KeyboardInterrupt may come between any two steps here. In any state that it leaves behind, the thread that got it
    can enter and leave again, and everything is in order after that: the consumer has still to be closed.
    """

    owner: int | None = None
    """Thread that is inside, or None; `FORKED` for ever in a child process of the one that made the consumer."""

    def __init__(self) -> None:
        self._depth = 0
        self._outermost: FrameType | None = None
        """Frame of the outermost call of the thread that is inside."""

    def __enter__(self) -> None:
        me = threading.get_ident()
        holder = self.__dict__.setdefault("owner", me)  # looks and takes in one step, without a lock to be left locked
        if holder == FORKED:
            raise forked_process_error()
        if holder != me:
            raise IllegalStateError(
                "two threads are inside one consumer; give each thread its own, or guard all calls with a lock. To end "
                "the loop of another thread call hand_over()"
            )
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
        self._gate = gate
        self._leaked = leaked
        ForkGuard._living.add(self)

    @staticmethod
    def _before() -> None:
        if ForkGuard._living:
            import ctypes  # noqa: F401  here, where no other thread can hold the lock of this import

    @staticmethod
    def _in_child() -> None:
        import ctypes  # known already

        for guard in list(ForkGuard._living):
            guard._gate.owner = FORKED
            for item in guard._leaked:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=ForkGuard._before, after_in_child=ForkGuard._in_child)
