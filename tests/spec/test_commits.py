"""The rules of docs/protocol.md, section Commits."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID, NamedPartition, OffsetAndMetadata
from kip848_client.errors import (
    BrokerError,
    CommitFailedError,
    ConnectionLostError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    RequestTimeoutError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
)
from kip848_client.member.core.error_tables import COMMIT_CODES, CommitErrorClass, commit_error_class
from kip848_client.member.core.events import (
    CallAbandoned,
    CommitDone,
    CommitKind,
    FailureKind,
    ManuallyAssigned,
    OffsetsFetched,
    SurfaceError,
)
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.spec.arrange import (
    TWO,
    answer_heartbeats,
    commits,
    fence,
    fenced,
    joining,
    pass_time,
    revoking,
    stable,
    without_coordinator,
)
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MEMBER_ID, MemberHarness, positions

RETRIED = [CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING]
PASSING = [ErrorCode(code) for code, error_class in COMMIT_CODES.items() if error_class in RETRIED]
STALE = [CommitErrorClass.STALE, CommitErrorClass.OLD_GENERATION]
CODES = [*(code for code in ErrorCode if code is not ErrorCode.NONE), 9999]


def test_r102_a_commit_carries_the_epoch_of_its_sending() -> None:
    """One that waited through an epoch bump would be refused as stale."""
    member = stable()
    member.advance(INTERVAL_MS)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.answer_heartbeat(epoch=6)
    member.advance(100)
    assert commits(member) == [(6, {"t-0": 5})]
    assert member.requests(OffsetCommitRequest)[0].member_id == MEMBER_ID
    member.answer_commit()
    assert member.commit_error(call) is None


@pytest.mark.parametrize(
    ("count", "metadata", "sizes"),
    [(12_000, "", [5_000, 5_000, 2_000]), (300, "x" * 4_000, [122, 122, 56]), (100, "x" * 4_000, [100])],
)
def test_r272_a_large_commit_is_sent_in_parts(count: int, metadata: str, sizes: list[int]) -> None:
    """Brokers refuse what is too large for a batch, or close the connection: no commit of the member would succeed."""
    member = MemberHarness()
    offsets = {NamedPartition("t", number): OffsetAndMetadata(7, metadata=metadata) for number in range(count)}
    call = member.commit(offsets)
    sent = []
    while commit := member.requests(OffsetCommitRequest):
        assert len(commit) == 1
        sent.append(len(commit[0].topics[0].partitions))
        if len(sent) == 2:
            member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # only this part is sent again
            assert member.requests(OffsetCommitRequest) == []
            member.advance(1_000)
            assert member.requests(OffsetCommitRequest) == commit
        member.answer_commit()
    (done,) = member.emitted(CommitDone)
    assert (done.commit_id, done.offsets, done.error) == (call, offsets, None)
    assert sent == sizes


def test_r103_a_consumer_without_a_subscription_commits_without_an_epoch() -> None:
    """Tools and assign() do: the coordinator accepts it while the group is empty."""
    member = MemberHarness()
    member.commit(positions(t_0=5))
    (commit,) = member.requests(OffsetCommitRequest)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, "")


def test_r103_so_does_one_that_left() -> None:
    """A consumer that left sends its last commit without an epoch; an empty group accepts it."""
    member = stable({})
    member.leave()
    member.answer_heartbeat(epoch=-1)
    member.commit(positions(t_0=5))
    assert commits(member) == [(-1, {"t-0": 5})]


def test_r104_a_subscribed_consumer_that_is_no_member_commits_nothing() -> None:
    """The group may be empty just then, and the commit would overwrite a successor's."""
    waiting = MemberHarness()
    waiting.subscribe("t")
    late = stable()
    pass_time(late, MAX_POLL_MS + 1)
    for member in (waiting, joining(), fenced(), late):
        error = member.commit_error(member.commit(positions(t_0=5)))
        assert isinstance(error, CommitFailedError)
        assert "t-0" in str(error)
        assert commits(member) == []


