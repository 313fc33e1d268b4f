"""Runs rebalance listeners, on the application's thread, and reports every way out of them.

Each listener call is reported to the member exactly once (returned, raised, was interrupted); otherwise it would
reconcile for ever (KAFKA-18160). `member/` decides which call is due, and what its failure means.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, Protocol

from kip848_client.common.model import TopicIdPartition, describe_partitions
from kip848_client.errors import ForkedProcessError, ListenerError
from kip848_client.member.core.events import AssignPartitions, ListenerDone, LosePartitions, RevokePartitions
from kip848_client.network.observer import MemberObserver
from kip848_client.network.ownership import is_inside

ListenerEffect = RevokePartitions | AssignPartitions | LosePartitions


class RebalanceCallbacks(Protocol):
    """The application's listener, with partitions as the member has them, sorted by topic and partition."""

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions were added; there may be none."""
        ...

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions are about to be given to other members."""
        ...

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions belong to other members already, or soon will."""
        ...


class NoCallbacks:
    """A listener that does nothing."""

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Do nothing."""

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Do nothing."""

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Do nothing."""


class ListenerInvoker:
    """Runs one listener call at a time.

    Args:
        report: posts `ListenerDone` to the member.
        observer: logs and measures each call.
    """

    def __init__(self, *, report: Callable[[ListenerDone], object], observer: MemberObserver) -> None:
        self._report = report
        self.observer: Final = observer
        self.callbacks: RebalanceCallbacks = NoCallbacks()
        self._running: ListenerEffect | None = None
        self._frame: FrameType | None = None
        self._thread: int | None = None
        self.reported: int | None = None
        """Token of the last call whose end was reported."""
        self._returned: int | None = None
        """Token of the last call that returned. If its report is interrupted, it is repeated without calling again."""

    @property
    def running(self) -> ListenerEffect | None:
        """The listener call from inside which we are called: methods of the consumer behave differently there."""
        if self._running is None or self._thread != threading.get_ident():
            return None
        if is_inside(sys._getframe(1), self._frame):
            return self._running
        self._running = self._frame = None  # it was interrupted on its way out
        return None

    @property
    def called(self) -> ListenerEffect | None:
        """The listener call that runs now, on whatever thread."""
        return self._running

    def run(self, effect: ListenerEffect, *, stop_fetching: Callable[[], None]) -> ListenerError | None:
        """Run the listener for *effect* and report its end.

        Args:
            stop_fetching: drops the records of the partitions. Called after a revoked listener returned and before a
                lost listener; never for an assigned listener.

        Returns:
            The exception of the listener, wrapped, for the caller to raise.

        Raises:
            BaseException: what the listener raised, if it is no `Exception` (KeyboardInterrupt); reported as well.
                Or what *stop_fetching* raised: not reported, for the caller to run *effect* again. A listener that had
                returned by then is not called again.
        """
        if isinstance(effect, LosePartitions):
            stop_fetching()
        error = self._call(effect) if self._returned != effect.token else None
        if error is not None:
            return error
        if isinstance(effect, RevokePartitions):
            stop_fetching()
        self._report_end(effect, None)
        return None

    def _call(self, effect: ListenerEffect) -> ListenerError | None:
        name, call = self._callback(effect)
        partitions = tuple(sorted(effect.partitions))
        failure: BaseException | None = None
        self._frame, self._thread, self._running = sys._getframe(), threading.get_ident(), effect
        try:
            with self.observer.listener(name, partitions):
                call(partitions)
            self._returned = effect.token
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):
                raise
            text = describe_partitions(partitions)
            wrapped = ListenerError(f"on_partitions_{name}({text}) raised {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            return wrapped
        finally:
            self._running = self._frame = None
            if failure is not None:
                self._report_end(effect, failure)
        return None

    def _report_end(self, effect: ListenerEffect, failure: BaseException | None) -> None:
        try:
            self._report(ListenerDone(effect.token, failure))
            self.reported = effect.token
        except ForkedProcessError:
            # The listener called fork(), and this is the child. SystemExit and the like take precedence.
            if failure is None or isinstance(failure, Exception):
                raise

    def _callback(self, effect: ListenerEffect) -> tuple[str, Callable[[tuple[TopicIdPartition, ...]], None]]:
        match effect:
            case RevokePartitions():
                return "revoked", self.callbacks.revoked
            case AssignPartitions():
                return "assigned", self.callbacks.assigned
            case LosePartitions():
                return "lost", self.callbacks.lost
