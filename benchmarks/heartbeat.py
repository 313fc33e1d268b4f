"""What a steady heartbeat costs the client: CPU and wake-ups, beside a bare round trip, librdkafka and aiokafka.

::

    python benchmarks/heartbeat.py                    # a minute
    python benchmarks/heartbeat.py --quick
    python benchmarks/heartbeat.py --interval-ms 20
    python benchmarks/heartbeat.py --aiokafka-python /path/to/python    # an interpreter that has aiokafka

Each side runs in a process of its own for some seconds, turn by turn, its application asleep, against one embedded
broker in another process that asks for a heartbeat every few milliseconds:

* ``bare``: one anyio task that sleeps, sends the bytes of a steady heartbeat and waits for the answer; nothing is
  encoded, decoded or decided. Also once without the sleep: a busy loop finds its code in the CPU's caches and costs a
  third, which no heartbeat every few seconds will ever see; so the ratio is taken to the one that sleeps.
* ``ours``: CPU of the background thread (and of the whole process, with librdkafka's threads for the records).
* ``ours, counted``: the same once more, with a count of the calls of Python functions of this package; counting them
  takes time, so this side has no CPU time.
* ``librdkafka``: a `confluent_kafka.Consumer` with ``group.protocol=consumer``: CPU of the process.
* ``aiokafka``: classic heartbeats, against librdkafka's mock cluster; left out if it is not installed.

A wake-up is a voluntary context switch of the thread, as the kernel counts them: it had nothing to do and slept.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from broker_process import broker_process
from report_file import in_a_process, keep, machine, median, options, table, versions

INTERVAL_MS_DEFAULT = 5
SETTLE_S = 1.5
RATIO_GOAL = 2.5
WAKE_UPS_GOAL = 2.0
CALLS_GOAL = 150


def switches(native_id: int) -> tuple[int, int]:
    """(voluntary, involuntary) context switches of one thread of this process, as Linux counts them."""
    lines = Path(f"/proc/self/task/{native_id}/status").read_text(encoding="ascii").splitlines()
    counts = dict(line.split(":", 1) for line in lines)
    return int(counts["voluntary_ctxt_switches"]), int(counts["nonvoluntary_ctxt_switches"])


def bare(port: int, interval_ms: int, seconds: float) -> dict[str, float]:
    """The bytes of a steady heartbeat there and back; an interval of 0 does not sleep."""
    import anyio

    from kip848_client.wire.codec import encode_request, frame
    from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    member_id = "0d9f3b0a-0c34-4f4b-9d43-5a8f9a4f1a10"
    join = ConsumerGroupHeartbeatRequest(
        group_id="bare",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    steady = ConsumerGroupHeartbeatRequest(group_id="bare", member_id=member_id, member_epoch=1)

    async def main() -> dict[str, float]:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(frame(encode_request(join, api_version=1, correlation_id=1, client_id="bench")))
            await stream.receive()
            request = frame(encode_request(steady, api_version=1, correlation_id=1, client_id="bench"))
            await anyio.sleep(SETTLE_S / 5)
            count, cpu_s, until_s = 0, time.thread_time(), time.monotonic() + seconds
            while time.monotonic() < until_s:
                if interval_ms:
                    await anyio.sleep(interval_ms / 1000)
                await stream.send(request)
                await stream.receive()
                count += 1
            return {"heartbeats": count, "cpu_s": time.thread_time() - cpu_s, "bytes": len(request)}

    return anyio.run(main)


def ours(bootstrap_servers: str, seconds: float) -> dict[str, float]:
    """A joined `Consumer` whose application sleeps."""
    from kip848_client import Consumer

    with Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "ours", "enable.auto.commit": False}
    ) as consumer:
        consumer.subscribe(["t"])
        _poll_until_assigned(consumer)
        manager = consumer._core.manager
        thread = manager._thread
        assert thread is not None
        assert thread.ident is not None
        assert thread.native_id is not None
        clock = time.pthread_getcpuclockid(thread.ident)

        def state() -> tuple[float, ...]:
            sent = manager._member.snapshot().heartbeats  # type: ignore[attr-defined]
            return (sent, time.clock_gettime(clock), time.process_time(), *switches(thread.native_id or 0))

        before = state()
        time.sleep(seconds)
        after = state()
    heartbeats, thread_s, process_s, voluntary, involuntary = (b - a for a, b in zip(before, after, strict=True))
    return {
        "heartbeats": heartbeats,
        "cpu_s": thread_s,
        "process_s": process_s,
        "wake_ups": voluntary,
        "preempted": involuntary,
    }


def counted(bootstrap_servers: str, seconds: float) -> dict[str, float]:
    """As `ours`: calls of functions of this package on the background thread, and the files that have them."""
    import kip848_client

    package = str(Path(kip848_client.__file__).parent)
    calls: Counter[str] = Counter()
    counting = False

    def note(frame: FrameType, event: str, _: object) -> None:
        if counting and event == "call" and threading.current_thread().name.startswith("kip848-heartbeat-"):
            name = frame.f_code.co_filename
            if name.startswith((package, "<")):  # "<": made at runtime, the encoders and decoders
                calls[name] += 1

    threading.setprofile(note)
    with kip848_client.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "counted", "enable.auto.commit": False}
    ) as consumer:
        consumer.subscribe(["t"])
        _poll_until_assigned(consumer)
        statistics = consumer._core.manager.statistics
        counting, before = True, statistics.heartbeats
        time.sleep(seconds)
        counting = False
        heartbeats = statistics.heartbeats - before
    return {"heartbeats": heartbeats, "calls": sum(calls.values()), "files": len(calls)}


def librdkafka(bootstrap_servers: str, seconds: float) -> dict[str, float]:
    """A joined `confluent_kafka.Consumer` whose application sleeps.

    Its statistics list requests by name but for these heartbeats: they are what is left of all that was sent.
    """
    from confluent_kafka import Consumer

    sent = 0

    def on_statistics(text: str) -> None:
        nonlocal sent
        brokers = json.loads(text)["brokers"].values()
        sent = sum(broker["tx"] - sum(broker["req"].values()) for broker in brokers)

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "theirs",
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,  # as ours
            "statistics.interval.ms": 500,  # one of a hundred heartbeats' time
            "stats_cb": on_statistics,
        }
    )
    consumer.subscribe(["t"])
    _poll_until_assigned(consumer)
    consumer.poll(0.6)
    count, cpu_s = sent, time.process_time()
    time.sleep(seconds)
    cpu_s = time.process_time() - cpu_s
    consumer.poll(0.6)  # the counts of the time asleep have waited here
    seen = sent - count
    consumer.close()
    return {"heartbeats": seen, "cpu_s": cpu_s}


def aiokafka(interval_ms: int, seconds: float) -> dict[str, float] | None:
    """A joined classic consumer of aiokafka on librdkafka's mock cluster; None if aiokafka is not installed."""
    try:
        from aiokafka import AIOKafkaConsumer  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    import asyncio
    import os

    bootstrap_servers = os.environ["BENCH_MOCK"]

    async def main() -> dict[str, float]:
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=bootstrap_servers,
            group_id="classic",
            heartbeat_interval_ms=interval_ms,
            enable_auto_commit=False,
        )
        await consumer.start()
        coordinator = consumer._coordinator
        beat, count = coordinator._do_heartbeat, 0

        async def counted() -> Any:
            nonlocal count
            count += 1
            return await beat()

        coordinator._do_heartbeat = counted
        await asyncio.sleep(SETTLE_S)
        count, cpu_s = 0, time.process_time()
        await asyncio.sleep(seconds)
        result = {"heartbeats": count, "cpu_s": time.process_time() - cpu_s}
        await consumer.stop()
        return result

    return asyncio.run(main())


