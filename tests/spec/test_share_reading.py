"""The rules of docs/protocol.md, section Share groups: sessions, acknowledgements and their outcomes, locks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import BrokerNode
from kip848_client.errors import BrokerError, ConnectionLostError, RequestTimeoutError
from kip848_client.member.core.assignment import IdPartition
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
from kip848_client.member.share.share_reader import ReaderSettings, ShareReader
from kip848_client.wire.messages import share_acknowledge
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kip848_client.wire.record_batch import Record, build_batch

TOPIC = UUID(int=1)
P0: IdPartition = (TOPIC, 0)
LOCK_MS = 30_000
EffectT = TypeVar("EffectT", bound=ReaderEffect)


class Driver:
    """A reader of one partition, with node 1 as its leader, and a clock."""

    def __init__(self, **settings: Any) -> None:
        self.reader = ShareReader(
            ReaderSettings(**{"record_limit": True, **settings}), group_id="g", member_id="m", rng=random.Random(0)
        )
        self.now_ms = 0
        self.effects: list[ReaderEffect] = []
        self.reader.room = 10
        self.reader.assign(frozenset({P0}))
        self.advance()
        assert self.told(FindLeaders) == [FindLeaders(frozenset({TOPIC}))]
        self.reader.leaders_found({P0: Leader(BrokerNode(1, "a", 9092), "mails")})

    def advance(self) -> list[ReaderEffect]:
        self.effects = self.reader.advance(now_ms=self.now_ms)
        return self.effects

    def told(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def sent(self) -> ShareSend:
        self.advance()
        (send,) = self.told(ShareSend)
        return send

    def answer(self, send: ShareSend, response: object) -> list[ReaderEffect]:
        self.reader.answered(send.request_id, response, now_ms=self.now_ms)
        return self.advance()

    def acknowledge(self, offset: int, word: AcknowledgeType) -> bool:
        """Say *word* of the record at *offset*; whether the application has it."""
        return any(self.reader.acknowledge(held, word) for held in list(self.reader.held.out) if held.offset == offset)

    def acquire(self, values: Sequence[bytes], *, first: int = 0) -> None:
        """Open the session if need be, and get these records."""
        send = self.sent()
        assert isinstance(send.request, ShareFetchRequest)
        self.answer(send, records(values, first=first))

    def acquire_and_ask(self, values: Sequence[bytes]) -> ShareSend:
        """As `acquire`; the fetch that asks for more."""
        self.acquire(values)
        (send,) = self.told(ShareSend)
        return send


def records(
    values: Sequence[bytes], *, first: int = 0, acquired: Sequence[AcquiredRecords] | None = None, code: int = 0
) -> ShareFetchResponse:
    batch = build_batch([Record(value) for value in values], base_offset=first) if values else b""
    ranges = acquired if acquired is not None else [AcquiredRecords(first, first + len(values) - 1, 1)]
    data = PartitionData(
        partition_index=0, acknowledge_error_code=code, records=batch, acquired_records=tuple(ranges if values else ())
    )
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=LOCK_MS, responses=(ShareFetchableTopicResponse(TOPIC, (data,)),)
    )


def acknowledged(code: int = 0) -> ShareAcknowledgeResponse:
    data = share_acknowledge.PartitionData(partition_index=0, error_code=code)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=LOCK_MS,
        responses=(share_acknowledge.ShareAcknowledgeTopicResponse(TOPIC, (data,)),),
    )


def said(request: object) -> Mapping[int, tuple[int, int]]:
    """First offset -> (last offset, word) of what a request says about partition 0."""
    assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
    return {
        batch.first_offset: (batch.last_offset, batch.acknowledge_types[0])
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    }


def test_r330_the_first_fetch_opens_the_session_and_the_next_one_counts_up() -> None:
    """A wrong epoch is refused, and the session with all its locks begins again."""
    driver = Driver()
    first = driver.sent()
    driver.answer(first, records([b"a"]))
    (second,) = driver.told(ShareSend)
    assert [first.request.share_session_epoch, second.request.share_session_epoch] == [0, 1]  # type: ignore[attr-defined]
    assert second.request.topics == ()  # type: ignore[attr-defined]


def test_r331_words_about_records_go_with_the_next_fetch_in_ranges() -> None:
    """A request for each record would cost a queue most of its speed."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b", b"c"])
    driver.reader.take(3, now_ms=0)
    for offset in (0, 1):
        assert driver.acknowledge(offset, AcknowledgeType.ACCEPT)
    assert driver.acknowledge(2, AcknowledgeType.REJECT)
    assert driver.advance() == []  # one request at a time
    driver.answer(parked, records([]))
    (send,) = driver.told(ShareSend)
    assert isinstance(send.request, ShareFetchRequest)
    assert said(send.request) == {0: (1, 1), 2: (2, 3)}
    driver.answer(send, records([]))
    assert driver.told(AcknowledgementOutcome) == [AcknowledgementOutcome(P0, {0: 1, 1: 1, 2: 3}, None)]


