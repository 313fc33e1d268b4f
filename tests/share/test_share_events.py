"""What happens around a share consumer: leaders that move, topics that come again, limits, permissions, forks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import anyio
import confluent_kafka
import msgspec
import pytest

from kip848_client import AcknowledgeType, AsyncShareConsumer, BrokerError, EmbeddedBroker, ShareConsumer, ShareMessage
from kip848_client.errors import DeserializationError, FatalGroupError, IllegalStateError, Kip848Error
from kip848_client.member.share.held_records import AcquiredRecord, HeldRecords
from kip848_client.share.core import ShareCore
from kip848_client.testing import ALWAYS, BrokerSasl, BrokerTls, SharePartitionSnapshot, close, lose_reply, rewrite
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.record_batch import Record
from tests.security.certificates import Authority, Identity
from tests.security.conftest import authority, server_identity
from tests.support.telemetry_sdk import sdk_in_memory
from tests.support.waiting import SOON_S, wait_until
from tests.support.work import lines_run, traced

__all__ = ["authority", "server_identity"]

EARLIEST = {"share.auto.offset.reset": "earliest"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"mails": 1}) as made:
        made.groups.set_config("g", EARLIEST)
        yield made


def explicit(broker: EmbeddedBroker, **settings: Any) -> ShareConsumer[Any, Any]:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "share.acknowledgement.mode": "explicit"}
    consumer: ShareConsumer[Any, Any] = ShareConsumer({**conf, **settings})
    consumer.subscribe(["mails"])
    return consumer


def all_done(partitions: tuple[SharePartitionSnapshot, ...]) -> bool:
    return bool(partitions) and all(each.unfinished == 0 for each in partitions)


def read_all(consumer: ShareConsumer[Any, Any], count: int) -> list[bytes]:
    """Read and accept that many different records; one whose leader dies may come twice."""
    values: list[bytes] = []

    def enough() -> bool:
        for message in consumer.poll(0.1):
            values.append(message.value())
            with contextlib.suppress(IllegalStateError):  # its leader died, and it has come again already
                consumer.acknowledge(message)
        return len(set(values)) >= count

    wait_until(enough, what=f"{count} records")
    consumer.commit()
    return values


def test_a_test_that_waits_hears_of_a_group_that_begins_at_the_end(broker: EmbeddedBroker) -> None:
    """All is done there, and nothing follows that would have it looked at again."""
    broker.groups.set_config("g", {"share.auto.offset.reset": "latest"})
    broker.produce("mails", "old")
    looked = threading.Event()

    def is_done(partitions: tuple[SharePartitionSnapshot, ...]) -> bool:
        looked.set()
        return all_done(partitions)

    with ThreadPoolExecutor(1) as pool, explicit(broker) as consumer:
        waiting = pool.submit(broker.shares.wait_for, "g", is_done, timeout_s=SOON_S)
        assert looked.wait(SOON_S)
        wait_until(lambda: consumer.poll(0.1) == [] and waiting.done(), what="the wait")
    (partition,) = waiting.result()
    assert partition.start_offset == 1


def test_there_may_be_more_workers_than_partitions(broker: EmbeddedBroker) -> None:
    """In a consumer group the others would have nothing to do."""
    broker.produce_many("mails", [str(number) for number in range(5)])
    workers = [explicit(broker, **{"max.poll.records": 1, "share.acquire.mode": "record_limit"}) for _ in range(5)]
    try:
        values = {message.value() for worker in workers for message in worker.consume(1, SOON_S)}
        assert len(values) == 5
    finally:
        for worker in workers:
            worker.close()


def test_a_record_in_hand_survives_neither_its_leader_nor_is_it_lost() -> None:
    """After a move the new leader delivers it again: the acknowledgement of the old delivery must not be believed."""
    with EmbeddedBroker({"mails": 1}, nodes=3) as broker:
        broker.groups.set_config("g", EARLIEST)
        broker.produce("mails", "a")
        with explicit(broker) as consumer:
            (held,) = consumer.poll(SOON_S)
            before = broker.nodes.leader("mails", 0)
            broker.nodes.move_leader("mails", 0, to=before % 3 + 1)
            with contextlib.suppress(IllegalStateError):  # it may have come again already
                consumer.acknowledge(held)
            assert None not in consumer.commit().values()
            (again,) = consumer.poll(SOON_S)
            assert again.value() == b"a"
            consumer.acknowledge(again)
            assert set(consumer.commit().values()) == {None}


def test_a_killed_leader_costs_no_record() -> None:
    """A rolling restart of the brokers would lose jobs."""
    with EmbeddedBroker({"mails": 6}, nodes=3) as broker:
        broker.groups.set_config("g", EARLIEST)
        broker.produce_many("mails", [str(number) for number in range(60)])
        with explicit(broker, **{"bootstrap.servers": ",".join(broker.all_bootstrap_servers)}) as consumer:
            first = read_all(consumer, 10)
            broker.nodes.kill(broker.nodes.leader("mails", 0))
            assert {int(value) for value in first + read_all(consumer, 60 - len(set(first)))} == set(range(60))


def test_a_topic_that_is_created_again_is_read(broker: EmbeddedBroker) -> None:
    """It has another id: the session with the old one must not stay."""
    broker.produce("mails", "old")
    with explicit(broker) as consumer:
        assert read_all(consumer, 1) == [b"old"]
        broker.topics.recreate("mails")
        broker.produce("mails", "new")
        assert read_all(consumer, 1) == [b"new"]


def test_a_topic_that_does_not_exist_is_named(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """After a slip of the pen a worker would wait for jobs for ever, and nothing would tell why."""
    with explicit(broker) as consumer:
        consumer.subscribe(["mails", "mials"])
        wait_until(lambda: "consumer.topics_missing" in caplog.text, what="a line in the log")
        assert "topics=mials" in caplog.text


def test_a_topic_that_is_no_longer_subscribed_to_is_not_named(broker: EmbeddedBroker) -> None:
    """The answer about the subscription before came late, and its topic stayed missing for ever."""
    with explicit(broker) as consumer:
        consumer._core.host._tell_missing(frozenset({"mials"}), frozenset({"mials"}))
        assert consumer.health().missing_topics == ()


def test_a_deleted_topic_is_named_until_it_is_there_again(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker would wait for jobs for ever. Metadata may fail meanwhile."""
    broker.produce("mails", "old")
    with explicit(broker) as consumer:
        assert read_all(consumer, 1) == [b"old"]
        broker.faults.on("Metadata", close(), times=2)
        broker.topics.delete("mails")
        wait_until(lambda: consumer.health().missing_topics == ("mails",), what="a missing topic")
        wait_until(lambda: "consumer.topics_missing" in caplog.text, what="a line in the log")
        assert caplog.text.count("consumer.topics_missing") == 1
        broker.topics.create("mails", partitions=1)
        broker.produce("mails", "new")
        assert read_all(consumer, 1) == [b"new"]
        wait_until(lambda: consumer.health().missing_topics == (), what="no missing topic")


