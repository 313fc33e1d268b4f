"""What is done beyond a committed offset, in the commit's metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.member.processing.marks import decode_marks, encode_marks


@given(st.integers(0, 2**40), st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=200))
def test_what_was_written_is_read_again(low: int, gaps: list[tuple[int, int]]) -> None:
    """A new owner skips exactly what was done."""
    ranges, at = [], low
    for pause, length in gaps:
        ranges.append((at + pause, at + pause + length))
        at += pause + length
    text, whole = encode_marks(low, ranges, bytes_max=100_000)
    assert whole
    assert list(decode_marks(low, text) or ()) == ranges


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    """The broker refuses longer metadata; what is left out is handled again, never skipped wrongly."""
    ranges = [(offset, offset + 1) for offset in range(1, 40_000, 2)]
    text, whole = encode_marks(0, ranges, bytes_max=4096)
    read = list(decode_marks(0, text) or ())
    assert not whole
    assert len(text) <= 4096
    assert 0 < len(read) < len(ranges)
    assert read == ranges[: len(read)]


@pytest.mark.parametrize(
    "text",
    ["", "v2:{}", "k848p1:", "k848p1:!!", "k848p1:AgABAg", "k848p1:AQCA", "k848p2:AQABAQ"],
)
def test_foreign_newer_and_damaged_marks_are_ignored(text: str) -> None:
    """Other programs write metadata, too: then the new owner begins at the offset."""
    assert decode_marks(5, text) is None
