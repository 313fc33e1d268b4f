"""The table of well-formed requests, played against Apache Kafka: it serves what we advertise, and is asked rightly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.api_versions import ApiVersionsRequest
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.well_formed_requests import ADVERTISED, PRIVATE, REFUSED, ROWS, Scene, error_codes

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

SHARED = [(key, version) for key, version in ADVERTISED if key not in PRIVATE]


@pytest.fixture(scope="module")
def scene(kafka_broker: KafkaBroker | ExternalKafka) -> Iterator[Scene]:
    arranged = Scene.arrange(kafka_broker.bootstrap_servers)
    yield arranged
    arranged.connection.close()


@pytest.mark.parametrize("case", SHARED, ids=lambda case: f"{ApiKey(case[0]).name}-v{case[1]}")
def test_kafka_answers_the_same_request(
    kafka_broker: KafkaBroker | ExternalKafka, scene: Scene, case: tuple[int, int]
) -> None:
    """Without this the table might hold what only the embedded broker takes for a request."""
    api_key, version = case
    request = ROWS[api_key](scene, version)
    with RawConnection(kafka_broker.bootstrap_servers) as connection:
        found = error_codes(connection.ask(request, version=version))
    assert found == REFUSED.get(api_key, set())


def test_every_version_that_we_advertise_is_advertised_by_kafka(kafka_broker: KafkaBroker | ExternalKafka) -> None:
    """A version that Kafka does not have would be our own invention."""
    with RawConnection(kafka_broker.bootstrap_servers) as connection:
        asked = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
        answer = connection.ask(asked, version=4)
    kafka = {(api.api_key, v) for api in answer.api_keys for v in range(api.min_version, api.max_version + 1)}
    assert set(SHARED) - kafka == set()
