"""OffsetCommit and TxnOffsetCommit: which partitions are stored, and the records of their offsets.

Which member may commit is decided by the kind of its group: `consumer.consumer_commit`, `classic.classic_commit`.
Offsets of a transaction stay pending until the transaction coordinator ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest, TransactionEnded
from kip848_client.testing.coordinator.core.kind import CommitAttempt, Kinds, kind_with_offsets, route
from kip848_client.testing.coordinator.core.offset_store import (
    StoredOffset,
    offset_record,
    pending_record,
    pending_tombstone,
)
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorRecord, CoordinatorResult, Reply, SoftChange
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.topics_image import TopicInfo
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_TOPIC_IDS_VERSION: Final = 10
_TXN_TOPIC_IDS_VERSION: Final = 6
_NEVER_MS: Final = 2**63 - 1
"""The latest time that a record can hold."""


def handle_offset_commit(
    state: CoordinatorState, request: ApiRequest, message: OffsetCommitRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one OffsetCommit.

    A member that may not commit one partition commits none. In contrast, an unknown topic or partition, or metadata
    that is too long, refuses only its own partitions. The answer omits topics without partitions.

    Source:
        Kafka's ``OffsetMetadataManager.commitOffset``; KIP-848; KIP-1251 (a lagging epoch is enough for partitions
        that the member had at that epoch already).
    """
    batch, answered = _commit(state, request, message, transaction=None, now_ms=now_ms)
    return batch.result(Reply(request.request_id, OffsetCommitResponse(topics=answered)))


def handle_txn_offset_commit(
    state: CoordinatorState, request: ApiRequest, message: TxnOffsetCommitRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one TxnOffsetCommit of a producer whose transaction the group is part of.

    The checks are those of OffsetCommit, except: a sender without member id may commit to any group, a classic group
    accepts commits of its generation while it waits for its assignment, and before version 6 a stale epoch is
    ILLEGAL_GENERATION.

    Source:
        Kafka's ``OffsetMetadataManager.commitTransactionalOffset``; KIP-447, KIP-1319.
    """
    commit = OffsetCommitRequest(
        group_id=message.group_id,
        generation_id_or_member_epoch=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        committed_metadata=partition.committed_metadata,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in message.topics
        ),
    )
    batch, answered = _commit(state, request, commit, transaction=message, now_ms=now_ms)
    response = TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=partition.error_code
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in answered
        )
    )
    return batch.result(Reply(request.request_id, response))


def end_transaction(state: CoordinatorState, ended: TransactionEnded) -> CoordinatorResult:
    """Apply or drop the offsets of a producer's transaction that has ended."""
    records: list[CoordinatorRecord] = []
    for key, pending in state.offsets.pending_of_producer(ended.producer_id):
        records.append(pending_tombstone(key))
        if ended.commit and not pending.is_superseded:
            records.append(
                offset_record(key.group, topic=key.topic, partition=key.partition, committed=pending.committed)
            )
    return CoordinatorResult(records=tuple(records))


def _commit(
    state: CoordinatorState,
    request: ApiRequest,
    message: OffsetCommitRequest,
    *,
    transaction: TxnOffsetCommitRequest | None,
    now_ms: int,
) -> tuple[Batch, tuple[OffsetCommitResponseTopic, ...]]:
    by_id = request.api_version >= (_TOPIC_IDS_VERSION if transaction is None else _TXN_TOPIC_IDS_VERSION)
    topics = [(topic, _find_topic(state, topic, by_id=by_id)) for topic in message.topics]
    batch = Batch(message.group_id)
    refused = ErrorCode.NONE
    if any(
        found is not None and _exists(found, partition) for topic, found in topics for partition in topic.partitions
    ):
        try:
            commit = CommitAttempt(
                member_id=message.member_id,
                instance_id=message.group_instance_id,
                epoch=message.generation_id_or_member_epoch,
                api_version=request.api_version,
                is_transactional=transaction is not None,
                partitions=_storable(state, topics),
            )
            batch.soft += _check_member(state, message.group_id, commit, now_ms=now_ms)
        except Refused as refusal:
            refused = refusal.code
    answered = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=_commit_partition(
                        state,
                        request,
                        message,
                        batch,
                        found=found,
                        by_id=by_id,
                        partition=partition,
                        refused=refused,
                        transaction=transaction,
                    ),
                )
                for partition in topic.partitions
            ),
        )
        for topic, found in topics
        if topic.partitions
    )
    if refused or transaction is None:
        _note(state, batch, message, refused=refused)
    return batch, answered


