"""Where each partition stood when its records were last committed in a transaction. Knows no librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kip848_client.common.model import NamedPartition, OffsetAndMetadata

_Positions = Mapping[NamedPartition, OffsetAndMetadata]


class Origins:
    """The positions to which an aborted transaction goes back.

    Attributes:
        taken_away: partitions that were taken away after records of them had been returned that no transaction holds.
            A transaction that holds what was made of them must not be committed: their new owner reads them again.
    """

    def __init__(self) -> None:
        self.taken_away: Final[set[NamedPartition]] = set()
        self._at: Final[dict[NamedPartition, OffsetAndMetadata]] = {}

    def __contains__(self, partition: NamedPartition) -> bool:
        return partition in self._at

    def clear(self) -> None:
        """Nothing is read any more."""
        self._at.clear()

    def began(self, positions: _Positions) -> None:
        """Partitions were started at these positions; one that was read before keeps its origin."""
        for partition, at in positions.items():
            self._at.setdefault(partition, at)

    def ended(self, partitions: Iterable[NamedPartition], positions: _Positions) -> None:
        """Partitions are given away; *positions* has what is known of their positions."""
        for partition in partitions:
            origin, at = self._at.pop(partition, None), positions.get(partition)
            if origin is not None and at is not None and at.offset != origin.offset:
                self.taken_away.add(partition)

    def sought(self, partition: NamedPartition, at: OffsetAndMetadata | None, *, target: OffsetAndMetadata) -> None:
        """The application has moved a position from *at* to *target*; a negative one is for the broker to find."""
        origin = self._at.get(partition)
        if origin is None:
            return
        unread = at is None or at.offset == origin.offset
        if target.offset < 0:
            if unread:
                del self._at[partition]  # it is started anew there
        elif unread or target.offset < origin.offset:
            self._at[partition] = target

    def moved(self, positions: _Positions) -> dict[NamedPartition, OffsetAndMetadata]:
        """Those of *positions* that are not where they were: records were returned, or skipped."""
        return {name: at for name, at in positions.items() if name in self._at and self._at[name].offset != at.offset}

    def committed(self, positions: _Positions) -> None:
        """A transaction with these positions was committed."""
        self._at.update({name: at for name, at in positions.items() if name in self._at})
        self.taken_away.clear()

    def go_back(self, positions: _Positions) -> dict[NamedPartition, OffsetAndMetadata]:
        """A transaction was aborted: where to go back to, from *positions*."""
        self.taken_away.clear()
        return {name: self._at[name] for name in self.moved(positions)}
