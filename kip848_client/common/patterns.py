"""Patterns of topic names: RE2, matched against the whole name, wherever that is done.

Brokers match with RE2 under KIP-848; a member on the classic protocol matches for itself, and a pattern has to mean the
same there. RE2 cannot be made to hang; Python's `re` accepts other patterns, and can. It stands in where google-re2 is
not installed, as that has no wheel for musl (Alpine) and for Python without the GIL, and refuses what RE2 refuses.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

PATTERN_LENGTH_MAX: Final = 1024
"""Characters; a longer pattern is refused, as it costs memory for as long as its group lives."""

_REPEAT_MAX: Final = 1000
"""RE2 refuses ``a{1001}``."""

_NOT_RE2: Final = r"""(?xs)
    (?P<back_reference> \\[1-9] | \(\?P= )
    | (?P<look_around> \(\?<?[=!] )
    | (?P<condition> \(\?\( )
    | (?P<atomic_group> \(\?> )
    | (?P<comment> \(\?\# )
    | (?P<escape> \\[ZuUN] )
    | (?P<named_class> \[\^?\]?(?:\\.|[^\]\\])*?\[:\w+:\] )
    | \\. | \[\^?\]?(?:\\.|[^\]\\])*\]
    | (?P<possessive_repeat> (?:[*+?]|\{\d+,?\d*\})\+ )
    | \{ (?:\d+,)? (?P<repeat>\d+) \}
    """
"""Goes through a pattern piece by piece; a group that matched names what Python's `re` takes otherwise than RE2.
Compiled when it is used, because that takes a millisecond."""


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
    return _engine()(pattern)


@functools.cache
def _engine() -> Callable[[str], Pattern]:
    """Choose RE2 if it is installed; here, as only programs with patterns need it."""
    try:
        import re2
    except ImportError:
        logging.getLogger("kip848_client").warning(
            "google-re2 is not installed (pip install 'kip848_client[re2]'): Python's re matches patterns of topics, "
            "and may take very long for one such as (a+)+$"
        )
        return _with_re

    def with_re2(pattern: str) -> Pattern:
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

    return with_re2


def _with_re(pattern: str) -> Pattern:
    try:
        pattern.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it is not valid Unicode") from error
    for piece in re.finditer(_NOT_RE2, pattern):
        kind = piece.lastgroup
        if kind == "repeat":
            if int(piece["repeat"]) > _REPEAT_MAX:
                raise ValueError(f"bad repetition operator: {piece[0]}")
        elif kind == "named_class":
            raise ValueError(f"{piece[0]} needs the package google-re2, which is not installed")
        elif kind is not None:
            raise ValueError(f"RE2 has no {kind.replace('_', ' ')}: {piece[0]}")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from error
