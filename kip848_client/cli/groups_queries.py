"""The requests behind ``kip848 groups``: lists groups, their members, and their progress. No output.

Each question goes to the broker that can answer it: ListGroups to all, the group's to its coordinator, end offsets to
the leaders. Connections live as long as one `Cluster` block.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from kip848_client.client.control.connection_opener import ConnectionOpener
from kip848_client.config import parse_consumer_config
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
    ProtocolError,
    UnsupportedVersionError,
    error_for_code,
)
from kip848_client.member.offsets.commit_requests import first_part
from kip848_client.model import ZERO_UUID, BrokerNode, NamedPartition, OffsetAndMetadata, Unit
from kip848_client.plain_text import counted
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.connection import Connection, open_connection
from kip848_client.wire.messages import connect_group_describe, describe_groups
from kip848_client.wire.messages import consumer_group_describe as described
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kip848_client.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kip848_client.wire.schema import Request, Response

CLIENT_ID: Final = "kip848-groups"
LATEST: Final = -1
EARLIEST: Final = -2
"""In ListOffsets, instead of a time."""
GROUP_RESOURCE: Final = 32
"""In DescribeConfigs, the type of a group."""
DEAD: Final = "Dead"
"""The state that old versions of DescribeGroups give a group that is not there."""
CLASSIC_MEMBER: Final = 0
"""In ConsumerGroupDescribe, the type of a member that speaks the classic protocol."""
COORDINATOR_RETRIES: Final = 20
RETRY_PAUSE_S: Final = 0.1
OFFSETS_BY_NAME: Final = 9
"""The last version of OffsetFetch that names topics; from 10 on it has ids only."""

COMMIT_BY_NAME: Final = 9
"""As for OffsetCommit."""

AnswerT = TypeVar("AnswerT")
ResponseT = TypeVar("ResponseT", bound=Response)


class GroupListing(msgspec.Struct, frozen=True):
    """One group, as in the answer to ListGroups."""

    group_id: str
    type: str
    state: str
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True):
    """One member.

    Args:
        member_epoch: None in a classic group, because brokers do not report its generation.
        assigned: what it owns; empty for a classic member whose bytes are not a consumer's.
        target: what it is to own.
        protocol: ``consumer`` or ``classic``: which one it speaks.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    member_epoch: int | None
    subscription: str
    assigned: tuple[NamedPartition, ...]
    target: tuple[NamedPartition, ...]
    protocol: str = "consumer"


class Progress(msgspec.Struct, frozen=True):
    """How far a group has come in one partition.

    Args:
        committed: the committed offset, or None.
        end: the next offset of the partition, or None if its leader did not report it.
        owner: client id of the member that owns it, or None.
    """

    partition: NamedPartition
    committed: int | None
    end: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None if it is not known."""
        if not self.end:
            return self.end  # nothing was ever written there: a group that committed nothing misses nothing
        return None if self.committed is None else max(0, self.end - self.committed)


class GroupDescription(msgspec.Struct, frozen=True):
    """One group: its members and its progress, sorted by partition.

    Args:
        type: ``consumer`` or ``classic``. A classic group has no epochs, and its assignor is known while it is stable.
    """

    group_id: str
    state: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str
    members: tuple[MemberDescription, ...]
    progress: tuple[Progress, ...]
    type: str = "consumer"


class WorkerDescription(msgspec.Struct, frozen=True):
    """One worker of a connect group; units and their tokens as text."""

    worker_id: str
    client_host: str
    member_id: str
    instance_id: str | None
    member_epoch: int
    state: str


class UnitDescription(msgspec.Struct, frozen=True):
    """One unit.

    Args:
        owner: worker id of the worker that runs it, or None.
        token: its fencing token, or None.
        target: worker id of the worker that should run it, or None.
        deferred: the assignor has left it without a worker for now.
    """

    unit: str
    owner: str | None
    token: int | None
    target: str | None
    deferred: bool


class ConnectGroupDescription(msgspec.Struct, frozen=True):
    """A connect group: its workers, and its units in their order."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    catalog_offset: int
    workers: tuple[WorkerDescription, ...]
    units: tuple[UnitDescription, ...]
    type: str = "connect"


