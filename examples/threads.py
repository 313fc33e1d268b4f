"""A slow handler without asyncio: fifty threads, in order by key, nothing committed too early.

    python examples/threads.py BOOTSTRAP TOPIC [GROUP]

Ends with SIGTERM: running handlers end, what is done is committed, and other members take over without a gap. A
handler that fails five times ends it with an error; the next start begins with that record.
"""

from __future__ import annotations

import signal
import sys
import time

import tenacity

from kip848_client import Consumer, Message, processing_cancelled

RETRY = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(OSError),
    wait=tenacity.wait_random_exponential(max=10),
    stop=tenacity.stop_after_attempt(5),
)


def handle(message: Message) -> None:
    """Stands for a job of several steps; it ends early if the partition goes to another member and will not wait."""
    for _ in range(5):
        if processing_cancelled():
            return  # not done: the next owner begins with this record again
        time.sleep(0.01)
    line = f"handled {message.partition()} {message.offset()} {message.key()!r}\n"
    print(line, end="", flush=True)  # at once: two threads would mix line and line end


def main(bootstrap: str, topic: str, group: str = "threads") -> None:
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(conf) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.hand_over())
        consumer.subscribe([topic])
        consumer.process(handle, concurrency=50, retry=RETRY, timeout_s=30, drain_s=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
