"""What a member would do with another target, from the answer that brings it to the last acknowledgement: R64 to R86.

Part of the target is given up, part of it is new; one of the new topics has a name at once, the other later. Asked of
twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final
from uuid import UUID

from kip848_client.member.events import (
    AppPolled,
    AssignPartitions,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MetadataUpdated,
    PausePartitions,
    PositionLost,
    PositionSet,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    StartFetching,
)
from kip848_client.member.member import MemberSnapshot
from kip848_client.member.positions import LATEST_TIMESTAMP
from kip848_client.member.states import MemberState, Phase
from kip848_client.model import OffsetAndMetadata, TopicIdPartition
from kip848_client.simulation.twin_commits import answer_commit, positions_of
from kip848_client.simulation.twin_heartbeats import REASON, heartbeat_of
from kip848_client.simulation.twin_offsets import RESETS
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

_SOON: Final = UUID(int=0xA)
_LATE: Final = UUID(int=0xB)
_NAMES: Final = {_SOON: "a twin's", _LATE: "a twin's, later"}
_ONLY_LESS: Final = 0.4
"""Of the targets, those that give nothing new."""
_INTERVAL_MS: Final = 100_000
"""So that no heartbeat is due meanwhile."""

_Tips = frozenset[TopicIdPartition]


def ask_about_a_target(twin: Twin, rng: random.Random) -> bool:
    """R64 to R86. False if this is no moment for it."""
    member, view, beat = twin.member, twin.member.view(), heartbeat_of(twin)
    if not twin.is_in(Phase.IN_SYNC) or beat is None or member.coordinator is None or twin.closing:
        return False
    if twin.config.client_assignors or twin.calls or twin.waits_for_answer(OffsetCommitRequest):
        return False
    if twin.sent_on(beat.request_id) != twin.link or twin.waits_for_answer(OffsetFetchRequest):
        return False
    if view.readable != {tip.topic_partition for tip in view.assigned} or twin.waits_for(RequestMetadata):
        return False
    owned = view.assigned
    kept = frozenset(tip for tip in sorted(owned) if rng.random() < 0.5)
    soon = frozenset(TopicIdPartition(_NAMES[_SOON], index, _SOON) for index in range(2) if rng.random() < 0.8)
    late = frozenset(TopicIdPartition(_NAMES[_LATE], index, _LATE) for index in range(1) if rng.random() < 0.4)
    if rng.random() < _ONLY_LESS:
        soon = late = frozenset()
    if kept | soon | late == owned:
        return False
    epoch, before, began_ms = view.member_epoch + 1, member.snapshot(), twin.now_ms
    answer(twin, epoch=epoch, target=kept | soon | late)
    if member.view().state is not MemberState.RECONCILING or member.view().readable != view.readable:
        twin.wrong("must be RECONCILING, and read on until poll()")
    if twin.asked(ConsumerGroupHeartbeatRequest):
        return True  # another one was waiting for the answer
    if not soon and not late and rng.random() < 0.4:
        _comes_back(twin, owned, epoch=epoch)
        return True
    if not soon and not late and rng.random() < 0.8:
        _stays(twin, owned, revoked=owned - kept, epoch=epoch, rng=rng)
        return True
    if soon or late:
        if kept != owned and rng.random() < 0.2:
            _waits_no_longer(twin)
            return True
        _expect_names(twin, soon, late)
    if not soon and kept == owned:
        return True
    if not member.view().poll_wanted:
        twin.wrong("must want to be polled")
    _poll(twin, owned=owned, revoked=owned - kept, rng=rng)
    _revoke(twin, revoked=owned - kept, kept=kept, rng=rng)
    _assign(twin, kept=kept, added=soon, rng=rng)
    _acknowledge(twin, kept | soon, epoch=epoch, whole=not late)
    _expect_counted(twin, before, latency_ms=twin.now_ms - began_ms)
    if owned - kept and not late and rng.random() < 0.5:
        _returns(twin, had=kept | soon, back=owned - kept, epoch=epoch + 1)
    if late:
        _later(twin, had=kept | soon, late=late, epoch=epoch)
    return True


def _comes_back(twin: Twin, owned: _Tips, *, epoch: int) -> None:
    """R43, R77: what it has is wanted again before it gave anything up; acknowledged at once, without a callback."""
    twin.wait(_INTERVAL_MS)
    if heartbeat_of(twin) is None or twin.member.coordinator is None:
        return
    answer(twin, epoch=epoch, target=owned)
    if twin.did_any(RevokePartitions, AssignPartitions, LosePartitions, PausePartitions):
        twin.wrong("must call nobody: it has what it shall have")
    _acknowledge(twin, owned, epoch=epoch, whole=True)


def _stays(twin: Twin, owned: _Tips, *, revoked: _Tips, epoch: int, rng: random.Random) -> None:
    """R84: its listener raised when it was to give something up, and then it may keep that: it is read on."""
    sought, place = min(revoked).topic_partition, rng.randrange(3)
    looks_for = None
    if place == 1:
        looks_for = LATEST_TIMESTAMP
        twin.tell(PositionSet(sought, OffsetAndMetadata(looks_for)))
    elif place == 2 and twin.config.auto_offset_reset in RESETS:
        looks_for = RESETS[twin.config.auto_offset_reset]
        twin.tell(PositionSet(sought, OffsetAndMetadata(12)))
        twin.tell(PositionLost(sought, OffsetAndMetadata(12)))
    _poll(twin, owned=owned, revoked=revoked, rng=rng)
    calls = twin.did(RevokePartitions)
    if [one.partitions for one in calls] != [revoked]:
        twin.wrong(f"must revoke {sorted(map(str, revoked))}")
    if not may_keep(twin, calls[0], owned, epoch=epoch):
        return
    if twin.member.view().readable != {tip.topic_partition for tip in owned}:
        twin.wrong("must read again what it keeps")
    begun = {tip: position for effect in twin.did(StartFetching) for tip, position in effect.positions.items()}
    for tip in revoked & begun.keys():
        if tip.topic_partition == sought and looks_for is not None:
            twin.wrong(f"must not start {tip} before it knows where that begins or ends")
        if begun[tip] != OffsetAndMetadata(7_000 + tip.partition, 0):
            twin.wrong(f"must read {tip} on from where its application is")
    listed = {key for one in twin.did(ListOffsets) for key, stamp in one.timestamps.items() if stamp == looks_for}
    if looks_for is not None and sought not in listed:
        twin.wrong(f"must look for {looks_for} of {sought}")


def may_keep(twin: Twin, call: RevokePartitions, owned: _Tips, *, epoch: int) -> bool:
    """The listener raises, and what it was to give up is the member's own again. False without a coordinator."""
    twin.tell(ListenerDone(call.token, ValueError(REASON)))
    twin.wait(_INTERVAL_MS)
    if heartbeat_of(twin) is None or twin.member.coordinator is None:
        return False
    answer(twin, epoch=epoch, target=owned)
    twin.tell(AppPolled())
    for commit in twin.asked(OffsetCommitRequest):
        answer_commit(twin, commit, 0)
    assigned = twin.did(AssignPartitions)
    if [one.partitions for one in assigned] != [frozenset()] or twin.did_any(RevokePartitions):
        twin.wrong("must call on_partitions_assigned, with nothing new")
    twin.tell(ListenerDone(assigned[0].token, None))
    return True


