"""DescribeShareGroupOffsets (90): where share groups begin, and how many records are left (KIP-1226)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from kip848_client.testing.broker.apis._permissions import GROUP_FAILED, TOPIC_FAILED, Outcome, split, visible
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestGroup,
    ResponseGroup,
    ResponsePartition,
    ResponseTopic,
)

API_KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 1)


def requires(permit: Permit, request: DescribeShareGroupOffsetsRequest) -> Outcome:
    """DESCRIBE on each group and each topic."""
    kept, refused = split(
        request.groups,
        lambda group: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
        lambda group: ResponseGroup(group_id=group.group_id, error_code=GROUP_FAILED),
    )

    def judge(asked: RequestGroup, group: ResponseGroup) -> ResponseGroup:
        if asked.topics is None:
            return replace(group, topics=visible(permit, group.topics))
        may = {
            topic.topic_name: permit.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name)
            for topic in group.topics
        }
        return replace(
            group,
            topics=tuple(
                topic
                if may[topic.topic_name]
                else ResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=tuple(
                        ResponsePartition(each.partition_index, start_offset=-1, error_code=TOPIC_FAILED)
                        for each in topic.partitions
                    ),
                )
                for topic in group.topics
            ),
        )

    def complete(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        judged = map(judge, kept, response.groups)
        return replace(response, groups=(*judged, *refused))

    return Narrowed(replace(request, groups=kept), complete)


def handle(
    broker: BrokerState, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group, which need not exist: what it has not begun has no start offset."""
    return DescribeShareGroupOffsetsResponse(
        groups=tuple(_describe(broker, group, context) for group in request.groups)
    )


def _describe(broker: BrokerState, group: RequestGroup, context: RequestContext) -> ResponseGroup:
    code = broker.groups.why_not_here(group.group_id, context.node_id)
    if code:
        return ResponseGroup(group_id=group.group_id, error_code=code)
    if group.topics is None:
        begun = broker.groups.share_partitions(group.group_id)
        found = ((broker.topics.get_by_id(topic_id), numbers) for topic_id, numbers in sorted(begun.items()))
        topics = [_topic(broker, group.group_id, topic, numbers) for topic, numbers in found if topic is not None]
        return ResponseGroup(group_id=group.group_id, topics=tuple(topics))
    known, unknown = [], []
    for asked in group.topics:
        topic = broker.topics.get(asked.topic_name)
        if topic is None:
            nothing = tuple(ResponsePartition(number, start_offset=-1) for number in asked.partitions)
            unknown.append(ResponseTopic(topic_name=asked.topic_name, partitions=nothing))
        else:
            known.append(_topic(broker, group.group_id, topic, asked.partitions))
    return ResponseGroup(group_id=group.group_id, topics=(*known, *unknown))


def _topic(broker: BrokerState, group_id: str, topic: Any, numbers: Iterable[int]) -> ResponseTopic:
    topic_id: UUID = topic.topic_id
    return ResponseTopic(
        topic_name=topic.name,
        topic_id=topic_id,
        partitions=tuple(_partition(broker, group_id, topic, number) for number in numbers),
    )


def _partition(broker: BrokerState, group_id: str, topic: Any, number: int) -> ResponsePartition:
    state = broker.shares.summary(group_id, topic.topic_id, number)
    if state is None:
        return ResponsePartition(number, start_offset=-1)
    lag = -1
    if state.start_offset != -1 and state.delivery_complete_count != -1 and number < len(topic.partitions):
        lag = topic.partitions[number].high_watermark - state.start_offset - state.delivery_complete_count
    return ResponsePartition(number, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag)
