"""Runs rebalance listeners, on the application's thread, and reports every way out of them.

Whatever a listener does - return, raise, be interrupted - the member hears of it exactly once; otherwise it would
reconcile for ever (KAFKA-18160). Which listener call is due, and what its failure means, is decided in `member/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kip848_client.client.observer import MemberObserver
from kip848_client.errors import ForkedProcessError, ListenerError
from kip848_client.member.events import AssignPartitions, ListenerDone, LosePartitions, RevokePartitions
from kip848_client.model import TopicIdPartition, describe_partitions

ListenerEffect = RevokePartitions | AssignPartitions | LosePartitions


class RebalanceCallbacks(Protocol):
    """The application's listener, with partitions as the member has them, sorted by topic and partition."""

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Tell what is new; maybe nothing."""
        ...

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Tell what will be handed over."""
        ...

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Tell what is gone."""
        ...


class NoCallbacks:
    """Nobody listens."""

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
        observer: told how each call went.
    """

    def __init__(self, *, report: Callable[[ListenerDone], object], observer: MemberObserver) -> None:
        self._report = report
        self.observer: Final = observer
        self.callbacks: RebalanceCallbacks = NoCallbacks()
        self.running: ListenerEffect | None = None
        """The call that runs now: calls of the consumer made from inside a listener are told apart by it."""
        self.reported: int | None = None
        """Token of the last call whose end was reported."""

    def run(self, effect: ListenerEffect, *, let_go: Callable[[], None]) -> ListenerError | None:
        """Run the listener for *effect* and report its end.

        Args:
            let_go: releases the records of the partitions: after a revoked call that returned, before a lost call. An
                assigned call does not use it.

        Returns:
            What the listener raised, wrapped, for the caller to raise.

        Raises:
            BaseException: what the listener raised, if it is no `Exception` (KeyboardInterrupt); reported as well.
        """
        name, call = self._callback(effect)
        partitions = tuple(sorted(effect.partitions))
        failure: BaseException | None = None
        self.running = effect
        try:
            if isinstance(effect, LosePartitions):
                let_go()
            with self.observer.listener(name, partitions):
                call(partitions)
            if isinstance(effect, RevokePartitions):
                let_go()
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):
                raise
            text = describe_partitions(partitions)
            wrapped = ListenerError(f"on_partitions_{name}({text}) raised {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            return wrapped
        finally:
            self.running = None
            try:
                self._report(ListenerDone(effect.token, failure))
                self.reported = effect.token
            except ForkedProcessError:
                # The listener called fork(), and this is the child. What ends the whole program goes before.
                if failure is None or isinstance(failure, Exception):
                    raise
        return None

    def _callback(self, effect: ListenerEffect) -> tuple[str, Callable[[tuple[TopicIdPartition, ...]], None]]:
        match effect:
            case RevokePartitions():
                return "revoked", self.callbacks.revoked
            case AssignPartitions():
                return "assigned", self.callbacks.assigned
            case LosePartitions():
                return "lost", self.callbacks.lost
