"""Looking at groups and removing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.connect_harness import ConnectHarness
from tests.support.coordinator_harness import Harness


def _group() -> Harness:
    """Group g: a with foo 0 and 1, b waiting for foo 1; group s: offsets only; group e: empty."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("b", ["foo"], instance="i", rack="r")
    h.join("a", ["foo"])
    h.group_id = "s"
    h.commit("", -1, {"foo": {0: 5}})
    h.group_id = "e"
    h.join("x", ["foo"])
    h.commit("x", 1, {"foo": {0: 5}})
    h.heartbeat("x", -1)
    h.group_id = "g"
    return h


def _describe(h: Harness, *group_ids: str) -> tuple[DescribedGroup, ...]:
    return h.send(ConsumerGroupDescribeRequest(group_ids=group_ids), version=1).groups


def test_a_consumer_group_is_described_with_what_each_member_has_and_shall_have() -> None:
    """``kafka-consumer-groups --describe`` shows the truth of a running rebalance."""
    h = _group()
    (group,) = _describe(h, "g")
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    a, b = group.members
    assert (a.member_id, a.member_epoch, a.member_type) == ("a", 2, 1)
    assert a.assignment.topic_partitions == ()
    assert [(t.topic_name, t.partitions) for t in a.target_assignment.topic_partitions] == [("foo", (1,))]
    assert (b.member_id, b.instance_id, b.rack_id, b.member_epoch) == ("b", "i", "r", 1)
    assert (b.client_id, b.client_host, b.subscribed_topic_names) == ("client", "/127.0.0.1", ("foo",))
    assert [(t.topic_name, t.partitions) for t in b.assignment.topic_partitions] == [("foo", (0, 1))]
    assert [(t.topic_name, t.partitions) for t in b.target_assignment.topic_partitions] == [("foo", (0,))]


def test_a_deleted_topic_is_left_out_of_a_description() -> None:
    """A topic without a name cannot be shown."""
    h = _group()
    h.delete_topic("foo")
    (group,) = _describe(h, "g")
    assert all(not member.assignment.topic_partitions for member in group.members)


@pytest.mark.parametrize(("group_id", "what"), [("nobody", "not found"), ("s", "is not a consumer group")])
def test_what_is_no_consumer_group_is_not_found(group_id: str, what: str) -> None:
    """A tool learns whether the name or the type is wrong."""
    group, living = _describe(_group(), group_id, "g")
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert what in (group.error_message or "")
    assert living.error_code == ErrorCode.NONE


def test_an_empty_group_id_cannot_be_described() -> None:
    """An empty argument of a tool is told as such; a blank is a name like any other, as in Kafka."""
    empty, blank = _describe(_group(), "", " ")
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    assert blank.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), ["e", "g", "s"]),
        (("reCONciling",), (), ["g"]),
        ((" Empty ",), (), ["e", "s"]),
        ((), ("Consumer",), ["e", "g"]),
        ((), ("classic",), ["s"]),
        (("empty",), ("consumer",), ["e"]),
        (("nonsense",), (), []),
        ((), ("nonsense",), []),
        ((), (" consumer ",), []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    states: tuple[str, ...], types: tuple[str, ...], expected: list[str]
) -> None:
    """Filters ignore case, and blanks around a state but not around a type; a group must pass both."""
    h = _group()
    response = h.send(ListGroupsRequest(states_filter=states, types_filter=types), version=5)
    assert [group.group_id for group in response.groups] == expected


def test_a_listed_group_has_its_type_and_state() -> None:
    """``kafka-groups.sh --list`` and dashboards show type and state of each group."""
    response = _group().send(ListGroupsRequest(), version=5)
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups] == [
        ("e", "consumer", "Empty", "consumer"),
        ("g", "consumer", "Reconciling", "consumer"),
        ("s", "", "Empty", "classic"),
    ]


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize(("group_id", "what"), [("g", "is not a classic group"), ("nobody", "not found")])
def test_the_classic_description_does_not_know_consumer_groups(group_id: str, what: str, version: int) -> None:
    """Old tools see a dead group, newer ones an error that names the reason."""
    (group,) = _group().send(DescribeGroupsRequest(groups=(group_id,)), version=version).groups
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert group.error_message == (f"Group {group_id} {what}." if version >= 6 else None)


