"""TxnOffsetCommit (28): positions of a group that count if the transaction commits.

Whether the transaction may commit for the group is the transaction coordinator's to say, whether the member may is the
group coordinator's. From version 5 on the group becomes part of the transaction by this request (KIP-890); 6 names
topics by id (KIP-1319).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._groups import commit_in_parts
from kip848_client.testing.broker.apis._permissions import (
    TRANSACTIONAL_ID_FAILED,
    Outcome,
    deny,
    may_write_transaction,
    read_group_and_topics,
)
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.faults.replies import refused
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)

API_KEY: Final = ApiKey.TXN_OFFSET_COMMIT
VERSIONS: Final = (0, 6)


def handle(broker: BrokerState, request: TxnOffsetCommitRequest, context: RequestContext) -> Slices:
    """Refuse what the transaction does not allow, and leave the rest to the group coordinator; it answers then."""
    if any(_exists(broker, topic, item.partition_index) for topic in request.topics for item in topic.partitions):
        error = broker.groups.why_not_here(request.group_id, context.node_id) or broker.transactions.admit_offsets(
            request, api_version=context.api_version
        )
        if error:
            answer: TxnOffsetCommitResponse = refused(request, api_version=context.api_version, code=error)
            return replace(answer, topics=tuple(_known_or_not(broker, topic) for topic in answer.topics))
    committed = yield from commit_in_parts(broker, request, context)
    return committed


def _known_or_not(broker: BrokerState, topic: TxnOffsetCommitResponseTopic) -> TxnOffsetCommitResponseTopic:
    is_unknown_id = not topic.name and broker.topics.get_by_id(topic.topic_id) is None
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return replace(
        topic,
        partitions=tuple(
            item if _exists(broker, topic, item.partition_index) else replace(item, error_code=unknown)
            for item in topic.partitions
        ),
    )


def _exists(
    broker: BrokerState, topic: TxnOffsetCommitRequestTopic | TxnOffsetCommitResponseTopic, partition: int
) -> bool:
    found = broker.topics.get(topic.name) if topic.name else broker.topics.get_by_id(topic.topic_id)
    return found is not None and 0 <= partition < found.partition_count


def requires(permit: Permit, request: Any) -> Outcome:
    """WRITE on the transactional id, READ on the group and each topic."""
    if not may_write_transaction(permit, request.transactional_id):
        return deny(permit, request, TRANSACTIONAL_ID_FAILED)
    return read_group_and_topics(permit, request)
