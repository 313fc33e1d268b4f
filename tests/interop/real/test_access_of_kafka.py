"""Requests of a sender without permissions, compared with Apache Kafka's StandardAuthorizer."""

from __future__ import annotations

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tests.interop.conftest import StartKafkaBroker
from tests.support.waiting import wait_until
from tests.support.well_formed_requests import ADVERTISED, PRIVATE, ROWS, Scene, error_codes

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
DENIED = CreateAclsRequest(
    creations=tuple(
        AclCreation(
            resource_type=resource_type,
            resource_name="*",
            principal="User:*",
            host="*",
            operation=2,
            permission_type=2,
        )
        for resource_type in (2, 3, 5)
    )
)
"""No topic, group or transactional id; the cluster stays open, because Kafka talks to itself as ANONYMOUS, too."""


STARTING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def settled(scene: Scene, api_key: int, version: int) -> set[int]:
    """The error codes in the answer, asked again while Kafka still starts."""
    found: list[set[int]] = []

    def is_settled() -> bool:
        answer = scene.connection.ask(ROWS[api_key](scene, version), version=version)
        found.append(set(error_codes(answer)))
        return found[-1].isdisjoint(STARTING)

    wait_until(is_settled, 30.0, "Kafka to have started")
    return found[-1]


def codes(bootstrap_servers: str) -> dict[str, set[int]]:
    """API and version -> the error codes in the answer."""
    scene = Scene.of_nothing(bootstrap_servers)
    assert error_codes(scene.connection.ask(DENIED, version=3)) == set()

    def is_in_force() -> bool:
        return error_codes(scene.connection.ask(ROWS[ApiKey.METADATA](scene, 9), version=9)) == {29}

    wait_until(is_in_force, 30.0, "the ACLs to be in force")
    found = {
        f"{ApiKey(api_key).name} v{version}": settled(scene, api_key, version)
        for api_key, version in ADVERTISED
        if api_key not in PRIVATE
    }
    scene.connection.close()
    return found


def test_kafka_refuses_every_version_of_every_api_with_the_same_codes(start_kafka_broker: StartKafkaBroker) -> None:
    """A test of permissions on the embedded broker is worth as much as this comparison."""
    with EmbeddedBroker(config=PROPERTIES) as embedded:
        ours = codes(embedded.bootstrap_servers)
    assert ours == codes(start_kafka_broker(properties=PROPERTIES).bootstrap_servers)
