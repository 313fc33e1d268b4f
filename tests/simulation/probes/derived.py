"""What a group accounts for and counts beside its members: S3 (topics of its epoch), S9 (counts that its log leads to).

Only in probing runs: both look at the whole group. Does not own: the comparison after a load (`checkers.ownership`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.records import (
    current_tombstone,
    group_epoch_tombstone,
    member_metadata_tombstone,
    target_epoch_tombstone,
    target_tombstone,
)
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import CoordinatorRecord
from kip848_client.coordinator.snapshot import GroupSnapshot
from kip848_client.coordinator.topics import TopicsImage
from kip848_client.errors import IllegalStateError
from kip848_client.simulation.checkers.ownership import same_as_log
from kip848_client.simulation.cluster import Cluster, compact
from kip848_client.simulation.mirror import Change, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.group_records import ConsumerGroupMetadataValue
from tests.simulation.probes.reader import coordinator_reading, join

_REPLAY_EVERY: Final = 8
"""Of the changes of a group, those after which its log is read by another coordinator."""


class AccountedTopics(Observer):
    """S3: an epoch of the group accounts for the topics that its members subscribe to, as they are at that moment.

    And any heartbeat makes it look at topics that changed since. A pattern moves the group once it was matched.
    Without a change of members, wishes or topics there is no new epoch.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._config = config
        self._before = (-1, 0)
        """Life of the coordinator, and group epoch."""
        self._why: object = None
        """All that a target depends on, at the last look."""

    def group_changed(self, changes: Sequence[Change]) -> None:
        """A new epoch."""
        mirror = self._mirror
        now = (mirror.loads, mirror.group_epoch)
        before, self._before = self._before, now
        if self._cluster.up and now[0] == before[0] and now[1] > before[1]:
            self._look("moved")
        why, self._why = self._why, self._depends_on()
        if now[0] == before[0] and now[1] > before[1] > 0 and why == self._why:
            fail("S3", f"the group went from epoch {before[1]} to {now[1]}, and nothing else changed")

    @about(ConsumerGroupHeartbeatRequest)
    def served(
        self, client_id: str, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        """A heartbeat that counts."""
        group = self._mirror.group
        if not response.error_code and request.member_epoch >= 0 and group is not None and not group.regex_subscribers:
            self._look(f"heard {client_id}")

    def converged(self) -> None:
        """A topic grows while there is no coordinator: the first heartbeat at the next one moves the group."""
        group, image = self._mirror.group, self._cluster.topics.image
        names = [] if group is None else sorted(name for name in group.subscribed_topics if name in image.by_name)
        if group is None or not names:
            return
        grown = tuple(
            replace(topic, partition_count=topic.partition_count + (topic.name == names[0])) for topic in image.topics
        )
        other = coordinator_reading(self._cluster.log, self._config, image=TopicsImage(grown, image.version + 1))
        other.loaded(now_ms=0)
        for member_id, seen in self._mirror.members.items():
            if seen.epoch > 0:
                beat = ConsumerGroupHeartbeatRequest(group.group_id, member_id, seen.epoch)
                metadata = seen.member.metadata
                request = ApiRequest(-1, 1, beat, 0, metadata.client_id, metadata.client_host)
                records = other.handle(request, now_ms=0).records
                if not any(isinstance(record.value, ConsumerGroupMetadataValue) for record in records):
                    fail(
                        "S3",
                        f"{names[0]} grew while there was no coordinator, and {member_id} does not move the group",
                    )

    def _depends_on(self) -> object:
        group = self._mirror.group
        if group is None:
            return None
        wishes = {
            member_id: (
                seen.member.metadata.subscribed_topic_names,
                seen.member.metadata.subscribed_topic_regex,
                seen.member.metadata.server_assignor,
                seen.member.metadata.client_assignors,
            )
            for member_id, seen in self._mirror.members.items()
        }
        patterns = {regex: found.topics for regex, found in group.resolved_regexes.items()}
        return wishes, patterns, group.metadata_hash

    def _look(self, when: str) -> None:
        group, image = self._mirror.group, self._cluster.topics.image
        if group is not None and group.metadata_hash != image.metadata_hash(group.subscribed_topics):
            fail("S3", f"the group {when}, and epoch {group.group_epoch} does not account for the topics as they are")


class CountedMembers(Observer):
    """S9: what a group counts is what its log leads to, at any time."""

    def __init__(self, world: World, cluster: Cluster, config: CoordinatorConfig, *, group_id: str) -> None:
        self._world = world
        self._cluster = cluster
        self._group_id = group_id
        self._config = config
        self._changes = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Let another one read the log, as compaction leaves it."""
        self._changes += 1
        if self._changes % _REPLAY_EVERY or not self._cluster.up:
            return
        same_as_log(self._cluster.coordinator, self._reading(compact(self._cluster.log)))

    def converged(self) -> None:
        """Members that join again as another member, which those of a simulation never do: another one decides."""
        log, living = self._cluster.log, self._cluster.coordinator
        group = living.group(self._group_id)
        if group is not None:
            _same_picture(group, living.snapshot(self._group_id))
        member_ids = [] if group is None else group.sorted_member_ids
        for member_id in member_ids[self._world.seed % max(1, len(member_ids)) :][:1]:
            for instance_id in ("somebody else", None):
                message = join(self._group_id, member_id=member_id, instance_id=instance_id)
                request = ApiRequest(-1, 1, message, self._world.wall_ms, "somebody else", "/elsewhere")
                records = list(living.handle(request, now_ms=self._world.now_ms).records)
                other = self._reading(log)
                for record in records:
                    other.replay(record)
                other.check_invariants()
                same_as_log(other, self._reading(compact([*log, *records])))

    def _reading(self, log: Sequence[CoordinatorRecord]) -> GroupCoordinator:
        return coordinator_reading(log, self._config)


class DamagedLogs(Observer):
    """S9: records that say that something is gone before what it has is gone are not believed."""

    def __init__(self, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._config = config

    def converged(self) -> None:
        """Let another one read on where the log of the run ends."""
        group, group_id = self._mirror.group, self._mirror.group_id
        if group is None:
            return
        everybody: list[CoordinatorRecord] = []
        for member_id in sorted({*group.members, *group.target}):
            has_nothing = current_tombstone(group_id, member_id=member_id)
            shall_have_nothing = target_tombstone(group_id, member_id=member_id)
            gone = member_metadata_tombstone(group_id, member_id=member_id)
            if member_id in group.members:
                self._refuse(gone)
                if group.members[member_id].current.member_epoch != -1:
                    self._refuse(shall_have_nothing, gone)
                if member_id in group.target:
                    self._refuse(has_nothing, gone)
            everybody += [has_nothing, shall_have_nothing, gone]
        no_group, no_target = group_epoch_tombstone(group_id), target_epoch_tombstone(group_id)
        if group.members:
            self._refuse(no_group)
        if group.target:
            self._refuse(no_target)
        if group.target_epoch != -1:
            self._refuse(*everybody, no_group)
        reader = coordinator_reading([*self._cluster.log, *everybody, no_target, no_group], self._config)
        if reader.group(group_id) is not None:
            fail("S9", f"{group_id} is there after its last record said that it is gone")

    def _refuse(self, *records: CoordinatorRecord) -> None:
        reader = coordinator_reading(self._cluster.log, self._config)
        *before, last = records
        for record in before:
            reader.replay(record)
        try:
            reader.replay(last)
        except IllegalStateError as error:
            if self._mirror.group_id not in str(error):
                fail("S9", f"{error} does not say which group's log is damaged")
            return
        fail("S9", f"a log that goes on with {records} is believed")


def _same_picture(group: ConsumerGroup, picture: GroupSnapshot | None) -> None:
    """S9: what displays and tests are shown of a group is the group."""
    shown = {} if picture is None else picture.members
    for member_id, member in group.members.items():
        current, one = member.current, shown.get(member_id)
        wanted = (
            member.metadata,
            (current.member_epoch, current.previous_member_epoch, current.state),
            (current.assigned, current.pending_revocation, group.target_of(member_id)),
            (current.metadata, group.target_metadata_of(member_id)),
        )
        found = one and (
            one.metadata,
            (one.member_epoch, one.previous_member_epoch, one.state),
            (one.assigned, one.pending_revocation, one.target),
            (one.metadata_told, one.target_metadata),
        )
        if found != wanted:
            fail("S9", f"{member_id} is shown as {one}, and is {wanted}")
    counted = (group.state, group.group_epoch, group.target_epoch, group.subscribed_topics, group.static_members)
    if picture is None or counted != (
        picture.state,
        picture.group_epoch,
        picture.target_epoch,
        picture.subscribed_topics,
        picture.static_members,
    ):
        fail("S9", f"{group.group_id} is shown as {picture}, and counts {counted}")
