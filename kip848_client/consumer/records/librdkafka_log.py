"""The logger of librdkafka's own lines; repeats of a line are held back.

While a broker cannot be reached librdkafka tries again twenty times a second and says each time that it failed. The
first line has all that a person needs.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Final

LIBRDKAFKA_LOGGER: Final = "kip848_client.librdkafka"
"""Where librdkafka's own log lines go, unless the configuration has a ``logger``."""

_QUIET_S: Final = 30.0
_LINES_MAX: Final = 100
_CHANGES: Final = re.compile(r"\d+ms|#consumer-\d+|#producer-\d+|,? ?\d+ identical error\(s\) suppressed")
"""The parts that differ between repeats of one line."""


class OnceInAWhile(logging.Filter):
    """Lets a line pass if it was not logged for a while, and adds how often it was held back.

    Args:
        quiet_s: how long the same line is held back, in seconds.
        clock: monotonic seconds.
    """

    def __init__(self, *, quiet_s: float = _QUIET_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._quiet_s: Final = quiet_s
        self._clock: Final = clock
        # librdkafka has a thread for each broker, and a signal handler may log in the middle of a line.
        self._lock: Final = threading.RLock()
        self._said: Final[dict[str, tuple[float, int]]] = {}
        """Line -> when it was said, and how often it was held back since; the oldest first."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether *record* is logged; its text may grow."""
        text = record.getMessage()
        key = _CHANGES.sub("", text)
        now_s = self._clock()
        with self._lock:
            said_s, held_back = self._said.get(key, (now_s - self._quiet_s, 0))
            if now_s - said_s < self._quiet_s:
                self._said[key] = (said_s, held_back + 1)
                return False
            self._said.pop(key, None)
            self._said[key] = (now_s, 0)
            if len(self._said) > _LINES_MAX:
                del self._said[next(iter(self._said))]
        if held_back:
            record.msg, record.args = f"{text} ({held_back} more of these in {now_s - said_s:.0f} s)", ()
        return True


logging.getLogger(LIBRDKAFKA_LOGGER).addFilter(OnceInAWhile())
