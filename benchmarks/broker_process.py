"""A broker in a process of its own, so that a benchmark does not share its interpreter.

Run as a program it starts what the JSON object in the first argument describes, prints one JSON line with its address,
and serves until its standard input ends. An embedded broker answers the questions of `BrokerProcess`, one a line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from kip848_client import EmbeddedBroker

HEARTBEAT_INTERVAL = "group.consumer.heartbeat.interval.ms"
HEARTBEAT_INTERVAL_MIN = "group.consumer.min.heartbeat.interval.ms"


class BrokerProcess(msgspec.Struct, frozen=True):
    """A broker that runs, and the number of its process."""

    bootstrap_servers: str
    pid: int
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        """On the loopback address."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    def heartbeat_times_s(self, client_id: str) -> list[float]:
        """When an embedded broker read the ConsumerGroupHeartbeats of a client, in seconds since 1970."""
        times: list[float] = self._ask({"call": "heartbeat_times", "client_id": client_id})
        return times

    def requests_since(self, at_s: float) -> dict[str, int]:
        """How many requests of each API an embedded broker read since then, as far as its log goes back."""
        counts: dict[str, int] = self._ask({"call": "requests_since", "at_s": at_s})
        return counts

    def wait_until_stable_s(self, group: str, *, members: int, timeout_s: float) -> float:
        """When, in seconds since 1970, the group had so many members and they all partitions, as they should.

        Raises:
            RuntimeError: not within *timeout_s*.
        """
        moment: float | None = self._ask({"call": "stable", "group": group, "members": members, "timeout_s": timeout_s})
        if moment is None:
            raise RuntimeError(f"group {group} was not stable with {members} members within {timeout_s} s")
        return moment

    def _ask(self, question: Mapping[str, object]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def cpu_clock(pid: int) -> int:
    """The clock of `time.clock_gettime` that counts the CPU time of a process (Linux: MAKE_PROCESS_CPUCLOCK)."""
    return (~pid << 3) | 2


@contextmanager
def broker_process(
    topics: Mapping[str, int], *, heartbeat_interval_ms: int | None = None, config: Mapping[str, str] | None = None
) -> Iterator[BrokerProcess]:
    """Run an embedded broker with these topics; the default interval is that of its profile."""
    properties = dict(config or {})
    if heartbeat_interval_ms is not None:
        properties[HEARTBEAT_INTERVAL] = str(heartbeat_interval_ms)
        properties[HEARTBEAT_INTERVAL_MIN] = str(min(heartbeat_interval_ms, 10))
    with _process({"kind": "embedded", "topics": dict(topics), "config": properties}) as broker:
        yield broker


@contextmanager
def mock_process() -> Iterator[BrokerProcess]:
    """Run librdkafka's mock cluster of one broker."""
    with _process({"kind": "mock"}) as broker:
        yield broker


@contextmanager
def echo_process(answer_bytes: int, request_bytes: int) -> Iterator[BrokerProcess]:
    """Run an `asyncio.Protocol` that answers each *request_bytes* it gets with *answer_bytes* and does nothing else."""
    with _process({"kind": "echo", "answer_bytes": answer_bytes, "request_bytes": request_bytes}) as broker:
        yield broker


@contextmanager
def _process(task: Mapping[str, object]) -> Iterator[BrokerProcess]:
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(task)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the broker did not start; see its messages above")
        yield BrokerProcess(json.loads(line)["bootstrap_servers"], process.pid, process)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def _announce(bootstrap_servers: str) -> None:
    print(json.dumps({"bootstrap_servers": bootstrap_servers}), flush=True)


def serve_embedded(topics: dict[str, int], config: dict[str, str]) -> None:
    """Be an embedded broker."""
    from kip848_client import EmbeddedBroker

    with EmbeddedBroker(topics, config=config) as broker:
        _announce(broker.bootstrap_servers)
        for line in sys.stdin:
            print(json.dumps(_answer(broker, json.loads(line))), flush=True)


def _answer(broker: EmbeddedBroker, question: dict[str, Any]) -> object:
    if question["call"] == "heartbeat_times":
        seen = broker.requests.of("ConsumerGroupHeartbeat", client_id=question["client_id"])
        return [request.ts_ms / 1000 for request in seen]
    if question["call"] == "requests_since":
        return Counter(str(request.api) for request in broker.requests.of() if request.ts_ms >= question["at_s"] * 1000)
    from kip848_client.errors import RequestTimeoutError

    partitions = sum(broker.topics.values())
    try:
        broker.groups.wait_for(
            question["group"],
            # Between the two rounds of a cooperative classic group some partitions are with no member.
            lambda group: (
                (group.state, len(group.members), len(group.assigned)) == ("Stable", question["members"], partitions)
            ),
            what="a group at rest",
            timeout_s=question["timeout_s"],
        )
    except RequestTimeoutError:
        return None
    return time.time()


def serve_mock() -> None:
    """Be librdkafka's mock cluster; it lives as long as its host client."""
    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
    nodes = host.list_topics(timeout=10).brokers.values()
    _announce(",".join(f"{node.host}:{node.port}" for node in nodes))
    sys.stdin.read()


def serve_echo(answer_bytes: int, request_bytes: int) -> None:
    """Be the least that a server in Python can be."""

    class Echo(asyncio.Protocol):
        def __init__(self) -> None:
            self.missing = request_bytes

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.write = transport.write  # type: ignore[attr-defined]

        def data_received(self, data: bytes) -> None:
            self.missing -= len(data)
            answers = 0
            while self.missing <= 0:
                self.missing += request_bytes
                answers += 1
            if answers:
                self.write(bytes(answer_bytes) * answers)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        _announce(f"{host}:{port}")
        await asyncio.to_thread(sys.stdin.read)
        server.close()

    asyncio.run(main())


def main() -> None:
    """Serve what the first argument says."""
    task = json.loads(sys.argv[1])
    kinds: dict[str, Callable[..., None]] = {"embedded": serve_embedded, "mock": serve_mock, "echo": serve_echo}
    kinds[task.pop("kind")](**task)


if __name__ == "__main__":
    main()
