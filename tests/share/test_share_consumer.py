"""`ShareConsumer` on the embedded broker: a topic as a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from kip848_client import AcknowledgeType, BrokerError, ConfigError, EmbeddedBroker, IllegalStateError, ShareConsumer
from kip848_client.aio.share_consumer import AsyncShareConsumer
from kip848_client.common.clock import ManualClock
from kip848_client.errors import FatalGroupError, Kip848Error
from kip848_client.share.config import parse_share_config
from kip848_client.share.host import ShareHost
from kip848_client.testing import lose_reply
from tests.share.fast_forward import FastForward
from tests.support.waiting import SOON_S, wait_until


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"mails": 1}) as made:
        made.groups.set_config("g", {"share.auto.offset.reset": "earliest"})
        yield made


def share_consumer(broker: EmbeddedBroker, **settings: Any) -> ShareConsumer[Any, Any]:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    consumer: ShareConsumer[Any, Any] = ShareConsumer({**conf, **settings})
    consumer.subscribe(["mails"])
    return consumer


def explicit(broker: EmbeddedBroker, **settings: Any) -> ShareConsumer[Any, Any]:
    return share_consumer(broker, **{"share.acknowledgement.mode": "explicit", **settings})


def test_the_next_call_wakes_the_thread_if_one_was_cut_off() -> None:
    """Ctrl-C in a poll(): close() would wait for a thread that sleeps."""
    asked: list[Callable[[], None]] = []

    class Loop:
        def call_soon_threadsafe(self, callback: Callable[[], None], *, context: object) -> None:
            del context
            asked.append(callback)
            if len(asked) == 1:
                raise KeyboardInterrupt

    host = ShareHost(
        parse_share_config({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}),
        clock=ManualClock(),
        on_change=lambda: None,
    )
    host._loop = Loop()  # type: ignore[assignment]

    with pytest.raises(KeyboardInterrupt):
        host.wake()
    host.wake()
    host.wake()

    assert len(asked) == 2


def test_the_asynchronous_one_may_move_from_one_event_loop_to_the_next(broker: EmbeddedBroker) -> None:
    """It waited for an event of the first loop."""
    consumer: AsyncShareConsumer[Any, Any] = AsyncShareConsumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    )

    async def take() -> int:
        with anyio.fail_after(SOON_S):
            return len(await consumer.poll())

    anyio.run(consumer.subscribe, ["mails"])
    broker.produce_many("mails", ["one"])
    assert anyio.run(take) == 1
    anyio.run(consumer.close)


def test_a_bug_in_the_thread_is_raised_by_the_next_call(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only asyncio's log had it, and poll() waited for ever."""
    with share_consumer(broker) as consumer:
        consumer.poll(0)

        def step(*_: object, **__: object) -> None:
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(consumer._core.host.member, "step", step)
        with pytest.raises(Kip848Error, match="unforeseen"):
            consumer.poll(SOON_S)


def test_two_workers_share_the_records_of_one_partition(broker: EmbeddedBroker) -> None:
    """A consumer group would leave the second worker without work."""
    broker.produce_many("mails", [str(number) for number in range(100)])
    one, two = (explicit(broker, **{"max.poll.records": 10, "share.acquire.mode": "record_limit"}) for _ in range(2))
    with one, two:
        got = {worker: [message.value() for message in worker.poll(SOON_S)] for worker in (one, two)}
    assert all(got.values())
    assert not set(got[one]) & set(got[two])


def test_a_released_record_comes_again_with_its_count(broker: EmbeddedBroker) -> None:
    """Without the count a program cannot tell a poison job from a new one."""
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (first,) = queue.poll(SOON_S)
        queue.acknowledge(first, AcknowledgeType.RELEASE)
        (again,) = queue.poll(SOON_S)
        assert (again.value(), first.delivery_count(), again.delivery_count()) == (b"a", 1, 2)


@pytest.mark.parametrize("word", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT])
def test_an_accepted_or_rejected_record_never_comes_again(broker: EmbeddedBroker, word: AcknowledgeType) -> None:
    """A job would be done twice, or a poison job go round for ever."""
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (message,) = queue.poll(SOON_S)
        queue.acknowledge(message, word)
        (error,) = queue.commit().values()
        assert error is None
        assert broker.shares.partitions("g")[0].unfinished == 0


def test_implicitly_the_next_poll_accepts(broker: EmbeddedBroker) -> None:
    """Everybody's first loop has no acknowledgement in it."""
    broker.produce("mails", "a")
    with share_consumer(broker) as queue:
        assert [message.value() for message in queue.poll(SOON_S)] == [b"a"]
        queue.poll(0)
        broker.shares.wait_for("g", lambda partitions: partitions[0].unfinished == 0)


