"""The case studies of KIP-848, step by step: what each member has, and what each answer says."""

from __future__ import annotations

from kip848_client.coordinator import GroupState
from tests.support.coordinator_harness import Harness


def test_basic_three_members_join_one_after_the_other() -> None:
    """A newcomer gets its partitions only after their owner confirmed to have given them up."""
    h = Harness()
    h.create_topic("foo", partitions=3)
    a = h.join("A", ["foo"])
    assert (a.member_epoch, h.received(a)) == (1, {"foo": [0, 1, 2]})
    b = h.join("B", ["foo"])
    assert (b.member_epoch, h.received(b)) == (2, {})
    assert (h.target("A"), h.target("B")) == ({"foo": [0, 1]}, {"foo": [2]})
    a = h.heartbeat("A", 1)
    assert (a.member_epoch, h.received(a)) == (1, {"foo": [0, 1]})
    assert h.pending("A") == {"foo": [2]}
    a = h.heartbeat("A", 1, owned={"foo": [0, 1]})
    assert (a.member_epoch, h.received(a)) == (2, None)
    b = h.heartbeat("B", 2)
    assert (b.member_epoch, h.received(b)) == (2, {"foo": [2]})
    assert h.group.state is GroupState.STABLE

    c = h.join("C", ["foo"])
    assert (c.member_epoch, h.received(c)) == (3, {})
    assert (h.target("A"), h.target("B"), h.target("C")) == ({"foo": [0]}, {"foo": [2]}, {"foo": [1]})
    b = h.heartbeat("B", 2)
    assert (b.member_epoch, h.received(b)) == (3, None)
    a = h.heartbeat("A", 2)
    assert (a.member_epoch, h.received(a)) == (2, {"foo": [0]})
    a = h.heartbeat("A", 2, owned={"foo": [0]})
    assert (a.member_epoch, h.received(a)) == (3, None)
    c = h.heartbeat("C", 3)
    assert (c.member_epoch, h.received(c)) == (3, {"foo": [1]})
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def test_incremental_freed_partitions_are_handed_out_one_by_one() -> None:
    """A newcomer starts with what is free and does not wait for the slowest member."""
    h = Harness()
    h.create_topic("foo", partitions=6)
    h.join("A", ["foo"])
    h.join("B", ["foo"])
    h.heartbeat("A", 1)
    h.heartbeat("A", 1, owned={"foo": [0, 1, 2]})
    h.heartbeat("B", 2)
    assert (h.assigned("A"), h.assigned("B")) == ({"foo": [0, 1, 2]}, {"foo": [3, 4, 5]})
    epoch = h.group.group_epoch

    c = h.join("C", ["foo"])
    assert (c.member_epoch, h.received(c)) == (epoch + 1, {})
    assert (h.target("A"), h.target("B"), h.target("C")) == ({"foo": [0, 1]}, {"foo": [3, 4]}, {"foo": [2, 5]})
    a = h.heartbeat("A", epoch)
    assert (a.member_epoch, h.received(a)) == (epoch, {"foo": [0, 1]})
    b = h.heartbeat("B", epoch)
    assert (b.member_epoch, h.received(b)) == (epoch, {"foo": [3, 4]})
    c = h.heartbeat("C", epoch + 1)
    assert (c.member_epoch, h.received(c)) == (epoch + 1, None)
    a = h.heartbeat("A", epoch, owned={"foo": [0, 1]})
    assert (a.member_epoch, h.received(a)) == (epoch + 1, None)
    c = h.heartbeat("C", epoch + 1)
    assert (c.member_epoch, h.received(c)) == (epoch + 1, {"foo": [2]})
    b = h.heartbeat("B", epoch, owned={"foo": [3, 4]})
    assert (b.member_epoch, h.received(b)) == (epoch + 1, None)
    c = h.heartbeat("C", epoch + 1)
    assert (c.member_epoch, h.received(c)) == (epoch + 1, {"foo": [2, 5]})
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def test_member_failure_gives_its_partitions_to_the_others() -> None:
    """The partitions of a consumer that died are consumed again after its session timeout."""
    h = Harness()
    h.create_topic("foo", partitions=6)
    for member_id in "ABC":
        h.join(member_id, ["foo"])
    _settle(h, "ABC")
    epoch = h.group.group_epoch
    lost = h.assigned("A")["foo"]

    h.advance(30_000)
    h.heartbeat("B", epoch)
    h.heartbeat("C", epoch)
    (fenced,) = h.advance(15_000)
    assert h.record_names(fenced) == ["current†", "target†", "member†", "epoch"]
    assert (h.group.group_epoch, h.group.target_epoch, h.group.state) == (epoch + 1, epoch, GroupState.ASSIGNING)
    b = h.heartbeat("B", epoch)
    assert b.member_epoch == epoch + 1
    c = h.heartbeat("C", epoch)
    assert c.member_epoch == epoch + 1
    assert h.group.state is GroupState.STABLE
    assert set(lost) < {*h.assigned("B")["foo"], *h.assigned("C")["foo"]}
    h.verify_log()


def test_partition_added_is_assigned_after_the_next_heartbeat() -> None:
    """A topic that grows is consumed whole without a restart of any consumer."""
    h = Harness()
    h.create_topic("foo", partitions=1)
    h.join("A", ["foo"])
    h.join("B", ["foo"])
    _settle(h, "AB")
    epoch = h.group.group_epoch
    assert (h.assigned("A"), h.assigned("B")) == ({"foo": [0]}, {})

    h.add_partitions("foo", partitions=2)
    assert h.group.group_epoch == epoch
    a = h.heartbeat("A", epoch)
    assert (a.member_epoch, h.received(a)) == (epoch + 1, None)
    b = h.heartbeat("B", epoch)
    assert (b.member_epoch, h.received(b)) == (epoch + 1, {"foo": [1]})
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def _settle(h: Harness, member_ids: str) -> None:
    """Heartbeat as good members do, until the group is stable."""
    for _ in range(10):
        for member_id in member_ids:
            h.heartbeat(member_id, h.member(member_id).member_epoch, owned=h.assigned(member_id))
        if h.group.state is GroupState.STABLE:
            return
    raise AssertionError(f"the group does not settle: {h.group}")
