"""``kip848 groups record`` against the embedded broker: its log and the broker's own give the same report."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer, TopicPartition

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.journal import JournalEvent, MemoryJournal, read_journal
from kip848_client.tools.groups import read as groups_read
from kip848_client.tools.groups.watch_view import STUCK_MS
from kip848_client.tools.report import Figures, build_timelines, figures_of
from tests.support.driving import settings
from tests.support.waiting import wait_until


def member(broker: EmbeddedBroker, name: str, group: str = "billing", **conf: object) -> Consumer:
    own = {"group_id": group, "client_id": name, "enable_auto_commit": False, **conf}
    consumer = Consumer(settings(broker.bootstrap_servers, **own))
    consumer.subscribe(["orders"])
    return consumer


def settle(broker: EmbeddedBroker, *members: Consumer, group: str = "billing") -> None:
    """Poll until the group is stable and has these members."""

    def is_settled() -> bool:
        for consumer in members:
            consumer.poll(0)
        state = broker.groups.get(group)
        owning = all(consumer.assignment() for consumer in members)
        return owning and state is not None and state.state == "Stable" and len(state.members) == len(members)

    wait_until(is_settled)


def record(broker: EmbeddedBroker, out: Path, *options: str) -> list[JournalEvent]:
    bootstrap = broker.bootstrap_servers
    assert main(["groups", "record", "--bootstrap", bootstrap, "--no-follow", "--out", str(out), *options]) == 0
    return list(read_journal(out))


def scripted_run(broker: EmbeddedBroker) -> None:
    """Two members join, commit, one leaves, one comes again under its instance id."""
    with member(broker, "one") as one:
        settle(broker, one)
        with member(broker, "two", group_instance_id="i-2") as two:
            settle(broker, one, two)
            for consumer in (one, two):
                offsets = [TopicPartition(each.topic, each.partition, 5) for each in consumer.assignment()]
                consumer.commit(offsets=offsets, asynchronous=False)
        with member(broker, "two again", group_instance_id="i-2") as again:
            settle(broker, one, again)


def figures(events: list[JournalEvent]) -> Figures:
    (timeline,) = build_timelines(event for event in events if event.group_id is not None)
    return figures_of(timeline)


def test_the_recorded_log_and_the_coordinators_own_give_the_same_report(tmp_path: Path) -> None:
    """Platform teams would be shown one thing by the embedded broker, and another by their cluster."""
    journal = MemoryJournal()
    with EmbeddedBroker(topics={"orders": 6}, journal=journal) as broker:
        scripted_run(broker)
        recorded = figures(record(broker, tmp_path / "groups.jsonl"))
    own = figures(list(journal.events))
    assert own.moves > 0
    assert len(own.rebalances) >= 3
    for name in Figures.__struct_fields__:
        if name not in {"rebalances", "log_ms", "by_member"}:
            assert getattr(recorded, name) == getattr(own, name), name
    assert [(one.start_ms, one.end_ms, one.first_epoch, one.last_epoch) for one in recorded.rebalances] == [
        (one.start_ms, one.end_ms, one.first_epoch, one.last_epoch) for one in own.rebalances
    ]
    assert [(one.member, one.gained, one.given, one.owned_ms) for one in recorded.by_member] == [
        (one.member, one.gained, one.given, one.owned_ms) for one in own.by_member
    ]


def test_a_classic_group_is_recorded_by_its_generations(tmp_path: Path) -> None:
    """Most groups of a real cluster are classic ones: who owns what, and when the assignment was there."""
    with EmbeddedBroker(topics={"orders": 4}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "old", "client.id": "rdkafka"}
        foreign = LibrdkafkaConsumer(conf | {"group.protocol": "classic"})
        foreign.subscribe(["orders"])
        wait_until(lambda: foreign.poll(0.1) is not None or foreign.assignment(), timeout_s=20)
        foreign.commit(offsets=[TopicPartition("orders", 1, 7)], asynchronous=False)
        events = record(broker, tmp_path / "old.jsonl", "--group", "o*")
        foreign.close()
    (began,) = [event for event in events if event.event == "classic_generation_began"]
    (owned,) = [event for event in events if event.event == "member_assignment_changed"]
    (commit,) = [event for event in events if event.event == "offsets_committed"]
    assert owned.client_id == commit.client_id == "rdkafka"
    assert owned.fields["assigned"] == {"orders": [0, 1, 2, 3]}
    assert commit.fields["offsets"] == {"orders-1": 7}
    assert began.ts_ms <= owned.ts_ms
    states = [event.fields["new"] for event in events if event.event == "group_state_changed"]
    assert states == ["CompletingRebalance", "Stable"]


def test_a_log_from_now_begins_with_the_groups_as_they_are(
    kip848_broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who watches a deployment needs the present owners, not last week's events."""
    kip848_broker.topics.create("orders", partitions=2)
    with member(kip848_broker, "one") as one, member(kip848_broker, "other", group="ledger") as other:
        settle(kip848_broker, one)
        settle(kip848_broker, other, group="ledger")
        events = record(kip848_broker, tmp_path / "now.jsonl", "--from", "now", "--group", "bill*")
        shown = [(event.event, event.group_id, event.client_id) for event in events]
        assert shown == [
            ("member_joined", "billing", "one"),
            ("member_assignment_changed", "billing", "one"),
            ("group_state_changed", "billing", None),
        ]
        assert events[1].fields["assigned"] == {"orders": [0, 1]}
    assert "records read" in capsys.readouterr().err