def answer(twin: Twin, *, epoch: int, target: _Tips | None = None) -> None:
    """The heartbeat that is under way is accepted."""
    beat = heartbeat_of(twin)
    assert beat is not None
    assignment = None if target is None else Assignment(topic_partitions=_wire(target))
    response = ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=_INTERVAL_MS, assignment=assignment
    )
    twin.tell(ResponseReceived(beat.request_id, response))


def _wire(partitions: _Tips) -> tuple[TopicPartitions, ...]:
    by_id: dict[UUID, list[int]] = {}
    for tip in sorted(partitions):
        by_id.setdefault(tip.topic_id, []).append(tip.partition)
    return tuple(TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in by_id.items())


def _waits_no_longer(twin: Twin) -> None:
    """R74: nobody answers who knows the names; what it shall give up waits for the longest back-off only."""
    twin.wait(twin.longest_backoff_ms - 1)
    _expect_patience(twin, "must wait for the names of what is new, for the longest back-off")
    twin.wait(1)
    if not twin.member.view().poll_wanted:
        twin.wrong("must not wait any longer with what it shall give up")


def _expect_names(twin: Twin, soon: _Tips, late: _Tips) -> None:
    """R74 to R76: the first answer is waited for; what it leaves out is asked for again, and holds up nothing."""
    wanted = {tip.topic_id for tip in soon | late}
    asked = twin.did(RequestMetadata)
    if [one.topic_ids for one in asked] != [wanted] or asked[0].timeout_ms != twin.config.request_timeout_ms:
        twin.wrong(f"must ask for the names of {wanted}")
    _expect_patience(twin, "must wait for the names of what is new")
    twin.wait(twin.longest_backoff_ms - 1)
    _expect_patience(twin, "must wait for the names of what is new, for the longest back-off")
    known = {tip.topic_id: tip.topic for tip in soon}
    strange = {UUID(int=0xC): _NAMES[_SOON]}  # nobody asked for that one, which has the name of another
    twin.tell(MetadataUpdated({**known, **strange}, asked[0].request_id))
    if not late and twin.did_any(RequestMetadata):
        twin.wrong("knows all names")
    if late:
        early = [*twin.did(RequestMetadata), *_asked_within(twin, twin.least_backoff_ms - 1)]
        if early:
            twin.wrong("asks again for a name before its back-off is over")
        twin.wait(twin.longest_backoff_ms)
        if [one.topic_ids for one in twin.did(RequestMetadata)] != [{_LATE}]:
            twin.wrong("must ask again for the name that it lacks")


