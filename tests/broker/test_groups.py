"""The group host: time, restarts, folders that fail, and who is told of changes. The rules are the coordinator's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.storage.data_dir import DataDir
from kip848_client.testing.broker.storage.group_log import MemoryGroupLog
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.conftest import FullDisk
from tests.support.group_requests import Member, commit_offset
from tests.support.transactions import committed


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock, journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 4}, clock=clock, journal=journal) as running:
        yield running


def test_a_snapshot_shows_members_with_what_they_own_and_await(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """Tests assert on names and partitions of a snapshot, and not on ids and records."""
    first, second = Member(connection, "m1"), Member(connection, "m2")
    first.join("orders")
    second.join("orders")
    first.heartbeat()
    group = broker.wait_for_group("g")
    assert (group.state, group.group_epoch, len(group.members)) == ("Reconciling", 2, 2)
    owner, newcomer = group.member("m1"), group.member("m2")
    assert len(owner.assigned) == 4  # two of them until it confirms that it gave them up
    assert newcomer.assigned == frozenset()
    assert newcomer.target | owner.target == {NamedPartition("orders", n) for n in range(4)}
    assert (owner.client_host, owner.client_id, owner.subscribed_topics) == ("/127.0.0.1", "raw", frozenset({"orders"}))
    assert "Reconciling at epoch 2" in str(group)
    assert "awaiting" in str(group)


def test_a_member_is_named_by_its_client_id_only_if_that_is_unique(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """Two members with one client id must not be taken for each other."""
    Member(connection, "m1").join("orders")
    group = broker.wait_for_group("g", members=1)
    assert group.member("raw").member_id == "m1"
    Member(connection, "m2").join("orders")
    with pytest.raises(KeyError, match="2 members"):
        broker.wait_for_group("g", members=2).member("raw")


def test_unknown_groups_are_none_and_known_ones_are_listed(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """A question about a group must not create it."""
    assert broker.groups.get("g") is None
    assert broker.groups.ids() == ()
    Member(connection, "m1", group_id="b").join("orders")
    Member(connection, "m1", group_id="a").join("orders")
    assert broker.groups.ids() == ("a", "b")


def test_a_session_runs_out_when_the_manual_clock_reaches_it_and_not_before(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """Tests of lost members must neither sleep nor be early."""
    member = Member(connection)
    member.join("orders")
    broker.clock.advance(9_999)
    assert len(broker.wait_for_group("g").members) == 1
    broker.clock.advance(1)
    assert broker.wait_for_group("g", state="Empty", members=0).group_epoch == 2
    assert member.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_runs_out_on_real_time_too() -> None:
    """The timer of the loop, not only the clock of a test."""
    config = {"group.consumer.session.timeout.ms": 150, "group.consumer.heartbeat.interval.ms": 50}
    with EmbeddedBroker({"orders": 1}, config=config) as broker, RawConnection(broker.bootstrap_servers) as connection:
        Member(connection).join("orders")
        broker.wait_for_group("g", state="Empty", members=0)


def test_two_members_reconcile_and_the_waiting_test_sees_it(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """wait_for_group wakes at the change itself: no intervals, no races."""
    first, second = Member(connection, "m1"), Member(connection, "m2")
    seen = []
    waiter = threading.Thread(target=lambda: seen.append(broker.wait_for_group("g", state="stable", members=2)))
    waiter.start()
    first.join("orders")
    second.join("orders")
    first.heartbeat()
    first.acknowledge()
    second.heartbeat()
    waiter.join(60)
    assert [len(member.assigned) for member in seen[0].members] == [2, 2]
    assert seen[0].assigned == {NamedPartition("orders", n) for n in range(4)}


def test_a_condition_that_raises_fails_the_waiting_test_and_not_the_broker(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """A typo in a test's lambda must show as that typo."""
    member = Member(connection)
    member.join("orders")
    with pytest.raises(AttributeError, match="no_such"):
        broker.groups.wait_for("g", lambda group: group.no_such)  # type: ignore[attr-defined]
    assert member.heartbeat().error_code == ErrorCode.NONE


