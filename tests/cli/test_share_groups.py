"""``kip848 groups`` for share groups."""

from __future__ import annotations

import json
from collections.abc import Iterator

import confluent_kafka
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def jobs(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    """Ten records."""
    kip848_broker.topics.create("jobs", partitions=1)
    for number in range(10):
        kip848_broker.produce("jobs", f"job {number}")
    kip848_broker.groups.set_config("workers", {"share.auto.offset.reset": "earliest"})
    return kip848_broker


@pytest.fixture
def worker(jobs: EmbeddedBroker) -> Iterator[confluent_kafka.ShareConsumer]:
    conf = {"bootstrap.servers": jobs.bootstrap_servers, "group.id": "workers", "client.id": "worker", "log_level": 0}
    worker = confluent_kafka.ShareConsumer(conf)
    worker.subscribe(["jobs"])
    while not len(worker.poll(10.0)):
        pass
    worker.commit_sync()
    yield worker
    worker.close()


def groups(broker: EmbeddedBroker, *arguments: str) -> int:
    return main(["groups", *arguments, "--bootstrap", broker.bootstrap_servers])


def test_a_share_group_is_listed_and_described(
    jobs: EmbeddedBroker, worker: confluent_kafka.ShareConsumer, capsys: Captured
) -> None:
    """An operator sees who works on a queue, and how much is left, as of any other group."""
    assert groups(jobs, "list") == 0
    assert "workers  share  Stable" in capsys.readouterr().out
    assert groups(jobs, "describe", "workers") == 0
    shown = capsys.readouterr().out
    assert "share group workers: Stable, epoch 3, assignor simple" in shown
    assert "worker" in shown
    assert "START" in shown
    assert groups(jobs, "lag", "workers", "--json") == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["lag"] == 0
    jobs.produce("jobs", "job 10")
    assert groups(jobs, "list", "--lag", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["groups"]
    assert (listed["type"], listed["members"], listed["lag"]) == ("share", 1, 1)


def test_the_start_offsets_of_a_share_group_are_moved(
    jobs: EmbeddedBroker, worker: confluent_kafka.ShareConsumer, capsys: Captured
) -> None:
    """A queue is read again, or its backlog is given up; not under the hands of its workers."""
    assert groups(jobs, "reset-offsets", "workers", "--to-latest") == 1
    assert "stop them first" in capsys.readouterr().err
    worker.close()
    jobs.wait_for_group("workers", state="Empty")
    assert groups(jobs, "reset-offsets", "workers", "--to-offset", "4") == 0
    assert "nothing was moved" in capsys.readouterr().out
    assert groups(jobs, "reset-offsets", "workers", "--to-offset", "4", "--execute") == 0
    shown = jobs.share_group("workers")
    assert shown is not None
    assert shown.partition("jobs", 0).start_offset == 4
    assert groups(jobs, "delete", "workers") == 0
    assert jobs.share_group("workers") is None
