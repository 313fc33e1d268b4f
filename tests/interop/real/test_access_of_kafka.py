"""Requests of a sender without permissions, compared with Apache Kafka's StandardAuthorizer."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing import BrokerSasl
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kip848_client.wire.schema import Request
from tests.interop.conftest import StartKafkaBroker
from tests.support.several_rows import about_two, plain
from tests.support.waiting import wait_until
from tests.support.well_formed_requests import ADVERTISED, PRIVATE, ROWS, Scene, error_codes

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CLOSED = {"authorizer.class.name": PROPERTIES["authorizer.class.name"]}
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


TOPIC: Final = "foo"
GROUP: Final = "s.g"
USERS: Final = {"nobody": (), "groups": (3,), "topics": (2,), "ids": (5,)}
"""User, who is its own password, too -> types of the resources with which it may do everything."""
REFUSALS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
}
OWN: Final = PRIVATE | {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
ALLOWED: Final = CreateAclsRequest(
    creations=tuple(
        AclCreation(
            resource_type=resource_type,
            resource_name="*",
            principal=f"User:{user}",
            host="*",
            operation=2,
            permission_type=3,
        )
        for user, types in USERS.items()
        for resource_type in types
    )
)
"""Operation 2 is all of them."""
MADE: Final = {"topics": [{"name": TOPIC, "num_partitions": 2, "replication_factor": 1}], "timeout_ms": 20_000}


GROUP_IS_MISSING: Final = {
    "groups OFFSET_DELETE v0",
    "groups DELETE_SHARE_GROUP_OFFSETS v0",
    "groups SHARE_FETCH v1",
    "groups SHARE_FETCH v2",
}
"""Kafka says first that there is no such group (this user has deleted it), where we refuse the topics."""


def logged_in(bootstrap_servers: str, user: str) -> RawConnection:
    connection = RawConnection(bootstrap_servers)
    assert connection.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    assert connection.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{user}".encode()).error_code == 0
    return connection


def refusals(admin: RawConnection, log_in: Callable[[str], RawConnection]) -> dict[str, Any]:
    """User, API and version -> the answer, if it refuses something; the topic's id as "id"."""
    with admin:
        scene = Scene(admin, prefix="s.")
        topic_id = admin.call(ApiKey.CREATE_TOPICS, 7, **MADE).topics[0].topic_id
        assert error_codes(admin.ask(ALLOWED, version=3)) == set()
        scene.settle(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": [GROUP]})
        position = {"committed_offset": 1, "committed_metadata": "m"}
        scene.settle(
            ApiKey.OFFSET_COMMIT, 9, {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [position]}]}
        )
    found: dict[str, Any] = {}
    for user in USERS:
        for api_key, version in ADVERTISED:
            if api_key in OWN:
                continue
            with log_in(user) as connection:
                scene = Scene(
                    connection,
                    prefix="s.",
                    topic=TOPIC,
                    topic_id=topic_id,
                    offsets_group=GROUP,
                    members_group=GROUP,
                    exists=False,
                )
                request = about_two(ROWS[api_key](scene, version))
                answer = steady(connection, request, version)
                if REFUSALS & error_codes(answer):
                    found[f"{user} {ApiKey(api_key).name} v{version}"] = named(plain(answer, version=version), topic_id)
    return found


def steady(connection: RawConnection, request: Request[Any], version: int) -> object:
    """The answer, asked again while Kafka still makes what it speaks of."""
    answers: list[object] = []

    def is_steady() -> bool:
        answers.append(connection.ask(request, version=version))
        return error_codes(answers[-1]).isdisjoint(STARTING)

    wait_until(is_steady, 30.0, f"a steady answer to {type(request).__name__}")
    return answers[-1]


def named(value: Any, topic_id: uuid.UUID) -> Any:
    match value:
        case list():
            return sorted((named(each, topic_id) for each in value), key=repr)
        case dict():
            return {name: named(each, topic_id) for name, each in value.items()}
        case _:
            return "id" if value == topic_id else value


def test_kafka_refuses_with_the_same_rows(start_kafka_broker: StartKafkaBroker) -> None:
    """Java's Admin takes an answer without the rows that it asked for as a broken broker, not as a refusal."""
    users = BrokerSasl({user: user for user in (*USERS, "admin")}, mechanisms=("PLAIN",))
    with EmbeddedBroker(sasl=users, config=CLOSED | {"super.users": "User:admin"}) as embedded:
        ours = refusals(
            logged_in(embedded.bootstrap_servers, "admin"), lambda user: logged_in(embedded.bootstrap_servers, user)
        )
    logins = " ".join(f'user_{user}="{user}"' for user in USERS)
    module = f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
    kafka = start_kafka_broker(
        properties=CLOSED
        | {
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": module,
        },
        listeners={"SASL": "SASL_PLAINTEXT"},
    )
    theirs = refusals(RawConnection(kafka.bootstrap_servers), lambda user: logged_in(kafka.endpoint("SASL"), user))
    assert {asked: (ours[asked], theirs[asked]) for asked in ours.keys() & theirs if ours[asked] != theirs[asked]} == {}
    assert ours.keys() ^ theirs.keys() == GROUP_IS_MISSING
