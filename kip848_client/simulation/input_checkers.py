"""What the coordinator works with, and how often: the groups that its assignors see (S2), patterns (S6), limits (S12).

Does not own: what comes of it (`group_checkers`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kip848_client.assignors import SERVER_ASSIGNORS, GroupAssignment, GroupSpec, ServerAssignor
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.requests import ApiRequest, TopicsChanged
from kip848_client.coordinator.result import ResolveRegexes
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.questions import Question, ask, join
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World

_STRANGER: Final = "one too many"


class _Watched:
    """An assignor of the coordinator that keeps what it was given last."""

    def __init__(self, assignor: ServerAssignor, world: World, seen: dict[int, GroupSpec]) -> None:
        self._assignor = assignor
        self._world = world
        self._seen = seen
        self.name: Final = assignor.name

    def assign(self, spec: GroupSpec) -> GroupAssignment:
        """As the one that is watched."""
        self._seen.clear()
        self._seen[self._world.steps] = spec
        return self._assignor.assign(spec)


class WatchedAssignors:
    """The coordinator's assignors, and what the last one that ran was given, in which step."""

    def __init__(self, world: World) -> None:
        self.seen: Final[dict[int, GroupSpec]] = {}
        self.by_name: Final[Mapping[str, ServerAssignor]] = {
            name: _Watched(assignor, world, self.seen) for name, assignor in SERVER_ASSIGNORS.items()
        }


class AssignorInputs(Observer):
    """S2: the target was computed for the group as it is: its members, their wishes, instance ids and racks."""

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, watched: WatchedAssignors) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._seen = watched.seen
        self._target_epoch = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Look at what the assignor of this step saw."""
        mirror, image = self._mirror, self._cluster.topics.image
        moved, self._target_epoch = mirror.target_epoch != self._target_epoch, mirror.target_epoch
        spec, group, members = self._seen.get(self._world.steps), mirror.group, mirror.members
        if not moved or spec is None or group is None or group.target_assignor:
            return
        metadata = {member_id: seen.member.metadata for member_id, seen in members.items()}
        wanted: dict[str, object] = {
            "subscriptions": {name: tuple(image.ids_of(group.topics_of(one))) for name, one in metadata.items()},
            "instance_ids": {name: one.instance_id for name, one in metadata.items() if one.instance_id is not None},
            "rack_ids": {name: one.rack_id for name, one in metadata.items() if one.rack_id is not None},
        }
        for name, value in wanted.items():
            given = dict(getattr(spec, name))
            if given != value:
                fail("S2", f"the assignor was given the {name} {given}, and the group has {value}")


class Resolutions(Observer):
    """S6: patterns are matched against the topics when there is something new, and not else.

    S2: whoever turns to a pattern whose topics are known, or to none, moves the group at once; so does a pattern that
    has other topics than before.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, *, refresh_ms: int, rest_ms: int) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._refresh_ms = refresh_ms
        self._rest_ms = rest_ms
        self._loads = -1
        self._before: tuple[int, int, dict[str, frozenset[str]]] = (-1, 0, {})
        """Life of the coordinator, group epoch, and known patterns with their topics, at the last look."""
        cluster.on_resolving = self._resolving

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Compare wishes."""
        mirror, group = self._mirror, self._mirror.group
        loads, epoch, known = self._before
        resolved = {} if group is None else {regex: one.topics for regex, one in group.resolved_regexes.items()}
        self._before = (mirror.loads, mirror.group_epoch, resolved)
        if loads != mirror.loads or mirror.group_epoch > epoch:
            return
        for regex, topics in resolved.items():
            if topics != known.get(regex, frozenset()):
                fail("S2", f"{regex!r} has other topics than before, and the group stays at {epoch}")
        for member_id, before, after in changes:
            if after is None or (before is None and after.member.metadata.instance_id is not None):
                continue  # whoever takes another one's place has its pattern, too
            old = None if before is None else before.member.metadata.subscribed_topic_regex
            new = after.member.metadata.subscribed_topic_regex
            if old != new and (new is None or new in known):
                fail("S2", f"{member_id} turns from {old!r} to {new!r}, which is known, and the group stays at {epoch}")

    def _resolving(self, task: ResolveRegexes) -> None:
        group = self._mirror.group
        same_life, self._loads = self._loads == self._cluster.loads, self._cluster.loads
        if group is None or not same_life:
            return
        newest_ms = max((entry.timestamp_ms for entry in group.resolved_regexes.values()), default=None)
        if newest_ms is not None and newest_ms <= self._world.wall_ms <= newest_ms + self._rest_ms:
            fail("S6", f"{task.regexes} are matched {self._world.wall_ms - newest_ms} ms after the last time")
        known = [group.resolved_regexes.get(regex) for regex in task.regexes]
        last_ms, wall_ms = self._world.wall_ms - self._refresh_ms, self._world.wall_ms  # clocks are set now and then
        if all(
            entry is not None and entry.version == task.image.version and last_ms <= entry.timestamp_ms <= wall_ms
            for entry in known
        ):
            fail("S6", f"{task.regexes} are matched again, and neither they nor the topics are new")


class Limits(Observer):
    """S12: a coordinator with as many members, or groups, as it may have takes no other one, and keeps those it has."""

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._config = config

    def converged(self) -> None:
        """Ask coordinators with the same log and narrower limits."""
        count, group_id = len(self._mirror.members), self._mirror.group_id
        full = self._with(replace(self._config, members_max=max(1, count)))
        if count:
            self._ask(full, Question("one member too many", join(group_id), 1, ErrorCode.GROUP_MAX_SIZE_REACHED))
        for member_id, seen in self._mirror.members.items():
            known = join(group_id, member_id=member_id, instance_id=seen.member.metadata.instance_id)
            if seen.epoch > 0:
                self._ask(full, Question("a member of a full broker", known, 1, ErrorCode.NONE))
        room = self._with(replace(self._config, members_max=count + 1, groups_max=1, consumer_max_size=count + 1))
        self._ask(room, Question("the last member", join(group_id), 1, ErrorCode.NONE))
        if count:
            elsewhere = join("elsewhere")
            self._ask(room, Question("one group too many", elsewhere, 1, ErrorCode.GROUP_MAX_SIZE_REACHED))

    def _with(self, config: CoordinatorConfig) -> GroupCoordinator:
        coordinator = GroupCoordinator(config, rng=random.Random(0))
        coordinator.apply(coordinator.handle(TopicsChanged(self._cluster.topics.image), now_ms=0))
        for record in self._cluster.log:
            coordinator.replay(record)
        return coordinator

    def _ask(self, coordinator: GroupCoordinator, question: Question) -> None:
        request = ApiRequest(0, question.version, question.message, self._world.wall_ms, _STRANGER, "/nowhere")
        ask(coordinator, request, question, now_ms=self._world.now_ms)
