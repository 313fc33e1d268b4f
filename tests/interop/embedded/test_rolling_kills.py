"""Real clients over a rolling kill of a cluster of three: every record that was acknowledged is read."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka import KafkaConsumer, KafkaProducer

from kip848_client import AsyncConsumer, Consumer
from kip848_client.broker import EmbeddedBroker
from tests.interop.embedded.clients import Key, MemberThread, place_of, quiet
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
FORGETS_SOCKETS: Final = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""kafka-python does not close a socket whose connection was refused."""

TOPIC: Final = "orders"
PARTITIONS: Final = 6
TIMEOUT_S: Final = 60.0

Reader = Callable[[str], AbstractContextManager[set[Key]]]
"""Reads the topic as the member of a group; the set grows by what it has read."""

CONF: Final[dict[str, object]] = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({TOPIC: PARTITIONS}, nodes=3) as running:
        yield running


@contextmanager
def ours(bootstrap_servers: str) -> Iterator[set[Key]]:
    """`Consumer`."""

    def read(stop: threading.Event, keys: set[Key]) -> None:
        with Consumer(CONF | {"bootstrap.servers": bootstrap_servers}) as consumer:
            consumer.subscribe([TOPIC])
            while not stop.is_set():
                message = consumer.poll(0.02)
                if message is not None:
                    keys.add((TOPIC, *place_of(message)))

    with running(read) as keys:
        yield keys


@contextmanager
def ours_in_asyncio(bootstrap_servers: str) -> Iterator[set[Key]]:
    """`AsyncConsumer`."""

    async def read_async(stop: threading.Event, keys: set[Key]) -> None:
        async with AsyncConsumer(CONF | {"bootstrap.servers": bootstrap_servers}) as consumer:
            await consumer.subscribe([TOPIC])
            while not stop.is_set():
                message = await consumer.poll(0.02)
                if message is not None:
                    keys.add((TOPIC, *place_of(message)))

    with running(lambda stop, keys: asyncio.run(read_async(stop, keys))) as keys:
        yield keys


@contextmanager
def kafka_python(bootstrap_servers: str) -> Iterator[set[Key]]:
    """kafka-python, which speaks the classic protocol."""

    def read(stop: threading.Event, keys: set[Key]) -> None:
        consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap_servers.split(","),
            group_id="g",
            auto_offset_reset="earliest",
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
        )
        while not stop.is_set():
            for records in consumer.poll(timeout_ms=20).values():
                keys.update((TOPIC, record.partition, record.offset) for record in records)
        consumer.close()

    with running(read) as keys:
        yield keys
    gc.collect()  # here, and not in the next test


def librdkafka(protocol: str) -> Reader:
    """confluent-kafka with one of its protocols."""

    @contextmanager
    def read(bootstrap_servers: str) -> Iterator[set[Key]]:
        with MemberThread(bootstrap_servers, [TOPIC], group_protocol=protocol) as member:
            yield _Growing(member)

    return read


class _Growing(set[Key]):
    """The keys of a `MemberThread`, looked up when they are compared."""

    def __init__(self, member: MemberThread) -> None:
        super().__init__()
        self._member = member

    def __ge__(self, other: object) -> bool:
        self.update(self._member.keys())
        return super().__ge__(other)  # type: ignore[operator]


@contextmanager
def running(read: Callable[[threading.Event, set[Key]], None]) -> Iterator[set[Key]]:
    """*read* on a thread of its own until the block ends."""
    stop, keys, failures = threading.Event(), set[Key](), list[BaseException]()

    def run() -> None:
        try:
            read(stop, keys)
        except BaseException as failure:  # told below, on the test's thread
            failures.append(failure)

    thread = threading.Thread(target=run, name="reader")
    thread.start()
    try:
        yield keys
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert not thread.is_alive(), "the reader did not close in time"
    assert not failures, failures


def producer_of(broker: EmbeddedBroker, conf: dict[str, object]) -> Producer:
    """A producer of librdkafka's that comes back to a node soon."""
    reconnect = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
    return Producer(quiet({"bootstrap.servers": broker.bootstrap_servers, **reconnect, **conf}))


