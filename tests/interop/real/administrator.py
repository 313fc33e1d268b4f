"""What an administrator sees of a group and can do to it, in raw requests: nothing of our own code takes part.

librdkafka's AdminClient shows no epochs, and crashes when a coordinator that is still loading is asked for offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kip848_client.common.model import NamedPartition
from tests.interop.conftest import ADMIN_TIMEOUT_S
from tests.interop.kafka_wire import Json, WireConnection

GROUP_RESOURCE: Final = 32
SET: Final = 0
NO_GROUP: Final = "Dead"


class ShownMember(msgspec.Struct, frozen=True):
    """One member, as ConsumerGroupDescribe shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    rack_id: str | None
    epoch: int
    topics: frozenset[str]
    pattern: str
    assigned: frozenset[NamedPartition]
    target: frozenset[NamedPartition]


class ShownGroup(msgspec.Struct, frozen=True):
    """One group; without members and with the state NO_GROUP if there is none."""

    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShownMember, ...]

    def member(self, member_id: str) -> ShownMember:
        """The member with this id."""
        return next(member for member in self.members if member.member_id == member_id)


class Administrator:
    """Asks one broker about one group.

    Args:
        bootstrap_servers: `host:port`.
    """

    def __init__(self, bootstrap_servers: str, group_id: str) -> None:
        self.bootstrap_servers: Final = bootstrap_servers
        self.group_id: Final = group_id

    def shown(self) -> ShownGroup:
        """What the coordinator knows about the group."""
        (shown,) = self._ask(
            "consumer_group_describe", 1, {"group_ids": [self.group_id], "include_authorized_operations": False}
        )["groups"]
        return ShownGroup(
            state=shown["group_state"] or NO_GROUP,
            epoch=shown["group_epoch"],
            assignment_epoch=shown["assignment_epoch"],
            assignor=shown["assignor_name"],
            members=tuple(_member(row) for row in shown["members"]),
        )

    def is_stable(self, members: int) -> bool:
        """Whether there are so many members, and all were given what they are to have.

        The members themselves may still have to run their listeners; see `Group.is_settled`.
        """
        group = self.shown()
        settled = all(one.assigned == one.target and one.epoch == group.epoch for one in group.members)
        return group.state == "Stable" and len(group.members) == members and settled

    def remove(self, member_id: str) -> int:
        """Throw a member out (LeaveGroup, as kafka-consumer-groups and AdminClients do); return the error code."""
        removed: Json = {"member_id": member_id, "group_instance_id": None, "reason": "test"}
        answer = self._ask("leave_group", 5, {"group_id": self.group_id, "members": [removed]})
        return cast("int", answer["error_code"] or answer["members"][0]["error_code"])

    def configure(self, **configs: int | str) -> None:
        """Set configurations of the group; underscores stand for dots."""
        entries: list[Json] = [
            {"name": name.replace("_", "."), "config_operation": SET, "value": str(value)}
            for name, value in configs.items()
        ]
        resource: Json = {"resource_type": GROUP_RESOURCE, "resource_name": self.group_id, "configs": entries}
        answer = self._ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
        assert [row["error_code"] for row in answer["responses"]] == [0], answer

    def committed(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """Committed offsets; partitions without one are absent."""
        topics: dict[str, list[Json]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        rows: list[Json] = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
        group: Json = {"group_id": self.group_id, "topics": rows}
        (answer,) = self._ask("offset_fetch", 8, {"groups": [group], "require_stable": True})["groups"]
        assert answer["error_code"] == 0, answer
        return {
            NamedPartition(topic["name"], row["partition_index"]): row["committed_offset"]
            for topic in answer["topics"]
            for row in topic["partitions"]
            if row["committed_offset"] >= 0
        }

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic grow."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        client.create_partitions([NewPartitions(topic, total)])[topic].result(ADMIN_TIMEOUT_S)

    def _ask(self, api: str, version: int, fields: dict[str, Json]) -> Any:
        with WireConnection(self.bootstrap_servers) as connection:
            return connection.exchange(api, version, fields).response


def _member(row: Any) -> ShownMember:
    return ShownMember(
        member_id=row["member_id"],
        instance_id=row["instance_id"],
        client_id=row["client_id"],
        rack_id=row["rack_id"],
        epoch=row["member_epoch"],
        topics=frozenset(row["subscribed_topic_names"]),
        pattern=row["subscribed_topic_regex"] or "",
        assigned=_partitions(row["assignment"]),
        target=_partitions(row["target_assignment"]),
    )


def _partitions(assignment: Any) -> frozenset[NamedPartition]:
    return frozenset(
        NamedPartition(topic["topic_name"], partition)
        for topic in assignment["topic_partitions"]
        for partition in topic["partitions"]
    )
