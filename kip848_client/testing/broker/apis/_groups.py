"""Parts that the APIs of groups share: they pass their requests on to the group coordinator. Not an API itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.errors import DataDirError, ErrorCode
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.coordinator.core.inputs import GroupMessage
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.schema import Response

CommitT = TypeVar("CommitT", OffsetCommitRequest, TxnOffsetCommitRequest)

_PARTITIONS_AT_ONCE: Final = 5_000
"""Partitions that are committed in one slice of a request, which takes some 40 ms."""


def to_group_coordinator(broker: BrokerState, request: GroupMessage, context: RequestContext) -> None:
    """Leave it to the coordinator of its group or groups, which answers now or later."""
    broker.groups.handle(request, context)


def commit_in_parts(broker: BrokerState, request: CommitT, context: RequestContext) -> Slices:
    """Leave a commit to the coordinator; one of very many partitions in parts, between which others have their turn."""
    if sum(len(topic.partitions) for topic in request.topics) <= _PARTITIONS_AT_ONCE:
        broker.groups.handle(request, context)
        return None
    whole: Any = None
    for part in _parts_of(request):
        answered = _committed(broker, part, context)
        whole = answered if whole is None else replace(whole, topics=_joined(whole.topics, answered.topics))
        yield
    answer: Response = whole
    return answer


def _committed(broker: BrokerState, part: CommitT, context: RequestContext) -> Any:
    code, reason = broker.groups.why_not_here(part.group_id, context.node_id), None
    if not code:
        try:
            return broker.groups.submit(part, api_version=context.api_version)
        except DataDirError as error:
            code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return refusal(part, code=code, api_version=context.api_version, reason=reason)


def _parts_of(request: CommitT) -> Iterator[CommitT]:
    topics: list[Any] = []
    left = _PARTITIONS_AT_ONCE
    for topic in request.topics:
        rest = topic.partitions
        while len(rest) > left:
            if left:
                topics.append(replace(topic, partitions=rest[:left]))
            yield replace(request, topics=tuple(topics))
            rest, topics, left = rest[left:], [], _PARTITIONS_AT_ONCE
        topics.append(replace(topic, partitions=rest))
        left -= len(rest)
    yield replace(request, topics=tuple(topics))


def _joined(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    """The topics of two answers; one that was cut in two becomes one again."""
    last, following = first[-1], second[0]
    if replace(last, partitions=()) != replace(following, partitions=()):
        return first + second
    return (*first[:-1], replace(last, partitions=last.partitions + following.partitions), *second[1:])
