"""Fetch sessions (KIP-227): a client names its partitions once, then sends and gets only changes. Pure.

Each request of a session is turned into the full request that it stands for. From the full answer, everything that the
client knows already is left out. So fault rules, ACLs, the request log and the handler of Fetch all see which
partitions are read, and none of them knows about sessions.

Source:
    apache/kafka ``FetchManager``, ``FetchSession``; KIP-227.
"""

from __future__ import annotations

import itertools
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

STALE_MS: Final = 120_000
"""A session that was idle for longer gives its place to a new one."""
PARTITIONS_MAX: Final = 100_000
"""Partitions of all sessions of a node together. Not Kafka's: it bounds memory."""

_OPENING_EPOCH: Final = 0
_NO_SESSION_EPOCH: Final = -1
_NO_SESSION: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
_NEVER_SENT: Final = -1

_Key: TypeAlias = tuple[str, uuid.UUID, int]
"""A partition as the client names it: topic, topic id, number; of the first two the version has one."""


class OpenedOut(NamedTuple):
    """The full request that a request of a session stands for.

    Attributes:
        request: names every partition that is to be read.
        complete: makes the answer to the client from the answer to *request*.
    """

    request: FetchRequest
    complete: Callable[[FetchResponse], FetchResponse]


class _Partition:
    """One partition of a session: what the client asks for, and the last answer."""

    __slots__ = ("asked", "high_watermark", "log_start_offset")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.high_watermark = self.log_start_offset = _NEVER_SENT

    def record_answer(self, data: PartitionData) -> bool:
        """Remember *data* as the last answer. Returns whether it differs from the one before."""
        is_trouble = data.error_code != ErrorCode.NONE or data.diverging_epoch.epoch >= 0
        # After an error the next answer is sent again, even if nothing else has changed.
        high_watermark = _NEVER_SENT if is_trouble else data.high_watermark
        is_new = (
            is_trouble
            or bool(data.records)
            or data.preferred_read_replica >= 0
            or self.high_watermark != high_watermark
            or self.log_start_offset != data.log_start_offset
        )
        self.high_watermark, self.log_start_offset = high_watermark, data.log_start_offset
        return is_new


class _Session:
    __slots__ = ("by_id", "created_ms", "epoch", "partitions", "session_id", "used_ms")

    def __init__(self, session_id: int, request: FetchRequest, *, by_id: bool, now_ms: int) -> None:
        self.session_id: Final = session_id
        self.by_id: Final = by_id
        self.created_ms: Final = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.partitions: Final[dict[_Key, _Partition]] = {}
        self.update(request)

    def update(self, request: FetchRequest) -> None:
        """Add and change the partitions that the request names, and drop the ones that it forgets."""
        for key, asked in _named(request.topics):
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = _Partition(asked)
            else:
                known.asked = asked
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, partition), None)

    def topics(self) -> tuple[FetchTopic, ...]:
        """All partitions in the order in which they are read."""
        return tuple(
            FetchTopic(topic=name, topic_id=topic_id, partitions=tuple([partition.asked for _, partition in grouped]))
            for (name, topic_id), grouped in itertools.groupby(self.partitions.items(), key=lambda item: item[0][:2])
        )

    def news(self, response: FetchResponse) -> tuple[FetchableTopicResponse, ...]:
        """The part that is new to the client. Partitions with records go to the end, so that others have a turn."""
        topics = []
        for topic in response.responses:
            news = []
            for data in topic.partitions:
                key = (topic.topic, topic.topic_id, data.partition_index)
                partition = self.partitions.get(key)
                if partition is None or partition.record_answer(data):
                    news.append(data)
                    if partition is not None and data.records:
                        self.partitions[key] = self.partitions.pop(key)
            if news:
                topics.append(replace(topic, partitions=tuple(news)))
        return tuple(topics)


class FetchSessions:
    """The sessions of one node.

    Args:
        slots: how many there are at most (``max.incremental.fetch.session.cache.slots``); with 0 none is opened.
        new_id: makes a random number from 0 to 2**31 - 1, so that no client has it from an earlier life of the node.
    """

    def __init__(self, *, slots: int, new_id: Callable[[], int]) -> None:
        self._slots: Final = slots
        self._new_id: Final = new_id
        self._sessions: Final[OrderedDict[int, _Session]] = OrderedDict()
        """Sessions by id, the longest idle one first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open_out(self, request: FetchRequest, *, by_id: bool, now_ms: int) -> OpenedOut | FetchResponse | None:
        """Make of a request the full request that it stands for.

        Args:
            by_id: the version of the request names topics by id.

        Returns:
            None if the request is a full one and wants no session; the answer if there is no such session.
        """
        if request.session_epoch in (_OPENING_EPOCH, _NO_SESSION_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == _NO_SESSION_EPOCH or not self._slots:
                return None
            return OpenedOut(request, lambda response: self._open(request, response, by_id=by_id, now_ms=now_ms))
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        size = len(session.partitions)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.session_id]
            return OpenedOut(replace(request, topics=()), lambda response: response)
        if len(session.partitions) > size and self._partition_count() > PARTITIONS_MAX:
            del self._sessions[session.session_id]
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        session.epoch = epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1

        def complete(response: FetchResponse) -> FetchResponse:
            if response.error_code:
                return response
            if session.epoch != epoch:  # the client has asked again meanwhile, and will not read this answer
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if response.throttle_time_ms:  # nothing is in it, so nothing is news
                return replace(response, session_id=session.session_id)
            return replace(response, session_id=session.session_id, responses=session.news(response))

        return OpenedOut(replace(request, topics=session.topics(), forgotten_topics_data=()), complete)

    def _open(self, request: FetchRequest, response: FetchResponse, *, by_id: bool, now_ms: int) -> FetchResponse:
        """Open a session with the partitions of its first answer, if there is room."""
        if response.error_code or response.throttle_time_ms:
            return response
        session = _Session(self._unused_id(), request, by_id=by_id, now_ms=now_ms)
        if not self._makes_room(len(session.partitions), now_ms=now_ms):
            return response
        session.news(response)
        self._sessions[session.session_id] = session
        return replace(response, session_id=session.session_id)

    def _unused_id(self) -> int:
        while (session_id := self._new_id()) == _NO_SESSION or session_id in self._sessions:
            pass
        return session_id

    def _makes_room(self, size: int, *, now_ms: int) -> bool:
        """Evict one session if all slots are taken; False if there is no room.

        The session that was idle for longest goes if it is stale, else the smallest of the old ones if it has fewer
        partitions than the new one.
        """
        if len(self._sessions) >= self._slots:
            evicted = next(iter(self._sessions.values()))
            if now_ms - evicted.used_ms <= STALE_MS:
                old = [each for each in self._sessions.values() if now_ms - each.created_ms > STALE_MS]
                evicted = min(old, key=lambda each: len(each.partitions), default=evicted)
                if not old or len(evicted.partitions) >= size:
                    return False
            del self._sessions[evicted.session_id]
        return self._partition_count() + size <= PARTITIONS_MAX

    def _partition_count(self) -> int:
        return sum([len(session.partitions) for session in self._sessions.values()])


def _named(topics: Iterable[FetchTopic]) -> Iterator[tuple[_Key, FetchPartition]]:
    for topic in topics:
        for asked in topic.partitions:
            yield (topic.topic, topic.topic_id, asked.partition), asked
