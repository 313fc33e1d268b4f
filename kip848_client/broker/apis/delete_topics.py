"""DeleteTopics (20): by name, from version 6 also by id.

Source:
    apache/kafka ``ControllerApis.deleteTopics``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kip848_client.broker.context import RequestContext
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


def handle(broker: BrokerState, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete what can be deleted; what cannot carries its own error."""
    asked: Iterable[DeleteTopicState] = request.topics
    if context.api_version < _FIRST_VERSION_BY_ID:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    named = [(item, _find(broker, item)) for item in asked]
    times_named = Counter(topic.topic_id for _, topic in named if isinstance(topic, Topic))
    return DeleteTopicsResponse(
        responses=tuple(
            _delete(
                broker,
                item,
                topic,
                is_duplicate=isinstance(topic, Topic) and times_named[topic.topic_id] > 1,
                api_version=context.api_version,
            )
            for item, topic in named
        )
    )


def _find(broker: BrokerState, asked: DeleteTopicState) -> Topic | BrokerError:
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        return BrokerError("Both a name and a topic id were given.", code=ErrorCode.INVALID_REQUEST)
    if asked.name is not None:
        return broker.topics.get(asked.name) or BrokerError(
            f"topic '{asked.name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if asked.topic_id == ZERO_UUID:
        return BrokerError("Neither topic name nor id were specified.", code=ErrorCode.INVALID_REQUEST)
    return broker.topics.get_by_id(asked.topic_id) or BrokerError(
        f"no topic has the id {asked.topic_id}", code=ErrorCode.UNKNOWN_TOPIC_ID
    )


def _delete(
    broker: BrokerState, asked: DeleteTopicState, topic: Topic | BrokerError, *, is_duplicate: bool, api_version: int
) -> DeletableTopicResult:
    try:
        if isinstance(topic, BrokerError):
            raise topic
        if is_duplicate:
            raise BrokerError("The topic is named more than once.", code=ErrorCode.INVALID_REQUEST)
        if not broker.config.delete_topics:
            code = ErrorCode.INVALID_REQUEST if api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            raise BrokerError("delete.topic.enable is false", code=code)
        broker.topics.delete(topic.name)
    except BrokerError as error:
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=str(error)
        )
    except DataDirError as error:
        return DeletableTopicResult(
            name=asked.name,
            topic_id=asked.topic_id,
            error_code=STORAGE_FAILED,
            error_message=str(error),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
