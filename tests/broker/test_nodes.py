"""Clusters of several nodes by raw requests: what each node answers, and what changes when nodes die and come back."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, IllegalStateError
from kip848_client.testing.faults import error
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.fetch import PartitionData
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.list_transactions import ListTransactionsRequest
from kip848_client.wire.messages.metadata import MetadataRequest
from kip848_client.wire.record_batch import Record, build_batch
from tests.support.group_requests import commit_offset
from tests.support.group_requests import heartbeat as beat
from tests.support.group_requests import join as join_request
from tests.support.transactions import MakeProducer, begun, committed, fetched, values_in
from tests.support.waiting import wait_until
from tests.support.well_formed_requests import ADVERTISED, ROWS, Scene, error_codes

TOPIC = "foo"
NODES = (1, 2, 3)
REPLICAS_2 = {"default.replication.factor": "2"}

# foo-0 to foo-2 are led by 1, 2, 3, with replicas [1,2], [2,3], [3,1], unless a test's own marker changes that.
pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 3}, nodes=3, config=REPLICAS_2)

At = Callable[[int], RawConnection]


@pytest.fixture
def at(broker: EmbeddedBroker) -> Iterator[At]:
    """A connection to a node: a new one each time, for that to the node before may have been reset."""
    made: list[RawConnection] = []

    def connect(node_id: int) -> RawConnection:
        made.append(RawConnection(broker.nodes[node_id].bootstrap_server))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def fetch(
    connection: RawConnection, partition: int, *, version: int = 16, epoch: int = -1, offset: int = 0, **fields: Any
) -> tuple[PartitionData, list[tuple[int, int]]]:
    """What a Fetch of one partition is answered, and the endpoints that come with it."""
    asked = {"partition": partition, "fetch_offset": offset, "current_leader_epoch": epoch}
    topic = {"topic": TOPIC} if version < 13 else {"topic_id": topic_id(connection)}
    topics = [topic | {"partitions": [asked | {"partition_max_bytes": 1_000_000}]}]
    answer = connection.call(
        ApiKey.FETCH, version, topics=topics, **{"max_wait_ms": 0, "max_bytes": 1_000_000} | fields
    )
    return answer.responses[0].partitions[0], [(node.node_id, node.port) for node in answer.node_endpoints]


def topic_id(connection: RawConnection) -> Any:
    return connection.call(ApiKey.METADATA, 12, topics=[{"name": TOPIC}]).topics[0].topic_id


def produce(connection: RawConnection, partition: int, *, version: int = 10, acks: int = -1) -> Any:
    batch = build_batch([Record(b"v", timestamp=1_700_000_000_000)])
    data = [{"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}]
    return connection.call(ApiKey.PRODUCE, version, acks=acks, timeout_ms=1000, topic_data=data)


def produced(connection: RawConnection, partition: int, **arguments: int) -> int:
    """The error that a Produce to one partition is answered with."""
    return int(produce(connection, partition, **arguments).responses[0].partition_responses[0].error_code)


def heartbeat(connection: RawConnection, group: str, *, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = beat(epoch, group=group) if epoch else join_request(group=group, topics=(TOPIC,))
    return connection.ask(request, version=1)


# --- partitions: who serves what


def test_a_fetch_is_served_by_replicas_and_told_the_leader_elsewhere(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 35. A client at the wrong node would get records that a Kafka does not give, or search for long."""
    port = broker.nodes[2].port
    refused, endpoints = fetch(at(1), 1)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 0)
    assert endpoints == [(2, port)]
    assert fetch(at(1), 1, version=15)[0].current_leader.leader_id == -1
    assert produced(at(2), 1) == 0
    assert [fetch(at(node), 1, version=11)[0].error_code for node in (3, 2)] == [0, 0]
    assert values_in(fetch(at(3), 1, version=11)[0]) == [(0, b"v")]
    assert fetch(at(3), 1, version=10)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_taken_by_the_leader_only(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 36. A producer that does not follow leaders would pass its tests and lose time in production."""
    answer = produce(at(3), 1)
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 0)
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(2, broker.nodes[2].port)]
    assert produced(at(3), 1, version=9) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.topics.offsets(TOPIC)[1] == (0, 0)


@pytest.mark.parametrize("node", NODES)
def test_offsets_and_epochs_are_told_by_the_leader_only(at: At, node: int) -> None:
    """A consumer would begin at the end of a follower that lags behind."""
    expected = 0 if node == 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    latest = [{"name": TOPIC, "partitions": [{"partition_index": 1, "timestamp": -1}]}]
    first_epoch = [{"topic": TOPIC, "partitions": [{"partition": 1, "leader_epoch": 0}]}]
    for answer in (
        at(node).call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=latest),
        at(node).call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=first_epoch),
    ):
        assert answer.topics[0].partitions[0].error_code == expected


def test_a_dead_leader_is_followed_by_the_next_epoch(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 37. Without epochs a consumer would not notice that it reads from a leader of the past."""
    waiting = at(2)
    broker.nodes.kill(2)
    assert waiting.is_closed_by_peer()
    fenced, endpoints = fetch(at(3), 1, epoch=0)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == (3, 1)
    assert endpoints == [(3, broker.nodes[3].port)]
    unknown, endpoints = fetch(at(3), 1, epoch=2)
    assert (unknown.error_code, unknown.current_leader.leader_id) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    assert endpoints == []
    assert [fetch(at(node), 2, epoch=0)[0].error_code for node in (3, 1)] == [0, 0], "only a follower of it died"


def test_a_node_that_came_back_is_seen_and_leads_nothing(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 38. Each return would move leaders a second time."""
    port = broker.nodes[2].port
    broker.nodes.kill(2)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert [node.node_id for node in at(1).ask(MetadataRequest(topics=None), version=12).brokers] == [1, 3]
    broker.nodes.start(2)
    metadata = at(2).ask(MetadataRequest(topics=None), version=12)
    assert [(node.node_id, node.port) for node in metadata.brokers][1] == (2, port)
    assert [partition.leader_id for partition in metadata.topics[0].partitions] == [1, 3, 3]
    assert [partition.isr_nodes for partition in metadata.topics[0].partitions] == [(1, 2), (2, 3), (3, 1)]
    broker.nodes.kill(2)
    broker.nodes.start(2, preferred=True)
    assert [broker.nodes.leader(TOPIC, number) for number in range(3)] == [1, 2, 3]


def test_an_administrator_lets_the_preferred_nodes_lead_again(broker: EmbeddedBroker, at: At) -> None:
    """After a rolling restart all partitions are led by the nodes that were restarted first."""

    def elect(*partitions: int, topic: str = TOPIC, kind: int = 0) -> list[tuple[int, int]]:
        named = [{"topic": topic, "partitions": partitions}] if partitions else None
        answer = at(2).call(ApiKey.ELECT_LEADERS, 2, election_type=kind, topic_partitions=named)
        assert answer.error_code == (ErrorCode.INVALID_REQUEST if kind > 1 else ErrorCode.NONE)
        return [
            (each.partition_id, each.error_code)
            for found in answer.replica_election_results
            for each in found.partition_result
        ]

    broker.nodes.kill(1)
    assert elect(0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    broker.nodes.start(1)

    assert elect(1, 2, 3) == [
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.ELECTION_NOT_NEEDED),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert elect(0, topic="nowhere") == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert elect(0, kind=1) == [(0, ErrorCode.ELECTION_NOT_NEEDED)]
    assert elect(0, kind=2) == [(0, ErrorCode.INVALID_REQUEST)]
    assert elect() == [(0, ErrorCode.NONE)]
    assert elect() == []
    everything = at(2).call(ApiKey.ELECT_LEADERS, 2, topic_partitions=None).replica_election_results
    assert [(each.topic, each.partition_result) for each in everything] == [(TOPIC, ())]
    partition = at(1).ask(MetadataRequest(topics=None), version=12).topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 2)


@pytest.mark.kip848_broker(config={"default.replication.factor": "1"})
def test_a_partition_without_a_living_replica_says_so(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 42. A service that cannot live with a part of its topic being gone would not be found out."""
    broker.nodes.kill(2)
    partition = at(1).ask(MetadataRequest(topics=None), version=12).topics[0].partitions[1]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((2,), (), (2,))
    assert [produced(at(1), 0), produced(at(1), 1)] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    broker.nodes.start(2)
    assert produced(at(2), 1) == 0


def test_too_few_replicas_refuse_those_who_want_all(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 43. Producers with acks=all would never meet NOT_ENOUGH_REPLICAS before production."""
    broker._on_loop(lambda state: state.topics.set_configs(TOPIC, {"min.insync.replicas": "2"}))
    assert produced(at(1), 0) == 0
    broker.nodes.kill(2)
    assert produced(at(1), 0) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produced(at(1), 0, acks=1) == 0


@pytest.mark.kip848_broker(config=REPLICAS_2 | {"min.insync.replicas": "2"})
def test_too_few_replicas_by_the_default_of_the_cluster_count_as_well(broker: EmbeddedBroker, at: At) -> None:
    """Clusters set it for all topics; a producer's handling of NOT_ENOUGH_REPLICAS could not be tested with that."""
    broker.nodes.kill(2)
    assert produced(at(1), 0) == ErrorCode.NOT_ENOUGH_REPLICAS
    setting = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [setting]}
    at(1).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert produced(at(1), 0) == 0


def test_a_marker_goes_to_the_leader_and_other_nodes_say_why_not(at: At) -> None:
    """An administrator's tool looks for the leader again, or for the partition."""
    topic = {"name": TOPIC, "partition_indexes": [0]}
    marker = {"producer_id": 5, "producer_epoch": 0, "transaction_result": False, "topics": [topic]}
    codes = [
        at(node).call(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker]).markers[0].topics[0].partitions[0].error_code
        for node in NODES
    ]
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_consumer_beyond_a_lost_record_is_told_where_the_log_ends(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 44. Truncation by an unclean leader could not be tested at all (KIP-320)."""
    for _ in range(5):
        assert produced(at(1), 0) == 0
    broker.nodes.move_leader(TOPIC, 0, 2, lose_records=2)
    assert broker.topics.offsets(TOPIC)[0] == (0, 3)
    assert produced(at(2), 0) == 0
    first_epoch = [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    answer = at(2).call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=first_epoch)
    end = answer.topics[0].partitions[0]
    assert (end.leader_epoch, end.end_offset) == (0, 3)
    with pytest.raises(BrokerError, match="holds 4 records, not 9"):
        broker.nodes.move_leader(TOPIC, 0, 1, lose_records=9)


def test_a_topic_has_the_replicas_that_it_asks_for(broker: EmbeddedBroker, at: At) -> None:
    """A program that creates its topics with three replicas could only be run on a real cluster."""

    def created(name: str, **fields: Any) -> Any:
        topic = {"name": name, "num_partitions": 1, "replication_factor": -1} | fields
        return at(1).call(ApiKey.CREATE_TOPICS, 7, topics=[topic]).topics[0]

    assert [created(f"t{factor}", replication_factor=factor).replication_factor for factor in (1, 3, -1)] == [1, 3, 2]
    assert created("t4", replication_factor=4).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    by_hand = [{"partition_index": 0, "broker_ids": [3, 1]}]
    assert created("t5", num_partitions=-1, assignments=by_hand).replication_factor == 2
    assert broker.nodes.leader("t5", 0) == 3
    uneven = [*by_hand, {"partition_index": 1, "broker_ids": [3]}]
    assert created("t7", num_partitions=-1, assignments=uneven).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for replicas, code in (([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT), ([2, 3], 0)):
        grown = [{"name": "t5", "count": 2, "assignments": [{"broker_ids": replicas}]}]
        assert at(1).call(ApiKey.CREATE_PARTITIONS, 3, topics=grown).results[0].error_code == code
    broker.topics.create("t6", replication_factor=3)
    metadata = at(1).call(ApiKey.METADATA, 12, topics=[{"name": "t6"}])
    assert sorted(metadata.topics[0].partitions[0].replica_nodes) == [1, 2, 3]


def test_lost_records_stay_lost_over_a_restart(tmp_path: Path) -> None:
    """A restart would bring back what consumers were told is gone."""
    for _ in range(2):
        with EmbeddedBroker({TOPIC: 1}, nodes=3, data_dir=tmp_path) as broker:
            if broker.topics.offsets(TOPIC)[0] == (0, 0):
                with RawConnection(broker.nodes[1].bootstrap_server) as connection:
                    assert [produced(connection, 0) for _ in range(4)] == [0, 0, 0, 0]
                    broker.nodes.move_leader(TOPIC, 0, 1, lose_records=2)
                    assert fetch(connection, 0, epoch=0)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
                    assert produced(connection, 0) == 0
            assert broker.topics.offsets(TOPIC)[0] == (0, 3)


def test_a_parked_fetch_hears_of_a_moved_leader_at_once(broker: EmbeddedBroker, at: At) -> None:
    """A consumer would wait out its fetch at a node that has nothing more to give."""
    connection = at(1)
    asked = {"partition": 0, "partition_max_bytes": 1000, "current_leader_epoch": 0}
    topics = [{"topic": TOPIC, "partitions": [asked]}]
    request = message(ApiKey.FETCH, {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1000, "topics": topics})
    connection.send(request, version=12)
    broker.requests.wait_for("Fetch", node_id=1)
    broker.nodes.move_leader(TOPIC, 0, 2)
    answer: Any = connection.read(request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.kip848_broker(racks=("a", "b", "c"))
def test_a_reader_is_sent_to_the_replica_in_its_rack(broker: EmbeddedBroker, at: At) -> None:
    """A service that reads from near replicas (client.rack, KIP-392) would be tested without them."""
    produced(at(1), 0)
    sent, _ = fetch(at(1), 0, rack_id="b")
    assert (sent.preferred_read_replica, sent.records) == (2, b"")
    for node, rack in ((1, "a"), (1, "c"), (2, "b")):
        served, _ = fetch(at(node), 0, rack_id=rack)
        assert (served.preferred_read_replica, bool(served.records)) == (-1, True), (node, rack)
    metadata = at(1).ask(MetadataRequest(topics=()), version=12)
    assert [node.rack for node in metadata.brokers] == ["a", "b", "c"]


SELECTOR: Final = "org.apache.kafka.common.replica"


@pytest.mark.kip848_broker(racks=("a", "b", "c"), config={"replica.selector.class": f"{SELECTOR}.LeaderSelector"})
def test_the_selector_of_leaders_sends_nobody_away(broker: EmbeddedBroker, at: At) -> None:
    """A properties file of a cluster is taken as it is, and tested without near replicas."""
    produced(at(1), 0)
    served, _ = fetch(at(1), 0, rack_id="b")
    assert (served.preferred_read_replica, bool(served.records)) == (-1, True)
    EmbeddedBroker(config={"replica.selector.class": f"{SELECTOR}.RackAwareReplicaSelector"})
    with pytest.raises(ConfigError, match="MySelector' is not available"):
        EmbeddedBroker(config={"replica.selector.class": "MySelector"})


# --- coordinators


COORDINATED: Final = (
    *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DESCRIBE_GROUPS),
    *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DELETE_GROUPS),
    *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN),
    ApiKey.DESCRIBE_TRANSACTIONS,
)


@pytest.mark.parametrize("api", COORDINATED, ids=lambda api: api.name)
def test_one_node_coordinates_and_the_others_say_that_they_do_not(at: At, api: ApiKey) -> None:
    """Scenario 39. Clients look for the coordinator at that error; without it they would take an answer for success."""
    scene = Scene(at(1), prefix="", topic=TOPIC, offsets_group="g", members_group="g", exists=False)
    for version in (version for key, version in ADVERTISED if key == api):
        request = ROWS[api](scene, version)
        refused = [ErrorCode.NOT_COORDINATOR in error_codes(at(node).ask(request, version=version)) for node in NODES]
        assert sorted(refused) == [False, True, True], version


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_join_at_the_wrong_node_names_no_protocol(at: At, version: int, name: str | None) -> None:
    """A client that checks the name before the error would see a protocol that does not exist."""
    fields: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"}
    answers = [at(node).call(ApiKey.JOIN_GROUP, version, **fields, member_id="m") for node in NODES]
    refused = [answer for answer in answers if answer.error_code == ErrorCode.NOT_COORDINATOR]
    assert [answer.protocol_name for answer in refused] == [name, name]


def test_one_request_about_groups_of_several_nodes_is_answered_group_by_group(at: At) -> None:
    """An administrator's tool asks one node for all; it must hear which groups to ask elsewhere."""
    for group in ("g", "orders", "payments"):
        answers = [commit_offset(at(node), 1, group=group, topic=TOPIC) for node in NODES]
        assert sorted(answers) == [0, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
    request = message(
        ApiKey.OFFSET_FETCH, {"groups": [{"group_id": group, "topics": None} for group in ("payments", "g", "orders")]}
    )
    for node in NODES:
        groups = at(node).ask(request, version=9).groups
        assert [group.group_id for group in groups] == ["payments", "g", "orders"]
    answered = [
        group.group_id
        for node in NODES
        for group in at(node).ask(request, version=9).groups
        if group.error_code == 0 and group.topics[0].partitions[0].committed_offset == 1
    ]
    assert sorted(answered) == ["g", "orders", "payments"], "each by one node"


def test_lists_hold_what_a_node_coordinates(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 41. A tool that asks all nodes would show groups twice, or one that asks a single node too much."""
    names = [f"group-{number}" for number in range(12)]
    for name in names:
        heartbeat(at(broker.nodes.coordinator(group=name)), name, epoch=0)
        node = broker.nodes[broker.nodes.coordinator(transactional_id=name)]
        with begun(node.bootstrap_server, name):
            pass
    listed = [group.group_id for node in NODES for group in at(node).ask(ListGroupsRequest(), version=5).groups]
    assert sorted(listed) == sorted(names)
    ids = [
        each.transactional_id
        for node in NODES
        for each in at(node).ask(ListTransactionsRequest(duration_filter=-1), version=2).transaction_states
    ]
    assert sorted(ids) == sorted(names)
    assert broker.groups.ids() == tuple(sorted(names))
    assert [each.transactional_id for each in tuple(broker.transactions)] == sorted(names)


def test_any_node_tells_the_coordinator(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 39. A client that begins with the wrong node would never find its group."""
    for node, kind in itertools.product(NODES, (0, 1)):
        found = at(node).ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=("g", "tx-1")), version=4)
        assert [each.node_id for each in found.coordinators] == [1, 3]
        assert found.coordinators[0].port == broker.nodes[1].port
    assert at(3).ask(FindCoordinatorRequest(key="g", key_type=0), version=3).node_id == 1


def test_a_group_outlives_its_coordinator(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 39. Every fail-over would be a rebalance of every group."""
    joined = heartbeat(at(1), "g", epoch=0)
    assert joined.error_code == 0
    broker.nodes.kill(1)
    assert broker.nodes.coordinator(group="g") == 2
    assert heartbeat(at(3), "g", epoch=joined.member_epoch).error_code == ErrorCode.NOT_COORDINATOR
    assert heartbeat(at(2), "g", epoch=joined.member_epoch).error_code == 0
    group = broker.wait_for_group("g")
    assert (group.state, group.members[0].member_epoch) == ("Stable", joined.member_epoch)


def test_sessions_begin_anew_with_the_next_coordinator() -> None:
    """Scenario 39. A member would be thrown out for the time in which it had no coordinator to talk to."""
    clock = ManualClock()
    with EmbeddedBroker({TOPIC: 3}, nodes=3, clock=clock) as broker:
        with RawConnection(broker.nodes[1].bootstrap_server) as connection:
            heartbeat(connection, "g", epoch=0)
        broker.clock.advance(9_000)  # of a session of 10 s
        broker.nodes.kill(1)
        broker.clock.advance(9_000)
        assert len(broker.wait_for_group("g").members) == 1
        broker.clock.advance(2_000)
        assert broker.wait_for_group("g", state="Empty").members == ()


def test_election_and_load_take_the_time_that_is_asked_for() -> None:
    """Scenario 40. What clients do between a death and the next coordinator is what fail-over tests are about."""
    config = {"kip848.election.delay.ms": "1000", "kip848.coordinator.load.ms": "500"}
    with EmbeddedBroker({TOPIC: 3}, nodes=3, clock=ManualClock(), config=config) as broker:

        def ask(node: int) -> int:
            with RawConnection(broker.nodes[node].bootstrap_server) as connection:
                return int(heartbeat(connection, "g", epoch=joined.member_epoch).error_code)

        with RawConnection(broker.nodes[1].bootstrap_server) as connection:
            joined = heartbeat(connection, "g", epoch=0)
            assert joined.error_code == 0
        broker.nodes.kill(1)
        assert broker.nodes.coordinator(group="g") == broker.nodes.leader(TOPIC, 0) == 1, "no other node has noticed"
        assert ask(2) == ErrorCode.NOT_COORDINATOR
        broker.clock.advance(1000)
        assert broker.nodes.coordinator(group="g") == broker.nodes.leader(TOPIC, 0) == 2
        assert ask(2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert broker.groups.get("g") is None
        broker.clock.advance(500)
        assert ask(2) == 0
        assert len(broker.wait_for_group("g", state="Stable").members) == 1


def test_a_waiter_for_a_group_follows_it_to_its_next_coordinator(broker: EmbeddedBroker, at: At) -> None:
    """A test that waits for its group while it restarts nodes would wait for ever, or fail for a reason of ours."""
    seen: list[Any] = []
    waiter = threading.Thread(target=lambda: seen.append(broker.wait_for_group("g", members=1)))
    waiter.start()
    wait_until(lambda: broker._on_loop(lambda state: state.groups.has_waiters))
    broker.nodes.kill(1)
    heartbeat(at(2), "g", epoch=0)
    waiter.join(30)
    assert seen[0].members[0].member_id == "m"


def test_a_moved_coordinator_refuses_those_who_wait_and_serves_elsewhere(broker: EmbeddedBroker, at: At) -> None:
    """A classic member would wait in its JoinGroup at a node that has nothing to say any more."""
    broker.nodes.move_coordinator(group="slow", to=1)
    first, second = at(1), at(1)
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    offer = {"protocol_type": "consumer", "protocols": [{"name": "range"}]}
    join = message(ApiKey.JOIN_GROUP, {"group_id": "slow"} | times | offer)
    joined: Any = first.ask(join, version=3)
    leader = {"group_id": "slow", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assert first.call(ApiKey.SYNC_GROUP, 3, **leader).error_code == 0
    second.send(join, version=3)  # waits for the leader to join again
    broker.wait_for_group("slow", state="PreparingRebalance")
    broker.nodes.move_coordinator(group="slow", to=3)
    refused: Any = second.read(join)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert broker.nodes.coordinator(group="slow") == 3
    assert at(3).call(ApiKey.HEARTBEAT, 3, **leader).error_code == 0
    with pytest.raises(TypeError, match="either group= or transactional_id="):
        broker.nodes.move_coordinator(to=1)


def test_a_transaction_is_ended_once_over_the_death_of_its_coordinator(
    broker: EmbeddedBroker, at: At, raw_producer: MakeProducer
) -> None:
    """Scenario 46. Exactly-once would mean twice, or never, whenever a broker is restarted."""
    server = {node.node_id: node.bootstrap_server for node in broker.nodes}
    name = next(f"tx-{n}" for n in range(100) if broker.nodes.coordinator(transactional_id=f"tx-{n}") == 2)
    producer = raw_producer(server[2], name)
    producer.begin()
    producer.connect(server[1])
    assert producer.produce(b"a", b"b").error_code == 0
    broker.nodes.kill(2)
    assert broker.nodes.coordinator(transactional_id=name) == 3
    producer.connect(server[3])
    epoch = producer.epoch
    assert producer.end(commit=True).error_code == 0
    assert producer.end(commit=True, epoch=epoch).error_code == 0, "the answer was lost: the same again"
    assert broker.transactions.wait_for(name, "CompleteCommit").epoch == epoch + 1
    data = fetched(at(1))
    assert values_in(data) == [(0, b"a"), (1, b"b")]
    assert broker.topics.offsets(TOPIC)[0] == (0, 3), "two records and one marker"


def test_offsets_of_a_transaction_are_taken_by_the_groups_coordinator(
    broker: EmbeddedBroker, raw_producer: MakeProducer
) -> None:
    """The group would become part of a transaction by a request that its coordinator never saw."""
    server = {node.node_id: node.bootstrap_server for node in broker.nodes}
    producer = raw_producer(server[2], "g")  # as the group "g": partition 3, node 1
    assert producer.init()[0] == ErrorCode.NOT_COORDINATOR
    producer.connect(server[1])
    producer.begin()
    for node, code in ((2, ErrorCode.NOT_COORDINATOR), (1, ErrorCode.NONE)):
        producer.connect(server[node])
        assert producer.commit_offset("g", 7) == code
        assert next(iter(broker.transactions)).partitions == ((("__consumer_offsets", 3),) if node == 1 else ())
    assert producer.end(commit=True).error_code == 0
    assert committed(producer.connection, "g") == (7, 0)


@pytest.mark.kip848_broker(config={"default.replication.factor": "1"})
@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "hung"])
def test_the_end_of_a_transaction_waits_only_where_no_node_can_write_it(
    broker: EmbeddedBroker, at: At, raw_producer: MakeProducer, is_dead: bool
) -> None:
    """One dead node would hold up readers of all partitions, and the group's offsets; or its partition lacks the end,
    and readers of committed records wait there for ever."""
    server = {node.node_id: node.bootstrap_server for node in broker.nodes}
    name = next(f"tx-{n}" for n in range(100) if broker.nodes.coordinator(transactional_id=f"tx-{n}") == 1)
    producer = raw_producer(server[1], name)
    producer.begin()
    assert producer.produce(b"a").error_code == 0
    producer.connect(server[2])
    assert producer.produce(b"b", partition=1, sequence=0).error_code == 0
    producer.connect(server[1])
    assert producer.commit_offset("g", 7) == 0  # node 1 coordinates that group
    (broker.nodes.kill if is_dead else broker.nodes.pause)(2)
    assert producer.end(commit=True).error_code == 0
    assert values_in(fetched(at(1))) == [(0, b"a")]
    assert committed(producer.connection, "g") == (7, 0)
    assert len(broker.transactions.wait_for(name, "PrepareCommit").partitions) == 3
    (broker.nodes.start if is_dead else broker.nodes.resume)(2)
    assert broker.transactions.wait_for(name, "CompleteCommit").partitions == ()
    assert values_in(fetched(at(2), partition=1)) == [(0, b"b")]
    assert [broker.topics.offsets(TOPIC)[partition] for partition in (0, 1)] == [(0, 2), (0, 2)], (
        "one record and one marker"
    )


# --- nodes


def test_a_hung_node_answers_in_order_when_it_goes_on(broker: EmbeddedBroker, at: At) -> None:
    """Scenario 45. A node that is alive and says nothing is what clients need their time-outs for."""
    broker.nodes.pause(1)
    assert [node.state for node in broker.nodes] == ["paused", "running", "running"]
    connection = at(1)
    requests = [MetadataRequest(topics=()), ListGroupsRequest(), MetadataRequest(topics=None)]
    for request, version in zip(requests, (12, 5, 12), strict=True):
        connection.send(request, version=version)
    connection.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        connection.read_frame()
    connection.socket.settimeout(30)
    broker.nodes.resume(1)
    assert [type(connection.read(request)).__name__ for request in requests] == [
        "MetadataResponse",
        "ListGroupsResponse",
        "MetadataResponse",
    ]


def test_no_time_runs_out_at_a_hung_node() -> None:
    """A test of a coordinator that hangs would see members removed and transactions aborted, which a node that does
    nothing does not do. What waits for it counts as heard when it goes on; then it does what became due."""
    with EmbeddedBroker({TOPIC: 1}, nodes=3, clock=ManualClock()) as broker:
        name = next(f"tx-{n}" for n in range(100) if broker.nodes.coordinator(transactional_id=f"tx-{n}") == 1)
        server = broker.nodes[1].bootstrap_server  # it coordinates "g", too
        with RawConnection(server) as connection, begun(server, name) as producer:
            joins = [join_request(member_id=member, topics=(TOPIC,)) for member in ("heard", "silent")]
            epochs = {join.member_id: connection.ask(join, version=1).member_epoch for join in joins}
            assert producer.produce().error_code == 0
            broker.nodes.pause(1)
            broker.clock.advance(600_000)
            assert next(iter(broker.transactions)).state == "Ongoing"
            request = beat(epochs["heard"], member_id="heard")
            connection.send(request, version=1)
            broker.nodes.resume(1)
            assert connection.read(request).error_code == 0
            assert [each.member_id for each in broker.wait_for_group("g", members=1).members] == ["heard"]
            broker.transactions.wait_for(name, "CompleteAbort")


def test_no_time_runs_out_at_a_dead_node_that_the_others_have_not_noticed() -> None:
    """The next coordinator would know nothing of members that only the dead one has removed."""
    config = {"kip848.election.delay.ms": "100000"}
    with EmbeddedBroker({TOPIC: 1}, nodes=3, clock=ManualClock(), config=config) as broker:
        with RawConnection(broker.nodes[1].bootstrap_server) as connection:
            joined = heartbeat(connection, "g", epoch=0)
            assert joined.error_code == 0
        broker.nodes.kill(1)
        broker.clock.advance(90_000)
        broker.clock.advance(10_000)
        with RawConnection(broker.nodes[2].bootstrap_server) as connection:
            assert heartbeat(connection, "g", epoch=joined.member_epoch).error_code == 0


def test_a_node_that_is_shut_down_hands_over_first(broker: EmbeddedBroker, at: At) -> None:
    """An orderly restart would cost clients what a crash does."""
    idle = at(1)
    broker.nodes.stop(1)
    assert idle.is_closed_by_peer()
    assert (broker.nodes.coordinator(group="g"), broker.nodes.leader(TOPIC, 0)) == (2, 2)
    cluster = at(2).ask(DescribeClusterRequest(include_fenced_brokers=True), version=2)
    assert [(node.broker_id, node.is_fenced) for node in cluster.brokers] == [(1, True), (2, False), (3, False)]
    assert cluster.controller_id == 2
    assert len(at(2).ask(DescribeClusterRequest(), version=2).brokers) == 2


def test_a_rule_and_the_log_know_the_node(broker: EmbeddedBroker, at: At) -> None:
    """A fault of one node out of three, and a proof of who asked it, are what a test of fail-over is made of."""
    broker.faults.on("Metadata", error(ErrorCode.REQUEST_TIMED_OUT), node_id=2)
    codes = [at(node).ask(MetadataRequest(topics=()), version=13).error_code for node in NODES]
    assert codes == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
    assert [logged.node_id for logged in broker.requests.of("Metadata")] == [1, 2, 3]
    assert len(broker.requests.of("Metadata", node_id=3)) == 1


def test_what_cannot_be_done_to_a_node_is_refused_with_its_reason(broker: EmbeddedBroker) -> None:
    """A test would go on with a cluster that is not in the state that it believes."""
    with pytest.raises(IllegalStateError, match=r"there is no node 4; nodes are \[1, 2, 3\]"):
        broker.nodes.kill(4)
    with pytest.raises(IllegalStateError, match="node 1 is already running"):
        broker.nodes.start(1)
    with pytest.raises(IllegalStateError, match="node 1 is not paused: it is running"):
        broker.nodes.resume(1)
    broker.nodes.kill(1)
    with pytest.raises(IllegalStateError, match=r"node 1 is not running; nodes\.start\(1\) starts it"):
        broker.nodes.move_leader(TOPIC, 0, 1)
    with EmbeddedBroker() as single, pytest.raises(IllegalStateError, match="has a single node"):
        single.nodes.kill(1)
    for arguments in ({"nodes": 0}, {"nodes": 3, "racks": ("a",)}, {"nodes": 3, "port": 65534}):
        with pytest.raises(ConfigError):
            EmbeddedBroker(**arguments)


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_a_restart_of_the_whole_cluster_keeps_ports_leaders_and_groups(tmp_path: Path, durable: bool) -> None:
    """A process that is started again would be another cluster to its clients."""

    def made() -> EmbeddedBroker:
        return EmbeddedBroker({TOPIC: 3}, nodes=3, config=REPLICAS_2, data_dir=tmp_path / "data" if durable else None)

    broker = made()
    with broker:
        broker.nodes.kill(2)
        broker.nodes.start(2)
        broker.nodes.move_coordinator(group="g", to=3)
        with RawConnection(broker.nodes[3].bootstrap_server) as connection:
            heartbeat(connection, "g", epoch=0)
            assert produced(connection, 1) == 0
        servers = broker.bootstrap_servers
    again = made() if durable else broker
    with again:
        assert durable or again.bootstrap_servers == servers
        assert [again.nodes.leader(TOPIC, number) for number in range(3)] == [1, 3, 3]
        assert again.nodes.coordinator(group="g") == 3
        group = again.wait_for_group("g")
        assert len(group.members) == 1
        with RawConnection(again.nodes[3].bootstrap_server) as connection:
            partitions = connection.call(ApiKey.METADATA, 12, topics=[{"name": TOPIC}]).topics[0].partitions
        assert [partition.leader_epoch for partition in partitions] == [1, 2, 1]
        again.nodes.kill(3)
        assert again.nodes.leader(TOPIC, 1) == 2


def test_a_folder_of_several_nodes_serves_a_single_one_and_the_other_way_round(tmp_path: Path) -> None:
    """A folder would be lost for trying out another size of the cluster."""
    for nodes in (3, 1, 2):
        with EmbeddedBroker(nodes=nodes, data_dir=tmp_path) as broker:
            if TOPIC not in broker.topics:
                broker.topics.create(TOPIC, 3)
            leaders = {broker.nodes.leader(TOPIC, number) for number in range(3)}
            assert leaders == set(range(1, nodes + 1))
            coordinator = broker.nodes.coordinator(group="g")
            address = f"127.0.0.1:{broker._ports[coordinator][0]}"
            with RawConnection(address) as connection:
                assert heartbeat(connection, "g", epoch=0).error_code == 0


def test_transactions_end_after_a_folder_was_served_by_fewer_nodes(tmp_path: Path, raw_producer: MakeProducer) -> None:
    """The partition would refuse the end that a coordinator with a smaller epoch writes, and readers wait for ever."""
    for nodes in (3, 2, 1):
        with EmbeddedBroker(nodes=nodes, data_dir=tmp_path) as broker:
            if TOPIC not in broker.topics:
                broker.topics.create(TOPIC)
            for to in (2, 1, 2, 1) if nodes == 3 else ():
                broker.nodes.move_coordinator(transactional_id="tx", to=to)
            producer = raw_producer(broker.nodes[1].bootstrap_server, "tx")
            producer.begin()
            assert producer.produce(b"a").error_code == 0
            assert producer.end(commit=True).error_code == 0
            broker.transactions.wait_for("tx", "CompleteCommit")


@pytest.mark.kip848_broker(topics={TOPIC: 1}, nodes=3, config={"kip848.groups.max": "2", "kip848.members.max": "3"})
def test_the_nodes_of_a_cluster_share_the_limits_of_groups_and_members(broker: EmbeddedBroker, at: At) -> None:
    """A client that makes up group ids would get as many groups for each partition as it should get in all."""

    def coordinator_of(group: str) -> RawConnection:
        return at(broker.nodes.coordinator(group=group))

    for member in ("a", "b", "c"):
        assert coordinator_of("g").ask(join_request(member, topics=(TOPIC,)), version=1).error_code == ErrorCode.NONE
    refused = coordinator_of("h").ask(join_request("d", group="h", topics=(TOPIC,)), version=1)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit_offset(coordinator_of("h"), 1, group="h", topic=TOPIC) == ErrorCode.NONE
    assert commit_offset(coordinator_of("i"), 1, group="i", topic=TOPIC) == ErrorCode.POLICY_VIOLATION
