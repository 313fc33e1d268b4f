"""An embedded broker in a process of its own, so that a benchmark does not share its interpreter.

Run as a program it starts the broker that the JSON object in the first argument describes, prints one JSON line with
its address, and serves until its standard input ends. For each line ``cpu`` on standard input it prints the CPU seconds
that the process has used.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

HEARTBEAT_INTERVAL = "group.consumer.heartbeat.interval.ms"
HEARTBEAT_INTERVAL_MIN = "group.consumer.min.heartbeat.interval.ms"


class BrokerProcess:
    """A broker that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("the broker did not start; see its messages above")
        self.bootstrap_servers: str = json.loads(line)["bootstrap_servers"]

    @property
    def port(self) -> int:
        """On the loopback address."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        self._stdin.write("cpu\n")
        self._stdin.flush()
        return float(self._stdout.readline())


@contextmanager
def broker_process(
    topics: Mapping[str, int], *, heartbeat_interval_ms: int | None = None, config: Mapping[str, str] | None = None
) -> Iterator[BrokerProcess]:
    """Run an embedded broker with these topics; the default interval is that of its profile."""
    properties = dict(config or {})
    if heartbeat_interval_ms is not None:
        properties[HEARTBEAT_INTERVAL] = str(heartbeat_interval_ms)
        properties[HEARTBEAT_INTERVAL_MIN] = str(min(heartbeat_interval_ms, 10))
    task = json.dumps({"topics": dict(topics), "config": properties})
    process = subprocess.Popen(
        [sys.executable, __file__, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield BrokerProcess(process)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def serve(topics: dict[str, int], config: dict[str, str]) -> None:
    """Be the broker."""
    from kip848_client.broker import EmbeddedBroker

    with EmbeddedBroker(topics, config=config) as broker:
        print(json.dumps({"bootstrap_servers": broker.bootstrap_servers}), flush=True)
        for _line in sys.stdin:
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
