"""What a test does to a running broker: it goes through the coordinator, and is still so after a restart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ArgumentTypeError, BrokerError, ErrorCode, IllegalStateError
from kip848_client.journal import Journal, MemoryJournal
from kip848_client.testing import BrokerSasl, NewRecord, close, delay
from kip848_client.testing.judge.broker.connection import RawConnection
from tests.support.group_requests import commit_offset, heartbeat, join


@pytest.fixture
def broker(journal: MemoryJournal, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 4}, journal=journal, data_dir=tmp_path) as running:
        yield running


def members(broker: EmbeddedBroker) -> list[str]:
    group = broker.groups.get("g")
    return [] if group is None else [member.member_id for member in group.members]


def test_a_removed_member_has_left(broker: EmbeddedBroker, connection: RawConnection, journal: MemoryJournal) -> None:
    """An operator can remove a member that does harm, and it is really gone."""
    connection.ask(join("a", instance_id="static"), version=1)
    broker.groups.remove_member("g", "static")
    assert members(broker) == []
    assert connection.ask(join("b", instance_id="static"), version=1).error_code == ErrorCode.NONE
    assert journal.named("member_left")[0].fields["reason"] == "leave"


def test_a_wait_without_an_end_waits(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """``timeout_s=math.inf`` is what comes to mind for it; Python's waits raise OverflowError."""
    with ThreadPoolExecutor(2) as pool:
        group = pool.submit(broker.wait_for_group, "g", members=1, timeout_s=math.inf)
        request = pool.submit(broker.requests.wait_for, "ConsumerGroupHeartbeat", timeout_s=math.inf)
        connection.ask(join("a"), version=1)
        assert [member.member_id for member in group.result().members] == ["a"]
        assert request.result().number == 1


