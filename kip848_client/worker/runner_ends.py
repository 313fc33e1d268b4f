"""What follows when a runner ends before it was told to stop: `on_runner_end`. Pure, but for the log."""

from __future__ import annotations

import logging
from typing import Final, Literal, TypeAlias, get_args

from kip848_client.common.logs import LogEvent, log_event
from kip848_client.errors import ConfigError, RunnerEndedError
from kip848_client.worker.events import OwnedUnit

RunnerEnd: TypeAlias = Literal["restart", "give_up", "end"]
"""Run the unit here again after a pause; let another worker run it; or end the worker."""


def check_runner_end(given: str) -> RunnerEnd:
    """The policy as the user wrote it.

    Raises:
        ConfigError: there is no such policy.
    """
    for known in get_args(RunnerEnd):
        if given == known:
            policy: RunnerEnd = known
            return policy
    raise ConfigError(f"on_runner_end must be one of {', '.join(get_args(RunnerEnd))}, got {given!r}")


class RunnerEnds:
    """How a worker treats runners that end by themselves.

    Args:
        session_ms: how long a unit that was given up rests here: if no other worker has taken it then, it starts again.
    """

    def __init__(self, policy: RunnerEnd, *, backoff_ms: int, backoff_ms_max: int, session_ms: int) -> None:
        self.policy: Final = policy
        self._backoff_ms: Final = backoff_ms
        self._backoff_ms_max: Final = backoff_ms_max
        self._session_ms: Final = session_ms

    def pause_ms(self, failures: int) -> int:
        """How long a unit rests after so many ends in a row, from 1: each pause is twice as long as the one before."""
        backoff_ms = min(self._backoff_ms << min(failures - 1, 30), self._backoff_ms_max)
        return max(backoff_ms, self._session_ms) if self.policy == "give_up" else backoff_ms

    def is_new(self, ran_ms: float) -> bool:
        """Whether a runner has run for so long that its end is not one more in a row."""
        return ran_ms > self._backoff_ms_max

    def note(self, owned: OwnedUnit, error: BaseException | None, *, failures: int) -> BaseException:
        """Log the end, and what follows; the error that the worker shows."""
        what = "raised" if error is not None else "returned"
        then = {
            "restart": f"it starts again in {self.pause_ms(failures) / 1000:g} s",
            "give_up": "another worker is to run the unit",
            "end": "the worker ends",
        }[self.policy]
        log_event(
            logging.ERROR,
            LogEvent.UNIT_FAILED,
            exc_info=error,
            unit=str(owned.unit),
            token=owned.token,
            what=what,
            then=then,
        )
        return error or ended_error(owned, None)

    def note_late(self, owned: OwnedUnit, error: BaseException) -> None:
        """Log what a runner raised that was told to stop; nothing follows."""
        unit, token = str(owned.unit), owned.token
        then = "it has stopped"
        log_event(logging.ERROR, LogEvent.UNIT_FAILED, exc_info=error, unit=unit, token=token, what="raised", then=then)


def ended_error(owned: OwnedUnit, error: BaseException | None) -> RunnerEndedError:
    """The error of a runner that ended by itself."""
    what = "returned" if error is None else f"raised {type(error).__name__}: {error},"
    ended = RunnerEndedError(f"the runner of unit {owned.unit} {what} before it was told to stop", unit=str(owned.unit))
    ended.__cause__ = error
    return ended
