"""The client-side assignor of one simulated process: user code that takes time, changes its mind, and misbehaves.

It computes with the production check of results (`member.assignor_values`), on the virtual clock. It raises, returns
nonsense, reports errors of its own, hands in what the check would have refused, and takes longer than its limit; after
the faults have ended, it behaves.

Does not own: what the member makes of it (`member.assignor_round`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, assert_never

from kip848_client.assignors.interface import AssignmentSpec, AssignorMetadata, GroupAssignment, PartitionAssignor
from kip848_client.assignors.spread import spread_by_weight
from kip848_client.member.assignor_events import (
    AssignorCall,
    AssignorDone,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.assignor_values import advertised, compute
from kip848_client.member.events import MemberEvent
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.scenario import Behaviour
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember

if TYPE_CHECKING:
    from kip848_client.simulation.consumer import SimulatedConsumer

_WEIGHT_MAX: Final = 3


class _Weighted(PartitionAssignor):
    """Spreads by a weight that each member tells; does something else once, if told so."""

    name = "weighted"

    def __init__(self) -> None:
        self.weight = 1
        self.mischief: str | None = None

    def metadata(self) -> AssignorMetadata:
        return AssignorMetadata(str(self.weight).encode())

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        match self.mischief:
            case "raises":
                raise RuntimeError("the assignor raised")
            case "forgets":
                return GroupAssignment()
            case "reports":
                return GroupAssignment(error=7)
            case _:
                return spread_by_weight(spec, lambda member: int(member.metadata))


OFFERED: Final[tuple[Assignor, ...]] = (advertised(_Weighted()),)
"""What a process with an assignor offers at first."""

_SPARE: Final = Assignor("spare", 0, 0, 0, 0, b"")
_OFFERS_OTHERS: Final = 0.1
"""Part of the descriptions with which a process offers one assignor more, or less, than before."""

_MISCHIEF: Final = ("raises", "forgets", "reports", "hands in nonsense", "hangs")


class UserAssignor:
    """Makes the calls that one member asks for, one at a time, each some time later."""

    def __init__(self, consumer: SimulatedConsumer, *, observer: Observer, offers: random.Random | None) -> None:
        self._consumer = consumer
        self._observer = observer
        self.listens = bool(consumer.config.client_assignors)
        """There is one, and it is told of targets."""
        self._assignor = _Weighted()
        self._busy = False
        self._offers = offers
        self._spare = False
        """It offers another one, too, that nobody prefers."""
        self.asks = False
        """Its application wants another target, and the coordinator has not heard of it."""

    def call(self, effect: AssignorCall) -> None:
        """Run user code."""
        consumer, behaviour = self._consumer, self._behaviour
        if self._busy:
            fail("A1", f"{consumer.name}: two calls of the assignor at a time: {effect}")
        self._busy = True
        self._observer.assignor_called(consumer, effect)
        takes_ms = consumer.draw(*behaviour.assign_ms)
        mischief = None
        if behaviour.misbehaves and consumer.chance(behaviour.misbehaves):
            mischief = _MISCHIEF[consumer.draw(0, len(_MISCHIEF) - 1)]
        if mischief == "hangs":
            takes_ms = consumer.draw(1, 2 * consumer.config.assignor_timeout_ms)
        if mischief is not None and isinstance(effect, RunAssignor):
            consumer.note("assignor_misbehaves", how=mischief)
        consumer.later(takes_ms, lambda: self._return(effect, mischief))

    def request_reassignment(self) -> None:
        """The application asks for a new assignment."""
        self.asks = True
        self._consumer.awake(lambda: self._consumer.step(ReassignmentRequested(1)))

    @property
    def _behaviour(self) -> Behaviour:
        return self._consumer.application.behaviour

    def _return(self, effect: AssignorCall, mischief: str | None) -> None:
        self._busy = False
        if not self._consumer.closed:
            self._observer.assignor_returned(self._consumer, effect)
            self._consumer.step(self._answer(effect, mischief if self._behaviour.misbehaves else None))

    def _answer(self, effect: AssignorCall, mischief: str | None) -> MemberEvent:
        match effect:
            case DescribeAssignors(call_id=call_id):
                if self._behaviour.reweighs and self._consumer.chance(self._behaviour.reweighs):
                    self._assignor.weight = self._consumer.draw(0, _WEIGHT_MAX)
                offers = self._offers if self._behaviour.reweighs else None
                if offers is not None and offers.random() < _OFFERS_OTHERS:
                    self._spare = not self._spare
                described = (advertised(self._assignor), *((_SPARE,) if self._spare else ()))
                return AssignorsDescribed(described, call_id)
            case CallOnAssignment(call_id=call_id):
                return OnAssignmentDone(call_id)
            case RunAssignor(call_id=call_id):
                if mischief == "hands in nonsense":
                    return AssignorDone(call_id, (InstallMember("nobody", (), 0, b""),))
                self._assignor.mischief = mischief
                done, _ = compute([self._assignor], effect)
                return done
            case _:
                assert_never(effect)
