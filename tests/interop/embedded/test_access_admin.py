"""confluent-kafka's AdminClient manages ACLs and SCRAM users of the embedded broker; consumers see the effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.errors import (
    AuthenticationError,
    ErrorCode,
    GroupAuthorizationError,
    Kip848Error,
    TopicAuthorizationError,
)
from kip848_client.testing import BrokerSasl
from tests.support.waiting import TIMEOUT_S

kit: Any = kafka_admin  # most of its names are exported in a way that mypy does not see


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    sasl = BrokerSasl({"admin": "secret", "alice": "secret"})
    config = {"authorizer.class.name": "standard", "super.users": "User:admin"}
    with EmbeddedBroker({"orders": 1}, sasl=sasl, config=config) as running:
        yield running


def login(broker: EmbeddedBroker, user: str, password: str = "secret", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def allowing(operation: Any, kind: Any, name: str) -> Any:
    return kit.AclBinding(
        kind, name, kit.ResourcePatternType.LITERAL, "User:alice", "*", operation, kit.AclPermissionType.ALLOW
    )


def failure_of(conf: dict[str, Any]) -> Kip848Error:
    """What `poll` raises first to a consumer of "orders"."""
    with Consumer(conf) as consumer:
        consumer.subscribe(["orders"])
        while True:
            try:
                consumer.poll(0.1)
            except Kip848Error as error:
                return error


ANYTHING = kit.AclBindingFilter(
    kit.ResourceType.ANY,
    None,
    kit.ResourcePatternType.ANY,
    None,
    None,
    kit.AclOperation.ANY,
    kit.AclPermissionType.ANY,
)


def test_librdkafka_creates_describes_and_deletes_acls(broker: EmbeddedBroker) -> None:
    """Deployment scripts set permissions through the AdminClient of their language."""
    admin = AdminClient(login(broker, "admin"))
    wanted = [
        allowing(kit.AclOperation.READ, kit.ResourceType.TOPIC, "orders"),
        allowing(kit.AclOperation.READ, kit.ResourceType.GROUP, "billing"),
    ]
    for future in admin.create_acls(wanted).values():
        assert future.result(TIMEOUT_S) is None
    assert set(admin.describe_acls(ANYTHING).result(TIMEOUT_S)) == set(wanted)
    (deleted,) = admin.delete_acls([ANYTHING]).values()
    assert set(deleted.result(TIMEOUT_S)) == set(wanted)
    assert tuple(broker.acls) == ()


def test_librdkafka_may_not_manage_acls_as_another_user(broker: EmbeddedBroker) -> None:
    """Otherwise every client could grant itself what is missing."""
    admin = AdminClient(login(broker, "alice"))
    (created,) = admin.create_acls([allowing(kit.AclOperation.ALL, kit.ResourceType.TOPIC, "orders")]).values()
    with pytest.raises(KafkaException) as caught:
        created.result(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_consumer_is_told_user_operation_and_resource(broker: EmbeddedBroker) -> None:
    """The error names the permission that the administrator must grant."""
    alice = login(broker, "alice", **{"group.id": "billing"})
    error = failure_of(alice)
    assert isinstance(error, GroupAuthorizationError)
    assert all(part in str(error) for part in ("'billing'", "'alice'", "READ"))
    broker.acls.allow("alice", "READ", group="billing")
    error = failure_of(alice)
    assert isinstance(error, TopicAuthorizationError)
    assert all(part in str(error) for part in ("'orders'", "'alice'", "DESCRIBE"))


def test_librdkafka_rotates_a_password(broker: EmbeddedBroker) -> None:
    """Secrets are rotated while services run, by a script and without a restart of the broker."""
    admin = AdminClient(login(broker, "admin"))
    info = kit.ScramCredentialInfo(kit.ScramMechanism.SCRAM_SHA_256, 4096)
    (changed,) = admin.alter_user_scram_credentials(
        [kit.UserScramCredentialUpsertion("alice", info, b"changed")]
    ).values()
    assert changed.result(TIMEOUT_S) is None
    with LibrdkafkaConsumer(login(broker, "alice", "changed", **{"group.id": "g"})) as consumer:
        assert consumer.list_topics(timeout=TIMEOUT_S).brokers
    error = failure_of(login(broker, "alice", **{"group.id": "g"}))
    assert isinstance(error, AuthenticationError)
    described = admin.describe_user_scram_credentials(["alice"])
    assert isinstance(described, dict)
    credentials = described["alice"].result(TIMEOUT_S).scram_credential_infos
    assert {each.mechanism for each in credentials} == {
        kit.ScramMechanism.SCRAM_SHA_256,
        kit.ScramMechanism.SCRAM_SHA_512,
    }
    gone = kit.UserScramCredentialDeletion("bob", kit.ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(KafkaException) as caught:
        admin.alter_user_scram_credentials([gone])["bob"].result(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.RESOURCE_NOT_FOUND
