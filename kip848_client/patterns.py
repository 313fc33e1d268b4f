"""Patterns of topic names: RE2, matched against the whole name, wherever that is done.

Brokers match with RE2 under KIP-848; a member on the classic protocol matches for itself, and a pattern has to mean the
same there. RE2 cannot be made to hang; Python's `re` accepts other patterns, and can.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["PATTERN_LENGTH_MAX", "Pattern", "compiled"]

PATTERN_LENGTH_MAX: Final = 1024
"""Characters; a longer pattern is refused, as it costs memory for as long as its group lives."""


class Pattern(Protocol):
    """A pattern that can be matched."""

    def fullmatch(self, text: str) -> object | None:
        """Match the whole *text*; None if it does not."""
        ...


def compiled(pattern: str) -> Pattern:
    """Make *pattern* ready to match.

    Raises:
        ValueError: it is no RE2, or too long; says why.
    """
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise ValueError(f"it has {len(pattern)} characters, at most {PATTERN_LENGTH_MAX} are allowed")
    import re2  # here: only who matches needs it

    options = re2.Options()
    options.log_errors = False
    try:
        made: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
    except UnicodeEncodeError as error:
        raise ValueError("it is not valid Unicode") from error
    return made
