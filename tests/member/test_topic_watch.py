"""When a leader of a classic group looks at topics, and what counts as a change."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from kip848_client.member.classic.topic_watch import TopicWatch
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import (
    DescribeTopics,
    FailureKind,
    RequestFailed,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.core.settings import MemberConfig
from tests.support.member_harness import NoJitter

REFRESH_MS, BACKOFF_MS = 5_000, 1_000
Found = Mapping[str, TopicDescription]


def found(**counts: int) -> Found:
    """Topics with these numbers of partitions."""
    return {name: TopicDescription(UUID(bytes=name.encode() * 16), count, ()) for name, count in counts.items()}


SAME, MORE, OTHER = found(t=6), found(t=7), {"t": TopicDescription(UUID(int=99), 6, ())}
PATTERN = {"pattern": "[tu]", "matched": frozenset({"t", "u"})}


class Extreme(random.Random):
    """Always the least or the greatest that may come."""

    def __init__(self, choose: Callable[[float, float], float]) -> None:
        super().__init__()
        self._choose = choose

    def uniform(self, a: float, b: float) -> float:
        """One end."""
        return self._choose(a, b)


def next_question(context: Context, watch: TopicWatch) -> DescribeTopics | None:
    """Let time pass until *watch* asks; None if it waits for no time."""
    context.begin_step(context.now_ms)
    watch.advance()
    if context.wake_ms is not None:
        context.now_ms = context.wake_ms
        watch.advance()
    asked = context.effects[-1] if context.effects else None
    assert asked is None or isinstance(asked, DescribeTopics)
    return asked


@pytest.mark.parametrize(("choose", "refresh_ms"), [(min, 4_000), (max, 6_000)])
def test_members_do_not_look_together(choose: Callable[[float, float], float], refresh_ms: int) -> None:
    """A thousand members that began together would ask the brokers in one moment, for ever."""
    config = MemberConfig(group_id="g", member_id="m", topic_refresh_ms=REFRESH_MS)
    context = Context(config, Extreme(choose))
    watch = TopicWatch(context, on_changed=print)
    watch.watch(frozenset({"t"}), known=SAME)
    watch.advance()
    assert context.wake_ms == refresh_ms


@pytest.mark.parametrize(
    ("watched", "answers", "waits", "changes"),
    [
        ({"known": SAME}, [SAME, SAME], [REFRESH_MS, REFRESH_MS], []),
        ({"known": None}, [SAME, SAME], [0, REFRESH_MS], []),
        ({"known": None}, [SAME, MORE], [0, REFRESH_MS], ["metadata changed"]),
        ({"known": SAME}, [OTHER], [REFRESH_MS], ["metadata changed"]),
        ({"known": SAME}, [None, SAME, SAME], [REFRESH_MS, BACKOFF_MS, REFRESH_MS], []),
        ({"known": SAME}, [{}, SAME, {}, SAME], [REFRESH_MS, BACKOFF_MS, REFRESH_MS, BACKOFF_MS], []),
        ({"known": SAME}, [{}, {}], [REFRESH_MS, BACKOFF_MS], ["metadata changed"]),
        ({"known": SAME, **PATTERN}, [found(t=6, u=1), found(t=6, u=2)], [REFRESH_MS, REFRESH_MS], []),
        ({"known": SAME, **PATTERN}, [found(t=7, u=1, v=1)], [REFRESH_MS], ["pattern matches other topics"]),
        ({"known": SAME, **PATTERN}, [found(t=7)], [REFRESH_MS], ["pattern matches other topics"]),
    ],
)
def test_growth_is_told_at_once_and_loss_when_it_is_seen_twice(
    watched: Mapping[str, Any], answers: Sequence[Found | None], waits: Sequence[int], changes: Sequence[str]
) -> None:
    """A group that rebalances without need stops reading; one that misses growth never reads the new partitions."""
    told: list[str] = []
    waited = []
    config = MemberConfig(group_id="g", member_id="m", topic_refresh_ms=REFRESH_MS, retry_backoff_max_ms=BACKOFF_MS)
    context = Context(config, NoJitter())
    watch = TopicWatch(context, on_changed=told.append)
    watch.watch(frozenset({"t"}), **watched)
    for answer in answers:
        begun_ms = context.now_ms
        asked = next_question(context, watch)
        waited.append(context.now_ms - begun_ms)
        assert next_question(context, watch) is None, "one question at a time"
        assert asked is not None
        if answer is None:
            on_failure, _ = context.take_failure(asked.request_id)
            assert on_failure is not None
            on_failure(RequestFailed(asked.request_id, FailureKind.TIMED_OUT, "scripted"))
        else:
            watch.described(TopicsDescribed(asked.request_id, answer))
    assert (waited, told) == (list(waits), list(changes))
    assert (next_question(context, watch) is None) is bool(changes), "the watch begins anew after a change"
