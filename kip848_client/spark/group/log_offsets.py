"""Where partitions begin and end, which offset belongs to a time, who is in a group: `Admin` in the terms of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from kip848_client.admin import Admin, GroupDescription, Results
from kip848_client.admin.topics import At, IsolationLevel
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class LogOffsets:
    """Asks the cluster, from any thread; waits for its first broker.

    Args:
        conf: of a consumer; isolation.level decides what the end is.
        timeout_ms: of one question, with everything that is tried again for it.
    """

    def __init__(self, conf: Mapping[str, str], *, timeout_ms: int) -> None:
        self._admin: Final = Admin(conf, await_broker=True)
        self._timeout_s: Final = timeout_ms / 1_000
        uncommitted = conf.get("isolation.level", "read_committed").lower() == "read_uncommitted"
        self._isolation: Final[IsolationLevel] = "read_uncommitted" if uncommitted else "read_committed"

    def close(self) -> None:
        """Close connections."""
        self._admin.close()

    def begins(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The first offset of each partition; partitions that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        return self._known(partitions, "earliest", self._isolation)

    def ends(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The readable end of each partition; partitions that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        return self._known(partitions, "latest", self._isolation)

    def high_watermarks(self, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        """The offset after the last record, of transactions that are still open too.

        Raises:
            Kip848Error: no answer.
        """
        return self._known(partitions, "latest", "read_uncommitted")

    def at_times(self, times_ms: Mapping[NamedPartition, int]) -> dict[NamedPartition, int | None]:
        """The first offset at or after a time, ms since 1970; None where there is no such record.

        Raises:
            Kip848Error: no answer.
        """
        return self._list(times_ms, times_ms, self._isolation)

    def partition_counts(self, topics: Iterable[str] | None) -> dict[str, int]:
        """How many partitions each topic has, of all topics if None; topics that do not exist are absent.

        Raises:
            Kip848Error: no answer.
        """
        found = _existing(self._admin.list_topics(topics, timeout_s=self._timeout_s))
        return {name: topic.partitions for name, topic in found.items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """The id of each topic as it is now; topics that do not exist, and brokers without ids, leave none.

        Raises:
            Kip848Error: no answer.
        """
        found = _existing(self._admin.list_topics(topics, timeout_s=self._timeout_s))
        return {name: topic.topic_id for name, topic in found.items() if topic.topic_id is not None}

    def group(self, group_id: str) -> GroupDescription | None:
        """The members of a group, and whether it is stable; None if there is no such group.

        Raises:
            Kip848Error: no answer, or describing the group is not allowed.
        """
        described = self._admin.describe_groups([group_id], timeout_s=self._timeout_s)
        error = described.errors.get(group_id)
        if isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        found = described[group_id]
        return found if isinstance(found, GroupDescription) else None

    def _known(
        self, partitions: Iterable[NamedPartition], at: At, isolation: IsolationLevel
    ) -> dict[NamedPartition, int]:
        found = self._list(partitions, at, isolation)
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _list(
        self, partitions: Iterable[NamedPartition], at: At | Mapping[NamedPartition, At], isolation: IsolationLevel
    ) -> dict[NamedPartition, int | None]:
        wanted = list(partitions)
        if not wanted:
            return {}
        found = self._admin.list_offsets(wanted, at, isolation_level=isolation, timeout_s=self._timeout_s)
        return dict(_existing(found))


def _existing(results: Results[KeyT, ValueT]) -> Mapping[KeyT, ValueT]:
    """The values, without what does not exist; any other error is raised."""
    for error in results.errors.values():
        if not isinstance(error, BrokerError) or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return results.values
