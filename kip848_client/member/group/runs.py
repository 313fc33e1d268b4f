"""A run: the steps from the partitions that the application owns to those it is assigned. Both protocols share them.

`Runs._steps` is the whole run, from top to bottom. A run starts only at the beginning of a poll(), because only then
are all records of the last poll() processed. An assignment that arrives meanwhile waits for the next run.

Does not own: the start of a run, its partitions, and the steps after it (`reconciler`, `classic_reconciler`).

Source: KIP-848 "Reconciliation"; Kafka's ``AbstractMembershipManager.maybeReconcile``.
Rules: R64 to R88 and R256 in docs/protocol.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.model import TopicIdPartition
from kip848_client.member.core.assignment import NO_ASSIGNMENT, LocalAssignment
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import AssignPartitions, PausePartitions, RevokePartitions
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions

COMMIT_WAIT_MS: Final = 20
"""How long poll() waits for the commit before a revocation. Then it reads on what stays: a coordinator may be slow, or
away, until the rebalance timeout. Not at once, since the partitions that go have no reader until the next poll()."""

Steps: TypeAlias = Generator[None, BaseException | None, None]
"""Waits at each ``yield``; a listener call that ended hands in what the listener raised."""


class Run(msgspec.Struct, eq=False):
    """One run in progress."""

    partitions: frozenset[TopicIdPartition]
    added: frozenset[TopicIdPartition]
    revoked: frozenset[TopicIdPartition]
    commit_within_ms: int
    """How long it waits for its commit."""
    reads_on_ms: int = 0
    """From then on poll() no longer waits for the commit."""
    resolved: LocalAssignment = NO_ASSIGNMENT
    """The assignment to acknowledge afterwards, where the protocol acknowledges."""
    ownership_reports: int = 0
    """`Heartbeats.ownership_reports` when the run began: a larger count shows that a heartbeat was sent meanwhile."""
    on_revoked: Callable[[], None] | None = None
    """Follows a run that only revokes, before a join of the classic protocol."""
    token: int | None = None
    """Number of the listener call that is awaited."""
    steps: Steps | None = None

    @property
    def revokes_only(self) -> bool:
        """Whether the run ends with the revocation."""
        return self.on_revoked is not None


class Runs(ABC):
    """Carries out one run at a time, and knows which owned partitions must not be fetched meanwhile."""

    def __init__(self, context: Context, *, commits: Commits, positions: Positions) -> None:
        self._context = context
        self._commits = commits
        self._positions = positions
        self.run: Run | None = None
        self.held_back: frozenset[TopicIdPartition] = frozenset()
        """Owned, but paused: they are being revoked, or the listener that should revoke them raised."""
        self.unconfirmed: frozenset[TopicIdPartition] = frozenset()
        """Owned, but the assigned callback has not succeeded for them yet."""
        self.reported_unowned: frozenset[TopicIdPartition] = frozenset()
        """Owned, but a heartbeat in flight leaves them out: do not fetch them until it is answered."""

        self.listener_backoff: Backoff = context.new_backoff()
        """A listener that raised may be called again when it is ready."""
        self._listener_failed = False
        """The last run ended because a listener raised."""

    # --- what a protocol decides

    def _contradicted(self, run: Run) -> bool:
        """Whether a heartbeat sent during the run told the coordinator that its added partitions are not owned."""
        del run
        return False

    @abstractmethod
    def _assigned(self, run: Run) -> None:
        """The assigned callback succeeded: acknowledge, if the protocol does, and move to the next phase."""

    def _assigned_raised(self, run: Run) -> None:
        """The assigned callback raised."""
        self._listener_raised(run)

    # --- the run

    def _begin(self, run: Run) -> None:
        self.run = run
        run.steps = self._steps(run)
        self._go_on(run)

    def _go_on(self, run: Run, error: BaseException | None = None) -> None:
        """What the run waited for has ended: take its next steps. A run that was cancelled takes none."""
        if run is self.run and run.steps is not None:
            with suppress(StopIteration):
                run.steps.send(error)

    def _steps(self, run: Run) -> Steps:
        context = self._context

        if run.revoked:
            # Read no further: the next owner begins at the offsets that are committed now.
            self.held_back |= run.revoked
            self._positions.hold(run.revoked)
            context.emit(PausePartitions(run.revoked))

            # Only before a revocation: otherwise no other member needs the commit, and new partitions would have no
            # reader meanwhile. A commit that fails, or takes too long, is given up: others wait for the partitions.
            if self._commits.start_before_revocation(lambda: self._go_on(run), within_ms=run.commit_within_ms):
                context.move("commit_started")
                run.reads_on_ms = context.now_ms + COMMIT_WAIT_MS
                yield

            context.move("revocation_started")
            run.token = context.call_listener(RevokePartitions, run.revoked, lambda error: self._go_on(run, error))
            error = yield
            if error is not None:
                self._listener_raised(run)
                return
            self._remove_owned(run.revoked)

        if run.on_revoked is not None:
            self.run = None
            run.on_revoked()
            return

        if run.added and self._contradicted(run):
            # The coordinator may give the added partitions away. A new run follows.
            self.run = None
            context.move("run_contradicted")
            return

        # Before the callback, in which the application may seek. They are read once it has succeeded.
        context.set_owned(context.owned | run.added)
        self._positions.prepare(run.added)
        self._commits.forget(run.added)
        self.unconfirmed |= run.added
        context.move("assignment_started")
        # Also if nothing was added: applications count on one call for each rebalance.
        run.token = context.call_listener(AssignPartitions, run.added, lambda error: self._go_on(run, error))
        error = yield
        if error is not None:
            self._assigned_raised(run)
            return

        self.run = None
        self.unconfirmed = frozenset()
        # If a heartbeat contradicted this run or an earlier one, the next answer says what of it may be fetched.
        self.reported_unowned = context.owned & (
            self.reported_unowned | (run.added if self._contradicted(run) else frozenset())
        )
        # This includes partitions that an earlier run paused and that were assigned again before they were revoked.
        self.held_back = frozenset()
        self._positions.release(context.owned - self.reported_unowned)
        if run.revoked or not self._commits.interval_runs:
            self._commits.restart_interval()
        self._forget_failures()
        self._assigned(run)

    def _remove_owned(self, revoked: frozenset[TopicIdPartition]) -> None:
        self._context.set_owned(self._context.owned - revoked)
        self._positions.drop(revoked)

    def _listener_raised(self, run: Run) -> None:
        """End the run without acknowledging it; the next poll() starts another (R84-R89).

        From the second failure in a row on, that run waits for a backoff (R196): a listener that always raises is not
        called in every poll().
        """
        self.run = None
        if self._listener_failed:
            self.listener_backoff.failed(self._context.now_ms)
        self._listener_failed = True
        self._context.move("preparation_failed" if run.revokes_only else "listener_failed")

    def _forget_failures(self) -> None:
        self._listener_failed = False
        self.listener_backoff.reset()

    # --- interruption

    def reset(self) -> None:
        """The member joins again or left. The caller takes care of the owned partitions."""
        self._forget_failures()

    def cancel(self) -> Run | None:
        """Stop the run. If its listener call has not returned yet, return the run, for a later call of `settle`."""
        run = self.run
        self.run = None
        self._commits.cancel_before_revocation()
        return run if run is not None and run.token is not None and self._context.listener_awaited(run.token) else None

    def claim_owned(self) -> None:  # noqa: B027  nothing to do where each join lists what is owned
        """Count all owned partitions as reconciled, so that the next heartbeat names them; only for KIP-848."""

    def settle(self, run: Run, *, revoked: bool) -> None:
        """The listener call of a cancelled run has returned. If it revoked partitions, they are no longer owned."""
        if revoked:
            self._remove_owned(run.revoked)