def test_r332_without_room_they_are_said_at_once_in_a_request_of_their_own() -> None:
    """A worker that has enough to do would otherwise keep what it has done to itself."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.room = 0
    driver.answer(parked, records([]))
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    send = driver.sent()
    assert isinstance(send.request, ShareAcknowledgeRequest)
    assert said(send.request) == {0: (0, 1)}


def test_r332_what_several_polls_accept_is_said_together() -> None:
    """A request for each poll() of a batch would keep the leader busy: less than half as many records a second."""
    driver = Driver(record_limit=False)
    driver.acquire([b"a", b"b", b"c", b"d"])
    driver.reader.room = 0
    for offset in (0, 1):
        driver.reader.take(1, now_ms=0)
        driver.acknowledge(offset, AcknowledgeType.ACCEPT)
        driver.advance()
        assert driver.told(ShareSend) == []
    assert driver.reader.deadline_ms() == 20
    driver.now_ms = 20
    assert said(driver.sent().request) == {0: (1, 1)}


def test_r332_a_renewal_does_not_wait_for_others() -> None:
    """A lock could end meanwhile."""
    driver = Driver(record_limit=False)
    driver.acquire([b"a", b"b"])
    driver.reader.room = 0
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.RENEW)
    assert said(driver.sent().request) == {0: (0, 4)}


def test_r333_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    """Markers of transactions, and what compaction removed, would be delivered again and again."""
    driver = Driver()
    send = driver.sent()
    driver.answer(send, records([b"a"], acquired=[AcquiredRecords(0, 2, 1)]))
    (fetch,) = driver.told(ShareSend)
    assert said(fetch.request) == {1: (2, 0)}
    assert [held.offset for held in driver.reader.take(10, now_ms=0)] == [0]
    driver.answer(fetch, records([]))
    assert driver.told(AcknowledgementOutcome) == []  # nobody asked for it


def test_r334_a_refused_word_is_told_and_not_said_again() -> None:
    """The lock had ended: another member has the record."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.answer(parked, records([]))
    (send,) = driver.told(ShareSend)
    driver.answer(send, records([], code=ErrorCode.INVALID_RECORD_STATE))
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)
    assert outcome.error.code == ErrorCode.INVALID_RECORD_STATE
    (after,) = driver.told(ShareSend)
    assert said(after.request) == {}


def test_r335_a_word_whose_answer_was_lost_is_told_as_unknown_and_not_said_again() -> None:
    """Said again, it would be refused although it had counted."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.answer(parked, records([]))
    (send,) = driver.told(ShareSend)
    lost = ConnectionLostError("cut")
    driver.reader.failed(send.request_id, lost, now_ms=0)
    driver.advance()
    assert driver.told(AcknowledgementOutcome) == [AcknowledgementOutcome(P0, {0: 1}, lost)]
    driver.now_ms = 10_000
    driver.advance()
    driver.reader.leaders_found({P0: Leader(BrokerNode(1, "a", 9092), "mails")})
    fetch = driver.sent()
    assert fetch.request.share_session_epoch == 0  # type: ignore[attr-defined]
    assert said(fetch.request) == {}


def test_r336_a_session_that_the_leader_forgot_begins_again_at_once() -> None:
    """A broker that restarts knows no session."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.answer(parked, ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND))
    (send,) = driver.told(ShareSend)
    assert isinstance(send.request, ShareFetchRequest)
    assert send.request.share_session_epoch == 0
    assert driver.reader.take(1, now_ms=0) == []  # the leader gives it to others


