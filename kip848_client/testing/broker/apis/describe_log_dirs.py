"""DescribeLogDirs (35): the one folder of a node, and how many bytes each of its partitions takes up.

A broker without a data folder names its memory as the folder. Bytes are those of the batches that are kept; the files
hold a few more.

Source:
    apache/kafka ``KafkaApis.handleDescribeLogDirsRequest``, ``ReplicaManager.describeLogDirs``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final

from kip848_client.testing.broker.apis._partitions import is_replica
from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, Outcome
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API_KEY: Final = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS: Final = (1, 5)

_MEMORY: Final = "memory:"
_UNKNOWN_BYTES: Final = -1


def handle(broker: BrokerState, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Describe the partitions that are asked for, or all; unknown ones are left out, as in Kafka."""
    total, usable = _volume(broker)
    topics = []
    for name, wanted in _wanted(broker, request).items():
        topic = broker.topics.get(name)
        partitions = tuple(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes)
            for index, log in enumerate(() if topic is None else topic.partitions)
            if (wanted is None or index in wanted)
            and (topic is None or is_replica(broker, topic, index, node_id=context.node_id))
        )
        if partitions:
            topics.append(DescribeLogDirsTopic(name=name, partitions=partitions))
    folder = DescribeLogDirsResult(
        log_dir=log_dir(broker),
        topics=tuple(topics),
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(results=(folder,))


def log_dir(broker: BrokerState) -> str:
    """The one folder of every node."""
    return _MEMORY if broker.data_dir is None else str(broker.data_dir.resolve())


def _wanted(broker: BrokerState, request: DescribeLogDirsRequest) -> Mapping[str, set[int] | None]:
    """Topic -> its partitions, or None for all of them."""
    if request.topics is None:
        return dict.fromkeys(broker.topics.names())
    wanted: dict[str, set[int] | None] = {}
    for asked in request.topics:
        found = wanted.setdefault(asked.topic, set())
        assert found is not None
        found.update(asked.partitions)
    return wanted


def _volume(broker: BrokerState) -> tuple[int, int]:
    """Bytes of the volume, and free bytes; -1 if not known."""
    if broker.data_dir is None:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    try:
        usage = shutil.disk_usage(broker.data_dir)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


def requires(permit: Permit, _request: object) -> Outcome:
    """DESCRIBE on the cluster."""
    if permit.may_on_cluster(Operation.DESCRIBE):
        return None
    return DescribeLogDirsResponse(error_code=CLUSTER_FAILED)
