"""Calls of the user's assignors: one at a time, each with a time limit.

A call that exceeds its limit is abandoned: its result is dropped, but no other call is made until it returns. So a
consumer never has more than one call in progress, and one thread is enough.

Does not own: the thread (`consumer.group.assignor_runner`), which call is due (`assignor_round`, `assignor_notices`).

Rules: R168 and R169 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kip848_client.errors import AssignorTimeoutError
from kip848_client.member.core.assignor_events import AssignorCall, AssignorFailed, CallOnAssignment, RunAssignor
from kip848_client.member.core.context import Context


class _Call(msgspec.Struct, eq=False):
    call_id: int
    effect: AssignorCall
    limit_ms: int
    abandoned: bool = False


class AssignorCalls:
    """At most one call of one member's assignors."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._call: _Call | None = None
        self._last_call_id = 0

    @property
    def free(self) -> bool:
        """Whether a call can be made."""
        return self._call is None

    @property
    def stuck(self) -> bool:
        """Whether a call was abandoned and has not returned."""
        return self._call is not None and self._call.abandoned

    def start(self, make: Callable[[int], AssignorCall]) -> int:
        """Emit the call that *make* builds from its number, and return that number."""
        assert self._call is None
        self._last_call_id += 1
        effect = make(self._last_call_id)
        limit_ms = self._context.now_ms + self._context.config.assignor_timeout_ms
        self._call = _Call(self._last_call_id, effect, limit_ms)
        self._context.wake_at(limit_ms)
        self._context.emit(effect)
        return self._last_call_id

    def returned(self, call_id: int) -> AssignorCall | None:
        """A call returned. Returns the call, or None if it was abandoned or is unknown."""
        call = self._call
        if call is None or call.call_id != call_id:
            return None
        self._call = None
        return None if call.abandoned else call.effect

    def watch(self) -> AssignorCall | None:
        """Abandon the call if it exceeded its limit; returns it in that case."""
        call = self._call
        if call is None or call.abandoned or not self._context.due(call.limit_ms):
            return None
        call.abandoned = True
        name, what = _described(call.effect)
        error = AssignorTimeoutError(
            f"{what} of {f'the client-side assignor {name!r}' if name else 'a client-side assignor'} did not return "
            f"within {self._context.config.assignor_timeout_ms} ms (group.local.assignors.timeout.ms); it is "
            "abandoned, and this member calls no assignor until it returns",
            assignor=name,
        )
        self._context.emit(AssignorFailed(error))
        return call.effect


def _described(call: AssignorCall) -> tuple[str, str]:
    """Name of the assignor, if one is meant, and of the method."""
    match call:
        case RunAssignor(snapshot=snapshot):
            return snapshot.assignor_name, "assign()"
        case CallOnAssignment(assignor_name=name):
            return name, "on_assignment()"
        case _:
            return "", "metadata()"
