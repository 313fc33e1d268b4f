"""Moves the member from its owned partitions to its target, one run at a time.

The set algebra is over (topic id, partition), so that a topic created again under its old name is a different topic::

    resolved = target with known topic names             revoked = owned - resolved
    added    = resolved - owned, plus partitions whose assigned callback raised

The steps of a run are in `runs`. This file decides when a run starts, with which partitions, and when its result is due
to be acknowledged (`Heartbeats.ack_due`).

While a topic id is unknown, the member asks for its name repeatedly, and assigns the other partitions. A new target
waits for the first answer about its ids, at most `retry.backoff.max.ms`; otherwise every first assignment would reach
the application in two steps, the first of them empty.

Does not own: sending the acknowledgement (`heartbeats`), entering and leaving the group (`membership`), where to start
(`positions`).

Source: KIP-848 "Reconciliation"; Kafka's ``AbstractMembershipManager.maybeReconcile``; KAFKA-16185, KAFKA-16460,
KAFKA-18641, KAFKA-20145.
Rules: R64 to R88, R196 and R265 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kip848_client.common.model import TopicIdPartition
from kip848_client.member.consumer.assignor_round import AssignorRound
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.topic_names import TopicNames
from kip848_client.member.core.assignment import NO_ASSIGNMENT, IdPartition, LocalAssignment
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import MetadataUpdated
from kip848_client.member.core.states import IN_GROUP, Phase
from kip848_client.member.group.runs import Run, Runs
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions


class Reconciler(Runs):
    """Holds the target and the current assignment, and starts runs."""

    def __init__(
        self,
        context: Context,
        *,
        heartbeats: Heartbeats,
        commits: Commits,
        positions: Positions,
        assignors: AssignorRound,
    ) -> None:
        super().__init__(context, commits=commits, positions=positions)
        self._assignors = assignors
        self._heartbeats = heartbeats
        self.target: LocalAssignment = NO_ASSIGNMENT
        self.current: LocalAssignment = NO_ASSIGNMENT
        self.hold_back_runs = False
        """No run starts: the member keeps its partitions until their next owners are ready (see `hand_over`)."""
        self._names = TopicNames(context, failure_counts=True)
        self._resolved = NO_ASSIGNMENT
        """The part of the target whose topic names are known."""
        self._names_awaited_until_ms = 0
        self._on_revoked: Callable[[], None] | None = None

    # --- target

    def receive(self, partitions: frozenset[IdPartition]) -> bool:
        """Take an assignment from the coordinator; True if it changes the target."""
        if self.target is not NO_ASSIGNMENT and partitions == self.target.partitions:
            return False
        self.target = LocalAssignment(partitions, self.target.local_epoch + 1)
        self._resolve()
        if self._names.not_asked:
            self._names_awaited_until_ms = self._context.now_ms + max(1, self._context.config.retry_backoff_max_ms)
            self._names.ask_soon()
        return True

    def reset(self) -> None:
        """The member joins again or left: forget the target. The caller takes care of the owned partitions."""
        super().reset()
        self._on_revoked = None
        self.target = NO_ASSIGNMENT
        self.current = NO_ASSIGNMENT
        self._names.forget()
        self._resolve()

    # --- names

    def _resolve(self) -> None:
        self._names.want(topic_id for topic_id, _ in self.target.partitions)
        known = frozenset(item for item in self.target.partitions if item[0] in self._names)
        self._resolved = LocalAssignment(known, self.target.local_epoch)

    def _used(self) -> frozenset[UUID]:
        """Topics of the target and of the owned partitions."""
        return frozenset(
            {topic_id for topic_id, _ in self.target.partitions} | {item.topic_id for item in self._context.owned}
        )

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Learn names."""
        self._names.update(event, useful=self._used())
        self._resolve()

    def _named(self, partitions: frozenset[IdPartition]) -> frozenset[TopicIdPartition]:
        return frozenset(TopicIdPartition(self._names[topic_id], index, topic_id) for topic_id, index in partitions)

    # --- timing

    @property
    def _awaits_names(self) -> bool:
        return self._context.now_ms < self._names_awaited_until_ms and bool(self._names.not_asked)

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() should start a run."""
        if self._context.phase is Phase.REJOIN_DUE:
            return self._context.now_ms >= self.listener_backoff.ready_ms
        return (
            self._context.phase is Phase.PENDING
            and not self.hold_back_runs
            and not self._awaits_names
            and self._context.now_ms >= self.listener_backoff.ready_ms
            and self._resolved != self.current
            and not self._assignors.holds_back
            and not (self._heartbeats.ownership_report_pending and self._adds)
        )

    @property
    def _adds(self) -> bool:
        """Whether a run would add partitions, which it must not do while a heartbeat without them is in flight.

        If the target moves before that heartbeat arrives, its list of owned partitions reads as "I do not own these",
        and the coordinator would give them away while they are being read. The wait ends with its answer or, after a
        failure, with the answer to a later heartbeat.
        """
        had = {(tip.topic_id, tip.partition) for tip in self._context.owned - self.unconfirmed}
        return not self._resolved.partitions <= had

    def advance(self) -> None:
        """Do the work that needs no poll(): fetch confirmed partitions, ask for names, acknowledge without a run."""
        if self._context.phase not in IN_GROUP:
            return
        if self.reported_unowned and not self._heartbeats.ownership_report_pending and self.run is None:
            self._ownership_answered()
        if self._names.missing:
            self._names.ask()
            if self._awaits_names:
                self._context.wake_at(self._names_awaited_until_ms)
        if self.listener_backoff.ready_ms > self._context.now_ms:
            self._context.wake_at(self.listener_backoff.ready_ms)
        if self._context.phase is Phase.PENDING and self._changes_nothing:
            self.current = self._resolved
            self._heartbeats.ack_due = True
            self._context.move("nothing_to_reconcile")

    def _ownership_answered(self) -> None:
        """The heartbeat that left partitions out was answered: fetch those that are still assigned.

        Other members may own the rest now: it stays paused, and the next run revokes it.
        """
        unowned = self.reported_unowned & self._context.owned
        self.reported_unowned: frozenset[TopicIdPartition] = frozenset()
        self.held_back: frozenset[TopicIdPartition] = self.held_back | {
            tip for tip in unowned if (tip.topic_id, tip.partition) not in self.target.partitions
        }
        self._positions.release(unowned - self.held_back)

    @property
    def _changes_nothing(self) -> bool:
        """Whether a new target has the partitions that are owned already, and no callback has to be called for any."""
        if self._awaits_names or self.held_back or self.unconfirmed:
            return False
        resolved, current = self._resolved, self.current
        if current is NO_ASSIGNMENT or resolved == current or resolved.partitions != current.partitions:
            return False
        return self._named(resolved.partitions) == self._context.owned

    # --- run

    def revoke_all(self, on_revoked: Callable[[], None]) -> None:
        """Revoke everything with the next poll(), because the member releases its slot; the phase is REJOIN_DUE."""
        self._on_revoked = on_revoked

    def polled(self) -> None:
        """poll() began: start a run if one is due."""
        if self._on_revoked is not None and self._context.phase is Phase.REJOIN_DUE and self.run is None:
            if self._context.now_ms >= self.listener_backoff.ready_ms:
                self._begin(
                    Run(
                        partitions=frozenset(),
                        added=frozenset(),
                        revoked=self._context.owned,
                        commit_within_ms=self._context.config.rebalance_timeout_ms,
                        on_revoked=self._on_revoked,
                    )
                )
            return
        if not self.poll_wanted or self.run is not None:
            return
        resolved = self._resolved
        partitions = self._named(resolved.partitions)
        owned = self._context.owned
        self._begin(
            Run(
                partitions=partitions,
                added=(partitions - owned) | (self.unconfirmed & partitions),
                revoked=owned - partitions,
                commit_within_ms=self._context.config.rebalance_timeout_ms,
                resolved=resolved,
                ownership_reports=self._heartbeats.ownership_reports,
            )
        )

    def _contradicted(self, run: Run) -> bool:
        # A full heartbeat was sent during the run, after a failure. It may not have listed run.added (see `_adds`).
        return run.ownership_reports != self._heartbeats.ownership_reports

    def _assigned(self, run: Run) -> None:
        """The assigned callback succeeded: the next heartbeat acknowledges the assignment (R67)."""
        self.current = run.resolved
        self._heartbeats.ack_due = True
        self._names.keep(self._used())
        self._context.move("reconciled")

    def _assigned_raised(self, run: Run) -> None:
        super()._assigned_raised(run)
        self._acknowledge_revocation()

    def _acknowledge_revocation(self) -> None:
        """The assigned callback raised. Report the partitions revoked before it: others wait for them (R265)."""
        owned = frozenset((tip.topic_id, tip.partition) for tip in self._context.owned)
        if not self.current.partitions <= owned:
            # With its old number, so that it differs from the target: the assigned callback has to be called again.
            self.current = LocalAssignment(self.current.partitions & owned, self.current.local_epoch)
            self._heartbeats.ack_due = True

    # --- interruption

    def claim_owned(self) -> None:
        """Have heartbeats list all owned partitions, even those of a cancelled run."""
        owned = frozenset((tip.topic_id, tip.partition) for tip in self._context.owned)
        if not owned <= self.current.partitions:
            self.current = LocalAssignment(self.current.partitions | owned, self.current.local_epoch + 1)
