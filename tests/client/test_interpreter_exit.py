"""What a consumer that was not closed does while the interpreter ends."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import TIMEOUT_S

PROGRAM = """
import logging, threading
from kip848_client import Consumer, EmbeddedBroker

logging.basicConfig(level=logging.INFO, format="%(message)s")
broker = EmbeddedBroker({"orders": 1}).start()
consumer = Consumer({
    "bootstrap.servers": f"localhost:{broker.port}", "group.id": "g", "log_level": 0,
    "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 2, "retry.backoff.ms": 1, "retry.backoff.max.ms": 2,
})
consumer.subscribe(["orders"])
while not consumer.assignment():
    consumer.poll(0.05)
broker.crash()

def look_up_again():  # a name, when no thread can be started any more
    threading.main_thread().join()
    manager = consumer._core.manager
    seen, tick = manager.failed_lookups, threading.Event()
    while manager.alive and manager.failed_lookups < seen + 3:
        tick.wait(0.01)

threading.Thread(target=look_up_again).start()
"""


def test_a_broker_that_is_gone_while_the_interpreter_ends_is_no_crash_of_the_heartbeat_thread() -> None:
    """Names cannot be looked up any more by then: "cannot schedule new futures after shutdown" came as CRITICAL."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )

    assert ended.returncode == 0, ended.stderr
    assert "heartbeat_thread_died" not in ended.stderr
    assert "consumer.not_closed" in ended.stderr
