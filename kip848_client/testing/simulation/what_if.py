"""Measures the cost of a change for a group of a given shape: a member joins, all are restarted in turn, a node dies.

The group is made of the shape, comes to rest, and is changed once. Nothing else goes wrong: no message is lost, and no
listener raises. A seed draws clocks, delays of the network and times between polls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from kip848_client.errors import ConfigError
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.virtual.scenario import HEALTHY, QUIET, Behaviour, Scenario

_START_MS: Final = 600_000
"""A group that has not come to rest by then never will."""
_RESTART_MS: Final = 10_000
"""From the end of a process until the one that takes its place joins."""
_DELAY_MS: Final = (0, 5)
_PRODUCE_MS: Final = 1_000


class Shape(msgspec.Struct, frozen=True):
    """The properties of a group on which its rebalances depend.

    Args:
        topics: name -> partitions; all members want all of them.
        members_of_a_node: how many of them end when a node dies.
        statics: part of the members that are static.
        poll_ms: (least, most) between two polls of a member.
        assignor: the coordinator's assignor that members ask for; empty for its default.
    """

    members: int
    topics: Mapping[str, int]
    members_of_a_node: int = 1
    statics: float = 0.0
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    poll_ms: tuple[int, int] = (10, 200)
    assignor: str = ""

    def __post_init__(self) -> None:
        if self.members < 1 or not self.topics or min(self.topics.values()) < 1:
            raise ConfigError("a group to play needs members, and topics with partitions")

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics."""
        return sum(self.topics.values())


class Setting(msgspec.Struct, frozen=True):
    """Values to try in place of those of the shape; None keeps the value of the shape."""

    name: str
    assignor: str | None = None
    static: bool | None = None
    heartbeat_interval_ms: int | None = None
    session_timeout_ms: int | None = None


class Job(NamedTuple):
    """One play of one setting, from one seed."""

    play: str
    setting: Setting
    seed: int


class WhatIfOutcome(msgspec.Struct, frozen=True):
    """The outcome of one play. Times in ms of virtual time.

    Args:
        settled_ms: from the change until the group was at rest; None if it was not within ten minutes.
        unread_ms: time without a reader, summed over all partitions.
        unread_ms_max: the longest time without a reader of one partition.
        moved: how often a partition changed its reader.
    """

    settled_ms: int | None
    unread_ms: float
    unread_ms_max: float
    moved: int


def play(name: str, shape: Shape, setting: Setting, *, seed: int) -> WhatIfOutcome:
    """Play one of `PLAYS`.

    Raises:
        ConfigError: the group never came to rest before the change.
    """
    environment = ConsumerEnvironment(_scenario(shape, setting), seed=seed)
    group = _Group(environment, statics=_statics(shape, setting))
    for topic, partitions in shape.topics.items():
        environment.cluster.topics.create(topic, partitions=partitions)
    for _ in range(shape.members):
        group.join()
    group.produce()
    if group.time_until_rest() is None:
        raise ConfigError(f"a group of {shape.members} members and {shape.partitions} partitions did not come to rest")
    watch = _Readers(environment)
    began_ms = environment.scheduler.now_ms
    PLAYS[name](group, shape)
    rested = group.time_until_rest() is not None
    return watch.outcome(environment.scheduler.now_ms - began_ms if rested else None)


def play_job(shape: Shape, job: Job) -> WhatIfOutcome:
    """Play *job* with a group of *shape*."""
    return play(job.play, shape, job.setting, seed=job.seed)


def _scenario(shape: Shape, setting: Setting) -> Scenario:
    def chosen(new: int | None, old: int) -> int:
        return old if new is None else new

    return msgspec.structs.replace(
        QUIET,
        name="what-if",
        faults=msgspec.structs.replace(HEALTHY, delay_ms=_DELAY_MS),
        behaviour=Behaviour(think_ms=shape.poll_ms, commit=0.0),
        joins=0.0, resubscriptions=0.0, growths=0.0, drift=0.01, encoded=0.0, purity=0.0, probes=0.0,
        members=shape.members,
        topics=dict(shape.topics),
        heartbeat_interval_ms=chosen(setting.heartbeat_interval_ms, shape.heartbeat_interval_ms),
        session_timeout_ms=chosen(setting.session_timeout_ms, shape.session_timeout_ms),
        max_poll_interval_ms=300_000,
        request_timeout_ms=30_000,
        auto_commit_ms=5_000,
        server_assignor=shape.assignor if setting.assignor is None else setting.assignor,
    )  # fmt: skip


