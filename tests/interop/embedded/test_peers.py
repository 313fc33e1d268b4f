"""Consumers that ask for older versions of ListOffsets and Fetch read a topic of the embedded broker.

aiokafka is installed with the tests. The others are installed by their own package managers into the cache, once: a
virtual environment for kafka-python 2.0 (its newer version is among the tests' own packages), npm for kafkajs, and the
Go toolchain for kafka-go and franz-go. A test fails, and says so, where one of these is missing.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.model import NamedPartition as Place
from tests.interop.embedded.clients import continues_a_session, produce
from tests.interop.embedded.installing import INSTALL_TIMEOUT_S, PEERS, go_program, installed, run
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop]

VALUES: Final = [str(number) for number in range(50)]
READ_TIMEOUT_S: Final = TIMEOUT_S


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 1}) as running:
        produce(running.bootstrap_servers, "orders", len(VALUES))
        yield running


INSTALLS: Final = [
    pytest.mark.kafka,  # not that it needs one: it is run where packages of others may be fetched
    pytest.mark.slow,
    pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * READ_TIMEOUT_S),
]


def kafka_python() -> list[str]:
    """The program that reads with kafka-python 2.0.2, in an environment that has it."""

    def install(folder: Path) -> None:
        run(sys.executable, "-m", "venv", str(folder))
        run(str(folder / "bin" / "pip"), "install", "--quiet", "kafka-python==2.0.2")

    return [str(installed("kafka-python-2.0.2", install) / "bin" / "python"), str(PEERS / "read_with_kafka_python.py")]


def kafkajs() -> list[str]:
    """The program that reads with kafkajs, beside its package."""

    def install(folder: Path) -> None:
        shutil.copytree(PEERS / "kafkajs", folder)
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder))

    return ["node", str(installed("kafkajs-2.2.4", install) / "read.js")]


def test_aiokafka_reads_by_manual_assignment(broker: EmbeddedBroker) -> None:
    """It asks ListOffsets version 1 for the beginning; without an answer getmany() returns nothing for ever."""

    async def read() -> list[str]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partition = TopicPartition("orders", 0)
            consumer.assign([partition])
            found: list[str] = []
            while len(found) < len(VALUES):
                batches = await consumer.getmany(timeout_ms=1_000)
                found += [record.value.decode() for record in batches.get(partition, ())]
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(read(), READ_TIMEOUT_S)) == VALUES


@pytest.mark.parametrize(
    "program",
    [
        # The version that most programs pinned for years asks ListOffsets version 1; it reads by manual assignment.
        pytest.param(kafka_python, id="kafka-python 2.0", marks=INSTALLS),
        # The client of Node.js joins by the classic protocol, and asks ListOffsets version 3.
        pytest.param(kafkajs, id="kafkajs", marks=INSTALLS),
        # Its Reader without a group asks ListOffsets version 1 for the first offset and the last one.
        pytest.param(partial(go_program, "kafka_go"), id="kafka-go", marks=INSTALLS),
    ],
)
def test_a_client_of_another_make_reads_everything(broker: EmbeddedBroker, program: Callable[[], list[str]]) -> None:
    """Services in other languages are tested against the same broker."""
    command = [*program(), broker.bootstrap_servers, "orders", str(len(VALUES))]
    assert run(*command, timeout_s=READ_TIMEOUT_S) == VALUES


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * READ_TIMEOUT_S)
def test_sarama_writes_a_transaction_and_reads_it_in_a_group(broker: EmbeddedBroker) -> None:
    """The Kafka version that its user names chooses the versions of all its requests."""
    for version in ("0.11.0.0", "2.8.0", "4.0.0"):
        topic = f"written-as-{version}"
        command = (*go_program("sarama"), broker.bootstrap_servers, version, topic, str(len(VALUES)))
        assert run(*command, timeout_s=READ_TIMEOUT_S) == VALUES
        assert broker.groups.committed("sarama")[Place(topic, 0)] == len(VALUES)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * READ_TIMEOUT_S)
def test_franz_go_shares_a_group_dies_and_meets_a_member_of_the_new_protocol(
    broker: EmbeddedBroker,
) -> None:
    """Its cooperative members join by the newest versions of the classic APIs, and are migrated like any other."""

    def wait_for_shares(kind: str, *shares: int) -> None:
        broker.groups.wait_for(
            "g",
            lambda group: (
                (group.type, group.state, [len(member.assigned) for member in group.members])
                == (kind, "Stable", list(shares))
            ),
            what=f"shares of {shares} in a {kind} group",
            timeout_s=READ_TIMEOUT_S,
        )

    franz_go = go_program("franz_go")
    assert run(*franz_go, broker.bootstrap_servers, "orders", str(len(VALUES))) == VALUES
    assert broker.groups.committed("g") == {Place("orders", 0): len(VALUES)}
    broker.topics.add_partitions("orders", 2)
    with ExitStack() as stack:
        endless = (*franz_go, broker.bootstrap_servers, "orders", "1000000")
        processes = [stack.enter_context(subprocess.Popen(endless)) for _ in range(2)]
        for process in processes:
            stack.callback(process.kill)
        wait_for_shares("classic", 1, 1)
        broker.requests.wait_for("Fetch", when=continues_a_session)  # a member that stays fetches by sessions
        processes[0].kill()
        wait_for_shares("classic", 2)
        with Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            while len(consumer.assignment()) != 1:
                consumer.poll(0.05)
            wait_for_shares("consumer", 1, 1)
        wait_for_shares("classic", 2)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * READ_TIMEOUT_S)
def test_franz_go_copies_records_in_transactions_of_a_member_of_the_new_protocol(broker: EmbeddedBroker) -> None:
    """A service in Go that wants exactly once has results and offsets in one transaction."""
    broker.topics.create("copies")
    run(*go_program("franz_go_transactions"), broker.bootstrap_servers, "orders", "copies", str(len(VALUES)))
    assert [record.value for record in broker.records("copies")] == [value.encode() for value in VALUES]
    assert broker.groups.committed("g") == {Place("orders", 0): len(VALUES)}
    assert broker.requests.of("ConsumerGroupHeartbeat", group="g")
    assert not broker.requests.of("JoinGroup")


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * READ_TIMEOUT_S)
def test_franz_go_reads_every_acknowledged_record_over_a_rolling_kill() -> None:
    """It follows leaders and coordinators by its own rules: one wrong answer would strand it at a dead node."""
    count = 6
    with EmbeddedBroker({"orders": count}, nodes=3) as cluster:
        command = (*go_program("franz_go"), cluster.nodes[1].bootstrap_server, "orders", "1000000")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ExitStack() as stack:
            stack.callback(process.kill)
            cluster.wait_for_group("g", state="Stable", members=1, timeout_s=READ_TIMEOUT_S)
            for number, node in enumerate(cluster.nodes, start=1):
                cluster.nodes.kill(node.node_id)
                produce(cluster.bootstrap_servers, "orders", count, partitions=count, reconnect_backoff_ms=20)
                wait_until(
                    lambda number=number: sum(cluster.groups.committed("g").values()) == count * number,  # type: ignore[misc]
                    READ_TIMEOUT_S,
                    f"{count * number} committed records",
                )
                cluster.nodes.start(node.node_id, preferred=True)
            process.kill()
            lines, _ = process.communicate(timeout=READ_TIMEOUT_S)
    # It joins again when its coordinator dies, and then reads again what it had not committed.
    assert all(lines.split().count(str(value)) >= 3 for value in range(count))
