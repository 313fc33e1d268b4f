"""The metadata of a query's commits. A later run of the query recognizes its own commits by it. Pure."""

from __future__ import annotations

import msgspec

_PREFIX = "kip848-spark "
"""Metadata is free text, and other programs write theirs."""


class CommitMark(msgspec.Struct, frozen=True):
    """One commit of a query.

    Args:
        query: the query, as its checkpoint names it; every run of it has the same.
        batch: the last batch that was complete, as the source counts them, from 1.
    """

    query: str
    batch: int

    def to_text(self) -> str:
        """For the metadata of an offset: ``kip848-spark {"query":"6f1c...","batch":7}``."""
        return _PREFIX + msgspec.json.encode(self).decode()

    @staticmethod
    def parse(text: str) -> CommitMark | None:
        """Read what `to_text` wrote; None if another program wrote *text*."""
        if not text.startswith(_PREFIX):
            return None
        try:
            return msgspec.json.decode(text[len(_PREFIX) :], type=CommitMark)
        except msgspec.DecodeError:
            return None
