"""Carries out an action on one request with what every transport can do: apply, answer, close, wait.

The embedded broker, the proxy before a real broker, and a simulated network each offer a `HeldRequest`; only this
module knows what the actions mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, assert_never

from msgspec.structs import replace

from kip848_client.errors import IllegalStateError
from kip848_client.testing.faults.actions import (
    Action,
    Answer,
    Close,
    CutReply,
    Delay,
    Drop,
    Duplicate,
    Error,
    Hold,
    Pass,
    RewriteReply,
    RewriteRequest,
)
from kip848_client.testing.faults.replies import ErrorPlacer, Wanted, answers_by_element, merge, split
from kip848_client.testing.faults.rules import Rule
from kip848_client.testing.faults.subject import OpaqueRequest, Subject
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.fetch import FetchRequest
from kip848_client.wire.schema import Request, Response

OnResponse = Callable[[Response | None], None]


class HeldRequest(Protocol):
    """One request that waits for its answer. Every call returns at once."""

    def apply(self, request: Request[Response], on_response: OnResponse) -> None:
        """Do what *request* asks; its answer, None if it has none, goes to *on_response*, now or later."""
        ...

    def reply(self, response: Response | None) -> None:
        """Answer the client; None is for a request that has no answer. Nothing happens if the client is gone."""
        ...

    def reply_cut(self, response: Response | None, *, byte_count: int) -> None:
        """Send only the first bytes of the answer, and reset the connection."""
        ...

    def fall_silent(self) -> None:
        """Never answer, and keep the connection."""
        ...

    def end(self, *, reset: bool) -> None:
        """Close the connection, or reset it."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call *callback* in *delay_ms*."""
        ...

    def hold(self, callback: Callable[[], None]) -> None:
        """Call *callback* when the rule is released."""
        ...

    def failed(self, failure: Exception) -> None:
        """Note that the rule itself failed; the request goes on as if there were none."""
        ...


def perform(action: Action, exchange: HeldRequest, *, rule: Rule, subject: Subject) -> None:
    """Do *action* to *subject*."""
    _Performance(exchange, rule, subject).act(action)


