"""The client-side assignor of one simulated process: user code that takes time, changes its metadata, and misbehaves.

Its results pass the production check (`member.assignor_values`), on the virtual clock. Until the faults end it may
raise, return nonsense, report errors, install an assignment that the check refuses, and exceed its limit.

Does not own: the member's reaction (`member.assignor_round`).
"""

from __future__ import annotations

import random
from typing import Final, assert_never

from kip848_client.assignors.classic import ClassicRange, CooperativeSticky, RoundRobin
from kip848_client.assignors.interface import AssignmentSpec, AssignorMetadata, GroupAssignment, PartitionAssignor
from kip848_client.assignors.spread import spread_by_weight
from kip848_client.config.assignors import is_cooperative
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
from kip848_client.simulation.process import Process
from kip848_client.simulation.scenario import Behaviour
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember

_WEIGHT_MAX: Final = 3


class _Weighted(PartitionAssignor):
    """Spreads partitions by the members' weights, or misbehaves once if told to.

    Args:
        reads: the lowest and the highest version that it reads.
        writes: one of these.
    """

    name = "weighted"

    def __init__(self, *, reads: tuple[int, int] = (0, 0), writes: int = 0) -> None:
        self.minimum_version, self.maximum_version = reads
        self.writes = writes
        self.weight = 1
        self.mischief: str | None = None
        self.shown: AssignmentSpec | None = None
        """The group of its last call."""

    def metadata(self) -> AssignorMetadata:
        return AssignorMetadata(str(self.weight).encode(), version=self.writes)

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        self.shown = spec
        match self.mischief:
            case "raises":
                raise RuntimeError("the assignor raised")
            case "forgets":
                return GroupAssignment()
            case "reports":
                return GroupAssignment(error=7)
            case _:
                return spread_by_weight(spec, lambda member: int(member.metadata))


class _Spare(_Weighted):
    """A second assignor, which has a single version."""

    name = "spare"


_UPGRADES: Final = (((0, 0), (0, 1)), ((0, 1), (1, 1)))
"""Versions that the older and the newer processes read, in the two halves of an upgrade."""
_OFFERS_SPARE: Final = 0.3


def offered(rng: random.Random, *, upgrade: int) -> tuple[Assignor, ...]:
    """The first offer of a process in a group that is being upgraded.

    Args:
        upgrade: 0 or 1, the same for all processes: the half of the upgrade. In both halves every metadata version is
        read by some members, so that no join is refused.
    """
    reads = rng.choice(_UPGRADES[upgrade])
    found = [advertised(_Weighted(reads=reads, writes=rng.randint(*reads)))]
    if rng.random() < _OFFERS_SPARE:
        found.insert(rng.randint(0, 1), advertised(_Spare()))
    return tuple(found)


OFFERED: Final[tuple[Assignor, ...]] = (advertised(_Weighted()),)
"""The first offer of a process in a group that is not being upgraded."""

_BUILT_IN: Final = {one.name: one for one in (ClassicRange(), RoundRobin(), CooperativeSticky())}

STRATEGIES: Final = (
    (("range",),),
    (("roundrobin", "range"), ("range",)),
    (("cooperative-sticky",),),
    (("cooperative-sticky",), ("range", "cooperative-sticky")),
    ((_Weighted.name,),),
    ((_Weighted.name, "range"),),
)
"""What processes on the classic protocol offer, by name: one of these for a group, and one of its parts for each."""


def offered_classic(names: tuple[str, ...]) -> tuple[tuple[Assignor, ...], bool]:
    """What a process on the classic protocol offers at first, and whether it keeps its partitions while it joins."""
    assignors = tuple(_BUILT_IN.get(name) or _Weighted() for name in names)
    return tuple(map(advertised, assignors)), is_cooperative(assignors)


_OFFERS_OTHERS: Final = 0.1
"""Probability that a process changes how many assignors it offers, per description."""

_MISCHIEF: Final = ("raises", "forgets", "reports", "hands in nonsense", "hangs")


