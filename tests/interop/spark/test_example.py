"""The Spark examples do what their docstrings say."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest

from kip848_client import EmbeddedBroker
from tests.spark.arrange import committed, produce
from tests.spark.quick import quick_environment
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TIMEOUT_S = 280


@pytest.mark.slow
@pytest.mark.kafka  # needs no broker, but minutes: it runs with the slow ones
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_two_queries_count_each_flight_once(tmp_path: Path) -> None:
    """The first thing that a Spark user tries."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_job.py"), "--flights", "20000"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=quick_environment(tmp_path / "conf"),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"query-1 counted ([\d,]+) flights, query-2 ([\d,]+)", done.stdout)
    assert counted
    parts = [int(text.replace(",", "")) for text in counted.groups()]
    assert sum(parts) == 20_000
    assert parts[1] > 2_000, "the second query took its half"
    assert "lag of the group 0" in done.stdout
    assert "none lost, none twice" in done.stdout


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_a_signal_ends_a_service_between_two_batches(tmp_path: Path) -> None:
    """A supervisor sends a signal on each release; the program must get it, and not its JVM."""
    with EmbeddedBroker({"orders": 2}) as broker:
        arguments = ["--bootstrap", broker.bootstrap_servers, "--group", "g", "--topic", "orders"]
        produce(broker.bootstrap_servers, "orders", 50, partitions=2)
        with subprocess.Popen(
            [sys.executable, str(EXAMPLES / "spark_service.py"), *arguments, "--folder", str(tmp_path / "out")],
            env=quick_environment(tmp_path / "conf"),
        ) as service:
            try:
                wait_until(lambda: committed(broker, group="g") == {0: 50, 1: 50}, TIMEOUT_S)
                assert (tmp_path / "out" / "pid").read_text() == str(service.pid)
                service.send_signal(signal.SIGTERM)
                assert service.wait(TIMEOUT_S) == 0
            finally:
                service.kill()
        assert not broker.wait_for_group("g", members=0, timeout_s=1).members


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_each_named_query_runs_on_one_process_and_moves_with_its_checkpoint(tmp_path: Path) -> None:
    """A dozen small pipelines, two machines: a release restarts one of them, and no row is missing or twice."""
    names, folder = ("orders", "invoices"), tmp_path / "out"
    with EmbeddedBroker(dict.fromkeys(names, 1), connect_groups=True) as broker, contextlib.ExitStack() as stack:

        def produce_more(first: int) -> None:
            for name in names:
                produce(broker.bootstrap_servers, name, 20, first=first)

        def process(number: int) -> subprocess.Popen[bytes]:
            command = [sys.executable, str(EXAMPLES / "spark_queries.py"), "--topics", ",".join(names)]
            command += ["--bootstrap", broker.bootstrap_servers, "--folder", str(folder)]
            environment = quick_environment(tmp_path / f"conf-{number}")
            log = stack.enter_context((tmp_path / f"log-{number}").open("wb"))
            started = stack.enter_context(subprocess.Popen(command, env=environment, stdout=log))
            stack.callback(started.kill)
            return started

        def all_committed(count: int) -> bool:
            return all(committed(broker, topic=name, group=f"query-{name}") == {0: count} for name in names)

        produce_more(0)
        one = process(1)
        wait_until(lambda: all_committed(20), TIMEOUT_S)
        process(2)
        wait_until(lambda: "runs here" in (tmp_path / "log-2").read_text(), TIMEOUT_S)
        produce_more(20)
        wait_until(lambda: all_committed(40), TIMEOUT_S)
        one.send_signal(signal.SIGTERM)
        assert one.wait(TIMEOUT_S) == 0
        produce_more(40)
        wait_until(lambda: all_committed(60), TIMEOUT_S)

    for name in names:
        assert offsets_written(folder / name / "rows") == list(range(60))


def offsets_written(folder: Path) -> list[int]:
    """Offsets in the files of complete batches."""
    found: list[int] = []
    for path in sorted((folder / "_spark_metadata").iterdir()):
        if path.name.isdecimal():
            for line in path.read_text().splitlines()[1:]:
                file = unquote(urlparse(json.loads(line)["path"]).path)
                found += pq.read_table(file, columns=["offset"]).column("offset").to_pylist()
    return sorted(found)
