"""What a checker may be told about, besides what it can look at after every step. Everything has an empty default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kip848_client.member.events import MemberEffect
from kip848_client.model import TopicIdPartition, TopicPartition
from kip848_client.wire.schema import Request, Response

if TYPE_CHECKING:
    from kip848_client.simulation.consumer import SimulatedConsumer


class Observer:
    """Hears of everything that consumers do; the base class ignores it."""

    def effect(self, consumer: SimulatedConsumer, effect: MemberEffect) -> None:
        """The member asked for something."""

    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """A request was written."""

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """An answer arrived, and the member is about to see it."""

    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """A request failed, and the member is about to hear of it."""

    def stale(self, client_id: str, request: Request[Any]) -> None:
        """A request is about to be served whose sender has given it up: a late one, or a copy."""

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """The coordinator decided, its records are durable, and the answer is about to leave."""

    def handed_out(self, consumer: SimulatedConsumer, partition: TopicPartition, *, start: int, stop: int) -> None:
        """poll() returned the records from offset *start* to *stop*, exclusive."""

    def fetching_started(self, consumer: SimulatedConsumer, partition: TopicPartition, offset: int) -> None:
        """Fetching of a partition began, or began again, at *offset*."""

    def listener_begins(self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """A listener call (assigned, revoked, lost) started."""

    def listener_ended(
        self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition], *, raised: bool
    ) -> None:
        """The call is over."""

    def crashed(self, consumer: SimulatedConsumer) -> None:
        """The process died."""

    def closed(self, consumer: SimulatedConsumer) -> None:
        """close() returned."""

    def after_step(self) -> None:
        """Something happened somewhere; look at everything."""

    def converged(self) -> None:
        """Faults ended and the group had its time."""


class Observers(Observer):
    """Tells several."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def effect(self, consumer: SimulatedConsumer, effect: MemberEffect) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.effect(consumer, effect)

    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.sent(consumer, request)

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.answered(consumer, request, response)

    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.unanswered(consumer, request)

    def stale(self, client_id: str, request: Request[Any]) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.stale(client_id, request)

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.served(client_id, request, response)

    def handed_out(self, consumer: SimulatedConsumer, partition: TopicPartition, *, start: int, stop: int) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.handed_out(consumer, partition, start=start, stop=stop)

    def fetching_started(self, consumer: SimulatedConsumer, partition: TopicPartition, offset: int) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.fetching_started(consumer, partition, offset)

    def listener_begins(self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.listener_begins(consumer, name, partitions)

    def listener_ended(
        self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition], *, raised: bool
    ) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.listener_ended(consumer, name, partitions, raised=raised)

    def crashed(self, consumer: SimulatedConsumer) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.crashed(consumer)

    def closed(self, consumer: SimulatedConsumer) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.closed(consumer)

    def after_step(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.after_step()

    def converged(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.converged()
