"""Reports connections that the broker refused, and how many connections the process has files for."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable
from typing import Final

from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event

if sys.platform != "win32":
    import resource

_LOGGED_MAX: Final = 10
_PERIOD_S: Final = 10.0
"""Limit and period: this many refusals are logged one by one in this many seconds; the others are counted."""
_FILES_RESERVED: Final = 128
"""Files that the rest of the process may open beside the connections."""
_SELECT_MAX: Final = 512
"""The most sockets that Python gives to `select.select` on Windows."""


class Refusals:
    """Logs refused connections: the first ones of a period one by one, then only how many more there were."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        self._on_refused: Final = on_refused
        self._logged = 0
        self._skipped = 0
        self._last_reason = ""
        self._timer: asyncio.TimerHandle | None = None

    def report(self, reason: str, *, peer: str) -> None:
        """Log one connection that was closed because of its bytes, unless there were many just now."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._period_ends)
        if self._logged >= _LOGGED_MAX:
            self._skipped += 1
            self._last_reason = reason
            return
        self._logged += 1
        log_event(logging.WARNING, LogEvent.CONNECTION_REFUSED, logger=BROKER_LOGGER, peer=peer, reason=reason)
        self._on_refused(reason)

    def close(self) -> None:
        """Log how many were not logged."""
        if self._timer is not None:
            self._timer.cancel()
            self._period_ends()

    def _period_ends(self) -> None:
        self._timer = None
        skipped, self._skipped, self._logged = self._skipped, 0, 0
        if skipped:
            log_event(
                logging.WARNING,
                LogEvent.CONNECTIONS_REFUSED,
                logger=BROKER_LOGGER,
                count=skipped,
                last_reason=self._last_reason,
            )
            self._on_refused(f"{skipped} more connections in {_PERIOD_S:.0f} s; the last: {self._last_reason}")


def connections_that_files_allow() -> float:
    """How many connections the process has files for; on Windows, how many an event loop can watch."""
    if sys.platform == "win32":
        return _SELECT_MAX - _FILES_RESERVED
    else:  # noqa: RET505  mypy reads it as the other platforms' branch
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return math.inf if soft == resource.RLIM_INFINITY else max(soft - _FILES_RESERVED, 1)
