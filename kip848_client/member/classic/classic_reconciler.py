"""Which partitions a classic member revokes before it joins, and how it applies the assignment afterwards.

A member that offers an eager assignor revokes everything before each join. A cooperative member revokes only topics
that it no longer subscribes to, and after the join the partitions that the leader's assignment leaves out.

Does not own: the steps (`runs`), when it joins (`classic_protocol`).

Source: Kafka's ``ConsumerCoordinator.onJoinPrepare`` and ``onJoinComplete``; KIP-429.
Rules: R204, R205 and R222 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.member.core.context import Context
from kip848_client.member.group.runs import Run, Runs
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions
from kip848_client.model import TopicIdPartition

__all__ = ["ClassicReconciler"]


class ClassicReconciler(Runs):
    """Starts the runs of a member with the classic protocol.

    Args:
        subscribes_to: tells whether the member subscribes to a topic now.
        on_prepared: called when the revocation before a join is done.
        on_assigned: called when an assignment was applied.
        on_assignment_refused: called when the assigned callback raised; returns whether the member joins again anyway.
    """

    def __init__(
        self,
        context: Context,
        *,
        commits: Commits,
        positions: Positions,
        subscribes_to: Callable[[str], bool],
        on_prepared: Callable[[], None],
        on_assigned: Callable[[Run], None],
        on_assignment_refused: Callable[[Run], bool],
    ) -> None:
        super().__init__(context, commits=commits, positions=positions)
        self._subscribes_to = subscribes_to
        self._on_prepared = on_prepared
        self._on_assigned = on_assigned
        self._on_assignment_refused = on_assignment_refused

    @property
    def to_revoke(self) -> frozenset[TopicIdPartition]:
        """The partitions to revoke before the next join."""
        owned = self._context.owned
        if not self._context.config.cooperative:
            return owned
        return frozenset(partition for partition in owned if not self._subscribes_to(partition.topic))

    def prepare(self) -> None:
        """Start the revocation that a join waits for. Called at the start of poll()."""
        revoked = self.to_revoke
        self._begin(Run(self._context.owned - revoked, frozenset(), revoked, on_revoked=self._on_prepared))

    def apply_assignment(self, partitions: frozenset[TopicIdPartition]) -> None:
        """Start the run that applies an assignment. Called at the start of poll()."""
        owned = self._context.owned
        added = (partitions - owned) | (self.unconfirmed & partitions)
        self._begin(Run(partitions, added, owned - partitions))

    def _commit_within_ms(self, run: Run) -> int:
        # Half the time before a join: the group waits for our JoinGroup.
        timeout_ms = self._context.config.rebalance_timeout_ms
        return timeout_ms // 2 if run.revokes_only else timeout_ms

    def _assigned(self, run: Run) -> None:
        self._on_assigned(run)

    def _assignment_ended(self, run: Run, error: BaseException | None) -> None:
        if error is not None and self._on_assignment_refused(run):
            self.run = None  # joining again does not wait for a callback that may raise for ever
        super()._assignment_ended(run, error)
