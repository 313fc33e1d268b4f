"""What a member would do about each answer to a commit, and about none: the table of commits in docs/protocol.md.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.errors import (
    BrokerError,
    CommitFailedError,
    ErrorCode,
    Kip848Error,
    RequestTimeoutError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    AppPolled,
    CallAbandoned,
    CommitDone,
    CommitKind,
    CommitRequested,
    FailureKind,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    SurfaceError,
)
from kip848_client.member.states import IN_GROUP, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.simulation.twin_heartbeats import REASON, calm_down, expect_heartbeat, heartbeat_of
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_PASSES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
_ELSEWHERE: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
_RAISED: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
_LIMIT_MS: Final = 60_000


def ask_about_a_commit(twin: Twin, rng: random.Random) -> bool:
    """R102 to R114, R153: the application commits. False if this is no moment for it."""
    view = twin.member.view()
    if not twin.is_in(*IN_GROUP) or twin.member.coordinator is None or not view.assigned:
        return False
    if twin.asynchronous:
        return False
    calm_down(twin)
    kind = rng.choice((CommitKind.SYNC, CommitKind.SYNC, CommitKind.ASYNC, CommitKind.AUTO_CLOSE))
    chosen = sorted(tip.topic_partition for tip in view.assigned)[: rng.randint(1, 3)]
    offsets = {partition: OffsetAndMetadata(rng.randint(0, 9), rng.randint(0, 3), "told") for partition in chosen}
    number = twin.next_number()
    deadline_ms = None if kind is CommitKind.ASYNC else twin.now_ms + _LIMIT_MS
    twin.tell(CommitRequested(number, offsets, kind, deadline_ms))
    sent = twin.asked(OffsetCommitRequest)
    if len(sent) != 1 or len(twin.effects) != 1:
        twin.wrong("must send one commit")
    expect_commit(twin, sent[0], offsets)
    asked = _Commit(number, kind, offsets, sent[0])
    choice = rng.choice(
        (
            _succeeds,
            _passes,
            _hurries,
            _moves,
            _is_raised,
            _is_forbidden,
            _is_no_member,
            _is_fenced,
            _is_stale,
            _fails,
            _ends,
        )
    )
    choice(twin, asked, rng)
    return True


class _Commit:
    """One commit of the application."""

    def __init__(
        self, number: int, kind: CommitKind, offsets: dict[TopicPartition, OffsetAndMetadata], sent: SendRequest
    ) -> None:
        self.number: Final = number
        self.kind: Final = kind
        self.offsets: Final = offsets
        self.sent: Final = sent

    @property
    def waited_for(self) -> bool:
        """Whether it is retried."""
        return self.kind is not CommitKind.ASYNC


def expect_commit(twin: Twin, sent: SendRequest, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
    """R102, R114, R143: what is committed, as whom."""
    request = sent.request
    assert isinstance(request, OffsetCommitRequest)
    ids = {tip.topic: tip.topic_id for tip in twin.member.view().assigned}
    view = twin.member.view()
    said = positions_of(sent)
    who = (request.group_id, request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    wanted = (twin.config.group_id, view.member_id, view.member_epoch, twin.config.instance_id)
    if said != offsets or who != wanted or any(topic.topic_id != ids.get(topic.name) for topic in request.topics):
        twin.wrong(f"must commit {offsets} as {wanted}")
    if sent.max_version is not None or sent.timeout_ms != twin.config.request_timeout_ms:
        twin.wrong("knows the ids of its topics, and may send the newest version")


def positions_of(sent: SendRequest) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a request commits."""
    request = sent.request
    assert isinstance(request, OffsetCommitRequest)
    return {
        TopicPartition(topic.name, item.partition_index): OffsetAndMetadata(
            item.committed_offset, item.committed_leader_epoch, item.committed_metadata or ""
        )
        for topic in request.topics
        for item in topic.partitions
    }


def answer_commit(twin: Twin, sent: SendRequest, code: int, *, only_first: bool = False) -> None:
    """With that code for each of its partitions, or for the first only; topics by id, as the newest version has it."""
    request = sent.request
    assert isinstance(request, OffsetCommitRequest)
    topics, first = [], True
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            partitions.append(
                OffsetCommitResponsePartition(item.partition_index, code if first or not only_first else 0)
            )
            first = False
        topics.append(OffsetCommitResponseTopic(name="", topic_id=topic.topic_id, partitions=tuple(partitions)))
    twin.tell(ResponseReceived(sent.request_id, OffsetCommitResponse(topics=tuple(topics))))


