"""The groups that the coordinator's assignors see: S2.

Does not own: what comes of it (`checkers.ownership`), patterns (`patterns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors import GroupSpec
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Partitions, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World

_STRANGER: Final = "one too many"


class AssignorInputs(Observer):
    """S2: the target was computed for the group as it is: its members, their wishes, instance ids and racks.

    And by the assignor that most of them ask for, from the target before, so that no member loses what it may keep; but
    not before the assignment interval since the last one is over.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._config = config
        self._seen: tuple[int, str, GroupSpec] | None = None
        """The step in which an assignor ran last, its name, and what it was given."""
        self._target_epoch = 0
        self._loads = -1
        self._computed_ms: int | None = None
        """When a target was computed last, by server or member; None if no target is as old as this coordinator."""
        self._targets: dict[str, Partitions] = {}
        """Member -> its target at the last look."""

    def assignor_runs(self, name: str, spec: GroupSpec) -> None:
        """Keep what it is given, as it is now: it is the coordinator's own, and goes on changing."""
        taken = replace(
            spec, target=dict(spec.target), instance_ids=dict(spec.instance_ids), rack_ids=dict(spec.rack_ids)
        )
        self._seen = (self._world.steps, name, taken)

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Look at what the assignor of this step saw."""
        mirror, image = self._mirror, self._cluster.topics.image
        moved, self._target_epoch = mirror.target_epoch != self._target_epoch, mirror.target_epoch
        loaded, self._loads = mirror.loads != self._loads, mirror.loads
        before, self._targets = self._targets, {member_id: seen.target for member_id, seen in mirror.members.items()}
        seen, group, members = self._seen, mirror.group, mirror.members
        ran = seen if seen is not None and seen[0] == self._world.steps else None
        before_ms = None if loaded else self._computed_ms
        computed = moved and not loaded and group is not None and (ran is not None or bool(group.target_assignor))
        self._computed_ms = self._world.now_ms if computed else before_ms
        if not moved or ran is None or group is None or group.target_assignor:
            return
        _, name, spec = ran
        self._voted(name, members)
        rest_ms, now_ms = self._config.consumer_assignment_interval_ms, self._world.now_ms
        if before_ms is not None and now_ms - before_ms < rest_ms:
            fail("S2", f"a target was computed {now_ms - before_ms} ms after the last one, and not {rest_ms}")
        if list(spec.subscriptions) != sorted(spec.subscriptions):
            fail("S2", f"the assignor was given the members as {list(spec.subscriptions)}, in no order")
        for member_id in spec.subscriptions.keys() & before.keys():
            given = {(topic_id, index) for topic_id, held in spec.target.get(member_id, {}).items() for index in held}
            if not loaded and given != before[member_id]:
                fail("S2", f"the assignor was told that {member_id} has {given} as its target, not {before[member_id]}")
        metadata = {member_id: seen.member.metadata for member_id, seen in members.items()}
        wanted: dict[str, object] = {
            "subscriptions": {name: tuple(image.ids_of(group.topics_of(one))) for name, one in metadata.items()},
            "instance_ids": {name: one.instance_id for name, one in metadata.items() if one.instance_id is not None},
            "rack_ids": {name: one.rack_id for name, one in metadata.items() if one.rack_id is not None},
        }
        for what, value in wanted.items():
            found = dict(getattr(spec, what))
            if found != value:
                fail("S2", f"the assignor was given the {what} {found}, and the group has {value}")

    def _voted(self, name: str, members: Mapping[str, Seen]) -> None:
        """The first of those that the coordinator has decides where votes are equal."""
        votes = Counter(seen.member.metadata.server_assignor for seen in members.values())
        wanted = max(self._config.consumer_assignors, key=lambda one: votes[one])
        if name != wanted:
            fail("S2", f"{name} computed the target, and members ask for {votes}")
