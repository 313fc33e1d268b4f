"""Finds the groups, members, topics and partitions of a request, by name, for every API and version.

A rule that says ``topic="orders"`` must match a Fetch that carries only the topic's id, and keep matching when the
next version of an API moves a field. Knows in which fields each API keeps these; decides nothing.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kip848_client.common.model import ZERO_UUID, NamedPartition
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response

TopicNames = Callable[[uuid.UUID], str | None]
"""The name of a topic by its id; None if it was never seen."""

GROUP_APIS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
        ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_GROUPS,
    }
)
"""The requests that go to the coordinator of a group. A coordinator that is down answers none of them."""

HEARTBEAT_APIS: Final = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.HEARTBEAT})
"""The heartbeats of all kinds of groups that clients of Kafka join."""

_GROUP_KEY_TYPE: Final = 0

_TOPIC_ARRAYS: Final = frozenset(
    {"topics", "topic_data", "topic_partitions", "topic_names", "forgotten_topics_data", "v3_and_below_topics"}
)
"""Fields of requests whose elements are topics."""

_PARTITION_ARRAYS: Final = frozenset({"partitions", "partition_data", "partition_indexes"})
"""Fields of such topics whose elements are partitions."""

_HOLDERS: Final[dict[int, str]] = {
    ApiKey.OFFSET_FETCH: "groups",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "groups",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
}
"""Fields of newer versions that hold the topics, one level deeper."""


class ResourceKind(enum.IntEnum):
    """Kinds of resources with a configuration: the types of Kafka's ``ConfigResource.Type`` that rules can name."""

    TOPIC = 2
    GROUP = 32


class OpaqueRequest(Request[Response], frozen=True):
    """A request of an API or version that we have no classes for, as a proxy passes it on."""

    payload: bytes


class Element(NamedTuple):
    """One element of a request or answer: a group, a topic or a partition, or something else (all None)."""

    group: str | None = None
    topic: str | None = None
    partition: int | None = None


