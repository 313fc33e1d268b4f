"""`Admin` against the embedded broker: questions and changes, one group refused among others, brokers that move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import confluent_kafka
import pytest
from msgspec.structs import replace

from kip848_client import Admin, AsyncAdmin, Consumer, EmbeddedBroker, TopicPartition, Worker
from kip848_client.admin import (
    GroupDescription,
    NamedPartition,
    OtherGroupDescription,
    ShiftBy,
    WorkerGroupDescription,
    read_offsets,
)
from kip848_client.common.model import OffsetAndMetadata
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    ErrorCode,
    GroupIdNotFoundError,
    IllegalStateError,
    UnknownMemberIdError,
    UnsupportedByBrokerError,
)
from kip848_client.testing import NewRecord
from kip848_client.testing.faults import ALWAYS, answer, error, hold, rewrite
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.api_versions import ApiVersionsResponse
from kip848_client.wire.messages.list_groups import ListedGroup, ListGroupsResponse

BEGAN_MS = 1_767_225_600_000
ORDERS_0 = NamedPartition("orders", 0)


@pytest.fixture
def orders() -> Iterator[EmbeddedBroker]:
    """Ten records in each of two partitions of ``orders``, a second apart."""
    records = [NewRecord("tea", partition=p, timestamp_ms=BEGAN_MS + 1_000 * n) for n in range(10) for p in (0, 1)]
    with EmbeddedBroker({"orders": 2}, connect_groups=True) as broker:
        broker.produce_many("orders", records)
        yield broker


@pytest.fixture
def admin(orders: EmbeddedBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": orders.bootstrap_servers}) as made:
        yield made


def commit(broker: EmbeddedBroker, group_id: str, offset: int = 4) -> None:
    """Commit an offset of orders-0 for a group without members."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id, "group.protocol": "classic"}
    foreign = confluent_kafka.Consumer(conf)
    foreign.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, offset)], asynchronous=False)
    foreign.close()


def test_a_misspelt_key_is_refused() -> None:
    """An administrator with a misspelt key worked without the setting, and a consumer with the same keys did not."""
    with pytest.raises(ConfigError, match=r"socket\.nagel\.disable is not a configuration key; did you mean"):
        Admin({"bootstrap.servers": "localhost:9092", "socket.nagel.disable": True})
    Admin({"bootstrap.servers": "localhost:9092", "socket.max.fails": 1, "topic.metadata.refresh.sparse": True}).close()


def test_a_cluster_without_newer_kinds_of_groups_describes_the_others(orders: EmbeddedBroker, admin: Admin) -> None:
    """Kafka up to 4.1 has share groups off, an upgraded one also consumer groups: a typo was an unsupported protocol,
    and classic groups could not be described."""
    for api in ("ConsumerGroupDescribe", "ShareGroupDescribe"):
        orders.faults.on(api, error(ErrorCode.UNSUPPORTED_VERSION), times=ALWAYS)
    commit(orders, "classic")
    described = admin.describe_groups(["classic", "typo"])
    assert [type(one) for one in described.values.values()] == [GroupDescription]
    assert [type(one) for one in described.errors.values()] == [GroupIdNotFoundError]


