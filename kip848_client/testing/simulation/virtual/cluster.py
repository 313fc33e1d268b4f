"""The cluster of a simulation: topics, a replicated log, and the coordinator, which crashes and moves between nodes.

Nodes 0 and 1 take turns as the coordinator; clients ask node 2 which one it is. A new coordinator finds only the
replicated part of the log; the rest is lost with the old one.

Does not own: the members' reactions to answers (`simulated_consumer`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kip848_client.common.model import BrokerNode
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroupChanged
from kip848_client.testing.coordinator.consumer import subscriptions
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import (
    ApiRequest,
    ConfigChanged,
    CoordinatorStops,
    GroupRequest,
    TopicsChanged,
)
from kip848_client.testing.coordinator.core.result import (
    CoordinatorRecord,
    CoordinatorResult,
    DeleteShareState,
    InitializeShareState,
    ResolveRegexes,
)
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.faults.replies import refused
from kip848_client.testing.simulation.virtual.network import AnyRequest, Reply, SimulatedServer
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.topics import Topics
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kip848_client.wire.schema import Response

NODES: Final = tuple(BrokerNode(number, f"simulated-{number}", 9092) for number in range(3))
ANY_NODE: Final = 2
"""The broker of the clients' configuration. It is never the coordinator, and never dies."""
_COMPACTED_FROM: Final = 2_000
"""Length of a log that is compacted before it is read, so that loads do not grow with the age of a group."""


