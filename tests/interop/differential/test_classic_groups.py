"""Classic groups, and groups that migrate: the same requests get the same answers from our broker and from Kafka.

Every request has a connection of its own, so that one that waits holds up no other. Two classic clients, and in a
migration two on KIP-848, join, take what they are given, commit, leave, take each other's places and get things wrong.

A conversation ends where docs/differences.md says that brokers differ from there on: who leads is chance on Kafka, a
refused upgrade disturbs waiting members there, another preferred assignor makes no epoch there, some requests fail
there, a group whose last KIP-848 member is replaced is stable too early there, a group without members begins anew with
another epoch, and ids that Kafka makes for static members come in any order.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.messages import build
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
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import Request
from tests.interop.differential.classic_side import CLASSIC, CONSUMER, LONG_MS, PARTITIONS, Side, is_chance
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.group_requests import commit

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

STEPS: Final = 60
PAUSE_S: Final = 0.04
"""How long an answer is waited for that need not come."""
INSTANCE: Final = "i"
Make = Callable[[Side], tuple[Request[Any], int]]
Act = Callable[[random.Random, str, "Habits"], Make]


class Habits(msgspec.Struct, frozen=True):
    """What the clients of one conversation are like.

    Args:
        version: of the embedded subscription; from 1 on a client can be cooperative.
        static: clients with the one instance id, of both kinds: they take each other's place.
        odd: they disagree about assignors and protocols, forget or invent instance ids, and assign no partitions.
    """

    version: int = 0
    cooperative: bool = False
    static: frozenset[str] = frozenset()
    odd: bool = False

    def instance(self, rng: random.Random, client: str) -> str | None:
        """The instance id that a client sends."""
        has_one = client in self.static
        if self.odd:
            has_one = rng.random() < (0.5 if has_one else 0.1)
        return INSTANCE if has_one else None


def _join(rng: random.Random, client: str, habits: Habits) -> Make:
    static = habits.instance(rng, client)
    fresh = static is not None and rng.random() < 0.3  # a process that has restarted
    version = rng.choice([5, 8, 9] if static else [2, 3, 4, 7, 9] if habits.odd else [3, 4, 7, 9])
    # A consumer group takes any id that it does not know. Those that Kafka makes there would come in another order each
    # time, and the assignor gives out partitions in the order of ids.
    own_id = f"{client}-{rng.randrange(10**9):022}"
    names = rng.choice([("range",)] * (1 if habits.odd else 6) + [("range", "sticky"), ("sticky",)])
    protocol_type = "consumer"
    topics: tuple[str, ...] = ()
    if habits.odd:
        names = rng.choice([names, names, names, ()])
        protocol_type = rng.choice(["consumer"] * 8 + ["connect", ""])
        topics = rng.choice([(), (), (), ("bar",)])
    forgets = rng.random() < 0.1

    def make(side: Side) -> tuple[Request[Any], int]:
        owned: tuple[TopicPartition, ...] = ()
        if habits.cooperative and side.owned[client] and not (fresh or forgets):
            owned = (TopicPartition(topic=side.topic, partitions=tuple(side.owned[client])),)
        subscription = ConsumerProtocolSubscription(topics=(side.topic, *topics), owned_partitions=owned)
        metadata = encode_subscription(subscription, version=habits.version)
        return build(
            JoinGroupRequest,
            group_id=side.group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id="" if fresh else side.ids[client] or (own_id if side.names_itself and static is None else ""),
            group_instance_id=static,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name in names],
        ), version

    return make


def _sync(rng: random.Random, client: str, habits: Habits) -> Make:
    off = rng.choice([0] * 8 + [-1, 1])
    custom = rng.choice([None] * 12 + [b"user data", b"?"])
    version = rng.choice([3, 4, 5])
    instance = habits.instance(rng, client)
    named = rng.choice(["range", "sticky", None]) if habits.odd else "range"

    def make(side: Side) -> tuple[Request[Any], int]:
        ids = sorted(side.followers.get(client, ()))
        given: list[dict[str, Any]] = []
        if habits.odd:
            given = [{"member_id": known, "assignment": name.encode()} for name, known in side.ids.items()]
            ids = []
        for index, member_id in enumerate(ids):
            topic = TopicPartition(topic=side.topic, partitions=tuple(range(index, PARTITIONS, len(ids))))
            assignment = ConsumerProtocolAssignment(
                assigned_partitions=(topic,), user_data=custom if custom != b"?" else None
            )
            data = b"?" if custom == b"?" else encode_assignment(assignment, version=habits.version)
            given.append({"member_id": member_id, "assignment": data})
        return build(
            SyncGroupRequest,
            group_id=side.group,
            generation_id=side.generation[client] + off,
            member_id=side.ids[client] or "nobody",
            group_instance_id=instance,
            protocol_type="consumer" if version == 5 and named else None,
            protocol_name=named if version == 5 else None,
            assignments=given,
        ), version

    return make


def _beat(rng: random.Random, client: str, habits: Habits) -> Make:
    off = rng.choice([0] * 8 + [-1, 1])
    version = rng.choice([3, 4])
    instance = habits.instance(rng, client)
    return lambda side: (
        HeartbeatRequest(
            group_id=side.group,
            generation_id=side.generation[client] + off,
            member_id=side.ids[client] or "nobody",
            group_instance_id=instance,
        ),
        version,
    )


def _consumer_beat(rng: random.Random, client: str, habits: Habits) -> Make:
    """A heartbeat of a KIP-848 client; it joins when it is at epoch 0."""
    leaves = rng.choice([0] * 9 + [-1])
    away = client in habits.static and rng.random() < 0.5
    off = rng.choice([0] * 10 + [-1, 1])
    owned = rng.choice(["all", "all", "unsaid", "none"])
    as_classic = rng.random() < 0.05

    def make(side: Side) -> tuple[Request[Any], int]:
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

    def make(side: Side) -> tuple[Request[Any], int]:
        epoch = -1 if anonymous else side.generation[client] + off
        member_id = "" if anonymous else side.ids[client] or "nobody"
        offsets = dict.fromkeys(range(PARTITIONS), 5)
        return commit(offsets, epoch=epoch, member_id=member_id, group=side.group, topic=side.topic), version

    return make


def _fetch(rng: random.Random, client: str, _: Habits) -> Make:
    off = rng.choice([0, 0, -1, 1])

    def make(side: Side) -> tuple[Request[Any], int]:
        member_id = side.ids[client] or None
        epoch = -1 if member_id is None else side.generation[client] + off
        group = {"group_id": side.group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        return build(OffsetFetchRequest, groups=[group]), 9

    return make


def _leave(rng: random.Random, client: str, habits: Habits) -> Make:
    by_instance = rng.random() < 0.3
    others = rng.random() < 0.2
    version = rng.choice([3, 4, 5]) if habits.odd else 5
    instance = habits.instance(rng, client)

    def make(side: Side) -> tuple[Request[Any], int]:
        member_id = "" if by_instance else side.ids[client] or "nobody"
        gone: list[dict[str, Any]] = [{"member_id": member_id, "group_instance_id": instance}]
        if others:
            gone += [{"member_id": "x"}, {"member_id": "nobody"}]
        return build(LeaveGroupRequest, group_id=side.group, members=gone), version

    return make


def _look(rng: random.Random, _client: str, _habits: Habits) -> Make:
    what = rng.choice(["consumer", "consumer", "classic", "list"])

    def make(side: Side) -> tuple[Request[Any], int]:
        match what:
            case "consumer":
                return ConsumerGroupDescribeRequest(group_ids=(side.group,)), 1
            case "classic":
                return DescribeGroupsRequest(groups=(side.group,)), 6
            case _:
                return ListGroupsRequest(), 5

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


def test_classic_clients_get_the_same_answers(
    seed: int, sides: tuple[Side, Side], embedded_broker: EmbeddedBroker
) -> None:
    """A classic client gets the answers here that it gets from Kafka."""
    habits = Habits(odd=True, static=frozenset("b"))
    classic = [(8, _join), (6, _sync), (4, _beat), (2, _commit), (2, _leave), (2, _look)]
    Conversation(*sides, embedded_broker, random.Random(seed), habits).go(dict.fromkeys(CLASSIC, classic))


def test_a_group_that_migrates_gets_the_same_answers(
    seed: int, sides: tuple[Side, Side], embedded_broker: EmbeddedBroker
) -> None:
    """A migration that was tested here has the same outcome on Kafka."""
    rng = random.Random(seed)
    version = rng.choice([0, 1, 1, 3])
    static = rng.choice([frozenset[str](), frozenset("b"), frozenset("y"), frozenset("by")])
    habits = Habits(version, cooperative=version > 0 and rng.random() < 0.7, static=static)
    classic = [(5, _join), (6, _sync), (5, _beat), (2, _commit), (1, _fetch), (1, _leave), (2, _look)]
    consumer = [(12, _consumer_beat), (2, _commit), (1, _fetch), (1, _leave), (2, _look)]
    actions = dict.fromkeys(CLASSIC, classic) | dict.fromkeys(CONSUMER, consumer)
    Conversation(*sides, embedded_broker, rng, habits).go(actions, classic_first=rng.random() < 0.7)


class Conversation:
    """One conversation: each request is drawn once and sent to both sides."""

    def __init__(
        self, ours: Side, kafka: Side, embedded_broker: EmbeddedBroker, rng: random.Random, habits: Habits
    ) -> None:
        self._ours = ours
        self._kafka = kafka
        self._broker = embedded_broker
        self._rng = rng
        self._habits = habits
        self._transcript = [str(habits)]
        self._led = ""

    def go(self, actions: Mapping[str, Sequence[tuple[int, Act]]], *, classic_first: bool = True) -> None:
        """All of it, or up to where the brokers differ on purpose.

        Args:
            actions: client -> what it does, with weights.
            classic_first: the group is a classic one before anybody else joins.
        """
        ours, kafka, rng = self._ours, self._kafka, self._rng
        for number in range(STEPS):
            group = self._broker.groups.get(ours.group)
            is_consumer = group is not None and group.type == "consumer"
            if is_consumer and group is not None and group.state == "Empty":
                return
            if len(actions) > len(CLASSIC) and _order(ours) != _order(kafka):
                return
            ours.names_itself = kafka.names_itself = is_consumer
            # A member with a request that waits sends no other: what becomes of the older one differs on purpose.
            busy = {waiting.client for waiting in ours.waiting.values()}
            free = [client for client in actions if client not in busy]
            if classic_first:  # and later those on KIP-848 act more often
                old, new = ([one for one in free if one in some] for some in (CLASSIC, CONSUMER))
                free = old if number < 10 else [*old, *new, *new]
            client = rng.choice(free or [list(actions)[-1]])
            weighted = actions[client] if free or client in CONSUMER else [(1, _look), (1, _beat), (1, _leave)]
            ((_, act),) = rng.choices(weighted, [weight for weight, _ in weighted])
            make = act(rng, client, self._habits)
            request, api_version = make(ours)
            if _kafka_fails_at(request):
                continue
            waited = bool(ours.waiting)
            ours.send(number, client, make)
            kafka.send(number, client, make)
            self._transcript.append(f"{number} {client} v{api_version} {request}")
            if kafka.is_held_up():
                return
            here, there = ours.answered(PAUSE_S), kafka.answered(0.0)
            if is_consumer and isinstance(request, JoinGroupRequest) and number in there - here:
                return
            for answered in sorted(here | there, key=lambda each: (each != number, each)):
                if self._differs_from_here(answered, request, waited=waited):
                    return

    def _differs_from_here(self, answered: int, request: Request[Any], *, waited: bool) -> bool:
        """Compare the answers to one request; whether the brokers differ on purpose from there on."""
        story = "\n".join(self._transcript)
        answer = self._ours.await_answer(answered, story)
        other = self._kafka.await_answer(answered, story)
        self._transcript.append(f"   {answered}: {answer}")
        if isinstance(answer, ConsumerGroupHeartbeatResponse) and answer.member_epoch in (1, 2):  # a new group
            self._kafka.ahead = max(other.member_epoch - answer.member_epoch, 0)
            assert self._kafka.ahead in (0, 1), story
        one, another = self._ours.shared(answer), self._kafka.shared(other)
        if is_chance(one, another, led=self._led) or _prefers_anew(request, one, another):
            return True
        if another.get("error_code") == ErrorCode.UNKNOWN_SERVER_ERROR or _joins_nothing(another):
            return True
        assert one == another, f"{story}\n   {answered}: {answer}\nKafka: {other}"
        self._led = one.get("leader") or self._led
        return waited and one.get("error_code") == ErrorCode.GROUP_ID_NOT_FOUND


def _kafka_fails_at(request: Request[Any]) -> bool:
    """Whether it names an id that was handed out to a dynamic member together with an instance id."""
    return (
        isinstance(request, JoinGroupRequest)
        and request.group_instance_id is not None
        and bool(request.member_id)
        and not request.member_id.startswith(f"{INSTANCE}-")
    )


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


def _order(side: Side) -> list[str]:
    """Clients in the order of their member ids, in which the assignor gives out partitions."""
    return sorted(side.ids, key=lambda client: (side.ids[client], client))
