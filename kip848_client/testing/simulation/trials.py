"""Healthy changes, one at a time, each with a time limit: what L1, L2, L5, L6, L8, L10, L12 and L13 promise, measured.

The group is at rest before and must be at rest after, with as many epochs as the change needs and no more.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Final, assert_never

from kip848_client.member.consumer.early_heartbeats import BLIND_HEARTBEATS_MAX
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.virtual.violation import fail

_QUIET_INTERVALS: Final = 4
_TAKEOVER_MS: Final = 1_500
"""For poll() and listeners of the old owner, a look and a join of the standby, and its listener and first fetch."""


class Trial(enum.Enum):
    """The change that a trial makes to a group at rest."""

    JOIN = "join"
    CLOSE = "close"
    CRASH = "crash"
    FREEZE = "freeze"
    GROW = "grow"
    RECREATE = "recreate"
    FAIL_OVER = "fail_over"
    NOTHING = "nothing"


class Trials:
    """Changes a group at rest.

    Args:
        wait_for_rest: lets time pass until the group rests, for so many ms at most; returns whether it rests.
    """

    def __init__(
        self, environment: ConsumerEnvironment, rng: random.Random, *, wait_for_rest: Callable[[int], bool]
    ) -> None:
        self._environment = environment
        self._rng = rng
        self._wait_for_rest = wait_for_rest

    def one(self) -> None:
        """Draw a change, make it, and demand its promise."""
        environment, rng = self._environment, self._rng
        living = environment.staying()
        others = [consumer for consumer in living[1:] if not consumer.failed]  # the first wants every topic
        # A classic member knows topics by name: one that is created again is the same to it until it looks.
        trial = rng.choice([one for one in Trial if one is not Trial.RECREATE or not environment.scenario.classic])
        if not others and trial in {Trial.CLOSE, Trial.CRASH}:
            trial = Trial.JOIN
        if (
            trial is Trial.JOIN
            and environment.scenario.group_max_size
            and len(living) >= environment.scenario.group_max_size
        ):
            trial = Trial.NOTHING
        environment.note(f"trial_{trial.value}")
        environment.healed_ms = environment.scheduler.now_ms
        scenario = environment.scenario
        # Two heartbeats for each of two steps (revoke, then take), answers and listeners; clocks drift.
        settle_ms = 6 * scenario.heartbeat_interval_ms + 2_000
        session_ms = scenario.session_timeout_ms
        if scenario.classic:
            # Members hear of a rebalance within an interval, look at topics every two, and those that give something up
            # join once more; a restart of the coordinator may cost a round as well.
            settle_ms += 4 * scenario.heartbeat_interval_ms
        match trial:
            case Trial.NOTHING:
                self._nothing_happens()
            case Trial.JOIN:
                environment.join(rng)
                self._demand("L1", settle_ms, epochs=2)
            case Trial.CLOSE:
                leaver = rng.choice(others)
                environment.end(rng, leaver, SimulatedConsumer.close)
                # The coordinator keeps the place of a static member for a session.
                away_ms = session_ms if leaver.config.instance_id is not None else 0
                self._demand("L1", away_ms + settle_ms, epochs=2)
            case Trial.CRASH:
                environment.end(rng, rng.choice(others), SimulatedConsumer.crash)
                self._demand("L2", session_ms + settle_ms, epochs=2)
            case Trial.FREEZE:
                frozen_ms = session_ms + rng.randint(1, session_ms)
                rng.choice(living).freeze(frozen_ms)
                environment.scheduler.run_until(environment.scheduler.now_ms + frozen_ms)
                self._demand("L5", session_ms + settle_ms + scenario.request_timeout_ms, epochs=4)
            case Trial.GROW:
                environment.cluster.topics.grow(rng.choice(sorted(scenario.topics)), count=1)
                self._demand("L10", settle_ms, epochs=2)
            case Trial.RECREATE:
                name = rng.choice(sorted(scenario.topics))
                environment.cluster.topics.delete(name)
                environment.cluster.topics.create(name, partitions=scenario.topics[name])
                self._demand("L10", settle_ms + scenario.metadata_lag_ms + 2_000, epochs=4)
            case Trial.FAIL_OVER:
                environment.cluster.fail_over(believes_for_ms=0, load_ms=0, rumour_ms=0)
                self._all_find_the_coordinator()
                self._demand("L8", settle_ms, epochs=0)
            case _:
                assert_never(trial)
        self._reassign(settle_ms)

    def replace_one(self) -> None:
        """L13: a deploy of a healthy group with slots moves nothing: a standby has the partitions at once."""
        environment, rng = self._environment, self._rng
        while not any(one.member.view().standing_by for one in environment.staying()):
            if len(environment.living()) > environment.scenario.slots + 1:
                return  # those that are there have other things to do
            environment.join(rng)
            environment.scheduler.run_until(environment.scheduler.now_ms + 1_000)
        # A standby whose answer was lost before sees nothing until its request has timed out.
        environment.scheduler.run_until(environment.scheduler.now_ms + environment.scenario.request_timeout_ms)
        environment.healed_ms = environment.scheduler.now_ms
        limit_ms = environment.scenario.session_timeout_ms + 6 * environment.scenario.heartbeat_interval_ms + 2_000
        if not self._wait_for_rest(limit_ms):
            fail("L1", f"no rest within {limit_ms} ms: {environment.picture()}")
        standbys = [one for one in environment.staying() if one.member.view().standing_by]
        owners = [one for one in environment.members_living() if one in environment.staying()]
        if not standbys or not owners:
            return
        environment.note("trial_replace")
        environment.healed_ms = environment.scheduler.now_ms
        old, epoch = rng.choice(owners), environment.observed_group.group_epoch
        held, slot = set(old.assignment()), old.member.view().instance_id
        environment.end(rng, old, rng.choice((SimulatedConsumer.hand_over, SimulatedConsumer.close)))
        environment.scheduler.run_until(environment.scheduler.now_ms + _TAKEOVER_MS)
        heirs = [one for one in standbys if one.member.view().instance_id == slot]
        if not heirs or set(heirs[0].readable) != held:
            fail("L13", f"{slot} was released, and nobody reads its partitions: {environment.picture()}")
        if environment.observed_group.group_epoch != epoch:
            fail("L13", f"{slot} was taken over, and the group epoch moved from {epoch}: {environment.picture()}")

    def hand_over_together(self) -> None:
        """L12: members that hand over at the same time wait for those that stay, and not for each other."""
        environment, rng = self._environment, self._rng
        living = [consumer for consumer in environment.staying() if not consumer.failed]
        if environment.scenario.classic or not living:
            return  # the classic protocol has no hand-over
        leaving = rng.sample(living, rng.randint(1, len(living)))
        environment.note("trial_hand_over", members=len(leaving))
        environment.healed_ms = environment.scheduler.now_ms
        for consumer in leaving:
            environment.end(rng, consumer, SimulatedConsumer.hand_over)
        interval_ms = max(consumer.member.snapshot().heartbeat_interval_ms for consumer in living)
        # Those that stay hear of it within an interval and acknowledge; then listeners and close().
        limit_ms = 2 * interval_ms + 2_000
        environment.scheduler.run_until(environment.scheduler.now_ms + limit_ms)
        late = [consumer.name for consumer in leaving if not consumer.closed]
        if late:
            fail("L12", f"{late} did not hand over in {limit_ms} ms, all together: {environment.picture()}")
        if not self._wait_for_rest(environment.scenario.session_timeout_ms + 2 * limit_ms):
            fail("L1", f"no rest after a hand-over: {environment.picture()}")

    def _reassign(self, limit_ms: int) -> None:
        """A3: a member of a group that computes its target itself asks for another one, twice, and each is computed."""
        environment = self._environment
        living = environment.living()
        if not living or self._assigned_for_all() or not all(consumer.assignor.listens for consumer in living):
            return
        limit_ms += living[0].config.assignor_timeout_ms
        for _ in range(2):
            before = environment.observed_group.group_epoch
            living[0].assignor.request_reassignment()
            environment.scheduler.run_until(environment.scheduler.now_ms + limit_ms)
            if environment.observed_group.group_epoch == before:
                fail("A3", f"{living[0].name} asked for another target, and none was computed within {limit_ms} ms")
            self._demand("A3", limit_ms, epochs=2)

    def _assigned_for_all(self) -> bool:
        """Whether the coordinator assigns for members of the classic protocol."""
        return any(
            seen.member.metadata.classic is not None for seen in self._environment.observed_group.members.values()
        )

    def _demand(self, invariant: str, limit_ms: int, *, epochs: int) -> None:
        environment = self._environment
        before = environment.observed_group.group_epoch
        if not self._wait_for_rest(limit_ms):
            fail(invariant, f"no rest within {limit_ms} ms: {environment.picture()}")
        moved = environment.observed_group.group_epoch - before
        if environment.scenario.classic:
            epochs += 2 + len(environment.living())  # each that gives something up joins once more
        if moved > epochs:
            fail("L6", f"one change moved the group epoch by {moved}, at most {epochs} are needed")

    def _all_find_the_coordinator(self) -> None:
        """L8: a coordinator that moved is found within the longest back-off, and the next heartbeat."""
        environment = self._environment
        began_ms = environment.scheduler.now_ms
        served: set[str] = set()
        before = environment.observers.served

        def note(client_id: str, request: object, response: object) -> None:
            served.add(client_id)
            before(client_id, request, response)

        environment.cluster.on_served = note
        limit_ms = 2_000 + 2 * environment.scenario.heartbeat_interval_ms
        environment.scheduler.run_until(began_ms + limit_ms)
        environment.cluster.on_served = before
        missing = {consumer.name for consumer in environment.staying()} - served
        if missing:
            fail("L8", f"{sorted(missing)} did not find the coordinator in {limit_ms} ms")

    def _nothing_happens(self) -> None:
        """L6: with nothing to do epochs stay, members send one heartbeat an interval, and offsets are committed."""
        environment = self._environment
        epoch = environment.observed_group.group_epoch
        living = environment.members_living()
        intervals_ms = {consumer.member.snapshot().heartbeat_interval_ms for consumer in living}
        if len(intervals_ms) > 1:  # it was changed, and some hear of it with their next heartbeat
            environment.scheduler.run_until(environment.scheduler.now_ms + max(intervals_ms))
        interval_ms = max(consumer.member.snapshot().heartbeat_interval_ms for consumer in living)
        before = {consumer: consumer.member.snapshot().heartbeats for consumer in living}
        environment.scheduler.run_until(environment.scheduler.now_ms + _QUIET_INTERVALS * interval_ms)
        if environment.observed_group.group_epoch != epoch:
            fail(
                "L6",
                f"nothing happened, and the group epoch moved from {epoch} to {environment.observed_group.group_epoch}",
            )
        for consumer in living:
            sent = consumer.member.snapshot().heartbeats - before[consumer]
            # It may not know yet that it waits for nothing.
            early = BLIND_HEARTBEATS_MAX if consumer.config.early_heartbeats else 0
            if not _QUIET_INTERVALS - 2 <= sent <= _QUIET_INTERVALS + 2 + early:
                fail("L6", f"{consumer.name} sent {sent} heartbeats in {_QUIET_INTERVALS} intervals")
        if self._uncommitted() is not None:
            environment.scheduler.run_until(environment.scheduler.now_ms + 3 * environment.scenario.auto_commit_ms)
        if (left := self._uncommitted()) is not None:
            fail("L7", left)

    def _uncommitted(self) -> str | None:
        """L7: a consumer with auto-commit has committed everything that it was handed.

        Unless a late copy of an older commit overwrote it: the next record heals that, or the next owner reads again.
        """
        environment = self._environment
        committed = environment.cluster.coordinator.committed(environment.observed_group.group_id)
        ends = environment.cluster.topics.end_offsets
        for consumer in environment.living():
            if consumer.config.auto_commit_interval_ms is None:
                continue
            for partition in sorted(consumer.readable):
                end = ends[partition]
                found = committed.get(partition.topic, {}).get(partition.partition)
                if (
                    environment.cluster.topics.id_of(partition.topic),
                    partition.partition,
                ) in environment.observed_group.rewound:
                    continue
                if end and (found is None or found.offset != end):
                    told = None if found is None else found.offset
                    return f"{consumer.name} read {partition} to {end} and committed {told}"
        return None