class GroupLag(msgspec.Struct, frozen=True):
    """How far one group has come, sorted by partition."""

    group_id: str
    progress: tuple[Progress, ...]

    @property
    def lag(self) -> int | None:
        """Records behind in all partitions; None if the lag of any of them is unknown, because unknown is not 0."""
        return None if self.unknown else self.known_lag

    @property
    def known_lag(self) -> int:
        """Records behind in the partitions whose lag is known."""
        return sum(item.lag for item in self.progress if item.lag is not None)

    @property
    def unknown(self) -> int:
        """Partitions whose lag is unknown: nothing is committed, or the leader did not report the end."""
        return sum(item.lag is None for item in self.progress)


def ask(conf: Mapping[str, str], question: Callable[[Cluster], Awaitable[AnswerT]], *, timeout_ms: int) -> AnswerT:
    """Connect, ask, disconnect.

    Raises:
        ConfigError: a property of *conf* is wrong.
        Kip848Error: no broker answers, or one refuses.
    """

    async def answer() -> AnswerT:
        async with open_cluster(conf, timeout_ms=timeout_ms) as cluster:
            return await question(cluster)

    return asyncio.run(answer())


def raise_all(errors: Sequence[Kip848Error]) -> None:
    """Raise what went wrong with some of several things, after the others are printed.

    Raises:
        Kip848Error: the error, or one that names all of them.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise Kip848Error("; ".join(map(str, errors)))


def reach(conf: Mapping[str, str], *, timeout_ms: int) -> None:
    """Connect and disconnect: librdkafka, which other commands use, only says that no broker answers.

    Raises:
        ConfigError: a property of *conf* is wrong.
        Kip848Error: no broker answers, or one refuses; the message says why.
    """

    async def nothing(_: Cluster) -> None: ...

    ask(conf, nothing, timeout_ms=timeout_ms)


_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "this user needs DESCRIBE on the group, DELETE to delete it, READ to reset its offsets"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "see kip848 groups list",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
}
"""Advice for a code that a broker answers."""
_KAFKA_TOOLS: Final[Mapping[str, str]] = {
    "share": "kafka-share-groups.sh describes it",
    "streams": "kafka-streams-groups.sh describes it; once it has committed, kip848 groups lag shows how far it is",
}
"""Type of a group, as ListGroups names it -> what shows it."""


class Cluster:
    """Connections to the brokers of a cluster, made when they are needed."""

    def __init__(
        self, stack: AsyncExitStack, bootstrap: Connection, *, secured: ConnectionOpener, timeout_ms: int
    ) -> None:
        self._secured = secured
        self._stack = stack
        self._bootstrap = bootstrap
        self._timeout_ms = timeout_ms
        self._connections: dict[tuple[str, int], Connection] = {}

    async def list_groups(self) -> list[GroupListing]:
        """List the groups of all brokers, sorted by id."""
        metadata = await self._send(self._bootstrap, MetadataRequest(topics=()))
        groups = []
        for broker in metadata.brokers:
            node = BrokerNode(broker.node_id, broker.host, broker.port)
            answer = await self._send(await self._connection(node), ListGroupsRequest())
            _check(answer.error_code, f"ListGroups on {node}")
            groups += [
                GroupListing(item.group_id, item.group_type, item.group_state, item.protocol_type)
                for item in answer.groups
            ]
        return sorted(groups, key=lambda group: group.group_id)

    async def topic_names(self) -> dict[UUID, str]:
        """The names of all topics that may be seen, by id."""
        metadata = await self._send(self._bootstrap, MetadataRequest(topics=None))
        return {topic.topic_id: topic.name for topic in metadata.topics if topic.name and topic.topic_id != ZERO_UUID}

    async def group_settings(self, group_id: str) -> dict[str, str]:
        """The group's configuration; empty if the cluster does not report it."""
        asked = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=None)
        try:
            answer = await self._send(await self._coordinator(group_id), DescribeConfigsRequest(resources=(asked,)))
        except UnsupportedVersionError:
            return {}
        (result,) = answer.results
        return {config.name: config.value for config in result.configs if config.value is not None}

    async def describe(self, group_id: str) -> GroupDescription | ConnectGroupDescription:
        """Describe one group, of the consumer protocol, a classic one, or one of workers.

        Raises:
            BrokerError: there is no such group, or reading it is not allowed.
        """
        coordinator, group = await self._described(group_id)
        classic = await self._classic(coordinator, group)
        if classic is not None:
            members = _classic_members(classic)
            return GroupDescription(
                group_id=group_id,
                state=classic.group_state,
                group_epoch=None,
                assignment_epoch=None,
                assignor=classic.protocol_data,
                members=members,
                progress=await self._progress(coordinator, group_id, members),
                type="classic",
            )
        if (
            group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            and ApiKey.CONNECT_GROUP_DESCRIBE in coordinator.api_versions
        ):
            answer = await self._send(coordinator, ConnectGroupDescribeRequest(group_ids=(group_id,)))
            if not answer.groups[0].error_code:
                return _connect_group(answer.groups[0])
        await self._check_described(group)
        members = tuple(sorted(map(_member, group.members), key=lambda member: (member.client_id, member.member_id)))
        return GroupDescription(
            group_id=group_id,
            state=group.group_state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=group.assignor_name,
            members=members,
            progress=await self._progress(coordinator, group_id, members),
        )

    async def lag(self, group_id: str) -> GroupLag:
        """How far a group of any protocol has come; members of the consumer protocol are named.

        Raises:
            BrokerError: there is no such group, and no offsets of it, or reading it is not allowed.
        """
        coordinator, group = await self._described(group_id)
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            await self._check_described(group)
        classic = await self._classic(coordinator, group)
        members = tuple(map(_member, group.members)) if classic is None else _classic_members(classic)
        progress = await self._progress(coordinator, group_id, members)
        if not progress:
            # Nothing was ever committed: a group without members, one of another kind, or a wrong name.
            await self._check_described(group)
        return GroupLag(group_id, progress)

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets.

        Raises:
            BrokerError: it has members, there is none, or it is not allowed.
        """
        answer = await self._send(await self._coordinator(group_id), DeleteGroupsRequest(groups_names=(group_id,)))
        (result,) = answer.results
        _check(result.error_code, f"group {group_id!r} was not deleted")

    async def committed(self, group_id: str) -> dict[NamedPartition, int]:
        """The committed offsets of a group; empty if there are none.

        Raises:
            BrokerError: reading them is not allowed.
        """
        return await self._committed(await self._coordinator(group_id), group_id)

    async def member_count(self, group_id: str) -> int:
        """How many members a group of any protocol has; 0 if there is no such group."""
        coordinator, group = await self._described(group_id)
        classic = await self._classic(coordinator, group)
        return len(group.members if classic is None else classic.members)

    async def commit(self, group_id: str, offsets: Mapping[NamedPartition, int]) -> None:
        """Commit offsets for a group without members.

        Raises:
            BrokerError: the group has members, or it is not allowed.
        """
        left = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        refused: dict[str, int] = {}
        while left:
            part = first_part(left, group_id=group_id)
            refused |= await self._commit_part(group_id, part)
            left = {partition: position for partition, position in left.items() if partition not in part}
        if refused:
            done, where = len(offsets) - len(refused), ", ".join(refused)
            said = f"offsets of {group_id!r} were committed for {counted(done, 'partition')}, and not for {where}"
            _check(next(iter(refused.values())), said)

    async def _commit_part(self, group_id: str, part: Mapping[NamedPartition, OffsetAndMetadata]) -> Mapping[str, int]:
        """The partitions that were refused, with their error codes."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, position in part.items():
            committed = OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=position.offset
            )
            by_topic.setdefault(partition.topic, []).append(committed)
        topics = tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(of)) for name, of in by_topic.items())
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        answer = await self._send(await self._coordinator(group_id), request, max_version=COMMIT_BY_NAME)
        return {
            f"{topic.name}-{answered.partition_index}": answered.error_code
            for topic in answer.topics
            for answered in topic.partitions
            if answered.error_code
        }

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions topics have; those that are not there are left out."""
        metadata = await self._topic_metadata(sorted(set(topics)))
        return {topic.name: len(topic.partitions) for topic in metadata.topics if topic.name and not topic.error_code}

    async def offsets(self, partitions: Sequence[NamedPartition], when: int) -> Mapping[NamedPartition, int]:
        """The offset of the first record that is not older than *when*; -1 if there is none.

        Args:
            when: milliseconds since 1970, `EARLIEST` or `LATEST`.

        Returns:
            Without the partitions that are not there, or whose leader refuses.
        """
        if not partitions:
            return {}
        metadata = await self._topic_metadata(sorted({partition.topic for partition in partitions}))
        nodes = {broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port) for broker in metadata.brokers}
        leaders = {
            NamedPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in metadata.topics
            for partition in topic.partitions
        }
        by_leader: dict[int, list[NamedPartition]] = {}
        for partition in partitions:
            if leaders.get(partition) in nodes:
                by_leader.setdefault(leaders[partition], []).append(partition)
        found: dict[NamedPartition, int] = {}
        for leader, led in by_leader.items():
            answer = await self._send(await self._connection(nodes[leader]), _list_offsets(led, when))
            for topic in answer.topics:
                for partition_answer in topic.partitions:
                    if not partition_answer.error_code:
                        found[NamedPartition(topic.name, partition_answer.partition_index)] = partition_answer.offset
        return found

    async def _progress(
        self, coordinator: Connection, group_id: str, members: Sequence[MemberDescription]
    ) -> tuple[Progress, ...]:
        committed = await self._committed(coordinator, group_id)
        owners = {partition: member.client_id for member in members for partition in member.assigned}
        partitions = sorted(committed.keys() | owners.keys())
        ends = await self.offsets(partitions, LATEST)
        return tuple(Progress(item, committed.get(item), ends.get(item), owners.get(item)) for item in partitions)

    async def _committed(self, coordinator: Connection, group_id: str) -> dict[NamedPartition, int]:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),))
        answer = await self._send(coordinator, request, max_version=OFFSETS_BY_NAME)
        (group,) = answer.groups
        _check(group.error_code, f"offsets of group {group_id!r}")
        return {
            NamedPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    async def _topic_metadata(self, topics: Sequence[str]) -> MetadataResponse:
        asked = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        return await self._send(self._bootstrap, MetadataRequest(topics=asked, allow_auto_topic_creation=False))

    async def _described(self, group_id: str) -> tuple[Connection, DescribedGroup]:
        """The group's coordinator, and what it says of the group; its error code is not looked at."""
        coordinator = await self._coordinator(group_id)
        answer = await self._send(coordinator, ConsumerGroupDescribeRequest(group_ids=(group_id,)))
        (group,) = answer.groups
        return coordinator, group

    async def _check_described(self, group: DescribedGroup) -> None:
        """Raise the error of a description; its message says if only Kafka's own tools show this type of group."""
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            found = [listed.type for listed in await self.list_groups() if listed.group_id == group.group_id]
            if found and found[0] in _KAFKA_TOOLS:
                _check(group.error_code, f"{group.group_id!r} is a {found[0]} group", advice=_KAFKA_TOOLS[found[0]])
        _check(group.error_code, f"group {group.group_id!r}: {group.error_message or 'cannot be described'}")

    async def _classic(self, coordinator: Connection, group: DescribedGroup) -> describe_groups.DescribedGroup | None:
        """The coordinator's description of a classic group; None if it knows none, or *group* is of the other type."""
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        answer = await self._send(coordinator, DescribeGroupsRequest(groups=(group.group_id,)))
        (classic,) = answer.groups
        return None if classic.error_code or classic.group_state == DEAD else classic

    async def _coordinator(self, group_id: str) -> Connection:
        for attempt in range(COORDINATOR_RETRIES):
            version = self._bootstrap.version_for(FindCoordinatorRequest)
            one_key = FindCoordinatorRequest(key=group_id)
            request = one_key if version < 4 else FindCoordinatorRequest(coordinator_keys=(group_id,))
            answer = await self._send(self._bootstrap, request)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and attempt + 1 < COORDINATOR_RETRIES:
                await asyncio.sleep(RETRY_PAUSE_S)  # the offsets topic of a young cluster is being made
                continue
            _check(found.error_code, f"coordinator of group {group_id!r}")
            return await self._connection(BrokerNode(found.node_id, found.host, found.port))
        raise AssertionError("the last attempt returns or raises")

    async def _connection(self, node: BrokerNode) -> Connection:
        address = node.host, node.port
        if address not in self._connections:
            opened = open_secured(self._secured, node.host, node.port, timeout_ms=self._timeout_ms)
            self._connections[address] = await self._stack.enter_async_context(opened)
        return self._connections[address]

    async def _send(
        self, connection: Connection, request: Request[ResponseT], *, max_version: int | None = None
    ) -> ResponseT:
        return await connection.send(request, timeout_ms=self._timeout_ms, max_version=max_version)


