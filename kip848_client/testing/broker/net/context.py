"""One request in the broker: its sender, and the way to answer it. No protocol rules.

Answers of one connection leave in the order of its requests, even if handlers finish in another order: the
connection keeps the contexts in a queue and sends the answered ones from its head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from kip848_client.wire.schema import Response

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has neither logged in nor shown a certificate."""

ResponseT = TypeVar("ResponseT", bound=Response)

Slices: TypeAlias = Generator[None, None, Response | None]
"""Work in slices: at each ``yield`` other requests may have their turn. It returns the answer."""


class LogEntry(Protocol):
    """A request's entry in the request log."""

    def cancelled(self) -> None:
        """The connection is gone, so the answer is dropped."""
        ...


class RequestContext:
    """The header of a request and its sender, and the way to answer later.

    All of it belongs to the broker's loop: call nothing here from another thread.

    Attributes:
        api_key: Kafka's API key.
        api_version: the version that the client chose.
        correlation_id: the client's number of this request.
        client_id: as the client calls itself; None if it sent null.
        client_host: address of the peer, without the port, as Kafka writes it: ``/127.0.0.1``.
        connection_id: number of the connection, unique in the life of the broker.
        node_id: the node that the request came to; -1 if that is not known.
        listener: the number of the listener that it came to; clients are told the addresses of the same one.
        principal: who sent it, as in ACLs: ``User:alice``.
        now_ms: when the request was read, on the broker's clock.
        cancelled: the connection is gone, so the answer is dropped.
        done: `reply` was called.
        at_work: its handler goes on in later turns of the loop; the next request of the connection waits for it.
        refused: why the connection is closed instead of an answer; None if it is not.
        cut_to: if not None, only this many bytes of the answer are sent, and then the connection is closed.
        log_entry: where the request log keeps this request.
        outlives_eof: the handler waits for a bounded time, so a peer that sends no more gets the answer all the same.
        relayed: the answer of another broker and its very bytes, if this request was passed on.
        mutation_throttle_ms: how long the client is throttled for what it creates and deletes.
    """

    __slots__ = (
        "_amend",
        "_complete",
        "_on_cancel",
        "_work_began_s",
        "_worked_s",
        "api_key",
        "api_version",
        "at_work",
        "cancelled",
        "client_host",
        "client_id",
        "connection_id",
        "correlation_id",
        "cut_to",
        "done",
        "listener",
        "log_entry",
        "mutation_throttle_ms",
        "node_id",
        "now_ms",
        "outlives_eof",
        "principal",
        "refused",
        "relayed",
        "response",
    )

    def __init__(
        self,
        complete: Callable[[RequestContext], None],
        *,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        connection_id: int,
        now_ms: int,
        node_id: int = -1,
        listener: int = 0,
        principal: str = ANONYMOUS,
    ) -> None:
        self._complete: Final = complete
        self._on_cancel: list[Callable[[], None]] | None = None
        self.api_key: Final = api_key
        self.api_version: Final = api_version
        self.correlation_id: Final = correlation_id
        self.client_id: Final = client_id
        self.client_host: Final = client_host
        self.connection_id: Final = connection_id
        self.now_ms: Final = now_ms
        self.node_id: Final = node_id
        self.listener: Final = listener
        self.principal: Final = principal
        self.cancelled: bool = False
        self.done: bool = False
        self.response: Response | None = None
        self.at_work: bool = False
        self.refused: str | None = None
        self.cut_to: int | None = None
        self.log_entry: LogEntry | None = None
        self.outlives_eof: bool = False
        self.relayed: tuple[Response, bytes] | None = None
        self.mutation_throttle_ms: int = 0
        self._amend: Callable[[Response], Response] | None = None
        self._worked_s = 0.0
        self._work_began_s: float | None = None

    def fork(self, on_response: Callable[[Response | None], None]) -> RequestContext:
        """A context for handling this request (again) whose answer goes to *on_response* and not to the client.

        It is cancelled together with this one. A fork of a cancelled one is not: what comes too late for its client
        is done all the same.
        """

        def answered(forked: RequestContext) -> None:
            self.mutation_throttle_ms = forked.mutation_throttle_ms
            self._worked_s += forked.work_s()
            on_response(forked.response)

        forked = RequestContext(
            answered,
            api_key=self.api_key,
            api_version=self.api_version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
            client_host=self.client_host,
            connection_id=self.connection_id,
            now_ms=self.now_ms,
            node_id=self.node_id,
            listener=self.listener,
            principal=self.principal,
        )
        if not self.cancelled:
            self.on_cancel(forked.cancel)
        return forked

    def reply(self, response: Response | None) -> None:
        """Answer the request; exactly once, for a handler that returned None.

        Args:
            response: the answer, or None for a request that has none (Produce with acks=0).
        """
        assert not self.done, f"request {self.correlation_id} (API {self.api_key}) is answered twice"
        self.done = True
        self.response = response if response is None or self._amend is None else self._amend(response)
        self._on_cancel = None
        if not self.cancelled:
            self._complete(self)

    def amend(self, function: Callable[[ResponseT], ResponseT]) -> None:
        """Let *function* make the answer that is sent from that of the handler; the last one given is called first."""
        earlier, latest = self._amend, cast("Callable[[Response], Response]", function)
        self._amend = latest if earlier is None else lambda response: earlier(latest(response))

    def leave_unamended(self) -> None:
        """Send the answer as it is."""
        self._amend = None

    def begin_work(self) -> None:
        """The handler runs from now on."""
        self._work_began_s = time.perf_counter()

    def end_work(self) -> None:
        """The handler has ended, or lets others have their turn."""
        self._worked_s, self._work_began_s = self.work_s(), None

    def work_s(self) -> float:
        """How long the handler has run, in seconds; without the time in which it waited."""
        return self._worked_s + (0.0 if self._work_began_s is None else time.perf_counter() - self._work_began_s)

    def refuse(self, reason: str) -> None:
        """Close the connection instead of an answer, after the answers of the requests before this one."""
        self.refused = reason
        self.reply(None)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call *callback* once if the connection goes before the answer; at once if it is gone already."""
        if self.cancelled:
            callback()
        elif self._on_cancel is None:
            self._on_cancel = [callback]
        else:
            self._on_cancel.append(callback)

    def cancel(self) -> None:
        """The connection is gone: call the callbacks of `on_cancel`."""
        if self.cancelled or self.done:
            return
        self.cancelled = True
        if self.log_entry is not None:
            self.log_entry.cancelled()
        callbacks, self._on_cancel = self._on_cancel, None
        for callback in callbacks or ():
            callback()
