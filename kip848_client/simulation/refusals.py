"""Fault rules in a simulated network: the same values that the embedded broker and the proxy take.

A rule applies to a request that arrives at a broker. `kip848_client.faults` defines the actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from kip848_client.faults import FaultBook, Rule, Subject, perform
from kip848_client.simulation.network import AnyRequest, Network, SimulatedConnection
from kip848_client.simulation.world import World
from kip848_client.wire.schema import Request, Response


class Refusals:
    """The rules of one simulation; install `intercept` in its network."""

    def __init__(self, world: World, *, topic_name: Callable[[UUID], str | None]) -> None:
        self._world = world
        self._topic_name = topic_name
        self.book: Final = FaultBook(world.random("rules"))
        self._held: list[Callable[[], None]] = []

    def add(self, rule: Rule, *, network: Network) -> None:
        """Let *rule* decide about requests from now on."""
        for other in self.book.rules:
            if other.spent:
                self.book.remove(other)
        self.book.add(rule)
        network.intercept = self.intercept

    def clear(self, *, network: Network) -> None:
        """No more rules; what is held goes on."""
        self.book.clear()
        network.intercept = None
        held, self._held = self._held, []
        for callback in held:
            self._world.call_in(0, callback)

    def intercept(
        self,
        network: Network,
        connection: SimulatedConnection | None,
        request: AnyRequest,
        api_version: int,
        number: int,
    ) -> bool:
        """Whether a rule handles a request."""
        if connection is None:
            return False
        subject = Subject(
            request,
            api_key=request.WIRE.api_key,
            api_version=api_version,
            client_id=connection.client_id,
            topic_name=self._topic_name,
            node_id=connection.node_id,
        )
        decision = self.book.decide(subject)
        if decision is None:
            return False
        rule, action = decision
        self._world.history.add(
            self._world.now_ms, connection.client_id, "rule_acted", done=str(action), rule=rule.match
        )
        exchange = _Exchange(self._world, network, connection, api_version, number, self._held)
        perform(decision.action, exchange, rule=decision.rule, subject=subject)
        if exchange.failure is not None:
            raise exchange.failure
        return True


class _Exchange:
    """One request that a rule decides about."""

    def __init__(
        self,
        world: World,
        network: Network,
        connection: SimulatedConnection,
        api_version: int,
        number: int,
        held: list[Callable[[], None]],
    ) -> None:
        self._world = world
        self._network = network
        self._connection = connection
        self._api_version = api_version
        self._number = number
        self._held = held
        self.failure: Exception | None = None

    def apply(self, request: Request[Response], on_response: Callable[[Response | None], None]) -> None:
        connection = self._connection
        if not connection.open:
            self._network.on_stale(connection.client_id, request)
        self._network.hand_over(connection, request, self._api_version, on_response)

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
        self._world.call_in(delay_ms, callback)

    def hold(self, callback: Callable[[], None]) -> None:
        self._held.append(callback)

    def failed(self, failure: Exception) -> None:
        self.failure = failure
