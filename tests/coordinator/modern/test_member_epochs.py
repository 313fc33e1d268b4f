"""Who may speak for a member: unknown, fenced and repeated epochs, and the size of a group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from tests.support.coordinator_harness import FAST, Harness


def _at_epoch_100(instance: str | None = None) -> Harness:
    """Member m at epoch 100, which was 99 before, with foo 0 to 2."""
    h = Harness()
    h.create_topic("foo", partitions=3)
    h.join("m", ["foo"], instance=instance)
    for round_ in range(2, 101):
        h.heartbeat("m", round_ - 1, topics=["foo", f"t{round_}"], instance=instance)
    member = h.member("m")
    assert (member.member_epoch, member.previous_member_epoch) == (100, 99)
    return h


@pytest.mark.parametrize("instance", [None, "i"])
@pytest.mark.parametrize("epoch", [200, 101, 98, 50, 1])
def test_a_foreign_epoch_is_fenced(epoch: int, instance: str | None) -> None:
    """A zombie, or a client from the future, cannot keep partitions alive."""
    h = _at_epoch_100(instance)
    before = h.state()
    response = h.heartbeat("m", epoch, owned={"foo": [0]}, instance=instance)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert str(epoch) in (response.error_message or "")
    assert h.state() == before


@pytest.mark.parametrize("instance", [None, "i"])
def test_the_previous_epoch_without_owned_partitions_is_fenced(instance: str | None) -> None:
    """Without a list of its partitions a member cannot prove that only an answer was lost."""
    h = _at_epoch_100(instance)
    assert h.heartbeat("m", 99, instance=instance).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("instance", [None, "i"])
@pytest.mark.parametrize("owned", [{}, {"foo": [0]}, {"foo": [0, 1, 2]}])
def test_the_previous_epoch_with_a_subset_of_the_assigned_partitions_is_accepted(
    owned: dict[str, list[int]], instance: str | None
) -> None:
    """A lost answer does not cost a member its partitions."""
    h = _at_epoch_100(instance)
    response = h.heartbeat("m", 99, owned=owned, instance=instance)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 100)


def test_the_previous_epoch_with_a_foreign_partition_is_fenced() -> None:
    """A member that owns what it was never given must start over."""
    h = _at_epoch_100()
    h.create_topic("bar", partitions=1)
    assert h.heartbeat("m", 99, owned={"foo": [0], "bar": [0]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.heartbeat("m", 99, owned={"foo": [0, 3]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_known_member_may_rejoin_with_epoch_0_and_gets_its_partitions_back(instance: str | None) -> None:
    """A fenced client comes back under its own id at once, without waiting for its session to end (KAFKA-19233)."""
    h = Harness()
    h.create_topic("foo", partitions=3)
    h.join("m", ["foo"], instance=instance)
    response = h.join("m", ["foo"], instance=instance)
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 1)
    assert h.received(response) == {"foo": [0, 1, 2]}
    assert h.group.group_epoch == 1
    assert h.record_names() == []


def test_a_full_group_takes_no_new_member_but_keeps_its_own() -> None:
    """group.consumer.max.size does not hurt members: a static one comes back under another id, as since Kafka 4.4."""
    h = Harness(config=replace(FAST, consumer_max_size=2))
    h.join("a", ["foo"])
    h.join("b", ["foo"], instance="i")
    refused = h.join("c", ["foo"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "2" in (refused.error_message or "")
    assert h.heartbeat("a", 1).error_code == ErrorCode.NONE
    h.heartbeat("b", -2, instance="i")
    assert h.join("c", ["foo"], instance="i").error_code == ErrorCode.NONE
    assert h.join("d", ["foo"], instance="j").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert set(h.group.members) == {"a", "c"}


def test_a_broker_full_of_members_refuses_the_next_one_and_keeps_those_it_has() -> None:
    """A flood of joins must not exhaust the memory of all groups."""
    h = Harness(config=replace(FAST, members_max=1))
    h.join("a", ["foo"])
    refused = h.join("b", ["foo"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "kip848.members.max" in (refused.error_message or "")
    assert h.heartbeat("a", 1).error_code == ErrorCode.NONE


def test_a_new_process_cannot_take_the_member_id_of_another_instance() -> None:
    """Two instances that were configured with one member id are told so; no partition is counted twice."""
    h = Harness()
    h.join("m", ["foo"], instance="i1")
    h.join("n", ["foo"], instance="i2")
    h.heartbeat("n", -2, instance="i2")
    assert h.join("m", ["foo"], instance="i2").error_code == ErrorCode.INVALID_REQUEST
