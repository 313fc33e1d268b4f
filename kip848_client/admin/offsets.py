"""Committed offsets of groups: read, commit and delete them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, AdminCall, AskedBroker, Cluster, by_topic, check, refusal
from kip848_client.admin.results import Results, split
from kip848_client.admin.topics import Partition, named
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.common.plain_text import counted
from kip848_client.errors import Kip848Error
from kip848_client.member.offsets.commit_requests import first_part
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
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

_BY_NAME: Final = 9
"""The last version of OffsetFetch and of OffsetCommit that names topics; from 10 on they have ids only."""
_SEVERAL_GROUPS: Final = 8
"""First version of OffsetFetch that takes several groups."""
_GROUPS_OF_ONE_FETCH: Final = 100


async def committed_offsets(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    partitions: Iterable[Partition] | None = None,
    require_stable: bool = False,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[str, Mapping[NamedPartition, OffsetAndMetadata]]:
    """The committed offsets of groups of any kind, with their metadata.

    Args:
        partitions: only these; None for all that the groups have committed.
        require_stable: wait until open transactions that commit offsets of a group have ended.
        timeout_s: seconds for the whole call.

    Returns:
        Nothing for a group without offsets, and for one that does not exist: Kafka does not tell them apart. Of a group
        whose offsets may not be read, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    named_ones = None if partitions is None else list(map(named, partitions))
    call = cluster.call(timeout_s)
    return split(await committed_of(call, group_ids, partitions=named_ones, require_stable=require_stable))


async def committed_of(
    call: AdminCall,
    group_ids: Iterable[str],
    *,
    partitions: Sequence[NamedPartition] | None = None,
    require_stable: bool = False,
) -> dict[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error]:
    """As `committed_offsets`, inside another call."""
    topics = None
    if partitions is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(one.partition for one in group))
            for name, group in by_topic(partitions).items()
        )
    ask = functools.partial(_fetch, topics=topics, require_stable=require_stable)
    return await call.at_coordinators(group_ids, ask)


async def _fetch(
    node: AskedBroker,
    group_ids: Sequence[str],
    *,
    topics: tuple[OffsetFetchRequestTopics, ...] | None,
    require_stable: bool,
) -> Mapping[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error]:
    size = _GROUPS_OF_ONE_FETCH if node.highest(ApiKey.OFFSET_FETCH) >= _SEVERAL_GROUPS else 1
    found: dict[str, Mapping[NamedPartition, OffsetAndMetadata] | Kip848Error] = {}
    for start in range(0, len(group_ids), size):
        asked = tuple(OffsetFetchRequestGroup(group_id=one, topics=topics) for one in group_ids[start : start + size])
        answer = await node.send(OffsetFetchRequest(groups=asked, require_stable=require_stable), max_version=_BY_NAME)
        for group in answer.groups:
            found[group.group_id] = {
                NamedPartition(topic.name, one.partition_index): OffsetAndMetadata(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
                for topic in group.topics
                for one in topic.partitions
                if one.committed_offset >= 0
            }
            codes = (group.error_code, *(one.error_code for topic in group.topics for one in topic.partitions))
            if any(codes):
                found[group.group_id] = refusal(next(filter(None, codes)), f"offsets of group {group.group_id!r}")
    return found


async def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[NamedPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata],
    *,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> None:
    """Commit for a group without members. `apply_reset` does that for a plan.

    Args:
        timeout_s: seconds for the whole call.

    Raises:
        BrokerError: the group has members, or committing is not allowed. The message says for which partitions nothing
            was committed.
        Kip848Error: no broker answers.
    """
    call = cluster.call(timeout_s)
    left = {named(key): OffsetAndMetadata(one) if isinstance(one, int) else one for key, one in offsets.items()}
    refused: dict[NamedPartition, int] = {}
    done = 0
    while left:
        part = first_part(left, group_id=group_id)
        try:
            codes = await _commit(call, group_id, part)
        except Kip848Error as error:
            if not done:
                raise
            raise Kip848Error(f"offsets of {counted(done, 'partition')} were committed, and then: {error}") from error
        refused |= codes
        done += len(part) - len(codes)
        left = {partition: position for partition, position in left.items() if partition not in part}
    if refused:
        where = ", ".join(map(str, refused))
        said = f"offsets of {group_id!r} were committed for {counted(done, 'partition')}, and not for {where}"
        check(next(iter(refused.values())), said)


async def _commit(
    call: AdminCall, group_id: str, offsets: Mapping[NamedPartition, OffsetAndMetadata]
) -> Mapping[NamedPartition, int]:
    """The partitions that were refused, with their error codes; raises if nothing was committed."""
    topics = tuple(
        OffsetCommitRequestTopic(
            name=name,
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=offsets[one].offset,
                    committed_leader_epoch=offsets[one].leader_epoch,
                    committed_metadata=offsets[one].metadata,
                )
                for one in group
            ),
        )
        for name, group in by_topic(offsets).items()
    )

    async def ask(node: AskedBroker, _: Sequence[str]) -> Mapping[str, dict[NamedPartition, int] | Kip848Error]:
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

    Args:
        timeout_s: seconds for the whole call.

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

    async def ask(
        node: AskedBroker, _: Sequence[str]
    ) -> Mapping[str, dict[NamedPartition, Kip848Error | None] | Kip848Error]:
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
