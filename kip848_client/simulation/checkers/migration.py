"""Online migration: when a group becomes one of the other kind, and what it keeps then. K1, K2, K6 and K9."""

from __future__ import annotations

from collections.abc import Sequence

from kip848_client.coordinator.classic.group import ClassicGroup
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.group_member import STATIC_LEAVE_EPOCH
from kip848_client.errors import ProtocolError
from kip848_client.model import TopicPartition
from kip848_client.simulation.mirror import Change, Conversion, Mirror
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_protocol import decode_assignment


class Conversions(Observer):
    """K9: a group becomes a classic one exactly when its last member on the new protocol goes, where that is allowed.

    K6: members keep what they had, in the epoch or generation that they had. A conversion is one step.
    """

    def __init__(self, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._mirror = mirror
        self._config = config
        self._loads = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        mirror = self._mirror
        loaded, self._loads = mirror.loads != self._loads, mirror.loads
        converted = mirror.converted
        if loaded or (converted is not None and converted.was_empty):
            return
        if converted is None:
            if any(after is None for _, _, after in changes) and self._is_owed():
                fail("K9", f"only members on the classic protocol are left: {sorted(mirror.members)}")
        elif converted.classic is not None:
            self._upgraded(converted.classic)
        else:
            self._downgraded(converted)

    def _is_owed(self) -> bool:
        members = self._mirror.members.values()
        return (
            self._config.may_downgrade
            and 0 < len(members) <= self._config.classic_max_size
            and all(seen.member.metadata.classic is not None for seen in members)
        )

    def _upgraded(self, before: ClassicGroup) -> None:
        mirror = self._mirror
        if not self._config.may_upgrade:
            fail("K9", f"the policy is {self._config.migration_policy}, and {before} became a consumer group")
        if mirror.group_epoch not in (before.generation, before.generation + 1):
            fail("K2", f"generation {before.generation} became epoch {mirror.group_epoch}")
        for member_id, seen in mirror.members.items():
            member = before.members.get(member_id)
            if member is not None and not mirror.names(seen.held) <= _given(member.assignment):
                fail("K6", f"{member_id} had {member.assignment!r}, and holds {mirror.names(seen.held)}")
        if missing := before.members.keys() - mirror.members.keys():
            instances = {seen.member.metadata.instance_id for seen in mirror.members.values()}
            if any(before.members[member_id].instance_id not in instances - {None} for member_id in missing):
                fail("K6", f"{sorted(missing)} are no members after the upgrade")

    def _downgraded(self, converted: Conversion) -> None:
        mirror, after = self._mirror, self._mirror.classic
        assert after is not None
        if not self._config.may_downgrade:
            fail("K9", f"the policy is {self._config.migration_policy}, and the group became {after}")
        modern = [one for one, seen in converted.members.items() if seen.member.metadata.classic is None]
        if not modern:
            fail("K9", f"no member was on the new protocol, and the group became {after}")
        if after.members.keys() & set(modern):
            fail("K9", f"{modern} spoke the new protocol, and are in {after}")
        if not mirror.group_epoch <= after.generation <= mirror.group_epoch + 1:
            fail("K2", f"epoch {mirror.group_epoch} became generation {after.generation}")
        for member_id, member in after.members.items():
            seen = converted.members.get(member_id)
            kept = seen is not None and seen.epoch != STATIC_LEAVE_EPOCH
            if (
                kept
                and seen is not None
                and member.assignment
                and not _given(member.assignment) <= mirror.names(seen.target)
            ):
                fail("K6", f"{member_id} was to have {mirror.names(seen.target)}, and has {member.assignment!r}")


def _given(data: bytes) -> frozenset[TopicPartition]:
    try:
        topics = decode_assignment(data).assigned_partitions if data else ()
    except ProtocolError as error:
        fail("K6", f"an assignment cannot be read: {error}")
    return frozenset(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)
