"""Requests under ACLs: who may do what at the embedded broker, which code refuses, and what is hidden."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ConfigError, ErrorCode, IllegalStateError
from kip848_client.testing import BrokerSasl
from kip848_client.testing.broker.net.listener_security import distinguished_name
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from tests.support.group_requests import heartbeat, join
from tests.support.several_rows import about_two
from tests.support.well_formed_requests import ADVERTISED, ROWS, Scene, error_codes

TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OPEN: Final = {"allow.everyone.if.no.acl.found": "true"}
EVERYBODY: Final = "*"

pytestmark = pytest.mark.kip848_broker(topics={"foo": 1, "bar": 1}, acls=True, config=OPEN)


@pytest.fixture
def closed() -> Iterator[EmbeddedBroker]:
    """Everything without ACLs is closed."""
    with EmbeddedBroker({"foo": 1, "bar": 1}, acls=True) as running:
        yield running


def fetch(broker: EmbeddedBroker, *topics: str) -> dict[str, int]:
    asked = [{"topic": name, "partitions": [{"partition_max_bytes": 1000}]} for name in topics]
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.call(ApiKey.FETCH, 12, topics=asked, max_bytes=1000)
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


def latest(broker: EmbeddedBroker, name: str) -> int:
    topic = {"name": name, "partitions": [{"timestamp": -1}]}
    with RawConnection(broker.bootstrap_servers) as connection:
        return int(connection.call(ApiKey.LIST_OFFSETS, 7, topics=[topic]).topics[0].partitions[0].error_code)


def described(broker: EmbeddedBroker, *names: str) -> dict[str | None, int]:
    """Topic -> error code in Metadata; without names all topics."""
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.call(ApiKey.METADATA, 12, topics=[{"name": name} for name in names] or None)
    assert all(topic.topic_id == ZERO_UUID for topic in answer.topics if topic.error_code)
    return {topic.name: topic.error_code for topic in answer.topics}


def test_scenario_53_one_acl_closes_its_topic_to_everybody_else(broker: EmbeddedBroker) -> None:
    """The first ACL on a topic surprises: all services without one lose it."""
    broker.acls.allow("alice", "READ", topic="foo")
    assert fetch(broker, "foo", "bar") == {"foo": TOPIC, "bar": 0}
    assert (latest(broker, "foo"), latest(broker, "bar")) == (TOPIC, 0)
    assert described(broker, "foo", "bar") == {"foo": TOPIC, "bar": 0}
    assert described(broker) == {"bar": 0}


def test_a_topic_that_does_not_exist_looks_like_one_that_is_closed(closed: EmbeddedBroker) -> None:
    """Otherwise names can be found out by trying."""
    assert described(closed, "foo", "missing") == {"foo": TOPIC, "missing": TOPIC}


@pytest.fixture(scope="module")
def shut_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(acls=True) as running:
        yield running


@pytest.fixture(scope="module")
def shut(shut_broker: EmbeddedBroker) -> Iterator[Scene]:
    scene = Scene.of_nothing(shut_broker.bootstrap_servers)
    scene.topic_id = shut_broker.topics.create(scene.topic)
    yield scene
    scene.connection.close()


FREE: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
TOKENS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
LEFT_OUT: Final = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
BY_TRANSACTION: Final = {
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
BY_CLUSTER: Final = {
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
}
BY_GROUP: Final = {
    *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.FIND_COORDINATOR),
    *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    *(ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS),
    *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
    *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    *(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT),
}
FIRST_BATCHED: Final = 4
FIRST_LOG_DIRS_WITH_CODE: Final = 3


def expected(api_key: int, version: int) -> set[int]:
    """The codes for a sender without any permission, as in Kafka."""
    if api_key in FREE:
        return {ErrorCode.ILLEGAL_SASL_STATE} if api_key in (17, 36) else set()
    if api_key in TOKENS:
        return {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
    if api_key in LEFT_OUT or (api_key == ApiKey.DESCRIBE_LOG_DIRS and version < FIRST_LOG_DIRS_WITH_CODE):
        return set()
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return {CLUSTER if version >= FIRST_BATCHED else TRANSACTION}
    if api_key in BY_TRANSACTION:
        return {TRANSACTION}
    if api_key in BY_CLUSTER:
        return {CLUSTER}
    return {GROUP if api_key in BY_GROUP else TOPIC}


@pytest.mark.parametrize("case", ADVERTISED, ids=lambda case: f"{ApiKey(case[0]).name}-v{case[1]}")
def test_every_version_of_every_api_refuses_a_sender_without_permission(
    shut_broker: EmbeddedBroker, shut: Scene, case: tuple[int, int]
) -> None:
    """A refusal that its version cannot carry closes the connection, and an API that forgets to check is a hole."""
    api_key, version = case
    request = ROWS[api_key](shut, version)
    with RawConnection(shut_broker.bootstrap_servers) as connection:
        assert error_codes(connection.ask(request, version=version)) == expected(api_key, version)


WITHOUT_ROWS: Final = {
    *(ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.LEAVE_GROUP, ApiKey.ADD_PARTITIONS_TO_TXN),
    *(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES),
    *(ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
    *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
}
"""APIs whose refusal of the whole says nothing of its parts, in Kafka, too (`tests/interop/real` compares them)."""


@pytest.mark.parametrize(
    "case",
    [case for case in ADVERTISED if case[0] not in WITHOUT_ROWS],
    ids=lambda case: f"{ApiKey(case[0]).name}-v{case[1]}",
)
def test_a_refusal_has_a_row_for_each_element_of_the_request(
    shut_broker: EmbeddedBroker, shut: Scene, case: tuple[int, int]
) -> None:
    """Java's Admin takes a refusal without them for the answer of a broken broker ("returned too less results")."""
    api_key, version = case
    request = about_two(ROWS[api_key](shut, version))
    with RawConnection(shut_broker.bootstrap_servers) as connection:
        answer = connection.ask(request, version=version)
    arrays = request.WIRE.answered_by
    assert elements(answer, set(arrays.values())) == elements(request, {step for a in arrays for step in a.split(".")})