def test_new_partitions_are_read(broker: EmbeddedBroker) -> None:
    """A queue that grows would have jobs that nobody does."""
    with explicit(broker) as consumer:
        consumer.poll(0)
        broker.wait_for_group("g", members=1)
        broker.topics.add_partitions("mails", 3)
        broker.produce_many("mails", [str(number) for number in range(30)])
        assert len(set(read_all(consumer, 30))) == 30


def test_compacted_records_are_passed_over() -> None:
    """Offsets without a record would be delivered until their last delivery, and hold the partition up."""
    with EmbeddedBroker() as broker:
        broker.groups.set_config("g", EARLIEST)
        broker.topics.create("mails", partitions=1, configs={"cleanup.policy": "compact"})
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            producer.produce("mails", str(number), key=str(number % 3))
        producer.flush(SOON_S)
        broker.topics.compact("mails")
        with explicit(broker) as consumer:
            assert b"19" in read_all(consumer, 3)
            broker.shares.wait_for("g", all_done)


@pytest.mark.parametrize(("isolation", "count"), [("read_committed", 1), ("read_uncommitted", 2)])
def test_the_group_says_whether_aborted_records_are_read(broker: EmbeddedBroker, isolation: str, count: int) -> None:
    """Jobs of a transaction that was rolled back would be done."""
    broker.groups.set_config("g", {**EARLIEST, "share.isolation.level": isolation})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(SOON_S)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("mails", value)
        producer.flush(SOON_S)
        end(SOON_S)
    with explicit(broker) as consumer:
        values = read_all(consumer, count)
        broker.shares.wait_for("g", all_done)
    assert values[-1] == b"committed"
    assert len(values) == count


