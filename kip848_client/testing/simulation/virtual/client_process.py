"""The interface of one client process: its clock, random generator and member, and what observers may read.

The parts of a consumer (`application`, `client_side`, `user_assignor`) and all observers know this class; only
`simulated_consumer` knows all parts. Each process has its own clock, which starts anywhere and runs a little fast or
slow. A process may freeze, like a paused virtual machine, while its clock goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.member.core.events import MemberEvent, MemberView
from kip848_client.member.core.settings import GroupProtocol, MemberConfig
from kip848_client.member.core.states import MemberState
from kip848_client.member.member import Member
from kip848_client.testing.simulation.virtual.network import SimulatedConnection
from kip848_client.testing.simulation.virtual.scenario import Behaviour
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer

OUTSIDE_GROUP: Final = frozenset({MemberState.UNJOINED, MemberState.RELEASING_ASSIGNMENT, MemberState.FATAL})
"""States of a member that is not in its group: it owns nothing, or is about to."""


class ClientProcess(ABC):
    """One client process, from its start to its close or crash.

    Args:
        name: client id; also the name that the history gives it.
        clock_ms: what its monotonic clock shows at virtual time 0.
        clock_rate: ms of its clock in one ms of virtual time.
    """

    def __init__(
        self,
        name: str,
        *,
        scheduler: Scheduler,
        config: MemberConfig,
        behaviour: Behaviour,
        clock_ms: int,
        clock_rate: float,
    ) -> None:
        self.name: Final = name
        self.config: Final = config
        self.scheduler: Final = scheduler
        self.behaviour = behaviour
        self._rng = scheduler.random(f"application {name}")
        self._random = self._rng.random
        self._clock_ms: Final = clock_ms
        self._clock_rate: Final = clock_rate
        self.member: Final = Member(config, rng=self._rng)
        self.view: MemberView = self.member.view()
        """The application's view of the member, as of the last step."""
        self.subscription: Subscription = Subscription()
        """The application's subscription."""
        self.closed: bool = False
        """close() returned, or the process died."""
        self.failed: bool = False
        """The member is FATAL."""
        self.commits_asked: Final[dict[int, int]] = {}
        """Commits that were not answered yet -> when the application asked for them, in virtual time."""
        self.leave_id: int | None = None
        """Number of the leave that close() asked for."""
        self.connection: SimulatedConnection | None = None
        """Its connection to the coordinator."""
        self.connected_ms: int = -1
        """When it last connected to a coordinator, in virtual time; requests that waited for that are sent then."""
        self.close_by_ms: int = 0
        """When close() must return at the latest, on its own clock."""
        self.thaws_ms: int = 0
        """Virtual time at which the process thaws, or last thawed."""
        self._call_id = 0

    # --- actions

    @abstractmethod
    def step(self, event: MemberEvent) -> None:
        """Give *event* to the member, and perform its effects."""

    @abstractmethod
    def close(self) -> None:
        """Close: leave the group, then end."""

    @property
    @abstractmethod
    def app_polled_ms(self) -> int:
        """When its application last was inside poll(), on its own clock."""

    @abstractmethod
    def holds(self, partition: NamedPartition) -> bool:
        """Whether a partition is paused, or not fetched at all."""

    # --- state

    @property
    def connected(self) -> bool:
        """Whether there is an open connection to the coordinator."""
        return self.connection is not None and self.connection.open

    @property
    def frozen(self) -> bool:
        """Whether the process is frozen."""
        return self.scheduler.now_ms < self.thaws_ms

    @property
    def leaving(self) -> bool:
        """close() was called and has not returned."""
        return self.leave_id is not None and not self.closed

    @property
    def readable(self) -> frozenset[NamedPartition]:
        """Partitions whose records poll() may hand out now."""
        return frozenset() if self.closed else self.view.readable

    def assignment(self) -> frozenset[NamedPartition]:
        """Partitions that the application has."""
        return frozenset(tip.topic_partition for tip in self.member.view().assigned)

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.config.protocol is GroupProtocol.CLASSIC

    # --- time, randomness

    @property
    def now_ms(self) -> int:
        """Its own monotonic clock."""
        return self._clock_ms + int(self.scheduler.now_ms * self._clock_rate)

    def awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run *action* now, or when the process thaws."""
        if self.scheduler.now_ms < self.thaws_ms:
            self.scheduler.call_in(self.thaws_ms - self.scheduler.now_ms, lambda: self.awake(action, *arguments))
        else:
            action(*arguments)

    def later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run *action* in *delay_ms*, or when the process thaws after that."""
        return self.scheduler.call_in(delay_ms, lambda: self.awake(action))

    def draw(self, low: int, high: int) -> int:
        """A number from *low* to *high*."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, part: float) -> bool:
        """True in *part* of the cases."""
        return self._random() < part

    def next_call(self) -> int:
        """A number for a commit, a question or a leave."""
        self._call_id += 1
        return self._call_id

    def note(self, what: str, **details: Any) -> None:
        """Write to the history."""
        self.scheduler.note(self.name, what, **details)
