"""AddPartitionsToTxn (24): partitions that a transaction will write to. From version 4 on for several transactions.

All partitions of a transaction are added, or none: if one does not exist, the others are answered with
OPERATION_NOT_ATTEMPTED.

Source:
    apache/kafka ``KafkaApis.handleAddPartitionsToTxnRequest``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import (
    CLUSTER_FAILED,
    TOPIC_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Outcome,
    deny,
    may_write_transaction,
)
from kip848_client.testing.broker.coordinators.transaction_admission import code_in
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

API_KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS: Final = (0, 5)

_FIRST_FENCED_VERSION: Final = 2
_FIRST_BATCHED_VERSION: Final = 4


def handle(
    broker: BrokerState, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add, or look whether they were added."""
    if context.api_version >= _FIRST_BATCHED_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_results(broker, transaction, context),
                )
                for transaction in request.transactions
            )
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(broker, transaction, context))


def _results(
    broker: BrokerState, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    transactions = broker.transactions.at(context.node_id)
    asked = [(topic.name, partition) for topic in transaction.topics for partition in topic.partitions]
    codes = {place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for place in asked if not _exists(broker, *place)}
    if codes:
        codes = {place: codes.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in asked}
    elif transaction.verify_only:
        codes = {
            place: transactions.verify(
                transaction.transactional_id,
                producer_id=transaction.producer_id,
                epoch=transaction.producer_epoch,
                partition=place,
            )
            for place in asked
        }
    else:
        outcome = transactions.add_partitions(
            transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.producer_epoch,
            partitions=frozenset(asked),
        )
        codes = dict.fromkeys(asked, code_in(outcome.error, context.api_version, fenced_from=_FIRST_FENCED_VERSION))
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=codes[topic.name, partition]
                )
                for partition in topic.partitions
            ),
        )
        for topic in transaction.topics
    )


def _exists(broker: BrokerState, name: str, partition: int) -> bool:
    topic = broker.topics.get(name)
    return topic is not None and 0 <= partition < topic.partition_count


_FIRST_BATCHED_ADD_PARTITIONS: Final = 4


def requires(permit: Permit, request: AddPartitionsToTxnRequest) -> Outcome:
    """WRITE on the transactional id and each topic; from version 4 on, which brokers send, CLUSTER_ACTION."""
    if permit.context.api_version >= _FIRST_BATCHED_ADD_PARTITIONS:
        if permit.may_on_cluster(Operation.CLUSTER_ACTION):
            return None
        return deny(permit, request, CLUSTER_FAILED)
    topics = request.v3_and_below_topics
    if not may_write_transaction(permit, request.v3_and_below_transactional_id):
        codes = {topic.name: int(TRANSACTIONAL_ID_FAILED) for topic in topics}
    else:
        codes = {
            topic.name: int(TOPIC_FAILED)
            for topic in topics
            if not permit.may(Operation.WRITE, ResourceType.TOPIC, topic.name)
        }
    if not codes:
        return None
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get(topic.name, ErrorCode.OPERATION_NOT_ATTEMPTED),
                    )
                    for index in topic.partitions
                ),
            )
            for topic in topics
        )
    )
