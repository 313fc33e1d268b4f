"""Share groups over the wire: from the first heartbeat to their start offsets, and what survives a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ConfigError, DataDirError, ErrorCode
from kip848_client.testing import coordinator_not_here, error
from kip848_client.testing.broker.storage.share_state_log import MemoryShareStateLog
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey

GROUP, TOPIC = "workers", "jobs"

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 2})


class Members:
    """Members of the group on one connection to its coordinator."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        node_id = broker.nodes.coordinator(group=GROUP)
        self.connection = RawConnection(broker.nodes[node_id].bootstrap_server)
        self.epochs: dict[str, int] = {}

    def beat(self, member_id: str, epoch: int | None = None, **fields: Any) -> Any:
        epoch = self.epochs.get(member_id, 0) if epoch is None else epoch
        asked = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch} | fields
        if epoch == 0:
            asked = {"subscribed_topic_names": [TOPIC]} | asked
        answer = self.connection.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **asked)
        if not answer.error_code:
            self.epochs[member_id] = answer.member_epoch
        return answer

    def offsets(self, topics: list[dict[str, Any]] | None = None, *, version: int = 1) -> list[tuple[int, int, int]]:
        """(partition, start offset, lag) of the group."""
        asked = {"group_id": GROUP, "topics": topics}
        (group,) = self.connection.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=[asked]).groups
        assert not group.error_code
        return [
            (each.partition_index, each.start_offset, each.lag) for topic in group.topics for each in topic.partitions
        ]

    def alter(self, **offsets: int) -> Any:
        partitions = [{"partition_index": int(name[1:]), "start_offset": offset} for name, offset in offsets.items()]
        topics = [{"topic_name": TOPIC, "partitions": partitions}]
        return self.connection.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=topics)


@pytest.fixture
def members(broker: EmbeddedBroker) -> Iterator[Members]:
    members = Members(broker)
    yield members
    members.connection.close()


def test_members_of_a_share_group_are_shown(broker: EmbeddedBroker, members: Members) -> None:
    """A test that waits for its workers, or looks at them, needs the group as it is."""
    members.beat("a")
    members.beat("a")
    members.beat("b")
    group = broker.wait_for_group(GROUP, state="Stable", members=2)
    assert group.type == "share"
    assert str(group.member("a")) == "raw@3 [jobs-0, jobs-1]"
    shown = broker.share_group(GROUP)
    assert shown is not None
    assert [member.member_id for member in shown.members] == ["a", "b"]
    assert [(each.topic, each.partition) for each in shown.partitions] == [(TOPIC, 0), (TOPIC, 1)]
    assert shown.partition(TOPIC, 1).in_flight == ()
    assert broker.share_group("other") is None


def test_the_session_of_a_member_can_be_made_to_end(broker: EmbeddedBroker, members: Members) -> None:
    """A crash of a worker, without waiting for it."""
    members.beat("a")
    broker.groups.expire_session(GROUP, "a")
    broker.wait_for_group(GROUP, state="Empty")
    assert members.beat("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_start_offsets_are_altered_described_and_deleted(broker: EmbeddedBroker, members: Members) -> None:
    """A queue is read again from somewhere, and its lag says how much is left."""
    for _ in range(10):
        broker.produce(TOPIC, "job", partition=0)
    assert members.offsets() == []
    assert members.offsets([{"topic_name": TOPIC, "partitions": [0]}, {"topic_name": "no", "partitions": [1]}]) == [
        (0, -1, -1),
        (1, -1, -1),
    ]
    assert not members.alter(p0=4).error_code
    assert members.offsets() == [(0, 4, 6)]
    assert members.offsets(version=0) == [(0, 4, -1)]
    members.beat("a")
    members.beat("a")
    assert members.alter(p0=5).error_code == ErrorCode.NON_EMPTY_GROUP
    assert members.offsets() == [(0, 4, 6), (1, 0, 0)]
    members.beat("a", -1)
    answer = members.connection.call(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=[{"topic_name": TOPIC}]
    )
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [(TOPIC, 0)]
    assert members.offsets() == []


def test_a_deleted_group_leaves_nothing_behind(broker: EmbeddedBroker, members: Members) -> None:
    """A group of the same name is a new one: it begins where its reset says."""
    members.alter(p0=1)
    answer = members.connection.call(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP])
    assert [each.error_code for each in answer.results] == [0]
    assert broker.share_group(GROUP) is None
    assert members.offsets([{"topic_name": TOPIC, "partitions": [0]}]) == [(0, -1, -1)]