def test_topics_that_change_reach_the_group_with_its_next_heartbeat(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """Growing, deleting and re-creating a topic under a group."""
    member = Member(connection)
    member.join("orders")
    broker.topics.add_partitions("orders", 6)
    member.heartbeat()
    assert len(broker.wait_for_group("g", state="Stable").assigned) == 6
    broker.topics.delete("orders")
    broker.topics.create("orders", 1)
    member.heartbeat()
    member.acknowledge()
    member.heartbeat()
    assert broker.wait_for_group("g", state="Stable").assigned == {NamedPartition("orders", 0)}


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_members_and_offsets_survive_a_restart(tmp_path: Path, durable: bool, clock: ManualClock) -> None:
    """A coordinator that forgets its groups kills librdkafka's members with GROUP_ID_NOT_FOUND."""
    broker = EmbeddedBroker({"orders": 4}, clock=clock, data_dir=tmp_path if durable else None)
    with broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            first, second = Member(connection, "m1"), Member(connection, "m2")
            first.join("orders")
            second.join("orders")
            first.heartbeat()
            first.acknowledge()
            second.heartbeat()
            assert first.commit(first.owned[0].partitions[0], 41) == ErrorCode.NONE
            assert commit_offset(connection, 7, group="simple") == ErrorCode.NONE
        before = broker.wait_for_group("g", state="Stable", members=2)
        broker.crash()
        broker.start()
        assert broker.groups.get("g") == before
        assert broker.groups.ids() == ("g", "simple")
        with RawConnection(broker.bootstrap_servers) as connection:
            first.connection = connection
            response = first.heartbeat()
            assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)
            assert committed(connection, "simple", topic="orders")[0] == 7
        broker.clock.advance(9_999)  # sessions began anew with the start
        assert len(broker.wait_for_group("g").members) == 2
        broker.clock.advance(1)
        assert {member.member_id for member in broker.wait_for_group("g").members} == set()


