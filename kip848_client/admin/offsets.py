"""Committed offsets of groups: read, commit and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, Call, Cluster, Node, by_topic, refusal
from kip848_client.admin.results import Results, split
from kip848_client.admin.topics import Partition, named
from kip848_client.errors import Kip848Error
from kip848_client.model import NamedPartition, OffsetAndMetadata
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_BY_NAME: Final = 9
"""The last version of OffsetFetch and of OffsetCommit that names topics; from 10 on they have ids only."""
_SEVERAL_GROUPS: Final = 8
"""First version of OffsetFetch that takes several groups."""
_GROUPS_OF_ONE_FETCH: Final = 100


async def committed_offsets(
    cluster: Cluster, group_ids: Iterable[str], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, Mapping[NamedPartition, OffsetAndMetadata]]:
    """All committed offsets of groups of any kind, with their metadata.

    Returns:
        Nothing for a group without offsets, and for one that does not exist: Kafka does not tell them apart. Of a group
        whose offsets may not be read, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    return split(await committed_of(cluster.call(timeout_s), group_ids))


async def committed_of(
    call: Call, group_ids: Iterable[str]
) -> dict[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error]:
    """As `committed_offsets`, inside another call."""
    return await call.at_coordinators(group_ids, _fetch)


async def _fetch(
    node: Node, group_ids: Sequence[str]
) -> Mapping[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error]:
    size = _GROUPS_OF_ONE_FETCH if node.highest(ApiKey.OFFSET_FETCH) >= _SEVERAL_GROUPS else 1
    found: dict[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error] = {}
    for start in range(0, len(group_ids), size):
        asked = tuple(OffsetFetchRequestGroup(group_id=one, topics=None) for one in group_ids[start : start + size])
        answer = await node.send(OffsetFetchRequest(groups=asked), max_version=_BY_NAME)
        for group in answer.groups:
            found[group.group_id] = {
                NamedPartition(topic.name, one.partition_index): OffsetAndMetadata(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
                for topic in group.topics
                for one in topic.partitions
                if one.committed_offset >= 0
            }
            if group.error_code:
                found[group.group_id] = refusal(group.error_code, f"offsets of group {group.group_id!r}")
    return found


async def commit(
    call: Call, group_id: str, offsets: Mapping[NamedPartition, OffsetAndMetadata]
) -> Mapping[NamedPartition, int]:
    """Commit for a group without members.

    Returns:
        The partitions that were refused, with their error codes.

    Raises:
        Kip848Error: nothing was committed.
    """
    topics = tuple(
        OffsetCommitRequestTopic(
            name=name,
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=one.partition, committed_offset=offsets[one].offset)
                for one in group
            ),
        )
        for name, group in by_topic(offsets).items()
    )

    async def ask(node: Node, _: Sequence[str]) -> Mapping[str, dict[NamedPartition, int] | Kip848Error]:
        answer = await node.send(OffsetCommitRequest(group_id=group_id, topics=topics), max_version=_BY_NAME)
        refused = {
            NamedPartition(topic.name, one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
            if one.error_code
        }
        if len(refused) == len(offsets):  # as a whole, and maybe only for now
            return {group_id: refusal(next(iter(refused.values())), f"offsets of {group_id!r} were not committed")}
        return {group_id: refused}

    return split(await call.at_coordinators([group_id], ask))[group_id]


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[Partition], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[NamedPartition, None]:
    """Delete committed offsets of a group that does not subscribe to their topics.

    Returns:
        Of a partition whose topic the group subscribes to, the error.

    Raises:
        Kip848Error: there is no such group, it may not be changed, or no broker answers.
    """
    topics = tuple(
        OffsetDeleteRequestTopic(
            name=name, partitions=tuple(OffsetDeleteRequestPartition(partition_index=one.partition) for one in group)
        )
        for name, group in by_topic(map(named, partitions)).items()
    )

    async def ask(node: Node, _: Sequence[str]) -> Mapping[str, dict[NamedPartition, Kip848Error | None] | Kip848Error]:
        answer = await node.send(OffsetDeleteRequest(group_id=group_id, topics=topics))
        if answer.error_code:
            return {group_id: refusal(answer.error_code, f"offsets of group {group_id!r} were not deleted")}
        deleted: dict[NamedPartition, Kip848Error | None] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = NamedPartition(topic.name, one.partition_index)
                what = f"the offset of {partition} in group {group_id!r} was not deleted"
                deleted[partition] = refusal(one.error_code, what) if one.error_code else None
        return {group_id: deleted}

    return split(split(await cluster.call(timeout_s).at_coordinators([group_id], ask))[group_id])
