"""A bounded log of decoded requests and answers, with calls that wait for requests.

The broker's thread writes, any thread reads. The log keeps only the size of records, and no credentials.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from kip848_client.common.clock import Clock
from kip848_client.errors import ConfigError, RequestTimeoutError
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.logged_request import AnsweredError, LoggedRequest, Outcome, api_title, errors_of
from kip848_client.testing.broker.net.loop_thread import wait_s
from kip848_client.testing.faults.rules import ApiSelector, Match, select_apis
from kip848_client.testing.faults.subject import Subject, TopicNames
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse
from kip848_client.wire.messages.produce import ProduceRequest
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kip848_client.wire.schema import Request, Response

Predicate = Callable[[LoggedRequest], object]

_WITH_PAYLOAD: Final = (ProduceRequest, SaslAuthenticateRequest)

_ENTRY_BYTES: Final = 500
_PARTITION_BYTES: Final = 16
"""Approximate memory of an entry, besides the bytes of its request."""


class Watcher(Protocol):
    """Is told of each request on the broker's thread, whether the log keeps it or not."""

    def asked(self, context: RequestContext, request: Request[Response]) -> None:
        """It was read, as the client sent it: a Fetch of a session has only what is new."""
        ...

    def answered(self, context: RequestContext, response: Response | None) -> None:
        """Its answer is about to be written; None if it has none, or a fault takes it."""
        ...


