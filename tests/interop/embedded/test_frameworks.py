"""Programs that use Kafka through a framework run on the embedded broker as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer

from kip848_client import EmbeddedBroker
from tests.interop.embedded.installing import INSTALL_TIMEOUT_S, PEERS, installed, run
from tests.interop.kafka_libs import java_command

pytestmark = [
    pytest.mark.interop,
    pytest.mark.kafka,  # not that they need one: they are run where packages of others may be fetched
    pytest.mark.slow,
    pytest.mark.timeout(INSTALL_TIMEOUT_S + 180),
]
RUN_TIMEOUT_S: Final = 120
NUMBERS: Final = range(10)
RUNNING_SUMS: Final = [sum(NUMBERS[: count + 1]) for count in NUMBERS]


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python interpreter that has the frameworks of frameworks/requirements.txt."""

    def install(folder: Path) -> None:
        run(sys.executable, "-m", "venv", str(folder))
        run(str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(requirements))

    requirements = PEERS / "frameworks" / "requirements.txt"
    return installed("frameworks", install, source=requirements) / "bin" / "python"


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (["with_faststream.py", "confluent"], [2 * number for number in NUMBERS]),
        (["with_faststream.py", "aiokafka"], [2 * number for number in NUMBERS]),
        (["with_quix_streams.py"], RUNNING_SUMS),
        (["with_faust.py"], [1 for _ in NUMBERS]),
        (["with_kombu.py"], list(NUMBERS)),
    ],
    ids=["FastStream, confluent-kafka", "FastStream, aiokafka", "Quix Streams", "Faust", "kombu"],
)
def test_a_framework_finds_all_that_it_asks_of_a_broker(python: Path, program: list[str], printed: list[int]) -> None:
    """Topics made by the framework, groups, changelog topics and, with Quix Streams, transactions."""
    with EmbeddedBroker({"numbers": 1}) as broker:
        command = [str(python), str(PEERS / "frameworks" / program[0]), *program[1:]]
        words = run(*command, broker.bootstrap_servers, str(len(NUMBERS)), timeout_s=RUN_TIMEOUT_S)
    assert [int(word) for word in words if word.isdigit()] == printed


def test_kafka_streams_counts_each_word_exactly_once_when_an_instance_is_killed(tmp_path: Path) -> None:
    """Its tasks, repartition and changelog topics move to another process, and the open transaction is aborted."""
    lines, words = 200, ["to", "be", "or", "not"]
    with EmbeddedBroker({"lines": 4, "counts": 4}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

        def write(count: int) -> None:
            for number in range(count):
                producer.produce("lines", " ".join(words), partition=number % 4)
            assert producer.flush(RUN_TIMEOUT_S) == 0

        with _counts(broker) as counts:
            with _count_words(broker, tmp_path / "first"):
                write(lines // 2)
                counts.read_until(20)  # and is killed here
            write(lines // 2)
            with _count_words(broker, tmp_path / "second"):
                counts.read_until(lines * len(words))
    assert counts.of == {word: list(range(1, lines + 1)) for word in words}


class _Counts:
    """What a reader of committed records finds in the topic ``counts``."""

    def __init__(self, consumer: Consumer) -> None:
        self.of: dict[str, list[int]] = {}
        self._consumer = consumer

    def read_until(self, count: int) -> None:
        while sum(map(len, self.of.values())) < count:
            message = self._consumer.poll(RUN_TIMEOUT_S)
            assert message is not None, f"no further record in {RUN_TIMEOUT_S} s; found {self.of}"
            assert message.error() is None, message.error()
            self.of.setdefault((message.key() or b"").decode(), []).append(int(message.value() or b""))


@contextmanager
def _counts(broker: EmbeddedBroker) -> Iterator[_Counts]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["counts"])
    try:
        yield _Counts(consumer)
    finally:
        consumer.close()


@contextmanager
def _count_words(broker: EmbeddedBroker, state: Path) -> Iterator[None]:
    """One instance of the Kafka Streams program, killed in the end."""
    program = PEERS / "kafka_streams"

    def install(folder: Path) -> None:
        run(
            "mvn",
            "-q",
            "-B",
            "-f",
            str(program / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
        )

    libs = installed("kafka-streams-4.3.1", install, source=program / "pom.xml")
    command = [
        java_command(),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    ]
    command += ["-cp", f"{libs}/*", str(program / "CountWords.java"), broker.bootstrap_servers, str(state)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()
