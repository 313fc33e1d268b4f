"""Listeners, fencing, the poll interval, unsubscribe and close; on the embedded broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip848_client import (
    Consumer,
    ConsumerRebalanceListener,
    EmbeddedBroker,
    IllegalStateError,
    MemberState,
    TopicPartition,
)
from kip848_client.common.model import NamedPartition as ModelPartition
from kip848_client.errors import (
    CommitFailedError,
    ListenerError,
    MaxPollExceededError,
)
from kip848_client.journal import MemoryJournal
from kip848_client.testing import GroupSnapshot
from kip848_client.testing.faults import ALWAYS, drop, hold
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import HEARTBEAT, Produce, delivered_once, keys_of
from tests.support.driving import QUIET, ClockAhead, DrivenConsumer, drive
from tests.support.waiting import SOON_S, TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop


def evict(broker: EmbeddedBroker, consumer: DrivenConsumer) -> None:
    """Remove a member behind its back, as an operator or a lost session would: its next heartbeat is refused."""
    with RawConnection(broker.bootstrap_servers) as connection:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=consumer.raw.member_id, member_epoch=-1)
        assert connection.ask(request, version=1).error_code == 0


def beats(broker: EmbeddedBroker, consumer: DrivenConsumer) -> None:
    """Wait until the member has looked at its clock and at its application, and is in the group all the same.

    A poll counts from the first look after it: a clock that jumps before that look takes the poll with it.
    """
    mark = broker.requests.mark()
    broker.requests.wait_for(HEARTBEAT, member=consumer.raw.member_id, since=mark, count=3, timeout_s=TIMEOUT_S)


def let_pass(ms: int, clock: ClockAhead, broker: EmbeddedBroker, consumer: DrivenConsumer) -> None:
    """Move the clock, after the member has seen the last poll, and let it look."""
    beats(broker, consumer)
    clock.ahead_ms += ms
    consumer.raw._core.manager.poke()


def test_no_record_is_delivered_between_lost_and_assigned(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Prefetched records of a lost partition belong to another member; handing them out would process them twice."""
    produce("orders", 300)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    handed_out: list[tuple[int, int | None]] = []
    message = consumer.raw.poll(10.0)
    assert message is not None

    evict(broker, consumer)
    while consumer.kinds.count("lost") == 0:
        message = consumer.raw.poll(0.001)
        if message is not None and consumer.kinds.count("lost"):
            handed_out.append((message.partition() or 0, message.offset()))

    # Whatever poll() returned after the lost callback ran can only be from the new assignment: offset 0 first.
    assert all(offset == 0 for _, offset in handed_out)
    while len(handed_out) < 1200:
        message = consumer.raw.poll(5.0)
        assert message is not None
        handed_out.append((message.partition() or 0, message.offset()))
    assert sorted(handed_out) == [(partition, offset) for partition in range(4) for offset in range(300)]


def test_a_commit_inside_revoked_counts_and_one_inside_lost_fails(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """The last commit before hand-over must work, and a late one must not overwrite the successor's."""
    produce("orders", 5)
    outcomes: list[tuple[str, object]] = []

    class Commits(ConsumerRebalanceListener):
        def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            outcomes.append(("revoked", consumer.commit(asynchronous=False)))

        def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                consumer.commit(asynchronous=False, offsets=[TopicPartition("orders", 0, 1)])
            except CommitFailedError as error:
                outcomes.append(("lost", error))

    consumer = make_consumer(enable_auto_commit=False)
    consumer.raw.subscribe(["orders"], Commits())
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)
    evict(broker, consumer)
    drive(consumer, until=lambda: outcomes)
    drive(consumer, until=lambda: len(consumer.delivered) >= 40)
    consumer.raw.close()

    assert [name for name, _ in outcomes] == ["lost", "revoked"]
    assert isinstance(outcomes[1][1], list)
    reader = make_consumer()
    committed = reader.raw.committed([TopicPartition("orders", partition) for partition in range(4)])
    assert [one.offset for one in committed] == [5, 5, 5, 5]


