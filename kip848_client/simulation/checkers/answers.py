"""The coordinator's answers to heartbeats (S14), and its event log (T1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kip848_client.coordinator.consumer_group import ConsumerGroup, GroupState
from kip848_client.coordinator.events import GroupEvent
from kip848_client.coordinator.group_configs import HEARTBEAT_INTERVAL
from kip848_client.coordinator.group_member import STATIC_LEAVE_EPOCH, GroupMember, MemberState
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, IdPartition, Mirror, Seen, id_partitions, listed
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest


class HeartbeatAnswers(Observer):
    """S14: an answer carries the member's state, and an assignment only if it changed or the request was full.

    A member with a client-side assignor also gets the partitions that it waits for, and the metadata for its assignor.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._waits: dict[str, frozenset[IdPartition]] = {}
        """Member with an assignor -> the partitions of the last answer that it waits for."""

    @about(ConsumerGroupHeartbeatRequest)
    def served(
        self, client_id: str, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        group = self._mirror.group
        if response.error_code or request.member_epoch < 0 or group is None:
            return
        member = group.members.get(response.member_id or "")
        if member is None or response.member_epoch != member.current.member_epoch:
            fail("S14", f"{client_id} is told {response.member_id} at {response.member_epoch}; counted is {member}")
            return
        asked = member.metadata.client_assignors and self._cluster.coordinator.round_in_flight(group.group_id)
        if asked and not member.current.assigned.keys() <= self._cluster.topics.image.by_id.keys():
            fail("S14", f"{client_id} has partitions of a topic that is gone: {member.current.assigned}")
        before = self._mirror.members.get(member.member_id)
        told, assigned = response.assignment, member.current.assigned
        asks = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and request.topic_partitions is not None
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        )
        waits = self._waiting(group, member) if member.metadata.client_assignors else None
        waited = self._waits.get(member.member_id, frozenset())
        if waits is not None:
            self._waits[member.member_id] = waits
        if told is None:
            if waits is not None and waits != self._existing(waited):
                fail("S14", f"{client_id} is not told that it waits for {sorted(waits)}, no more for {sorted(waited)}")
            if asks or before is None:
                fail("S14", f"{client_id} asked for its assignment, and is told none")
            elif assigned is not before.member.current.assigned and id_partitions(assigned) != before.assigned:
                fail("S14", f"{client_id} is not told that its assignment changed")
            return
        if listed(told.topic_partitions) != id_partitions(assigned):
            fail("S14", f"{client_id} is told {told.topic_partitions}, and has {assigned}")
        is_same = not asks and before is not None and id_partitions(assigned) == before.assigned
        if waits is None:
            if is_same:
                fail("S14", f"{client_id} is told its assignment again, and did not ask")
            return
        hears_news = before is None or before.member.current.metadata != member.current.metadata
        moved = before is not None and before.member.current.member_epoch != member.current.member_epoch
        if is_same and not hears_news and waits == waited and not (waits and moved):
            fail("S14", f"{client_id} is told its assignment again, did not ask, and there is nothing new")
        if listed(told.pending_topic_partitions) != waits:
            fail(
                "S14", f"{client_id} is told to wait for {told.pending_topic_partitions}, and waits for {sorted(waits)}"
            )
        metadata = member.current.metadata
        hears = (told.error, told.metadata_version, told.metadata_bytes, told.assignor_name)
        if hears != (metadata.error, metadata.version, metadata.data, metadata.assignor):
            fail("S14", f"the assignor of {client_id} hears {hears}, and was told {metadata}")

    def _existing(self, waited: frozenset[IdPartition]) -> frozenset[IdPartition]:
        """Without deleted topics, which a member learns from metadata and not from an answer."""
        topics = self._cluster.topics.image.by_id
        return frozenset(partition for partition in waited if partition[0] in topics)

    def _waiting(self, group: ConsumerGroup, member: GroupMember) -> frozenset[IdPartition]:
        """Partitions of its target that others have not given up."""
        current = member.current
        if current.state is not MemberState.UNRELEASED_PARTITIONS:
            return frozenset()
        wanted = set(self._cluster.topics.image.ids_of(group.topics_of(member.metadata)))
        return frozenset(
            (topic_id, index)
            for topic_id, partitions in group.target_of(member.member_id).items()
            if topic_id in wanted
            for index in partitions
        ) - id_partitions(current.assigned)