@asynccontextmanager
async def open_cluster(conf: Mapping[str, str], *, timeout_ms: int) -> AsyncIterator[Cluster]:
    """Connect to the first broker that answers.

    Raises:
        ConfigError: a property of *conf* is wrong.
        AuthenticationError: one refuses us, or is not who it should be.
        ConnectionLostError: none answers.
    """
    config = parse_consumer_config({"group.id": CLIENT_ID, **conf})
    secured = ConnectionOpener(config)
    async with AsyncExitStack() as stack:
        failures: list[str] = []
        for server in config.bootstrap_servers:
            opened = open_secured(secured, server.host, server.port, timeout_ms=timeout_ms)
            try:
                bootstrap = await stack.enter_async_context(opened)
            except AuthenticationError:
                raise  # another broker would take no other password
            except Kip848Error as error:
                failures.append(str(error))
                continue
            yield Cluster(stack, bootstrap, secured=secured, timeout_ms=timeout_ms)
            return
        raise ConnectionLostError("; ".join(failures))


def open_secured(
    secured: ConnectionOpener, host: str, port: int, *, timeout_ms: int
) -> AbstractAsyncContextManager[Connection]:
    """A connection with the security that the properties ask for.

    Raises:
        AuthenticationError: the secret would be sent unencrypted; raised before anything is sent.
    """
    secured.check_address(host, port)
    return open_connection(
        host,
        port,
        client_id=CLIENT_ID,
        ssl_context=secured.ssl_context,
        sasl_client=secured.sasl_client,
        connect_timeout_ms=timeout_ms,
    )