class Subject:
    """One request, with the names in it. Each property is computed on use, because most rules need few.

    Args:
        topic_name: resolves topic ids.
        node_id: the broker that received it; None where there is only one.
    """

    __slots__ = ("_topic_name", "api_key", "api_version", "client_id", "node_id", "request")

    def __init__(
        self,
        request: Request[Response],
        *,
        api_key: int,
        api_version: int,
        client_id: str | None,
        topic_name: TopicNames,
        node_id: int | None = None,
    ) -> None:
        self.request: Final = request
        self.api_key: Final = api_key
        self.api_version: Final = api_version
        self.client_id: Final = client_id
        self.node_id: Final = node_id
        self._topic_name: Final = topic_name

    @property
    def groups(self) -> frozenset[str]:
        """Ids of the groups that it names."""
        return frozenset(_groups(self.request, self.api_key))

    @property
    def members(self) -> frozenset[str]:
        """Member ids and group instance ids of the members that it is sent for."""
        return frozenset(_members(self.request, self.api_key))

    @property
    def topics(self) -> frozenset[str] | None:
        """Names of the topics that it names; None if it asks for all topics."""
        if _asks_for_all_topics(self.request, self.api_key, self.api_version):
            return None
        return frozenset(
            item.topic for item in _topic_items(self.request, self.api_key, self._topic_name) if item.topic is not None
        )

    @property
    def partitions(self) -> frozenset[NamedPartition]:
        """The partitions that it names."""
        return frozenset(
            NamedPartition(item.topic, item.partition)
            for item in _topic_items(self.request, self.api_key, self._topic_name)
            if item.topic is not None and item.partition is not None
        )

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id."""
        return self._topic_name(topic_id)


def api_keys(name: str) -> frozenset[ApiKey]:
    """The API with this name, however it is spelled: ``ConsumerGroupHeartbeat``, ``consumer_group_heartbeat``.

    ``heartbeat`` stands for the heartbeats of all group protocols.

    Raises:
        KeyError: there is none.
    """
    wanted = name.replace("_", "").replace(" ", "").lower()
    if wanted == "heartbeat":
        return HEARTBEAT_APIS
    return frozenset({_BY_NAME[wanted]})


_BY_NAME: Final = {api_key.name.replace("_", "").lower(): api_key for api_key in ApiKey}


def item_of(element: object, *, array: str, topic_name: TopicNames, inside: Element) -> Element:
    """The item that *element* of the field *array* stands for, inside its parent; for requests and answers."""
    if isinstance(element, int):
        return inside._replace(partition=element)
    if isinstance(element, str):
        return inside._replace(topic=element) if array in _TOPIC_ARRAYS else inside._replace(group=element)
    match _value(element, "resource_type"):
        case ResourceKind.TOPIC:
            return inside._replace(topic=_value(element, "resource_name"))
        case ResourceKind.GROUP:
            return inside._replace(group=_value(element, "resource_name"))
        case _:
            pass
    group = _value(element, "group_id", _value(element, "key"))
    if isinstance(group, str) and group:
        return inside._replace(group=group)
    index = _value(element, "partition_index", _value(element, "partition", _value(element, "index")))
    if isinstance(index, int):
        return inside._replace(partition=index)
    name = _value(element, "name") or _value(element, "topic") or _value(element, "topic_name")
    if isinstance(name, str) and name:
        return inside._replace(topic=name)
    topic_id = _value(element, "topic_id")
    if isinstance(topic_id, uuid.UUID) and topic_id != ZERO_UUID:
        return inside._replace(topic=topic_name(topic_id) or str(topic_id))
    return inside


def _groups(request: object, api_key: int) -> Iterator[str]:
    group_id = _value(request, "group_id")
    if isinstance(group_id, str) and group_id:
        yield group_id
    for field in ("group_ids", "groups_names", "groups"):
        for group in _value(request, field) or ():
            yield group if isinstance(group, str) else group.group_id
    match api_key:
        case ApiKey.FIND_COORDINATOR if _value(request, "key_type") == _GROUP_KEY_TYPE:
            yield from _value(request, "coordinator_keys") or (_value(request, "key"),)
        case ApiKey.DESCRIBE_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            for resource in _value(request, "resources") or ():
                if resource.resource_type == ResourceKind.GROUP:
                    yield resource.resource_name
        case _:
            pass


def _members(request: object, api_key: int) -> Iterator[str]:
    holders = [request]
    if api_key == ApiKey.OFFSET_FETCH:
        holders += _value(request, "groups") or ()
    elif api_key == ApiKey.LEAVE_GROUP:
        holders += _value(request, "members") or ()
    for holder in holders:
        for field in ("member_id", "instance_id", "group_instance_id"):
            value = _value(holder, field)
            if value:
                yield value


def _asks_for_all_topics(request: object, api_key: int, api_version: int) -> bool:
    match api_key:
        case ApiKey.METADATA:
            topics = _value(request, "topics")
            return topics is None or (api_version == 0 and not topics)
        case ApiKey.OFFSET_FETCH | ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
            holders = _value(request, "groups") or (request,)
            return any(_value(holder, "topics") is None for holder in holders)
        case _:
            return False


def _topic_items(request: object, api_key: int, topic_name: TopicNames) -> Iterator[Element]:
    for name in _value(request, "subscribed_topic_names") or ():
        yield Element(topic=name)
    for resource in _value(request, "resources") or ():
        if resource.resource_type == ResourceKind.TOPIC:
            yield Element(topic=resource.resource_name)
    holders = [request, *(_value(request, _HOLDERS.get(api_key, "")) or ())]
    for holder in holders:
        for array in _TOPIC_ARRAYS:
            for topic in _value(holder, array) or ():
                inside = item_of(topic, array=array, topic_name=topic_name, inside=Element())
                yield inside
                for inner in _PARTITION_ARRAYS:
                    for partition in _value(topic, inner) or ():
                        yield item_of(partition, array=inner, topic_name=topic_name, inside=inside)


def _value(holder: object, field: str, default: Any = None) -> Any:
    return getattr(holder, field, default) if field else default
