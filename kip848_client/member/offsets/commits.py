"""Commits: their order, retries and deadlines, and the interval of auto-commit.

======================  ==============  =======================  ============================================
kind                    offsets         deadline                 retries
======================  ==============  =======================  ============================================
SYNC, AUTO_CLOSE        given           given                    retriable codes; a stale epoch once per new epoch;
                                                                 in on_partitions_revoked not for a deleted topic
ASYNC                   given           none                     none
AUTO_INTERVAL           all consumed    none                     none; a retriable failure shortens the wait
AUTO_REVOCATION         all consumed    the rebalance timeout    retriable codes and stale epochs
======================  ==============  =======================  ============================================

A commit carries the member id and epoch that are valid when it is sent. A subscribed member without an epoch (removed,
or not joined yet) commits nothing: the coordinator of an empty group would accept the commit, and it would overwrite
the offsets of the next owner. A commit belongs to the membership in which it was requested, and ends with it.

A SYNC commit is reported after all ASYNC commits that were requested before it.

Source: KIP-848; Kafka's ``CommitRequestManager``; KAFKA-19357, KAFKA-18034. Unlike Kafka's, a synchronous commit is
retried after a stale epoch, and consumed positions are not committed twice.
Rules: R102 to R124, R153, R176 and R272 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
_OWN: Final = _AUTOMATIC | {CommitKind.REPEATED}
"""Kinds that no call waits for."""

_REPEATABLE: Final = frozenset({CommitErrorClass.RETRY, CommitErrorClass.STALE})
"""Failures after which an unheard commit is sent again."""

_UNHEARD_IN_FLIGHT_MAX: Final = 100
"""A loop that commits each record asks for more than a coordinator answers, and for thousands while none is there."""

_TOPIC_UNKNOWN_MAX_MS: Final = 5_000
"""How long a commit is retried because the coordinator does not know the topic yet. After that the topic counts as
deleted. The application's thread waits meanwhile."""


class _Commit(msgspec.Struct, eq=False):
    kind: CommitKind
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    deadline_ms: int | None
    incarnation: int
    backoff: Backoff
    commit_id: int | None = None
    on_done: Callable[[], None] | None = None
    revoking: bool = False
    """Requested inside on_partitions_revoked: the rebalance waits for it."""
    is_unheard: bool = False
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

    def unconfirmed(self) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """Its offsets that are not confirmed yet."""
        if not self.confirmed:
            return self.offsets
        return {key: value for key, value in self.offsets.items() if self.confirmed.get(key) != value}


