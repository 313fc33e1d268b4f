"""One share session: what a leader remembers of this member between its requests, and the epoch that counts them.

Epoch 0 opens a session, each later request counts one up, -1 closes it and gives back what was acquired in it. One
request at a time is under way. After an answer that was lost, or a refusal of the epoch, a new session begins.

Does not own: when requests are sent, and with which acknowledgements (`share_reader`).

Source: KIP-932 "Share sessions"; Kafka's ``ShareSessionHandler``.
Rules: R330, R331 and R336 in docs/protocol.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.member.core.assignment import IdPartition
from kip848_client.wire.messages import share_acknowledge, share_fetch
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kip848_client.wire.messages.share_fetch import ShareFetchRequest

_FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SaidRange(NamedTuple):
    """One word about each of some offsets in a row."""

    first: int
    last: int
    said: int


Said = Mapping[IdPartition, Mapping[int, int]]
"""Partition -> offset -> what is said about it."""


class FetchLimits(NamedTuple):
    """How much one answer may bring, and how long the leader may wait for it."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    record_limit: bool


class ShareSession:
    """The session with one leader.

    Args:
        group_id, member_id: of the member.
    """

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id: Final = group_id
        self._member_id: Final = member_id
        self._epoch = 0
        self._known: set[IdPartition] = set()
        """Partitions that the leader has in the session."""

    @property
    def is_open(self) -> bool:
        """Whether the leader knows the session."""
        return self._epoch > 0

    def fetch(self, partitions: frozenset[IdPartition], said: Said, limits: FetchLimits) -> ShareFetchRequest:
        """Read from *partitions*, and say *said* about records that were acquired from them before.

        The request that opens a session must say nothing.
        """
        assert self.is_open or not said
        added = partitions - self._known
        gone = self._known - partitions
        self._known = set(partitions)
        topics: defaultdict[UUID, list[share_fetch.FetchPartition]] = defaultdict(list)
        for topic_id, index in sorted(added | said.keys()):
            batches = tuple(
                share_fetch.AcknowledgementBatch(first, last, (word,))
                for first, last, word in ranges_of(said.get((topic_id, index), {}))
            )
            topics[topic_id].append(share_fetch.FetchPartition(index, batches))
        return ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.batch_size,
            share_acquire_mode=int(limits.record_limit),
            topics=tuple(share_fetch.FetchTopic(topic_id, tuple(found)) for topic_id, found in topics.items()),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id, tuple(indexes)) for topic_id, indexes in _by_topic(gone).items()
            ),
        )

    def acknowledge(self, said: Said, *, closing: bool = False) -> ShareAcknowledgeRequest:
        """Say *said*; with *closing* the leader then takes back all that this member has, and forgets the session."""
        assert self.is_open
        topics: defaultdict[UUID, list[share_acknowledge.AcknowledgePartition]] = defaultdict(list)
        renews = False
        for topic_id, index in sorted(said):
            words = said[topic_id, index]
            renews = renews or AcknowledgeType.RENEW in words.values()
            batches = tuple(share_acknowledge.AcknowledgementBatch(a, b, (word,)) for a, b, word in ranges_of(words))
            topics[topic_id].append(share_acknowledge.AcknowledgePartition(index, batches))
        return ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=_FINAL_EPOCH if closing else self._epoch,
            is_renew_ack=renews,
            topics=tuple(
                share_acknowledge.AcknowledgeTopic(topic_id, tuple(found)) for topic_id, found in topics.items()
            ),
        )

    def answered(self) -> None:
        """The leader has taken the last request: count on."""
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """Begin a new session with the next request."""
        self._epoch = 0
        self._known.clear()


def ranges_of(words: Mapping[int, int]) -> Sequence[SaidRange]:
    """Offsets in a row of which the same is said, as one range each."""
    if not words:
        return ()
    offsets = sorted(words)
    first, last = offsets[0], offsets[-1]
    if last - first == len(offsets) - 1 and len(set(words.values())) == 1:  # as nearly always
        return (SaidRange(first, last, words[first]),)
    found: list[SaidRange] = []
    begin = 0
    for number, offset in enumerate(offsets, 1):
        following = offsets[number] if number < len(offsets) else None
        if following != offset + 1 or words[following] != words[offset]:
            found.append(SaidRange(offsets[begin], offset, words[offset]))
            begin = number
    return found


def _by_topic(partitions: Iterable[IdPartition]) -> Mapping[UUID, list[int]]:
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(partitions):
        topics[topic_id].append(index)
    return topics
