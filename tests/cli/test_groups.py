"""``kip848 groups`` against the embedded broker: what a person asks when consumption stands still."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.cli.shared.tables import name_partitions, table
from kip848_client.common.model import NamedPartition
from kip848_client.testing.faults import answer
from kip848_client.wire.messages.list_groups import ListedGroup, ListGroupsResponse


def consumer_of(broker: EmbeddedBroker, name: str) -> Consumer:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "client.id": name}
    consumer = Consumer(conf | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    return consumer


def groups(broker: EmbeddedBroker, *arguments: str) -> int:
    return main(["groups", *arguments, "--bootstrap", broker.bootstrap_servers])


@pytest.fixture
def billing(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    """A broker whose group ``billing`` has read and committed 3 of the 5 records of orders-0, and has left."""
    kip848_broker.topics.create("orders", partitions=2)
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    for number in range(5):
        producer.produce("orders", f"order {number}", partition=0)
    assert producer.flush(10) == 0
    with consumer_of(kip848_broker, "one") as consumer:
        for message in consumer:
            if message.offset() == 2:
                consumer.commit(message, asynchronous=False)
                break
    return kip848_broker


def test_groups_are_listed(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The first question: which groups are there at all?"""
    assert groups(billing, "list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP    TYPE      STATE",
        "billing  consumer  Empty",
    ]


def test_brokers_are_named_as_for_kafkas_own_tools(kip848_broker: EmbeddedBroker) -> None:
    """Users of Kafka's scripts type ``--bootstrap-server`` and expect it to work here."""
    assert main(["groups", "list", "--bootstrap-server", kip848_broker.bootstrap_servers]) == 0


def test_no_command_shows_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A new user types ``kip848`` alone and must see the list of commands."""
    assert main([]) == 2
    assert "print records: as a member" in capsys.readouterr().err


def test_a_group_is_described_with_members_and_lag(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The second question: who reads what, and how far behind is it?"""
    with consumer_of(billing, "one") as consumer:
        while len(consumer.assignment()) < 2:
            consumer.poll(0.05)
        billing.wait_for_group("billing", state="Stable", members=1)
        assert groups(billing, "describe", "billing") == 0
        member_id = consumer.member_id
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "group billing: Stable, epoch 3, assignor uniform"
    assert lines[2:] == [
        "CLIENT  HOST       EPOCH  PARTITIONS  MEMBER ID",
        f"one     127.0.0.1      3  orders 0-1  {member_id}",
        "",
        "TOPIC   PARTITION  COMMITTED  END  LAG  CLIENT",
        "orders          0          3    5    2  one",
        "orders          1          -    0    0  one",
        "",
        "lag 2",
    ]


def test_a_classic_group_is_described_too(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Most groups in the world are; and during a migration a person wants to see which is which."""
    conf = {"bootstrap.servers": billing.bootstrap_servers, "group.id": "old", "client.id": "one"}
    consumer = ForeignConsumer(conf | {"group.protocol": "classic", "partition.assignment.strategy": "range"})
    consumer.subscribe(["orders"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.05)
    (member,) = billing.wait_for_group("old", state="Stable", members=1).members
    assert groups(billing, "describe", "old") == 0
    assert groups(billing, "describe", "old", "--json") == 0
    with Consumer({**conf, "client.id": "two"}) as joined:
        joined.subscribe(["orders"])
        while len(joined.assignment()) < 1:
            consumer.poll(0.05), joined.poll(0.05)
        assert groups(billing, "describe", "old", "--json") == 0
    consumer.close()
    *lines, mixed = capsys.readouterr().out.splitlines()
    (group,) = json.loads(mixed)["groups"]
    assert {member["client_id"]: member["protocol"] for member in group["members"]} == {
        "one": "classic",
        "two": "consumer",
    }
    assert lines[:7] == [
        "classic group old: Stable, assignor range",
        "",
        "CLIENT  HOST       PROTOCOL  PARTITIONS  MEMBER ID",
        f"one     127.0.0.1  classic   orders 0-1  {member.member_id}",
        "",
        "TOPIC   PARTITION  COMMITTED  END  LAG  CLIENT",
        "orders          0          -    5    -  one",
    ]
    (described,) = json.loads(lines[-1])["groups"]
    assert (described["type"], described["group_epoch"], described["members"][0]["protocol"]) == (
        "classic",
        None,
        "classic",
    )


def test_lag_is_what_other_tools_say(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Two numbers for one backlog would contradict each other."""
    assert groups(billing, "lag", "billing") == 0
    assert capsys.readouterr().out.splitlines() == [
        "group billing",
        "",
        "TOPIC   PARTITION  COMMITTED  END  LAG  CLIENT",
        "orders          0          3    5    2       -",
        "",
        "lag 2",
    ]
    assert groups(billing, "lag", "billing", "--json") == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]

    admin = AdminClient({"bootstrap.servers": billing.bootstrap_servers})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")])["billing"].result(60)
    (committed,) = answer.topic_partitions
    asked = TopicPartition(committed.topic, committed.partition)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    end = admin.list_offsets({asked: latest})[asked].result(60).offset
    assert group["lag"] == end - committed.offset == 2
    assert group["progress"] == [
        {"topic": "orders", "partition": 0, "committed": committed.offset, "end": end, "owner": None, "lag": 2}
        | {"held_back": False}
    ]