def test_a_restarted_broker_shows_the_records_of_its_data_folder(tmp_path: Path) -> None:
    """A log of the time before would be lost with the process, and the groups unknown to every reader."""
    for restart in range(2):
        with EmbeddedBroker(topics={"orders": 2}, data_dir=tmp_path / "data") as broker:
            if not restart:
                with member(broker, "one", group_instance_id="i-1") as one:
                    settle(broker, one)
            else:
                events = record(broker, tmp_path / "again.jsonl")
    assert [event.client_id for event in events if event.event == "member_joined"] == ["one"]


def test_the_topic_is_there_for_readers_alone(kip848_broker: EmbeddedBroker) -> None:
    """A record that another member wrote there would look like a decision of the coordinator."""
    from confluent_kafka import Producer

    kip848_broker.topics.create("orders", partitions=1)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    producer.produce("__consumer_offsets", b"x", on_delivery=lambda error, _: failures.append(str(error)))
    assert producer.flush(10) == 0
    assert "TOPIC_EXCEPTION" in failures[0]
    assert kip848_broker.topics == {"orders": 1}


def test_a_report_of_a_cluster_names_the_transaction_that_holds_a_group_back(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its members are well and own everything: the report said that nothing went wrong."""
    kip848_broker.topics.create("orders", partitions=2)
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "transactional.id": "pay-7"})
    producer.init_transactions()
    monkeypatch.setattr(groups_read, "_now_ms", lambda: time.time_ns() // 1_000_000 + STUCK_MS)
    with member(kip848_broker, "one") as one:
        settle(kip848_broker, one)
        one.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        producer.begin_transaction()
        producer.produce("orders", b"open", partition=0)
        producer.flush()
        command = ["report", "--bootstrap", kip848_broker.bootstrap_servers]
        assert main(command) == 0
        while_open = capsys.readouterr().out
        producer.abort_transaction()
        assert main(command) == 0
        after = capsys.readouterr().out
    held = "an open transaction holds readers of committed records back in 1 partition (orders-0)"
    assert held in while_open
    assert held not in after


def test_a_cluster_is_reported_on_without_a_file_in_between(
    kip848_broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At three in the morning one command is enough to remember."""
    kip848_broker.topics.create("orders", partitions=6)
    scripted_run(kip848_broker)
    page = tmp_path / "page.html"
    command = ["report", "--bootstrap", kip848_broker.bootstrap_servers, "--group"]
    assert main([*command, "billing", "--html", str(page)]) == 0
    assert "group billing: 3 members, 6 partitions" in capsys.readouterr().out
    assert '"group_id":"billing"' in page.read_text(encoding="utf-8")
    assert main([*command, "none"]) == 1
    assert "no record of group 'none' in __consumer_offsets" in capsys.readouterr().err
