"""Which partitions appeared while this member was subscribed: they may start elsewhere than old ones.

When a topic is subscribed to, the member asks the cluster once how many partitions it has. A partition above that
number, or of a topic that did not exist or had another id then, is new. No clock takes part: timestamps of records are
the producers', and offsets by time would skip or repeat records wherever clocks differ.

Rules: R270 and R271 in docs/protocol.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.common.model import ZERO_UUID, Subscription, TopicIdPartition
from kip848_client.common.patterns import Pattern, compiled
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import DescribeTopics, RequestFailed, TopicsDescribed


class _Seen(msgspec.Struct, frozen=True):
    """A topic at the moment when the member began to listen to it."""

    topic_id: UUID
    partition_count: int


_ABSENT: Final = _Seen(ZERO_UUID, 0)


class NewPartitions:
    """Compares partitions with the first look at their topics.

    Args:
        on_known: called when `is_new` may have answers that it did not have before.
    """

    def __init__(self, context: Context, *, on_known: Callable[[], None]) -> None:
        config = context.config
        self._context: Final = context
        self._on_known: Final = on_known
        self._wanted: Final = config.auto_offset_reset_new_partitions not in (None, config.auto_offset_reset)
        self._backoff: Final = context.new_backoff()
        self._subscription = Subscription()
        self._pattern: Pattern | None = None
        self._seen: dict[str, _Seen] = {}
        self._covers: Callable[[str], bool] = _nothing
        """Whether a topic is subscribed to, by name or pattern."""
        self._looked_before: Callable[[str], bool] = _nothing
        """Whether an earlier look covered a topic: if it did not see it, the topic was absent."""
        self._unknown: frozenset[str] = frozenset()
        """Topics that could not be described when all others were."""
        self.due: bool = False
        """Some topic was not looked at for the first time."""
        self._request_id: int | None = None

    def listen(self, subscription: Subscription) -> None:
        """The member subscribes. Topics that it was subscribed to before keep their first look."""
        if not self._wanted or subscription == self._subscription:
            return
        if not self.due:
            self._looked_before = self._covers
        pattern = None
        if subscription.pattern is not None:
            with contextlib.suppress(ValueError):  # the coordinator refuses it, or a classic member itself
                pattern = compiled(subscription.pattern)
        self._subscription, self._pattern = subscription, pattern
        self._covers = _covers(subscription, pattern)
        self._seen = {topic: seen for topic, seen in self._seen.items() if self._covers(topic)}
        self._unknown = frozenset()
        self._ignore_answer()
        self._backoff.reset()
        self.due = bool(subscription.topics) or pattern is not None

    def stop(self) -> None:
        """The member is not subscribed any more."""
        self._ignore_answer()
        self._subscription, self._pattern = Subscription(), None
        self._covers = self._looked_before = _nothing
        self._seen.clear()
        self._unknown, self.due = frozenset(), False

    def is_new(self, partition: TopicIdPartition) -> bool | None:
        """Whether it appeared while the member was subscribed; None if that is not known yet."""
        topic = partition.topic
        seen = self._seen.get(topic)
        if seen is None:
            if not self._covers(topic):
                return False
            if topic in self._unknown or (self.due and not self._looked_before(topic)):
                return None
            seen = _ABSENT
        made_again = ZERO_UUID not in {seen.topic_id, partition.topic_id} and seen.topic_id != partition.topic_id
        return made_again or partition.partition >= seen.partition_count

    # --- the first look

    def advance(self) -> None:
        """Ask, if it is time."""
        context = self._context
        if not self.due or self._request_id is not None or context.closing or context.fatal_error is not None:
            return
        if context.due(self._backoff.ready_ms):
            self._request_id = context.expect(None, self._failed)
            pattern = None if self._pattern is None else self._subscription.pattern
            timeout_ms = context.lookup_timeout_ms(self._backoff.failures)
            context.emit(DescribeTopics(self._request_id, self._subscription.topics, pattern, timeout_ms))

    def described(self, event: TopicsDescribed) -> bool:
        """Take the answer; False if it answers the question of another part."""
        if event.request_id != self._request_id:
            return False
        self._context.finish(event.request_id)
        self._request_id = None
        for topic, found in event.topics.items():
            first_look = topic in self._unknown if self._unknown else not self._looked_before(topic)
            if first_look:
                self._seen.setdefault(topic, _Seen(found.topic_id, found.partition_count))
        for topic in event.unauthorized:
            # Once it may be read, it is no new topic.
            self._seen.setdefault(topic, _Seen(ZERO_UUID, _EVERY_PARTITION))
        self._unknown = event.passing - self._seen.keys()
        self.due = bool(self._unknown)
        if self.due:
            self._backoff.failed(self._context.now_ms)
        self._on_known()
        return True

    def _failed(self, failure: RequestFailed) -> None:
        if failure.request_id == self._request_id:
            self._request_id = None
            self._backoff.failed(self._context.now_ms)

    def _ignore_answer(self) -> None:
        self._context.orphan(self._request_id)
        self._request_id = None


_EVERY_PARTITION: Final = 2**31


def _nothing(topic: str) -> bool:
    del topic
    return False


def _covers(subscription: Subscription, pattern: Pattern | None) -> Callable[[str], bool]:
    def covers(topic: str) -> bool:
        return topic in subscription.topics or (pattern is not None and pattern.fullmatch(topic) is not None)

    return covers
