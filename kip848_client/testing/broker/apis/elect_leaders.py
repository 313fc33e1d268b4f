"""ElectLeaders (43): let the preferred replica, or any living one, lead a partition again.

A cluster has one copy of each log, so no election is unclean: type 1 elects the first living replica of a partition
without a leader, and loses nothing. Partitions of internal topics follow the nodes by themselves and are refused.

Source:
    apache/kafka ``ReplicationControlManager.electLeaders``; KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.metadata.placement import NO_LEADER
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)

API_KEY: Final = ApiKey.ELECT_LEADERS
VERSIONS: Final = (0, 2)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1

requires: Final = whole_cluster(Operation.ALTER)


def handle(broker: BrokerState, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect, partition by partition; of all topics only those partitions are answered that needed an election."""
    del context
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        text = f"Unknown election type {request.election_type}"
        named = request.topic_partitions or ()
        return ElectLeadersResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            replica_election_results=tuple(
                ReplicaElectionResult(
                    topic=asked.topic,
                    partition_result=tuple(_result(each, ErrorCode.INVALID_REQUEST, text) for each in asked.partitions),
                )
                for asked in named
            ),
        )
    wants_all = request.topic_partitions is None
    asked = _all(broker) if request.topic_partitions is None else request.topic_partitions
    results = [
        ReplicaElectionResult(
            topic=each.topic,
            partition_result=tuple(
                result
                for result in _elect_each(broker, each, election_type=request.election_type)
                if not (wants_all and result.error_code == ErrorCode.ELECTION_NOT_NEEDED)
            ),
        )
        for each in asked
    ]
    return ElectLeadersResponse(replica_election_results=tuple(results))


def _all(broker: BrokerState) -> Iterable[ElectLeadersRequestTopic]:
    return [
        ElectLeadersRequestTopic(topic=topic.name, partitions=tuple(range(topic.partition_count)))
        for topic in broker.topics
    ]


def _elect_each(
    broker: BrokerState, asked: ElectLeadersRequestTopic, *, election_type: int
) -> Iterable[PartitionElectionResult]:
    topic = broker.topics.get(asked.topic)
    for partition in asked.partitions:
        if topic is None:
            yield _result(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {asked.topic}")
        elif not 0 <= partition < topic.partition_count:
            text = f"No such partition as {asked.topic}-{partition}"
            yield _result(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        else:
            yield _elect(broker, topic, partition, election_type=election_type)


def _elect(broker: BrokerState, topic: Topic, partition: int, *, election_type: int) -> PartitionElectionResult:
    placed, living = broker.placement.get(topic.topic_id, partition), broker.placement.living
    wanted = placed.replicas[:1] if election_type == _PREFERRED else placed.replicas
    if placed.leader == wanted[0] or (election_type == _UNCLEAN and placed.leader != NO_LEADER):
        text = "Leader election not needed for topic partition."
        return _result(partition, ErrorCode.ELECTION_NOT_NEEDED, text)
    elected = next((node for node in wanted if node in living), None)
    if elected is None:
        code = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election_type == _PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return _result(partition, code, f"no replica that could lead {topic.name}-{partition} is running: {wanted}")
    change = broker.placement.move(topic.topic_id, partition, elected)
    if change is not None:
        broker.topics.leaders_changed([change])
    return _result(partition, ErrorCode.NONE, None)


def _result(partition: int, code: ErrorCode, text: str | None) -> PartitionElectionResult:
    return PartitionElectionResult(partition_id=partition, error_code=code, error_message=text)
