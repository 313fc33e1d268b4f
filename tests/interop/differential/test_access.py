"""ACLs from a seed, given to the embedded broker and to Apache Kafka's StandardAuthorizer, and requests under them.

Patterns, principals, hosts and operations are drawn so that they overlap: a DENY on a prefix beside an ALLOW on a name,
an ALLOW for somebody else, hosts that are not the client's. Descriptions and deletions by filter are compared, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest
from msgspec.structs import asdict

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import Fields, message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kip848_client.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kip848_client.wire.messages.describe_acls import DescribeAclsRequest
from kip848_client.wire.schema import Request
from tests.interop.conftest import require_kafka
from tests.interop.differential.talk import Talk
from tests.interop.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until
from tests.support.well_formed_requests import ROWS, Scene, error_codes

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

SEEDS: Final = "0-4"
STEPS: Final = 14
WAIT_S: Final = 30.0
PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Kafka's own requests are ANONYMOUS, too: the cluster stays open."""

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
NAMES: Final[Mapping[int, tuple[str, ...]]] = {
    TOPIC: ("foo", "fob", "bar", "nope"),
    GROUP: ("foo", "g"),
    TRANSACTIONAL_ID: ("foo", "x"),
}
"""Resource type -> what is asked for; the last topic does not exist. Transactional ids end in "nobody"."""
PATTERNS: Final = (
    ("foo", 3),
    ("fob", 3),
    ("*", 3),
    ("fo", 4),
    ("f", 4),
    ("foo", 4),
    ("bar", 3),
    ("g", 3),
    ("x", 3),
    ("foonobody", 3),
    ("x", 4),
)
OPERATIONS: Final = (2, 3, 4, 6, 7, 8, 10, 11)
DENY, ALLOW = 2, 3
ANY: Final = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)

Probe = tuple[ApiKey, int]
PROBES: Final[Mapping[int, Mapping[str, Probe]]] = {
    TOPIC: {
        "Produce": (ApiKey.PRODUCE, 9),
        "Fetch": (ApiKey.FETCH, 12),
        "ListOffsets": (ApiKey.LIST_OFFSETS, 7),
        "Metadata": (ApiKey.METADATA, 12),
        "DeleteRecords": (ApiKey.DELETE_RECORDS, 2),
        "DescribeProducers": (ApiKey.DESCRIBE_PRODUCERS, 0),
        "DescribeConfigs": (ApiKey.DESCRIBE_CONFIGS, 4),
    },
    GROUP: {
        "OffsetCommit": (ApiKey.OFFSET_COMMIT, 9),
        "OffsetCommit of another topic": (ApiKey.OFFSET_COMMIT, 9),
        "OffsetFetch": (ApiKey.OFFSET_FETCH, 8),
        "ConsumerGroupHeartbeat": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
        "ConsumerGroupDescribe": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1),
        "DescribeGroups": (ApiKey.DESCRIBE_GROUPS, 5),
        "FindCoordinator": (ApiKey.FIND_COORDINATOR, 4),
    },
    TRANSACTIONAL_ID: {
        "InitProducerId": (ApiKey.INIT_PRODUCER_ID, 5),
        "InitProducerId without an id": (ApiKey.INIT_PRODUCER_ID, 5),
        "AddPartitionsToTxn": (ApiKey.ADD_PARTITIONS_TO_TXN, 3),
        "EndTxn": (ApiKey.END_TXN, 4),
        "DescribeTransactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0),
        "FindCoordinator": (ApiKey.FIND_COORDINATOR, 4),
    },
}
"""Resource type -> what is asked about it: requests of the table of well-formed ones, but for `OWN`."""
OWN: Final[Mapping[tuple[int, str], Callable[[str], Fields]]] = {
    # Of a sender that is no member and says so with its epoch.
    (GROUP, "ConsumerGroupHeartbeat"): lambda name: {
        "group_id": name,
        "member_id": "m",
        "member_epoch": 5,
        "subscribed_topic_names": ["foo"],
    },
    (TRANSACTIONAL_ID, "InitProducerId"): lambda name: {
        "transactional_id": f"{name}nobody",
        "transaction_timeout_ms": 60_000,
    },
    (TRANSACTIONAL_ID, "FindCoordinator"): lambda name: {"key_type": 1, "coordinator_keys": [f"{name}nobody"]},
}


def probe(resource_type: int, what: str, name: str, connection: RawConnection) -> tuple[Request[Any], int]:
    """A request about a topic, a group, or the transactional id that begins with *name*, and its version."""
    api_key, version = PROBES[resource_type][what]
    own = OWN.get((resource_type, what))
    if own is not None:
        return message(api_key, own(name)), version
    topic = name if resource_type == TOPIC else "bar" if "another topic" in what else "foo"
    scene = Scene(connection, prefix=name, topic=topic, offsets_group=name, members_group=name, exists=False)
    return ROWS[api_key](scene, version), version