@pytest.mark.parametrize("code", PASSING, ids=lambda code: code.name)
def test_r105_a_synchronous_commit_is_retried_until_its_deadline(code: ErrorCode) -> None:
    """The last error belongs into the message: a time-out alone says nothing."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=1000)
    for wait_ms in (100, 200, 400):
        member.answer_commit(code)
        member.advance(wait_ms - 1)
        answer_heartbeats(member)
        assert commits(member) == []
        member.advance(1)
    member.answer_commit(code)
    member.advance(300)
    error = member.commit_error(call)
    assert isinstance(error, RequestTimeoutError)
    assert code.name in str(error)
    assert error.__cause__ is not None


def test_r105_a_synchronous_commit_without_an_answer_is_sent_again_after_the_backoff() -> None:
    """A connection that breaks during commit() must not cost the commit."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.fail(OffsetCommitRequest, FailureKind.TIMED_OUT)
    assert commits(member) == []
    assert member.member.deadline_ms() == member.now_ms + 100
    member.advance(100)
    assert commits(member) == [(1, {"t-0": 5})]
    member.answer_commit()
    assert member.commit_error(call) is None


def test_r105_one_attempt_is_made_even_without_time() -> None:
    """commit(timeout_s=0) is how some applications say "best effort"."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=0)
    assert commits(member) == [(1, {"t-0": 5})]
    assert isinstance(member.commit_error(call), RequestTimeoutError)


@pytest.mark.parametrize("code", [code for code in CODES if commit_error_class(code) not in RETRIED + STALE], ids=int)
def test_r105_what_no_retry_cures_fails_at_once(code: int) -> None:
    """An error that comes a minute late is one that hangs the application."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(code)
    assert member.commit_error(call) is not None
    assert member.state() is MemberState.STABLE


@pytest.mark.parametrize("code", [code for code in CODES if commit_error_class(code) in STALE], ids=int)
def test_r106_a_stale_commit_is_sent_again_with_each_newer_epoch(code: int) -> None:
    """The epoch moved while it was on its way: nothing that a user could do anything about."""
    member = stable()
    call = member.commit(positions(t_0=5))
    for epoch in (2, 3):
        member.answer_commit(code)
        assert commits(member) == []
        member.answer_heartbeat(epoch=epoch)
        assert commits(member) == [(epoch, {"t-0": 5})]
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    assert commits(member) == [(3, {"t-0": 5})], "the epoch is the newest"
    member.answer_commit()
    assert member.commit_error(call) is None


def test_r106_the_same_epoch_is_not_tried_again() -> None:
    """It can only be stale again; at the deadline the commit has failed."""
    member = stable()
    call = member.commit(positions(t_0=5), timeout_ms=3000)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=1)
    member.advance(3000)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert commits(member) == []


def test_r107_a_repeated_commit_leaves_out_what_moved() -> None:
    """With the newer epoch the coordinator would accept an offset for a partition of another member."""
    member = revoking()
    call = member.commit(positions(t_0=5, t_1=6))
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_heartbeat(epoch=3)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    assert commits(member) == [(3, {"t-0": 5})]
    member.answer_commit()
    error = member.commit_error(call)
    assert isinstance(error, CommitFailedError)
    assert "t-1" in str(error)


def test_r107_a_commit_that_waited_through_a_removal_fails() -> None:
    """Its partitions may have an owner who has gone further."""
    member = stable()
    member.advance(INTERVAL_MS)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    fence(member)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert commits(member) == []


