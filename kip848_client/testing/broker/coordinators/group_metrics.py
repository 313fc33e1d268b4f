"""Metrics of the group coordinator: the "Broker Metrics" of KIP-848.

Names are in `telemetry.COORDINATOR_METRICS`. Everything here belongs to the broker's loop. Nothing is measured for a
heartbeat: figures are computed on request, and from one sample every few seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.coordinator.modern.modern_group import GroupState

if TYPE_CHECKING:
    from kip848_client.common.telemetry import Figure
    from kip848_client.wire.messages.list_groups import ListedGroup

SAMPLE_S: Final = 5.0
SAMPLES_MAX: Final = 7
"""Six whole samples and the current one: rates and ratios cover the last 30 seconds, as Kafka's."""

_PROTOCOLS: Final = ("consumer", "classic")


class _Sample(NamedTuple):
    at_s: float
    busy_s: float
    rebalances: int
    completed: int


class CoordinatorMetrics:
    """The figures of one node's coordinators, from their first load to their end.

    Args:
        loop: of the broker; its thread is the coordinator's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._rebalances = 0
        self._completed = 0
        self._load_ms: list[float] = []
        self._load_begun_s: float | None = None
        self._log_failed = False
        self._samples: Final[deque[_Sample]] = deque(maxlen=SAMPLES_MAX)
        self._timer: asyncio.TimerHandle | None = None

    def load_begins(self) -> None:
        """The log is about to be read."""
        self._load_begun_s = self._loop.time()

    def loaded(self) -> None:
        """The log was read, and the coordinator serves."""
        assert self._load_begun_s is not None
        self._load_ms.append((self._loop.time() - self._load_begun_s) * 1000)
        self._load_begun_s = None
        if self._timer is None:
            self._take_sample()

    def close(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()

    def kept(self, events: Sequence[GroupEvent]) -> None:
        """Count the events of one batch, whose records are kept."""
        self._log_failed = False
        for event in events:
            if event.event == "group_epoch_bumped":
                self._rebalances += 1
            elif event.event == "group_state_changed" and event.fields["old"] == ClassicState.COMPLETING:
                self._completed += event.fields["new"] == ClassicState.STABLE

    def not_kept(self) -> None:
        """The records of a batch could not be written."""
        self._log_failed = True

    def figures(
        self,
        groups: Iterable[ListedGroup],
        *,
        waiting: int,
        partitions: int = 1,
        attributes: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Figure, ...]:
        """All figures as they are now.

        Args:
            groups: every group, as ListGroups describes it.
            waiting: requests that the coordinator was given and has not answered.
            partitions: of the groups' log that are coordinated here.
            attributes: added to each figure.
        """
        from kip848_client.common.telemetry import Figure  # here: a broker whose metrics are not read does not load it

        states = {state.value.lower(): 0 for state in GroupState} | {"dead": 0}
        protocols = dict.fromkeys(_PROTOCOLS, 0)
        for group in groups:
            protocols[group.group_type.lower()] = protocols.get(group.group_type.lower(), 0) + 1
            if group.group_type.lower() == "consumer":
                states[group.group_state.lower()] += 1
        partition = "loading" if self._load_begun_s is not None else "failed" if self._log_failed else "active"
        (rate, completed_rate), idle = self._rebalance_rates(), self._idle_ratios()
        values: list[tuple[str, float, dict[str, str]]] = [
            *[("group.count", count, {"protocol": protocol}) for protocol, count in protocols.items()],
            *[("consumer.group.count", count, {"state": state}) for state, count in states.items()],
            *[
                ("partition.count", partitions * (state == partition), {"state": state})
                for state in ("loading", "active", "failed")
            ],
            ("event.queue.size", waiting, {}),
            ("consumer.group.rebalance.count", self._rebalances, {}),
            ("consumer.group.rebalance.rate", rate, {}),
            ("group.completed.rebalance.count", self._completed, {}),
            ("group.completed.rebalance.rate", completed_rate, {}),
            ("partition.load.time.max", max(self._load_ms, default=0.0), {}),
            ("partition.load.time.avg", sum(self._load_ms) / max(len(self._load_ms), 1), {}),
            ("thread.idle.ratio.min", min(idle), {}),
            ("thread.idle.ratio.avg", sum(idle) / len(idle), {}),
        ]
        return tuple(
            Figure(f"kafka.group_coordinator.{name}", value, {**own, **attributes}) for name, value, own in values
        )

    def _take_sample(self) -> None:
        self._samples.append(self._now())
        self._timer = self._loop.call_later(SAMPLE_S, self._take_sample)

    def _now(self) -> _Sample:
        return _Sample(self._loop.time(), time.thread_time(), self._rebalances, self._completed)

    def _rebalance_rates(self) -> tuple[float, float]:
        now = self._now()
        first = self._samples[0] if self._samples else now
        passed_s = max(now.at_s - first.at_s, 1.0)
        return (now.rebalances - first.rebalances) / passed_s, (now.completed - first.completed) / passed_s

    def _idle_ratios(self) -> list[float]:
        """The part of the time in which the thread did nothing, of each interval between two samples and to now."""
        points = [*self._samples, self._now()]
        return [
            min(max(1 - (later.busy_s - sooner.busy_s) / (later.at_s - sooner.at_s), 0.0), 1.0)
            for sooner, later in itertools.pairwise(points)
            if later.at_s > sooner.at_s
        ] or [1.0]
