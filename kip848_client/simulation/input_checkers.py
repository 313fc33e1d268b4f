"""What the coordinator works with, and how often: the groups that its assignors see (S2), patterns (S6), limits (S12).

Does not own: what comes of it (`group_checkers`).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from kip848_client.assignors import SERVER_ASSIGNORS, GroupAssignment, GroupSpec, ServerAssignor
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.requests import ApiRequest, TopicsChanged
from kip848_client.coordinator.result import ResolveRegexes
from kip848_client.coordinator.topics import TopicInfo
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Partitions, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.questions import Question, ask, join
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_STRANGER: Final = "one too many"


class _Watched:
    """An assignor of the coordinator that keeps what it was given last."""

    def __init__(self, assignor: ServerAssignor, world: World, seen: dict[int, tuple[str, GroupSpec]]) -> None:
        self._assignor = assignor
        self._world = world
        self._seen = seen
        self.name: Final = assignor.name

    def assign(self, spec: GroupSpec) -> GroupAssignment:
        """As the one that is watched."""
        self._seen.clear()
        # As it is now: what the coordinator gives is its own, and goes on.
        taken = replace(
            spec, target=dict(spec.target), instance_ids=dict(spec.instance_ids), rack_ids=dict(spec.rack_ids)
        )
        self._seen[self._world.steps] = (self.name, taken)
        return self._assignor.assign(spec)


class WatchedAssignors:
    """The coordinator's assignors, and what the last one that ran was given, in which step."""

    def __init__(self, world: World) -> None:
        self.seen: Final[dict[int, tuple[str, GroupSpec]]] = {}
        self.by_name: Final[Mapping[str, ServerAssignor]] = {
            name: _Watched(assignor, world, self.seen) for name, assignor in SERVER_ASSIGNORS.items()
        }


