"""Workers and tasks with state against Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kip848_client import LeaderElection
from kip848_client.errors import UnsupportedByBrokerError
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.local_state import check_local_state
from tests.support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_a_broker_without_workers_is_told_from_one_that_is_gone(kafka_broker: KafkaBroker | ExternalKafka) -> None:
    """A user who starts a worker on Apache Kafka reads what to do, and does not wait for ever."""
    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "jobs"}
    with LeaderElection(conf, name="scheduler") as election, pytest.raises(UnsupportedByBrokerError) as raised:
        election.wait_for_leadership(TIMEOUT_S)
    assert "kip848 broker --connect-groups" in str(raised.value)


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