def _asked_within(twin: Twin, for_ms: int) -> list[RequestMetadata]:
    twin.wait(for_ms)
    return twin.did(RequestMetadata)


def _expect_patience(twin: Twin, what: str) -> None:
    """No run begins now. Who commits by itself may want to be polled for that."""
    if twin.config.auto_commit_interval_ms is None and (twin.member.view().poll_wanted or twin.tell(AppPolled())):
        twin.wrong(what)


def _poll(twin: Twin, *, owned: _Tips, revoked: _Tips, rng: random.Random) -> None:
    """R67, R68, R121: pause, commit what was consumed, then revoke."""
    positions = {tip.topic_partition: OffsetAndMetadata(7_000 + tip.partition, 0) for tip in owned}
    twin.tell(AppPolled(positions))
    paused = [one.partitions for one in twin.did(PausePartitions)]
    if paused != [revoked] * bool(revoked):
        twin.wrong(f"must pause {sorted(map(str, revoked))}")
    if twin.member.view().readable != {tip.topic_partition for tip in owned - revoked}:
        twin.wrong("must read on what it keeps, and nothing else")
    commits = twin.asked(OffsetCommitRequest)
    if twin.config.auto_commit_interval_ms is None or not owned:
        if commits:
            twin.wrong("commits what nobody asked it to")
        return
    if len(commits) != 1 or twin.did_any(RevokePartitions) or twin.did_any(AssignPartitions):
        twin.wrong("must commit first what its application consumed")
    request = commits[0].request
    assert isinstance(request, OffsetCommitRequest)
    said = {
        (topic.topic_id, item.partition_index): item.committed_offset
        for topic in request.topics
        for item in topic.partitions
    }
    if said != {(tip.topic_id, tip.partition): 7_000 + tip.partition for tip in owned}:
        twin.wrong(f"must commit {positions}")
    answer_commit(twin, commits[0], 0)


