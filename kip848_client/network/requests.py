"""Performs the member's requests: each one becomes exactly one event: the answer, or the failure.

Runs on the background thread only. The effect says where its request goes. Retries nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias, assert_never

import anyio.abc

from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
    OtherClusterError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    DescribeTopics,
    Destination,
    FailureKind,
    ListOffsets,
    MemberEvent,
    MetadataUpdated,
    OffsetsListed,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    SendRequest,
    TopicsDescribed,
)
from kip848_client.network.coordinator_manager import CoordinatorManager
from kip848_client.network.observer import MemberObserver
from kip848_client.network.old_layouts import heard, spoken
from kip848_client.network.request_sender import RequestSender
from kip848_client.network.topic_metadata import TopicMetadataRequestManager
from kip848_client.wire.connection_end import Answer
from kip848_client.wire.schema import Request, Response

MemberRequest: TypeAlias = SendRequest | ConnectCoordinator | RequestMetadata | ListOffsets | DescribeTopics


class RequestPerformer(Protocol):
    """The interface that the heartbeat thread needs; tests put a scripted one in its place."""

    def start(self, effect: MemberRequest, on_end: Callable[[MemberEvent | None], None]) -> bool:
        """Perform one effect without a task, if nothing has to be waited for first, and call *on_end* with the result.

        Returns:
            False if `perform` has to; nothing was done.
        """
        ...

    async def perform(self, effect: MemberRequest) -> MemberEvent | None:
        """Perform one effect; return the event to step, or None if no answer is expected. Raises only for bugs."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


class NetworkPerformer:
    """Performs over Kafka's wire.

    Args:
        sender: connections by node.
        metadata: topic names and offsets by leader.
        tasks: where the watch over the coordinator's connection runs.
        observer: logs and measures answers and failures.
        report: steps an event that answers no request (a lost connection).
    """

    def __init__(
        self,
        *,
        sender: RequestSender,
        metadata: TopicMetadataRequestManager,
        tasks: anyio.abc.TaskGroup,
        observer: MemberObserver,
        report: Callable[[MemberEvent], None],
    ) -> None:
        self._sender = sender
        self._metadata = metadata
        self._tasks = tasks
        self._observer = observer
        self._report = report
        self._coordinator = CoordinatorManager(sender, on_disconnected=self._coordinator_lost)

    def start(self, effect: MemberRequest, on_end: Callable[[MemberEvent | None], None]) -> bool:
        """Send at once what goes to the coordinator; a task for it would take three turns of the loop."""
        if not isinstance(effect, SendRequest) or effect.destination is not Destination.COORDINATOR:
            return False
        request = spoken(effect.request, self._coordinator.api_versions)
        began_s = time.perf_counter()

        def ended(answer: Answer) -> None:
            if isinstance(answer, Kip848Error):
                on_end(self._failed(effect, answer))
                return
            self._coordinator.answered(answer)
            response = self._heard(request, answer, began_s)
            on_end(ResponseReceived(effect.request_id, response))

        try:
            return self._coordinator.start(
                request,
                timeout_ms=effect.timeout_ms,
                max_version=effect.max_version,
                on_end=ended,
                urgent=effect.urgent,
            )
        except Kip848Error:
            return False  # `perform` will meet it again, when the member has finished its step

    async def perform(self, effect: MemberRequest) -> MemberEvent | None:
        """Perform *effect*; see `RequestPerformer`."""
        try:
            match effect:
                case SendRequest():
                    response = await self._send(effect)
                    return ResponseReceived(effect.request_id, response)
                case ConnectCoordinator(request_id=request_id, node=node, timeout_ms=timeout_ms):
                    versions = await self._coordinator.connect(node, timeout_ms=timeout_ms, tasks=self._tasks)
                    self._observer.coordinator_connected(node_id=node.node_id, host=node.host, port=node.port)
                    return CoordinatorConnected(request_id, versions)
                case RequestMetadata(request_id=request_id, topic_ids=topic_ids, timeout_ms=timeout_ms):
                    names = await self._metadata.names(topic_ids, timeout_ms=timeout_ms)
                    return MetadataUpdated(names, request_id)
                case ListOffsets(request_id, timestamps, timeout_ms, durations_ms):
                    listed = await self._metadata.list_starts(timestamps, durations_ms, timeout_ms=timeout_ms)
                    return OffsetsListed(request_id, offsets=listed.offsets, errors=listed.errors)
                case DescribeTopics(request_id=request_id, topics=topics, pattern=pattern, timeout_ms=timeout_ms):
                    described = await self._metadata.describe(topics, pattern=pattern, timeout_ms=timeout_ms)
                    return TopicsDescribed(request_id, described.topics, described.unauthorized, described.passing)
                case _:
                    assert_never(effect)
        except Kip848Error as error:
            return self._failed(effect, error)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._coordinator.aclose()
        await self._sender.aclose()

    async def _send(self, effect: SendRequest) -> Response:
        began = time.perf_counter()
        if effect.destination is Destination.COORDINATOR:
            request = spoken(effect.request, self._coordinator.api_versions)
            response = await self._coordinator.send(
                request, timeout_ms=effect.timeout_ms, max_version=effect.max_version, urgent=effect.urgent
            )
        elif effect.destination is Destination.COORDINATOR_ROUND:
            request = spoken(effect.request, self._coordinator.api_versions)
            response = await self._coordinator.send_round(
                request, timeout_ms=effect.timeout_ms, max_version=effect.max_version
            )
        else:
            connection = await self._sender.any_broker(timeout_ms=effect.timeout_ms)
            request = spoken(effect.request, connection.api_versions)
            left_ms = max(1, effect.timeout_ms - int((time.perf_counter() - began) * 1_000))
            response = await connection.send(request, timeout_ms=left_ms, max_version=effect.max_version)
        return self._heard(request, response, began)

    def _heard(self, request: Request[Response], response: Response, began_s: float) -> Response:
        response = heard(request, response)
        self._observer.answered(response, ms=(time.perf_counter() - began_s) * 1_000)
        return response

    def _failed(self, effect: MemberRequest, error: Kip848Error) -> RequestFailed:
        kind = failure_kind(error)
        what = effect.request if isinstance(effect, SendRequest) else effect
        self._observer.request_failed(what, kind=kind.value, error=error)
        return RequestFailed(effect.request_id, kind, str(error))

    def _coordinator_lost(self, node_id: int) -> None:
        self._observer.coordinator_lost(f"the connection to node {node_id} broke")
        self._report(CoordinatorDisconnected(node_id))


def failure_kind(error: Kip848Error) -> FailureKind:
    """The kind of failure by which the member hears of *error*."""
    match error:
        case AuthenticationError():
            return FailureKind.AUTHENTICATION_FAILED
        case OtherClusterError():
            return FailureKind.OTHER_CLUSTER
        case RequestTimeoutError():
            return FailureKind.TIMED_OUT
        case ConnectionLostError():
            return FailureKind.DISCONNECTED
        case UnsupportedVersionError():
            return FailureKind.UNSUPPORTED_VERSION
        case _:
            return FailureKind.MALFORMED