def test_offsets_expire_after_their_retention(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """An unused group goes away by itself, as in Kafka after seven days."""
    commit_offset(connection, 7, group="simple")
    broker.clock.advance(7 * 24 * 3600 * 1000 - 700_000)
    assert committed(connection, "simple", topic="orders")[0] == 7
    broker.clock.advance(1_400_000)
    assert committed(connection, "simple", topic="orders")[0] == -1


class TestFolderThatFails:
    """A full disk: nothing is half done, no client is told that it worked, and clients are told to ask again."""

    def test_a_join_is_answered_with_coordinator_not_available_and_works_later(
        self, broker: EmbeddedBroker, connection: RawConnection, full_disk: FullDisk
    ) -> None:
        """UNKNOWN_SERVER_ERROR would be fatal to a member; this one makes it ask again."""
        member = Member(connection)
        full_disk.set()
        response = member.join("orders")
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert response.error_message == "No space left on device"
        assert broker.groups.get("g") is None
        full_disk.clear()
        assert member.join("orders").member_epoch == 1

    def test_commits_and_deletions_are_refused_in_each_of_their_parts(
        self, broker: EmbeddedBroker, connection: RawConnection, full_disk: FullDisk
    ) -> None:
        """A commit that looks accepted and is not loses records after the next rebalance."""
        commit_offset(connection, 7, group="simple")
        full_disk.set()
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert commit_offset(connection, 8, group="simple") == refused
        deleted = connection.ask(DeleteGroupsRequest(groups_names=("simple",)), version=2)
        assert [(result.group_id, result.error_code) for result in deleted.results] == [("simple", refused)]
        topics = (OffsetDeleteRequestTopic(name="orders", partitions=(OffsetDeleteRequestPartition(),)),)
        assert connection.ask(OffsetDeleteRequest(group_id="simple", topics=topics), version=0).error_code == refused
        assert committed(connection, "simple", topic="orders")[0] == 7

    def test_a_session_that_could_not_run_out_runs_out_later(self, full_disk: FullDisk) -> None:
        """One failed write must not stop the timers of all groups for ever."""
        config = {"group.consumer.session.timeout.ms": 1_000, "group.consumer.heartbeat.interval.ms": 20}
        with (
            EmbeddedBroker({"orders": 1}, config=config) as broker,
            RawConnection(broker.bootstrap_servers) as connection,
        ):
            Member(connection).join("orders")
            full_disk.set()
            assert full_disk.refused.wait(60)
            assert len(broker.wait_for_group("g").members) == 1
            full_disk.clear()
            broker.wait_for_group("g", state="Empty", members=0)

    @pytest.mark.parametrize("deletes_topic", [False, True], ids=["the member's own change", "a deleted topic"])
    def test_a_member_whose_heartbeats_are_refused_stays(self, full_disk: FullDisk, deletes_topic: bool) -> None:
        """A disk that is full for longer than a session would cost living members their partitions, unlike on Kafka."""
        config = {"group.consumer.session.timeout.ms": "45000"}
        with (
            EmbeddedBroker({"orders": 1, "more": 1}, clock=ManualClock(), config=config) as broker,
            RawConnection(broker.bootstrap_servers) as connection,
        ):
            member = Member(connection)
            member.join("orders")
            member.commit(0, 3)
            full_disk.set()
            if deletes_topic:
                broker.topics.delete("orders")
            broker.clock.advance(30_000)
            refused = member.heartbeat(subscribed_topic_names=("orders", "more"))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            full_disk.clear()
            broker.clock.advance(30_000)
            assert member.heartbeat(subscribed_topic_names=("orders", "more")).error_code == 0

    def test_a_deleted_topic_is_told_to_the_groups_once_the_disk_takes_it(
        self, broker: EmbeddedBroker, connection: RawConnection, full_disk: FullDisk
    ) -> None:
        """Forgetting the change would leave partitions of a dead topic assigned for ever."""
        member = Member(connection)
        member.join("orders")
        member.commit(0, 3)
        full_disk.set()
        broker.topics.delete("orders")
        assert member.heartbeat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        full_disk.clear()
        member.heartbeat()
        member.acknowledge()
        assert broker.wait_for_group("g", state="Stable").assigned == frozenset()


def test_records_of_an_unknown_type_are_skipped_on_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that a newer version wrote to must not keep this one from starting."""
    with EmbeddedBroker({"orders": 1}, data_dir=tmp_path) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            commit_offset(connection, 7, group="simple")
    folder = DataDir.open(tmp_path)
    list(folder.coordinator_log.load())
    folder.coordinator_log.append([(b"\x00\x63future", b"\x00\x00")])
    folder.close()
    with (
        caplog.at_level(logging.WARNING, logger="kip848_client.broker"),
        EmbeddedBroker(data_dir=tmp_path) as broker,
    ):
        assert broker.groups.ids() == ("simple",)
    assert "broker.record_skipped record_type=99" in caplog.text


def test_the_memory_log_keeps_the_latest_value_of_a_key_in_the_order_of_changes() -> None:
    """It stands for a compacted topic; replayed in another order, tombstones of one group hit the next."""
    log = MemoryGroupLog()
    log.append([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    log.append([(b"a", b"2"), (b"b", None)])
    assert list(log.load()) == [(b"c", b"1"), (b"a", b"2")]


def test_patterns_whose_match_failed_are_matched_again(
    broker: EmbeddedBroker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A match that fails once must not leave its group without topics for ever."""
    member = Member(connection)
    with monkeypatch.context() as broken:
        broken.setattr("kip848_client.testing.broker.coordinators.group_host.resolve", lambda *_, **__: 1 // 0)
        assert member.join(subscribed_topic_regex="ord.*").error_code == ErrorCode.NONE
        assert member.heartbeat().error_code == ErrorCode.NONE
    member.heartbeat()
    member.heartbeat()
    assert len(broker.wait_for_group("g", state="Stable").assigned) == 4


def test_events_of_groups_are_journaled_with_topic_names(
    broker: EmbeddedBroker, connection: RawConnection, journal: MemoryJournal
) -> None:
    """The event log is read by people and tools that do not know topic ids."""
    Member(connection).join("orders")
    event = journal.named("member_assignment_changed")[0]
    assert (event.group_id, event.member_id, event.client_id, event.source) == ("g", "m1", "raw", "coordinator")
    assert event.fields["assigned"] == {"orders": [0, 1, 2, 3]}
