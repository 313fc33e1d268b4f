"""The actions on a request, as values. `rules` decides which request gets one, and `perform` carries it out.

Three questions tell the actions apart: is the request applied (does the broker's state change), does the client get an
answer, and does its connection survive?

====================  =======  ============================  ==========
action                applied  answer                        connection
====================  =======  ============================  ==========
`pass_through`        yes      the broker's                  stays
`error`               no       that error code               stays
`error` (applied)     yes      that error code               stays
`answer`              no       what you say                  stays
`drop`                no       none                          silent
`close`               no       none                          closed
`lose_reply`          yes      none                          closed
`lose_reply` silent   yes      none                          silent
`cut_reply`           yes      its first bytes               closed
`delay`, `hold`       later    later                         stays
`rewrite`             yes      the broker's, changed by you  stays
`rewrite_request`     changed  the broker's                  stays
`duplicate`           twice    the first one                 stays
====================  =======  ============================  ==========

A connection that is *silent* stays open, and nothing more comes out of it: answers leave in the order of the requests,
so later requests wait as well, as they do on a network. Clients time out and connect again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.common.typed import whole_number
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.wire.schema import Request, Response

__all__ = [
    "Action",
    "Answer",
    "Close",
    "CutReply",
    "Delay",
    "Drop",
    "Duplicate",
    "Error",
    "Hold",
    "Pass",
    "RewriteReply",
    "RewriteRequest",
    "answer",
    "close",
    "coordinator_not_here",
    "cut_reply",
    "delay",
    "drop",
    "duplicate",
    "error",
    "hold",
    "lose_reply",
    "pass_through",
    "rewrite",
    "rewrite_request",
]


class Pass(msgspec.Struct, frozen=True):
    """Do nothing to the request. The rule counts it, and later rules do not see it."""

    def __str__(self) -> str:
        return "pass_through"


class Error(msgspec.Struct, frozen=True):
    """Answer with an error code, where the API carries it."""

    code: int
    message: str | None = None
    applied: bool = False

    def __str__(self) -> str:
        return f"error {error_name(self.code)}{' after applying' if self.applied else ''}"


class Answer(msgspec.Struct, frozen=True):
    """Send this answer, and do not apply the request."""

    response: Response

    def __str__(self) -> str:
        return f"answer {type(self.response).__name__}"


class Drop(msgspec.Struct, frozen=True):
    """Never answer; the connection stays open."""

    applied: bool = False

    def __str__(self) -> str:
        return "lose_reply silent" if self.applied else "drop"


class Close(msgspec.Struct, frozen=True):
    """Close or reset the connection without an answer."""

    applied: bool = False
    reset: bool = False

    def __str__(self) -> str:
        return ("lose_reply" if self.applied else "close") + (" by reset" if self.reset else "")


class CutReply(msgspec.Struct, frozen=True):
    """Apply, send the first bytes of the answer (its length included), and reset the connection."""

    byte_count: int

    def __str__(self) -> str:
        return f"cut_reply after {self.byte_count} bytes"


class Delay(msgspec.Struct, frozen=True):
    """Wait, then go on with `then`; or apply now and let the answer wait."""

    ms: int
    applied: bool
    then: Action

    def __str__(self) -> str:
        return f"delay {self.ms} ms{' of the reply' if self.applied else f', then {self.then}'}"


class Hold(msgspec.Struct, frozen=True):
    """As `Delay`, until the rule is released."""

    applied: bool
    then: Action

    def __str__(self) -> str:
        return f"hold{' the reply' if self.applied else f', then {self.then}'}"


class RewriteReply(msgspec.Struct, frozen=True):
    """Apply the request, and send the answer that the function returns for the broker's."""

    function: Callable[[Any], Response]

    def __str__(self) -> str:
        return "rewrite"


class RewriteRequest(msgspec.Struct, frozen=True):
    """Apply the request that the function returns for the client's."""

    function: Callable[[Any], Request[Response]]

    def __str__(self) -> str:
        return "rewrite_request"


class Duplicate(msgspec.Struct, frozen=True):
    """Apply the request twice, as when a network repeats it; the second answer is dropped."""

    after_ms: int

    def __str__(self) -> str:
        return f"duplicate after {self.after_ms} ms"


Action: TypeAlias = (
    Pass | Error | Answer | Drop | Close | CutReply | Delay | Hold | RewriteReply | RewriteRequest | Duplicate
)

_PASS: Final = Pass()


def pass_through() -> Action:
    """Do nothing to the request: useful between other actions of a rule."""
    return _PASS


