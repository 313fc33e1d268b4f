"""Brokers that are judged, and parts of a judgement."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.broker.story import Story
from kip848_client.testing.judge.rulebook import rulebook
from kip848_client.testing.judge.verdicts import Judgement, Outcome

SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 60_000,
    "group.share.heartbeat.interval.ms": 100,
}
HELD_UP: Final = "this machine was held up"
"""A member may be removed while the machine of a test stands still: then the rules about time cannot be tried."""


def chapter_of(rule: int) -> tuple[Story, ...]:
    """All stories of the chapter of *rule*."""
    chapter = rulebook()[rule].chapter
    return tuple(story for story in STORIES if rulebook()[story.rule].chapter == chapter)


def differing(report: Judgement) -> list[str]:
    return [f"{one.rule.name}: {one.asked}: {one.expected}, not {one.seen}" for one in report.of(Outcome.DIFFERS)]
