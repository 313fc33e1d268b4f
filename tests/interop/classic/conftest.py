"""Groups of the classic protocol on the embedded broker, and on Apache Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kip848_client.broker import EmbeddedBroker
from tests.interop.classic.members import CLASSIC, OurMember
from tests.interop.conftest import CreateTopic, unique_name
from tests.interop.embedded.classic_members import ClassicMember, classic_member
from tests.interop.embedded.clients import produce
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.waiting import wait_until

PARTITIONS: Final = 6


class Scene:
    """A topic of `PARTITIONS` partitions, a group, and its members."""

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str) -> None:
        self.bootstrap_servers: Final = bootstrap_servers
        self.topic: Final = topic
        self.group_id: Final = group_id
        self.produced = 0
        self.members: Final[list[ClassicMember]] = []

    def ours(self, *, topic: str | None = None, **conf: Any) -> OurMember:
        """Start a member of ours; underscores in settings stand for dots."""
        named = {name.replace("_", "."): value for name, value in conf.items()}
        settings = (CLASSIC if named.get("group.protocol", "classic") == "classic" else {}) | named
        member = OurMember(self.bootstrap_servers, topic or self.topic, settings, group_id=self.group_id)
        self.members.append(member)
        return member

    def theirs(self, library: str) -> ClassicMember:
        """Start a member of another library."""
        member = classic_member(library, self.bootstrap_servers, (self.topic,), group_id=self.group_id)
        self.members.append(member)
        return member

    def leave(self, member: ClassicMember) -> None:
        """Close a member; what it read still counts."""
        member.leave()

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
        wait_until(lambda: len(self.read) >= self.produced, what=f"{self.produced} records", timeout_s=60)

    def wait_for_owned(self, *members: OurMember, shares: tuple[int, ...], partitions: int = PARTITIONS) -> None:
        """Wait until *members* have all partitions, so many each in any order."""

        def are_shared() -> bool:
            owned = [member.owned for member in members]
            return (
                sorted(map(len, owned)) == sorted(shares)
                and len(frozenset().union(*owned)) == sum(shares)
                and sum(shares) <= partitions
            )

        wait_until(are_shared, what=f"shares of {shares}", timeout_s=60)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A new topic and group, on either broker; members that a test leaves behind are closed."""
    if request.param == "embedded":
        with EmbeddedBroker({"orders": PARTITIONS}) as broker:
            made = Scene(broker.bootstrap_servers, "orders", "g")
            yield made
            close_all(made)
        return
    yield request.getfixturevalue("kafka_scene")


@pytest.fixture
def kafka_scene(kafka_broker: KafkaBroker | ExternalKafka, kafka_topic: CreateTopic) -> Iterator[Scene]:
    """The same on Apache Kafka."""
    made = Scene(kafka_broker.bootstrap_servers, kafka_topic(partitions=PARTITIONS), unique_name("classic"))
    yield made
    close_all(made)


def close_all(scene: Scene) -> None:
    """Close every member that still polls."""
    for member in scene.members:
        member.leave()


Check = Callable[[], bool]
