"""Calls about offsets: commit, committed, position, seek, pause and resume, in confluent_kafka's signatures.

Part of `Consumer`, apart from it only to keep each file about one thing. Rules of commits are in `member/commits`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kip848_client.client.data_plane import Message, PublicTopicPartition, internal, public, public_commit
from kip848_client.client.fetcher import Fetcher
from kip848_client.client.group_member import GroupMember
from kip848_client.client.ownership import OneThread
from kip848_client.client.translation import (
    PublicCommitCallback,
    check_partitions,
    commit_offsets,
    public_callback,
    public_offsets,
    seek_position,
    wait_s,
)
from kip848_client.errors import IllegalStateError
from kip848_client.logs import LogEvent, log_event
from kip848_client.model import TopicPartition, describe_partitions


class OffsetCalls:
    """What was consumed, and where to go on."""

    _fetcher: Fetcher
    _group: GroupMember
    _gate: OneThread

    def commit(
        self,
        message: Message | None = None,
        offsets: list[PublicTopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout_s: float | None = None,
        on_commit: PublicCommitCallback | None = None,
    ) -> list[PublicTopicPartition] | None:
        """Commit offsets: of one message, of the given partitions, or of everything handed out so far.

        With enable.auto.offset.store=false the last is: of everything that `store_offsets` was given.

        Args:
            message: commits the offset after it.
            offsets: partitions with the next offset to read.
            asynchronous: return at once. A failure goes to *on_commit*, else to on_commit of the configuration, else it
                is raised by a later call.
            timeout_s: of a synchronous commit; default.api.timeout.ms if None.
            on_commit: ``(error or None, partitions)``, called from a later poll(), consume(), commit() or close().

        Returns:
            What was committed, or None if asynchronous. Inside on_partitions_revoked, partitions of a topic that was
            deleted meanwhile are left out, and the log tells of them.

        Raises:
            CommitFailedError: the partitions may belong to another member now.
            RequestTimeoutError: no answer in time; whether the commit counts is unknown.
            BrokerError: the coordinator refused it.
        """
        with self._gate:
            chosen = commit_offsets(message, offsets)
            if chosen is not None:
                self._fetcher.positions(chosen)  # what is committed is done: no Ctrl-C from here on may repeat it
            if asynchronous:
                self._group.commit_async(chosen, public_callback(on_commit) if on_commit is not None else None)
                return None
            committed = self._group.commit_sync(chosen, timeout_ms=self._timeout_ms(timeout_s))
            return public_offsets(committed)

    def store_offsets(self, message: Message | None = None, offsets: list[PublicTopicPartition] | None = None) -> None:
        """Say what is processed, for automatic commits and commit() without arguments. Sends nothing.

        With enable.auto.offset.store=false, and without it not needed: then everything handed out counts as processed
        when the next poll() begins.

        Args:
            message: the offset after it is stored.
            offsets: partitions with the next offset to read.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer, or enable.auto.offset.store is on.
        """
        with self._gate:
            if self._group.thread.stored is None:
                raise IllegalStateError("store_offsets() needs enable.auto.offset.store=false; set it")
            chosen = commit_offsets(message, offsets, call="store_offsets")
            if chosen is None:
                raise IllegalStateError("store_offsets() takes a message or offsets")
            self._check_assigned(chosen, call="store_offsets")
            self._fetcher.positions(chosen)  # what is stored is done: no Ctrl-C from here on may repeat it
            self._fetcher.stored.update(chosen)

    def committed(
        self, partitions: list[PublicTopicPartition], timeout: float | None = None
    ) -> list[PublicTopicPartition]:
        """Read the group's committed offsets and their metadata; OFFSET_INVALID where there is none.

        Metadata is None if none was committed, and ends before the NUL with which confluent_kafka commits it.

        Args:
            timeout: seconds; default.api.timeout.ms if None.
        """
        with self._gate:
            wanted = [internal(partition) for partition in check_partitions(partitions, call="committed")]
            found = self._group.committed(wanted, timeout_ms=self._timeout_ms(timeout))
            return [
                public(partition) if (at := found.get(partition)) is None else public_commit(partition, at)
                for partition in wanted
            ]

    def position(self, partitions: list[PublicTopicPartition]) -> list[PublicTopicPartition]:
        """The next offset that poll() will hand out; OFFSET_INVALID while it is not known. Without metadata."""
        with self._gate:
            wanted = [internal(partition) for partition in check_partitions(partitions, call="position")]
            known = self._fetcher.positions(wanted)
            return [public(p, known.get(p) or self._fetcher.sought(p)) for p in wanted]

    def seek(self, partition: PublicTopicPartition) -> None:
        """Go on with *partition* at its offset (>= 0, OFFSET_BEGINNING or OFFSET_END), in the next poll().

        Raises:
            IllegalStateError: the partition is not assigned to this consumer, or has no such offset.
        """
        with self._gate:
            name, position = seek_position(partition)
            self._check_assigned([name], call="seek")
            if self._group.listener_effect is None:
                self._group.thread.perform_starts()
            if position.offset < 0:
                self._fetcher.detach([name])
            elif self._fetcher.seek(name, position):
                return
            self._group.seek(name, position)

    def pause(self, partitions: list[PublicTopicPartition]) -> None:
        """Hand out no records of *partitions* until `resume`. The mark goes when the partition goes.

        Partitions that are not assigned to this consumer are left out, and logged: they may have been revoked.
        """
        with self._gate:
            self._fetcher.pause(self._owned(partitions, call="pause"))

    def resume(self, partitions: list[PublicTopicPartition]) -> None:
        """Hand out records of *partitions* again; those that are not assigned are left out, as in `pause`."""
        with self._gate:
            self._fetcher.resume(self._owned(partitions, call="resume"))

    def paused(self) -> list[PublicTopicPartition]:
        """Partitions that are paused, sorted."""
        with self._gate:
            return [public(partition) for partition in sorted(self._fetcher.paused)]

    def _owned(self, partitions: list[PublicTopicPartition], *, call: str) -> list[TopicPartition]:
        self._group.check_usable()
        assigned = {tip.topic_partition for tip in self._group.view.assigned}
        names = [internal(partition) for partition in check_partitions(partitions, call=call)]
        others = sorted(set(names) - assigned)
        if others:
            log_event(logging.INFO, LogEvent.NOT_ASSIGNED, call=f"{call}()", partitions=describe_partitions(others))
        return [name for name in names if name in assigned]

    def _check_assigned(self, partitions: Iterable[TopicPartition], *, call: str) -> None:
        self._group.check_usable()
        assigned = {tip.topic_partition for tip in self._group.view.assigned}
        for name in partitions:
            if name not in assigned:
                raise IllegalStateError(f"{name} is not assigned to this consumer; {call}() takes assigned partitions")

    def _timeout_ms(self, timeout_s: float | None) -> int:
        waits_s = wait_s(timeout_s)
        return self._group.default_api_timeout_ms if waits_s < 0 else int(waits_s * 1_000)
