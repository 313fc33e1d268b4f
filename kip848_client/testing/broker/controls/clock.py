"""``broker.clock``: lets time pass on a broker with a `ManualClock`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.state import BrokerState

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: later times fit neither in dates nor, some of them, in records."""


class BrokerClock:
    """The time of a broker, in ms.

    Args:
        run_due: does the work that is due, on the broker's thread.
    """

    def __init__(self, live: LiveBroker, clock: Clock, *, run_due: Callable[[BrokerState], None]) -> None:
        self._live: Final = live
        self._clock: Final = clock
        self._run_due: Final = run_due

    def advance(self, ms: int) -> None:
        """Let *ms* pass and perform what becomes due: sessions, revocations and offsets expire.

        Raises:
            ConfigError: *ms* is negative, or leads beyond the year 9999.
            IllegalStateError: the broker runs on real time.
        """
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise IllegalStateError(
                "clock.advance needs EmbeddedBroker(clock=ManualClock()), or kip848 broker --manual-clock; "
                "this broker runs on real time"
            )
        if not 0 <= ms <= _LAST_MS - clock.wall_ms():
            raise ConfigError(f"clock.advance({ms}): time goes forward, and not beyond the year 9999")

        def advance(state: BrokerState) -> None:
            clock.advance(ms)
            self._run_due(state)

        self._live.on_loop(advance)
