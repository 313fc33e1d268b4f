"""What a member would do if its application left now, in each way, or wanted something else: R18, R63, R131 to R142.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.member.events import (
    AppPolled,
    CallAbandoned,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveMode,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    OffsetsListed,
    PausePartitions,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StartFetching,
    SubscriptionChanged,
    SurfaceError,
)
from kip848_client.member.leaving import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.member.states import IN_GROUP, MemberState, Phase
from kip848_client.model import NO_EPOCH, OffsetAndMetadata, Subscription, TopicIdPartition
from kip848_client.simulation.twin_heartbeats import REASON, heartbeat_of
from kip848_client.simulation.twin_offsets import answer_fetch, partitions_of
from kip848_client.simulation.twin_targets import answer
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

_LIMIT_MS: Final = 30_000
_INTERVAL_MS: Final = 1_000
_CODES: Final = (0, 25, 110, 69, 16, 14, 30)
_WISH: Final = Subscription(frozenset({"a twin wants"}))


def ask_about_a_leave(twin: Twin, rng: random.Random) -> bool:
    """R131 to R142: unsubscribe(), or close(). False if the member is not in a group, or on its way out."""
    member = twin.member
    if not twin.is_in(*IN_GROUP) or member.view().awaiting_app or twin.closing:
        return False
    before, mode, closing = member.view(), rng.choice(list(LeaveMode)), rng.random() < 0.5
    number, other, nobody = (twin.next_number() for _ in range(3))
    in_sync, until_ms = twin.is_in(Phase.IN_SYNC), twin.now_ms + _LIMIT_MS
    twin.tell(LeaveRequested(number, until_ms, mode, closing))
    if before.assigned:
        token = _expect_revoked(twin, before.assigned)
        twin.tell(LeaveRequested(other, until_ms + 1, closing=False))
        twin.tell(LeaveRequested(nobody, until_ms + 1, closing=False))
        twin.tell(CallAbandoned(nobody))
        if rng.random() < 0.4:
            _expect_no_start(twin)
        if in_sync and rng.random() < 0.4:
            _expect_nothing_new(twin)
        wish = _want_something_else(twin, rng)
        if twin.asked(ConsumerGroupHeartbeatRequest) or twin.did_any(LeaveDone) or member.view().readable:
            twin.wrong("must revoke first, read nothing, and then leave")
        twin.tell(ListenerDone(token, None if rng.random() < 0.7 else ValueError(REASON)))
        waiting = {number, other}
    else:
        waiting, wish = {number}, False
    _expect_leave(twin, mode, waiting, rng, until_ms=until_ms, wish=wish and not closing, before=before.assigned)
    return True


def _expect_revoked(twin: Twin, assigned: frozenset[TopicIdPartition]) -> int:
    """R131. Returns the number of the listener call."""
    pauses, revokes = twin.did(PausePartitions), twin.did(RevokePartitions)
    if [one.partitions for one in pauses] != [assigned] or [one.partitions for one in revokes] != [assigned]:
        twin.wrong(f"must pause and revoke {sorted(map(str, assigned))}")
    if twin.did_any(LosePartitions) or twin.effects.index(pauses[0]) > twin.effects.index(revokes[0]):
        twin.wrong("must pause before it revokes, and lose nothing")
    return revokes[0].token


def _expect_no_start(twin: Twin) -> None:
    """R131: what was asked for, to know where to start, is of no use any more."""
    asking = any(isinstance(call, FetchOffsetsRequested) for call in twin.calls.values())
    for sent in twin.waits_for_answer(OffsetFetchRequest):
        answer_fetch(twin, sent, found=dict.fromkeys(partitions_of(sent), OffsetAndMetadata(3, 1)))
        if twin.did_any(StartFetching, ListOffsets) or (twin.did_any(SendRequest) and not asking):
            twin.wrong("leaves, and must begin to read nothing")
    for listed in twin.waits_for(ListOffsets):
        twin.tell(OffsetsListed(listed.request_id, dict.fromkeys(listed.timestamps, OffsetAndMetadata(3, 1)), {}))
        if twin.effects:
            twin.wrong("leaves, and must begin to read nothing")


def _expect_nothing_new(twin: Twin) -> None:
    """R29, R131: it goes on with its heartbeats while its listener runs, and says only what is new."""
    beat, epoch = heartbeat_of(twin), twin.member.view().member_epoch
    if beat is None or twin.sent_on(beat.request_id) != twin.link or twin.member.coordinator is None:
        return
    answered = ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=_INTERVAL_MS, should_compute_assignment=True
    )
    twin.tell(ResponseReceived(beat.request_id, answered))
    if twin.asked(ConsumerGroupPrepareAssignmentRequest):
        twin.wrong("leaves, and must compute for nobody")
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(_INTERVAL_MS)
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest) or beats[0].member_epoch != epoch:
        twin.wrong("must go on with its heartbeats until its listener returned")
    if beats[0].topic_partitions is not None:
        twin.wrong("repeats what the coordinator knows")


def _want_something_else(twin: Twin, rng: random.Random) -> bool:
    """R137: after the leave; unless it is taken back."""
    twin.tell(SubscriptionChanged(_WISH))
    if rng.random() < 0.5:
        return True
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _LIMIT_MS, closing=False))
    twin.tell(CallAbandoned(number))
    return False


def _expect_leave(
    twin: Twin,
    mode: LeaveMode,
    waiting: set[int],
    rng: random.Random,
    *,
    until_ms: int,
    wish: bool,
    before: frozenset[TopicIdPartition],
) -> None:
    member, static = twin.member, twin.config.instance_id is not None
    sent = twin.asked(ConsumerGroupHeartbeatRequest)
    epoch = STATIC_LEAVE_EPOCH if static and mode is not LeaveMode.LEAVE_GROUP else LEAVE_EPOCH
    silent = (mode is LeaveMode.REMAIN_IN_GROUP and not static) or member.coordinator is None
    view = member.view()
    if view.assigned or view.member_epoch != NO_EPOCH or view.state is not MemberState.UNJOINED:
        twin.wrong("must have left, with nothing")
    if member.snapshot().member_epoch != (LEAVE_EPOCH if silent else epoch):
        twin.wrong(f"left with {epoch}, and counts {member.snapshot().member_epoch}")
    if silent:
        if sent or {effect.leave_id for effect in twin.did(LeaveDone)} != waiting:
            twin.wrong("must leave without a word")
    else:
        bare = ConsumerGroupHeartbeatRequest(
            group_id=twin.config.group_id,
            member_id=view.member_id,
            member_epoch=epoch,
            instance_id=twin.config.instance_id,
        )
        if [one.request for one in sent] != [bare] or twin.did_any(LeaveDone):
            twin.wrong(f"must leave with {bare}, and wait for the answer")
        if rng.random() < 0.3:  # R137: after the leave, and that is over with its answer
            twin.tell(SubscriptionChanged(_WISH))
            wish = not twin.closing
            if twin.effects or member.view().poll_wanted or not twin.is_in(Phase.IDLE):
                twin.wrong("must have left before it does what is wanted now")
        _end(twin, sent[0], waiting, rng, until_ms=until_ms)
    if member.phase is not (Phase.WAIT_FIRST_POLL if wish else Phase.IDLE) or twin.did_any(SurfaceError):
        twin.wrong("must do what was wanted while it left, and nothing else")
    if wish:
        _expect_join(twin)
        _expect_run(twin, before)
    elif sent and twin.did_any(LeaveDone) and sent[0] in twin.waits_for(SendRequest) and not twin.closing:
        _leaves_again(twin, sent[0])


def _expect_run(twin: Twin, before: frozenset[TopicIdPartition]) -> None:
    """R63: what it had before it left is new to it."""
    if heartbeat_of(twin) is None or twin.config.client_assignors:
        return
    answer(twin, epoch=5, target=before)
    if twin.member.view().state is not MemberState.RECONCILING or twin.member.view().assigned:
        twin.wrong(f"has nothing, and must take {sorted(map(str, before))}")
    if {topic_id for one in twin.did(RequestMetadata) for topic_id in one.topic_ids} != {
        tip.topic_id for tip in before
    }:
        twin.wrong("must ask for the names of its topics")


def _leaves_again(twin: Twin, late: SendRequest) -> None:
    """R135: the answer to a leave that nobody waits for any more is not that to the next one."""
    twin.tell(SubscriptionChanged(_WISH))
    _expect_join(twin)
    beat = heartbeat_of(twin)
    if beat is None:
        return
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _LIMIT_MS, closing=False))
    sent = twin.asked(ConsumerGroupHeartbeatRequest)
    if len(sent) != 1:
        twin.wrong("must leave")
    answer = ConsumerGroupHeartbeatResponse(member_epoch=-1)
    twin.tell(ResponseReceived(late.request_id, answer))
    if twin.effects:
        twin.wrong("must wait for the answer to its own leave, not to the one before")
    twin.tell(ResponseReceived(sent[0].request_id, answer))
    if [effect.leave_id for effect in twin.did(LeaveDone)] != [number]:
        twin.wrong("has left")


def _end(twin: Twin, leave: SendRequest, waiting: set[int], rng: random.Random, *, until_ms: int) -> None:
    """R134, R135: its own answer ends it, none, or the deadline."""
    choice = rng.random()
    if choice < 0.5:
        response = ConsumerGroupHeartbeatResponse(error_code=rng.choice(_CODES), member_epoch=-1)
        twin.tell(ResponseReceived(leave.request_id, response))
    elif choice < 0.7:
        twin.tell(RequestFailed(leave.request_id, rng.choice(list(FailureKind)), REASON))
    else:
        twin.wait(until_ms - 1 - twin.now_ms)
        if twin.did_any(LeaveDone):
            twin.wrong("must wait for the answer to its leave until the deadline")
        twin.wait(1)
    if {effect.leave_id for effect in twin.did(LeaveDone)} != waiting or len(twin.did(LeaveDone)) != len(waiting):
        twin.wrong(f"must end the calls {waiting}")
    if twin.did_any(LosePartitions) or twin.did_any(RevokePartitions):
        twin.wrong("has given up everything")


def _expect_join(twin: Twin) -> None:
    """R3, R10, R11: inside the next poll(), with everything, as who it was."""
    if not twin.member.view().poll_wanted:
        twin.wrong("must join inside the next poll()")
    twin.tell(AppPolled())
    if not twin.is_in(Phase.JOINING):
        twin.wrong("must join inside poll()")
    if twin.member.coordinator is None:
        return
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.longest_backoff_ms)
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must join")
    beat = beats[0]
    said = (beat.member_id, beat.member_epoch, beat.subscribed_topic_names, beat.subscribed_topic_regex)
    wanted = (twin.member.view().member_id, 0, tuple(sorted(_WISH.topics)), "")
    if said != wanted or beat.topic_partitions != () or beat.rebalance_timeout_ms != twin.config.rebalance_timeout_ms:
        twin.wrong(f"must join with {wanted}")


def ask_about_a_wish(twin: Twin, rng: random.Random) -> bool:
    """R18, R19, R30: other topics, or a pattern, are told at once, and once; both halves together."""
    member = twin.member
    if not twin.is_in(*IN_GROUP) or member.coordinator is None or twin.closing or heartbeat_of(twin) is not None:
        return False
    if member.deadline_ms() == twin.now_ms:
        return False
    wish = rng.choice((_WISH, Subscription(pattern="a twin.*")))
    view = member.view()
    twin.tell(SubscriptionChanged(Subscription(twin.subscription.topics, twin.subscription.pattern)))
    if twin.effects:
        twin.wrong("must not repeat what it wants")
    twin.tell(SubscriptionChanged(wish))
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.longest_backoff_ms)  # a back-off comes first
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must say at once what it wants")
    said = (beats[0].subscribed_topic_names, beats[0].subscribed_topic_regex, beats[0].member_epoch)
    wanted = (tuple(sorted(wish.topics)), wish.pattern or "", view.member_epoch)
    if said != wanted or member.view().assigned != view.assigned:
        twin.wrong(f"must say {wanted}, and keep what it has")
    beat = heartbeat_of(twin)
    assert beat is not None
    twin.tell(SubscriptionChanged(Subscription(frozenset({"a twin wants later"}))))
    if twin.effects:
        twin.wrong("must not have two heartbeats under way")
    answer = ConsumerGroupHeartbeatResponse(member_epoch=view.member_epoch, heartbeat_interval_ms=100_000)
    twin.tell(ResponseReceived(beat.request_id, answer))
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or beats[0].subscribed_topic_names != ("a twin wants later",):  # type: ignore[attr-defined]
        twin.wrong("must say what it wants as soon as the answer came")
    return True
