"""Watches the cluster's topics for a classic group, whose leader must notice changes: its coordinator does not.

The member joins again at once when a topic is new, has grown, or was created again. When a topic is gone or has shrunk,
it asks once more first: otherwise one broker that lags behind causes two rebalances.

Source: Kafka's ``ConsumerCoordinator.MetadataSnapshot``. Rules: R217 and R221 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from kip848_client.member.core.context import Context
from kip848_client.member.core.events import DescribeTopics, RequestFailed, TopicDescription, TopicsDescribed

_JITTER: Final = 0.2

OnDescribed = Callable[[TopicsDescribed | None], None]
"""Takes the answer, or None if the cluster did not give one."""


class TopicWatch:
    """Asks the cluster about topics at intervals.

    Args:
        on_changed: called with a reason when a watched topic has changed.
    """

    def __init__(self, context: Context, *, on_changed: Callable[[str], None]) -> None:
        self._context: Final = context
        self._on_changed: Final = on_changed
        self._waiting: dict[int, OnDescribed] = {}
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        self._matched: frozenset[str] = frozenset()
        """The topics that the pattern matched when the member joined."""
        self._known: Mapping[str, TopicDescription] | None = None
        """The topics of the last assignment; None until the first answer."""
        self._due_ms: int | None = None
        self._request_id: int | None = None
        self._suspected = False
        self._refresh_ms = _spread(context)

    def ask(self, topics: frozenset[str], pattern: str | None, on_described: OnDescribed) -> int:
        """Ask once. Returns the number of the request."""
        context = self._context
        request_id = context.expect(None, self._failed)
        self._waiting[request_id] = on_described
        context.emit(DescribeTopics(request_id, topics, pattern, context.lookup_timeout_ms(0)))
        return request_id

    def described(self, event: TopicsDescribed) -> None:
        """The cluster answered."""
        self._context.finish(event.request_id)
        on_described = self._waiting.pop(event.request_id, None)
        if on_described is not None:
            on_described(event)

    def _failed(self, failure: RequestFailed) -> None:
        on_described = self._waiting.pop(failure.request_id, None)
        if on_described is not None:
            on_described(None)

    def forget(self, request_id: int | None) -> None:
        """Ignore the answer to this request."""
        if request_id is not None:
            self._waiting.pop(request_id, None)

    # --- watching

    def watch(
        self,
        topics: frozenset[str],
        *,
        known: Mapping[str, TopicDescription] | None,
        pattern: str | None = None,
        matched: frozenset[str] = frozenset(),
    ) -> None:
        """Ask about *topics*, and about topics that match *pattern*, at every refresh interval from now on.

        Args:
            known: the topics of the last assignment; None to look at once and compare with that. A change before the
                first look is never noticed.
            matched: what the pattern matched when the member joined.
        """
        self.stop()
        self._topics, self._pattern, self._known, self._matched = topics, pattern, known, matched
        if self._refresh_ms is not None and (topics or pattern is not None):
            self._due_ms = self._context.now_ms + (0 if known is None else self._refresh_ms)

    def stop(self) -> None:
        """Watch no topic."""
        self.forget(self._request_id)
        self._request_id = None
        self._due_ms = None
        self._suspected = False

    def advance(self) -> None:
        """Ask if it is time."""
        if self._due_ms is not None and self._request_id is None and self._context.due(self._due_ms):
            self._request_id = self.ask(self._topics, self._pattern, self._looked)

    def _looked(self, event: TopicsDescribed | None) -> None:
        self._request_id = None
        context = self._context
        assert self._refresh_ms is not None
        self._due_ms = context.now_ms + self._refresh_ms
        if event is None or event.passing:
            self._due_ms = context.now_ms + min(self._refresh_ms, max(1, context.config.retry_backoff_max_ms))
            return
        if self._pattern is not None and event.topics.keys() - self._topics != self._matched - self._topics:
            self._changed("pattern matches other topics")
            return
        now = {name: topic for name, topic in event.topics.items() if name in self._topics}
        if context.config.rack_id is None:
            # As Java: replicas that move make members join again only if the leader itself has a rack.
            now = {name: replace(topic, racks=self._known_racks(name)) for name, topic in now.items()}
        if self._known is None:
            self._known = now
        if any(_is_more(topic, self._known.get(name)) for name, topic in now.items()):
            self._changed("metadata changed")
        elif now == self._known:
            self._suspected = False
        elif self._suspected:
            self._changed("metadata changed")
        else:
            self._suspected = True
            self._due_ms = context.now_ms + max(1, context.config.retry_backoff_max_ms)

    def _known_racks(self, name: str) -> tuple[frozenset[str], ...]:
        known = (self._known or {}).get(name)
        return known.racks if known is not None else ()

    def _changed(self, reason: str) -> None:
        self.stop()
        self._on_changed(reason)


def _is_more(now: TopicDescription, before: TopicDescription | None) -> bool:
    return before is None or now.topic_id != before.topic_id or now.partition_count > before.partition_count


def _spread(context: Context) -> int | None:
    """The refresh interval of this member, with jitter so that the members of a group do not ask together."""
    refresh_ms = context.config.topic_refresh_ms
    return None if refresh_ms is None else max(1, int(refresh_ms * context.rng.uniform(1 - _JITTER, 1 + _JITTER)))
