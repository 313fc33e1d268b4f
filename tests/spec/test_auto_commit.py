"""The rules of docs/protocol.md, section Auto-commit."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.error_tables import CommitErrorClass, commit_error_class
from kip848_client.member.core.events import AppProgressed, CommitDone, CommitKind
from kip848_client.member.core.states import Phase
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.spec.arrange import AUTO_MS, TWO, auto_committing, calls, commits, fence, pass_time, stable
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions

LONG = {"max_poll_interval_ms": 300_000}
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


def test_r117_the_interval_commit_waits_for_poll() -> None:
    """Before, records may be in the middle of their work, and committing them would lose them."""
    member = auto_committing(TWO, **LONG)
    pass_time(member, AUTO_MS - 1)
    member.poll(positions(t_0=40))
    pass_time(member, 1)
    assert commits(member) == []
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=50, t_1=7))
    assert commits(member) == [(1, {"t-0": 50, "t-1": 7})]


def test_r276_a_slow_handler_does_not_hold_up_what_was_returned_before_its_record() -> None:
    """A kill in the middle of an hour's work would repeat all that was done since the last poll()."""
    member = auto_committing(TWO, **LONG)
    member.step(AppProgressed(positions(t_0=3)))
    assert commits(member) == [], "it is not due yet"
    pass_time(member, AUTO_MS)
    member.step(AppProgressed(positions(t_0=5)))
    assert commits(member) == [(1, {"t-0": 5})]
    member.answer_commit()
    assert not member.member.view().poll_wanted


def test_r276_nothing_is_committed_so_once_a_revocation_began() -> None:
    """Its commit has been made, and the next owner begins there."""
    member = auto_committing(TWO, **LONG)
    member.assign_more({"t": [0]})
    member.poll(positions(t_1=6))
    member.answer_commit()
    pass_time(member, AUTO_MS)
    member.step(AppProgressed(positions(t_0=5, t_1=9)))
    assert commits(member) == []


def test_r117_positions_of_partitions_that_went_are_not_committed() -> None:
    """They would overwrite what the next owner commits; those of kept partitions still count."""
    member = auto_committing(TWO, **LONG)
    member.assign_more({"t": [0]})
    member.poll(positions(t_0=5, t_1=6))
    member.answer_commit()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    pass_time(member, AUTO_MS)
    member.poll(positions(t_1=9))
    assert commits(member) == [(2, {"t-0": 5})]


def test_r118_one_interval_commit_at_a_time() -> None:
    """Two could arrive in either order, and move the position back."""
    member = auto_committing(**LONG)
    member.commit(positions(t_0=1), kind=CommitKind.ASYNC)
    own = member.take(OffsetCommitRequest)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=50))
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=60))
    assert commits(member) == [(1, {"t-0": 50})], "the application's own commit does not hold up the interval's"
    member.answer_commit()
    member.poll(positions(t_0=60))
    assert commits(member) == [(1, {"t-0": 60})]
    member.sent.append(own)


def test_r118_a_run_starts_the_interval_anew() -> None:
    """A run has just committed, so the next automatic commit is due a full interval later."""
    member = auto_committing(**LONG)
    pass_time(member, AUTO_MS - 1000)
    member.assign_more(TWO)
    member.reconcile()
    pass_time(member, AUTO_MS - 1)
    assert not member.member.view().poll_wanted
    pass_time(member, 1)
    assert member.member.view().poll_wanted


def test_r119_without_new_positions_there_is_no_request() -> None:
    """An idle consumer sends heartbeats, and nothing else; and the next real commit is not held up."""
    member = auto_committing(**LONG)
    for consumed, sent in ((None, 0), (positions(t_0=5), 1), (positions(t_0=5), 0), (positions(t_0=6), 1)):
        pass_time(member, AUTO_MS)
        member.poll(consumed)
        assert len(commits(member)) == sent
        if sent:
            member.answer_commit()


def test_r119_a_poll_without_new_positions_need_not_be_reported() -> None:
    """Unless something that was reported is not committed yet: then the commit is due, with or without new records."""
    member = auto_committing(**LONG)
    pass_time(member, AUTO_MS)
    assert member.member.view().positions_only, "nothing was reported"
    member.poll(positions(t_0=5))
    member.answer_commit(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    pass_time(member, AUTO_MS)
    assert not member.member.view().positions_only, "the commit failed"
    member.poll(positions(t_0=5))
    member.answer_commit()
    assert not member.member.view().positions_only, "no poll() is wanted"
    pass_time(member, AUTO_MS)
    view = member.member.view()
    assert (view.poll_wanted, view.positions_only) == (True, True)


def test_r119_close_commits_only_what_is_not_confirmed() -> None:
    """A consumer that is closed while it is idle leaves without a request that says what the coordinator knows."""
    member = auto_committing(TWO, **LONG)
    for consumed, sent in ((positions(t_0=5), 1), (positions(t_0=5), 0), (positions(t_0=5, t_1=6), 1)):
        call = member.commit(consumed, kind=CommitKind.AUTO_CLOSE)
        assert len(commits(member)) == sent
        if sent:
            member.answer_commit()
        assert [done.error for done in member.emitted(CommitDone) if done.commit_id == call] == [None]


def test_r119_a_commit_under_way_may_say_something_older() -> None:
    """The application went back by hand; the revocation must not leave that as the last word about what was read."""
    member = auto_committing(**LONG)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=50))
    member.answer_commit()
    member.commit(positions(t_0=40), kind=CommitKind.ASYNC)
    member.assign_more({})
    member.poll(positions(t_0=50))
    assert [offsets for _, offsets in commits(member)] == [{"t-0": 40}, {"t-0": 50}]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_r120_a_failed_interval_commit_is_made_up_for(code: ErrorCode) -> None:
    """Positions that are never committed are read again after a crash."""
    member = auto_committing(**LONG)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=9))
    member.answer_commit(code)
    passing = {CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING}
    wait_ms = 100 if commit_error_class(code) in passing else AUTO_MS
    member.advance(wait_ms - 1)
    assert not member.member.view().poll_wanted
    member.advance(1)
    assert member.member.view().poll_wanted