def produce_some(producer: Producer, acknowledged: set[Key], what: str) -> None:
    """One record to each partition; those that were acknowledged are added."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.add((TOPIC, *place_of(message)))
        else:
            failures.append(str(error))

    for partition in range(PARTITIONS):
        producer.produce(TOPIC, what, partition=partition, on_delivery=delivered)
    assert not producer.flush(TIMEOUT_S)
    assert not failures


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(ours, id="ours"),
        pytest.param(ours_in_asyncio, id="ours in asyncio"),
        pytest.param(librdkafka("consumer"), id="librdkafka, consumer protocol"),
        pytest.param(librdkafka("classic"), id="librdkafka, classic protocol"),
        pytest.param(kafka_python, id="kafka-python", marks=FORGETS_SOCKETS),
    ],
)
def test_every_acknowledged_record_is_read_over_a_rolling_kill(broker: EmbeddedBroker, reader: Reader) -> None:
    """A client that loses its way when leaders and coordinators move would lose records, or stop for good."""
    producer = producer_of(broker, {"enable.idempotence": True})
    acknowledged: set[Key] = set()
    with reader(broker.bootstrap_servers) as read:
        produce_some(producer, acknowledged, "before")
        wait_until(lambda: read >= acknowledged, TIMEOUT_S, "the records before")
        epoch = broker.wait_for_group("g", state="Stable", members=1).group_epoch
        for node in broker.nodes:
            broker.kill_node(node.node_id)
            produce_some(producer, acknowledged, f"without {node.node_id}")
            wait_until(lambda: read >= acknowledged, TIMEOUT_S, f"records without node {node.node_id}")
            broker.start_node(node.node_id, preferred=True)
        produce_some(producer, acknowledged, "after")
        wait_until(lambda: read >= acknowledged, TIMEOUT_S, "the records after")
        assert broker.wait_for_group("g", members=1).group_epoch == epoch, "no member had to join again"
    assert len(acknowledged) == 5 * PARTITIONS


@FORGETS_SOCKETS
def test_kafka_pythons_producer_follows_the_leaders(broker: EmbeddedBroker) -> None:
    """It asks for metadata by itself only: what it needs to find a new leader has to be in the answers."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers.split(","),
        acks="all",
        reconnect_backoff_ms=20,
        retry_backoff_ms=20,
        linger_ms=0,
    )
    for node in broker.nodes:
        broker.kill_node(node.node_id)
        receipts = [producer.send(TOPIC, b"v", partition=partition) for partition in range(PARTITIONS)]
        assert len({receipt.get(TIMEOUT_S).partition for receipt in receipts}) == PARTITIONS
        broker.start_node(node.node_id, preferred=True)
    producer.close()
    gc.collect()
    assert set(broker.offsets(TOPIC).values()) == {(0, 3)}


def test_a_transaction_of_librdkafka_commits_over_the_death_of_its_coordinator(broker: EmbeddedBroker) -> None:
    """Exactly-once code that fails whenever a broker is restarted would not be found out."""
    producer = producer_of(broker, {"transactional.id": "payments"})
    producer.init_transactions(TIMEOUT_S)
    acknowledged: set[Key] = set()
    for number in range(3):
        producer.begin_transaction()
        produce_some(producer, acknowledged, str(number))
        dead = broker.coordinator(transactional_id="payments")
        broker.kill_node(dead)
        producer.commit_transaction(TIMEOUT_S)
        broker.start_node(dead)
    broker.wait_for_transaction("payments", "CompleteCommit")
    with ours(broker.bootstrap_servers) as read:
        wait_until(lambda: read >= acknowledged, TIMEOUT_S, "the records of three transactions")


@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_are_read_once_while_nodes_die(tmp_path: Path, seed: int) -> None:
    """A fail-over at an unlucky moment would lose a transaction, tear it, or show what was taken back.

    Twenty random events come while a transactional producer writes to all partitions: the odd seed keeps the cluster in
    memory and lets coordinators take time to load, the even one has a data folder.
    """
    rng = random.Random(seed)
    config = {"kip848.coordinator.load.ms": "100", "kip848.election.delay.ms": "50"} if seed % 2 else {}
    folder = None if seed % 2 else tmp_path / "data"
    with EmbeddedBroker({TOPIC: PARTITIONS}, nodes=3, config=config, data_dir=folder) as cluster:
        committed: list[bytes] = []

        def write(stop: threading.Event, _keys: set[Key]) -> None:
            producer = producer_of(cluster, {"transactional.id": "tx"})
            producer.init_transactions(TIMEOUT_S)
            for number in itertools.count():
                if stop.is_set():
                    return
                values = [f"{number} in {partition}".encode() for partition in range(PARTITIONS)]
                producer.begin_transaction()
                for partition, value in enumerate(values):
                    producer.produce(TOPIC, value, partition=partition)
                if number % 3 == 2:
                    producer.flush(TIMEOUT_S)
                    producer.abort_transaction(TIMEOUT_S)
                    continue
                try:
                    producer.commit_transaction(TIMEOUT_S)
                    committed.extend(values)
                except KafkaException as refused:
                    if not refused.args[0].txn_requires_abort():
                        raise
                    producer.abort_transaction(TIMEOUT_S)

        with running(write):
            for _ in range(20):
                seen = len(committed)
                let_something_happen(cluster, rng)
                wait_until(lambda seen=seen: len(committed) > seen, TIMEOUT_S, "a transaction after the event")  # type: ignore[misc]
            for node in cluster.nodes:
                if node.state == "stopped":
                    cluster.start_node(node.node_id)
        with Consumer(
            CONF | {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_committed"}
        ) as consumer:
            consumer.subscribe([TOPIC])
            read = [message.value() for message in iter(lambda: consumer.poll(5), None)]
        assert sorted(map(bytes, filter(None, read))) == sorted(committed)


def let_something_happen(cluster: EmbeddedBroker, rng: random.Random) -> None:
    """Kill, stop or start a node, or move a leader or the coordinator of the producer; one node always runs."""
    live = [node.node_id for node in cluster.nodes if node.state == "running"]
    dead = [node.node_id for node in cluster.nodes if node.state == "stopped"]
    events: list[Callable[[], None]] = [
        lambda: cluster.move_leader(TOPIC, rng.randrange(PARTITIONS), rng.choice(live)),
        lambda: cluster.move_coordinator(transactional_id="tx", to=rng.choice(live)),
    ]
    if len(live) > 1:
        events += [lambda: cluster.kill_node(rng.choice(live)), lambda: cluster.stop_node(rng.choice(live))]
    if dead:
        events += [lambda: cluster.start_node(rng.choice(dead), preferred=rng.random() < 0.5)] * 2
    rng.choice(events)()
