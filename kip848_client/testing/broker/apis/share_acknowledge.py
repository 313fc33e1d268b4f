"""ShareAcknowledge (79): a member of a share group says what became of the records that it has.

Partition by partition all of it counts, or nothing. With session epoch -1 the session ends after that.

Source:
    apache/kafka ``KafkaApis.handleShareAcknowledgeRequest``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.testing.broker.apis._share import acknowledge, by_topic, endpoints, leader_of, said_in, why_invalid
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.share_partitions.share_sessions import FINAL_EPOCH
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

API_KEY: Final = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS: Final = (1, 2)

requires: Final = read_group


def handle(broker: BrokerState, request: ShareAcknowledgeRequest, context: RequestContext) -> Slices:
    """Do what the member says, and end its session if this is its last request."""
    group_id, member_id = request.group_id, request.member_id
    reason = why_invalid(group_id, member_id)
    if reason is not None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    assert group_id is not None
    assert member_id is not None
    sessions = broker.share_sessions[context.node_id]
    try:
        sessions.acknowledge(group_id, member_id, epoch=request.share_session_epoch)
    except BrokerError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    verdicts = yield from acknowledge(
        broker,
        context,
        group_id=group_id,
        member_id=member_id,
        said=said_in(request),
        is_renew_ack=request.is_renew_ack,
    )
    if request.share_session_epoch == FINAL_EPOCH and (ended := sessions.end(group_id, member_id)) is not None:
        broker.shares.session_ended(ended, node_id=context.node_id)
    leaders = {of: leader for of, each in verdicts.items() if (leader := leader_of(broker, of, each.code)) is not None}
    partitions = [
        (
            of,
            PartitionData(
                partition_index=of.partition,
                error_code=code,
                error_message=reason,
                current_leader=LeaderIdAndEpoch(*leaders[of]) if of in leaders else LeaderIdAndEpoch(),
            ),
        )
        for of, (code, reason) in verdicts.items()
    ]
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.shares.settings_of(group_id).record_lock_duration_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=found)
            for topic_id, found in by_topic(partitions)
        ),
        node_endpoints=endpoints(broker, context, leaders.values(), NodeEndpoint),
    )