class UserAssignor:
    """Makes the assignor calls of one member, one at a time, each after a delay."""

    def __init__(self, consumer: Process, *, observer: Observer, offers: random.Random | None) -> None:
        self._consumer = consumer
        self._observer = observer
        self.listens = any(one.name not in _BUILT_IN for one in consumer.config.client_assignors)
        """The process has an assignor of its own, which is told of targets."""
        self._assignor, self._spare = _weighted_of(consumer.config.client_assignors), _Spare()
        self._busy = False
        self._last_call_id = 0
        self._offers = offers
        names = [assignor.name for assignor in consumer.config.client_assignors]
        self._offers_spare = self._spare.name in names
        self._spare_rank = 1 if offers is None else offers.randint(0, 1)
        if self._offers_spare:
            self._spare_rank = names.index(self._spare.name)  # the first description is what was offered
        self.asks = False
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
        if isinstance(effect, RunAssignor):
            self._check_versions(effect)
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

    def _check_versions(self, effect: RunAssignor) -> None:
        """A5: the member that computes the target can read the metadata of all members."""
        snapshot = effect.snapshot
        name = snapshot.assignor_name
        assignor = self._spare if name == self._spare.name else _BUILT_IN.get(name, self._assignor)
        for member in snapshot.members:
            version = member.assignor.metadata_version
            if not assignor.minimum_version <= version <= assignor.maximum_version:
                fail(
                    "A5",
                    f"{self._consumer.name} reads {assignor.minimum_version} to {assignor.maximum_version} of "
                    f"{assignor.name}, and is to compute with version {version} of {member.member_id}",
                )

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
            self._observer.assignor_returned(self._consumer, effect)
            answer = self._answer(effect, mischief if self._behaviour.misbehaves else None)
            if isinstance(answer, AssignorsDescribed) and mischief != "hangs":
                self._observer.assignor_described(self._consumer, answer.assignors)
            self._consumer.step(answer)

    def _answer(self, effect: AssignorCall, mischief: str | None) -> MemberEvent:
        match effect:
            case DescribeAssignors(call_id=call_id):
                if self._behaviour.reweighs and self._consumer.chance(self._behaviour.reweighs):
                    self._assignor.weight = self._consumer.draw(0, _WEIGHT_MAX)
                offers = self._offers if self._behaviour.reweighs else None
                if offers is not None:
                    self._assignor.writes = offers.randint(
                        self._assignor.minimum_version, self._assignor.maximum_version
                    )
                    if offers.random() < _OFFERS_OTHERS:
                        self._offers_spare = not self._offers_spare
                described: list[PartitionAssignor] = [self._assignor]
                if self._consumer.is_classic:
                    named = (assignor.name for assignor in self._consumer.config.client_assignors)
                    described = [_BUILT_IN.get(name) or self._assignor for name in named]
                if self._offers_spare:
                    described.insert(self._spare_rank, self._spare)
                return AssignorsDescribed(tuple(advertised(assignor) for assignor in described), call_id)
            case CallOnAssignment(call_id=call_id):
                return OnAssignmentDone(call_id)
            case RunAssignor(call_id=call_id):
                if mischief == "hands in nonsense":
                    return AssignorDone(call_id, (InstallMember("nobody", (), 0, b""),))
                self._assignor.mischief = self._spare.mischief = mischief
                done, _ = compute([self._assignor, self._spare, *_BUILT_IN.values()], effect)
                for assignor in (self._assignor, self._spare):
                    if effect.snapshot.assignor_name == assignor.name:
                        _check_shown(effect, assignor.shown)
                return done
            case _:
                assert_never(effect)


def _check_shown(call: RunAssignor, shown: AssignmentSpec | None) -> None:
    """A5: the user's code gets the group as the coordinator described it."""
    topics = {topic.topic_id: topic for topic in call.snapshot.topics}
    wanted = {
        member.member_id: (
            sorted(topics[topic_id].topic_name for topic_id in member.subscribed_topic_ids if topic_id in topics),
            (member.assignor.metadata_bytes, member.assignor.metadata_version, member.assignor.reason),
            {
                (held.topic_id, index)
                for held in member.topic_partitions
                for index in held.partitions
                if held.topic_id in topics and index < topics[held.topic_id].num_partitions
            },
            (member.member_epoch, member.instance_id, member.rack_id),
        )
        for member in call.snapshot.members
    }
    found = {
        member_id: (
            list(member.subscribed_topics),
            (member.metadata, member.version, member.reason),
            {(tip.topic_id, tip.partition) for tip in member.target},
            (member.member_epoch, member.instance_id, member.rack_id),
        )
        for member_id, member in ({} if shown is None else shown.members).items()
    }
    counts = {topic.topic_name: topic.num_partitions for topic in topics.values()}
    if found != wanted or {name: topic.partition_count for name, topic in shown.topics.items()} != counts:  # type: ignore[union-attr]
        fail("A5", f"an assignor is shown {shown}, and the group is {call.snapshot}")


def _weighted_of(first: tuple[Assignor, ...]) -> _Weighted:
    """The assignor of the first offer."""
    for one in first:
        if one.name == _Weighted.name:
            return _Weighted(reads=(one.minimum_version, one.maximum_version), writes=one.metadata_version)
    return _Weighted()
