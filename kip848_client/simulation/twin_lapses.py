"""What a member would do if its application did not poll in time, or left inside a call; or if it were removed again.

R34, R61, R62, R83, R125 to R131 of docs/protocol.md. Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.errors import ErrorCode, MaxPollExceededError
from kip848_client.member.events import (
    AppPolled,
    AssignPartitions,
    Fail,
    FailureKind,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    LosePartitions,
    RequestFailed,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    SurfaceError,
    Tick,
)
from kip848_client.member.leaving import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.member.states import IN_GROUP, MemberState, Phase
from kip848_client.model import NO_EPOCH, TopicIdPartition
from kip848_client.simulation.twin_heartbeats import REASON, REMOVED, heartbeat_of, refuse
from kip848_client.simulation.twin_targets import answer
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_LIMIT_MS: Final = 3_600_000
_REMOVALS: Final = 3
_INTERVAL_MS: Final = 100_000


def ask_about_a_lapse(twin: Twin, rng: random.Random) -> bool:
    """R125 to R130: nobody polls any more. False if the member is in no group, or in a call of its listener."""
    member = twin.member
    if not twin.is_in(*IN_GROUP, Phase.JOINING) or member.view().awaiting_app or twin.closing:
        return False
    twin.wait(0)
    if twin.member.view().awaiting_app or not twin.is_in(*IN_GROUP, Phase.JOINING):
        return True
    polled_ms, limit_ms = twin.now_ms, twin.config.max_poll_interval_ms
    twin.tell(Tick(polled_ms), at_ms=polled_ms + limit_ms)
    before = member.view()
    if not twin.is_in(*IN_GROUP, Phase.JOINING):
        twin.wrong(f"was polled {limit_ms} ms ago, which is in time, and must not leave")
    due_ms = member.deadline_ms()
    if due_ms is None or due_ms > twin.now_ms + 1:
        twin.wrong(f"must leave at {twin.now_ms + 1}, and wants to be woken at {due_ms}")
    connected, before_it = member.coordinator is not None, heartbeat_of(twin)
    twin.tell(Tick(polled_ms), at_ms=twin.now_ms + 1)
    token = _expect_lapse(twin, before.assigned, leaves=connected)
    if before_it is not None:
        _is_not_heard(twin, before_it, rng)
    if token is not None:
        rng.choice((_polls_inside, _polls_after, _leaves_inside))(twin, token, rng)
    else:
        _expect_join_by_poll(twin)
    return True


def _expect_lapse(twin: Twin, assigned: frozenset[TopicIdPartition], *, leaves: bool) -> int | None:
    """R125, R130: it leaves, loses everything, and says why. Returns the number of the listener call."""
    told = [effect.error for effect in twin.did(SurfaceError)]
    limit_ms = twin.config.max_poll_interval_ms
    numbers = (f"for {limit_ms + 1} ms", f"is {limit_ms}:", twin.config.group_id)
    if len(told) != 1 or not isinstance(told[0], MaxPollExceededError) or not all(it in str(told[0]) for it in numbers):
        twin.wrong(f"must tell that poll() was not called in time: {numbers}")
    view = twin.member.view()
    if view.readable or view.member_epoch != NO_EPOCH or twin.did_any(RevokePartitions):
        twin.wrong("left the group, and must read nothing, and revoke nothing")
    calls = twin.did(LosePartitions)
    if [effect.partitions for effect in calls] != [assigned] * bool(assigned):
        twin.wrong(f"must lose {sorted(map(str, assigned))}")
    state = MemberState.RELEASING_ASSIGNMENT if assigned else MemberState.UNJOINED
    if view.state is not state or not view.poll_wanted:
        twin.wrong(f"must be {state.name}, and want to be polled")
    static = twin.config.instance_id is not None
    bare = ConsumerGroupHeartbeatRequest(
        group_id=twin.config.group_id,
        member_id=twin.config.member_id if not view.member_id else view.member_id,
        member_epoch=STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH,
        instance_id=twin.config.instance_id,
    )
    sent = twin.asked(ConsumerGroupHeartbeatRequest)
    if [one.request for one in sent] != [bare] * leaves:
        twin.wrong(f"must leave with {bare}")
    if sent:  # R126
        code = twin.next_number() % 2 * ErrorCode.UNKNOWN_MEMBER_ID
        twin.tell(
            ResponseReceived(sent[0].request_id, ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=-1))
        )
        if twin.effects or twin.member.view() is not view:
            twin.wrong("left, and the answer to that changes nothing")
    return calls[0].token if calls else None


def _is_not_heard(twin: Twin, late: SendRequest, rng: random.Random) -> None:
    """R126: nor does what becomes of the heartbeat of before disturb anybody."""
    view = twin.member.view()
    if rng.random() < 0.5:
        twin.tell(RequestFailed(late.request_id, rng.choice(list(FailureKind)), REASON))
        if twin.did_any(Fail, SurfaceError):
            twin.wrong("left, and must not mind that a heartbeat of before failed")
    else:
        refuse(twin, late, rng.choice((0, ErrorCode.GROUP_AUTHORIZATION_FAILED, *REMOVED)))
    if twin.member.view() is not view or twin.did_any(Fail, SurfaceError, LosePartitions):
        twin.wrong("left, and must not mind what becomes of a heartbeat of before")


def _polls_inside(twin: Twin, token: int, rng: random.Random) -> None:
    """The application polls again before its listener returned."""
    twin.tell(AppPolled())
    if twin.effects or twin.member.view().poll_wanted:
        twin.wrong("was polled, and waits for its listener")
    twin.wait(rng.randint(0, 10_000))
    if twin.asked(ConsumerGroupHeartbeatRequest) or not twin.is_in(Phase.STALE_RELEASE):
        twin.wrong("must be silent while it loses what it had")
    twin.tell(ListenerDone(token, None if rng.random() < 0.5 else ValueError(REASON)))
    _expect_join(twin)


def _polls_after(twin: Twin, token: int, rng: random.Random) -> None:
    twin.tell(ListenerDone(token, None if rng.random() < 0.5 else ValueError(REASON)))
    twin.wait(rng.randint(0, 10_000))
    if twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("must be silent until poll()")
    _expect_join_by_poll(twin)


def _expect_join_by_poll(twin: Twin) -> None:
    if not twin.is_in(Phase.AWAITING_POLL) or twin.member.view().assigned or not twin.member.view().poll_wanted:
        twin.wrong("must wait for poll(), with nothing")
    twin.tell(AppPolled())
    _expect_join(twin)


def _leaves_inside(twin: Twin, token: int, rng: random.Random) -> None:
    """R62: unsubscribe() or close() inside the call."""
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _LIMIT_MS, closing=rng.random() < 0.5))
    if [effect.leave_id for effect in twin.did(LeaveDone)] != [number] or twin.member.view().assigned:
        twin.wrong("left already: it must return at once, with nothing")
    if twin.did_any(LosePartitions):
        twin.wrong("loses already what it had, and must not lose it once more")
    twin.tell(ListenerDone(token, None))
    twin.tell(AppPolled())
    if not twin.is_in(Phase.IDLE) or twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("wants nothing any more, and must not join")


def _expect_join(twin: Twin) -> None:
    """R10: with epoch 0, as who it was."""
    if not twin.is_in(Phase.JOINING) or twin.member.view().assigned:
        twin.wrong("must join again, with nothing")
    if twin.member.coordinator is None:
        return
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(twin.longest_backoff_ms)
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    subscription = twin.subscription
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must join again")
    said = (beats[0].member_epoch, beats[0].topic_partitions, beats[0].subscribed_topic_names)
    if said != (0, (), tuple(sorted(subscription.topics))):
        twin.wrong("must join with epoch 0, with nothing, and say what it wants")


def ask_about_removals(twin: Twin, rng: random.Random) -> bool:
    """R34, R57, R58: removed, and removed again before any heartbeat of its new life worked. False if it owns any."""
    beat, member = heartbeat_of(twin), twin.member
    fresh = twin.is_in(Phase.IN_SYNC) and not member.view().assigned
    if beat is None or not fresh or twin.sent_on(beat.request_id) != twin.link or twin.closing:
        return False
    if twin.config.client_assignors:
        return False  # they are described first
    answer(twin, epoch=member.view().member_epoch)
    twin.wait(_INTERVAL_MS)
    beat = heartbeat_of(twin)
    if beat is None or not twin.is_in(Phase.IN_SYNC):
        return True
    for removals in range(1, 1 + _REMOVALS):
        refuse(twin, beat, rng.choice(REMOVED))
        if not twin.is_in(Phase.JOINING) or member.coordinator is None:
            twin.wrong("was removed with nothing, and must join again")
        sent = twin.asked(ConsumerGroupHeartbeatRequest)
        if bool(sent) != (removals == 1):
            twin.wrong(f"was removed {removals} times in a row, and must wait before all joins but the first")
        if not sent:
            least_ms = int(0.8 * min(twin.config.retry_backoff_ms * 2 ** (removals - 2), twin.longest_backoff_ms))
            if least_ms > 1:
                twin.wait(least_ms - 1)
                if twin.asked(ConsumerGroupHeartbeatRequest):
                    twin.wrong(f"joins again within {least_ms} ms, after {removals} removals")
            twin.wait(least_ms // 2 + 2)  # 1.2 / 0.8
            sent = twin.asked(ConsumerGroupHeartbeatRequest)
        if len(sent) != 1 or sent[0].request.member_epoch != 0:  # type: ignore[attr-defined]
            twin.wrong("must join with epoch 0")
        beat = sent[0]
    return True


def ask_about_a_leave_in_a_call(twin: Twin, rng: random.Random) -> bool:
    """R83, R131: the application leaves inside a call of its listener. False unless there is one."""
    member, call = twin.member, twin.listener
    if not twin.is_in(Phase.REVOKING, Phase.ASSIGNING) or call is None or twin.closing:
        return False
    owned = member.view().assigned - (call.partitions if isinstance(call, RevokePartitions) else frozenset())
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _LIMIT_MS, closing=rng.random() < 0.5))
    calls = twin.did(RevokePartitions)
    if [one.partitions for one in calls] != [owned] * bool(owned) or twin.did_any(AssignPartitions, LosePartitions):
        twin.wrong(f"must revoke {sorted(map(str, owned))}")
    if not calls:
        return True
    _expect_named(twin, owned)
    twin.tell(ListenerDone(call.token, None))
    if twin.effects or not twin.is_in(Phase.LEAVE_REVOKING):
        twin.wrong("leaves: that the call which it was in returns changes nothing")
    twin.tell(ListenerDone(calls[0].token, None))
    if member.view().assigned or twin.is_in(Phase.LEAVE_REVOKING):
        twin.wrong("gave up everything, and must leave")
    return True


def _expect_named(twin: Twin, owned: frozenset[TopicIdPartition]) -> None:
    """Until its listener returned, a heartbeat that names partitions names all of its own."""
    beat = heartbeat_of(twin)
    if beat is not None:
        refuse(twin, beat, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if twin.member.coordinator is None:
        return
    if not twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wait(max(twin.longest_backoff_ms, twin.member.snapshot().heartbeat_interval_ms))
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must go on with its heartbeats until its listener returned")
    said = beats[0].topic_partitions
    named = None if said is None else {(topic.topic_id, index) for topic in said for index in topic.partitions}
    if named is not None and not {(tip.topic_id, tip.partition) for tip in owned} <= named:
        twin.wrong(f"must name all that it has: {sorted(map(str, owned))}")


def ask_about_a_lapse_in_a_call(twin: Twin, rng: random.Random) -> bool:
    """R62, R83, R128: a call of its listener takes too long, and it leaves inside of it, or not. False without one."""
    member, call = twin.member, twin.listener
    if not twin.is_in(Phase.REVOKING, Phase.ASSIGNING) or call is None or twin.closing:
        return False
    twin.wait(0)
    if not twin.is_in(Phase.REVOKING, Phase.ASSIGNING):
        return True
    owned, polled_ms = member.view().assigned, twin.now_ms
    twin.tell(Tick(polled_ms), at_ms=polled_ms + twin.config.max_poll_interval_ms + 1)
    if not twin.is_in(Phase.STALE_RELEASE) or twin.did_any(LosePartitions) or member.view().readable:
        twin.wrong("was not polled in time: it must read nothing, and wait for its listener")
    rest = owned - (call.partitions if isinstance(call, RevokePartitions) else frozenset())
    number = twin.next_number()
    leaves = rng.random() < 0.5
    twin.tell(LeaveRequested(number, twin.now_ms + _LIMIT_MS, closing=False) if leaves else ListenerDone(call.token))
    calls = twin.did(LosePartitions)
    if [one.partitions for one in calls] != [rest] * bool(rest) or twin.did_any(RevokePartitions):
        twin.wrong(f"must lose {sorted(map(str, rest))}")
    if leaves and ([one.leave_id for one in twin.did(LeaveDone)] != [number] or member.view().assigned):
        twin.wrong("left already: it must return at once, with nothing")
    if calls and not leaves and rng.random() < 0.5:
        _leaves_inside(twin, calls[0].token, rng)
        return True
    for token in (*([call.token] if leaves else []), *(one.token for one in calls)):
        twin.tell(ListenerDone(token, None))
    if not twin.is_in(Phase.IDLE if leaves else Phase.AWAITING_POLL):
        twin.wrong("must want nothing any more" if leaves else "must wait for poll()")
    return True


def ask_about_an_own_instance(twin: Twin, rng: random.Random) -> bool:
    """R144 to R146: removed, and refused as a second holder of its own instance id. False unless it is static."""
    beat, member, config = heartbeat_of(twin), twin.member, twin.config
    if beat is None or config.instance_id is None or twin.closing:
        return False
    if twin.is_in(Phase.JOINING) and not twin.confirmed and not twin.kinds and not any(twin.codes):
        if STATIC_LEAVE_EPOCH in _is_refused_again(twin):
            twin.wrong("was never let in: it cannot hold that instance id itself, and must not free it")
        return True
    if not twin.is_in(Phase.IN_SYNC):
        return False
    if twin.sent_on(beat.request_id) != twin.link or config.client_assignors:
        return False
    answer(twin, epoch=member.view().member_epoch)
    if heartbeat_of(twin) is None:
        twin.wait(_INTERVAL_MS)
    beat = heartbeat_of(twin)
    if beat is None or not twin.is_in(Phase.IN_SYNC):
        return True
    refuse(twin, beat, rng.choice(REMOVED))
    for call in twin.did(LosePartitions):
        twin.tell(ListenerDone(call.token, None))
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    said = _is_refused_again(twin)
    if said != [STATIC_LEAVE_EPOCH, 0] or twin.did_any(Fail, SurfaceError):
        twin.wrong("may hold its instance id itself: it must free that, and join again at once")
    began_ms, patience_ms = twin.now_ms, config.unreleased_instance_retry_ms
    if patience_ms:
        if _is_refused_again(twin) or twin.did_any(Fail):
            twin.wrong("freed its instance id once, and must wait for the one who has it")
        twin.wait(twin.longest_backoff_ms)
        twin.wait(began_ms + patience_ms - twin.now_ms)
    if _is_refused_again(twin) or not twin.did_any(Fail):
        twin.wrong("freed its instance id, and it is refused again: somebody else has it")
    return True


def _is_refused_again(twin: Twin) -> list[int]:
    """Somebody holds its instance id. Returns the epochs that it says to that."""
    beat = heartbeat_of(twin)
    if beat is None or not twin.is_in(Phase.JOINING):
        twin.wrong("must join again")
    refuse(twin, beat, ErrorCode.UNRELEASED_INSTANCE_ID)
    return [one.request.member_epoch for one in twin.asked(ConsumerGroupHeartbeatRequest)]  # type: ignore[attr-defined]
