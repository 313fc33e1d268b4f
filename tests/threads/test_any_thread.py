"""What does not read may be called by any thread, while another one is in poll(), in a listener or in process()."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.common.clock import lease_ns
from kip848_client.common.model import OffsetAndMetadata, Subscription
from kip848_client.common.telemetry import ClientMetrics, _making_gauges
from kip848_client.consumer.records.fetcher import Fetcher
from kip848_client.errors import CommitFailedError, IllegalStateError, Kip848Error, StaleMemberEpochError
from kip848_client.member.core.events import Tick
from kip848_client.member.core.states import MemberState
from kip848_client.testing.faults import hold
from tests.client.fakes import FakePlane, needs_own_messages
from tests.support.driving import QUIET, key
from tests.support.waiting import SOON_S, wait_until
from tests.support.work import traced
from tests.threads.bench import P0, P1, Bench, ScriptedCoordinator, closing
from tests.threads.test_cut_off import tips

pytestmark = pytest.mark.interop

T0 = TopicPartition("t", 0)
COUNT = 40

Call = Callable[[Consumer], object]

CALLS: dict[str, Call] = {
    "assignment": lambda c: c.assignment(),
    "position": lambda c: c.position([T0]),
    "committed": lambda c: c.committed([T0]),
    "commit all": lambda c: c.commit(),
    "commit all and wait": lambda c: c.commit(asynchronous=False),
    "commit offsets": lambda c: c.commit(offsets=[TopicPartition("t", 0, 1)]),
    "commit offsets and wait": lambda c: c.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False),
    "pause": lambda c: c.pause([T0]),
    "resume": lambda c: c.resume([T0]),
    "paused": lambda c: c.paused(),
    "watermarks": lambda c: c.get_watermark_offsets(T0),
    "cached watermarks": lambda c: c.get_watermark_offsets(T0, cached=True),
    "times": lambda c: c.offsets_for_times([TopicPartition("t", 0, 0)]),
    "topics": lambda c: c.list_topics("t"),
    "lag": lambda c: c.lag(),
    "group metadata": lambda c: c.consumer_group_metadata(),
    "member id": lambda c: c.memberid(),
    "health": lambda c: c.health(),
    "hand over": lambda c: c.hand_over(),
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A topic of two partitions with records."""
    with EmbeddedBroker({"t": 2}) as running:
        for number in range(COUNT):
            running.produce("t", str(number), partition=number % 2)
        yield running


@pytest.fixture
def coordinator() -> ScriptedCoordinator:
    """For a member without records."""
    return ScriptedCoordinator()


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    own = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    # A short wait of the broker: what is asked on the connection of a fetch is answered after it.
    return {**QUIET, **own, "fetch.wait.max.ms": 10, "enable.auto.commit": False, **more}


class Reader:
    """Polls on a thread of its own until the consumer ends."""

    def __init__(self, consumer: Consumer) -> None:
        self.got: list[Any] = []
        self._consumer = consumer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self.end: Future[None] = self._pool.submit(self._read)

    def _read(self) -> None:
        while not self._consumer.handed_over:
            message = self._consumer.poll(0.2)
            if message is not None:
                self.got.append(message)

    def await_records(self, count: int = COUNT) -> None:
        wait_until(lambda: len(self.got) >= count or self.end.done(), what="the records")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_while_another_thread_is_in_poll(broker: EmbeddedBroker, name: str) -> None:
    """A worker that commits, or a probe that asks for the lag, would fail, or starve behind the polling thread."""
    with Consumer(conf(broker)) as consumer:
        consumer.subscribe(["t"])
        reader = Reader(consumer)
        reader.await_records()

        for _ in range(3):
            CALLS[name](consumer)

        if name != "hand over":
            assert not reader.end.done()
        consumer.hand_over(0)
        reader.end.result(SOON_S)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_while_the_listener_waits_for_its_thread(broker: EmbeddedBroker, name: str) -> None:
    """``executor.shutdown(wait=True)`` in on_revoke waits for workers that commit: a lock held there never opens."""
    ended: list[object] = []
    with ThreadPoolExecutor(1) as pool, Consumer(conf(broker)) as consumer:

        def on_assign(*_: object) -> None:
            ended.append(pool.submit(CALLS[name], consumer).exception(SOON_S))

        consumer.subscribe(["t"], on_assign=on_assign)
        while not ended:
            consumer.poll(0.2)
    assert ended[:1] == [None]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_worker_commits_what_its_listener_gives_away(broker: EmbeddedBroker, asynchronous: bool) -> None:
    """The last chance to commit is on_revoke, and it is a worker that knows what is done."""
    with ThreadPoolExecutor(1) as pool:
        consumer = Consumer(conf(broker))

        def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
            done = [TopicPartition(one.topic, one.partition, 7) for one in partitions]
            pool.submit(consumer.commit, offsets=done, asynchronous=asynchronous).result(SOON_S)

        consumer.subscribe(["t"], on_revoke=on_revoke)
        while not consumer.assignment():
            consumer.poll(0.2)
        consumer.close()
    assert broker.groups.committed("g") == {("t", 0): 7, ("t", 1): 7}