def test_a_record_that_cannot_be_read_is_rejected(broker: EmbeddedBroker) -> None:
    """Each worker would fail of it in turn."""
    broker.produce_many("mails", ["bad", "good"])

    def number(data: bytes, context: object) -> str:
        del context
        if data == b"bad":
            raise ValueError("no number")
        return data.decode()

    with explicit(broker, **{"value.deserializer": number}) as consumer:
        with pytest.raises(DeserializationError):
            consumer.poll(SOON_S)
        (good,) = consumer.poll(SOON_S)
        assert good.value() == "good"
        consumer.acknowledge(good)
        consumer.commit()
        broker.shares.wait_for("g", all_done)


def test_a_member_without_room_for_a_session_waits_for_one(caplog: pytest.LogCaptureFixture) -> None:
    """It is told in the log, and reads as soon as another member has left."""
    with EmbeddedBroker({"mails": 1}, config={"group.share.max.share.sessions": 1}) as broker:
        broker.groups.set_config("g", EARLIEST)
        with explicit(broker) as one, explicit(broker) as two:
            wait_until(lambda: one.poll(0.05) == [] and bool(broker.requests.of("ShareFetch")))
            wait_until(lambda: two.poll(0.05) == [] and "share.leader_refuses" in caplog.text, what="a line in the log")
            one.close()
            broker.produce("mails", "a")
            assert read_all(two, 1) == [b"a"]


def test_a_lost_answer_may_count_or_not(broker: EmbeddedBroker) -> None:
    """The one that was not applied comes again; the other does not."""
    broker.produce("mails", "a")
    with explicit(broker) as consumer:
        (message,) = consumer.poll(SOON_S)
        broker.faults.on("ShareAcknowledge", close(), times=1)
        consumer.acknowledge(message)
        (error,) = consumer.commit().values()
        assert isinstance(error, Kip848Error)
        assert not isinstance(error, BrokerError)
        (again,) = consumer.poll(SOON_S)  # it was not applied
        broker.faults.on("ShareAcknowledge", lose_reply(), times=1)
        consumer.acknowledge(again)
        consumer.commit()
        broker.shares.wait_for("g", all_done)


def test_a_renewal_that_the_group_forbids_is_refused(broker: EmbeddedBroker) -> None:
    """The handler must know that its lock ends."""
    broker.groups.set_config("g", {**EARLIEST, "share.renew.acknowledge.enable": "false"})
    broker.produce("mails", "a")
    with explicit(broker) as consumer:
        (message,) = consumer.poll(SOON_S)
        consumer.acknowledge(message, AcknowledgeType.RENEW)
        (error,) = consumer.commit().values()
        assert isinstance(error, BrokerError)


def test_many_in_hand_are_given_back_in_one_request(broker: EmbeddedBroker) -> None:
    """One request for each of 1,000 records would make a deploy slow."""
    broker.produce_many("mails", [str(number) for number in range(1_000)])
    consumer = explicit(broker, **{"max.poll.records": 1_000})
    held = len(consumer.poll(SOON_S))

    def all_in_hand() -> bool:
        nonlocal held
        if held < 1_000:  # poll() would ask for acknowledgements of the first ones
            consumer._core.want(1_000 - held)
            held += len(consumer._core.take(1_000 - held))
        return held == 1_000

    wait_until(all_in_hand)
    before = len(broker.requests.of("ShareAcknowledge"))
    consumer.close()
    assert len(broker.requests.of("ShareAcknowledge")) == before + 1
    (partition,) = broker.shares.partitions("g")
    assert {each.owner for each in partition.in_flight} == {""}


@pytest.mark.parametrize("lacks", ["group", "topic"])
def test_a_missing_permission_is_named(lacks: str) -> None:
    """The operator must know what to grant, and to whom."""
    sasl = BrokerSasl({"alice": "secret"}, ("PLAIN",))
    with EmbeddedBroker({"mails": 1}, acls=True, sasl=sasl) as broker:
        if lacks == "topic":
            broker.acls.allow("alice", "READ", group="g")
        else:
            broker.acls.allow("alice", "READ", topic="mails")
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        with explicit(broker, **login) as consumer, pytest.raises(Kip848Error) as raised:
            consumer.poll(SOON_S)
    told = str(raised.value)
    assert "alice" in told
    assert ("group 'g'" if lacks == "group" else "topic") in told
    assert ("READ" if lacks == "group" else "DESCRIBE") in told