class AssignorInputs(Observer):
    """S2: the target was computed for the group as it is: its members, their wishes, instance ids and racks.

    And by the assignor that most of them ask for, from the target before, so that nobody loses what it may keep; but
    not before the assignment interval since the last one is over.
    """

    def __init__(
        self, world: World, cluster: Cluster, mirror: Mirror, watched: WatchedAssignors, config: CoordinatorConfig
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._config = config
        self._seen = watched.seen
        self._target_epoch = 0
        self._loads = -1
        self._computed_ms: int | None = None
        """When a target was computed last, by whoever; None if no target is as old as this coordinator."""
        self._targets: dict[str, Partitions] = {}
        """Member -> its target at the last look."""

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Look at what the assignor of this step saw."""
        mirror, image = self._mirror, self._cluster.topics.image
        moved, self._target_epoch = mirror.target_epoch != self._target_epoch, mirror.target_epoch
        loaded, self._loads = mirror.loads != self._loads, mirror.loads
        before, self._targets = self._targets, {member_id: seen.target for member_id, seen in mirror.members.items()}
        ran, group, members = self._seen.get(self._world.steps), mirror.group, mirror.members
        before_ms = None if loaded else self._computed_ms
        computed = moved and not loaded and group is not None and (ran is not None or bool(group.target_assignor))
        self._computed_ms = self._world.now_ms if computed else before_ms
        if not moved or ran is None or group is None or group.target_assignor:
            return
        name, spec = ran
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


class Resolutions(Observer):
    """S6: patterns are matched against the topics when there is something new, after every load, and not else.

    S2: whoever turns to a pattern whose topics are known, or to none, moves the group at once; so does a pattern that
    has other topics than before.
    """

    def __init__(
        self, world: World, cluster: Cluster, mirror: Mirror, *, refresh_ms: int, rest_ms: int, settle_ms: int
    ) -> None:
        self._settle_ms = settle_ms
        self._topics = (0, 0)
        """Version of the topics, and since when."""
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._refresh_ms = refresh_ms
        self._rest_ms = rest_ms
        self._loads = -1
        self._before: tuple[int, int, dict[str, frozenset[str]]] = (-1, 0, {})
        """Life of the coordinator, group epoch, and known patterns with their topics, at the last look."""
        self._matched = -1
        """Life of the coordinator in which patterns were matched last."""
        self._matching_until_ms = 0
        cluster.on_resolving = self._resolving

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Compare wishes."""
        mirror, group = self._mirror, self._mirror.group
        image = self._cluster.topics.image
        if image.version != self._topics[0]:
            self._topics = (image.version, self._world.now_ms)
        self._look(old=False)
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

    def converged(self) -> None:
        """Topics may have come while nobody was the coordinator."""
        group = self._mirror.group
        if group is not None and group.regex_subscribers and self._matched != self._cluster.loads:
            fail("S6", f"{sorted(group.regex_subscribers)} were not matched since a coordinator was loaded")
        if group is not None and not group.regex_subscribers:
            first = join(group.group_id, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
            request = ApiRequest(-1, 1, first, self._world.wall_ms, _STRANGER, "/nowhere")
            result = self._cluster.coordinator.handle(request, now_ms=self._world.now_ms)
            refused = result.replies[0].response.error_code  # type: ignore[attr-defined]
            if not refused and [task.regexes for task in result.tasks] != [("ord.*",)]:
                fail("S6", "somebody joins with the first pattern of the group, and nobody matches it")
        self._look(old=self._world.now_ms - self._topics[1] > self._settle_ms)

    def _look(self, *, old: bool) -> None:
        """Compare what matched with what matches: what was matched just now, and all if the topics are *old*."""
        group, names = self._mirror.group, self._cluster.topics.image.by_name
        if group is None:
            return
        for regex, found in group.resolved_regexes.items():
            if not old and found.version != self._cluster.topics.image.version:
                continue
            if found.topics != (wanted := {name for name in names if re.fullmatch(regex, name)}):
                fail("L10" if old else "S6", f"{regex!r} matched {sorted(found.topics)}, and there are {wanted}")

    def _resolving(self, task: ResolveRegexes) -> None:
        self._matched = self._cluster.loads
        group = self._mirror.group
        same_life, self._loads = self._loads == self._cluster.loads, self._cluster.loads
        until_ms, self._matching_until_ms = self._matching_until_ms, self._world.now_ms + self._cluster.matching_ms
        if not task.regexes:
            fail("S6", "patterns are matched, and there are none")
        if group is None or not same_life:
            return
        if self._world.now_ms < until_ms:
            fail("S6", f"{task.regexes} are matched while patterns are being matched")
        if task.regexes != tuple(sorted(group.regex_subscribers)):
            fail("S6", f"{task.regexes} are matched, and members subscribe to {sorted(group.regex_subscribers)}")
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


class Refreshes(Observer):
    """S6: whoever heartbeats, even with nothing new, has patterns matched again when that is due, not before."""

    def __init__(self, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._config = config

    def converged(self) -> None:
        """Ask another coordinator with the same log, at times to come, and with a topic more."""
        group, image = self._mirror.group, self._cluster.topics.image
        found = {} if group is None else group.resolved_regexes
        if group is None or not found or found.keys() != group.regex_subscribers.keys():
            return
        if any(one.version != image.version for one in found.values()):
            return
        last_ms = max(one.timestamp_ms for one in found.values())
        rest_ms = self._config.consumer_regex_refresh_min_interval_ms
        due_ms = self._config.consumer_regex_refresh_interval_ms
        more = replace(
            image, topics=(*image.topics, TopicInfo("a new one", UUID(int=0xC), 1)), version=image.version + 1
        )
        for topics, times in (
            (image, ((0, False), (1, False), (rest_ms + 1, False), (due_ms, False), (due_ms + 1, True))),
            (more, ((1, False), (rest_ms, False), (rest_ms + 1, True))),
        ):
            coordinator = _reading(self._cluster, self._config)
            if topics is not image:
                coordinator.apply(coordinator.handle(TopicsChanged(topics), now_ms=0))
            for after_ms, wanted in times:
                for seen in self._mirror.members.values():
                    if seen.epoch > 0:
                        self._ask(coordinator, group, seen, wall_ms=last_ms + after_ms, wanted=wanted)

    @staticmethod
    def _ask(coordinator: GroupCoordinator, group: ConsumerGroup, seen: Seen, *, wall_ms: int, wanted: bool) -> None:
        member = seen.member
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id, member_id=member.member_id, member_epoch=seen.epoch
        )
        request = ApiRequest(0, 1, beat, wall_ms, member.metadata.client_id, member.metadata.client_host)
        result = coordinator.handle(request, now_ms=0)
        if not result.tasks:
            coordinator.apply(result)  # it looked at the topics
        matched = [task.regexes for task in result.tasks]
        if matched != [tuple(sorted(group.regex_subscribers))] * wanted:
            fail("S6", f"at {wall_ms}, {matched} are matched, and it is {wanted} that they are due")


def _reading(cluster: Cluster, config: CoordinatorConfig) -> GroupCoordinator:
    """Another coordinator with the same log and topics."""
    coordinator = GroupCoordinator(config, rng=random.Random(0))
    coordinator.apply(coordinator.handle(TopicsChanged(cluster.topics.image), now_ms=0))
    for record in cluster.log:
        coordinator.replay(record)
    return coordinator


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
        full = _reading(self._cluster, replace(self._config, members_max=max(1, count)))
        if count:
            self._ask(full, Question("one member too many", join(group_id), 1, ErrorCode.GROUP_MAX_SIZE_REACHED))
        for member_id, seen in self._mirror.members.items():
            known = join(group_id, member_id=member_id, instance_id=seen.member.metadata.instance_id)
            if seen.epoch > 0:
                self._ask(full, Question("a member of a full broker", known, 1, ErrorCode.NONE))
        room = _reading(
            self._cluster, replace(self._config, members_max=count + 1, groups_max=1, consumer_max_size=count + 1)
        )
        self._ask(room, Question("the last member", join(group_id), 1, ErrorCode.NONE))
        if count:
            elsewhere = join("elsewhere")
            self._ask(room, Question("one group too many", elsewhere, 1, ErrorCode.GROUP_MAX_SIZE_REACHED))
            # With members and with offsets it is one group.
            two = _reading(self._cluster, replace(self._config, groups_max=2))
            self._ask(two, Question("a second group", elsewhere, 1, ErrorCode.NONE))

    def _ask(self, coordinator: GroupCoordinator, question: Question) -> None:
        request = ApiRequest(0, question.version, question.message, self._world.wall_ms, _STRANGER, "/nowhere")
        ask(coordinator, request, question, now_ms=self._world.now_ms)