class RequestLog:
    """The requests of one broker, over its restarts.

    Args:
        entries_max: how many are kept; older ones are forgotten. 0 keeps none.
        bytes_max: how many bytes they and their answers may have on the wire, records left out.
        clock: stamps them.
        topic_name: resolves topic ids.
    """

    def __init__(self, *, entries_max: int, bytes_max: int, clock: Clock, topic_name: TopicNames) -> None:
        self._entries_max: Final = entries_max
        self._bytes_max: Final = bytes_max
        self._clock: Final = clock
        self._topic_name: Final = topic_name
        self._entries: Final[deque[_Entry]] = deque()
        self._weight = 0
        self._number = 0
        self._changed: Final = threading.Condition()
        self._changes = 0
        self._waiting = 0
        self._watchers: tuple[Watcher, ...] = ()

    # --- reading, from any thread

    def __iter__(self) -> Iterator[LoggedRequest]:
        """All that are kept, oldest first."""
        return iter(self.of())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def forgotten(self) -> int:
        """How many requests were dropped from the log."""
        return self._number - len(self._entries)

    def mark(self) -> int:
        """The number of the newest request: *since* for requests that come after now."""
        return self._number

    def of(
        self,
        api: ApiSelector | Iterable[ApiSelector] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        when: Predicate | None = None,
        since: int = 0,
    ) -> tuple[LoggedRequest, ...]:
        """The requests that match all arguments, oldest first.

        Args:
            api: by key, by Kafka's name or by the class of the request; several in a list; None for any.
            member: member id or group instance id.
            topic: by name, whether the request has the name or the id.
            node_id: the node that the request came to.
            when: a predicate over the `LoggedRequest`.
            since: only those with a greater number (`mark`).

        Raises:
            ConfigError: there is no API of that name.
        """
        match = Match(
            apis=select_apis(api),
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
        )
        return tuple(_Search(self, match, when, answered=False, since=since).found())

    def wait_for(
        self,
        api: ApiSelector | Iterable[ApiSelector] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        when: Predicate | None = None,
        since: int = 0,
        count: int = 1,
        answered: bool = False,
        timeout_s: float = 30.0,
    ) -> LoggedRequest:
        """Wait until *count* such requests have come, and return the last of these.

        Requests that came before the call count too, unless *since* says otherwise.

        Args:
            answered: only those count that have their answer.
            when: called on this thread.

        Raises:
            RequestTimeoutError: they did not come; the message says what came instead.
            ConfigError: there is no API of that name, or *count* is not positive.
        """
        if count < 1:
            raise ConfigError(f"requests.wait_for(count={count}): wait for at least one")
        match = Match(
            apis=select_apis(api),
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
        )
        search = _Search(self, match, when, answered=answered, since=since)
        deadline_s = time.monotonic() + wait_s(timeout_s)
        with self._changed:
            self._waiting += 1
        try:
            while True:
                seen = self._changes
                found = search.found()
                if len(found) >= count:
                    return found[count - 1]
                with self._changed:
                    changed = self._changed.wait_for(
                        lambda seen=seen: self._changes != seen,  # type: ignore[misc]  # bound on purpose
                        deadline_s - time.monotonic(),
                    )
                if not changed:
                    raise RequestTimeoutError(
                        f"{len(found)} of {count} {'answered ' if answered else ''}requests of "
                        f"{match}{' when ...' if when else ''} came within {timeout_s} s; {self._summary(since)}"
                    )
        finally:
            with self._changed:
                self._waiting -= 1

    def dump(self, path: str | Path) -> int:
        """Write all that are kept to a file, one JSON object a line (`LoggedRequest.to_json`); return how many."""
        lines = [logged.to_json() + "\n" for logged in self]
        Path(path).write_text("".join(lines), encoding="utf-8")
        return len(lines)

    # --- writing, on the broker's thread

    def _watch(self, watcher: Watcher) -> None:
        """Tell *watcher* of every request from now on."""
        self._watchers = (*self._watchers, watcher)

    def _unwatch(self, watcher: Watcher) -> None:
        """Tell it of no more."""
        self._watchers = tuple(other for other in self._watchers if other is not watcher)

    def _opened(
        self,
        context: RequestContext,
        request: Request[Response],
        *,
        size: int,
        sent: Request[Response] | None = None,
    ) -> None:
        """A request of *size* bytes was read.

        Args:
            sent: as the client sent it, if *request* is what it stands for.
        """
        for watcher in self._watchers:
            watcher.asked(context, sent or request)
        if not self._entries_max:
            return
        kept = size
        if isinstance(request, FetchRequest):  # a session's fetch has more partitions than were sent
            kept += _PARTITION_BYTES * sum([len(topic.partitions) for topic in request.topics])
        elif isinstance(request, _WITH_PAYLOAD):
            request, kept = _without_payload(request), 0
        entry = _Entry(
            self, context, request, ts_ms=self._clock.wall_ms(), request_bytes=size, weight=kept + _ENTRY_BYTES
        )
        context.log_entry = entry
        # Only this thread writes, and a deque is copied in one step: readers need no lock, so neither does this.
        self._number = entry.number = self._number + 1
        self._entries.append(entry)
        self._weight += entry.weight
        if self._weight > self._bytes_max or len(self._entries) > self._entries_max:
            self._forget_oldest()
        if self._waiting:
            self._tell()

    def _answered(self, context: RequestContext, response: Response | None, *, size: int) -> None:
        """Its answer of *size* bytes was handed to the socket; None if nothing was sent."""
        for watcher in self._watchers:
            watcher.answered(context, response)
        entry = context.log_entry
        if not isinstance(entry, _Entry):
            return
        context.log_entry = None  # it refers to the context: each request would wait for a garbage collection
        weight = size
        if isinstance(response, FetchResponse):
            response, record_bytes = _without_records(response)
            weight = max(size - record_bytes, 0)
        entry.answer = _Answer(response, size, time.perf_counter())
        entries = self._entries
        if entries and entries[0].number <= entry.number:
            entry.weight += weight
            self._weight += weight
            if self._weight > self._bytes_max:
                self._forget_oldest()
        if self._waiting:
            self._tell()

    def _faulted(self, context: RequestContext, fault: str) -> None:
        """A fault rule took it."""
        if isinstance(context.log_entry, _Entry):
            context.log_entry.fault = fault

    # --- internals

    def _forget_oldest(self) -> None:
        entries = self._entries
        while entries and (self._weight > self._bytes_max or len(entries) > self._entries_max):
            self._weight -= entries.popleft().weight

    def _cancelled(self) -> None:
        """The connection of a request ended before it was answered."""
        if self._waiting:
            self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _entries_since(self, number: int) -> list[_Entry]:
        """The kept entries of requests after *number*."""
        return [entry for entry in self._entries.copy() if entry.number > number]

    def _subject_of(self, entry: _Entry) -> Subject:
        """The group, member, topics and so on that a request names."""
        context = entry.context
        return Subject(
            entry.request,
            api_key=context.api_key,
            api_version=context.api_version,
            client_id=context.client_id,
            topic_name=self._topic_name,
            node_id=context.node_id,
        )

    def _errors_of(self, response: Response | None) -> tuple[AnsweredError, ...]:
        """The errors of an answer, with topics by name."""
        return errors_of(response, self._topic_name)

    def _summary(self, since: int) -> str:
        seen = self.of(since=since)
        if not seen:
            return f"nothing came after number {since}" if since else "nothing came"
        counts = Counter(api_title(one.api) for one in seen).most_common()
        return f"what came: {', '.join(f'{count} {name}' for name, count in counts)}; the last: {seen[-1]}"


