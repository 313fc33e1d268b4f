"""Which node leads which partition: replicas, leaders and their epochs, for topics and for coordinators. Pure.

Replication itself is fiction: there is one copy of every log, in this process. Leadership is real: each request is
judged by the node that it came to. Events (a node dies, comes back, a leader is moved) change the placement and return
the changed leaders; `fail_over` does the rest.

Coordinators are the leaders of the partitions of ``__consumer_offsets`` and ``__transaction_state``, as in Kafka; their
partitions have a replica on every node.

Source:
    apache/kafka ``StripedReplicaPlacer``, ``PartitionChangeBuilder``, ``Utils.abs``, ``GroupCoordinator.partitionFor``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from kip848_client.errors import BrokerError, ErrorCode, join_names
from kip848_client.testing.transactions.transaction import GROUP_OFFSETS_PARTITIONS, offsets_partition

CoordinatorTopic: TypeAlias = Literal["__consumer_offsets", "__transaction_state"]
GROUP_OFFSETS: Final[CoordinatorTopic] = "__consumer_offsets"
TRANSACTION_STATE: Final[CoordinatorTopic] = "__transaction_state"
COORDINATOR_TOPICS: Final = (GROUP_OFFSETS, TRANSACTION_STATE)
COORDINATOR_PARTITIONS: Final = GROUP_OFFSETS_PARTITIONS
"""Kafka's ``transaction.state.log.num.partitions`` has the same default."""
NO_LEADER: Final = -1

TopicKey: TypeAlias = uuid.UUID | CoordinatorTopic


class PlacedPartition(msgspec.Struct):
    """Where one partition is.

    Attributes:
        replicas: ids of its nodes, the preferred leader first.
        leader: id of the node that leads it; `NO_LEADER` while no replica lives.
        epoch: grows with each change of the leader.
    """

    replicas: tuple[int, ...]
    leader: int
    epoch: int = 0


class LeaderChange(NamedTuple):
    """One partition has another leader."""

    topic: TopicKey
    partition: int
    old: int
    new: int


