"""ShareFetch and ShareAcknowledge over the wire: sessions, waiting, locks, and what survives a node."""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.errors import ErrorCode, RequestTimeoutError
from kip848_client.testing.broker.dispatch import Dispatcher
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.faults import lose_reply
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import message
from kip848_client.wire.api_keys import ApiKey
from tests.support.waiting import SOON_S, wait_until

TOPIC, GROUP = "jobs", "workers"
ACCEPT, RELEASE, REJECT = 1, 2, 3

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 1})


def prepare(broker: EmbeddedBroker, *, start_offset: int = 0, state_epoch: int = 1, topic: str = TOPIC) -> uuid.UUID:
    """Let the group read the topic from an offset, as the first heartbeat of a member does."""

    def initialize(state: BrokerState) -> uuid.UUID:
        found = state.topics.find(topic)
        state.shares.initialize(GROUP, found.topic_id, 0, state_epoch=state_epoch, start_offset=start_offset)
        return found.topic_id

    return broker._on_loop(initialize)


@pytest.fixture
def topic_id(broker: EmbeddedBroker) -> uuid.UUID:
    for number in range(10):
        broker.produce(TOPIC, f"job {number}")
    return prepare(broker)


class Worker:
    """A member of the group, on a connection of its own, that reads one partition."""

    def __init__(self, broker: EmbeddedBroker, topic_id: uuid.UUID, member_id: str) -> None:
        node = broker.nodes[broker.nodes.leader(TOPIC, 0)]
        self.connection = RawConnection(f"{node.host}:{node.port}")
        self.topic_id, self.member_id, self.epoch = topic_id, member_id, 0

    def fetch(self, *acknowledged: tuple[int, int, int], **fields: Any) -> Any:
        self.send(*acknowledged, **fields)
        return self.read()

    def send(self, *acknowledged: tuple[int, int, int], version: int = 2, **fields: Any) -> None:
        self.request = share_fetch(self, acknowledged, fields)
        self.epoch = max(self.epoch, fields.get("share_session_epoch", self.epoch)) + 1
        self.connection.send(self.request, version=version)

    def read(self) -> Any:
        return self.connection.read(self.request)

    def take(self, *acknowledged: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        """What a fetch acquires: first and last offset, and delivery count."""
        return acquired(self.fetch(*acknowledged, **fields))

    def acknowledge(self, *said: tuple[int, int, int], epoch: int | None = None, version: int = 2) -> Any:
        answer = self.connection.call(
            ApiKey.SHARE_ACKNOWLEDGE,
            version,
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[{"topic_id": self.topic_id, "partitions": [{"acknowledgement_batches": batches(said)}]}],
        )
        self.epoch += 1
        return answer


def share_fetch(worker: Worker, acknowledged: tuple[tuple[int, int, int], ...], fields: dict[str, Any]) -> Any:
    partition = {"partition_index": 0, "acknowledgement_batches": batches(acknowledged)}
    return message(
        ApiKey.SHARE_FETCH,
        {
            "group_id": GROUP,
            "member_id": worker.member_id,
            "share_session_epoch": worker.epoch,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": [{"topic_id": worker.topic_id, "partitions": [partition]}],
        }
        | fields,
    )


def batches(said: tuple[tuple[int, int, int], ...]) -> list[dict[str, Any]]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in said]


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def shown(broker: EmbeddedBroker) -> Any:
    (partition,) = broker.shares.partitions(GROUP)
    return partition


@pytest.fixture
def worker(broker: EmbeddedBroker, topic_id: uuid.UUID) -> Iterator[Worker]:
    worker = Worker(broker, topic_id, "worker-1")
    yield worker
    worker.connection.close()


@pytest.fixture
def other(broker: EmbeddedBroker, topic_id: uuid.UUID) -> Iterator[Worker]:
    other = Worker(broker, topic_id, "worker-2")
    yield other
    other.connection.close()


def test_a_member_gets_records_and_acknowledges_them_on_its_next_fetch(broker: EmbeddedBroker, worker: Worker) -> None:
    """The way of every worker: fetch, work, and say so with the next fetch."""
    answer = worker.fetch()
    assert acquired(answer) == [(0, 9, 1)]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert len(answer.responses[0].partitions[0].records) > 0
    again = worker.fetch((0, 9, ACCEPT))
    assert again.responses[0].partitions[0].acknowledge_error_code == 0
    assert shown(broker).start_offset == 10