def test_implicitly_a_commit_tells_that_a_lock_had_ended(broker: EmbeddedBroker) -> None:
    """An empty result looks as if all was well, and another worker does the job again."""
    broker.produce("mails", "a")
    clock = FastForward()
    with ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}, clock=clock) as queue:
        queue.subscribe(["mails"])
        queue.poll(SOON_S)
        clock.ahead_ms = 60_000
        (error,) = queue.commit().values()
        assert isinstance(error, BrokerError)
        assert "INVALID_RECORD_STATE" in str(error)


def test_a_block_that_raises_gives_back_what_it_had(broker: EmbeddedBroker) -> None:
    """The job whose handler just failed would count as done."""
    broker.produce("mails", "a")
    with pytest.raises(ZeroDivisionError), share_consumer(broker) as queue:
        _ = [1 / 0 for _ in queue]
    with share_consumer(broker) as queue:
        (again,) = queue.poll(SOON_S)
        assert again.delivery_count() == 2


def test_explicitly_a_poll_before_all_is_acknowledged_is_refused(broker: EmbeddedBroker) -> None:
    """A record that was forgotten would wait for the end of its lock, and nobody would know why."""
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (message,) = queue.poll(SOON_S)
        with pytest.raises(IllegalStateError, match="mails-0 offset 0"):
            queue.poll(0)
        queue.acknowledge(message)
        queue.poll(0)


def test_a_record_that_is_not_with_us_any_more_cannot_be_acknowledged(broker: EmbeddedBroker) -> None:
    """The program would believe that its word counted."""
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (message,) = queue.poll(SOON_S)
        queue.acknowledge(message)
        with pytest.raises(IllegalStateError, match="acknowledged already"):
            queue.acknowledge(message)


def test_a_renewed_record_stays_with_its_worker(broker: EmbeddedBroker) -> None:
    """A job that takes longer than its lock would be done twice."""
    broker.groups.set_config("g", {"share.record.lock.duration.ms": "45000", "share.auto.offset.reset": "earliest"})
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (message,) = queue.poll(SOON_S)
        assert queue.acquisition_lock_timeout_ms() == 45_000
        queue.acknowledge(message, AcknowledgeType.RENEW)
        assert list(queue.commit().values()) == [None]
        queue.acknowledge(message)
        assert list(queue.commit().values()) == [None]


def test_close_gives_back_at_once_what_was_not_handled(broker: EmbeddedBroker) -> None:
    """A deploy would hold up each job for the time of a lock."""
    broker.produce_many("mails", ["a", "b"])
    queue = explicit(broker)
    assert len(queue.poll(SOON_S)) == 2
    queue.close()
    with explicit(broker) as other:
        assert [message.delivery_count() for message in other.poll(SOON_S)] == [2, 2]


def test_a_lost_answer_is_told_as_unknown(broker: EmbeddedBroker) -> None:
    """It may have counted; a program that repeats the job must know that it may be done."""
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        (message,) = queue.poll(SOON_S)
        broker.faults.on("ShareAcknowledge", lose_reply())
        queue.acknowledge(message)
        (error,) = queue.commit().values()
        assert error is not None
        assert not isinstance(error, BrokerError)


def test_the_callback_hears_of_each_outcome(broker: EmbeddedBroker) -> None:
    """Without commit() nobody else tells."""
    told = []
    broker.produce("mails", "a")
    with explicit(broker) as queue:
        queue.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
        (message,) = queue.poll(SOON_S)
        queue.acknowledge(message)
        queue.commit()
    (((offsets,), error),) = [(tuple(given.values()), error) for given, error in told]
    assert (offsets, error) == (frozenset({0}), None)


def test_a_consumer_group_of_the_same_name_is_named(broker: EmbeddedBroker) -> None:
    """The coordinator's code alone says nothing of another type."""
    from kip848_client import Consumer

    with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.subscribe(["mails"])
        consumer.poll(0)
        broker.wait_for_group("g", members=1)
        with share_consumer(broker) as queue, pytest.raises(FatalGroupError, match="group of another type"):
            queue.poll(SOON_S)


def test_close_ends_the_poll_of_another_thread(broker: EmbeddedBroker) -> None:
    """A service that stops would wait for a record."""
    queue = share_consumer(broker)
    ended: list[object] = []

    def read() -> None:
        ended.extend(queue)
        ended.append(None)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(queue.assignment)
    queue.close()
    reader.join(SOON_S)
    assert ended == [None]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"auto.offset.reset": "earliest"}, "share.auto.offset.reset"),
        ({"share.acknowledgement.mod": "explicit"}, "did you mean share.acknowledgement.mode"),
        ({"share.acquire.mode": "all"}, "batch_optimized, record_limit"),
    ],
)
def test_a_wrong_key_says_what_to_write(settings: dict[str, str], told: str) -> None:
    """Keys of a consumer that would be ignored here change what is read."""
    with pytest.raises(ConfigError, match=told):
        ShareConsumer({"bootstrap.servers": "localhost:1", "group.id": "g", **settings})
