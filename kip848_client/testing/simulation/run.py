"""One scenario from one seed: members come, go, crash and stall while the network misbehaves; then everything heals.

First the safety phase: faults and actions, and every checker looks after every step. Then the liveness phase: no more
faults, and within a bounded virtual time the group must agree and everything must be read. Then trials: one healthy
change at a time, each with a time limit of its own (`trials`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from kip848_client.testing.faults import Rule
from kip848_client.testing.simulation.actions import Actions
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer, UserCode
from kip848_client.testing.simulation.actors.simulated_queue import play_queue
from kip848_client.testing.simulation.actors.simulated_queue_members import play_queue_members
from kip848_client.testing.simulation.actors.simulated_workers import play_workers
from kip848_client.testing.simulation.checkers import every_checker
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.observer import Watch
from kip848_client.testing.simulation.trials import Trials
from kip848_client.testing.simulation.virtual.history import History
from kip848_client.testing.simulation.virtual.scenario import (
    CHURN,
    SCENARIOS,
    Behaviour,
    Scenario,
    differences,
    settled,
)
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.violation import InvariantViolation, fail

_TOGETHER: Final = 0.3
"""Part of the runs in which members of the healthy group hand over together at the end."""


class Report(msgspec.Struct, frozen=True):
    """How a run went.

    Args:
        scenario: its numbers are those that were played.
        violation: the invariant that broke, or None.
        events: messages delivered, timers that were due, and actions of applications, administrators and faults.
        handed_out_twice: records that more than one poll() returned.
    """

    scenario: Scenario
    seed: int
    simulated_ms: int
    violation: InvariantViolation | None
    events: int
    handed_out_twice: int
    history: History

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each thing happened."""
        return dict(sorted(self.history.counts.items()))

    @property
    def lines(self) -> tuple[str, ...]:
        """The history, one JSON object each."""
        return self.history.lines

    @property
    def digest(self) -> str:
        """Digest of the whole history; equal for equal seeds."""
        return self.history.digest

    @property
    def replay_command(self) -> str:
        """The command that plays this run again, without the application and the fault rules that `run` was given."""
        name = self.scenario.name if self.scenario.name in SCENARIOS else CHURN.name
        base = settled(SCENARIOS[name], seed=self.seed)
        changes = "".join(f" --set {shlex.quote(change)}" for change in differences(self.scenario, base))
        return f"kip848 simulate --scenario {name} --seed {self.seed}{changes}"


def run(
    scenario: Scenario,
    *,
    seed: int,
    application: Callable[[str], UserCode] | None = None,
    rules: Iterable[Rule] = (),
    watch: Iterable[Watch] = (),
    keep_history: bool = True,
) -> Report:
    """Run *scenario* once.

    Args:
        application: makes your own listener for the consumer of that name; see `UserCode`.
        rules: fault rules for single requests, as the embedded broker takes them; they end with the safety phase.
        watch: makes more observers, beside the checkers of `checkers`; see `observer`. Runs of workers and of share
            groups take none.
        keep_history: False keeps counts only, for runs that are long.

    Returns:
        The report; a broken invariant is in `Report.violation` and not raised.
    """
    scenario = settled(scenario, seed=seed)
    read_twice = 0
    if scenario.units:
        scheduler = Scheduler(seed, keep_history=keep_history)
        violation = _broken(lambda: play_workers(scenario, scheduler))
    elif scenario.jobs:
        scheduler = Scheduler(seed, keep_history=keep_history)
        play_jobs = play_queue_members if scenario.leaders else play_queue
        violation = _broken(lambda: play_jobs(scenario, scheduler))
    else:
        watch = (every_checker, *watch)
        environment = ConsumerEnvironment(
            scenario, seed=seed, watch=watch, user_code=application, keep_history=keep_history
        )
        for rule in rules:
            environment.network.add_rule(rule)
        scheduler, play = environment.scheduler, RunPhases(environment)
        violation = _broken(play.phases)
        read_twice = environment.handed_out.duplicates
    return Report(
        scenario=scenario,
        seed=seed,
        simulated_ms=scheduler.now_ms,
        violation=violation,
        events=scheduler.events,
        handed_out_twice=read_twice,
        history=scheduler.history,
    )


def _broken(play: Callable[[], None]) -> InvariantViolation | None:
    """Run *play*, and return the invariant that broke."""
    try:
        play()
    except InvariantViolation as found:
        return found
    except Exception as found:  # noqa: BLE001  a core never raises: what happens is an event to it
        # The cores assert what only a bug of theirs can break; so may a user's listener.
        kind = "assertion" if isinstance(found, AssertionError) else "exception"
        violation = InvariantViolation(kind, str(found) if kind == "assertion" and str(found) else repr(found))
        violation.__cause__ = found
        return violation
    return None


