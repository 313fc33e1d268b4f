"""`Retry`: what a ``tenacity.Retrying`` object says about a handler that has failed."""

from __future__ import annotations

import inspect
import time
from typing import Any, Final

from kip848_client.errors import ArgumentTypeError, ConfigError

_WAIT_S_MAX: Final = 10.0**9


class Retry:
    """A ``tenacity.Retrying`` object as an adviser: which exceptions, how often, after which time."""

    def __init__(self, retrying: Any) -> None:
        import tenacity

        if not isinstance(retrying, tenacity.BaseRetrying):
            raise ArgumentTypeError(
                f"retry={retrying!r}: give tenacity.Retrying(stop=stop_after_attempt(5), "
                "wait=wait_random_exponential(max=30), retry=retry_if_exception_type(OSError))"
            )
        if retrying.retry_error_callback is not None:
            raise ConfigError(
                "retry= has a retry_error_callback: dead_letter= and on_error= say what follows the last attempt"
            )
        self._retrying: Final = retrying
        self._state: Final = tenacity.RetryCallState
        self._action: Final = tenacity.RetryAction

    def begins(self, given: object, *, attempt: int, elapsed_ms: int) -> None:
        """A call of the handler with *given* begins."""
        if self._retrying.before is not None:
            _told(self._retrying.before(self._state_of(given, attempt, elapsed_ms)))

    def wait_s(self, given: object, error: BaseException, *, attempt: int, elapsed_ms: int) -> float | None:
        """Seconds until the next attempt; None if there is none.

        Args:
            given: the argument of the handler.
            elapsed_ms: since its first call began.
        """
        retrying = self._retrying
        state = self._state_of(given, attempt, elapsed_ms)
        state.set_exception((type(error), error, error.__traceback__))
        if not _told(retrying.retry(state)):
            return None
        if retrying.after is not None:
            _told(retrying.after(state))
        wait_s: float = min(float(retrying.wait(state)), _WAIT_S_MAX)
        state.upcoming_sleep = wait_s  # before `stop`, as tenacity does
        if retrying.stop(state):
            return None
        state.next_action = self._action(wait_s)
        if retrying.before_sleep is not None:
            _told(retrying.before_sleep(state))
        return wait_s

    def _state_of(self, given: object, attempt: int, elapsed_ms: int) -> Any:
        state = self._state(self._retrying, None, (given,), {})
        state.attempt_number = attempt
        state.start_time = time.monotonic() - elapsed_ms / 1000
        return state


def _told(answer: object) -> object:
    """What a function of the retry object has returned."""
    if inspect.iscoroutine(answer):
        answer.close()
        raise ArgumentTypeError("retry= has a condition or callback that is a coroutine function; give a function")
    return answer