def joined(broker: EmbeddedBroker, group_id: str, **more: str) -> Consumer:
    """A member that owns both partitions."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id, "enable.auto.commit": False, **more}
    consumer = Consumer(conf)
    consumer.subscribe(["orders"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.05)
    broker.wait_for_group(group_id, state="Stable", members=1)
    return consumer


def test_groups_of_every_kind_are_described_in_one_call(orders: EmbeddedBroker, admin: Admin) -> None:
    """An operator does not know beforehand which protocol a group speaks, and one wrong name must not hide the rest."""
    commit(orders, "by hand")
    conf = {"bootstrap.servers": orders.bootstrap_servers, "group.id": "units"}
    shared = ListedGroup("shared", "share", "Stable", "share")
    orders.faults.on("ListGroups", answer(ListGroupsResponse(groups=(shared,))))
    running = threading.Event()
    worker = Worker(conf, units=["a"], on_assigned=lambda *_: running.set(), on_revoked=lambda *_: None)
    with joined(orders, "modern") as member, worker:
        assert running.wait(30)
        found = admin.describe_groups(["by hand", "modern", "units", "shared", "wrong"], with_progress=True)

    kinds = {group_id: type(group) for group_id, group in found.values.items()}
    assert kinds == {
        "by hand": GroupDescription,
        "modern": GroupDescription,
        "units": WorkerGroupDescription,
        "shared": OtherGroupDescription,
    }
    modern = found["modern"]
    assert isinstance(modern, GroupDescription)
    assert [one.member_id for one in modern.members] == [member.member_id]
    assert modern.members[0].assigned == (("orders", 0), ("orders", 1))
    assert [type(one) for one in found.errors.values()] == [GroupIdNotFoundError]
    with pytest.raises(GroupIdNotFoundError, match="'wrong'"):
        found["wrong"]


def test_thousands_of_groups_take_a_handful_of_requests(orders: EmbeddedBroker, admin: Admin) -> None:
    """A monitor asks every minute about every group of a busy cluster; one request each would keep it busy."""
    for group_id in ("a", "b"):
        commit(orders, group_id)
    began = orders.requests.mark()
    names = [*(f"group-{number}" for number in range(2_000)), "a", "b"]
    found = admin.lag(names)

    asked = orders.requests.of(None, client_id="kip848-admin", since=began)
    assert {group_id: lag.lag for group_id, lag in found.values.items()} == {"a": 6, "b": 6}
    assert len(found.errors) == 2_000
    assert len(asked) < 60


def test_a_group_that_is_refused_does_not_hide_the_others(orders: EmbeddedBroker, admin: Admin) -> None:
    """ACLs often let a user see some groups only."""
    for group_id in ("mine", "secret"):
        commit(orders, group_id)
    orders.faults.on("OffsetFetch", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), group="secret", times=ALWAYS)
    found = admin.committed_offsets(["mine", "secret"])

    assert found["mine"][ORDERS_0].offset == 4
    with pytest.raises(BrokerError, match="'secret'; this user needs DESCRIBE on the group"):
        found["secret"]


def test_a_coordinator_that_loads_is_asked_again(orders: EmbeddedBroker, admin: Admin) -> None:
    """For seconds after a restart of a broker, a program that gives up would page somebody."""
    commit(orders, "billing")
    orders.faults.on("OffsetFetch", error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), error(ErrorCode.NOT_COORDINATOR))
    assert admin.committed_offsets(["billing"])["billing"][ORDERS_0].offset == 4
    orders.faults.on("OffsetFetch", error(ErrorCode.NOT_COORDINATOR), times=ALWAYS)
    refused = admin.committed_offsets(["billing"], timeout_s=1.5)
    assert [one.code for one in refused.errors.values() if isinstance(one, BrokerError)] == [ErrorCode.NOT_COORDINATOR]


def test_offsets_are_found_by_time(admin: Admin) -> None:
    """Where to begin again after an incident at nine o'clock."""
    five = datetime.fromtimestamp(BEGAN_MS / 1_000 + 5, UTC)
    partitions = [TopicPartition("orders", number) for number in (0, 1, 9)]
    found = admin.list_offsets(partitions, five)
    assert found.values == {("orders", 0): 5, ("orders", 1): 5}
    assert [str(one) for one in found.errors] == ["orders-9"]
    assert admin.list_offsets(partitions, BEGAN_MS + 60_000).values == {("orders", 0): None, ("orders", 1): None}
    assert admin.list_offsets([("orders", 0)], "earliest").values == {("orders", 0): 0}


def test_a_reset_is_planned_and_then_applied(orders: EmbeddedBroker, admin: Admin, tmp_path: Path) -> None:
    """A wrong offset is a day of records read twice, or never: the plan can be looked at, and kept."""
    commit(orders, "billing")
    file = tmp_path / "offsets.csv"
    file.write_text('"orders",0,2\norders,1,99\n')
    plan = admin.plan_reset("billing", read_offsets(file))
    assert orders.groups.committed("billing") == {("orders", 0): 4}
    assert [(move.committed, move.wanted, move.new) for move in plan.moves] == [(4, 2, 2), (None, 99, 10)]

    admin.apply_reset(plan)
    assert orders.groups.committed("billing") == {("orders", 0): 2, ("orders", 1): 10}
    admin.commit_offsets("copy", {ORDERS_0: OffsetAndMetadata(3, metadata="by hand")})
    assert admin.committed_offsets(["copy"])["copy"] == {ORDERS_0: OffsetAndMetadata(3, metadata="by hand")}
    assert [move.new for move in admin.plan_reset("billing", ShiftBy(-1)).moves] == [1, 9]
    with pytest.raises(ConfigError, match="no such topic"):
        admin.plan_reset("billing", "latest", partitions=["ordres"])
    with joined(orders, "billing"), pytest.raises(IllegalStateError, match="stop them first"):
        admin.plan_reset("billing", "earliest")