class _Performance:
    def __init__(self, exchange: HeldRequest, rule: Rule, subject: Subject) -> None:
        self._exchange: Final = exchange
        self._rule: Final = rule
        self._subject: Final = subject
        self._request: Final = subject.request

    def act(self, action: Action) -> None:
        exchange, request = self._exchange, self._request
        match action:
            case Pass():
                exchange.apply(request, exchange.reply)
            case Error(applied=False):
                self._refuse(action)
            case Error():
                exchange.apply(request, lambda response: exchange.reply(self._marked(action, response)))
            case Answer(response=response):
                self._answer(response)
            case Drop(applied=False):
                exchange.fall_silent()
            case Drop():
                exchange.apply(request, lambda _: exchange.fall_silent())
            case Close(applied=False, reset=reset):
                exchange.end(reset=reset)
            case Close(reset=reset):
                exchange.apply(request, lambda _: exchange.end(reset=reset))
            case CutReply(byte_count=byte_count):
                exchange.apply(request, lambda response: exchange.reply_cut(response, byte_count=byte_count))
            case Delay(ms=ms, applied=False, then=then):
                exchange.call_later(ms, lambda: self.act(then))
            case Delay(ms=ms):
                exchange.apply(request, lambda response: exchange.call_later(ms, lambda: exchange.reply(response)))
            case Hold(applied=False, then=then):
                exchange.hold(lambda: self.act(then))
            case Hold():
                exchange.apply(request, lambda response: exchange.hold(lambda: exchange.reply(response)))
            case RewriteReply():
                exchange.apply(request, lambda response: exchange.reply(self._rewritten(action.function, response)))
            case RewriteRequest():
                exchange.apply(self._rewritten_request(action.function), exchange.reply)
            case Duplicate(after_ms=after_ms):
                exchange.apply(request, lambda response: self._again(response, after_ms))
            case _:
                assert_never(action)

    # --- errors

    def _refuse(self, action: Error) -> None:
        exchange, subject = self._exchange, self._subject
        if isinstance(self._request, OpaqueRequest):
            self._misfit(action)
            exchange.apply(self._request, exchange.reply)
            return
        wanted = self._wanted()
        hit, rest = self._request, None
        if wanted is not None:
            whole = self._request
            part, rest = split(whole, wanted=wanted, api_key=subject.api_key, topic_name=subject.topic_name)
            if part is None:
                # The request asks for all elements without naming them; the answer shows which to refuse.
                exchange.apply(whole, lambda response: exchange.reply(self._marked(action, response)))
                return
            hit = part
        if subject.api_key == ApiKey.METADATA:
            # Without the brokers no client can read it; and a request without topics means all of them.
            exchange.apply(self._request, lambda response: exchange.reply(self._marked(action, response)))
            return
        refusal = self._placer(action).refuse(hit)
        if refusal is None:
            self._misfit(action)
            exchange.apply(self._request, exchange.reply)
        elif rest is None:
            self._reply_unless_unanswered(refusal)
        else:
            answered = refusal
            exchange.apply(
                _without_waiting(rest),
                lambda response: exchange.reply(None if response is None else merge(answered, response)),
            )

    def _marked(self, action: Error, response: Response | None) -> Response | None:
        if response is None:
            return None
        marked = self._placer(action).mark(response)
        if marked is None:
            self._misfit(action)
        return marked or response

    def _placer(self, action: Error) -> ErrorPlacer:
        subject = self._subject
        return ErrorPlacer(
            api_key=subject.api_key,
            api_version=subject.api_version,
            code=action.code,
            message=action.message or f"a fault rule of the test did this: {self._rule.match}",
            topic_name=subject.topic_name,
            wanted=self._wanted(),
        )

    def _wanted(self) -> Wanted | None:
        # A heartbeat that names a topic is refused as a whole: its answer has no place for topics.
        return self._rule.match.wanted(self._subject) if answers_by_element(self._subject.api_key) else None

    def _reply_unless_unanswered(self, response: Response) -> None:
        # Produce with acks=0 has no answer; a broker that refuses it closes the connection.
        if getattr(self._request, "acks", None) == 0:
            self._exchange.end(reset=False)
        else:
            self._exchange.reply(response)

    def _misfit(self, action: Action) -> None:
        self._exchange.failed(
            IllegalStateError(
                f"{action} does not fit {_name(self._request)} version {self._subject.api_version}: "
                "there is no place for it in the answer"
            )
        )

    # --- the others

    def _answer(self, response: Response) -> None:
        expected = getattr(type(response), "WIRE", None)
        if expected is None or expected.api_key != self._subject.api_key:
            self._exchange.failed(
                IllegalStateError(f"{type(response).__name__} does not answer a {_name(self._request)}")
            )
            self._exchange.apply(self._request, self._exchange.reply)
        else:
            self._exchange.reply(response)

    def _rewritten(self, function: Callable[[Any], Response], response: Response | None) -> Response | None:
        if response is None:
            return None
        try:
            return function(response)
        except Exception as failure:  # noqa: BLE001 - the function is the user's; the waiting call raises the error
            self._exchange.failed(failure)
            return response

    def _rewritten_request(self, function: Callable[[Any], Request[Response]]) -> Request[Response]:
        try:
            return function(self._request)
        except Exception as failure:  # noqa: BLE001 - as above
            self._exchange.failed(failure)
            return self._request

    def _again(self, first: Response | None, after_ms: int) -> None:
        exchange, request = self._exchange, self._request
        exchange.reply(first)
        if after_ms:
            exchange.call_later(after_ms, lambda: exchange.apply(request, lambda _: None))
        else:
            exchange.apply(request, lambda _: None)


def _without_waiting(request: Request[Response]) -> Request[Response]:
    """Have a partly refused Fetch answered at once, as a broker does."""
    return replace(request, max_wait_ms=0) if isinstance(request, FetchRequest) else request


def _name(request: object) -> str:
    return type(request).__name__
