"""What can be asked of both brokers, in terms that do not depend on either: data, and its translation for one side.

A step names a member's epoch or its partitions by what the member was told (`current`, `held`), so that one sequence
means the same to both brokers. A step has a line for transcripts, a request for a side, and hears that side's answer.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import (
    GROUP_RESOURCE,
    KnownMember,
    Partitions,
    Side,
    union,
    write_partitions,
)

Request: TypeAlias = tuple[str, int, dict[str, Any]]
"""Api, version, fields."""


LONG_TEXT: Final = 100


class Epoch(enum.StrEnum):
    """Which epoch a member claims to be at."""

    CURRENT = "current"
    PREVIOUS = "previous"
    """The one that it was told before."""
    BELOW = "current-1"
    LONG_AGO = "current-2"
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


class AskingStep(msgspec.Struct, frozen=True):
    """A request; each has a method `request` of what a side is sent. Other fields have the protocol's defaults."""

    def shape(self, side: Side, answer: dict[str, Json]) -> dict[str, Json]:
        """The part of the answer that counts; most of the time all of it."""
        return answer

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        """Let the member take note of the answer; most requests are not a member's."""


class Heartbeat(AskingStep, frozen=True):
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
        view = side.view(self.group, self.member)
        return (
            "consumer_group_heartbeat",
            self.version,
            {
                "group_id": side.group_id(self.group),
                "member_id": view.member_id,
                "member_epoch": self.sent_epoch(side),
                "instance_id": self.instance,
                "rack_id": self.rack,
                "rebalance_timeout_ms": self.timeout_ms,
                "subscribed_topic_names": None
                if self.names is None
                else [side.topic_name(name) for name in self.names],
                "subscribed_topic_regex": side.pattern(self.regex),
                "server_assignor": self.assignor,
                "topic_partitions": _owned(self.owned, view, side, names=self.names),
            },
        )

    def hear(self, side: Side, sent: Mapping[str, Any], answer: Mapping[str, Json]) -> None:
        if answer["error_code"]:
            return
        view, epoch = side.view(self.group, self.member), sent["member_epoch"]
        assert isinstance(epoch, int)
        if self.owned is Owned.ASSIGNED and epoch > 0:
            view.held = dict(view.assigned)
        if not self.lost:
            side.hear_heartbeat(self.group, self.member, sent_epoch=epoch, answer=answer)


class Commit(AskingStep, frozen=True):
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
        topics: dict[str, list[Any]] = {}
        for topic, partition, offset in self._named(side):
            row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": self.metadata}
            topics.setdefault(topic, []).append(row)
        return (
            "offset_commit",
            self.version,
            {
                "group_id": side.group_id(self.group),
                "member_id": "" if self.member is None else side.view(self.group, self.member).member_id,
                "generation_id_or_member_epoch": _claimed_epoch(self, side),
                "topics": [{**_topic(side, topic), "partitions": rows} for topic, rows in topics.items()],
            },
        )

    def _named(self, side: Side) -> Iterator[tuple[str, int, int]]:
        yield from self.partitions
        if self.owned is not None and self.member is not None:
            found = _owned(self.owned, side.view(self.group, self.member), side)
            for row in found or ():
                topic = side.label(str(row["topic_id"])).rstrip("'")
                yield from ((topic, partition, 7) for partition in row["partitions"][:2])


class Fetch(AskingStep, frozen=True):
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
        topics: list[Any] | None = None
        if self.partitions is not None:
            found: dict[str, list[int]] = {}
            for topic, partition in self.partitions:
                found.setdefault(topic, []).append(partition)
            topics = [{**_topic(side, topic), "partition_indexes": indexes} for topic, indexes in found.items()]
            if self.version < 8:
                topics = [{"name": row["name"], "partition_indexes": row["partition_indexes"]} for row in topics]
        group: dict[str, Any] = {"group_id": side.group_id(self.group), "topics": topics}
        if self.version < 8:
            return "offset_fetch", self.version, group
        if self.version >= 9:
            group["member_id"] = None if self.member is None else side.view(self.group, self.member).member_id
            group["member_epoch"] = _claimed_epoch(self, side)
        return "offset_fetch", self.version, {"groups": [group]}


