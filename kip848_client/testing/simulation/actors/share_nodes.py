"""The nodes that lead the partitions of a simulated share group, and answer ShareFetch and ShareAcknowledge.

Each node has the production sessions; partitions move between nodes, with what was kept of them. A node may lag behind
when it is asked for the leaders.

Does not own: who has which record (`shared_partition`), members (`simulated_queue_members`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kip848_client.common.model import BrokerNode
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.member.core.assignment import IdPartition
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import (
    AcknowledgementBatch,
    AcquiredRecords,
    BatchOffsets,
)
from kip848_client.testing.share_partitions.share_sessions import FINAL_EPOCH, ReadPartition, ShareSessions
from kip848_client.testing.simulation.actors.shared_partition import SharedPartition
from kip848_client.testing.simulation.virtual.network import AnyRequest, Network, Reply, SimulatedConnection
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.wire.messages import share_acknowledge, share_fetch
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kip848_client.wire.record_batch import Record, build_batch, keep_records

_LOOK_EVERY_MS: Final = 50
_HINTS: Final = 0.5
"""Part of the refusals that name the new leader."""
_SESSIONS_MAX: Final = 4
"""Fewer than there may be members: some find no room for a session."""
_COMPACTED: Final = 5
"""One offset of so many holds no record."""


class ShareNode:
    """One node.

    Args:
        partitions: all that exist; *leaders* says who leads which.
    """

    def __init__(self, nodes: ShareNodes, node_id: int) -> None:
        self._nodes: Final = nodes
        self.node_id: Final = node_id
        self.up: bool = True
        self.sessions: ShareSessions = ShareSessions(sessions_max=_SESSIONS_MAX)
        self.opened: Final[dict[str, int]] = {}
        """Member -> number of its last session, while that is open."""
        self._gone: Final[set[int]] = set()
        """Numbers of connections that have ended."""
        self._frozen = False
        self._waiting: Final[list[Callable[[], None]]] = []
        """What it does when it no longer stands still, in this order."""

    def is_up(self, node_id: int) -> bool:
        """Whether it accepts connections."""
        del node_id
        return self.up

    def crash(self) -> None:
        """Its memory ends: sessions, and what was acquired."""
        self.up = False
        self.sessions = ShareSessions(sessions_max=_SESSIONS_MAX)
        self.opened.clear()
        self._gone.clear()
        self._waiting.clear()
        self._frozen = False

    def freeze(self, for_ms: int) -> None:
        """Stand still: connections are accepted, requests stay in their sockets, and locks end meanwhile."""
        if self.up and not self._frozen:
            self._frozen = True
            self._nodes.scheduler.note(f"node {self.node_id}", "frozen", ms=for_ms)
            self._nodes.scheduler.call_in(for_ms, self.thaw)

    def thaw(self) -> None:
        """Go on, with what has arrived."""
        self._frozen = False
        waiting = list(self._waiting)
        self._waiting.clear()
        for action in waiting:
            action()

    def _awake(self, action: Callable[[], None]) -> None:
        if self._frozen:
            self._waiting.append(action)
        else:
            action()

    def connection_gone(self, connection: SimulatedConnection) -> None:
        """Free what was acquired in its session."""
        self._awake(lambda: self._connection_gone(connection))

    def _connection_gone(self, connection: SimulatedConnection) -> None:
        self._gone.add(self._nodes.number_of(connection))
        gone = self.sessions.connection_gone(self._nodes.number_of(connection))
        if gone.ended is not None:
            self._ended(gone.ended.member_id)

    def serve(self, node_id: int, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Answer one request."""
        del node_id, api_version, client_id
        connection = self._nodes.network.serving
        assert connection is not None
        self._awake(lambda: self._serve(request, connection, reply))

    def _serve(self, request: AnyRequest, connection: SimulatedConnection, reply: Reply) -> None:
        if self._nodes.number_of(connection) in self._gone:
            return
        if isinstance(request, ShareFetchRequest):
            self._fetch(request, connection, reply)
        else:
            assert isinstance(request, ShareAcknowledgeRequest)
            self._acknowledge(request, reply)

    # --- requests

    def _fetch(self, request: ShareFetchRequest, connection: SimulatedConnection, reply: Reply) -> None:
        said = said_in(request)
        group, member = request.group_id or "", request.member_id or ""
        epoch = request.share_session_epoch
        try:
            reads = self.sessions.fetch(
                group,
                member,
                epoch=epoch,
                named=[ReadPartition(*of) for of in said],
                forgotten=[
                    ReadPartition(topic.topic_id, index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                ],
                acknowledges=any(said.values()),
                connection_id=self._nodes.number_of(connection),
            )
        except BrokerError as error:
            reply(ShareFetchResponse(error_code=error.code, error_message=str(error)))
            return
        if epoch == 0:
            self.opened[member] = self._nodes.next_number()
        verdicts = {of: self._apply(member, of, batches) for of, batches in said.items() if batches}
        sessions, until_ms = self.sessions, self._nodes.scheduler.now_ms + request.max_wait_ms

        def look() -> None:
            if self.sessions is not sessions or self._nodes.number_of(connection) in self._gone:
                return
            found = self._acquire(member, reads, request)
            now_ms = self._nodes.scheduler.now_ms
            if not any(data.acquired_records or data.error_code for data in found.values()) and now_ms < until_ms:
                self._nodes.scheduler.call_in(min(_LOOK_EVERY_MS, until_ms - now_ms), lambda: self._awake(look))
                return
            self._answer(request, found, verdicts, reply)

        look()

    def _answer(
        self,
        request: ShareFetchRequest,
        found: Mapping[ReadPartition, share_fetch.PartitionData],
        verdicts: Mapping[IdPartition, BrokerError | None],
        reply: Reply,
    ) -> None:
        told: dict[IdPartition, dict[str, Any]] = {}
        try:
            for place, data in found.items():
                tells = self.sessions.tells(
                    request.group_id or "",
                    request.member_id or "",
                    epoch=request.share_session_epoch,
                    partition=place,
                    has_records=bool(data.records),
                    has_error=bool(data.error_code),
                )
                if tells:
                    told[place] = {name: getattr(data, name) for name in data.__struct_fields__}
        except BrokerError as error:
            reply(ShareFetchResponse(error_code=error.code, error_message=str(error)))
            return
        for of, refusal in verdicts.items():
            fields = told.setdefault(of, {"partition_index": of[1], "records": b""})
            if refusal is not None:
                fields |= {"acknowledge_error_code": refusal.code, "acknowledge_error_message": str(refusal)}
        by_topic: defaultdict[UUID, list[share_fetch.PartitionData]] = defaultdict(list)
        for (topic_id, _), fields in told.items():
            by_topic[topic_id].append(share_fetch.PartitionData(**fields))
        endpoints = [
            share_fetch.NodeEndpoint(each.node_id, each.host, each.port) for each in self._nodes.nodes.values()
        ]
        reply(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=self._nodes.settings.record_lock_duration_ms,
                responses=tuple(
                    share_fetch.ShareFetchableTopicResponse(topic_id, tuple(data))
                    for topic_id, data in by_topic.items()
                ),
                node_endpoints=tuple(endpoints),
            )
        )

    def _acquire(
        self, member: str, reads: tuple[ReadPartition, ...], request: ShareFetchRequest
    ) -> dict[ReadPartition, share_fetch.PartitionData]:
        found: dict[ReadPartition, share_fetch.PartitionData] = {}
        left = request.max_records
        for of in reads:
            partition, code = self._nodes.led(self.node_id, (of.topic_id, of.partition))
            if partition is None:
                leader = self._nodes.hint(of)
                found[of] = share_fetch.PartitionData(
                    partition_index=of.partition, error_code=code, current_leader=leader, records=b""
                )
                continue
            acquired: list[AcquiredRecords] = []
            if left > 0:
                acquired = partition.acquire(member, most=left, limit=bool(request.share_acquire_mode))
            left -= sum(last - first + 1 for first, last, _ in acquired)
            for first, last, count in acquired:
                for offset in range(first, last + 1):
                    grant = partition.life, self.node_id, self.opened.get(member, 0)
                    self._nodes.grants[member, of.topic_id, of.partition, offset, count] = grant
            found[of] = share_fetch.PartitionData(
                partition_index=of.partition,
                records=_bytes_of(partition.log, acquired),
                acquired_records=tuple(share_fetch.AcquiredRecords(*each) for each in acquired),
            )
        return found

    def _acknowledge(self, request: ShareAcknowledgeRequest, reply: Reply) -> None:
        group, member = request.group_id or "", request.member_id or ""
        try:
            self.sessions.acknowledge(group, member, epoch=request.share_session_epoch)
        except BrokerError as error:
            reply(ShareAcknowledgeResponse(error_code=error.code, error_message=str(error)))
            return
        by_topic: defaultdict[UUID, list[share_acknowledge.PartitionData]] = defaultdict(list)
        for of, batches in said_in(request).items():
            refusal = self._apply(member, of, batches)
            code, text = (0, None) if refusal is None else (refusal.code, str(refusal))
            by_topic[of[0]].append(share_acknowledge.PartitionData(of[1], code, text))
        if request.share_session_epoch == FINAL_EPOCH and self.sessions.end(group, member) is not None:
            self._ended(member)
        reply(
            ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=self._nodes.settings.record_lock_duration_ms,
                responses=tuple(
                    share_acknowledge.ShareAcknowledgeTopicResponse(topic_id, tuple(data))
                    for topic_id, data in by_topic.items()
                ),
            )
        )

    def _apply(self, member: str, of: IdPartition, said: list[AcknowledgementBatch]) -> BrokerError | None:
        partition, code = self._nodes.led(self.node_id, of)
        if partition is None:
            return BrokerError("it is led elsewhere", code=ErrorCode(code))
        try:
            partition.acknowledge(member, said)
        except BrokerError as error:
            return error
        for batch in said:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self._nodes.applied[member, of, offset, batch.types[0]] += 1
        return None

    def _ended(self, member: str) -> None:
        self.opened.pop(member, None)
        for partition in self._nodes.partitions.values():
            if self._nodes.leaders.get((partition.key.topic_id, partition.key.partition)) == self.node_id:
                partition.release(member)


