"""CreateTopics (19): new topics.

4: partition and replica counts of -1 mean the broker's defaults. 5: flexible, configuration in the answer.
7: topic ids in the answer.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class CreatableReplicaAssignment(WireStruct, frozen=True):
    """The brokers of one partition, if the caller chooses them."""

    partition_index: Annotated[Int32, wire("2+")] = 0
    broker_ids: Annotated[tuple[Int32, ...], wire("2+")] = ()


class CreatableTopicConfig(WireStruct, frozen=True):
    """One configuration key of the new topic."""

    name: Annotated[str, wire("2+")] = ""
    value: Annotated[str | None, wire("2+", nullable="2+")] = ""


class CreatableTopic(WireStruct, frozen=True):
    """A topic to create. Counts are -1 if replicas are assigned by hand or the defaults should hold."""

    name: Annotated[str, wire("2+")] = ""
    num_partitions: Annotated[Int32, wire("2+")] = 0
    replication_factor: Annotated[Int16, wire("2+")] = 0
    assignments: Annotated[tuple[CreatableReplicaAssignment, ...], wire("2+")] = ()
    configs: Annotated[tuple[CreatableTopicConfig, ...], wire("2+")] = ()


class CreateTopicsRequest(Request["CreateTopicsResponse"], frozen=True):
    """The topics to create, or only to check."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.CREATE_TOPICS,
        "2-7",
        flexible="5+",
        answered_by={"topics": "topics"},
    )

    topics: Annotated[tuple[CreatableTopic, ...], wire("2+")] = ()
    timeout_ms: Annotated[Int32, wire("2+")] = 60000
    validate_only: Annotated[bool, wire("2+")] = False


class CreatableTopicConfigs(WireStruct, frozen=True):
    """One configuration key as it came out."""

    name: Annotated[str, wire("5+")] = ""
    value: Annotated[str | None, wire("5+", nullable="5+")] = ""
    read_only: Annotated[bool, wire("5+")] = False
    config_source: Annotated[Int8, wire("5+", ignorable=True)] = -1
    is_sensitive: Annotated[bool, wire("5+")] = False


class CreatableTopicResult(WireStruct, frozen=True):
    """Whether the topic was created, and as what."""

    name: Annotated[str, wire("2+")] = ""
    topic_id: Annotated[uuid.UUID, wire("7+", ignorable=True)] = ZERO_UUID
    error_code: Annotated[Int16, wire("2+")] = 0
    error_message: Annotated[str | None, wire("2+", nullable="2+")] = ""
    topic_config_error_code: Annotated[Int16, wire("5+", tag=0, ignorable=True)] = 0
    num_partitions: Annotated[Int32, wire("5+", ignorable=True)] = -1
    replication_factor: Annotated[Int16, wire("5+", ignorable=True)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, wire("5+", nullable="5+", ignorable=True)] = ()


class CreateTopicsResponse(Response, frozen=True):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_TOPICS, "2-7", flexible="5+")

    throttle_time_ms: Annotated[Int32, wire("2+")] = 0
    topics: Annotated[tuple[CreatableTopicResult, ...], wire("2+")] = ()
