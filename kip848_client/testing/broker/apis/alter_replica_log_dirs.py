"""AlterReplicaLogDirs (34): a node has one folder, so all that it can be asked for is so already, or refused.

Source:
    apache/kafka ``ReplicaManager.alterReplicaLogDirs``; KIP-113.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._partitions import is_replica
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.apis.describe_log_dirs import log_dir
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

API_KEY: Final = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS: Final = (1, 2)

requires: Final = whole_cluster(Operation.ALTER)


def handle(
    broker: BrokerState, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Accept the folder that there is for partitions with a replica on this node."""

    def judge(path: str, name: str, partition: int) -> ErrorCode:
        topic = broker.topics.get(name)
        if path != log_dir(broker):
            return ErrorCode.LOG_DIR_NOT_FOUND
        if topic is None or not 0 <= partition < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_replica(broker, topic, partition, node_id=context.node_id):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    return _answer(request, judge)


def _answer(
    request: AlterReplicaLogDirsRequest, judge: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    """One code for each partition of each topic, in whichever folder it is named."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            found = codes.setdefault(topic.name, {})
            found.update((partition, judge(folder.path, topic.name, partition)) for partition in topic.partitions)
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition, code in found.items()
                ),
            )
            for name, found in codes.items()
        )
    )