class CountedWishes(Observer):
    """S14: every field of an accepted heartbeat is applied; a leave removes the member or marks it away.

    T1: an accepted commit is told.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, *, interval_ms: int) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._interval_ms = interval_ms

    @about(ConsumerGroupHeartbeatRequest, OffsetCommitRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        if isinstance(request, OffsetCommitRequest):
            if any(not item.error_code for topic in response.topics for item in topic.partitions):
                self._commit(client_id, request)
            return
        group = self._mirror.group
        if response.error_code or group is None:
            return
        if request.member_epoch < 0:
            self._leave(client_id, group, request)
            return
        interval_ms = int(self._cluster.overrides_of(group.group_id).get(HEARTBEAT_INTERVAL, self._interval_ms))
        if response.heartbeat_interval_ms != interval_ms:
            fail("S14", f"{client_id} is told to come every {response.heartbeat_interval_ms} ms, not {interval_ms}")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return
        member = group.members.get(response.member_id or "")
        if member is None:
            return
        counted, names, regex = member.metadata, request.subscribed_topic_names, request.subscribed_topic_regex
        if names is not None and set(names) != set(counted.subscribed_topic_names):
            fail("S14", f"{client_id} subscribes to {names}, and {counted.subscribed_topic_names} counts")
        if regex is not None and (regex or None) != counted.subscribed_topic_regex:
            fail("S14", f"{client_id} subscribes to {regex!r}, and {counted.subscribed_topic_regex!r} counts")
        if request.rebalance_timeout_ms not in (-1, counted.rebalance_timeout_ms):
            fail("S14", f"{client_id} wants {request.rebalance_timeout_ms} ms, and gets {counted.rebalance_timeout_ms}")
        if request.rack_id not in (None, counted.rack_id):
            fail("S14", f"{client_id} is in {request.rack_id}, and {counted.rack_id} counts")

    def _leave(self, client_id: str, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
        member = group.members.get(request.member_id)
        if member is None:
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                fail("S14", f"{client_id} will be back, and is removed")
        elif request.member_epoch != STATIC_LEAVE_EPOCH:
            fail("S14", f"{client_id} left, and is still counted")
        elif member.current.member_epoch != STATIC_LEAVE_EPOCH or member.current.pending_revocation:
            fail("S14", f"{client_id} left for a while, and counts as there: {member.current}")
        elif any(epoch for epochs in member.current.assigned.values() for epoch in epochs.values()):
            fail("S11", f"{client_id} left for a while, and its successor may not commit: {member.current}")

    def _commit(self, client_id: str, request: OffsetCommitRequest) -> None:
        facts = self._cluster.facts
        told = facts[-1] if facts else None
        if told is None or told.event != "offsets_committed":
            fail("T1", f"the event log misses a commit of {client_id}; its last commit is {told}")
        elif told.member_id not in (None, request.member_id):
            fail("T1", f"{client_id} committed, and {told.member_id} is told of")


_TARGET_FACTS = ("target_assignment_computed", "assignor_failed")
_MOVED_FACTS = ("member_assignment_changed", "member_joined", "member_left")


class ToldFacts(Observer):
    """T1: the event log has each join, leave and move of a member, and each epoch, target and state of the group."""

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._epochs = (0, 0)
        self._state = GroupState.EMPTY
        self._loads = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        mirror, facts = self._mirror, self._cluster.facts
        self._cluster.facts = []
        group = mirror.group
        epochs, loads = (mirror.group_epoch, mirror.target_epoch), mirror.loads
        state = GroupState.EMPTY if group is None else group.state
        before, self._epochs = self._epochs, epochs
        state_before, self._state = self._state, state
        loaded, self._loads = loads != self._loads, loads
        if loaded or mirror.classic is not None or mirror.converted is not None:
            return  # what a load brings is not told again
        if epochs[0] != before[0] and not _fact(facts, ("group_epoch_bumped",), group_epoch=epochs[0]):
            fail("T1", f"the event log misses group epoch {epochs[0]}")
        if epochs[0] > before[0] > 0 and epochs[0] - before[0] != _count(facts, "group_epoch_bumped"):
            fail("S3", f"the group went from epoch {before[0]} to {epochs[0]}, and was moved {facts}")
        # The target of a group that becomes empty, and the empty one before a member computes the first, are not told.
        if epochs[1] != before[1] and before[1] and mirror.members and not _fact(facts, _TARGET_FACTS):
            fail("T1", f"the event log misses the target of epoch {epochs[1]}")
        if state is not state_before and not any(
            fact.event == "group_state_changed" and fact.fields["new"] == str(state) for fact in facts
        ):
            fail("T1", f"the event log misses the group's change from {state_before} to {state}")
        if _fact(facts, ("group_epoch_bumped",), reason="subscription_changed") and all(
            old is not None and new is not None and _wish(old) == _wish(new) for _, old, new in changes
        ):
            fail("T1", "the event log tells of a changed subscription, and none changed")
        for member_id, old, new in changes:
            self._member(facts, member_id, old, new)

    @staticmethod
    def _member(facts: Sequence[GroupEvent], member_id: str, old: Seen | None, new: Seen | None) -> None:
        if new is None:
            if not _fact(facts, ("member_left",), member_id=member_id):
                fail("T1", f"the event log misses the leave of {member_id}")
            return
        if old is None:
            found = _fact(facts, ("member_joined",), member_id=member_id)
        else:
            told = _fact(facts, ("subscription_changed",), member_id=member_id)
            joined = _fact(facts, ("member_joined",), member_id=member_id)
            same = _wish(old) == _wish(new)
            if joined is None and same != (told is None):
                fail("T1", f"{member_id} subscribes to the same: {same}; told is {told}")
            if old.member.current is new.member.current:
                return
            found = _fact(facts, _MOVED_FACTS, member_id=member_id)
        if found is None:
            fail("T1", f"the event log misses a join or move of {member_id}")
        elif (found.client_id, found.member_epoch) != (new.member.metadata.client_id, new.epoch):
            fail("T1", f"{member_id} is {new.member.metadata.client_id} at {new.epoch}, told is {found}")


def _count(facts: Sequence[GroupEvent], name: str) -> int:
    return sum(fact.event == name for fact in facts)


def _wish(seen: Seen) -> tuple[tuple[str, ...], str | None]:
    metadata = seen.member.metadata
    return metadata.subscribed_topic_names, metadata.subscribed_topic_regex


def _fact(
    facts: Sequence[GroupEvent],
    names: tuple[str, ...],
    *,
    member_id: str | None = None,
    group_epoch: int | None = None,
    reason: str | None = None,
) -> GroupEvent | None:
    for fact in reversed(facts):
        if fact.event not in names or reason not in (None, fact.fields.get("reason")):
            continue
        if member_id in (None, fact.member_id) and group_epoch in (None, fact.group_epoch):
            return fact
    return None
