"""One group of a broker: topics, numbered records for them, members of ours and of librdkafka's, and who read what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kip848_client import Kip848Error, MemberState
from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.model import NamedPartition
from kip848_client.config import ConfigValue
from tests.interop.conftest import create_topic, unique_name
from tests.interop.real.administrator import Administrator
from tests.interop.real.ledger import Ledger, judge
from tests.interop.real.members import LibrdkafkaMember, Member, OurMember
from tests.support.driving import drive, settings
from tests.support.waiting import TIMEOUT_S

BOTH: Final = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
"""Brokers of a test that runs on each."""

ON_KAFKA: Final = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.parametrize("broker", ["kafka"], indirect=True)]
"""Marks of a module that runs on Apache Kafka alone."""


class Group(Administrator):
    """The group of one test: what an administrator sees of it, its members, and the records that they read.

    Attributes:
        ledger: who had which partition, and read which record.
        written: how many records each partition has, numbered from 0; acknowledged ones only.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers, unique_name("ours"))
        self.ledger: Final = Ledger()
        self.written: Final[dict[NamedPartition, int]] = {}
        self.admin: Final = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._topics: Final[list[str]] = []
        self._members: Final[list[OurMember | LibrdkafkaMember]] = []
        self._producer: Final = Producer(
            {"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 1, "enable.idempotence": True}
        )

    # --- members

    def conf(self, conf: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
        """The configuration that members of both kinds begin with; underscores in names of settings stand for dots."""
        patient = {"reconnect_backoff_max_ms": 500, **conf}
        return settings(self.bootstrap_servers, group_id=self.group_id, **patient)

    def ours(self, name: str, **conf: ConfigValue) -> OurMember:
        """Make a consumer of ours."""
        member = OurMember(name, self.conf(conf), self.ledger)
        self._members.append(member)
        return member

    def theirs(self, name: str, **conf: ConfigValue) -> LibrdkafkaMember:
        """Make a consumer of librdkafka's."""
        member = LibrdkafkaMember(name, self.conf(conf), self.ledger)
        self._members.append(member)
        return member

    def is_settled(self, *members: OurMember) -> bool:
        """Whether the coordinator and these members, all there are, agree on who has what.

        Each has a share: a coordinator that does not know a new topic yet is stable, too, with nothing for anybody.
        """
        if any(one.raw.state is not MemberState.STABLE or not one.partitions for one in members):
            return False
        shown = self.shown()
        return self.is_stable(len(members)) and all(
            shown.member(one.raw.member_id).assigned == one.partitions for one in members
        )

    def settle(self, *members: OurMember) -> None:
        """Let these members, all there are, poll until the group is settled."""
        drive(*members, until=lambda: self.is_settled(*members), what=f"{len(members)} stable members")

    # --- records

    def topic(self, name: str | None = None, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic that is deleted when the test ends; return its name."""
        name = name or unique_name("topic")
        create_topic(self.admin, name, partitions=partitions, config=config)
        self._topics.append(name)
        return name

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        self._topics.remove(topic)

    def write(self, topic: str, count: int, *, partitions: int) -> None:
        """Write *count* more records to each of the first *partitions* partitions, and wait until they are there."""
        places = [NamedPartition(topic, index) for index in range(partitions)]
        if not self.written.keys() >= set(places):
            self._producer.list_topics(topic, timeout=TIMEOUT_S)  # so that it knows of partitions that are new
        for place in places:
            first = self.written.get(place, 0)
            for number in range(first, first + count):
                self._producer.produce(topic, str(number).encode(), partition=place.partition)
            self.written[place] = first + count
        assert self._producer.flush(TIMEOUT_S) == 0, "records were not written"

    def is_read(self) -> bool:
        """Whether as many different records were read as were written."""
        return self.ledger.count() >= sum(self.written.values())

    def read_all(self, *members: Member) -> None:
        """Let the members poll until every record was read."""
        drive(*members, until=self.is_read, what="all records")

    def is_at_the_end(self, member: OurMember) -> bool:
        """Whether this member has read everything to the end, some of it again if need be."""
        places = [PublicPartition(place.topic, place.partition) for place in self.written]
        return self.written == {NamedPartition(at.topic, at.partition): at.offset for at in member.raw.position(places)}

    def committed_all(self) -> bool:
        """Whether the committed offsets are behind all that was written."""
        return self.committed(self.written) == self.written

    def assert_read_once(self) -> None:
        """No record is missing or repeated, and no member read a partition of another one."""
        findings = judge(self.ledger, written=self.written)
        assert not findings.wrong, findings.wrong
        assert findings.repeated == 0, findings

    def close(self) -> None:
        """Close the members, and remove the topics where the broker still runs."""
        for member in self._members:
            with contextlib.suppress(Kip848Error):  # a test of errors has checked already what it expects
                member.close(2.0)
        if self._topics:
            for deleted in self.admin.delete_topics(self._topics, request_timeout=TIMEOUT_S).values():
                deleted.result()


@contextlib.contextmanager
def group_of(bootstrap_servers: str) -> Iterator[Group]:
    """A group of a broker for the time of a test."""
    group = Group(bootstrap_servers)
    try:
        yield group
    finally:
        group.close()


Condition = Callable[[], object]