class Ask(AskingStep, frozen=True):
    """A request about groups that needs no member: describe, list, delete.

    Args:
        api: `consumer_group_describe`, `share_group_describe`, `describe_groups`, `list_groups`, `delete_groups` or
            `find_coordinator`.
        filters: states and types for `list_groups`.
        operations: whether a description shall say what the asker may do.
    """

    api: str
    version: int
    groups: tuple[str, ...] = ()
    filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    operations: bool = False

    def request(self, side: Side) -> Request:
        group_ids = [side.group_id(group) for group in self.groups]
        match self.api:
            case "consumer_group_describe" | "share_group_describe":
                fields: dict[str, Any] = {"group_ids": group_ids, "include_authorized_operations": self.operations}
            case "describe_groups":
                fields = {"groups": group_ids, "include_authorized_operations": self.operations}
            case "delete_groups":
                fields = {"groups_names": group_ids}
            case "find_coordinator" if self.version < 4:
                fields = {"key": group_ids[0]}
            case "find_coordinator":
                fields = {"coordinator_keys": group_ids}
            case "list_groups":
                states, types = self.filters
                fields = {
                    "states_filter": states if self.version >= 4 else (),
                    "types_filter": types if self.version >= 5 else (),
                }
            case _:
                raise AssertionError(self.api)
        return self.api, self.version, fields


class RemoveMembers(AskingStep, frozen=True):
    """A LeaveGroup, as an administrator's tool sends it.

    Args:
        members: member (None: not said) and instance id of each.
    """

    members: tuple[tuple[str | None, str | None], ...]
    version: int = 5
    group: str = "g"

    def request(self, side: Side) -> Request:
        ids = ["" if member is None else side.view(self.group, member).member_id for member, _ in self.members]
        fields: dict[str, Any] = {"group_id": side.group_id(self.group)}
        if self.version < 3:
            return "leave_group", self.version, fields | {"member_id": ids[0]}
        members = [
            {"member_id": member_id, "group_instance_id": instance, "reason": "tidying up"}
            for member_id, (_, instance) in zip(ids, self.members, strict=True)
        ]
        return "leave_group", self.version, fields | {"members": members}


class DeleteOffsets(AskingStep, frozen=True):
    """An OffsetDelete."""

    partitions: tuple[tuple[str, int], ...]
    group: str = "g"

    def request(self, side: Side) -> Request:
        found: dict[str, list[Any]] = {}
        for topic, partition in self.partitions:
            found.setdefault(topic, []).append({"partition_index": partition})
        topics = [{"name": side.topic_name(topic), "partitions": rows} for topic, rows in found.items()]
        return "offset_delete", 0, {"group_id": side.group_id(self.group), "topics": topics}


class Configure(AskingStep, frozen=True):
    """An IncrementalAlterConfigs of a group, or with no value a DescribeConfigs."""

    name: str
    value: str | None = None
    group: str = "g"

    def request(self, side: Side) -> Request:
        group: dict[str, Any] = {"resource_type": GROUP_RESOURCE, "resource_name": side.group_id(self.group)}
        if self.value is None:
            return "describe_configs", 4, {"resources": [{**group, "configuration_keys": [self.name]}]}
        setting = {"name": self.name, "config_operation": 0, "value": self.value}
        return "incremental_alter_configs", 1, {"resources": [{**group, "configs": [setting]}]}


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


TIMEOUT_MS: Final = 60_000
LOOK: Final = Ask("consumer_group_describe", 1, ("g",))


def join(
    member: str,
    *names: str,
    instance: str | None = None,
    regex: str | None = None,
    assignor: str | None = "range",
    timeout_ms: int = TIMEOUT_MS,
) -> Heartbeat:
    """A joining heartbeat; of topic t0, if neither names nor a pattern are given."""
    return Heartbeat(
        member,
        Epoch.JOIN,
        Owned.NOTHING,
        names=names or (() if regex else ("t0",)),
        instance=instance,
        regex=regex,
        assignor=assignor,
        timeout_ms=timeout_ms,
    )


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


def find_epoch(epoch: Epoch, view: KnownMember, *, offset: int) -> int:
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
        case Epoch.BELOW | Epoch.LONG_AGO:
            less = 1 if epoch is Epoch.BELOW else 2
            below = view.epoch - less if view.epoch <= 0 else view.epoch - offset - less
            return below + offset if below > 0 else below
        case Epoch.JOIN | Epoch.LEAVE | Epoch.AWAY | Epoch.INVALID:
            return int(epoch)
        case Epoch.FAR:
            return int(epoch) + offset
        case _:
            assert_never(epoch)


def _claimed_epoch(step: Commit | Fetch, side: Side) -> int:
    if step.member is None:
        return -1 if step.epoch is Epoch.CURRENT else find_epoch(step.epoch, KnownMember(""), offset=0)
    return find_epoch(step.epoch, side.view(step.group, step.member), offset=side.epoch_offset.get(step.group, 0))


def _topic(side: Side, topic: str) -> dict[str, Any]:
    """A topic by name and id: each version of a request has one of them."""
    return {"name": side.topic_name(topic), "topic_id": uuid.UUID(side.topic_id(topic))}


def _owned(owned: Owned, view: KnownMember, side: Side, *, names: tuple[str, ...] | None = None) -> list[Any] | None:
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


def _first_missing(view: KnownMember, side: Side) -> int:
    held = view.assigned.get(side.topic_id("t0"), [])
    return next(number for number in range(len(held) + 1) if number not in held)