def test_r336_what_a_leader_holds_for_a_session_that_goes_on_is_released() -> None:
    """After a refused epoch the locks hold: nobody would have the records until they end."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.answer(parked, ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH))
    assert driver.reader.take(1, now_ms=0) == []
    (opens,) = driver.told(ShareSend)
    assert said(opens.request) == {}
    driver.answer(opens, records([]))
    (fetch,) = driver.told(ShareSend)
    assert said(fetch.request) == {0: (0, 2)}


def test_r336_what_the_application_has_goes_with_the_session_as_well() -> None:
    """Its handlers would go on with what others have, and a refusal of that would refuse what counts."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b"])
    driver.reader.take(2, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.reader.failed(parked.request_id, ConnectionLostError("cut"), now_ms=0)
    driver.advance()
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({1}))]
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert (outcome.offsets, isinstance(outcome.error, BrokerError)) == ({0: 1}, True)  # it was not sent
    assert not driver.acknowledge(1, AcknowledgeType.ACCEPT)


def test_r336_a_connection_that_ends_while_nothing_is_sent_ends_the_session() -> None:
    """A worker whose handlers all are busy has no request under way that would fail."""
    driver = Driver()
    driver.reader.room = 1
    driver.acquire([b"a"])
    driver.reader.room = 0
    driver.reader.take(1, now_ms=0)
    assert driver.told(ShareSend) == []
    driver.reader.connection_lost(1, now_ms=0)
    driver.advance()
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]


def test_r336_a_connection_that_ends_after_a_refused_epoch_ends_the_locks_as_well() -> None:
    """No session was open then, and handlers went on until the locks had ended."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.reader.room = 0
    driver.answer(parked, ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH))
    assert driver.told(ShareSend) == []
    driver.reader.connection_lost(1, now_ms=0)
    driver.advance()
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]


def test_r336_a_leader_that_says_that_it_leads_no_more_has_given_its_records_away() -> None:
    """The new leader delivers them again at once."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b"])
    driver.reader.take(1, now_ms=0)
    moved = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b"")
    driver.answer(parked, ShareFetchResponse(responses=(ShareFetchableTopicResponse(TOPIC, (moved,)),)))
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]
    assert driver.reader.take(1, now_ms=0) == []


def test_r337_a_record_whose_lock_has_ended_is_not_handed_out() -> None:
    """Two members would handle it."""
    driver = Driver()
    driver.acquire([b"a"])
    assert driver.reader.take(1, now_ms=LOCK_MS) == []


def test_r337_what_a_leader_gives_after_it_hung_longer_than_a_lock_is_given_back() -> None:
    """When its lock began is not known, so nobody handles it: others would wait for its end."""
    driver = Driver()
    hangs = driver.acquire_and_ask([b"a"])
    driver.now_ms = LOCK_MS
    driver.answer(hangs, records([b"b", b"c"], first=1))
    assert driver.reader.take(2, now_ms=driver.now_ms) == []
    (release,) = driver.told(ShareSend)
    assert said(release.request) == {1: (2, AcknowledgeType.RELEASE)}