def elements(message: object, arrays: Collection[str]) -> int:
    """How many elements the innermost of the *arrays* have."""
    found = [each for array in arrays for each in getattr(message, array, None) or ()]
    return sum(max(elements(each, arrays), 1) for each in found)


def test_refused_quotas_and_users_have_their_rows(closed: EmbeddedBroker) -> None:
    """Java's Admin looks for the entity that it asked for, and for a row of each user."""
    entity = [{"entity_type": "user", "entity_name": "alice"}, {"entity_type": "client-id", "entity_name": None}]
    with RawConnection(closed.bootstrap_servers) as connection:
        altered = connection.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity}]).entries
        described = connection.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "a"}, {"name": "b"}])
    assert [(each.error_code, len(each.entity), each.entity[0].entity_name) for each in altered] == [
        (CLUSTER, 2, "alice")
    ]
    assert (described.error_code, [row.error_code for row in described.results]) == (CLUSTER, [CLUSTER, CLUSTER])


@pytest.mark.parametrize("version", [1, 7, 8])
def test_offsets_of_a_closed_topic_are_refused_in_every_version(closed: EmbeddedBroker, version: int) -> None:
    """A permission for the group alone must not show how far it is in each topic."""
    closed.acls.allow(EVERYBODY, "READ", group="g")
    asked = {"name": "foo", "partition_indexes": [0]}
    group = {"group_id": "g", "topics": [asked]}
    with RawConnection(closed.bootstrap_servers) as connection:
        answer = connection.call(ApiKey.OFFSET_FETCH, version, **({"groups": [group]} if version >= 8 else group))
    assert error_codes(answer) == {TOPIC}