def _poll_until_assigned(consumer: Any) -> None:
    deadline_s = time.monotonic() + 15
    while not consumer.assignment():
        if time.monotonic() > deadline_s:
            raise RuntimeError("no partitions were assigned in 15 s")
        consumer.poll(0.05)
    settled_s = time.monotonic() + SETTLE_S
    while time.monotonic() < settled_s:
        consumer.poll(0.1)


def do_task(task: dict[str, Any]) -> object:
    """One measurement, in this process."""
    match task["side"]:
        case "bare":
            return bare(task["port"], task["interval_ms"], task["seconds"])
        case "ours":
            return ours(task["bootstrap_servers"], task["seconds"])
        case "counted":
            return counted(task["bootstrap_servers"], task["seconds"])
        case "librdkafka":
            return librdkafka(task["bootstrap_servers"], task["seconds"])
        case "aiokafka":
            return aiokafka(task["interval_ms"], task["seconds"])
    raise AssertionError(task)


def measure(
    *, interval_ms: int, seconds: float, rounds: int, aiokafka_python: str
) -> dict[str, list[dict[str, float]]]:
    """All sides, turn by turn."""
    runs: dict[str, list[dict[str, float]]] = {}
    without: set[str] = set()
    with broker_process({"t": 4}, heartbeat_interval_ms=interval_ms) as broker:
        common = {"bootstrap_servers": broker.bootstrap_servers, "port": broker.port, "seconds": seconds}
        sides: list[tuple[str, dict[str, Any]]] = [
            ("bare", {"side": "bare", "interval_ms": interval_ms}),
            ("ours", {"side": "ours"}),
            ("ours, counted", {"side": "counted"}),
            ("librdkafka", {"side": "librdkafka"}),
            ("bare, busy", {"side": "bare", "interval_ms": 0}),
            ("aiokafka", {"side": "aiokafka", "interval_ms": interval_ms}),
        ]
        for number in range(rounds):
            for name, task in sides if number % 2 == 0 else sides[::-1]:
                if name in without:
                    continue
                if name == "aiokafka":
                    result = _aiokafka_run({**common, **task}, aiokafka_python)
                else:
                    result = in_a_process(__file__, {**common, **task})
                if result is None:
                    without.add(name)
                    print(f"  {name} is not installed: left out (--aiokafka-python names an interpreter with it)")
                    continue
                runs.setdefault(name, []).append(result)
            print(f"  round {number + 1}/{rounds} done", flush=True)
    return runs


