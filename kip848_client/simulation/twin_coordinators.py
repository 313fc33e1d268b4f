"""What a member would do about each answer to its lookup of the coordinator, and about each way to connect: R16 to R26.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.errors import BrokerError, ClientAssignorsUnsupportedError, ErrorCode, Kip848Error, ProtocolError
from kip848_client.member.assignor_events import AssignorsUnsupported, RunAssignor
from kip848_client.member.events import (
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Fail,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveRequested,
    OffsetsFetched,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    SurfaceError,
    Tick,
)
from kip848_client.member.leaving import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.member.states import FATAL, HEARTBEATING, IN_GROUP, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.simulation.clientside import VERSIONS
from kip848_client.simulation.twin_heartbeats import (
    ELSEWHERE,
    NODE,
    PASSING,
    REASON,
    answer_lookup,
    expect_end,
    expect_fatal,
    expect_refused_connection,
    find_again,
    heartbeat_of,
)
from kip848_client.simulation.twin_offsets import answer_fetch, partitions_of
from kip848_client.simulation.twins import Twin
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

_REFUSED: Final = (ErrorCode.INVALID_GROUP_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""What no lookup of a run is answered, and no retry cures."""
_FINAL: Final = (FailureKind.AUTHENTICATION_FAILED, FailureKind.UNSUPPORTED_VERSION)
_MEMBER: Final = IN_GROUP | {Phase.JOINING}
_LONG_MS: Final = 600_000
_ROUNDS: Final = 3
_OTHER_NODE: Final = 78
_ASKED: Final = TopicPartition("a twin asks", 0)


def ask_about_a_lookup(twin: Twin, rng: random.Random) -> bool:
    """R20 to R22. False if none is under way."""
    if not twin.waits_for_answer(FindCoordinatorRequest) or twin.is_in(*FATAL) or twin.closing:
        return False
    kind = rng.choice((_passes, _is_refused, _is_refused, _is_found, _is_found_again, _fails))
    kind(twin, rng)
    return True


def _passes(twin: Twin, rng: random.Random) -> None:
    before = twin.member.view()
    answer_lookup(twin, code=rng.choice((*PASSING, *ELSEWHERE)), old=rng.random() < 0.5)
    if twin.effects or twin.member.view() is not before:
        twin.wrong("must wait, and look for the coordinator again")
    _expect_another(twin)