def _revoke(twin: Twin, *, revoked: _Tips, kept: _Tips, rng: random.Random) -> None:
    """R69, R70, R84: what it gives up, once the listener agrees; again if that raised."""
    if not revoked:
        return
    calls = twin.did(RevokePartitions)
    if [one.partitions for one in calls] != [revoked] or twin.did_any(AssignPartitions) or twin.did_any(LosePartitions):
        twin.wrong(f"must revoke {sorted(map(str, revoked))}")
    if not twin.member.view().awaiting_app or twin.wait(1):
        twin.wrong("must wait for its listener")
    if rng.random() < 0.3:
        twin.tell(ListenerDone(calls[0].token, ValueError(REASON)))
        view = twin.member.view()
        if twin.did_any(AssignPartitions) or twin.asked(ConsumerGroupHeartbeatRequest) or not view.poll_wanted:
            twin.wrong("must acknowledge nothing after a listener that raised, and try again")
        if view.readable != {tip.topic_partition for tip in kept} or not revoked <= view.assigned:
            twin.wrong("must keep paused what its listener did not give up")
        twin.tell(AppPolled())
        commits = twin.asked(OffsetCommitRequest)
        if commits:
            twin.wrong("commits again what is committed")
        calls = twin.did(RevokePartitions)
        if [one.partitions for one in calls] != [revoked]:
            twin.wrong(f"must revoke {sorted(map(str, revoked))} once more")
    twin.tell(ListenerDone(calls[0].token, None))


def _assign(twin: Twin, *, kept: _Tips, added: _Tips, rng: random.Random) -> None:
    """R70, R71, R86: what is new, also if that is nothing; not read before the listener returned."""
    calls = twin.did(AssignPartitions)
    readable = {tip.topic_partition for tip in kept}
    if [one.partitions for one in calls] != [added] or twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong(f"must call on_partitions_assigned with {sorted(map(str, added))}, and acknowledge later")
    if twin.member.view().assigned != kept | added or twin.member.view().readable != readable:
        twin.wrong("must not read what its listener has not seen")
    if rng.random() < 0.3:
        twin.tell(ListenerDone(calls[0].token, ValueError(REASON)))
        if twin.did_any(AssignPartitions) or twin.asked(OffsetFetchRequest) or not twin.member.view().poll_wanted:
            twin.wrong("must try again in poll() after a listener that raised")
        if twin.member.view().readable != readable:
            twin.wrong("must not read what its listener refused")
        twin.tell(AppPolled())
        calls = twin.did(AssignPartitions)
        if [one.partitions for one in calls] != [added]:
            twin.wrong(f"must call on_partitions_assigned once more with {sorted(map(str, added))}")
    if added and rng.random() < 0.3:  # R98: an answer that is under way may be older than what is taken now
        partitions = frozenset(tip.topic_partition for tip in added)
        twin.tell(FetchOffsetsRequested(twin.next_number(), partitions, twin.now_ms + _INTERVAL_MS))
    twin.tell(ListenerDone(calls[0].token, None))
    if _looked_up(twin) != {(tip.topic_id, tip.partition) for tip in added} or twin.did_any(StartFetching):
        twin.wrong(f"must ask for the offsets of {sorted(map(str, added))}")
    if twin.member.view().readable != {tip.topic_partition for tip in kept | added}:
        twin.wrong("must read all that it has")


def _looked_up(twin: Twin) -> set[tuple[UUID, int]]:
    """What it asks the offsets of."""
    return {
        (topic.topic_id, index)
        for one in twin.asked(OffsetFetchRequest)
        for topic in one.request.groups[0].topics or ()  # type: ignore[attr-defined]
        for index in topic.partition_indexes
    }


