"""Steps after a node of a cluster dies, stops, comes back, or gives something up. Lives on the broker's loop.

A change of a leader has three parts: the placement says who leads now, the logs of topics begin their next leader
epoch, and coordinators end on one node and load on another. Two settings delay this:
``kip848.election.delay.ms`` until the others notice that a node died, and ``kip848.coordinator.load.ms`` until a
coordinator has read its records.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.common.clock import ManualClock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import DataDirError, IllegalStateError
from kip848_client.testing.broker.cluster.nodes import Node, Nodes, NodeSnapshot
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.metadata.placement import (
    GROUP_OFFSETS,
    NO_LEADER,
    CoordinatorTopic,
    LeaderChange,
    coordinator_partition,
)
from kip848_client.testing.broker.net.server import Server
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic

_RETRY_MS: Final = 500
"""Pause after the log of a coordinator could not be read."""


class FailOver:
    """The events of one cluster.

    Args:
        make_server: makes the server of a node.
        on_event: called for each event with its name for the journal and the node.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        state: BrokerState,
        make_server: Callable[[int], Server],
        on_event: Callable[[str, int], None],
    ) -> None:
        self._config: Final = config
        self._state: Final = state
        self._nodes: Final[Nodes] = state.nodes
        self._placement: Final = state.placement
        self._groups: Final = state.groups
        self._transactions: Final = state.transactions
        self._make_server: Final = make_server
        self._on_event: Final = on_event
        self._delayed: Final[list[tuple[int, int, Callable[[], None]]]] = []
        self._sequence = 0
        self._closed = False

    def close(self) -> None:
        """Do nothing any more that was delayed."""
        self._closed = True

    # --- nodes

    async def kill(self, node_id: int) -> None:
        """End a node as a power failure does.

        Raises:
            IllegalStateError: there is no such node, or it is not running.
        """
        node = self._running(node_id)
        self._on_event("node_killed", node_id)
        self._placement.halt(node_id)
        await node.stop(abort=True, reset=True, keep_port=True)
        self._after(self._config.election_delay_ms, lambda: self._others_notice(node))

    async def stop(self, node_id: int) -> None:
        """End a node by a controlled shutdown: its partitions get other leaders first.

        Raises:
            IllegalStateError: there is no such node, or it is not running.
        """
        node = self._running(node_id)
        self._on_event("node_stopped", node_id)
        self._groups.stop_coordinating(self._placement.led_by(GROUP_OFFSETS, node_id))
        self._changed(self._placement.node_died(node_id))
        await node.stop(abort=False, keep_port=True)

    async def start(self, node_id: int, *, preferred: bool) -> None:
        """Let a node serve again, on its old port.

        Args:
            preferred: it leads its preferred partitions again.

        Raises:
            IllegalStateError: there is no such node, or it runs.
            ConfigError: another process has its port.
        """
        node = self._node(node_id)
        if node.state != "stopped":
            raise IllegalStateError(f"node {node_id} is already running")
        if node_id in self._placement.living:  # it was killed, and its death is not noticed yet
            self._changed(self._placement.node_died(node_id))
        await node.start(self._make_server(node_id))
        self._on_event("node_started", node_id)
        changes = self._placement.node_back(node_id, preferred=preferred)
        self._stop_coordinating(changes)
        self._changed(changes)

    def pause(self, node_id: int) -> None:
        """Let a node answer nothing, as one that hangs; it stays the leader of its partitions.

        Raises:
            IllegalStateError: there is no such node, or it is not running.
        """
        server = self._running(node_id).server
        assert server is not None
        server.paused = True
        self._placement.halt(node_id)
        self._on_event("node_paused", node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node answer what came meanwhile, in order, and then do what became due.

        In Kafka the two race, after SIGCONT or a long pause of its garbage collector.

        Raises:
            IllegalStateError: there is no such node, or it is not paused.
        """
        node = self._node(node_id)
        if node.server is None or not node.server.paused:
            raise IllegalStateError(f"node {node_id} is not paused: it is {node.state}")
        self._on_event("node_resumed", node_id)
        self._placement.go_on(node_id)
        node.server.resume()

        def go_on() -> None:
            self._groups.go_on(node_id)
            self._transactions.go_on(node_id)

        # Behind the sockets: they are read in the next turn, also what came in before the node went on.
        asyncio.get_running_loop().call_later(0, go_on)

    # --- leaders and coordinators

    def move_leader(self, topic: Topic, partition: int, to: int, *, lose_records: int) -> None:
        """Let another node lead a partition, with the next leader epoch.

        Args:
            lose_records: how many of the last records the new leader does not have.

        Raises:
            IllegalStateError: the node is not running.
            BrokerError: the log holds fewer records; nothing was changed.
        """
        self._running(to)
        if lose_records:
            self._state.topics.lose_records(topic, partition, lose_records)
        change = self._placement.move(topic.topic_id, partition, to, elect_anew=lose_records > 0)
        if change is not None:
            self._changed([change])

    def move_coordinator(self, kind: CoordinatorTopic, key: str, to: int) -> None:
        """Let another node coordinate the partition of a group or a transactional id.

        Raises:
            IllegalStateError: the node is not running.
        """
        self._running(to)
        partition = coordinator_partition(key)
        if kind == GROUP_OFFSETS and self._placement.get(kind, partition).leader != to:
            self._groups.stop_coordinating([partition])
        change = self._placement.move(kind, partition, to)
        if change is not None:
            self._changed([change])

    def run_due(self) -> None:
        """Do the delayed work that is due, after a `ManualClock` was moved."""
        while self._delayed and self._delayed[0][0] <= self._state.clock.now_ms():
            heapq.heappop(self._delayed)[2]()

    # --- internals

    def _others_notice(self, node: Node) -> None:
        if node.state == "stopped" and node.node_id in self._placement.living:
            self._changed(self._placement.node_died(node.node_id))

    def _stop_coordinating(self, changes: Iterable[LeaderChange]) -> None:
        self._groups.stop_coordinating([change.partition for change in changes if change.topic == GROUP_OFFSETS])

    def _changed(self, changes: Iterable[LeaderChange]) -> None:
        changes = tuple(changes)
        self._state.topics.leaders_changed(changes)
        for change in changes:
            if change.topic == GROUP_OFFSETS:
                epoch = self._placement.get(GROUP_OFFSETS, change.partition).epoch
                self._state.offsets_topic.lead(change.partition, epoch=epoch)
        groups, ids = self._groups.leaders_changed(changes), self._transactions.leaders_changed(changes)

        def load() -> None:
            try:
                if groups:
                    self._groups.load(groups)
                if ids:
                    self._transactions.load(ids)
            except DataDirError as error:
                log_event(logging.ERROR, LogEvent.STORAGE_FAILED, logger=BROKER_LOGGER, error=error)
                self._after(_RETRY_MS, load)

        if groups or ids:
            self._after(self._config.coordinator_load_ms, load)

    def _after(self, delay_ms: int, callback: Callable[[], None]) -> None:
        if not delay_ms:
            callback()
        elif isinstance(self._state.clock, ManualClock):
            self._sequence += 1
            heapq.heappush(self._delayed, (self._state.clock.now_ms() + delay_ms, self._sequence, callback))
        else:
            self._state.call_later(delay_ms, lambda: None if self._closed else callback())

    def _node(self, node_id: int) -> Node:
        node = self._nodes.get(node_id)
        if node is None:
            raise IllegalStateError(f"there is no node {node_id!r}; nodes are {[each.node_id for each in self._nodes]}")
        return node

    def _running(self, node_id: int) -> Node:
        node = self._node(node_id)
        if node.state == "stopped":
            raise IllegalStateError(f"node {node_id} is not running; nodes.start({node_id}) starts it")
        return node


def node_snapshots(state: BrokerState) -> tuple[NodeSnapshot, ...]:
    """All nodes as they are now, by id."""
    led: dict[int, list[tuple[str, int]]] = {node.node_id: [] for node in state.nodes}
    for topic in state.topics:
        for number in range(topic.partition_count):
            leader = state.placement.get(topic.topic_id, number).leader
            if leader != NO_LEADER:
                led[leader].append((topic.name, number))
    return tuple(
        NodeSnapshot(
            node_id=node.node_id,
            host=node.endpoint().host,
            port=node.endpoint().port,
            rack=node.rack,
            state=node.state,
            leads=tuple(led[node.node_id]),
        )
        for node in state.nodes
    )
