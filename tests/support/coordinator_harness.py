"""A group coordinator with its log, driven by hand: send a heartbeat, move the clock, look.

`AssignmentHarness` adds members with client-side assignors: offer one, prepare, install.

After every step the same records are replayed, each batch twice, into a second coordinator, whose state must be equal
to the live one. `verify_log` does the same from the whole log, from the log twice, and from the compacted log. A
heartbeat that takes the coordinator's shortcut is computed the long way as well, with the same result.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import ServerAssignor
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, to_value
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_heartbeat import steady_member, take_steps
from kip848_client.testing.coordinator.consumer.subscriptions import resolve
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.coordinator.core.inputs import (
    ApiRequest,
    ConfigChanged,
    GroupMessage,
    GroupRequest,
    ShareStateInitialized,
    TopicsChanged,
)
from kip848_client.testing.coordinator.core.offset_store import StoredOffset
from kip848_client.testing.coordinator.core.result import (
    CoordinatorRecord,
    CoordinatorResult,
    DeleteShareState,
    InitializeShareState,
    ResolveRegexes,
)
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.group_image import GroupImage, MemberImage
from kip848_client.testing.coordinator.modern.assignment_round import AssignmentRound
from kip848_client.testing.coordinator.modern.modern_group import GroupState, ModernGroup
from kip848_client.testing.coordinator.share.share_group import ShareGroup
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair
from kip848_client.wire.messages.connect_group_records import ConnectGroupMetadataKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    Member,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.share_group_records import ShareGroupMetadataKey
from kip848_client.wire.schema import Request, Response

WALL_MS_AT_START = 1_700_000_000_000

ResponseT = TypeVar("ResponseT", bound=Response)

Owned = Mapping[str, Iterable[int]]
"""Topic name -> partitions."""

Fields = dict[str, Any]

_RECORD_NAMES = {
    OffsetCommitKey: "offset",
    GroupMetadataKey: "classic",
    ConsumerGroupMetadataKey: "epoch",
    ConsumerGroupMemberMetadataKey: "member",
    ConsumerGroupTargetAssignmentMetadataKey: "target_epoch",
    ConsumerGroupTargetAssignmentMemberKey: "target",
    ConsumerGroupCurrentMemberAssignmentKey: "current",
    ConsumerGroupRegularExpressionKey: "regex",
}

FAST = CoordinatorConfig(
    consumer_session_timeout_ms=45_000, consumer_min_session_timeout_ms=100, consumer_heartbeat_interval_ms=5_000
)
"""Kafka's timeouts, so that scenarios read as KIP-848 tells them."""


class FailedAppend(Exception):
    """The log refused a batch, because the test told it to."""


