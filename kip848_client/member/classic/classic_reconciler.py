"""Which partitions a classic member revokes before it joins, and how it applies the assignment afterwards.

A member that offers an eager assignor revokes everything before each join. A cooperative member revokes only topics
that it no longer subscribes to, and after the join the partitions that the leader's assignment leaves out.

Does not own: the steps (`runs`), when it joins (`classic_protocol`).

Source: Kafka's ``ConsumerCoordinator.onJoinPrepare`` and ``onJoinComplete``; KIP-429.
Rules: R204, R205 and R222 in docs/protocol.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from kip848_client.common.model import TopicIdPartition
from kip848_client.member.core.context import Context
from kip848_client.member.group.runs import Run, Runs
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions


class RunOwner(ABC):
    """The protocol that a run reports to."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Whether the member subscribes to a topic now."""

    @abstractmethod
    def prepared(self) -> None:
        """The revocation before a join is done."""

    @abstractmethod
    def assignment_applied(self, run: Run) -> None:
        """The assigned callback succeeded."""

    @abstractmethod
    def assignment_refused(self, run: Run) -> bool:
        """The assigned callback raised. Returns whether the member joins again anyway."""


class ClassicReconciler(Runs):
    """Starts the runs of a member with the classic protocol."""

    def __init__(self, context: Context, *, commits: Commits, positions: Positions, owner: RunOwner) -> None:
        super().__init__(context, commits=commits, positions=positions)
        self._owner = owner

    @property
    def to_revoke(self) -> frozenset[TopicIdPartition]:
        """The partitions to revoke before the next join."""
        owned = self._context.owned
        if not self._context.config.cooperative:
            return owned
        return frozenset(partition for partition in owned if not self._owner.subscribes_to(partition.topic))

    def prepare(self) -> None:
        """Start the revocation that a join waits for. Called at the start of poll()."""
        revoked = self.to_revoke
        self._begin(
            Run(
                partitions=self._context.owned - revoked,
                added=frozenset(),
                revoked=revoked,
                commit_within_ms=self._context.config.rebalance_timeout_ms // 2,  # the group waits for our JoinGroup
                on_revoked=self._owner.prepared,
            )
        )

    def apply_assignment(self, partitions: frozenset[TopicIdPartition]) -> None:
        """Start the run that applies an assignment. Called at the start of poll()."""
        owned = self._context.owned
        self._begin(
            Run(
                partitions=partitions,
                added=(partitions - owned) | (self.unconfirmed & partitions),
                revoked=owned - partitions,
                commit_within_ms=self._context.config.rebalance_timeout_ms,
            )
        )

    def _assigned(self, run: Run) -> None:
        self._owner.assignment_applied(run)

    def _assigned_raised(self, run: Run) -> None:
        if self._owner.assignment_refused(run):
            self.run: Run | None = None  # joining again does not wait for a callback that may raise for ever
        else:
            super()._assigned_raised(run)
