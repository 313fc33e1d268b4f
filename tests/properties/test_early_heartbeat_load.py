"""Early heartbeats do not flood the coordinator of a large group: real members, a real coordinator, virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from uuid import UUID

import pytest

from kip848_client.common.model import OffsetAndMetadata, Subscription
from kip848_client.member.core.events import (
    AppPolled,
    AssignPartitions,
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MetadataUpdated,
    OffsetsListed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    SubscriptionChanged,
    Tick,
)
from kip848_client.member.core.settings import MemberConfig, ResetPolicy
from kip848_client.member.member import Member
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import ApiRequest, TopicsChanged
from kip848_client.testing.coordinator.core.result import CoordinatorResult
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

TOPIC_ID = UUID(int=1)
LATENCY_MS = 2
VERSIONS: dict[int, tuple[int, int]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
}


class Crowd:
    """Members of one group whose applications poll all the time, and what they ask their coordinator."""

    def __init__(self, *, early: bool, partitions: int) -> None:
        self.now_ms = 0
        self.heartbeats: list[int] = []
        """When each was sent."""
        self._early = early
        self._rng = random.Random(1)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._request_ids = itertools.count(1)
        self._members: list[tuple[Member, list[int | None]]] = []
        config = CoordinatorConfig(
            consumer_max_size=10_000, consumer_heartbeat_interval_ms=5_000, consumer_session_timeout_ms=45_000
        )
        self._coordinator = GroupCoordinator(config, rng=random.Random(2))
        self._finish(
            self._coordinator.handle(TopicsChanged(TopicsImage((TopicInfo("t", TOPIC_ID, partitions),))), now_ms=0)
        )

    def join(self) -> None:
        """One more consumer subscribes and polls."""
        name = f"member-{len(self._members):04}"
        config = MemberConfig(
            group_id="g",
            member_id=name,
            auto_commit_interval_ms=None,
            auto_offset_reset=ResetPolicy.EARLIEST,
            early_heartbeats=self._early,
        )
        member = Member(config, rng=random.Random(len(self._members)))
        self._members.append((member, [None]))
        index = len(self._members) - 1
        self._step(index, SubscriptionChanged(Subscription(frozenset({"t"}))))

    def fail_over(self) -> None:
        """All lose the coordinator's connection, and find its successor, which knows what it knew."""
        for index in range(len(self._members)):
            self._step(index, CoordinatorDisconnected(1))

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + for_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = end_ms

    def _at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), action))

    def _step(self, index: int, event: MemberEvent) -> None:
        member, armed = self._members[index]
        events = [event]
        while events:
            for effect in member.step(events.pop(0), now_ms=self.now_ms):
                answer = self._perform(index, effect)
                if answer is not None:
                    events.append(answer)
            if not events and member.view().poll_wanted:
                events.append(AppPolled())
        deadline_ms = member.deadline_ms()
        if deadline_ms is not None and (armed[0] is None or deadline_ms < armed[0] or armed[0] <= self.now_ms):
            armed[0] = deadline_ms
            self._at(max(0, deadline_ms - self.now_ms), lambda: self._tick(index, deadline_ms))

    def _tick(self, index: int, armed_ms: int) -> None:
        armed = self._members[index][1]
        if armed[0] == armed_ms:
            armed[0] = None
            self._step(index, Tick(self.now_ms))

    def _perform(self, index: int, effect: MemberEffect) -> MemberEvent | None:
        match effect:
            case SendRequest(request_id=request_id, request=FindCoordinatorRequest()):
                found = Coordinator("g", 1, "broker", 9092, 0, None)
                return ResponseReceived(request_id, FindCoordinatorResponse(coordinators=(found,)))
            case SendRequest(request_id=request_id, request=request):
                if isinstance(request, ConsumerGroupHeartbeatRequest):
                    self.heartbeats.append(self.now_ms)
                version = VERSIONS[ApiKey(request.WIRE.api_key)][1]
                message = ApiRequest(next(self._request_ids), version, request, 0, "c", "/h")
                result = self._coordinator.handle(message, now_ms=self.now_ms)
                self._finish(result)
                (reply,) = result.replies
                answer = ResponseReceived(request_id, reply.response)
                self._at(LATENCY_MS, lambda: self._step(index, answer))
            case ConnectCoordinator(request_id=request_id):
                return CoordinatorConnected(request_id, VERSIONS)
            case RequestMetadata(request_id=request_id):
                return MetadataUpdated({TOPIC_ID: "t"}, request_id)
            case ListOffsets(request_id=request_id, timestamps=wanted):
                return OffsetsListed(request_id, {partition: OffsetAndMetadata(0) for partition in wanted}, {})
            case AssignPartitions(token=token) | RevokePartitions(token=token) | LosePartitions(token=token):
                return ListenerDone(token)
            case _:
                pass
        return None

    def _finish(self, result: CoordinatorResult) -> None:
        for record in result.records:
            self._coordinator.replay(record)
        self._coordinator.apply(result)


def at_rest(*, early: bool, members: int, partitions: int) -> Crowd:
    """A group in which nothing has happened for a while."""
    crowd = Crowd(early=early, partitions=partitions)
    for _ in range(members):
        crowd.join()
        crowd.run(5)
    crowd.run(60_000)
    return crowd


def heartbeats_of_a_rebalance(*, early: bool, members: int, joining: int) -> int:
    """Heartbeats of all members in the five intervals after *joining* members came to a group at rest."""
    crowd = at_rest(early=early, members=members, partitions=members + joining)
    before = len(crowd.heartbeats)
    for _ in range(joining):
        crowd.join()
        crowd.run(5)
    crowd.run(25_000)
    return len(crowd.heartbeats) - before


@pytest.mark.parametrize(("members", "joining"), [(200, 1), (150, 50)])
def test_a_rebalance_costs_at_most_three_times_the_heartbeats(members: int, joining: int) -> None:
    """Hundreds of members whose epoch moves because some joined must not become a flood."""
    without = heartbeats_of_a_rebalance(early=False, members=members, joining=joining)
    with_early = heartbeats_of_a_rebalance(early=True, members=members, joining=joining)

    assert with_early > without
    assert with_early <= 3 * without


def test_the_members_of_a_large_group_do_not_heartbeat_all_at_once_after_a_fail_over() -> None:
    """The next coordinator has to load the group and to take everybody's connection in the same moment."""
    crowd = at_rest(early=True, members=100, partitions=100)
    before = len(crowd.heartbeats)

    crowd.fail_over()
    crowd.run(5_000)

    sent = crowd.heartbeats[before:]
    assert len(sent) <= 2 * 100
    assert max(map(sent.count, sent)) <= 100 / 10
