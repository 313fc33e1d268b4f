"""The test broker itself: it serves, it forgets nothing over a restart, it never outlives its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.conftest import StartKafkaBroker
from tests.interop.kafka_broker import KafkaBrokerError
from tests.interop.kafka_libs import KAFKA_FOLDER, pinned_kafka_version
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.interop


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


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be collected (state Z) counts as ended."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = shown.stdout.strip()
    return bool(state) and not state.startswith("Z")
