"""Online migration: groups that change their type, and groups with members of both kinds, on our broker and on Kafka.

Two classic clients and two on KIP-848 join, take what they are given, commit, leave, take each other's places and get
things wrong; every answer has to agree. A conversation ends where docs/differences.md says that brokers differ from
there on: who leads is chance on Kafka, a refused upgrade disturbs waiting members there, another preferred assignor
makes no epoch there, some requests fail there, a group whose last KIP-848 member is replaced is stable too early there,
a group without members begins anew with another epoch, and ids that Kafka makes for static members come in any order.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from kip848_client.broker import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kip848_client.wire.schema import Request
from tests.interop.differential.classic_side import LONG_MS, Side, is_chance
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

STEPS: Final = 60
PAUSE_S: Final = 0.03
"""How long an answer is waited for that need not come."""
PARTITIONS: Final = 6
CLASSIC: Final = ("a", "b")
CONSUMER: Final = ("x", "y")
INSTANCE: Final = "i"
Make = Callable[["MixedSide"], tuple[Request[Any], int]]


class Habits(msgspec.Struct, frozen=True):
    """What the clients of one conversation are like.

    Args:
        version: of the embedded subscription; from 1 on a client can be cooperative.
        static: clients with the one instance id, of both kinds: they take each other's place.
    """

    version: int
    cooperative: bool
    static: frozenset[str]


class MixedSide(Side):
    """A side whose clients speak either protocol."""

    def __init__(self, address: str, group: str) -> None:
        super().__init__(address, group)
        self.ids |= {client: client for client in CONSUMER}
        self.generation |= dict.fromkeys(CONSUMER, 0)
        self.owned: dict[str, list[int]] = {client: [] for client in self.ids}
        self.followers: dict[str, list[str]] = {}
        """Client -> ids of all members, as their leader was told."""
        self.ahead = 0
        """How far epochs are ahead of the other side's: Kafka gives a new group one more."""
        self.topic_id = uuid.UUID(int=0)
        self.names_itself = False
        """Whether clients choose their member ids."""

    def prepare(self, *, partitions: int = PARTITIONS) -> None:
        """As for classic groups; and the coordinator knows the topic."""
        super().prepare(partitions=partitions)
        probe = ConsumerGroupHeartbeatRequest(
            f"{self.group}-probe",
            "probe",
            rebalance_timeout_ms=LONG_MS,
            subscribed_topic_names=(self.topic,),
            topic_partitions=(),
        )
        with RawConnection(self.address) as connection:

            def is_known() -> bool:
                answer = connection.ask(probe, version=1)
                for topic in answer.assignment.topic_partitions if answer.assignment is not None else ():
                    self.topic_id = topic.topic_id
                return self.topic_id.int != 0

            wait_until(is_known, what="the coordinator to know the topic")
            connection.ask(ConsumerGroupHeartbeatRequest(probe.group_id, "probe", -1), version=1)
            connection.ask(DeleteGroupsRequest(groups_names=(probe.group_id,)), version=2)

    def hear(self, number: int) -> Any:
        """Read an answer that has come, and let the client take note of it."""
        client, request = self.waiting[number].client, self.waiting[number].request
        answer = super().hear(number)
        if answer.error_code if hasattr(answer, "error_code") else 0:
            return answer
        match answer:
            case JoinGroupResponse():
                self.followers[client] = [member.member_id for member in answer.members]
            case SyncGroupResponse() if answer.assignment not in (b"", b"?"):
                assigned = decode_assignment(answer.assignment).assigned_partitions
                self.owned[client] = sorted(number for topic in assigned for number in topic.partitions)
            case ConsumerGroupHeartbeatResponse():
                assert isinstance(request, ConsumerGroupHeartbeatRequest)
                self.generation[client] = max(answer.member_epoch, 0)
                if answer.assignment is not None:
                    self.owned[client] = sorted(
                        number for topic in answer.assignment.topic_partitions for number in topic.partitions
                    )
                if answer.member_epoch < 0:
                    self.owned[client] = []
            case _:
                pass
        return answer

    def shared(self, answer: Any) -> Any:
        """An answer with names in place of ids, epochs as the other side counts them, and members in order."""
        if isinstance(answer, ListGroupsResponse):
            answer = replace(answer, groups=tuple(group for group in answer.groups if group.group_id == self.group))
        return self._counted(super().shared(answer))

    def _counted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: item - self.ahead
                if name in ("generation_id", "member_epoch", "group_epoch", "assignment_epoch") and item > 0
                else "the topic"
                if name == "topic_id" and item == str(self.topic_id)
                else self._counted(item)
                for name, item in value.items()
            }
        return [self._counted(item) for item in value] if isinstance(value, list) else value


