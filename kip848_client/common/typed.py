"""Checks of arguments of the test kit, so that a wrong type is named before the broker's thread meets it."""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.errors import ArgumentTypeError


def text(value: object, *, name: str) -> str:
    """*value*, which is text.

    Raises:
        ArgumentTypeError: it is not.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} is text, got {value!r}")
    return value


def whole_number(value: object, *, name: str) -> int:
    """*value*, which is a whole number.

    Raises:
        ArgumentTypeError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is a whole number, got {value!r}")
    return value


def settings(value: object, *, name: str) -> dict[str, str]:
    """*value*, which maps names to texts.

    Raises:
        ArgumentTypeError: it does not.
    """
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ArgumentTypeError(
            f'{name} is a mapping of text to text, such as {{"retention.ms": "1000"}}, got {value!r}'
        )
    return dict(value)
