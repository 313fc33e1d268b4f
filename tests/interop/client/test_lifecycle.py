"""Consumers that are not closed, forks, and processes that die; on the embedded broker."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.errors import ForkedProcessError
from tests.interop.client.conftest import QUIET, MakeConsumer
from tests.interop.client.drive import Produce, delivered_once, drive
from tests.support.open_files import sockets_of_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

PROGRAM = """
import sys
from kip848_client import Consumer
conf = {"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
consumer = Consumer(conf)
consumer.subscribe(["orders"])
seen = 0
while seen < 4:
    seen += len(consumer.consume(100, 0.2))
print("consumed", flush=True)
"""


def run(program: str, bootstrap_servers: str, *, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Run a program of its own and wait for its end."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_no_thread_and_no_socket_is_left_after_close(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Services open and close consumers for months; each leak would add up."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    consumer.raw.close()
    before = sockets_of_port(broker.port)

    for _ in range(6):
        again = make_consumer().subscribe("orders")
        drive(again, until=lambda: len(again.partitions) == 4)  # noqa: B023  used before the next round
        again.raw.close()

    assert [thread.name for thread in threading.enumerate() if "heartbeat" in thread.name] == []
    # The broker's ends are in this process as well, and closed when its thread gets to it; the producer of the test may
    # open another connection. One leak a round would be six.
    wait_until(lambda: sockets_of_port(broker.port) < before + 6, what="the sockets are closed")


def test_a_consumer_that_was_dropped_leaves_its_group(broker: EmbeddedBroker, produce: Produce) -> None:
    """Notebooks run a cell again without close(): the old member must not keep its partitions for a session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of sockets that other clients' tests left in this process
        gc.collect()
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**QUIET, **conf})
    consumer.subscribe(["orders"], on_revoke=lambda *_: pytest.fail("a listener ran on a thread of ours"))
    while not consumer.assignment():
        consumer.poll(0.05)

    del consumer
    gc.collect()

    broker.wait_for("g", lambda group: not group.members, what="the dropped consumer to leave")


def test_after_fork_the_prefetch_buffer_is_not_handed_out_twice(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """The fast path of poll() must notice the fork as well, or parent and child process the same records."""
    produce("orders", 50)
    consumer = make_consumer().subscribe("orders")
    assert consumer.raw.poll(10.0) is not None
    assert consumer.raw._ready, "nothing is prefetched, so this test proves nothing"

    consumer.raw._gate.owner = -1  # what the hook after fork() does in the child
    with pytest.raises(ForkedProcessError):
        consumer.raw.poll(0)
    del consumer.raw._gate.owner

    assert consumer.raw.poll(0) is not None


def test_a_killed_process_loses_nothing(broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce) -> None:
    """kill -9: after the session another member reads everything that was not committed."""
    produce("orders", 1)
    program = PROGRAM + "\nimport time\nwhile True:\n    consumer.poll(0.1)\n"
    command = [sys.executable, "-c", program, broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "consumed\n"
            produce("orders", 10)
        finally:
            process.kill()

    (killed,) = broker.wait_for_group("g", members=1).members
    broker.expire_session("g", killed.member_id)
    partitions = [TopicPartition("orders", partition) for partition in range(4)]
    starts = [max(0, at.offset) for at in make_consumer().raw.committed(partitions)]
    consumer = make_consumer().subscribe("orders")
    expected = {("orders", p, offset) for p in range(4) for offset in range(starts[p], 11)}
    drive(consumer, until=lambda: len(consumer.delivered) >= len(expected))

    assert delivered_once([consumer]) == expected


def test_importing_the_package_loads_no_librdkafka() -> None:
    """Cores, Spark workers and pytest start without paying for it, or needing it."""
    program = """
    import sys
    import kip848_client
    assert "confluent_kafka" not in sys.modules
    assert "Consumer" in dir(kip848_client)
    kip848_client.Consumer
    assert "confluent_kafka" in sys.modules
    """

    ended = run(program, "unused")

    assert ended.returncode == 0, ended.stderr