@dataclass
class Harness:
    """See the module."""

    config: CoordinatorConfig = FAST
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: dict(SERVER_ASSIGNORS))
    group_id: str = "g"
    now_ms: int = 0
    wall_clock_set_by_ms: int = 0
    fail_next_append: bool = False
    client_host: str = "/127.0.0.1"

    def __post_init__(self) -> None:
        self.log: list[CoordinatorRecord] = []
        self.events: list[GroupEvent] = []
        self.results: list[CoordinatorResult] = []
        self.tasks: list[ResolveRegexes] = []
        self.share_state: list[InitializeShareState | DeleteShareState] = []
        """What the share partitions were told; it is done at once."""
        self.answers: dict[int, Response] = {}
        """Of requests, by their number; a request without one is parked."""
        self.image = TopicsImage()
        self.shortcuts = 0
        """Heartbeats that took the shortcut."""
        self._topic_count = 0
        self._request_count = 0
        self._lives = 0
        self.coordinator = self._new_coordinator()
        self._follower = self._new_coordinator()

    # --- actions

    def create_topic(self, name: str, *, partitions: int) -> UUID:
        """Create a topic and tell the coordinator; ids are 1, 2, 3, ... in order of creation."""
        self._topic_count += 1
        topic_id = UUID(int=self._topic_count)
        self._set_topics((*self.image.topics, TopicInfo(name, topic_id, partitions)))
        return topic_id

    def add_partitions(self, name: str, *, partitions: int) -> None:
        """Set a topic's number of partitions."""
        self._set_topics(
            tuple(replace(t, partition_count=partitions) if t.name == name else t for t in self.image.topics)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._set_topics(tuple(topic for topic in self.image.topics if topic.name != name))

    def set_group_config(self, **overrides: str) -> None:
        """Override settings of the group: dots of the names written as underscores."""
        self.step(ConfigChanged(self.group_id, {name.replace("_", "."): value for name, value in overrides.items()}))

    def join(
        self, member_id: str, topics: Iterable[str] | None = (), *, rebalance_timeout_ms: int = 5_000, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send the full heartbeat with epoch 0 that starts a membership; *fields* as for `heartbeat`."""
        return self.heartbeat(
            member_id, 0, owned={}, topics=topics, rebalance_timeout_ms=rebalance_timeout_ms, **fields
        )

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Owned | None = None,
        topics: Iterable[str] | None = None,
        instance: str | None = None,
        regex: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
        rack: str | None = None,
        version: int = 1,
        client_id: str = "client",
        offers: Iterable[Assignor] | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with exactly these fields; what is not given is null."""
        message = build(
            ConsumerGroupHeartbeatRequest,
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else self._on_wire({name: sorted(owned[name]) for name in owned}),
            client_assignors=offers,
        )
        return self.send(message, version=version, client_id=client_id)

    def commit(
        self,
        member_id: str,
        epoch: int,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        version: int = 9,
        metadata: str | Mapping[int, str] | None = "",
        instance: str | None = None,
        retention_ms: int = -1,
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit topic -> partition -> offset; the code of each partition. *metadata* may differ by partition."""

        def asked(partition: int, offset: int) -> Fields:
            told = metadata.get(partition, "") if isinstance(metadata, Mapping) else metadata
            return {"partition_index": partition, "committed_offset": offset, "committed_metadata": told}

        message = build(
            OffsetCommitRequest,
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                self._named(name, version) | {"partitions": [asked(*item) for item in partitions.items()]}
                for name, partitions in offsets.items()
            ],
        )
        response = self.send(message, version=version)
        answered = [topic.name or self._name_or_gone(topic.topic_id) for topic in response.topics]
        assert answered == list(offsets)
        return {
            (name, partition.partition_index): ErrorCode(partition.error_code)
            for name, topic in zip(answered, response.topics, strict=True)
            for partition in topic.partitions
        }

    def fetch(
        self,
        offsets: Mapping[str, Iterable[int]] | None,
        *,
        member_id: str | None = None,
        epoch: int = -1,
        version: int = 9,
    ) -> dict[tuple[str, int], int] | ErrorCode:
        """Fetch topic -> partitions (None: all); the offset of each, or the error of the group."""
        topics = None
        if offsets is not None:
            topics = [self._named(name, version) | {"partition_indexes": asked} for name, asked in offsets.items()]
        group = {"group_id": self.group_id, "member_id": member_id, "member_epoch": epoch, "topics": topics}
        (answer,) = self.send(build(OffsetFetchRequest, groups=[group]), version=version).groups
        if answer.error_code:
            assert not answer.topics
            return ErrorCode(answer.error_code)
        return {
            (topic.name or self._name_or_gone(topic.topic_id), partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    def send(self, message: Request[ResponseT], *, version: int, client_id: str = "client") -> ResponseT:
        """Send any request and return its reply, which must come at once."""
        number = self.post(cast("GroupMessage", message), version=version, client_id=client_id)
        answer = self.answers[number]
        assert type(answer) is message_pair(ApiKey(message.WIRE.api_key)).response
        return cast("ResponseT", answer)

    def post(self, message: GroupMessage, *, version: int, client_id: str = "client") -> int:
        """Send any request and return its number: its reply is in `answers`, now or later."""
        self._request_count += 1
        request = ApiRequest(
            request_id=self._request_count,
            api_version=version,
            message=message,
            wall_ms=self.wall_ms,
            client_id=client_id,
            client_host=self.client_host,
        )
        self.step(request)
        return request.request_id

    def advance(self, ms: int) -> list[CoordinatorResult]:
        """Move the clock, firing timers at their time. Returns the results that had records."""
        until_ms = self.now_ms + ms
        fired = []
        while (deadline_ms := self.coordinator.deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            result = self.finish(self.coordinator.expire(now_ms=self.now_ms, wall_ms=self.wall_ms))
            if result.records:
                fired.append(result)
        self.now_ms = until_ms
        return fired

    def step(self, event: GroupRequest) -> CoordinatorResult:
        """Hand in any event and finish its result as a shell does."""
        result = self.coordinator.handle(event, now_ms=self.now_ms)
        self._compare_with_the_long_way(event, result)
        return self.finish(result)

    def finish(self, result: CoordinatorResult) -> CoordinatorResult:
        """Append, replay and apply a result, and compare the follower with the live state."""
        if self.fail_next_append and result.records:
            self.fail_next_append = False
            raise FailedAppend
        before = self._group_states()
        self.log += result.records
        for coordinator, times in ((self.coordinator, 1), (self._follower, 2)):
            for _ in range(times):
                for record in result.records:
                    coordinator.replay(record)
        self.coordinator.apply(result)
        for reply in result.replies:
            assert reply.request_id not in self.answers, f"request {reply.request_id} is answered twice"
            self.answers[reply.request_id] = reply.response
        self.coordinator.check_invariants()
        self._compare_classic_groups(result)
        self._compare_told_states(result, before)
        group_ids = {*before, *self._group_ids()}
        assert _state(self._follower, group_ids) == _state(self.coordinator, group_ids)
        for change in result.share_state:
            self.share_state.append(change)
            if isinstance(change, InitializeShareState):
                self.step(ShareStateInitialized(change.group_id, tuple(change.starts)))
        self.events += result.events
        self.tasks += result.tasks
        self.results.append(result)
        return result

    def run_tasks(self) -> int:
        """Match the patterns that wait for it. Returns how many tasks there were."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            self.step(resolve(task, wall_ms=self.wall_ms))
        return len(tasks)

    def restart(self) -> None:
        """Replace the coordinator by one that is loaded from the log."""
        self._lives += 1
        self.coordinator = self._load(self.log)
        self.coordinator.loaded(now_ms=self.now_ms)

    # --- state

    @property
    def wall_ms(self) -> int:
        """Wall-clock time."""
        return WALL_MS_AT_START + self.now_ms + self.wall_clock_set_by_ms

    @property
    def group(self) -> GroupImage:
        """The group, which must exist."""
        snapshot = self.coordinator.snapshot(self.group_id)
        assert snapshot is not None, f"there is no group {self.group_id!r}"
        return snapshot

    def member(self, member_id: str) -> MemberImage:
        """One member, which must exist."""
        return self.group.members[member_id]

    def flying(self) -> AssignmentRound | None:
        """The round in flight."""
        return self.coordinator.round_in_flight(self.group_id)

    @property
    def chosen(self) -> str:
        """The member that shall compute the target; there must be one."""
        flying = self.flying()
        assert flying is not None, "no round is in flight"
        return flying.member_id

    def topic_id(self, name: str) -> UUID:
        """Id of a topic that exists."""
        return self.image.by_name[name].topic_id

    def names(self, partitions: Mapping[UUID, Iterable[int]]) -> dict[str, list[int]]:
        """Partitions by topic name."""
        return {self.image.by_id[topic_id].name: sorted(held) for topic_id, held in sorted(partitions.items())}

    def assigned(self, member_id: str) -> dict[str, list[int]]:
        """What a member may use."""
        return self.names(self.member(member_id).assigned)

    def pending(self, member_id: str) -> dict[str, list[int]]:
        """What a member must give up."""
        return self.names(self.member(member_id).pending_revocation)

    def target(self, member_id: str) -> dict[str, list[int]]:
        """What a member shall own."""
        return self.names(self.member(member_id).target)

    def received(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """The assignment of an answer, or None if it holds none."""
        assignment: Assignment | None = response.assignment
        if assignment is None:
            return None
        return self.names({topic.topic_id: topic.partitions for topic in assignment.topic_partitions})

    def record_names(self, result: CoordinatorResult | None = None) -> list[str]:
        """Kinds of the records of a result (the last one if none is given); a tombstone ends in ``†``."""
        records = (self.results[-1] if result is None else result).records
        return [_RECORD_NAMES.get(type(r.key), type(r.key).__name__) + ("" if r.value else "†") for r in records]

    def load_group(self) -> ConsumerGroup:
        """The group, made from its records alone."""
        group = ConsumerGroup(self.group_id)
        for record in self.log:
            if not isinstance(record.key, OffsetCommitKey | GroupMetadataKey):
                group.replay(record.key, record.value)
        return group

    def verify_log(self) -> None:
        """Load the whole log, the log twice over, and the compacted log: each must give the live state."""
        live = self.state()
        assert _state(self._load(self.log), self._group_ids()) == live
        assert _state(self._load(compacted(self.log)), self._group_ids()) == live
        deletions = (ConsumerGroupMetadataKey, ConnectGroupMetadataKey, ShareGroupMetadataKey, GroupMetadataKey)
        if not any(isinstance(record.key, deletions) and record.value is None for record in self.log):
            assert _state(self._load([*self.log, *self.log]), self._group_ids()) == live

    def state(self) -> CoordinatorStateImage:
        """All hard state."""
        return _state(self.coordinator, self._group_ids())

    # --- internals

    def _named(self, name: str, version: int) -> Fields:
        """A topic in a request about offsets: by its name, or from version 10 on by its id."""
        if version < 10:
            return {"name": name}
        topic = self.image.by_name.get(name)
        return {"topic_id": UUID(int=999) if topic is None else topic.topic_id}

    def _on_wire(self, partitions: Owned) -> list[Fields]:
        return [{"topic_id": self.topic_id(name), "partitions": indexes} for name, indexes in partitions.items()]

    def _name_or_gone(self, topic_id: UUID) -> str:
        topic = self.image.by_id.get(topic_id)
        return "gone" if topic is None else topic.name

    def _compare_classic_groups(self, result: CoordinatorResult) -> None:
        """A record says what the group is when it is written, and the log alone knows which groups are in it."""
        live, follower = self.coordinator, self._follower
        logged = [group_id for group_id in live.classic_groups() if _classic(live, group_id).is_logged]
        assert list(follower.classic_groups()) == logged
        for record in result.records:
            if isinstance(record.key, GroupMetadataKey) and record.value is not None:
                assert to_value(_classic(live, record.key.group)) == record.value
                assert to_value(_classic(follower, record.key.group)) == record.value

    def _group_states(self) -> dict[str, GroupState]:
        """The states of all groups of the new protocol."""
        return {group.group_id: group.state for group in _modern_groups(self.coordinator)}

    def _compare_told_states(self, result: CoordinatorResult, before: Mapping[str, GroupState]) -> None:
        """A result tells the state that its records lead to, and nothing if that is the same and no epoch begins."""
        names = {event.event for event in result.events}
        if not names or "group_converted" in names:  # records that a test made itself; a group of another kind
            return
        for group_id, new in self._group_states().items():
            old = before.get(group_id, GroupState.EMPTY)
            told = [e.fields for e in result.events if (e.event, e.group_id) == ("group_state_changed", group_id)]
            bumped = any((e.event, e.group_id) == ("group_epoch_bumped", group_id) for e in result.events)
            is_told = old is not new or (bumped and new in {GroupState.STABLE, GroupState.EMPTY})
            assert told == ([{"old": str(old), "new": str(new)}] if is_told else []), group_id

    def _compare_with_the_long_way(self, event: GroupRequest, result: CoordinatorResult) -> None:
        if not isinstance(event, ApiRequest) or not isinstance(event.message, ConsumerGroupHeartbeatRequest):
            return
        state = self.coordinator._state
        if steady_member(state, event, event.message) is not None:
            self.shortcuts += 1
            assert result == take_steps(state, event, event.message, now_ms=self.now_ms)

    def _set_topics(self, topics: tuple[TopicInfo, ...]) -> None:
        self.image = TopicsImage(topics, version=self.image.version + 1)
        self.step(TopicsChanged(self.image))

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, rng=random.Random(self._lives), assignors=self.assignors)

    def _load(self, log: Iterable[CoordinatorRecord]) -> GroupCoordinator:
        coordinator = self._new_coordinator()
        for record in log:
            coordinator.replay(record)
        coordinator.apply(coordinator.handle(TopicsChanged(self.image), now_ms=self.now_ms))
        return coordinator

    def _group_ids(self) -> set[str]:
        return {self.group_id, *self.coordinator.groups()}


def _modern_groups(coordinator: GroupCoordinator) -> list[ModernGroup[Any, Any] | ShareGroup]:
    return [group for group in coordinator._state.groups.values() if isinstance(group, ModernGroup | ShareGroup)]


def told(response: ConsumerGroupHeartbeatResponse) -> Assignment:
    """The assignment in an answer, which must have one."""
    assert response.assignment is not None, "the answer says nothing about the assignment"
    return response.assignment


class CoordinatorStateImage(msgspec.Struct, frozen=True):
    """All hard state, comparable."""

    connect: Mapping[str, object]
    groups: Mapping[str, GroupImage | None]
    share: Mapping[str, object]
    offsets: Mapping[str, Mapping[str, Mapping[int, StoredOffset]]]


def _classic(coordinator: GroupCoordinator, group_id: str) -> ClassicGroup:
    group = coordinator.classic_group(group_id)
    assert group is not None, f"there is no classic group {group_id!r}"
    return group


def _state(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> CoordinatorStateImage:
    ids = sorted({*group_ids, *coordinator.groups()})
    return CoordinatorStateImage(
        connect={group_id: _connect_group(coordinator, group_id) for group_id in coordinator.ids_of(ConnectGroup)},
        groups={group_id: coordinator.snapshot(group_id) for group_id in ids},
        share={group.group_id: vars(group) for group in _modern_groups(coordinator) if isinstance(group, ShareGroup)},
        offsets={group_id: coordinator.committed(group_id) for group_id in ids},
    )


def _connect_group(coordinator: GroupCoordinator, group_id: str) -> object:
    group = coordinator.find(ConnectGroup, group_id)
    assert group is not None
    members = {member_id: group.members[member_id] for member_id in group.sorted_member_ids}
    targets = {member_id: dict(group.target_of(member_id)) for member_id in members}
    told = {member_id: group.target_metadata_of(member_id) for member_id in members}
    epochs = (group.group_epoch, group.target_epoch, group.last_installer, group.target_assignor, group.target_error)
    return epochs, group.catalogue, dict(group.deferred), group.assignor_state, members, targets, told


def compacted(log: Iterable[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """What is left after compaction with all tombstones removed: the last value of each key, in the log's order."""
    last: dict[object, CoordinatorRecord] = {}
    for record in log:
        last.pop(record.key, None)
        last[record.key] = record
    return [record for record in last.values() if record.value is not None]


Parts = Mapping[str, Mapping[str, Iterable[int]]]
"""Member id -> topic name -> partitions."""


def offer(
    name: str = "a", *, versions: tuple[int, int] = (0, 0), version: int = 0, reason: int = 0, data: bytes = b""
) -> Assignor:
    """A client-side assignor as a member offers it."""
    return Assignor(
        name=name,
        minimum_version=versions[0],
        maximum_version=versions[1],
        reason=reason,
        metadata_version=version,
        metadata_bytes=data,
    )


class AssignmentHarness(Harness):
    """See the module. Topic "foo" has six partitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.create_topic("foo", partitions=6)

    # --- actions

    def enter(
        self, member_id: str, *offers: Assignor, topics: Iterable[str] = ("foo",), **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Join with client-side assignors; with "a" if none is named."""
        return self.join(member_id, topics, offers=offers or (offer(),), **fields)

    def settled(self, *member_ids: str) -> None:
        """Let members join, and the chosen ones compute, until each owns an equal part of "foo"."""
        for member_id in member_ids:
            self.enter(member_id)
        self.settle()

    def settle(self) -> None:
        """Heartbeat, compute and acknowledge until nothing changes any more."""
        for _ in range(20):
            before = self.group, self.flying()
            if self.flying() is not None:
                self.compute()
            for member_id in sorted(self.group.members):
                self.beat(member_id)
            if before == (self.group, self.flying()):
                assert self.group.state == "Stable", self.group
                return
        raise AssertionError(f"the group does not settle: {self.group}")

    def beat(self, member_id: str) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of a member that did what it was told: it owns what it may use."""
        member = self.member(member_id)
        return self.heartbeat(
            member_id, member.member_epoch, owned=self.assigned(member_id), instance=member.metadata.instance_id
        )

    def compute(self, parts: Parts | None = None, *, error: int = 0) -> ConsumerGroupInstallAssignmentResponse:
        """Let the chosen member prepare and install; a balanced target if *parts* is not given."""
        member_id = self.chosen
        prepared = self.prepare(member_id)
        assert not prepared.error_code, prepared
        if parts is None:
            parts = spread(prepared)
        return self.install(member_id, prepared.group_epoch, parts, error=error)

    def prepare(self, member_id: str, *, epoch: int | None = None) -> ConsumerGroupPrepareAssignmentResponse:
        """Send ConsumerGroupPrepareAssignment, at the member's own epoch if none is given."""
        return self.send(
            ConsumerGroupPrepareAssignmentRequest(
                group_id=self.group_id, member_id=member_id, member_epoch=self._epoch_of(member_id, epoch)
            ),
            version=0,
        )

    def install(
        self,
        member_id: str,
        group_epoch: int,
        parts: Parts,
        *,
        epoch: int | None = None,
        error: int = 0,
        metadata: Mapping[str, tuple[int, bytes]] | None = None,
    ) -> ConsumerGroupInstallAssignmentResponse:
        """Send ConsumerGroupInstallAssignment.

        Args:
            metadata: member id -> version and bytes.
        """
        told = metadata or {}
        members = [
            self.part(part_id, held, version=told.get(part_id, (0, b""))[0], data=told.get(part_id, (0, b""))[1])
            for part_id, held in parts.items()
        ]
        return self.install_members(member_id, group_epoch, members, epoch=epoch, error=error)

    def install_members(
        self,
        member_id: str,
        group_epoch: int,
        members: Iterable[Member],
        *,
        epoch: int | None = None,
        error: int = 0,
    ) -> ConsumerGroupInstallAssignmentResponse:
        """Send ConsumerGroupInstallAssignment with these very members."""
        return self.send(
            ConsumerGroupInstallAssignmentRequest(
                group_id=self.group_id,
                member_id=member_id,
                member_epoch=self._epoch_of(member_id, epoch),
                group_epoch=group_epoch,
                error=error,
                members=tuple(members),
            ),
            version=0,
        )

    def part(self, member_id: str, held: Mapping[str, Iterable[int]], *, version: int = 0, data: bytes = b"") -> Member:
        """One member of an Install."""
        partitions = self._on_wire(held)
        return build(Member, member_id=member_id, partitions=partitions, metadata_version=version, metadata_bytes=data)

    # --- state

    def awaited(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
        """What the answer says the member must wait for."""
        assert response.assignment is not None
        return self.names({topic.topic_id: topic.partitions for topic in response.assignment.pending_topic_partitions})

    def _epoch_of(self, member_id: str, epoch: int | None) -> int:
        return self.member(member_id).member_epoch if epoch is None else epoch


def spread(prepared: ConsumerGroupPrepareAssignmentResponse) -> dict[str, dict[str, list[int]]]:
    """Every partition in turn to the subscribers of its topic."""
    parts: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in prepared.members}
    for topic in prepared.topics:
        subscribers = [m.member_id for m in prepared.members if topic.topic_id in m.subscribed_topic_ids]
        for partition in range(topic.num_partitions):
            parts[subscribers[partition % len(subscribers)]].setdefault(topic.topic_name, []).append(partition)
    return parts