class VirtualCluster:
    """Topics, the log, and the present coordinator.

    Args:
        config: settings of every coordinator.
    """

    def __init__(self, scheduler: Scheduler, config: CoordinatorConfig, scenario: Scenario) -> None:
        self._scheduler = scheduler
        self._config = config
        self.scenario: Final = scenario
        self.rng: Final = scheduler.random("cluster")
        self.ids: Final = scheduler.random("coordinator")
        """Draws ids of members that join without one; nothing else in a coordinator is random."""
        self._faulty = True
        """Coordinators die, and records become durable late."""
        self._overrides: dict[str, Mapping[str, str]] = {}
        self.topics: Final = Topics(scheduler)
        self.topics.on_change = self._topics_changed
        self.log: list[CoordinatorRecord] = []
        """Records that the coordinator appended; those from `durable` on may be lost."""
        self.durable: int = 0
        self.version: int = 0
        """Grows whenever the coordinator's state may have changed, or the topics."""
        self.loads: int = 0
        """How often a coordinator was loaded."""
        self.on_node_down: Callable[[int], object] = lambda _node: None
        self.on_loaded: Callable[[GroupCoordinator | None, GroupCoordinator], None] = lambda _before, _after: None
        """Called with the coordinator before (None if records of it were lost) and the new one, which read the log."""
        self.on_served: Callable[[str, AnyRequest, Response], None] = lambda _client, _request, _response: None
        """(client id, request, response) of everything decided, before the answer leaves."""
        self.fences: Callable[[str, AnyRequest], bool] = lambda _client, _request: False
        """Whether the request of a client id belongs to a transaction that has ended: it is refused, however late it
        arrives."""
        self.others: Final[dict[type[AnyRequest], Callable[[AnyRequest, Reply], None]]] = {}
        """Requests that are not for the coordinator of groups -> what answers them."""
        self.brokers: Final[dict[int, SimulatedServer]] = {}
        """Nodes beside those that take turns as the coordinator."""
        self.on_share_state: Callable[[InitializeShareState | DeleteShareState], None] = lambda _change: None
        """Called with what the coordinator of a share group wants of its partitions, before the replies."""
        self.matching_ms = 1
        """How long patterns are matched against the topics."""
        self._hosts: dict[int, CoordinatorHost] = {}
        self._leader = 0
        self._claimed = 0
        """The coordinator according to the other brokers."""
        self.host: CoordinatorHost = self._start(0)
        self.host.load()

    @property
    def coordinator(self) -> GroupCoordinator:
        """The present coordinator; in a time without one, the last one."""
        return self.host.coordinator

    @property
    def up(self) -> bool:
        """Whether there is a coordinator that answers."""
        return self.host.alive and not self.host.loading

    # --- serving

    def is_up(self, node_id: int) -> bool:
        """Whether a broker accepts connections."""
        if node_id == ANY_NODE:
            return True
        if other := self.brokers.get(node_id):
            return other.is_up(node_id)
        return node_id != self._leader or self.host.alive

    def serve(self, node_id: int, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Answer one request."""
        if broker := self.brokers.get(node_id):
            broker.serve(node_id, request, api_version=api_version, client_id=client_id, reply=reply)
            return
        if isinstance(request, FindCoordinatorRequest):
            self._find(request, api_version, reply)
            return
        if other := self.others.get(type(request)):
            other(request, reply)
            return
        host = self._hosts.get(node_id)
        if host is None or not host.alive:
            reply(refused(request, api_version=api_version, code=ErrorCode.NOT_COORDINATOR))
        elif self.fences(client_id, request):
            reply(refused(request, api_version=api_version, code=ErrorCode.INVALID_PRODUCER_EPOCH))
        else:
            host.serve(request, api_version=api_version, client_id=client_id, reply=reply)

    def _find(self, request: FindCoordinatorRequest, api_version: int, reply: Reply) -> None:
        claimed = NODES[self._claimed]
        if not self.is_up(self._claimed):
            reply(refused(request, api_version=api_version, code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        keys = request.coordinator_keys or (request.key,)
        found = tuple(Coordinator(key, claimed.node_id, claimed.host, claimed.port) for key in keys)
        reply(
            FindCoordinatorResponse(coordinators=found)
            if api_version >= 4
            else FindCoordinatorResponse(node_id=claimed.node_id, host=claimed.host, port=claimed.port)
        )

    def append(self, records: tuple[CoordinatorRecord, ...]) -> None:
        """Put records into the log; they become durable at once, or some time later."""
        self.log.extend(records)
        self.touch()
        if not (self._faulty and self.scenario.replication_ms):
            self.durable = len(self.log)
            return
        end, host = len(self.log), self.host

        def replicated() -> None:
            self._scheduler.events += 1
            if self.host is host and host.alive and end > self.durable:
                self.durable = end
                host.replicated()

        self._scheduler.call_in(int(self.rng.random() * self.scenario.replication_ms), replicated)

    def dies(self, probability: float) -> bool:
        """Draw whether the coordinator dies now."""
        return self._faulty and bool(probability) and self.rng.random() < probability

    # --- crashing, moving

    def crash(self, when: str = "between_events") -> None:
        """The coordinator's process dies. It comes back when `restart` or `fail_over` is called."""
        host = self.host
        if not host.alive:
            return
        host.die()
        self._scheduler.history.count(f"coordinator_crashed_{when}")
        self._scheduler.note("coordinator", "coordinator_crashed", when=when)
        self.on_node_down(host.node_id)

    def restart(self) -> None:
        """Load the log on the same node, and serve again."""
        if not self.host.alive:
            # This node still has its appends; they are durable since no other node was elected.
            self.durable = len(self.log)
            self._take_over(self._leader, before=self.host.coordinator)

    def restart_later(self, rng: random.Random) -> None:
        """Let a coordinator that has died come back some time later, unless another one does before."""
        host = self.host
        if not host.alive:
            self._scheduler.call_in(rng.randint(50, 2_000), lambda: self.restart() if self.host is host else None)

    def fail_over(self, *, believes_for_ms: int, load_ms: int, rumour_ms: int) -> None:
        """Another node becomes the coordinator, with the replicated records.

        Args:
            believes_for_ms: how long the old coordinator goes on without knowing; 0: it stops at once.
            load_ms: how long the new one refuses because it loads.
            rumour_ms: how long the other brokers still name the old one.
        """
        old = self.host
        lost = len(self.log) - self.durable
        self._scheduler.note("coordinator", "coordinator_moved", records_lost=lost)
        if lost:
            self._scheduler.note("coordinator", "log_truncated", records=lost)
            del self.log[self.durable :]
        if old.alive and believes_for_ms:
            old.deposed = True
            old.ahead = bool(lost)
            self._scheduler.note("coordinator", "two_coordinators")
            self._scheduler.call_in(believes_for_ms, lambda: self._depose(old))
        elif old.alive:
            old.die()
            self.on_node_down(old.node_id)
        self._take_over(1 - self._leader, before=None if lost else old.coordinator, load_ms=load_ms)
        leader = self._leader
        self._scheduler.call_in(rumour_ms, lambda: self._spread(leader))

    def _depose(self, old: CoordinatorHost) -> None:
        if old.alive and old is not self.host:
            old.die()
            self.on_node_down(old.node_id)

    def _spread(self, leader: int) -> None:
        if leader == self._leader:
            self._claimed = leader

    def _take_over(self, node_id: int, *, before: GroupCoordinator | None, load_ms: int = 0) -> None:
        old = self._hosts.get(node_id)
        if old is not None and old.alive:
            old.die()
        self._leader = node_id
        self.host = host = self._start(node_id)
        self.touch()

        def load() -> None:
            if self.host is host and host.alive and host.loading:
                self._loaded(host, before=before)
                self._scheduler.note("coordinator", "coordinator_loaded", records=len(self.log))

        if load_ms:
            self._scheduler.call_in(load_ms, load)
        else:
            self._claimed = node_id
            load()

    def _loaded(self, host: CoordinatorHost, *, before: GroupCoordinator | None) -> None:
        """The log was read. Settings of groups are not in it; they are set again."""
        self.on_loaded(before, host.coordinator)
        host.load()
        for group_id, overrides in self._overrides.items():
            host.decide(ConfigChanged(group_id, overrides))

    def heal(self) -> None:
        """End the faults: one coordinator, known to all brokers, with a durable log."""
        self._faulty = False
        for host in self._hosts.values():
            if host is not self.host and host.alive:
                self._depose(host)
        if not self.host.alive:
            self.restart()
        elif self.host.loading:
            self._loaded(self.host, before=None)
        self._claimed = self._leader
        self.durable = len(self.log)
        self.host.replicated()

    def _start(self, node_id: int) -> CoordinatorHost:
        if len(self.log) > _COMPACTED_FROM and self.durable == len(self.log):
            self.log = compact(self.log)
            self.durable = len(self.log)
        host = CoordinatorHost(self, self._scheduler, node_id, self.reloaded())
        self._hosts[node_id] = host
        self.loads += 1
        self._scheduler.dirty = True
        return host

    def reloaded(self) -> GroupCoordinator:
        """Another coordinator with the state that the log leads to."""
        other = GroupCoordinator(self._config, rng=self.ids)
        compacted = bool(self.scenario.compaction) and self.rng.random() < self.scenario.compaction
        for record in compact(self.log) if compacted else self.log:
            other.replay(record)
        return other

    # --- changes

    def touch(self) -> None:
        """The coordinator's state changed, or the topics did."""
        self.version += 1
        self._scheduler.dirty = True

    def _topics_changed(self) -> None:
        self.touch()
        if self.up:
            self.host.decide(TopicsChanged(self.topics.image))

    def change_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override settings for one group, while it lives."""
        self._overrides[group_id] = overrides
        if self.up:
            self.host.decide(ConfigChanged(group_id, overrides))


def compact(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """Compact a log: keep the last record of each key, in the order of the log, tombstones too."""
    last = {record.key: number for number, record in enumerate(log)}
    return [log[number] for number in sorted(last.values())]


class Asked(NamedTuple):
    """A request that waits for the coordinator's answer."""

    request: AnyRequest
    api_version: int
    client_id: str
    reply: Reply


class CoordinatorHost:
    """A coordinator in one process: the production `GroupCoordinator`, driven as the embedded broker drives it.

    Decide, append, replay, apply, then reply; an answer leaves when everything is durable that was appended before it.
    The host may die before or after an append, be loading, or be deposed. A deposed host goes on from its memory until
    it must write, if everything in its memory is durable; if not, it never answers again.

    Args:
        coordinator: it has read the log.
    """

    def __init__(
        self, cluster: VirtualCluster, scheduler: Scheduler, node_id: int, coordinator: GroupCoordinator
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self.node_id: Final = node_id
        self.coordinator: Final = coordinator
        self.loading: bool = True
        """Until `load` is called, every request is refused."""
        self.alive: bool = True
        self.deposed = False
        """This coordinator was deposed and does not know it."""
        self.ahead = False
        """It was deposed with records that will never be replicated, so its answers wait for ever."""
        self._rng = cluster.rng
        self._number = 0
        self._asked: dict[int, Asked] = {}
        self._unreplied: deque[tuple[int, int, Response]] = deque()
        """(records that must be durable first, request number, answer)."""
        self._timer_ms: int | None = None
        self.matching: int = 0
        """How many matches of patterns are under way."""

    # --- requests

    def serve(self, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Answer one request."""
        if self.loading:
            reply(refused(request, api_version=api_version, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._number += 1
        number = self._number
        self._asked[number] = Asked(request, api_version, client_id, reply)
        event = ApiRequest(
            number,
            api_version,
            request,
            self._scheduler.wall_ms,
            client_id,
            "/simulated",
        )
        self.decide(event, check_purity=self._rng.random() < self._cluster.scenario.purity)

    def decide(self, event: GroupRequest, *, check_purity: bool = False) -> None:
        """Let the coordinator decide about *event*, and carry out the result."""
        drawn = self._cluster.ids.getstate() if check_purity else None
        result = self.coordinator.handle(event, now_ms=self._scheduler.now_ms)
        if drawn is not None:
            self._cluster.ids.setstate(drawn)
            again = self.coordinator.handle(event, now_ms=self._scheduler.now_ms)
            if result != again:
                fail("S9", f"decided twice, it comes to another end: {event}: {result} and {again}")
        self.finish(result)

    def finish(self, result: CoordinatorResult) -> None:
        """Append, replay, apply, reply."""
        cluster = self._cluster
        if result.records:
            if self.deposed:
                self._learn_of_successor(result)
                return
            if cluster.dies(cluster.scenario.coordinator_crashes_before_append):
                cluster.crash("before_append")
                return
            cluster.append(result.records)
            for record in result.records:
                self.coordinator.replay(record)
        self.coordinator.apply(result)
        if any(isinstance(change, ClassicGroupChanged) for change in result.soft):
            cluster.touch()
        for fact in result.events:
            self._scheduler.history.add_fact(self._scheduler.now_ms, fact)
        if result.records and cluster.dies(cluster.scenario.coordinator_crashes_after_append):
            cluster.crash("after_append")
            return
        for change in result.share_state:
            cluster.on_share_state(change)
            if not self.alive:
                return
        for reply in result.replies:
            self._answer(reply.request_id, reply.response)
        for task in result.tasks:
            self.matching += 1
            self._scheduler.call_in(cluster.matching_ms, lambda task=task: self._resolve(task))  # type: ignore[misc]
        self._arm()

    def _answer(self, number: int, response: Response) -> None:
        if not self.deposed:
            asked = self._asked[number]
            self._cluster.on_served(asked.client_id, asked.request, response)
        if self.ahead:
            del self._asked[number]
            return
        end = len(self._cluster.log)
        if self.deposed or self._cluster.durable >= end:
            self._asked.pop(number).reply(response)
        else:
            self._unreplied.append((end, number, response))

    def replicated(self) -> None:
        """More of the log is durable: answers that waited for it leave."""
        while self._unreplied and self._unreplied[0][0] <= self._cluster.durable:
            _, number, response = self._unreplied.popleft()
            self._asked.pop(number).reply(response)

    def _learn_of_successor(self, result: CoordinatorResult) -> None:
        """The append is refused: another node is the leader of the log."""
        self._scheduler.note(f"coordinator {self.node_id}", "coordinator_resigned")
        self.alive = False
        parked = self.coordinator.handle(CoordinatorStops(), now_ms=self._scheduler.now_ms)
        for reply in (*result.replies, *parked.replies):
            asked = self._asked.pop(reply.request_id, None)
            if asked is not None:  # a parked request may be in both
                asked.reply(refused(asked.request, api_version=asked.api_version, code=ErrorCode.NOT_COORDINATOR))

    def _resolve(self, task: ResolveRegexes) -> None:
        self.matching -= 1
        if self.alive:
            outcome = subscriptions.resolve(task, wall_ms=self._scheduler.wall_ms)
            self.decide(outcome)

    # --- life, time

    def load(self) -> None:
        """Serve, after the log was replayed."""
        self.loading = False
        self.decide(TopicsChanged(self._cluster.topics.image))
        if self.alive:
            self.coordinator.loaded(now_ms=self._scheduler.now_ms)
            self._arm()

    def die(self) -> None:
        """Drop all pending answers."""
        self.alive = False
        self._asked.clear()
        self._unreplied.clear()

    def _arm(self) -> None:
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        self._timer_ms = max(deadline_ms, self._scheduler.now_ms)
        self._scheduler.call_in(self._timer_ms - self._scheduler.now_ms, self._expire)

    def _expire(self) -> None:
        self._timer_ms = None
        if not self.alive:
            return
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._scheduler.now_ms:
            self._scheduler.events += 1
            self.finish(self.coordinator.expire(now_ms=self._scheduler.now_ms, wall_ms=self._scheduler.wall_ms))
        if self.alive:
            self._arm()