class ShareNodes:
    """All nodes of one run, the partitions, and who leads which.

    Args:
        network: that of the run; set before the first request.
    """

    network: Network

    def __init__(self, scheduler: Scheduler, *, count: int, settings: ShareSettings, first_node_id: int) -> None:
        self.scheduler: Final = scheduler
        self.settings: Final = settings
        self._rng: Final = scheduler.random("share nodes")
        self.nodes: Final = {
            node_id: BrokerNode(node_id, f"simulated-{node_id}", 9092)
            for node_id in range(first_node_id, first_node_id + count)
        }
        self.servers: Final = {node_id: ShareNode(self, node_id) for node_id in self.nodes}
        self.partitions: Final[dict[IdPartition, SharedPartition]] = {}
        self.leaders: Final[dict[IdPartition, int]] = {}
        self.claimed: Final[dict[IdPartition, int]] = {}
        """Leaders, as brokers believe that are asked for them."""
        self.grants: Final[dict[tuple[str, UUID, int, int, int], tuple[int, int, int]]] = {}
        """(member, topic id, partition, offset, delivery) -> life of the partition, node, and number of the session."""
        self.applied: Final[defaultdict[tuple[str, IdPartition, int, int], int]] = defaultdict(int)
        """(member, partition, offset, word) -> how often that was taken."""
        self._number = 0
        self._connections: Final[dict[SimulatedConnection, int]] = {}

    def add(self, of: IdPartition, partition: SharedPartition) -> None:
        """A new partition gets a leader."""
        self.partitions[of] = partition
        self.leaders[of] = self.claimed[of] = self._rng.choice(sorted(self.nodes))

    def remove(self, of: IdPartition) -> None:
        """A partition is deleted."""
        for places in (self.partitions, self.leaders, self.claimed):
            places.pop(of, None)

    def led(self, node_id: int, of: IdPartition) -> tuple[SharedPartition | None, int]:
        """The partition if the node leads it, else why not."""
        partition = self.partitions.get(of)
        if partition is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        if self.leaders[of] != node_id:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition, 0

    def hint(self, of: IdPartition) -> share_fetch.LeaderIdAndEpoch:
        """The leader, as a refusal names it; or none."""
        leader = self.leaders.get((of[0], of[1]))
        if leader is None or self._rng.random() >= _HINTS:
            return share_fetch.LeaderIdAndEpoch()
        return share_fetch.LeaderIdAndEpoch(leader, 1)

    def number_of(self, connection: SimulatedConnection) -> int:
        """A number that no other connection has."""
        return self._connections.setdefault(connection, len(self._connections))

    def next_number(self) -> int:
        """The number of a new session."""
        self._number += 1
        return self._number

    def is_granted(self, member: str, of: IdPartition, offset: int, count: int) -> bool:
        """Whether the leader and the session are there still in which a member got a record."""
        grant = self.grants.get((member, *of, offset, count))
        partition = self.partitions.get(of)
        if grant is None or partition is None:
            return False
        life, node_id, session = grant
        return (
            partition.life == life
            and self.leaders.get(of) == node_id
            and self.servers[node_id].opened.get(member) == session
        )

    # --- faults

    def move(self, rumour_ms: int) -> None:
        """One partition moves to another node."""
        if not self.partitions:
            return
        of = self._rng.choice(sorted(self.partitions))
        self._lead(of, self._rng.choice(sorted(self.nodes)), rumour_ms)

    def crash(self, rumour_ms: int, back: Callable[[ShareNode], None]) -> ShareNode | None:
        """A node dies; its partitions move."""
        up = [node for node in self.servers.values() if node.up]
        if len(up) < 2:
            return None
        victim = self._rng.choice(up)
        victim.crash()
        self.scheduler.note(f"node {victim.node_id}", "coordinator_crashed", when="between_events")
        others = [node.node_id for node in up if node is not victim]
        for of in sorted(self.partitions):
            if self.leaders[of] == victim.node_id:
                self._lead(of, self._rng.choice(others), rumour_ms)
        self.network.drop_all(victim.node_id, "the node died")
        self.scheduler.call_in(self._rng.randint(50, 3_000), lambda: back(victim))
        return victim

    def _lead(self, of: IdPartition, node_id: int, rumour_ms: int) -> None:
        self.leaders[of] = node_id
        self.partitions[of].lead_again()
        self.scheduler.note(f"node {node_id}", "leads", partition=of[1])

        def spread() -> None:
            if of in self.leaders:
                self.claimed[of] = self.leaders[of]

        self.scheduler.call_in(rumour_ms, spread)


def said_in(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[IdPartition, list[AcknowledgementBatch]]:
    """What a request says, by partition."""
    return {
        (topic.topic_id, partition.partition_index): [
            AcknowledgementBatch(each.first_offset, each.last_offset, each.acknowledge_types)
            for each in partition.acknowledgement_batches
        ]
        for topic in request.topics
        for partition in topic.partitions
    }


def has_record(offset: int) -> bool:
    """Whether there is a record at an offset, or it was compacted away."""
    return offset % _COMPACTED != 0


def _bytes_of(log: list[BatchOffsets], acquired: list[AcquiredRecords]) -> bytes:
    if not acquired:
        return b""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    batches = [batch for batch in log if batch.first <= last and batch.last >= first]
    return b"".join(
        keep_records(
            build_batch([Record(b"job")] * (batch.last - batch.first + 1), base_offset=batch.first),
            lambda record: has_record(record.offset),
        )
        for batch in batches
    )
