"""The permissions that each API needs, and its refusals: one table, API key -> check. Decides nothing itself.

Source:
    apache/kafka ``KafkaApis``, ``ControllerApis``, ``AclApis``, ``AuthHelper``, ``ConfigHelper``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.broker.access import Check, Narrowed, Permit
from kip848_client.broker.acls import Operation, ResourceType
from kip848_client.broker.apis._configs import ResourceType as ConfigResourceType
from kip848_client.broker.apis._partitions import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from kip848_client.broker.group_errors import FIRST_BATCHED_OFFSET_FETCH, refusal
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.faults import replies
from kip848_client.model import ZERO_UUID
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import (
    add_partitions_to_txn,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_topics,
    delete_topics,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    describe_transactions,
    find_coordinator,
    message_pair,
    metadata,
    offset_fetch,
    produce,
)
from kip848_client.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.schema import Request, Response

__all__ = ["CHECKS"]

_TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TEXTS: Final[Mapping[int, str]] = {
    _TOPIC_FAILED: "Topic authorization failed.",
    _GROUP_FAILED: "Group authorization failed.",
    _CLUSTER_FAILED: "Cluster authorization failed.",
    _ID_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's texts for the codes: they do not tell a client which permission it lacks."""
_NO_OFFSET: Final = -1
_GROUP_OPERATIONS: Final = sum(
    1 << operation
    for operation in (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
_FIRST_METADATA_BY_ID: Final = 12
_FIRST_BATCHED_FIND_COORDINATOR: Final = 4
_FIRST_BATCHED_ADD_PARTITIONS: Final = 4
_FIRST_DELETE_TOPICS_BY_ID: Final = 6
_KEY_OF_TRANSACTION: Final = 1
_ATTRIBUTES: Final = 22
_TRANSACTIONAL: Final = 0x10

Outcome = Response | Narrowed[Any] | None


# --- parts that several APIs share


def _free(_permit: Permit, _request: object) -> None:
    """Needs nothing."""


def _split(
    entries: Iterable[Any], is_allowed: Callable[[Any], bool], refuse: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The entries of a request that are allowed, and the refusals of the others."""
    allowed, refused = [], []
    for entry in entries:
        if is_allowed(entry):
            allowed.append(entry)
        else:
            refused.append(refuse(entry))
    return tuple(allowed), tuple(refused)


def _refused(permit: Permit, request: Request[Any], code: int, *, each: bool = False) -> Response:
    """The answer that refuses all of *request*, as a whole or *each* of its entries, in Kafka's words."""
    answer: Response = replies.refused(
        request,
        api_version=permit.context.api_version,
        code=code,
        message=_TEXTS[code],
        wanted=(lambda _: True) if each else None,
    )
    return answer


def _narrow(
    permit: Permit,
    request: Request[Any],
    code_of: Callable[[Any], int],
    *,
    asked: str = "topics",
    answered: str = "topics",
    named: Callable[[Any], dict[str, Any]] = lambda _entry: {},
) -> Outcome:
    """Leave the entries of the field *asked* whose code is 0; refuse the others in the field *answered*.

    Args:
        named: fields of the refusal of an entry that are not those of the entry.
    """

    def refuse(entry: Any) -> Any:
        alone = replace(request, **{asked: (entry,)})
        (answer,) = getattr(_refused(permit, alone, code_of(entry), each=True), answered)
        return replace(answer, **named(entry))

    allowed, refusals = _split(getattr(request, asked), lambda entry: not code_of(entry), refuse)
    if not refusals:
        return None

    def complete(response: Any) -> Any:
        return replace(response, **{answered: (*getattr(response, answered), *refusals)})

    if not allowed:
        return complete(message_pair(request.WIRE.api_key).response())  # type: ignore[no-any-return]
    return Narrowed(replace(request, **{asked: allowed}), complete)


def _name_of(permit: Permit, entry: Any) -> str | None:
    """The name of a topic that is named or meant by its id; None for an id that does not exist."""
    topic_id: uuid.UUID = getattr(entry, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return permit.topic_name(topic_id)
    name: str | None = entry.topic if hasattr(entry, "topic") else entry.name
    return name


def _may_on_topic(permit: Permit, operation: Operation) -> Callable[[Any], bool]:
    """Whether the topic of an entry may be used so. The handler deals with topics that do not exist."""

    def is_allowed(entry: Any) -> bool:
        name = _name_of(permit, entry)
        return name is None or permit.may(operation, ResourceType.TOPIC, name)

    return is_allowed


def _topics(
    operation: Operation, *, asked: str = "topics", answered: str = "topics"
) -> Callable[[Permit, Any], Outcome]:
    """The request is about topics, each of which is refused by itself."""

    def check(permit: Permit, request: Any) -> Outcome:
        may = _may_on_topic(permit, operation)
        return _narrow(
            permit, request, lambda entry: 0 if may(entry) else _TOPIC_FAILED, asked=asked, answered=answered
        )

    return check


_read_topics = _topics(Operation.READ)
_describe_topics = _topics(Operation.DESCRIBE)


def _may_see_topic(permit: Permit, name: str) -> bool:
    return permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def _operations(permit: Permit, resource_type: ResourceType, name: str, shown: int, *, among: int) -> int:
    """The bit field of allowed operations, where the handler showed all of them."""
    return shown if shown == OPERATIONS_NOT_ASKED else permit.operations(resource_type, name, among=among)


def _cluster_operations(permit: Permit, response: Any) -> Any:
    if response.cluster_authorized_operations == OPERATIONS_NOT_ASKED:
        return response
    allowed = 0
    if permit.may_on_cluster(Operation.DESCRIBE, quiet=True):
        allowed = sum(
            1 << each
            for each in Operation
            if CLUSTER_OPERATIONS >> each & 1 and permit.may_on_cluster(each, quiet=True)
        )
    return replace(response, cluster_authorized_operations=allowed)


# --- records and topics


_write_topics = _topics(Operation.WRITE, asked="topic_data", answered="responses")


def _produce(permit: Permit, request: produce.ProduceRequest) -> Outcome:
    name = request.transactional_id
    if name is not None and _is_transactional(request) and not _may_write_transaction(permit, name):
        outcome: Outcome = _refused(permit, request, _ID_FAILED)
    else:
        outcome = _write_topics(permit, request)
    if outcome is not None and request.acks == 0:
        raise ProtocolError("a produce request with acks=0 was refused: its sender may not write there")
    return outcome


def _is_transactional(request: produce.ProduceRequest) -> bool:
    return any(
        item.records is not None
        and len(item.records) > _ATTRIBUTES
        and bytes(item.records[_ATTRIBUTES : _ATTRIBUTES + 1])[0] & _TRANSACTIONAL
        for topic in request.topic_data
        for item in topic.partition_data
    )


def _offset_for_leader_epoch(permit: Permit, request: Any) -> Outcome:
    if permit.may_on_cluster(Operation.CLUSTER_ACTION, quiet=True):
        return None  # a follower's question
    return _describe_topics(permit, request)


_TopicT = TypeVar(
    "_TopicT", metadata.MetadataResponseTopic, describe_topic_partitions.DescribeTopicPartitionsResponseTopic
)


def _shown(permit: Permit, topics: Iterable[_TopicT], *, all_topics: bool) -> list[_TopicT]:
    """Described topics with the operations that the client may do; of all topics, those that it may see."""
    return [
        replace(
            topic,
            topic_authorized_operations=_operations(
                permit, ResourceType.TOPIC, topic.name or "", topic.topic_authorized_operations, among=TOPIC_OPERATIONS
            ),
        )
        for topic in topics
        if not all_topics or _may_see_topic(permit, topic.name or "")
    ]


def _metadata(permit: Permit, request: metadata.MetadataRequest) -> Narrowed[metadata.MetadataResponse]:
    by_id = permit.context.api_version >= _FIRST_METADATA_BY_ID
    wants_all = request.topics is None or (permit.context.api_version == 0 and not request.topics)
    kept, refused = _split(
        request.topics or (),
        _may_on_topic(permit, Operation.DESCRIBE),
        lambda topic: metadata.MetadataResponseTopic(
            error_code=_TOPIC_FAILED,
            name=None if by_id and topic.topic_id != ZERO_UUID else topic.name,
            topic_id=topic.topic_id,
        ),
    )

    def complete(response: metadata.MetadataResponse) -> metadata.MetadataResponse:
        topics = response.topics if wants_all or kept else ()  # version 0 takes an empty list for all topics
        shown = _shown(permit, topics, all_topics=wants_all)
        completed: metadata.MetadataResponse = _cluster_operations(permit, replace(response, topics=(*shown, *refused)))
        return completed

    if wants_all:
        return Narrowed(request, complete)
    if request.allow_auto_topic_creation and permit.creates_topics:
        may_create_all = permit.may_on_cluster(Operation.CREATE, quiet=True)
        kept, more = _split(
            kept,
            lambda topic: (
                topic.topic_id != ZERO_UUID
                or permit.exists(topic.name or "")
                or may_create_all
                or permit.may(Operation.CREATE, ResourceType.TOPIC, topic.name or "")
            ),
            lambda topic: metadata.MetadataResponseTopic(error_code=_TOPIC_FAILED, name=topic.name),
        )
        refused += more
    return Narrowed(replace(request, topics=kept), complete)


def _describe_topic_partitions(
    permit: Permit, request: describe_topic_partitions.DescribeTopicPartitionsRequest
) -> Narrowed[Any]:
    wants_all = not request.topics
    kept, refused = _split(
        request.topics,
        _may_on_topic(permit, Operation.DESCRIBE),
        lambda topic: describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
            name=topic.name, error_code=_TOPIC_FAILED
        ),
    )

    def complete(
        response: describe_topic_partitions.DescribeTopicPartitionsResponse,
    ) -> describe_topic_partitions.DescribeTopicPartitionsResponse:
        if not (wants_all or kept):
            return describe_topic_partitions.DescribeTopicPartitionsResponse(topics=refused)
        shown = _shown(permit, response.topics, all_topics=wants_all)
        return replace(response, topics=(*shown, *refused))

    return Narrowed(replace(request, topics=kept), complete)


def _create_topics(permit: Permit, request: create_topics.CreateTopicsRequest) -> Narrowed[Any]:
    may_create_all = permit.may_on_cluster(Operation.CREATE, quiet=True)
    kept, refused = _split(
        request.topics,
        lambda topic: may_create_all or permit.may(Operation.CREATE, ResourceType.TOPIC, topic.name),
        lambda topic: create_topics.CreatableTopicResult(
            name=topic.name, error_code=_TOPIC_FAILED, error_message=_TEXTS[_TOPIC_FAILED]
        ),
    )

    def complete(response: create_topics.CreateTopicsResponse) -> create_topics.CreateTopicsResponse:
        return replace(response, topics=(*map(hide_configs, response.topics), *refused))

    def hide_configs(topic: create_topics.CreatableTopicResult) -> create_topics.CreatableTopicResult:
        if topic.error_code or permit.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True):
            return topic
        return replace(
            topic, topic_config_error_code=_TOPIC_FAILED, num_partitions=-1, replication_factor=-1, configs=()
        )

    return Narrowed(replace(request, topics=kept), complete)


def _delete_topics(permit: Permit, request: delete_topics.DeleteTopicsRequest) -> Outcome:
    if permit.may_on_cluster(Operation.DELETE, quiet=True):
        return None
    if permit.context.api_version < _FIRST_DELETE_TOPICS_BY_ID:
        return _narrow(
            permit,
            request,
            lambda name: 0 if permit.may(Operation.DELETE, ResourceType.TOPIC, name) else _TOPIC_FAILED,
            asked="topic_names",
            answered="responses",
        )
    may = _may_on_topic(permit, Operation.DELETE)

    def named(topic: delete_topics.DeleteTopicState) -> dict[str, Any]:
        name = _name_of(permit, topic) or ""
        return {"name": name if topic.topic_id == ZERO_UUID or _may_see_topic(permit, name) else None}

    return _narrow(permit, request, lambda topic: 0 if may(topic) else _TOPIC_FAILED, answered="responses", named=named)


# --- configurations


def _config_code(permit: Permit, operation: Operation, resource: Any) -> int:
    """The error for a resource whose configuration the sender may not use so; 0 if it may."""
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            allowed = permit.may(operation, ResourceType.TOPIC, resource.resource_name)
            return 0 if allowed else _TOPIC_FAILED
        case ConfigResourceType.GROUP:
            allowed = permit.may(operation, ResourceType.GROUP, resource.resource_name)
            return 0 if allowed else _GROUP_FAILED
        case _:
            return 0 if permit.may_on_cluster(operation) else _CLUSTER_FAILED


def _configs(operation: Operation, *, answered: str) -> Callable[[Permit, Any], Outcome]:
    """The request is about resources, each of which is refused by itself."""

    def check(permit: Permit, request: Any) -> Outcome:
        return _narrow(
            permit,
            request,
            lambda resource: _config_code(permit, operation, resource),
            asked="resources",
            answered=answered,
        )

    return check


_alter_configs = _configs(Operation.ALTER_CONFIGS, answered="responses")


# --- groups


def _group(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about one group, and refused as a whole."""

    def check(permit: Permit, request: Any) -> Outcome:
        if permit.may(operation, ResourceType.GROUP, request.group_id):
            return None
        return refusal(request, code=_GROUP_FAILED, api_version=permit.context.api_version)

    return check


_member = _group(Operation.READ)


def _consumer_group_heartbeat(permit: Permit, request: Any) -> Outcome:
    refused = _member(permit, request)
    if refused is not None:
        return refused
    names = request.subscribed_topic_names or ()
    if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        permit.remember_member(request.group_id)
        return None
    return refusal(request, code=_TOPIC_FAILED, api_version=permit.context.api_version)


def _offset_commit(permit: Permit, request: Any) -> Outcome:
    refused_group = _member(permit, request)
    return _read_topics(permit, request) if refused_group is None else refused_group


def _offset_fetch(permit: Permit, request: offset_fetch.OffsetFetchRequest) -> Outcome:
    if permit.context.api_version >= FIRST_BATCHED_OFFSET_FETCH:
        return _offset_fetch_groups(permit, request)
    if not permit.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return refusal(request, code=_GROUP_FAILED, api_version=permit.context.api_version)
    if request.topics is None:
        return Narrowed(request, lambda response: replace(response, topics=_visible(permit, response.topics)))

    return _describe_topics(permit, request)


def _offset_fetch_groups(permit: Permit, request: offset_fetch.OffsetFetchRequest) -> Narrowed[Any]:
    def refuse(topic: offset_fetch.OffsetFetchRequestTopics) -> offset_fetch.OffsetFetchResponseTopics:
        return offset_fetch.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, error_code=_TOPIC_FAILED
                )
                for index in topic.partition_indexes
            ),
        )

    kept, refused = _split(
        request.groups,
        lambda group: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
        lambda group: offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP_FAILED),
    )
    asked: list[offset_fetch.OffsetFetchRequestGroup] = []
    refused_topics: dict[str, tuple[Any, ...]] = {}
    """Of each group; a group is missing if all its topics are asked for, where those not to be seen are left out."""
    for group in kept:
        if group.topics is None:
            asked.append(group)
        else:
            topics, not_allowed = _split(group.topics, _may_on_topic(permit, Operation.DESCRIBE), refuse)
            asked.append(replace(group, topics=topics))
            refused_topics[group.group_id] = not_allowed

    def complete(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
        groups = []
        for group in response.groups:
            if group.error_code:
                groups.append(group)
            elif (more := refused_topics.get(group.group_id)) is None:
                groups.append(replace(group, topics=_visible(permit, group.topics)))
            else:
                groups.append(replace(group, topics=(*group.topics, *more)))
        return replace(response, groups=(*groups, *refused))

    return Narrowed(replace(request, groups=tuple(asked)), complete)


def _visible(permit: Permit, topics: Iterable[Any]) -> tuple[Any, ...]:
    """The topics of an answer that the sender may know of."""
    return tuple(topic for topic in topics if _may_see_topic(permit, _name_of(permit, topic) or ""))


def _describe_groups(permit: Permit, request: describe_groups.DescribeGroupsRequest) -> Narrowed[Any]:
    kept, refused = _split(
        request.groups,
        lambda group_id: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id),
        lambda group_id: describe_groups.DescribedGroup(group_id=group_id, error_code=_GROUP_FAILED),
    )

    def complete(response: describe_groups.DescribeGroupsResponse) -> describe_groups.DescribeGroupsResponse:
        return replace(response, groups=(*(_with_operations(permit, group) for group in response.groups), *refused))

    return Narrowed(replace(request, groups=kept), complete)


def _consumer_group_describe(permit: Permit, request: Any) -> Narrowed[Any]:
    kept, refused = _split(
        request.group_ids,
        lambda group_id: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id),
        lambda group_id: consumer_group_describe.DescribedGroup(group_id=group_id, error_code=_GROUP_FAILED),
    )

    def judge(group: consumer_group_describe.DescribedGroup) -> consumer_group_describe.DescribedGroup:
        names = {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            shown: consumer_group_describe.DescribedGroup = _with_operations(permit, group)
            return shown
        return replace(
            group,
            members=(),
            error_code=_TOPIC_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )

    def complete(
        response: consumer_group_describe.ConsumerGroupDescribeResponse,
    ) -> consumer_group_describe.ConsumerGroupDescribeResponse:
        return replace(response, groups=(*map(judge, response.groups), *refused))

    return Narrowed(replace(request, group_ids=kept), complete)


def _with_operations(permit: Permit, group: Any) -> Any:
    return replace(
        group,
        authorized_operations=_operations(
            permit, ResourceType.GROUP, group.group_id, group.authorized_operations, among=_GROUP_OPERATIONS
        ),
    )


def _connect_group_describe(permit: Permit, request: Any) -> Outcome:
    if all(permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id) for group_id in request.group_ids):
        return None
    return refusal(request, code=_GROUP_FAILED, api_version=permit.context.api_version)


def _list_groups(permit: Permit, request: Any) -> Narrowed[Any] | None:
    if permit.may_on_cluster(Operation.DESCRIBE, quiet=True):
        return None

    def complete(response: Any) -> Any:
        shown = (
            group
            for group in response.groups
            if permit.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quiet=True)
        )
        return replace(response, groups=tuple(shown))

    return Narrowed(request, complete)


def _delete_groups(permit: Permit, request: Any) -> Outcome:
    return _narrow(
        permit,
        request,
        lambda group_id: 0 if permit.may(Operation.DELETE, ResourceType.GROUP, group_id) else _GROUP_FAILED,
        asked="groups_names",
        answered="results",
    )


def _offset_delete(permit: Permit, request: Any) -> Outcome:
    refused_group = _group(Operation.DELETE)(permit, request)
    return _read_topics(permit, request) if refused_group is None else refused_group


def _find_coordinator(permit: Permit, request: find_coordinator.FindCoordinatorRequest) -> Outcome:
    of_transaction = request.key_type == _KEY_OF_TRANSACTION
    resource_type = ResourceType.TRANSACTIONAL_ID if of_transaction else ResourceType.GROUP
    code = _ID_FAILED if of_transaction else _GROUP_FAILED
    if permit.context.api_version >= _FIRST_BATCHED_FIND_COORDINATOR:
        return _narrow(
            permit,
            request,
            lambda key: 0 if permit.may(Operation.DESCRIBE, resource_type, key) else code,
            asked="coordinator_keys",
            answered="coordinators",
        )
    return None if permit.may(Operation.DESCRIBE, resource_type, request.key) else _refused(permit, request, code)


# --- transactions


def _may_write_transaction(permit: Permit, transactional_id: str) -> bool:
    return permit.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _init_producer_id(permit: Permit, request: InitProducerIdRequest) -> Outcome:
    if request.transactional_id is not None:
        if _may_write_transaction(permit, request.transactional_id):
            return None
        return _refused(permit, request, _ID_FAILED)
    if permit.may_on_cluster(Operation.IDEMPOTENT_WRITE, quiet=True) or permit.may_write_somewhere():
        return None
    return _refused(permit, request, _CLUSTER_FAILED)


def _add_partitions_to_txn(permit: Permit, request: add_partitions_to_txn.AddPartitionsToTxnRequest) -> Outcome:
    if permit.context.api_version >= _FIRST_BATCHED_ADD_PARTITIONS:
        if permit.may_on_cluster(Operation.CLUSTER_ACTION):
            return None
        return _refused(permit, request, _CLUSTER_FAILED)
    topics = request.v3_and_below_topics
    if not _may_write_transaction(permit, request.v3_and_below_transactional_id):
        codes = {topic.name: int(_ID_FAILED) for topic in topics}
    else:
        codes = {
            topic.name: int(_TOPIC_FAILED)
            for topic in topics
            if not permit.may(Operation.WRITE, ResourceType.TOPIC, topic.name)
        }
    if not codes:
        return None
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get(topic.name, ErrorCode.OPERATION_NOT_ATTEMPTED),
                    )
                    for index in topic.partitions
                ),
            )
            for topic in topics
        )
    )


def _add_offsets_to_txn(permit: Permit, request: AddOffsetsToTxnRequest) -> Outcome:
    if not _may_write_transaction(permit, request.transactional_id):
        return _refused(permit, request, _ID_FAILED)
    if not permit.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(permit, request, _GROUP_FAILED)
    return None


def _end_txn(permit: Permit, request: EndTxnRequest) -> Outcome:
    return None if _may_write_transaction(permit, request.transactional_id) else _refused(permit, request, _ID_FAILED)


def _txn_offset_commit(permit: Permit, request: Any) -> Outcome:
    if not _may_write_transaction(permit, request.transactional_id):
        return _refused(permit, request, _ID_FAILED)
    return _offset_commit(permit, request)


def _write_txn_markers(permit: Permit, request: Any) -> Outcome:
    if permit.may_on_cluster(Operation.ALTER, quiet=True) or permit.may_on_cluster(Operation.CLUSTER_ACTION):
        return None
    return _refused(permit, request, _CLUSTER_FAILED)


def _describe_transactions(permit: Permit, request: describe_transactions.DescribeTransactionsRequest) -> Narrowed[Any]:
    kept, refused = _split(
        request.transactional_ids,
        lambda name: permit.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
        lambda name: describe_transactions.DescribedTransaction(transactional_id=name, error_code=_ID_FAILED),
    )

    def complete(
        response: describe_transactions.DescribeTransactionsResponse,
    ) -> describe_transactions.DescribeTransactionsResponse:
        shown = (replace(each, topics=_visible(permit, each.topics)) for each in response.transaction_states)
        return replace(response, transaction_states=(*shown, *refused))

    return Narrowed(replace(request, transactional_ids=kept), complete)


def _list_transactions(permit: Permit, request: Any) -> Narrowed[Any]:
    def complete(response: Any) -> Any:
        shown = (
            each
            for each in response.transaction_states
            if permit.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id, quiet=True)
        )
        return replace(response, transaction_states=tuple(shown))

    return Narrowed(request, complete)


# --- the cluster


def _cluster(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about the cluster, and refused as a whole."""
    return lambda permit, request: (
        None if permit.may_on_cluster(operation) else _refused(permit, request, _CLUSTER_FAILED)
    )


def _describe_log_dirs(permit: Permit, _request: object) -> Outcome:
    if permit.may_on_cluster(Operation.DESCRIBE):
        return None
    return describe_log_dirs.DescribeLogDirsResponse(error_code=_CLUSTER_FAILED)


def _alter_user_scram_credentials(
    permit: Permit, request: alter_user_scram_credentials.AlterUserScramCredentialsRequest
) -> Outcome:
    if permit.may_on_cluster(Operation.ALTER):
        return None
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=tuple(
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user=user, error_code=_CLUSTER_FAILED, error_message=_TEXTS[_CLUSTER_FAILED]
            )
            for user in dict.fromkeys(
                [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
            )
        )
    )


CHECKS: Final[Mapping[int, Check]] = {
    ApiKey.API_VERSIONS: _free,
    ApiKey.SASL_HANDSHAKE: _free,
    ApiKey.SASL_AUTHENTICATE: _free,
    ApiKey.DESCRIBE_CLUSTER: lambda permit, request: Narrowed(
        request, lambda response: _cluster_operations(permit, response)
    ),
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _topics(Operation.READ, answered="responses"),
    ApiKey.LIST_OFFSETS: _describe_topics,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.METADATA: _metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _topics(Operation.DELETE),
    ApiKey.CREATE_PARTITIONS: _topics(Operation.ALTER, answered="results"),
    ApiKey.DESCRIBE_PRODUCERS: _read_topics,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS, answered="results"),
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.JOIN_GROUP: _member,
    ApiKey.SYNC_GROUP: _member,
    ApiKey.HEARTBEAT: _member,
    ApiKey.LEAVE_GROUP: _member,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: _member,
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: _member,
    ApiKey.CONNECT_GROUP_HEARTBEAT: _member,
    ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT: _member,
    ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT: _member,
    ApiKey.CONNECT_GROUP_DESCRIBE: _connect_group_describe,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_ACLS: _cluster(Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(Operation.ALTER),
    ApiKey.DELETE_ACLS: _cluster(Operation.ALTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
}
"""API key -> what it needs. An API that is served and missing here would be refused while ACLs are on."""
