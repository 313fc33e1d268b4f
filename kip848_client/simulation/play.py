"""One scenario from one seed: members come, go, crash and stall while the network misbehaves; then everything heals.

First the safety phase: faults and actions, and every checker looks after every step. Then the liveness phase: no more
faults, and within a bounded virtual time the group must agree and everything must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.member.settings import MemberConfig, ResetPolicy
from kip848_client.member.states import MemberState
from kip848_client.model import Subscription
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.consumer import Behaviour, SimulatedConsumer
from kip848_client.simulation.consumer_checkers import (
    ExclusiveReading,
    GoneOwnNothing,
    LegalMoves,
    ListenerPairs,
    NoRecordLost,
    OneHeartbeat,
)
from kip848_client.simulation.coordinator_checkers import (
    Durability,
    EpochOrder,
    GroupStates,
    OwnAssertions,
    RevokeFirst,
    SingleOwner,
    SlowRevokers,
    TargetLegality,
    Withholding,
)
from kip848_client.simulation.faults import HEALTHY
from kip848_client.simulation.fencing_checkers import CommitFencing, HeartbeatFencing
from kip848_client.simulation.network import Network
from kip848_client.simulation.observer import Observers
from kip848_client.simulation.scenario import SCENARIOS, Scenario, differences
from kip848_client.simulation.violation import InvariantViolation, require
from kip848_client.simulation.world import World

GROUP: Final = "simulated"


@dataclass(frozen=True, slots=True)
class Report:
    """How a run went.

    Args:
        digest: of the whole history; equal for equal seeds.
        violation: the invariant that broke, or None.
        counts: how often each thing happened.
        handed_out_twice: records that more than one poll() returned.
        lines: the history, one JSON object each.
    """

    scenario: Scenario
    seed: int
    digest: str
    simulated_ms: int
    violation: InvariantViolation | None
    counts: Mapping[str, int]
    handed_out_twice: int
    lines: tuple[str, ...]

    @property
    def replay_command(self) -> str:
        """What plays this run again."""
        base = SCENARIOS.get(self.scenario.name, Scenario())
        changes = "".join(f" --set {change}" for change in differences(self.scenario, base))
        return f"kip848 simulate --scenario {self.scenario.name} --seed {self.seed}{changes}"


def run(scenario: Scenario, *, seed: int) -> Report:
    """Play *scenario* once.

    Returns:
        What happened; a broken invariant is in `Report.violation` and not raised.
    """
    play = _Play(scenario, seed)
    violation = None
    try:
        play.safety()
        play.liveness()
    except InvariantViolation as found:
        violation = found
    except AssertionError as found:
        # The cores assert what only a bug of theirs can break.
        violation = InvariantViolation("assertion", str(found) or repr(found))
        violation.__cause__ = found
    except Exception as found:  # noqa: BLE001  a core never raises: what happens is an event to it
        violation = InvariantViolation("exception", repr(found))
        violation.__cause__ = found
    history = play.world.history
    return Report(
        scenario,
        seed,
        history.digest,
        play.world.now_ms,
        violation,
        dict(sorted(history.counts.items())),
        play.rows.duplicates,
        tuple(history.lines),
    )


class _Play:
    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self.world = World(seed)
        self._rng = self.world.random("scenario")
        config = CoordinatorConfig(
            consumer_heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            consumer_session_timeout_ms=scenario.session_timeout_ms,
        )
        self._cluster = Cluster(self.world, config)
        self._network = Network(self.world, self._cluster)
        self._consumers: list[SimulatedConsumer] = []
        self._ended: set[SimulatedConsumer] = set()
        self._number = 0
        self._healed = False
        self.rows = NoRecordLost(self._cluster)
        consumers = lambda: self._consumers  # noqa: E731  the list grows
        self._observer = Observers(
            (
                SingleOwner(self._cluster),
                TargetLegality(self._cluster),
                EpochOrder(self._cluster),
                RevokeFirst(self._cluster),
                GroupStates(self._cluster),
                Withholding(self._cluster),
                HeartbeatFencing(self._cluster),
                Durability(self._cluster),
                CommitFencing(self._cluster),
                ExclusiveReading(self._cluster, consumers),
                ListenerPairs(),
                OneHeartbeat(),
                LegalMoves(),
                self.rows,
                GoneOwnNothing(self._cluster, consumers),
                SlowRevokers(self._cluster, self.world),
                OwnAssertions(self._cluster),
            ),
            version=lambda: self._cluster.version,
        )
        self._cluster.on_served = self._observer.served
        self._network.on_stale = self._observer.stale
        self._cluster.on_crash = self._coordinator_crashed
        self.world.after_step = self._observer.after_step

    # ----------------------------------------------------------------------------------------------------------- phases

    def safety(self) -> None:
        """Faults and actions."""
        scenario = self._scenario
        for topic, partitions in scenario.topics.items():
            self._cluster.create_topic(topic, partitions=partitions)
        for _ in range(scenario.members):
            self._join()
        self._network.faults = scenario.faults
        self._cluster.crash_after_append = scenario.coordinator_crashes_after_append
        self.world.call_in(0, self._produce)
        self.world.call_in(1_000, self._act)
        self.world.run_until(scenario.duration_ms)

    def liveness(self) -> None:
        """Everything heals, and then the group must come to rest."""
        self._healed = True
        self._network.faults = HEALTHY
        self._network.cut_off.clear()
        self._cluster.crash_after_append = 0.0
        self._cluster.restart()
        for consumer in self._consumers:
            consumer.behaviour = Behaviour()
        living = [consumer for consumer in self._living() if consumer not in self._ended]  # a frozen one closes later
        if living:
            # Whoever is left may want one topic only; somebody must want all, or not everything would be read.
            living[0].subscribe(self._subscription(everything=True))
        else:
            self._join()
        self.world.history.add(self.world.now_ms, "scenario", "healed")
        limit_ms = self.world.now_ms + self._scenario.heal_ms
        rested = self.world.run_until(limit_ms, done=self._rests)
        require(rested, "L1", f"the group does not come to rest in {self._scenario.heal_ms} ms: {self._picture()}")
        self._observer.converged()

    def _rests(self) -> bool:
        living = self._living()
        if not self.rows.complete or any(consumer.member.view().state is not MemberState.STABLE for consumer in living):
            return False
        picture = self._cluster.picture(GROUP)
        if picture is None or len(picture.group.members) != len(living):
            return False
        group = picture.group
        if group.group_epoch != group.target_epoch:
            return False
        for consumer in living:
            seen = consumer.member.snapshot()
            if seen.live_epoch != group.group_epoch or seen.target != picture.targets.get(seen.member_id):
                return False
            if len(seen.readable) != len(seen.target):
                return False
        ends = self._cluster.end_offsets
        read = {partition for consumer in living for partition in consumer.readable}
        wanted = {partition for partition in ends if partition.topic in group.subscribed_topics}
        return read == wanted == set(ends)

    def _picture(self) -> str:
        return "; ".join(
            f"{consumer.name} {consumer.member.snapshot().phase.name}@{consumer.member.snapshot().live_epoch}"
            for consumer in self._living()
        )

    # ---------------------------------------------------------------------------------------------------------- actions

    def _produce(self) -> None:
        if not self._healed:
            self._cluster.produce()
            self.world.call_in(self._rng.randint(5, 100), self._produce)

    def _act(self) -> None:
        """Once a virtual second: each action with its rate."""
        if self._healed:
            return
        scenario, rng = self._scenario, self._rng
        living = self._living()
        if rng.random() < scenario.joins and len(living) < scenario.members_max:
            self._join()
        if living and rng.random() < scenario.leaves:
            self._end(rng.choice(living), SimulatedConsumer.close)
        if living and rng.random() < scenario.crashes:
            self._end(rng.choice(living), SimulatedConsumer.crash)
        if living and rng.random() < scenario.cuts:
            self._cut(rng.choice(living))
        if living and rng.random() < scenario.resubscriptions:
            rng.choice(living).subscribe(self._subscription())
        if scenario.freezes and living and rng.random() < scenario.freezes:
            rng.choice(living).freeze(rng.randint(500, 2 * scenario.session_timeout_ms))
        if rng.random() < scenario.growths:
            self._cluster.add_partitions(rng.choice(sorted(scenario.topics)), count=rng.randint(1, 2))
        if rng.random() < scenario.coordinator_crashes:
            self._cluster.crash()
        self.world.call_in(1_000, self._act)

    def _join(self, *, instance_id: str | None = None) -> None:
        self._number += 1
        name = f"consumer-{self._number}"
        scenario = self._scenario
        if instance_id is None and scenario.statics and self._rng.random() < scenario.statics:
            instance_id = f"instance-{self._number}"
        config = MemberConfig(
            group_id=GROUP,
            member_id=f"member-{self._number}",
            instance_id=instance_id,
            max_poll_interval_ms=scenario.max_poll_interval_ms,
            rebalance_timeout_ms=scenario.max_poll_interval_ms,
            auto_offset_reset=ResetPolicy.EARLIEST,
            auto_commit_interval_ms=self._rng.choice([None, 1_000]),
            # A process that comes back after a crash waits for the session of its former self to end.
            unreleased_instance_retry_ms=scenario.duration_ms + scenario.heal_ms,
        )
        consumer = SimulatedConsumer(
            name,
            world=self.world,
            network=self._network,
            cluster=self._cluster,
            config=config,
            behaviour=scenario.behaviour if not self._healed else Behaviour(),
            observer=self._observer,
        )
        self._consumers.append(consumer)
        details = {} if instance_id is None else {"instance_id": instance_id}
        self.world.history.add(self.world.now_ms, name, "started", **details)
        consumer.start(self._subscription(everything=self._number == 1 or self._healed))

    def _subscription(self, *, everything: bool = False) -> Subscription:
        topics = sorted(self._scenario.topics)
        wanted = topics if everything else self._rng.sample(topics, self._rng.randint(1, len(topics)))
        if self._scenario.patterns and self._rng.random() < self._scenario.patterns:
            return Subscription(pattern="|".join(sorted(wanted)))
        return Subscription(frozenset(wanted))

    def _end(self, consumer: SimulatedConsumer, how: Callable[[SimulatedConsumer], None]) -> None:
        if consumer not in self._ended:
            self._ended.add(consumer)
            how(consumer)
            self._bounce(consumer)

    def _bounce(self, consumer: SimulatedConsumer) -> None:
        """A static member went: its process is started again, soon or after its session."""
        instance_id = consumer.config.instance_id
        if instance_id is not None and not self._healed:
            self.world.call_in(
                self._rng.randint(100, 2 * self._scenario.session_timeout_ms),
                lambda: None if self._healed else self._join(instance_id=instance_id),
            )

    def _cut(self, consumer: SimulatedConsumer) -> None:
        """The network is gone for one consumer, for less or more than a session."""
        name = consumer.name
        self._network.cut_off.add(name)
        self.world.history.add(self.world.now_ms, name, "cut_off")
        self.world.call_in(
            self._rng.randint(500, 2 * self._scenario.session_timeout_ms), lambda: self._network.cut_off.discard(name)
        )

    def _coordinator_crashed(self) -> None:
        ended = self._network.drop_all("the coordinator died")
        for consumer in self._living():
            if any(connection.client_id == consumer.name for connection in ended):
                self.world.call_in(0, consumer.disconnected)
        self.world.call_in(self._rng.randint(50, 5_000), self._cluster.restart)

    def _living(self) -> list[SimulatedConsumer]:
        return [consumer for consumer in self._consumers if not consumer.closed]
