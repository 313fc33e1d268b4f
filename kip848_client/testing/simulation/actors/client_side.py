"""The network of one simulated consumer: its connections, its requests, and its questions about topics.

Does not own: the member's reaction to an answer (`simulated_consumer`), delays and faults (`network`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kip848_client.common.model import OffsetAndMetadata
from kip848_client.common.patterns import compiled
from kip848_client.errors import ErrorCode
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
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.offsets.positions import EARLIEST_TIMESTAMP
from kip848_client.testing.simulation.actors.user_assignor import UserAssignor
from kip848_client.testing.simulation.observer import Surroundings
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.cluster import ANY_NODE
from kip848_client.testing.simulation.virtual.network import SimulatedConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.heartbeat import HeartbeatResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import Request, Response

VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (0, 0),
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (0, 0),
}
"""The APIs and versions that the simulated brokers offer."""


class ClientSide:
    """One consumer's connections to the coordinator and to the broker that it was configured with."""

    def __init__(self, consumer: ClientProcess, surroundings: Surroundings, assignor: UserAssignor) -> None:
        self._consumer: Final = consumer
        self._network: Final = surroundings.network
        self._topics: Final = surroundings.cluster.topics
        self._observer: Final = surroundings.observer
        self._metadata_lag_ms: Final = surroundings.scenario.metadata_lag_ms
        self._assignor: Final = assignor
        self._round: SimulatedConnection | None = None
        """A second connection to the coordinator, for requests that are answered late."""
        self._rounds = 0
        self._bootstrap: SimulatedConnection | None = None
        self.heard_ms: int = -1
        """Time of the last answer to an accepted heartbeat."""
        self.led_generation: int = -1
        """The last generation of a classic group for which it assigned."""

    def send(self, effect: SendRequest) -> None:
        """Write a request on the connection that it is for."""
        consumer = self._consumer
        if effect.urgent:
            self._rounds += 1  # a JoinGroup that waits for its connection is not sent after the LeaveGroup
        if effect.destination is not Destination.ANY_BROKER:
            connection = self._consumer.connection
            if connection is None or not connection.open:
                self._observer.unsent(consumer, effect.request)
                failed = RequestFailed(effect.request_id, FailureKind.DISCONNECTED, "no connection to the coordinator")
                consumer.later(0, lambda: consumer.step(failed))
            elif effect.destination is Destination.COORDINATOR_ROUND:
                self._send_round(connection.node_id, effect)
            else:
                self._write(connection, effect)
        elif self._bootstrap is not None and self._bootstrap.open:
            self._write(self._bootstrap, effect)
        else:

            def opened(connection: SimulatedConnection) -> None:
                self._bootstrap = connection
                if not consumer.closed:
                    self._write(connection, effect)

            self._connect(ANY_NODE, opened, self._refused(effect.request_id))

    def _send_round(self, node_id: int, effect: SendRequest) -> None:
        """One request at a time: a connection with an unanswered request is closed, since its answer is not awaited."""
        self._rounds += 1
        number = self._rounds
        connection = self._round
        if connection is not None and connection.open and not connection.pending:
            self._write(connection, effect)
            return
        self._end_round()
        coordinator = self._consumer.connection

        def opened(connection: SimulatedConnection) -> None:
            if self._consumer.closed or number != self._rounds or self._consumer.connection is not coordinator:
                self._network.close(connection, "not needed any more")
                failed(FailureKind.DISCONNECTED, "not needed any more")
            else:
                self._end_round()
                self._round = connection
                self._write(connection, effect)

        def failed(kind: FailureKind, message: str) -> None:
            self._unanswered(effect.request_id, effect.request, kind, message)

        self._connect(node_id, opened, failed)

    def _end_round(self) -> None:
        connection, self._round = self._round, None
        if connection is not None:
            self._consumer.scheduler.call_in(0, lambda: self._network.close(connection, "its answer is not awaited"))

    def connect_coordinator(self, effect: ConnectCoordinator) -> None:
        """Open a connection to the coordinator, and close those before it."""

        def opened(connection: SimulatedConnection) -> None:
            if self._consumer.connection is not None:
                self._consumer.connection.on_close = None
                self._network.close(self._consumer.connection, "replaced by a new one")
            self._end_round()
            self._consumer.connection = connection
            if self._consumer.is_classic:  # it may wait for no answer, and would not notice
                connection.on_close = lambda: self._consumer.awake(self._lost, connection)
            self._consumer.connected_ms = self._consumer.scheduler.now_ms
            self._consumer.step(CoordinatorConnected(effect.request_id, VERSIONS))
            if self._consumer.is_classic and not connection.open:  # it broke while the process stood still
                self._lost(connection)

        self._connect(effect.node.node_id, opened, self._refused(effect.request_id))

    def _refused(self, request_id: int) -> Callable[[FailureKind, str], None]:
        return lambda kind, message: self._consumer.step(RequestFailed(request_id, kind, message))

    def _connect(
        self, node_id: int, opened: Callable[[SimulatedConnection], None], failed: Callable[[FailureKind, str], None]
    ) -> None:
        consumer = self._consumer
        self._network.connect(
            consumer.name,
            node_id,
            on_open=lambda connection: consumer.awake(opened, connection),
            on_failure=lambda kind, message: consumer.awake(failed, kind, message),
        )

    def _write(self, connection: SimulatedConnection, effect: SendRequest) -> None:
        consumer, request, request_id = self._consumer, effect.request, effect.request_id
        _, highest = VERSIONS[request.WIRE.api_key]
        if isinstance(request, SyncGroupRequest) and request.assignments:
            self.led_generation = request.generation_id
        self._observer.sent(consumer, request)
        self._network.send(
            connection,
            request,
            api_version=highest if effect.max_version is None else min(highest, effect.max_version),
            timeout_ms=effect.timeout_ms,
            on_answer=lambda response: consumer.awake(self._answered, request_id, request, response),
            on_failure=lambda kind, text: consumer.awake(self._unanswered, request_id, request, kind, text),
        )

    def _answered(self, request_id: int, request: Request[Any], response: Response) -> None:
        if not self._consumer.closed:
            if isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
                self.heard_ms = self._consumer.scheduler.now_ms
                assert isinstance(request, ConsumerGroupHeartbeatRequest)
                if request.client_assignors and any(assignor.reason for assignor in request.client_assignors):
                    self._assignor.asks = False
            elif isinstance(response, HeartbeatResponse) and not response.error_code:
                self.heard_ms = self._consumer.scheduler.now_ms
            self._observer.answered(self._consumer, request, response)
            self._observer.ended(self._consumer, request)
            self._consumer.step(ResponseReceived(request_id, response))

    def _unanswered(self, request_id: int, request: Request[Any], kind: FailureKind, message: str) -> None:
        if not self._consumer.closed:
            self._observer.ended(self._consumer, request)
            self._consumer.step(RequestFailed(request_id, kind, message))

    # --- about the topics

    def ask_names(self, effect: RequestMetadata) -> None:
        """The names of topic ids, from any broker."""
        lag_ms = self._metadata_lag_ms
        self._ask(
            effect.request_id,
            effect.timeout_ms,
            lambda: MetadataUpdated(self._topics.described(effect.topic_ids, lag_ms=lag_ms), effect.request_id),
        )

    def describe_topics(self, effect: DescribeTopics) -> None:
        """Topics by name, and topics that match a pattern, from any broker."""
        pattern = None if effect.pattern is None else compiled(effect.pattern)

        def answer() -> MemberEvent:
            topics = {
                topic.name: TopicDescription(topic.topic_id, topic.partition_count)
                for topic in self._topics.image.topics
                if topic.name in effect.topics or (pattern is not None and pattern.fullmatch(topic.name))
            }
            return TopicsDescribed(effect.request_id, topics)

        self._ask(effect.request_id, effect.timeout_ms, answer)

    def list_offsets(self, effect: ListOffsets) -> None:
        """First or last offsets, from the partitions' leaders."""
        ends = self._topics.end_offsets

        def answer() -> MemberEvent:
            found = {
                partition: OffsetAndMetadata(0 if timestamp == EARLIEST_TIMESTAMP else ends[partition], 0)
                for partition, timestamp in effect.timestamps.items()
                if partition in ends
            }
            unknown = {
                partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
                for partition in effect.timestamps
                if partition not in found
            }
            return OffsetsListed(effect.request_id, found, unknown)

        self._ask(effect.request_id, effect.timeout_ms, answer)

    def _ask(self, request_id: int, timeout_ms: int, answer: Callable[[], MemberEvent]) -> None:
        consumer = self._consumer
        if self._network.cut_off(consumer.name):
            failed = RequestFailed(request_id, FailureKind.DISCONNECTED, "no broker answers")
            consumer.later(min(timeout_ms, 500), lambda: self._told(lambda: failed))
        else:
            consumer.later(consumer.draw(0, 10), lambda: self._told(answer))

    def _told(self, answer: Callable[[], MemberEvent]) -> None:
        """Step what a broker answered, or that none did."""
        self._consumer.scheduler.events += 1
        self._consumer.step(answer())

    # --- disconnecting

    def node_down(self, node_id: int) -> None:
        """A broker died; requests that waited on its connection have failed already."""
        self._consumer.scheduler.events += 1
        connection = self._consumer.connection
        if connection is not None and not connection.open and connection.node_id == node_id:
            self._consumer.connection = None
            self._consumer.step(CoordinatorDisconnected(node_id))

    def _lost(self, connection: SimulatedConnection) -> None:
        if connection is self._consumer.connection and not self._consumer.closed:
            self._consumer.connection = None
            self._consumer.step(CoordinatorDisconnected(connection.node_id))

    def disconnect(self) -> None:
        """Close the open connections."""
        for connection in (self._consumer.connection, self._round, self._bootstrap):
            if connection is not None:
                self._network.close(connection, "the client is gone")
