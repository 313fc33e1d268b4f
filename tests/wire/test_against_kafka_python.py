"""Our bytes against those of kafka-python's protocol classes, for the APIs that it has."""

from __future__ import annotations

import uuid
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from kip848_client.wire.compiler import decode_body, encode_body
from kip848_client.wire.messages.api_versions import ApiVersionsResponse
from kip848_client.wire.schema import ZERO_UUID, WireStruct
from tests.wire.kafka_python import CLASSES
from tests.wire.strategies import Case, Limits, all_cases, fields_on_wire, messages


def _has(case: Case) -> bool:
    theirs = CLASSES.get(case.cls.__name__)
    return theirs is not None and case.version <= theirs.max_version


_CASES = [case for case in all_cases() if _has(case)]


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    for field in fields_on_wire(type(ours), version):
        if field.name not in theirs.fields or field.name == "authorized_operations":
            assert field.name.endswith("authorized_operations")
            bits = theirs.authorized_operations  # there a set of bits, and None for "not asked"
            unsigned = sum(1 << bit for bit in ({31} if bits is None else bits))
            assert getattr(ours, field.name) & 0xFFFFFFFF == unsigned
        else:
            _assert_same_value(getattr(ours, field.name), getattr(theirs, field.name), version, field.name)


def _assert_same_value(ours: Any, theirs: Any, version: int, name: str) -> None:
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs), name
        for mine, other in zip(ours, theirs, strict=True):
            _assert_same_value(mine, other, version, name)
    elif theirs is None and isinstance(ours, WireStruct):
        assert ours == type(ours)(), name  # there, a tagged struct that is not on the wire is None
    elif isinstance(ours, WireStruct):
        assert_same(ours, theirs, version)
    elif isinstance(ours, uuid.UUID):
        assert ours == (theirs or ZERO_UUID), name  # there, no id is None
    else:
        assert ours == theirs, name


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_kafka_python_reads_what_we_write_and_writes_the_same_bytes(case: Case) -> None:
    """If this fails, programs on kafka-python and ours do not understand each other in this version."""
    theirs = CLASSES[case.cls.__name__]

    # It reads any ApiVersions answer with an error in the layout of version 0.
    integers = {"error_code": st.just(0)} if case.cls is ApiVersionsResponse and case.version else {}

    @settings(max_examples=max(4, settings().max_examples // 8), suppress_health_check=list(HealthCheck))
    @given(messages(case, Limits(integers=integers, private_tags=False)))
    def check(message: Any) -> None:
        pieces: list[bytes] = []
        encode_body(message, case.version, pieces)
        body = b"".join(pieces)

        read = theirs.decode(body, version=case.version)
        assert_same(message, read, case.version)
        read._header = None  # its decoder leaves the slot empty and its encoder looks at it
        written = bytes(read.encode(version=case.version))
        assert written == body
        assert decode_body(case.cls, case.version, written, 0) == message

    check()


def test_most_apis_are_compared() -> None:
    """An empty comparison proves nothing."""
    assert len({case.cls for case in _CASES}) >= 50
