"""Any bytes give a message, ProtocolError or UnsupportedVersionError: never another exception, never much memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from kip848_client.errors import ProtocolError, UnsupportedVersionError
from kip848_client.wire.codec import decode_request, decode_response
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.messages.group_records import decode_record
from kip848_client.wire.record_batch import Record, batches_of, build_batch, records_of
from tests.wire.strategies import Case, all_cases, messages

_CASES = [case for case in all_cases() if case.version == case.cls.WIRE.versions.last or case.version == 2]


def encoded(case: Case, message: Any) -> bytes:
    pieces: list[bytes] = []
    encode_body(message, case.version, pieces)
    return b"".join(pieces)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_a_damaged_body_is_read_or_refused(case: Case) -> None:
    """A peer with a bug, or an attacker, may cost a connection but never the process."""

    @settings(max_examples=max(10, settings().max_examples // 3), suppress_health_check=list(HealthCheck))
    @given(messages(case), st.data())
    def check(message: Any, data: st.DataObject) -> None:
        body = bytearray(encoded(case, message))
        for _ in range(data.draw(st.integers(1, 3))):
            position = data.draw(st.integers(0, max(len(body) - 1, 0)))
            match data.draw(st.sampled_from(["flip", "cut", "insert", "ones"])):
                case "flip" if body:
                    body[position] ^= 1 << data.draw(st.integers(0, 7))
                case "cut":
                    del body[position:]
                case "insert":
                    body[position:position] = data.draw(st.binary(min_size=1, max_size=6))
                case _:
                    body[position : position + 5] = b"\xff\xff\xff\xff\x0f"
        with contextlib.suppress(ProtocolError):
            read = decode_body(case.cls, case.version, bytes(body), 0)
            again = decode_body(case.cls, case.version, encoded(case, read), 0)
            assert repr(again) == repr(read)  # a number that is none differs from itself

    check()


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_every_truncation_is_refused(case: Case) -> None:
    """A message cut off at any byte must never be taken for a shorter one."""

    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    @given(messages(case))
    def check(message: Any) -> None:
        body = encoded(case, message)
        for end in range(0, len(body), 1 + len(body) // 200):
            with pytest.raises(ProtocolError):
                decode_body(case.cls, case.version, body[:end], 0)

    check()


@given(st.binary(max_size=200))
def test_random_bytes_are_no_request_or_are_refused(data: bytes) -> None:
    """Port scanners and browsers connect to brokers too."""
    with contextlib.suppress(ProtocolError, UnsupportedVersionError):
        decode_request(data)


@given(st.sampled_from(_CASES), st.binary(max_size=200))
def test_random_bytes_with_a_valid_header_are_read_or_refused(case: Case, body: bytes) -> None:
    """A damaged body behind a valid header must end in a ProtocolError, and never in a crash."""
    key, version = case.cls.WIRE.api_key, case.version
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
    with contextlib.suppress(ProtocolError):
        decode_request(header + body)
    with contextlib.suppress(ProtocolError):
        decode_response(key, body, api_version=version)


@given(st.binary(max_size=100), st.none() | st.binary(max_size=100), st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 16]))
def test_random_group_records_are_read_or_refused(key: bytes, value: bytes | None, record_type: int) -> None:
    """A damaged log must be reported, not crash the coordinator that loads it."""
    with contextlib.suppress(ProtocolError, UnsupportedVersionError):
        decode_record(record_type.to_bytes(2, "big") + key, value)


_BATCH = build_batch([Record(b"value", b"key", (("header", b"content"),), 1000), Record(b"x" * 200, None, (), 1001)])


@given(
    st.lists(st.tuples(st.integers(0, len(_BATCH) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(_BATCH))
)
def test_damaged_batches_are_read_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    """Producers send batches as bytes; the log steps over them without decoding."""
    data = bytearray(_BATCH)
    for position, value in changes:
        data[position] = value
    del data[cut + 1 :]
    with contextlib.suppress(ProtocolError):
        for position, _ in batches_of(data):
            records_of(data, position)
    with contextlib.suppress(ProtocolError):
        list(batches_of(data, allow_partial=True, check_crc=True))


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x08", b"\xff\xff\x7f"])
def test_a_claimed_length_costs_no_memory(count: bytes) -> None:
    """kio's reader allocates 34 GB for five such bytes; ours looks at what is left first."""
    body = count + b"\0" * 1000
    tracemalloc.start()
    try:
        for case in _CASES:
            for offset in range(0, 24, 3):
                with contextlib.suppress(ProtocolError):
                    decode_body(case.cls, case.version, b"\0" * offset + body, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