def test_a_member_beyond_its_quota_is_throttled_and_keeps_its_records(broker: EmbeddedBroker, worker: Worker) -> None:
    """Records that are locked for a member, and then not sent, would wait for the end of their lock."""
    broker.quotas.set(user="<default>", consumer_byte_rate=1)
    answer = worker.fetch()
    assert answer.throttle_time_ms > 0
    assert acquired(answer) == [(0, 0, 1)]  # at least a record


def test_a_waiting_fetch_is_answered_by_a_produce(broker: EmbeddedBroker, worker: Worker) -> None:
    """An idle worker gets the next job at once, and not at the end of its wait."""
    worker.take()
    worker.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    broker.produce(TOPIC, "one more")
    assert acquired(worker.read()) == [(10, 10, 1)]


def test_a_waiting_fetch_is_answered_by_a_release(broker: EmbeddedBroker, worker: Worker, other: Worker) -> None:
    """A job that one worker gives back goes to another that waits."""
    worker.take()
    other.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    worker.acknowledge((4, 5, RELEASE))
    assert acquired(other.read()) == [(4, 5, 2)]


def test_the_death_of_a_connection_frees_its_records(broker: EmbeddedBroker, worker: Worker, other: Worker) -> None:
    """The jobs of a worker that crashed are not lost until the lock ends."""
    worker.take()
    other.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    worker.connection.close()
    assert acquired(other.read()) == [(0, 9, 2)]


