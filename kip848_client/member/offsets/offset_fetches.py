"""Fetches committed offsets: retries, deadlines, and one request for callers that ask for the same partitions.

A request carries the member id and epoch of the time it is sent. Only the coordinator's explicit "no offset" lets a
partition start from the reset policy; a failed fetch never does.

Does not own: the use of the offsets (`positions`, the application).

Source: Kafka's ``CommitRequestManager.OffsetFetchRequestState``; KAFKA-20765. Unlike Kafka, a member that looks for the
positions of its new partitions never shares a request that was sent before: the partition's former owner may have
committed since.
Rules: R91 to R98, R153 and R154 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NO_EPOCH, NamedPartition, describe_partitions
from kip848_client.errors import (
    ConnectionLostError,
    Kip848Error,
    RequestTimeoutError,
    TopicAuthorizationError,
    error_for_code,
    error_name,
    join_names,
)
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import (
    FetchErrorClass,
    fetch_error_class,
    forgets_coordinator,
    partition_fetch_error_class,
)
from kip848_client.member.core.events import Destination, FetchOffsetsRequested, OffsetsFetched, RequestFailed
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.offsets.commit_requests import FetchResult, build_fetch, read_fetch
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


class Lookup(msgspec.Struct, eq=False):
    """One caller that waits for committed offsets.

    Args:
        on_done: called once with the result, or with the error of the whole fetch.
        deadline_ms: when to fail, or None to wait for ever.
        fetch_id: of the application's call; None if the member itself asks.
        interested: how many partitions still wait for the answer; counted by the caller.
    """

    on_done: Callable[[FetchResult | None, Kip848Error | None], None]
    deadline_ms: int | None = None
    fetch_id: int | None = None
    interested: int = 0


class _Fetch(msgspec.Struct, eq=False):
    partitions: frozenset[NamedPartition]
    backoff: Backoff
    waiters: list[Lookup] = msgspec.field(default_factory=list)
    request_id: int | None = None
    sent_epoch: int = NO_EPOCH
    is_stale: bool = False
    """The epoch with which it was sent was refused: with a newer one it need not wait for the backoff."""
    last_error: Kip848Error | None = None


class OffsetFetches:
    """The fetches of one member that are not answered yet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fetches: list[_Fetch] = []

    # --- requests

    def request(self, event: FetchOffsetsRequested) -> None:
        """The application asked; answered by `OffsetsFetched`."""
        fetch_id = event.fetch_id

        def done(result: FetchResult | None, error: Kip848Error | None) -> None:
            if result is not None and result.failed:
                error = _partition_error(result)
            offsets = result.offsets if result is not None and error is None else {}
            self._context.emit(OffsetsFetched(fetch_id, offsets, error))

        if not event.partitions:
            self._context.emit(OffsetsFetched(fetch_id, {}, None))
            return
        self._join(event.partitions, Lookup(done, event.deadline_ms, fetch_id), share_sent=True)

    def look_up(self, partitions: frozenset[NamedPartition], lookup: Lookup) -> None:
        """The member itself asks, for the positions of its partitions."""
        self._join(partitions, lookup, share_sent=False)

    def _join(self, partitions: frozenset[NamedPartition], lookup: Lookup, *, share_sent: bool) -> None:
        for fetch in self._fetches:
            if fetch.partitions == partitions and (share_sent or fetch.request_id is None):
                fetch.waiters.append(lookup)
                return
        self._fetches.append(_Fetch(partitions, self._context.new_backoff(), [lookup]))

    def cancel(self, lookup: Lookup) -> None:
        """The caller stopped waiting."""
        for fetch in list(self._fetches):
            if lookup in fetch.waiters:
                fetch.waiters.remove(lookup)
                self._drop_if_unwanted(fetch)

    def abandon(self, fetch_id: int) -> None:
        """The application stopped waiting."""
        for fetch in list(self._fetches):
            for waiter in [item for item in fetch.waiters if item.fetch_id == fetch_id]:
                self.cancel(waiter)

    def _drop_if_unwanted(self, fetch: _Fetch) -> None:
        if not fetch.waiters and fetch in self._fetches:
            self._context.orphan(fetch.request_id)
            self._fetches.remove(fetch)

    # --- sending

    @property
    def coordinator_wanted(self) -> bool:
        """Whether a fetch waits to be sent."""
        return any(fetch.request_id is None for fetch in self._fetches)

    def advance(self) -> None:
        """Send the fetches that can be sent, and end those past their deadline."""
        context = self._context
        for fetch in list(self._fetches):
            if fetch.request_id is not None:
                continue
            if context.fatal_error is not None:
                self._end(fetch, None, context.fatal_error)
            elif context.link is None:
                if context.closing:
                    self._refuse(fetch, ConnectionLostError("the consumer closes, and no coordinator is known"))
            elif context.now_ms >= fetch.backoff.ready_ms or self._has_newer_epoch(fetch):
                self._send(fetch)
        for fetch in list(self._fetches):
            self._expire(fetch)
        for fetch in self._fetches:
            if fetch.backoff.ready_ms > context.now_ms:
                context.wake_at(fetch.backoff.ready_ms)
            for waiter in fetch.waiters:
                if waiter.deadline_ms is not None:
                    context.wake_at(waiter.deadline_ms)

    def _has_newer_epoch(self, fetch: _Fetch) -> bool:
        return fetch.is_stale and self._context.live_epoch not in {NO_EPOCH, fetch.sent_epoch}

    def _send(self, fetch: _Fetch) -> None:
        context = self._context
        fetch.sent_epoch, fetch.is_stale = context.live_epoch, False
        built = build_fetch(context, fetch.partitions)
        request, link = built.request, context.link
        fetch.request_id = context.send(
            request,
            destination=Destination.COORDINATOR,
            timeout_ms=context.config.request_timeout_ms,
            max_version=built.max_version,
            on_answer=lambda response: self._answered(fetch, request, response, link),
            on_failure=lambda failure: self._failed(fetch, failure),
        )

    def _expire(self, fetch: _Fetch) -> None:
        late = [
            item for item in fetch.waiters if item.deadline_ms is not None and self._context.now_ms >= item.deadline_ms
        ]
        for waiter in late:
            fetch.waiters.remove(waiter)
            seen = f"last error: {fetch.last_error}" if fetch.last_error is not None else "no answer came"
            what = describe_partitions(fetch.partitions)
            error = RequestTimeoutError(f"committed offsets of {what} were not fetched in time ({seen})")
            error.__cause__ = fetch.last_error
            waiter.on_done(None, error)
        self._drop_if_unwanted(fetch)

    # --- outcomes

    def _answered(
        self, fetch: _Fetch, request: OffsetFetchRequest, response: OffsetFetchResponse, link: int | None
    ) -> None:
        fetch.request_id = None
        result = read_fetch(request, response, fetch.partitions)
        if not result.code:
            unstable = [code for code in result.failed.values() if partition_fetch_error_class(code) is _RETRY]
            if unstable:
                self._retry(fetch, error_for_code(unstable[0], f"{describe_partitions(fetch.partitions)}"))
            else:
                self._end(fetch, result, None)
            return
        if forgets_coordinator(result.code):
            self._context.lose_link(link)
        if result.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH}:
            self._context.expedite = True
        group_id = self._context.config.group_id
        error = error_for_code(
            result.code, f"committed offsets of {describe_partitions(fetch.partitions)} in group {group_id!r}"
        )
        match fetch_error_class(result.code):
            case FetchErrorClass.RETRY:
                self._retry(fetch, error)
            case FetchErrorClass.STALE if self._context.live_epoch != NO_EPOCH:
                fetch.is_stale = True
                self._retry(fetch, error)
            case FetchErrorClass.STALE | FetchErrorClass.FAIL:
                self._end(fetch, None, error)

    def _failed(self, fetch: _Fetch, failure: RequestFailed) -> None:
        fetch.request_id = None
        if is_passing(failure):
            self._retry(fetch, failure_error(failure))
        else:
            self._end(fetch, None, failure_error(failure))

    def _retry(self, fetch: _Fetch, error: Kip848Error) -> None:
        fetch.last_error = error
        fetch.backoff.failed(self._context.now_ms)

    def refuse_waiting(self, error: Kip848Error) -> None:
        """The coordinator cannot be found, and retries will not help: fail the calls that wait for it."""
        for fetch in list(self._fetches):
            if fetch.request_id is None:
                self._refuse(fetch, error)

    def _refuse(self, fetch: _Fetch, error: Kip848Error) -> None:
        for waiter in [item for item in fetch.waiters if item.fetch_id is not None]:
            fetch.waiters.remove(waiter)
            waiter.on_done(None, error)

    def _end(self, fetch: _Fetch, result: FetchResult | None, error: Kip848Error | None) -> None:
        self._fetches.remove(fetch)
        for waiter in fetch.waiters:
            waiter.on_done(result, error)


_RETRY = FetchErrorClass.RETRY


def _partition_error(result: FetchResult) -> Kip848Error:
    """The error of a call with at least one failed partition."""
    denied = {key.topic for key, code in result.failed.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    if denied:
        names = join_names(sorted(denied))
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return TopicAuthorizationError(f"{error_name(code)}: DESCRIBE is missing on {names}", topics=denied)
    partition, first = min(result.failed.items())
    return error_for_code(first, f"committed offset of {partition}")
