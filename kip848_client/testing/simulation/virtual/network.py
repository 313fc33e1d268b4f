"""Between members and the cluster: delay, loss, duplication, breaking connections, and clients that are cut off.

A connection keeps its order in both directions, as TCP does; different connections overtake each other. On some
connections messages travel as bytes, through the production codec; on the others the same frozen values are handed
over, which is ten times cheaper.

Fault rules (`testing.faults`), as the embedded broker and the proxy take them, apply when a request arrives.

Not here: requests and answers (`client_side`, `cluster`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from kip848_client.member.core.events import FailureKind
from kip848_client.testing.faults import FaultBook, Rule, Subject, perform
from kip848_client.testing.simulation.virtual.scenario import HEALTHY, NetworkFaults, Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_request, decode_response, encode_request, encode_response
from kip848_client.wire.schema import Request, Response

AnyRequest: TypeAlias = Request[Any]
Reply: TypeAlias = Callable[[Response], None]


class SimulatedServer(Protocol):
    """The brokers, as the network sees them."""

    def is_up(self, node_id: int) -> bool:
        """Whether a broker accepts connections."""
        ...

    def serve(self, node_id: int, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Handle a request; call *reply* at most once, now or later."""
        ...


class SimulatedConnection:
    """One ordered stream from one client to one broker."""

    def __init__(self, client_id: str, node_id: int, *, encoded: bool) -> None:
        self.client_id: Final = client_id
        self.node_id: Final = node_id
        self.encoded: Final = encoded
        self.open = True
        self.on_close: Callable[[], None] | None = None
        """Called when it ends, after the requests that wait on it have failed."""
        self.silent = False
        """Its answers are dropped from now on."""
        self.to_server_ms = 0
        self.to_client_ms = 0
        self.pending: dict[int, Pending] = {}


class Pending(NamedTuple):
    """A request that waits for its answer."""

    on_answer: Reply
    on_failure: Callable[[FailureKind, str], None]
    timer: Timer