def asked(broker: EmbeddedBroker, request: ConsumerGroupHeartbeatRequest) -> int:
    with RawConnection(broker.bootstrap_servers) as connection:
        return connection.ask(request, version=1).error_code


def test_a_member_needs_the_group_and_its_topics(closed: EmbeddedBroker) -> None:
    """A service whose permissions lack its topic must not join, and be told which of both it is."""
    codes = [asked(closed, join(topics=("foo",)))]
    closed.acls.allow(EVERYBODY, "READ", group="g")
    codes.append(asked(closed, join(topics=("foo",))))
    assert closed.groups.get("g") is None
    closed.acls.allow(EVERYBODY, "READ", topic="foo")
    codes.append(asked(closed, join(topics=("foo",))))
    assert codes == [GROUP, TOPIC, 0]


def test_a_pattern_matches_only_topics_that_the_member_may_know(closed: EmbeddedBroker) -> None:
    """A subscription to ``.*`` must not hand out partitions that no member may read."""
    closed.acls.allow(EVERYBODY, "READ", group="g")
    closed.acls.allow(EVERYBODY, "READ", topic="foo")
    assert asked(closed, join(topics=None, subscribed_topic_regex=".*")) == 0
    matched = closed.wait_for_group("g", epoch=2)
    assert asked(closed, heartbeat(matched.members[0].member_epoch, subscribed_topic_regex=".*")) == 0
    group = closed.groups.get("g")
    assert group is not None
    assert {partition.topic for member in group.members for partition in member.target} == {"foo"}