class Access(Talk[RawConnection]):
    """One conversation about permissions."""

    def go(self) -> None:
        """All of it."""
        for _ in range(STEPS):
            step = self.random.choice((self._create, self._create, self._describe, self._delete))
            step()
            for resource_type in (TOPIC, TOPIC, GROUP, TRANSACTIONAL_ID):
                self._probe(resource_type)

    def _create(self) -> None:
        acls = tuple(self._acl() for _ in range(self.random.randint(1, 3)))
        self._tell(f"create {acls}", CreateAclsRequest(creations=acls), 3, codes)
        self._settle()

    def _delete(self) -> None:
        wanted = DeleteAclsFilter(**self._filter())
        self._tell(f"delete {wanted}", DeleteAclsRequest(filters=(wanted,)), 3, deleted)
        self._settle()

    def _describe(self) -> None:
        wanted = DescribeAclsRequest(**self._filter())
        self._tell(f"describe {wanted}", wanted, 3, described)

    def _probe(self, resource_type: int) -> None:
        name = self.random.choice(NAMES[resource_type])
        what = self.random.choice(sorted(PROBES[resource_type]))
        request, version = probe(resource_type, what, name, self.sides[0])
        self._tell(f"{what} {name}", request, version, codes)

    def _acl(self) -> AclCreation:
        name, pattern_type = self.random.choice(PATTERNS)
        return AclCreation(
            resource_type=self.random.choice((TOPIC, TOPIC, GROUP, TRANSACTIONAL_ID)),
            resource_name=name,
            resource_pattern_type=pattern_type,
            principal=self.random.choice(("User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:bob")),
            host=self.random.choice(("*", "*", "127.0.0.1", "10.0.0.1")),
            operation=self.random.choice(OPERATIONS),
            permission_type=self.random.choice((ALLOW, ALLOW, DENY)),
        )

    def _filter(self) -> dict[str, Any]:
        draw = self.random.choice
        return {
            "resource_type_filter": draw((1, TOPIC, GROUP, TRANSACTIONAL_ID)),
            "resource_name_filter": draw((None, "foo", "fob", "f", "*", "bar", "zzz")),
            "pattern_type_filter": draw((1, 2, 2, 3, 4)),
            "principal_filter": draw((None, None, "User:ANONYMOUS", "User:*")),
            "host_filter": draw((None, None, "*", "127.0.0.1")),
            "operation": draw((1, 1, *OPERATIONS)),
            "permission_type": draw((1, 1, ALLOW, DENY)),
        }

    def _settle(self) -> None:
        """Wait until Kafka's broker has heard of a change from its controller."""
        ours, kafka = self.sides
        wanted = described(ours.ask(ANY, version=3))
        found: list[object] = []

        def is_settled() -> bool:
            found.append(described(kafka.ask(ANY, version=3)))
            return found[-1] == wanted

        try:
            wait_until(is_settled, WAIT_S)
        except AssertionError:
            raise AssertionError("\n".join([*self.transcript, f"ours   {wanted}", f"Kafka  {found[-1]}"])) from None

    def _tell(self, what: str, request: Request[Any], version: int, of: Callable[[Any], object]) -> None:
        self.tell(what, lambda side: of(side.ask(request, version=version)))


def codes(answer: Any) -> object:
    """Error codes, and the operations that the sender may do."""
    return sorted(error_codes(answer)), sorted(operations(answer))


def operations(message: Any) -> Iterator[int]:
    """Every bit field of operations in an answer."""
    if isinstance(message, tuple):
        for item in message:
            yield from operations(item)
    elif hasattr(message, "__struct_fields__"):
        for name, value in asdict(message).items():
            if name in ("topic_authorized_operations", "authorized_operations"):
                yield value
            else:
                yield from operations(value)


def described(answer: Any) -> object:
    """The ACLs of a description."""
    return answer.error_code, sorted(
        (found.resource_type, found.resource_name, found.pattern_type, *asdict(acl).values())
        for found in answer.resources
        for acl in found.acls
    )


def deleted(answer: Any) -> object:
    """The ACLs that a deletion found."""
    return [
        (result.error_code, sorted(tuple(asdict(acl).values()) for acl in result.matching_acls))
        for result in answer.filter_results
    ]


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """Ours and Kafka's, with topics, and with coordinators that serve."""
    require_kafka()
    with EmbeddedBroker(profile="kafka", config=PROPERTIES) as ours, KafkaBroker(properties=PROPERTIES) as kafka:
        found = ours.bootstrap_servers, kafka.bootstrap_servers
        for address in found:
            with RawConnection(address) as connection:
                await_service(connection)
        yield found


def await_service(connection: RawConnection) -> None:
    """Create the topics, and wait until no answer has to do with a start."""
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in NAMES[TOPIC][:-1]]
    connection.ask(message(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout_ms": 20_000}), version=7)

    def is_served(request: Request[Any], version: int) -> bool:
        return error_codes(connection.ask(request, version=version)).isdisjoint((5, 14, 15, 16))

    for kind, probes in PROBES.items():
        for what in sorted(probes, key=lambda what: what != "FindCoordinator"):  # first: Kafka then makes what it needs
            for name in NAMES[kind]:
                request, version = probe(kind, what, name, connection)
                wait_until(partial(is_served, request, version), WAIT_S, f"{request} to be served")


def test_both_brokers_allow_and_refuse_alike(seed: int, addresses: tuple[str, str]) -> None:
    """A permission that is missing in production would have been granted in the test, or the other way round."""
    everything = DeleteAclsRequest(filters=(DeleteAclsFilter(**asdict(ANY)),))
    with RawConnection(addresses[0]) as ours, RawConnection(addresses[1]) as kafka:
        try:
            Access(seed, (ours, kafka)).hold()
        finally:
            for side in (ours, kafka):
                side.ask(everything, version=3)
                wait_until(lambda side=side: not side.ask(ANY, version=3).resources, WAIT_S)  # type: ignore[misc]
