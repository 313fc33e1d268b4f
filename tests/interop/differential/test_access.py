"""ACLs from a seed, given to the embedded broker and to Apache Kafka's StandardAuthorizer, and requests under them.

Patterns, principals, hosts and operations are drawn so that they overlap: a DENY on a prefix beside an ALLOW on a name,
an ALLOW for somebody else, hosts that are not the client's. Descriptions and deletions by filter are compared, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from msgspec.structs import asdict

from kip848_client.broker import EmbeddedBroker
from kip848_client.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kip848_client.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kip848_client.wire.messages.describe_acls import DescribeAclsRequest
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from kip848_client.wire.messages.describe_transactions import DescribeTransactionsRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kip848_client.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import Request
from tests.interop.conftest import require_kafka
from tests.interop.kafka_broker import KafkaBroker
from tests.support import group_requests
from tests.support.raw_connection import RawConnection
from tests.support.transactions import fetch_request
from tests.support.waiting import wait_until
from tests.support.well_formed_requests import error_codes

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
"""Resource type -> what is asked for; the last topic does not exist."""
PATTERNS: Final = (("foo", 3), ("fob", 3), ("*", 3), ("fo", 4), ("f", 4), ("foo", 4), ("bar", 3), ("g", 3), ("x", 3))
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

Sides = tuple[RawConnection, RawConnection]
Probe = Callable[[str], tuple[Request[Any], int]]
"""Makes a request, and its version, of the name of a topic, group or transactional id."""


def produce(name: str) -> tuple[Request[Any], int]:
    """With the present time: Kafka soon deletes what is older than a week."""
    batch = build_batch([Record(b"v", timestamp=int(time.time() * 1000))])
    data = TopicProduceData(name=name, partition_data=(PartitionProduceData(records=batch),))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,)), 9


def fetch(name: str) -> tuple[Request[Any], int]:
    return fetch_request(topic=name, isolation=0), 12


def commit(group: str, topic: str) -> tuple[Request[Any], int]:
    return group_requests.commit({0: 1}, group=group, topic=topic), 9


def offsets_of(group: str, topic: str) -> tuple[Request[Any], int]:
    named = OffsetFetchRequestTopics(name=topic, partition_indexes=(0,))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(named,)),)), 8


def heartbeat(group: str, topic: str) -> tuple[Request[Any], int]:
    """Of a sender that is no member and says so with its epoch."""
    return group_requests.heartbeat(5, group=group, subscribed_topic_names=(topic,)), 1


def add_partitions(transactional_id: str, topic: str) -> tuple[Request[Any], int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=99,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
    )
    return request, 3


PROBES: Final[Mapping[int, Mapping[str, Probe]]] = {
    TOPIC: {
        "Produce": produce,
        "Fetch": fetch,
        "ListOffsets": lambda name: (
            ListOffsetsRequest(
                replica_id=-1,
                topics=(ListOffsetsTopic(name=name, partitions=(ListOffsetsPartition(timestamp=-1),)),),
            ),
            7,
        ),
        "Metadata": lambda name: (
            MetadataRequest(
                topics=(MetadataRequestTopic(name=name),),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            ),
            12,
        ),
        "DeleteRecords": lambda name: (
            DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(offset=0),)),),
                timeout_ms=10_000,
            ),
            2,
        ),
        "DescribeProducers": lambda name: (
            DescribeProducersRequest(topics=(DescribeProducersTopic(name=name, partition_indexes=(0,)),)),
            0,
        ),
        "DescribeConfigs": lambda name: (
            DescribeConfigsRequest(
                resources=(
                    DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=("retention.ms",)),
                )
            ),
            4,
        ),
    },
    GROUP: {
        "OffsetCommit": lambda name: commit(name, "foo"),
        "OffsetCommit of another topic": lambda name: commit(name, "bar"),
        "OffsetFetch": lambda name: offsets_of(name, "foo"),
        "ConsumerGroupHeartbeat": lambda name: heartbeat(name, "foo"),
        "ConsumerGroupDescribe": lambda name: (ConsumerGroupDescribeRequest(group_ids=(name,)), 1),
        "DescribeGroups": lambda name: (DescribeGroupsRequest(groups=(name,), include_authorized_operations=True), 5),
        "FindCoordinator": lambda name: (FindCoordinatorRequest(key_type=0, coordinator_keys=(name,)), 4),
    },
    TRANSACTIONAL_ID: {
        "InitProducerId": lambda name: (
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
            5,
        ),
        "InitProducerId without an id": lambda _: (
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            5,
        ),
        "AddPartitionsToTxn": lambda name: add_partitions(name, "foo"),
        "EndTxn": lambda name: (EndTxnRequest(name, 99, 0, committed=True), 4),
        "DescribeTransactions": lambda name: (DescribeTransactionsRequest(transactional_ids=(name,)), 0),
        "FindCoordinator": lambda name: (FindCoordinatorRequest(key_type=1, coordinator_keys=(name,)), 4),
    },
}


class Talk:
    """One conversation."""

    def __init__(self, seed: int, sides: Sides) -> None:
        self._random: Final = random.Random(seed)
        self._sides: Final = sides
        self.transcript: Final[list[str]] = []

    def go(self) -> None:
        """All of it."""
        for _ in range(STEPS):
            step = self._random.choice((self._create, self._create, self._describe, self._delete))
            step()
            for resource_type in (TOPIC, TOPIC, GROUP, TRANSACTIONAL_ID):
                self._probe(resource_type)

    def _create(self) -> None:
        acls = tuple(self._acl() for _ in range(self._random.randint(1, 3)))
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
        name = self._random.choice(NAMES[resource_type])
        what = self._random.choice(sorted(PROBES[resource_type]))
        request, version = PROBES[resource_type][what](name)
        self._tell(f"{what} {name}", request, version, codes)

    def _acl(self) -> AclCreation:
        name, pattern_type = self._random.choice(PATTERNS)
        return AclCreation(
            resource_type=self._random.choice((TOPIC, TOPIC, GROUP, TRANSACTIONAL_ID)),
            resource_name=name,
            resource_pattern_type=pattern_type,
            principal=self._random.choice(("User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:bob")),
            host=self._random.choice(("*", "*", "127.0.0.1", "10.0.0.1")),
            operation=self._random.choice(OPERATIONS),
            permission_type=self._random.choice((ALLOW, ALLOW, DENY)),
        )

    def _filter(self) -> dict[str, Any]:
        draw = self._random.choice
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
        ours, kafka = self._sides
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
        ours, kafka = (of(side.ask(request, version=version)) for side in self._sides)
        self.transcript.append(f"{what}\n      " + (f"both   {ours}" if ours == kafka else f"ours   {ours}"))
        assert ours == kafka, "\n".join([*self.transcript, f"      Kafka  {kafka}"])


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
    topics = tuple(CreatableTopic(name, 1, 1) for name in NAMES[TOPIC][:-1])
    connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=20_000), version=7)
    for kind, probes in PROBES.items():
        for what in sorted(probes, key=lambda what: what != "FindCoordinator"):  # first: Kafka then makes what it needs
            make = probes[what]
            for name in NAMES[kind]:
                request, version = make(name)
                wait_until(
                    lambda request=request, version=version: (  # type: ignore[misc]
                        error_codes(connection.ask(request, version=version)).isdisjoint((5, 14, 15, 16))
                    ),
                    WAIT_S,
                    f"{request} to be served",
                )


def test_both_brokers_allow_and_refuse_alike(seed: int, addresses: tuple[str, str]) -> None:
    """A permission that is missing in production would have been granted in the test, or the other way round."""
    everything = DeleteAclsRequest(filters=(DeleteAclsFilter(**asdict(ANY)),))
    with RawConnection(addresses[0]) as ours, RawConnection(addresses[1]) as kafka:
        try:
            Talk(seed, (ours, kafka)).go()
        except AssertionError as difference:
            pytest.fail(f"again: KIP848_DIFFERENTIAL_SEEDS={seed}\n{difference}", pytrace=False)
        finally:
            for side in (ours, kafka):
                side.ask(everything, version=3)
                wait_until(lambda side=side: not side.ask(ANY, version=3).resources, WAIT_S)  # type: ignore[misc]