def _join(rng: random.Random, client: str, habits: Habits) -> Make:
    static = INSTANCE if client in habits.static else None
    fresh = static is not None and rng.random() < 0.3  # a process that has restarted
    version = rng.choice([5, 8, 9] if static else [3, 4, 7, 9])
    # A consumer group takes any id that it does not know. Those that Kafka makes there would come in another order each
    # time, and the assignor gives out partitions in the order of ids.
    own_id = f"{client}-{rng.randrange(10**9):022}"
    names = rng.choice([("range",)] * 6 + [("range", "sticky"), ("sticky",)])
    forgets = rng.random() < 0.1

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        owned: tuple[TopicPartition, ...] = ()
        if habits.cooperative and side.owned[client] and not (fresh or forgets):
            owned = (TopicPartition(topic=side.topic, partitions=tuple(side.owned[client])),)
        subscription = ConsumerProtocolSubscription(topics=(side.topic,), owned_partitions=owned)
        metadata = encode_subscription(subscription, version=habits.version)
        return JoinGroupRequest(
            group_id=side.group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id="" if fresh else side.ids[client] or (own_id if side.names_itself and static is None else ""),
            group_instance_id=static,
            protocol_type="consumer",
            protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names),
        ), version

    return make


def _sync(rng: random.Random, client: str, habits: Habits) -> Make:
    off = rng.choice([0] * 8 + [-1, 1])
    custom = rng.choice([None] * 12 + [b"user data", b"?"])
    version = rng.choice([3, 5])

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        ids = sorted(side.followers.get(client, ()))
        given = []
        for index, member_id in enumerate(ids):
            topic = TopicPartition(topic=side.topic, partitions=tuple(range(index, PARTITIONS, len(ids))))
            assignment = ConsumerProtocolAssignment(
                assigned_partitions=(topic,), user_data=custom if custom != b"?" else None
            )
            data = b"?" if custom == b"?" else encode_assignment(assignment, version=habits.version)
            given.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
        return SyncGroupRequest(
            group_id=side.group,
            generation_id=side.generation[client] + off,
            member_id=side.ids[client] or "nobody",
            group_instance_id=INSTANCE if client in habits.static else None,
            protocol_type="consumer" if version == 5 else None,
            protocol_name="range" if version == 5 else None,
            assignments=tuple(given),
        ), version

    return make


def _beat(rng: random.Random, client: str, habits: Habits) -> Make:
    off = rng.choice([0] * 8 + [-1, 1])
    return lambda side: (
        HeartbeatRequest(
            group_id=side.group,
            generation_id=side.generation[client] + off,
            member_id=side.ids[client] or "nobody",
            group_instance_id=INSTANCE if client in habits.static else None,
        ),
        4,
    )