def test_a_group_has_its_own_settings(broker: EmbeddedBroker, members: Members) -> None:
    """Kafka's names and bounds: a queue begins at its first record, or locks its records for longer."""
    broker.groups.set_config(
        GROUP,
        {
            "share.heartbeat.interval.ms": "250",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
            "errors.deadletterqueue.topic.name": "dlq.jobs",
        },
    )
    assert members.beat("a").heartbeat_interval_ms == 250
    settings = broker._on_loop(lambda state: state.shares.settings_of(GROUP))
    assert (settings.auto_offset_reset, settings.isolation_level) == ("by_duration:PT1H", "read_committed")
    assert (settings.renew_acknowledge_enable, settings.dead_letter_topic) == (False, "dlq.jobs")
    for name, value in (
        ("share.auto.offset.reset", "none"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.delivery.count.limit", "11"),
        ("errors.deadletterqueue.topic.name", "__dlq"),
    ):
        with pytest.raises(ConfigError, match=name):
            broker.groups.set_config(GROUP, {name: value})


@pytest.mark.kip848_broker(topics={TOPIC: 2}, nodes=3)
def test_a_group_survives_the_node_of_its_coordinator(broker: EmbeddedBroker, members: Members) -> None:
    """Its members go on with their epochs at the next coordinator, and nothing begins anew."""
    members.alter(p0=3)
    members.beat("a")
    members.beat("a")
    node_id = broker.nodes.coordinator(group=GROUP)
    broker.nodes.kill(node_id)
    moved = Members(broker)
    moved.epochs = members.epochs
    assert (moved.beat("a").error_code, moved.epochs) == (0, {"a": 3})
    assert moved.offsets()[0][:2] == (0, 3)
    moved.connection.close()


def test_a_group_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    """A broker with a data folder is used like a Kafka: what was delivered stays delivered."""
    with EmbeddedBroker(topics={TOPIC: 2}, data_dir=tmp_path) as broker:
        members = Members(broker)
        members.alter(p0=3)
        members.beat("a")
        members.connection.close()
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        members = Members(broker)
        members.epochs = {"a": 2}
        assert members.beat("a").member_epoch == 3
        assert members.offsets()[0][:2] == (0, 3)
        members.connection.close()


def test_an_operator_removes_a_member_and_moves_the_group_on(broker: EmbeddedBroker, members: Members) -> None:
    """The calls of the test kit mean the same for every kind of group."""
    members.beat("a")
    members.beat("b")
    broker.groups.remove_member(GROUP, "a")
    assert members.beat("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    epoch = broker.groups.force_rebalance(GROUP)
    assert members.beat("b").member_epoch == epoch


def test_faults_find_the_requests_of_share_groups_by_what_they_name(broker: EmbeddedBroker, members: Members) -> None:
    """A coordinator that is down answers the workers as little as the consumers."""
    broker.faults.on("heartbeat", coordinator_not_here(), group=GROUP, member="a", topic=TOPIC)
    assert members.beat("a").error_code == ErrorCode.NOT_COORDINATOR
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.faults.on("DescribeShareGroupOffsets", error(unknown), group=GROUP, topic=TOPIC, partition=1)
    asked = {"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0, 1]}]}
    (group,) = members.connection.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked]).groups
    codes = {each.partition_index: each.error_code for topic in group.topics for each in topic.partitions}
    assert codes == {0: 0, 1: unknown}


def test_settings_of_all_brokers_hold_for_groups_without_their_own(broker: EmbeddedBroker, members: Members) -> None:
    """As in Kafka, the time between two targets of share groups changes while the broker runs."""
    configs = [{"name": "group.share.assignment.interval.ms", "config_operation": 0, "value": "7000"}]
    resource = {"resource_type": 4, "resource_name": "", "configs": configs}
    (answer,) = members.connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    assert answer.error_code == 0
    broker.groups.set_config(GROUP, {"share.heartbeat.interval.ms": "250"})
    found = broker._on_loop(lambda state: [state.groups.group_config(group) for group in (GROUP, "other")])
    assert [each.share_assignment_interval_ms for each in found] == [7_000, 7_000]
    assert [each.share_heartbeat_interval_ms for each in found] == [250, 100]


def test_a_group_that_is_deleted_on_a_full_disk_can_be_made_again(
    broker: EmbeddedBroker, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a deleted group must not refuse the partitions of the next one, nor keep a topic from going."""

    def refuse(log: MemoryShareStateLog, records: object) -> None:
        raise DataDirError("No space left on device")

    members.beat("a")
    members.beat("a", -1)
    assert members.alter(p0=5, p1=5).error_code == 0
    with monkeypatch.context() as full:
        full.setattr(MemoryShareStateLog, "append", refuse)
        (deleted,) = members.connection.call(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP]).results
        assert deleted.error_code == 0
    members.beat("b", 0)
    assert [start for _, start, _ in members.offsets()] == [-1, -1]
    with monkeypatch.context() as full:
        full.setattr(MemoryShareStateLog, "append", refuse)
        broker.topics.delete(TOPIC)
    assert broker.shares.partitions(GROUP) == ()
