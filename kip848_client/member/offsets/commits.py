"""Commits: their order, retries and deadlines, and the interval of auto-commit.

======================  ==============  =======================  ============================================
kind                    offsets         deadline                 retries
======================  ==============  =======================  ============================================
SYNC, AUTO_CLOSE        given           given                    retriable codes; a stale epoch once per new epoch;
                                                                 in on_partitions_revoked not for a deleted topic
ASYNC                   given           none                     none; without a callback it is sent again (R354)
AUTO_INTERVAL           all consumed    none                     none; a retriable failure shortens the wait
AUTO_REVOCATION         all consumed    the rebalance timeout    retriable codes and stale epochs
======================  ==============  =======================  ============================================

A commit carries the member id and epoch that are valid when it is sent. A subscribed member without an epoch (removed,
or not joined yet) commits nothing: the coordinator of an empty group would accept the commit, and it would overwrite
the offsets of the next owner. A commit belongs to the membership in which it was requested, and ends with it.

A SYNC commit is reported after all ASYNC commits that were requested before it.

Source: KIP-848; Kafka's ``CommitRequestManager``; KAFKA-19357, KAFKA-18034. Unlike Kafka's, a synchronous commit is
retried after a stale epoch, and consumed positions are not committed twice.
Rules: R102 to R124, R153, R176, R272, R275 and R354 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final

import msgspec

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import (
    NO_EPOCH,
    NamedPartition,
    OffsetAndMetadata,
    TopicIdPartition,
    describe_partitions,
)
from kip848_client.errors import (
    CommitFailedError,
    Kip848Error,
    RequestTimeoutError,
    RetriableCommitFailedError,
    TopicAuthorizationError,
    error_for_code,
    error_name,
    join_names,
)
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import (
    COMMIT_ADVICE,
    COMMIT_ADVICE_OUTSIDE,
    CommitErrorClass,
    commit_error_class,
    forgets_coordinator,
)
from kip848_client.member.core.events import (
    AUTOMATIC_COMMIT_ID,
    CommitDone,
    CommitKind,
    CommitRequested,
    Destination,
    RequestFailed,
)
from kip848_client.member.core.failures import POLL_ADVICE, failure_error, is_passing
from kip848_client.member.core.settings import missing_permission
from kip848_client.member.offsets.commit_requests import build_commit, first_part, read_commit
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_WAITED_FOR: Final = frozenset({CommitKind.SYNC, CommitKind.AUTO_CLOSE})
_AUTOMATIC: Final = frozenset({CommitKind.AUTO_INTERVAL, CommitKind.AUTO_REVOCATION})

_TEMPORARY: Final = frozenset({CommitErrorClass.RETRY, CommitErrorClass.STALE})
"""Failures after which a commit without a callback is sent again."""

_WITHOUT_CALLBACK_IN_FLIGHT_MAX: Final = 100
"""So many are sent before an answer; of what waits, a later commit takes the place. A loop that commits each record
asks for more than a coordinator answers."""

_TOPIC_UNKNOWN_MAX_MS: Final = 5_000
"""How long a commit is retried because the coordinator does not know the topic yet. After that the topic counts as
deleted. The application's thread waits meanwhile."""


class _Commit(msgspec.Struct, eq=False):
    kind: CommitKind
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    deadline_ms: int | None
    incarnation: int
    backoff: Backoff
    commit_id: int = AUTOMATIC_COMMIT_ID
    """Of the call that is told how it ends, until then."""
    on_done: Callable[[], None] | None = None
    revoking: bool = False
    """Requested inside on_partitions_revoked: the rebalance waits for it."""
    without_callback: bool = False
    moved: frozenset[NamedPartition] = frozenset()
    """Partitions left out because they are no longer owned."""
    gone: dict[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)
    """Offsets left out because their topic no longer exists; only if `revoking`."""
    gone_since_ms: int | None = None
    """When the coordinator first said that it does not know a topic."""
    confirmed: dict[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)
    """Offsets that the coordinator has confirmed, if the commit takes several requests."""
    request_id: int | None = None
    sent_epoch: int | None = None
    awaits_epoch: bool = False
    wants_positions: bool = False
    """A retry that should commit newer consumed positions."""
    last_error: Kip848Error | None = None
    ended: bool = False
    error: Kip848Error | None = None

    @property
    def waits(self) -> bool:
        """Whether it is still to be sent."""
        return self.request_id is None and not self.ended

    def unconfirmed(self) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """Its offsets that are not confirmed yet."""
        if not self.confirmed:
            return self.offsets
        return {key: value for key, value in self.offsets.items() if self.confirmed.get(key) != value}


