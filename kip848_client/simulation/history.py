"""What happened in a simulation, one line each, and a digest that two equal runs share."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kip848_client.journal import JsonValue


class History:
    """Append-only. Every line is also counted by what it is about."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._digest = hashlib.sha256()
        self.counts: Final[Counter[str]] = Counter()

    def add(self, at_ms: int, who: str, what: str, **details: JsonValue) -> None:
        """Note that *who* did or met *what* (a short name, counted) at virtual time *at_ms*."""
        line = json.dumps({"t": at_ms, "who": who, "what": what, **details}, separators=(",", ":"))
        self._lines.append(line)
        self._digest.update(line.encode() + b"\n")
        self.counts[what] += 1

    @property
    def lines(self) -> Sequence[str]:
        """All lines (JSON), oldest first."""
        return self._lines

    @property
    def digest(self) -> str:
        """Hex digest of all lines. The same seed gives the same digest, in any process."""
        return self._digest.hexdigest()
