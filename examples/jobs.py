"""A queue of jobs: as many workers as you like, each job with one of them, and with another one if that fails.

    python examples/jobs.py BOOTSTRAP TOPIC [GROUP]

Start it several times. Ends with Ctrl-C or SIGTERM: running jobs end, and the rest is given back at once. A job that
fails is tried three times here, and then delivered again, here or elsewhere. Guarantees: docs/share-groups.md.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import tenacity

from kip848_client import AsyncShareConsumer, Reject, ShareMessage

RETRY = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type((OSError, TimeoutError)),
    wait=tenacity.wait_random_exponential(max=5),
    stop=tenacity.stop_after_attempt(3),
)


async def handle(job: ShareMessage) -> None:
    """Stands for a call of an API or a database."""
    value = job.value()
    if not value:
        raise Reject("an empty job")
    await asyncio.sleep(0.1)
    print("done", value.decode(), "delivery", job.delivery_count(), flush=True)


async def main(bootstrap: str, topic: str, group: str = "jobs") -> None:
    async with AsyncShareConsumer({"bootstrap.servers": bootstrap, "group.id": group}) as queue:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, queue.hand_over)
        await queue.subscribe([topic])
        await queue.process(handle, concurrency=100, retry=RETRY, timeout_s=60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