def _expect_another(twin: Twin) -> None:
    """R21: after the back-off, for ever, as long as somebody needs the coordinator."""
    for _ in range(_ROUNDS):
        if not twin.is_in(*HEARTBEATING):
            return
        twin.wait(twin.least_backoff_ms - 1)
        if twin.asked(FindCoordinatorRequest):
            twin.wrong("looks for the coordinator before its back-off is over")
        twin.wait(twin.longest_backoff_ms - twin.least_backoff_ms + 1)
        if len(twin.asked(FindCoordinatorRequest)) != 1:
            twin.wrong("must look for the coordinator again")
        request = twin.asked(FindCoordinatorRequest)[0].request
        assert isinstance(request, FindCoordinatorRequest)
        if request.coordinator_keys != (twin.config.group_id,) or request.key_type != 0:
            twin.wrong(f"must look for the coordinator of {twin.config.group_id}")
        answer_lookup(twin, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _is_refused(twin: Twin, rng: random.Random) -> None:
    """R22: the application hears of it, who waits for the coordinator too, and the member stays what it is."""
    code = rng.choice(_REFUSED)
    commit, question = _calls_that_wait(twin)
    before, waiting = twin.member.view(), bool(twin.waits_for_answer(OffsetCommitRequest))
    answer_lookup(twin, code=code, old=rng.random() < 0.5)
    told = [effect.error for effect in twin.did(SurfaceError)]
    if len(told) != 1 or not _names(told[0], code) or twin.config.group_id not in str(told[0]):
        twin.wrong(f"must tell why nobody finds the coordinator: {code}, {REASON}")
    _expect_failed_calls(twin, commit, question, lambda error: _names(error, code), commits_under_way=waiting)
    if twin.member.view().state is not before.state or twin.did_any(Fail):
        twin.wrong("must stay what it is while nobody finds the coordinator")
    _expect_another(twin)
    if twin.is_in(*HEARTBEATING):
        find_again(twin)
        asked = [partition for sent in twin.asked(OffsetFetchRequest) for partition in partitions_of(sent)]
        if _ASKED in asked or twin.did_any(OffsetsFetched, CommitDone):
            twin.wrong("must not ask any more for those who were refused, nor tell them twice")
        _spares_what_was_sent(twin, code)


def _spares_what_was_sent(twin: Twin, code: int) -> None:
    """R22: only who waits for the coordinator is refused, and not who waits for an answer of the one before."""
    number = twin.next_number()
    offsets = {_ASKED: OffsetAndMetadata(4, 0)}
    twin.tell(CommitRequested(number, offsets, CommitKind.SYNC, twin.now_ms + _LONG_MS))
    if not twin.asked(OffsetCommitRequest):
        return
    twin.tell(CoordinatorDisconnected(NODE.node_id))
    if not twin.waits_for_answer(FindCoordinatorRequest):
        twin.wait(twin.longest_backoff_ms)
    if twin.waits_for_answer(FindCoordinatorRequest):
        answer_lookup(twin, code=code)
        if number not in twin.calls:
            twin.wrong("must wait for the answer to a commit that was sent, whoever is found, or nobody")


def _names(error: BaseException | None, code: int) -> bool:
    return isinstance(error, BrokerError) and error.code == code and REASON in str(error)


def _calls_that_wait(twin: Twin) -> tuple[int, int]:
    commit, question = twin.next_number(), twin.next_number()
    until_ms = twin.now_ms + _LONG_MS
    twin.tell(CommitRequested(commit, {_ASKED: OffsetAndMetadata(3, 0)}, CommitKind.ASYNC, None))
    if twin.did_any(CommitDone):
        commit = 0
    twin.tell(FetchOffsetsRequested(question, frozenset({_ASKED}), until_ms))
    if twin.effects:
        twin.wrong("must wait for the coordinator")
    return commit, question


def _expect_failed_calls(twin: Twin, commit: int, question: int, right: object, *, commits_under_way: bool) -> None:
    assert callable(right)
    commits = {effect.commit_id: effect.error for effect in twin.did(CommitDone)}
    questions = {effect.fetch_id: effect.error for effect in twin.did(OffsetsFetched)}
    if commit and not right(commits.get(commit)):
        twin.wrong("must refuse a commit that waits for the coordinator")
    if not right(questions.get(question)):
        twin.wrong("must refuse a committed() that waits for the coordinator")
    left = [call for call in twin.calls.values() if isinstance(call, CommitRequested)]
    if left and not commits_under_way:
        twin.wrong(f"must refuse everybody who waits for the coordinator, also {left}")


def _is_found(twin: Twin, rng: random.Random) -> None:
    answer_lookup(twin, old=rng.random() < 0.5)
    connects = [(effect.node, effect.timeout_ms) for effect in twin.did(ConnectCoordinator)]
    if connects != [(NODE, twin.config.request_timeout_ms)] or twin.knows() is not None:
        twin.wrong(f"must connect to {NODE}")
    connect = twin.did(ConnectCoordinator)[0]
    twin.wait(0)
    if twin.effects:
        twin.wrong("must wait for the connection")
    twin.tell(CoordinatorConnected(connect.request_id + 1_000, VERSIONS))
    if twin.knows() is not None:
        twin.wrong("must not take another's connection for its own")
    twin.tell(CoordinatorConnected(connect.request_id, VERSIONS))
    if twin.knows() != NODE:
        twin.wrong(f"is connected to {NODE}")
    view = twin.member.view()
    for node_id in (_OTHER_NODE, NODE.node_id):  # R23: it breaks while nothing is under way
        twin.tell(CoordinatorDisconnected(node_id))
        if (twin.knows() is None) != (node_id == NODE.node_id) or twin.member.view() is not view:
            twin.wrong(f"must forget the coordinator {NODE} with its connection, and no other")
    if not twin.is_in(*HEARTBEATING) or twin.asked(FindCoordinatorRequest):
        return
    soon_ms = int(1.2 * twin.config.retry_backoff_ms) + 1
    twin.wait(soon_ms)
    if twin.asked(FindCoordinatorRequest):  # R21: failures in a row are counted anew
        answer_lookup(twin, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        twin.wait(soon_ms)
        if not twin.asked(FindCoordinatorRequest) and twin.is_in(*HEARTBEATING):
            twin.wrong("was connected meanwhile, and must look again after the shortest back-off")


def _is_found_again(twin: Twin, rng: random.Random) -> None:
    """R26: brokers that each name the other are asked once per back-off, and not more seldom either."""
    began_ms = twin.now_ms
    while twin.is_in(*HEARTBEATING) and twin.waits_for_answer(FindCoordinatorRequest):
        beat = _found_and_asked(twin)
        if beat is None:
            return
        found_ms = twin.now_ms
        twin.tell(ResponseReceived(beat.request_id, ConsumerGroupHeartbeatResponse(error_code=ELSEWHERE[0])))
        if twin.asked(FindCoordinatorRequest):
            twin.wrong("must not ask in a loop brokers that each name the other")
        twin.wait(twin.least_backoff_ms - 1)
        if twin.asked(FindCoordinatorRequest):
            twin.wrong("must keep a distance from the lookup that found no coordinator")
        twin.wait(found_ms + int(1.2 * twin.config.retry_backoff_ms) + 1 - twin.now_ms)
        if not twin.asked(FindCoordinatorRequest):
            twin.wrong("must look for a coordinator that moved again within the shortest back-off")
        if twin.now_ms > began_ms + _LONG_MS or rng.random() < 0.3:
            break
    if twin.is_in(*HEARTBEATING) and not twin.is_in(Phase.LEAVE_REVOKING):
        _works_and_moves(twin)


def _found_and_asked(twin: Twin) -> SendRequest | None:
    """Find the coordinator that is looked for. Returns the heartbeat that goes to it at once, if one does."""
    answer_lookup(twin)
    twin.tell(CoordinatorConnected(twin.waits_for(ConnectCoordinator)[-1].request_id, VERSIONS))
    return heartbeat_of(twin) if twin.asked(ConsumerGroupHeartbeatRequest) else None


def _works_and_moves(twin: Twin) -> None:
    """R26: one that took a heartbeat is one; if it moves after that, nobody loses a back-off."""
    beat = _found_and_asked(twin)
    if beat is None:
        return
    answer = ConsumerGroupHeartbeatResponse(member_epoch=max(1, twin.member.view().member_epoch))
    twin.tell(ResponseReceived(beat.request_id, answer))
    if twin.member.coordinator is None:
        return
    twin.tell(CoordinatorDisconnected(NODE.node_id))
    if len(twin.asked(FindCoordinatorRequest)) != 1:
        twin.wrong("must look at once for a coordinator that worked, and moved")


def _fails(twin: Twin, rng: random.Random) -> None:
    lookup = twin.waits_for_answer(FindCoordinatorRequest)[-1]
    kind = rng.choice(list(FailureKind))
    _fail(twin, lookup.request_id, kind, rng, final=(FailureKind.AUTHENTICATION_FAILED,))


def _fail(twin: Twin, number: int, kind: FailureKind, rng: random.Random, *, final: tuple[FailureKind, ...]) -> None:
    """R21, R25: of a lookup, or of a connection."""
    commit, question = _calls_that_wait(twin)
    before, phase = twin.member.view(), twin.member.phase
    waiting = bool(twin.waits_for_answer(OffsetCommitRequest))
    heard = kind in twin.kinds
    twin.tell(RequestFailed(number, kind, REASON))
    told = [effect.error for effect in twin.did(SurfaceError)]
    if kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}:
        if twin.effects or twin.member.view() is not before:
            twin.wrong("must tell nobody of what passes")
        _expect_another(twin)
        return
    if kind in final and phase in _MEMBER:
        error = expect_refused_connection(twin, kind)
        if told:
            twin.wrong("must raise the error once")
        if twin.member.view().state is not before.state and phase is Phase.JOINING:
            expect_end(twin, error, rng)
        return
    if twin.did_any(Fail) and phase in _MEMBER:
        twin.wrong("must go on: another broker may do better")
    if not twin.did_any(Fail) and not heard and (len(told) != 1 or REASON not in str(told[0])):
        twin.wrong("must tell what is wrong with the coordinator")
    if kind is FailureKind.MALFORMED and told and not isinstance(told[0], ProtocolError):
        twin.wrong("must tell that an answer cannot be read")
    if not twin.did_any(Fail):
        _expect_failed_calls(twin, commit, question, lambda error: REASON in str(error), commits_under_way=waiting)
        _expect_another(twin)


def ask_about_a_connection(twin: Twin, rng: random.Random) -> bool:
    """R16, R17, R25, R160, R161: what the coordinator offers, or why there is no connection. False without one."""
    connects = twin.waits_for(ConnectCoordinator)
    if not connects or twin.is_in(*FATAL) or twin.closing:
        return False
    if rng.random() < 0.4:
        _fail(twin, connects[-1].request_id, rng.choice(list(FailureKind)), rng, final=_FINAL)
    else:
        kinds = (_without_heartbeats, _with_the_first_version)
        more = (_without_assignors,) * (2 if twin.config.client_assignors else 0)
        rng.choice((*kinds, *more))(twin, connects[-1], rng)
    return True


def _connect(twin: Twin, connect: ConnectCoordinator, versions: dict[int, tuple[int, int]]) -> None:
    """With what the coordinator offers; its heartbeat may wait for a back-off."""
    twin.tell(CoordinatorConnected(connect.request_id, versions))
    if not twin.did_any(Fail) and not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.config.retry_backoff_max_ms + max(1, twin.member.snapshot().heartbeat_interval_ms))