class Placement:
    """All partitions of one cluster.

    Args:
        node_ids: of all nodes, ascending; all of them live.
        replication_factor: replicas of a topic that asks for no number; at most one on each living node.
    """

    def __init__(self, node_ids: Sequence[int], *, replication_factor: int = 1) -> None:
        self._nodes: Final = sorted(node_ids)
        self._living: set[int] = set(node_ids)
        self._halted: Final[set[int]] = set()
        self._replication_factor: Final = replication_factor
        self._topics: Final[dict[TopicKey, list[PlacedPartition]]] = {}
        self._placed = 0
        self.is_spread: Final = len(self._nodes) > 1
        """Whether there is more than one node: to a single one every partition of a topic belongs."""
        everywhere = self._striped(0, range(COORDINATOR_PARTITIONS), len(self._nodes))
        for topic in COORDINATOR_TOPICS:
            self._topics[topic] = [PlacedPartition(replicas, replicas[0]) for replicas in everywhere]

    # --- who is there

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ids of all nodes, ascending, dead ones too."""
        return tuple(self._nodes)

    @property
    def living(self) -> tuple[int, ...]:
        """Ids of the living nodes, ascending."""
        return tuple(node for node in self._nodes if node in self._living)

    @property
    def controller(self) -> int:
        """The lowest living node; `NO_LEADER` if none lives."""
        return min(self._living, default=NO_LEADER)

    def acts(self, topic: TopicKey, partition: int) -> bool:
        """Whether some node leads a partition, and that node does anything now."""
        leader = self.get(topic, partition).leader
        return leader != NO_LEADER and leader not in self._halted

    # --- topics

    def place(
        self,
        topic: uuid.UUID,
        partitions: int,
        *,
        replication_factor: int | None = None,
        assignments: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        """Give a new topic its replicas and leaders.

        Args:
            replication_factor: replicas of each partition; None takes the default.
            assignments: the replicas of each partition, in place of ours.

        Raises:
            BrokerError: INVALID_REPLICATION_FACTOR or INVALID_REPLICA_ASSIGNMENT.
        """
        if not self.is_spread:
            return
        if assignments is None:
            assignments = self._striped(self._placed, range(partitions), self.check_factor(replication_factor))
        self.check_assignments(assignments)
        self._topics[topic] = [PlacedPartition(replicas, self._first_living(replicas)) for replicas in assignments]
        self._placed += 1

    def grow(self, topic: uuid.UUID, count: int, *, assignments: Sequence[tuple[int, ...]] | None = None) -> None:
        """Place the partitions that a topic has more from now on; *count* is their number with the old ones.

        Raises:
            BrokerError: as `place`.
        """
        if not self.is_spread:
            return
        placed = self._topics[topic]
        if assignments is None:
            factor = min(len(placed[0].replicas), len(self._living))
            start = self._nodes.index(placed[0].replicas[0]) if placed[0].replicas[0] in self._nodes else 0
            assignments = self._striped(start, range(len(placed), count), factor)
        else:
            self.check_assignments(assignments, factor=len(placed[0].replicas))
        placed += [PlacedPartition(replicas, self._first_living(replicas)) for replicas in assignments]

    def restore(self, topic: TopicKey, placed: Sequence[PlacedPartition]) -> bool:
        """Place a topic as it was before a restart, with the next leader epochs.

        Returns:
            False if there was nothing to restore, or those nodes are not there; the topic is as before then.
        """
        if not (self.is_spread and placed and all(set(each.replicas) <= self._living for each in placed)):
            return False
        self._topics[topic] = [
            PlacedPartition(
                each.replicas,
                each.leader if each.leader in self._living else self._first_living(each.replicas),
                each.epoch + 1,
            )
            for each in placed
        ]
        self._placed += isinstance(topic, uuid.UUID)
        return True

    def lead_after(self, topic: CoordinatorTopic, earlier: Sequence[PlacedPartition]) -> None:
        """Lead the partitions of a topic with later epochs than those that other nodes led it with."""
        for placed, before in zip(self._topics[topic], earlier, strict=False):
            placed.epoch = max(placed.epoch, before.epoch + 1)

    def restart(self) -> None:
        """All nodes start again: everything is led where it was, with the next leader epochs."""
        self._halted.clear()
        for node in self._nodes:
            if node not in self._living:
                self.node_back(node, preferred=False)
        for _, _, placed in self._partitions():
            placed.epoch += 1

    def forget(self, topic: uuid.UUID) -> None:
        """The topic is gone."""
        self._topics.pop(topic, None)

    def check_factor(self, replication_factor: int | None) -> int:
        """The number of replicas that a topic gets that asks for *replication_factor*; None asks for the default.

        Raises:
            BrokerError: INVALID_REPLICATION_FACTOR: more than there are living nodes.
        """
        if replication_factor is None:
            return min(self._replication_factor, len(self._living))
        if replication_factor > len(self._living):
            raise BrokerError(
                f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
                f"{replication_factor} cannot be reached because only {len(self._living)} broker(s) are registered.",
                code=ErrorCode.INVALID_REPLICATION_FACTOR,
            )
        return replication_factor

    def check_assignments(self, assignments: Iterable[tuple[int, ...]], *, factor: int | None = None) -> None:
        """Refuse replicas on nodes that are not there, and partitions with different numbers of replicas.

        Args:
            factor: replicas of each partition of the topic until now; None if it is new.

        Raises:
            BrokerError: INVALID_REPLICA_ASSIGNMENT.
        """
        for replicas in assignments:
            if not replicas:
                raise BrokerError(
                    "The manual partition assignment includes an empty replica list.",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )
            if len(set(replicas)) != len(replicas) or not set(replicas) <= set(self._nodes):
                known = (
                    f"only broker {self._nodes[0]} is registered"
                    if len(self._nodes) == 1
                    else f"brokers {self._nodes} are registered, and each may be named once"
                )
                named = join_names(map(str, replicas))
                raise BrokerError(
                    f"The manual partition assignment includes brokers [{named}], but {known}.",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )
            factor = len(replicas) if factor is None else factor
            if len(replicas) != factor:
                raise BrokerError(
                    f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
                    f"is not consistent with previous partitions, which have {factor} replica(s).",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )

    def check_added(self, topic: uuid.UUID, assignments: Iterable[tuple[int, ...]]) -> None:
        """`check_assignments` for partitions that an existing topic has more from now on.

        Raises:
            BrokerError: INVALID_REPLICA_ASSIGNMENT.
        """
        self.check_assignments(assignments, factor=len(self.get(topic, 0).replicas))

    # --- lookups

    def get(self, topic: TopicKey, partition: int) -> PlacedPartition:
        """Where a partition is."""
        if not self.is_spread and isinstance(topic, uuid.UUID):
            return PlacedPartition((self._nodes[0],), self._nodes[0])
        return self._topics[topic][partition]

    def of(self, topic: TopicKey) -> Sequence[PlacedPartition]:
        """Where the partitions of a topic are; empty for a topic of clients if there is a single node."""
        return self._topics.get(topic, ())

    def in_sync(self, placed: PlacedPartition) -> tuple[int, ...]:
        """The living replicas of a partition."""
        return tuple(node for node in placed.replicas if node in self._living)

    def offline(self, placed: PlacedPartition) -> tuple[int, ...]:
        """The dead replicas of a partition."""
        return tuple(node for node in placed.replicas if node not in self._living)

    def coordinator(self, topic: CoordinatorTopic, key: str) -> int:
        """The node that coordinates a group or a transactional id; `NO_LEADER` if none lives."""
        return self._topics[topic][coordinator_partition(key)].leader

    def led_by(self, topic: CoordinatorTopic, node_id: int) -> tuple[int, ...]:
        """The partitions of a coordinator topic that a node leads, ascending."""
        return tuple(number for number, placed in enumerate(self.of(topic)) if placed.leader == node_id)

    # --- events

    def halt(self, node_id: int) -> None:
        """A node does nothing from now on, and the others have not noticed: it stays the leader of its partitions."""
        self._halted.add(node_id)

    def is_active(self, node_id: int) -> bool:
        """Whether a node lives and is not halted."""
        return node_id in self._living and node_id not in self._halted

    def go_on(self, node_id: int) -> None:
        """A node that was halted does something again."""
        self._halted.discard(node_id)

    def node_died(self, node_id: int) -> tuple[LeaderChange, ...]:
        """A node is gone: the next living replica leads its partitions."""
        self._living.discard(node_id)
        self._halted.discard(node_id)
        return tuple(
            self._lead(topic, number, placed, self._next_living(placed.replicas, node_id))
            for topic, number, placed in self._partitions()
            if placed.leader == node_id
        )

    def node_back(self, node_id: int, *, preferred: bool) -> tuple[LeaderChange, ...]:
        """A node lives again: it leads partitions without a leader and, if asked for, those that prefer it."""
        self._living.add(node_id)
        self._halted.discard(node_id)
        return tuple(
            self._lead(topic, number, placed, node_id)
            for topic, number, placed in self._partitions()
            if (placed.leader == NO_LEADER and node_id in placed.replicas)
            or (preferred and placed.replicas[0] == node_id and placed.leader != node_id)
        )

    def move(self, topic: TopicKey, partition: int, to: int, *, elect_anew: bool = False) -> LeaderChange | None:
        """Let another node lead a partition; None if it does already. One that had no replica gets one.

        Args:
            elect_anew: begin the next epoch also if it leads already.

        Raises:
            ValueError: the node does not live.
        """
        if to not in self._living:
            raise ValueError(f"node {to} is not running; running are {list(self.living)}")
        placed = self._topics[topic][partition]
        if placed.leader == to and not elect_anew:
            return None
        if to not in placed.replicas:
            placed.replicas = tuple(to if node == placed.leader else node for node in placed.replicas)
        return self._lead(topic, partition, placed, to)

    def reassign(self, topic: uuid.UUID, partition: int, replicas: tuple[int, ...]) -> LeaderChange | None:
        """Give a partition other replicas; None if its leader is among them and stays.

        Raises:
            BrokerError: INVALID_REPLICA_ASSIGNMENT: nodes that are not there, or none that is running.
        """
        self.check_assignments([replicas])
        if not self.is_spread:
            return None
        leader = self._first_living(replicas)
        if leader == NO_LEADER:
            raise BrokerError(
                f"None of the brokers {list(replicas)} is running: one of the new replicas must lead the partition.",
                code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        placed = self._topics[topic][partition]
        placed.replicas = replicas
        return None if placed.leader in replicas else self._lead(topic, partition, placed, leader)

    # --- internals

    def _striped(self, start: int, partitions: Iterable[int], factor: int) -> list[tuple[int, ...]]:
        living = self.living
        return [
            tuple(living[(start + number + place) % len(living)] for place in range(factor)) for number in partitions
        ]

    def _partitions(self) -> Iterator[tuple[TopicKey, int, PlacedPartition]]:
        for topic, partitions in self._topics.items():
            for number, placed in enumerate(partitions):
                yield topic, number, placed

    def _first_living(self, replicas: tuple[int, ...]) -> int:
        return next((node for node in replicas if node in self._living), NO_LEADER)

    def _next_living(self, replicas: tuple[int, ...], after: int) -> int:
        place = replicas.index(after) + 1
        return self._first_living(replicas[place:] + replicas[:place])

    @staticmethod
    def _lead(topic: TopicKey, number: int, placed: PlacedPartition, leader: int) -> LeaderChange:
        change = LeaderChange(topic, number, placed.leader, leader)
        placed.leader = leader
        placed.epoch += 1
        return change


def coordinator_partition(key: str) -> int:
    """The partition that keeps a group or a transactional id in Kafka, by Java's hash of its name."""
    return offsets_partition(key)[1]