def test_a_lag_that_is_not_known_is_not_zero(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """An alert on lag stays silent while nothing was ever committed and everything waits."""
    producer = Producer({"bootstrap.servers": billing.bootstrap_servers})
    producer.produce("orders", "waits", partition=1)
    assert producer.flush(10) == 0
    with consumer_of(billing, "two") as consumer:
        consumer.poll(0)
        billing.wait_for_group("billing", state="Stable", members=1)
        assert groups(billing, "lag", "billing") == 0
        table_shown = capsys.readouterr().out
        assert groups(billing, "describe", "billing") == 0
        described = capsys.readouterr().out
        assert groups(billing, "lag", "billing", "--json") == 0
        (group,) = json.loads(capsys.readouterr().out)["groups"]

    told = "lag unknown: nothing is committed, or no end is known, for 1 of 2 partitions; 2 in the others"
    assert table_shown.splitlines()[-1] == described.splitlines()[-1] == told
    assert (group["lag"], group["known_lag"], group["unknown"]) == (None, 2, 1)
    assert [row["lag"] for row in group["progress"]] == [2, None]


def test_lag_of_a_group_without_members_that_only_commits(
    billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs that assign partitions by hand have a lag, too; it does not matter which library they use."""
    conf = {"bootstrap.servers": billing.bootstrap_servers, "group.id": "by hand"}
    foreign = ForeignConsumer(conf)
    foreign.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    foreign.close()
    assert groups(billing, "lag", "by hand", "billing", "--json") == 0
    assert [group["lag"] for group in json.loads(capsys.readouterr().out)["groups"]] == [4, 2]


def test_a_group_is_deleted(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The way to start from the beginning again."""
    assert groups(billing, "delete", "billing") == 0
    assert capsys.readouterr().out == "deleted billing\n"
    assert groups(billing, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"groups": []}


@pytest.mark.parametrize("command", ["describe", "lag"])
def test_a_group_that_is_not_there_is_named(
    billing: EmbeddedBroker, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt group must not look like one without members, nor like one without a lag."""
    assert groups(billing, command, "bililng") == 1
    assert "GROUP_ID_NOT_FOUND(69): group 'bililng'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["describe", "members", "lag"])
@pytest.mark.parametrize(
    ("group_type", "tool"), [("share", "kafka-share-groups.sh"), ("streams", "kafka-streams-groups.sh")]
)
def test_a_group_of_another_kind_is_named_with_the_tool_that_shows_it(
    billing: EmbeddedBroker,
    command: str,
    group_type: str,
    tool: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`groups list` shows share and streams groups of a real Kafka, whose answer to a description is "not found"."""

    listed = ListedGroup("other", group_type, "Stable", group_type)
    billing.faults.on("ListGroups", answer(ListGroupsResponse(groups=(listed,))))
    assert groups(billing, command, "other") == 1
    said = capsys.readouterr().err
    assert f"'other' is a {group_type} group" in said
    assert tool in said


def test_a_broker_that_is_not_there_is_named(kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The address is what the reader has to correct."""
    kip848_broker.stop()
    assert groups(kip848_broker, "list") == 1
    assert f"no connection to {kip848_broker.bootstrap_servers}" in capsys.readouterr().err


def test_a_misspelt_state_or_type_is_refused(billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """It listed no groups, as if there were none in that state."""
    servers = ("--bootstrap", billing.bootstrap_servers)
    assert main(["groups", "list", "--state", "STABLE", "--state", "empty", "--type", "Consumer", *servers]) == 0
    assert "billing" in capsys.readouterr().out
    for option in ("--state", "--type"):
        with pytest.raises(SystemExit):
            main(["groups", "list", option, "stabel", *servers])
        assert "invalid choice: 'stabel'" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["lag", "describe", "members"])
def test_a_cluster_without_groups_is_told_so(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """An empty answer may be a mistake in the command."""
    assert main(["groups", action, "--all", "--bootstrap", kip848_broker.bootstrap_servers]) == 0
    assert capsys.readouterr().out == "no groups\n"


def test_partitions_are_named_by_topic_in_runs() -> None:
    """A hundred partitions must fit on a line."""
    partitions = [NamedPartition("b", 0), *(NamedPartition("a", number) for number in (7, 0, 1, 2))]
    assert name_partitions(partitions) == "a 0-2,7 b 0"
    assert name_partitions([]) == "-"


def test_a_table_leaves_out_what_is_empty_everywhere() -> None:
    """TARGET is worth a column only while a rebalance is going on."""
    assert table(("A", "B", "N"), [("x", "", "1"), ("yy", "", "10")]) == "A    N\nx    1\nyy  10"
    assert table(("A", "B"), []) == "A  B"


def test_a_refusal_for_one_group_does_not_hide_what_was_done_with_the_others(
    billing: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator who is told of the missing group alone deletes the other one again, or believes that it is there."""
    assert groups(billing, "describe", "nogroup", "billing", "none") == 1
    told = capsys.readouterr()
    assert "group billing: Empty" in told.out
    assert "'nogroup'" in told.err
    assert "'none'" in told.err
    assert groups(billing, "delete", "nogroup", "billing") == 1
    told = capsys.readouterr()
    assert told.out == "deleted billing\n"
    assert "'nogroup' was not deleted" in told.err
    assert groups(billing, "delete", "nogroup", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"deleted": []}
