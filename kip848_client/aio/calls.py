"""Calls of `AsyncConsumer` about offsets, and its questions to the cluster: the signatures of the synchronous consumer.

Part of `AsyncConsumer`, apart from it only to keep each file about one thing. What the calls mean is said, and done, in
`client/offset_calls` and `client/questions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kip848_client.aio.listener import AsyncCommitCallback
from kip848_client.aio.owner_thread import OwnerThread
from kip848_client.client.data_plane import ErrorDetails, Message, PublicTopicPartition
from kip848_client.client.group_member import GroupMember
from kip848_client.client.translation import PublicCommitCallback

if TYPE_CHECKING:
    from kip848_client.client.data_plane import ClusterMetadata
    from kip848_client.consumer import Consumer


class AsyncCalls:
    """What was consumed, where to go on, and what the cluster has."""

    _consumer: Consumer
    _group: GroupMember
    _thread: OwnerThread

    # ------------------------------------------------------------------------------------------------------- offsets

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[PublicTopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout_s: float | None = None,
        on_commit: AsyncCommitCallback | None = None,
    ) -> list[PublicTopicPartition] | None:
        """Commit offsets: of one message, of the given partitions, or of everything handed out so far.

        See `Consumer.commit`. *asynchronous* decides whether the coordinator's answer is waited for, as there; a
        cancelled commit may have been done.

        Args:
            on_commit: ``(error or None, partitions)``, ``async`` or not, called in the event loop inside a later call.
        """
        callback = self._in_loop(on_commit) if on_commit is not None else None
        commit = partial(self._consumer.commit, message, offsets, asynchronous, timeout_s=timeout_s, on_commit=callback)
        known = message is not None or offsets is not None
        if asynchronous and known and self._thread.idle and not self._group.thread.commits.callbacks_due:
            return commit()  # it waits for nothing, and librdkafka is not asked for positions
        return await self._thread.run(commit)

    async def store_offsets(
        self, message: Message | None = None, offsets: list[PublicTopicPartition] | None = None
    ) -> None:
        """Say what is processed, with enable.auto.offset.store=false; see `Consumer.store_offsets`."""
        await self._thread.run(partial(self._consumer.store_offsets, message, offsets))

    async def committed(
        self, partitions: list[PublicTopicPartition], timeout: float | None = None
    ) -> list[PublicTopicPartition]:
        """Read the group's committed offsets; see `Consumer.committed`."""
        return await self._thread.run(partial(self._consumer.committed, partitions, timeout))

    async def position(self, partitions: list[PublicTopicPartition]) -> list[PublicTopicPartition]:
        """The next offset that poll() will hand out; see `Consumer.position`."""
        return await self._thread.run(partial(self._consumer.position, partitions))

    async def seek(self, partition: PublicTopicPartition) -> None:
        """Go on with *partition* at its offset in the next poll(); see `Consumer.seek`."""
        await self._thread.run(partial(self._consumer.seek, partition))

    async def pause(self, partitions: list[PublicTopicPartition]) -> None:
        """Hand out no records of *partitions* until `resume`; see `Consumer.pause`."""
        await self._thread.run(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: list[PublicTopicPartition]) -> None:
        """Hand out records of *partitions* again."""
        await self._thread.run(partial(self._consumer.resume, partitions))

    async def paused(self) -> list[PublicTopicPartition]:
        """Partitions that are paused, sorted."""
        return await self._thread.run(self._consumer.paused)

    # ----------------------------------------------------------------------------------------------------- questions

    async def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> ClusterMetadata:
        """Describe the cluster; see `Consumer.list_topics`. Cancelled, it goes on in the background until *timeout*."""
        return await self._thread.run(partial(self._consumer.list_topics, topic, timeout), grace_s=0)

    async def cluster_id(self, timeout: float = -1.0) -> str | None:
        """The id of the cluster; see `Consumer.cluster_id`."""
        return await self._thread.run(partial(self._consumer.cluster_id, timeout), grace_s=0)

    async def get_watermark_offsets(
        self, partition: PublicTopicPartition, timeout: float = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition; see `Consumer.get_watermark_offsets`."""
        ask = partial(self._consumer.get_watermark_offsets, partition, timeout, cached)
        return await self._thread.run(ask, grace_s=0)

    async def offsets_for_times(
        self, partitions: list[PublicTopicPartition], timeout: float = -1.0
    ) -> list[PublicTopicPartition]:
        """The first offset of each partition at or after a time; see `Consumer.offsets_for_times`."""
        return await self._thread.run(partial(self._consumer.offsets_for_times, partitions, timeout), grace_s=0)

    async def lag(self, timeout_s: float = 5.0) -> dict[PublicTopicPartition, int]:
        """How many offsets each assigned partition is behind its end; see `Consumer.lag`."""
        return await self._thread.run(partial(self._consumer.lag, timeout_s), grace_s=0)

    # ----------------------------------------------------------------------------------------------------- internals

    def _in_loop(self, callback: Callable[..., object]) -> PublicCommitCallback:
        call_out = self._thread.call_out  # and not self, which would keep the consumer from being dropped

        def called_out(error: ErrorDetails | None, partitions: list[PublicTopicPartition]) -> None:
            call_out(lambda: callback(error, partitions))

        return called_out
