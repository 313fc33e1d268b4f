"""Whole Spark applications against a real Kafka broker: one whose JVM is killed, two that share a group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.conftest import CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.spark.test_stream_on_kafka import committed, members
from tests.spark.arrange import everything, options, produce
from tests.spark.quick import quick_environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

START_TIMEOUT_S = 180.0
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def application(folder: Path, chosen: dict[str, str], **task: object) -> Iterator[subprocess.Popen[str]]:
    """A running application; whatever happens, it and its JVM are gone afterwards."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.interop.spark.application"]
    command.append(json.dumps({"options": chosen, "folder": str(folder), **task}))
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=quick_environment(folder / f"conf-{uuid4().hex}"),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def told(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """The next thing that an application says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "log").read_text()[-4_000:]
    said: dict[str, Any] = json.loads(line)
    return said


def finish(process: subprocess.Popen[str], folder: Path) -> Counter[tuple[str, int, int]]:
    """Let an application read what is left, and end; what it has written."""
    assert process.stdin is not None
    process.stdin.close()
    return written(told(process, folder))


def written(said: dict[str, Any]) -> Counter[tuple[str, int, int]]:
    return Counter((topic, partition, offset) for topic, partition, offset in said["ended"])


@pytest.fixture
def address(kafka_broker: KafkaBroker | ExternalKafka) -> str:
    return kafka_broker.bootstrap_servers


def test_a_killed_jvm_loses_and_doubles_nothing(
    address: str, kafka_topic: CreateTopic, kafka_group: Callable[[], str], tmp_path: Path
) -> None:
    """The machine goes in the middle of a batch; the query continues from its checkpoint with other limits."""
    topic, group = kafka_topic(partitions=4), kafka_group()
    produce(address, topic, 500, partitions=4)
    changed: dict[str, object] = {"kafka.group.id": group, "subscribe": topic, "maxOffsetsPerTrigger": 500}
    with application(tmp_path, options(address, changed), hold_at=300) as first:
        jvm = told(first, tmp_path)["jvm"]
        wait_until((tmp_path / "held").exists, START_TIMEOUT_S)
        before = committed(address, group)
        os.kill(jvm, signal.SIGKILL)
        wait_until(lambda: members(address, group) == 0)

    changed["maxOffsetsPerTrigger"] = 333
    with application(tmp_path, options(address, changed), available_now=True) as second:
        told(second, tmp_path)
        rows = written(told(second, tmp_path))

    assert 0 < sum(before.values()) < 2_000
    assert rows.total() == len(rows) == 2_000
    assert rows == everything(500, partitions=4, topic=topic)
    assert committed(address, group) == dict.fromkeys(range(4), 500)
    assert members(address, group) == 0


def test_two_applications_share_a_group(
    address: str, kafka_topic: CreateTopic, kafka_group: Callable[[], str], tmp_path: Path
) -> None:
    """Scaling out: the second application takes half, and gives it back when it ends; no record is in both outputs."""
    topic, group = kafka_topic(partitions=4), kafka_group()
    produce(address, topic, 500, partitions=4)
    changed: dict[str, object] = {"kafka.group.id": group, "subscribe": topic, "maxOffsetsPerTrigger": 400}
    chosen = options(address, changed)
    one, two = tmp_path / "1", tmp_path / "2"
    with application(one, chosen) as first:
        told(first, one)
        wait_until(lambda: sum(committed(address, group).values()) > 0, START_TIMEOUT_S)
        with application(two, chosen) as second:
            told(second, two)
            wait_until(lambda: members(address, group) == 2, START_TIMEOUT_S)
            produce(address, topic, 500, partitions=4, first=500)
            wait_until(lambda: sum(committed(address, group).values()) >= 4_000, START_TIMEOUT_S)
            of_second = finish(second, two)
        wait_until(lambda: members(address, group) == 1)
        produce(address, topic, 100, partitions=4, first=1_000)
        wait_until(lambda: sum(committed(address, group).values()) >= 4_400, START_TIMEOUT_S)
        of_first = finish(first, one)
    wait_until(lambda: members(address, group) == 0)

    assert of_first + of_second == everything(1_100, partitions=4, topic=topic)
    assert len({number for _, number, _ in of_second}) == 2
    assert committed(address, group) == dict.fromkeys(range(4), 1_100)
