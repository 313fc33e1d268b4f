"""What ShareFetch and ShareAcknowledge have in common. No API of its own.

Source:
    apache/kafka ``KafkaApis.handleAcknowledgements``, ``validateAcknowledgementBatches``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kip848_client.common.acknowledge_type import GAP, AcknowledgeType
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._partitions import CurrentLeader, current_leader, find_log
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.testing.share_partitions.share_partition import AcknowledgementBatch
from kip848_client.testing.share_partitions.share_sessions import ReadPartition
from kip848_client.testing.share_partitions.share_state import ShareKey
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kip848_client.wire.messages.share_fetch import ShareFetchRequest

EndpointT = TypeVar("EndpointT")

FIRST_VERSION_WITH_RENEWAL: Final = 2
_MEMBER_ID_LENGTH_MAX: Final = 36
_WRONG_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class PartitionAcknowledgements(NamedTuple):
    """What a member says about the records of one partition."""

    of: ReadPartition
    batches: Sequence[AcknowledgementBatch]


class AcknowledgeResult(NamedTuple):
    """What became of it."""

    code: ErrorCode
    reason: str | None = None


def why_invalid(group_id: str | None, member_id: str | None) -> str | None:
    """Why a request cannot be about a member of a share group; None if it can."""
    if group_id is None:
        return "Invalid group id in the request."
    if not member_id or len(member_id) > _MEMBER_ID_LENGTH_MAX:
        return "Invalid member id in the request."
    return None


def said_in(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[PartitionAcknowledgements]:
    """What a request says, partition by partition."""
    return [
        PartitionAcknowledgements(
            ReadPartition(topic.topic_id, each.partition_index),
            [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ],
        )
        for topic in request.topics
        for each in topic.partitions
    ]


def may_read(broker: BrokerState, context: RequestContext) -> Callable[[str], bool]:
    """Whether the sender may read a topic."""
    if broker.access is None:
        return lambda _: True
    permit = Permit(broker.access, context)
    return lambda name: permit.may(Operation.READ, ResourceType.TOPIC, name)


def find_shared(broker: BrokerState, of: ReadPartition, *, is_readable: Callable[[str], bool]) -> Topic | ErrorCode:
    """The topic of a partition, or why a member cannot have its records."""
    topic = broker.topics.get_by_id(of.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not is_readable(topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not 0 <= of.partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic


def acknowledge(
    broker: BrokerState,
    context: RequestContext,
    *,
    group_id: str,
    member_id: str,
    said: Iterable[PartitionAcknowledgements],
    is_renew_ack: bool,
) -> Generator[None, None, dict[ReadPartition, AcknowledgeResult]]:
    """Do what a member says about its records, partition by partition; others may have their turn in between.

    The answer names every partition of the request if the member says something about one of them.
    """
    is_readable = may_read(broker, context)
    renews = context.api_version >= FIRST_VERSION_WITH_RENEWAL
    verdicts: dict[ReadPartition, AcknowledgeResult] = {}
    empty, applied = [], False
    for of, batches in said:
        topic = find_shared(broker, of, is_readable=is_readable)
        if topic is ErrorCode.UNKNOWN_TOPIC_ID:
            verdicts[of] = AcknowledgeResult(topic)
        elif not _are_valid(batches, renews=renews, is_renew_ack=is_renew_ack):
            verdicts[of] = AcknowledgeResult(ErrorCode.INVALID_REQUEST)
        elif isinstance(topic, ErrorCode):
            verdicts[of] = AcknowledgeResult(topic)
        elif not batches:
            empty.append(of)
        else:
            applied = True
            verdicts[of] = _apply(broker, context, topic, ShareKey(group_id, *of), member_id, batches)
        yield
    if applied:
        verdicts.update(dict.fromkeys(empty, AcknowledgeResult(ErrorCode.NONE)))
    return verdicts


def _apply(
    broker: BrokerState,
    context: RequestContext,
    topic: Topic,
    key: ShareKey,
    member_id: str,
    batches: Iterable[AcknowledgementBatch],
) -> AcknowledgeResult:
    live = None
    if not isinstance(find_log(broker, topic, key.partition, node_id=context.node_id), ErrorCode):
        live = broker.shares.get(key)
    if live is None:
        return AcknowledgeResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no member of the group reads it from this node")
    try:
        broker.shares.acknowledge(live, member_id, batches)
    except BrokerError as error:
        return AcknowledgeResult(ErrorCode(error.code), str(error))
    return AcknowledgeResult(ErrorCode.NONE)


def _are_valid(batches: Iterable[AcknowledgementBatch], *, renews: bool, is_renew_ack: bool) -> bool:
    highest, last = (AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT), -1
    for batch in batches:
        types = batch.types
        if (
            batch.first_offset > batch.last_offset
            or batch.first_offset < last
            or not types
            or (len(types) > 1 and batch.last_offset - batch.first_offset != len(types) - 1)
            or not all(GAP <= each <= highest for each in types)
            or (AcknowledgeType.RENEW in types and not is_renew_ack)
        ):
            return False
        last = batch.last_offset
    return True


def leader_of(broker: BrokerState, of: ReadPartition, code: int) -> CurrentLeader | None:
    """The leader to name with an error; None if the error is another, or there is no leader."""
    if code not in _WRONG_LEADER:
        return None
    topic = broker.topics.get_by_id(of.topic_id)
    return None if topic is None else current_leader(broker, topic, of.partition)


def endpoints(
    broker: BrokerState, context: RequestContext, leaders: Iterable[CurrentLeader], make: Callable[..., EndpointT]
) -> tuple[EndpointT, ...]:
    """The addresses of leaders, as either API lists them."""
    named = sorted({leader.node_id for leader in leaders})
    return tuple(
        make(node.node_id, *node.endpoint(context.listener), rack=node.rack)
        for node in map(broker.nodes.__getitem__, named)
    )


def by_topic(partitions: Iterable[tuple[ReadPartition, Any]]) -> Iterator[tuple[uuid.UUID, tuple[Any, ...]]]:
    """The entries of an answer, grouped by topic in the order in which the topics come first."""
    grouped: dict[uuid.UUID, list[Any]] = {}
    for of, data in partitions:
        grouped.setdefault(of.topic_id, []).append(data)
    return ((topic_id, tuple(found)) for topic_id, found in grouped.items())
