"""What is done beyond a committed offset, as text for the commit's metadata.

``k848p1:`` and base64url of: a version byte (1), a kind (0: runs, 1: bits), and either varints, alternately lengths of
what is not done and of what is done, or a set of bits, lowest first. Both begin at the committed offset. The shorter
one is written. Zero bytes may follow: neither ends with one.

Source: own.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final

MARKS_PREFIX: Final = "k848p1:"

_VERSION: Final = 1
_RUNS: Final = 0
_BITS: Final = 1
_SPAN_MAX: Final = 1 << 40
"""A damaged text must not claim more offsets than a partition has."""

Ranges = Sequence[tuple[int, int]]
"""Ranges of offsets, ascending and apart: (first, one after the last)."""


def encode_marks(low: int, done: Ranges, *, bytes_max: int, filled: bool = False) -> tuple[str, bool]:
    """Write which offsets from *low* on are done.

    Args:
        filled: add zero bytes until the text has *bytes_max* bytes, or one less.

    Returns:
        The text, empty if nothing is done beyond *low*; and whether all of it is in the text. What does not fit is left
        out from the end, and is handled again by a new owner.
    """
    whole = True
    ranges = list(done)
    least = body_bytes(bytes_max) if filled else 0
    while ranges or least > 0:
        body = _body(low, ranges).ljust(least, b"\0")
        text = MARKS_PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")
        if len(text) <= bytes_max:
            return text, whole
        whole = False
        ranges = ranges[: len(ranges) * bytes_max // len(text)] if len(ranges) > 1 else []
    return "", whole


def body_bytes(bytes_max: int) -> int:
    """How many bytes of marks a text of *bytes_max* bytes holds; not positive if none."""
    return (bytes_max - len(MARKS_PREFIX)) * 3 // 4


def decode_marks(low: int, text: str) -> Ranges | None:
    """Read what `encode_marks` wrote; None if the text is another program's, of another version, or damaged."""
    if not text.startswith(MARKS_PREFIX):
        return None
    encoded = text.removeprefix(MARKS_PREFIX)
    try:
        body = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(body) < 2 or body[0] != _VERSION:
        return None
    marks = body[2:].rstrip(b"\0")
    if body[1] == _BITS:
        return _ranges_of_bits(low, marks)
    return _ranges_of_runs(low, marks) if body[1] == _RUNS else None


def _body(low: int, ranges: Ranges) -> bytes:
    runs = bytearray((_VERSION, _RUNS))
    at = low
    for first, end in ranges:
        _put_varint(runs, first - at)
        _put_varint(runs, end - first)
        at = end
    if (at - low + 7) // 8 + 2 >= len(runs):
        return bytes(runs)
    bits = 0
    for first, end in ranges:
        bits |= ((1 << (end - first)) - 1) << (first - low)
    return bytes((_VERSION, _BITS)) + bits.to_bytes((at - low + 7) // 8, "little")


def _put_varint(into: bytearray, value: int) -> None:
    while value > 0x7F:
        into.append(value & 0x7F | 0x80)
        value >>= 7
    into.append(value)


def _ranges_of_bits(low: int, body: bytes) -> Ranges:
    ranges: list[tuple[int, int]] = []
    first = None
    for place in range(len(body) * 8 + 1):
        is_set = place < len(body) * 8 and body[place >> 3] >> (place & 7) & 1
        if is_set and first is None:
            first = place
        elif not is_set and first is not None:
            ranges.append((low + first, low + place))
            first = None
    return ranges


def _ranges_of_runs(low: int, body: bytes) -> Ranges | None:
    numbers = _varints(body)
    if numbers is None or len(numbers) % 2:
        return None
    ranges: list[tuple[int, int]] = []
    at = low
    for place in range(0, len(numbers), 2):
        first = at + numbers[place]
        at = first + numbers[place + 1]
        if first == at or at - low > _SPAN_MAX:
            return None
        ranges.append((first, at))
    return ranges


def _varints(body: Iterable[int]) -> list[int] | None:
    numbers: list[int] = []
    value, shift, open_ = 0, 0, False
    for byte in body:
        value |= (byte & 0x7F) << shift
        open_ = bool(byte & 0x80)
        shift = shift + 7 if open_ else 0
        if shift > 56:
            return None
        if not open_:
            numbers.append(value)
            value = 0
    return None if open_ else numbers
