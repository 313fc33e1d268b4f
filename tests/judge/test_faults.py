"""A fault that is planted in the embedded broker is named by its rule."""

from __future__ import annotations

import functools
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.broker.judge import judge_broker
from kip848_client.testing.judge.broker.trial import Expected, Timing, expectations
from tests.judge.arrange import SETTINGS, chapter_of, differing
from tests.judge.faults import FAULTS, Fault, plant

ATTEMPTS: Final = 5
"""A limit that ends too early is not seen while the machine stands still until it should end."""


@functools.cache
def expected_of(index: int) -> list[Expected]:
    """What the reference answers in a story; asked before a fault is planted."""
    return expectations(STORIES[index], Timing(interval_ms=100, session_ms=6_000))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"R{fault.rule}-{fault.function.__name__}")
def test_a_planted_fault_is_named_by_its_rule(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes a broker is told what is wrong, and not what follows from it."""
    stories = chapter_of(fault.rule)
    expected = {at: expected_of(STORIES.index(story)) for at, story in enumerate(stories)}
    first = None
    with EmbeddedBroker(config=SETTINGS) as broker:
        plant(monkeypatch, fault)
        for _ in range(ATTEMPTS):
            report = judge_broker(broker.bootstrap_servers, stories=stories, expected=expected, patience_ms=200)
            first = report.first_difference
            if first is not None:
                break

    assert first is not None, [one.why for one in report.verdicts]
    assert first.rule.number == fault.rule, differing(report)


def test_every_chapter_has_faults() -> None:
    """A chapter whose rules nobody has seen broken may try nothing."""
    chapters = {rule_chapter for fault in FAULTS for rule_chapter in {id(chapter_of(fault.rule)[0])}}
    assert chapters == {id(chapter_of(story.rule)[0]) for story in STORIES if not story.restarts}
