"""A member on the classic protocol with a scripted coordinator: `MemberHarness`, and what only this protocol has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kip848_client.assignors.classic import BUILT_IN
from kip848_client.assignors.interface import PartitionAssignor
from kip848_client.assignors.user_data import SubscriptionFrame, write_subscription_frame
from kip848_client.config.assignors import is_cooperative
from kip848_client.member.assignor_events import (
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    RunAssignor,
)
from kip848_client.member.assignor_values import advertised, compute
from kip848_client.member.events import (
    DescribeTopics,
    FailureKind,
    MemberEffect,
    RequestFailed,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.settings import GroupProtocol
from kip848_client.model import TopicPartition
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as Partitions
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.member_harness import INTERVAL_MS, TOPIC_IDS, MemberHarness

Given = Mapping[str, Iterable[int]]


@dataclass
class ClassicMemberHarness(MemberHarness):
    """Arrange and assert as with `MemberHarness`.

    Args:
        assignors: built-in names, or objects, in order of preference.
        partition_counts: topics of the cluster.
        racks: of a topic's replicas, partition by partition.
        describes: brokers say which topics there are; else see `fail_describing`.
    """

    assignors: tuple[str | PartitionAssignor, ...] = ("cooperative-sticky",)
    runs_assignors: bool = True
    describes: bool = True
    describing: int = 0

    def __post_init__(self) -> None:
        self.objects = tuple(BUILT_IN[each]() if isinstance(each, str) else each for each in self.assignors)
        self.settings = {
            "protocol": GroupProtocol.CLASSIC,
            "client_assignors": tuple(map(advertised, self.objects)),
            "cooperative": is_cooperative(self.objects),
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": INTERVAL_MS,
            **self.settings,
        }
        self.partition_counts = {"t": 6, "u": 6}
        self.racks: dict[str, tuple[frozenset[str], ...]] = {}
        self.told: list[CallOnAssignment] = []
        super().__post_init__()

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case DescribeTopics(request_id) if not self.describes:
                self.describing = request_id
            case DescribeTopics(request_id, topics):
                found = {
                    name: TopicDescription(TOPIC_IDS[name], count, self.racks.get(name, ()))
                    for name, count in self.partition_counts.items()
                    if name in topics or effect.pattern is not None
                }
                self._automatic.append(TopicsDescribed(request_id, found))
            case RunAssignor() if self.runs_assignors:
                self._automatic.append(compute(self.objects, effect)[0])
            case DescribeAssignors(call_id):
                self._automatic.append(AssignorsDescribed(tuple(map(advertised, self.objects)), call_id))
            case CallOnAssignment(call_id):
                self.told.append(effect)
                self._automatic.append(OnAssignmentDone(call_id))
            case _:
                super()._perform(effect)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API versions of the coordinator."""
        return {
            **super().versions,
            ApiKey.JOIN_GROUP: (0, 9),
            ApiKey.SYNC_GROUP: (0, 5),
            ApiKey.HEARTBEAT: (0, 4),
            ApiKey.LEAVE_GROUP: (0, 5),
        }

    # ------------------------------------------------------------------------------------------------------ answers

    def answer_join(self, *, error: int = 0, generation: int = 1, leader: str = "other", **fields: Any) -> None:
        """Answer the JoinGroup under way; the member is "m-1"."""
        chosen = self.objects[0].name
        response = JoinGroupResponse(
            error_code=error,
            generation_id=-1 if error else generation,
            protocol_type="consumer",
            protocol_name=chosen,
            leader=leader,
            **{"member_id": "m-1", **fields},
        )
        self.answer(JoinGroupRequest, response)

    def answer_sync(self, given: Given | None = None, *, error: int = 0, user_data: bytes | None = None) -> None:
        """Answer the SyncGroup under way; None for *given* is an answer without bytes."""
        assigned = tuple(Partitions(topic, tuple(indexes)) for topic, indexes in (given or {}).items())
        data = encode_assignment(ConsumerProtocolAssignment(assigned, user_data))
        self.answer(SyncGroupRequest, SyncGroupResponse(error_code=error, assignment=b"" if given is None else data))

    def fail_describing(self) -> None:
        """Tell the member that no broker could say which topics there are."""
        self.step(RequestFailed(self.describing, FailureKind.TIMED_OUT, "no answer in time"))

    def answer_beat(self, error: int = 0) -> None:
        """Answer the heartbeat under way."""
        self.answer(HeartbeatRequest, HeartbeatResponse(error_code=error))

    def become_member(self, given: Given, *, generation: int = 1) -> None:
        """Subscribe to t, join, and take *given* up."""
        self.subscribe("t")
        self.poll()
        self.answer_join(generation=generation)
        self.answer_sync(given)
        self.listeners_finish = True
        self.poll()
        if any(given.values()):
            self.answer_fetch({f"{topic}-{index}": 0 for topic, indexes in given.items() for index in indexes})
        self.listeners_finish = False
        self.forget_history()

    def beat(self, error: int = 0) -> None:
        """Let a heartbeat become due, and answer it."""
        self.advance(INTERVAL_MS)
        self.answer_beat(error)

    def pass_time(self, ms: int) -> None:
        """Time passes; heartbeats are answered, and the application polls."""
        for _ in range(ms // 500):
            self.advance(500)
            self.poll()
            if self.requests(HeartbeatRequest):
                self.answer_beat()

    # ------------------------------------------------------------------------------------------------- what was said

    def joining(self) -> JoinGroupRequest:
        """The JoinGroup that has no answer yet; there is one."""
        (request,) = self.requests(JoinGroupRequest)
        return request

    def said(self) -> ConsumerProtocolSubscription:
        """The subscription in it."""
        return decode_subscription(self.joining().protocols[0].metadata)

    def listed(self) -> list[str]:
        """The partitions in it."""
        return [f"{each.topic}-{index}" for each in self.said().owned_partitions for index in each.partitions]

    def dealt(self) -> dict[str, list[str]]:
        """What the SyncGroup under way gives each member, by member id."""
        (request,) = self.requests(SyncGroupRequest)
        return {
            each.member_id: [
                f"{topic.topic}-{index}"
                for topic in decode_assignment(each.assignment).assigned_partitions
                for index in topic.partitions
            ]
            for each in request.assignments
        }


def a_member(
    member_id: str,
    owned: Given | None = None,
    *,
    generation: int = -1,
    topics: Iterable[str] = ("t",),
    user_data: bytes | None = None,
    frame: SubscriptionFrame | None = None,
    instance: str | None = None,
    rack: str | None = None,
) -> JoinGroupResponseMember:
    """A member, as the leader is told of it."""
    subscription = ConsumerProtocolSubscription(
        topics=tuple(topics),
        user_data=write_subscription_frame(frame) if frame is not None else user_data,
        owned_partitions=tuple(Partitions(topic, tuple(indexes)) for topic, indexes in (owned or {}).items()),
        generation_id=generation,
        rack_id=rack,
    )
    return JoinGroupResponseMember(member_id, instance, encode_subscription(subscription))


def held(**indexes: Iterable[int]) -> tuple[TopicPartition, ...]:
    """Partitions by topic, as a frame holds them."""
    return tuple(TopicPartition(topic, index) for topic, found in indexes.items() for index in found)
