"""Builds OffsetCommit and OffsetFetch requests and reads their answers. No rules.

Version 10 and later identify topics by id, earlier ones by name. If the id of a topic is unknown, version 9 is the
highest that can be used.

Source: KIP-848 (member epoch in both), KIP-1251 and Kafka's ``OffsetCommitRequest.json`` (topic ids).
Rules: R91, R102, R103, R112 and R114 in docs/protocol.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NO_EPOCH, ZERO_UUID, NamedPartition, OffsetAndMetadata
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import TOPIC_GONE
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

LAST_VERSION_BY_NAME: Final = 9
COMMIT_PARTITIONS_MAX: Final = 5_000
COMMIT_BYTES_MAX: Final = 500_000
"""Most bytes of records that a coordinator writes for one request, roughly; not bytes on the wire."""
_RECORD_BYTES: Final = 80
"""Size of the record of one offset, without names and metadata."""
_ALWAYS_FIT: Final = 100
"""So many partitions have room even with metadata of 4,096 bytes each, which is all that Kafka takes."""

MessageT = TypeVar("MessageT")


class Built(NamedTuple, Generic[MessageT]):
    """A request, and the highest version that can carry it."""

    request: MessageT
    max_version: int | None


class CommitResult(msgspec.Struct, frozen=True):
    """The coordinator's answer to a commit.

    Args:
        code: of the first partition that failed; TOPIC_AUTHORIZATION_FAILED only if nothing else failed.
        unauthorized: every topic without permission.
        gone: partitions whose topic the coordinator does not know.
        refused: partitions that failed with *code*. Others may be committed.
    """

    code: int
    unauthorized: frozenset[str]
    gone: frozenset[NamedPartition] = frozenset()
    refused: frozenset[NamedPartition] = frozenset()


class FetchResult(msgspec.Struct, frozen=True):
    """The coordinator's answer to a fetch of committed offsets.

    Args:
        code: of the whole group; then the rest is empty.
        offsets: partition -> committed position.
        failed: partition -> error code. A partition in neither has no committed offset.
    """

    code: int
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    failed: Mapping[NamedPartition, int]


def _topic_ids(context: Context) -> dict[str, UUID]:
    return {item.topic: item.topic_id for item in context.owned if item.topic_id != ZERO_UUID}


def _named(context: Context, topics: Collection[str]) -> tuple[Mapping[str, UUID], int | None]:
    """Topic ids and the highest version for a request about *topics*: by id if all ids are known, else all by name."""
    ids = _topic_ids(context)
    if all(topic in ids for topic in topics):
        return ids, None
    return {}, LAST_VERSION_BY_NAME


def first_part(
    offsets: Mapping[NamedPartition, OffsetAndMetadata], *, group_id: str
) -> Mapping[NamedPartition, OffsetAndMetadata]:
    """As many of *offsets* as one request carries, in order.

    Kafka stores a request as one batch of at most ``max.message.bytes``, by default 1 MiB, and fails if it is longer.
    """
    if len(offsets) <= _ALWAYS_FIT:
        return offsets
    part: dict[NamedPartition, OffsetAndMetadata] = {}
    left = COMMIT_BYTES_MAX
    for partition, position in sorted(offsets.items()):
        left -= _RECORD_BYTES + len(group_id) + len(partition.topic) + len(position.metadata.encode())
        if part and (left < 0 or len(part) == COMMIT_PARTITIONS_MAX):
            break
        part[partition] = position
    return part


def build_commit(context: Context, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> Built[OffsetCommitRequest]:
    """The request that commits *offsets* with the present epoch."""
    topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for partition, position in sorted(offsets.items()):
        topics[partition.topic].append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    ids, max_version = _named(context, topics)
    epoch = context.live_epoch
    request = OffsetCommitRequest(
        group_id=context.config.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=context.member_id if epoch != NO_EPOCH else "",
        group_instance_id=context.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name, ids.get(name, ZERO_UUID), tuple(items)) for name, items in topics.items()
        ),
    )
    return Built(request, max_version)


def read_commit(
    request: OffsetCommitRequest, response: OffsetCommitResponse, *, without_gone: bool = False
) -> CommitResult:
    """Reduce an answer to *request* to one error code.

    Args:
        without_gone: partitions of topics that do not exist are not a failure; `CommitResult.gone` has them.
    """
    names = {topic.topic_id: topic.name for topic in request.topics}
    first = ErrorCode.NONE.value
    unauthorized: set[str] = set()
    gone: set[NamedPartition] = set()
    failed: dict[NamedPartition, int] = {}
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, str(topic.topic_id))
        for item in topic.partitions:
            if item.error_code:
                failed[NamedPartition(name, item.partition_index)] = item.error_code
            if item.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(name)
            elif item.error_code in TOPIC_GONE:
                gone.add(NamedPartition(name, item.partition_index))
                if not first and not without_gone:
                    first = item.error_code
            elif item.error_code and not first:
                first = item.error_code
    code = first or (ErrorCode.TOPIC_AUTHORIZATION_FAILED.value if unauthorized else ErrorCode.NONE.value)
    refused = frozenset(partition for partition, error_code in failed.items() if error_code == code)
    return CommitResult(code, frozenset(unauthorized), frozenset(gone), refused)


def build_fetch(context: Context, partitions: frozenset[NamedPartition]) -> Built[OffsetFetchRequest]:
    """The request for committed offsets with the present epoch."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    ids, max_version = _named(context, topics)
    epoch = context.live_epoch if context.fetches_name_member else NO_EPOCH
    group = OffsetFetchRequestGroup(
        group_id=context.config.group_id,
        member_id=context.member_id if epoch != NO_EPOCH else None,
        member_epoch=epoch,
        topics=tuple(
            OffsetFetchRequestTopics(name, ids.get(name, ZERO_UUID), tuple(items)) for name, items in topics.items()
        ),
    )
    request = OffsetFetchRequest(groups=(group,), require_stable=True)
    return Built(request, max_version)


def read_fetch(
    request: OffsetFetchRequest, response: OffsetFetchResponse, partitions: frozenset[NamedPartition]
) -> FetchResult:
    """Read an answer to *request*. A partition that it leaves out failed; it is not one without an offset."""
    asked = request.groups[0]
    names = {topic.topic_id: topic.name for topic in asked.topics or ()}
    if response.error_code:
        return FetchResult(response.error_code, {}, {})
    offsets: dict[NamedPartition, OffsetAndMetadata] = {}
    failed: dict[NamedPartition, int] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR.value)
    for group in response.groups:
        if group.group_id != asked.group_id:
            continue
        if group.error_code:
            return FetchResult(group.error_code, {}, {})
        for topic in group.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for item in topic.partitions:
                key = NamedPartition(name, item.partition_index)
                if key not in partitions:
                    continue
                if item.error_code:
                    failed[key] = item.error_code
                    continue
                failed.pop(key, None)
                if item.committed_offset >= 0:
                    offsets[key] = OffsetAndMetadata(
                        item.committed_offset, item.committed_leader_epoch, item.metadata or ""
                    )
    return FetchResult(ErrorCode.NONE.value, offsets, failed)
