"""CreateTopics (19): each topic by itself; ``validate_only`` checks and creates nothing.

Source:
    apache/kafka ``ReplicationControlManager.createTopics``.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any, Final

from msgspec.structs import replace

from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._budget import Budget
from kip848_client.testing.broker.apis._configs import topic_sources
from kip848_client.testing.broker.apis._permissions import TEXTS, TOPIC_FAILED, split
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.quotas.throttling import MutationQuota
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API_KEY: Final = ApiKey.CREATE_TOPICS
VERSIONS: Final = (2, 7)

_FIRST_STRICT_VERSION: Final = 6
_DEFAULT: Final = -1


def handle(broker: BrokerState, request: CreateTopicsRequest, context: RequestContext) -> Slices:
    """Create what can be created; what cannot carries its own error."""
    quota = broker.throttling.mutations(context, strict_from=_FIRST_STRICT_VERSION)
    times_named = Counter(topic.name for topic in request.topics)
    budget = Budget()
    results = []
    for topic in request.topics:
        if times_named[topic.name] == 1:
            created = _create(broker, topic, budget, quota, validate_only=request.validate_only)
            results.append(created if created.error_code else _with_configs(broker, context.node_id, topic, created))
            yield
    results += [
        _error(name, BrokerError("Duplicate topic name.", code=ErrorCode.INVALID_REQUEST))
        for name, count in times_named.items()
        if count > 1
    ]
    return CreateTopicsResponse(topics=tuple(results))


def _create(
    broker: BrokerState, asked: CreatableTopic, budget: Budget, quota: MutationQuota, *, validate_only: bool
) -> CreatableTopicResult:
    try:
        partitions = _partition_count(broker, asked)
        budget.take(partitions=partitions)
        configs: dict[str, str | None] = {config.name: config.value for config in asked.configs}
        broker.topics.check_create(asked.name, partitions, configs=configs)
        quota.take(partitions)
        # Validated only, it has an id all the same, as in Kafka; the one that it gets in the end is another.
        topic_id = (
            uuid.uuid4()
            if validate_only
            else broker.topics.create(
                asked.name,
                partitions,
                configs=_own_configs(asked),
                replication_factor=_factor(asked),
                assignments=_assignments(asked),
            ).topic_id
        )
    except BrokerError as error:
        return _error(asked.name, error)
    except DataDirError as error:
        return _error(asked.name, BrokerError(str(error), code=STORAGE_FAILED))
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=(
            len(asked.assignments[0].broker_ids) if asked.assignments else broker.placement.check_factor(_factor(asked))
        ),
    )


def _partition_count(broker: BrokerState, asked: CreatableTopic) -> int:
    if asked.assignments:
        return _assigned_partition_count(broker, asked)
    if asked.replication_factor < _DEFAULT or asked.replication_factor == 0:
        raise BrokerError(
            "Replication factor must be larger than 0, or -1 to use the default value.",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    broker.placement.check_factor(_factor(asked))
    return broker.config.default_partitions if asked.num_partitions == _DEFAULT else asked.num_partitions


def _assigned_partition_count(broker: BrokerState, asked: CreatableTopic) -> int:
    if asked.replication_factor != _DEFAULT:
        raise BrokerError(
            "A manual partition assignment was specified, but replication factor was not set to -1.",
            code=ErrorCode.INVALID_REQUEST,
        )
    if asked.num_partitions != _DEFAULT:
        raise BrokerError(
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
            code=ErrorCode.INVALID_REQUEST,
        )
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise BrokerError(
            "partitions should be a consecutive 0-based integer sequence", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    broker.placement.check_assignments(_assignments(asked))
    return len(indexes)


def _factor(asked: CreatableTopic) -> int | None:
    return None if asked.replication_factor == _DEFAULT else asked.replication_factor


def _assignments(asked: CreatableTopic) -> list[tuple[int, ...]]:
    by_index = sorted(asked.assignments, key=lambda assignment: assignment.partition_index)
    return [assignment.broker_ids for assignment in by_index]


def _own_configs(asked: CreatableTopic) -> dict[str, str]:
    return {config.name: config.value for config in asked.configs if config.value is not None}


def _with_configs(
    broker: BrokerState, node_id: int, asked: CreatableTopic, created: CreatableTopicResult
) -> CreatableTopicResult:
    sources = topic_sources(broker, node_id, _own_configs(asked))
    return replace(
        created,
        configs=tuple(
            CreatableTopicConfigs(name=name, value=each.in_force.value, config_source=each.in_force.source)
            for name, each in sources.items()
        ),
    )


def _error(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error), configs=())


def requires(permit: Permit, request: CreateTopicsRequest) -> Narrowed[Any]:
    """CREATE on the cluster or the topic; without DESCRIBE_CONFIGS the answer hides the settings."""
    may_create_all = permit.may_on_cluster(Operation.CREATE, quiet=True)
    kept, refused = split(
        request.topics,
        lambda topic: may_create_all or permit.may(Operation.CREATE, ResourceType.TOPIC, topic.name),
        lambda topic: CreatableTopicResult(name=topic.name, error_code=TOPIC_FAILED, error_message=TEXTS[TOPIC_FAILED]),
    )

    def complete(response: CreateTopicsResponse) -> CreateTopicsResponse:
        return replace(response, topics=(*map(hide_configs, response.topics), *refused))

    def hide_configs(topic: CreatableTopicResult) -> CreatableTopicResult:
        if topic.error_code or permit.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True):
            return topic
        return replace(
            topic, topic_config_error_code=TOPIC_FAILED, num_partitions=-1, replication_factor=-1, configs=()
        )

    return Narrowed(replace(request, topics=kept), complete)
