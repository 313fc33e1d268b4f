"""The exception of a broken invariant."""

from __future__ import annotations

from typing import Never


class InvariantViolation(Exception):
    """An invariant does not hold.

    Args:
        invariant: its short name.
        message: the contradiction.
    """

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(invariant, message)
        self.invariant = invariant
        self.message = message

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


def fail(invariant: str, message: str) -> Never:
    """Raise `InvariantViolation`."""
    raise InvariantViolation(invariant, message)