def _acknowledge(twin: Twin, owned: _Tips, *, epoch: int, whole: bool) -> None:
    """R5, R72: at once, with the newest epoch, and what it has."""
    beats = [one.request for one in twin.asked(ConsumerGroupHeartbeatRequest)]
    if len(beats) != 1 or not isinstance(beats[0], ConsumerGroupHeartbeatRequest):
        twin.wrong("must acknowledge at once")
    said = beats[0].topic_partitions
    listed = None if said is None else {(topic.topic_id, index) for topic in said for index in topic.partitions}
    if listed != {(tip.topic_id, tip.partition) for tip in owned} or beats[0].member_epoch != epoch:
        twin.wrong(f"must acknowledge {sorted(map(str, owned))}")
    if beats[0].subscribed_topic_names is not None or beats[0].rebalance_timeout_ms != -1:
        twin.wrong("repeats what the coordinator knows")
    state = MemberState.STABLE if whole else MemberState.RECONCILING
    if twin.member.view().state is not state:
        twin.wrong(f"must be {state.name} once that heartbeat is built")


def _later(twin: Twin, *, had: _Tips, late: _Tips, epoch: int) -> None:
    """R74, R78, R81: the rest follows in a run of its own, when the heartbeat before is answered."""
    asked = twin.waits_for(RequestMetadata)
    if not asked:
        twin.wait(twin.longest_backoff_ms)
        asked = twin.waits_for(RequestMetadata)
    if not asked:
        twin.wrong("must ask for the name that it lacks")
    twin.tell(MetadataUpdated({_LATE: _NAMES[_LATE]}, asked[0].request_id))
    _expect_patience(twin, "must take nothing while a heartbeat without it is under way")
    beat = heartbeat_of(twin)
    assert beat is not None
    answer(twin, epoch=epoch)
    if not twin.member.view().poll_wanted:
        twin.wrong("must want to be polled")
    twin.tell(AppPolled())
    for commit in twin.asked(OffsetCommitRequest):
        answer_commit(twin, commit, 0)
    calls = twin.did(AssignPartitions)
    if [one.partitions for one in calls] != [late] or twin.did_any(RevokePartitions):
        twin.wrong(f"must call on_partitions_assigned with {sorted(map(str, late))}")
    twin.tell(ListenerDone(calls[0].token, None))
    _acknowledge(twin, had | late, epoch=epoch, whole=True)


def _expect_counted(twin: Twin, before: MemberSnapshot, *, latency_ms: int) -> None:
    """R150, R151: one rebalance more, and how long it took."""
    after = twin.member.snapshot()
    found = (after.rebalances, after.failed_rebalances, after.last_rebalance_latency_ms, after.last_rebalance_ended_ms)
    wanted = (before.rebalances + 1, before.failed_rebalances, latency_ms, twin.now_ms)
    sums = (after.rebalance_latency_total_ms, after.rebalance_latency_max_ms)
    longest_ms = max(before.rebalance_latency_max_ms, latency_ms)
    if found != wanted or sums != (before.rebalance_latency_total_ms + latency_ms, longest_ms):
        twin.wrong(f"must count its rebalances as {wanted}")


def _returns(twin: Twin, *, had: _Tips, back: _Tips, epoch: int) -> None:
    """R90: what it gave up was read by others since: it starts where they committed, not where it was itself."""
    answer(twin, epoch=epoch, target=had | back)
    for asked in twin.did(RequestMetadata):  # a name that was of no use is forgotten
        twin.tell(MetadataUpdated({tip.topic_id: tip.topic for tip in back}, asked.request_id))
    twin.tell(AppPolled())
    for commit in twin.asked(OffsetCommitRequest):
        answer_commit(twin, commit, 0)
    calls = twin.did(AssignPartitions)
    if [one.partitions for one in calls] != [back] or twin.did_any(RevokePartitions):
        twin.wrong(f"must call on_partitions_assigned with {sorted(map(str, back))}")
    twin.tell(ListenerDone(calls[0].token, None))
    if _looked_up(twin) != {(tip.topic_id, tip.partition) for tip in back} or twin.did_any(StartFetching):
        twin.wrong(f"must ask for the offsets of {sorted(map(str, back))}, which others had meanwhile")
    interval_ms = twin.config.auto_commit_interval_ms
    if interval_ms is None or twin.closing:
        return
    twin.wait(interval_ms + 1)
    positions = {tip.topic_partition: OffsetAndMetadata(7_000 + tip.partition, 0) for tip in back}
    twin.tell(AppPolled(positions))
    said = {key: one for sent in twin.asked(OffsetCommitRequest) for key, one in positions_of(sent).items()}
    if twin.member.coordinator is not None and not positions.items() <= said.items():
        twin.wrong(f"must commit {positions} anew: others committed meanwhile")