def test_r338_a_lock_that_ends_while_the_application_has_the_record_is_told() -> None:
    """A handler that goes on would work on what another member has."""
    driver = Driver()
    driver.acquire([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.advance()
    assert driver.reader.deadline_ms() == LOCK_MS
    driver.now_ms = LOCK_MS
    driver.advance()
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]
    assert not driver.acknowledge(0, AcknowledgeType.ACCEPT)


def test_r339_a_renewed_lock_holds_longer() -> None:
    """A job that takes five lock times stays with its worker."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.answer(parked, records([]))
    (again,) = driver.told(ShareSend)
    driver.now_ms = 20_000
    driver.acknowledge(0, AcknowledgeType.RENEW)
    driver.answer(again, records([]))
    (renewal,) = driver.told(ShareSend)
    assert isinstance(renewal.request, ShareAcknowledgeRequest)  # a renewal must not wait for records
    assert renewal.request.is_renew_ack
    driver.answer(renewal, acknowledged())
    driver.now_ms = 20_000 + LOCK_MS - 1
    driver.advance()
    assert driver.told(LocksLost) == []


def test_r339_nothing_else_goes_with_a_renewal() -> None:
    """A group may forbid renewals, and a leader that refuses one word refuses all of the partition: what was done would
    be done again."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b"])
    driver.reader.take(2, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.acknowledge(1, AcknowledgeType.RENEW)
    driver.answer(parked, records([]))
    (renewal,) = driver.told(ShareSend)
    assert said(renewal.request) == {1: (1, AcknowledgeType.RENEW)}
    driver.answer(renewal, acknowledged(ErrorCode.INVALID_RECORD_STATE))
    (after,) = driver.told(ShareSend)
    assert said(after.request) == {0: (0, AcknowledgeType.ACCEPT)}


def test_r340_a_commit_ends_with_the_last_outcome_and_names_the_first_error() -> None:
    """commit() that returned too early would let a program lose what it believed done."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b"])
    driver.reader.take(2, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.reader.commit(7, deadline_ms=60_000)
    driver.advance()
    assert driver.told(CommitEnded) == []
    driver.answer(parked, records([]))
    (send,) = driver.told(ShareSend)
    assert isinstance(send.request, ShareAcknowledgeRequest)  # it does not wait for records
    driver.answer(send, acknowledged())
    assert driver.told(CommitEnded) == [CommitEnded(7, {P0: None})]


def test_r340_a_commit_without_anything_to_say_ends_at_once() -> None:
    """It would wait for its time-out."""
    driver = Driver()
    driver.reader.commit(1, deadline_ms=60_000)
    driver.advance()
    assert driver.told(CommitEnded) == [CommitEnded(1, {})]


def accepted_and_answered() -> Driver:
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.room = 0
    driver.answer(parked, records([]))
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.answer(driver.sent(), acknowledged())
    return driver


def test_r340_a_commit_tells_what_was_answered_before_it_once() -> None:
    """The answer may be faster than the thread that calls commit(): the result would be empty by chance."""
    driver = accepted_and_answered()
    for commit_id, results in ((1, {P0: None}), (2, {})):
        driver.reader.commit(commit_id, deadline_ms=60_000)
        driver.advance()
        assert driver.told(CommitEnded) == [CommitEnded(commit_id, results)]


def test_r340_a_commit_tells_what_an_abandoned_one_would_have_told() -> None:
    """A call that is cancelled would take the error with it."""
    driver = accepted_and_answered()
    driver.reader.commit(1, deadline_ms=60_000)
    driver.reader.abandon(1)
    driver.reader.commit(2, deadline_ms=60_000)
    driver.advance()
    assert driver.told(CommitEnded) == [CommitEnded(2, {P0: None})]


def test_r340_a_commit_does_not_wait_for_gaps() -> None:
    """commit() would hang until its time is over whenever a marker of a transaction was read."""
    driver = Driver()
    driver.answer(driver.sent(), records([b"a"], acquired=[AcquiredRecords(0, 2, 1)]))
    driver.reader.commit(1, deadline_ms=60_000)
    driver.advance()
    assert driver.told(CommitEnded) == [CommitEnded(1, {})]


def test_r341_closing_gives_back_everything_in_one_request_and_ends_the_session() -> None:
    """The next worker would wait for the locks of the one before."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a", b"b", b"c"])
    driver.reader.take(1, now_ms=0)
    driver.reader.close(deadline_ms=30_000)
    driver.answer(parked, records([]))
    (last,) = driver.told(ShareSend)
    assert isinstance(last.request, ShareAcknowledgeRequest)
    assert last.request.share_session_epoch == -1
    assert said(last.request) == {0: (2, 2)}
    driver.answer(last, acknowledged())
    assert driver.told(ReaderClosed) == [ReaderClosed()]


def test_r341_closing_does_not_wait_for_a_fetch_of_a_worker_that_has_nothing() -> None:
    """Each test and each deploy of an idle worker would wait for half a second."""
    driver = Driver()
    parked = driver.acquire_and_ask([])
    driver.reader.close(deadline_ms=30_000)
    driver.advance()
    assert driver.effects == [ReaderClosed()]
    assert driver.answer(parked, records([b"a"])) == []


