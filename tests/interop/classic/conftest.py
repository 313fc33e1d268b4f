"""Groups of the classic protocol on the embedded broker, and on Apache Kafka."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from kip848_client import EmbeddedBroker
from tests.interop.classic.members import CLASSIC, OurMember
from tests.interop.conftest import ADMIN_TIMEOUT_S, create_topic, unique_name
from tests.interop.embedded.classic_members import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, classic_member
from tests.interop.embedded.clients import admin_of, produce
from tests.interop.embedded.holding import Member
from tests.interop.embedded.java_member import JavaMember
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.driving import dotted, quiet
from tests.support.waiting import wait_until

PARTITIONS: Final = 6
JAVA: Final = (
    "group.protocol=classic",
    f"session.timeout.ms={SESSION_MS}",
    f"heartbeat.interval.ms={HEARTBEAT_MS}",
    f"max.poll.interval.ms={REBALANCE_MS}",
)
JAVA_STRATEGY: Final = {
    name: f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
    for name, assignor in {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }.items()
}


class Scene:
    """A topic of `PARTITIONS` partitions, a group, and its members."""

    def __init__(self, request: pytest.FixtureRequest, bootstrap_servers: str, topic: str, group_id: str) -> None:
        self._request: Final = request
        self.bootstrap_servers: Final = bootstrap_servers
        self.topic: Final = topic
        self.group_id: Final = group_id
        self.produced = 0
        self.members: Final[list[Member]] = []

    def ours(self, *, topic: str | None = None, **conf: Any) -> OurMember:
        """Start a member of ours; underscores in settings stand for dots."""
        named = dotted(conf)
        settings = (CLASSIC if named.get("group.protocol", "classic") == "classic" else {}) | named
        member = OurMember(self.bootstrap_servers, topic or self.topic, settings, group_id=self.group_id)
        self.members.append(member)
        return member

    def start(self, name: str) -> Member:
        """Start a member: ``ours`` or a library, then ``consumer``, or the strategy with which it is a classic one."""
        library, _, speaks = name.partition(" ")
        if library == "java":
            return self.java(speaks)
        if library != "ours":
            return self.theirs(name)
        if speaks == "consumer":
            return self.ours(group_protocol="consumer")
        return self.ours(partition_assignment_strategy=speaks)

    def theirs(self, library: str, *, session_ms: int = SESSION_MS) -> Member:
        """Start a member of another library."""
        if library == "librdkafka consumer":
            self._let_heartbeats_take_a_second()
        topics = (self.topic,)
        member = classic_member(library, self.bootstrap_servers, topics, group_id=self.group_id, session_ms=session_ms)
        self.members.append(member)
        return member

    def _let_heartbeats_take_a_second(self) -> None:
        """Give the group an interval that a busy machine keeps.

        librdkafka gives up a heartbeat after one interval. The next one does not say what the member owns, so that the
        assignment in a late answer is never heard of, on Kafka, too; or the member is fenced, and reads again what it
        had not committed.
        """
        interval = ConfigEntry("consumer.heartbeat.interval.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ConfigResource.Type.GROUP, self.group_id, incremental_configs=[interval])
        admin = admin_of(self.bootstrap_servers)
        admin.incremental_alter_configs([group])[group].result(ADMIN_TIMEOUT_S)

    def java(self, strategy: str) -> JavaMember:
        """Start a member of Apache Kafka's own client."""
        java: list[str] = self._request.getfixturevalue("java")
        member = JavaMember(java, self.bootstrap_servers, self.group_id, self.topic, *JAVA, JAVA_STRATEGY[strategy])
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """Close a member; what it read still counts."""
        member.leave()

    def scale_out_and_in(self, first_name: str, second_name: str) -> tuple[Member, Member]:
        """A member reads alone, another one takes half, the first one leaves; every record is read, none twice."""
        self.produce(60)
        first = self.start(first_name)
        self.wait_until_all_is_read()
        second = self.start(second_name)
        self.wait_for_owned(first, second, shares=(3, 3))
        self.produce(600)
        self.wait_until_all_is_read()
        self.leave(first)
        self.wait_for_owned(second, shares=(PARTITIONS,))
        self.produce(60)
        self.wait_until_all_is_read()
        assert set(self.read.values()) == {1}
        return first, second

    def produce(self, count: int) -> None:
        """Write records, spread over the partitions."""
        produce(self.bootstrap_servers, self.topic, count, partitions=PARTITIONS)
        self.produced += count

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        (future,) = admin.create_partitions([NewPartitions(self.topic, partitions)]).values()
        future.result(30)

    @property
    def read(self) -> Counter[tuple[str, int, int]]:
        """How often each record was read, by all members together."""
        return Counter(key for member in self.members for key in tuple(member.delivered))

    def wait_until_all_is_read(self) -> None:
        """Wait until every record was read at least once."""
        wait_until(lambda: len(self.read) >= self.produced, what=f"{self.produced} records")

    @contextmanager
    def records_flowing(self) -> Iterator[None]:
        """Write some hundred records a second as long as this is open; all are acknowledged on return."""
        producer = Producer(quiet({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 1}))
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.01):
                for partition in range(PARTITIONS):
                    producer.produce(self.topic, b"", partition=partition)
                producer.poll(0)
                self.produced += PARTITIONS

        writer = threading.Thread(target=write, name="flow")
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join()
            assert not producer.flush(60), "some records were not acknowledged"

    def wait_for_reading(self) -> None:
        """Wait until as many records as are written in a moment have been read from every partition."""
        before = Counter(partition for _, partition, _ in self.read)

        def has_grown() -> bool:
            now = Counter(partition for _, partition, _ in self.read)
            return all(now[partition] >= before[partition] + 10 for partition in range(PARTITIONS))

        wait_until(has_grown, what="more records of every partition")

    def wait_for_owned(self, *members: Member, shares: tuple[int, ...], partitions: int = PARTITIONS) -> None:
        """Wait until *members* have all partitions, so many each in any order."""

        def are_shared() -> bool:
            owned = [member.owned for member in members]
            return (
                sorted(map(len, owned)) == sorted(shares)
                and len(frozenset().union(*owned)) == sum(shares)
                and sum(shares) <= partitions
            )

        wait_until(are_shared, what=f"shares of {shares}")


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A new topic and group, on either broker; members that a test leaves behind are closed."""
    made: Scene = request.getfixturevalue(f"{request.param}_scene")
    return made


@pytest.fixture
def embedded_scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A topic and a group on an embedded broker of the test's own."""
    with EmbeddedBroker() as broker, scene_on(request, broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def kafka_scene(request: pytest.FixtureRequest, kafka_broker: KafkaBroker | ExternalKafka) -> Iterator[Scene]:
    """The same on Apache Kafka."""
    with scene_on(request, kafka_broker.bootstrap_servers) as made:
        yield made


@contextmanager
def scene_on(request: pytest.FixtureRequest, bootstrap_servers: str) -> Iterator[Scene]:
    """A new topic and group. In the end every member that still polls is closed; the first failure of one is raised."""
    topic = unique_name("topic")
    admin = admin_of(bootstrap_servers)
    create_topic(admin, topic, partitions=PARTITIONS)
    made = Scene(request, bootstrap_servers, topic, unique_name("classic"))
    with ExitStack() as stack:
        yield made
        for member in made.members:
            stack.callback(member.leave)
    admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
