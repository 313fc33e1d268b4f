"""Real clients over a rolling kill of a cluster of three: every record that was acknowledged is read."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka import KafkaProducer

from kip848_client import AsyncConsumer, EmbeddedBroker
from tests.interop.classic.members import OurMember
from tests.interop.embedded.classic_members import classic_member
from tests.interop.embedded.clients import MemberThread, place_of, read_committed
from tests.interop.embedded.holding import Member, Polling
from tests.interop.embedded.java_member import JavaMember
from tests.interop.embedded.writing import TransactionThread
from tests.support.driving import Key, quiet
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [
    pytest.mark.kip848_broker(topics={"orders": 6}, nodes=3),
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
FORGETS_SOCKETS: Final = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""kafka-python does not close a socket whose connection was refused."""

TOPIC: Final = "orders"
PARTITIONS: Final = 6

CONF: Final[dict[str, object]] = {
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


class AsyncMember(Polling):
    """`AsyncConsumer`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        super().__init__()

    def _run(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        async with AsyncConsumer(CONF | {"bootstrap.servers": self._bootstrap_servers}) as consumer:
            await consumer.subscribe([TOPIC])
            while not self._stop.is_set():
                message = await consumer.poll(0.02)
                if message is not None:
                    self.delivered.append((TOPIC, *place_of(message)))


def java_member(request: pytest.FixtureRequest, servers: str) -> Member:
    """Apache Kafka's own client, which follows leaders and coordinators by the hints of KIP-951."""
    quick = ("reconnect.backoff.ms=20", "reconnect.backoff.max.ms=200", "retry.backoff.ms=20")
    return JavaMember(request.getfixturevalue("java"), servers, "g", TOPIC, *quick)


READERS: Final[dict[str, Callable[[pytest.FixtureRequest, str], Member]]] = {
    "ours": lambda _, servers: OurMember(servers, TOPIC, CONF, group_id="g"),
    "ours in asyncio": lambda _, servers: AsyncMember(servers),
    "librdkafka, consumer protocol": lambda _, servers: MemberThread(servers, [TOPIC]),
    "librdkafka, classic protocol": lambda _, servers: MemberThread(servers, [TOPIC], group_protocol="classic"),
    "kafka-python": lambda _, servers: classic_member("kafka-python", servers, [TOPIC]),
    "java": java_member,
}
"""Members of the group `g` that read the topic."""

NEEDS: Final = {"java": pytest.mark.kafka}


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


@FORGETS_SOCKETS
@pytest.mark.timeout(600)  # leaves room for the first download of Java's jars
@pytest.mark.parametrize("reader", [pytest.param(name, marks=NEEDS.get(name, ())) for name in READERS])
def test_every_acknowledged_record_is_read_over_a_rolling_kill(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, reader: str
) -> None:
    """A client that loses its way when leaders and coordinators move would lose records, or stop for good."""
    producer = producer_of(broker, {"enable.idempotence": True})
    acknowledged: set[Key] = set()
    with READERS[reader](request, broker.bootstrap_servers) as member:
        produce_some(producer, acknowledged, "before")
        wait_until(lambda: member.keys() >= acknowledged, TIMEOUT_S, "the records before")
        epoch = broker.wait_for_group("g", state="Stable", members=1, timeout_s=TIMEOUT_S).group_epoch
        for node in broker.nodes:
            broker.nodes.kill(node.node_id)
            produce_some(producer, acknowledged, f"without-{node.node_id}")
            wait_until(lambda: member.keys() >= acknowledged, TIMEOUT_S, f"records without node {node.node_id}")
            broker.nodes.start(node.node_id, preferred=True)
        produce_some(producer, acknowledged, "after")
        wait_until(lambda: member.keys() >= acknowledged, TIMEOUT_S, "the records after")
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
        broker.nodes.kill(node.node_id)
        receipts = [producer.send(TOPIC, b"v", partition=partition) for partition in range(PARTITIONS)]
        assert len({receipt.get(TIMEOUT_S).partition for receipt in receipts}) == PARTITIONS
        broker.nodes.start(node.node_id, preferred=True)
    producer.close()
    gc.collect()
    assert set(broker.topics.offsets(TOPIC).values()) == {(0, 3)}


def test_a_transaction_of_librdkafka_commits_over_the_death_of_its_coordinator(broker: EmbeddedBroker) -> None:
    """Exactly-once code that fails whenever a broker is restarted would not be found out."""
    producer = producer_of(broker, {"transactional.id": "payments"})
    producer.init_transactions(TIMEOUT_S)
    acknowledged: set[Key] = set()
    for number in range(3):
        producer.begin_transaction()
        produce_some(producer, acknowledged, str(number))
        dead = broker.nodes.coordinator(transactional_id="payments")
        broker.nodes.kill(dead)
        producer.commit_transaction(TIMEOUT_S)
        broker.nodes.start(dead)
    broker.transactions.wait_for("payments", "CompleteCommit")
    with OurMember(broker.bootstrap_servers, TOPIC, CONF, group_id="g") as member:
        wait_until(lambda: member.keys() >= acknowledged, TIMEOUT_S, "the records of three transactions")


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
        writer = TransactionThread(cluster.bootstrap_servers, partitions=PARTITIONS, sends_offsets=False)
        try:
            for _ in range(20):
                seen = len(writer.committed)
                let_something_happen(cluster, rng)
                wait_until(
                    lambda seen=seen: len(writer.committed) > seen or writer.failures,  # type: ignore[misc]
                    TIMEOUT_S,
                    "a transaction after the event",
                )
        finally:
            writer.stop()
        assert not writer.failures
        for node in cluster.nodes:
            if node.state == "stopped":
                cluster.nodes.start(node.node_id)
        read = Counter(
            int(one.value() or b"") for one in read_committed(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        )
        assert read == Counter(dict.fromkeys(writer.committed, PARTITIONS))


def let_something_happen(cluster: EmbeddedBroker, rng: random.Random) -> None:
    """Kill, stop or start a node, or move a leader or the coordinator of the producer; one node always runs."""
    live = [node.node_id for node in cluster.nodes if node.state == "running"]
    dead = [node.node_id for node in cluster.nodes if node.state == "stopped"]
    events: list[Callable[[], None]] = [
        lambda: cluster.nodes.move_leader(TOPIC, rng.randrange(PARTITIONS), rng.choice(live)),
        lambda: cluster.nodes.move_coordinator(transactional_id="tx", to=rng.choice(live)),
    ]
    if len(live) > 1:
        events += [lambda: cluster.nodes.kill(rng.choice(live)), lambda: cluster.nodes.stop(rng.choice(live))]
    if dead:
        events += [lambda: cluster.nodes.start(rng.choice(dead), preferred=rng.random() < 0.5)] * 2
    rng.choice(events)()
