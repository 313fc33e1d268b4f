"""The package is four houses (docs/architecture.md). Two of them run here with the folders of the others deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from kip848_client import EmbeddedBroker

PACKAGE: Final = Path(__file__).resolve().parents[2] / "kip848_client"

CLIENTS: Final = """
import asyncio, sys, threading
from kip848_client import Admin, AsyncConsumer, Consumer, Unit, Worker

conf = {"bootstrap.servers": sys.argv[1], "auto.offset.reset": "earliest"}
with Consumer(conf | {"group.id": "sync"}) as consumer:
    consumer.subscribe(["orders"])
    message = next(iter(consumer))
    consumer.commit(message, asynchronous=False)
    print("Consumer", message.value().decode())

async def read():
    async with AsyncConsumer(conf | {"group.id": "async"}) as consumer:
        await consumer.subscribe(["orders"])
        async for message in consumer:
            return message.value().decode()

print("AsyncConsumer", asyncio.run(read()))
with Admin({"bootstrap.servers": sys.argv[1]}) as admin:
    print("Admin", sorted(group.group_id for group in admin.list_groups().found))
runs = threading.Event()
worker = Worker({"bootstrap.servers": sys.argv[1], "group.id": "jobs"}, units=[Unit("hourly")])

@worker.runner
def run(unit, stop):
    runs.set()
    stop.wait()

with worker:
    print("Worker", runs.wait(30))
"""

FOREIGN_CLIENT: Final = """
import json, subprocess, sys
from confluent_kafka import Consumer, Producer

with subprocess.Popen(
    [sys.executable, "-m", "kip848_client", "broker", "--listen", "127.0.0.1:0", "--topic", "orders:1", "--json"],
    stdout=subprocess.PIPE,
) as broker:
    servers = json.loads(broker.stdout.readline())["bootstrap_servers"]
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", b"first")
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    print(consumer.poll(30).value().decode())
    consumer.close()
    broker.terminate()
"""


def run_without(houses: tuple[str, ...], program: str, *arguments: str, folder: Path) -> str:
    """What *program* prints where the folders *houses* of the package are deleted."""
    copy = shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for house in houses:
        shutil.rmtree(copy / house)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_clients_work_without_the_other_houses(tmp_path: Path) -> None:
    """An application that wants a consumer would have to keep a broker, a simulator and a Spark pipeline."""
    with EmbeddedBroker({"orders": 1}) as broker:
        broker.produce("orders", "first")
        told = run_without(("testing", "tools", "spark"), CLIENTS, broker.bootstrap_servers, folder=tmp_path)
    assert told.splitlines() == ["Consumer first", "AsyncConsumer first", "Admin ['async', 'sync']", "Worker True"]


def test_the_broker_serves_foreign_clients_without_the_tools_and_spark(tmp_path: Path) -> None:
    """A project in another language takes the broker for its tests, and none of the tools."""
    assert run_without(("tools", "spark"), FOREIGN_CLIENT, folder=tmp_path) == "first\n"
