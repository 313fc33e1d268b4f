"""What a member would do if its target moved on before it had what it should have, and came back: R68, R77, R78.

Asked of twins; see `twins`.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.member.events import AppPolled, AssignPartitions, ListenerDone, LosePartitions, RevokePartitions
from kip848_client.member.states import MemberState, Phase
from kip848_client.simulation.twin_commits import answer_commit
from kip848_client.simulation.twin_heartbeats import heartbeat_of
from kip848_client.simulation.twin_offsets import PASSES, answer_fetch, partitions_of
from kip848_client.simulation.twin_targets import answer
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
    answer(twin, epoch=member.view().member_epoch + 1, target=owned - gone)
    twin.tell(AppPolled())
    for commit in twin.asked(OffsetCommitRequest):
        answer_commit(twin, commit, 0)
    if not twin.is_in(Phase.REVOKING):
        return True
    answer_fetch(twin, asked[0], code=rng.choice(PASSES))
    twin.wait(twin.longest_backoff_ms)
    if any(set(partitions_of(one)) & set(looked_up) for one in twin.asked(OffsetFetchRequest)):
        twin.wrong(f"must not look up {sorted(map(str, gone))}, which it is about to give up")
    return True