def test_r341_closing_waits_for_a_fetch_that_says_something() -> None:
    """Whether the job counts as done would not be known."""
    driver = Driver()
    driver.acquire([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    (before,) = driver.told(ShareSend)
    driver.answer(before, records([]))
    (says,) = driver.told(ShareSend)
    driver.reader.close(deadline_ms=30_000)
    assert driver.advance() == []
    driver.answer(says, records([]))
    assert driver.told(AcknowledgementOutcome) == [AcknowledgementOutcome(P0, {0: 1}, None)]


def test_r342_closing_ends_at_its_deadline_although_a_leader_does_not_answer() -> None:
    """A broker that is away would keep a program from ending."""
    driver = Driver()
    driver.acquire([b"a"])
    driver.reader.close(deadline_ms=1_000)
    driver.advance()
    assert driver.told(ReaderClosed) == []
    driver.now_ms = 1_000
    driver.advance()
    assert driver.told(ReaderClosed) == [ReaderClosed()]


def test_r343_with_a_limit_of_records_no_more_are_asked_for_than_there_is_room() -> None:
    """One worker would sit on the jobs of all others."""
    driver = Driver(record_limit=True)
    driver.reader.room = 3
    send = driver.sent()
    assert isinstance(send.request, ShareFetchRequest)
    assert (send.request.max_records, send.request.share_acquire_mode) == (3, 1)
    driver.answer(send, records([b"a", b"b", b"c"]))
    assert driver.told(ShareSend) == []


def test_r344_without_a_limit_nothing_is_acquired_while_records_wait() -> None:
    """A worker that handles a batch would get the jobs that it gives back, and those of others, at the same time."""
    driver = Driver(record_limit=False)
    driver.acquire([b"a"])
    assert driver.told(ShareSend) == []
    driver.reader.take(1, now_ms=0)
    assert isinstance(driver.sent().request, ShareFetchRequest)


def test_r345_with_room_for_one_leader_each_is_asked_in_turn() -> None:
    """With one handler and two leaders, the records of the second one would never be read."""
    driver = Driver(record_limit=True)
    p1 = (TOPIC, 1)
    driver.reader.room = 1
    driver.reader.assign(frozenset({P0, p1}))
    driver.reader.leaders_found({p1: Leader(BrokerNode(2, "b", 9092), "mails")})
    asked = []
    for _ in range(4):
        send = driver.sent()
        asked.append(send.node_id)
        assert isinstance(send.request, ShareFetchRequest)
        assert send.request.max_wait_ms <= 100  # it has the only room
        driver.reader.answered(send.request_id, records([]), now_ms=driver.now_ms)
    assert asked == [1, 2, 1, 2]


def test_r342_what_a_leader_has_not_answered_when_closing_ends_may_count() -> None:
    """Told as refused, it would be repaired by hand although it was done."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.reader.close(deadline_ms=1_000)
    driver.answer(parked, records([]))
    driver.now_ms = 1_000
    driver.advance()
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, RequestTimeoutError)


def test_r342_what_was_not_sent_when_closing_ends_has_an_outcome() -> None:
    """A callback that waits for it would wait for ever."""
    driver = Driver()
    driver.acquire([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.reader.close(deadline_ms=1_000)
    driver.now_ms = 1_000
    driver.advance()  # the fetch is still under way
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)


def test_r346_a_leader_that_a_refusal_names_is_asked_next() -> None:
    """A look-up of the leader would cost a queue a pause at each move."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    refused = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        records=b"",
        current_leader=LeaderIdAndEpoch(2, 5),
    )
    answer = ShareFetchResponse(
        responses=(ShareFetchableTopicResponse(TOPIC, (refused,)),), node_endpoints=(NodeEndpoint(2, "b", 9092),)
    )
    driver.answer(parked, answer)
    assert [send.node_id for send in driver.told(ShareSend) if isinstance(send.request, ShareFetchRequest)] == [2]
    assert driver.told(FindLeaders) == []


def test_r346_without_a_name_the_leader_is_looked_up() -> None:
    """The old leader would be asked for ever."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    refused = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b"")
    driver.answer(parked, ShareFetchResponse(responses=(ShareFetchableTopicResponse(TOPIC, (refused,)),)))
    assert driver.told(ShareSend) == []
    driver.now_ms = 10_000
    driver.advance()
    assert driver.told(FindLeaders) == [FindLeaders(frozenset({TOPIC}))]


def test_r347_a_record_that_comes_again_is_a_new_one() -> None:
    """What a handler says of the delivery before would count for the new one, which another handler has."""
    driver = Driver(record_limit=True)
    parked = driver.acquire_and_ask([b"a"])
    (old,) = driver.reader.take(1, now_ms=0)
    driver.answer(parked, records([b"a"], acquired=[AcquiredRecords(0, 0, 2)]))
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]
    (new,) = driver.reader.take(1, now_ms=0)
    assert (old.delivery_count, new.delivery_count) == (1, 2)
    assert list(driver.reader.held.out) == [new]


def test_r347_what_was_to_be_said_of_the_delivery_before_is_refused() -> None:
    """The leader would take it for a word about the new delivery."""
    driver = Driver(record_limit=True)
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.acknowledge(0, AcknowledgeType.RELEASE)
    driver.answer(parked, records([b"a"], acquired=[AcquiredRecords(0, 0, 2)]))
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)
    assert outcome.error.code == ErrorCode.INVALID_RECORD_STATE
    assert [said(send.request) for send in driver.told(ShareSend)] == [{}]


def test_r348_a_leader_without_room_for_a_session_is_asked_again_later() -> None:
    """A member would end because the cluster is full for a moment."""
    driver = Driver()
    send = driver.sent()
    driver.answer(send, ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED))
    (told,) = driver.told(LeaderRefuses)
    assert told.node_id == 1
    assert "group.share.max.share.sessions" in str(told.error)
    assert driver.told(ReaderFailed) == []
    assert driver.told(ShareSend) == []
    driver.now_ms = 2_000
    assert driver.sent().node_id == 1


def test_r349_records_that_cannot_be_read_are_given_back() -> None:
    """They would stay locked, and nobody would hear of it."""
    driver = Driver()
    send = driver.sent()
    answer = records([b"a"])
    (topic,) = answer.responses
    (data,) = topic.partitions
    damaged = msgspec.structs.replace(data, records=data.records[:20] + b"\xff" * (len(data.records) - 20))
    topic = msgspec.structs.replace(topic, partitions=(damaged,))
    driver.answer(send, msgspec.structs.replace(answer, responses=(topic,)))
    assert len(driver.told(ReaderSurfaced)) == 1
    (fetch,) = driver.told(ShareSend)
    assert said(fetch.request) == {0: (0, 2)}


def test_r350_records_of_a_partition_that_went_away_are_still_acknowledged() -> None:
    """What was done would be done again after each rebalance."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.reader.assign(frozenset())
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.answer(parked, records([]))
    (send,) = driver.told(ShareSend)
    assert isinstance(send.request, ShareAcknowledgeRequest)
    assert said(send.request) == {0: (0, 1)}


def test_r351_the_session_with_a_leader_that_leads_nothing_any_more_is_closed() -> None:
    """close() would wait for a broker that was taken out of the cluster."""
    driver = Driver()
    parked = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    moved = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        records=b"",
        current_leader=LeaderIdAndEpoch(2, 5),
    )
    answer = ShareFetchResponse(
        responses=(ShareFetchableTopicResponse(TOPIC, (moved,)),), node_endpoints=(NodeEndpoint(2, "b", 9092),)
    )
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.answer(parked, answer)
    fetch, word = driver.told(ShareSend)
    assert fetch.node_id == 2
    assert (word.node_id, said(word.request)) == (1, {0: (0, 1)})
    driver.answer(word, acknowledged())
    (last,) = driver.told(ShareSend)
    assert isinstance(last.request, ShareAcknowledgeRequest)
    assert (last.node_id, last.request.share_session_epoch) == (1, -1)
    driver.reader.failed(last.request_id, ConnectionLostError("gone"), now_ms=0)
    driver.reader.close(deadline_ms=30_000)
    driver.advance()
    assert driver.told(ShareSend) == []  # node 2 still has a request under way, node 1 is done with


