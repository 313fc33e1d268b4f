"""What a member says with a heartbeat or a commit is what the coordinator counts afterwards: S14, and T1 of commits.

Does not own: what it is answered (`answer_checkers`), whether it is accepted (`fencing_checkers`).
"""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_configs import HEARTBEAT_INTERVAL
from kip848_client.coordinator.group_member import STATIC_LEAVE_EPOCH
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.schema import Request, Response


class CountedWishes(Observer):
    """S14: after an accepted heartbeat each of its fields counts, who left is gone or away, and the interval is told.

    T1: an accepted commit is told.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, *, interval_ms: int) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._interval_ms = interval_ms

    @about(ConsumerGroupHeartbeatRequest, OffsetCommitRequest)
    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Look at the group as it is after that request."""
        if isinstance(request, OffsetCommitRequest):
            assert isinstance(response, OffsetCommitResponse)
            if any(not item.error_code for topic in response.topics for item in topic.partitions):
                self._commit(client_id, request)
            return
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        group = self._mirror.group
        if response.error_code or group is None:
            return
        if request.member_epoch < 0:
            self._leave(client_id, group, request)
            return
        interval_ms = int(self._cluster.overrides_of(group.group_id).get(HEARTBEAT_INTERVAL, self._interval_ms))
        if response.heartbeat_interval_ms != interval_ms:
            fail("S14", f"{client_id} is told to come every {response.heartbeat_interval_ms} ms, not {interval_ms}")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return
        member = group.members.get(response.member_id or "")
        if member is None:
            return
        counted, names, regex = member.metadata, request.subscribed_topic_names, request.subscribed_topic_regex
        if names is not None and set(names) != set(counted.subscribed_topic_names):
            fail("S14", f"{client_id} subscribes to {names}, and {counted.subscribed_topic_names} counts")
        if regex is not None and (regex or None) != counted.subscribed_topic_regex:
            fail("S14", f"{client_id} subscribes to {regex!r}, and {counted.subscribed_topic_regex!r} counts")
        if request.rebalance_timeout_ms not in (-1, counted.rebalance_timeout_ms):
            fail("S14", f"{client_id} wants {request.rebalance_timeout_ms} ms, and gets {counted.rebalance_timeout_ms}")
        if request.rack_id not in (None, counted.rack_id):
            fail("S14", f"{client_id} is in {request.rack_id}, and {counted.rack_id} counts")

    def _leave(self, client_id: str, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
        member = group.members.get(request.member_id)
        if member is None:
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                fail("S14", f"{client_id} will be back, and is removed")
        elif request.member_epoch != STATIC_LEAVE_EPOCH:
            fail("S14", f"{client_id} left, and is still counted")
        elif member.current.member_epoch != STATIC_LEAVE_EPOCH or member.current.pending_revocation:
            fail("S14", f"{client_id} left for a while, and counts as there: {member.current}")
        elif any(epoch for epochs in member.current.assigned.values() for epoch in epochs.values()):
            fail("S11", f"{client_id} left for a while, and its successor may not commit: {member.current}")

    def _commit(self, client_id: str, request: OffsetCommitRequest) -> None:
        facts = self._cluster.facts
        told = facts[-1] if facts else None
        if told is None or told.event != "offsets_committed":
            fail("T1", f"nobody is told that {client_id} committed; the last that was told is {told}")
        elif told.member_id not in (None, request.member_id):
            fail("T1", f"{client_id} committed, and {told.member_id} is told of")