def _told(twin: Twin, number: int) -> list[Kip848Error | None]:
    return [effect.error for effect in twin.did(CommitDone) if effect.commit_id == number]


def _ended(twin: Twin, commit: _Commit) -> Kip848Error:
    told = _told(twin, commit.number)
    if len(told) != 1 or told[0] is None:
        twin.wrong("must fail the commit")
    return told[0]


def _succeeds(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    answer_commit(twin, commit.sent, 0)
    done = [effect for effect in twin.did(CommitDone) if effect.commit_id == commit.number]
    if len(done) != 1 or done[0].error is not None or done[0].offsets != commit.offsets:
        twin.wrong(f"must tell that {commit.offsets} are committed")


def _passes(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    code = rng.choice(_PASSES)
    answer_commit(twin, commit.sent, code, only_first=rng.random() < 0.5)
    if twin.member.coordinator is None:
        twin.wrong("must keep the coordinator")
    _expect_retry(twin, commit, code)


def _hurries(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R105: another commit has less time than the back-off of either takes."""
    hurried, limit_ms = twin.next_number(), max(1, twin.least_backoff_ms // 2)
    twin.tell(CommitRequested(hurried, commit.offsets, CommitKind.SYNC, twin.now_ms + limit_ms))
    sent = twin.asked(OffsetCommitRequest)
    if len(sent) != 1:
        twin.wrong("must send another commit beside the first")
    first, second = (commit.sent, sent[0]) if rng.random() < 0.5 else (sent[0], commit.sent)
    answer_commit(twin, first, code := rng.choice(_PASSES))
    answer_commit(twin, second, code)
    twin.wait(limit_ms - 1)
    if _told(twin, hurried):
        twin.wrong("must wait until the deadline")
    twin.wait(1)
    if [type(error) for error in _told(twin, hurried)] != [RequestTimeoutError]:
        twin.wrong("must say that time is over, however long the back-off takes")


def _expect_retry(twin: Twin, commit: _Commit, code: int) -> None:
    """R105, R109: who waits is served by another attempt, until its deadline; who does not is told."""
    if not commit.waited_for:
        error = _ended(twin, commit)
        cause = error.__cause__
        if not isinstance(error, RetriableCommitFailedError) or not (
            isinstance(cause, BrokerError) and cause.code == code
        ):
            twin.wrong(f"must tell that a new commit may succeed after {code}")
        return
    if _told(twin, commit.number) or twin.asked(OffsetCommitRequest):
        twin.wrong("must wait, and commit again")
    twin.wait(twin.least_backoff_ms - 1)
    if any(_says(one, commit) for one in twin.asked(OffsetCommitRequest)):
        twin.wrong("commits again before its back-off is over")
    twin.wait(int(1.2 * twin.config.retry_backoff_ms) - twin.least_backoff_ms + 2)
    again = [one for one in twin.asked(OffsetCommitRequest) if _says(one, commit)]
    if not twin.is_in(*IN_GROUP):
        return
    if len(again) != 1:
        twin.wrong("must commit again")
    answer_commit(twin, again[0], code)
    _expect_late(twin, commit, code)


def _says(sent: SendRequest, commit: _Commit) -> bool:
    said = positions_of(sent)
    return said.keys() == commit.offsets.keys() and all(position.metadata == "told" for position in said.values())


def _expect_late(twin: Twin, commit: _Commit, code: int) -> None:
    """R105: at its deadline, and not before, with the last error."""
    twin.wait(_LIMIT_MS // 2)
    if _told(twin, commit.number):
        twin.wrong("must try until the deadline")
    twin.wait(_LIMIT_MS // 2)
    told = _told(twin, commit.number)
    error = told[0] if told else None
    if not isinstance(error, RequestTimeoutError):
        twin.wrong("must say that time is over")
    cause = error.__cause__
    if not isinstance(cause, BrokerError) or cause.code != code or str(cause) not in str(error):
        twin.wrong(f"must name the last error, {code}")
    for sent in twin.waits_for_answer(OffsetCommitRequest):  # R153
        if _says(sent, commit):
            view, node = twin.member.view(), twin.member.coordinator
            answer_commit(twin, sent, ErrorCode.NOT_COORDINATOR)
            if twin.effects or twin.member.view() is not view or twin.member.coordinator is not node:
                twin.wrong("must not mind what is said of a commit that is over")


def _moves(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R23: another broker is the coordinator; R105."""
    view = twin.member.view()
    answer_commit(twin, commit.sent, code := rng.choice(_ELSEWHERE))
    if twin.member.coordinator is not None or twin.member.view() is not view:
        twin.wrong("must forget the coordinator, and nothing else")
    if commit.waited_for:
        if _told(twin, commit.number):
            twin.wrong("must commit again at another coordinator")
    elif not isinstance(_ended(twin, commit), RetriableCommitFailedError):
        twin.wrong(f"must tell that a new commit may succeed after {code}")


def _is_raised(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    code = rng.choice(_RAISED)
    answer_commit(twin, commit.sent, code, only_first=rng.random() < 0.5)
    error = _ended(twin, commit)
    if not isinstance(error, BrokerError) or error.code != code or error.fatal or twin.did_any(SurfaceError):
        twin.wrong(f"must raise {code} where the commit was asked for, and go on")


def _is_forbidden(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R112: every topic is named."""
    answer_commit(twin, commit.sent, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = _ended(twin, commit)
    topics = tuple(sorted({partition.topic for partition in commit.offsets}))
    if not isinstance(error, TopicAuthorizationError) or error.topics != topics:
        twin.wrong(f"must name {topics}")


def _is_no_member(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R37, R108: the heartbeat will tell."""
    idle = heartbeat_of(twin) is None
    before = twin.membership
    answer_commit(twin, commit.sent, ErrorCode.UNKNOWN_MEMBER_ID)
    error = _ended(twin, commit)
    if not isinstance(error, CommitFailedError) or isinstance(error, RetriableCommitFailedError):
        twin.wrong("must raise CommitFailedError")
    if twin.membership != before:
        twin.wrong("must hear from a heartbeat alone what became of its membership")
    if idle:
        expect_heartbeat(twin)


def _is_fenced(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R113: whoever does not wait hears of it in poll(), too."""
    answer_commit(twin, commit.sent, ErrorCode.FENCED_INSTANCE_ID)
    error, told = _ended(twin, commit), [effect.error for effect in twin.did(SurfaceError)]
    if commit.waited_for:
        if not isinstance(error, CommitFailedError) or told:
            twin.wrong("must raise CommitFailedError")
    elif told != [error] or not isinstance(error, BrokerError) or error.code != ErrorCode.FENCED_INSTANCE_ID:
        twin.wrong("must raise FENCED_INSTANCE_ID, and tell poll() of it")


def _is_stale(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R106: once for each newer epoch, which a heartbeat brings at once."""
    idle = heartbeat_of(twin) is None
    answer_commit(twin, commit.sent, ErrorCode.STALE_MEMBER_EPOCH)
    if not commit.waited_for:
        error = _ended(twin, commit)
        if not isinstance(error, BrokerError) or error.code != ErrorCode.STALE_MEMBER_EPOCH:
            twin.wrong("must raise STALE_MEMBER_EPOCH")
        if idle:
            expect_heartbeat(twin)
        return
    if _told(twin, commit.number):
        twin.wrong("must wait for the next epoch")
    if idle:
        expect_heartbeat(twin)
    beat = heartbeat_of(twin)
    if beat is None or twin.sent_on(beat.request_id) != twin.link:
        return
    epoch = twin.member.view().member_epoch
    if rng.random() < 0.5:
        answer = ConsumerGroupHeartbeatResponse(member_epoch=epoch + 1, heartbeat_interval_ms=1_000)
        twin.tell(ResponseReceived(beat.request_id, answer))
        again = [one for one in twin.asked(OffsetCommitRequest) if _says(one, commit)]
        if len(again) != 1:
            twin.wrong("must commit with the new epoch")
        expect_commit(twin, again[0], commit.offsets)
        choice = rng.choice((_succeeds, _passes))
        choice(twin, _Commit(commit.number, commit.kind, commit.offsets, again[0]), rng)
        return
    twin.tell(ResponseReceived(beat.request_id, ConsumerGroupHeartbeatResponse(member_epoch=epoch)))
    if any(_says(one, commit) for one in twin.asked(OffsetCommitRequest)) or _told(twin, commit.number):
        twin.wrong("must not commit again with the epoch that was refused")
    twin.wait(_LIMIT_MS)
    if _told(twin, commit.number) and not isinstance(_ended(twin, commit), CommitFailedError):
        twin.wrong("must say that the offsets are not committed")


def _fails(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """No answer."""
    kind = rng.choice(list(FailureKind))
    twin.tell(RequestFailed(commit.sent.request_id, kind, REASON))
    if twin.member.coordinator is not None:
        twin.wrong("must not go on with a connection of no use")
    if kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}:
        if commit.waited_for:
            if _told(twin, commit.number):
                twin.wrong("must commit again")
            _expect_timeout(twin, commit)
        elif not isinstance(_ended(twin, commit), RetriableCommitFailedError):
            twin.wrong("must tell that a new commit may succeed")
    elif REASON not in str(_ended(twin, commit)):
        twin.wrong("must tell why nothing was committed")


def _expect_timeout(twin: Twin, commit: _Commit) -> None:
    twin.wait(_LIMIT_MS - 1)
    if _told(twin, commit.number):
        twin.wrong("must try until the deadline")
    twin.wait(1)
    error = _ended(twin, commit)
    if not isinstance(error, RequestTimeoutError) or REASON not in str(error):
        twin.wrong("must say that time is over, and what went wrong last")


def _ends(twin: Twin, commit: _Commit, rng: random.Random) -> None:
    """R110, R111, R153: others before it, nothing to commit, nobody who waits."""
    other, nothing = twin.next_number(), twin.next_number()
    partition = next(iter(commit.offsets))
    twin.tell(CommitRequested(other, {partition: OffsetAndMetadata(4, 0)}, CommitKind.SYNC, twin.now_ms + _LIMIT_MS))
    if _told(twin, commit.number) or _told(twin, other):
        twin.wrong("must wait for the answers")
    twin.tell(CommitRequested(nothing, {}, CommitKind.SYNC, twin.now_ms + _LIMIT_MS))
    if bool(_told(twin, nothing)) != commit.waited_for or twin.asked(OffsetCommitRequest):
        twin.wrong("must report a commit of nothing after the asynchronous ones before it")
    abandoned = rng.random() < 0.5
    if abandoned:
        twin.tell(CallAbandoned(commit.number))
        if _told(twin, commit.number) or _told(twin, other):
            twin.wrong("must not report what nobody waits for, nor what is not over")
    answer_commit(twin, commit.sent, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if bool(_told(twin, commit.number)) == abandoned or _told(twin, other):
        twin.wrong("must report a commit that is over, unless nobody waits for it")
    sent = twin.waits_for_answer(OffsetCommitRequest)[-1]
    answer_commit(twin, sent, 0)
    if _told(twin, other) != [None]:
        twin.wrong("must report each commit by its own answer")


def ask_about_an_automatic_commit(twin: Twin, rng: random.Random) -> bool:
    """R121 to R123: before a revocation. False unless one is under way, alone."""
    sent = twin.waits_for_answer(OffsetCommitRequest)
    lonely = len(sent) == 1 and not any(isinstance(call, CommitRequested) for call in twin.calls.values())
    if not twin.is_in(Phase.COMMITTING) or not lonely or twin.member.coordinator is None or twin.commit_failed:
        return False
    committed = positions_of(sent[0])
    if rng.random() < 0.5:
        code = rng.choice(
            (0, *_PASSES[1:], *_RAISED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_MEMBER_ID)
        )
        answer_commit(twin, sent[0], code)
        told = [(effect.commit_id, effect.error is None) for effect in twin.did(CommitDone)]
        if told != [(0, not code)] or twin.is_in(Phase.COMMITTING):
            twin.wrong(f"must go on with the revocation after {code}, and write down what came of the commit")
        return True
    passing = rng.choice((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH))
    answer_commit(twin, sent[0], passing)
    if twin.did_any(CommitDone) or not twin.is_in(Phase.COMMITTING) or not twin.member.view().poll_wanted:
        twin.wrong(f"must commit again after {passing}, what the application consumed by then")
    later = {partition: OffsetAndMetadata(position.offset + 1, 0) for partition, position in committed.items()}
    twin.tell(AppPolled(later))
    if not twin.asked(OffsetCommitRequest):
        twin.wait(twin.longest_backoff_ms)
    again = twin.asked(OffsetCommitRequest)
    if not again:
        if twin.is_in(Phase.COMMITTING):
            twin.wrong("must commit again")
        return True
    said = positions_of(again[-1])
    if any(partition not in said or said[partition].offset != later[partition].offset for partition in later):
        twin.wrong(f"must commit {later}")
    return True
