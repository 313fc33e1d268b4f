"""S9 at any time: what a group counts is what its compacted log leads to."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.result import CoordinatorRecord
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.simulation.checkers.ownership import same_as_log
from kip848_client.testing.simulation.observed_group import MemberChange
from kip848_client.testing.simulation.observer import Checker, RunState
from kip848_client.testing.simulation.virtual.cluster import compact
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_REPLAY_EVERY: Final = 8
"""Of the changes of a group, those after which its log is read by another coordinator."""


def join(group: str, **changes: object) -> ConsumerGroupHeartbeatRequest:
    """A join of a stranger, in order but for *changes*."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="stranger",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    return replace(request, **changes)


class ReplayedLogs(Checker):
    """S9: what a group counts is what its log leads to, at any time."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._group_id = run_state.observed_group.group_id
        self._changes = 0

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        """Let another one read the log, as compaction leaves it."""
        self._changes += 1
        if self._changes % _REPLAY_EVERY or not self._cluster.up:
            return
        same_as_log(self._cluster.coordinator, self._reading(compact(self._cluster.log)))

    def converged(self) -> None:
        """Members that join again as another member, which those of a simulation never do: another one decides."""
        log, living = self._cluster.log, self._cluster.coordinator
        group = living.group(self._group_id)
        member_ids = [] if group is None else group.sorted_member_ids
        for member_id in member_ids[self._scheduler.seed % max(1, len(member_ids)) :][:1]:
            for instance_id in ("somebody else", None):
                message = join(self._group_id, member_id=member_id, instance_id=instance_id)
                request = ApiRequest(-1, 1, message, self._scheduler.wall_ms, "somebody else", "/elsewhere")
                records = list(living.handle(request, now_ms=self._scheduler.now_ms).records)
                other = self._reading(log)
                for record in records:
                    other.replay(record)
                other.check_invariants()
                same_as_log(other, self._reading(compact([*log, *records])))

    def _reading(self, log: Iterable[CoordinatorRecord]) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._scene.config, rng=random.Random(0))
        for record in log:
            coordinator.replay(record)
        return coordinator
