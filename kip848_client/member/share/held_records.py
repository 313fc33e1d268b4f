"""The records that a member of a share group has acquired: which wait, which the application has, what is said of them.

Each record is in one of three places: *waiting* (acquired, not handed out), *out* (the application has it), or *said*
(acknowledged, to be sent with the next request to its leader). It leaves when the leader has answered, or its lock has
ended. Acquired again, it is a new one.

Does not own: requests (`share_reader`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.member.core.assignment import IdPartition
from kip848_client.wire.record_batch import Record

_RENEW: Final = int(AcknowledgeType.RENEW)


class AcquiredRecord(msgspec.Struct, eq=False, gc=False):
    """One record, as a member has it for a while.

    Args:
        partition: (topic id, partition).
        topic: its name.
        delivery_count: 1 for the first delivery; 0 if the broker does not say.
        lock_until_ms: when the leader gives it to another member, as of when the request was sent: never too late.
        node_id: the leader that it was acquired from.
        timestamp_type: 1 create time, 2 log append time.
        taken_ms: when it was handed out.
    """

    partition: IdPartition
    topic: str
    record: Record
    delivery_count: int
    lock_until_ms: int
    node_id: int
    timestamp_type: int = 1
    taken_ms: int = 0

    @property
    def offset(self) -> int:
        """Its offset."""
        return self.record.offset


class HeldRecords:
    """All records that one member has."""

    def __init__(self) -> None:
        self._waiting: Final[deque[AcquiredRecord]] = deque()
        self._out: Final[dict[AcquiredRecord, None]] = {}
        self._places: dict[IdPartition, dict[int, AcquiredRecord]] | None = None
        """`_out` by partition and offset, made when it is needed; what is not out any more may still be in it."""
        self._said: Final[dict[int, dict[IdPartition, dict[int, int]]]] = {}
        """Leader -> partition -> offset -> what is said."""
        self._spoken_of: Final[dict[int, list[AcquiredRecord]]] = {}
        """Leader -> the records of which something is said, whose locks may end before it is sent."""
        self._end_ms: int | None = None
        """No lock of a record that waits or is out ends before this."""

    @property
    def waiting(self) -> int:
        """Records that can be handed out."""
        return len(self._waiting)

    @property
    def out(self) -> Collection[AcquiredRecord]:
        """Records that the application has."""
        return self._out

    @property
    def nodes_with_said(self) -> frozenset[int]:
        """Leaders that are to hear something."""
        return frozenset(self._said)

    def says_to(self, node_id: int) -> bool:
        """Whether a leader is to hear something."""
        return node_id in self._said

    @property
    def empty(self) -> bool:
        """Whether the member has nothing, and nothing to say."""
        return not self._waiting and not self._out and not self._said

    def acquired(self, records: Iterable[AcquiredRecord]) -> list[AcquiredRecord]:
        """Take records of one partition in an answer, whose locks end at the same time.

        Returns older deliveries of them that the application has: they do not count.
        """
        new = list(records)
        if not new:
            return []
        self._waiting.extend(new)
        end_ms = new[0].lock_until_ms
        self._end_ms = end_ms if self._end_ms is None else min(self._end_ms, end_ms)
        if not self._out:
            return []
        of_partition = self._out_of(new[0].partition)
        known = [of_partition[held.record.offset] for held in new if held.record.offset in of_partition]
        older = [old for old in known if old in self._out]
        for old in older:
            del self._out[old]
        return older

    def _out_of(self, partition: IdPartition) -> dict[int, AcquiredRecord]:
        """By their offsets. Not a look at all of them for each partition of an answer."""
        if self._places is None:
            self._places = {}
            for held in self._out:
                self._places.setdefault(held.partition, {})[held.record.offset] = held
        return self._places.get(partition, {})

    def unsay(self, node_id: int, partition: IdPartition, offsets: Iterable[int]) -> dict[int, int]:
        """Take back what is to be said of older deliveries: the leader would take it for the new ones."""
        words = self._said.get(node_id, {}).get(partition)
        if not words:
            return {}
        taken = {offset: words.pop(offset) for offset in offsets if offset in words}
        if taken:
            self._spoken_of[node_id] = [
                held
                for held in self._spoken_of.get(node_id, ())
                if held.offset not in taken or held.partition != partition
            ]
            self._forget_empty(node_id)
        return taken

    def tell(self, node_id: int, partition: IdPartition, offsets: Iterable[int], word: int, *, until_ms: int) -> None:
        """Say *word* about acquired offsets of which the application has no record; their locks end at *until_ms*."""
        for offset in offsets:
            self._note(AcquiredRecord(partition, "", Record(offset=offset), 0, until_ms, node_id), word)

    def take_late(self, node_id: int, *, now_ms: int) -> dict[IdPartition, dict[int, int]]:
        """Take back what is to be said of records whose locks have ended: the leader would refuse the rest with it."""
        taken: dict[IdPartition, dict[int, int]] = {}
        spoken_of = self._spoken_of.get(node_id, [])
        late = [held for held in spoken_of if held.lock_until_ms <= now_ms]
        if not late:
            return taken
        alive = {(held.partition, held.offset) for held in spoken_of if held.lock_until_ms > now_ms}
        for held in late:
            if (held.partition, held.offset) in alive:
                continue  # something else is said of a later delivery
            word = self._words(node_id, held.partition).pop(held.offset, None)
            if word is not None:
                taken.setdefault(held.partition, {})[held.offset] = word
        self._spoken_of[node_id] = [held for held in spoken_of if held.lock_until_ms > now_ms]
        self._forget_empty(node_id)
        return taken

    def take(self, count: int, *, now_ms: int) -> list[AcquiredRecord]:
        """Hand out at most *count* records whose locks hold."""
        waiting = self._waiting
        if self._end_ms is not None and now_ms >= self._end_ms:
            self._keep_waiting(lambda held: held.lock_until_ms > now_ms)
        taken = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        for held in taken:
            held.taken_ms = now_ms
        self._places = None
        self._out.update(dict.fromkeys(taken))
        return taken

    def put_back(self, records: Iterable[AcquiredRecord]) -> None:
        """Count these as not handed out."""
        for held in reversed(list(records)):
            if held in self._out:
                del self._out[held]
                self._waiting.appendleft(held)

    def say(self, held: AcquiredRecord, word: int) -> bool:
        """Say *word* about a record; False if it is not out. A renewed record stays out."""
        if held not in self._out:
            return False
        if word != _RENEW:
            del self._out[held]
        self._note(held, word)
        return True

    def say_of_all(self, records: Iterable[AcquiredRecord], word: int, *, now_ms: int) -> list[AcquiredRecord]:
        """Say *word*, which ends their being out, about these records. Returns those that are not ours any more."""
        late: list[AcquiredRecord] = []
        words: dict[int, int] = {}
        spoken_of: list[AcquiredRecord] = []
        place: tuple[IdPartition, int] | None = None
        out = self._out
        for held in records:
            if held not in out or held.lock_until_ms <= now_ms:
                late.append(held)
                continue
            del out[held]
            if place is None or held.partition is not place[0] or held.node_id != place[1]:
                place = (held.partition, held.node_id)
                words = self._words(held.node_id, held.partition)
                spoken_of = self._spoken_of.setdefault(held.node_id, [])
            words[held.record.offset] = word
            spoken_of.append(held)
        return late

    def say_of_waiting(self, word: int, *, node_id: int | None = None) -> None:
        """Say *word* about all that was not handed out, or only about what was acquired from one leader."""
        for held in self._waiting:
            if node_id in {None, held.node_id}:
                self._note(held, word)
        if node_id is None:
            self._waiting.clear()
        else:
            self.drop_waiting(node_id)

    def holds_of(self, node_id: int) -> bool:
        """Whether the member has records of a leader, or is to tell it something."""
        return node_id in self._said or any(held.node_id == node_id for held in (*self._waiting, *self._out))

    def take_said(self, node_id: int) -> dict[IdPartition, dict[int, int]]:
        """All that *node_id* is to hear; it counts as told."""
        self._spoken_of.pop(node_id, None)
        return self._said.pop(node_id, {})

    def take_renewals(self, node_id: int) -> dict[IdPartition, dict[int, int]]:
        """As `take_said`, of renewals alone."""
        taken: dict[IdPartition, dict[int, int]] = {}
        for partition, words in self._said.get(node_id, {}).items():
            renewals = {offset: word for offset, word in words.items() if word == AcknowledgeType.RENEW}
            if renewals:
                taken[partition] = renewals
                for offset in renewals:
                    del words[offset]
        left = self._said.get(node_id, {})
        self._spoken_of[node_id] = [
            held for held in self._spoken_of.get(node_id, ()) if held.offset in left.get(held.partition, ())
        ]
        self._forget_empty(node_id)
        return taken

    def said(self, node_id: int) -> Mapping[IdPartition, Mapping[int, int]]:
        """All that *node_id* is to hear."""
        return self._said.get(node_id, {})

    def renewed(self, node_id: int, partition: IdPartition, offsets: Iterable[int], *, until_ms: int) -> list[int]:
        """Their locks began anew. Returns those that were given up meanwhile: nobody handles them."""
        words = self._said.get(node_id, {}).get(partition, {})
        spoken_of = self._spoken_of.get(node_id, ()) if words else ()
        said = (held for held in spoken_of if words.get(held.offset) != AcknowledgeType.RENEW)
        ours = {held.offset: held for held in said if held.partition == partition}
        ours |= {offset: held for offset, held in self._out_of(partition).items() if held in self._out}
        given_up: list[int] = []
        for offset in offsets:
            held = ours.get(offset)
            if held is None or held.node_id != node_id:
                given_up.append(offset)
            else:
                held.lock_until_ms = until_ms
        return given_up

    def expire(self, *, now_ms: int) -> list[AcquiredRecord]:
        """Drop records whose locks have ended. Returns those that the application has."""
        if self._end_ms is None or now_ms < self._end_ms:
            return []
        # Not in the order of their ends: one leader may answer earlier than another that was asked before it.
        self._keep_waiting(lambda held: held.lock_until_ms > now_ms)
        lost = [held for held in self._out if held.lock_until_ms <= now_ms]
        for held in lost:
            del self._out[held]
        self._end_ms = min((held.lock_until_ms for held in (*self._waiting, *self._out)), default=None)
        return lost

    def drop_waiting(self, node_id: int) -> None:
        """Drop what was acquired from a leader and waits: the session is over, so others may get it."""
        self._keep_waiting(lambda held: held.node_id != node_id)

    def lose(self, node_id: int, partition: IdPartition | None = None) -> list[AcquiredRecord]:
        """Drop what was acquired from a leader, or one partition of it. Returns what the application has of it."""

        def is_lost(held: AcquiredRecord) -> bool:
            return held.node_id == node_id and partition in {None, held.partition}

        self._keep_waiting(lambda held: not is_lost(held))
        lost = [held for held in self._out if is_lost(held)]
        for held in lost:
            del self._out[held]
        return lost

    def next_end_ms(self) -> int | None:
        """When to call `expire` next: no lock ends before that. None without records."""
        return self._end_ms if self._out or self._waiting else None

    def _words(self, node_id: int, partition: IdPartition) -> dict[int, int]:
        return self._said.setdefault(node_id, {}).setdefault(partition, {})

    def _note(self, held: AcquiredRecord, word: int) -> None:
        self._words(held.node_id, held.partition)[held.record.offset] = word
        self._spoken_of.setdefault(held.node_id, []).append(held)

    def _keep_waiting(self, is_kept: Callable[[AcquiredRecord], bool]) -> None:
        kept = [held for held in self._waiting if is_kept(held)]
        self._waiting.clear()
        self._waiting.extend(kept)

    def _forget_empty(self, node_id: int) -> None:
        """Nothing may be left to be said to a leader."""
        said = {of: words for of, words in self._said.get(node_id, {}).items() if words}
        if said:
            self._said[node_id] = said
        else:
            self._said.pop(node_id, None)
            self._spoken_of.pop(node_id, None)
