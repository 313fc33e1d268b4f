"""What a member would do if its target moved on before it had what it should have: R68, R77, R81, R97.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.member.events import (
    AppPolled,
    AssignPartitions,
    FailureKind,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    RequestFailed,
    RevokePartitions,
    SendRequest,
    StartFetching,
)
from kip848_client.member.states import MemberState, Phase
from kip848_client.model import TopicIdPartition
from kip848_client.simulation.twin_commits import answer_commit
from kip848_client.simulation.twin_heartbeats import REASON, find_again, heartbeat_of
from kip848_client.simulation.twin_offsets import PASSES, answer_fetch, partitions_of
from kip848_client.simulation.twin_targets import answer, may_keep
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

_INTERVAL_MS: Final = 100_000
"""As `twin_targets.answer` tells it."""


def ask_about_a_detour(twin: Twin, rng: random.Random) -> bool:
    """R77: in the end it has what it shall have, and nobody is called for that. False unless it is being assigned."""
    beat, member, call = heartbeat_of(twin), twin.member, twin.listener
    if not twin.is_in(Phase.ASSIGNING) or not isinstance(call, AssignPartitions) or twin.closing:
        return False
    if beat is None and member.coordinator is not None:
        twin.wait(max(twin.longest_backoff_ms, member.snapshot().heartbeat_interval_ms))
        beat = heartbeat_of(twin)
    if beat is None or not twin.is_in(Phase.ASSIGNING):
        return False
    if twin.sent_on(beat.request_id) != twin.link or twin.config.client_assignors:
        return False
    owned, epoch = member.view().assigned, member.view().member_epoch
    wanted = frozenset((tip.topic_id, tip.partition) for tip in owned)
    if not owned or member.snapshot().target != wanted:
        return False
    if call.partitions and rng.random() < 0.5:
        _is_in_doubt(twin, beat, call)
        return True
    answer(twin, epoch=epoch, target=owned - {min(owned)})
    if heartbeat_of(twin) is None:
        twin.wait(_INTERVAL_MS)
    if heartbeat_of(twin) is None or not twin.is_in(Phase.ASSIGNING):
        return True
    answer(twin, epoch=epoch, target=owned)
    twin.tell(ListenerDone(call.token))
    if twin.did_any(AssignPartitions, RevokePartitions, LosePartitions) or member.view().assigned != owned:
        twin.wrong("has what it shall have, and must call nobody")
    twin.wait(0)
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    if heartbeat_of(twin) is None:
        twin.wrong("must acknowledge what it has")
    answer(twin, epoch=epoch)
    if twin.asked(ConsumerGroupHeartbeatRequest):
        answer(twin, epoch=epoch)
    if member.view().state is not MemberState.STABLE or member.view().awaiting_app:
        twin.wrong("has what it shall have, and must be STABLE without another poll()")
    return True


def _is_in_doubt(twin: Twin, beat: SendRequest, call: AssignPartitions) -> None:
    """R81: a full heartbeat said meanwhile that it does not have what it takes: the answer says whether it has it."""
    owned, epoch = twin.member.view().assigned, twin.member.view().member_epoch
    twin.tell(RequestFailed(beat.request_id, FailureKind.TIMED_OUT, REASON))
    find_again(twin)
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    full = heartbeat_of(twin)
    if full is None or not twin.is_in(Phase.ASSIGNING):
        return
    assert isinstance(full.request, ConsumerGroupHeartbeatRequest)
    said = full.request.topic_partitions
    if said is None or any(tip.topic_id == topic.topic_id for tip in call.partitions for topic in said):
        return  # it may have said that it has them
    twin.tell(ListenerDone(call.token))
    if twin.member.view().readable & {tip.topic_partition for tip in call.partitions}:
        twin.wrong("must not read what it said that it does not have, before it hears whether it still has it")
    if heartbeat_of(twin) is None:
        return
    given_away = min(call.partitions)
    answer(twin, epoch=epoch, target=owned - {given_away})
    wanted = {tip.topic_partition for tip in owned} - {given_away.topic_partition}
    if twin.member.view().readable != wanted:
        twin.wrong(f"was told that {given_away} is not its own, and must read the rest")


def ask_about_a_short_stay(twin: Twin, rng: random.Random) -> bool:
    """R68, R97: it shall give up what it still looks up, and nobody needs the answer. False unless it does."""
    beat, member, asked = heartbeat_of(twin), twin.member, twin.waits_for_answer(OffsetFetchRequest)
    if not twin.is_in(Phase.IN_SYNC) or beat is None or len(asked) != 1 or member.coordinator is None or twin.closing:
        return False
    if twin.sent_on(beat.request_id) != twin.link or twin.config.client_assignors or twin.calls:
        return False
    looked_up, owned = partitions_of(asked[0]), member.view().assigned
    gone = frozenset(tip for tip in owned if tip.topic_partition in looked_up)
    if len(gone) != len(looked_up) or twin.waits_for_answer(OffsetCommitRequest):
        return False
    if any(twin.asking.get(partition) != asked[0].request_id for partition in looked_up):
        return False  # it was told to start elsewhere meanwhile
    answer(twin, epoch=member.view().member_epoch + 1, target=owned - gone)
    twin.tell(AppPolled())
    for commit in twin.asked(OffsetCommitRequest):
        answer_commit(twin, commit, 0)
    calls = twin.did(RevokePartitions)
    if not twin.is_in(Phase.REVOKING) or not calls:
        return True
    if rng.random() < 0.5:
        _stays(twin, calls[0], owned=owned)
        return True
    answer_fetch(twin, asked[0], code=rng.choice(PASSES))
    twin.wait(twin.longest_backoff_ms)
    if any(set(partitions_of(one)) & set(looked_up) for one in twin.asked(OffsetFetchRequest)):
        twin.wrong(f"must not look up {sorted(map(str, gone))}, which it is about to give up")
    return True


def _stays(twin: Twin, call: RevokePartitions, *, owned: frozenset[TopicIdPartition]) -> None:
    """R84, R90: the listener raised, and it may keep all: nobody knows yet where that starts."""
    if not may_keep(twin, call, owned, epoch=twin.member.view().member_epoch):
        return
    begun = {tip for effect in twin.did(StartFetching) for tip in effect.positions}
    listed = {key for effect in twin.did(ListOffsets) for key in effect.timestamps}
    looked_up = {partition for one in twin.asked(OffsetFetchRequest) for partition in partitions_of(one)}
    for tip in call.partitions:
        if tip in begun or tip.topic_partition in listed or tip.topic_partition not in looked_up:
            twin.wrong(f"must look up where {tip} starts")
