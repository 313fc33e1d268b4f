"""CreatePartitions (37): grow topics; the topic registry notifies the coordinator, for groups that subscribe to them.

Source:
    apache/kafka ``ReplicationControlManager.createPartitions``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._budget import Budget
from kip848_client.testing.broker.apis._permissions import each_topic
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.quotas.throttling import MutationQuota
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API_KEY: Final = ApiKey.CREATE_PARTITIONS
VERSIONS: Final = (0, 3)

_FIRST_STRICT_VERSION: Final = 3

requires: Final = each_topic(Operation.ALTER)


def handle(broker: BrokerState, request: CreatePartitionsRequest, context: RequestContext) -> Slices:
    """Grow what can be grown; what cannot carries its own error."""
    quota = broker.throttling.mutations(context, strict_from=_FIRST_STRICT_VERSION)
    times_named = Counter(topic.name for topic in request.topics)
    budget = Budget()
    results = []
    for topic in request.topics:
        if times_named[topic.name] == 1:
            results.append(_grow(broker, topic, budget, quota, validate_only=request.validate_only))
            yield
    results += [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in times_named.items()
        if count > 1
    ]
    return CreatePartitionsResponse(results=tuple(results))


def _grow(
    broker: BrokerState, asked: CreatePartitionsTopic, budget: Budget, quota: MutationQuota, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        topic = broker.topics.check_add_partitions(asked.name, asked.count)
        budget.take(partitions=asked.count - topic.partition_count)
        assignments = None
        if asked.assignments is not None:
            added = asked.count - topic.partition_count
            if len(asked.assignments) != added:
                raise BrokerError(
                    f"Attempted to add {added} additional partition(s), but only {len(asked.assignments)} "
                    "assignment(s) were specified.",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )
            assignments = [assignment.broker_ids for assignment in asked.assignments]
            broker.placement.check_added(topic.topic_id, assignments)
        quota.take(asked.count - topic.partition_count)
        if not validate_only:
            broker.topics.add_partitions(asked.name, asked.count, assignments=assignments)
    except BrokerError as error:
        return CreatePartitionsTopicResult(name=asked.name, error_code=error.code, error_message=str(error))
    except DataDirError as error:
        return CreatePartitionsTopicResult(name=asked.name, error_code=STORAGE_FAILED, error_message=str(error))
    return CreatePartitionsTopicResult(name=asked.name)
