"""Asks the leaders of partitions for records past librdkafka: over connections of its own, for checks that are rare.

Does not own: what the answers mean (`gap_check`, `stalls`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc

from kip848_client.common.addresses import BootstrapServer
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConnectionLostError, Kip848Error, error_for_code
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.request_sender import BrokerConnection
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from kip848_client.wire.messages.fetch import PartitionData

_TIMEOUT_MS: Final = 10_000
_FETCH_BY_NAME: Final = 12
"""Last version of Fetch that names topics."""


class Leaders:
    """The leaders of the partitions of some topics, as long as `leaders_of` is entered."""

    def __init__(
        self, opener: ConnectionOpener, servers: Iterable[BootstrapServer], tasks: anyio.abc.TaskGroup
    ) -> None:
        self._opener: Final = opener
        self._servers: Final = servers
        self._tasks: Final = tasks
        self._open: Final[dict[tuple[str, int], BrokerConnection]] = {}
        self._address_of: dict[int, tuple[str, int]] = {}
        self._leader_of: Final[dict[NamedPartition, int]] = {}
        self._failed: Final[dict[NamedPartition | str, Kip848Error]] = {}

    async def learn(self, topics: Collection[str]) -> None:
        """Ask a bootstrap server for the leaders.

        Raises:
            Kip848Error: none answers.
        """
        connection = await self._any()
        named = tuple(MetadataRequestTopic(name=topic) for topic in sorted(topics))
        asked = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        described = await connection.send(asked, timeout_ms=_TIMEOUT_MS)
        self._address_of = {broker.node_id: (broker.host, broker.port) for broker in described.brokers}
        for topic in described.topics:
            name = topic.name or ""
            if topic.error_code:
                self._failed[name] = error_for_code(topic.error_code, f"topic {name!r}")
            for each in topic.partitions:
                partition = NamedPartition(name, each.partition_index)
                self._leader_of[partition] = each.leader_id
                if each.error_code:
                    self._failed[partition] = error_for_code(each.error_code, str(partition))

    async def fetch(
        self, partition: NamedPartition, offset: int, *, max_bytes: int, read_committed: bool = False
    ) -> PartitionData:
        """Fetch whole batches from *offset* on without waiting: the first of them always, and others within the limit.

        Raises:
            Kip848Error: the partition has no leader, it cannot be reached, or it refuses.
        """
        leader = await self._leader(partition)
        answer = await _ask(leader, {partition: offset}, max_bytes=max_bytes, read_committed=read_committed)
        found = answer[partition]
        if found.error_code:
            raise error_for_code(found.error_code, f"the leader refuses a fetch of {partition} at offset {offset}")
        return found

    async def ends(self, positions: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
        """The ends of these logs, with one request for each leader; absent are those that a leader did not tell.

        Args:
            positions: offsets that exist there.
        """
        by_leader: dict[int, dict[NamedPartition, int]] = {}
        for partition, offset in positions.items():
            by_leader.setdefault(self._leader_of.get(partition, -1), {})[partition] = offset
        ends: dict[NamedPartition, int] = {}
        for led in by_leader.values():
            try:
                leader = await self._leader(next(iter(led)))
                answer = await _ask(leader, led, max_bytes=1, read_committed=False)
            except Kip848Error:
                continue  # each of them is asked about alone, and that says why
            ends.update({partition: each.high_watermark for partition, each in answer.items() if not each.error_code})
        return ends

    async def check(self, partition: NamedPartition) -> None:
        """Connect to the leader.

        Raises:
            Kip848Error: the partition has no leader, or it cannot be reached.
        """
        await self._leader(partition)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._open.values():
            await connection.aclose()

    async def _leader(self, partition: NamedPartition) -> BrokerConnection:
        address = self._address_of.get(self._leader_of.get(partition, -1))
        if address is None:
            failed = self._failed.get(partition) or self._failed.get(partition.topic)
            raise failed or ConnectionLostError(f"{partition} has no leader")
        try:
            return await self._connect(*address)
        except ConnectionLostError as error:
            raise ConnectionLostError(f"the leader of {partition} is not reached: {error}") from error

    async def _any(self) -> BrokerConnection:
        failure: Kip848Error = ConnectionLostError("there are no bootstrap servers")
        for server in self._servers:
            try:
                return await self._connect(server.host, server.port)
            except ConnectionLostError as error:
                failure = error
        raise ConnectionLostError(f"no bootstrap server answers: {failure}") from failure

    async def _connect(self, host: str, port: int) -> BrokerConnection:
        found = self._open.get((host, port))
        if found is None:
            found = await self._opener(host=host, port=port, timeout_ms=_TIMEOUT_MS, tasks=self._tasks)
            self._open[host, port] = found
        return found


async def _ask(
    leader: BrokerConnection, positions: Mapping[NamedPartition, int], *, max_bytes: int, read_committed: bool
) -> dict[NamedPartition, PartitionData]:
    from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic  # here: checks are rare

    topics: dict[str, list[FetchPartition]] = {}
    for partition, offset in positions.items():
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics.setdefault(partition.topic, []).append(wanted)
    request = FetchRequest(
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=tuple(FetchTopic(topic=name, partitions=tuple(wanted)) for name, wanted in topics.items()),
    )
    answer = await leader.send(request, timeout_ms=_TIMEOUT_MS, max_version=_FETCH_BY_NAME)
    if answer.error_code:
        raise error_for_code(answer.error_code, "the leader refuses a fetch")
    return {
        NamedPartition(each.topic, part.partition_index): part for each in answer.responses for part in each.partitions
    }


@asynccontextmanager
async def leaders_of(
    topics: Collection[str], opener: ConnectionOpener, servers: Iterable[BootstrapServer]
) -> AsyncIterator[Leaders]:
    """Ask a bootstrap server for the leaders of *topics*; their connections are closed at the end.

    Raises:
        ExceptionGroup: of `Kip848Error` and OSError, also those of the block.
    """
    async with anyio.create_task_group() as tasks:
        leaders = Leaders(opener, servers, tasks)
        try:
            await leaders.learn(topics)
            yield leaders
        finally:
            await leaders.close()
            tasks.cancel_scope.cancel()
