"""An `AsyncConsumer` in a child of the process that made it: an error that says so, and no hang; its parent goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kip848_client import EmbeddedBroker
from tests.aio.world import committed, state_of_group
from tests.interop.client.drive import Produce
from tests.support.marks import crossed
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop

PROGRAM = """
import os
import sys
import warnings
import anyio
from kip848_client import TopicPartition
from kip848_client.aio.consumer import AsyncConsumer
from kip848_client.errors import ForkedProcessError

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork() with threads
_, address, backend, moment = sys.argv
PARTITIONS = [TopicPartition("orders", 0)]

async def refused(consumer):
    if consumer.health().live:
        os._exit(8)
    calls = [
        consumer.poll, lambda: consumer.poll(0), consumer.consume, aiter(consumer).__anext__,
        aiter(consumer.batches()).__anext__, consumer.commit, consumer.assignment, consumer.unsubscribe,
        consumer.close, consumer.group_metadata, consumer.lag,
        lambda: consumer.subscribe(["orders"]), lambda: consumer.committed(PARTITIONS),
        lambda: consumer.position(PARTITIONS), lambda: consumer.seek(PARTITIONS[0]),
        lambda: consumer.pause(PARTITIONS), lambda: consumer.list_topics(timeout=1),
        lambda: consumer.get_watermark_offsets(PARTITIONS[0], timeout=1),
    ]
    for call in calls:
        try:
            await call()
        except ForkedProcessError:
            continue
        os._exit(7)
    os._exit(0)

async def main():
    conf = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    unused = AsyncConsumer(conf)
    child = os.fork()
    if child == 0:
        os._exit(unused.health().live)
    assert os.waitpid(child, 0)[1] == 0, "a consumer without a thread is live in the child"
    await unused.close()
    async with AsyncConsumer(conf) as consumer, anyio.create_task_group() as tasks:
        async def split():
            child = os.fork()
            if child == 0:
                await refused(consumer)
            assert os.waitpid(child, 0)[1] == 0, "the child failed"
            print("refused", flush=True)

        async def assigned(consumer, partitions):
            if moment == "listener":
                await split()
            if moment == "returned":
                child = os.fork()
                if child:
                    print("child ended with", os.waitpid(child, 0)[1] >> 8, flush=True)

        await consumer.subscribe(["orders"], on_assign=assigned)
        try:
            message = await consumer.poll()
        except ForkedProcessError:
            await refused(consumer)
        if moment == "idle":
            await split()
        if moment == "buffered":
            assert len(consumer._core.ready) > 0, "nothing is at hand, so this proves nothing"
            await split()
        if moment == "reading":
            tasks.start_soon(consumer.poll)
            while consumer._thread.idle:
                await anyio.sleep(0)  # the other task has its turn, and hands in poll()
            await split()
            tasks.cancel_scope.cancel()
        print("read", message.offset(), consumer.state.name, flush=True)

anyio.run(main, backend=backend)
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("backend", "moment"), crossed(["asyncio", "trio"], ["idle", "buffered", "reading", "listener", "returned"])
)
def test_a_child_of_fork_is_refused_and_its_parent_goes_on(
    broker: EmbeddedBroker, produce: Produce, backend: str, moment: str
) -> None:
    """Pre-forking servers: an error and not a hang, whatever the tasks of the parent were waiting for."""
    produce("orders", 20 if moment == "buffered" else 1, partitions=[0])
    program = [sys.executable, "-W", "error", "-c", PROGRAM, broker.bootstrap_servers, backend, moment]
    done = subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    first = "child ended with 0" if moment == "returned" else "refused"
    assert done.stdout == f"{first}\nread 0 STABLE\nclosed\n"
    assert state_of_group(broker) == "Empty"
    assert committed(broker)[0] == 1
