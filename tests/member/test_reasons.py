"""What the member says about why it is where it is: starts of partitions, ends of a membership, refused commits."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.core.events import (
    CommitDone,
    CommitKind,
    CommitRequested,
    GroupLeft,
    LeaveMode,
    ListOffsets,
    ManuallyAssigned,
    OffsetsListed,
    PositionLost,
    PositionSet,
    StartCause,
    StartFetching,
    StartReason,
)
from kip848_client.member.core.settings import ByDuration, ResetPolicy
from tests.spec.arrange import fence, looking_up, pass_time, stable
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness, positions

T0 = NamedPartition("t", 0)


def last_start(member: MemberHarness) -> StartCause:
    """Why t-0 was last read from where it was."""
    return {tip.topic_partition: start for tip, start in member.emitted(StartFetching)[-1].starts.items()}[T0]


def list_offset(member: MemberHarness, offset: int) -> None:
    """The leader says which offset the reset policy means."""
    request_id = member.take_waiting(ListOffsets).request_id
    member.step(OffsetsListed(request_id, {T0: OffsetAndMetadata(offset)}, {}))


def test_a_partition_with_a_committed_offset_goes_on_there() -> None:
    """The ordinary restart."""
    member = looking_up()
    member.answer_fetch({"t-0": 42})

    assert last_start(member) == StartCause(StartReason.COMMITTED)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (ResetPolicy.LATEST, "latest"),
        (ResetPolicy.EARLIEST, "earliest"),
        (ByDuration(3_600_000), "by_duration:PT3600S"),
    ],
)
def test_a_partition_without_one_names_the_policy(policy: ResetPolicy | ByDuration, name: str) -> None:
    """The answer to "why do I read nothing"."""
    member = looking_up(auto_offset_reset=policy)
    member.answer_fetch()
    list_offset(member, 7)

    assert last_start(member) == StartCause(StartReason.NOTHING_COMMITTED, name)


def test_a_position_that_is_out_of_range_is_named() -> None:
    """Retention was faster than the consumer: which offset was lost is the first question."""
    member = looking_up()
    member.answer_fetch({"t-0": 42})
    member.step(PositionLost(T0, OffsetAndMetadata(42)))
    list_offset(member, 100)

    assert last_start(member) == StartCause(StartReason.OUT_OF_RANGE, "earliest", 42)


def test_a_seek_and_an_offset_given_to_assign_are_told_apart() -> None:
    """Both are the application's own choice, made in different places."""
    member = looking_up()
    member.step(PositionSet(T0, OffsetAndMetadata(5)))
    by_hand = MemberHarness()
    by_hand.step(ManuallyAssigned({T0: OffsetAndMetadata(9)}, {}))

    assert last_start(member) == StartCause(StartReason.SOUGHT)
    assert last_start(by_hand) == StartCause(StartReason.ASSIGNED)


def reasons(member: MemberHarness) -> list[str]:
    return [left.reason for left in member.emitted(GroupLeft)]


def test_each_way_out_of_the_group_has_its_reason() -> None:
    """A log that says only that the member is out is of no use at night."""
    closed, unsubscribed, late, removed = stable(), stable(), stable(), stable()
    closed.leave(closing=True)
    closed.finish_call("revoked", "t-0")
    unsubscribed.leave()
    unsubscribed.finish_call("revoked", "t-0")
    pass_time(late, MAX_POLL_MS + 1)
    fence(removed, ErrorCode.UNKNOWN_MEMBER_ID)

    assert reasons(closed) == ["the consumer is being closed"]
    assert reasons(unsubscribed) == ["the consumer unsubscribed"]
    (text,) = reasons(late)
    assert text.startswith(f"poll() was not called for {MAX_POLL_MS + 1} ms, max.poll.interval.ms is {MAX_POLL_MS}: ")
    (text,) = reasons(removed)
    assert text.startswith("the coordinator removed the member: UNKNOWN_MEMBER_ID(25)")


def test_a_leave_that_keeps_the_place_says_so() -> None:
    """The others wait for its session: that is what the log has to explain."""
    static = stable(instance_id="host-1")
    static.leave(closing=True)
    static.finish_call("revoked", "t-0")
    remaining = stable()
    remaining.leave(mode=LeaveMode.REMAIN_IN_GROUP, closing=True)
    remaining.finish_call("revoked", "t-0")

    assert "as a static member keeps its place" in reasons(static)[0]
    assert "the coordinator is not told" in reasons(remaining)[0]


def refused_commit(member: MemberHarness) -> str:
    member.step(CommitRequested(77, positions(t_0=5), CommitKind.SYNC, member.now_ms + 1_000))
    (done,) = [done for done in member.emitted(CommitDone) if done.commit_id == 77]
    return str(done.error)


def test_a_commit_after_a_late_poll_names_the_interval_and_the_time_until_now() -> None:
    """The handler took too long: without these numbers "not a member" sends people to look at the broker."""
    member = stable()
    pass_time(member, MAX_POLL_MS + 1)
    member.finish_call("lost", "t-0")
    member.advance(5_000)

    text = refused_commit(member)

    assert f"poll() was not called for {MAX_POLL_MS + 5_001} ms, max.poll.interval.ms is {MAX_POLL_MS}" in text
    assert "use process(), which polls while handlers run" in text


def test_a_commit_of_a_removed_member_names_the_removal() -> None:
    """A process that was stopped beyond its session did not leave by itself."""
    member = stable()
    fence(member, ErrorCode.UNKNOWN_MEMBER_ID)

    assert "the coordinator removed the member: UNKNOWN_MEMBER_ID(25)" in refused_commit(member)


def test_a_commit_before_the_first_join_says_that() -> None:
    """subscribe() alone does not join."""
    member = MemberHarness()
    member.subscribe("t")
    member.advance(INTERVAL_MS)

    assert "it has not joined yet, which poll() does" in refused_commit(member)


def test_a_new_subscription_is_no_consequence_of_the_last_leave() -> None:
    """The member is outside because nothing has polled yet."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    member.subscribe("t")

    assert "it has not joined yet, which poll() does" in refused_commit(member)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "a consumer that assigns by hand needs a group.id of its own"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "the id belongs to a group of another type"),
    ],
)
def test_a_refused_commit_of_a_consumer_in_no_group_says_why(code: ErrorCode, advice: str) -> None:
    """assign() with the group.id of a running service: the commit is refused although nothing was removed."""
    by_hand = MemberHarness()
    by_hand.step(ManuallyAssigned({T0: OffsetAndMetadata(9)}, {}))
    by_hand.step(CommitRequested(77, positions(t_0=5), CommitKind.SYNC, by_hand.now_ms + 1_000))
    by_hand.answer_commit(code)

    assert advice in str(by_hand.commit_error(77))
