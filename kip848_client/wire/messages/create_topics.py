"""CreateTopics (19): new topics.

4: partition and replica counts of -1 mean the broker's defaults. 5: flexible, configuration in the answer.
7: topic ids in the answer.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "CreatableReplicaAssignment",
    "CreatableTopicConfig",
    "CreatableTopic",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
]


@value
class CreatableReplicaAssignment:
    """The brokers of one partition, if the caller chooses them."""

    partition_index: int = wire(INT32, "2+")
    broker_ids: tuple[int, ...] = wire(array(INT32), "2+")


@value
class CreatableTopicConfig:
    """One configuration key of the new topic."""

    name: str = wire(STRING, "2+")
    value: str | None = wire(STRING, "2+", nullable="2+")


@value
class CreatableTopic:
    """A topic to create. Counts are -1 if replicas are assigned by hand or the defaults shall hold."""

    name: str = wire(STRING, "2+")
    num_partitions: int = wire(INT32, "2+")
    replication_factor: int = wire(INT16, "2+")
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(array(CreatableReplicaAssignment), "2+")
    configs: tuple[CreatableTopicConfig, ...] = wire(array(CreatableTopicConfig), "2+")


@value
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """The topics to create, or only to check."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CREATE_TOPICS, "2-7", flexible="5+")

    topics: tuple[CreatableTopic, ...] = wire(array(CreatableTopic), "2+")
    timeout_ms: int = wire(INT32, "2+", default=60000)
    validate_only: bool = wire(BOOL, "2+")


@value
class CreatableTopicConfigs:
    """One configuration key as it came out."""

    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "5+")


@value
class CreatableTopicResult:
    """Whether the topic was created, and as what."""

    name: str = wire(STRING, "2+")
    topic_id: uuid.UUID = wire(UUID, "7+", ignorable=True)
    error_code: int = wire(INT16, "2+")
    error_message: str | None = wire(STRING, "2+", nullable="2+")
    topic_config_error_code: int = wire(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@value
class CreateTopicsResponse(Response):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_TOPICS, "2-7", flexible="5+")

    throttle_time_ms: int = wire(INT32, "2+")
    topics: tuple[CreatableTopicResult, ...] = wire(array(CreatableTopicResult), "2+")
