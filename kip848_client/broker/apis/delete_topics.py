"""DeleteTopics (20): by name, from version 6 also by id.

Source:
    apache/kafka ``ControllerApis.deleteTopics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kip848_client.broker.context import RequestContext, Slices
from kip848_client.broker.state import BrokerState
from kip848_client.broker.topics import STORAGE_FAILED, Topic
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.model import ZERO_UUID
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

API_KEY: Final = ApiKey.DELETE_TOPICS
VERSIONS: Final = (1, 6)

_FIRST_VERSION_BY_ID: Final = 6


def handle(broker: BrokerState, request: DeleteTopicsRequest, context: RequestContext) -> Slices:
    """Delete what can be deleted; what cannot carries its own error."""
    asked: Iterable[DeleteTopicState] = request.topics
    if context.api_version < _FIRST_VERSION_BY_ID:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
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
        answers.append(_delete(broker, item, topic, api_version=context.api_version))
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
    broker: BrokerState, asked: DeleteTopicState, topic: Topic | BrokerError, *, api_version: int
) -> DeletableTopicResult:
    try:
        if isinstance(topic, BrokerError):
            raise topic
        if not broker.config.delete_topics:
            code = ErrorCode.INVALID_REQUEST if api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            raise BrokerError("delete.topic.enable is false", code=code)
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
