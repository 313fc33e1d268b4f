"""Metadata (3): the nodes of the cluster, and the topics that were asked for.

Null means all topics and an empty list none, but in version 0, which has no null, the empty list means all. Topics are
asked for by name, or from version 12 by id. A missing topic is created only if the client allows it and
``auto.create.topics.enable`` is on; the answer does not have it yet.

Source:
    apache/kafka ``KafkaApis.handleTopicMetadataRequest``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._partitions import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    described_topics,
    is_internal,
    partition_states,
)
from kip848_client.testing.broker.apis._permissions import (
    TOPIC_FAILED,
    may_on_topic,
    shown_topics,
    split,
    with_cluster_operations,
)
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.metadata.topic_name_rules import check_topic_name
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED, Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_KEY: Final = ApiKey.METADATA
VERSIONS: Final = (0, 13)

_FIRST_VERSION_BY_ID: Final = 12


def handle(broker: BrokerState, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the cluster and the topics; a topic that cannot be described carries its own error."""
    if context.api_version < _FIRST_VERSION_BY_ID and any(
        asked.name is None or asked.topic_id != ZERO_UUID for asked in request.topics or ()
    ):
        # Versions 10 and 11 have the field and do not serve it. Kafka's answer then says nothing of the cluster.
        refused = (
            _error(asked.name or "", asked.topic_id, ErrorCode.INVALID_REQUEST) for asked in request.topics or ()
        )
        return MetadataResponse(topics=tuple(refused))
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node.node_id, *node.endpoint(context.listener), rack=node.rack)
            for node in broker.living_nodes()
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.placement.controller,
        topics=tuple(_topics(broker, request, context.api_version)),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )


def _topics(broker: BrokerState, request: MetadataRequest, api_version: int) -> Iterable[MetadataResponseTopic]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED
    if request.topics is None or (api_version == 0 and not request.topics):
        return [_describe(broker, topic, operations) for topic in described_topics(broker)]
    # An id wins over a name, and each topic is answered once, however often it was asked for.
    unique = {asked.topic_id if asked.topic_id != ZERO_UUID else asked.name: asked for asked in request.topics}
    return [_one(broker, asked, request.allow_auto_topic_creation, operations) for asked in unique.values()]


def _one(broker: BrokerState, asked: MetadataRequestTopic, may_create: bool, operations: int) -> MetadataResponseTopic:
    offsets = broker.offsets_topic.described
    if asked.topic_id == offsets.topic_id or (asked.topic_id == ZERO_UUID and asked.name == offsets.name):
        return _describe(broker, offsets, operations)
    if asked.topic_id != ZERO_UUID:
        topic = broker.topics.get_by_id(asked.topic_id)
        if topic is None:
            return _error(None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _describe(broker, topic, operations)
    name = asked.name or ""
    topic = broker.topics.get(name)
    if topic is None:
        try:
            check_topic_name(name)
            if not (may_create and broker.config.auto_create_topics):
                return _error(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations)
            broker.topics.create(name, broker.config.default_partitions)
            return _error(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations)  # it is there from now on
        except BrokerError as error:
            return _error(name, ZERO_UUID, error.code, operations)
        except DataDirError:
            return _error(name, ZERO_UUID, STORAGE_FAILED, operations)
    return _describe(broker, topic, operations)


def _describe(broker: BrokerState, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(broker, topic),
        partitions=tuple(
            MetadataResponsePartition(
                error_code=state.error_code,
                partition_index=index,
                leader_id=state.leader_id,
                leader_epoch=log.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.in_sync,
                offline_replicas=state.offline,
            )
            for index, (log, state) in enumerate(zip(topic.partitions, partition_states(broker, topic), strict=True))
        ),
        topic_authorized_operations=operations,
    )


def _error(
    name: str | None, topic_id: uuid.UUID, error_code: int, operations: int = OPERATIONS_NOT_ASKED
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, error_code=error_code, topic_authorized_operations=operations
    )


_FIRST_METADATA_BY_ID: Final = 12


def requires(permit: Permit, request: MetadataRequest) -> Narrowed[MetadataResponse]:
    """DESCRIBE on each topic, CREATE for topics that the request creates."""
    by_id = permit.context.api_version >= _FIRST_METADATA_BY_ID
    wants_all = request.topics is None or (permit.context.api_version == 0 and not request.topics)
    kept, refused = split(
        request.topics or (),
        may_on_topic(permit, Operation.DESCRIBE),
        lambda topic: MetadataResponseTopic(
            error_code=TOPIC_FAILED,
            name=None if by_id and topic.topic_id != ZERO_UUID else topic.name,
            topic_id=topic.topic_id,
        ),
    )

    def complete(response: MetadataResponse) -> MetadataResponse:
        topics = response.topics if wants_all or kept else ()  # version 0 takes an empty list for all topics
        shown = shown_topics(permit, topics, all_topics=wants_all)
        completed: MetadataResponse = with_cluster_operations(permit, replace(response, topics=(*shown, *refused)))
        return completed

    if wants_all:
        return Narrowed(request, complete)
    if request.allow_auto_topic_creation and permit.creates_topics:
        may_create_all = permit.may_on_cluster(Operation.CREATE, quiet=True)
        kept, more = split(
            kept,
            lambda topic: (
                topic.topic_id != ZERO_UUID
                or permit.exists(topic.name or "")
                or may_create_all
                or permit.may(Operation.CREATE, ResourceType.TOPIC, topic.name or "")
            ),
            lambda topic: MetadataResponseTopic(error_code=TOPIC_FAILED, name=topic.name),
        )
        refused += more
    return Narrowed(replace(request, topics=kept), complete)
