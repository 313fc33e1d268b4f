"""What a member would do about each answer to its heartbeat, and about none: docs/protocol.md, R40 to R62.

The classes of error codes are told here a second time. Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from kip848_client.errors import (
    AuthenticationError,
    ErrorCode,
    FatalGroupError,
    Kip848Error,
    ProtocolError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    AppPolled,
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    Fail,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    LosePartitions,
    OffsetsFetched,
    RequestFailed,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StateChanged,
    SubscriptionChanged,
    SurfaceError,
)
from kip848_client.member.states import HEARTBEATING, MemberState, Phase
from kip848_client.model import NO_EPOCH, BrokerNode, OffsetAndMetadata, Subscription, TopicPartition
from kip848_client.simulation.clientside import VERSIONS
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

PASSING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
REMOVED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_FATAL: Final = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "permission",
    ErrorCode.UNSUPPORTED_VERSION: "group.protocol=classic",
    ErrorCode.INVALID_REQUEST: "refuses",
    ErrorCode.GROUP_ID_NOT_FOUND: "another type",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "group.consumer.max.size",
    ErrorCode.FENCED_INSTANCE_ID: "group.instance.id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "assignor",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "RE2",
    ErrorCode.INVALID_GROUP_ID: "INVALID_GROUP_ID",
    ErrorCode.POLICY_VIOLATION: "POLICY_VIOLATION",
}
"""Code -> what the text of the error must say to whoever has to cure it."""
REASON: Final = "as the twin was told"
NODE: Final = BrokerNode(77, "elsewhere", 4077)
_FOREVER_MS: Final = 3_600_000


def expect_heartbeat(twin: Twin) -> None:
    """R37: now, or when its back-off is over, whoever was told that it is no member asks what it is."""
    if not twin.asked(ConsumerGroupHeartbeatRequest) and not twin.calm:
        twin.wait(twin.longest_backoff_ms)
    if len(twin.asked(ConsumerGroupHeartbeatRequest)) != 1:
        twin.wrong("must ask by a heartbeat what it is")


def calm_down(twin: Twin) -> None:
    """Accept the heartbeat that is under way, if one is: so that the next one is due because of what happens only.

    Not of a member with client-side assignors, which are asked now and then what they offer.
    """
    beat, member = heartbeat_of(twin), twin.member
    if beat is None or not twin.is_in(Phase.IN_SYNC) or twin.sent_on(beat.request_id) != twin.link:
        return
    if member.coordinator is None or twin.config.client_assignors:
        return
    answer = ConsumerGroupHeartbeatResponse(member_epoch=member.view().member_epoch, heartbeat_interval_ms=_FOREVER_MS)
    twin.tell(ResponseReceived(beat.request_id, answer))
    twin.calm = heartbeat_of(twin) is None


def heartbeat_of(twin: Twin) -> SendRequest | None:
    """The heartbeat whose answer it waits for."""
    if not twin.is_in(*HEARTBEATING) or not twin.member.snapshot().heartbeat_in_flight:
        return None
    return next(
        (
            effect
            for effect in reversed(twin.waits_for_answer(ConsumerGroupHeartbeatRequest))
            if isinstance(effect.request, ConsumerGroupHeartbeatRequest) and effect.request.member_epoch >= 0
        ),
        None,
    )


def ask_about_an_error(twin: Twin, rng: random.Random) -> bool:
    """R47 to R58: an error code. False if no heartbeat is under way."""
    beat = heartbeat_of(twin)
    if beat is None:
        return False
    kind = rng.choice((_passes, _moves, _removes, _is_fatal, _is_fatal, _is_told))
    kind(twin, beat, rng)
    return True


def refuse(twin: Twin, beat: SendRequest, code: int) -> None:
    """Answer a heartbeat with an error code."""
    twin.tell(ResponseReceived(beat.request_id, ConsumerGroupHeartbeatResponse(error_code=code, error_message=REASON)))


def _passes(twin: Twin, beat: SendRequest, rng: random.Random) -> None:
    refuse_quietly(twin, beat, rng.choice(PASSING))
    expect_repetition(twin)


def refuse_quietly(twin: Twin, beat: SendRequest, code: int) -> None:
    """R47: whatever passes changes nothing."""
    before = twin.member.view()
    refuse(twin, beat, code)
    if twin.effects or twin.member.view() is not before:
        twin.wrong(f"must wait after {code}")


def expect_repetition(twin: Twin) -> None:
    """R31 to R33, R40: after the back-off, and not before, everything is said again."""
    epoch = twin.member.view().member_epoch
    if twin.member.coordinator is None:
        return
    twin.wait(twin.least_backoff_ms - 1)
    if twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("repeats a heartbeat before its back-off is over")
    twin.wait(twin.longest_backoff_ms - twin.least_backoff_ms + 1)
    _expect_full(twin, epoch=max(0, epoch))


def _expect_full(twin: Twin, *, epoch: int) -> None:
    beats = [effect.request for effect in twin.asked(ConsumerGroupHeartbeatRequest)]
    if not twin.is_in(*HEARTBEATING):
        return
    if len(beats) != 1:
        twin.wrong("must send one heartbeat")
    beat = beats[0]
    assert isinstance(beat, ConsumerGroupHeartbeatRequest)
    said = (beat.group_id, beat.member_id, beat.member_epoch, beat.rack_id, beat.rebalance_timeout_ms)
    config = twin.config
    wanted = (config.group_id, twin.member.view().member_id, epoch, config.rack_id, config.rebalance_timeout_ms)
    if said != wanted or beat.subscribed_topic_names is None or beat.topic_partitions is None:
        twin.wrong(f"must say everything, among it {wanted}")


def _moves(twin: Twin, beat: SendRequest, rng: random.Random) -> None:
    """R24, R26, R48: another broker is the coordinator; unless that was said on a connection of before."""
    before, node = twin.member.view(), twin.member.coordinator
    current = twin.sent_on(beat.request_id) == twin.link
    refuse(twin, beat, rng.choice(ELSEWHERE))
    if twin.member.view() is not before or twin.did_any(SurfaceError) or twin.did_any(Fail):
        twin.wrong("must keep everything while it looks for the coordinator")
    if not current or node is None:
        if twin.member.coordinator is not node:
            twin.wrong("forgets a coordinator of which nobody said that it is none")
        return
    if twin.member.coordinator is not None:
        twin.wrong("must forget the coordinator")
    find_again(twin)
    _expect_full(twin, epoch=max(0, twin.member.view().member_epoch))


def find_again(twin: Twin, *, versions: Mapping[int, tuple[int, int]] = VERSIONS) -> None:
    """Let it find a coordinator that has *versions*, if it looks for one within the longest back-off."""
    if not twin.waits_for_answer(FindCoordinatorRequest):
        twin.wait(int(1.2 * twin.config.retry_backoff_ms) + 1)
    if not twin.waits_for_answer(FindCoordinatorRequest):
        twin.wait(twin.longest_backoff_ms)
    if not twin.waits_for_answer(FindCoordinatorRequest):
        twin.wrong("must look for the coordinator")
    answer_lookup(twin)
    connects = twin.waits_for(ConnectCoordinator)
    if not connects:
        twin.wrong(f"must connect to {NODE}")
    twin.tell(CoordinatorConnected(connects[-1].request_id, versions))
    if twin.member.coordinator != NODE:
        twin.wrong(f"is connected to {NODE}, and says {twin.member.coordinator}")


def answer_lookup(twin: Twin, *, code: int = 0, old: bool = False) -> None:
    """Answer the lookup that is under way: with `NODE`, or with an error; as old brokers do, or new ones."""
    lookup = twin.waits_for_answer(FindCoordinatorRequest)[-1]
    node = NODE if not code else BrokerNode(-1, "", -1)
    message = REASON if code else None
    if old:
        response = FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=node.node_id, host=node.host, port=node.port
        )
    else:
        theirs = Coordinator(
            key=twin.config.group_id,
            node_id=node.node_id,
            host=node.host,
            port=node.port,
            error_code=code,
            error_message=message,
        )
        response = FindCoordinatorResponse(coordinators=(theirs,))
    twin.tell(ResponseReceived(lookup.request_id, response))


def _removes(twin: Twin, beat: SendRequest, rng: random.Random) -> None:
    """R57, R58, R61: removed; it loses what it has, and joins again as who it was."""
    member = twin.member
    before, leaving = member.view(), twin.is_in(Phase.LEAVE_REVOKING)
    leaves = [number for number, call in twin.calls.items() if isinstance(call, LeaveRequested)]
    refuse(twin, beat, rng.choice(REMOVED))
    after = member.view()
    if after.readable or after.member_epoch != NO_EPOCH or twin.did_any(SurfaceError) or twin.did_any(Fail):
        twin.wrong("was removed, and must read nothing, and tell nobody")
    if member.snapshot().member_epoch > 0:
        twin.wrong("was removed, and has no epoch any more")
    if leaving:
        if {effect.leave_id for effect in twin.did(LeaveDone)} != set(leaves) or after.assigned:
            twin.wrong("was removed while it left, and has left")
        if any(effect.request.member_epoch < 0 for effect in twin.asked(ConsumerGroupHeartbeatRequest)):  # type: ignore[attr-defined]
            twin.wrong("was removed, and says that it leaves")
        return
    if before.awaiting_app:
        return  # what its listener is at is not lost as well
    if before.assigned:
        lost = twin.did(LosePartitions)
        if len(lost) != 1 or lost[0].partitions != before.assigned or twin.asked(ConsumerGroupHeartbeatRequest):
            twin.wrong(f"must lose {sorted(map(str, before.assigned))}, and be silent")
        twin.wait(0)
        twin.tell(ListenerDone(lost[0].token, None))
    if not twin.is_in(Phase.JOINING) or member.view().assigned:
        twin.wrong("was removed, and must join again with nothing")
    if member.coordinator is None:
        return
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.longest_backoff_ms)
    _expect_full(twin, epoch=0)


def _is_fatal(twin: Twin, beat: SendRequest, rng: random.Random) -> None:
    code = rng.choice(list(_FATAL))
    before = twin.member.view()
    leaving = twin.is_in(Phase.LEAVE_REVOKING)
    refuse(twin, beat, code)
    error = expect_fatal(twin, code, _FATAL[code], REASON)
    _expect_lost(twin, before.assigned if not before.awaiting_app else None, leaving=leaving)
    expect_end(twin, error, rng)


def expect_fatal(twin: Twin, code: int, *texts: str) -> Kip848Error:
    """R50 to R52: it stops, and the error says which code, group and reason, and what to do."""
    failed = twin.did(Fail)
    if len(failed) != 1 or twin.did_any(SurfaceError):
        twin.wrong(f"must stop because of {code}")
    error = failed[0].error
    pattern = twin.subscription.pattern
    known = isinstance(error, FatalGroupError) and error.code == code and error.fatal
    if not known or not all(text in str(error) for text in (twin.config.group_id, *texts)):
        twin.wrong(f"must raise a FatalGroupError with {code}, {texts}")
    if code == ErrorCode.INVALID_REGULAR_EXPRESSION and repr(pattern) not in str(error):
        twin.wrong(f"must quote the pattern {pattern!r}")
    return error


def _expect_lost(twin: Twin, assigned: frozenset[object] | None, *, leaving: bool) -> None:
    """R51, R55: what it has is lost, not revoked; nothing is read from then on."""
    view = twin.member.view()
    if view.state is not MemberState.FATAL or view.readable or view.member_epoch != NO_EPOCH:
        twin.wrong("must be FATAL, and read nothing")
    if twin.member.snapshot().member_epoch > 0:
        twin.wrong("must have no epoch any more")
    if twin.did_any(RevokePartitions):
        twin.wrong("must lose what it has, and not revoke it")
    lost = twin.did(LosePartitions)
    if leaving:
        if lost or any(isinstance(call, LeaveRequested) for call in twin.calls.values()):
            twin.wrong("was leaving: it has left, and loses nothing")
    elif assigned is not None and [effect.partitions for effect in lost] != [assigned] * bool(assigned):
        twin.wrong(f"must lose {assigned}")
    if lost:
        twin.tell(ListenerDone(lost[0].token, None))
        if twin.member.view().assigned or twin.effects:
            twin.wrong("lost everything, and must be done")


def expect_end(twin: Twin, error: Kip848Error, rng: random.Random) -> None:
    """R7, R50, R116: nothing leads out of FATAL, nothing is sent, and nobody waits in vain."""
    if not twin.waits_for_answer(OffsetCommitRequest) and any(
        isinstance(call, CommitRequested) for call in twin.calls.values()
    ):
        twin.wrong("stopped, and somebody waits for a commit that was never sent")
    calls: list[Callable[[], object]] = [
        lambda: _refused_commit(twin, error),
        lambda: _refused_question(twin, error),
        lambda: twin.tell(SubscriptionChanged(Subscription(frozenset({"orders"})))),
        lambda: twin.tell(AppPolled()),
        lambda: twin.wait(_FOREVER_MS),
        lambda: _leaves_at_once(twin, closing=False),
    ]
    rng.shuffle(calls)
    for call in calls:
        call()
        if twin.did_any(SendRequest) or twin.did_any(StateChanged) or not twin.is_in(*_STOPPED):
            twin.wrong("stopped, and must do nothing")
    _leaves_at_once(twin, closing=True)


_STOPPED: Final = frozenset({Phase.FATAL_RELEASE, Phase.FATAL_DONE})


def _refused_commit(twin: Twin, error: Kip848Error) -> None:
    number = twin.next_number()
    offsets = {TopicPartition("orders", 0): OffsetAndMetadata(1, 0)}
    asynchronous = twin.asynchronous
    twin.tell(CommitRequested(number, offsets, CommitKind.SYNC, twin.now_ms + _FOREVER_MS))
    done = [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    if not done and asynchronous:
        return
    if not done or done[0].error is None or done[0].error.__cause__ is not error:
        twin.wrong(f"stopped, and must refuse a commit because of {error!r}")


def _refused_question(twin: Twin, error: Kip848Error) -> None:
    number = twin.next_number()
    asked = frozenset({TopicPartition("a twin asks", 0)})
    twin.tell(FetchOffsetsRequested(number, asked, twin.now_ms + _FOREVER_MS))
    done = [effect for effect in twin.did(OffsetsFetched) if effect.fetch_id == number]
    if not done or done[0].error is not error or done[0].offsets:
        twin.wrong(f"stopped, and must refuse committed() with {error!r}")


def _leaves_at_once(twin: Twin, *, closing: bool) -> None:
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _FOREVER_MS, closing=closing))
    if [effect.leave_id for effect in twin.did(LeaveDone)] != [number] or twin.member.view().assigned:
        twin.wrong("stopped, and must close at once")


def _is_told(twin: Twin, beat: SendRequest, rng: random.Random) -> None:
    """R49: a topic without permission is told once in a while, and costs nothing."""
    if _heard(twin, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        return
    before = twin.member.view()
    refuse(twin, beat, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    told = [effect.error for effect in twin.did(SurfaceError)]
    wanted = tuple(sorted(twin.subscription.topics)) if not twin.is_in(Phase.LEAVE_REVOKING) else None
    good = len(told) == len(twin.effects) == 1 and isinstance(told[0], TopicAuthorizationError)
    if not good or REASON not in str(told[0]) or twin.member.view() is not before:
        twin.wrong("must tell that a topic is forbidden, and go on")
    if wanted is not None and told[0].topics != wanted:  # type: ignore[attr-defined]
        twin.wrong(f"must name the topics {wanted}")
    began_ms = twin.now_ms
    pause_ms = max(5_000, twin.member.snapshot().heartbeat_interval_ms)
    while twin.now_ms - began_ms < pause_ms:
        twin.wait(twin.longest_backoff_ms)
        again = heartbeat_of(twin)
        if again is None or twin.sent_on(again.request_id) != twin.link:
            return
        refuse(twin, again, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        late = twin.now_ms - began_ms >= pause_ms
        if len([one for one in twin.did(SurfaceError) if isinstance(one.error, TopicAuthorizationError)]) != late:
            twin.wrong(f"must tell again after {pause_ms} ms, now {twin.now_ms - began_ms} ms are over")


def _heard(twin: Twin, code: int) -> bool:
    return code in twin.codes


def ask_about_silence(twin: Twin, rng: random.Random) -> bool:
    """R23, R54: no answer, one that cannot be read, or a refusal of who asks."""
    beat = heartbeat_of(twin)
    if beat is None:
        return False
    kind = rng.choice(list(FailureKind))
    before, node = twin.member.view(), twin.member.coordinator
    current = twin.sent_on(beat.request_id) == twin.link
    leaving = twin.is_in(Phase.LEAVE_REVOKING)
    twin.tell(RequestFailed(beat.request_id, kind, REASON))
    if kind in {FailureKind.AUTHENTICATION_FAILED, FailureKind.UNSUPPORTED_VERSION}:
        error = expect_refused_connection(twin, kind)
        _expect_lost(twin, before.assigned if not before.awaiting_app else None, leaving=leaving)
        expect_end(twin, error, rng)
        return True
    told = [effect.error for effect in twin.did(SurfaceError)]
    if twin.member.view() is not before or twin.did_any(Fail):
        twin.wrong("must keep everything when an answer does not come")
    if kind is FailureKind.MALFORMED:
        if len(told) != 1 or not isinstance(told[0], ProtocolError) or REASON not in str(told[0]):
            twin.wrong("must tell of an answer that cannot be read")
    elif told:
        twin.wrong("must tell nobody of what passes")
    if current and node is not None:
        if twin.member.coordinator is not None:
            twin.wrong("must look for the coordinator when its connection is of no use")
        began_ms = twin.now_ms
        find_again(twin)
        if twin.now_ms < began_ms + twin.least_backoff_ms and twin.asked(ConsumerGroupHeartbeatRequest):
            twin.wrong("repeats a heartbeat before its back-off is over")
        if not twin.asked(ConsumerGroupHeartbeatRequest):
            twin.wait(twin.longest_backoff_ms)
        _expect_full(twin, epoch=max(0, before.member_epoch))
    return True


def expect_refused_connection(twin: Twin, kind: FailureKind) -> Kip848Error:
    """R25: a member without credentials, or without a common version, stops."""
    if kind is FailureKind.UNSUPPORTED_VERSION:
        return expect_fatal(twin, ErrorCode.UNSUPPORTED_VERSION, REASON)
    failed = twin.did(Fail)
    if len(failed) != 1 or not isinstance(failed[0].error, AuthenticationError) or REASON not in str(failed[0].error):
        twin.wrong("must stop: nobody believes who it is")
    return failed[0].error


def ask_about_a_strange_answer(twin: Twin, rng: random.Random) -> bool:
    """R15, R28: epochs and intervals that make no sense."""
    beat = heartbeat_of(twin)
    if beat is None or twin.is_in(Phase.LEAVE_REVOKING):
        return False
    view, before = twin.member.view(), twin.member.snapshot()
    if rng.random() < 0.5:
        answer = ConsumerGroupHeartbeatResponse(member_epoch=rng.choice((0, -1, -2)), heartbeat_interval_ms=3_000)
        twin.tell(ResponseReceived(beat.request_id, answer))
        if twin.member.view() is not view or twin.effects:
            twin.wrong("must not take an epoch below 1 for a membership")
        expect_repetition(twin)
        return True
    interval_ms = rng.choice((0, -1, 7_000, 700))
    epoch = max(1, before.member_epoch)
    answer = ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=interval_ms)
    twin.tell(ResponseReceived(beat.request_id, answer))
    known_ms = before.heartbeat_interval_ms if twin.confirmed else 0
    counted_ms = interval_ms if interval_ms > 0 else known_ms or 5_000
    if twin.member.snapshot().heartbeat_interval_ms != counted_ms:
        twin.wrong(f"was told {interval_ms} ms, and must count with {counted_ms} ms")
    if before.phase is Phase.JOINING and not twin.is_in(Phase.IN_SYNC):
        twin.wrong("joined without an assignment, and must be STABLE")  # R14
    if not twin.asked(ConsumerGroupHeartbeatRequest) and counted_ms != before.heartbeat_interval_ms:
        _expect_next_after(twin, counted_ms)
    return True


def _expect_next_after(twin: Twin, interval_ms: int) -> None:
    """R27, R28: a new interval begins with the answer that brought it."""
    if twin.member.coordinator is None or not twin.is_in(Phase.IN_SYNC) or twin.config.client_assignors:
        return
    twin.wait(interval_ms - 1)
    if twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong(f"must send a heartbeat after {interval_ms} ms, and not before")
    twin.wait(1)
    if len(twin.asked(ConsumerGroupHeartbeatRequest)) != 1 and twin.is_in(*HEARTBEATING):
        twin.wrong(f"must send a heartbeat after {interval_ms} ms")
