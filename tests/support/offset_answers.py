"""Answers of a scripted coordinator to OffsetCommit and OffsetFetch: one for each partition that the request names."""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

__all__ = ["NO_OFFSET", "commit_answer", "fetch_answer"]

NO_OFFSET = -1
"""What a coordinator answers for a partition without a committed offset."""


def commit_answer(
    request: OffsetCommitRequest, code_of: Callable[[OffsetCommitRequestTopic, int], int] = lambda _topic, _index: 0
) -> OffsetCommitResponse:
    """Every partition of *request* with the error code that *code_of* gives its topic and index; 0 is success."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    OffsetCommitResponsePartition(item.partition_index, code_of(topic, item.partition_index))
                    for item in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


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
    groups = tuple(
        OffsetFetchResponseGroup(
            group.group_id,
            ()
            if error
            else tuple(
                OffsetFetchResponseTopics(
                    topic.name,
                    topic.topic_id,
                    tuple(
                        OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=offset_of(topic, index),
                            metadata="",
                            error_code=code_of(topic, index),
                        )
                        for index in topic.partition_indexes
                    ),
                )
                for topic in group.topics or ()
            ),
            error,
        )
        for group in request.groups
    )
    return OffsetFetchResponse(groups=groups)