def test_the_classic_description_shows_a_group_of_offsets_as_empty() -> None:
    """A consumer that assigns partitions itself is visible to every tool."""
    response = _group().send(DescribeGroupsRequest(groups=("s",)), version=6)
    assert (response.groups[0].group_state, response.groups[0].error_code) == ("Empty", ErrorCode.NONE)


def test_only_groups_without_members_are_deleted_and_their_offsets_with_them() -> None:
    """An administrator cannot cut a living application off by accident."""
    h = _group()
    response = h.send(DeleteGroupsRequest(groups_names=("g", "e", "s", "nobody", "e")), version=2)
    assert {result.group_id: result.error_code for result in response.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "e": ErrorCode.NONE,
        "s": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert h.record_names() == [
        *["offset†", "target_epoch†", "ConsumerGroupPartitionMetadataKey†", "epoch†"],
        *["offset†", "classic†"],
    ]
    assert h.coordinator.groups() == ("g",)
    for h.group_id in ("e", "s"):
        assert h.fetch(None) == {}
    h.group_id = "e"
    assert h.join("x", ["foo"]).member_epoch == 1, "a deleted group starts anew"
    h.verify_log()


def test_nothing_is_kept_of_a_group_that_was_deleted() -> None:
    """Groups with names that are used once do not fill the memory."""
    h = ConnectHarness()
    h.create_topic("foo", partitions=2)
    h.join("a", ["foo"], regex="f.*")
    h.run_tasks()
    h.restart()
    h.heartbeat("a", 2)
    h.heartbeat("a", -1)
    h.restart()
    h.group_id = "workers"
    h.enter("w", catalogue=(1, "A"))
    h.beat("w", -1)
    h.group_id = "plain"
    h.join("a", ["foo"])
    h.heartbeat("a", -1)
    kept = {name for name, value in _collections(h.coordinator) if value}
    assert {"groups", "metadata_check_due", "regex_check_due", "_heard", "computed_ms", "_of_groups"} <= kept
    h.send(DeleteGroupsRequest(groups_names=("g", "workers", "plain")), version=2)
    for name, value in _collections(h.coordinator):
        assert not {"g", "workers", "plain"} & set(value), name


def _collections(coordinator: GroupCoordinator) -> Iterator[tuple[str, Iterable[object]]]:
    """The dictionaries and sets of the state and of its parts."""
    state = coordinator._state
    for owner in (state, *state._parts.values()):
        yield from ((name, value) for name, value in vars(owner).items() if isinstance(value, dict | set))


def _delete_offsets(h: Harness, group_id: str) -> OffsetDeleteResponse:
    topic = OffsetDeleteRequestTopic(name="foo", partitions=tuple(map(_partition, (0, 1))))
    return h.send(OffsetDeleteRequest(group_id=group_id, topics=(topic,)), version=0)


def _partition(index: int) -> OffsetDeleteRequestPartition:
    return OffsetDeleteRequestPartition(partition_index=index)


def test_offsets_of_a_subscribed_topic_stay() -> None:
    """The position of a running application is not pulled away."""
    h = _group()
    (topic,) = _delete_offsets(h, "g").topics
    assert {p.error_code for p in topic.partitions} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


@pytest.mark.parametrize("group_id", ["e", "s"])
def test_offsets_of_a_topic_without_subscribers_are_deleted(group_id: str) -> None:
    """Every asked partition is answered, whether it had an offset or not."""
    h = _group()
    (topic,) = _delete_offsets(h, group_id).topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 0), (1, 0)]
    h.group_id = group_id
    assert h.fetch(None) == {}


def test_offsets_of_an_unknown_group_are_not_found() -> None:
    """An operator who mistypes the group id is told, and does not believe that the offsets are gone."""
    assert _delete_offsets(_group(), "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h = _group()
    h.group_id = ""
    h.commit("", -1, {"foo": {0: 1}})
    assert _delete_offsets(h, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_snapshot_of_a_missing_group_is_none() -> None:
    """Watching a group that does not exist yet is no error."""
    h = _group()
    assert h.coordinator.snapshot("nobody") is None
    assert h.group.state is GroupState.RECONCILING
