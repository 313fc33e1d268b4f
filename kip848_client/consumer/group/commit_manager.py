"""Futures of commits, offset fetches and leaves: who waits for which number. Rules are in `member/commits`.

Calls are made on any thread; `complete` is called on the background thread. There a finished call is only marked:
errors are raised by the thread that waits, and callbacks run on the thread that polls.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.common.telemetry import OpenSpan
from kip848_client.errors import GroupAuthorizationError, Kip848Error, TopicAuthorizationError
from kip848_client.member.core.events import CommitDone, LeaveDone, OffsetsFetched
from kip848_client.network.queues import Bell

Offsets: TypeAlias = Mapping[NamedPartition, OffsetAndMetadata]
OnCommitted: TypeAlias = Callable[[Kip848Error | None, Offsets], object]


_LATER: Final = (
    "An earlier, asynchronous commit() has failed. A later call raises that, because the commit has no on_commit."
)
"""Shown below the traceback, which names the later call."""


class PendingCall(msgspec.Struct, eq=False):
    """One call that the member will answer.

    Attributes:
        posted: the member was asked. A Ctrl-C may come between `CommitManager.open` and that; no answer comes then.
        finished: set last; once it is, the other fields do not change.
        span: of a commit; ends with it.
    """

    call_id: int
    callback: OnCommitted | None = None
    asynchronous: bool = False
    posted: bool = False
    finished: bool = False
    error: Kip848Error | None = None
    offsets: Offsets = msgspec.field(default_factory=dict)
    span: OpenSpan | None = None
    _ended: Bell = msgspec.field(default_factory=Bell)

    def end(self) -> None:
        """The other fields are set: let those go on that wait (any thread)."""
        self.finished = True
        self._ended.ring()

    def nudge(self) -> None:
        """End a wait early, for a look at other things (any thread)."""
        self._ended.ring()

    def wait(self, timeout_s: float) -> None:
        """Wait for the end, at most *timeout_s*, or for `nudge`. Several threads may wait."""
        if self._ended.wait(timeout_s) and self.finished:
            self._ended.ring()  # for the next one


class CommitManager:
    """Hands out numbers for calls, and keeps each call until the member answers it.

    Args:
        default_callback: on_commit of the configuration: called for every commit without a callback of its own.
    """

    def __init__(self, default_callback: OnCommitted | None = None) -> None:
        self._default_callback = default_callback
        self._ids = itertools.count(1)
        self._pending: dict[int, PendingCall] = {}
        self._finished: deque[PendingCall] = deque()
        self.committed: dict[NamedPartition, OffsetAndMetadata] = {}
        """The committed offsets that this consumer knows: those that it fetched, and those that it committed."""
        self._refused: dict[NamedPartition, Kip848Error] = {}
        """Partitions whose last automatic commit was refused because a right is missing; no call has raised it."""

    @property
    def has_callback(self) -> bool:
        """Whether the configuration has an on_commit."""
        return self._default_callback is not None

    def open(self, *, callback: OnCommitted | None = None, asynchronous: bool = False) -> PendingCall:
        """Begin a call: its `call_id` goes into the event, and `finished` is set when it was answered."""
        call = PendingCall(next(self._ids), callback=callback, asynchronous=asynchronous)
        self._pending[call.call_id] = call
        return call

    def finish_without_request(self, call: PendingCall) -> None:
        """There is nothing to commit: the next `run_callbacks` calls the callback of *call* with success."""
        if call.callback is not None:
            self._finished.append(call)
        call.end()
        self._pending.pop(call.call_id, None)

    def abandon(self, call: PendingCall) -> None:
        """The caller of *call* stopped waiting."""
        self._pending.pop(call.call_id, None)
        if call.span is not None:
            call.span.end("the application stopped waiting")

    def complete(self, effect: CommitDone | OffsetsFetched | LeaveDone) -> bool:
        """Mark the call that *effect* answers as finished (background thread).

        Returns:
            Whether the application has something to do because of it.
        """
        # A call leaves `_pending` last: a thread that finds none pending must find its callback in `_finished`.
        match effect:
            case CommitDone(commit_id=call_id, offsets=offsets, error=error):
                if error is None:
                    self.committed.update(offsets)
                    for partition in offsets:
                        self._refused.pop(partition, None)
                call = self._pending.get(call_id)
                if call is None:
                    if self._default_callback is None:
                        self.automatic_failed(offsets, error)
                        return False
                    call = PendingCall(call_id, asynchronous=True)  # an automatic commit: only on_commit is called
                    call.callback = self._default_callback
            case OffsetsFetched(fetch_id=call_id, offsets=offsets, error=error):
                call = self._pending.get(call_id)
            case LeaveDone(leave_id=call_id):
                call, offsets, error = self._pending.get(call_id), {}, None
        if call is None:
            return False
        call.offsets, call.error = offsets, error
        if call.span is not None:
            call.span.end(error)
        if call.asynchronous:
            self._finished.append(call)
        call.end()
        self._pending.pop(call_id, None)
        return True

    def automatic_failed(self, offsets: Iterable[NamedPartition], error: Kip848Error | None) -> None:
        """A commit that no call of the application has made has ended; remember it if a right is missing."""
        if isinstance(error, TopicAuthorizationError | GroupAuthorizationError):
            self._refused.update(dict.fromkeys(offsets, error))

    def take_refusals(self) -> list[Kip848Error]:
        """Why automatic commits were refused for good, for a call that ends the membership to raise."""
        refusals = list(dict.fromkeys(self._refused.values()))
        self._refused.clear()
        return refusals

    def fail_all(self, error: Kip848Error) -> None:
        """Finish every open call with *error* (the background thread has died)."""
        for call_id in list(self._pending):
            call = self._pending.pop(call_id, None)
            if call is not None:
                call.error = error
                if call.span is not None:
                    call.span.end(error)
                if call.asynchronous:
                    self._finished.append(call)
                call.end()

    def nudge(self) -> None:
        """Let the threads that wait for a call look at other things (any thread)."""
        for call in list(self._pending.values()):
            call.nudge()

    @property
    def asynchronous_pending(self) -> list[PendingCall]:
        """The asynchronous commits that the member has still to answer."""
        return [call for call in list(self._pending.values()) if call.asynchronous and call.posted]

    def run_callbacks(self) -> Kip848Error | None:
        """Run the callbacks of finished asynchronous commits, oldest first (the thread that polls).

        Returns:
            The first error of a commit that has no callback; it is for the caller to raise. Later ones wait for the
            next call.
        """
        while self._finished:
            call = self._finished.popleft()
            callback = call.callback or self._default_callback
            if callback is not None:
                callback(call.error, call.offsets)
            elif call.error is not None:
                call.error.add_note(_LATER)
                return call.error
        return None

    @property
    def callbacks_due(self) -> bool:
        """Whether `run_callbacks` has something to do."""
        return bool(self._finished)
