"""Members of other clients in the group that a run has made: what our own member never says, and others may.

Clients of other makers say what they own in every heartbeat, or only when it changed; give up partitions one after
another; lose answers; come back under a known id with another subscription, an instance id, or none; commit with the
epoch before. Here another coordinator reads the log of the run, and such members walk through its group, while topics
come and go and the coordinator crashes. The checkers of the coordinator look on. Nothing of it comes back to the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.simulation.checkers.fencing import HeartbeatFencing, OffsetFencing, Removals
from kip848_client.testing.simulation.checkers.ownership import (
    Durability,
    EpochOrder,
    GroupStates,
    OwnAssertions,
    RevokeFirst,
    SingleOwner,
    TargetLegality,
)
from kip848_client.testing.simulation.observed_group import IdPartition, ObservedGroup
from kip848_client.testing.simulation.observer import Checker, HandedOut, Observers, RunState
from kip848_client.testing.simulation.virtual.cluster import VirtualCluster, compact
from kip848_client.testing.simulation.virtual.scenario import QUIET
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.topics import Topics
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.schema import Request, Response
from tests.simulation.probes.logs import ReplayedLogs

_STEPS: Final = 60
_MEMBERS_MAX: Final = 6
_TOPICS: Final = ("orders", "audit", "clicks", "another")
_PATTERNS: Final = ("orders", "audit|clicks", "a.*", ".*", "nobody's.*")
_ROUNDS: Final = 12
"""Heartbeats of everybody after which a group rests."""
_LOST: Final = 0.08
"""Of the answers, those that do not arrive."""
_ODD_SEED: Final = 1_000_003


_CHECKERS: Final[tuple[type[Checker], ...]] = (
    SingleOwner,
    TargetLegality,
    EpochOrder,
    RevokeFirst,
    GroupStates,
    HeartbeatFencing,
    Durability,
    OffsetFencing,
    Removals,
    OwnAssertions,
    ReplayedLogs,
)


class ForeignWalk(Checker):
    """All that holds of the coordinator holds with members of other clients, too."""

    def converged(self) -> None:
        """Walk."""
        walk = _Walk(
            self._cluster, self._scene.config, group_id=self._observed_group.group_id, seed=self._scheduler.seed
        )
        for _ in range(_STEPS):
            walk.step()
        walk.end()


class _Foreign:
    """A member of another client: what it knows of itself."""

    def __init__(self, member_id: str, *, instance_id: str | None) -> None:
        self.member_id: Final = member_id
        self.instance_id = instance_id
        self.names: tuple[str, ...] = ()
        self.pattern: str | None = None
        self.limit_ms = 0
        self.epoch = 0
        self.owned: set[IdPartition] = set()
        self.given: set[IdPartition] = set()
        self.said: set[IdPartition] | None = None
        """What the coordinator heard that it owns, if that is sure."""
        self.away = False

    def forget(self) -> None:
        """It is no member any more, and has nothing."""
        self.epoch = 0
        self.owned, self.given, self.said = set(), set(), None


class _Walk:
    """One walk."""

    def __init__(self, cluster: VirtualCluster, config: CoordinatorConfig, *, group_id: str, seed: int) -> None:
        self._group_id = group_id
        self._scheduler = scheduler = Scheduler(seed * _ODD_SEED + 1, keep_history=False)
        self._rng = rng = scheduler.random("foreign")
        scenario = replace(QUIET, replication_ms=rng.choice((0, 0, 50)), purity=0.1, compaction=0.5)
        self._cluster = own = VirtualCluster(scheduler, config, scenario)
        _copy(cluster.topics, into=own.topics)
        own.log = compact(cluster.log)
        own.durable = len(own.log)
        own.crash()
        own.restart()
        self._session_ms = config.consumer_session_timeout_ms
        handed_out = HandedOut(own.topics)
        run_state = RunState(
            scheduler,
            own,
            ObservedGroup(own, group_id),
            scenario,
            config,
            handed_out,
            consumers=lambda: (),
            probing=True,
        )
        self._observers = Observers((checker(run_state) for checker in _CHECKERS), run_state)
        own.on_served = self._observers.served
        own.on_loaded = self._observers.loaded
        scheduler.after_step = self._observers.after_step
        self._members: list[_Foreign] = []
        self._number = 0
        self._calm = False
        for name in _TOPICS:
            if name not in own.topics.image.by_name:
                own.topics.create(name, partitions=2)
        self._adopt()

    def _adopt(self) -> None:
        """Members that there are go on as members of other clients."""
        group = self._cluster.coordinator.group(self._group_id)
        for member in [] if group is None else group.members.values():
            foreign = _Foreign(member.member_id, instance_id=member.metadata.instance_id)
            foreign.names = member.metadata.subscribed_topic_names
            foreign.pattern = member.metadata.subscribed_topic_regex
            foreign.limit_ms = member.metadata.rebalance_timeout_ms
            foreign.epoch, foreign.away = max(0, member.current.member_epoch), member.current.member_epoch < 0
            held = (member.current.assigned, member.current.pending_revocation)
            foreign.owned = {(topic_id, index) for some in held for topic_id, found in some.items() for index in found}
            foreign.given = {(topic_id, index) for topic_id, found in held[0].items() for index in found}
            self._members.append(foreign)
            if member.metadata.client_assignors:
                foreign.forget()  # a member that joins without an assignor has none

    def step(self) -> None:
        """Let some time pass, and one member act."""
        wait_ms = self._rng.choice((1, 5, 20, 300))
        self._scheduler.call_in(wait_ms, self._act)
        self._run(wait_ms)

    def end(self) -> None:
        """Whatever holds at the end."""
        self._calm = True
        self._cluster.restart()
        rounds, until_ms = 0, self._scheduler.now_ms + 2 * self._session_ms
        while rounds < _ROUNDS or self._scheduler.now_ms < until_ms:
            rounds += 1
            self._run(100)
            for member in [member for member in self._members if not member.away]:
                self._scheduler.call_in(1, lambda member=member: self._beats(member))  # type: ignore[misc]
                self._run(10)
        self._observers.converged()

    def _run(self, for_ms: int) -> None:
        self._scheduler.run_until(self._scheduler.now_ms + for_ms)

    # --- actions

    def _act(self) -> None:
        rng = self._rng
        if not self._cluster.up:
            self._cluster.restart()
            return
        present = [member for member in self._members if not member.away]
        if not present or (len(self._members) < _MEMBERS_MAX and rng.random() < 0.15):
            self._joins()
            return
        member = rng.choice(present)
        actions: tuple[Callable[[_Foreign], None], ...] = (
            *(self._beats,) * 10,
            self._wants,
            self._leaves,
            self._is_another,
            self._commits,
            self._strays,
        )
        roll = rng.random()
        if roll < 0.04:
            self._cluster.crash()
        elif roll < 0.1:
            self._topics()
        else:
            rng.choice(actions)(member)

    def _joins(self) -> None:
        """A new member, or a static one that is back under another id."""
        rng = self._rng
        self._number += 1
        away = [member for member in self._members if member.away]
        former = rng.choice(away) if away and rng.random() < 0.7 else None
        member = _Foreign(f"foreign-{self._number}", instance_id=None)
        if former is not None:
            self._members.remove(former)
            member.instance_id = former.instance_id
        elif rng.random() < 0.4:
            member.instance_id = f"of foreign-{self._number}"
        self._members.append(member)
        self._subscribe(member)
        self._beats(member)

    def _subscribe(self, member: _Foreign) -> None:
        topics = sorted(topic.name for topic in self._cluster.topics.image.topics)
        member.names = tuple(sorted(self._rng.sample(topics, self._rng.randint(0, len(topics)))))
        if self._rng.random() < 0.3:
            member.names = ()
        member.pattern = self._rng.choice(_PATTERNS) if not member.names or self._rng.random() < 0.2 else None

    def _wants(self, member: _Foreign) -> None:
        self._subscribe(member)
        self._beats(member, subscribes=True)

    def _beats(self, member: _Foreign, *, subscribes: bool = False) -> None:
        """It gives up some of what it shall not have, takes what it is given, and says so, or not."""
        rng = self._rng
        member.owned -= self._some(member.owned - member.given, all_of_it=0.3)
        member.owned |= self._some(member.given - member.owned, all_of_it=0.8)
        joins = not member.epoch
        if joins:
            member.owned, member.given = set(), set()
        if joins:
            member.limit_ms = rng.choice((500, 2_000))
        repeats = joins or member.said is None  # an assignment that was lost is said again only to who says everything
        full = repeats or member.said != member.owned or rng.random() < 0.3
        subscribes = subscribes or repeats or (full and rng.random() < 0.5)
        said = set(member.owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            instance_id=member.instance_id if joins or rng.random() < 0.7 else None,
            rebalance_timeout_ms=member.limit_ms if repeats else -1,
            subscribed_topic_names=member.names if subscribes else None,
            subscribed_topic_regex=(member.pattern or "") if subscribes else None,
            topic_partitions=_to_wire(member.owned) if full else None,
        )
        response = self._ask(request, member)
        if response is None or (not self._calm and rng.random() < _LOST):
            member.said = None
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            member.forget()
            return
        member.epoch = response.member_epoch
        member.said = said if full else member.said
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            member.given = {(topic.topic_id, index) for topic in topics for index in topic.partitions}

    def _some(self, partitions: set[IdPartition], *, all_of_it: float) -> set[IdPartition]:
        if self._calm or self._rng.random() < all_of_it:
            return partitions
        return set(self._rng.sample(sorted(partitions), self._rng.randint(0, len(partitions))))

    def _leaves(self, member: _Foreign) -> None:
        """For good, for a while, or by falling silent."""
        roll = self._rng.random()
        if roll < 0.3:
            self._members.remove(member)
            return
        for_a_while = member.instance_id is not None and roll < 0.8
        self._ask(
            ConsumerGroupHeartbeatRequest(
                self._group_id, member.member_id, -2 if for_a_while else -1, instance_id=member.instance_id
            ),
            member,
        )
        member.forget()
        member.away = for_a_while
        if not for_a_while:
            self._members.remove(member)

    def _is_another(self, member: _Foreign) -> None:
        """It joins again under its id: as a static member, as none, or as another one."""
        member.forget()
        member.instance_id = self._rng.choice((None, member.instance_id, f"again of {member.member_id}"))
        self._subscribe(member)
        self._beats(member)

    def _strays(self, member: _Foreign) -> None:
        """An epoch that it does not have, or partitions that are not its own."""
        epoch = max(1, member.epoch + self._rng.choice((-1, 0, 1)))
        others = [item for other in self._members for item in sorted(other.owned)]
        owned = set(self._rng.sample(others, min(len(others), 2)))
        request = ConsumerGroupHeartbeatRequest(
            self._group_id, member.member_id, epoch, member.instance_id, topic_partitions=_to_wire(owned)
        )
        response = self._ask(request, member)
        if isinstance(response, ConsumerGroupHeartbeatResponse) and response.error_code:
            member.forget()
        else:
            member.said = None

    def _commits(self, member: _Foreign) -> None:
        owned = sorted(member.owned | member.given)
        by_id = self._cluster.topics.image.by_id
        topics = tuple(
            OffsetCommitRequestTopic(
                by_id[topic_id].name, topic_id, (OffsetCommitRequestPartition(index, self._rng.randint(0, 50)),)
            )
            for topic_id, index in owned[: self._rng.randint(0, 3)]
            if topic_id in by_id
        )
        epoch = max(0, member.epoch + self._rng.choice((-1, 0, 0, 1)))
        request = OffsetCommitRequest(self._group_id, epoch, member.member_id, member.instance_id, topics=topics)
        if topics:
            self._ask(request, member, api_version=10)

    def _topics(self) -> None:
        """An administrator creates, deletes, or lets grow."""
        topics, rng = self._cluster.topics, self._rng
        names = sorted(topic.name for topic in topics.image.topics)
        roll = rng.random()
        if roll < 0.4 and names:
            topics.grow(rng.choice(names), count=1)
        elif roll < 0.6 and len(names) > 1:
            topics.delete(rng.choice(names))
        else:
            missing = [name for name in _TOPICS if name not in names]
            if missing:
                topics.create(rng.choice(missing), partitions=rng.randint(1, 3))

    def _ask(self, request: Request[Any], member: _Foreign, *, api_version: int = 1) -> Response | None:
        answers: list[Response] = []
        host = self._cluster.host
        host.serve(request, api_version=api_version, client_id=member.member_id, reply=answers.append)
        return answers[0] if answers else None


def _copy(topics: Topics, *, into: Topics) -> None:
    """Let one cluster have the topics of another one."""
    into.end_offsets = dict(topics.end_offsets)
    into.names.update(topics.names)
    into.image = topics.image
    into.on_change()


def _to_wire(partitions: set[IdPartition]) -> tuple[TopicPartitions, ...]:
    by_id: dict[Any, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_id.setdefault(topic_id, []).append(index)
    return tuple(TopicPartitions(topic_id, tuple(found)) for topic_id, found in by_id.items())