def test_r338_a_lock_ends_in_time_though_records_wait_in_another_order() -> None:
    """Of two leaders the one that was asked later answered first, so its records, whose locks last longer, are
    in front."""
    held = HeldRecords()
    late, early, first = (
        AcquiredRecord((TOPIC, node_id), "mails", Record(b"", offset=0), 1, until_ms, node_id)
        for node_id, until_ms in [(1, 30_000), (2, 25_000), (3, 10_000)]
    )
    for each in (late, early, first):
        held.acquired([each])
    assert held.expire(now_ms=10_000) == []
    assert held.waiting == 2
    assert held.take(3, now_ms=10_000) == [late, early]
    assert held.next_end_ms() == 25_000
    assert held.expire(now_ms=25_000) == [early]
    assert held.next_end_ms() == 30_000


def test_r352_what_waits_for_a_leader_until_the_lock_has_ended_is_not_sent() -> None:
    """Another member may have the record. A leader that refuses one word refuses all of the partition with it, also
    what is said of a record whose lock holds."""
    driver = Driver()
    fetch = driver.acquire_and_ask([b"a"])
    driver.now_ms = LOCK_MS - 1_000
    driver.answer(fetch, records([]))
    (fetch,) = driver.told(ShareSend)
    driver.answer(fetch, records([b"b"], first=1))
    (hangs,) = driver.told(ShareSend)
    for held in driver.reader.take(2, now_ms=driver.now_ms):
        driver.reader.acknowledge(held, AcknowledgeType.ACCEPT)
    driver.now_ms = LOCK_MS + 1_000
    driver.answer(hangs, records([]))
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)
    assert (outcome.offsets, outcome.error.code) == ({0: 1}, ErrorCode.INVALID_RECORD_STATE)
    (send,) = driver.told(ShareSend)
    assert said(send.request) == {1: (1, AcknowledgeType.ACCEPT)}


