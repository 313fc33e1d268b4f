"""What a judge found: a verdict for each rule that it tried, and the report that holds them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from kip848_client.common.plain_text import counted
from kip848_client.testing.judge.rulebook import ProtocolRule

BROKER: Final = "broker"
"""The end of an arrow in `Said` that is not a member."""


class Outcome(enum.StrEnum):
    """What became of a rule."""

    HOLDS = "holds"
    DIFFERS = "differs"
    CANNOT_BE_TRIED = "cannot be tried"


class Said(msgspec.Struct, frozen=True):
    """One message of a conversation, or something that happened at one end (*sender* and *receiver* are equal).

    Args:
        sender: `BROKER`, or the name of a member.
        text: the message in plain words.
    """

    sender: str
    receiver: str
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """What was found about one rule.

    Args:
        why: why the rule cannot be tried.
        asked: what was done when the difference showed.
        expected: what the rule demands then.
        seen: what came instead.
        exchange: what was said up to there; the last is what differs.
        notes: what a reader should know although the rule holds, such as that older versions of Kafka answer alike.
        duration_s: how long it took to try.
    """

    rule: ProtocolRule
    outcome: Outcome
    why: str = ""
    asked: str = ""
    expected: str = ""
    seen: str = ""
    exchange: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()
    duration_s: float = 0.0


class Judgement(msgspec.Struct, frozen=True):
    """All verdicts about one broker or client, in the order of the rules.

    Args:
        subject: what was judged, such as ``broker at 127.0.0.1:9092``.
        reference: what it was measured by, such as ``Apache Kafka 4.4.0``.
        facts: what else is known of the subject, name -> value.
    """

    subject: str
    reference: str
    verdicts: tuple[Verdict, ...]
    duration_s: float = 0.0
    facts: dict[str, str] = {}

    def of(self, outcome: Outcome) -> list[Verdict]:
        """The verdicts with this outcome."""
        return [verdict for verdict in self.verdicts if verdict.outcome is outcome]

    @property
    def first_difference(self) -> Verdict | None:
        """The first rule that differs."""
        return next(iter(self.of(Outcome.DIFFERS)), None)

    @property
    def exit_status(self) -> int:
        """0 if no rule differs and one at least holds, 1 if one differs, 3 if none could be tried."""
        if self.of(Outcome.DIFFERS):
            return 1
        return 0 if self.of(Outcome.HOLDS) else 3

    @property
    def summary(self) -> str:
        """The counts in words: ``60 rules: 57 hold, 1 differs, 2 cannot be tried``."""
        counts = Counter(verdict.outcome for verdict in self.verdicts)
        holding, differing, untried = (counts[outcome] for outcome in Outcome)
        return (
            f"{counted(len(self.verdicts), 'rule')}: {holding} {'holds' if holding == 1 else 'hold'}, "
            f"{differing} {'differs' if differing == 1 else 'differ'}, {untried} cannot be tried"
        )


def by_chapter(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by the chapter of their rules, both in order."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.rule.chapter, []).append(verdict)
    return found
