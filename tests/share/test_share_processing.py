"""``process()`` of `ShareConsumer` and `AsyncShareConsumer`: how a record ends by how its handler does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import anyio
import pytest
import tenacity
from confluent_kafka import Producer

from kip848_client import (
    AsyncShareConsumer,
    DeadLetters,
    EmbeddedBroker,
    IllegalStateError,
    Reject,
    RetryLater,
    ShareConsumer,
    processing_attempt,
    processing_cancelled,
)
from kip848_client.common.clock import Clock
from kip848_client.testing import RecordState, SharePartitionSnapshot
from kip848_client.testing.faults import ALWAYS, rewrite
from tests.share.fast_forward import FastForward
from tests.support.waiting import SOON_S, TIMEOUT_S, wait_until

Handler = Callable[[Any], object]
HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"mails": 1}) as made:
        made.groups.set_config("g", {"share.auto.offset.reset": "earliest"})
        yield made


@pytest.fixture
def long_locks() -> Iterator[EmbeddedBroker]:
    """Locks of an hour: the test moves its consumer's clock."""
    with EmbeddedBroker({"mails": 1}, config={"group.share.max.record.lock.duration.ms": HOUR_MS}) as made:
        hour = {"share.record.lock.duration.ms": str(HOUR_MS)}
        made.groups.set_config("g", {"share.auto.offset.reset": "earliest", **hour})
        yield made


class Running:
    """A consumer whose ``process()`` runs in a thread until the test is over."""

    def __init__(
        self, broker: EmbeddedBroker, handler: Handler, *, backend: str, clock: Clock | None = None, **arguments: Any
    ) -> None:
        self._conf = {"bootstrap.servers": ",".join(broker.all_bootstrap_servers), "group.id": "g"}
        self._clock = clock
        self._handler, self._backend, self._arguments = handler, backend, arguments
        self.consumer: ShareConsumer[Any, Any] | AsyncShareConsumer[Any, Any] | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            if self._backend == "threads":
                with ShareConsumer(self._conf, clock=self._clock) as self.consumer:
                    self.consumer.subscribe(["mails"])
                    self.consumer.process(self._handler, **self._arguments)
            else:
                anyio.run(self._main, backend=self._backend)
        except BaseException as error:
            self.error = error

    async def _main(self) -> None:
        async def handle(message: Any) -> None:
            found = self._handler(message)
            if isinstance(found, Awaitable):
                await found

        async with AsyncShareConsumer(self._conf, clock=self._clock) as self.consumer:
            await self.consumer.subscribe(["mails"])
            await self.consumer.process(handle, **self._arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.consumer is not None and self.consumer.processing_status() is not None)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.consumer is not None
        self.consumer.hand_over()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def all_done(partitions: tuple[SharePartitionSnapshot, ...]) -> bool:
    return bool(partitions) and all(each.unfinished == 0 for each in partitions)


