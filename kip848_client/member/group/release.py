"""Runs the lost callback after the member was removed from its group or failed.

The callback waits while a reconciliation's listener still runs: partitions that this listener revokes are not lost as
well. After the callback, even if it raised, a fenced member joins again, a stale one waits for poll(), and a fatal one
stays stopped.

Source: Kafka's ``AbstractMembershipManager.transitionToFenced``, ``transitionToStale`` and ``transitionToFatal``.
Rules: R57 to R63 and R89 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.member.core.context import Context
from kip848_client.member.core.events import LosePartitions
from kip848_client.member.core.states import Phase
from kip848_client.member.group.runs import Run, Runs

__all__ = ["Release"]


class Release:
    """Takes a member in a ``*_RELEASE`` phase from owning partitions to owning none.

    Args:
        on_rejoin: called after the move to JOINING.
    """

    def __init__(self, context: Context, *, reconciler: Runs, on_rejoin: Callable[[], None]) -> None:
        self._context = context
        self._reconciler = reconciler
        self._on_rejoin = on_rejoin
        self._awaited_run: Run | None = None
        self._polled = False

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() lets a stale member join as soon as its callback is over."""
        stale = self._context.phase is Phase.STALE_RELEASE
        return stale and not self._polled and bool(self._context.subscription)

    def polled(self) -> None:
        """poll() began while the callback is not over."""
        if self._context.phase is Phase.STALE_RELEASE:
            self._polled = True

    def begin(self, run: Run | None) -> None:
        """Lose all owned partitions once the listener call of the cancelled *run* has returned."""
        self._polled = False
        self._awaited_run = run
        if run is None or run.token is None:
            self._lose()
        else:
            self._context.redirect_listener(run.token, lambda error: self._awaited_ended(run, error))

    def hurry(self) -> None:
        """Stop waiting: unsubscribe() or close() was called inside the listener that the release waits for."""
        if self._awaited_run is not None:
            self._awaited_ended(self._awaited_run, None)

    def _awaited_ended(self, run: Run, error: BaseException | None) -> None:
        if self._awaited_run is run:
            self._awaited_run = None
            self._reconciler.settle(run, revoked=error is None)
            self._lose()

    def _lose(self) -> None:
        owned = self._context.owned
        if not owned:
            self._over()
            return
        # If the member leaves, or is removed again, while the callback runs, its end must not change the new phase.
        incarnation = self._context.incarnation
        self._context.call_listener(LosePartitions, owned, lambda _: self._lost(incarnation))

    def _lost(self, incarnation: int) -> None:
        if incarnation == self._context.incarnation:
            self._over()

    def _over(self) -> None:
        context = self._context
        context.set_owned(())
        match context.phase:
            case Phase.FENCED_RELEASE if context.subscription:
                context.move("released")
                self._on_rejoin()
            case Phase.FENCED_RELEASE:
                context.move("unsubscribed")
            case Phase.STALE_RELEASE:
                context.move("released")
                if not context.subscription:
                    context.move("unsubscribed")
                elif self._polled:
                    context.move("polled")
                    self._on_rejoin()
            case Phase.FATAL_RELEASE:
                context.move("released")
            case _:
                pass
