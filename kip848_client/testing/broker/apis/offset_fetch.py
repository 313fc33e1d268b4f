"""OffsetFetch (9): committed positions; from version 8 on those of several groups, from 10 on topics by id."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import (
    GROUP_FAILED,
    TOPIC_FAILED,
    Outcome,
    may_on_topic,
    narrow,
    split,
    visible,
)
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

API_KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 10)
_FIRST_BATCHED: Final = 8
"""From this version on a request names several groups."""

handle = to_group_coordinator


def requires(permit: Permit, request: OffsetFetchRequest) -> Outcome:
    """DESCRIBE on each group and each topic."""
    if permit.context.api_version >= _FIRST_BATCHED:
        return _offset_fetch_groups(permit, request)
    if not permit.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return refusal(request, code=GROUP_FAILED, api_version=permit.context.api_version)
    if request.topics is None:
        return Narrowed(request, lambda response: replace(response, topics=visible(permit, response.topics)))
    may = may_on_topic(permit, Operation.DESCRIBE)
    return narrow(permit, request, lambda topic: 0 if may(topic) else TOPIC_FAILED, asked="topics")


def _offset_fetch_groups(permit: Permit, request: OffsetFetchRequest) -> Narrowed[Any]:
    def refuse(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=TOPIC_FAILED)
                for index in topic.partition_indexes
            ),
        )

    kept, refused = split(
        request.groups,
        lambda group: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
        lambda group: OffsetFetchResponseGroup(group_id=group.group_id, error_code=GROUP_FAILED),
    )
    asked: list[OffsetFetchRequestGroup] = []
    refused_topics: dict[str, tuple[Any, ...]] = {}
    """Refused topics by group. Groups that ask for all topics have none: topics that may not be seen are left out."""
    for group in kept:
        if group.topics is None:
            asked.append(group)
        else:
            topics, not_allowed = split(group.topics, may_on_topic(permit, Operation.DESCRIBE), refuse)
            asked.append(replace(group, topics=topics))
            refused_topics[group.group_id] = not_allowed

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        groups = []
        for group in response.groups:
            if group.error_code:
                groups.append(group)
            elif (more := refused_topics.get(group.group_id)) is None:
                groups.append(replace(group, topics=visible(permit, group.topics)))
            else:
                groups.append(replace(group, topics=(*group.topics, *more)))
        return replace(response, groups=(*groups, *refused))

    return Narrowed(replace(request, groups=tuple(asked)), complete)