def test_a_member_is_named_by_its_client_id_if_only_one_has_it(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """Member ids are random; a test knows the client id that it gave."""
    connection.ask(join("a"), version=1)
    with RawConnection(broker.bootstrap_servers, client_id="second") as other:
        other.ask(join("b"), version=1)
        broker.groups.remove_member("g", "second")
        assert members(broker) == ["a"]
        other.ask(join("c"), version=1)
    with RawConnection(broker.bootstrap_servers, client_id="second") as another:
        another.ask(join("d"), version=1)
        with pytest.raises(BrokerError, match=r"no single member 'second'; members are: a \(raw\); c \(second\); d"):
            broker.groups.expire_session("g", "second")


@pytest.mark.parametrize(
    "act",
    [
        lambda broker: broker.groups.expire_session("g", "m"),
        lambda broker: broker.groups.remove_member("g", "m"),
        lambda broker: broker.groups.force_rebalance("g"),
    ],
)
def test_a_group_that_is_not_there_is_named_in_the_error(
    broker: EmbeddedBroker, act: Callable[[EmbeddedBroker], object]
) -> None:
    """The usual cause is that the consumer under test has not joined yet."""
    with pytest.raises(BrokerError, match="no consumer group 'g'; groups are: none") as raised:
        act(broker)
    assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.groups.ids() == ()


def test_the_time_to_give_up_partitions_runs_out(connection: RawConnection, broker: EmbeddedBroker) -> None:
    """A member that is too slow in its revocation callback is removed, and the others go on."""
    epoch = connection.ask(join("a"), version=1).member_epoch
    with pytest.raises(IllegalStateError, match="no rebalance timer runs"):
        broker.groups.expire_revocation("g", "a")
    connection.ask(join("b"), version=1)
    told = connection.ask(heartbeat(epoch, "a"), version=1)
    assert told.assignment is not None
    assert sum(len(topic.partitions) for topic in told.assignment.topic_partitions) == 2
    broker.groups.expire_revocation("g", "a")
    assert members(broker) == ["b"]


def test_a_forced_rebalance_moves_the_epoch_and_nothing_else(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """Commits with the previous epoch are stale then, which users want to test."""
    first = connection.ask(join("a"), version=1)
    assert first.assignment is not None
    owned = first.assignment.topic_partitions
    epoch = broker.groups.force_rebalance("g")
    assert epoch > first.member_epoch
    second = connection.ask(heartbeat(first.member_epoch, "a", topic_partitions=owned), version=1)
    assert second.member_epoch == epoch
    assert broker.wait_for_group("g", state="Stable").assigned == {
        NamedPartition("orders", index) for index in range(4)
    }


def test_a_recreated_topic_is_another_one(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """Old offsets must not be used on new records."""
    commit_offset(connection, 7)
    assert broker.groups.committed("g") == {NamedPartition("orders", 0): 7}
    before = broker.topics.create("other", partitions=3)
    after = broker.topics.recreate("other")
    assert before != after
    broker.topics.recreate("orders", partitions=2)
    assert broker.topics == {"orders": 2, "other": 3}
    assert broker.groups.committed("g") == {}
    with pytest.raises(BrokerError):
        broker.topics.recreate("nothing")


def test_records_are_gone_as_after_their_retention(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """A consumer whose committed offset is gone has to follow its reset policy."""
    for _ in range(2):
        broker.produce_many("orders", [NewRecord(b"v", partition=1)] * 5)
    assert broker.topics.offsets("orders")[1] == (0, 10)
    assert broker.topics.delete_records("orders", 1, 5) == 5
    assert broker.topics.offsets("orders")[1] == (5, 10)
    assert broker.topics.delete_records("orders", 1) == 10
    with pytest.raises(BrokerError, match="has no partition 9"):
        broker.topics.delete_records("orders", 9)
    with pytest.raises(BrokerError) as raised:
        broker.topics.delete_records("orders", 1, 999)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("crash", [False, True])
def test_everything_is_still_so_after_a_restart(broker: EmbeddedBroker, crash: bool) -> None:
    """Administration goes into the records like anything else; a coordinator that restarts must not bring it back."""
    with RawConnection(broker.bootstrap_servers) as connection:
        for member_id in ("a", "b", "c"):
            connection.ask(join(member_id), version=1)
    broker.produce_many("orders", [NewRecord(b"v", partition=1)] * 4)
    broker.groups.expire_session("g", "a")
    broker.groups.remove_member("g", "b")
    epoch = broker.groups.force_rebalance("g")
    broker.topics.delete_records("orders", 1, 4)
    if crash:
        broker.crash()
    else:
        broker.stop()
    broker.start()
    group = broker.wait_for_group("g")
    assert [member.member_id for member in group.members] == ["c"]
    assert group.group_epoch == epoch
    assert broker.topics.offsets("orders")[1] == (4, 4)


WRONG: tuple[Any, ...] = ("alice:s",)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda broker: broker.topics.create("y", "3"), "partitions is a whole number, got '3'"),
        (lambda broker: broker.topics.create(5), "name is text, got 5"),
        (lambda broker: broker.topics.create("y", configs=["retention.ms"]), "configs is a mapping of text to text"),
        (lambda broker: broker.topics.create("y", replication_factor="1"), "replication_factor is a whole number"),
        (lambda broker: broker.topics.add_partitions("t", 2.5), "count is a whole number, got 2.5"),
        (lambda broker: broker.topics.set_racks("t", 5), "racks is a list of racks"),
        (lambda broker: broker.groups.get(5), "group_id is text, got 5"),
        (lambda broker: broker.groups.expire_session("g", None), "member is text, got None"),
        (lambda broker: broker.groups.set_config("g", "x"), "overrides is a mapping of text to text"),
        (lambda broker: broker.transactions.abort(None), "transactional_id is text, got None"),
        (lambda _: EmbeddedBroker(nodes=cast("int", "3")), "nodes is a whole number, got '3'"),
        (lambda _: EmbeddedBroker(port=cast("int", "9092")), "port is a whole number, got '9092'"),
        (lambda _: EmbeddedBroker({"t": cast("int", "3")}), "the number of partitions of 't' is a whole number"),
        (lambda _: EmbeddedBroker(listeners=WRONG), r'such as Listener\("0\.0\.0\.0", 9092\), got'),
        (lambda _: EmbeddedBroker(sasl=cast("BrokerSasl", {"alice": "s"})), "sasl is a BrokerSasl, got a dict$"),
        (lambda _: EmbeddedBroker(journal=cast("Journal", "x")), "journal is a Journal, such as .*, got 'x'"),
        (lambda broker: broker.records("t", "0"), "partition is a whole number, got '0'"),
        (lambda broker: broker.faults.on("Fetch", close(), partition="0"), "partition is a whole number"),
        (lambda broker: broker.faults.on("heartbeat", close(), group=5), "group is text, got 5"),
        (lambda broker: broker.requests.of("Fetch", node_id="1"), "node_id is a whole number, got '1'"),
        (lambda _: delay(cast("int", "200")), r"delay\(\) is a whole number, got '200'"),
        (lambda _: BrokerSasl(*WRONG), r'BrokerSasl\(\{"alice": "secret"\}\)$'),
        (lambda _: BrokerSasl({"alice": "s"}, *WRONG), r"mechanisms is a tuple of names: \('alice:s',\)"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(
    kip848_broker: EmbeddedBroker, call: Callable[[EmbeddedBroker], object], says: str
) -> None:
    """An error from inside the broker's thread says nothing about the line of the test that is wrong."""
    kip848_broker.topics.create("t")
    with pytest.raises(ArgumentTypeError, match=says):
        call(kip848_broker)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("create_topic", "use topics.create"),
        ("committed", "use groups.committed"),
        ("list_topics", "use topics, which has"),
        ("delete_topics", "use topics.delete"),
    ],
)
def test_what_a_subject_has_is_named(name: str, meant: str) -> None:
    """Other test brokers have these methods on the broker itself."""
    broker = EmbeddedBroker()
    with pytest.raises(AttributeError) as raised:
        getattr(broker, name)
    assert meant in str(raised.value)
    assert not hasattr(broker, "nothing_of_the_kind")
