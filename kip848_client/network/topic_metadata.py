"""Asks the cluster about topics: names of topic ids, partitions, and offsets, which are listed from each leader.

Caches nothing: the member keeps the names that it needs, and offsets are listed too seldom for a cache that can be
stale. Runs on the background thread only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import anyio
import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.common.model import ZERO_UUID, BrokerNode, NamedPartition, OffsetAndMetadata
from kip848_client.common.patterns import compiled
from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error, RequestTimeoutError
from kip848_client.member.core.events import TopicDescription
from kip848_client.network.request_sender import RequestSender
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kip848_client.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

METADATA_BY_ID_VERSION: Final = 12
"""First version of Metadata that may leave the name of a topic out (KAFKA-10774)."""

CONSUMER_REPLICA_ID: Final = -1
LATEST_TIMESTAMP: Final = -1


class ListedOffsets(msgspec.Struct, frozen=True):
    """Offsets by partition, and the Kafka error code of each partition without one."""

    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    errors: Mapping[NamedPartition, int]


class DescribedTopics(msgspec.Struct, frozen=True):
    """The answer to a request for topics by name or pattern."""

    topics: Mapping[str, TopicDescription]
    unauthorized: frozenset[str]
    """Topics that this client may not describe."""
    passing: frozenset[str]
    """Topics with a retriable error; ask again."""


class _Leader(msgspec.Struct, frozen=True):
    node_id: int
    epoch: int


class TopicMetadataRequestManager:
    """Asks about topics.

    Args:
        sender: carries the requests.
        clock: so that the steps of one call share its time-out.
        isolation_level: 0 read_uncommitted, 1 read_committed; decides what "latest" means.
    """

    def __init__(self, sender: RequestSender, *, clock: Clock, isolation_level: int) -> None:
        self._sender = sender
        self._clock = clock
        self._isolation_level = isolation_level

    async def names(self, topic_ids: Iterable[UUID], *, timeout_ms: int) -> dict[UUID, str]:
        """Name every one of *topic_ids* that the cluster knows; others are absent.

        A broker below Metadata version 12 cannot be asked by id: it is asked for every topic.

        Raises:
            ConnectionLostError, RequestTimeoutError, ProtocolError, UnsupportedVersionError: no answer.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        connection = await self._sender.any_broker(timeout_ms=timeout_ms)
        _, highest = connection.api_versions.get(ApiKey.METADATA, (0, 0))
        topics = None
        if highest >= METADATA_BY_ID_VERSION:
            topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(topic_ids))
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await connection.send(request, timeout_ms=self._left_ms(deadline_ms))
        self._learn(response)
        return {
            topic.topic_id: topic.name
            for topic in response.topics
            if topic.error_code == ErrorCode.NONE and topic.name and topic.topic_id != ZERO_UUID
        }

    async def describe(self, topics: Iterable[str], *, pattern: str | None, timeout_ms: int) -> DescribedTopics:
        """Describe *topics*, and every topic whose whole name matches *pattern*, internal ones excepted.

        Raises:
            ConnectionLostError, RequestTimeoutError, ProtocolError, UnsupportedVersionError: no answer.
            ValueError: the pattern is no RE2.
        """
        wanted = frozenset(topics)
        matches = None if pattern is None else compiled(pattern)
        asked = None
        if matches is None:
            asked = tuple(MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in sorted(wanted))
        response = await self._sender.send_any(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False), timeout_ms=timeout_ms
        )
        self._learn(response)
        rack_of = {broker.node_id: broker.rack for broker in response.brokers if broker.rack}
        found: dict[str, TopicDescription] = {}
        unauthorized, passing = set(), set()
        for topic in response.topics:
            name = topic.name
            if name is None or (
                name not in wanted and (matches is None or topic.is_internal or matches.fullmatch(name) is None)
            ):
                continue
            if topic.error_code == ErrorCode.NONE:
                found[name] = TopicDescription(
                    topic.topic_id, len(topic.partitions), _racks(topic, rack_of) if rack_of else ()
                )
            elif topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(name)
            elif topic.error_code in RETRIABLE and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                passing.add(name)
        return DescribedTopics(found, frozenset(unauthorized), frozenset(passing))

    async def list_starts(
        self, timestamps: Mapping[NamedPartition, int], durations_ms: Mapping[NamedPartition, int], *, timeout_ms: int
    ) -> ListedOffsets:
        """As `list_offsets`; of the partitions in *durations_ms* the first record that is not older than that.

        The end is asked for first: a record that arrives between the two requests is not skipped.

        Raises:
            ConnectionLostError, RequestTimeoutError, ProtocolError, UnsupportedVersionError: no broker named leaders.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        wanted = {**timestamps, **dict.fromkeys(durations_ms, LATEST_TIMESTAMP)}
        listed = await self.list_offsets(wanted, timeout_ms=timeout_ms)
        wall_ms = self._clock.wall_ms()
        since_ms = {key: max(0, wall_ms - age_ms) for key, age_ms in durations_ms.items() if key in listed.offsets}
        if not since_ms:
            return listed
        by_time = await self.list_offsets(since_ms, timeout_ms=self._left_ms(deadline_ms))
        found = {key: position for key, position in by_time.offsets.items() if position.offset >= 0}
        offsets = {key: at for key, at in listed.offsets.items() if key not in by_time.errors}
        return ListedOffsets({**offsets, **found}, {**listed.errors, **by_time.errors})

    async def list_offsets(self, timestamps: Mapping[NamedPartition, int], *, timeout_ms: int) -> ListedOffsets:
        """Ask each partition's leader for the offset at a timestamp (-2 earliest, -1 latest, or ms since 1970).

        A leader that does not answer costs only its own partitions: they get NETWORK_EXCEPTION(13).

        Raises:
            ConnectionLostError, RequestTimeoutError, ProtocolError, UnsupportedVersionError: no broker named leaders.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        leaders, errors = await self._leaders(timestamps, timeout_ms=timeout_ms)
        by_leader: defaultdict[int, list[NamedPartition]] = defaultdict(list)
        for partition in sorted(leaders):
            by_leader[leaders[partition].node_id].append(partition)
        offsets: dict[NamedPartition, OffsetAndMetadata] = {}

        async def ask(node_id: int, partitions: list[NamedPartition]) -> None:
            try:
                connection = await self._sender.node(node_id, timeout_ms=self._left_ms(deadline_ms))
                request = self._request({p: timestamps[p] for p in partitions}, leaders)
                response = await connection.send(request, timeout_ms=self._left_ms(deadline_ms))
            except AuthenticationError:
                raise
            except (ConnectionLostError, RequestTimeoutError):
                errors.update(dict.fromkeys(partitions, int(ErrorCode.NETWORK_EXCEPTION)))
                return
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = NamedPartition(topic.name, answer.partition_index)
                    if answer.error_code != ErrorCode.NONE:
                        errors[partition] = answer.error_code
                    else:
                        offsets[partition] = OffsetAndMetadata(answer.offset, answer.leader_epoch)

        failure: Kip848Error | None = None
        try:
            async with anyio.create_task_group() as tasks:
                for node_id, partitions in by_leader.items():
                    tasks.start_soon(ask, node_id, partitions)
        except* Kip848Error as group:
            failure = _first(group)
        if failure is not None:
            raise failure
        return ListedOffsets(offsets, errors)

    async def _leaders(
        self, partitions: Iterable[NamedPartition], *, timeout_ms: int
    ) -> tuple[dict[NamedPartition, _Leader], dict[NamedPartition, int]]:
        wanted = sorted(set(partitions))
        names = sorted({partition.topic for partition in wanted})
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names),
            allow_auto_topic_creation=False,
        )
        response = await self._sender.send_any(request, timeout_ms=timeout_ms)
        self._learn(response)
        topic_errors = {topic.name: topic.error_code for topic in response.topics}
        described = {
            NamedPartition(topic.name, partition.partition_index): partition
            for topic in response.topics
            if topic.name is not None
            for partition in topic.partitions
        }
        leaders: dict[NamedPartition, _Leader] = {}
        errors: dict[NamedPartition, int] = {}
        for wanted_partition in wanted:
            found = described.get(wanted_partition)
            if found is None:
                topic_error = topic_errors.get(wanted_partition.topic, ErrorCode.NONE)
                errors[wanted_partition] = topic_error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif found.leader_id < 0:
                errors[wanted_partition] = found.error_code or ErrorCode.LEADER_NOT_AVAILABLE
            else:
                leaders[wanted_partition] = _Leader(found.leader_id, found.leader_epoch)
        return leaders, errors

    def _request(
        self, timestamps: Mapping[NamedPartition, int], leaders: Mapping[NamedPartition, _Leader]
    ) -> ListOffsetsRequest:
        topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, timestamp in sorted(timestamps.items()):
            topics[partition.topic].append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=leaders[partition].epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=self._isolation_level,
            topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(items)) for name, items in topics.items()),
        )

    def _learn(self, response: MetadataResponse) -> None:
        """Remember the brokers.

        Raises:
            ConnectionLostError: the broker sends its clients back to the bootstrap servers.
        """
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._sender.rebootstrap()
            raise ConnectionLostError("the broker asks for a new start from the bootstrap servers")
        if response.brokers:
            self._sender.learn_nodes(
                (BrokerNode(b.node_id, b.host, b.port) for b in response.brokers), cluster_id=response.cluster_id
            )

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._clock.now_ms())


def _racks(topic: MetadataResponseTopic, rack_of: Mapping[int, str]) -> tuple[frozenset[str], ...]:
    """The racks of each partition's replicas, in or out of sync, as the Java client counts them."""
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return tuple(frozenset(rack_of[node] for node in each.replica_nodes if node in rack_of) for each in partitions)


def _first(group: BaseExceptionGroup[Kip848Error]) -> Kip848Error:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")
