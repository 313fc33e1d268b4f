"""Members that say nothing, or give nothing up: both brokers wait as long as was agreed, and then go on alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from kip848_client.testing.judge.broker.comparison import disagreements, shared_form
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import Side
from kip848_client.testing.judge.broker.steps import LOOK, Asking, ChangeTopic, Configure, Epoch, Heartbeat, Owned, join
from tests.interop.differential.conftest import Converse
from tests.interop.differential.conversation import ask
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

TIMEOUT_MS: Final = 2_000
EARLY_MS: Final = 20
"""Clocks of different processes are compared, and their milliseconds are rounded."""
LATE_MS: Final = 60_000
SHORT_SESSION: Final = Configure("consumer.session.timeout.ms", str(TIMEOUT_MS))
TOPIC: Final = ChangeTopic("t0", 4)


def test_a_member_that_gives_nothing_up_is_removed_after_its_rebalance_timeout(converse: Converse) -> None:
    """A consumer stuck in a listener holds the others up for max.poll.interval.ms, and no longer."""

    def story(side: Side) -> Iterator[Asking]:
        yield join("a", timeout_ms=TIMEOUT_MS)
        yield join("b")
        since = time.monotonic()
        yield Heartbeat("a")
        wait(side, since, lambda: bool(ask(Heartbeat("a", owned=Owned.HELD), side)["error_code"]))
        yield LOOK
        yield Heartbeat("a")
        yield Heartbeat("b")
        yield LOOK

    compare(converse, story)


def test_a_member_that_says_nothing_is_removed_after_its_session(converse: Converse) -> None:
    """The partitions of a process that was killed go to the others, after session.timeout.ms."""

    def story(side: Side) -> Iterator[Asking]:
        yield SHORT_SESSION
        side.await_settings()
        yield join("b")
        since = time.monotonic()
        yield join("a")
        wait(side, since, lambda: owns_all(side, "b"))
        yield LOOK

    compare(converse, story)


def test_a_static_member_that_does_not_come_back_is_removed_after_its_session(converse: Converse) -> None:
    """A restart that takes too long costs a rebalance; until then its partitions wait for it."""

    def story(side: Side) -> Iterator[Asking]:
        yield SHORT_SESSION
        side.await_settings()
        since = time.monotonic()
        yield join("s", instance="i")
        yield join("b")
        yield Heartbeat("s", Epoch.AWAY, instance="i")
        wait(side, since, lambda: owns_all(side, "b"))
        yield LOOK
        yield join("s2", instance="i")
        yield LOOK

    compare(converse, story)


def compare(converse: Converse, story: Callable[[Side], Iterator[Asking]]) -> None:
    """Tell one story to each side, from its beginning to its end, and compare all answers.

    One after the other: while one side is waited for, the timeouts of the other would run on.
    """
    with converse() as both:
        both.kafka.epoch_offset["g"] = 1
        heard: list[list[Json]] = []
        for side in (both.ours, both.kafka):
            TOPIC.perform(side)
            heard.append([shared_form(side, ask(step, side), group="g") for step in story(side)])
    ours, kafka = heard
    assert list(disagreements(ours, kafka)) == []


def owns_all(side: Side, member: str) -> bool:
    """Let a member acknowledge; whether it owns the whole topic now."""
    answer = ask(Heartbeat(member, owned=Owned.ASSIGNED), side)
    assert not answer["error_code"], answer
    return side.view("g", member).assigned == {side.topic_id("t0"): [0, 1, 2, 3]}


def wait(side: Side, since: float, is_over: Callable[[], bool]) -> None:
    """Ask until the timeout has had its effect, and check that it took its time.

    Args:
        since: `time.monotonic()` before the timeout could begin.
    """
    wait_until(is_over, (TIMEOUT_MS + LATE_MS) / 1000 - (time.monotonic() - since), f"{side.name}: the timeout")
    assert time.monotonic() - since > (TIMEOUT_MS - EARLY_MS) / 1000, f"{side.name}: too early"
