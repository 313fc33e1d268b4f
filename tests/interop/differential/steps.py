"""What can be asked of both brokers, in terms that do not depend on either: data, and its translation for one side.

A step names a member's epoch or its partitions by what the member was told (`current`, `held`), so that one sequence
means the same to both brokers. A step has a line for transcripts, a request for a side, and hears that side's answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, assert_never

import msgspec

from tests.interop.differential.side import (
    GROUP_RESOURCE,
    MemberView,
    Partitions,
    Side,
    read_partitions,
    union,
    write_partitions,
)
from tests.interop.kafka_wire import Json

Request: TypeAlias = tuple[str, int, dict[str, Json]]
"""Api, version, fields."""


LONG_TEXT: Final = 100


class Epoch(enum.StrEnum):
    """Which epoch a member claims to be at."""

    CURRENT = "current"
    PREVIOUS = "previous"
    """The one that it was told before."""
    BELOW = "current-1"
    ABOVE = "current+1"
    JOIN = "0"
    LEAVE = "-1"
    AWAY = "-2"
    INVALID = "-3"
    FAR = "77"


class Owned(enum.StrEnum):
    """Which partitions a member says it owns."""

    UNSAID = "null"
    NOTHING = "[]"
    ASSIGNED = "assigned"
    """What it was told last; so it gives up the rest."""
    HELD = "held"
    """Also what it was told to give up."""
    SUBSCRIBED = "held, of the topics it names"
    """Also what it was told to give up, but nothing of a topic that this heartbeat does not name any more."""
    PART = "all but one"
    """All that it was told, without the first partition."""
    FOREIGN = "one too many"
    """A partition that it was never told, besides."""
    NOWHERE = "no such topic"
    TWICE = "assigned, twice over"


class Heartbeat(msgspec.Struct, frozen=True):
    """A ConsumerGroupHeartbeat. What is None, or a timeout of -1, is not said.

    Args:
        lost: the member does not get the answer.
    """

    member: str
    epoch: Epoch = Epoch.CURRENT
    owned: Owned = Owned.UNSAID
    names: tuple[str, ...] | None = None
    instance: str | None = None
    rack: str | None = None
    assignor: str | None = None
    regex: str | None = None
    timeout_ms: int = -1
    version: int = 1
    group: str = "g"
    lost: bool = False

    def sent_epoch(self, side: Side) -> int:
        """The epoch as a number of *side*."""
        view = side.view(self.group, self.member)
        return find_epoch(self.epoch, view, offset=side.epoch_offset.get(self.group, 0))

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        view = side.view(self.group, self.member)
        request: dict[str, Json] = {
            "group_id": side.group_id(self.group),
            "member_id": view.member_id,
            "member_epoch": self.sent_epoch(side),
            "instance_id": self.instance,
            "rack_id": self.rack,
            "rebalance_timeout_ms": self.timeout_ms,
            "subscribed_topic_names": None if self.names is None else [side.topic_name(name) for name in self.names],
            "server_assignor": self.assignor,
            "topic_partitions": _owned(self.owned, view, side, names=self.names),
        }
        if self.version >= 1:
            request["subscribed_topic_regex"] = side.pattern(self.regex)
        return "consumer_group_heartbeat", self.version, request

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """Let the member take note of the answer."""
        if answer["error_code"]:
            return
        view, epoch = side.view(self.group, self.member), sent["member_epoch"]
        assert isinstance(epoch, int)
        if self.owned is Owned.ASSIGNED and epoch > 0:
            view.held = dict(view.assigned)
        if not self.lost:
            side.hear_heartbeat(self.group, self.member, sent_epoch=epoch, answer=answer)


class Commit(msgspec.Struct, frozen=True):
    """An OffsetCommit. Up to version 9 by name, from 10 on by id.

    Args:
        member: None for a sender outside the group.
        partitions: topic, partition and offset.
        owned: partitions of the member instead, each with offset 7.
    """

    partitions: tuple[tuple[str, int, int], ...] = ()
    member: str | None = None
    epoch: Epoch = Epoch.CURRENT
    owned: Owned | None = None
    metadata: str | None = ""
    version: int = 9
    group: str = "g"

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        topics: dict[str, list[Json]] = {}
        for topic, partition, offset in self._named(side):
            row: dict[str, Json] = {"partition_index": partition, "committed_offset": offset}
            row["committed_metadata"] = self.metadata
            if self.version >= 6:
                row["committed_leader_epoch"] = -1
            topics.setdefault(topic, []).append(row)
        request: dict[str, Json] = {
            "group_id": side.group_id(self.group),
            "member_id": "" if self.member is None else side.view(self.group, self.member).member_id,
            "generation_id_or_member_epoch": _claimed_epoch(self, side),
            "topics": [
                {**_topic(side, topic, by_id=self.version >= 10), "partitions": p} for topic, p in topics.items()
            ],
        }
        if self.version >= 7:
            request["group_instance_id"] = None
        if self.version <= 4:
            request["retention_time_ms"] = -1
        return "offset_commit", self.version, request

    def _named(self, side: Side) -> Iterator[tuple[str, int, int]]:
        yield from self.partitions
        if self.owned is not None and self.member is not None:
            found = _owned(self.owned, side.view(self.group, self.member), side)
            for topic_id, partitions in read_partitions(found or []).items():
                topic = side.label(topic_id).rstrip("'")
                yield from ((topic, partition, 7) for partition in partitions[:2])

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """A commit changes nothing for a member."""


class Fetch(msgspec.Struct, frozen=True):
    """An OffsetFetch of one group.

    Args:
        member: None for a sender outside the group.
        partitions: topic and partition; None asks for all.
    """

    partitions: tuple[tuple[str, int], ...] | None = None
    member: str | None = None
    epoch: Epoch = Epoch.LEAVE
    version: int = 9
    group: str = "g"

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        topics: list[Json] | None = None
        if self.partitions is not None:
            found: dict[str, list[Json]] = {}
            for topic, partition in self.partitions:
                found.setdefault(topic, []).append(partition)
            topics = [
                {**_topic(side, topic, by_id=self.version >= 10), "partition_indexes": indexes}
                for topic, indexes in found.items()
            ]
        if self.version < 8:
            fetched: dict[str, Json] = {"group_id": side.group_id(self.group), "topics": topics}
            if self.version >= 7:
                fetched["require_stable"] = False
            return "offset_fetch", self.version, fetched
        group: dict[str, Json] = {"group_id": side.group_id(self.group), "topics": topics}
        if self.version >= 9:
            group["member_id"] = None if self.member is None else side.view(self.group, self.member).member_id
            group["member_epoch"] = _claimed_epoch(self, side)
        return "offset_fetch", self.version, {"groups": [group], "require_stable": False}

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """A fetch changes nothing for a member."""


class Ask(msgspec.Struct, frozen=True):
    """A request about groups that needs no member: describe, list, delete.

    Args:
        api: `consumer_group_describe`, `describe_groups`, `list_groups`, `delete_groups` or `find_coordinator`.
        filters: states and types for `list_groups`.
        operations: whether a description shall say what the asker may do.
    """

    api: str
    version: int
    groups: tuple[str, ...] = ()
    filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    operations: bool = False

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        group_ids: list[Json] = [side.group_id(group) for group in self.groups]
        match self.api:
            case "consumer_group_describe":
                fields: dict[str, Json] = {"group_ids": group_ids, "include_authorized_operations": self.operations}
            case "describe_groups":
                fields = {"groups": group_ids, "include_authorized_operations": self.operations}
            case "delete_groups":
                fields = {"groups_names": group_ids}
            case "find_coordinator" if self.version < 4:
                fields = {"key": group_ids[0], "key_type": 0}
            case "find_coordinator":
                fields = {"coordinator_keys": group_ids, "key_type": 0}
            case "list_groups":
                states, types = self.filters
                fields = {"states_filter": list(states)} if self.version >= 4 else {}
                fields |= {"types_filter": list(types)} if self.version >= 5 else {}
            case _:
                raise AssertionError(self.api)
        return self.api, self.version, fields

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """Members keep what they know, also of a group that is gone."""


class RemoveMembers(msgspec.Struct, frozen=True):
    """A LeaveGroup, as an administrator's tool sends it.

    Args:
        members: member (None: not said) and instance id of each.
    """

    members: tuple[tuple[str | None, str | None], ...]
    version: int = 5
    group: str = "g"

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        ids = ["" if member is None else side.view(self.group, member).member_id for member, _ in self.members]
        fields: dict[str, Json] = {"group_id": side.group_id(self.group)}
        if self.version < 3:
            return "leave_group", self.version, fields | {"member_id": ids[0]}
        rows: list[Json] = []
        for member_id, (_, instance) in zip(ids, self.members, strict=True):
            row: dict[str, Json] = {"member_id": member_id, "group_instance_id": instance}
            rows.append(row | {"reason": "tidying up"} if self.version >= 5 else row)
        return "leave_group", self.version, fields | {"members": rows}

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """The members are not told."""


class DeleteOffsets(msgspec.Struct, frozen=True):
    """An OffsetDelete."""

    partitions: tuple[tuple[str, int], ...]
    group: str = "g"

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        found: dict[str, list[Json]] = {}
        for topic, partition in self.partitions:
            found.setdefault(topic, []).append({"partition_index": partition})
        topics: list[Json] = [{"name": side.topic_name(topic), "partitions": rows} for topic, rows in found.items()]
        return "offset_delete", 0, {"group_id": side.group_id(self.group), "topics": topics}

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """Nothing changes for a member."""


class Configure(msgspec.Struct, frozen=True):
    """An IncrementalAlterConfigs of a group, or with no value a DescribeConfigs."""

    name: str
    value: str | None = None
    group: str = "g"

    def request(self, side: Side) -> Request:
        """The request as *side* must get it."""
        group: dict[str, Json] = {"resource_type": GROUP_RESOURCE, "resource_name": side.group_id(self.group)}
        if self.value is None:
            asked: dict[str, Json] = {**group, "configuration_keys": [self.name]}
            flags: dict[str, Json] = {"include_synonyms": False, "include_documentation": False}
            return "describe_configs", 4, {"resources": [asked], **flags}
        setting: dict[str, Json] = {"name": self.name, "config_operation": 0, "value": self.value}
        return "incremental_alter_configs", 1, {"resources": [{**group, "configs": [setting]}], "validate_only": False}

    def hear(self, side: Side, sent: Mapping[str, Json], answer: Mapping[str, Json]) -> None:
        """A member hears of it with its next heartbeat."""


class ChangeTopic(msgspec.Struct, frozen=True):
    """Make a topic, let it grow, or delete it (no partitions); the coordinator knows it before the next step."""

    topic: str
    partitions: int = 0

    def perform(self, side: Side) -> dict[str, Json]:
        """Do it at *side*; the answer."""
        if not self.partitions:
            code = side.delete_topic(self.topic)
        elif self.topic in side.topic_ids:
            code = side.grow_topic(self.topic, partitions=self.partitions)
        else:
            code = side.create_topic(self.topic, partitions=self.partitions)
        return {"error_code": code}


Asking: TypeAlias = Heartbeat | Commit | Fetch | Ask | RemoveMembers | DeleteOffsets | Configure
Step: TypeAlias = Asking | ChangeTopic


def line(step: Step) -> str:
    """A step for a person: its kind, and every field that differs from its default."""
    said = [
        f"{field.name}={_shown(value)}"
        for field in msgspec.structs.fields(step)
        if (value := getattr(step, field.name)) != field.default
    ]
    return f"{type(step).__name__}({', '.join(said)})"


def _shown(value: object) -> str:
    if isinstance(value, str) and len(value) > LONG_TEXT:
        return f"{value[0]!r} * {len(value)}"
    return str(value) if isinstance(value, enum.Enum) else repr(value)


def find_epoch(epoch: Epoch, view: MemberView, *, offset: int) -> int:
    """The number that a member sends.

    Args:
        offset: how far the epochs of this side's group are ahead of the other's; not of 0 and below, which have
            meanings of their own.
    """
    match epoch:
        case Epoch.CURRENT:
            return view.epoch
        case Epoch.PREVIOUS:
            return view.epoch_before
        case Epoch.ABOVE:
            return view.epoch + 1 if view.epoch > 0 else 1 + offset
        case Epoch.BELOW:
            below = view.epoch - 1 if view.epoch <= 0 else view.epoch - offset - 1
            return below + offset if below > 0 else below
        case Epoch.JOIN | Epoch.LEAVE | Epoch.AWAY | Epoch.INVALID:
            return int(epoch)
        case Epoch.FAR:
            return int(epoch) + offset
        case _:
            assert_never(epoch)


def _claimed_epoch(step: Commit | Fetch, side: Side) -> int:
    if step.member is None:
        return -1 if step.epoch is Epoch.CURRENT else find_epoch(step.epoch, MemberView(""), offset=0)
    return find_epoch(step.epoch, side.view(step.group, step.member), offset=side.epoch_offset.get(step.group, 0))


def _topic(side: Side, topic: str, *, by_id: bool) -> dict[str, Json]:
    return {"topic_id": side.topic_id(topic)} if by_id else {"name": side.topic_name(topic)}


def _owned(owned: Owned, view: MemberView, side: Side, *, names: tuple[str, ...] | None = None) -> list[Json] | None:
    partitions: Partitions
    match owned:
        case Owned.UNSAID:
            return None
        case Owned.NOTHING:
            partitions = {}
        case Owned.ASSIGNED:
            partitions = view.assigned
        case Owned.HELD:
            partitions = union(view.held, view.assigned)
        case Owned.SUBSCRIBED:
            named = {side.topic_id(name) for name in names or ()}
            partitions = {
                topic_id: found for topic_id, found in union(view.held, view.assigned).items() if topic_id in named
            }
        case Owned.PART:
            partitions = {topic_id: found[1:] for topic_id, found in view.assigned.items()}
        case Owned.FOREIGN:
            partitions = union(view.assigned, {side.topic_id("t0"): [_first_missing(view, side)]})
        case Owned.NOWHERE:
            partitions = union(view.assigned, {side.topic_id("nowhere"): [0]})
        case Owned.TWICE:
            return write_partitions(view.assigned) * 2
        case _:
            assert_never(owned)
    return write_partitions(partitions)


def _first_missing(view: MemberView, side: Side) -> int:
    held = view.assigned.get(side.topic_id("t0"), [])
    return next(number for number in range(len(held) + 1) if number not in held)