def hung_renewal(driver: Driver) -> ShareSend:
    """A renewal that was sent in time to a leader that hangs."""
    fetch = driver.acquire_and_ask([b"a"])
    driver.reader.room = 0
    driver.reader.take(1, now_ms=0)
    driver.now_ms = LOCK_MS - 1_000
    driver.answer(fetch, records([]))
    driver.acknowledge(0, AcknowledgeType.RENEW)
    renewal = driver.sent()
    driver.now_ms = LOCK_MS + 1_000
    return renewal


def test_r353_a_record_that_was_given_up_before_its_renewal_was_confirmed_is_given_back() -> None:
    """The leader would keep it for a member that does not handle it any more."""
    driver = Driver()
    renewal = hung_renewal(driver)
    driver.advance()
    assert driver.told(LocksLost) == [LocksLost(P0, frozenset({0}))]
    driver.answer(renewal, acknowledged())
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)
    (release,) = driver.told(ShareSend)
    assert said(release.request) == {0: (0, AcknowledgeType.RELEASE)}


def test_r353_what_was_done_while_its_renewal_waited_counts() -> None:
    """The lock holds as far as the leader is concerned."""
    driver = Driver()
    renewal = hung_renewal(driver)
    driver.acknowledge(0, AcknowledgeType.ACCEPT)
    driver.advance()
    driver.answer(renewal, acknowledged())
    (send,) = driver.told(ShareSend)
    assert said(send.request) == {0: (0, AcknowledgeType.ACCEPT)}


def test_r352_a_renewal_of_a_record_that_was_given_up_is_not_sent() -> None:
    """The leader would keep it for a member that does not handle it any more."""
    driver = Driver()
    hangs = driver.acquire_and_ask([b"a"])
    driver.reader.take(1, now_ms=0)
    driver.reader.room = 0
    driver.acknowledge(0, AcknowledgeType.RENEW)
    driver.now_ms = LOCK_MS
    driver.answer(hangs, records([]))
    assert driver.told(ShareSend) == []
    (outcome,) = driver.told(AcknowledgementOutcome)
    assert isinstance(outcome.error, BrokerError)
