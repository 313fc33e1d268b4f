"""Static members of classic groups: a process that restarts takes the place of the one before (s33 to s39)."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from tests.support.classic_harness import FOO, ClassicHarness
from tests.support.coordinator_harness import FailedAppend

NONE = ErrorCode.NONE
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def _stable(h: ClassicHarness, *instances: str, **options: object) -> list[str]:
    """A stable group of static members; each one's assignment is its instance id."""
    calls = [h.join_group(instance=instance, **options) for instance in instances]  # type: ignore[arg-type]
    ids = list(h.classic.members)
    if len(ids) > 1:
        calls[0] = h.join_group(ids[0], instance=instances[0], **options)  # type: ignore[arg-type]
    assert all(call.code == NONE for call in calls)
    h.sync_all(dict(zip(ids, instances, strict=True)))
    return ids


def test_s33_a_leader_that_is_back_finds_its_assignment_without_a_rebalance() -> None:
    """A rolling restart of static members moves nothing; KIP-814 keeps the leader from assigning again."""
    h = ClassicHarness()
    (old,) = _stable(h, "i1")
    answer = h.join_group(instance="i1").answer
    new = answer.member_id
    assert new != old
    assert (answer.error_code, answer.generation_id, answer.leader, answer.skip_assignment) == (NONE, 1, new, True)
    assert [(member.member_id, member.metadata) for member in answer.members] == [(new, FOO)]
    assert h.record_names() == ["classic"]
    assert h.sync_group(new, 1).answer.assignment == b"i1"
    assert (h.beat(old, 1, instance="i1"), h.beat(old, 1)) == (FENCED, UNKNOWN)
    assert h.beat(new, 1, instance="i1") == NONE
    h.verify_log()


def test_s34_before_version_9_the_leader_that_is_back_is_told_that_it_does_not_lead() -> None:
    """Older clients know no way not to assign."""
    h = ClassicHarness()
    (old,) = _stable(h, "i1")
    answer = h.join_group(instance="i1", version=8).answer
    assert (answer.generation_id, answer.leader, answer.members, answer.skip_assignment) == (1, old, (), False)
    assert h.classic.leader == answer.member_id


def test_a_follower_that_is_back_is_told_who_leads() -> None:
    """It fetches its assignment, and no other member hears of it."""
    h = ClassicHarness()
    leader, _ = _stable(h, "i1", "i2")
    answer = h.join_group(instance="i2").answer
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, (), False)
    assert list(h.classic.members) == [leader, answer.member_id]


def test_s35_other_subscription_bytes_do_not_rebalance() -> None:
    """Kafka compares which protocol is selected, and nothing else."""
    h = ClassicHarness()
    _stable(h, "i1")
    answer = h.join_group(instance="i1", protocols={"range": FOO + b"?"}).answer
    assert (answer.error_code, answer.generation_id) == (NONE, 1)


def test_s36_a_member_that_is_back_and_changes_the_vote_rebalances() -> None:
    """The others have to learn which protocol is used now."""
    h = ClassicHarness()
    _stable(h, "i1", protocols=["range", "sticky"])
    answer = h.join_group(instance="i1", protocols=["sticky", "range"]).answer
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_s37_the_parked_join_of_the_process_before_is_fenced() -> None:
    """Two processes with one instance id: the older one stops."""
    h = ClassicHarness()
    _stable(h, "i1")
    first = h.join_group(instance="i2")
    second = h.join_group(instance="i2")
    assert first.code == FENCED
    assert second.is_parked


def test_s38_the_parked_sync_of_the_process_before_is_fenced_and_the_group_rebalances() -> None:
    """The leader's assignment names a member that is no more."""
    h = ClassicHarness()
    leader, follower = _stable(h, "i1", "i2")
    h.join_group(leader, instance="i1")
    h.join_group(follower, instance="i2")
    waiting = h.sync_group(follower, 3)
    again = h.join_group(instance="i2")
    assert waiting.code == FENCED
    assert again.is_parked
    assert h.state_is(ClassicState.PREPARING)
    assert h.beat(leader, 3) == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_replaces_a_member_that_owes_a_sync_owes_it_in_its_place() -> None:
    """Apache Kafka goes on waiting for the old id, and rebalances when the time for it is up."""
    h = ClassicHarness()
    leader, follower = _stable(h, "i1", "i2")
    h.join_group(leader, instance="i1")
    h.join_group(follower, instance="i2")
    h.sync_group(leader, 3, {leader: b"1", follower: b"2"})
    new = h.join_group(instance="i2").answer.member_id
    assert h.classic.pending_syncs == {new}
    assert h.sync_group(new, 3).answer.assignment == b"2"
    assert not h.classic.pending_syncs


def test_until_the_new_process_is_heard_of_the_session_timeout_of_the_old_one_counts() -> None:
    """A process that dies again at once is noticed as its predecessor would have been."""
    h = ClassicHarness()
    _stable(h, "i1", session_ms=3_000)
    h.join_group(instance="i1", session_ms=60_000)
    h.advance(3_000)
    assert h.state_is(ClassicState.EMPTY)


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (("", "i1"), NONE),
        (("wrong", "i1"), FENCED),
        (("", "zz"), UNKNOWN),
        (("wrong", "zz"), UNKNOWN),
    ],
)
def test_s39_an_administrator_removes_a_static_member_by_its_instance_id(
    member: tuple[str, str], code: ErrorCode
) -> None:
    """A machine that is gone for good need not be waited for."""
    h = ClassicHarness()
    _stable(h, "i1")
    assert h.leave_group(member) == [code]


def test_a_static_member_may_leave_its_instance_id_out() -> None:
    """Its member id says all; Kafka asks for no more."""
    h = ClassicHarness()
    (member_id,) = _stable(h, "i1")
    assert h.beat(member_id, 1) == NONE
    assert h.join_group(member_id).code == NONE
    assert h.leave_group(member_id) == [NONE]


def test_a_failed_append_leaves_the_old_process_in_its_place() -> None:
    """A replacement that is not in the log would be forgotten by the next coordinator."""
    h = ClassicHarness()
    (old,) = _stable(h, "i1")
    before = h.classic
    h.fail_next_append = True
    with pytest.raises(FailedAppend):
        h.join_group(instance="i1")
    assert h.classic == before
    assert h.beat(old, 1, instance="i1") == NONE