class Network:
    """All connections of one simulation.

    Args:
        topic_name: of a topic id, for fault rules.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        server: SimulatedServer,
        scenario: Scenario,
        *,
        topic_name: Callable[[UUID], str | None],
    ) -> None:
        self.scheduler: Final = scheduler
        self._server = server
        self._scenario = scenario
        self._rng = scheduler.random("network")
        self._random = self._rng.random
        self._stuck_ms = 10 * scenario.heartbeat_interval_ms
        """Longest time of a message that is stuck."""
        self._connections: dict[SimulatedConnection, None] = {}
        self._number = 0
        self.faults: NetworkFaults = HEALTHY
        self.on_stale: Callable[[str, AnyRequest], None] = lambda _client, _request: None
        """Called with (client id, request) before a request is served for which its sender no longer waits."""
        self.overtaken: Final[set[str]] = set()
        """Clients of which a request was served that they no longer wait for; see `settle`."""
        self._settled = False
        self._topic_name = topic_name
        self._rules = FaultBook(scheduler.random("rules"))
        self.held: list[Callable[[], None]] = []
        """Requests that rules hold back until the faults end."""
        self.serving: SimulatedConnection | None = None
        """The connection of the request that was served last."""
        self.mute: Final[set[str]] = set()
        """Client ids whose messages reach no broker."""
        self.deaf: Final[set[str]] = set()
        """Client ids that no answer reaches."""

    def cut_off(self, client_id: str) -> bool:
        """Whether a client can talk to no broker."""
        return client_id in self.mute or client_id in self.deaf

    def cut(self, client_id: str, rng: random.Random) -> None:
        """Cut a client off, or one direction of it, for less or more than a session."""
        ways = [self.mute, self.deaf]
        one_way = rng.random() < self._scenario.one_way
        if one_way:
            ways = [rng.choice(ways)]
            self.scheduler.history.count("cut_off_one_way")
        for way in ways:
            way.add(client_id)
        self.scheduler.note(client_id, "cut_off", one_way=one_way)

        def mend() -> None:
            for way in ways:
                way.discard(client_id)

        self.scheduler.call_in(rng.randint(200, 2 * self._scenario.session_timeout_ms), mend)

    def add_rule(self, rule: Rule) -> None:
        """Let a fault rule decide about requests that arrive, until the faults end."""
        for other in self._rules.rules:
            if other.spent:
                self._rules.remove(other)
        self._rules.add(rule)

    def connect(
        self,
        client_id: str,
        node_id: int,
        *,
        on_open: Callable[[SimulatedConnection], None],
        on_failure: Callable[[FailureKind, str], None],
    ) -> None:
        """Open a connection; one of the two is called later."""

        def arrive() -> None:
            self.scheduler.events += 1
            if self.cut_off(client_id) or not self._server.is_up(node_id):
                on_failure(FailureKind.DISCONNECTED, "connection refused")
                return
            connection = SimulatedConnection(client_id, node_id, encoded=self._random() < self._scenario.encoded)
            self._connections[connection] = None
            on_open(connection)

        self.scheduler.call_in(self._delay_ms(), arrive)

    def send(
        self,
        connection: SimulatedConnection,
        request: AnyRequest,
        *,
        api_version: int,
        timeout_ms: int,
        on_answer: Reply,
        on_failure: Callable[[FailureKind, str], None],
    ) -> None:
        """Write a request. Its answer, or why there is none, comes later; a time-out closes the connection."""
        self._number += 1
        number = self._number
        if not connection.open:
            self.scheduler.call_in(0, lambda: on_failure(FailureKind.DISCONNECTED, "the connection is closed"))
            return
        timer = self.scheduler.call_in(timeout_ms, lambda: self._timed_out(connection, number))
        connection.pending[number] = Pending(on_answer, on_failure, timer)
        if connection.encoded:
            request = decode_request(
                encode_request(request, api_version=api_version, correlation_id=number, client_id=connection.client_id)
            )[1]
        faults = self.faults
        if faults.loss and self._happens(faults.loss, connection, "request_lost", request):
            return
        at_ms = max(connection.to_server_ms, self.scheduler.now_ms + self._delay_ms())
        connection.to_server_ms = at_ms
        self.scheduler.call_in(
            at_ms - self.scheduler.now_ms, lambda: self._arrive(connection, connection, request, api_version, number)
        )
        if faults.duplicate and self._happens(faults.duplicate, connection, "request_duplicated", request):
            self.scheduler.call_in(
                self._delay_ms() + self._rng.randint(0, 3_000),
                lambda: self._arrive(connection, None, request, api_version, number),
            )
        if faults.break_connection and self._happens(faults.break_connection, connection, "connection_broken", request):
            self.scheduler.call_in(self._delay_ms(), lambda: self.close(connection, "connection reset"))

    def close(self, connection: SimulatedConnection, reason: str) -> None:
        """End a connection: requests that wait on it fail."""
        if not connection.open:
            return
        connection.open = False
        del self._connections[connection]
        waiting, connection.pending = connection.pending, {}
        for pending in waiting.values():
            pending.timer.cancel()
            pending.on_failure(FailureKind.DISCONNECTED, reason)
        if connection.on_close is not None:
            connection.on_close()

    def drop_all(self, node_id: int, reason: str) -> set[str]:
        """A broker died: its connections end. Returns the clients that had one."""
        ended = [connection for connection in self._connections if connection.node_id == node_id]
        for connection in ended:
            self.close(connection, reason)
        return {connection.client_id for connection in ended}

    def settle(self) -> None:
        """End the faults: drop requests for which their senders no longer wait.

        If such a request was served already, its client's connections break too. The client has not seen the answer,
        and the coordinator repeats an assignment only after a full heartbeat, which the client sends after a failure.
        """
        self.faults = HEALTHY
        self.mute.clear()
        self.deaf.clear()
        self._settled = True
        self._rules.clear()
        held, self.held = self.held, []
        for callback in held:
            self.scheduler.call_in(0, callback)
        for connection in [one for one in self._connections if one.client_id in self.overtaken]:
            self.close(connection, "connection reset")

    # --- on the way

    def _arrive(
        self,
        sent_on: SimulatedConnection,
        connection: SimulatedConnection | None,
        request: AnyRequest,
        api_version: int,
        number: int,
    ) -> None:
        """A request reaches the server, as bytes in a socket do, also if its sender no longer waits for it."""
        if not self._server.is_up(sent_on.node_id) or sent_on.client_id in self.mute:
            return
        if self._settled and (connection is None or not connection.open):
            return
        self.scheduler.events += 1
        if connection is not None and self._rules.rules and self._is_ruled(connection, request, api_version, number):
            return
        is_stale = connection is None or not connection.open

        def reply(response: Response) -> None:
            self.answer(connection, response, api_version, number)

        self.serve(sent_on, request, api_version, reply, is_stale=is_stale)

    def serve(
        self, sent_on: SimulatedConnection, request: AnyRequest, api_version: int, reply: Reply, *, is_stale: bool
    ) -> None:
        """Let the broker answer a request that arrived; the sender of one that *is_stale* no longer waits for it."""
        self.serving = sent_on
        if is_stale:
            self.overtaken.add(sent_on.client_id)
            self.on_stale(sent_on.client_id, request)
        self._server.serve(sent_on.node_id, request, api_version=api_version, client_id=sent_on.client_id, reply=reply)

    def _is_ruled(self, connection: SimulatedConnection, request: AnyRequest, api_version: int, number: int) -> bool:
        """Whether a fault rule handles a request."""
        subject = Subject(
            request,
            api_key=request.WIRE.api_key,
            api_version=api_version,
            client_id=connection.client_id,
            topic_name=self._topic_name,
            node_id=connection.node_id,
        )
        decision = self._rules.decide(subject)
        if decision is None:
            return False
        rule, action = decision
        self.scheduler.note(connection.client_id, "rule_acted", done=str(action), rule=rule.match)
        exchange = _Exchange(self, connection, api_version, number)
        perform(action, exchange, rule=rule, subject=subject)
        if exchange.failure is not None:
            raise exchange.failure
        return True

    def answer(self, connection: SimulatedConnection | None, response: Response, api_version: int, number: int) -> None:
        """Send an answer on its way."""
        if connection is None or not connection.open or connection.silent:
            return
        if connection.encoded:
            data = encode_response(response, api_version=api_version, correlation_id=number)
            response = decode_response(response.WIRE.api_key, data, api_version=api_version)[1]
        if self.faults.loss and self._happens(self.faults.loss, connection, "answer_lost", response):
            return
        scheduler = self.scheduler
        at_ms = max(connection.to_client_ms, scheduler.now_ms + self._delay_ms())
        connection.to_client_ms = at_ms

        def deliver() -> None:
            if connection.client_id in self.deaf:
                return
            pending = connection.pending.pop(number, None)  # a closed connection has none
            if pending is not None:
                scheduler.events += 1
                pending.timer.cancel()
                pending.on_answer(response)

        scheduler.call_in(at_ms - scheduler.now_ms, deliver)

    def _timed_out(self, connection: SimulatedConnection, number: int) -> None:
        pending = connection.pending.pop(number, None)
        if pending is not None:
            self.scheduler.events += 1
            self.scheduler.note(connection.client_id, "request_timed_out")
            pending.on_failure(FailureKind.TIMED_OUT, "no answer in time")
            self.close(connection, "closed after a time-out")

    def _happens(
        self, probability: float, connection: SimulatedConnection, what: str, message: AnyRequest | Response
    ) -> bool:
        if self._random() >= probability:
            return False
        self.scheduler.note(connection.client_id, what, api=ApiKey(message.WIRE.api_key).name.lower())
        return True

    def _delay_ms(self) -> int:
        faults = self.faults
        low, high = faults.delay_ms
        delay_ms = low + int(self._random() * (high - low + 1))
        if faults.slow and self._random() < faults.slow:
            delay_ms *= 10
        if faults.stuck and self._random() < faults.stuck:
            self.scheduler.note("network", "message_stuck")
            delay_ms += int(self._random() * self._stuck_ms)
        return delay_ms


class _Exchange:
    """A request that a fault rule decides about."""

    def __init__(self, network: Network, connection: SimulatedConnection, api_version: int, number: int) -> None:
        self._network = network
        self._connection = connection
        self._api_version = api_version
        self._number = number
        self.failure: Exception | None = None

    def apply(self, request: Request[Response], on_response: Callable[[Response | None], None]) -> None:
        connection = self._connection
        self._network.serve(connection, request, self._api_version, on_response, is_stale=not connection.open)

    def reply(self, response: Response | None) -> None:
        if response is not None:
            self._network.answer(self._connection, response, self._api_version, self._number)

    def reply_cut(self, response: Response | None, *, byte_count: int) -> None:
        self._network.close(self._connection, f"connection reset after {byte_count} bytes")

    def fall_silent(self) -> None:
        self._connection.silent = True

    def end(self, *, reset: bool) -> None:
        self._network.close(self._connection, "connection reset" if reset else "connection closed")

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._network.scheduler.call_in(delay_ms, callback)

    def hold(self, callback: Callable[[], None]) -> None:
        self._network.held.append(callback)

    def failed(self, failure: Exception) -> None:
        self.failure = failure
