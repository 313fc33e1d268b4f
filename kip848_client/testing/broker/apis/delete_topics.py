"""DeleteTopics (20): by name, from version 6 also by id.

Source:
    apache/kafka ``ControllerApis.deleteTopics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._permissions import (
    TOPIC_FAILED,
    Outcome,
    may_on_topic,
    may_see_topic,
    name_of,
    narrow,
)
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.quotas.throttling import MutationQuota
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED, Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

API_KEY: Final = ApiKey.DELETE_TOPICS
VERSIONS: Final = (1, 6)

_FIRST_STRICT_VERSION: Final = 5
_FIRST_VERSION_BY_ID: Final = 6


def handle(broker: BrokerState, request: DeleteTopicsRequest, context: RequestContext) -> Slices:
    """Delete what can be deleted; what cannot carries its own error."""
    asked: Iterable[DeleteTopicState] = request.topics
    if context.api_version < _FIRST_VERSION_BY_ID:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    quota = broker.throttling.mutations(context, strict_from=_FIRST_STRICT_VERSION)
    answers = []
    times_asked = Counter((item.name, item.topic_id) for item in asked)
    ids_given = {item.topic_id for item in asked if item.name is None}
    ids_named = {named.topic_id for item in asked if (named := broker.topics.get(item.name or "")) is not None}
    for (name, topic_id), times in times_asked.items():
        item = DeleteTopicState(name=name, topic_id=topic_id)
        fault = _fault(item, times)
        if fault is not None:  # said once for each time that it makes no sense, but once for all of a duplicate
            answers += [_error(item, _invalid(fault))] * (1 if _is_one_topic(item) else times)
            continue
        if topic_id in ids_named:
            continue  # answered under its name; it is not deleted
        topic = _find(broker, item)
        if name is not None and isinstance(topic, Topic) and topic.topic_id in ids_given:
            topic = _invalid("The provided topic name maps to an ID that was already supplied.")
        answers.append(_delete(broker, item, topic, quota, api_version=context.api_version))
        yield
    return DeleteTopicsResponse(responses=tuple(answers))


def _is_one_topic(asked: DeleteTopicState) -> bool:
    return (asked.name is None) != (asked.topic_id == ZERO_UUID)


def _fault(asked: DeleteTopicState, times: int) -> str | None:
    if not _is_one_topic(asked):
        if asked.name is None:
            return "Neither topic name nor id were specified."
        return "You may not specify both topic name and topic id."
    if times > 1:
        return "Duplicate topic id." if asked.name is None else "Duplicate topic name."
    return None


def _find(broker: BrokerState, asked: DeleteTopicState) -> Topic | BrokerError:
    if asked.name is not None:
        return broker.topics.get(asked.name) or BrokerError(
            f"topic '{asked.name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return broker.topics.get_by_id(asked.topic_id) or BrokerError(
        f"no topic has the id {asked.topic_id}", code=ErrorCode.UNKNOWN_TOPIC_ID
    )


def _delete(
    broker: BrokerState, asked: DeleteTopicState, topic: Topic | BrokerError, quota: MutationQuota, *, api_version: int
) -> DeletableTopicResult:
    try:
        if isinstance(topic, BrokerError):
            raise topic
        if not broker.config.delete_topics:
            code = ErrorCode.INVALID_REQUEST if api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            raise BrokerError("delete.topic.enable is false", code=code)
        quota.take(topic.partition_count)
        broker.topics.delete(topic.name)
    except BrokerError as error:
        return _error(asked, error)
    except DataDirError as error:
        return _error(asked, BrokerError(str(error), code=STORAGE_FAILED))
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _error(asked: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=str(error)
    )


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


_FIRST_DELETE_TOPICS_BY_ID: Final = 6


def requires(permit: Permit, request: DeleteTopicsRequest) -> Outcome:
    """DELETE on each topic; the name of a topic that the sender may not see is not told."""
    if permit.may_on_cluster(Operation.DELETE, quiet=True):
        return None
    if permit.context.api_version < _FIRST_DELETE_TOPICS_BY_ID:
        return narrow(
            permit,
            request,
            lambda name: 0 if permit.may(Operation.DELETE, ResourceType.TOPIC, name) else TOPIC_FAILED,
            asked="topic_names",
        )
    may = may_on_topic(permit, Operation.DELETE)

    def named(topic: DeleteTopicState) -> dict[str, Any]:
        name = name_of(permit, topic) or ""
        return {"name": name if topic.topic_id == ZERO_UUID or may_see_topic(permit, name) else None}

    return narrow(permit, request, lambda topic: 0 if may(topic) else TOPIC_FAILED, named=named)
