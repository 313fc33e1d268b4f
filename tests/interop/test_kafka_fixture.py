"""The test broker itself: it serves, it forgets nothing over a restart, it never outlives its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.interop.conftest import StartKafkaBroker, create_topic
from tests.interop.kafka_broker import KafkaBrokerError
from tests.interop.kafka_libs import KAFKA_FOLDER, pinned_kafka_version
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.interop


@pytest.mark.kafka
@pytest.mark.slow
def test_a_restart_keeps_records_and_committed_offsets(start_kafka_broker: StartKafkaBroker) -> None:
    """A test of a coordinator that moves or restarts is worthless if the restart loses the group."""
    quick_recovery = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    broker = start_kafka_broker(properties=quick_recovery)
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), "orders")
    address = broker.bootstrap_servers
    produce(address, "orders", [b"one", b"two"])
    consume_values(address, "orders", group_id="g", count=2)

    broker.restart()
    produce(address, "orders", [b"three"])
    after_stop = consume_values(address, "orders", group_id="g", count=1)
    broker.kill()
    broker.start()
    produce(address, "orders", [b"four"])
    after_crash = consume_values(address, "orders", group_id="g", count=1)

    assert broker.bootstrap_servers == address
    assert (after_stop, after_crash) == ([b"three"], [b"four"])


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_of_ones_own_takes_more_listeners_and_properties(start_kafka_broker: StartKafkaBroker) -> None:
    """Authentication and rack tests need a broker that was told so."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    broker = start_kafka_broker(
        properties={
            "broker.rack": "rack-1",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        },
        listeners={"SASL": "SASL_PLAINTEXT"},
        format_arguments=("--add-scram", "SCRAM-SHA-256=[name=alice,password=wonderland]"),
    )
    login: dict[str, str | int | float] = {
        "bootstrap.servers": broker.endpoint("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "log_level": 0,
    }

    alice = AdminClient({**login, "sasl.password": "wonderland"})
    stranger = AdminClient({**login, "sasl.password": "looking-glass"})
    cluster = alice.describe_cluster(request_timeout=DEADLINE_S).result()

    assert [node.rack for node in cluster.nodes] == ["rack-1"]
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=3)


@pytest.mark.kafka
def test_a_broker_that_refuses_its_properties_says_why(start_kafka_broker: StartKafkaBroker) -> None:
    """A developer who mistypes a property must not have to look for a log file in a deleted folder."""
    with pytest.raises(KafkaBrokerError, match=r"group\.consumer\.heartbeat\.interval\.ms"):
        start_kafka_broker(properties={"group.consumer.heartbeat.interval.ms": "soon"})


@pytest.mark.kafka
@pytest.mark.slow
def test_the_broker_dies_with_the_process_that_started_it(start_kafka_broker: StartKafkaBroker) -> None:
    """A run that is cut off (time limit, SIGKILL) must not leave Java processes and their data behind."""
    script = (
        "import os\n"
        "from tests.interop.kafka_broker import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        "print(broker._process.pid, broker._folder, flush=True)\n"
        "os._exit(1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    cut_off = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert cut_off.returncode == 1, cut_off.stderr
    pid, folder = cut_off.stdout.split()

    wait_until(lambda: not is_alive(int(pid)), DEADLINE_S, "the broker's process ends")

    wait_until(lambda: not Path(folder).exists(), DEADLINE_S, "its folder is removed")


def test_compose_file_and_pom_name_the_same_broker() -> None:
    """A user of Docker must see the broker that the tests were written against."""
    compose = (REPOSITORY / "docker-compose.yml").read_text()

    assert re.findall(r"image: apache/kafka:(\S+)", compose) == [pinned_kafka_version()]


def test_compose_file_and_fixture_set_groups_alike() -> None:
    """With other intervals, tests with a short patience fail on one of the two brokers only."""
    compose = (REPOSITORY / "docker-compose.yml").read_text()
    ours = (KAFKA_FOLDER / "server.properties").read_text()
    by_name = {name.lower().replace("_", "."): value for name, value in re.findall(r"KAFKA_(GROUP\w+): (\d+)", compose)}

    assert by_name == dict(re.findall(r"^(group\.\S+)=(\d+)$", ours, flags=re.MULTILINE))


def a_member(bootstrap_servers: str, group_id: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


def consume_values(bootstrap_servers: str, topic: str, *, group_id: str, count: int) -> list[bytes]:
    """The next *count* values of the group; commits them on the way out."""
    consumer = a_member(bootstrap_servers, group_id)
    consumer.subscribe([topic])
    values: list[bytes] = []

    def all_here() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
        return len(values) >= count

    try:
        wait_until(all_here, DEADLINE_S, f"{count} records of {topic}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be collected (state Z) counts as ended."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = shown.stdout.strip()
    return bool(state) and not state.startswith("Z")