def _list_offsets(partitions: Iterable[NamedPartition], when: int) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=when)
        by_topic.setdefault(partition.topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items()),
    )


def _classic_members(group: describe_groups.DescribedGroup) -> tuple[MemberDescription, ...]:
    return tuple(sorted(map(_classic_member, group.members), key=lambda member: (member.client_id, member.member_id)))


def _classic_member(member: describe_groups.DescribedGroupMember) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assigned: tuple[NamedPartition, ...] = ()
    with contextlib.suppress(ProtocolError):  # its group rebalances, or is not one of consumers
        topics = decode_subscription(member.member_metadata).topics
    with contextlib.suppress(ProtocolError):
        assigned = tuple(
            sorted(
                NamedPartition(item.topic, partition)
                for item in decode_assignment(member.member_assignment).assigned_partitions
                for partition in item.partitions
            )
        )
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        member_epoch=None,
        subscription=",".join(topics),
        assigned=assigned,
        target=assigned,
        protocol="classic",
    )


def _member(member: described.Member) -> MemberDescription:
    names = list(member.subscribed_topic_names)
    if member.subscribed_topic_regex:
        names.append(f"^{member.subscribed_topic_regex}")
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        member_epoch=member.member_epoch,
        subscription=",".join(names),
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        protocol="classic" if member.member_type == CLASSIC_MEMBER else "consumer",
    )