def test_offsets_and_groups_are_deleted(orders: EmbeddedBroker, admin: Admin) -> None:
    """Forgotten groups raise alarms about their lag for ever."""
    commit(orders, "billing")
    assert admin.delete_offsets("billing", [("orders", 0)]).values == {("orders", 0): None}
    assert orders.groups.committed("billing") == {}
    commit(orders, "old")
    found = admin.delete_groups(["old", "wrong"])
    assert found.values == {"old": None}
    assert [type(one) for one in found.errors.values()] == [GroupIdNotFoundError]
    assert "old" not in {one.group_id for one in admin.list_groups().found}


def test_a_static_member_that_will_not_come_back_is_removed(orders: EmbeddedBroker, admin: Admin) -> None:
    """A pod that was scaled away keeps its partitions until its session ends: minutes without a reader."""
    joined(orders, "billing", **{"group.instance.id": "pod-1"}).close()
    orders.wait_for_group("billing", members=1)
    found = admin.remove_members("billing", instance_ids=["pod-1", "pod-2"])

    assert found.values == {"pod-1": None}
    assert [type(one) for one in found.errors.values()] == [UnknownMemberIdError]
    orders.wait_for_group("billing", members=0)


def test_a_broker_that_lacks_an_api_is_told_by_the_name_of_the_api(orders: EmbeddedBroker) -> None:
    """An old cluster answers what it can: groups are described as classic ones, and transactions are refused."""

    def old(answered: ApiVersionsResponse) -> ApiVersionsResponse:
        lacking = {ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.LIST_TRANSACTIONS}
        return replace(answered, api_keys=tuple(one for one in answered.api_keys if one.api_key not in lacking))

    commit(orders, "billing")
    orders.faults.on("ApiVersions", rewrite(old), times=ALWAYS)
    with Admin({"bootstrap.servers": orders.bootstrap_servers}) as admin:
        described = admin.describe_groups(["billing"])["billing"]
        with pytest.raises(UnsupportedByBrokerError, match="does not serve ListTransactions"):
            admin.list_transactions()
    assert described.type == "classic"


def test_no_broker_is_an_error_at_once(kip848_broker: EmbeddedBroker) -> None:
    """A mistyped address is the first mistake of all."""
    address = kip848_broker.bootstrap_servers
    kip848_broker.stop()
    with (
        Admin({"bootstrap.servers": address}) as admin,
        pytest.raises(ConnectionLostError, match=f"no connection to {address}"),
    ):
        admin.list_groups(timeout_s=60)


def test_a_call_ends_when_another_thread_closes_the_client(orders: EmbeddedBroker) -> None:
    """A service that shuts down must not wait for a broker that is silent."""
    held = orders.faults.on("ListGroups", hold())
    admin = Admin({"bootstrap.servers": orders.bootstrap_servers})

    def close() -> None:
        held.wait()
        admin.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises((IllegalStateError, ConnectionLostError)):
        admin.list_groups(timeout_s=60)
    closer.join()
    with pytest.raises(IllegalStateError, match="this client is closed"):
        admin.list_groups()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_calls_are_awaited(orders: EmbeddedBroker, backend: str) -> None:
    """A service on trio or asyncio must not block its loop."""

    async def ask() -> tuple[int | None, int]:
        async with AsyncAdmin({"bootstrap.servers": orders.bootstrap_servers}) as admin:
            with anyio.move_on_after(0.01):
                orders.faults.on("ListGroups", hold())
                await admin.list_groups(timeout_s=60)
            orders.faults.clear()
            lag = (await admin.lag(["billing"]))["billing"]
            return lag.lag, (await admin.features()).finalized["group.version"]

    commit(orders, "billing")
    assert anyio.run(ask, backend=backend) == (6, 1)
