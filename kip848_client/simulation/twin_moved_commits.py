"""What becomes of a commit whose partitions are given up before it is stored: R104, R107, R115.

Asked of twins; see `twins`. Does not own: answers to a commit of a member that stays one (`twin_commits`).
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.errors import CommitFailedError, ErrorCode
from kip848_client.member.events import (
    AppPolled,
    AssignPartitions,
    CommitDone,
    CommitKind,
    CommitRequested,
    LeaveRequested,
    ListenerDone,
    LosePartitions,
    MetadataUpdated,
    RequestMetadata,
    RevokePartitions,
    SendRequest,
)
from kip848_client.member.states import Phase
from kip848_client.model import OffsetAndMetadata, TopicIdPartition, TopicPartition
from kip848_client.simulation.twin_commits import answer_commit, positions_of
from kip848_client.simulation.twin_heartbeats import REMOVED, heartbeat_of, refuse
from kip848_client.simulation.twin_targets import answer
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

_LIMIT_MS: Final = 600_000
_PASSES: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_MARK: Final = "of before"

_Tips = frozenset[TopicIdPartition]


def ask_about_a_commit_of_before(twin: Twin, rng: random.Random) -> bool:
    """Commit, and leave, or be removed, before the answer. False if this is no moment for it."""
    view, member = twin.member.view(), twin.member
    if not twin.is_in(Phase.IN_SYNC) or member.coordinator is None or not view.assigned or twin.closing or twin.calls:
        return False
    if twin.waits_for_answer(OffsetCommitRequest) or twin.config.client_assignors or twin.commit_failed:
        return False
    number = twin.next_number()
    offsets = {tip.topic_partition: OffsetAndMetadata(6, 1, _MARK) for tip in view.assigned}
    twin.tell(CommitRequested(number, offsets, CommitKind.SYNC, twin.now_ms + _LIMIT_MS))
    sent = _commits(twin)
    if len(sent) != 1:
        twin.wrong("must commit")
    if rng.random() < 0.5:
        _leaves(twin, number, sent[0])
    else:
        _is_removed(twin, number, sent[0], view.assigned, rng)
    return True


def _commits(twin: Twin) -> list[SendRequest]:
    """Those of the commit that is asked about."""
    asked = twin.asked(OffsetCommitRequest)
    return [one for one in asked if any(value.metadata == _MARK for value in positions_of(one).values())]


def _expect_failed(twin: Twin, number: int, done: list[CommitDone]) -> None:
    if [effect.commit_id for effect in done] != [number] or not isinstance(done[0].error, CommitFailedError):
        twin.wrong("must say that the offsets were not committed: their partitions are not its own any more")


def _leaves(twin: Twin, number: int, sent: SendRequest) -> None:
    """R104: whoever has left is nobody, and a commit of nobody would overwrite that of a successor."""
    answer_commit(twin, sent, _PASSES)
    twin.tell(LeaveRequested(twin.next_number(), twin.now_ms + _LIMIT_MS, closing=False))
    done = [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    for call in twin.did(RevokePartitions):
        twin.tell(ListenerDone(call.token))
        done += [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    if _commits(twin):
        twin.wrong("has left, and commits as nobody")
    twin.wait(twin.longest_backoff_ms)
    if _commits(twin):
        twin.wrong("has left, and commits as nobody")
    done += [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    _expect_failed(twin, number, done)


def _is_removed(twin: Twin, number: int, sent: SendRequest, owned: _Tips, rng: random.Random) -> None:
    """R107: only what it was given back is committed again, and the call fails for the rest."""
    beat = heartbeat_of(twin)
    if beat is None:
        twin.wait(max(1, twin.member.snapshot().heartbeat_interval_ms))
        beat = heartbeat_of(twin)
    if beat is None or twin.sent_on(beat.request_id) != twin.link or not twin.is_in(Phase.IN_SYNC):
        return
    refuse(twin, beat, rng.choice(REMOVED))
    for lost in twin.did(LosePartitions):
        twin.tell(ListenerDone(lost.token))
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    if heartbeat_of(twin) is None or not twin.is_in(Phase.JOINING):
        return
    back = frozenset(tip for tip in sorted(owned) if rng.random() < 0.5)
    answer(twin, epoch=1, target=back)
    for asked in twin.did(RequestMetadata):
        twin.tell(MetadataUpdated({tip.topic_id: tip.topic for tip in back}, asked.request_id))
    twin.tell(AppPolled())
    for assigned in twin.did(AssignPartitions):
        twin.tell(ListenerDone(assigned.token))
    if twin.member.view().assigned != back:
        twin.wrong(f"must have {sorted(map(str, back))}")
    answer_commit(twin, sent, _PASSES)
    done = [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    twin.wait(twin.longest_backoff_ms)
    done += [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    again = _commits(twin)
    wanted: set[TopicPartition] = {tip.topic_partition for tip in back}
    if [set(positions_of(one)) for one in again] != [wanted] * bool(back):
        twin.wrong(f"must commit again for {sorted(map(str, back))}, and for nothing else")
    if again:
        answer_commit(twin, again[0], 0)
        done += [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
    if back != owned:
        _expect_failed(twin, number, done)
    elif [effect.error for effect in done] != [None]:
        twin.wrong("must say that everything is committed")
