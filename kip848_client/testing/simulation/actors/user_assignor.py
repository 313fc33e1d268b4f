"""The client-side assignor of one simulated process: user code that takes time, changes its metadata, and misbehaves.

Its results pass the production check (`member.core.assignor_values`), on the virtual clock. Until the faults end it may
raise, return nonsense, report errors, install an assignment that the check refuses, and exceed its limit.

Does not own: the member's reaction (`member.consumer.assignor_round`).
"""

from __future__ import annotations

import random
from typing import Final, assert_never

from kip848_client.assignors.client.classic import ClassicRange, CooperativeSticky, RoundRobin
from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.client.spread import spread_by_weight
from kip848_client.config.assignors import is_cooperative
from kip848_client.member.core.assignor_events import (
    AssignorCall,
    AssignorDone,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.core.assignor_values import advertised, compute
from kip848_client.member.core.events import MemberEvent
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.scenario import Behaviour
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember

_WEIGHT_MAX: Final = 3


class _Weighted(PartitionAssignor):
    """Spreads partitions by the members' weights, or misbehaves once if told to."""

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


class _Moody(_Weighted):
    """Plans by something else than the group, such as the lag: two calls for one group give two plans."""

    name = "moody"
    mood = 0

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        order = random.Random(self.mood).sample(list(spec.members), len(spec.members))
        plan = AssignmentPlan(spec)
        for partition in plan.unassigned:
            plan.give(
                partition, min(plan.may_take(partition), key=lambda taker: (plan.count(taker), order.index(taker)))
            )
        return plan.to_assignment()


OFFERED: Final[tuple[Assignor, ...]] = (advertised(_Weighted()),)
"""The assignors that a process offers when it joins."""

_OWN: Final[dict[str, type[_Weighted]]] = {_Weighted.name: _Weighted, _Moody.name: _Moody}
_BUILT_IN: Final = {one.name: one for one in (ClassicRange(), RoundRobin(), CooperativeSticky())}

STRATEGIES: Final = (
    (("range",),),
    (("roundrobin", "range"), ("range",)),
    (("cooperative-sticky",),),
    (("cooperative-sticky",), ("range", "cooperative-sticky")),
    ((_Weighted.name,),),
    ((_Weighted.name, "range"),),
    ((_Moody.name,),),
)
"""Names of assignors on the classic protocol: one element is drawn for a group, one of its tuples for each process."""


def offered_classic(names: tuple[str, ...]) -> tuple[tuple[Assignor, ...], bool]:
    """The assignors of these names as a process offers them, and whether it keeps its partitions while it joins."""
    assignors = tuple(_BUILT_IN.get(name) or _OWN[name]() for name in names)
    return tuple(map(advertised, assignors)), is_cooperative(assignors)


_MISCHIEF: Final = ("raises", "forgets", "reports", "hands in nonsense", "hangs")


class UserAssignor:
    """Makes the assignor calls of one member, one at a time, each after a delay."""

    def __init__(self, consumer: ClientProcess) -> None:
        self._consumer = consumer
        self.listens: bool = any(one.name not in _BUILT_IN for one in consumer.config.client_assignors)
        """The process has an assignor of its own, which hears of new targets."""
        own = [one.name for one in consumer.config.client_assignors if one.name in _OWN]
        self._assignor: Final = _OWN[own[0]]() if own else _Weighted()
        self._busy = False
        self._last_call_id = 0
        self.asks: bool = False
        """The application asked for a reassignment that the coordinator does not know of yet."""

    def call(self, effect: AssignorCall) -> None:
        """Run user code."""
        consumer, behaviour = self._consumer, self._behaviour
        if self._busy:
            fail("A1", f"{consumer.name}: two calls of the assignor at a time: {effect}")
        self._busy = True
        if effect.call_id <= self._last_call_id:
            fail("A1", f"{consumer.name}: call {effect.call_id} of the assignor has an earlier number: {effect}")
        self._last_call_id = effect.call_id
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
        self.asks = not self._consumer.is_classic
        self._consumer.awake(lambda: self._consumer.step(ReassignmentRequested(1)))

    @property
    def _behaviour(self) -> Behaviour:
        return self._consumer.behaviour

    def _return(self, effect: AssignorCall, mischief: str | None) -> None:
        self._busy = False
        if not self._consumer.closed:
            self._consumer.step(self._answer(effect, mischief if self._behaviour.misbehaves else None))

    def _answer(self, effect: AssignorCall, mischief: str | None) -> MemberEvent:
        match effect:
            case DescribeAssignors(call_id=call_id):
                if self._behaviour.reweighs and self._consumer.chance(self._behaviour.reweighs):
                    self._assignor.weight = self._consumer.draw(0, _WEIGHT_MAX)
                names = [assignor.name for assignor in self._consumer.config.client_assignors]
                described = tuple(advertised(_BUILT_IN.get(name) or self._assignor) for name in names)
                return AssignorsDescribed(described, call_id)
            case CallOnAssignment(call_id=call_id):
                return OnAssignmentDone(call_id)
            case RunAssignor(call_id=call_id):
                if mischief == "hands in nonsense":
                    return AssignorDone(call_id, (InstallMember("nobody", (), 0, b""),))
                self._assignor.mischief = mischief
                if isinstance(self._assignor, _Moody):
                    self._assignor.mood = self._consumer.draw(0, 1_000)
                done, _ = compute([self._assignor, *_BUILT_IN.values()], effect)
                return done
            case _:
                assert_never(effect)