class Commits:
    """The queue of one member's commits, in the order of the requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue: list[_Commit] = []
        self._due_ms: int | None = None
        self.join_waits: bool = False
        """A join of the classic protocol waits, in this step, until no commit is in flight."""
        self._committed: dict[NamedPartition, OffsetAndMetadata] = {}
        """Offsets confirmed since their partitions were assigned. An equal consumed position needs no commit (R119)."""
        self._has_ended: bool = False
        """Whether one of the queue has ended."""
        self._newest: dict[NamedPartition, _Commit] = {}
        """The last commit of each partition, in the order in which they are sent."""

    # --- requests

    def request(self, event: CommitRequested) -> None:
        """Queue a commit of the application or of close(). If there is nothing to commit, it succeeds at once."""
        needed = self._is_news(event.offsets) if event.kind is CommitKind.AUTO_CLOSE else bool(event.offsets)
        commit = self._new(event.kind, dict(event.offsets), event.deadline_ms)
        commit.commit_id = event.commit_id
        commit.revoking, commit.is_unheard = event.revoking, event.is_unheard
        self._newest.update(dict.fromkeys(event.offsets, commit))
        self._supersede()
        self._queue.append(commit)
        if not needed:
            self._end(commit, None)

    def _repeat(self, commit: _Commit) -> None:
        """R354: send again, after a while, what no newer commit has, so that no newer one is overtaken."""
        left = self._newest_of(commit)
        if left:
            again = self._new(CommitKind.REPEATED, left, None)
            again.incarnation, again.is_unheard = commit.incarnation, True
            again.backoff.failed(self._context.now_ms)
            self._newest.update(dict.fromkeys(left, again))
            self._queue.append(again)

    def _newest_of(self, commit: _Commit) -> dict[NamedPartition, OffsetAndMetadata]:
        """What is unconfirmed of *commit*, and of no later one."""
        return {key: value for key, value in commit.unconfirmed().items() if self._newest.get(key) is commit}

    def _supersede(self) -> None:
        """Drop what waits unheard and has a later commit, or may have another owner's."""
        for commit in [item for item in self._queue if item.is_unheard and item.request_id is None and not item.ended]:
            commit.offsets = self._newest_of(commit)
            if not commit.offsets:
                self._end(commit, None)

    def abandon(self, commit_id: int) -> None:
        """The caller stopped waiting for this commit."""
        self._queue = [commit for commit in self._queue if commit.commit_id != commit_id]

    def start_before_revocation(self, on_done: Callable[[], None], *, within_ms: int) -> bool:
        """Commit everything consumed before a run goes on; False if there is nothing to commit."""
        if self._context.config.auto_commit_interval_ms is None or not self._is_news(self._context.committable):
            return False
        deadline_ms = self._context.now_ms + within_ms
        commit = self._new(CommitKind.AUTO_REVOCATION, {}, deadline_ms)
        commit.on_done = on_done
        self._queue.append(commit)
        return True

    def cancel_before_revocation(self) -> None:
        """Drop the commit before a revocation: the run that waited for it was cancelled."""
        for commit in [item for item in self._queue if item.kind is CommitKind.AUTO_REVOCATION]:
            self._context.orphan(commit.request_id)
            self._queue.remove(commit)

    def _new(
        self, kind: CommitKind, offsets: Mapping[NamedPartition, OffsetAndMetadata], deadline_ms: int | None
    ) -> _Commit:
        return _Commit(kind, offsets, deadline_ms, self._context.incarnation, self._context.new_backoff())

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
        for partition in partitions:
            self._committed.pop(partition.topic_partition, None)
            self._newest.pop(partition.topic_partition, None)
        self._supersede()

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
                self._queue.append(self._new(CommitKind.AUTO_INTERVAL, {}, None))

    def commit_consumed(self, consumed: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        """If auto-commit is on, commit positions of partitions that are about to be removed."""
        if consumed and self._context.config.auto_commit_interval_ms is not None:
            self._queue.append(self._new(CommitKind.AUTO_INTERVAL, dict(consumed), None))

    def _is_news(self, consumed: Mapping[NamedPartition, OffsetAndMetadata]) -> bool:
        """Whether to commit *consumed*: part of it is not confirmed, or a queued commit may say something else."""
        others_queued = any(commit.kind is not CommitKind.AUTO_REVOCATION for commit in self._queue)
        return any(others_queued or self._committed.get(key) != value for key, value in consumed.items())

    # --- sending

    @property
    def in_flight(self) -> bool:
        """Whether the answer to a commit is awaited."""
        return any(commit.request_id is not None for commit in self._queue)

    @property
    def coordinator_wanted(self) -> bool:
        """Whether a commit waits to be sent."""
        return any(commit.request_id is None and not commit.ended for commit in self._queue)

    def advance(self) -> None:
        """Send the commits that can be sent, fail those that cannot, and end those past their deadline."""
        context = self._context
        is_quiet = context.link is None and not context.closing and self._may_commit
        for commit in list(self._queue):
            if not commit.ended and commit.request_id is None and not (is_quiet and commit.kind is CommitKind.ASYNC):
                self._try(commit)
        for commit in list(self._queue):
            if commit.deadline_ms is not None and context.now_ms >= commit.deadline_ms:
                self._expire(commit)
        self.join_waits = False
        if self._has_ended:
            self._report()
        for commit in self._queue:
            if commit.backoff.ready_ms > context.now_ms:
                context.wake_at(commit.backoff.ready_ms)
            if commit.deadline_ms is not None:
                context.wake_at(commit.deadline_ms)
        if self._due_ms is not None and self._due_ms > context.now_ms and self._interval_allowed():
            context.wake_at(self._due_ms)  # from then on poll() is wanted

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
        waits = context.now_ms < commit.backoff.ready_ms or (commit.is_unheard and self._unheard_fill_the_line)
        if context.link is not None and (not waits or (commit.is_unheard and context.closing)):
            self._send(commit)

    @property
    def _unheard_fill_the_line(self) -> bool:
        """Whether so many unheard commits are in flight that others wait, and later ones take their place."""
        return sum(one.is_unheard and one.request_id is not None for one in self._queue) >= _UNHEARD_IN_FLIGHT_MAX

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
            self._newest.update(dict.fromkeys(wanted, commit))
            self._supersede()
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
        commit.request_id = None
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

    def _request_failed(self, commit: _Commit, failure: RequestFailed) -> None:
        commit.request_id = None
        error_class = CommitErrorClass.RETRY if is_passing(failure) else CommitErrorClass.RAISE
        self._decide(commit, error_class, failure_error(failure))

    def _decide(self, commit: _Commit, error_class: CommitErrorClass, error: Kip848Error) -> None:
        commit.last_error = error
        match commit.kind:
            case CommitKind.SYNC | CommitKind.AUTO_CLOSE:
                self._decide_sync(commit, error_class, error)
            case CommitKind.ASYNC:
                self._decide_async(commit, error_class, error)
            case CommitKind.REPEATED:
                commit.offsets = self._newest_of(commit)
                if error_class not in _REPEATABLE or self._context.closing or not commit.offsets:
                    self._end(commit, error)
                else:
                    commit.backoff.failed(self._context.now_ms)
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
        repeated = commit.is_unheard and error_class in _REPEATABLE and not self._context.closing
        if repeated:
            self._repeat(commit)
        match error_class:
            case CommitErrorClass.RETRY | CommitErrorClass.RETRY_UNLESS_REVOKING:
                follows = "it is sent again, or a later one" if repeated else "nothing was retried, commit again"
                wrapped = RetriableCommitFailedError(f"{error}; {follows}")
                wrapped.__cause__ = error
                self._end(commit, wrapped)
            case CommitErrorClass.NOT_A_MEMBER:
                self._end(commit, self._failed(commit, str(error), error))
            case CommitErrorClass.FENCED_INSTANCE:
                self._context.surface(error, key=ErrorCode.FENCED_INSTANCE_ID)
                self._end(commit, error)
            case CommitErrorClass.OLD_GENERATION:
                self._end(commit, self._failed(commit, str(error), error))
            case CommitErrorClass.STALE | CommitErrorClass.RAISE | CommitErrorClass.OTHER:
                self._end(commit, error)

    def _expire(self, commit: _Commit) -> None:
        if not commit.ended:
            self._context.orphan(commit.request_id)
            if self.join_waits:  # it was asked already, and need not wait longer
                self._context.wake_at(self._context.now_ms)
            self._end(commit, self._expiry_error(commit))
        # Also a commit that is done but waits for an earlier asynchronous one: its deadline has passed.
        self._emit(commit)

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
        for commit in list(self._queue):
            if commit.request_id is None and not commit.ended:
                self._end(commit, error)  # `advance` reports it

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
        commit.ended = self._has_ended = True
        commit.error = error
        if commit.kind in _OWN:
            self._queue.remove(commit)
            if commit.offsets:
                self._context.emit(CommitDone(AUTOMATIC_COMMIT_ID, dict(commit.offsets), error))
            if commit.on_done is not None:
                commit.on_done()

    def _report(self) -> None:
        async_outstanding = self._has_ended = False
        for commit in list(self._queue):
            if commit.ended and not (async_outstanding and commit.kind in _WAITED_FOR):
                self._emit(commit)
            elif commit.ended:
                self._has_ended = True
            elif commit.kind is CommitKind.ASYNC:
                async_outstanding = True

    def _emit(self, commit: _Commit) -> None:
        if commit in self._queue:
            self._queue.remove(commit)
            assert commit.commit_id is not None, "automatic commits are reported when they end"
            self._context.emit(CommitDone(commit.commit_id, dict(commit.offsets), commit.error, dict(commit.gone)))