def test_a_cluster_without_share_groups_is_one_clear_error(broker: EmbeddedBroker) -> None:
    """A worker that waits for ever looks as if it had nothing to do."""

    def without(response: Any) -> Any:
        kept = tuple(api for api in response.api_keys if api.api_key != ApiKey.SHARE_GROUP_HEARTBEAT)
        return msgspec.structs.replace(response, api_keys=kept)

    broker.faults.on("ApiVersions", rewrite(without), times=ALWAYS)
    with explicit(broker) as consumer, pytest.raises(FatalGroupError, match=r"share.version=1"):
        consumer.poll(SOON_S)


def test_a_login_over_tls(authority: Authority, server_identity: Identity) -> None:
    """Leaders are asked over connections of their own, which need the login as well."""
    tls = BrokerTls(server_identity.certificate, server_identity.key)
    with EmbeddedBroker({"mails": 1}, tls=tls, sasl=BrokerSasl({"alice": "secret"}, ("SCRAM-SHA-256",))) as broker:
        broker.groups.set_config("g", EARLIEST)
        broker.produce("mails", "a")
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.ca_file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        with explicit(broker, **settings) as consumer:
            assert read_all(consumer, 1) == [b"a"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("call", ["poll", "commit"])
def test_a_cancelled_call_loses_no_record(broker: EmbeddedBroker, backend: str, call: str) -> None:
    """Applications cancel with a time limit around each call."""

    async def main() -> bytes | None:
        conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        async with AsyncShareConsumer({**conf, "share.acknowledgement.mode": "explicit"}) as consumer:
            await consumer.subscribe(["mails"])
            if call == "poll":
                with anyio.move_on_after(0.05):
                    await consumer.poll()
                broker.produce("mails", "a")
            else:
                broker.produce("mails", "a")
                (held,) = await consumer.poll(SOON_S)
                await consumer.acknowledge(held, AcknowledgeType.RELEASE)
                with anyio.move_on_after(0):
                    await consumer.commit()
            (message,) = await consumer.poll(SOON_S)
            return message.value()

    assert anyio.run(main, backend=backend) == b"a"


PROGRAM = """
import os, sys
from kip848_client import ShareConsumer
from kip848_client.errors import ForkedProcessError
with ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": "g"}) as consumer:
    consumer.subscribe(["mails"])
    (message,) = consumer.poll()
    sys.modules["ctypes"] = None  # another thread of the parent may hold the lock of an import
    child = os.fork()
    if child == 0:
        for call in (lambda: consumer.poll(1), consumer.commit, lambda: consumer.acknowledge(message)):
            try:
                call()
            except ForkedProcessError:
                continue
            os._exit(7)
        os._exit(0)
    print("child ended with", os.waitpid(child, 0)[1] >> 8)
    print(consumer.commit().values())
"""


def test_a_child_of_fork_is_refused_and_its_parent_goes_on(broker: EmbeddedBroker) -> None:
    """Pre-forking servers: an error and not a hang, and no record acknowledged twice."""
    broker.produce("mails", "a")
    program = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    assert done.stdout == "child ended with 0\ndict_values([None])\n", done.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.poll(0),
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.subscribe(["mails"]),
    ],
)
def test_a_closed_consumer_is_refused(broker: EmbeddedBroker, call: Callable[[Any], object]) -> None:
    """As a consumer's calls after close()."""
    consumer = explicit(broker)
    consumer.close()
    consumer.close()  # a second time it does nothing
    with pytest.raises(IllegalStateError):
        call(consumer)


def test_health_tells_what_is_in_hand_and_the_last_error(broker: EmbeddedBroker) -> None:
    """A probe must tell a worker whose handler hangs from one that has nothing to do."""
    broker.produce("mails", "a")
    consumer = explicit(broker)
    (message,) = consumer.poll(SOON_S)
    health = consumer.health()
    assert (health.live, health.ready, health.in_hand, health.last_error) == (True, True, 1, None)
    assert health.oldest_in_hand_s is not None
    assert health.oldest_in_hand_s >= 0
    broker.shares.expire_record_locks("g")
    consumer.acknowledge(message)
    consumer.commit()
    assert "INVALID_RECORD_STATE" in str(consumer.health().last_error)
    assert consumer.health().in_hand == 0
    consumer.close()
    assert not consumer.health().live


