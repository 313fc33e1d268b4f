"""Every method of Java's administrator, on both brokers: what works on Apache Kafka works here."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from tests.interop.conftest import unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

NOT_SERVED: Final = "UnsupportedVersionException"
DIFFERENT: Final = {
    **dict.fromkeys(("unregisterBroker", "unregisterController", "addRaftVoter", "removeRaftVoter"), NOT_SERVED),
    "describeStreamsGroups": NOT_SERVED,
    # A group without members disappears with its last offset (docs/differences.md).
    "deleteConsumerGroups": "GroupIdNotFoundException",
    "deleteStreamsGroups": "GroupIdNotFoundException",
}
"""Method -> its outcome on the embedded broker, where that is not the one on Kafka."""


def outcomes(java: list[str], bootstrap_servers: str) -> Mapping[str, str]:
    """Method -> "ok", or the class of its error."""
    command = [*java[:-1], "AdminCalls", bootstrap_servers, unique_name("admin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines() if not line.startswith("["))
    return {line[0]: line[1] for line in lines}


def test_every_call_of_the_administrator_ends_as_on_kafka(
    java: list[str], kafka_broker: KafkaBroker | ExternalKafka
) -> None:
    """A test program stops at the first call that its broker does not know."""
    expected = outcomes(java, kafka_broker.bootstrap_servers)
    with EmbeddedBroker() as broker:
        found = outcomes(java, broker.bootstrap_servers)
    assert found == {**expected, **DIFFERENT}
    assert len(expected) > 60
    assert "not called" not in expected.values()