def _aiokafka_run(task: dict[str, Any], python: str) -> dict[str, float] | None:
    import os

    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
    nodes = host.list_topics("t", timeout=10).brokers.values()
    os.environ["BENCH_MOCK"] = ",".join(f"{node.host}:{node.port}" for node in nodes)
    result: dict[str, float] | None = in_a_process(__file__, task, python=python)
    return result


def main() -> int:
    """Measure and print; the status says whether it could be done, not how it came out."""
    parser = options(__doc__)
    parser.add_argument("--interval-ms", type=int, default=INTERVAL_MS_DEFAULT)
    parser.add_argument("--aiokafka-python", default=sys.executable, metavar="PYTHON")
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(do_task(json.loads(arguments.task))))
        return 0
    runs = measure(
        interval_ms=arguments.interval_ms,
        seconds=1.5 if arguments.quick else 4.0,
        rounds=2 if arguments.quick else 5,
        aiokafka_python=arguments.aiokafka_python,
    )
    cpu_us = {
        side: [run["cpu_s"] * 1e6 / run["heartbeats"] for run in results if run["heartbeats"]]
        for side, results in runs.items()
        if side != "ours, counted"
    }
    calls = [run["calls"] / run["heartbeats"] for run in runs["ours, counted"]]
    process_us = [run["process_s"] * 1e6 / run["heartbeats"] for run in runs["ours"]]
    ratios = [a / b for a, b in zip(cpu_us["ours"], cpu_us["bare"], strict=True)]
    wake_ups = [run["wake_ups"] / run["heartbeats"] for run in runs["ours"]]
    result = {
        "benchmark": "heartbeat",
        "machine": machine(),
        "versions": versions("confluent-kafka", "anyio", "aiokafka"),
        "interval_ms": arguments.interval_ms,
        "cpu_us_per_heartbeat": {side: median(values, 1) for side, values in cpu_us.items()}
        | {"ours, whole process": median(process_us, 1)},
        "ratio_thread_to_bare": median(ratios, 2),
        "ratios_thread_to_bare": [round(ratio, 2) for ratio in ratios],
        "ratio_process_to_librdkafka": median(
            [a / b for a, b in zip(process_us, cpu_us["librdkafka"], strict=True)], 2
        ),
        "wake_ups_per_heartbeat": median(wake_ups, 2),
        "calls_per_heartbeat": median(calls, 0),
        "files_with_calls": max(run["files"] for run in runs["ours, counted"]),
        "preempted_per_heartbeat": median([run["preempted"] / run["heartbeats"] for run in runs["ours"]], 2),
        "goals": {
            "ratio_thread_to_bare": RATIO_GOAL,
            "wake_ups_per_heartbeat": WAKE_UPS_GOAL,
            "calls_per_heartbeat": CALLS_GOAL,
        },
    }
    rows: list[list[object]] = [["side", "CPU us a heartbeat"]]
    rows += [[side, value] for side, value in result["cpu_us_per_heartbeat"].items()]
    table(rows)
    print(f"thread / bare = {result['ratio_thread_to_bare']} (goal {RATIO_GOAL}; {result['ratios_thread_to_bare']})")
    print(f"process / librdkafka = {result['ratio_process_to_librdkafka']}")
    print(
        f"calls a heartbeat = {result['calls_per_heartbeat']} in {result['files_with_calls']} files (goal {CALLS_GOAL})"
    )
    print(f"wake-ups a heartbeat = {result['wake_ups_per_heartbeat']} (goal {WAKE_UPS_GOAL})")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
