"""Consume, transform, produce: our consumer and confluent-kafka's transactional producer on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.model import NamedPartition
from tests.interop.conftest import unique_name
from tests.interop.embedded.clients import read_committed
from tests.interop.real.group import Group
from tests.interop.real.members import number_of
from tests.support.driving import SLICE_S, drive
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop

PARTITIONS = 4


class Transformer:
    """A member that writes what it reads to another topic, one transaction a batch.

    Attributes:
        aborted: how many of its transactions were refused.
        before_sending_offsets: called in the middle of the next transaction, then forgotten.
    """

    def __init__(self, group: Group, name: str, source: str, *, sink: str, **conf: str) -> None:
        self.member = member = group.ours(name, enable_auto_commit=False, **conf).subscribe(source)
        self.name = member.name
        self.aborted = 0
        self.before_sending_offsets: Callable[[], object] | None = None
        self._sink = sink
        self._producer = Producer(
            {
                "bootstrap.servers": group.bootstrap_servers,
                "transactional.id": unique_name(self.name),
                "log_level": 0,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    @property
    def partitions(self) -> frozenset[NamedPartition]:
        """Of its consumer."""
        return self.member.partitions

    def take(self) -> int:
        """Transform one batch: all of it and its offsets, or nothing."""
        messages = self.member.raw.consume(20, SLICE_S)
        if not messages:
            return 0
        ends: dict[tuple[str, int], int] = {}
        self._producer.begin_transaction()
        for message in messages:
            place, number = number_of(message)
            self._producer.produce(self._sink, f"{place[1]}:{number}".encode(), partition=0)
            ends[place] = number + 1
        metadata = self.member.raw.group_metadata()
        act, self.before_sending_offsets = self.before_sending_offsets, None
        if act is not None:
            act()
        offsets = [PublicPartition(*place, end) for place, end in ends.items()]
        try:
            self._producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(TIMEOUT_S)
            self.aborted += 1
            self._go_back(ends)
            return 0
        return len(messages)

    def _go_back(self, ends: dict[tuple[str, int], int]) -> None:
        """Read the batch again, where it is still ours: its transaction never was."""
        mine = [PublicPartition(*place) for place in ends if NamedPartition(*place) in self.partitions]
        for at in self.member.raw.committed(mine):
            self.member.raw.seek(PublicPartition(at.topic, at.partition, max(0, at.offset)))


def transformed(bootstrap_servers: str, sink: str) -> Counter[str]:
    """Everything in the sink whose transaction was committed, with how often it is there."""
    return Counter((one.value() or b"").decode() for one in read_committed(bootstrap_servers, sink))


def everything(group: Group) -> Counter[str]:
    """What the sink must hold."""
    return Counter(f"{place.partition}:{number}" for place, count in group.written.items() for number in range(count))


def test_each_record_is_transformed_exactly_once_while_members_come_and_go(group: Group) -> None:
    """Money is moved this way: a rebalance may neither book an order twice nor forget it."""
    source, sink = group.topic(partitions=PARTITIONS), group.topic()
    first, second = (Transformer(group, name, source, sink=sink) for name in ("first", "second"))
    group.write(source, 50, partitions=PARTITIONS)
    drive(first, second, until=lambda: group.is_settled(first.member, second.member), what="two stable members")
    third = Transformer(group, "third", source, sink=sink)
    group.write(source, 50, partitions=PARTITIONS)
    everybody = (first.member, second.member, third.member)
    drive(first, second, third, until=lambda: group.is_settled(*everybody), what="three stable members")
    first.member.close()
    group.write(source, 50, partitions=PARTITIONS)
    drive(second, third, until=group.committed_all, what="everything to be transformed")

    assert transformed(group.bootstrap_servers, sink) == everything(group)


def test_a_transaction_of_a_member_thrown_out_meanwhile_is_refused_and_its_records_are_not_lost(group: Group) -> None:
    """A member that hangs in the middle of a transaction and wakes up later must not book what another one booked."""
    source, sink = group.topic(partitions=PARTITIONS), group.topic()
    zombie, healthy = (Transformer(group, name, source, sink=sink) for name in ("zombie", "healthy"))
    group.settle(zombie.member, healthy.member)
    held = zombie.partitions

    def throw_out_and_let_the_other_one_work() -> None:
        group.remove(zombie.member.raw.member_id)
        drive(healthy, until=lambda: healthy.partitions >= held, what="the partitions of the zombie")
        mine = dict.fromkeys(held, 50)
        drive(healthy, until=lambda: group.committed(mine) == mine, what="the records of the zombie")

    group.write(source, 50, partitions=PARTITIONS)
    zombie.before_sending_offsets = throw_out_and_let_the_other_one_work
    drive(zombie, until=lambda: zombie.aborted, what="the refusal")
    group.write(source, 50, partitions=PARTITIONS)
    drive(zombie, healthy, until=group.committed_all, what="everything to be transformed")

    assert zombie.aborted == 1
    assert "lost" in zombie.member.kinds
    assert transformed(group.bootstrap_servers, sink) == everything(group)


def test_a_slot_is_taken_over_without_booking_a_record_twice(group: Group) -> None:
    """The successor has the slot's member epoch: its transactions pass, and late ones of the old process do not."""
    source, sink = group.topic(partitions=PARTITIONS), group.topic()
    slot = {"group_instance_id": "s-0", "group_instance_id_takeover": "wait"}
    group.write(source, 50, partitions=PARTITIONS)
    old = Transformer(group, "old", source, sink=sink, **slot)
    drive(old, until=group.committed_all, what="the first records")
    new = Transformer(group, "new", source, sink=sink, **slot)
    drive(new, old, until=lambda: new.member.raw.health().standing_by, what="a standby")

    def hand_over_and_let_the_successor_work() -> None:
        old.member.close()
        drive(new, until=group.committed_all, what="the records that the old process had begun")

    group.write(source, 50, partitions=PARTITIONS)
    old.before_sending_offsets = hand_over_and_let_the_successor_work
    with pytest.raises(RuntimeError):
        drive(old, until=lambda: False, what="the transaction of a closed consumer")

    assert new.member.raw.group_instance_id() == "s-0"
    assert transformed(group.bootstrap_servers, sink) == everything(group)