@pytest.mark.parametrize("backend", ["threads", "asyncio", "trio"])
def test_what_a_handler_has_done_is_accepted(broker: EmbeddedBroker, backend: str) -> None:
    """The whole use of a queue."""
    seen: list[bytes] = []
    broker.produce_many("mails", [str(number) for number in range(50)])
    with Running(broker, lambda message: seen.append(message.value()), backend=backend) as running:
        broker.shares.wait_for("g", all_done)
    assert sorted(seen, key=int) == [str(number).encode() for number in range(50)]
    assert running.error is None


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_a_record_whose_handler_raises_is_delivered_again(
    broker: EmbeddedBroker, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing job would be lost."""
    counts: list[int] = []

    def handle(message: Any) -> None:
        counts.append(message.delivery_count())
        if len(counts) < 3:
            raise OSError("down")

    broker.produce("mails", "a")
    with Running(broker, handle, backend=backend):
        broker.shares.wait_for("g", all_done)
    assert counts == [1, 2, 3]
    assert 'raise OSError("down")' in caplog.text  # where it failed


def test_a_poison_job_ends_with_the_last_delivery(broker: EmbeddedBroker) -> None:
    """It would go round for ever, and take the place of good ones."""
    counts: list[int] = []

    def handle(message: Any) -> None:
        counts.append(message.delivery_count())
        raise OSError("never")

    broker.produce("mails", "a")
    with Running(broker, handle, backend="threads"):
        broker.shares.wait_for("g", all_done)
    assert counts == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("error", "reject"), [(Reject("no such address"), ()), (KeyError("to"), (KeyError,))])
def test_a_rejected_record_is_not_delivered_again(
    broker: EmbeddedBroker, error: Exception, reject: tuple[type[Exception], ...]
) -> None:
    """Five tries of what cannot succeed cost five times the work."""
    counts: list[int] = []

    def handle(message: Any) -> None:
        counts.append(message.delivery_count())
        raise error

    broker.produce("mails", "a")
    with Running(broker, handle, backend="threads", reject=reject):
        broker.shares.wait_for("g", all_done)
    assert counts == [1]


@pytest.mark.parametrize("backend", ["threads", "asyncio", "trio"])
def test_a_rejected_record_is_done_once_its_dead_letter_is_acknowledged(broker: EmbeddedBroker, backend: str) -> None:
    """It would be in neither place, or come again for ever."""
    broker.topics.create("mails-dead")
    broker.produce_many("mails", [str(number) for number in range(20)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def handle(message: Any) -> None:
        raise Reject(message.value().decode())

    with Running(broker, handle, backend=backend, dead_letter=DeadLetters(producer, "mails-dead")) as running:
        broker.shares.wait_for("g", all_done)
    letters = [(letter.value, dict(letter.headers)["kip848.error"]) for letter in broker.records("mails-dead")]
    assert sorted(letters) == sorted((b"%d" % number, b"Reject: %d" % number) for number in range(20))
    wait_until(lambda: all(thread.name != "kip848-sender" for thread in threading.enumerate()))
    assert running.error is None


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_retries_stay_within_one_delivery(broker: EmbeddedBroker, backend: str) -> None:
    """Each delivery counts towards the limit; a short failure of a server must not use them up."""
    calls: list[int] = []

    def handle(message: Any) -> None:
        calls.append(message.delivery_count())
        if len(calls) < 4:
            raise OSError("busy")

    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(10), wait=tenacity.wait_fixed(0.01))
    broker.produce("mails", "a")
    with Running(broker, handle, backend=backend, retry=retry):
        broker.shares.wait_for("g", all_done)
    assert calls == [1, 1, 1, 1]


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_a_lock_is_renewed_while_the_handler_runs(long_locks: EmbeddedBroker, backend: str) -> None:
    """A job that takes several lock times would be done by several workers at once."""
    counts: list[int] = []
    go_on, clock = threading.Event(), FastForward()

    def handle(message: Any) -> Any:
        counts.append(message.delivery_count())
        return go_on.wait() and None if backend == "threads" else anyio.to_thread.run_sync(go_on.wait)

    long_locks.produce("mails", "a")
    with Running(long_locks, handle, backend=backend, clock=clock) as running:
        wait_until(lambda: counts)
        for number in range(1, 5):
            clock.ahead_ms += HOUR_MS * 3 // 4
            wait_until(lambda: confirmed_renewals(running) == number, what=f"renewal {number}")  # noqa: B023
        go_on.set()
        long_locks.shares.wait_for("g", all_done)
    assert counts == [1]


def test_a_lock_that_ran_before_the_handler_got_the_record_is_renewed_in_time(long_locks: EmbeddedBroker) -> None:
    """A leader that answered late leaves less time than a lock lasts."""
    go_on, clock = threading.Event(), FastForward()

    def answer_late(answer: Any) -> Any:
        if any(data.acquired_records for topic in answer.responses for data in topic.partitions):
            clock.ahead_ms += HOUR_MS * 3 // 4
        return answer

    long_locks.faults.on("ShareFetch", rewrite(answer_late), times=ALWAYS)
    long_locks.produce("mails", "a")
    with Running(long_locks, lambda _: go_on.wait() and None, backend="threads", clock=clock) as running:
        wait_until(lambda: confirmed_renewals(running) >= 1, what="a renewal")
        go_on.set()
        long_locks.shares.wait_for("g", all_done)


def test_a_handler_is_cancelled_when_the_leader_of_its_record_is_gone() -> None:
    """The next leader gives the record to another worker at once, and the lock would last for an hour."""
    calls: list[bytes] = []

    async def handle(message: Any) -> None:
        calls.append(message.value())
        if len(calls) == 1:
            await anyio.sleep_forever()

    config = {"group.share.max.record.lock.duration.ms": HOUR_MS}
    with EmbeddedBroker({"mails": 1}, nodes=3, config=config) as broker:
        hour = {"share.record.lock.duration.ms": str(HOUR_MS)}
        broker.groups.set_config("g", {"share.auto.offset.reset": "earliest", **hour})
        broker.produce("mails", "a")
        with Running(broker, handle, backend="asyncio", concurrency=1):
            wait_until(lambda: calls)
            broker.nodes.kill(broker.nodes.leader("mails", 0))
            broker.shares.wait_for("g", all_done)
    assert set(calls) == {b"a"}


def confirmed_renewals(running: Running) -> int:
    assert running.consumer is not None
    return running.consumer._core.host.reader.counts.renewed


def test_a_task_that_takes_too_long_is_cancelled_and_its_record_released(broker: EmbeddedBroker) -> None:
    """A hung call would hold its slot for ever."""
    cancelled: list[int] = []

    async def hang(message: Any) -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append(message.delivery_count())
            raise

    broker.produce("mails", "a")
    with Running(broker, hang, backend="asyncio", timeout_s=0.05):
        broker.shares.wait_for("g", all_done)
    assert cancelled == [1, 2, 3, 4, 5]


def test_a_handler_whose_lock_was_lost_is_cancelled(broker: EmbeddedBroker) -> None:
    """Another worker has its job: two would do it."""
    broker.groups.set_config("g", {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "false"})
    cancelled: list[int] = []
    began = threading.Event()

    async def hang(message: Any) -> None:
        if message.delivery_count() > 1:
            return
        began.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append(message.delivery_count())
            raise

    broker.produce("mails", "a")
    with Running(broker, hang, backend="asyncio", concurrency=2):
        assert began.wait(SOON_S)
        broker.shares.expire_record_locks("g")
        broker.shares.wait_for("g", all_done)
        wait_until(lambda: cancelled)
    assert cancelled == [1]


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_handing_over_lets_handlers_end_and_gives_back_the_rest_at_once(broker: EmbeddedBroker, backend: str) -> None:
    """A deploy would hold up the jobs of a worker for the time of their locks."""
    began, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def handle(message: Any) -> Any:
        seen.append(message.value())
        began.set()
        return None if backend == "threads" and go_on.wait(SOON_S) else anyio.to_thread.run_sync(go_on.wait, SOON_S)

    broker.produce_many("mails", ["a", "b", "c"])
    with Running(broker, handle, backend=backend, concurrency=1) as running:
        assert began.wait(SOON_S)
        assert running.consumer is not None
        running.consumer.hand_over()
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        with ShareConsumer(conf) as other:
            other.subscribe(["mails"])
            rest: list[bytes] = []
            while len(rest) < 2:
                rest += [each.value() or b"" for each in other.poll(SOON_S)]
        go_on.set()
    assert (seen, sorted(rest)) == ([b"a"], [b"b", b"c"])
    broker.shares.wait_for("g", all_done)


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_handing_over_before_process_ends_it_at_once(broker: EmbeddedBroker, backend: str) -> None:
    """SIGTERM may come before the first record: the program would go on until it is killed."""
    broker.produce("mails", "a")
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    if backend == "threads":
        with ShareConsumer(conf) as queue:
            queue.subscribe(["mails"])
            queue.hand_over()
            queue.process(lambda _: pytest.fail("it was handled"))
        return

    async def main() -> None:
        async def handle(_: Any) -> None:
            pytest.fail("it was handled")

        async with AsyncShareConsumer(conf) as queue:
            await queue.subscribe(["mails"])
            queue.hand_over()
            await queue.process(handle)

    anyio.run(main)


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_what_takes_too_long_is_tried_again_within_its_delivery(long_locks: EmbeddedBroker, backend: str) -> None:
    """Forgotten, it would hold its slot and its lock for ever."""
    calls: list[tuple[int, int]] = []
    go_on, clock = threading.Event(), FastForward()

    def handle(message: Any) -> Any:
        number = processing_attempt().number
        calls.append((message.delivery_count(), number))
        if number == 1:
            return go_on.wait() and None if backend == "threads" else anyio.sleep_forever()
        return None

    long_locks.produce("mails", "a")
    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    arguments = {"timeout_s": 1_000, "retry": retry, "concurrency": 2}
    with Running(long_locks, handle, backend=backend, clock=clock, **arguments) as running:
        wait_until(lambda: calls)
        clock.ahead_ms = 1_000_000
        long_locks.shares.wait_for("g", all_done)
        go_on.set()
    assert calls == [(1, 1), (1, 2)]
    assert running.error is None


def test_a_handler_in_a_thread_can_ask_whether_its_end_counts(broker: EmbeddedBroker) -> None:
    """A thread cannot be cancelled: it would work on for nothing."""
    asked: list[bool] = []

    def handle(message: Any) -> None:
        if message.delivery_count() == 1:
            wait_until(processing_cancelled)
            asked.append(True)

    broker.produce("mails", "a")
    with Running(broker, handle, backend="threads", timeout_s=0.5, concurrency=2):
        wait_until(lambda: asked)
        broker.shares.wait_for("g", all_done)


def test_a_handler_may_ask_to_be_called_again_later(broker: EmbeddedBroker) -> None:
    """As in a consumer's process(), whatever `retry` says."""
    attempts: list[int] = []

    def handle(_: Any) -> None:
        attempts.append(processing_attempt().number)
        if len(attempts) == 1:
            raise RetryLater(0.01)

    broker.produce("mails", "a")
    with Running(broker, handle, backend="threads"):
        broker.shares.wait_for("g", all_done)
    assert attempts == [1, 2]


@pytest.mark.parametrize("backend", ["threads", "asyncio"])
def test_an_error_of_the_library_is_raised_as_it_is(broker: EmbeddedBroker, backend: str) -> None:
    """In an ExceptionGroup no ``except`` of the application would find it."""

    def refuse(_: object) -> None:
        raise ZeroDivisionError

    broker.produce("mails", "a")
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    retry = tenacity.Retrying(before=refuse)
    if backend == "threads":
        with ShareConsumer(conf) as queue:
            queue.subscribe(["mails"])
            with pytest.raises(ZeroDivisionError):
                queue.process(lambda _: None, retry=retry)
        return

    async def handle(_: Any) -> None:
        return

    async def main() -> None:
        async with AsyncShareConsumer(conf) as queue:
            await queue.subscribe(["mails"])
            with pytest.raises(ZeroDivisionError):
                await queue.process(handle, retry=retry)

    anyio.run(main)


def test_an_interrupt_lets_handlers_end(broker: EmbeddedBroker) -> None:
    """Ctrl-C would have a job done twice that is nearly done."""
    broker.produce("mails", "a")
    with ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as queue:
        queue.subscribe(["mails"])

        def handle(_: Any) -> None:
            processor = queue._processor
            assert processor is not None
            signal.raise_signal(signal.SIGINT)  # the main thread gets it
            wait_until(lambda: processor.stopping)

        with pytest.raises(KeyboardInterrupt):
            queue.process(handle)
    broker.shares.wait_for("g", all_done)


def test_no_more_is_acquired_than_there_are_free_handlers(broker: EmbeddedBroker) -> None:
    """One worker would sit on the jobs of the others."""
    go_on = threading.Event()
    broker.produce_many("mails", [str(number) for number in range(20)])
    with Running(broker, lambda _: go_on.wait(SOON_S) and None, backend="threads", concurrency=3) as running:

        def busy() -> bool:
            assert running.consumer is not None
            status = running.consumer.processing_status()
            return status is not None and status.running == 3

        wait_until(busy)
        (partition,) = broker.shares.partitions("g")
        acquired = [each for each in partition.in_flight if each.state is RecordState.ACQUIRED]
        assert sum(each.last_offset - each.first_offset + 1 for each in acquired) == 3
        go_on.set()
        broker.shares.wait_for("g", all_done)


def test_poll_is_refused_while_process_runs(broker: EmbeddedBroker) -> None:
    """Two readers of one consumer would acknowledge each other's records."""
    with Running(broker, lambda message: None, backend="threads") as running:
        assert isinstance(running.consumer, ShareConsumer)
        with pytest.raises(IllegalStateError, match="process"):
            running.consumer.poll(0)


def test_close_from_another_thread_lets_process_end_first(broker: EmbeddedBroker) -> None:
    """What a handler has nearly done would be done again."""
    began, go_on = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        began.set()
        go_on.wait()

    broker.produce("mails", "a")
    with Running(broker, handle, backend="threads") as running:
        assert began.wait(SOON_S)
        assert isinstance(running.consumer, ShareConsumer)
        closer = threading.Thread(target=running.consumer.close)
        closer.start()
        processor = running.consumer._processor
        assert processor is not None
        wait_until(lambda: processor.stopping)
        go_on.set()
        closer.join(SOON_S)
        broker.shares.wait_for("g", all_done)


def test_the_callback_hears_of_outcomes_while_process_runs(broker: EmbeddedBroker) -> None:
    """A program would count its jobs only when it ends, and outcomes would fill the memory until then."""
    broker.produce("mails", "a")
    told: list[object] = []
    with ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as queue:

        def callback(_offsets: object, error: object) -> None:
            told.append(error)
            queue.hand_over()

        queue.set_acknowledgement_commit_callback(callback)
        queue.subscribe(["mails"])
        queue.process(lambda _: None)
        assert told == [None]