def _consumer_beat(rng: random.Random, client: str, habits: Habits) -> Make:
    """A heartbeat of a KIP-848 client; it joins when it is at epoch 0."""
    leaves = rng.choice([0] * 9 + [-1])
    away = client in habits.static and rng.random() < 0.5
    off = rng.choice([0] * 10 + [-1, 1])
    owned = rng.choice(["all", "all", "unsaid", "none"])
    as_classic = rng.random() < 0.05

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        epoch = side.generation[client]
        member_id = side.ids["a"] or client if as_classic else client
        # A dynamic member's id with an instance id is refused here alone.
        instance = INSTANCE if client in habits.static and not as_classic else None
        if leaves and epoch > 0:
            gone = ConsumerGroupHeartbeatRequest(side.group, member_id, -2 if away else -1, instance_id=instance)
            return gone, 1
        joins = epoch == 0
        if joins or owned != "unsaid":
            held = side.owned[client] if owned == "all" and not joins else []
            said = (TopicPartitions(side.topic_id, tuple(held)),) if held else ()
        return ConsumerGroupHeartbeatRequest(
            side.group,
            member_id,
            epoch if joins or epoch - side.ahead + off <= 0 else epoch + off,
            instance_id=instance,
            rebalance_timeout_ms=LONG_MS if joins else -1,
            subscribed_topic_names=(side.topic,) if joins else None,
            server_assignor="range" if joins else None,
            topic_partitions=said if joins or owned != "unsaid" else None,
        ), 1

    return make


def _commit(rng: random.Random, client: str, habits: Habits) -> Make:
    off = rng.choice([0, 0, 0, 0, -1, -1, 1])
    anonymous = rng.random() < 0.1

    version = rng.choice([8, 9])
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=number, committed_offset=5, committed_metadata="")
        for number in range(PARTITIONS)
    )

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        return OffsetCommitRequest(
            group_id=side.group,
            generation_id_or_member_epoch=-1 if anonymous else side.generation[client] + off,
            member_id="" if anonymous else side.ids[client] or "nobody",
            group_instance_id=None,
            topics=(OffsetCommitRequestTopic(name=side.topic, partitions=partitions),),
        ), version

    return make


def _fetch(rng: random.Random, client: str, _: Habits) -> Make:
    off = rng.choice([0, 0, -1, 1])

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        member_id = side.ids[client] or None
        epoch = -1 if member_id is None else side.generation[client] + off
        group = OffsetFetchRequestGroup(group_id=side.group, member_id=member_id, member_epoch=epoch, topics=None)
        return OffsetFetchRequest(groups=(group,)), 9

    return make


def _leave(rng: random.Random, client: str, habits: Habits) -> Make:
    by_instance = rng.random() < 0.3
    others = rng.random() < 0.2

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        instance = INSTANCE if client in habits.static else None
        member_id = "" if by_instance else side.ids[client] or "nobody"
        gone = [MemberIdentity(member_id=member_id, group_instance_id=instance)]
        if others:
            gone += [MemberIdentity(member_id="x"), MemberIdentity(member_id="nobody")]
        return LeaveGroupRequest(group_id=side.group, members=tuple(gone)), 5

    return make


def _look(rng: random.Random, _client: str, _habits: Habits) -> Make:
    what = rng.choice(["consumer", "consumer", "classic", "list"])

    def make(side: MixedSide) -> tuple[Request[Any], int]:
        match what:
            case "consumer":
                return ConsumerGroupDescribeRequest(group_ids=(side.group,)), 1
            case "classic":
                return DescribeGroupsRequest(groups=(side.group,)), 6
            case _:
                return ListGroupsRequest(), 5

    return make


@pytest.fixture
def sides(
    kafka_broker: KafkaBroker | ExternalKafka, embedded_broker: EmbeddedBroker
) -> Iterator[tuple[MixedSide, MixedSide]]:
    group = f"mixed-{uuid.uuid4().hex}"
    both = MixedSide(embedded_broker.bootstrap_servers, group), MixedSide(kafka_broker.bootstrap_servers, group)
    for side in both:
        side.prepare()
    yield both
    for side in both:
        side.clear()


