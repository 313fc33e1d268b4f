"""Building blocks for the ``requires`` of an API file: ACL checks, and the refusals.

Source:
    apache/kafka ``KafkaApis``, ``ControllerApis``, ``AclApis``, ``AuthHelper``, ``ConfigHelper``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis._configs import ConfigResourceType
from kip848_client.testing.broker.apis._partitions import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.faults import replies
from kip848_client.wire.messages import describe_topic_partitions, message_pair, metadata
from kip848_client.wire.schema import Request, Response

TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TEXTS: Final[Mapping[int, str]] = {
    TOPIC_FAILED: "Topic authorization failed.",
    GROUP_FAILED: "Group authorization failed.",
    CLUSTER_FAILED: "Cluster authorization failed.",
    TRANSACTIONAL_ID_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's texts for the codes: they do not tell a client which permission it lacks."""


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


Outcome = Response | Narrowed[Any] | None


def nothing(_permit: Permit, _request: object) -> None:
    """Needs nothing."""


def split(
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


def deny(permit: Permit, request: Request[Any], code: int, *, each: bool = False) -> Response:
    """The answer that refuses all of *request*, as a whole or *each* of its entries, in Kafka's words."""
    answer: Response = replies.refused(
        request,
        api_version=permit.context.api_version,
        code=code,
        message=TEXTS[code],
        wanted=(lambda _: True) if each else None,
    )
    return answer


def narrow(
    permit: Permit,
    request: Request[Any],
    code_of: Callable[[Any], int],
    *,
    asked: str | None = None,
    named: Callable[[Any], dict[str, Any]] = lambda _entry: {},
) -> Outcome:
    """Leave the entries of the request whose code is 0, and refuse the others.

    Args:
        asked: the array of the entries; the outermost one that `MessageSpec.answered_by` declares if it is not given.
        named: fields of the refusal of an entry that are not those of the entry.
    """

    asked = asked or next(iter(request.WIRE.answered_by))
    answered = request.WIRE.answered_by[asked]

    def refuse(entry: Any) -> Any:
        alone = replace(request, **{asked: (entry,)})
        (answer,) = getattr(deny(permit, alone, code_of(entry), each=True), answered)
        return replace(answer, **named(entry))

    allowed, refusals = split(getattr(request, asked), lambda entry: not code_of(entry), refuse)
    if not refusals:
        return None

    def complete(response: Any) -> Any:
        return replace(response, **{answered: (*getattr(response, answered), *refusals)})

    if not allowed:
        return complete(message_pair(request.WIRE.api_key).response())  # type: ignore[no-any-return]
    return Narrowed(replace(request, **{asked: allowed}), complete)


def name_of(permit: Permit, entry: Any) -> str | None:
    """The name of a topic that is named or meant by its id; None for an id that does not exist."""
    topic_id: uuid.UUID = getattr(entry, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return permit.topic_name(topic_id)
    name: str | None = entry.topic if hasattr(entry, "topic") else entry.name
    return name


def may_on_topic(permit: Permit, operation: Operation) -> Callable[[Any], bool]:
    """Whether the topic of an entry may be used so. The handler deals with topics that do not exist."""

    def is_allowed(entry: Any) -> bool:
        name = name_of(permit, entry)
        return name is None or permit.may(operation, ResourceType.TOPIC, name)

    return is_allowed


def each_topic(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about topics, each of which is refused by itself."""

    def check(permit: Permit, request: Any) -> Outcome:
        may = may_on_topic(permit, operation)
        return narrow(permit, request, lambda entry: 0 if may(entry) else TOPIC_FAILED)

    return check


read_topics: Final = each_topic(Operation.READ)
describe_topics: Final = each_topic(Operation.DESCRIBE)


def may_see_topic(permit: Permit, name: str) -> bool:
    """Whether the sender may know that there is such a topic."""
    return permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def operations(permit: Permit, resource_type: ResourceType, name: str, shown: int, *, among: int) -> int:
    """The bit field of allowed operations, where the handler showed all of them."""
    return shown if shown == OPERATIONS_NOT_ASKED else permit.operations(resource_type, name, among=among)


def with_cluster_operations(permit: Permit, response: Any) -> Any:
    """The answer with the operations on the cluster that the sender may do, if it asked for them."""
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


_TopicT = TypeVar(
    "_TopicT", metadata.MetadataResponseTopic, describe_topic_partitions.DescribeTopicPartitionsResponseTopic
)


def shown_topics(permit: Permit, topics: Iterable[_TopicT], *, all_topics: bool) -> list[_TopicT]:
    """Described topics with the operations that the client may do; if it asks for all, only topics that it may see."""
    return [
        replace(
            topic,
            topic_authorized_operations=operations(
                permit, ResourceType.TOPIC, topic.name or "", topic.topic_authorized_operations, among=TOPIC_OPERATIONS
            ),
        )
        for topic in topics
        if not all_topics or may_see_topic(permit, topic.name or "")
    ]


def _config_code(permit: Permit, operation: Operation, resource: Any) -> int:
    """The error for a resource whose configuration the sender may not use so; 0 if it may."""
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            allowed = permit.may(operation, ResourceType.TOPIC, resource.resource_name)
            return 0 if allowed else TOPIC_FAILED
        case ConfigResourceType.GROUP:
            allowed = permit.may(operation, ResourceType.GROUP, resource.resource_name)
            return 0 if allowed else GROUP_FAILED
        case _:
            return 0 if permit.may_on_cluster(operation) else CLUSTER_FAILED


def each_config(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about resources, each of which is refused by itself."""

    def check(permit: Permit, request: Any) -> Outcome:
        return narrow(permit, request, lambda resource: _config_code(permit, operation, resource))

    return check


alter_configs: Final = each_config(Operation.ALTER_CONFIGS)


def whole_group(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about one group, and refused as a whole."""

    def check(permit: Permit, request: Any) -> Outcome:
        if permit.may(operation, ResourceType.GROUP, request.group_id):
            return None
        return refusal(request, code=GROUP_FAILED, api_version=permit.context.api_version, reason=TEXTS[GROUP_FAILED])

    return check


read_group: Final = whole_group(Operation.READ)


def read_group_and_topics(permit: Permit, request: Any) -> Outcome:
    """READ on the group, without which all is refused, and on each topic."""
    refused_group = read_group(permit, request)
    return read_topics(permit, request) if refused_group is None else refused_group


def read_group_and_see_subscription(permit: Permit, request: Any) -> Outcome:
    """READ on the group, DESCRIBE on each topic that a heartbeat subscribes to."""
    refused = read_group(permit, request)
    if refused is not None:
        return refused
    names = request.subscribed_topic_names or ()
    if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        permit.remember_member(request.group_id)
        return None
    return refusal(request, code=TOPIC_FAILED, api_version=permit.context.api_version)


def describe_groups_and_topics(
    permit: Permit, request: Any, refused_group: Callable[..., Any], assignments_of: Callable[[Any], Iterable[Any]]
) -> Narrowed[Any]:
    """DESCRIBE on each group, and on all topics in its members' assignments."""
    kept, refused = split(
        request.group_ids,
        lambda group_id: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id),
        lambda group_id: refused_group(group_id=group_id, error_code=GROUP_FAILED),
    )

    def judge(group: Any) -> Any:
        names = {
            topic.topic_name
            for member in group.members
            for assignment in assignments_of(member)
            for topic in assignment.topic_partitions
        }
        if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            return with_group_operations(permit, group)
        return replace(
            group,
            members=(),
            error_code=TOPIC_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )

    def complete(response: Any) -> Any:
        return replace(response, groups=(*map(judge, response.groups), *refused))

    return Narrowed(replace(request, group_ids=kept), complete)


def visible(permit: Permit, topics: Iterable[Any]) -> tuple[Any, ...]:
    """The topics of an answer that the sender may know of."""
    return tuple(topic for topic in topics if may_see_topic(permit, name_of(permit, topic) or ""))


def with_group_operations(permit: Permit, group: Any) -> Any:
    """A described group with the operations that the sender may do, if it asked for them."""
    return replace(
        group,
        authorized_operations=operations(
            permit, ResourceType.GROUP, group.group_id, group.authorized_operations, among=_GROUP_OPERATIONS
        ),
    )


def may_write_transaction(permit: Permit, transactional_id: str) -> bool:
    """Whether the sender may use the transactional id."""
    return permit.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def whole_cluster(operation: Operation) -> Callable[[Permit, Any], Outcome]:
    """The request is about the cluster, and refused as a whole."""
    return lambda permit, request: None if permit.may_on_cluster(operation) else deny(permit, request, CLUSTER_FAILED)
