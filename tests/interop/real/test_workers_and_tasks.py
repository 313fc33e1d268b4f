"""Workers and tasks with state against Apache Kafka."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kip848_client import Admin, LeaderElection, OwnedUnit, Worker
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.local_state import check_local_state
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_workers_share_units_on_apache_kafka(kafka_broker: KafkaBroker | ExternalKafka) -> None:
    """No unit runs twice while workers come and go, and no token falls, not even when the group is deleted."""
    bootstrap, units = kafka_broker.bootstrap_servers, [f"unit-{number}" for number in range(6)]
    running: dict[str, str] = {}
    tokens: dict[str, list[int]] = {name: [] for name in units}
    overlaps: list[str] = []

    def a_worker(worker_id: str) -> Worker:
        conf = {"bootstrap.servers": bootstrap, "group.id": "shared-units", "worker.id": worker_id}
        worker = Worker({**conf, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100}, units=units)

        @worker.runner
        def run(owned: OwnedUnit, stop: threading.Event) -> None:
            other = running.setdefault(owned.name, worker_id)
            if other != worker_id:
                overlaps.append(f"{owned.unit}: {other} and {worker_id}")
            tokens[owned.name].append(owned.token)
            stop.wait()
            running.pop(owned.name, None)

        return worker.start()

    def runs(*workers: Worker) -> list[int]:
        return sorted(len(worker.assignment()) for worker in workers)

    first = a_worker("w1")
    wait_until(lambda: runs(first) == [6])
    second, third = a_worker("w2"), a_worker("w3")
    wait_until(lambda: runs(first, second, third) == [2, 2, 2])
    with Admin({"bootstrap.servers": bootstrap}) as ours:
        shown = {unit.unit: (unit.owner, unit.token) for unit in ours.describe_workers("shared-units").units}
        assert shown == {
            owned.name: (worker.worker_id, owned.token)
            for worker in (first, second, third)
            for owned in worker.assignment()
        }
        ours.drain_workers("shared-units", ["w1"]).raise_errors()
    wait_until(lambda: runs(second, third) == [3, 3])
    first.close()
    second.hand_over()
    third.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_consumer_groups(["shared-units"]).values():
        deleted.result()
    with closing(a_worker("w4")) as fourth:
        wait_until(lambda: runs(fourth) == [6] and len(running) == 6)
    assert not overlaps
    assert all(seen == sorted(set(seen)) and len(seen) > 1 for seen in tokens.values()), tokens


def test_a_leader_is_elected_on_apache_kafka(kafka_broker: KafkaBroker | ExternalKafka) -> None:
    """Exactly one replica leads; when it leaves, the other one leads with a greater token."""
    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "jobs", "heartbeat.interval.ms": 100}
    with LeaderElection(conf, name="scheduler") as first:
        assert first.wait_for_leadership(TIMEOUT_S)
        with LeaderElection(conf, name="scheduler") as second:
            assert not second.wait_for_leadership(0.5)
            token = first.token
            first.close()
            assert second.wait_for_leadership(TIMEOUT_S)
            assert token is not None
            assert second.token is not None
            assert second.token > token


def test_local_state_moves_on_apache_kafka(kafka_broker: KafkaBroker | ExternalKafka, tmp_path: Path) -> None:
    """Standbys, warm-ups and queries need nothing that a released broker lacks."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    topics = [
        NewTopic("orders", 2, 1),
        NewTopic("orders-totals", 2, 1, config={"cleanup.policy": "compact"}),
    ]
    for created in admin.create_topics(topics).values():
        created.result()
    try:
        check_local_state(kafka_broker.bootstrap_servers, tmp_path, protocol="classic")
    finally:
        for deleted in admin.delete_topics([topic.topic for topic in topics]).values():
            deleted.result()