def test_a_group_that_migrates_gives_the_same_answers(
    seed: int, sides: tuple[MixedSide, MixedSide], embedded_broker: EmbeddedBroker
) -> None:
    """A migration that was tested here has the same outcome on Kafka."""
    ours, kafka = sides
    rng = random.Random(seed)
    version = rng.choice([0, 1, 1, 3])
    static = [frozenset[str](), frozenset("b"), frozenset("y"), frozenset("by")]
    habits = Habits(version, cooperative=version > 0 and rng.random() < 0.7, static=rng.choice(static))
    classic = [(5, _join), (6, _sync), (5, _beat), (2, _commit), (1, _fetch), (1, _leave)]
    consumer = [(12, _consumer_beat), (2, _commit), (1, _fetch), (1, _leave)]
    begins_new = rng.random() < 0.3
    transcript: list[str] = [str(habits)]
    led = ""
    for number in range(STEPS):
        group = embedded_broker.group(ours.group)
        if group is not None and (group.type, group.state) == ("consumer", "Empty"):
            return
        if _order(ours) != _order(kafka):
            return
        ours.names_itself = kafka.names_itself = is_consumer = group is not None and group.type == "consumer"
        # A member with a request that waits sends no other: what becomes of the older one differs on purpose.
        busy = {waiting.client for waiting in ours.waiting.values()}
        free = [client for client in (*CLASSIC, *CONSUMER) if client not in busy]
        client = rng.choice([*free, *(() if begins_new or number < 12 else CONSUMER)])
        if number < 10 and not begins_new:
            client = rng.choice([one for one in free if one in CLASSIC] or ["x"])
        actions = classic if client in CLASSIC else consumer
        ((_, act),) = rng.choices([*actions, (1, _look)], [weight for weight, _ in actions] + [2])
        make = act(rng, client, habits)
        request, api_version = make(ours)
        waits = bool(ours.waiting)
        ours.send(number, client, make)  # type: ignore[arg-type]
        kafka.send(number, client, make)  # type: ignore[arg-type]
        transcript.append(f"{number} {client} v{api_version} {request}")
        if kafka.is_held_up():
            return
        here, there = ours.answered(PAUSE_S), kafka.answered(0.0)
        if is_consumer and isinstance(request, JoinGroupRequest) and number in there - here:
            return
        for answered in sorted(here | there, key=lambda each: (each != number, each)):
            story = "\n".join(transcript)
            answer, other = ours.await_answer(answered, story), kafka.await_answer(answered, story)
            transcript.append(f"   {answered}: {answer}")
            if _begins(answer):
                kafka.ahead = max(other.member_epoch - answer.member_epoch, 0)
                assert kafka.ahead in (0, 1), story
            one, another = ours.shared(answer), kafka.shared(other)
            if is_chance(one, another, led=led) or _prefers_anew(request, one, another):
                return
            if another.get("error_code") == ErrorCode.UNKNOWN_SERVER_ERROR or _joins_nothing(another):
                return
            assert one == another, f"{story}\n   {answered}: {answer}\nKafka: {other}"
            led = one.get("leader") or led
            if waits and one.get("error_code") == ErrorCode.GROUP_ID_NOT_FOUND:
                return


def _prefers_anew(request: Request[Any], ours: Any, kafka: Any) -> bool:
    """Whether a member that takes a classic one's place names the first assignor: a new epoch with us alone."""
    takes_a_place = (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and not request.member_epoch
        and (request.instance_id is not None or request.member_id not in CONSUMER)
    )
    return takes_a_place and ours.get("member_epoch", 0) == kafka.get("member_epoch", 0) + 1


def _joins_nothing(kafka: Any) -> bool:
    """Whether a classic member took the last KIP-848 member's place while a target was due: generation 0 there."""
    return not kafka.get("error_code") and kafka.get("generation_id") == 0


def _order(side: MixedSide) -> list[str]:
    """Clients in the order of their member ids, in which the assignor gives out partitions."""
    return sorted(side.ids, key=lambda client: (side.ids[client], client))


def _begins(answer: Any) -> bool:
    return isinstance(answer, ConsumerGroupHeartbeatResponse) and answer.member_epoch in (1, 2)