def ask_about_a_removal_in_a_run(twin: Twin, rng: random.Random) -> bool:
    """R59, R60, R83: removed while its listener runs. False unless it does."""
    beat, member = heartbeat_of(twin), twin.member
    if not twin.is_in(Phase.REVOKING, Phase.ASSIGNING) or beat is None or twin.closing:
        return False
    if twin.listener is None or twin.sent_on(beat.request_id) != twin.link:
        return False
    call, owned = twin.listener, member.view().assigned
    twin.tell(ResponseReceived(beat.request_id, ConsumerGroupHeartbeatResponse(error_code=25)))
    if member.view().readable or twin.did_any(LosePartitions) or twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("was removed: it must read nothing, and wait for its listener")
    if rng.random() < 0.3:
        _leaves_after_a_removal(twin, call, owned, rng)
        return True
    error = ValueError(REASON) if rng.random() < 0.4 else None
    twin.tell(ListenerDone(call.token, error))
    revoked = call.partitions if isinstance(call, RevokePartitions) and error is None else frozenset()
    lost = [one.partitions for one in twin.did(LosePartitions)]
    if lost != [owned - revoked] * bool(owned - revoked) or twin.did_any(AssignPartitions):
        twin.wrong(f"must lose {sorted(map(str, owned - revoked))}, and take nothing")
    if lost:
        twin.tell(ListenerDone(twin.did(LosePartitions)[0].token, error))
    if not twin.is_in(Phase.JOINING) or member.view().assigned:
        twin.wrong("must join again, with nothing")
    return True


def _leaves_after_a_removal(
    twin: Twin, call: RevokePartitions | AssignPartitions | LosePartitions, owned: _Tips, rng: random.Random
) -> None:
    """R62, R83: it leaves inside that very call: what the call revokes counts as revoked, and the rest is lost."""
    number = twin.next_number()
    twin.tell(LeaveRequested(number, twin.now_ms + _INTERVAL_MS, closing=rng.random() < 0.5))
    rest = owned - (call.partitions if isinstance(call, RevokePartitions) else frozenset())
    lost = twin.did(LosePartitions)
    if [one.partitions for one in lost] != [rest] * bool(rest):
        twin.wrong(f"must lose {sorted(map(str, rest))}")
    if [one.leave_id for one in twin.did(LeaveDone)] != [number] or twin.member.view().assigned:
        twin.wrong("was removed, and has left at once, with nothing")
    for token in (call.token, *(one.token for one in lost)):
        twin.tell(ListenerDone(token, None))
        if twin.effects or not twin.is_in(Phase.IDLE):
            twin.wrong("wants nothing any more, and must do nothing")


def ask_about_a_lost_call(twin: Twin, rng: random.Random) -> bool:
    """R57, R62, R89: the listener that loses partitions returns, or the application leaves. False unless it runs."""
    member, call = twin.member, twin.listener
    if not twin.is_in(Phase.FENCED_RELEASE) or not isinstance(call, LosePartitions) or twin.closing:
        return False
    if twin.wait(rng.randint(0, 10_000)) and twin.asked(ConsumerGroupHeartbeatRequest):
        twin.wrong("must be silent while it loses what it had")
    if member.view().poll_wanted:
        twin.wrong("was removed, and waits for its listener and for nothing else")
    twin.tell(ListenerDone(call.token, ValueError(REASON) if rng.random() < 0.5 else None))
    if not twin.is_in(Phase.JOINING) or member.view().assigned:
        twin.wrong("must join again, with nothing, whatever its listener did")
    return True
