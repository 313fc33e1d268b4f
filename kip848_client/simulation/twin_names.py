"""What a member would do if nobody told it the names of its topics, or if it were removed while it asks: R74, R75.

Asked of twins; see `twins`. Does not own: targets whose names come (`twin_targets`).
"""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from uuid import UUID

from kip848_client.member.events import (
    FailureKind,
    ListenerDone,
    LosePartitions,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
    SurfaceError,
)
from kip848_client.member.states import IN_GROUP, Phase
from kip848_client.model import TopicIdPartition
from kip848_client.simulation.twin_heartbeats import REASON, REMOVED, heartbeat_of, refuse
from kip848_client.simulation.twin_targets import answer
from kip848_client.simulation.twins import Twin


def ask_about_names(twin: Twin, rng: random.Random) -> bool:
    """R74, R75: names are asked for. False unless they are, and still needed."""
    asked = twin.waits_for(RequestMetadata)
    if not asked or twin.config.client_assignors or not twin.is_in(*IN_GROUP):
        return False
    wanted = {topic_id for topic_id, _ in twin.member.snapshot().target}
    if not asked[-1].topic_ids <= wanted - twin.named:
        return False
    beat = heartbeat_of(twin)
    removable = beat is not None and twin.sent_on(beat.request_id) == twin.link and not twin.member.view().awaiting_app
    if removable and not twin.closing and rng.random() < 0.5:
        _is_removed(twin, asked[-1], rng)
    else:
        _fails(twin, asked[-1], rng)
    return True


def _fails(twin: Twin, asked: RequestMetadata, rng: random.Random) -> None:
    """R75: nobody answers who knows them."""
    view = twin.member.view()
    twin.tell(RequestFailed(asked.request_id, rng.choice(list(FailureKind)), REASON))
    again = twin.did(RequestMetadata)
    if twin.did_any(SurfaceError) or (again and again[0].topic_ids == asked.topic_ids):
        twin.wrong("must ask for names again after a back-off, and tell nobody")
    if twin.member.view().assigned != view.assigned:
        twin.wrong("must keep what it has")
    if again:
        return
    twin.wait(twin.least_backoff_ms - 1)
    if twin.did_any(RequestMetadata):
        twin.wrong("asks for names before its back-off is over")
    twin.wait(twin.longest_backoff_ms)
    if not twin.did_any(RequestMetadata) or twin.did(RequestMetadata)[0].topic_ids != asked.topic_ids:
        twin.wrong(f"must ask for the names of {_listed(asked.topic_ids)} again")


def _is_removed(twin: Twin, before: RequestMetadata, rng: random.Random) -> None:
    """What was asked for in an earlier life is asked for anew, at once, and its outcome is nobody's business."""
    beat = heartbeat_of(twin)
    assert beat is not None
    failed = rng.random() < 0.5
    if failed:
        twin.tell(RequestFailed(before.request_id, rng.choice(list(FailureKind)), REASON))
    refuse(twin, beat, rng.choice(REMOVED))
    for call in twin.did(LosePartitions):
        twin.tell(ListenerDone(call.token, None))
    if not twin.is_in(Phase.JOINING):
        twin.wrong("was removed, and must join again")
    if heartbeat_of(twin) is None:
        twin.wait(twin.longest_backoff_ms)
    if heartbeat_of(twin) is None:
        return
    topic_id = min(before.topic_ids)
    target = frozenset({TopicIdPartition("a twin's", 0, topic_id)})
    answer(twin, epoch=1, target=target)
    asked = twin.did(RequestMetadata)
    if [one.topic_ids for one in asked] != [{topic_id}]:
        twin.wrong(f"must ask for the name of {topic_id}, in its new life, too")
    if not failed and twin.tell(RequestFailed(before.request_id, rng.choice(list(FailureKind)), REASON)):
        twin.wrong("must not mind what became of a question of an earlier life")
    twin.tell(MetadataUpdated({topic_id: "a twin's"}, asked[0].request_id))
    if twin.did_any(RequestMetadata) or not twin.member.view().poll_wanted:
        twin.wrong("knows all names, and must want to be polled")


def _listed(topic_ids: AbstractSet[UUID]) -> list[str]:
    return sorted(map(str, topic_ids))
