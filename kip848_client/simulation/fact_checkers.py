"""What the coordinator tells its event log must be what happened: T1. Dashboards and reports know nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from kip848_client.coordinator.consumer_group import GroupState
from kip848_client.coordinator.events import GroupEvent
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail

_TARGET_FACTS = ("target_assignment_computed", "assignor_failed")
_MOVED_FACTS = ("member_assignment_changed", "member_joined", "member_left")


class ToldFacts(Observer):
    """T1: whoever joins, leaves or moves is told of, and so is every epoch, target and state of the group."""

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._epochs = (0, 0)
        self._state = GroupState.EMPTY
        self._loads = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Compare with the facts of this step."""
        mirror, facts = self._mirror, self._cluster.facts
        self._cluster.facts = []
        group = mirror.group
        epochs, loads = (mirror.group_epoch, mirror.target_epoch), mirror.loads
        state = GroupState.EMPTY if group is None else group.state
        before, self._epochs = self._epochs, epochs
        state_before, self._state = self._state, state
        loaded, self._loads = loads != self._loads, loads
        if loaded:
            return  # what a load brings is not told again
        if epochs[0] != before[0] and not _told(facts, ("group_epoch_bumped",), group_epoch=epochs[0]):
            fail("T1", f"nobody is told that the group is at epoch {epochs[0]}")
        if epochs[0] > before[0] > 0 and epochs[0] - before[0] != _count(facts, "group_epoch_bumped"):
            fail("S3", f"the group went from epoch {before[0]} to {epochs[0]}, and was moved {facts}")
        # The target of a group that becomes empty, and the empty one before a member computes the first, are not told.
        if epochs[1] != before[1] and before[1] and mirror.members and not _told(facts, _TARGET_FACTS):
            fail("T1", f"nobody is told that the target is of epoch {epochs[1]}")
        if state is not state_before and not any(
            fact.event == "group_state_changed" and fact.fields["new"] == str(state) for fact in facts
        ):
            fail("T1", f"nobody is told that the group went from {state_before} to {state}")
        if _told(facts, ("group_epoch_bumped",), reason="subscription_changed") and all(
            old is not None and new is not None and _wish(old) == _wish(new) for _, old, new in changes
        ):
            fail("T1", "the group moves because somebody subscribes to something else, and nobody does")
        for member_id, old, new in changes:
            self._member(facts, member_id, old, new)

    @staticmethod
    def _member(facts: Sequence[GroupEvent], member_id: str, old: Seen | None, new: Seen | None) -> None:
        if new is None:
            if not _told(facts, ("member_left",), member_id=member_id):
                fail("T1", f"nobody is told that {member_id} left")
            return
        if old is None:
            found = _told(facts, ("member_joined",), member_id=member_id)
        else:
            told = _told(facts, ("subscription_changed",), member_id=member_id)
            joined = _told(facts, ("member_joined",), member_id=member_id)
            same = _wish(old) == _wish(new)
            if joined is None and same != (told is None):
                fail("T1", f"{member_id} subscribes to the same: {same}; told is {told}")
            if old.member.current is new.member.current:
                return
            found = _told(facts, _MOVED_FACTS, member_id=member_id)
        if found is None:
            fail("T1", f"nobody is told that {member_id} joined or moved")
        elif (found.client_id, found.member_epoch) != (new.member.metadata.client_id, new.epoch):
            fail("T1", f"{member_id} is {new.member.metadata.client_id} at {new.epoch}, told is {found}")


def _count(facts: Sequence[GroupEvent], name: str) -> int:
    return sum(fact.event == name for fact in facts)


def _wish(seen: Seen) -> tuple[tuple[str, ...], str | None]:
    metadata = seen.member.metadata
    return metadata.subscribed_topic_names, metadata.subscribed_topic_regex


def _told(
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
