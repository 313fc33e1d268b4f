"""Rules that hold after every step of a member, whatever happens in whatever order. Fed by `MemberHarness`."""

from __future__ import annotations

from kip848_client.common.model import TopicIdPartition
from kip848_client.member.core.events import (
    AssignPartitions,
    ConnectCoordinator,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MemberView,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StartFetching,
    StateChanged,
    Tick,
)
from kip848_client.member.core.states import HEARTBEATING, IN_GROUP, RUN, TRANSITIONS, MemberState, Phase, Transition
from kip848_client.member.member import Member, MemberSummary
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest


class MemberInvariants:
    """Watches one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._view: MemberView = member.view()
        self._state = self._view.state
        self._heartbeats: dict[int, int] = {}
        """Heartbeats under way: request id -> incarnation."""
        self._next_must_be_full = False
        self._confirmed: set[TopicIdPartition] = set()
        """Assigned, and the listener did not raise."""
        self._calls: dict[int, tuple[MemberEffect, set[TopicIdPartition]]] = {}

    def check(self, event: MemberEvent, effects: list[MemberEffect], *, now_ms: int) -> None:
        """Look at one step."""
        self._see_event(event)
        snapshot = self._member.snapshot()
        for effect in effects:
            self._see_effect(effect, snapshot)
        self._see_view(snapshot)
        deadline_ms = self._member.deadline_ms()
        if isinstance(event, Tick):
            assert deadline_ms is None or deadline_ms > now_ms, "a tick that does nothing must not ask for another now"

    def _see_event(self, event: MemberEvent) -> None:
        match event:
            case ResponseReceived(request_id, ConsumerGroupHeartbeatResponse() as response):
                if self._heartbeats.pop(request_id, None) is not None and response.error_code:
                    self._next_must_be_full = True
            case RequestFailed(request_id):
                if self._heartbeats.pop(request_id, None) is not None:
                    self._next_must_be_full = True
            case ListenerDone(token, error):
                effect, partitions = self._calls.pop(token, (None, set()))
                if isinstance(effect, AssignPartitions) and error is None:
                    self._confirmed |= partitions
                elif isinstance(effect, LosePartitions) or (isinstance(effect, RevokePartitions) and error is None):
                    self._confirmed -= partitions
            case _:
                pass

    def _see_effect(self, effect: MemberEffect, snapshot: MemberSummary) -> None:
        match effect:
            case StateChanged(old, new, trigger):
                assert old is self._state, "a state change starts where the last one ended"
                assert Transition(trigger, old, new) in TRANSITIONS, "only declared moves happen"
                self._state = new
            case SendRequest():
                assert snapshot.state is not MemberState.FATAL or snapshot.fatal_error is not None
                self._see_request(effect, snapshot)
            case ConnectCoordinator() | RequestMetadata() | ListOffsets():
                assert self._state is not MemberState.FATAL, "nothing is sent after FATAL"
            case AssignPartitions(token, partitions):
                assert self._confirmed.isdisjoint(partitions), "assigned twice without revoked or lost in between"
                assert partitions <= snapshot.owned
                self._calls[token] = (effect, set(partitions))
            case RevokePartitions(token, partitions) | LosePartitions(token, partitions):
                assert partitions, "revoked and lost are never called without partitions"
                for other, its_partitions in self._calls.values():
                    if isinstance(other, RevokePartitions | LosePartitions):
                        assert its_partitions.isdisjoint(partitions), "given up twice"
                    else:
                        its_partitions -= partitions
                self._calls[token] = (effect, set(partitions))
            case StartFetching(positions):
                assert positions.keys() <= snapshot.owned, "only owned partitions are fetched"
                names = {partition.topic_partition for partition in positions}
                assert names <= snapshot_readable(self._member), "only partitions past their callback are fetched"
                assert all(position.offset >= 0 for position in positions.values()), "positions are absolute"
            case _:
                pass

    def _see_request(self, effect: SendRequest, snapshot: MemberSummary) -> None:
        assert self._state is not MemberState.FATAL, "nothing is sent after FATAL"
        match effect.request:
            case ConsumerGroupHeartbeatRequest() as heartbeat if heartbeat.member_epoch >= 0:
                self._see_heartbeat(effect.request_id, heartbeat, snapshot)
            case OffsetCommitRequest() as commit:
                assert commit.generation_id_or_member_epoch == snapshot.live_epoch, "commits carry the newest epoch"
                assert bool(commit.member_id) == (snapshot.live_epoch > 0)
                assert snapshot.phase is Phase.IDLE or snapshot.live_epoch > 0, "no commit without membership"
            case _:
                pass

    def _see_heartbeat(
        self, request_id: int, heartbeat: ConsumerGroupHeartbeatRequest, snapshot: MemberSummary
    ) -> None:
        alive = [number for number in self._heartbeats.values() if number == snapshot.incarnation]
        assert not alive, "never two heartbeats under way"
        self._heartbeats[request_id] = snapshot.incarnation
        full = heartbeat.rebalance_timeout_ms > 0 and heartbeat.topic_partitions is not None
        full = full and heartbeat.subscribed_topic_names is not None
        if heartbeat.member_epoch == 0:
            assert full, "a join says everything"
            assert heartbeat.topic_partitions == (), "a join owns nothing"
        elif heartbeat.topic_partitions is not None:
            assert _partitions(heartbeat.topic_partitions) == snapshot.current, "what is reported was reconciled"
        assert full or not self._next_must_be_full, "a heartbeat after a failure is full"
        self._next_must_be_full = False

    def _see_view(self, snapshot: MemberSummary) -> None:
        view = self._member.view()
        if view is not self._view:
            assert view.version == self._view.version + 1, "the version grows with every change"
            assert view != self._view
        self._view = view
        assert view.state is snapshot.phase.state is self._state
        assert view.readable <= {partition.topic_partition for partition in view.assigned}
        if snapshot.phase not in IN_GROUP | {Phase.IDLE}:
            assert not view.readable, "nothing is read while the member is out, or goes"
        if snapshot.phase in RUN:
            assert view.awaiting_app or (snapshot.phase is Phase.COMMITTING and view.readable)
        if snapshot.phase in IN_GROUP - RUN and not view.awaiting_app and not view.poll_wanted:
            owned = {(partition.topic_id, partition.partition) for partition in snapshot.owned}
            if snapshot.phase is Phase.IN_SYNC:
                assert snapshot.current <= owned, "what is reported is owned"
        if snapshot.phase not in HEARTBEATING | {Phase.LEAVE_DUE}:
            assert not snapshot.ack_due


def snapshot_readable(member: Member) -> frozenset[object]:
    """What the member allows to be read after this step."""
    return frozenset(member.view().readable)


def _partitions(topics: tuple[TopicPartitions, ...]) -> frozenset[object]:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
