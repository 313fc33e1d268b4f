"""Units as the coordinator handles them: by name, with ascending indexes; and their way from and to the wire."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.model import Unit
from kip848_client.testing.coordinator.core.refusal import invalid_request
from kip848_client.testing.coordinator.modern.member_record import Held
from kip848_client.wire.messages.connect_group_heartbeat import AssignedUnits, UnitsOfName

Units: TypeAlias = Mapping[str, tuple[int, ...]]
"""Name -> indexes, ascending; a name without indexes is left out."""

UNIT_COUNT_MAX: Final = 100_000


class Catalogue(msgspec.Struct, frozen=True):
    """All units that a group should run.

    Args:
        offset: how new it is; -1 for none.
    """

    offset: int = -1
    units: Units = msgspec.field(default_factory=dict)

    def live(self, name: str, indexes: Iterable[int]) -> tuple[int, ...]:
        """The indexes that are units of the catalogue."""
        known = self.units.get(name, ())
        return tuple([index for index in indexes if index in known])

    def only(self, units: Units) -> Units:
        """The units that are in the catalogue."""
        return {name: live for name, indexes in units.items() if (live := self.live(name, indexes))}


def read_units(units: Iterable[UnitsOfName], *, field: str) -> dict[str, tuple[int, ...]]:
    """Units of a request.

    Args:
        field: the field of the request, for the error.

    Raises:
        Refused: INVALID_REQUEST; a name is blank, an index below -1, names or indexes are not ascending or repeated,
            or there are too many.
    """
    read: dict[str, tuple[int, ...]] = {}
    last, count = "", 0
    for item in units:
        name, indexes = item.name, item.indexes
        if not name.strip():
            raise invalid_request(f"{field}: the name of a unit can't be empty.")
        if name <= last:
            raise invalid_request(f"{field}: names must be ascending and unique; {name!r} comes after {last!r}.")
        if not indexes or indexes[0] < -1 or any(a >= b for a, b in itertools.pairwise(indexes)):
            raise invalid_request(f"{field}: indexes of {name!r} must be ascending, unique and -1 or more: {indexes}.")
        read[name] = indexes
        last, count = name, count + len(indexes)
    if count > UNIT_COUNT_MAX:
        raise invalid_request(f"{field}: {count} units; at most {UNIT_COUNT_MAX} are allowed.")
    return read


def write_units(units: Mapping[str, Iterable[int]]) -> tuple[UnitsOfName, ...]:
    """Units for the wire."""
    return tuple([UnitsOfName(name=name, indexes=tuple(sorted(units[name]))) for name in sorted(units)])


def write_held(held: Held[str]) -> tuple[AssignedUnits, ...]:
    """Units with their tokens for the wire."""
    return tuple(
        [
            AssignedUnits(name=name, indexes=indexes, epochs=tuple([held[name][index] for index in indexes]))
            for name in sorted(held)
            for indexes in [tuple(sorted(held[name]))]
        ]
    )


def stored_units(units: Iterable[UnitsOfName]) -> dict[str, tuple[int, ...]]:
    """Units of a record."""
    return {item.name: tuple(sorted(item.indexes)) for item in units}


def stored_held(units: Iterable[AssignedUnits]) -> dict[str, dict[int, int]]:
    """Units with their tokens of a record."""
    return {item.name: dict(zip(item.indexes, item.epochs, strict=True)) for item in units}


def count_units(units: Units) -> int:
    """How many units these are."""
    return sum(map(len, units.values()))


def check_catalogue(known: Catalogue, given: Catalogue) -> Catalogue:
    """The catalogue in force once a worker has sent *given*: the one of the higher offset.

    Raises:
        Refused: INVALID_REQUEST; the same offset with other units.
    """
    if given.offset > known.offset:
        return given
    if given.offset == known.offset and given.units != known.units:
        more = sorted(
            str(Unit(name, index))
            for name in given.units.keys() | known.units.keys()
            for index in set(given.units.get(name, ())) ^ set(known.units.get(name, ()))
        )
        shown = ", ".join(more[:5]) + (", ..." if len(more) > 5 else "")
        raise invalid_request(
            f"catalogue conflict at offset {given.offset}: the group has other units under this offset (differs in "
            f"{shown}). Give a changed list of units a higher offset (units.version)."
        )
    return known
