"""librdkafka members (``group.protocol=consumer``) in groups of the embedded broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kip848_client import EmbeddedBroker
from kip848_client.journal import MemoryJournal
from tests.interop.embedded.clients import MemberThread, produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kip848_broker(topics={"orders": 6})]


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


def test_a_deleted_topic_is_taken_from_its_member_and_the_other_topics_go_on(broker: EmbeddedBroker) -> None:
    """Deleting a topic must neither kill the group nor leave its partitions assigned."""
    broker.topics.create("users", 1)
    with MemberThread(broker.bootstrap_servers, ["orders", "users"]) as member:
        broker.groups.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 7)
        broker.topics.delete("users")
        broker.groups.wait_for("g", lambda group: group.state == "Stable" and len(group.assigned) == 6)
        produce(broker.bootstrap_servers, "orders", 60, partitions=6)
        wait_until(lambda: len(member.delivered) >= 60, what="records of the topic that stayed")


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