class _Answer(NamedTuple):
    """One value, so that a reader on another thread sees all of it or nothing."""

    response: Response | None
    size: int
    sent_s: float


class _Entry:
    """A request as the broker's thread keeps it."""

    __slots__ = (
        "answer",
        "context",
        "fault",
        "log",
        "number",
        "read_s",
        "request",
        "request_bytes",
        "ts_ms",
        "weight",
    )

    def __init__(
        self,
        log: RequestLog,
        context: RequestContext,
        request: Request[Response],
        *,
        ts_ms: int,
        request_bytes: int,
        weight: int,
    ) -> None:
        self.log = log
        self.number = 0
        self.context = context
        self.request = request
        self.request_bytes = request_bytes
        self.weight = weight
        self.ts_ms = ts_ms
        self.read_s = time.perf_counter()
        self.answer: _Answer | None = None
        self.fault: str | None = None

    def cancelled(self) -> None:
        self.log._cancelled()

    def outcome(self, answer: _Answer | None) -> Outcome:
        if answer is not None:
            return "no_answer" if answer.response is None else "answered"
        return "closed" if self.context.cancelled else "waiting"


class _Search:
    """Looks at each request until its end is known, and not again afterwards."""

    def __init__(self, log: RequestLog, match: Match, when: Predicate | None, *, answered: bool, since: int) -> None:
        self._log: Final = log
        self._match: Final = match
        self._when: Final = when
        self._answered: Final = answered
        self._position = since
        self._settled: Final[list[LoggedRequest]] = []

    def found(self) -> list[LoggedRequest]:
        found = list(self._settled)
        all_settled = True
        for entry in self._log._entries_since(self._position):
            subject = self._log._subject_of(entry)
            if self._match.fits(subject):
                logged = _logged(entry, subject)
                all_settled = all_settled and logged.outcome != "waiting"
                if (not self._answered or logged.outcome == "answered") and (self._when is None or self._when(logged)):
                    found.append(logged)
                    if all_settled:
                        self._settled.append(logged)
            if all_settled:
                self._position = entry.number
        return found


def _logged(entry: _Entry, subject: Subject) -> LoggedRequest:
    context, answer = entry.context, entry.answer
    response = None if answer is None else answer.response
    try:
        api: ApiKey | int = ApiKey(context.api_key)
    except ValueError:
        api = context.api_key
    return LoggedRequest(
        number=entry.number,
        ts_ms=entry.ts_ms,
        api=api,
        version=context.api_version,
        client_id=context.client_id,
        connection_id=context.connection_id,
        request=entry.request,
        response=response,
        outcome=entry.outcome(answer),
        fault=entry.fault,
        duration_ms=None if answer is None else round((answer.sent_s - entry.read_s) * 1000, 3),
        groups=subject.groups,
        members=subject.members,
        topics=subject.topics,
        partitions=subject.partitions,
        request_bytes=entry.request_bytes,
        response_bytes=0 if answer is None else answer.size,
        errors=entry.log._errors_of(response),
        node_id=context.node_id,
    )


def _without_payload(request: ProduceRequest | SaslAuthenticateRequest) -> Request[Response]:
    if isinstance(request, SaslAuthenticateRequest):
        return replace(request, auth_bytes=b"")
    topics = [
        replace(topic, partition_data=tuple([replace(item, records=None) for item in topic.partition_data]))
        for topic in request.topic_data
    ]
    return replace(request, topic_data=tuple(topics))


def _without_records(response: FetchResponse) -> tuple[FetchResponse, int]:
    size = sum([len(item.records or b"") for topic in response.responses for item in topic.partitions])
    if not size:
        return response, 0
    topics = [
        replace(topic, partitions=tuple([replace(item, records=None) for item in topic.partitions]))
        for topic in response.responses
    ]
    return replace(response, responses=tuple(topics)), size