def test_an_error_in_assigned_comes_out_of_poll_and_is_tried_again(
    make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A listener that loads state may fail once; the partitions must not be read without it, nor be forgotten."""
    produce("orders", 5)
    consumer = make_consumer()
    calls: list[list[int]] = []

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append([partition.partition for partition in partitions])
        if len(calls) == 1:
            raise OSError("the state store is away")

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    with pytest.raises(ListenerError, match="the state store is away") as caught:
        drive(consumer, until=lambda: False)
    assert isinstance(caught.value.__cause__, OSError)
    assert consumer.delivered == []
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)

    assert calls == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_calls_from_inside_a_listener_never_hang(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Listeners call the consumer back; what cannot work there says so at once."""
    produce("orders", 5)
    consumer = make_consumer()
    seen: list[object] = []

    def on_assign(inside: Consumer, partitions: list[TopicPartition]) -> None:
        inside.pause(partitions)
        inside.resume(partitions)
        seen.append(inside.committed(partitions, timeout=60.0))
        seen.append(inside.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False))
        for call in (lambda: inside.poll(0), lambda: inside.consume(1, 0), inside.close):
            with pytest.raises(IllegalStateError, match="from inside a rebalance listener"):
                call()
        inside.unsubscribe()

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    drive(consumer, until=lambda: len(seen) == 2 and not consumer.partitions)
    with pytest.raises(IllegalStateError, match="call subscribe"):
        consumer.raw.poll()


