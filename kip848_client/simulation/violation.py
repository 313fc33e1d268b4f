"""The exception of a broken invariant."""

from __future__ import annotations


class InvariantViolation(Exception):
    """An invariant does not hold.

    Args:
        invariant: its short name.
        message: what was seen.
    """

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(invariant, message)
        self.invariant = invariant
        self.message = message

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


def require(condition: bool, invariant: str, message: str) -> None:
    """Raise `InvariantViolation` unless *condition* holds.

    The message is worked out before the call: where a check is made thousands of times, ask first and `fail` then.
    """
    if not condition:
        raise InvariantViolation(invariant, message)


def fail(invariant: str, message: str) -> None:
    """Raise `InvariantViolation`."""
    raise InvariantViolation(invariant, message)
