"""What a checker may be told about, besides what it can look at after every step. Everything has an empty default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

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
        """Something happened somewhere. Called thousands of times a scenario: keep it cheap."""

    def coordinator_changed(self) -> None:
        """In this step the coordinator's state changed, or the topics did."""

    def converged(self) -> None:
        """Faults ended and the group had its time."""


class Observers(Observer):
    """Tells several, each only of what it listens to.

    Args:
        version: grows when the coordinator's state may have changed.
    """

    def __init__(self, observers: Iterable[Observer], *, version: Callable[[], int]) -> None:
        self._observers: Final = tuple(observers)
        self._version = version
        self._seen_version = -1
        self._after_step = self._listening("after_step")
        self._coordinator_changed = self._listening("coordinator_changed")
        for name in _HOOKS:
            setattr(self, name, _telling(tuple(getattr(observer, name) for observer in self._listening(name))))

    def _listening(self, name: str) -> tuple[Observer, ...]:
        default = getattr(Observer, name)
        return tuple(observer for observer in self._observers if getattr(type(observer), name) is not default)

    def after_step(self) -> None:
        """Tell those who look at every step, and, if there is a reason, those who look at the coordinator."""
        version = self._version()
        if version != self._seen_version:
            self._seen_version = version
            for observer in self._coordinator_changed:
                observer.coordinator_changed()
        for observer in self._after_step:
            observer.after_step()

    def coordinator_changed(self) -> None:
        """Tell all."""
        for observer in self._coordinator_changed:
            observer.coordinator_changed()


_HOOKS: Final = tuple(
    name for name in vars(Observer) if not name.startswith("_") and name not in {"after_step", "coordinator_changed"}
)


def _telling(hooks: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    def tell(*args: object, **kwargs: object) -> None:
        for hook in hooks:
            hook(*args, **kwargs)

    return tell