def test_r256_a_run_that_revokes_nothing_commits_nothing() -> None:
    """The new partitions would have no reader until the commit is answered."""
    member = stable(auto_commit_interval_ms=10 * AUTO_MS, **LONG)
    began_ms = member.now_ms
    member.assign_more({"t": [0, 1]})

    member.poll(positions(t_0=50))

    assert calls(member)[-1] == "assigned(t-1)"
    assert commits(member) == []
    member.finish_call("assigned", "t-1")
    pass_time(member, began_ms + 10 * AUTO_MS - member.now_ms)
    member.poll(positions(t_0=50))
    assert [offsets for _, offsets in commits(member)] == [{"t-0": 50}]


def test_r121_a_revocation_commits_beside_an_interval_commit() -> None:
    """The older one does not contain the newest position, and its answer says nothing about it."""
    member = auto_committing(**LONG)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=50))
    member.assign_more({})
    member.poll(positions(t_0=51))
    assert [offsets for _, offsets in commits(member)] == [{"t-0": 50}, {"t-0": 51}]
    member.answer_commit()
    assert calls(member) == []
    assert member.phase() is Phase.COMMITTING
    member.answer_commit()
    assert calls(member) == ["revoked(t-0)"]


def test_r122_each_retry_is_of_the_newest_positions_and_epoch() -> None:
    """The application reads on in the partitions that it keeps."""
    member = auto_committing(TWO)
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5, t_1=10))
    member.commit(positions(t_1=9), kind=CommitKind.ASYNC)
    member.advance(INTERVAL_MS)
    member.answer_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.answer_heartbeat(epoch=7)
    member.poll(positions(t_0=5, t_1=20))
    assert not member.member.view().poll_wanted, "one poll() for each retry"
    member.advance(100)
    assert commits(member) == [(2, {"t-1": 9}), (7, {"t-0": 5, "t-1": 20})]


def test_r122_the_commit_of_a_run_ends_with_the_membership() -> None:
    """Unanswered, it would hold up the interval commits of the next membership for a whole rebalance timeout."""
    member = auto_committing(rebalance_timeout_ms=300_000, **LONG)
    member.assign_more({})
    member.poll(positions(t_0=5))
    member.take(OffsetCommitRequest)
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    member.reconcile()
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=9))
    assert commits(member) == [(3, {"t-0": 9})]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_r123_a_run_waits_only_for_commits_that_can_still_work(code: ErrorCode) -> None:
    """Other members wait for the partitions, so a commit that cannot succeed must not delay them."""
    for epoch_moved in (False, True):
        member = auto_committing()
        member.assign_more({})
        member.poll(positions(t_0=9))
        if epoch_moved:
            member.advance(INTERVAL_MS)
            member.answer_heartbeat(epoch=3)
        member.answer_commit(code)
        retried = {CommitErrorClass.RETRY, CommitErrorClass.STALE}
        retried |= {CommitErrorClass.OLD_GENERATION} if epoch_moved else set()
        assert calls(member) == ([] if commit_error_class(code) in retried else ["revoked(t-0)"])


def test_r123_a_run_waits_no_longer_than_the_coordinator_does() -> None:
    """Past the rebalance timeout the member is evicted, committed or not."""
    member = auto_committing(rebalance_timeout_ms=3000, **LONG)
    member.assign_more({})
    member.poll(positions(t_0=5))
    pass_time(member, 2999)
    assert calls(member) == []
    pass_time(member, 1)
    assert calls(member) == ["revoked(t-0)"]
    member.answer_commit()
    assert calls(member) == ["revoked(t-0)"]


def test_r124_without_auto_commit_nothing_is_committed() -> None:
    """enable.auto.commit=false means that the application owns its positions."""
    member: MemberHarness = stable(**LONG)
    pass_time(member, 60_000)
    member.poll(positions(t_0=5))
    member.assign_more({})
    member.poll(positions(t_0=5))
    member.finish_call("revoked", "t-0")
    member.leave(closing=True)
    assert not [word for word in member.history if word.startswith("commit")]


def test_r195_what_the_application_stored_is_committed_in_place_of_what_was_consumed() -> None:
    """Records that were handed out and are still worked on would be lost in a crash."""
    member = auto_committing(TWO, **LONG)
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=50, t_1=7), stored=positions(t_0=12, v_0=3))
    assert commits(member) == [(1, {"t-0": 12})]
    member.answer_commit()
    pass_time(member, AUTO_MS)
    member.poll(positions(t_0=60, t_1=9), stored=positions(t_0=12))
    assert commits(member) == [], "nothing new was stored"


def test_r195_a_revocation_commits_what_is_stored() -> None:
    """The next owner begins with the first record that was not finished."""
    member = auto_committing(TWO, **LONG)
    member.assign_more({"t": [0]})
    member.poll(positions(t_0=5, t_1=6), stored=positions(t_0=2, t_1=4))
    assert commits(member) == [(2, {"t-0": 2, "t-1": 4})]
    member.answer_commit()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    pass_time(member, AUTO_MS)
    member.poll()
    assert commits(member) == [(2, {"t-0": 2})], "what was given up is the next owner's to commit"
