"""OffsetFetch: the committed offsets of a group. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds, timeless
from kip848_client.testing.coordinator.core.offset_store import StoredOffset
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUPS_VERSION = 8
_TOPIC_IDS_VERSION = 10
_NO_OFFSET = StoredOffset(offset=-1)


def handle_offset_fetch(state: CoordinatorState, request: ApiRequest, message: OffsetFetchRequest) -> CoordinatorResult:
    """Answer one OffsetFetch, of one group (up to v7) or many.

    A group that does not exist has no committed offsets. A group-level error concerns that group only.

    Source:
        Kafka's ``OffsetMetadataManager.fetchOffsets``; KIP-709 (many groups); KIP-848 (member id and epoch, v9).
    """
    if request.api_version >= _GROUPS_VERSION:
        response = OffsetFetchResponse(
            groups=tuple(
                _fetch_group(state, group, api_version=request.api_version, require_stable=message.require_stable)
                for group in message.groups
            )
        )
    else:
        response = _fetch_one(state, message, api_version=request.api_version)
    return CoordinatorResult(replies=(Reply(request.request_id, response),))


def _fetch_one(state: CoordinatorState, message: OffsetFetchRequest, *, api_version: int) -> OffsetFetchResponse:
    """The layout before v8: one group, which names no member and so cannot be refused."""
    topics = (
        None
        if message.topics is None
        else tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in message.topics
        )
    )
    fetched = _fetch_group(
        state,
        OffsetFetchRequestGroup(group_id=message.group_id, topics=topics),
        api_version=api_version,
        require_stable=message.require_stable,
    )
    return OffsetFetchResponse(
        error_code=fetched.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in fetched.topics
        ),
    )


def _fetch_group(
    state: CoordinatorState, group: OffsetFetchRequestGroup, *, api_version: int, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        _check_member(state, group)
    except Refused as refusal:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=refusal.code)
    fetch = _GroupFetch(
        state,
        state.offsets.of_group(group.group_id),
        by_id=api_version >= _TOPIC_IDS_VERSION,
        unstable_group=group.group_id if require_stable and state.offsets.has_pending(group.group_id) else None,
    )
    topics = fetch.every_topic() if group.topics is None else tuple(fetch.topic(topic) for topic in group.topics)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _check_member(state: CoordinatorState, group: OffsetFetchRequestGroup) -> None:
    """Raise `Refused` if the sender names a member and may not fetch; the group's kind decides.

    A group of a kind without offsets has committed nothing: that is no error, as in Kafka.
    """
    stored = state.groups.get(group.group_id)
    if stored is None:
        return
    kind = state.part(Kinds).of(stored)
    if not kind.HAS_OFFSETS:
        return
    if group.member_id is not None or group.member_epoch >= 0:
        kind.check_fetch(stored, member_id=group.member_id or "", member_epoch=group.member_epoch)


class _GroupFetch(msgspec.Struct, frozen=True):
    """The offsets of one group, in the shape of an answer."""

    state: CoordinatorState
    offsets: Mapping[str, Mapping[int, StoredOffset]]
    by_id: bool
    unstable_group: str | None
    """The group, if partitions should be refused that an open transaction commits an offset of."""

    def topic(self, topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        """The partitions that were asked for; -1 where nothing is committed."""
        name, topic_id = topic.name, topic.topic_id
        error = ErrorCode.NONE
        if self.by_id:
            found = self.state.image.by_id.get(topic_id)
            if found is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                name = found.name
        else:
            found = self.state.image.by_name.get(name)
            topic_id = ZERO_UUID if found is None else found.topic_id
        committed = {} if error else self.offsets.get(name, {})
        return OffsetFetchResponseTopics(
            name=name,
            topic_id=topic.topic_id,
            partitions=tuple(
                self._partition(
                    committed.get(index, _NO_OFFSET),
                    index=index,
                    topic_id=topic_id,
                    error=error or self._instability(name, index),
                )
                for index in topic.partition_indexes
            ),
        )

    def every_topic(self) -> tuple[OffsetFetchResponseTopics, ...]:
        """All committed offsets, topics and partitions ascending; by id, topics that are gone are left out."""
        topics = []
        for name in sorted(self.offsets):
            found = self.state.image.by_name.get(name)
            if self.by_id and found is None:
                continue
            asked = OffsetFetchRequestTopics(
                name=name,
                topic_id=ZERO_UUID if found is None or not self.by_id else found.topic_id,
                partition_indexes=tuple(sorted(self.offsets[name])),
            )
            topics.append(self.topic(asked))
        return tuple(topics)

    def _instability(self, topic: str, partition: int) -> ErrorCode:
        group_id = self.unstable_group
        if group_id is not None and self.state.offsets.has_pending(group_id, topic=topic, partition=partition):
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        return ErrorCode.NONE

    @staticmethod
    def _partition(
        committed: StoredOffset, *, index: int, topic_id: UUID, error: ErrorCode
    ) -> OffsetFetchResponsePartitions:
        if error:
            committed = _NO_OFFSET
        elif ZERO_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id:
            committed = _NO_OFFSET  # the topic was replaced while no coordinator ran
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=error,
        )


ROUTES: Final = (timeless(OffsetFetchRequest, handle_offset_fetch),)