def test_the_last_request_of_a_session_frees_its_records(worker: Worker, other: Worker) -> None:
    """A worker that stops gives back what it did not finish."""
    worker.take()
    assert worker.acknowledge((0, 2, ACCEPT), epoch=-1).error_code == 0
    assert other.take() == [(3, 9, 2)]
    assert worker.acknowledge((3, 3, ACCEPT)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.kip848_broker(topics={TOPIC: 1}, clock=ManualClock())
def test_a_lock_ends_on_the_clock_of_the_broker(broker: EmbeddedBroker, worker: Worker, other: Worker) -> None:
    """A test of a worker that hangs moves the clock instead of waiting for half a minute."""
    worker.take()
    assert shown(broker).in_flight[0].owner == "worker-1"
    broker.clock.advance(30_000)
    assert other.take() == [(0, 9, 2)]
    answer = worker.acknowledge((0, 9, ACCEPT))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_sessions_refuse_what_does_not_follow(worker: Worker) -> None:
    """A client that lost count opens a new session; a broker that guesses would lose acknowledgements."""
    assert worker.fetch(share_session_epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    worker.epoch = 0
    assert worker.fetch((0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST
    worker.epoch = 0
    worker.take()
    assert worker.acknowledge(epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.fetch(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert worker.fetch(group_id=None).error_code == ErrorCode.INVALID_REQUEST
    assert worker.fetch(member_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.kip848_broker(topics={TOPIC: 1}, config={"group.share.max.share.sessions": 1})
def test_a_node_has_a_limit_of_sessions(worker: Worker, other: Worker) -> None:
    worker.take()
    assert other.fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_partition_that_no_member_joined_for_has_no_state(broker: EmbeddedBroker) -> None:
    """As Kafka: only the heartbeat of a member makes the state that a fetch needs."""
    topic = broker._on_loop(lambda state: state.topics.find(TOPIC))
    worker = Worker(broker, topic.topic_id, "worker-1")
    (answered,) = worker.fetch().responses
    assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    unknown = Worker(broker, uuid.uuid4(), "worker-2")
    (answered,) = unknown.fetch().responses
    assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for each in (worker, unknown):
        each.connection.close()


def test_a_new_start_fences_the_records_in_flight(broker: EmbeddedBroker, topic_id: uuid.UUID, worker: Worker) -> None:
    """After an operator has reset the group, nothing that was fetched before may count."""
    worker.take()
    broker._on_loop(lambda state: state.shares.initialize(GROUP, topic_id, 0, state_epoch=2, start_offset=5))
    answer = worker.acknowledge((0, 9, ACCEPT))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert worker.take() == [(5, 9, 1)]


def test_a_topic_that_is_created_again_begins_anew(broker: EmbeddedBroker, worker: Worker) -> None:
    """Offsets of the old topic say nothing about the new one."""
    worker.take()
    broker.topics.delete(TOPIC)
    assert broker.shares.partitions(GROUP) == ()
    broker.topics.create(TOPIC, 1)
    broker.produce(TOPIC, "new")
    fresh = Worker(broker, prepare(broker), "worker-1")
    assert fresh.take() == [(0, 0, 1)]
    fresh.connection.close()


def test_records_deleted_by_retention_are_skipped(broker: EmbeddedBroker, worker: Worker) -> None:
    broker._on_loop(lambda state: state.topics.delete_records(state.topics.find(TOPIC), 0, 6))
    assert worker.take() == []
    assert worker.take() == [(6, 9, 1)]


def test_accepted_records_stay_accepted_after_a_restart(tmp_path: Path) -> None:
    """A broker that forgets makes all workers do all jobs again."""
    with EmbeddedBroker({TOPIC: 1}, data_dir=tmp_path) as broker:
        for number in range(10):
            broker.produce(TOPIC, f"job {number}")
        topic_id = prepare(broker)
        before = Worker(broker, topic_id, "worker-1")
        before.take()
        before.acknowledge((2, 4, ACCEPT))
        before.acknowledge((7, 7, RELEASE))
    before.connection.close()
    with EmbeddedBroker({TOPIC: 1}, data_dir=tmp_path) as broker:
        after = Worker(broker, topic_id, "worker-1")
        assert after.take() == [(0, 1, 1), (5, 6, 1), (7, 7, 2), (8, 9, 1)]
        after.connection.close()


@pytest.mark.kip848_broker(topics={TOPIC: 1}, nodes=2)
def test_the_next_leader_knows_what_was_accepted(
    broker: EmbeddedBroker, topic_id: uuid.UUID, worker: Worker, other: Worker
) -> None:
    """A node dies with records in hand: its successor delivers them, and none that was accepted."""
    worker.take()
    worker.acknowledge((0, 4, ACCEPT))
    other.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    broker.nodes.kill(broker.nodes.leader(TOPIC, 0))
    survivor = Worker(broker, topic_id, "worker-1")
    assert survivor.take() == [(5, 9, 1)]
    survivor.connection.close()


@pytest.mark.kip848_broker(topics={TOPIC: 1}, nodes=2)
def test_a_member_that_asks_another_node_learns_the_leader(
    broker: EmbeddedBroker, topic_id: uuid.UUID, worker: Worker
) -> None:
    """A leader that moves must not cost a worker its half minute."""
    worker.take()
    old = broker.nodes.leader(TOPIC, 0)
    new = next(node.node_id for node in broker.nodes if node.node_id != old)
    broker.nodes.move_leader(TOPIC, 0, to=new)
    answer = worker.fetch()
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, new)
    assert [node.node_id for node in answer.node_endpoints] == [new]


def test_the_test_kit_shows_the_records_in_flight_and_ends_their_locks(
    broker: EmbeddedBroker, worker: Worker, other: Worker
) -> None:
    """A test of a worker that hangs needs to see who has what, and must not wait for half a minute."""
    worker.take(max_records=3, share_acquire_mode=1)
    (partition,) = broker.shares.partitions(GROUP)
    assert (partition.start_offset, partition.end_offset, partition.unfinished) == (0, 3, 10)
    (held,) = partition.in_flight
    assert (held.first_offset, held.last_offset, held.owner, held.delivery_count) == (0, 2, "worker-1", 1)
    assert held.lock_deadline_ms is not None
    assert broker.shares.expire_record_locks(GROUP, TOPIC, 0) == 3
    assert other.take() == [(0, 2, 2), (3, 9, 1)]
    other.acknowledge((0, 9, ACCEPT))
    (done,) = broker.shares.wait_for(GROUP, lambda partitions: partitions[0].unfinished == 0)
    assert done.start_offset == 10
    with pytest.raises(RequestTimeoutError, match="all released"):
        broker.shares.wait_for(GROUP, lambda partitions: False, what="all released", timeout_s=0.01)


def test_an_acknowledgement_whose_answer_was_lost_counts_once(
    broker: EmbeddedBroker, worker: Worker, other: Worker
) -> None:
    """The case that people fear: the job is done, the worker does not know it, and it must not be done again."""
    worker.take()
    broker.faults.on("ShareAcknowledge", lose_reply(), times=1)
    with pytest.raises(EOFError):
        worker.acknowledge((0, 4, ACCEPT))
    assert other.take() == [(5, 9, 2)]


def test_a_record_that_is_rejected_goes_to_the_dead_letter_topic(broker: EmbeddedBroker, worker: Worker) -> None:
    """An operator finds the poison job there, and why it was given up (KIP-1191)."""
    broker.topics.create("dlq.jobs", 1, configs={"errors.deadletterqueue.group.enable": "true"})
    names = {"errors.deadletterqueue.topic.name": "dlq.jobs", "errors.deadletterqueue.copy.record.enable": "true"}
    broker.groups.set_config(GROUP, names)
    worker.take()
    worker.acknowledge((0, 2, ACCEPT), (3, 3, REJECT), (4, 9, ACCEPT))
    (dead,) = broker.records("dlq.jobs")
    assert dead.value == b"job 3"
    assert dict(dead.headers) == {
        "__dlq.errors.topic": b"jobs",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"3",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    assert shown(broker).start_offset == 10


def test_waiting_for_a_group_notices_records_and_its_operator(broker: EmbeddedBroker, topic_id: uuid.UUID) -> None:
    """A test that waits for work to come, or for a start to be moved, must not wait for its time-out."""
    looked: list[int] = []

    def wait_for(unfinished: int) -> concurrent.futures.Future[Any]:
        def has(partitions: tuple[Any, ...]) -> bool:
            looked.append(sum(each.unfinished for each in partitions))
            return looked[-1] == unfinished

        return pool.submit(broker.shares.wait_for, GROUP, has)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        more = wait_for(11)
        wait_until(lambda: looked)
        broker.produce(TOPIC, "one more")
        more.result(SOON_S)
        looked.clear()
        fewer = wait_for(4)
        wait_until(lambda: looked)
        prepare(broker, start_offset=7, state_epoch=2)
        fewer.result(SOON_S)


def test_a_dead_letter_that_no_topic_takes_is_archived(broker: EmbeddedBroker, worker: Worker) -> None:
    """A missing topic must not stop the group at a poison record."""
    broker.groups.set_config(GROUP, {"errors.deadletterqueue.topic.name": "dlq.missing"})
    worker.take()
    worker.acknowledge((0, 9, REJECT))
    assert shown(broker).start_offset == 10
    assert "dlq.missing" not in broker.topics


def test_topics_for_dead_letters_are_made_once_that_is_switched_on(broker: EmbeddedBroker, worker: Worker) -> None:
    """An operator switches it on while groups run, under a name of the company."""
    changes = {
        "errors.deadletterqueue.auto.create.topics.enable": "true",
        "errors.deadletterqueue.topic.name.prefix": "lost.",
    }
    with RawConnection(broker.bootstrap_servers) as connection:
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in changes.items()]
        everywhere = {"resource_type": 4, "resource_name": "", "configs": configs}
        (answer,) = connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[everywhere]).responses
    assert answer.error_code == ErrorCode.NONE
    broker.groups.set_config(GROUP, {"errors.deadletterqueue.topic.name": "lost.jobs"})
    worker.take()
    worker.acknowledge((0, 9, REJECT))
    assert len(broker.records("lost.jobs")) == 10


def test_dead_letters_that_are_large_together_or_alone_are_written(broker: EmbeddedBroker, topic_id: uuid.UUID) -> None:
    """The dead letters of a whole fetch must not be lost because one batch has no room for them, or for one of them."""
    small = {"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "3000"}
    broker.topics.create("dlq.jobs", configs=small)
    names = {"errors.deadletterqueue.topic.name": "dlq.jobs", "errors.deadletterqueue.copy.record.enable": "true"}
    broker.groups.set_config(GROUP, names)
    for size in (1_000, 9_000, 1_000, 1_000):
        broker.produce(TOPIC, "x" * size)
    worker = Worker(broker, topic_id, "worker-1")
    worker.take()
    worker.acknowledge((0, 13, REJECT))
    offsets = [int(dict(each.headers)["__dlq.errors.offset"] or b"") for each in broker.records("dlq.jobs")]
    assert offsets == [*range(11), 12, 13]
    worker.connection.close()


def test_a_dead_letter_topic_needs_the_prefix_of_the_cluster(broker: EmbeddedBroker, worker: Worker) -> None:
    """On Kafka a topic with another name takes no dead letters: a test that sees them promises what is lost there."""
    broker.topics.create("dead", configs={"errors.deadletterqueue.group.enable": "true"})
    broker.groups.set_config(GROUP, {"errors.deadletterqueue.topic.name": "dead"})
    worker.take()
    worker.acknowledge((0, 9, REJECT))
    assert shown(broker).start_offset == 10
    assert not broker.records("dead")


def test_a_group_that_reads_committed_records_waits_for_the_transaction(
    broker: EmbeddedBroker, topic_id: uuid.UUID
) -> None:
    """A worker must not begin a job that may be taken back, nor do one that was."""
    broker.groups.set_config(GROUP, {"share.isolation.level": "read_committed"})
    worker = Worker(broker, topic_id, "worker-1")
    producers = [Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}) for name in "ab"]
    for producer in producers:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, b"in a transaction")
        producer.flush()
    assert worker.take() == [(0, 9, 1)]
    worker.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    producers[0].abort_transaction()
    assert acquired(worker.read()) == []  # what there is was taken back
    worker.send(max_wait_ms=30_000)
    producers[1].commit_transaction()
    assert acquired(worker.read()) == [(11, 13, 1)]  # the record that counts, and the two ends
    assert [(each.first_offset, each.state.name) for each in shown(broker).in_flight][1] == (10, "ARCHIVED")
    worker.connection.close()


def test_the_end_of_a_transaction_is_no_unfinished_job(broker: EmbeddedBroker, topic_id: uuid.UUID) -> None:
    """librdkafka says nothing about it as long as no record follows: a test that waits for all jobs would not end."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "a"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction")
    producer.commit_transaction()
    assert shown(broker).unfinished == 11
    worker = Worker(broker, topic_id, "worker-1")
    assert worker.take() == [(0, 11, 1)]
    worker.acknowledge((0, 10, ACCEPT))
    assert shown(broker).unfinished == 0
    worker.acknowledge((11, 11, 0))
    assert shown(broker).unfinished == 0
    worker.connection.close()


@pytest.mark.kip848_broker(topics={TOPIC: 1}, nodes=2)
def test_a_fetch_waits_where_the_log_lost_records_that_are_done_with(
    broker: EmbeddedBroker, topic_id: uuid.UUID
) -> None:
    """After an unclean election workers must not ask thousands of times a second for records that are not there yet."""
    worker = Worker(broker, topic_id, "worker-1")
    assert worker.take() == [(0, 9, 1)]
    worker.acknowledge((0, 9, ACCEPT))
    worker.connection.close()
    broker.nodes.move_leader(TOPIC, 0, 3 - broker.nodes.leader(TOPIC, 0), lose_records=5)
    worker = Worker(broker, topic_id, "worker-1")
    worker.send(max_wait_ms=30_000)
    wait_until(lambda: broker._on_loop(lambda state: len(state.topics.watchers)) == 1)
    broker.produce_many(TOPIC, ["written again"] * 5)
    assert broker._on_loop(lambda state: len(state.topics.watchers)) == 1
    broker.produce(TOPIC, "new")
    assert acquired(worker.read()) == [(10, 10, 1)]
    worker.connection.close()


@pytest.mark.kip848_broker(topics={TOPIC: 3})
def test_others_are_served_between_the_partitions_of_a_large_acknowledgement(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with thousands of records in hand must not cost the others their sessions."""
    monkeypatch.setattr("kip848_client.testing.broker.dispatch._SLICE_S", 0.0)
    turns = 0
    go_on = Dispatcher._go_on

    def counted(*arguments: Any) -> None:
        nonlocal turns
        turns += 1
        go_on(*arguments)

    monkeypatch.setattr(Dispatcher, "_go_on", counted)
    topic_id = prepare(broker)
    named = [{"partition_index": n, "acknowledgement_batches": batches(((0, 0, ACCEPT),))} for n in range(3)]
    worker = Worker(broker, topic_id, "worker")
    with worker.connection as connection:
        worker.fetch(max_wait_ms=0)
        for api, version in ((ApiKey.SHARE_ACKNOWLEDGE, 2), (ApiKey.SHARE_FETCH, 2)):
            turns = 0
            connection.call(
                api,
                version,
                group_id=GROUP,
                member_id="worker",
                share_session_epoch=worker.epoch,
                topics=[{"topic_id": topic_id, "partitions": named}],
            )
            worker.epoch += 1
            assert turns == 3