def _without_heartbeats(twin: Twin, connect: ConnectCoordinator, rng: random.Random) -> None:
    if not twin.is_in(*_MEMBER):
        return
    versions = {key: value for key, value in VERSIONS.items() if key != ApiKey.CONSUMER_GROUP_HEARTBEAT}
    _connect(twin, connect, versions)
    if heartbeat_of(twin) is not None:
        return
    expect_end(twin, expect_fatal(twin, ErrorCode.UNSUPPORTED_VERSION, "group.protocol=classic"), rng)


def _with_the_first_version(twin: Twin, connect: ConnectCoordinator, rng: random.Random) -> None:
    if not twin.is_in(*_MEMBER) or heartbeat_of(twin) is not None:
        return
    versions = {**VERSIONS, int(ApiKey.CONSUMER_GROUP_HEARTBEAT): (0, 0)}
    _connect(twin, connect, versions)
    pattern = twin.subscription.pattern
    if pattern is not None:
        failed = twin.did(Fail)
        error = failed[0].error if failed else None
        if not isinstance(error, BrokerError) or error.code != ErrorCode.UNSUPPORTED_VERSION or not error.fatal:
            twin.wrong("must stop: the coordinator knows no patterns")
        if repr(pattern) not in str(error):
            twin.wrong(f"must quote the pattern {pattern!r}")
        return
    beats = [effect.request for effect in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must send its heartbeat, as version 0 has it")
    member_id = twin.config.member_id if twin.confirmed else ""
    if beats[0].subscribed_topic_regex is not None or beats[0].member_id != member_id:
        twin.wrong(f"must send what version 0 has, as {member_id!r}")
    if twin.is_in(Phase.JOINING) and not twin.confirmed and not twin.closing:
        rng.choice((_expires_unnamed, _leaves_unnamed))(twin)


def _leaves_unnamed(twin: Twin) -> None:
    """R139: it waits for its name, and leaves by that."""
    beat, number = heartbeat_of(twin), twin.next_number()
    assert beat is not None
    twin.tell(LeaveRequested(number, twin.now_ms + _LONG_MS, closing=False))
    if twin.effects and (twin.asked(ConsumerGroupHeartbeatRequest) or twin.did_any(LeaveDone)):
        twin.wrong("must wait until the coordinator named it, and then leave")
    answer = ConsumerGroupHeartbeatResponse(member_id="named", member_epoch=4, heartbeat_interval_ms=1_000)
    twin.tell(ResponseReceived(beat.request_id, answer))
    said = [(one.request.member_id, one.request.member_epoch) for one in twin.asked(ConsumerGroupHeartbeatRequest)]  # type: ignore[attr-defined]
    static = twin.config.instance_id is not None
    if said != [("named", STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)] or twin.did_any(LeaveDone):
        twin.wrong("was named, and must leave")


def _expires_unnamed(twin: Twin) -> None:
    """R125, R132: nobody named it yet, so it has no name to leave by."""
    polled_ms, limit_ms = twin.now_ms, twin.config.max_poll_interval_ms
    twin.tell(Tick(polled_ms))
    twin.tell(Tick(polled_ms), at_ms=polled_ms + limit_ms + 1)
    if twin.asked(ConsumerGroupHeartbeatRequest) or not twin.is_in(Phase.AWAITING_POLL):
        twin.wrong("was not polled in time, and must go without a word: the coordinator has not named it")


def _without_assignors(twin: Twin, connect: ConnectCoordinator, rng: random.Random) -> None:
    if not twin.is_in(*_MEMBER) or heartbeat_of(twin) is not None or not twin.config.client_assignors:
        return
    missing = rng.choice((ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT))
    less = {key: value for key, value in VERSIONS.items() if key != missing}
    _connect(twin, connect, less)
    if not twin.config.assignor_fallback:
        failed = twin.did(Fail)
        error: Kip848Error | None = failed[0].error if failed else None
        if not isinstance(error, ClientAssignorsUnsupportedError) or str(int(missing)) not in str(error):
            twin.wrong(f"must stop: the coordinator does not offer {missing}")
        expect_end(twin, error, rng)
        return
    told = twin.did(AssignorsUnsupported)
    if len(told) != 1 or len(told[0].missing) != 1 or twin.did_any(Fail):
        twin.wrong(f"must tell that {missing} is missing, and go on")
    beats = [effect.request for effect in twin.asked(ConsumerGroupHeartbeatRequest)]
    if not beats or any(beat.client_assignors for beat in beats):  # type: ignore[attr-defined]
        twin.wrong("must not tell of its assignors")
    answer = ConsumerGroupHeartbeatResponse(
        member_epoch=max(1, twin.member.view().member_epoch),
        heartbeat_interval_ms=1_000,
        should_compute_assignment=True,
    )
    for node, versions in ((connect.node, less), (NODE, VERSIONS)):
        beat = heartbeat_of(twin)
        assert beat is not None
        twin.tell(ResponseReceived(beat.request_id, answer))
        if twin.did_any(RunAssignor) or twin.asked(ConsumerGroupPrepareAssignmentRequest):
            twin.wrong("must leave the assignment to the coordinator")
        twin.tell(CoordinatorDisconnected(node.node_id))
        find_again(twin, versions=versions)
        if not twin.asked(ConsumerGroupHeartbeatRequest):
            twin.wait(1_000)
        if twin.did_any(AssignorsUnsupported):
            twin.wrong(f"told already that {missing} is missing")
    # R161: a later coordinator that has it is told of them.
    beats = [effect.request for effect in twin.asked(ConsumerGroupHeartbeatRequest)]
    if not beats or not all(beat.client_assignors for beat in beats):  # type: ignore[attr-defined]
        twin.wrong("must tell of its assignors where they can be used")


def ask_about_a_word_of_before(twin: Twin, rng: random.Random) -> bool:
    """R20: that the coordinator of before is none any more says nothing of the one that was found since."""
    node = twin.member.coordinator
    if not twin.is_in(*HEARTBEATING) or node is None or twin.closing or twin.calls:
        return False
    number = twin.next_number()
    twin.tell(FetchOffsetsRequested(number, frozenset({_ASKED}), twin.now_ms + _LONG_MS))
    sent = twin.asked(OffsetFetchRequest)
    if len(sent) != 1:
        return True
    twin.tell(CoordinatorDisconnected(node.node_id))
    find_again(twin)
    answer_fetch(twin, sent[0], code=rng.choice(ELSEWHERE))
    if twin.member.coordinator != NODE:
        twin.wrong(f"must keep {NODE}: another one is no coordinator any more")
    if number not in twin.calls:
        twin.wrong("must ask again where its coordinator is now")
    return True
