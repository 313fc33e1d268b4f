"""What the referee found: how often each rule was kept, and the requests that broke one. Judges nothing itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

import msgspec

from kip848_client.testing.judge.verdicts import Said
from kip848_client.wire.schema import Request, Response

_NOTES_MAX: Final = 3
"""Notes that are kept for each rule."""
_BROKEN_MAX: Final = 20
_PROMPT_MS: Final = 500


class Exchange(msgspec.Struct, eq=False):
    """A request of a client, and its answer once there is one.

    Args:
        number: counts the requests, in the order in which they were read.
        asked_ms: when it was read.
        response: what was written to the client; None as long as nothing was.
        answered_ms: when.
        lost: its answer was lost on purpose.
    """

    number: int
    connection_id: int
    client_id: str
    api_version: int
    request: Request[Response]
    asked_ms: int
    response: Response | None = None
    answered_ms: int | None = None
    lost: bool = False

    @property
    def error_code(self) -> int:
        """The error of the whole answer; 0 if it has none, or there is no answer."""
        code: int = getattr(self.response, "error_code", 0)
        return code


class BrokenRule(msgspec.Struct, frozen=True):
    """A request that broke a rule.

    Args:
        rule: its number in docs/protocol.md.
        member: who sent it, in words.
        moment_ms: when it was read, on the referee's clock.
        asked: the request, in words.
        expected: what the rule demands.
        seen: what is wrong with the request.
        exchange: what this member and the broker said last; the request is the last of it.
    """

    rule: int
    member: str
    moment_ms: int
    asked: str
    expected: str
    seen: str
    exchange: tuple[Said, ...]


def was_heard(last: Exchange | None, following: Exchange) -> bool:
    """Whether a member has read the answer to a heartbeat when it sends the next one.

    Not if that comes on another connection: the answer may have been lost. Nor if the answer came late, because the
    member may have given it up already: librdkafka does after one interval, on the same connection.
    """
    if last is None or last.answered_ms is None or last.connection_id != following.connection_id:
        return False
    interval_ms = getattr(last.response, "heartbeat_interval_ms", 0)
    return last.answered_ms - last.asked_ms < min(_PROMPT_MS, interval_ms / 2 if interval_ms > 0 else _PROMPT_MS)


Describe = Callable[[Exchange], tuple[str, str, tuple[Said, ...]]]
"""Makes (member, request, conversation) of a request, in words."""


class Findings:
    """All that was found about the members of a broker.

    Args:
        describe: called for a request that breaks a rule.
        ignore: numbers of rules that are not judged.
    """

    def __init__(self, describe: Describe, *, ignore: frozenset[int] = frozenset()) -> None:
        self._describe: Final = describe
        self._ignore: Final = ignore
        self.kept: Final[Counter[int]] = Counter()
        """Rule -> how many requests kept it."""
        self.broken: Final[list[BrokenRule]] = []
        """In the order in which it happened; of each rule only the first ones."""
        self.broken_times: Final[Counter[int]] = Counter()
        """Rule -> how many requests broke it."""
        self.notes: Final[defaultdict[int, list[str]]] = defaultdict(list)
        """Rule -> what a reader should know although nothing is broken."""

    def check(self, rule: int, holds: bool, exchange: Exchange, *, expected: str, seen: str) -> bool:
        """Count that a request kept a rule, or write down that it broke it; whether it kept it."""
        if rule in self._ignore:
            return True
        if holds:
            self.kept[rule] += 1
            return True
        self.broken_times[rule] += 1
        if self.broken_times[rule] > _BROKEN_MAX:
            return False
        member, asked, said = self._describe(exchange)
        self.broken.append(
            BrokenRule(
                rule=rule,
                member=member,
                moment_ms=exchange.asked_ms,
                asked=asked,
                expected=expected,
                seen=seen,
                exchange=said,
            )
        )
        return False

    def note(self, rule: int, exchange: Exchange, text: str) -> None:
        """Write down what is allowed, but odd."""
        notes = self.notes[rule]
        told = f"{self._describe(exchange)[0]} {text}"
        if told not in notes and len(notes) < _NOTES_MAX:
            notes.append(told)
