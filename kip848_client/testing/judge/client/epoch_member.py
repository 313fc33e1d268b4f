"""What members of KIP-848 groups and of share groups have in common: epochs that the answers to heartbeats give."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.testing.judge.client.findings import Exchange, Findings
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

Lookups = Callable[[str], int]
"""The number of the last FindCoordinator of a client id; 0 if there was none."""
NameOf = Callable[[uuid.UUID], str]


class EpochMember:
    """One member of one group.

    Args:
        name_of: the name of a topic id, or the id as text.
    """

    def __init__(self, findings: Findings, *, member_id: str, name_of: NameOf, looked_up: Lookups) -> None:
        self._findings: Final = findings
        self._name_of: Final = name_of
        self._looked_up: Final = looked_up
        self.member_id: Final = member_id
        self._last: Exchange | None = None
        """The last heartbeat."""
        self._epochs: set[int] = {0}
        """Epochs that the next heartbeat may have."""
        self._removed: Exchange | None = None
        self._left: Exchange | None = None
        self._unanswered = False
        """The last heartbeat had no answer, so that the next one has to have all fields."""
        self._refused: Exchange | None = None
        """The last heartbeat, if it was refused: its news are still to be told."""

    def _learn(self, *, heard: bool) -> None:
        """Take in the answer to the last heartbeat."""
        last = self._last
        if last is None:
            return
        request, response = last.request, last.response
        assert isinstance(request, ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest)
        leaving = request.member_epoch < 0
        if not isinstance(response, ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse):
            self._unanswered, self._refused = not leaving, None
            return
        if leaving:
            return
        code = response.error_code
        self._unanswered, self._refused = False, None
        if not heard:
            self._epochs |= {0} if code in REMOVED else set() if code else {response.member_epoch}
            return
        self._refused = last if code else None
        if code in REMOVED:
            self._epochs = {0}
            self._removed = last
        elif not code:
            self._epochs = {response.member_epoch}

    def _check_moved(self, rule: int, exchange: Exchange, *, heard: bool) -> None:
        last = self._last
        if last is not None and heard and last.error_code in MOVED:
            self._findings.check(
                rule,
                self._looked_up(exchange.client_id) > last.number,
                exchange,
                expected=f"the client looks the coordinator up after {error_name(last.error_code)}",
                seen="another heartbeat to the same broker without FindCoordinator",
            )


def epochs_text(epochs: set[int] | tuple[int, ...]) -> str:
    """Epochs, in words."""
    return " or ".join(map(str, sorted(epochs)))
