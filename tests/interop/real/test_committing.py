"""Commits of our consumer, as a real coordinator keeps them and as others see them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, ConsumerRebalanceListener, KafkaError
from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError
from tests.interop.conftest import unique_name
from tests.interop.real.group import Group
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def places(topic: str, count: int) -> list[NamedPartition]:
    return [NamedPartition(topic, index) for index in range(count)]


def test_asynchronous_commits_reach_the_coordinator_in_order_and_report(group: Group) -> None:
    """Commits that overtake each other would move the group backwards; a callback never called hides a failure."""
    topic = group.topic(partitions=1)
    group.write(topic, 60, partitions=1)
    consumer = group.ours("a", enable_auto_commit=False).subscribe(topic)
    heard: list[tuple[KafkaError | None, int]] = []

    def on_commit(error: KafkaError | None, partitions: Sequence[PublicPartition]) -> None:
        heard.append((error, partitions[0].offset))

    group.read_all(consumer)
    for offset in range(1, 51):
        consumer.raw.commit(offsets=[PublicPartition(topic, 0, offset)], on_commit=on_commit)
    drive(consumer, until=lambda: len(heard) == 50, what="50 answers")

    assert heard == [(None, offset) for offset in range(1, 51)]
    assert group.committed(places(topic, 1)) == {NamedPartition(topic, 0): 50}


def test_committed_metadata_and_leader_epochs_travel_both_ways(group: Group) -> None:
    """Programs keep their own state in the metadata; leader epochs detect truncated logs."""
    topic = group.topic(partitions=1)
    group.write(topic, 3, partitions=1)
    consumer = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.read_all(consumer)

    consumer.raw.commit(offsets=[PublicPartition(topic, 0, 2, "ünïcode")], asynchronous=False)
    [noted] = consumer.raw.committed([PublicPartition(topic, 0)])
    consumer.raw.commit(asynchronous=False)
    [plain] = consumer.raw.committed([PublicPartition(topic, 0)])

    assert (noted.offset, noted.metadata) == (2, "ünïcode")
    assert (plain.offset, plain.leader_epoch) == (3, 0)


def test_what_the_coordinator_refuses_is_raised_with_its_code(group: Group) -> None:
    """A commit that was refused and looks successful is the worst of all."""
    topic = group.topic(partitions=1)
    group.write(topic, 1, partitions=1)
    consumer = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.read_all(consumer)

    with pytest.raises(BrokerError, match="OFFSET_METADATA_TOO_LARGE") as caught:
        consumer.raw.commit(offsets=[PublicPartition(topic, 0, 1, "x" * 5000)], asynchronous=False)

    assert not caught.value.retriable
    assert not caught.value.fatal


class CommitsWhenRevoked(ConsumerRebalanceListener):
    """README's own pattern."""

    def __init__(self) -> None:
        self.committed: list[set[str]] = []

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        answer = consumer.commit(asynchronous=False)
        self.committed.append({one.topic for one in answer or ()})


def test_a_commit_in_the_revoked_callback_gives_a_deleted_topic_up_and_keeps_the_others(group: Group) -> None:
    """It was retried for a minute, in which nothing was read; a short poll interval lost the membership."""
    kept, gone = group.topic(partitions=2), group.topic()
    group.write(kept, 5, partitions=2)
    group.write(gone, 5, partitions=1)
    member = group.ours("a", enable_auto_commit=False)
    listener = CommitsWhenRevoked()
    member.raw.subscribe([kept, gone], listener)
    group.read_all(member)

    group.delete_topic(gone)
    drive(member, until=lambda: listener.committed, what="the revocation")
    drive(member, until=lambda: {one.topic for one in member.partitions} == {kept}, what="its end")

    assert listener.committed == [{kept}]
    assert group.committed(places(kept, 2)) == dict.fromkeys(places(kept, 2), 5)
    [told] = member.journal.named("commit_failed")
    assert told.fields["offsets"] == {f"{gone}-0": 5}


def test_offsets_of_a_transaction_that_position_gave_have_no_metadata(group: Group) -> None:
    """confluent_kafka commits metadata with a NUL, which cannot be given to it again; the next owner read nothing."""
    topic = group.topic(partitions=1)
    group.write(topic, 5, partitions=1)
    member = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.read_all(member)
    producer = Producer({"bootstrap.servers": group.bootstrap_servers, "transactional.id": unique_name("t")})
    producer.init_transactions(60)
    producer.begin_transaction()
    positions = member.raw.position(member.raw.assignment())
    noted = [PublicPartition(one.topic, one.partition, one.offset, "note") for one in positions]
    producer.send_offsets_to_transaction(positions, member.raw.group_metadata(), 60)
    producer.commit_transaction(60)
    [plain] = member.raw.committed(member.raw.assignment())
    producer.begin_transaction()
    producer.send_offsets_to_transaction(noted, member.raw.group_metadata(), 60)
    producer.commit_transaction(60)
    [with_note] = member.raw.committed(member.raw.assignment())
    member.close()
    group.write(topic, 5, partitions=1)
    successor = group.ours("b", enable_auto_commit=False).subscribe(topic)
    group.read_all(successor)

    assert (plain.offset, plain.metadata) == (5, None)
    assert (with_note.offset, with_note.metadata) == (5, "note")
    group.assert_read_once()
