"""Questions of an application that librdkafka answers by asking brokers: topics, watermarks, offsets by time, lag.

Part of `Consumer`, apart from it only to keep each file about one thing. Takes no part in the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from kip848_client.client.data_plane import OFFSET_INVALID, KafkaException, PublicTopicPartition, public, translate
from kip848_client.client.fetcher import Fetcher
from kip848_client.client.group_member import GroupMember
from kip848_client.client.ownership import OneThread
from kip848_client.client.translation import check_partition, check_partitions
from kip848_client.config import ConsumerConfig
from kip848_client.errors import ConnectionLostError, Kip848Error, RequestTimeoutError

if TYPE_CHECKING:
    from kip848_client.client.data_plane import ClusterMetadata

AnswerT = TypeVar("AnswerT")


class ClusterQuestions:
    """Every question is asked on the calling thread and waits for its answer."""

    _config: ConsumerConfig
    _fetcher: Fetcher
    _group: GroupMember
    _gate: OneThread

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> ClusterMetadata:
        """Describe the cluster: ``confluent_kafka.admin.ClusterMetadata``.

        Args:
            topic: only this one; all if None.
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        plane = self._fetcher.plane
        if topic is None:
            described = self._ask("list_topics", lambda: plane.list_topics(timeout=timeout))
        else:
            described = self._ask("list_topics", lambda: plane.list_topics(topic, timeout=timeout))
        return cast("ClusterMetadata", described)

    def cluster_id(self, timeout: float = -1.0) -> str | None:
        """The id of the cluster; None of brokers that have none.

        Args:
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        found: str | None = self.list_topics(timeout=timeout).cluster_id
        return found

    def get_watermark_offsets(
        self, partition: PublicTopicPartition, timeout: float = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition.

        Args:
            timeout: seconds; negative waits for ever.
            cached: do not ask: as of the last fetch, OFFSET_INVALID before one.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
        """
        check_partition(partition, call="get_watermark_offsets")
        plane = self._fetcher.plane
        answer: tuple[int, int] | None = self._ask(
            f"watermarks of {partition.topic}-{partition.partition}",
            lambda: plane.get_watermark_offsets(partition, timeout=timeout, cached=cached),
        )
        if answer is None:
            return OFFSET_INVALID, OFFSET_INVALID
        return answer

    def offsets_for_times(
        self, partitions: list[PublicTopicPartition], timeout: float = -1.0
    ) -> list[PublicTopicPartition]:
        """For each partition, whose offset field holds ms since 1970: the first offset at or after that time.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
        """
        check_partitions(partitions, call="offsets_for_times")
        plane = self._fetcher.plane
        return self._ask("offsets_for_times", lambda: plane.offsets_for_times(partitions, timeout=timeout))

    def lag(self, timeout_s: float = 5.0) -> dict[PublicTopicPartition, int]:
        """How many offsets each assigned partition is behind its end, as of its last fetch.

        A paused partition is not fetched: its leader is asked, and its last fetch counts only if nobody answers.

        Args:
            timeout_s: for asking about partitions that are paused, or were not fetched yet.

        Returns:
            Partitions whose position is not known yet are absent.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer about one that was not fetched yet.
        """
        with self._gate:
            deadline_s = time.monotonic() + timeout_s
            behind = {}
            paused = self._fetcher.paused
            for partition, position in sorted(self._fetcher.positions().items()):
                low, high = self.get_watermark_offsets(public(partition), cached=True)
                if high < 0 or partition in paused:
                    left_s = max(0.001, deadline_s - time.monotonic())
                    try:
                        low, high = self.get_watermark_offsets(public(partition), timeout=left_s)
                    except Kip848Error:
                        if high < 0:
                            raise
                behind[public(partition)] = max(0, high - max(low, position.offset))
            return behind

    def _ask(self, what: str, ask: Callable[[], AnswerT]) -> AnswerT:
        with self._gate:
            self._group.check_usable()
            try:
                return ask()
            except KafkaException as error:
                failure = translate(error, what=what)
                if isinstance(failure, (ConnectionLostError, RequestTimeoutError)):
                    # librdkafka's words name no address.
                    servers = self._config.data_plane["bootstrap.servers"]
                    failure = type(failure)(f"{failure}; bootstrap.servers is {servers}")
                raise failure from error
