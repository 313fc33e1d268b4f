"""Whether a client waits before it repeats what was refused: a loop without backoff floods a broker in trouble."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from kip848_client.common.error_codes import RETRIABLE, error_name
from kip848_client.testing.judge.client.findings import Exchange, Findings
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import FindCoordinatorResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchResponse
from kip848_client.wire.schema import Response

AT_ONCE_MS: Final = 20
"""Sooner than any backoff: Kafka's is 100 ms, less a fifth, and the client has to read the answer first."""
IN_A_ROW: Final = 5

_RULES: Final[dict[int, int]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 33,
    ApiKey.SHARE_GROUP_HEARTBEAT: 33,
    ApiKey.JOIN_GROUP: 33,
    ApiKey.FIND_COORDINATOR: 21,
    ApiKey.OFFSET_COMMIT: 105,
    ApiKey.OFFSET_FETCH: 92,
}
"""API -> the rule that demands a backoff."""
_KEPT_MAX: Final = 1000


class _Attempts(msgspec.Struct):
    """The same request, sent again and again.

    Args:
        last: the last of them.
        in_a_row: how many followed at once on a refusal.
    """

    last: Exchange
    in_a_row: int = 0


class Pace:
    """All clients of a broker."""

    def __init__(self, findings: Findings) -> None:
        self._findings: Final = findings
        self._attempts: Final[OrderedDict[object, _Attempts]] = OrderedDict()

    def asked(self, exchange: Exchange, *, sender: tuple[str, str] | None) -> None:
        """A request came; *sender* is its group and member."""
        request = exchange.request
        rule = _RULES.get(request.WIRE.api_key)
        if rule is None:
            return
        what = request.topics if isinstance(request, OffsetCommitRequest) else None
        key = (exchange.client_id, sender, request.WIRE.api_key, what)
        attempts = self._attempts.get(key)
        if attempts is None:
            self._attempts[key] = _Attempts(exchange)
            if len(self._attempts) > _KEPT_MAX:
                self._attempts.popitem(last=False)
            return
        last, attempts.last = attempts.last, exchange
        code = _refusal(last.response)
        if not code or last.answered_ms is None:
            attempts.in_a_row = 0
            return
        gap_ms = exchange.asked_ms - last.answered_ms
        attempts.in_a_row = attempts.in_a_row + 1 if gap_ms < AT_ONCE_MS else 0
        self._findings.check(
            rule,
            attempts.in_a_row < IN_A_ROW,
            exchange,
            expected=f"a backoff after {error_name(code)}, which grows with each failure",
            seen=f"the {IN_A_ROW}th repetition in a row that came at once, {gap_ms} ms after the answer",
        )
        if attempts.in_a_row >= IN_A_ROW:
            attempts.in_a_row = 0


def _refusal(response: Response | None) -> int:
    """The code of an answer that a client may ask again after; 0 if there is none."""
    codes: list[int]
    match response:
        case OffsetCommitResponse():
            codes = [part.error_code for topic in response.topics for part in topic.partitions]
        case OffsetFetchResponse():
            codes = [response.error_code, *(group.error_code for group in response.groups)]
        case FindCoordinatorResponse():
            codes = [response.error_code, *(found.error_code for found in response.coordinators)]
        case _:
            codes = [getattr(response, "error_code", 0)]
    return next((code for code in codes if code in RETRIABLE), 0)