def test_a_slow_listener_does_not_cost_the_membership(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Heartbeats go on in the background for as long as max.poll.interval.ms allows."""
    consumer = make_consumer()
    epochs: list[int] = []

    def on_assign(inside: Consumer, partitions: list[TopicPartition]) -> None:
        broker.groups.wait_for("g", lambda group: len(group.members) == 1)
        broker.requests.wait_for(ApiKey.CONSUMER_GROUP_HEARTBEAT, since=broker.requests.mark(), count=13, timeout_s=60)
        epochs.append(inside.member_epoch)

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    drive(consumer, until=lambda: epochs and consumer.raw.state is MemberState.STABLE)
    produce("orders", 1)
    drive(consumer, until=lambda: len(consumer.delivered) == 4)

    assert epochs == [1]


def test_a_consumer_that_does_not_poll_leaves_and_comes_back(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """max.poll.interval.ms: stuck work is given to others; the application hears *lost* when it polls again."""
    produce("orders", 5)
    clock = ClockAhead()
    consumer = make_consumer(clock=clock, max_poll_interval_ms=300_000).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)
    consumer.raw.commit(asynchronous=False)

    let_pass(300_001, clock, broker, consumer)
    broker.groups.wait_for(
        "g", lambda group: not group.members, what="the silent consumer to leave", timeout_s=TIMEOUT_S
    )
    with pytest.raises(MaxPollExceededError):
        drive(consumer, until=lambda: False)
    produce("orders", 5)
    drive(consumer, until=lambda: len(consumer.delivered) >= 40)

    assert consumer.kinds == ["assigned", "lost", "assigned"]
    assert delivered_once([consumer]) == keys_of("orders", 10)


def test_a_late_poll_says_how_long_the_application_took(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """The limit alone says nothing about the handler: the time that it took is the number to work with."""
    produce("orders", 1)
    clock = ClockAhead()
    consumer = make_consumer(clock=clock, max_poll_interval_ms=300_000).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 4 and consumer.raw.state is MemberState.STABLE)
    let_pass(300_001, clock, broker, consumer)  # a handler runs
    broker.groups.wait_for(
        "g", lambda group: not group.members, what="the silent consumer to leave", timeout_s=TIMEOUT_S
    )
    clock.ahead_ms += 111_000

    with pytest.raises(CommitFailedError, match=r"process\(\), which polls while") as refused:
        consumer.raw.commit(asynchronous=False)
    broker.faults.on(HEARTBEAT, drop(), times=ALWAYS)  # it does not come back yet
    with pytest.raises(MaxPollExceededError) as late:
        drive(consumer, until=lambda: False)
    with pytest.raises(IllegalStateError, match=r"it left its group: poll\(\) was not called"):
        consumer.raw.seek(TopicPartition("orders", 0, 0))

    for text in (str(refused.value), str(late.value)):
        (took_ms,) = re.findall(r"poll\(\) was not called for (\d+) ms, max.poll.interval.ms is 300000", text)
        assert 411_001 <= int(took_ms) < 600_000


def test_a_listener_that_takes_too_long_is_named(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """ "poll() was not called" would be a lie: the application is inside poll(), in its own listener."""
    clock = ClockAhead()

    def slow(_: Consumer, __: list[TopicPartition]) -> None:
        let_pass(300_001, clock, broker, consumer)
        broker.groups.wait_for(
            "g", lambda group: not group.members, what="the silent consumer to leave", timeout_s=TIMEOUT_S
        )
        clock.ahead_ms += 50_000

    consumer = make_consumer(clock=clock, max_poll_interval_ms=300_000)
    consumer.raw.subscribe(["orders"], on_assign=slow)
    with pytest.raises(MaxPollExceededError, match=r"a rebalance listener ran for 3[5-9]\d\d\d\d ms"):
        wait_until(lambda: consumer.raw.poll(0.05) is not None)


def test_taking_records_from_the_buffer_counts_as_polling(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """poll() that answers from memory is a poll: a slow but steady consumer must not be thrown out."""
    produce("orders", 50, partitions=[0])
    clock = ClockAhead()
    consumer = make_consumer(clock=clock, max_poll_interval_ms=20_000).subscribe("orders")

    for _ in range(6):
        assert consumer.raw.poll(60.0) is not None
        clock.ahead_ms += 4_000  # the application works on the record
        beats(broker, consumer)

    assert consumer.raw.state is MemberState.STABLE
    assert consumer.kinds == ["assigned"]


def test_a_poll_that_waits_longer_than_the_poll_interval_is_a_poll(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """An empty topic is no reason to leave: while poll() waits, the application is there."""
    clock = ClockAhead()
    consumer = make_consumer(clock=clock, max_poll_interval_ms=20_000).subscribe("orders")
    drive(consumer, until=lambda: consumer.raw.state is MemberState.STABLE)

    with ThreadPoolExecutor() as pool:
        polled = pool.submit(consumer.raw.poll, TIMEOUT_S)
        wait_until(lambda: consumer.raw._core.group.thread.presence.inside, what="the poll")
        for _ in range(6):
            clock.ahead_ms += 4_000
            beats(broker, consumer)
        produce("orders", 1, partitions=[0])
        assert polled.result(TIMEOUT_S) is not None

    assert consumer.raw.state is MemberState.STABLE
    assert consumer.kinds == ["assigned"]


def test_unsubscribe_gives_everything_back_and_subscribe_joins_again(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A program may change its mind; the group must see the member go and come."""
    produce("orders", 5)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)

    consumer.raw.unsubscribe()
    assert consumer.calls[-1] == ("revoked", [0, 1, 2, 3])
    assert consumer.numbers == []
    assert consumer.raw.member_epoch == -1
    broker.groups.wait_for("g", lambda group: not group.members)
    consumer.raw.commit  # noqa: B018  the consumer stays usable
    consumer.subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)

    assert consumer.raw.state is not MemberState.UNJOINED


