"""Classic groups: the same requests to our broker and to Kafka get the same answers, or wait on both.

Every request has a connection of its own, so that one that waits holds up no other. Two clients, one of them static at
times, do what clients do and what none would. A conversation ends where chance decides on Kafka: who leads when the
leader is gone and two are left.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kip848_client.wire.schema import Request
from tests.interop.differential.classic_side import FOO, LONG_MS, Side, is_chance
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

STEPS: Final = 60
PAUSE_S: Final = 0.05
"""How long an answer is waited for that need not come."""
OTHER: Final = encode_subscription(ConsumerProtocolSubscription(topics=("foo", "bar")), version=0)


def _join(rng: random.Random, client: str) -> Callable[[Side], tuple[Request[Any], int]]:
    static = "i" if client == "b" and rng.random() < 0.5 else None
    fresh = static is not None and rng.random() < 0.3  # a process that has restarted
    version = rng.choice([5, 8, 9] if static else [2, 3, 4, 7, 9])
    names = rng.choice([("range",), ("range", "sticky"), ("range", "sticky"), ("sticky",), ()])
    metadata = rng.choice([FOO, FOO, FOO, OTHER])
    protocol_type = rng.choice(["consumer"] * 8 + ["connect", ""])

    def make(side: Side) -> tuple[Request[Any], int]:
        request = JoinGroupRequest(
            group_id=side.group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id="" if fresh else side.ids[client],
            group_instance_id=static,
            protocol_type=protocol_type,
            protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names),
        )
        return request, version

    return make


def _other(rng: random.Random, client: str) -> Callable[[Side], tuple[Request[Any], int]]:
    what = rng.choice(["sync", "sync", "sync", "beat", "beat", "commit", "leave", "describe"])
    off = rng.choice([0, 0, 0, 0, -1, 1])
    instance = "i" if rng.random() < 0.15 else None
    version = rng.choice([3, 4, 5])
    named = rng.choice(["range", "range", "sticky", None])
    anonymous = rng.random() < 0.2

    def make(side: Side) -> tuple[Request[Any], int]:
        member_id, generation = side.ids[client] or "nobody", side.generation[client] + off
        match what:
            case "sync":
                given = tuple(
                    SyncGroupRequestAssignment(member_id=known, assignment=name.encode())
                    for name, known in side.ids.items()
                )
                return SyncGroupRequest(
                    group_id=side.group,
                    generation_id=generation,
                    member_id=member_id,
                    group_instance_id=instance,
                    protocol_type=None if named is None or version < 5 else "consumer",
                    protocol_name=None if version < 5 else named,
                    assignments=given,
                ), version
            case "beat":
                return HeartbeatRequest(
                    group_id=side.group, generation_id=generation, member_id=member_id, group_instance_id=instance
                ), min(version, 4)
            case "commit":
                partition = OffsetCommitRequestPartition(committed_offset=5, committed_metadata="")
                topic = OffsetCommitRequestTopic(name=side.topic, partitions=(partition,))
                return OffsetCommitRequest(
                    group_id=side.group,
                    generation_id_or_member_epoch=-1 if anonymous else generation,
                    member_id="" if anonymous else member_id,
                    topics=(topic,),
                ), 8
            case "leave":
                gone = MemberIdentity(member_id="" if anonymous else member_id, group_instance_id=instance)
                return LeaveGroupRequest(group_id=side.group, members=(gone,)), version
            case _:
                return DescribeGroupsRequest(groups=(side.group,)), 6

    return make


@pytest.fixture
def sides(kafka_broker: KafkaBroker | ExternalKafka, embedded_broker: EmbeddedBroker) -> Iterator[tuple[Side, Side]]:
    group = f"classic-{uuid.uuid4().hex}"
    both = Side(embedded_broker.bootstrap_servers, group), Side(kafka_broker.bootstrap_servers, group)
    for side in both:
        side.prepare()
    yield both
    for side in both:
        side.clear()


def test_the_same_conversation_has_the_same_answers(seed: int, sides: tuple[Side, Side]) -> None:
    """What a classic client meets here, it meets on Kafka."""
    ours, kafka = sides
    rng = random.Random(seed)
    transcript: list[str] = []
    led = ""
    for number in range(STEPS):
        # A member with a request that waits sends no other: what becomes of the older one differs on purpose.
        busy = {waiting.client for waiting in ours.waiting.values()}
        free = [client for client in ("a", "b") if client not in busy]
        client = rng.choice(free or ["a", "b"])
        make = _join(rng, client) if free and rng.random() < 0.4 else _other(rng, client)
        request, version = make(ours)
        if not free and not isinstance(request, HeartbeatRequest | DescribeGroupsRequest | LeaveGroupRequest):
            continue
        if (
            isinstance(request, JoinGroupRequest)
            and request.group_instance_id is not None
            and request.member_id
            and not request.member_id.startswith("i-")
        ):
            continue  # an id that was handed out, with an instance id: Kafka fails at it
        ours.send(number, client, make)
        kafka.send(number, client, make)
        transcript.append(f"{number} {client} v{version} {request}")
        if kafka.is_held_up():
            return
        for answered in sorted(ours.answered(PAUSE_S) | kafka.answered(0.0)):
            story = "\n".join(transcript)
            answer, other = ours.await_answer(answered, story), kafka.await_answer(answered, story)
            transcript.append(f"   {answered}: {answer}")
            one, another = ours.shared(answer), kafka.shared(other)
            if is_chance(one, another, led=led):
                return
            assert one == another, f"{story}\n   {answered}: {answer}\nKafka: {other}"
            led = one.get("leader") or led
