"""``broker.nodes``: the brokers of a cluster come and go, and lead partitions and coordinate groups.

Nodes are named by their ids. Every call that changes something raises IllegalStateError if there is no such node, if it
is not in a state for that call, or if the broker has a single node, which only stops as a whole (``broker.stop()``,
``broker.crash()``).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from kip848_client.errors import IllegalStateError
from kip848_client.testing.broker.cluster.fail_over import FailOver, node_snapshots
from kip848_client.testing.broker.cluster.nodes import NodeSnapshot
from kip848_client.testing.broker.controls.live import BrokerRun, LiveBroker
from kip848_client.testing.broker.metadata.placement import GROUP_OFFSETS, TRANSACTION_STATE, CoordinatorTopic


class BrokerNodes:
    """The nodes of a broker, by id: iteration yields a snapshot of each, and ``broker.nodes[2]`` is that of node 2.

    Example::

        with EmbeddedBroker({"orders": 6}, nodes=3) as broker:
            broker.nodes.kill(broker.nodes.coordinator(group="billing"))
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def __iter__(self) -> Iterator[NodeSnapshot]:
        """Each node, running or not: its address, its state, and the partitions that it leads."""
        return iter(self._live.on_loop(node_snapshots))

    def __getitem__(self, node_id: int) -> NodeSnapshot:
        """One node.

        Raises:
            IllegalStateError: there is no such node.
        """
        nodes = {node.node_id: node for node in self}
        if node_id not in nodes:
            raise IllegalStateError(f"there is no node {node_id!r}; nodes are {sorted(nodes)}")
        return nodes[node_id]

    # --- coming and going

    def kill(self, node_id: int) -> None:
        """End a node as a power failure does: connections are reset, and other nodes lead its partitions.

        A group that it coordinated is loaded by another node: members keep their partitions and epochs, sessions begin
        anew. ``kip848.election.delay.ms`` puts time before the others notice, ``kip848.coordinator.load.ms`` before
        groups and transactions are served again.
        """
        self._wait_for(lambda fail_over: fail_over.kill(node_id))

    def stop(self, node_id: int) -> None:
        """Shut a node down as an operator does: other nodes lead its partitions first, then its connections close."""
        self._wait_for(lambda fail_over: fail_over.stop(node_id))

    def start(self, node_id: int, *, preferred: bool = False) -> None:
        """Start a node that was killed or stopped, on its old port.

        Args:
            preferred: it leads its preferred partitions again; otherwise they stay with the other nodes.

        Raises:
            ConfigError: another process has taken its port.
        """
        self._wait_for(lambda fail_over: fail_over.start(node_id, preferred=preferred))

    def pause(self, node_id: int) -> None:
        """Let a node hang, as SIGSTOP does: it takes requests, answers none, and lets no time run out.

        While it hangs it stays the leader of its partitions, and its groups and transactions stay as they are.
        """
        self._call(lambda fail_over: fail_over.pause(node_id))

    def resume(self, node_id: int) -> None:
        """Let a paused node go on: it answers what came meanwhile, in order, and then does what became due.

        So a member whose heartbeat waited stays in its group, and one that sent none is removed.
        """
        self._call(lambda fail_over: fail_over.resume(node_id))

    # --- leaders and coordinators

    def leader(self, topic: str, partition: int) -> int:
        """The id of the node that leads a partition; -1 while none does.

        Raises:
            BrokerError: there is no such partition.
        """
        return self._live.on_loop(
            lambda state: state.placement.get(state.topics.find(topic, partition).topic_id, partition).leader
        )

    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int:
        """The id of the node that coordinates a group, or a transactional id; -1 while none does.

        Raises:
            TypeError: not exactly one of them is given.
        """
        kind, key = _coordinated(group, transactional_id)
        return self._live.on_loop(lambda state: state.placement.coordinator(kind, key))

    def move_leader(self, topic: str, partition: int, to: int, *, lose_records: int = 0) -> None:
        """Let another node lead a partition, with the next leader epoch.

        Args:
            to: the id of a running node.
            lose_records: how many of its last records the new leader does not have; consumers that have read them
                learn that the log was truncated. Whole batches are lost, so it may be some more.

        Raises:
            BrokerError: there is no such partition, or it holds fewer records.
        """
        topics = self._live.current().state.topics
        self._call(
            lambda fail_over: fail_over.move_leader(
                topics.find(topic, partition), partition, to, lose_records=lose_records
            )
        )

    def move_coordinator(self, *, group: str | None = None, transactional_id: str | None = None, to: int) -> None:
        """Let another node coordinate a group or a transactional id, with all others in its partition of Kafka's topic.

        Args:
            to: the id of a running node.

        Raises:
            TypeError: not exactly one of *group* and *transactional_id* is given.
        """
        kind, key = _coordinated(group, transactional_id)
        self._call(lambda fail_over: fail_over.move_coordinator(kind, key, to))

    # --- internals

    def _call(self, function: Callable[[FailOver], None]) -> None:
        run = self._live.current()
        fail_over = _fail_over_of(run)
        run.thread.call(lambda: function(fail_over))

    def _wait_for(self, function: Callable[[FailOver], Coroutine[Any, Any, None]]) -> None:
        run = self._live.current()
        run.thread.run(function(_fail_over_of(run)))


def _fail_over_of(run: BrokerRun) -> FailOver:
    if not run.state.placement.is_spread:
        raise IllegalStateError(
            "this broker has a single node, which only stops as a whole: stop() or crash(). "
            "EmbeddedBroker(nodes=3) has nodes that come and go"
        )
    return run.fail_over


def _coordinated(group: str | None, transactional_id: str | None) -> tuple[CoordinatorTopic, str]:
    if group is not None and transactional_id is None:
        return GROUP_OFFSETS, group
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE, transactional_id
    raise TypeError("give either group= or transactional_id=")