def _connect_group(group: connect_group_describe.DescribedGroup) -> ConnectGroupDescription:
    names = {member.member_id: member.worker_id or member.member_id for member in group.members}
    owners: dict[Unit, tuple[str, int]] = {}
    targets: dict[Unit, str] = {}
    for member in group.members:
        name = names[member.member_id]
        for held in member.assigned:
            for index, token in zip(held.indexes, held.epochs, strict=True):
                owners[Unit(held.name, index)] = name, token
        targets |= {Unit(wanted.name, index): name for wanted in member.target for index in wanted.indexes}
    deferred = {Unit(item.name, index) for item in group.deferred for index in item.indexes}
    return ConnectGroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        catalog_offset=group.catalog_offset,
        workers=tuple(
            WorkerDescription(
                worker_id=names[member.member_id],
                client_host=member.client_host,
                member_id=member.member_id,
                instance_id=member.instance_id,
                member_epoch=member.member_epoch,
                state=member.state,
            )
            for member in group.members
        ),
        units=tuple(
            UnitDescription(
                unit=str(unit),
                owner=owners[unit][0] if unit in owners else None,
                token=owners[unit][1] if unit in owners else None,
                target=targets.get(unit),
                deferred=unit in deferred,
            )
            for unit in sorted(owners.keys() | targets.keys() | deferred)
        ),
    )


def _partitions(assignment: described.Assignment) -> tuple[NamedPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(NamedPartition(topic.topic_name, number) for topic in topics for number in topic.partitions))


def _check(code: int, what: str, *, advice: str | None = None) -> None:
    if code:
        advice = advice or _ADVICE.get(code)
        raise error_for_code(code, f"{what.rstrip('.')}; {advice}" if advice else what)