def _find_topic(state: CoordinatorState, topic: OffsetCommitRequestTopic, *, by_id: bool) -> TopicInfo | None:
    return state.image.by_id.get(topic.topic_id) if by_id else state.image.by_name.get(topic.name)


def _check_member(
    state: CoordinatorState, group_id: str, commit: CommitAttempt, *, now_ms: int
) -> Sequence[SoftChange]:
    """Raise `Refused` unless the sender may commit; timers that the commit restarts. The group's kind decides.

    A group that does not exist or has no members accepts commits without an epoch: from consumers that assign
    partitions themselves, and from administrators. A transaction may commit to any group if it names no member.
    """
    group = state.groups.get(group_id)
    if group is None:
        _check_without_group(state, group_id, commit)
        return ()
    kind = kind_with_offsets(state, group)
    names_member = commit.epoch >= 0 or commit.member_id or commit.instance_id is not None
    if commit.is_transactional and not names_member:
        return ()
    return kind.check_commit(group, commit, now_ms=now_ms)


def _check_without_group(state: CoordinatorState, group_id: str, commit: CommitAttempt) -> None:
    if commit.epoch < 0:
        if not state.has_room_for_group(group_id):
            raise Refused(ErrorCode.POLICY_VIOLATION, f"kip848.groups.max is {state.config.groups_max}.")
        return
    if state.offsets.has_group(group_id):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no members.")
    code = ErrorCode.GROUP_ID_NOT_FOUND if commit.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
    raise Refused(code, f"Group {group_id} not found.")


def _storable(
    state: CoordinatorState, topics: list[tuple[OffsetCommitRequestTopic, TopicInfo | None]]
) -> list[tuple[UUID, int]]:
    """Partitions whose offsets are stored if the member may commit: they exist, and their metadata is valid."""
    return [
        (found.topic_id, partition.partition_index)
        for topic, found in topics
        if found is not None
        for partition in topic.partitions
        if _exists(found, partition) and not _is_metadata_too_long(state, partition)
    ]


def _commit_partition(
    state: CoordinatorState,
    request: ApiRequest,
    message: OffsetCommitRequest,
    batch: Batch,
    *,
    found: TopicInfo | None,
    by_id: bool,
    partition: OffsetCommitRequestPartition,
    refused: ErrorCode,
    transaction: TxnOffsetCommitRequest | None,
) -> ErrorCode:
    """Store one offset; the code for its answer."""
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _exists(found, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        return refused
    if _is_metadata_too_long(state, partition):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    retention_ms = message.retention_time_ms
    committed = StoredOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=request.wall_ms,
        expire_timestamp_ms=-1 if retention_ms < 0 else min(request.wall_ms + retention_ms, _NEVER_MS),
        topic_id=found.topic_id if retention_ms < 0 else ZERO_UUID,  # record version 1 has no room for it
    )
    if transaction is not None:
        batch.records.append(
            pending_record(
                message.group_id,
                topic=found.name,
                partition=partition.partition_index,
                committed=committed,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            )
        )
        return ErrorCode.NONE
    batch.records.append(
        offset_record(message.group_id, topic=found.name, partition=partition.partition_index, committed=committed)
    )
    return ErrorCode.NONE


def _exists(found: TopicInfo, partition: OffsetCommitRequestPartition) -> bool:
    return 0 <= partition.partition_index < found.partition_count


def _is_metadata_too_long(state: CoordinatorState, partition: OffsetCommitRequestPartition) -> bool:
    return len(partition.committed_metadata or "") > state.config.offset_metadata_max_bytes


def _note(state: CoordinatorState, batch: Batch, message: OffsetCommitRequest, *, refused: ErrorCode) -> None:
    offsets = {
        f"{topic.name or _name(state, topic)}-{partition.partition_index}": partition.committed_offset
        for topic in message.topics
        for partition in topic.partitions
    }
    group = state.groups.get(message.group_id)
    member, group_epoch = None, 0
    if group is not None:
        member, group_epoch = state.part(Kinds).of(group).committing(group, message.member_id)
    if refused:
        batch.happened(
            "commit_refused", member=member, group_epoch=group_epoch, fields={"error": refused.name, "offsets": offsets}
        )
    elif batch.records:
        batch.happened("offsets_committed", member=member, group_epoch=group_epoch, fields={"offsets": offsets})


def _name(state: CoordinatorState, topic: OffsetCommitRequestTopic) -> str:
    found = state.image.by_id.get(topic.topic_id)
    return str(topic.topic_id) if found is None else found.name


ROUTES: Final = (
    route(OffsetCommitRequest, handle_offset_commit),
    route(TxnOffsetCommitRequest, handle_txn_offset_commit),
)