def test_a_commit_of_another_thread_covers_what_was_returned(broker: EmbeddedBroker) -> None:
    """It must count neither too little nor the records that librdkafka has read ahead."""
    with Consumer(conf(broker)) as consumer:
        consumer.subscribe(["t"])
        got = consumer.consume(COUNT // 4, 5.0)
        while not got:
            got = consumer.consume(COUNT // 4, 5.0)
        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(consumer.commit, asynchronous=False).result(SOON_S)
    returned = {}
    for message in got:
        returned[message.partition()] = message.offset() + 1
    assert {one.partition: one.offset for one in committed or () if one.offset > 0} == returned


def test_a_worker_stores_offsets_while_another_thread_polls(broker: EmbeddedBroker) -> None:
    """enable.auto.offset.store=false is there for workers: they say what is done."""
    with Consumer(conf(broker, **{"enable.auto.offset.store": False})) as consumer:
        consumer.subscribe(["t"])
        reader = Reader(consumer)
        reader.await_records()
        consumer.store_offsets(offsets=[TopicPartition("t", 0, 5)])
        committed = consumer.commit(asynchronous=False)
        assert [(one.partition, one.offset) for one in committed or ()] == [(0, 5)]
        consumer.hand_over(0)
        reader.end.result(SOON_S)


def test_two_threads_that_read_are_refused_by_name(broker: EmbeddedBroker) -> None:
    """Records would come out of order, and a record in hand would count as processed."""
    with Consumer(conf(broker)) as consumer:
        consumer.subscribe(["t"])
        reader = Reader(consumer)
        reader.await_records()
        refused: list[Callable[[], object]] = [
            lambda: consumer.poll(0),
            lambda: consumer.consume(1, 0),
            lambda: next(iter(consumer)),
            lambda: consumer.subscribe(["t"]),
            lambda: consumer.seek(T0),
        ]
        for call in refused:
            with pytest.raises(IllegalStateError, match="'reader_0' is inside it, and 'MainThread'"):
                call()
        consumer.hand_over(0)
        reader.end.result(SOON_S)


# --- close


def test_close_of_another_thread_ends_poll_with_an_error(broker: EmbeddedBroker) -> None:
    """A program's main thread closes while its reader waits; confluent_kafka ends that call with a RuntimeError."""
    consumer = Consumer(conf(broker))
    consumer.subscribe(["t"])
    reader = Reader(consumer)
    reader.await_records()

    consumer.close()

    with pytest.raises(IllegalStateError, match="closed"):
        reader.end.result(SOON_S)
    broker.groups.wait_for("g", lambda group: not group.members)


@pytest.mark.parametrize("way", ["iteration", "batches", "process"])
def test_close_of_another_thread_ends_loops_without_an_error(broker: EmbeddedBroker, way: str) -> None:
    """A loop over a consumer that was closed is over."""
    consumer: Consumer[Any, Any] = Consumer(conf(broker, **{"enable.auto.commit": True}))
    consumer.subscribe(["t"])
    got: list[object] = []

    def read() -> None:
        if way == "process":
            consumer.process(got.append)
        elif way == "batches":
            for batch in consumer.batches(timeout=0.1):
                got.extend(batch)
        else:
            got.extend(consumer)

    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(read)
        wait_until(lambda: len(got) == COUNT or end.done(), what="the records")
        consumer.close()
        end.result(SOON_S)
    assert broker.groups.committed("g") == {("t", 0): COUNT // 2, ("t", 1): COUNT // 2}


def test_close_of_another_thread_leaves_out_the_record_in_hand(broker: EmbeddedBroker) -> None:
    """Its handler may not have ended: if the process is killed now, the record must be read again."""
    consumer = Consumer(conf(broker, **{"enable.auto.commit": True}))
    consumer.assign([TopicPartition("t", 0, 0)])
    in_hand, closed = threading.Event(), threading.Event()

    def read() -> None:
        taken = 0
        while taken < 3:
            taken += consumer.poll(0.2) is not None
        in_hand.set()
        assert closed.wait(SOON_S)

    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(read)
        assert in_hand.wait(SOON_S)
        consumer.close()
        closed.set()
        end.result(SOON_S)
    assert broker.groups.committed("g") == {("t", 0): 2}


def test_close_waits_for_a_listener_of_another_thread_until_its_time_is_over(broker: EmbeddedBroker) -> None:
    """A listener that never returns must not hold close() for ever; the partitions go to other members."""
    consumer = Consumer(conf(broker))
    inside, go_on = threading.Event(), threading.Event()

    def on_assign(*_: object) -> None:
        inside.set()
        go_on.wait(SOON_S)

    consumer.subscribe(["t"], on_assign=on_assign)
    reader = Reader(consumer)
    assert inside.wait(SOON_S)
    with pytest.raises(Kip848Error, match="'reader_0' did not come out"):
        consumer.close(timeout_s=0.1)
    broker.groups.wait_for("g", lambda group: not group.members)
    go_on.set()
    with pytest.raises(IllegalStateError, match="closed"):
        reader.end.result(SOON_S)


# --- records


class Threads:
    """A fetcher, and which of two threads the test plays."""

    def __init__(self) -> None:
        self.plane = FakePlane()
        self.fetcher = Fetcher(self.plane.as_consumer())
        self.reads = True
        self.fetcher.is_reader = lambda: self.reads
        self.fetcher.start(tips(P0, P1))

    def read(self) -> list[tuple[int, int]]:
        """As the thread that reads: what comes next."""
        self.reads = True
        batch = [*self.fetcher.read(10, timeout_s=0)]
        batch = [*self.fetcher.ready, *batch]
        self.fetcher.ready.clear()
        self.fetcher.on_the_way = False
        self.reads = False
        return [key(message)[1:] for message in batch]

    def buffer(self) -> None:
        """As the thread that reads: read ahead."""
        self.reads = True
        self.fetcher.ready.extend(self.fetcher.read(10, timeout_s=0))
        self.fetcher.on_the_way = False
        self.reads = False


@needs_own_messages
def test_what_another_thread_pauses_keeps_its_records_and_their_order() -> None:
    """The reading thread may be about to hand out the first of them: only that thread moves records."""
    threads = Threads()
    threads.plane.deliver("orders", 0, 10, 11)
    threads.plane.deliver("orders", 1, 10)
    threads.buffer()

    threads.fetcher.pause([P0])
    assert [key(message)[1:] for message in threads.fetcher.ready] == [(0, 10), (0, 11), (1, 10)]
    assert threads.read() == [(1, 10)]
    threads.fetcher.resume([P0])
    threads.plane.deliver("orders", 0, 12)
    assert threads.read() == [(0, 10), (0, 11)]
    assert threads.read() == [(0, 12)]


@needs_own_messages
def test_records_that_are_being_handed_out_do_not_count_for_another_thread() -> None:
    """A commit in that moment would cover records that their reader has not got yet; nor may they come twice."""
    threads = Threads()
    threads.plane.deliver("orders", 0, 10)
    threads.reads = True
    batch = threads.fetcher.read(10, timeout_s=0)
    assert len(batch) == 1
    threads.plane.positions["orders", 0] = 11

    threads.reads = False
    assert threads.fetcher.positions([P0])[P0].offset == 10
    assert not [name for name, _ in threads.plane.calls if "unassign" in name]


def test_a_thread_that_asks_has_its_turn_although_another_reads_without_a_pause() -> None:
    """A lock that the reading thread lets go for a microsecond is a lock that no other thread ever gets."""
    fetcher = Fetcher(FakePlane().as_consumer())
    reader = threading.get_ident()
    fetcher.is_reader = lambda: threading.get_ident() == reader
    with ThreadPoolExecutor(1) as pool:
        asked = [pool.submit(fetcher.between_reads, lambda: None, wanted=lambda: None) for _ in range(20)]
        for _ in itertools.count():
            assert fetcher.give_way(unless=lambda: False)
            with fetcher.lock:
                if asked[-1].done():
                    break


# --- signal handlers


FETCHER_CALLS: dict[str, Callable[[Fetcher], object]] = {
    "positions": lambda f: f.positions(),
    "pause": lambda f: f.pause([P0]),
    "hold": lambda f: f.hold([P0]),
    "keep readable": lambda f: f.keep_readable(frozenset({P1})),
    "seek": lambda f: f.seek(P0, OffsetAndMetadata(3)),
    "start": lambda f: f.start(tips(P0)),
    "stop": lambda f: f.stop([P0]),
    "position": lambda f: f.between_reads(lambda: f.positions([P0]), wanted=lambda: None),
}


@needs_own_messages
@pytest.mark.parametrize("name", FETCHER_CALLS)
def test_a_signal_handler_that_closes_ends_a_call_about_records_with_an_error_of_ours(name: str) -> None:
    """What the call was going through is empty when it goes on: a KeyError would look like a bug of the program."""
    for step in itertools.count(1):
        left = step
        threads = Threads()
        fetcher = threads.fetcher
        threads.plane.deliver("orders", 0, 10, 11)
        threads.plane.deliver("orders", 1, 10)
        threads.buffer()
        threads.reads = True

        def handler(fetcher: Fetcher = fetcher) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                sys.settrace(None)
                fetcher.stop([P0, P1])
                fetcher.close()

        with contextlib.suppress(IllegalStateError), traced(handler, Fetcher.__module__):
            FETCHER_CALLS[name](fetcher)
        if left > 0:
            break
        assert fetcher.closed
    assert step > 5


def test_a_thread_that_was_interrupted_while_it_makes_gauges_keeps_no_other_one_waiting() -> None:
    """A signal handler closes in the middle of it, which waits until the member's thread has withdrawn its gauges."""
    metrics = ClientMetrics(client_id="c", group_id="g")
    with _making_gauges, ThreadPoolExecutor(1) as pool:

        def come_and_go() -> None:
            metrics.offer({"kip848.worker.assigned.units": lambda: 1})
            metrics.look()
            metrics.withdraw()

        pool.submit(come_and_go).result(SOON_S)


def await_processed(bench: Bench, count: int) -> None:
    wait_until(lambda: bench.manager.processed >= count)


def test_a_signal_handler_in_the_middle_of_a_start_makes_no_second_thread(coordinator: ScriptedCoordinator) -> None:
    """SIGTERM while subscribe() starts the member: two threads stepped it, and close() took its whole time."""
    for step in itertools.count(1):
        left = step
        with closing(Bench(coordinator)) as bench:

            def handler(bench: Bench = bench) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    bench.member.hand_over(timeout_ms=0)

            with traced(handler, "kip848_client.consumer.group.heartbeat_manager", "kip848_client.network.queues"):
                bench.member.subscribe(Subscription(topics=frozenset({"orders"})), bench.callbacks)
            await_processed(bench, 2 if left <= 0 else 1)
            names = [thread.name for thread in threading.enumerate() if thread.name == "kip848-heartbeat-test"]
            assert len(names) == 1
        if left > 0:
            break
    assert step > 10


def test_threads_that_begin_together_share_one_heartbeat_thread(coordinator: ScriptedCoordinator) -> None:
    """The first calls of a program may come from its workers."""
    with closing(Bench(coordinator)) as bench, ThreadPoolExecutor(8) as pool:
        together = threading.Barrier(8)

        def begin() -> None:
            together.wait(SOON_S)
            bench.member.hand_over(timeout_ms=0)
            bench.member.commit_async({P0: OffsetAndMetadata(1)}, lambda *_: None)

        for end in [pool.submit(begin) for _ in range(8)]:
            end.result(SOON_S)
        wait_until(lambda: bench.manager.processed >= 8)
        names = [thread.name for thread in threading.enumerate() if thread.name == "kip848-heartbeat-test"]
        assert len(names) == 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timer that raises signals")
def test_a_signal_handler_may_close_whatever_its_thread_is_doing(broker: EmbeddedBroker) -> None:
    """A lock that the interrupted step holds would keep close() waiting for its own thread."""
    rng = random.Random(1)
    before = signal.getsignal(signal.SIGALRM)
    try:
        for number in range(20):
            consumer = Consumer(conf(broker, **{"group.id": f"g{number}"}))

            def close(_signal: int, _frame: FrameType | None, consumer: Consumer = consumer) -> None:
                consumer.close(timeout_s=SOON_S)

            signal.signal(signal.SIGALRM, close)
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.000_3, 0.03))
            began_s = time.monotonic()
            try:
                consumer.subscribe(["t"])
                while True:
                    consumer.poll(0.01)
                    consumer.commit()
                    consumer.lag()
                    consumer.position([T0])
            except Kip848Error:
                pass
            consumer.close()
            assert time.monotonic() - began_s < SOON_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- a process that was stopped


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_what_was_buffered_before_a_process_was_stopped_waits_for_a_heartbeat(broker: EmbeddedBroker, way: str) -> None:
    """After SIGSTOP, or on a laptop that woke up, others have handled these records already."""
    with Consumer(conf(broker)) as consumer:
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(0.2))
        wait_until(lambda: consumer.state is MemberState.STABLE)
        held = broker.faults.on("ConsumerGroupHeartbeat", hold())
        consumer._core.manager.lease_ns = lambda: lease_ns() + 60_000_000_000  # it was stopped for a minute
        if way == "poll":  # the heartbeat thread wakes up as soon as the one that polls
            consumer._core.manager.report(Tick())
            wait_until(lambda: consumer._core.manager.resumed_ms is not None)
        assert not (consumer.poll(0.1) if way == "poll" else consumer.consume(1, 0.1))
        held.release()
        wait_until(lambda: consumer.poll(0.2) if way == "poll" else consumer.consume(1, 0.2))


