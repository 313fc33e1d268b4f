"""The pure core of retry topics."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.tiers import FailureHeaders, Tiers, Turnstile, read_failed, without_own

TIERS = Tiers(name="r", delays_ms=[1_000, 60_000])
FIRST, OTHER = NamedPartition("r-1", 0), NamedPartition("r-1", 1)
FAILED = FailureHeaders(
    topic="orders", partition=2, offset=7, timestamp_ms=5, error="OSError: é", attempts=3, group="g"
)


def _due(at_ms: int, **changes: Any) -> FailureHeaders:
    return replace(FAILED, due_ms=at_ms, **changes)


@pytest.mark.parametrize(
    "failed",
    [
        FAILED,
        FailureHeaders(**{**{f: getattr(FAILED, f) for f in FAILED.__struct_fields__}, "group": None}),
        _due(9, retries="r", failed_ms=8),
    ],
)
def test_headers_say_what_was_written(failed: FailureHeaders) -> None:
    """A record would lose its origin or its number of attempts on the way from tier to tier."""
    assert read_failed([("trace", b"1"), *failed.headers()]) == failed
    assert without_own([("trace", b"1"), *failed.headers()]) == [("trace", b"1")]


@pytest.mark.parametrize(
    "headers",
    [None, [], [("kip848.topic", b"orders")], [*FAILED.headers(), ("kip848.offset", b"x")], [("kip848.error", None)]],
)
def test_other_headers_are_no_failure(headers: Any) -> None:
    """A record that was written by hand would end process()."""
    assert read_failed(headers) is None


def test_a_record_goes_from_tier_to_tier() -> None:
    """One that has failed in the last tier would go round for ever."""
    assert [TIERS.after(topic) for topic in ("orders", "r-1", "r-2", "r-3")] == [0, 1, None, 0]


def test_a_partition_waits_for_its_first_record_and_goes_on_there() -> None:
    """What stands behind a record that is not due would overtake it, or be lost."""
    stile = Turnstile(TIERS, "g")
    assert stile.passes(FIRST, 0, _due(100), 100)
    assert not stile.passes(FIRST, 1, _due(150), 100)
    assert not stile.passes(FIRST, 2, _due(100), 100), "it stands behind one that waits"
    assert stile.passes(OTHER, 0, _due(100), 100), "another partition does not"
    assert (stile.holds(), stile.holds()) == ({FIRST: 1}, {})
    assert stile.up_to_here({FIRST: 3, OTHER: 1}) == {FIRST: 1, OTHER: 1}
    assert (stile.next_due_ms(), stile.releases(149)) == (150, {})
    assert (stile.releases(150), stile.releases(150), stile.next_due_ms()) == ({FIRST: 1}, {}, None)
    assert stile.passes(FIRST, 1, _due(150), 150)


def test_a_wrong_clock_holds_back_a_partition_for_no_longer_than_its_delay() -> None:
    """One record from a machine whose clock is a day ahead would stop its partition for a day."""
    stile = Turnstile(TIERS, "g")
    assert not stile.passes(FIRST, 0, _due(86_400_000), 100)
    assert stile.next_due_ms() == 1_100


def test_records_of_other_groups_and_without_headers() -> None:
    """Groups that share tiers would handle each other's records, and wait for them; one written by hand never came."""
    stile = Turnstile(TIERS, "g")
    assert not stile.passes(FIRST, 0, _due(900, group="h"), 100)
    assert stile.next_due_ms() is None
    assert stile.passes(FIRST, 1, None, 100)
    assert stile.passes(FIRST, 2, _due(0, group=None), 100)


def test_a_partition_that_was_given_away_waits_no_more() -> None:
    """A new owner's position would be moved by the old wait."""
    stile = Turnstile(TIERS, "g")
    stile.passes(FIRST, 4, _due(500), 100)
    stile.forget([FIRST])
    assert (stile.holds(), stile.releases(10_000), stile.waits(FIRST)) == ({}, {}, False)