def test_groups_are_listed_to_those_that_may_know_of_them(closed: EmbeddedBroker) -> None:
    """Names of groups tell who uses the cluster."""
    closed.acls.allow(EVERYBODY, "READ", group="g")
    closed.acls.allow(EVERYBODY, "READ", topic="foo")
    asked(closed, join(topics=("foo",)))
    with RawConnection(closed.bootstrap_servers) as connection:
        seen = [group.group_id for group in connection.ask(ListGroupsRequest(), version=5).groups]
        closed.acls.deny(EVERYBODY, "DESCRIBE", group="g")
        hidden = connection.ask(ListGroupsRequest(), version=5).groups
    assert (seen, hidden) == (["g"], ())


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_acls_outlive_the_end_of_the_broker(tmp_path: Path, durable: bool) -> None:
    """A restart that forgets a denial opens what was closed."""
    broker = EmbeddedBroker({"foo": 1}, acls=True, data_dir=tmp_path / "data" if durable else None)
    with broker:
        broker.acls.allow("alice", "READ", "WRITE", topic="foo")
        broker.acls.deny("bob", group="g", prefixed=True)
        broker.acls.remove(tuple(broker.acls)[:1])
        before = tuple(broker.acls)
        broker.crash()
        broker.start()
        assert tuple(broker.acls) == before
        assert len(before) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"resource_name": ""},
        {"principal": "alice"},
        {"resource_type": 1},
        {"resource_type": 4},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
        {"operation": 99},
    ],
)
def test_an_acl_that_cannot_be_is_refused(
    broker: EmbeddedBroker, connection: RawConnection, change: dict[str, object]
) -> None:
    """A binding that can never match would only seem to protect."""
    fields: dict[str, object] = {
        "resource_type": 2,
        "resource_name": "foo",
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = connection.call(ApiKey.CREATE_ACLS, 3, creations=[fields | change])
    assert (answer.results[0].error_code, tuple(broker.acls)) == (ErrorCode.INVALID_REQUEST, ())


def test_filters_that_match_too_much_are_refused(
    broker: EmbeddedBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each filter is answered with all ACLs that it matches: thousands of both are more than a machine has."""
    monkeypatch.setattr("kip848_client.testing.broker.apis.delete_acls._MATCHES_MAX", 3)
    for user in ("a", "b"):
        broker.acls.allow(user, "READ", topic="foo")
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    everywhere = anything | dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    results = connection.call(ApiKey.DELETE_ACLS, 3, filters=[everywhere] * 3).filter_results
    refused = ErrorCode.POLICY_VIOLATION
    assert [(each.error_code, len(each.matching_acls)) for each in results] == [(0, 2), (refused, 0), (refused, 0)]
    assert tuple(broker.acls) == ()


def test_the_authorizer_needs_a_super_user_or_an_open_default() -> None:
    """A broker that refuses everybody, its administrator too, can only be thrown away."""
    with pytest.raises(ConfigError, match=r"super\.users"):
        EmbeddedBroker(config={"authorizer.class.name": "standard"})
    with EmbeddedBroker(
        {"foo": 1}, config={"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
    ) as it:
        assert fetch(it, "foo") == {"foo": 0}


def test_a_broker_without_an_authorizer_takes_no_acls() -> None:
    """An ACL without effect would make a test of permissions pass."""
    with EmbeddedBroker() as broker, pytest.raises(IllegalStateError, match="acls=True"):
        broker.acls.allow("alice", "READ", topic="foo")


def test_a_certificate_names_its_principal_as_java_does() -> None:
    """ACLs for clients with certificates are written for Java's spelling."""
    subject = ((("countryName", "DE"),), (("organizationName", "Example, Inc."),), (("commonName", "alice"),))
    assert distinguished_name(subject) == r"CN=alice,O=Example\, Inc.,C=DE"


def altered(broker: EmbeddedBroker, **fields: list[dict[str, object]]) -> dict[str, int]:
    """User -> error code."""
    with RawConnection(broker.bootstrap_servers) as login:
        assert login.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        login.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0admin\0secret")
        results = login.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **fields).results
    return {result.user: result.error_code for result in results}


def test_scram_users_are_administered_at_a_broker_without_logins_too(tmp_path: Path) -> None:
    """A set-up script of a cluster runs against a plain listener first, as on Kafka."""
    upsert = {"name": "new", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as client:
        assert client.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[upsert]).results[0].error_code == 0
        described = client.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None).results
        assert [each.user for each in described] == ["new"]
    with EmbeddedBroker(data_dir=tmp_path, sasl=BrokerSasl({"admin": "secret"}, mechanisms=("PLAIN",))) as broker:
        assert altered(broker, deletions=[{"name": "new", "mechanism": 1}]) == {"new": 0}


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_scram_users_are_altered_one_by_one_and_outlive_the_broker(tmp_path: Path, durable: bool) -> None:
    """A rotated secret that a restart brings back is a hole, and one wrong user must not stop the others."""
    users = BrokerSasl({"admin": "secret", "old": "secret"}, mechanisms=("PLAIN", "SCRAM-SHA-256"))
    broker = EmbeddedBroker(sasl=users, data_dir=tmp_path / "data" if durable else None)

    def upsert(name: str, iterations: int = 4096, mechanism: int = 1) -> dict[str, object]:
        salted = {"salt": b"salt", "salted_password": b"x" * 32}
        return {"name": name, "mechanism": mechanism, "iterations": iterations} | salted

    with broker:
        codes = altered(
            broker,
            deletions=[{"name": "old", "mechanism": 1}, {"name": "missing", "mechanism": 1}],
            upsertions=[
                upsert("new"),
                upsert(""),
                upsert("weak", iterations=4095),
                upsert("slow", iterations=16_385),
                upsert("strange", mechanism=3),
                upsert("twice"),
                upsert("twice", mechanism=2),
            ],
        )
        assert codes == {
            "old": 0,
            "missing": ErrorCode.RESOURCE_NOT_FOUND,
            "new": 0,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "slow": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
        }
        broker.crash()
        broker.start()
        again = altered(broker, deletions=[{"name": name, "mechanism": 1} for name in ("old", "new")])
        assert again == {"old": ErrorCode.RESOURCE_NOT_FOUND, "new": 0}
