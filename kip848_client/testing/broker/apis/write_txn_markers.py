"""WriteTxnMarkers (27): write the end of a transaction into partitions, by hand.

An administrator does that to a transaction that hangs. The transaction coordinator does not know of it: its transaction
stays open.

Source:
    apache/kafka ``KafkaApis.handleWriteTxnMarkersRequest``, ``ProducerAppendInfo.checkProducerEpoch``.
"""

from __future__ import annotations

from typing import Any, Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import BrokerError
from kip848_client.testing.broker.apis._partitions import find_log, find_topic, is_replica
from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, Outcome, deny
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API_KEY: Final = ApiKey.WRITE_TXN_MARKERS
VERSIONS: Final = (1, 2)

_MOVING_TRANSACTIONS: Final = 2


def handle(broker: BrokerState, request: WriteTxnMarkersRequest, context: RequestContext) -> Slices:
    """Write marker by marker; one that is refused does not stop the others."""
    results = []
    for marker in request.markers:
        topics = []
        for asked in marker.topics:
            partitions = []
            for index in asked.partition_indexes:
                code = _write(broker, marker, asked.name, index, context.node_id)
                partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
                yield
            topics.append(WritableTxnMarkerTopicResult(name=asked.name, partitions=tuple(partitions)))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics)))
    return WriteTxnMarkersResponse(markers=tuple(results))


def _write(broker: BrokerState, marker: WritableTxnMarker, name: str, index: int, node_id: int) -> int:
    topic = find_topic(broker.topics, name=name, topic_id=ZERO_UUID, by_id=False)
    log = find_log(broker, topic, index, node_id=node_id)
    if (
        log is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and not isinstance(topic, ErrorCode)
        and not is_replica(broker, topic, index, node_id=node_id)
    ):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(log, ErrorCode):
        return log
    assert not isinstance(topic, ErrorCode)
    try:
        broker.topics.append_marker(
            topic,
            index,
            producer_id=marker.producer_id,
            epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            timestamp_ms=broker.clock.wall_ms(),
            coordinator_epoch=marker.coordinator_epoch,
            moves_epoch=marker.transaction_version >= _MOVING_TRANSACTIONS,
        )
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def requires(permit: Permit, request: Any) -> Outcome:
    """ALTER or CLUSTER_ACTION on the cluster."""
    if permit.may_on_cluster(Operation.ALTER, quiet=True) or permit.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return deny(permit, request, CLUSTER_FAILED)
