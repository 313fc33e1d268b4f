"""Calls about which partitions are read without membership: assign, unassign and what confluent_kafka has beside them.

Part of `Consumer`, apart from it only to keep each file about one thing. Inside a listener they mean: start there.
"""

from __future__ import annotations

from kip848_client.client.data_plane import PublicTopicPartition, internal, public
from kip848_client.client.fetcher import Fetcher
from kip848_client.client.group_member import GroupMember
from kip848_client.client.ownership import OneThread
from kip848_client.client.translation import assign_positions, check_partitions, start_position
from kip848_client.member.events import AssignPartitions


class AssignCalls:
    """What is read, where the application decides it."""

    _fetcher: Fetcher
    _group: GroupMember
    _gate: OneThread

    def assign(self, partitions: list[PublicTopicPartition]) -> None:
        """Read exactly these partitions, without membership.

        Inside on_partitions_assigned it means: start them at their offsets.

        Args:
            partitions: an offset >= 0, OFFSET_BEGINNING or OFFSET_END is where to start; without one the committed
                offset is, and then auto.offset.reset.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        with self._gate:
            effect = self._group.listener_effect
            if effect is not None:
                if isinstance(effect, AssignPartitions):
                    self._start_at(partitions)
                return  # in the other callbacks the library lets go of the partitions by itself
            self._group.assign(assign_positions(partitions))

    def unassign(self) -> None:
        """End a manual assignment. Inside a listener it does nothing: the library lets go by itself."""
        with self._gate:
            if self._group.listener_effect is None:
                self._group.assign({})

    def incremental_assign(self, partitions: list[PublicTopicPartition]) -> None:
        """Add to a manual assignment; inside on_partitions_assigned the same as `assign`."""
        with self._gate:
            if self._group.listener_effect is not None:
                self.assign(partitions)
                return
            kept = dict.fromkeys(self._group.manual)
            self._group.assign({**kept, **assign_positions(partitions)})

    def incremental_unassign(self, partitions: list[PublicTopicPartition]) -> None:
        """Take from a manual assignment. Inside a listener it does nothing: the library lets go by itself."""
        with self._gate:
            if self._group.listener_effect is None:
                gone = {internal(partition) for partition in check_partitions(partitions, call="incremental_unassign")}
                self._group.assign({p: None for p in self._group.manual if p not in gone})

    def assignment(self) -> list[PublicTopicPartition]:
        """The partitions that this consumer has now, sorted."""
        with self._gate:
            return [public(tip.topic_partition) for tip in sorted(self._group.view.assigned)]

    def _start_at(self, partitions: list[PublicTopicPartition]) -> None:
        for partition in check_partitions(partitions, call="assign"):
            position = start_position(partition)
            if position is not None:
                self._fetcher.mark(internal(partition), position)
                self._group.seek(internal(partition), position)