def test_r107_so_does_one_that_waited_through_a_leave() -> None:
    """Without an epoch an old commit would be accepted by the empty group, over newer offsets."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.leave()
    member.finish_call("revoked", "t-0")
    assert isinstance(member.commit_error(call), CommitFailedError)
    member.advance(1000)
    assert commits(member) == []


def test_r107_a_commit_does_not_outlive_the_membership_in_which_its_records_were_read() -> None:
    """The partition came back: another member may have committed further in between."""
    member = stable()
    call = member.commit(positions(t_0=5))
    asked = member.take(OffsetCommitRequest)
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=7, assignment={"t": [0]})
    member.reconcile()
    assert member.owned == ["t-0"]
    member.sent.append(asked)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(1000)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert commits(member) == []


def test_r275_what_was_given_away_is_not_committed_afterwards() -> None:
    """A worker thread may be late. Kafka would accept the commit, of a partition that another member reads."""
    member = revoking()
    member.finish_call("revoked", "t-1")
    late, both = member.commit(positions(t_1=6), kind=CommitKind.ASYNC), member.commit(positions(t_0=5, t_1=6))
    member.finish_call("assigned")
    assert commits(member) == [], "it is refused whole: applied in part, a transaction would be written again"
    assert all(isinstance(member.commit_error(call), CommitFailedError) for call in (late, both))

    member.assign_more(TWO, epoch=3)
    member.reconcile()
    again = member.commit(positions(t_1=7))
    member.answer_commit()
    assert member.commit_error(again) is None


def test_r275_nor_once_the_member_has_left() -> None:
    """Another thread commits while close() runs: the commit would name no member, and an empty group accepts that."""
    member = stable()
    member.leave(closing=True)
    member.finish_call("revoked", "t-0")
    late = member.commit(positions(t_0=5))
    assert commits(member) == []
    assert isinstance(member.commit_error(late), CommitFailedError)


def test_r275_a_listener_commits_what_it_revokes_though_a_leave_began() -> None:
    """close() may come when the listener of a run is due and has not returned: its commit is the last word."""
    member = revoking()
    member.leave(closing=True)
    member.commit(positions(t_0=5, t_1=6))
    assert commits(member) == [(2, {"t-0": 5, "t-1": 6})]
    member.answer_commit()
    member.finish_call("revoked", "t-1")
    member.finish_call("revoked", "t-0")
    late = member.commit(positions(t_1=6))
    assert isinstance(member.commit_error(late), CommitFailedError)


def test_r275_does_not_concern_what_is_assigned_by_hand() -> None:
    """No other member gets it. A partition that was given away before may be assigned by hand, too."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    for number in range(2):
        member.step(ManuallyAssigned({NamedPartition("t", number): None}))
    member.commit(positions(t_0=4, t_1=5))
    assert commits(member) == [(-1, {"t-0": 4, "t-1": 5})]


@pytest.mark.parametrize("phase", ["removed", "joining", "joined without it"])
def test_r274_no_transaction_holds_offsets_of_partitions_that_were_lost(phase: str) -> None:
    """Their next owner writes the same results: they would be there twice."""
    member, wanted = stable(TWO), {NamedPartition("t", 0), NamedPartition("t", 1)}
    assert member.member.view().lost(wanted) == set()
    fence(member)
    if phase != "removed":
        member.finish_call("lost", "t-0", "t-1")
    if phase == "joined without it":
        member.answer_heartbeat(epoch=7, assignment={"t": [0]})
        member.reconcile()
        wanted.remove(NamedPartition("t", 0))
    assert member.member.view().lost(wanted | {NamedPartition("t", 1)}) == wanted