def test_close_returns_in_time_although_the_broker_is_gone(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """A deployment must not hang because the cluster went first."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    broker.stop()

    began = time.monotonic()
    consumer.raw.close(timeout_s=2.0)

    assert time.monotonic() - began < SOON_S
    assert consumer.kinds[-1] in {"revoked", "lost"}


def test_close_without_time_still_leaves(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """close(0) is what a signal handler can afford; the leave must be on the wire nevertheless."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)

    began = time.monotonic()
    consumer.raw.close(timeout_s=0)

    assert time.monotonic() - began < SOON_S
    broker.groups.wait_for("g", lambda group: not group.members)


def test_the_event_log_tells_the_life_of_a_member(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Operators read it afterwards: who had what, when, and why."""
    produce("orders", 5)
    journal = MemoryJournal()
    consumer = make_consumer(journal=journal).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)
    consumer.raw.close()

    moves = [(event.fields["old"], event.fields["new"]) for event in journal.named("state_changed")]
    assert moves == [("UNJOINED", "RECONCILING"), ("RECONCILING", "STABLE"), ("STABLE", "RECONCILING"),
                     ("RECONCILING", "UNJOINED")]  # fmt: skip
    names = [event.event for event in journal.events]
    for wanted in (
        "coordinator_found",
        "assignment_received",
        "partitions_assigned",
        "fetching_started",
        "commit_done",
        "left_group",
    ):
        assert wanted in names
    assert {event.group_id for event in journal.events} == {"g"}
    assert journal.events[-1].member_id == consumer.raw.member_id


@pytest.mark.parametrize("secret", ["hunter2"])
def test_the_repr_shows_no_configuration(closing: Callable[[Consumer], Consumer], secret: str) -> None:
    """Representations end up in logs; a password must not."""
    consumer = closing(Consumer({**QUIET, "bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.rack": secret}))

    assert repr(consumer).startswith("<Consumer group='g' client='kip848-client' state=UNJOINED")
    assert secret not in repr(consumer)


def test_nothing_of_a_revoked_partition_is_delivered_after_the_run_began(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Prefetched records too: they were not committed, and belong to another member now."""
    produce("orders", 300)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    while len(consumer.delivered) < 20:
        consumer.poll()
    with RawConnection(broker.bootstrap_servers) as other:
        join = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="other",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        assert other.ask(join, version=1).error_code == 0
    broker.requests.wait_for(HEARTBEAT, member=consumer.raw.member_id, since=broker.requests.mark(), count=2)
    taken = len(consumer.delivered)
    drive(consumer, until=lambda: len(consumer.partitions) == 2)
    kept = set(consumer.numbers)
    drive(consumer, until=lambda: sum(one[1] in kept for one in consumer.delivered) == 600)

    assert {partition for _, partition, _ in consumer.delivered[taken:]} <= kept
    committed = broker.groups.committed("g")
    for partition in {0, 1, 2, 3} - kept:
        handed_out = sum(one[1] == partition for one in consumer.delivered)
        assert committed.get(ModelPartition("orders", partition), 0) == handed_out


def test_without_a_listener_one_poll_is_a_whole_run(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """There is no callback to wait for, so the run does not wait for a second poll()."""
    consumer = make_consumer().raw
    consumer.subscribe(["orders"])
    while len(consumer.assignment()) < 4 or consumer.state is not MemberState.STABLE:
        consumer.poll(0.02)
    for partitions in (5, 6):
        broker.topics.add_partitions("orders", partitions)
        wait_until(lambda: consumer._core.group.view.poll_wanted)
        consumer.poll(0)

        def settled(group: GroupSnapshot, count: int = partitions) -> bool:
            return group.state == "Stable" and len(group.assigned) == count

        broker.groups.wait_for("g", settled)


def test_what_stays_is_read_while_a_revocation_waits_for_its_commit(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A coordinator that is slow, or away, stops only the partitions that move."""
    produce("orders", 5)
    first = make_consumer(auto_commit_interval_ms=3_600_000).subscribe("orders")
    drive(first, until=lambda: len(first.delivered) == 20)
    commit = broker.faults.on("OffsetCommit", hold(), group="g", times=ALWAYS)
    second = make_consumer(auto_commit_interval_ms=3_600_000).subscribe("orders")
    drive(first, second, until=lambda: commit.hits)

    produce("orders", 5)
    drive(first, second, until=lambda: len(first.delivered) == 30, what="the records of two partitions")
    assert (len(first.partitions), second.delivered) == (4, [])

    broker.faults.clear()
    drive(first, second, until=lambda: len(first.delivered) + len(second.delivered) == 40)
    assert delivered_once([first, second]) == keys_of("orders", 10)
