"""Whether a classic member can have been removed without having heard of it.

A coordinator that assigns by itself (a group with both protocols) takes the JoinGroup of a dynamic member that it has
removed for that of a new member, and answers it like any other. Its partitions may have had other owners meanwhile. So
the member counts from its own requests until when it cannot have been removed.

Source: Kafka's ``GroupMetadataManager.classicGroupJoinToConsumerGroup``.
Rules: R273 in docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

from kip848_client.member.core.context import Context


class Standing:
    """A coordinator's timers for one member, counted from when its requests were sent, which is earlier."""

    def __init__(self, context: Context) -> None:
        self._context: Final = context
        self._accepted_ms = 0
        self._join_asked_ms: int | None = None
        self._sync_asked_ms: int | None = None

    def accepted(self, sent_ms: int) -> None:
        """A request of that time was answered, and began a new session."""
        self._accepted_ms = max(self._accepted_ms, sent_ms)

    def asked_to_join(self, sent_ms: int) -> None:
        """A heartbeat of that time was answered with the wish for a JoinGroup."""
        self.accepted(sent_ms)
        if self._join_asked_ms is None:
            self._join_asked_ms = sent_ms

    def joined(self, sent_ms: int) -> None:
        """A JoinGroup of that time was answered; a SyncGroup is to follow."""
        self.accepted(sent_ms)
        self._join_asked_ms, self._sync_asked_ms = None, sent_ms

    def synced(self, sent_ms: int) -> None:
        """A SyncGroup of that time was answered."""
        self.accepted(sent_ms)
        self._sync_asked_ms = None

    @property
    def is_certain(self) -> bool:
        """Whether no timer of the coordinator can have run out, or a member that was removed would be refused."""
        config, now_ms = self._context.config, self._context.now_ms
        if config.instance_id is not None:
            return True
        asked = [at_ms for at_ms in (self._join_asked_ms, self._sync_asked_ms) if at_ms is not None]
        in_time = all(now_ms - at_ms < config.rebalance_timeout_ms for at_ms in asked)
        return in_time and now_ms - self._accepted_ms < config.session_timeout_ms