def error(code: int, message: str | None = None, *, applied: bool = False) -> Action:
    """Refuse the request with an error code, in a well-formed answer of that API and version.

    The code stands where a broker would put it: in the answer itself, with the group, or with each topic and
    partition. A rule that names a topic or partition refuses only that; what else the request asks for is done.

    Args:
        code: Kafka's, an `ErrorCode` or any other int16; 0 is not an error.
        message: goes where the answer has room for one; without it the answer says that a fault rule did it.
        applied: apply the request, and answer with the error nevertheless.

    Raises:
        ConfigError: *code* is 0 or no int16; a wrong type is an `ArgumentTypeError`.
    """
    given: object = code
    if not isinstance(given, int):
        named = f"; write ErrorCode.{given}" if given in ErrorCode.__members__ else ""
        raise ArgumentTypeError(f"error({given!r}): an error code is an ErrorCode, or another int16{named}")
    if not -(2**15) <= code < 2**15 or code == ErrorCode.NONE:
        raise ConfigError(f"error({code}): an error code is an int16 other than 0")
    return Error(code, message, applied)


def coordinator_not_here() -> Action:
    """Refuse with NOT_COORDINATOR: the client has to look the coordinator up again."""
    return Error(ErrorCode.NOT_COORDINATOR)


def answer(response: Response) -> Action:
    """Answer with *response*, which must be of the request's API; the request is not applied."""
    return Answer(response)


def drop() -> Action:
    """Neither apply nor answer the request; the connection falls silent."""
    return Drop()


def close(*, reset: bool = False) -> Action:
    """Close the connection in place of an answer; the request is not applied.

    Args:
        reset: with a TCP reset, as a crash does.
    """
    return Close(reset=reset)


def lose_reply(*, silent: bool = False, reset: bool = False) -> Action:
    """Apply the request and lose the answer: the state has changed, and the client cannot know.

    Args:
        silent: the connection stays open and falls silent, so the client finds out by its time-out.
        reset: the connection ends by a TCP reset.

    Raises:
        ConfigError: both at once.
    """
    if silent and reset:
        raise ConfigError("lose_reply: give silent=True or reset=True, not both")
    return Drop(applied=True) if silent else Close(applied=True, reset=reset)


def cut_reply(byte_count: int = 10) -> Action:
    """Apply the request, send only the first *byte_count* bytes of the answer, then reset the connection.

    Raises:
        ConfigError: *byte_count* is not positive. Four bytes are the answer's length, and four its correlation id.
    """
    if whole_number(byte_count, name="cut_reply()") < 1:
        raise ConfigError(f"cut_reply({byte_count}): send at least one byte, or use lose_reply()")
    return CutReply(byte_count)


def delay(ms: int, *, applied: bool = False, then: Action = _PASS) -> Action:
    """Let the request, or with *applied* its answer, wait for *ms* milliseconds.

    A request that waits is applied even if its client has given up and connected again: that is how an old request
    comes after a newer one.

    Args:
        then: the action that follows.

    Raises:
        ConfigError: *ms* is negative, or *then* is given together with *applied*.
    """
    if whole_number(ms, name="delay()") < 0:
        raise ConfigError(f"delay({ms}): milliseconds must not be negative")
    _check_then(applied=applied, then=then)
    return Delay(ms, applied, then)


def hold(*, applied: bool = False, then: Action = _PASS) -> Action:
    """Let the request, or with *applied* its answer, wait until the rule's ``release()``.

    Args:
        then: the action that follows.

    Raises:
        ConfigError: *then* is given together with *applied*.
    """
    _check_then(applied=applied, then=then)
    return Hold(applied, then)


def rewrite(function: Callable[[Any], Response]) -> Action:
    """Apply the request and send ``function(response)``.

    Args:
        function: called with the broker's own answer, on the broker's thread; usually ``msgspec.structs.replace``.
    """
    return RewriteReply(function)


def rewrite_request(function: Callable[[Any], Request[Response]]) -> Action:
    """Apply ``function(request)`` in place of the request.

    Args:
        function: called on the broker's thread.
    """
    return RewriteRequest(function)


def duplicate(*, after_ms: int = 0) -> Action:
    """Apply the request twice and answer the first time, as when a network repeats it.

    Args:
        after_ms: how much later the second one comes.

    Raises:
        ConfigError: *after_ms* is negative.
    """
    if after_ms < 0:
        raise ConfigError(f"duplicate(after_ms={after_ms}): milliseconds must not be negative")
    return Duplicate(after_ms)


def _check_then(*, applied: bool, then: Action) -> None:
    if applied and then != _PASS:
        raise ConfigError(f"a request that was applied already cannot go on with {then}")
