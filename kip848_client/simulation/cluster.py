"""The cluster of a simulation: topics, a replicated log, and the coordinator, which crashes and moves between nodes.

Nodes 0 and 1 take turns as the coordinator; node 2 is the broker that a client asks who it is. What a new coordinator
finds is what was durable: the end of the log that was not replicated is gone with the old one.

Does not own: how one coordinator is driven (`host`), what a member does with an answer (`consumer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kip848_client.assignors import SERVER_ASSIGNORS, ServerAssignor
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.events import GroupEvent
from kip848_client.coordinator.requests import ConfigChanged, TopicsChanged
from kip848_client.coordinator.result import CoordinatorRecord, ResolveRegexes
from kip848_client.errors import ErrorCode
from kip848_client.model import BrokerNode
from kip848_client.simulation.host import CoordinatorHost, refusal
from kip848_client.simulation.network import AnyRequest, Reply
from kip848_client.simulation.topics import Topics
from kip848_client.simulation.world import World
from kip848_client.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kip848_client.wire.schema import Response

NODES: Final = tuple(BrokerNode(number, f"simulated-{number}", 9092) for number in range(3))
ANY_NODE: Final = 2
"""The broker that clients know from their configuration. It never is the coordinator, and never dies."""
_COMPACTED_FROM: Final = 2_000
"""Records of a log that is compacted before it is read: a load may not take longer the longer a group lives."""


class Cluster:
    """Topics, the log and whoever is the coordinator.

    Args:
        config: settings of every coordinator.
        replication_ms: most time until a record is durable.
        purity: part of the requests that are decided twice.
        compaction: part of the loads that read a compacted log.
        assignors: those of every coordinator, by name.
    """

    def __init__(
        self,
        world: World,
        config: CoordinatorConfig,
        *,
        replication_ms: int = 0,
        purity: float = 0.0,
        compaction: float = 0.0,
        assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
    ) -> None:
        self._world = world
        self._config = config
        self._assignors = assignors
        self.rng: Final = world.random("cluster")
        self._coordinator_rng = world.random("coordinator")
        self._replication_ms = replication_ms
        self._compaction = compaction
        self._overrides: dict[str, Mapping[str, str]] = {}
        self.purity = purity
        self.topics: Final = Topics(world)
        self.topics.on_change = self._topics_changed
        self.log: list[CoordinatorRecord] = []
        """What the coordinator appended; the records from `durable` on may be lost."""
        self.durable = 0
        self.version = 0
        """Grows whenever the coordinator's state may have changed, or the topics."""
        self.loads = 0
        """How often a coordinator was loaded."""
        self.facts: list[GroupEvent] = []
        """What the coordinator told its event log, of what changed since a checker looked."""
        self.crash_before_append = 0.0
        self.crash_after_append = 0.0
        self.on_node_down: Callable[[int], None] = lambda _node: None
        self.on_loaded: Callable[[GroupCoordinator | None, GroupCoordinator], None] = lambda _before, _after: None
        """(the one before if nothing of its log was lost, the one after its load)."""
        self.on_served: Callable[[str, AnyRequest, Response], None] = lambda _client, _request, _response: None
        """(client id, request, response) of everything decided, before the answer leaves."""
        self.matching_ms = 1
        """How long patterns are matched against the topics."""
        self.on_resolving: Callable[[ResolveRegexes], None] = lambda _task: None
        """Called with every task to match patterns."""
        self._hosts: dict[int, CoordinatorHost] = {}
        self._leader = 0
        self._claimed = 0
        """Who the other brokers say is the coordinator."""
        self.host = self._start(0)
        self.host.load()

    @property
    def coordinator(self) -> GroupCoordinator:
        """Whoever is the coordinator now; in a time without one, whoever was."""
        return self.host.coordinator

    @property
    def up(self) -> bool:
        """Whether there is a coordinator that answers."""
        return self.host.alive and not self.host.loading

    # -------------------------------------------------------------------------------------------------------- serving

    def is_up(self, node_id: int) -> bool:
        """Whether a broker accepts connections."""
        if node_id == ANY_NODE:
            return True
        return node_id != self._leader or self.host.alive

    def serve(self, node_id: int, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Answer one request."""
        if isinstance(request, FindCoordinatorRequest):
            self._find(request, api_version, reply)
            return
        host = self._hosts.get(node_id)
        if host is None or not host.alive:
            reply(refusal(request, api_version, ErrorCode.NOT_COORDINATOR))
        else:
            host.serve(request, api_version=api_version, client_id=client_id, reply=reply)

    def _find(self, request: FindCoordinatorRequest, api_version: int, reply: Reply) -> None:
        claimed = NODES[self._claimed]
        if not self.is_up(self._claimed):
            reply(refusal(request, api_version, ErrorCode.COORDINATOR_NOT_AVAILABLE))
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
        self._touch()
        if not self._replication_ms:
            self.durable = len(self.log)
            return
        end, host = len(self.log), self.host

        def replicated() -> None:
            self._world.events += 1
            if self.host is host and host.alive and end > self.durable:
                self.durable = end
                host.replicated()

        self._world.call_in(int(self.rng.random() * self._replication_ms), replicated)

    def dies(self, probability: float) -> bool:
        """Draw whether the coordinator dies now."""
        return bool(probability) and self.rng.random() < probability

    # -------------------------------------------------------------------------------------------- crashing, moving

    def crash(self, when: str = "between_events") -> None:
        """The coordinator's process dies. It comes back when `restart` or `fail_over` is called."""
        host = self.host
        if not host.alive:
            return
        host.die()
        self._world.history.count(f"coordinator_crashed_{when}")
        self._world.history.add(self._world.now_ms, "coordinator", "coordinator_crashed", when=when)
        self.on_node_down(host.node_id)

    def restart(self) -> None:
        """Load the log on the same node, and serve again."""
        if not self.host.alive:
            # What this node appended it still has: it is durable once nobody else was elected.
            self.durable = len(self.log)
            self._take_over(self._leader, before=self.host.coordinator)

    def fail_over(self, *, believes_for_ms: int, load_ms: int, rumour_ms: int) -> None:
        """Another node becomes the coordinator, with what was replicated.

        Args:
            believes_for_ms: how long the old one goes on as if nothing had happened; 0 is not at all.
            load_ms: how long the new one refuses because it loads.
            rumour_ms: how long the other brokers still name the old one.
        """
        old = self.host
        lost = len(self.log) - self.durable
        self._world.history.add(self._world.now_ms, "coordinator", "coordinator_moved", records_lost=lost)
        if lost:
            self._world.history.add(self._world.now_ms, "coordinator", "log_truncated", records=lost)
            del self.log[self.durable :]
        if old.alive and believes_for_ms:
            old.deposed = True
            old.ahead = bool(lost)
            self._world.history.add(self._world.now_ms, "coordinator", "two_coordinators")
            self._world.call_in(believes_for_ms, lambda: self._depose(old))
        elif old.alive:
            old.die()
            self.on_node_down(old.node_id)
        self._take_over(1 - self._leader, before=None if lost else old.coordinator, load_ms=load_ms)
        leader = self._leader
        self._world.call_in(rumour_ms, lambda: self._spread(leader))

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
        self._touch()

        def load() -> None:
            if self.host is host and host.alive and host.loading:
                self._loaded(host, before=before)
                self._world.history.add(self._world.now_ms, "coordinator", "coordinator_loaded", records=len(self.log))

        if load_ms:
            self._world.call_in(load_ms, load)
        else:
            self._claimed = node_id
            load()

    def _loaded(self, host: CoordinatorHost, *, before: GroupCoordinator | None) -> None:
        """The log was read; settings of groups are nothing that it holds."""
        self.on_loaded(before, host.coordinator)
        host.load()
        for group_id, overrides in self._overrides.items():
            host.decide(ConfigChanged(group_id, overrides))

    def heal(self) -> None:
        """There is one coordinator, everybody knows it, and all that it wrote is durable."""
        for host in self._hosts.values():
            if host is not self.host and host.alive:
                self._depose(host)
        if not self.host.alive:
            self.restart()
        elif self.host.loading:
            self._loaded(self.host, before=None)
        self._claimed = self._leader
        self._replication_ms = 0
        self.durable = len(self.log)
        self.host.replicated()

    def _start(self, node_id: int) -> CoordinatorHost:
        if len(self.log) > _COMPACTED_FROM and self.durable == len(self.log):
            self.log = compact(self.log)
            self.durable = len(self.log)
        host = CoordinatorHost(self, self._world, node_id, self.reloaded())
        self._hosts[node_id] = host
        self.loads += 1
        self._world.dirty = True
        return host

    def reloaded(self) -> GroupCoordinator:
        """Another coordinator with the state that the log leads to."""
        other = GroupCoordinator(self._config, rng=self._coordinator_rng, assignors=self._assignors)
        compacted = bool(self._compaction) and self.rng.random() < self._compaction
        for record in compact(self.log) if compacted else self.log:
            other.replay(record)
        return other

    # ------------------------------------------------------------------------------------------------------- changes

    def _touch(self) -> None:
        self.version += 1
        self._world.dirty = True

    def _topics_changed(self) -> None:
        self._touch()
        if self.up:
            self.host.decide(TopicsChanged(self.topics.image))

    def change_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override settings for one group, while it lives."""
        self._overrides[group_id] = overrides
        if self.up:
            self.host.decide(ConfigChanged(group_id, overrides))

    def overrides_of(self, group_id: str) -> Mapping[str, str]:
        """What an administrator set for one group."""
        return self._overrides.get(group_id, {})


def compact(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """What compaction leaves of a log: the last record of each key, in the order of the log, tombstones too."""
    last = {record.key: number for number, record in enumerate(log)}
    return [log[number] for number in sorted(last.values())]