def _statics(shape: Shape, setting: Setting) -> int:
    part = shape.statics if setting.static is None else float(setting.static)
    return math.ceil(part * shape.members)


class _Group:
    """The members of a play; the first ones are static."""

    def __init__(self, environment: ConsumerEnvironment, *, statics: int) -> None:
        self.environment: Final = environment
        self.rng: Final = environment.scheduler.random("what if")
        self._statics = statics
        self._joined = 0

    def join(self, *, instance_id: str | None = None) -> SimulatedConsumer:
        """Start a member."""
        self._joined += 1
        if instance_id is None and self._joined <= self._statics:
            instance_id = f"instance-{self._joined}"
        return self.environment.join(self.rng, instance_id=instance_id, everything=True)

    def produce(self) -> None:
        """Let records come, from now on."""
        self.environment.cluster.topics.produce()
        self.environment.scheduler.call_in(1 + int(self.rng.random() * 2 * _PRODUCE_MS), self.produce)

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.environment.scheduler.run_until(self.environment.scheduler.now_ms + ms)

    def time_until_rest(self) -> int | None:
        """Let time pass until the group is at rest."""
        scheduler = self.environment.scheduler
        began_ms = scheduler.now_ms
        return scheduler.now_ms - began_ms if scheduler.wait_until(self._rests, _START_MS) else None

    def _rests(self) -> bool:
        """Every partition is read by the member that shall have it, and no member is waited for."""
        environment = self.environment
        living, members = environment.living(), environment.observed_group.members
        if (
            len(members) != len(living)
            or environment.observed_group.group_epoch != environment.observed_group.target_epoch
        ):
            return False
        if any(seen.held != seen.target for seen in members.values()):
            return False
        if any(consumer.view.member_epoch != environment.observed_group.group_epoch for consumer in living):
            return False
        return sum(len(consumer.readable) for consumer in living) == sum(environment.scenario.topics.values())


def _one_joins(group: _Group, shape: Shape) -> None:
    del shape
    group.join()


def _rolling_restart(group: _Group, shape: Shape) -> None:
    del shape
    for consumer in list(group.environment.living()):
        consumer.close()
        group.wait(_RESTART_MS)
        group.join(instance_id=consumer.config.instance_id)
        group.time_until_rest()


def _a_node_dies(group: _Group, shape: Shape) -> None:
    for consumer in list(group.environment.living())[: min(shape.members_of_a_node, shape.members - 1) or 1]:
        consumer.crash()
    group.environment.scheduler.dirty = True  # a process that dies does not set it itself
    if not group.environment.living():
        group.wait(_RESTART_MS)
        group.join()


PLAYS: Final[Mapping[str, Callable[[_Group, Shape], None]]] = {
    "one joins": _one_joins,
    "rolling restart": _rolling_restart,
    "a node dies": _a_node_dies,
}
"""Name -> the change to a group at rest."""


class _Readers:
    """Follows which consumer reads which partition, after every step."""

    def __init__(self, environment: ConsumerEnvironment) -> None:
        self._environment = environment
        self._before = environment.scheduler.after_step
        self._readers = self._now()
        self._last = dict(self._readers)
        self._free_since: dict[object, int] = {}
        self._unread: dict[object, int] = {}
        self._longest = 0
        self._moved = 0
        environment.scheduler.after_step = self._look

    def _now(self) -> dict[object, str]:
        """Partition -> its reader; a static member is the same one after its restart."""
        return {
            partition: consumer.config.instance_id or consumer.name
            for consumer in self._environment.living()
            for partition in consumer.readable
        }

    def _look(self) -> None:
        self._before()
        now, now_ms = self._now(), self._environment.scheduler.now_ms
        if now == self._readers:
            return
        for partition in self._readers.keys() - now.keys():
            self._free_since[partition] = now_ms
        for partition, reader in now.items():
            since_ms = self._free_since.pop(partition, None)
            if since_ms is not None:
                lasted_ms = now_ms - since_ms
                self._unread[partition] = self._unread.get(partition, 0) + lasted_ms
                self._longest = max(self._longest, lasted_ms)
            if self._last.setdefault(partition, reader) != reader:
                self._moved += 1
            self._last[partition] = reader
        self._readers = now

    def outcome(self, settled_ms: int | None) -> WhatIfOutcome:
        """The measured times. A partition that is free at the end counts as unread until then."""
        now_ms = self._environment.scheduler.now_ms
        still_ms = [now_ms - since_ms for since_ms in self._free_since.values()]
        unread_ms = sum(self._unread.values()) + sum(still_ms)
        return WhatIfOutcome(settled_ms, unread_ms, max([self._longest, *still_ms]), self._moved)
