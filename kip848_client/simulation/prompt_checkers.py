"""What a member does at once, or not before its time: C4, C5, C8 and L4, as far as time and epochs show it.

Does not own: what heartbeats say (`heartbeat_checkers`), the back-off of other requests (`request_checkers`).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.member.events import StateChanged
from kip848_client.member.states import IN_GROUP
from kip848_client.simulation.consumer import SimulatedConsumer
from kip848_client.simulation.heartbeat_checkers import OUT, has_coordinator
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.schema import Request, Response


class NoEpochOutside(Observer):
    """C5: who is outside of the group shows no epoch of it: transactions and metrics would go by it."""

    def view_changed(self, consumer: SimulatedConsumer) -> None:
        """Look at what the application sees."""
        view = consumer.view
        if view.state in OUT and view.member_epoch > 0:
            fail("C5", f"{consumer.name} is {view.state.name}, and shows epoch {view.member_epoch}")


class AwaitedLeave(Observer):
    """L4: close() waits for the answer to the leave that was sent, as long as it may."""

    def __init__(self) -> None:
        self._waiting: dict[str, Request[Any]] = {}

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """A leave is on its way."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch < 0 and consumer.leaving:
            self._waiting[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """It came back."""
        self._over(consumer, request)

    @about(ConsumerGroupHeartbeatRequest)
    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Nothing will come back."""
        self._over(consumer, request)

    def _over(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        if self._waiting.get(consumer.name) is request:
            del self._waiting[consumer.name]

    def closed(self, consumer: SimulatedConsumer) -> None:
        """close() returns."""
        left_ms = consumer.close_by_ms - consumer.now_ms
        if self._waiting.pop(consumer.name, None) is not None and left_ms > 0:
            fail("L4", f"{consumer.name}: close() returns {left_ms} ms before its time, and without an answer")


class ToldAssignors(Observer):
    """C4: what its assignors say anew is told at once, but for a reason that is over."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Assignor, ...]] = {}
        self._waiting: dict[str, Request[Any]] = {}
        self._described: dict[str, tuple[int, tuple[Assignor, ...]]] = {}
        """Consumer -> the step in which its assignors said something, and what."""

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Note what the coordinator is told."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        name = consumer.name
        self._waiting[name] = request
        described = self._described.pop(name, None)
        if described is not None and described[0] != consumer.world.steps:
            fail("C4", f"{name} tells of its assignors {consumer.world.steps - described[0]} steps late")
        if request.client_assignors is not None:
            self._told[name] = request.client_assignors

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """After an error, when the next one goes is for others to say."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        self._waiting.pop(consumer.name, None)
        if response.error_code:
            self._forget(consumer)

    @about(ConsumerGroupHeartbeatRequest)
    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """The same."""
        self._waiting.pop(consumer.name, None)
        self._forget(consumer)

    @about(ConsumerGroupHeartbeatRequest)
    def unsent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """The same."""
        self._forget(consumer)

    def state_changed(self, consumer: SimulatedConsumer, effect: StateChanged) -> None:
        """Whoever comes or goes says other things first."""
        if effect.new in OUT or effect.old in OUT:
            self._forget(consumer)

    def assignor_described(self, consumer: SimulatedConsumer, offered: tuple[Assignor, ...]) -> None:
        """Note what there is to tell."""
        name = consumer.name
        told = self._told.get(name)
        free = name not in self._waiting and has_coordinator(consumer)
        if told is None or not free or consumer.member.phase not in IN_GROUP:
            return
        if _without_reasons(offered) != _without_reasons(told):
            self._described[name] = (consumer.world.steps, offered)

    def _forget(self, consumer: SimulatedConsumer) -> None:
        self._told.pop(consumer.name, None)
        self._described.pop(consumer.name, None)


def _without_reasons(offered: tuple[Assignor, ...]) -> tuple[Assignor, ...]:
    return tuple(replace(assignor, reason=0) for assignor in offered)
