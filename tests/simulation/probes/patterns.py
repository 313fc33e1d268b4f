"""Patterns: when the coordinator matches them, against what, and what comes of it (S2, S3, S6, S12).

Does not own: what the assignors make of the topics (`inputs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from operator import ne
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.requests import ApiRequest, TopicsChanged
from kip848_client.coordinator.result import ResolveRegexes
from kip848_client.coordinator.subscriptions import resolve
from kip848_client.coordinator.topics import TopicInfo
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.group_records import ConsumerGroupMetadataValue, ConsumerGroupRegularExpressionValue
from tests.simulation.probes.reader import coordinator_reading, join

_STRANGER: Final = "one with a pattern"


class Resolutions(Observer):
    """S6: patterns are matched against the topics when there is something new, after every load, and not else.

    S2: a member that turns to a pattern of known topics, or to none, moves the group at once; so does a pattern that
    has other topics than before. S3: one that matches what it did before, or nothing at first, moves no partition,
    unless that tells a member to give up what it has.
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
        self._before: tuple[int, int, int, dict[str, frozenset[str]]] = (-1, 0, 0, {})
        """Life of the coordinator, group epoch, its hash, and known patterns with their topics, at the last look."""
        self._matched = -1
        """Life of the coordinator in which patterns were matched last."""
        self._matching_until_ms = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Compare wishes."""
        mirror, group = self._mirror, self._mirror.group
        image = self._cluster.topics.image
        if image.version != self._topics[0]:
            self._topics = (image.version, self._world.now_ms)
        self._look(old=False)
        loads, epoch, digest, known = self._before
        resolved = {} if group is None else {regex: one.topics for regex, one in group.resolved_regexes.items()}
        self._before = (mirror.loads, mirror.group_epoch, 0 if group is None else group.metadata_hash, resolved)
        if group is not None and loads == mirror.loads and mirror.group_epoch > epoch and not changes:
            self._look_for_reason(group, known, same_topics=group.metadata_hash == digest)
        if loads != mirror.loads or mirror.group_epoch > epoch:
            return
        for regex, topics in resolved.items():
            if topics != known.get(regex, frozenset()):
                fail("S2", f"{regex!r} has other topics than before, and the group stays at {epoch}")
        for member_id, before, after in changes:
            if after is None or (before is None and after.member.metadata.instance_id is not None):
                continue  # a static successor has the pattern, too
            old = None if before is None else before.member.metadata.subscribed_topic_regex
            new = after.member.metadata.subscribed_topic_regex
            if old != new and (new is None or new in known):
                fail("S2", f"{member_id} turns from {old!r} to {new!r}, which is known, and the group stays at {epoch}")

    def converged(self) -> None:
        """Topics may have come while there was no coordinator."""
        group = self._mirror.group
        if group is not None and group.regex_subscribers and self._matched != self._cluster.loads:
            fail("S6", f"{sorted(group.regex_subscribers)} were not matched since a coordinator was loaded")
        if group is not None and not group.regex_subscribers:
            first = join(group.group_id, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
            request = ApiRequest(-1, 1, first, self._world.wall_ms, _STRANGER, "/nowhere")
            result = self._cluster.coordinator.handle(request, now_ms=self._world.now_ms)
            refused = result.replies[0].response.error_code  # type: ignore[attr-defined]
            if not refused and [task.regexes for task in result.tasks] != [("ord.*",)]:
                fail("S6", "a member joins with the first pattern of the group, and it is not matched")
        self._look(old=self._world.now_ms - self._topics[1] > self._settle_ms)
        if group is not None:
            self._hide(group)

    def _look_for_reason(self, group: ConsumerGroup, known: Mapping[str, frozenset[str]], *, same_topics: bool) -> None:
        """The group moved, and no member did: if patterns were matched just now, that must have been for something."""
        resolved = {regex: one.topics for regex, one in group.resolved_regexes.items()}
        new = resolved.keys() - known.keys()
        if not new or not same_topics or any(topics != known.get(one, frozenset()) for one, topics in resolved.items()):
            return
        ids = self._cluster.topics.image.ids_of
        for member in group.members.values():
            regex, names = member.metadata.subscribed_topic_regex, member.metadata.subscribed_topic_names
            if regex in new and not group.target_of(member.member_id).keys() <= set(ids(resolved[regex].union(names))):
                return
        fail("S3", f"the group went to epoch {group.group_epoch}, because {sorted(new)} match nothing")

    def _hide(self, group: ConsumerGroup) -> None:
        """S12: of topics that its members may not know, none is matched."""
        task = ResolveRegexes(group.group_id, tuple(group.regex_subscribers), self._cluster.topics.image)
        for name in self._cluster.topics.image.by_name:
            shown = resolve(task, wall_ms=self._world.wall_ms, is_visible=partial(ne, name))
            if any(name in topics for topics in shown.topics.values()):
                fail("S12", f"{name} is hidden, and a pattern matches it: {shown.topics}")

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

    def patterns_matched(self, task: ResolveRegexes) -> None:
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
    """S6: any heartbeat, even with nothing new, has patterns matched again when that is due, not before."""

    def __init__(self, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._config = config

    def converged(self) -> None:
        """Ask another coordinator with the same log, at times to come, and with a topic more."""
        group, image = self._mirror.group, self._cluster.topics.image
        found = {} if group is None else group.resolved_regexes
        if group is None or found.keys() != group.regex_subscribers.keys():
            return
        if any(one.version != image.version for one in found.values()) or not image.topics:
            return
        self._match_nothing(group, [one.timestamp_ms for one in found.values()])
        if not found:
            return
        last_ms = max(one.timestamp_ms for one in found.values())
        rest_ms = self._config.consumer_regex_refresh_min_interval_ms
        due_ms = self._config.consumer_regex_refresh_interval_ms
        more = replace(
            image, topics=(*image.topics, TopicInfo("a new one", UUID(int=0xC), 1)), version=image.version + 1
        )
        grown = replace(
            image,
            topics=(replace(image.topics[0], partition_count=image.topics[0].partition_count + 1), *image.topics[1:]),
            version=image.version + 1,
        )
        for topics, times in (
            (grown, ((1, False), (rest_ms + 1, False), (due_ms, False), (due_ms + 1, True))),
            (image, ((0, False), (1, False), (rest_ms + 1, False), (due_ms, False), (due_ms + 1, True))),
            (more, ((0, False), (1, False), (rest_ms, False), (rest_ms + 1, True))),
        ):
            coordinator = coordinator_reading(self._cluster.log, self._config, image=image)
            if topics is not image:
                coordinator.apply(coordinator.handle(TopicsChanged(topics), now_ms=0))
            for after_ms, wanted in times:
                for seen in self._mirror.members.values():
                    if seen.epoch > 0:
                        self._ask(coordinator, group, seen, wall_ms=last_ms + after_ms, wanted=wanted)

    def _match_nothing(self, group: ConsumerGroup, times_ms: Sequence[int]) -> None:
        """S3: a member joins with a pattern that no topic has: that moves the group, and finding nothing does not."""
        wall_ms = max(times_ms, default=0) + self._config.consumer_regex_refresh_min_interval_ms + 1
        reader = coordinator_reading(self._cluster.log, self._config, image=self._cluster.topics.image)
        joins = join(group.group_id, subscribed_topic_names=None, subscribed_topic_regex="no topic has this name")
        joined = reader.handle(ApiRequest(-1, 1, joins, wall_ms, _STRANGER, "/nowhere"), now_ms=0)
        for record in joined.records:
            reader.replay(record)
        reader.apply(joined)
        for task in joined.tasks:
            matched = reader.handle(resolve(task, wall_ms=wall_ms), now_ms=0)
            if any(isinstance(record.value, ConsumerGroupMetadataValue) for record in matched.records):
                fail("S3", f"a pattern that matches nothing moves the group: {matched.records}")
            if not any(isinstance(record.value, ConsumerGroupRegularExpressionValue) for record in matched.records):
                fail("S6", f"no record says that a pattern matches nothing: {matched.records}")

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
