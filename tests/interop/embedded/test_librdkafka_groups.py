"""librdkafka members (``group.protocol=consumer``) in groups of the embedded broker."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kip848_client.broker import EmbeddedBroker
from kip848_client.journal import MemoryJournal
from tests.interop.embedded.clients import TIMEOUT_S, MemberThread, all_keys, produce, quiet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def broker(journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 6}, journal=journal) as running:
        yield running


def committed(broker: EmbeddedBroker, topic: str, partitions: int, *, group_id: str = "g") -> dict[int, int]:
    """Committed offsets as a client sees them; partitions without one are left out."""
    consumer = Consumer(quiet({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id}))
    try:
        found = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=TIMEOUT_S)
        return {item.partition: item.offset for item in found if item.offset >= 0}
    finally:
        consumer.close()


def test_one_member_reads_everything_and_leaves_its_positions(broker: EmbeddedBroker) -> None:
    """The first thing that a user does with a group."""
    produce(broker.bootstrap_servers, "orders", 600, partitions=6)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        wait_until(lambda: len(member.delivered) >= 600, what="600 records")
    assert member.keys() == all_keys("orders", 600, partitions=6)
    assert len(member.delivered) == 600
    assert not member.errors
    assert committed(broker, "orders", 6) == dict.fromkeys(range(6), 100)
    assert broker.wait_for_group("g", state="Empty", members=0).group_epoch == 2


def test_a_second_member_gets_half_and_no_record_is_read_twice_or_lost(broker: EmbeddedBroker) -> None:
    """The heart of the protocol: the newcomer waits until the other has given up and committed."""
    produce(broker.bootstrap_servers, "orders", 600, partitions=6)
    with MemberThread(broker.bootstrap_servers, ["orders"], client_id="a") as first:
        broker.wait_for_group("g", state="Stable", members=1)
        wait_until(lambda: len(first.delivered) >= 600, what="600 records")
        with MemberThread(broker.bootstrap_servers, ["orders"], client_id="b") as second:
            group = broker.wait_for_group("g", state="Stable", members=2)
            assert len(group.member("a").assigned) == len(group.member("b").assigned) == 3
            assert not group.member("a").assigned & group.member("b").assigned
            produce(broker.bootstrap_servers, "orders", 600, partitions=6)
            wait_until(lambda: len(first.delivered) + len(second.delivered) >= 1200, what="1200 records")
            owned = {partition.partition for partition in group.member("b").assigned}
    counts = Counter(first.delivered + second.delivered)
    assert set(counts) == all_keys("orders", 1200, partitions=6)
    assert max(counts.values()) == 1, [key for key, count in counts.items() if count > 1]
    assert {partition for _, partition, _ in second.delivered} == owned


def test_five_members_come_and_go_and_every_record_is_read(broker: EmbeddedBroker) -> None:
    """Rebalances that overlap: joins and leaves before the last one has settled."""
    produce(broker.bootstrap_servers, "orders", 300, partitions=6)
    members = [MemberThread(broker.bootstrap_servers, ["orders"], client_id=f"m{n}") for n in range(5)]
    try:
        broker.wait_for_group("g", state="Stable", members=5)
        for leaver in members[:3]:
            leaver.leave()
        produce(broker.bootstrap_servers, "orders", 300, partitions=6)
        group = broker.wait_for_group("g", state="Stable", members=2)
        assert sorted(len(member.assigned) for member in group.members) == [3, 3]
        wait_until(
            lambda: set().union(*(member.keys() for member in members)) == all_keys("orders", 600, partitions=6),
            what="every record",
        )
    finally:
        for member in members:
            member.leave()
    assert not [error for member in members for error in member.errors]


def test_a_new_member_goes_on_where_the_last_one_committed(broker: EmbeddedBroker) -> None:
    """Resume: the reason for offsets."""
    produce(broker.bootstrap_servers, "orders", 60, partitions=6)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as first:
        wait_until(lambda: len(first.delivered) >= 60, what="60 records")
    produce(broker.bootstrap_servers, "orders", 60, partitions=6)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as second:
        wait_until(lambda: len(second.delivered) >= 60, what="the second 60 records")
    assert first.keys() | second.keys() == all_keys("orders", 120, partitions=6)
    assert not first.keys() & second.keys()


VANISHING_MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": "consumer",
                     "client.id": "vanishing", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_vanishes_is_evicted_after_its_session_and_the_others_take_over(
    tmp_path: Path, journal: MemoryJournal
) -> None:
    """A killed process says no farewell; its partitions must not stay with it for ever, nor move too early."""
    script = tmp_path / "member.py"
    script.write_text(VANISHING_MEMBER)
    config = {"group.consumer.session.timeout.ms": 3_000}
    with EmbeddedBroker({"orders": 6}, config=config, journal=journal) as broker:
        process = subprocess.Popen([sys.executable, str(script), broker.bootstrap_servers])
        try:
            broker.wait_for_group("g", state="Stable", members=1)
            with MemberThread(broker.bootstrap_servers, ["orders"], client_id="patient") as patient:
                broker.wait_for_group("g", state="Stable", members=2)
                process.kill()
                group = broker.wait_for_group("g", state="Stable", members=1)
                assert len(group.member("patient").assigned) == 6
                assert not patient.errors
        finally:
            process.kill()
            process.wait()
    reasons = [(event.client_id, event.fields["reason"]) for event in journal.named("member_left")]
    assert reasons[0] == ("vanishing", "session_timeout")


def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(broker: EmbeddedBroker) -> None:
    """group.instance.id is set exactly so that a rolling restart moves nothing."""
    with MemberThread(broker.bootstrap_servers, ["orders"], client_id="other"):
        first = MemberThread(broker.bootstrap_servers, ["orders"], client_id="one", group_instance_id="i1")
        before = broker.wait_for_group("g", state="Stable", members=2)
        first.leave()
        with MemberThread(broker.bootstrap_servers, ["orders"], client_id="two", group_instance_id="i1"):
            after = broker.wait_for(
                "g", lambda group: group.state == "Stable" and any(m.client_id == "two" for m in group.members)
            )
            assert after.group_epoch == before.group_epoch
            assert after.member("two").assigned == before.member("one").assigned
            assert after.member("two").member_id != before.member("one").member_id


def test_two_members_of_one_instance_id_the_second_is_refused(broker: EmbeddedBroker) -> None:
    """Two processes with the same group.instance.id are a deployment mistake: the living one goes on."""
    with MemberThread(broker.bootstrap_servers, ["orders"], client_id="one", group_instance_id="i1") as first:
        broker.wait_for_group("g", state="Stable", members=1)
        with MemberThread(broker.bootstrap_servers, ["orders"], client_id="two", group_instance_id="i1") as second:
            wait_until(lambda: second.errors, what="the refusal")
        assert second.errors[0].code() == KafkaError._FATAL
        assert "instance ID is still used" in second.errors[0].str()
        assert not first.errors
        assert len(broker.wait_for_group("g", state="Stable", members=1).member("one").assigned) == 6


def test_partitions_that_are_added_are_read_without_a_restart(broker: EmbeddedBroker) -> None:
    """Growing a topic under a running group."""
    with MemberThread(broker.bootstrap_servers, ["orders"], topic_metadata_refresh_interval_ms=100) as member:
        broker.wait_for_group("g", state="Stable", members=1)
        broker.add_partitions("orders", 8)
        broker.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 8)
        produce(broker.bootstrap_servers, "orders", 80, partitions=8)
        wait_until(lambda: len(member.delivered) >= 80, what="records of all partitions")
    assert member.keys() == all_keys("orders", 80, partitions=8)


def test_a_topic_that_is_created_after_the_subscription_is_read(broker: EmbeddedBroker) -> None:
    """Services start before their topics are there."""
    with MemberThread(broker.bootstrap_servers, ["later"], topic_metadata_refresh_interval_ms=100) as member:
        assert not broker.wait_for_group("g", state="Stable", members=1).assigned
        broker.create_topic("later", 2)
        broker.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 2)
        produce(broker.bootstrap_servers, "later", 20, partitions=2)
        wait_until(lambda: len(member.delivered) >= 20, what="records of the new topic")


def test_a_deleted_topic_is_taken_from_its_member_and_the_other_topics_go_on(broker: EmbeddedBroker) -> None:
    """Deleting a topic must neither kill the group nor leave its partitions assigned."""
    broker.create_topic("users", 1)
    with MemberThread(broker.bootstrap_servers, ["orders", "users"]) as member:
        broker.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 7)
        broker.delete_topic("users")
        broker.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 6)
        produce(broker.bootstrap_servers, "orders", 60, partitions=6)
        wait_until(lambda: len(member.delivered) >= 60, what="records of the topic that stayed")


def test_a_pattern_subscribes_to_what_it_matches(broker: EmbeddedBroker) -> None:
    """librdkafka leaves patterns to the coordinator: names that start with ^."""
    broker.create_topic("audit.eu", 1)
    broker.create_topic("audit.us", 1)
    with MemberThread(broker.bootstrap_servers, ["^audit\\..*"]):
        group = broker.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 2)
        assert {partition.topic for partition in group.assigned} == {"audit.eu", "audit.us"}


def test_a_group_too_large_refuses_the_next_member(journal: MemoryJournal) -> None:
    """group.consumer.max.size: the refused client must be told, and the group must not notice."""
    with EmbeddedBroker({"orders": 2}, config={"group.consumer.max.size": 1}, journal=journal) as broker:
        with MemberThread(broker.bootstrap_servers, ["orders"], client_id="a") as first:
            broker.wait_for_group("g", state="Stable", members=1)
            with MemberThread(broker.bootstrap_servers, ["orders"], client_id="b") as second:
                wait_until(lambda: second.errors, what="the refusal")
            assert second.errors[0].code() == KafkaError._FATAL
            assert "maximum size" in second.errors[0].str()
            assert not first.errors


def test_a_member_survives_a_broker_that_crashes_and_comes_back(broker: EmbeddedBroker) -> None:
    """The coordinator replays its records: no member is fenced, the epoch stays, reading goes on where it was."""
    produce(broker.bootstrap_servers, "orders", 60, partitions=6)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        wait_until(lambda: len(member.delivered) >= 60, what="60 records")
        before = broker.wait_for_group("g", state="Stable", members=1)
        broker.crash()
        broker.start()
        produce(broker.bootstrap_servers, "orders", 60, partitions=6)
        wait_until(lambda: member.keys() == all_keys("orders", 120, partitions=6), TIMEOUT_S, "the rest")
        after = broker.wait_for_group("g", state="Stable", members=1)
        assert after == before
        assert len(member.delivered) == 120


def test_two_groups_do_not_know_each_other(broker: EmbeddedBroker) -> None:
    """Each group reads everything."""
    produce(broker.bootstrap_servers, "orders", 60, partitions=6)
    with (
        MemberThread(broker.bootstrap_servers, ["orders"], group_id="one") as one,
        MemberThread(broker.bootstrap_servers, ["orders"], group_id="two") as two,
    ):
        wait_until(lambda: one.keys() == two.keys() == all_keys("orders", 60, partitions=6), what="both")
        assert broker.groups() == ("one", "two")