def test_r108_a_commit_of_a_removed_member_fails_at_once() -> None:
    """Whether it is a member is for the heartbeat to say."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert member.state() is MemberState.STABLE
    assert member.owned == ["t-0"]


@pytest.mark.parametrize("code", CODES, ids=int)
def test_r109_an_asynchronous_commit_is_one_attempt(code: int) -> None:
    """A retry that overtakes a newer commit moves the position back."""
    member = stable()
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.answer_commit(code)
    error = member.commit_error(call)
    assert error is not None
    assert isinstance(error, RetriableCommitFailedError) or code not in PASSING
    assert isinstance(error.__cause__ or error, BrokerError)
    member.advance(900)
    assert commits(member) == []


def test_r354_a_commit_without_a_callback_is_sent_again_without_what_is_newer() -> None:
    """A broker that was away for a second left the last offsets of a quiet topic uncommitted for ever."""
    member = stable(TWO)
    call = member.commit(positions(t_0=5, t_1=7), kind=CommitKind.ASYNC, without_callback=True)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    error = member.commit_error(call)
    assert isinstance(error, RetriableCommitFailedError)
    assert str(error).endswith("; it is sent again, or a later one")
    member.commit(positions(t_1=8), kind=CommitKind.ASYNC, without_callback=True)
    member.answer_commit()
    member.advance(100)
    assert commits(member) == [(1, {"t-0": 5})]
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.commit(positions(t_0=6))
    member.answer_commit()
    member.advance(900)
    assert commits(member) == []


def test_r354_a_commit_without_a_callback_is_not_sent_again_once_its_partition_has_come_back() -> None:
    """Its owner in between may have gone further."""
    member = revoking()
    member.commit(positions(t_1=7), kind=CommitKind.ASYNC, without_callback=True)
    asked = member.take(OffsetCommitRequest)
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.assign_more(TWO, epoch=3)
    member.reconcile()
    member.sent.append(asked)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(900)
    assert commits(member) == []


def test_r354_sent_again_it_leaves_out_what_was_given_away() -> None:
    """The other partitions kept an old offset for ever if nothing more came for them."""
    member = revoking()
    member.commit(positions(t_0=5, t_1=7), kind=CommitKind.ASYNC, without_callback=True)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.advance(900)
    assert commits(member) == [(2, {"t-0": 5})]


def test_r354_of_commits_without_a_callback_and_a_coordinator_the_last_one_is_sent() -> None:
    """A loop that commits each record asked for thousands, and each step of the member looked at all of them."""
    member = without_coordinator(stable())
    for at in range(2, 50):
        member.commit(positions(t_0=at), kind=CommitKind.ASYNC, without_callback=True)
    member.find_coordinator()
    member.advance(900)
    assert commits(member) == [(1, {"t-0": 49})]


@pytest.mark.parametrize("offsets", [positions(t_0=6), {}], ids=["offsets", "nothing"])
def test_r110_a_synchronous_commit_comes_after_the_asynchronous_ones(offsets: dict[object, object]) -> None:
    """commit() is how applications wait for what they started."""
    member = stable()
    first = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    second = member.commit(offsets)  # type: ignore[arg-type]  # one of the cases is empty
    earlier = member.take(OffsetCommitRequest)
    if offsets:
        member.answer_commit()
    assert not member.emitted(CommitDone)
    member.sent.append(earlier)
    member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [done.commit_id for done in member.emitted(CommitDone)] == [first, second]
    assert member.commit_error(second) is None


@pytest.mark.parametrize("kind", [CommitKind.SYNC, CommitKind.ASYNC, CommitKind.AUTO_CLOSE])
def test_r111_a_commit_of_nothing_succeeds_without_a_request(kind: CommitKind) -> None:
    """``commit()`` before the first record returns at once and raises nothing."""
    member = stable()
    assert member.commit_error(member.commit({}, kind=kind)) is None
    assert commits(member) == []


def test_r112_missing_permission_names_every_topic() -> None:
    """One error, so that one ticket cures both."""
    member = MemberHarness()
    member.join({"t": [0], "u": [0]}, topics=("t", "u"))
    member.reconcile()
    call = member.commit(positions(t_0=1, u_0=2))
    member.answer_commit(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = member.commit_error(call)
    assert isinstance(error, TopicAuthorizationError)
    assert error.topics == ("t", "u")


def test_r112_missing_permission_names_the_group() -> None:
    """The error says which permission to grant, and to whom."""
    for code, says_so in ((ErrorCode.GROUP_AUTHORIZATION_FAILED, True), (ErrorCode.UNKNOWN_SERVER_ERROR, False)):
        member = stable(user="alice")
        call = member.commit(positions(t_0=1))
        member.answer_commit(code)
        text = str(member.commit_error(call))
        assert ("user 'alice' needs READ on group 'orders-group'" in text) is says_so


def test_r112_any_other_error_goes_before_it() -> None:
    """A commit with one lasting and one passing error is tried again, so that the second part is stored."""
    member = stable(TWO)
    member.commit(positions(t_0=1, t_1=2))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    member.answer_commit({"t-0": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1": loading})
    member.advance(100)
    assert commits(member) == [(1, {"t-0": 1, "t-1": 2})]


def test_r112_two_failed_partitions_are_one_failed_attempt() -> None:
    """Counted twice, the backoff would grow twice as fast."""
    member = stable(TWO)
    member.commit(positions(t_0=1, t_1=2))
    for wait_ms in (100, 200):
        member.answer_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.advance(wait_ms)
        assert len(commits(member)) == 1


def test_r113_a_fenced_instance_comes_out_of_poll() -> None:
    """Another process runs with our identity; without a callback the error would be hidden."""
    member = stable(instance_id="host-1")
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.answer_commit(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(member.commit_error(call), FencedInstanceIdError)
    assert [type(effect.error) for effect in member.emitted(SurfaceError)] == [FencedInstanceIdError]


def test_r114_a_topic_is_named_by_id_where_it_is_known() -> None:
    """A topic that was created again under its name must not get the old positions."""
    member = stable()
    member.commit(positions(t_0=5))
    request = member.take(OffsetCommitRequest)
    assert isinstance(request.request, OffsetCommitRequest)
    assert (request.request.topics[0].topic_id, request.max_version) == (member.topic_ids["t"], None)
    member.commit(positions(v_0=5))
    unknown = member.take(OffsetCommitRequest)
    assert isinstance(unknown.request, OffsetCommitRequest)
    assert (unknown.request.topics[0].topic_id, unknown.max_version) == (ZERO_UUID, 9)
    member.commit(positions(t_0=5, v_0=5))
    both = member.take(OffsetCommitRequest)
    assert isinstance(both.request, OffsetCommitRequest)
    assert ({topic.topic_id for topic in both.request.topics}, both.max_version) == ({ZERO_UUID}, 9)


def test_r115_commits_work_in_revoked_and_fail_in_lost() -> None:
    """That is what tells the two callbacks apart."""
    member = revoking()
    working = member.commit(positions(t_1=9))
    assert commits(member) == [(2, {"t-1": 9})]
    member.answer_commit()
    assert member.commit_error(working) is None
    lost = fenced()
    failing = lost.commit(positions(t_0=9))
    assert isinstance(lost.commit_error(failing), CommitFailedError)


@pytest.mark.parametrize("kind", [CommitKind.SYNC, CommitKind.ASYNC])
def test_r116_close_does_not_wait_for_commits_that_cannot_be_sent(kind: CommitKind) -> None:
    """Without a lookup the wait for a coordinator would never end."""
    member = without_coordinator(stable())
    call = member.commit(positions(t_0=1), kind=kind)
    member.leave(closing=True)
    assert isinstance(member.commit_error(call), CommitFailedError)


def test_r116_a_fatal_member_fails_its_commits() -> None:
    """The error of the commit carries the reason why the member stopped."""
    member = fenced(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    call = member.commit(positions(t_0=1))
    error = member.commit_error(call)
    assert isinstance(error, CommitFailedError)
    assert isinstance(error.__cause__, GroupAuthorizationError)
    assert commits(member) == []


def test_r116_committed_of_a_fatal_member_fails_too() -> None:
    """A stopped member sends nothing, so no call may wait for it."""
    member = fenced(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    call = member.committed("t-0")
    assert isinstance(member.fetch_result(call).error, GroupAuthorizationError)
    assert not member.sent


def test_r116_committed_does_not_keep_close_without_a_coordinator() -> None:
    """close() must return although a ``committed()`` still waits for a coordinator that is away."""
    member = without_coordinator(stable())
    call = member.committed("t-0")
    member.leave(closing=True)
    assert isinstance(member.fetch_result(call).error, ConnectionLostError)


@pytest.mark.parametrize("kind", [CommitKind.SYNC, CommitKind.ASYNC])
def test_r153_an_abandoned_commit_is_not_reported(kind: CommitKind) -> None:
    """The caller was interrupted; its number means nothing any more, and others must not wait behind it."""
    member = stable()
    gone = member.commit(positions(t_0=5), kind=kind)
    call = member.commit(positions(t_0=6))
    abandoned = member.take(OffsetCommitRequest)
    member.step(CallAbandoned(gone))
    member.answer_commit()
    assert [done.commit_id for done in member.emitted(CommitDone)] == [call]
    member.sent.append(abandoned)
    member.answer_commit()
    assert len(member.emitted(CommitDone)) == 1


def test_r153_an_abandoned_fetch_is_not_reported() -> None:
    """The other caller with the same question still gets its answer."""
    member = stable()
    gone, call = member.committed("t-0"), member.committed("t-0")
    member.step(CallAbandoned(gone))
    member.answer_fetch({"t-0": 3})
    assert [done.fetch_id for done in member.emitted(OffsetsFetched)] == [call]


def test_r153_a_call_does_not_share_a_fetch_that_was_abandoned() -> None:
    """Its answer is ignored, so the second call would wait for ever."""
    member = stable()
    member.step(CallAbandoned(member.committed("t-0")))
    member.take(OffsetFetchRequest)
    call = member.committed("t-0")
    member.answer_fetch({"t-0": 3})
    assert member.fetch_result(call).offsets == positions(t_0=3)


GONE = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("code", GONE, ids=lambda code: code.name)
def test_r176_a_commit_that_holds_up_a_rebalance_does_not_wait_for_a_deleted_topic(code: ErrorCode) -> None:
    """It used to be retried for a minute, in which no other partition was read, and the member could be removed."""
    member = revoking()
    call = member.commit(positions(t_0=5, t_1=6), revoking=True)
    member.answer_commit({"t-1": code})
    (done,) = member.emitted(CommitDone)
    assert (done.commit_id, done.offsets, done.error) == (call, positions(t_0=5), None)
    assert done.gone == positions(t_1=6)


def test_r176_what_else_failed_is_retried_without_the_deleted_topic() -> None:
    """The partitions that still exist must not lose their commit because a topic is gone."""
    member = revoking()
    call = member.commit(positions(t_0=5, t_1=6), revoking=True)
    member.answer_commit({"t-0": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "t-1": ErrorCode.UNKNOWN_TOPIC_ID})
    commits(member)
    member.advance(100)
    assert commits(member) == [(2, {"t-0": 5})]
    member.answer_commit()
    (done,) = member.emitted(CommitDone)
    assert (done.commit_id, done.offsets, done.gone) == (call, positions(t_0=5), positions(t_1=6))


@pytest.mark.parametrize(("wait_ms", "ends"), [(4_899, False), (4_900, True)])
def test_r224_elsewhere_a_deleted_topic_fails_a_synchronous_commit_after_five_seconds(
    wait_ms: int, *, ends: bool
) -> None:
    """It used to block the application for a minute, in which it read nothing."""
    member = stable()
    member.advance(500)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.UNKNOWN_TOPIC_ID)
    member.advance(100)
    member.advance(wait_ms)
    member.answer_commit(ErrorCode.UNKNOWN_TOPIC_ID)
    assert bool(member.emitted(CommitDone)) is ends
    if ends:
        error = member.commit_error(call)
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.UNKNOWN_TOPIC_ID


def test_r224_a_partition_that_the_member_never_had_fails_a_synchronous_commit_at_once() -> None:
    """A partition typed wrongly kept the application waiting for five seconds."""
    member = stable()
    call = member.commit({NamedPartition("t", 7): OffsetAndMetadata(5)})
    member.answer_commit(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = member.commit_error(call)
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_r176_outside_of_the_callback_it_is_retried() -> None:
    """A broker may learn of a new topic later than others; only a rebalance cannot wait."""
    member = stable()
    member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.UNKNOWN_TOPIC_ID)
    assert member.emitted(CommitDone) == []
