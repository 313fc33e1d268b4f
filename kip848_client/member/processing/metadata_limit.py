"""`MetadataLimit`: how many bytes of metadata the broker takes in a commit. Pure.

Kafka takes 4,096 unless ``offset.metadata.max.bytes`` says otherwise, and only who may describe the brokers can ask for
it. So a commit asks: one partition of the first commits has its marks filled up to a size that is not sure. If that is
refused, smaller sizes are tried at once, until the limit is known to within some bytes.

Source: own; a refusal is OFFSET_METADATA_TOO_LARGE.
"""

from __future__ import annotations

from typing import Final

_ASSUMED: Final = 64
"""What is relied on before the first answer."""
_PRECISION: Final = 8
_USEFUL_MIN: Final = 16
"""Smaller metadata holds no marks."""


class MetadataLimit:
    """What was accepted and what was refused so far.

    Args:
        most: the largest size that is of use.
        known: whether the broker is known to take so much.
    """

    def __init__(self, most: int, *, known: bool) -> None:
        self._most: Final = most
        self._accepted = most if known else 0
        self._refused: int | None = None

    @property
    def asks(self) -> int | None:
        """The size of metadata that the next commit should have, to ask; None if the limit is known."""
        if self._refused is None:
            return self._most if self._accepted < self._most else None
        if self._refused <= _USEFUL_MIN or self._refused - self._accepted <= _PRECISION:
            return None
        return (self._accepted + self._refused) // 2

    @property
    def narrowing(self) -> bool:
        """Whether a size was refused and the limit is not known yet: the next commit is made at once."""
        return self._refused is not None and self.asks is not None

    @property
    def sure(self) -> int:
        """What may be relied on."""
        if self._refused is None:
            return max(self._accepted, min(_ASSUMED, self._most))
        if self.asks is not None:
            return max(self._accepted, min(_ASSUMED, self._refused // 2))
        return 0 if self._refused <= _USEFUL_MIN else self._accepted

    def accepted(self, size: int) -> None:
        """A commit was accepted whose largest metadata has this size."""
        self._accepted = min(self._most, max(self._accepted, size))

    def refused(self, size: int) -> None:
        """A commit was refused because of its metadata; the largest has this size."""
        self._refused = size if self._refused is None else min(self._refused, size)
        if self._accepted >= self._refused:  # another broker, which takes less
            self._accepted = 0
