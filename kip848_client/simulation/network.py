"""Between members and the cluster: delay, loss, duplication, breaking connections. Bytes travel, not objects.

Every message is encoded and decoded by the production codec, so what a version cannot carry does not arrive. A
connection keeps its order in both directions, as TCP does; different connections overtake each other.

Does not own: what is asked or answered (`consumer`, `cluster`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kip848_client.member.events import FailureKind
from kip848_client.simulation.faults import HEALTHY, NetworkFaults
from kip848_client.simulation.world import Timer, World
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_request, decode_response, encode_request, encode_response
from kip848_client.wire.schema import Request, Response


class Server(Protocol):
    """Who answers."""

    @property
    def up(self) -> bool:
        """Whether connections are accepted."""
        ...

    def serve(
        self, request: Request[Any], *, api_version: int, client_id: str, reply: Callable[[Response], None]
    ) -> None:
        """Handle a request; call *reply* at most once, now or later."""
        ...


@dataclass(slots=True, eq=False)
class Connection:
    """One ordered stream from one client."""

    client_id: str
    open: bool = True
    to_server_ms: int = 0
    to_client_ms: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Pending:
    """A request whose answer somebody waits for."""

    on_answer: Callable[[Response], None]
    on_failure: Callable[[FailureKind, str], None]
    timer: Timer


class Network:
    """All connections of one simulation."""

    def __init__(self, world: World, server: Server) -> None:
        self._world = world
        self._server = server
        self._rng = world.random("network")
        self._connections: list[Connection] = []
        self._number = 0
        self.faults: NetworkFaults = HEALTHY
        self.on_stale: Callable[[str, Request[Any]], None] = lambda _client, _request: None
        """Called with (client id, request) before a request is served whose sender has given it up already."""
        self.cut_off: Final[set[str]] = set()
        """Client ids that reach nobody and hear from nobody."""

    def connect(
        self, client_id: str, *, on_open: Callable[[Connection], None], on_failure: Callable[[FailureKind, str], None]
    ) -> None:
        """Open a connection; one of the two is called later."""

        def arrive() -> None:
            if client_id in self.cut_off or not self._server.up:
                on_failure(FailureKind.DISCONNECTED, "connection refused")
                return
            connection = Connection(client_id)
            self._connections.append(connection)
            on_open(connection)

        self._world.call_in(self._delay_ms(), arrive)

    def send(
        self,
        connection: Connection,
        request: Request[Any],
        *,
        api_version: int,
        timeout_ms: int,
        on_answer: Callable[[Response], None],
        on_failure: Callable[[FailureKind, str], None],
    ) -> None:
        """Write a request. Its answer, or why there is none, comes later; a time-out closes the connection."""
        self._number += 1
        number = self._number
        if not connection.open:
            self._world.call_in(0, lambda: on_failure(FailureKind.DISCONNECTED, "the connection is closed"))
            return
        timer = self._world.call_in(timeout_ms, lambda: self._timed_out(connection, number))
        connection.pending[number] = Pending(on_answer, on_failure, timer)
        data = encode_request(request, api_version=api_version, correlation_id=number, client_id=connection.client_id)
        if self._happens(self.faults.loss, connection, "request_lost", request):
            return
        self._to_server(connection, data, number)
        if self._happens(self.faults.duplicate, connection, "request_duplicated", request):
            self._world.call_in(
                self._delay_ms() + self._rng.randint(0, 3_000), lambda: self._arrive(None, data, number)
            )
        if self._happens(self.faults.break_connection, connection, "connection_broken", request):
            self._world.call_in(self._delay_ms(), lambda: self.close(connection, "connection reset"))

    def close(self, connection: Connection, reason: str) -> None:
        """End a connection: whoever waits on it is told."""
        if not connection.open:
            return
        connection.open = False
        self._connections.remove(connection)
        waiting, connection.pending = connection.pending, {}
        for pending in waiting.values():
            pending.timer.cancel()
            pending.on_failure(FailureKind.DISCONNECTED, reason)

    def drop_all(self, reason: str) -> list[Connection]:
        """The server died: every connection ends. Returns those that were open."""
        ended = list(self._connections)
        for connection in ended:
            self.close(connection, reason)
        return ended

    # ------------------------------------------------------------------------------------------------------- on the way

    def _to_server(self, connection: Connection, data: bytes, number: int) -> None:
        at_ms = max(connection.to_server_ms, self._world.now_ms + self._delay_ms())
        connection.to_server_ms = at_ms
        self._world.call_in(at_ms - self._world.now_ms, lambda: self._arrive(connection, data, number))

    def _arrive(self, connection: Connection | None, data: bytes, number: int) -> None:
        """A request reaches the server: also one whose sender gave up meanwhile, as bytes in a socket do."""
        header, request = decode_request(data)
        if not self._server.up or (connection is not None and connection.client_id in self.cut_off):
            return
        if connection is None or not connection.open:
            self.on_stale(header.client_id or "", request)
        self._server.serve(
            request,
            api_version=header.api_version,
            client_id=header.client_id or "",
            reply=lambda response: self._answer(connection, response, header.api_key, header.api_version, number),
        )

    def _answer(
        self, connection: Connection | None, response: Response, api_key: int, api_version: int, number: int
    ) -> None:
        if connection is None or not connection.open:
            return
        data = encode_response(response, api_version=api_version, correlation_id=number)
        if self._happens(self.faults.loss, connection, "answer_lost", response):
            return
        at_ms = max(connection.to_client_ms, self._world.now_ms + self._delay_ms())
        connection.to_client_ms = at_ms

        def deliver() -> None:
            if not connection.open or connection.client_id in self.cut_off:
                return
            pending = connection.pending.pop(number, None)
            if pending is not None:
                pending.timer.cancel()
                pending.on_answer(decode_response(api_key, data, api_version=api_version)[1])

        self._world.call_in(at_ms - self._world.now_ms, deliver)

    def _timed_out(self, connection: Connection, number: int) -> None:
        pending = connection.pending.pop(number, None)
        if pending is not None:
            self._world.history.add(self._world.now_ms, connection.client_id, "request_timed_out")
            pending.on_failure(FailureKind.TIMED_OUT, "no answer in time")
            self.close(connection, "closed after a time-out")

    def _happens(self, probability: float, connection: Connection, what: str, message: Request[Any] | Response) -> bool:
        if probability <= 0 or self._rng.random() >= probability:
            return False
        self._world.history.add(
            self._world.now_ms, connection.client_id, what, api=ApiKey(message.WIRE.api_key).name.lower()
        )
        return True

    def _delay_ms(self) -> int:
        low, high = self.faults.delay_ms
        delay_ms = self._rng.randint(low, high)
        return delay_ms * 10 if self.faults.slow and self._rng.random() < self.faults.slow else delay_ms
