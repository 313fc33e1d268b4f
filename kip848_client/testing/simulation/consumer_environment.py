"""The environment of a run: scheduler, network, cluster, consumers, and observers.

Starts and ends consumers, and says whether the group is at rest. Does not own: in which order things happen (`run`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from kip848_client.assignors.client.classic import EAGER
from kip848_client.assignors.client.user_data import read_assignment_frame
from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.member.core.settings import GroupProtocol, MemberConfig, ResetPolicy
from kip848_client.member.core.states import MemberState
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig, MigrationPolicy
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer, UserCode
from kip848_client.testing.simulation.actors.simulated_transactions import Producers
from kip848_client.testing.simulation.actors.user_assignor import OFFERED, STRATEGIES, offered_classic
from kip848_client.testing.simulation.observed_group import ObservedGroup, partitions_of
from kip848_client.testing.simulation.observer import HandedOut, Observers, RunState, Surroundings, Watch
from kip848_client.testing.simulation.virtual.environment import GROUP, Environment
from kip848_client.testing.simulation.virtual.network import AnyRequest
from kip848_client.testing.simulation.virtual.scenario import Behaviour, Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.wire.messages.consumer_protocol import decode_assignment
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

_MATCHING_MS: Final = (1, 1, 20, 150)
"""How long patterns are matched, in a run with probes; a cluster may have very many topics."""
_INTERVALS_MS: Final = (0, 0, 150)
"""Between two targets of a group, in a run with probes."""
_POLICIES: Final[tuple[MigrationPolicy, ...]] = (*("bidirectional",) * 4, "upgrade", "downgrade", "disabled")
_INITIAL_DELAYS_MS: Final = (0, 0, 500)
"""How long a new classic group waits for more members."""
_CLOCK_START_MS_MAX: Final = 3_600_000
_CALM: Final = Behaviour()


class ConsumerEnvironment(Environment):
    """All that takes part in one run.

    Args:
        watch: make the observers of the run.
        user_code: makes a user's listener for a consumer's name.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int,
        watch: Sequence[Watch] = (),
        user_code: Callable[[str], UserCode] | None = None,
        keep_history: bool = True,
    ) -> None:
        scheduler = Scheduler(seed, keep_history=keep_history)
        self.healed_ms = 0
        self.probing: Final = bool(scenario.probes) and scheduler.random("probes").random() < scenario.probes
        self._user_code = user_code
        config = CoordinatorConfig(
            consumer_heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            consumer_session_timeout_ms=scenario.session_timeout_ms,
            consumer_max_size=scenario.group_max_size or 2**31 - 1,
            classic_max_size=scenario.group_max_size or 2**31 - 1,
            classic_initial_rebalance_delay_ms=scheduler.random("initial delay").choice(_INITIAL_DELAYS_MS),
            migration_policy=scheduler.random("policy").choice(_POLICIES) if scenario.switches else "bidirectional",
            client_assignors=True,
            consumer_assignment_interval_ms=scheduler.random("interval").choice(_INTERVALS_MS) if self.probing else 0,
        )
        super().__init__(scenario, scheduler, config, rng=scheduler.random("stage"))
        scheduler.history.topic_names = self.cluster.topics.names
        if self.probing:
            self.cluster.matching_ms = scheduler.random("matching").choice(_MATCHING_MS)
        self.consumers: Final[list[SimulatedConsumer]] = []
        self._ended: Final[set[SimulatedConsumer]] = set()
        self._number = 0
        self._strategies: Final = self.scheduler.random("strategies").choice(STRATEGIES)
        """The assignors that members on the classic protocol offer."""
        self._mend_ms = 0
        self._to_classic = False
        """The rolling restart moves to the classic protocol."""
        self.observed_group: Final = ObservedGroup(self.cluster, GROUP)
        self.handed_out: Final = HandedOut(self.cluster.topics)
        self.run_state: Final = RunState(
            self.scheduler,
            self.cluster,
            self.observed_group,
            scenario,
            config,
            self.handed_out,
            lambda: self.consumers,
            self.probing,
        )
        made = [observer for make in watch for observer in make(self.run_state)]
        # Last, since checkers are told of records that are not counted yet.
        self.observers: Final = Observers([*made, self.handed_out], self.run_state)
        self.cluster.on_served = self.observers.served
        self.cluster.on_loaded = self.observers.loaded
        self.cluster.topics.on_records = self._records_arrived
        self.network.on_stale = self.observers.stale
        if scenario.slice_records:
            self.cluster.fences = self._fences
        self.producers: Final = Producers(self.scheduler, scenario) if scenario.producers else None
        self.scheduler.after_step = self.observers.after_step

    # --- consumers

    def living(self) -> list[SimulatedConsumer]:
        """Consumers whose process runs."""
        return [consumer for consumer in self.consumers if not consumer.closed]

    def members_living(self) -> list[SimulatedConsumer]:
        """Living consumers but those that stand by for a slot."""
        return [consumer for consumer in self.living() if not consumer.member.view().standing_by]

    def staying(self) -> list[SimulatedConsumer]:
        """Living consumers that were not told to go."""
        return [consumer for consumer in self.consumers if not consumer.closed and consumer not in self._ended]

    def join(
        self,
        rng: random.Random,
        *,
        instance_id: str | None = None,
        is_classic: bool | None = None,
        everything: bool = False,
    ) -> SimulatedConsumer:
        """Start one more consumer.

        Args:
            is_classic: its protocol; None to draw it.
            everything: it wants every topic; else that is drawn, too.
        """
        self._number += 1
        name = f"consumer-{self._number}"
        scenario = self.scenario
        if is_classic is None:
            is_classic = bool(scenario.classic) and rng.random() < scenario.classic
        if instance_id is None and scenario.statics and rng.random() < scenario.statics:
            instance_id = f"instance-{self._number}"
        offers = OFFERED if scenario.assignors and rng.random() < scenario.assignors else ()
        no_reset = bool(scenario.no_reset) and self.scheduler.random(f"reset {name}").random() < scenario.no_reset
        cooperative = True
        if is_classic:
            offers, cooperative = offered_classic(self.scheduler.random(f"strategy {name}").choice(self._strategies))
        config = MemberConfig(
            group_id=GROUP,
            member_id=f"member-{self._number}",
            instance_id=instance_id,
            slots=tuple(f"slot-{number}" for number in range(scenario.slots)),
            gives_up_slot=bool(scenario.slots),
            server_assignor=scenario.server_assignor or None,
            max_poll_interval_ms=scenario.max_poll_interval_ms,
            rebalance_timeout_ms=scenario.max_poll_interval_ms,
            request_timeout_ms=scenario.request_timeout_ms,
            client_assignors=offers,
            assignor_fallback=self._number % 2 == 0,
            assignor_timeout_ms=scenario.max_poll_interval_ms // 2,
            auto_offset_reset=ResetPolicy.NONE if no_reset else ResetPolicy.EARLIEST,
            auto_commit_interval_ms=None if scenario.handlers else rng.choice((None, scenario.auto_commit_ms)),
            # A process that comes back after a crash waits for the session of its former self to end.
            unreleased_instance_retry_ms=10 * (scenario.duration_ms + scenario.session_timeout_ms),
            early_heartbeats=bool(scenario.early) and self.scheduler.random(f"early {name}").random() < scenario.early,
            protocol=GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER,
            session_timeout_ms=scenario.session_timeout_ms,
            heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            cooperative=cooperative,
            topic_refresh_ms=2 * scenario.heartbeat_interval_ms,
        )
        drift = scenario.drift
        consumer = SimulatedConsumer(
            name,
            Surroundings(self.scheduler, scenario, self.cluster, self.network, self.observers),
            config=config,
            behaviour=_CALM if self.healed else scenario.behaviour,
            clock_ms=int(rng.random() * _CLOCK_START_MS_MAX),
            clock_rate=1.0 - drift + 2 * drift * rng.random() if drift else 1.0,
            user_code=None if self._user_code is None else self._user_code(name),
        )
        self.consumers[:] = [*(one for one in self.consumers if not one.closed), consumer]
        details: dict[str, Any] = {} if instance_id is None else {"instance_id": instance_id}
        if is_classic:
            details["protocol"] = "classic"
        self.scheduler.note(name, "started", **details)
        everything = everything or self._number == 1 or self.healed or bool(scenario.slots)
        consumer.start(self.subscription(rng, everything=everything))
        return consumer

    def subscription(self, rng: random.Random, *, everything: bool = False) -> Subscription:
        """Some of the topics, by name or by pattern."""
        topics = sorted(self.scenario.topics)
        wanted = topics if everything else rng.sample(topics, rng.randint(1, len(topics)))
        if self.scenario.patterns and rng.random() < self.scenario.patterns:
            return Subscription(pattern="|".join(sorted(wanted)))
        return Subscription(frozenset(wanted))

    def end(self, rng: random.Random, consumer: SimulatedConsumer, how: Callable[[SimulatedConsumer], None]) -> None:
        """Close or crash a consumer; a static one is started again, soon or after its session."""
        if consumer in self._ended:
            return
        self._ended.add(consumer)
        how(consumer)
        if consumer.config.instance_id is not None and not self.healed:
            delay_ms = rng.randint(100, 2 * self.scenario.session_timeout_ms)
            self._come_back(rng, consumer, delay_ms, is_classic=consumer.is_classic)

    def switch_one(self, rng: random.Random) -> None:
        """One step of a rolling restart: a process ends, and comes back with the other protocol."""
        left = [consumer for consumer in self.staying() if consumer.is_classic is not self._to_classic]
        if not left:
            self._to_classic = not self._to_classic
            left = self.staying()
        if left:
            consumer = rng.choice(left)
            self.note("switched", consumer=consumer.name)
            self._ended.add(consumer)
            consumer.close()
            delay_ms = rng.choice((1, 300, self.scenario.session_timeout_ms // 2))
            self._come_back(rng, consumer, delay_ms, is_classic=self._to_classic)

    def _come_back(self, rng: random.Random, consumer: SimulatedConsumer, delay_ms: int, *, is_classic: bool) -> None:
        def start() -> None:
            if not self.healed:
                self.join(rng, instance_id=consumer.config.instance_id, is_classic=is_classic)

        self.scheduler.call_in(delay_ms, start)

    def node_down(self, node_id: int) -> set[str]:
        """A coordinator died; its clients notice that their connections ended."""
        ended = super().node_down(node_id)
        for consumer in self.living():
            if consumer.name in ended:
                self.scheduler.call_in(0, lambda one=consumer: one.awake(lambda: one.network.node_down(node_id)))  # type: ignore[misc]
        return ended

    def _fences(self, client_id: str, request: AnyRequest) -> bool:
        """Each transaction has a producer epoch of its own (KIP-890): a late request cannot join another one."""
        if not isinstance(request, OffsetCommitRequest):
            return False
        sender = next((one for one in self.consumers if one.name == client_id), None)
        return sender is None or not sender.application.writes(request)

    def _records_arrived(self, partition: NamedPartition) -> None:
        for consumer in self.living():
            consumer.application.records_arrived(partition)

    def note(self, what: str, **details: Any) -> None:
        """Write to the history."""
        self.scheduler.note("scenario", what, **details)

    # --- is the group at rest?

    def rests(self) -> bool:
        """Whether every member is STABLE at the group's epoch with its target, and everything was read."""
        if self.producers is not None and not self.producers.rest():
            return False
        living = self.members_living()
        if self.observed_group.classic is not None:
            return self._classic_rests(living, self.observed_group.classic)
        members = self.observed_group.members
        if len(living) < len(self.living()) and len(members) < self.scenario.slots:
            return False  # a standby has yet to take a slot that is free
        if any(one.frozen or one.application.busy for one in self.living() if one not in living):
            return False
        if len(members) != len(living) or self.observed_group.group_epoch != self.observed_group.target_epoch:
            return False
        if self.cluster.up and self.cluster.host.matching:
            return False  # the result may move the group
        epoch = self.observed_group.group_epoch
        for consumer in living:
            view = consumer.view
            seen = members.get(view.member_id)
            if view.state is not MemberState.STABLE or view.member_epoch != epoch or seen is None:
                return False
            if not self._is_calm(consumer):
                return False
            if seen.held != seen.target or len(view.readable) != len(seen.target):
                return False
        held = {partition for seen in members.values() for partition in seen.held}
        image, group = self.cluster.topics.image, self.observed_group.group
        if held != partitions_of(image, image.by_name):
            return False  # a topic that was created again has the name of the one that members still hold
        if group is None or not image.by_name.keys() <= group.subscribed_topics:
            return False
        if not group.regex_subscribers.keys() <= group.resolved_regexes.keys():
            return False  # a new pattern is matched a while after the last one, and that moves the group
        if any(group.target_metadata_of(member_id).error for member_id in members):
            return False  # the assignor is called again
        return self._everything_is_read(living)

    def _is_calm(self, consumer: SimulatedConsumer) -> bool:
        """Whether nothing of a consumer is under way that may still move the group."""
        if consumer.frozen or consumer.application.busy or consumer.network.heard_ms <= self.healed_ms:
            return False  # its requests from the time of faults may still be lost
        return not consumer.assignor.asks  # a hanging call may still end

    def _classic_rests(self, living: list[SimulatedConsumer], group: ClassicGroup, *, is_read: bool = True) -> bool:
        """`rests` of a classic group; without *is_read*, records may be unread."""
        if group.state is not ClassicState.STABLE or len(group.members) != len(living) or group.pending_joins:
            return False
        for consumer in living:
            view = consumer.view
            if view.member_id not in group.members or view.member_epoch != group.generation:
                return False
            if view.state is not MemberState.STABLE or not self._is_calm(consumer):
                return False
        if any(_assignment_error(member.assignment) for member in group.members.values()):
            return False  # the assignor is called again
        return not is_read or self._everything_is_read(living)

    def mend_forgotten_growth(self) -> None:
        """Let a topic grow if the leader of a classic group cannot know that one has.

        A static leader of an eager group that comes back as another process keeps an assignment of which it does not
        know from how many partitions it was made. The next change of a topic makes it assign again.
        """
        group, living, now_ms = self.observed_group.classic, self.living(), self.scheduler.now_ms
        if group is None or group.protocol not in EAGER or now_ms < self._mend_ms:
            return
        if not self._classic_rests(living, group, is_read=False):
            return
        knows = any(consumer.network.led_generation == group.generation for consumer in living)
        topics_read = {place.topic for consumer in living for place in consumer.readable}
        unread = self._unread(living)
        if unread and not knows and all(place.topic in topics_read for place in unread):
            self._mend_ms = now_ms + 10 * self.scenario.heartbeat_interval_ms
            self.cluster.topics.grow(min(self.cluster.topics.image.by_name), count=1)

    def _everything_is_read(self, living: list[SimulatedConsumer]) -> bool:
        return not self._unread(living) and self.handed_out.unread() is None

    def _unread(self, living: list[SimulatedConsumer]) -> set[NamedPartition]:
        read = {partition for consumer in living for partition in consumer.readable}
        return read ^ set(self.cluster.topics.end_offsets)

    def picture(self) -> str:
        """The state of every member, in one line."""
        group, classic = self.observed_group.group, self.observed_group.classic
        state = "none" if group is None else f"{group.state}@{group.group_epoch}/{group.target_epoch}"
        if classic is not None:
            state = (
                f"{classic.state}@{classic.generation} of {sorted(classic.members)}, {sorted(classic.pending_joins)}"
            )
        members = "; ".join(
            f"{one.name} {one.member.phase.name}@{one.view.member_epoch} reads {len(one.readable)}"
            for one in self.living()
        )
        held = {
            name: (seen.epoch, len(seen.held), len(seen.target)) for name, seen in self.observed_group.members.items()
        }
        open_transactions = "" if self.producers is None else f"; {self.producers.picture()}"
        return f"group {state} {held}; {members}{open_transactions}"


def _assignment_error(data: bytes) -> int:
    """The error with which the leader of a classic group made this assignment."""
    return read_assignment_frame(decode_assignment(data).user_data).error if data else 0