class RunPhases:
    """The phases of one run with consumers."""

    def __init__(self, environment: ConsumerEnvironment) -> None:
        self._environment = environment
        self._rng = environment.scheduler.random("play")
        self._wants_all: SimulatedConsumer | None = None

    def phases(self) -> None:
        """The whole run."""
        self.safety()
        self.liveness()

    def safety(self) -> None:
        """Faults and actions."""
        environment = self._environment
        for topic, partitions in environment.scenario.topics.items():
            environment.cluster.topics.create(topic, partitions=partitions)
        for _ in range(environment.scenario.members):
            environment.join(self._rng)
        environment.scheduler.call_in(0, self._produce)
        environment.play_plan(Actions(environment).perform)

    def _produce(self) -> None:
        environment = self._environment
        if not environment.healed:
            environment.scheduler.events += 1
            environment.cluster.topics.produce()
            environment.scheduler.call_in(
                1 + int(self._rng.random() * 2 * environment.scenario.produce_ms), self._produce
            )

    def liveness(self) -> None:
        """Everything heals, and then the group must come to rest."""
        environment = self._environment
        scenario, scheduler = environment.scenario, environment.scheduler
        self.heal()
        limit_ms = _heal_ms(scenario) + self._backlog_ms()
        if not self.wait_for_rest(limit_ms):
            fail("L1", f"no rest within {limit_ms} ms: {environment.picture()}")
        environment.note("at_rest")
        trials = Trials(environment, scheduler.random("trials"), wait_for_rest=self.wait_for_rest)
        for _ in range(scenario.trials):
            trials.one()
        if scenario.slots:
            trials.replace_one()
        if scenario.handovers and scheduler.random("together").random() < _TOGETHER:
            trials.hand_over_together()
        if environment.producers is not None:
            environment.producers.service.ledger.close()
        environment.observers.converged()

    def _backlog_ms(self) -> int:
        """How long a limit of calls makes one consumer that is left with every record, committed or not, need."""
        rate = self._environment.scenario.handlers_per_second
        return 1_000 * sum(self._environment.cluster.topics.end_offsets.values()) // rate if rate else 0

    def wait_for_rest(self, limit_ms: int) -> bool:
        """Let time pass until the group rests, *limit_ms* at most."""
        return self._environment.scheduler.wait_until(self._rests, limit_ms)

    def _rests(self) -> bool:
        """Whether the group is at rest; if not, does what it may need for that."""
        if self._environment.rests():
            return True
        self._keep_full_subscriber()
        self._environment.mend_forgotten_growth()
        return False

    def heal(self) -> None:
        """End the faults, and what applications do wrong."""
        environment = self._environment
        environment.healed_ms = environment.scheduler.now_ms
        environment.heal()
        if environment.producers is not None:
            environment.producers.heal()
        for name, partitions in environment.scenario.topics.items():
            if name not in environment.cluster.topics.image.by_name:
                environment.cluster.topics.create(name, partitions=partitions)
        for consumer in environment.consumers:
            consumer.behaviour = Behaviour()
        self._close_doubles()
        self._keep_full_subscriber()
        environment.note("healed")

    def _keep_full_subscriber(self) -> None:
        """Let one consumer subscribe to every topic, since the remaining ones may want one topic only."""
        environment = self._environment
        if self._wants_all is not None and not self._wants_all.closed and not self._wants_all.failed:
            return
        staying = [consumer for consumer in environment.staying() if not consumer.failed]
        if staying:
            self._wants_all = staying[0]
            self._wants_all.subscribe(environment.subscription(self._rng, everything=True))
        elif not environment.living():
            self._wants_all = environment.join(self._rng)

    def _close_doubles(self) -> None:
        """Keep one process of each instance id: the one that is a member, since a full group takes no other."""
        environment = self._environment
        members = environment.observed_group.members
        known: dict[str, SimulatedConsumer] = {}
        for consumer in environment.staying():
            instance_id = consumer.config.instance_id
            if instance_id is None:
                continue
            other = known.setdefault(instance_id, consumer)
            if other is consumer:
                continue
            stay, go = (consumer, other) if consumer.view.member_id in members else (other, consumer)
            known[instance_id] = stay
            environment.end(self._rng, go, SimulatedConsumer.crash)


def _heal_ms(scenario: Scenario) -> int:
    """How long recovery may take: the sum of what may be under way when faults end.

    A process that is frozen, a session that has to end, a listener or application that hangs, requests that wait, and
    the rebalance that follows.
    """
    return (
        2 * scenario.session_timeout_ms  # frozen
        + 2 * scenario.session_timeout_ms  # its session, or that of a static member's former self; close()
        + 4 * scenario.max_poll_interval_ms  # hanging listener, then stalled application
        + 2 * max(scenario.request_timeout_ms, 5_000)
        + (3 * scenario.max_poll_interval_ms if scenario.assignors else 0)  # an assignor that hangs, and its limits
        + 10 * scenario.heartbeat_interval_ms
        + 5_000
    )
