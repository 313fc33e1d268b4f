"""Questions about the cluster itself: features, topics, and where partitions begin and end or stood at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, AdminCall, AskedBroker, Cluster, by_topic, check, refusal
from kip848_client.admin.results import ClusterFeatures, Results, TopicListing, split
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID, NamedPartition
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.wire.dialling import versions_request
from kip848_client.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

At: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""Where in a partition: its first offset, its next one, or the first one that is not older than a time.

The time may be milliseconds since 1970. A `datetime` without a zone is local time.
"""
IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]
Partition: TypeAlias = "tuple[str, int] | HasPartition"
"""``("orders", 0)``, or an object with a topic and a partition, such as `kip848_client.TopicPartition`."""


class HasPartition(Protocol):
    """What a TopicPartition of other libraries has."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its number."""
        ...


def named(partition: Partition) -> NamedPartition:
    """The partition as it is named in results."""
    return (
        NamedPartition(*partition)
        if isinstance(partition, tuple)
        else NamedPartition(partition.topic, partition.partition)
    )


LATEST: Final = -1
EARLIEST: Final = -2
"""In ListOffsets, instead of a time."""


async def features(cluster: Cluster, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> ClusterFeatures:
    """The features of the cluster, as one node knows them.

    Args:
        timeout_s: seconds for the whole call.

    Raises:
        Kip848Error: no broker answers.
    """
    answer = await cluster.call(timeout_s).ask_any(versions_request())
    check(answer.error_code, "features of the cluster")
    return ClusterFeatures(
        supported={one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        finalized={one.name: one.max_version_level for one in answer.finalized_features},
        epoch=answer.finalized_features_epoch,
    )


async def list_topics(
    cluster: Cluster, topics: Iterable[str] | None = None, *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, TopicListing]:
    """Topics with their ids, and how many partitions they have.

    Args:
        topics: their names; None for all that this user may see.
        timeout_s: seconds for the whole call.

    Returns:
        Of a topic that does not exist, or may not be seen, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    call = cluster.call(timeout_s)
    names = None if topics is None else set(topics)
    found: dict[str, TopicListing | Kip848Error] = {}
    while True:
        passing = False
        for one in (await call.metadata(names)).topics:
            name = one.name or ""
            topic_id = None if one.topic_id == ZERO_UUID else one.topic_id
            found[name] = TopicListing(name, topic_id, len(one.partitions), is_internal=one.is_internal)
            if one.error_code:
                found[name] = refusal(one.error_code, f"topic {name!r}")
                passing |= one.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        if not passing or not await call.pause():
            return split(found)


async def list_offsets(
    cluster: Cluster,
    partitions: Iterable[Partition],
    at: At | Mapping[NamedPartition, At] = "latest",
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[NamedPartition, int | None]:
    """Offsets by time: one request to each leader, for any number of partitions.

    Args:
        at: for all partitions, or for each of them.
        isolation_level: with ``read_committed`` the latest offset is that of the first open transaction, if there is
            one: as far as readers of committed records get.
        timeout_s: seconds for the whole call.

    Returns:
        The offset; None if there is no record that is new enough. Of a partition that does not exist, or whose leader
        does not answer, the error.

    Raises:
        ConfigError: *at* says something else.
        Kip848Error: no broker answers.
    """
    wanted = dict.fromkeys(map(named, partitions), LATEST)
    for partition in wanted:
        wanted[partition] = timestamp_of(at[partition] if isinstance(at, Mapping) else at)
    return split(await offsets_of(cluster.call(timeout_s), wanted, isolation_level=isolation_level))


def timestamp_of(at: At) -> int:
    """*at* as ListOffsets has it.

    Raises:
        ConfigError: it is not an allowed value.
    """
    match at:
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case datetime():
            return int(at.timestamp() * 1_000)
        case int() if at >= 0:
            return at
    raise ConfigError(f"{at!r} is neither 'earliest', 'latest', a datetime, nor milliseconds since 1970")


async def offsets_of(
    call: AdminCall,
    wanted: Mapping[NamedPartition, int],
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    brief: bool = False,
) -> dict[NamedPartition, int | Kip848Error | None]:
    """As `list_offsets`; *wanted* has timestamps. *brief*: as of `Call.at_leaders`."""

    async def ask(
        node: AskedBroker, partitions: Sequence[NamedPartition]
    ) -> Mapping[NamedPartition, int | Kip848Error | None]:
        topics = tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=one.partition, timestamp=wanted[one]) for one in group
                ),
            )
            for name, group in by_topic(partitions).items()
        )
        isolation = int(isolation_level == "read_committed")
        answer = await node.send(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics))
        found: dict[NamedPartition, int | Kip848Error | None] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = NamedPartition(topic.name, one.partition_index)
                found[partition] = one.offset if one.offset >= 0 else None
                if one.error_code:
                    found[partition] = refusal(one.error_code, f"offsets of {partition}")
        return found

    return await call.at_leaders(wanted, ask, brief=brief)