def test_metrics_count_what_became_of_records(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard of a queue shows what was done, given back and lost."""
    with sdk_in_memory(monkeypatch) as (_, reader):
        broker.produce_many("mails", ["a", "b", "c", "d"])
        with explicit(broker) as consumer:
            taken = consumer.poll(SOON_S)
            assert len(taken) == 4  # one batch, which is acquired as a whole
            consumer.acknowledge(taken[0])
            consumer.acknowledge(taken[1], AcknowledgeType.REJECT)
            consumer.acknowledge(taken[2], AcknowledgeType.RENEW)
            consumer.commit()
            data: Any = reader.get_metrics_data()
    figures = {
        metric.name.removeprefix("kip848.share."): metric.data.data_points[0].value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("kip848.share.")
    }
    assert figures.pop("oldest.seconds") >= 0
    assert figures == {
        "acquired.total": 4,
        "accepted.total": 1,
        "released.total": 0,
        "rejected.total": 1,
        "renewed.total": 1,
        "lock.lost.total": 0,
        "not.acknowledged.total": 0,
        "in.hand": 2,
    }


ONE_AT_A_TIME = {"max.poll.records": 1, "share.acquire.mode": "record_limit"}


def test_a_thread_polls_while_another_one_has_a_record(broker: EmbeddedBroker) -> None:
    """Each acknowledges by hand what it got: the record of the other one is none of its business."""
    broker.produce_many("mails", ["a", "b"])
    with explicit(broker, **ONE_AT_A_TIME) as consumer, ThreadPoolExecutor(1) as pool:
        (mine,) = consumer.poll(SOON_S)
        (other,) = pool.submit(consumer.poll, SOON_S).result()
        assert [mine.value(), other.value()] == [b"a", b"b"]
        with pytest.raises(IllegalStateError, match="1 records of the last poll"):
            consumer.poll(0)


def test_a_task_polls_while_another_one_has_a_record(broker: EmbeddedBroker) -> None:
    """A task group of workers, each with a loop of its own."""
    broker.produce_many("mails", ["a", "b"])
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **ONE_AT_A_TIME}

    async def main() -> list[ShareMessage[Any, Any]]:
        async with AsyncShareConsumer({**conf, "share.acknowledgement.mode": "explicit"}) as consumer:
            await consumer.subscribe(["mails"])
            got = await consumer.poll(SOON_S)

            async def work() -> None:
                got.extend(await consumer.poll(SOON_S))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
        return got

    assert [message.value() for message in anyio.run(main)] == [b"a", b"b"]


def test_a_thread_still_waits_for_records_after_another_one_got_some() -> None:
    """It would have to wait for the next heartbeat until records were acquired for it."""
    core = ShareCore({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"})
    core.want(5, 1)
    core.want(3, 2)
    core.host.reader.held.acquired([AcquiredRecord((UUID(int=1), 0), "mails", Record(b"a"), 1, 2**60, 1)])
    core.take(5, 1)
    assert core.host.reader.room == 3


def test_an_answer_of_many_partitions_costs_one_look_at_what_the_application_has() -> None:
    """With 1,000 records in hand each of 100 partitions took a look at all of them: 10 to 40 ms for an answer."""

    def record(partition: int, offset: int) -> AcquiredRecord:
        return AcquiredRecord((UUID(int=1), partition), "mails", Record(b"", offset=offset), 1, 30_000, 1)

    held = HeldRecords()
    old = [record(0, offset) for offset in range(200)]
    held.acquired(old)
    held.take(200, now_ms=0)

    def answer() -> None:
        for partition in range(1, 51):
            held.acquired([record(partition, 0)])

    assert lines_run(answer, "kip848_client.member.share.held_records") < 50 * 50
    assert held.acquired([record(0, 7)]) == [old[7]]
    assert held.acquired([record(0, 7)]) == []


def test_a_change_while_the_consumer_moves_to_another_event_loop_is_told_there() -> None:
    """A task waited for ever if the other thread was between two steps of telling the loop before."""
    consumer: Any = AsyncShareConsumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"})
    left, moves = 0, 0
    while left <= 0:
        told: list[object] = []
        moves += 1
        left = moves

        def step(told: list[object] = told) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                consumer._soon, consumer._told = told.append, None

        consumer._soon, consumer._told = id, None
        with traced(step, "kip848_client.aio.share_consumer", event="opcode"):
            consumer._tell_loop()
        consumer._tell_loop()
        assert told or left > 0
    anyio.run(consumer.close)
