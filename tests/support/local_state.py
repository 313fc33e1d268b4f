"""Two processes of examples/local_state.py, and what users of it ask."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support.ports import free_ports
from tests.support.waiting import TIMEOUT_S, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "local_state.py"


def check_local_state(bootstrap: str, folder: Path, *, protocol: str) -> None:
    """A task moves to a second process once that has its state; every process answers; the rest moves when one goes.

    The topics ``orders`` and ``orders-totals`` have two partitions each.
    """
    ports = free_ports(2)
    order(bootstrap, *range(10))
    with ExitStack() as stack:
        first = _start(stack, bootstrap, folder / "a", ports[0], protocol)
        wait_until(lambda: totals(ports[0]) == {(45, ports[0])}, what="the first process to have all totals")
        second = _start(stack, bootstrap, folder / "b", ports[1], protocol)
        wait_until(
            lambda: totals(ports[0]) == totals(ports[1]) == {(45, port) for port in ports},
            what="a task to move to the second process, and both to answer for both",
        )
        order(bootstrap, 100)
        wait_until(lambda: {total for total, _ in totals(ports[1])} == {145}, what="both to go on")
        _stop(first)
        order(bootstrap, 1000)
        wait_until(lambda: totals(ports[1]) == {(1145, ports[1])}, what="the second process to have everything")
        _stop(second)
        told = (folder / "b.log").read_text()
        assert "copies totals_0" in told
        assert "copies totals_1" in told


def order(bootstrap: str, *amounts: int) -> None:
    """Ann orders in both partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for amount in amounts:
        for partition in (0, 1):
            producer.produce("orders", str(amount), "ann", partition)
    assert producer.flush(TIMEOUT_S) == 0


def totals(port: int) -> set[tuple[int, int]]:
    """(total, port of the process that has it) of both partitions, asked at one process."""
    found = set()
    for partition in (0, 1):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{partition}/ann", timeout=TIMEOUT_S) as answer:
                told: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as refused:
            refused.close()
            return set()  # just moving
        except (urllib.error.URLError, ConnectionError):
            return set()  # not started
        found.add((told["total"], int(told["from"].rpartition(":")[2])))
    return found


def _start(stack: ExitStack, bootstrap: str, folder: Path, port: int, protocol: str) -> subprocess.Popen[bytes]:
    log = stack.enter_context(folder.with_suffix(".log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), bootstrap, str(folder), str(port), protocol], stdout=log, stderr=log
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
