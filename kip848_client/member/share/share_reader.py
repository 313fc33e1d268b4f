"""Reading of a share group's member: which leader is asked for records, what it is told, and what became of that.

Each leader has one `ShareSession` and at most one request under way. What was said about records goes along with the
next ShareFetch; where nothing is fetched, in a ShareAcknowledge of its own. Each word has one outcome: confirmed,
refused, or unknown if its answer was lost; a word whose outcome is known or unknown is never sent again.

Does not own: heartbeats and the assignment (`share_member`), what a handler's end means (`kip848_client.share`).

Source: KIP-932, KIP-1206, KIP-1222; Kafka's ``ShareConsumeRequestManager``.
Rules: R330 to R353 in docs/protocol.md.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kip848_client.common.acknowledge_type import GAP, AcknowledgeType
from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.common.model import BrokerNode
from kip848_client.errors import (
    ConnectionLostError,
    FatalGroupError,
    Kip848Error,
    ProtocolError,
    RequestTimeoutError,
    TopicAuthorizationError,
    error_for_code,
    error_name,
)
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.share.held_records import AcquiredRecord, HeldRecords
from kip848_client.member.share.share_events import (
    AcknowledgementOutcome,
    CommitEnded,
    FindLeaders,
    Leader,
    LeaderRefuses,
    LocksLost,
    ReaderClosed,
    ReaderEffect,
    ReaderFailed,
    ReaderSurfaced,
    ShareSend,
)
from kip848_client.member.share.share_session import FetchLimits, Said, ShareSession
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import PartitionData, ShareFetchResponse
from kip848_client.wire.record_batch import batches_of, records_of

_WAIT_WITH_RECORDS_MS: Final = 100
"""A fetch that waits at a leader holds back what is said meanwhile, and takes the room from other leaders. It waits no
longer than this if there may be either."""
_GATHER_MS: Final = 20
"""How long acknowledgements wait for the next fetch while records wait that poll() returns first."""
_SURFACE_EVERY_MS: Final = 5_000
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes of a partition after which its leader is looked up."""
_LOSES_LOCKS: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Codes of a partition after which the node has given to others, or never gives again, what it let this member have."""
_SESSION_GONE: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: (
        "; the broker has no room for another member: raise group.share.max.share.sessions, or run fewer members; "
        "the member asks again"
    ),
}


class ReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings of one reader. Times in ms.

    Args:
        max_wait_ms: ``fetch.wait.max.ms``: how long a leader waits for records.
        min_bytes: ``fetch.min.bytes``.
        max_bytes: ``fetch.max.bytes``: of one answer, though the first batch always comes whole.
        record_limit: ``share.acquire.mode=record_limit``: acquire no more than there is room for; otherwise whole
            batches.
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    record_limit: bool = False
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


class ShareCounts(msgspec.Struct):
    """What became of records since the start.

    Args:
        acquired: deliveries to this member, with those that were given back unread.
        accepted, released, rejected, renewed: acknowledgements that a leader confirmed.
        lock_lost: locks that ended while the application had the record.
        not_acknowledged: acknowledgements that were refused, or whose answer was lost.
    """

    acquired: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    lock_lost: int = 0
    not_acknowledged: int = 0

    def confirmed(self, words: Iterable[int]) -> None:
        """Count confirmed acknowledgements."""
        for word, count in Counter(words).items():
            match word:
                case AcknowledgeType.ACCEPT:
                    self.accepted += count
                case AcknowledgeType.RELEASE:
                    self.released += count
                case AcknowledgeType.REJECT:
                    self.rejected += count
                case _:
                    self.renewed += count


class _Flight(msgspec.Struct, frozen=True):
    """A request under way."""

    node_id: int
    said: Mapping[IdPartition, Mapping[int, int]]
    sent_ms: int
    reserved: int
    """Records that it may bring."""
    closes: bool = False


class _Commit(msgspec.Struct, eq=False):
    """A commit that waits for outcomes."""

    commit_id: int
    deadline_ms: int
    open: dict[IdPartition, set[int]]
    results: dict[IdPartition, Kip848Error | None]


class ShareReader:
    """Reads for one member, pure. Each call that changes something is followed by `advance`.

    Args:
        group_id, member_id: of the member.
        rng: source of jitter.
    """

    def __init__(self, settings: ReaderSettings, *, group_id: str, member_id: str, rng: random.Random) -> None:
        self._settings: Final = settings
        self._group_id: Final = group_id
        self._member_id: Final = member_id
        self._rng: Final = rng
        self._now_ms = 0
        self.held: Final = HeldRecords()
        self.counts: Final = ShareCounts()
        self.record_limit: bool = settings.record_limit
        """Acquire no more than there is room for; the shell may change it."""
        self.room: int = 0
        """How many records may be acquired beyond those that wait; set by the shell before `advance`."""
        self._assigned: frozenset[IdPartition] = frozenset()
        self._leaders: Final[dict[IdPartition, Leader]] = {}
        self._topics: Final[dict[UUID, str]] = {}
        self._sessions: Final[dict[int, ShareSession]] = {}
        self._backoffs: Final[dict[int, Backoff]] = {}
        self._flights: Final[dict[int, _Flight]] = {}
        self._last_request_id = 0
        self._asked: Final[dict[int, int]] = {}
        """Leader -> number of the last request that asked it for records."""
        self._gathers: Final[dict[int, int]] = {}
        """Leader -> when it began to gather acknowledgements for the next fetch."""
        self._waits_short = False
        """There are more leaders than room: none may keep the others waiting."""
        self._finding = False
        self._find_backoff: Final = self._new_backoff()
        self._commits: Final[dict[int, _Commit]] = {}
        self._untold: dict[IdPartition, Kip848Error | None] = {}
        """What became of what was said since the last commit, for the next one: the first error of each partition."""
        self._effects: list[ReaderEffect] = []
        self._surfaced: dict[object, int] = {}
        self._closing_until_ms: int | None = None
        self._closed = False
        self._wake_ms: int | None = None
        self.lock_ms: int = 0
        """How long a lock lasts, as the last leader said; 0 before."""

    # --- inputs

    def assign(self, partitions: frozenset[IdPartition]) -> None:
        """Read from these from now on. Records of others can still be acknowledged."""
        self._assigned = partitions
        for partition in self._leaders.keys() - partitions:
            del self._leaders[partition]

    def leaders_found(self, leaders: Mapping[IdPartition, Leader]) -> None:
        """The answer to `FindLeaders`; partitions without a leader are absent."""
        self._finding = False
        for partition, leader in leaders.items():
            self._topics[partition[0]] = leader.topic
            if partition in self._assigned:
                self._leaders[partition] = leader
        if self._assigned <= self._leaders.keys():
            self._find_backoff.reset()
        else:
            self._find_backoff.failed(self._now_ms)

    def find_failed(self) -> None:
        """`FindLeaders` got no answer."""
        self._finding = False
        self._find_backoff.failed(self._now_ms)

    def take(self, count: int, *, now_ms: int) -> list[AcquiredRecord]:
        """Hand out at most *count* records."""
        return self.held.take(count, now_ms=now_ms)

    def acknowledge(self, held: AcquiredRecord, word: AcknowledgeType) -> bool:
        """Say *word* of a record that was handed out; whether it is still ours as far as this member knows."""
        return self.held.say(held, int(word))

    def commit(self, commit_id: int, *, deadline_ms: int) -> None:
        """Tell with `CommitEnded` when the outcomes of all that was said so far are known.

        R340: what was answered before this call belongs to it as well: nothing tells a program when that happens.
        """
        waits: defaultdict[IdPartition, set[int]] = defaultdict(set)
        told = [flight.said for flight in self._flights.values()]
        told += [self.held.said(node_id) for node_id in self.held.nodes_with_said]
        for said in told:
            for partition, words in said.items():
                spoken = {offset for offset, word in words.items() if word}
                if spoken:  # of gaps nobody is told
                    waits[partition] |= spoken
        results, self._untold = self._untold, {}
        self._commits[commit_id] = _Commit(commit_id, deadline_ms, dict(waits), results)

    def abandon(self, commit_id: int) -> None:
        """Nobody waits for this commit any more: the next one tells what it would have told."""
        commit = self._commits.pop(commit_id, None)
        if commit is not None:
            self.keep_untold(commit.results)

    def keep_untold(self, results: Mapping[IdPartition, Kip848Error | None]) -> None:
        """Have the next commit tell these: nobody was told of them."""
        for partition, error in results.items():
            self._untold[partition] = self._untold.get(partition) or error

    def too_late(self, held: AcquiredRecord, word: AcknowledgeType) -> None:
        """Tell as refused what would be said of a record whose lock has ended while the application had it."""
        text = "its lock had ended before this was said: another member may have it"
        self._outcomes({held.partition: {held.offset: int(word)}}, error_for_code(ErrorCode.INVALID_RECORD_STATE, text))

    def close(self, *, deadline_ms: int) -> None:
        """Say what is to be said, give back everything else, and close the sessions; `ReaderClosed` tells the end."""
        self._closing_until_ms = deadline_ms

    # --- outputs

    def advance(self, *, now_ms: int) -> list[ReaderEffect]:
        """Do what is due, and return the effects since the last call, in order."""
        self._now_ms = max(self._now_ms, now_ms)
        self._wake_ms = None
        self._expire()
        if self._closing_until_ms is None:
            self._find_leaders()
            self._send_to_leaders()
        elif not self._closed:
            self._close_sessions(self._closing_until_ms)
        self._end_commits()
        effects, self._effects = self._effects, []
        return effects

    def deadline_ms(self) -> int | None:
        """When to call `advance` next; None if only an input can matter."""
        return self._wake_ms

    @property
    def assigned(self) -> frozenset[IdPartition]:
        """What is read."""
        return self._assigned

    def topic_of(self, partition: IdPartition) -> str:
        """The name of a partition's topic; its id while it is not known."""
        return self._topics.get(partition[0], str(partition[0]))

    # --- requests

    def _find_leaders(self) -> None:
        missing = self._assigned - self._leaders.keys()
        if missing and not self._finding and self._due(self._find_backoff.ready_ms):
            self._finding = True
            self._effects.append(FindLeaders(frozenset(topic_id for topic_id, _ in missing)))

    def _send_to_leaders(self) -> None:
        by_node: defaultdict[int, set[IdPartition]] = defaultdict(set)
        for partition, leader in self._leaders.items():
            by_node[leader.node.node_id].add(partition)
        busy = {flight.node_id for flight in self._flights.values()}
        ready = [
            node_id
            for node_id in sorted(by_node.keys() | self.held.nodes_with_said | self._sessions.keys())
            if node_id not in busy and self._due(self._backoff(node_id).ready_ms)
        ]
        # R345: if there is not room for all, the one that was not asked for the longest time is first.
        ready.sort(key=lambda node_id: self._asked.get(node_id, 0))
        room = self.room - self.held.waiting - sum(flight.reserved for flight in self._flights.values())
        if self.held.waiting and not self.record_limit:
            room = 0  # what a batch brought beyond the wish is handed out first
        self._waits_short = 0 < self.room < len(by_node)
        for number, node_id in enumerate(ready):
            share = -(-room // (len(ready) - number)) if room > 0 else 0
            room -= self._send_to(node_id, frozenset(by_node.get(node_id, ())), share)

    def _send_to(self, node_id: int, partitions: frozenset[IdPartition], room: int) -> int:
        """Send what is due to one leader. Returns how many records it may bring."""
        session = self._session(node_id)
        self._drop_late(node_id)
        said = self.held.said(node_id)
        fetches = bool(partitions) and room > 0
        if said and not session.is_open and not fetches:
            # The session in which they were acquired is over, and there is none to say it in.
            self._outcomes(self.held.take_said(node_id), _session_gone())
            return 0
        if said and session.is_open and _renews(said):
            # R339: nothing else goes with it, because a leader that refuses one word refuses all of a partition.
            words = self.held.take_renewals(node_id)
            self._send(node_id, session.acknowledge(words), words)
            return 0
        alone = bool(self._commits) or not fetches or not said.keys() <= partitions
        if said and session.is_open and alone:  # a commit must not wait for records
            if self._gather(node_id):
                return 0
            words = self.held.take_said(node_id)
            self._send(node_id, session.acknowledge(words), words)
            return 0
        if not partitions and session.is_open and self._assigned <= self._leaders.keys():
            # R351: it leads nothing of ours any more. It may be gone: close() would wait for it.
            if not self.held.holds_of(node_id):
                self._send(node_id, session.acknowledge({}, closing=True), {}, closes=True)
            return 0
        if not fetches:
            return 0
        words = self.held.take_said(node_id) if session.is_open else {}
        settings = self._settings
        short = self._waits_short or bool(self.held.out) or self.held.waiting > 0 or bool(self._commits)
        wait_ms = min(settings.max_wait_ms, _WAIT_WITH_RECORDS_MS) if short else settings.max_wait_ms
        limits = FetchLimits(
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=room,
            batch_size=room,
            record_limit=self.record_limit,
        )
        self._send(node_id, session.fetch(partitions, words, limits), words, reserved=room, wait_ms=wait_ms)
        self._asked[node_id] = self._last_request_id
        return room

    def _drop_late(self, node_id: int) -> None:
        """R352: what waits for a leader longer than a lock lasts is not sent, and told as refused."""
        late = self.held.take_late(node_id, now_ms=self._now_ms)
        if late:
            text = "its lock had ended before this could be said: another member may have it"
            self._outcomes(late, error_for_code(ErrorCode.INVALID_RECORD_STATE, text))

    def _gather(self, node_id: int) -> bool:
        """R332: whether acknowledgements of a poll() wait for those of the next ones, which come soon.

        A request for each poll() would keep the leader busy, and the fetch that follows waiting.
        """
        if self._commits or not self.held.waiting:
            return False
        return not self._due(self._gathers.setdefault(node_id, self._now_ms) + _GATHER_MS)

    def _send(
        self,
        node_id: int,
        request: Any,
        said: Said,
        *,
        reserved: int = 0,
        wait_ms: int = 0,
        closes: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        self._gathers.pop(node_id, None)
        self._last_request_id += 1
        self._flights[self._last_request_id] = _Flight(node_id, said, self._now_ms, reserved, closes)
        limit_ms = self._settings.request_timeout_ms + wait_ms if timeout_ms is None else timeout_ms
        self._effects.append(ShareSend(self._last_request_id, node_id, request, limit_ms))

    # --- answers

    def answered(self, request_id: int, response: Any, *, now_ms: int) -> None:
        """A leader has answered."""
        flight = self._flights.pop(request_id, None)
        if flight is None:
            return
        self._now_ms = max(self._now_ms, now_ms)
        session = self._session(flight.node_id)
        code = response.error_code
        if code:
            self._refused(flight, session, code, response.error_message or "")
            return
        if flight.closes:
            session.reset()
        else:
            session.answered()
        self._backoff(flight.node_id).reset()
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_ms = response.acquisition_lock_timeout_ms
        if isinstance(response, ShareFetchResponse):
            self._fetched(flight, response)
        else:
            assert isinstance(response, ShareAcknowledgeResponse)
            self._acknowledged(flight, response)

    def failed(self, request_id: int, error: Kip848Error, *, now_ms: int) -> None:
        """A request got no answer: whether the leader took it is not known."""
        flight = self._flights.pop(request_id, None)
        if flight is None:
            return
        self._now_ms = max(self._now_ms, now_ms)
        self._backoff(flight.node_id).failed(self._now_ms)
        self._outcomes(flight.said, error)
        self._session_lost(flight.node_id)
        self._forget_leader(flight.node_id)

    def connection_lost(self, node_id: int, *, now_ms: int) -> None:
        """The connection to a leader has ended. If a request is under way there, `failed` tells the same."""
        if any(flight.node_id == node_id for flight in self._flights.values()):
            return
        self._now_ms = max(self._now_ms, now_ms)
        if self._session(node_id).is_open or self.held.holds_of(node_id):
            self._session_lost(node_id)
            self._forget_leader(node_id)

    def _session_lost(self, node_id: int) -> None:
        """R336: the leader has taken back what was acquired in the session, or does it when it comes to that."""
        self._session(node_id).reset()
        self._outcomes(self.held.take_said(node_id), _session_gone())
        self._lost(self.held.lose(node_id))

    def _refused(self, flight: _Flight, session: ShareSession, code: int, message: str) -> None:
        """The whole request was refused. Nothing of it was taken, but for one case.

        A leader looks at what a fetch says before it finds that its session is over, so that may count or not.
        """
        advice = _ADVICE.get(code, "")
        error = error_for_code(code, f"share group {self._group_id!r}: {message or 'no reason given'}{advice}")
        unknown = code in _SESSION_GONE and flight.reserved > 0
        self._outcomes(flight.said, ConnectionLostError(f"{error}; what was said may count") if unknown else error)
        if code == ErrorCode.SHARE_SESSION_NOT_FOUND:
            self._session_lost(flight.node_id)
        elif code == ErrorCode.INVALID_SHARE_SESSION_EPOCH:  # it has the session still, and their locks hold
            session.reset()
            self.held.say_of_waiting(int(AcknowledgeType.RELEASE), node_id=flight.node_id)
        else:
            session.reset()
            self.held.drop_waiting(flight.node_id)
        if flight.closes:
            return
        if code not in _SESSION_GONE:
            self._backoff(flight.node_id).failed(self._now_ms)
        if code not in _SESSION_GONE and code not in RETRIABLE and code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            fatal = error if isinstance(error, FatalGroupError) else FatalGroupError(str(error), code=code)
            self._effects.append(ReaderFailed(fatal))
        elif code not in _SESSION_GONE:
            self._effects.append(LeaderRefuses(flight.node_id, error))

    def _fetched(self, flight: _Flight, response: ShareFetchResponse) -> None:
        told: set[IdPartition] = set()
        endpoints = {each.node_id: each for each in response.node_endpoints}
        for topic in response.responses:
            for data in topic.partitions:
                partition = (topic.topic_id, data.partition_index)
                if partition in flight.said:
                    told.add(partition)
                    words = {partition: flight.said[partition]}
                    self._outcomes(words, _error(data.acknowledge_error_code, data.acknowledge_error_message))
                if data.error_code:
                    self._partition_refused(flight.node_id, partition, data.error_code, data.error_message)
                    new = endpoints.get(data.current_leader.leader_id)
                    if new is not None and partition in self._assigned and data.error_code in _MOVED:
                        node = BrokerNode(new.node_id, new.host, new.port)
                        self._leaders[partition] = Leader(node, self.topic_of(partition))
                elif data.acquired_records:
                    self._acquired(flight, partition, data)
        self._outcomes({of: words for of, words in flight.said.items() if of not in told}, None)

    def _acquired(self, flight: _Flight, partition: IdPartition, data: PartitionData) -> None:
        topic, node_id = self.topic_of(partition), flight.node_id
        until_ms = flight.sent_ms + self.lock_ms
        ranges = [range(each.first_offset, each.last_offset + 1) for each in data.acquired_records]
        unsaid = self.held.unsay(node_id, partition, itertools.chain.from_iterable(ranges))
        if unsaid:
            text = "its lock had ended before this was said: it was delivered again"
            self._outcomes({partition: unsaid}, error_for_code(ErrorCode.INVALID_RECORD_STATE, text))
        if until_ms <= self._now_ms:
            # R337: nobody would handle them until their locks end, which began when the leader could answer.
            late, until_ms = itertools.chain.from_iterable(ranges), self._now_ms + self.lock_ms
            self.held.tell(node_id, partition, late, AcknowledgeType.RELEASE, until_ms=until_ms)
            return
        counts: dict[int, int] = {}
        if len(ranges) > 1:
            for offsets, each in zip(ranges, data.acquired_records, strict=True):
                counts.update(dict.fromkeys(offsets, each.delivery_count))
        alike = data.acquired_records[0].delivery_count
        first = min(each.first_offset for each in data.acquired_records)
        last = max(each.last_offset for each in data.acquired_records)
        found: list[AcquiredRecord] = []
        word = GAP
        try:
            for at, header in batches_of(data.records, allow_partial=True):
                if header.is_control or header.last_offset < first or header.base_offset > last:
                    continue
                kind = 2 if header.is_log_append_time else 1
                records = records_of(data.records, at, first=first, last=last)
                if not counts:
                    found += [
                        AcquiredRecord(partition, topic, record, alike, until_ms, node_id, kind) for record in records
                    ]
                    continue
                found += [
                    AcquiredRecord(partition, topic, record, count, until_ms, node_id, kind)
                    for record in records
                    if (count := counts.get(record.offset)) is not None
                ]
        except ProtocolError as error:
            # Given back: another member may read it, or its deliveries are used up. The records before it are good.
            word = AcknowledgeType.RELEASE
            self._surface(("damaged", partition), error)
        if len(found) < sum(map(len, ranges)):
            read = {held.record.offset for held in found}
            left = [offset for offset in itertools.chain.from_iterable(ranges) if offset not in read]
            self.held.tell(node_id, partition, left, word, until_ms=until_ms)
        self.counts.acquired += len(found)
        self._lost(self.held.acquired(found))

    def _acknowledged(self, flight: _Flight, response: ShareAcknowledgeResponse) -> None:
        told: set[IdPartition] = set()
        for topic in response.responses:
            for data in topic.partitions:
                partition = (topic.topic_id, data.partition_index)
                told.add(partition)
                words = flight.said.get(partition, {})
                if data.error_code:
                    self._outcomes({partition: words}, _error(data.error_code, data.error_message))
                    if data.error_code in _MOVED:
                        self._partition_refused(flight.node_id, partition, data.error_code, data.error_message)
                else:
                    self._confirmed(flight, partition, words)
        self._outcomes({of: words for of, words in flight.said.items() if of not in told}, None)

    def _confirmed(self, flight: _Flight, partition: IdPartition, words: Mapping[int, int]) -> None:
        renewed = [offset for offset, word in words.items() if word == AcknowledgeType.RENEW]
        until_ms = flight.sent_ms + self.lock_ms
        late = set(self.held.renewed(flight.node_id, partition, renewed, until_ms=until_ms)) if renewed else ()
        self._outcomes({partition: {offset: word for offset, word in words.items() if offset not in late}}, None)
        if late:
            # R353: the leader believes that this member goes on with them.
            text = "its lock had ended before the leader answered: the record is given back"
            error = error_for_code(ErrorCode.INVALID_RECORD_STATE, text)
            self._outcomes({partition: dict.fromkeys(late, int(AcknowledgeType.RENEW))}, error)
            until_ms = self._now_ms + self.lock_ms
            self.held.tell(flight.node_id, partition, late, AcknowledgeType.RELEASE, until_ms=until_ms)

    def _partition_refused(self, node_id: int, partition: IdPartition, code: int, message: str | None) -> None:
        topic = self.topic_of(partition)
        if code in _LOSES_LOCKS:
            self._lost(self.held.lose(node_id, partition))
        if code in _MOVED or code in RETRIABLE:
            self._leaders.pop(partition, None)
            self._find_backoff.failed(self._now_ms)
            return
        text = f"{topic}-{partition[1]}: {message or 'no reason given'}; still trying"
        error: Kip848Error = error_for_code(code, text)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"{error_name(code)}: {text}; READ on the topic is missing"
            error = TopicAuthorizationError(text, topics=frozenset({topic}))
        self._leaders.pop(partition, None)
        self._find_backoff.failed(self._now_ms)
        self._surface((code, topic), error)

    # --- closing

    def _close_sessions(self, deadline_ms: int) -> None:
        self.held.say_of_waiting(int(AcknowledgeType.RELEASE))
        for held in list(self.held.out):
            self.held.say(held, int(AcknowledgeType.RELEASE))
        self._give_up_idle_fetches()
        busy = {flight.node_id for flight in self._flights.values()}
        for node_id in sorted(self._sessions.keys() | self.held.nodes_with_said):
            session = self._session(node_id)
            if node_id in busy:
                continue
            self._drop_late(node_id)
            words = self.held.take_said(node_id)
            if session.is_open:
                left_ms = max(1, min(deadline_ms - self._now_ms, self._settings.request_timeout_ms))
                self._send(node_id, session.acknowledge(words, closing=True), words, closes=True, timeout_ms=left_ms)
                busy.add(node_id)
            elif words:
                self._outcomes(words, _session_gone())
        if not busy or self._due(deadline_ms):
            self._closed = True
            late = RequestTimeoutError("the consumer was closed before the leader answered: what was said may count")
            for flight in self._flights.values():
                self._outcomes(flight.said, late)
            self._flights.clear()
            for node_id in sorted(self.held.nodes_with_said):
                self._outcomes(self.held.take_said(node_id), _session_gone())
            self._effects.append(ReaderClosed())

    def _give_up_idle_fetches(self) -> None:
        """R341: do not wait for a fetch at a leader that has nothing to hear.

        The shell closes the connections, and then the leader takes back what the fetch may bring. To close the session
        on another connection would be wrong: Kafka lets the fetch acquire all the same, and those locks last until
        their time-out.
        """
        for request_id, flight in list(self._flights.items()):
            if not flight.said and not flight.closes and not self.held.says_to(flight.node_id):
                del self._flights[request_id]
                self._session(flight.node_id).reset()

    # --- outcomes

    def _outcomes(self, said: Said, error: Kip848Error | None) -> None:
        for partition, words in said.items():
            spoken = {offset: word for offset, word in words.items() if word}
            if not spoken:
                continue
            self._effects.append(AcknowledgementOutcome(partition, spoken, error))
            if error is None:
                self.counts.confirmed(spoken.values())
            else:
                self.counts.not_acknowledged += len(spoken)
            untold = set(spoken)
            for commit in self._commits.values():
                waits = commit.open.get(partition)
                if waits is None or waits.isdisjoint(spoken):
                    continue
                untold -= waits
                waits.difference_update(spoken)
                commit.results[partition] = commit.results.get(partition) or error
            if untold:
                self.keep_untold({partition: error})

    def _end_commits(self) -> None:
        for commit in list(self._commits.values()):
            waits = any(commit.open.values())
            late = waits and self._due(commit.deadline_ms)
            if not waits or late:
                del self._commits[commit.commit_id]
                if late:
                    self.keep_untold(commit.results)
                self._effects.append(CommitEnded(commit.commit_id, commit.results, timed_out=late))

    def _expire(self) -> None:
        self._lost(self.held.expire(now_ms=self._now_ms))
        end_ms = self.held.next_end_ms()
        if end_ms is not None:
            self._due(end_ms)

    def _lost(self, records: Iterable[AcquiredRecord]) -> None:
        by_partition: defaultdict[IdPartition, set[int]] = defaultdict(set)
        for held in records:
            by_partition[held.partition].add(held.offset)
            self.counts.lock_lost += 1
        self._effects += [LocksLost(partition, frozenset(found)) for partition, found in by_partition.items()]

    # --- small

    def _session(self, node_id: int) -> ShareSession:
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = ShareSession(self._group_id, self._member_id)
        return session

    def _backoff(self, node_id: int) -> Backoff:
        backoff = self._backoffs.get(node_id)
        if backoff is None:
            backoff = self._backoffs[node_id] = self._new_backoff()
        return backoff

    def _new_backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(initial_ms=settings.retry_backoff_ms, max_ms=settings.retry_backoff_max_ms, rng=self._rng)

    def _forget_leader(self, node_id: int) -> None:
        for partition, leader in list(self._leaders.items()):
            if leader.node.node_id == node_id:
                del self._leaders[partition]

    def _surface(self, key: object, error: Kip848Error) -> None:
        last_ms = self._surfaced.get(key)
        if last_ms is None or self._now_ms - last_ms >= _SURFACE_EVERY_MS:
            self._surfaced[key] = self._now_ms
            self._effects.append(ReaderSurfaced(error))

    def _due(self, at_ms: int) -> bool:
        if self._now_ms >= at_ms:
            return True
        if self._wake_ms is None or at_ms < self._wake_ms:
            self._wake_ms = at_ms
        return False


def _renews(said: Said) -> bool:
    return any(AcknowledgeType.RENEW in words.values() for words in said.values())


def _error(code: int, message: str | None) -> Kip848Error | None:
    return error_for_code(code, message or "no reason given") if code else None


def _session_gone() -> Kip848Error:
    return error_for_code(
        ErrorCode.SHARE_SESSION_NOT_FOUND, "the share session ended before this could be said: the records go to others"
    )
