"""Answers of a scripted coordinator to OffsetCommit and OffsetFetch: one for each partition that the request names."""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopics, OffsetFetchResponse

NO_OFFSET = -1
"""What a coordinator answers for a partition without a committed offset."""


def commit_answer(
    request: OffsetCommitRequest, code_of: Callable[[OffsetCommitRequestTopic, int], int] = lambda _topic, _index: 0
) -> OffsetCommitResponse:
    """Every partition of *request* with the error code that *code_of* gives its topic and index; 0 is success."""

    def answered(topic: OffsetCommitRequestTopic) -> dict[str, object]:
        indexes = [item.partition_index for item in topic.partitions]
        partitions = [{"partition_index": index, "error_code": code_of(topic, index)} for index in indexes]
        return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}

    return build(OffsetCommitResponse, topics=map(answered, request.topics))


def fetch_answer(
    request: OffsetFetchRequest,
    offset_of: Callable[[OffsetFetchRequestTopics, int], int] = lambda _topic, _index: NO_OFFSET,
    code_of: Callable[[OffsetFetchRequestTopics, int], int] = lambda _topic, _index: 0,
    *,
    error: int = 0,
) -> OffsetFetchResponse:
    """Every group and partition of *request*.

    Args:
        offset_of: topic and index -> committed offset.
        code_of: topic and index -> error code.
        error: code of the whole group, which then has no partitions; 0 for none.
    """

    def answered(topic: OffsetFetchRequestTopics) -> dict[str, object]:
        partitions = [
            {"partition_index": index, "committed_offset": offset_of(topic, index), "error_code": code_of(topic, index)}
            for index in topic.partition_indexes
        ]
        return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}

    groups = [
        {
            "group_id": group.group_id,
            "error_code": error,
            "topics": [] if error else map(answered, group.topics or ()),
        }
        for group in request.groups
    ]
    return build(OffsetFetchResponse, groups=groups)
