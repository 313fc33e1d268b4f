"""Classic groups: the same requests to our broker and to Kafka get the same answers, or wait on both.

Every request has a connection of its own, so that one that waits holds up no other. Two clients, one of them static at
times, do what clients do and what none would. A conversation ends where chance decides on Kafka: who leads when the
leader is gone and two are left.
"""

from __future__ import annotations

import json
import random
import re
import select
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kip848_client.wire.schema import Request
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

STEPS: Final = 60
SETTLE_S: Final = 10.0
"""How long one broker may take for an answer that the other has given."""
PAUSE_S: Final = 0.05
"""How long an answer is waited for that need not come."""
LONG_MS: Final = 120_000
FOO: Final = encode_subscription(ConsumerProtocolSubscription(topics=("foo",)), version=0)
OTHER: Final = encode_subscription(ConsumerProtocolSubscription(topics=("foo", "bar")), version=0)


_UNHEARD: Final = re.compile(r"\b[abi]-[0-9A-Za-z_-]{22,36}(?=\")")
"""The id of a member that has not been told it yet."""


class Waiting:
    """A request that was sent, on a connection of its own."""

    def __init__(self, address: str, client: str, request: Request[Any], version: int) -> None:
        self.client = client
        self.request = request
        self._connection = RawConnection(address, client_id=client)
        self._connection.send(request, version=version)

    def is_answered(self, within_s: float) -> bool:
        return bool(select.select([self._connection.socket], [], [], within_s)[0])

    def read(self) -> Any:
        answer = self._connection.read(self.request)
        self._connection.close()
        return answer

    def close(self) -> None:
        self._connection.close()


class Side:
    """One broker, and what its clients were told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.group = f"classic-{uuid.uuid4().hex}"
        self.topic = f"{self.group}-foo"
        self.ids = {"a": "", "b": ""}
        self.generation = {"a": 0, "b": 0}
        self.waiting: dict[int, Waiting] = {}
        self._labels: dict[str, str] = {self.group: "g"}

    def prepare(self) -> None:
        """Make the topic, and wait until the coordinator answers."""
        topic = CreatableTopic(name=self.topic, num_partitions=1, replication_factor=1)
        with RawConnection(self.address) as connection:
            connection.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=20_000), version=7)
            wanted = MetadataRequest(topics=(MetadataRequestTopic(name=self.topic),))
            wait_until(lambda: not connection.ask(wanted, version=9).topics[0].error_code, what="the topic")
            find = FindCoordinatorRequest(coordinator_keys=(self.group,))
            wait_until(lambda: not connection.ask(find, version=4).coordinators[0].error_code, what="a coordinator")
            describe = DescribeGroupsRequest(groups=(self.group,))
            wait_until(
                lambda: connection.ask(describe, version=5).groups[0].error_code == 0, what="a loaded coordinator"
            )
            # A group that has had a member: one that never had any is left behind by refused requests on Kafka alone.
            protocols = (JoinGroupRequestProtocol(name="range", metadata=FOO),)
            join = JoinGroupRequest(
                group_id=self.group, session_timeout_ms=LONG_MS, protocol_type="consumer", protocols=protocols
            )
            first = MemberIdentity(member_id=connection.ask(join, version=3).member_id)
            connection.ask(LeaveGroupRequest(group_id=self.group, members=(first,)), version=5)

    def clear(self) -> None:
        """End what waits, and remove the group if it can be."""
        for waiting in self.waiting.values():
            waiting.close()
        with RawConnection(self.address) as connection:
            gone = tuple(MemberIdentity(member_id=member_id) for member_id in self._labels)
            connection.ask(LeaveGroupRequest(group_id=self.group, members=gone), version=5)
            connection.ask(DeleteGroupsRequest(groups_names=(self.group,)), version=2)

    def is_held_up(self) -> bool:
        """Whether a member id that nobody uses holds up a phase without members; on ours the group is empty then."""
        with RawConnection(self.address) as connection:
            (group,) = connection.ask(DescribeGroupsRequest(groups=(self.group,)), version=6).groups
        return group.group_state == "PreparingRebalance" and not group.members

    def send(self, number: int, client: str, make: Callable[[Side], tuple[Request[Any], int]]) -> None:
        request, version = make(self)
        self.waiting[number] = Waiting(self.address, client, request, version)

    def answered(self, within_s: float) -> set[int]:
        """Numbers of the requests whose answers have come."""
        return {number for number, waiting in self.waiting.items() if waiting.is_answered(within_s)}

    def await_answer(self, number: int, story: str) -> Any:
        assert self.waiting[number].is_answered(SETTLE_S), f"{self.address} lets {number} wait:\n{story}"
        return self._hear(number)

    def _hear(self, number: int) -> Any:
        waiting = self.waiting.pop(number)
        answer = waiting.read()
        member_id, generation = getattr(answer, "member_id", ""), getattr(answer, "generation_id", -1)
        if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_MEMBER_ID:
            self.ids[waiting.client] = ""  # as a client does: it joins anew
            return answer
        if member_id and type(answer).__name__ == "JoinGroupResponse":
            if member_id not in self._labels:
                self._labels[member_id] = f"{waiting.client}#{len(self._labels)}"
            self.ids[waiting.client] = member_id
            if generation > 0:
                self.generation[waiting.client] = generation
        return answer

    def shared(self, answer: Any) -> Any:
        """An answer with names in place of ids, and members in order."""
        text = json.dumps(msgspec.to_builtins(answer))
        for found, label in self._labels.items():
            text = text.replace(found, label)
        return _sorted(json.loads(_UNHEARD.sub("unheard", text)))


def _is_chance(ours: Any, kafka: Any, *, led: str) -> bool:
    """Whether two JoinGroup answers differ in who leads alone, and *led* leads neither: chance, on Kafka."""
    leaders = ours.get("leader", ""), kafka.get("leader", "")
    return (
        leaders[0] != leaders[1]
        and led not in leaders
        and all(ours[name] == kafka[name] for name in ours if name not in ("leader", "members"))
    )


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: bool(item) if name == "client_host" else _sorted(item)
            for name, item in value.items()
            if name not in ("throttle_time_ms", "error_message")
        }
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=json.dumps)
    return value


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
    both = Side(embedded_broker.bootstrap_servers), Side(kafka_broker.bootstrap_servers)
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
            if _is_chance(one, another, led=led):
                return
            assert one == another, f"{story}\n   {answered}: {answer}\nKafka: {other}"
            led = one.get("leader") or led