class Commits:
    """One member's commits. What is done in each step does not grow with the asynchronous commits in flight."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._async: dict[int, _Commit] = {}
        """The asynchronous ones that have not been reported, by `commit_id`."""
        self._queue: list[_Commit] = []
        """All others."""
        self._unsent: dict[_Commit, None] = {}
        """Of both, in the order of the requests: what waits to be sent. The next `advance` removes what was sent."""
        self._due_ms: int | None = None
        self.join_waits: bool = False
        """A join of the classic protocol waits, in this step, until no commit is in flight."""
        self._committed: dict[NamedPartition, OffsetAndMetadata] = {}
        """Offsets confirmed since their partitions were assigned. An equal consumed position needs no commit (R119)."""
        self._newest: dict[NamedPartition, _Commit] = {}
        """The last commit of each partition, in the order in which they are sent."""

    # --- requests

    def request(self, event: CommitRequested) -> None:
        """Queue a commit of the application or of close(). If there is nothing to commit, it succeeds at once."""
        needed = self._is_news(event.offsets) if event.kind is CommitKind.AUTO_CLOSE else bool(event.offsets)
        commit = self._new(event.kind, dict(event.offsets), event.deadline_ms)
        commit.commit_id = event.commit_id
        commit.revoking, commit.without_callback = event.revoking, event.without_callback
        self._supersede(event.offsets, commit)
        self._add(commit)
        if not needed:
            self._end(commit, None)

    def _newest_of(self, commit: _Commit) -> dict[NamedPartition, OffsetAndMetadata]:
        """What is unconfirmed of *commit*, and of no later one."""
        return {key: value for key, value in commit.unconfirmed().items() if self._newest.get(key) is commit}

    def _supersede(self, partitions: Iterable[NamedPartition], by: _Commit | None) -> None:
        """These have a later commit, or may have another owner's: what waits without a callback leaves them out."""
        earlier = dict.fromkeys(self._newest.pop(partition, None) for partition in partitions)
        if by is not None:
            self._newest.update(dict.fromkeys(partitions, by))
        for commit in earlier:
            if commit is not None and commit.without_callback and commit.request_id is None and not commit.ended:
                commit.offsets = self._newest_of(commit)
                if not commit.offsets:
                    self._end(commit, None)

    def abandon(self, commit_id: int) -> None:
        """The caller stopped waiting for this commit."""
        asynchronous = self._async.get(commit_id)
        for commit in [asynchronous] if asynchronous else [one for one in self._queue if one.commit_id == commit_id]:
            self._drop(commit)

    def start_before_revocation(self, on_done: Callable[[], None], *, within_ms: int) -> bool:
        """Commit everything consumed before a run goes on; False if there is nothing to commit."""
        if self._context.config.auto_commit_interval_ms is None or not self._is_news(self._context.committable):
            return False
        deadline_ms = self._context.now_ms + within_ms
        commit = self._new(CommitKind.AUTO_REVOCATION, {}, deadline_ms)
        commit.on_done = on_done
        self._add(commit)
        return True

    def cancel_before_revocation(self) -> None:
        """Drop the commit before a revocation: the run that waited for it was cancelled."""
        for commit in [item for item in self._queue if item.kind is CommitKind.AUTO_REVOCATION]:
            self._context.orphan(commit.request_id)
            self._drop(commit)

    def _new(
        self, kind: CommitKind, offsets: Mapping[NamedPartition, OffsetAndMetadata], deadline_ms: int | None
    ) -> _Commit:
        return _Commit(kind, offsets, deadline_ms, self._context.incarnation, self._context.new_backoff())

    def _add(self, commit: _Commit) -> None:
        if commit.kind is CommitKind.ASYNC:
            self._async[commit.commit_id] = commit
        else:
            self._queue.append(commit)
        self._unsent[commit] = None

    def _drop(self, commit: _Commit) -> None:
        commit.ended = True
        self._unsent.pop(commit, None)
        self._remove(commit)

    def _remove(self, commit: _Commit) -> bool:
        """Whether it was there."""
        if self._async.pop(commit.commit_id, None) is not None:
            return True
        if commit in self._queue:
            self._queue.remove(commit)
            return True
        return False

    # --- interval

    @property
    def interval_runs(self) -> bool:
        """Whether an interval was started."""
        return self._due_ms is not None

    def restart_interval(self) -> None:
        """The owned partitions changed: the next interval commit is due after a full interval."""
        self._committed.clear()
        self._start_interval()

    def forget(self, partitions: Iterable[TopicIdPartition]) -> None:
        """These are assigned anew: what is committed for them may have been changed or deleted meanwhile (R119)."""
        names = [partition.topic_partition for partition in partitions]
        for name in names:
            self._committed.pop(name, None)
        self._supersede(names, None)

    def _start_interval(self) -> None:
        interval_ms = self._context.config.auto_commit_interval_ms
        # Not 0, with which every poll() would have to be followed by another one.
        self._due_ms = None if interval_ms is None else self._context.now_ms + max(1, interval_ms)

    def _interval_allowed(self) -> bool:
        context = self._context
        if context.closing or not context.owned:
            return False
        return not any(commit.kind in _AUTOMATIC for commit in self._queue)

    def poll_wanted(self) -> tuple[bool, bool]:
        """Whether the next poll() should bring consumed positions: for an interval commit, or a retry.

        And whether only for an interval commit, which needs newer positions than the reported ones.
        """
        retries = bool(self._queue) and any(commit.wants_positions for commit in self._queue)
        interval_over = self._interval_over
        return retries or interval_over, interval_over and not retries and not self._is_news(self._context.committable)

    @property
    def _interval_over(self) -> bool:
        return self._due_ms is not None and self._context.now_ms >= self._due_ms and self._interval_allowed()

    def polled(self) -> None:
        """poll() began, and positions are fresh: commit them if the interval is over."""
        for commit in self._queue:
            commit.wants_positions = False
        self.progressed()

    def progressed(self) -> None:
        """Positions are fresh: commit them if the interval is over."""
        if self._interval_over:
            self._start_interval()
            if self._is_news(self._context.committable):
                self._add(self._new(CommitKind.AUTO_INTERVAL, {}, None))

    def commit_consumed(self, consumed: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        """If auto-commit is on, commit positions of partitions that are about to be removed."""
        if consumed and self._context.config.auto_commit_interval_ms is not None:
            self._add(self._new(CommitKind.AUTO_INTERVAL, dict(consumed), None))

    def _is_news(self, consumed: Mapping[NamedPartition, OffsetAndMetadata]) -> bool:
        """Whether to commit *consumed*: part of it is not confirmed, or a queued commit may say something else."""
        others = self._async or any(commit.kind is not CommitKind.AUTO_REVOCATION for commit in self._queue)
        return any(others or self._committed.get(key) != value for key, value in consumed.items())

    # --- sending

    @property
    def in_flight(self) -> bool:
        """Whether the answer to a commit is awaited."""
        return any(commit.request_id is not None for commit in chain(self._async.values(), self._queue))

    @property
    def coordinator_wanted(self) -> bool:
        """Whether a commit waits to be sent."""
        return any(commit.waits for commit in self._unsent)

    def advance(self) -> None:
        """Send the commits that can be sent, fail those that cannot, and end those past their deadline."""
        context = self._context
        if context.link is None and not context.closing and self._may_commit:
            for commit in list(self._queue):
                if commit.waits and commit.kind in _WAITED_FOR:  # it may fail at once
                    self._try(commit)
        elif self._unsent:
            self._try_unsent()
        for commit in list(self._queue):
            if commit.deadline_ms is not None and context.now_ms >= commit.deadline_ms:
                self._expire(commit)
        self.join_waits = False
        for commit in [item for item in self._queue if item.ended] if self._queue else ():
            # A call that waits is told after the asynchronous commits before it.
            if not any(earlier < commit.commit_id for earlier in self._async):
                self._report(commit)
        for commit in self._queue:
            if commit.backoff.ready_ms > context.now_ms:
                context.wake_at(commit.backoff.ready_ms)
            if commit.deadline_ms is not None:
                context.wake_at(commit.deadline_ms)
        if self._due_ms is not None and self._due_ms > context.now_ms and self._interval_allowed():
            context.wake_at(self._due_ms)  # from then on poll() is wanted

    def _try_unsent(self) -> None:
        context = self._context
        unsent = [commit for commit in self._unsent if commit.waits]
        room = _WITHOUT_CALLBACK_IN_FLIGHT_MAX
        if any(commit.without_callback for commit in unsent):
            sent = [commit for commit in chain(self._async.values(), self._queue) if commit.request_id is not None]
            room -= sum(commit.without_callback for commit in sent)
        in_turn = not context.closing and self._may_commit
        for commit in unsent:
            is_held = in_turn and commit.without_callback and (room <= 0 or commit.backoff.ready_ms > context.now_ms)
            if commit.waits and not is_held:
                self._try(commit)
                room -= commit.without_callback and commit.request_id is not None
        self._unsent = {commit: None for commit in self._unsent if commit.waits}

    @property
    def _may_commit(self) -> bool:
        context = self._context
        return context.fatal_error is None and not (context.subscribed and context.live_epoch == NO_EPOCH)

    def _try(self, commit: _Commit) -> None:
        context = self._context
        if context.fatal_error is not None:
            self._end(commit, self._failed(commit, "the member stopped", context.fatal_error))
            return
        epoch = context.live_epoch
        if context.subscribed and epoch == NO_EPOCH:
            reason = f"this consumer is not a member of the group now: {context.why_outside}"
            advice = POLL_ADVICE if context.poll_missed else ""
            self._end(commit, self._failed(commit, reason, commit.last_error, advice=advice))
            return
        if context.link is None and context.closing:
            self._end(commit, self._failed(commit, "the consumer closes and no coordinator is known", None))
            return
        if commit.awaits_epoch and epoch == commit.sent_epoch:
            return
        if commit.kind not in _AUTOMATIC and (commit.incarnation != context.incarnation or commit.awaits_epoch):
            self._take_out_moved(commit)
            if not commit.offsets:
                reason = "the partitions moved to another member"
                if commit.incarnation != context.incarnation and context.departure is not None:
                    reason += f" when this consumer was outside the group ({context.departure})"
                self._end(commit, self._failed(commit, reason, commit.last_error))
                return
        if commit.kind not in _AUTOMATIC and self._take_out_given_away(commit):
            self._end(commit, self._failed(commit, "the partitions were given away", commit.last_error))
            return
        is_due = context.now_ms >= commit.backoff.ready_ms or (commit.without_callback and context.closing)
        if context.link is not None and is_due:
            self._send(commit)

    def _take_out_moved(self, commit: _Commit) -> None:
        # After a removal all were lost: one that is owned again may have had another owner in between.
        still = self._context.owned_by_name if commit.incarnation == self._context.incarnation else {}
        kept = {
            key: value for key, value in commit.offsets.items() if key in still or commit.confirmed.get(key) == value
        }
        commit.moved |= commit.offsets.keys() - kept.keys()
        commit.offsets = kept

    def _take_out_given_away(self, commit: _Commit) -> bool:
        """R275: another thread may commit after the revocation, when the next owner reads. Whether to refuse it whole.

        Also after the member has left, since its commit would name no member: an empty group accepts that.

        Applied in part and told as refused, a transaction would be written again.
        """
        given = self._context.given_away & commit.unconfirmed().keys()
        commit.moved |= given
        if commit.without_callback and commit.commit_id == AUTOMATIC_COMMIT_ID:  # sent again: no call is told
            commit.offsets = {key: value for key, value in commit.offsets.items() if key not in given}
            return not commit.offsets
        return bool(given)

    def _take_out_gone(self, commit: _Commit, gone: frozenset[NamedPartition]) -> None:
        """R176: a rebalance does not wait for a topic that will not come back."""
        commit.gone.update({key: value for key, value in commit.offsets.items() if key in gone})
        commit.offsets = {key: value for key, value in commit.offsets.items() if key not in gone}

    def _send(self, commit: _Commit) -> None:
        context = self._context
        if commit.kind is CommitKind.AUTO_REVOCATION or (
            commit.kind is CommitKind.AUTO_INTERVAL and not commit.offsets
        ):
            commit.offsets = dict(context.committable)
        wanted = commit.unconfirmed()
        if not wanted:
            self._end(commit, None)
            return
        if commit.kind in _AUTOMATIC:
            self._supersede(wanted, commit)
        part = first_part(wanted, group_id=context.config.group_id)
        commit.sent_epoch = context.live_epoch
        commit.awaits_epoch = False
        built = build_commit(context, part)
        link = context.link
        commit.request_id = context.send(
            built.request,
            destination=Destination.COORDINATOR,
            timeout_ms=context.config.request_timeout_ms,
            max_version=built.max_version,
            on_answer=lambda response: self._answered(commit, part, built.request, response, link),
            on_failure=lambda failure: self._request_failed(commit, failure),
            urgent=context.closing or commit.kind is CommitKind.AUTO_CLOSE,
        )

    # --- outcomes

    def _answered(
        self,
        commit: _Commit,
        part: Mapping[NamedPartition, OffsetAndMetadata],
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        link: int | None,
    ) -> None:
        self._await_sending(commit)
        result = read_commit(request, response, without_gone=commit.revoking)
        if commit.revoking and result.gone:
            self._take_out_gone(commit, result.gone)
        if not result.code:
            confirmed = {key: value for key, value in part.items() if key not in result.gone}
            self._committed.update(confirmed)
            commit.confirmed.update(confirmed)
            if commit.unconfirmed():
                self._try(commit)
                return
            moved = commit.moved
            self._end(commit, self._failed(commit, f"{describe_partitions(moved)} moved", None) if moved else None)
            return
        if forgets_coordinator(result.code, committing=True):
            self._context.lose_link(link)
        error: Kip848Error
        text = f"commit of {describe_partitions(result.refused)}"
        if result.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            named = join_names(map(repr, sorted(result.unauthorized)))
            lacks = missing_permission(self._context.config, "READ", f"topic {named}")
            error = TopicAuthorizationError(f"{error_name(result.code)}: {text}: {lacks}", topics=result.unauthorized)
        elif result.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            group_id = self._context.config.group_id
            lacks = missing_permission(self._context.config, "READ", f"group {group_id!r}")
            error = error_for_code(result.code, f"{text}: {lacks}")
        else:
            advice = COMMIT_ADVICE.get(result.code)
            if not self._context.subscribed:
                advice = COMMIT_ADVICE_OUTSIDE.get(result.code, advice)
            error = error_for_code(result.code, text if advice is None else f"{text}: {advice}")
        error_class = commit_error_class(result.code)
        if error_class in {CommitErrorClass.NOT_A_MEMBER, CommitErrorClass.STALE, CommitErrorClass.OLD_GENERATION}:
            self._context.expedite = True
        self._decide(commit, error_class, error)

    def _await_sending(self, commit: _Commit) -> None:
        """There is an answer. If that does not end the commit, it is sent again, or its next part is."""
        commit.request_id = None
        self._unsent[commit] = None

    def _request_failed(self, commit: _Commit, failure: RequestFailed) -> None:
        self._await_sending(commit)
        error_class = CommitErrorClass.RETRY if is_passing(failure) else CommitErrorClass.RAISE
        self._decide(commit, error_class, failure_error(failure))

    def _decide(self, commit: _Commit, error_class: CommitErrorClass, error: Kip848Error) -> None:
        commit.last_error = error
        match commit.kind:
            case CommitKind.SYNC | CommitKind.AUTO_CLOSE:
                self._decide_sync(commit, error_class, error)
            case CommitKind.ASYNC:
                self._decide_async(commit, error_class, error)
            case CommitKind.AUTO_INTERVAL:
                if error_class in {CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING}:
                    self._due_ms = self._context.now_ms + commit.backoff.wait_ms(0)
                self._end(commit, error)
            case CommitKind.AUTO_REVOCATION:
                epoch = self._context.live_epoch
                retried = (
                    error_class is CommitErrorClass.RETRY
                    or (error_class is CommitErrorClass.STALE and epoch != NO_EPOCH)
                    or (error_class is CommitErrorClass.OLD_GENERATION and epoch not in {NO_EPOCH, commit.sent_epoch})
                )
                if retried:
                    commit.backoff.failed(self._context.now_ms)
                    commit.wants_positions = True
                else:
                    self._end(commit, error)

    def _decide_sync(self, commit: _Commit, error_class: CommitErrorClass, error: Kip848Error) -> None:
        now_ms = self._context.now_ms
        match error_class:
            case CommitErrorClass.RETRY:
                commit.backoff.failed(now_ms)
            case CommitErrorClass.RETRY_UNLESS_REVOKING:
                if commit.gone_since_ms is None:
                    commit.gone_since_ms = now_ms
                # What the member owns has existed: this broker may be the last to hear of it, or of its end.
                known = not self._context.owned_by_name.keys().isdisjoint(commit.offsets)
                if not known or now_ms - commit.gone_since_ms >= _TOPIC_UNKNOWN_MAX_MS:
                    self._end(commit, error)
                else:
                    commit.backoff.failed(now_ms)
            case CommitErrorClass.STALE | CommitErrorClass.OLD_GENERATION:
                commit.awaits_epoch = True
            case CommitErrorClass.NOT_A_MEMBER | CommitErrorClass.FENCED_INSTANCE:
                self._end(commit, self._failed(commit, str(error), error))
            case CommitErrorClass.RAISE | CommitErrorClass.OTHER:
                self._end(commit, error)

    def _decide_async(self, commit: _Commit, error_class: CommitErrorClass, error: Kip848Error) -> None:
        is_again = commit.without_callback and error_class in _TEMPORARY and not self._context.closing
        told: Kip848Error = error
        match error_class:
            case CommitErrorClass.RETRY | CommitErrorClass.RETRY_UNLESS_REVOKING:
                follows = "it is sent again, or a later one" if is_again else "nothing was retried, commit again"
                told = RetriableCommitFailedError(f"{error}; {follows}")
                told.__cause__ = error
            case CommitErrorClass.NOT_A_MEMBER | CommitErrorClass.OLD_GENERATION:
                told = self._failed(commit, str(error), error)
            case CommitErrorClass.FENCED_INSTANCE:
                self._context.surface(error, key=ErrorCode.FENCED_INSTANCE_ID)
            case CommitErrorClass.STALE | CommitErrorClass.RAISE | CommitErrorClass.OTHER:
                pass
        left = self._newest_of(commit)
        if not is_again or not left:
            self._end(commit, told)
            return
        # R354: only what no newer commit has, so that none is overtaken. Its call is told of the first failure.
        if self._async.pop(commit.commit_id, None) is not None:
            self._context.emit(CommitDone(commit.commit_id, dict(commit.offsets), told))
            commit.commit_id = AUTOMATIC_COMMIT_ID
            self._queue.append(commit)
        commit.offsets = left
        commit.backoff.failed(self._context.now_ms)

    def _expire(self, commit: _Commit) -> None:
        if not commit.ended:
            self._context.orphan(commit.request_id)
            if self.join_waits:  # it was asked already, and need not wait longer
                self._context.wake_at(self._context.now_ms)
            self._end(commit, self._expiry_error(commit))
        # Also a commit that is done but waits for an earlier asynchronous one: its deadline has passed.
        self._report(commit)

    def _expiry_error(self, commit: _Commit) -> Kip848Error:
        if commit.awaits_epoch:
            reason = "the member's epoch was stale, and no newer one became known in time"
            return self._failed(commit, reason, commit.last_error)
        what = describe_partitions(commit.unconfirmed())
        seen = f"last error: {commit.last_error}" if commit.last_error is not None else "no answer came"
        error = RequestTimeoutError(f"commit of {what} was not confirmed in time ({seen}); it may have been applied")
        error.__cause__ = commit.last_error
        return error

    def refuse_waiting(self, error: Kip848Error) -> None:
        """The coordinator cannot be found, and retries will not help: fail the commits that wait for it."""
        for commit in list(self._unsent):
            if commit.waits:
                self._end(commit, error)

    def _failed(
        self, commit: _Commit, reason: str, cause: Kip848Error | None, *, advice: str = ""
    ) -> CommitFailedError:
        what = describe_partitions(commit.unconfirmed().keys() | commit.moved)
        text = f"offsets of {what} were not committed: {reason}; their records may be read again"
        error = CommitFailedError(f"{text}; {advice}" if advice else text)
        error.__cause__ = cause
        return error

    # --- reporting

    def _end(self, commit: _Commit, error: Kip848Error | None) -> None:
        commit.ended = True
        self._unsent.pop(commit, None)
        commit.error = error
        if commit.kind not in _WAITED_FOR:  # `advance` reports the others
            self._report(commit)
        if commit.on_done is not None:
            commit.on_done()

    def _report(self, commit: _Commit) -> None:
        if self._remove(commit) and (commit.offsets or commit.kind not in _AUTOMATIC):
            self._context.emit(CommitDone(commit.commit_id, dict(commit.offsets), commit.error, dict(commit.gone)))
