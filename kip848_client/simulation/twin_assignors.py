"""What a member that computes assignments would do about each answer on the way: the table of rounds, R157 to R175.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from uuid import UUID

from kip848_client.errors import AssignorTimeoutError, ClientAssignorError, ErrorCode
from kip848_client.member.assignor_events import (
    AssignorDone,
    AssignorFailed,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
)
from kip848_client.member.events import (
    Fail,
    FailureKind,
    ListenerDone,
    LosePartitions,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    SendRequest,
    SurfaceError,
)
from kip848_client.member.states import IN_GROUP, Phase
from kip848_client.simulation.twin_heartbeats import REASON, REMOVED, heartbeat_of, refuse
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)

_AWAITED: Final = (ErrorCode.STALE_MEMBER_EPOCH,)
_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_GIVEN_UP: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.REQUEST_TIMED_OUT,
)
_REPORTED: Final = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
_ROUND: Final = (ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
_TOPICS: Final = {UUID(int=0xA): "a twin's", UUID(int=0xB): "a twin's other"}
_INTERVAL_MS: Final = 1_000
_LONG_MS: Final = 1_000_000
_STRANGE: Final = 1_000_000
"""Number of a call that no twin makes."""


def ask_about_a_round(twin: Twin, rng: random.Random) -> bool:
    """R162 to R166: a refusal, or silence, in the middle of a round. False without one."""
    sent = [one for kind in _ROUND for one in twin.waits_for_answer(kind)]
    live = twin.is_in(*IN_GROUP) and twin.member.coordinator is not None
    if len(sent) != 1 or not live or twin.sent_on(sent[0].request_id) != twin.link or not _current(twin, sent[0]):
        return False
    beat, roll = heartbeat_of(twin), rng.random()
    if beat is not None and twin.sent_on(beat.request_id) == twin.link and roll < 0.4:
        (_is_of_before if roll < 0.2 else _comes_meanwhile)(twin, sent[0], beat, rng)
    elif roll < 0.6:
        _falls_silent(twin, sent[0], rng.choice(list(FailureKind)))
    else:
        codes = rng.choice((_AWAITED, _AWAITED, _ELSEWHERE, _GIVEN_UP, _REPORTED))
        _is_refused(twin, sent[0], rng.choice(codes))
    return True


def _is_of_before(twin: Twin, sent: SendRequest, beat: SendRequest, rng: random.Random) -> None:
    """R167: it is removed meanwhile: what it asked for in an earlier life is of no use."""
    refuse(twin, beat, rng.choice(REMOVED))
    for lost in twin.did(LosePartitions):
        twin.tell(ListenerDone(lost.token))
    calling = twin.is_calling()
    _answer(twin, sent, 0)
    if twin.is_calling() != calling or any(twin.asked(kind) for kind in _ROUND):
        twin.wrong("was removed, and goes on with a round of an earlier life")


def _comes_meanwhile(twin: Twin, sent: SendRequest, beat: SendRequest, rng: random.Random) -> None:
    """R164: the epoch that the coordinator wants to hear came with a heartbeat meanwhile: it is told at once."""
    epoch = twin.member.view().member_epoch + 1
    twin.tell(
        ResponseReceived(
            beat.request_id, ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=_INTERVAL_MS)
        )
    )
    _answer(twin, sent, _AWAITED[0])
    request = sent.request
    assert isinstance(request, _ROUND)
    if [one.request for kind in _ROUND for one in twin.asked(kind)] != [replace(request, member_epoch=epoch)]:
        twin.wrong(f"must repeat {request} with epoch {epoch}")


def _current(twin: Twin, sent: SendRequest) -> bool:
    """Whether it belongs to this life of the member, as far as one can see."""
    request = sent.request
    assert isinstance(request, _ROUND)
    return sent.request_id > twin.life_began and 0 < request.member_epoch == twin.member.view().member_epoch


def _answer(twin: Twin, sent: SendRequest, code: int) -> None:
    if isinstance(sent.request, ConsumerGroupPrepareAssignmentRequest):
        twin.tell(
            ResponseReceived(
                sent.request_id, ConsumerGroupPrepareAssignmentResponse(error_code=code, error_message=REASON)
            )
        )
    else:
        twin.tell(
            ResponseReceived(
                sent.request_id, ConsumerGroupInstallAssignmentResponse(error_code=code, error_message=REASON)
            )
        )


def _is_refused(twin: Twin, sent: SendRequest, code: ErrorCode) -> None:
    view, node = twin.member.view(), twin.member.coordinator
    _answer(twin, sent, code)
    if twin.member.view() is not view or twin.did_any(SurfaceError) or twin.did_any(Fail):
        twin.wrong(f"must stay what it is after {code.name}")
    if (twin.member.coordinator is node) == (code in _ELSEWHERE):
        twin.wrong("must forget the coordinator if that says that it is none")
    failed = [effect.error for effect in twin.did(AssignorFailed)]
    if code in _REPORTED:
        known = len(failed) == 1 and isinstance(failed[0], ClientAssignorError)
        text = str(failed[0]) if failed else ""
        if not known or not all(part in text for part in (REASON, code.name, twin.config.group_id)):
            twin.wrong(f"must report {code.name}")
    elif failed:
        twin.wrong(f"must not report {code.name}")
    if code not in _ELSEWHERE:
        _expect_another(twin, sent, repeated=code in _AWAITED)


def _falls_silent(twin: Twin, sent: SendRequest, kind: FailureKind) -> None:
    twin.tell(RequestFailed(sent.request_id, kind, REASON))
    failed = [str(effect.error) for effect in twin.did(AssignorFailed)]
    passing = kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}
    if (len(failed) != (not passing)) or not all(REASON in text for text in failed):
        twin.wrong("must report what does not pass by itself, and nothing else")
    if twin.member.coordinator is not None or twin.did_any(Fail):
        twin.wrong("must look for the coordinator when its connection is of no use")


def _expect_another(twin: Twin, sent: SendRequest, *, repeated: bool) -> None:
    """R164, R165: the next answer with the flag begins a round; after a stale epoch any answer repeats the request."""
    while (beat := heartbeat_of(twin)) is None:
        if twin.member.coordinator is None or not twin.is_in(*IN_GROUP):
            return
        twin.wait(max(1, twin.member.snapshot().heartbeat_interval_ms))
    if twin.sent_on(beat.request_id) != twin.link:
        return
    epoch = twin.member.view().member_epoch + 1
    answer = ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=_INTERVAL_MS, should_compute_assignment=not repeated
    )
    hangs = twin.hangs
    twin.tell(ResponseReceived(beat.request_id, answer))
    again = [one for kind in _ROUND for one in twin.asked(kind)]
    if repeated:
        request = sent.request
        assert isinstance(request, _ROUND)
        if [one.request for one in again] != [replace(request, member_epoch=epoch)]:
            twin.wrong(f"must repeat {request} with epoch {epoch}")
        if not twin.is_calling() and heartbeat_of(twin) is None:
            twin.wait(_INTERVAL_MS)
        beat = heartbeat_of(twin)
        if beat is not None and not twin.is_calling():
            twin.tell(ResponseReceived(beat.request_id, replace(answer, member_epoch=epoch + 1)))
            if any(twin.asked(kind) for kind in _ROUND):
                twin.wrong("must not ask again while it waits for the answer")
    elif not hangs and [type(one.request) for one in again] != [ConsumerGroupPrepareAssignmentRequest]:
        twin.wrong("must begin another round")


def ask_about_an_unknown_assignor(twin: Twin, rng: random.Random) -> bool:
    """R175: the coordinator wants a target by an assignor that the member does not have. False without a Prepare."""
    sent = twin.waits_for_answer(ConsumerGroupPrepareAssignmentRequest)
    if len(sent) != 1 or not twin.is_in(*IN_GROUP) or not _current(twin, sent[0]) or twin.hangs:
        return False
    name = rng.choice(("nobody's", twin.offered[0].name))
    response = ConsumerGroupPrepareAssignmentResponse(group_epoch=7, assignor_name=name)
    twin.tell(ResponseReceived(sent[0].request_id, response))
    failed = [effect.error for effect in twin.did(AssignorFailed)]
    if name == "nobody's":
        if len(failed) != 1 or name not in str(failed[0]) or twin.offered[0].name not in str(failed[0]):
            twin.wrong("must report that it does not have that assignor")
    elif failed or not twin.is_calling():
        twin.wrong("must compute")
    return True


def ask_about_a_wish_for_another_target(twin: Twin, rng: random.Random) -> bool:
    """R157 to R159: request_reassignment(). False if this is no moment for it."""
    member, config = twin.member, twin.config
    if not twin.is_in(Phase.IN_SYNC) or not config.client_assignors or twin.is_calling():
        return False
    if member.coordinator is None or twin.closing or heartbeat_of(twin) is not None or twin.wishes:
        return False
    reason = rng.randint(1, 100)
    twin.tell(ReassignmentRequested(reason))
    calls = twin.did(DescribeAssignors)
    if len(calls) != 1 or twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("must ask its assignors anew what they offer")
    _minds_no_stranger(twin)
    described = tuple(replace(one, metadata_bytes=b"a twin's") for one in config.client_assignors)
    twin.tell(AssignorsDescribed(described, calls[0].call_id))
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.longest_backoff_ms)
    wanted = tuple(replace(one, reason=reason) for one in described)
    _expect_offers(twin, wanted)
    hangs = rng.random() < 0.5
    _accept(twin, interval_ms=_LONG_MS if hangs else _INTERVAL_MS)
    if twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("was heard, and may wait for its interval")
    _minds_no_stranger(twin)
    if hangs:
        if twin.is_calling():
            return True
        twin.tell(ReassignmentRequested(reason + 1))
        if not twin.did_any(DescribeAssignors):
            twin.wrong("must ask its assignors anew what they offer")
        _expect_hurry(twin, described, reason=reason + 1)
        return True
    twin.wait(_INTERVAL_MS)
    _expect_offers(twin, described)
    return True


def _minds_no_stranger(twin: Twin) -> None:
    """A call returns that nobody made, or that is over."""
    for event in (AssignorDone(_STRANGE), OnAssignmentDone(_STRANGE), AssignorsDescribed((), _STRANGE)):
        if twin.tell(event):
            twin.wrong("must not mind what a call returns that it did not make")


def _expect_hurry(twin: Twin, described: tuple[Assignor, ...], *, reason: int) -> None:
    """R159, R169: metadata() does not return: that is told in time, and the wish goes out in the same step."""
    twin.wait(twin.config.assignor_timeout_ms - 1)
    if twin.did_any(AssignorFailed) or twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("must wait for its assignors as long as they may take")
    twin.wait(1)
    failed = [effect.error for effect in twin.did(AssignorFailed)]
    if len(failed) != 1 or not isinstance(failed[0], AssignorTimeoutError):
        twin.wrong("must report that a call of its assignors takes too long")
    _expect_offers(twin, tuple(replace(one, reason=reason) for one in described))
    _accept(twin)
    twin.tell(ReassignmentRequested(reason + 1))
    _expect_offers(twin, tuple(replace(one, reason=reason + 1) for one in described))


def _expect_offers(twin: Twin, wanted: tuple[object, ...]) -> None:
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or beats[0].client_assignors != wanted:  # type: ignore[attr-defined]
        twin.wrong(f"must tell of {wanted}")


def _accept(
    twin: Twin, *, epoch: int | None = None, assignment: Assignment | None = None, interval_ms: int = _INTERVAL_MS
) -> None:
    beat = heartbeat_of(twin)
    assert beat is not None
    counted = twin.member.view().member_epoch if epoch is None else epoch
    answer = ConsumerGroupHeartbeatResponse(
        member_epoch=counted, heartbeat_interval_ms=interval_ms, assignment=assignment
    )
    twin.tell(ResponseReceived(beat.request_id, answer))


def ask_about_a_told_target(twin: Twin, rng: random.Random) -> bool:
    """R172 to R174: one target after the other, each with a topic whose name must be asked for."""
    member = twin.member
    beat = heartbeat_of(twin)
    if not twin.is_in(Phase.IN_SYNC) or not twin.config.client_assignors or beat is None or twin.closing:
        return False
    if twin.is_calling() or member.coordinator is None or twin.waits_for(RequestMetadata):
        return False
    epoch, left_out = member.view().member_epoch, rng.random() < 0.3
    known: list[TopicPartitions] = []
    for step, (topic_id, name) in enumerate(_TOPICS.items()):
        epoch += 1
        pending = (*known, TopicPartitions(topic_id, (0, 2)))
        assignment = Assignment(
            topic_partitions=(),
            error=step,
            pending_topic_partitions=pending,
            metadata_version=0,
            metadata_bytes=b"told",
            assignor_name=twin.config.client_assignors[0].name,
        )
        _accept(twin, epoch=epoch, assignment=assignment)
        asked = [one for one in twin.did(RequestMetadata) if one.topic_ids == {topic_id}]
        if not asked or twin.did_any(CallOnAssignment):
            twin.wrong(f"must ask for the name of {topic_id} before it tells its assignors")
        if step == 0 and rng.random() < 0.4:
            rng.choice((_waits_no_longer, _tells_nothing_of_before, _is_not_meant))(twin, asked[0], rng)
            return True
        if step == 0 and rng.random() < 0.3:
            if heartbeat_of(twin) is None:
                twin.wait(_INTERVAL_MS)
            if heartbeat_of(twin) is None:
                return True
            twin.tell(RequestFailed(asked[0].request_id, rng.choice(list(FailureKind)), REASON))
            continue  # the next target is asked about at once
        for one in asked:
            twin.tell(MetadataUpdated({} if left_out else {topic_id: name}, one.request_id))
        if twin.is_calling(DescribeAssignors):
            return True
        told = [_TOPICS[topic.topic_id] for topic in pending]
        _expect_told(twin, epoch, () if left_out else tuple(f"{one}-{index}" for one in told for index in (0, 2)), step)
        if not left_out:
            known.append(pending[-1])
        if heartbeat_of(twin) is None:
            twin.wait(_INTERVAL_MS)
        if twin.is_calling(DescribeAssignors) or heartbeat_of(twin) is None:
            return True
    _expect_nothing_of_before(twin, rng)
    return True


def _waits_no_longer(twin: Twin, asked: RequestMetadata, rng: random.Random) -> None:
    """R173: nobody answers; the listener waits for its assignors no longer than a call may take, and wakes for that."""
    twin.wait(twin.config.assignor_timeout_ms - 1)
    pending = twin.is_in(Phase.PENDING)
    twin.wait(1)
    if pending and twin.is_in(Phase.PENDING) and not twin.member.view().poll_wanted:
        twin.wrong("must not wait for its assignors any longer")


def _is_not_meant(twin: Twin, asked: RequestMetadata, rng: random.Random) -> None:
    """R174: what the cluster says to another question is no answer."""
    twin.tell(MetadataUpdated({}, rng.choice((None, asked.request_id + 1_000))))
    if twin.is_calling(CallOnAssignment):
        twin.wrong("must wait for the names of its topics before it tells its assignors")


def _tells_nothing_of_before(twin: Twin, asked: RequestMetadata, rng: random.Random) -> None:
    """R172: it is removed before the names come: nobody is told of a target of an earlier life."""
    if heartbeat_of(twin) is None:
        twin.wait(_INTERVAL_MS)
    beat = heartbeat_of(twin)
    if beat is None or twin.sent_on(beat.request_id) != twin.link:
        return
    refuse(twin, beat, rng.choice(REMOVED))
    twin.tell(MetadataUpdated(dict(_TOPICS), asked.request_id))
    twin.wait(0)
    if twin.is_calling(CallOnAssignment):
        twin.wrong("was removed, and tells its assignors of a target that it does not have any more")


def _expect_nothing_of_before(twin: Twin, rng: random.Random) -> None:
    """R172: who joins again and is given no target is not told that of an earlier life."""
    beat = heartbeat_of(twin)
    if beat is None or twin.sent_on(beat.request_id) != twin.link:
        return
    refuse(twin, beat, rng.choice(REMOVED))
    for lost in twin.did(LosePartitions):
        twin.tell(ListenerDone(lost.token, None))
    if not twin.is_in(Phase.JOINING) or twin.is_calling():
        return
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    if heartbeat_of(twin) is None:
        return
    _accept(twin, epoch=3)
    call = twin.assigning
    if isinstance(call, CallOnAssignment):
        _expect_told(twin, 3, (), 0, metadata=b"")


def _expect_told(twin: Twin, epoch: int, partitions: tuple[str, ...], error: int, *, metadata: bytes = b"told") -> None:
    call = twin.assigning
    if not isinstance(call, CallOnAssignment):
        twin.wrong("must tell its assignors of their target")
    said = (tuple(str(tip) for tip in call.partitions), call.error, call.metadata, call.group_metadata.member_epoch)
    wanted = (partitions, error, metadata, epoch)
    if said != wanted or call.group_metadata.group_id != twin.config.group_id:
        twin.wrong(f"must tell its assignors {wanted}")
    twin.tell(OnAssignmentDone(call.call_id))