# --- all at once


@pytest.mark.slow
def test_all_pairs_of_calls_under_rebalances(broker: EmbeddedBroker) -> None:
    """Each call of one thread meets each of another, while members come and go: errors of ours, or none, and no end
    that does not come. No record is lost: what others commit is never beyond what was returned."""
    errors: list[BaseException] = []
    returned: dict[int, int] = {0: 0, 1: 0}
    stop = threading.Event()
    names = [name for name in CALLS if name != "hand over"]
    consumer = Consumer(conf(broker, **{"auto.commit.interval.ms": 50, "enable.auto.commit": True}))
    consumer.subscribe(["t"])

    def read() -> None:
        while not stop.is_set():
            try:
                message = consumer.poll(0.01)
            except (CommitFailedError, StaleMemberEpochError):  # of a commit without a callback
                continue
            if message is not None:
                partition, offset = key(message)[1:]
                returned[partition] = max(returned[partition], offset + 1)

    def call(pairs: list[tuple[str, str]], which: int) -> None:
        for pair in pairs:
            try:
                CALLS[pair[which]](consumer)
            except (CommitFailedError, IllegalStateError, StaleMemberEpochError) as error:
                if "closed" in str(error) or "heartbeat thread" in str(error):
                    errors.append(error)
            except BaseException as error:
                errors.append(error)

    def rebalance() -> None:
        while not stop.is_set():
            with Consumer(conf(broker)) as other:
                other.subscribe(["t"])
                while not other.assignment() and not stop.is_set():
                    other.poll(0.01)

    pairs = list(itertools.product(names, names))
    random.Random(2).shuffle(pairs)
    with ThreadPoolExecutor(5) as pool:
        background = [pool.submit(read), pool.submit(rebalance)]
        for end in [pool.submit(call, pairs, 0), pool.submit(call, pairs, 1)]:
            end.result()
        stop.set()
        ends = [end.exception(SOON_S) for end in background]
    committed = broker.groups.committed("g")
    consumer.close()
    assert [*errors, *ends] == [None, None]
    assert all(offset <= returned[partition] for (_, partition), offset in committed.items())
