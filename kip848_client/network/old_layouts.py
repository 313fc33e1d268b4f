"""Old layouts: FindCoordinator before version 4 and OffsetFetch before version 8 name one key, or one group, elsewhere.

The member speaks of lists only; `spoken` and `heard` turn its requests, and the answers, for a broker that is older.
Every broker with the consumer group protocol is newer, librdkafka's mock cluster excepted; brokers without it are met
by manual assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kip848_client.wire.schema import Request, Response

_COORDINATOR_KEYS_VERSION: Final = 4
"""First version of FindCoordinator with a list of keys (KIP-699)."""
_GROUPS_VERSION: Final = 8
"""First version of OffsetFetch with a list of groups (KIP-709)."""
_REQUIRE_STABLE_VERSION: Final = 7
"""First version of OffsetFetch that can wait for open transactions (KIP-447); before, Kafka's client goes without."""


def spoken(request: Request[Response], api_versions: Mapping[int, tuple[int, int]]) -> Request[Response]:
    """*request* in the layout that a broker with *api_versions* reads; the same object if that is today's."""
    match request:
        case FindCoordinatorRequest(coordinator_keys=(key,)):
            if api_versions.get(ApiKey.FIND_COORDINATOR, (0, 0))[1] < _COORDINATOR_KEYS_VERSION:
                return replace(request, key=key, coordinator_keys=())
        case OffsetFetchRequest(groups=(group,)):
            highest = api_versions.get(ApiKey.OFFSET_FETCH, (0, 0))[1]
            if highest < _GROUPS_VERSION:
                topics = None
                if group.topics is not None:
                    topics = tuple(OffsetFetchRequestTopic(one.name, one.partition_indexes) for one in group.topics)
                require_stable = request.require_stable and highest >= _REQUIRE_STABLE_VERSION
                return OffsetFetchRequest(group_id=group.group_id, topics=topics, require_stable=require_stable)
    return request


def heard(request: Request[Response], response: Response) -> Response:
    """*response* in today's layout; *request* is as it was sent."""
    if not isinstance(request, OffsetFetchRequest) or request.groups:
        return response
    assert isinstance(response, OffsetFetchResponse)
    topics = tuple(
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartitions(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ),
        )
        for topic in response.topics
    )
    group = OffsetFetchResponseGroup(group_id=request.group_id, topics=topics, error_code=response.error_code)
    return OffsetFetchResponse(throttle_time_ms=response.throttle_time_ms, groups=(group,))
