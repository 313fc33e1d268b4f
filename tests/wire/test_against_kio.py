"""Our bytes against those of kio, whose schemas are generated from Apache Kafka's own definitions.

kio has no versions of Kafka 4.4: these are compared with Kafka's definitions alone
(tests/interop/test_schemas.py).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import uuid
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from kio import index
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import ZERO_UUID, Request, WireStruct
from tests.wire.strategies import Case, Limits, all_cases, fields_on_wire, messages

_FIRST_PRIVATE_KEY = ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT
_AFTER_KIO = {(ApiKey.API_VERSIONS, 5), (ApiKey.TXN_OFFSET_COMMIT, 6), (ApiKey.DELETE_GROUPS, 3)}
_KNOWN_CASES = [
    case
    for case in all_cases()
    if case.cls.WIRE.api_key < _FIRST_PRIVATE_KEY and (case.cls.WIRE.api_key, case.version) not in _AFTER_KIO
]

_YEAR_9999_S = 253_402_300_799
_DURATIONS = ("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms")
_TIMES = tuple(
    f"{event}_timestamp{unit}"
    for event in ("issue", "expiry", "max", "last_fetch", "last_caught_up")
    for unit in ("", "_ms")
)
_KIO_HOLDS = Limits(
    integers={
        "error_code": st.sampled_from([code.value for code in ErrorCode]),
        "partition_error_code": st.sampled_from([code.value for code in ErrorCode]),
        "topic_config_error_code": st.sampled_from([code.value for code in ErrorCode]),
        # kio has datetimes and timedeltas where Kafka has milliseconds: those end earlier, and it rounds
        "log_append_time_ms": st.just(-1) | st.integers(0, _YEAR_9999_S).map(lambda seconds: seconds * 1000),
        "transaction_start_time_ms": st.integers(0, _YEAR_9999_S).map(lambda seconds: seconds * 1000),
        "retention_time_ms": st.integers(-(10**12), 10**12),
        "session_lifetime_ms": st.integers(-(10**12), 10**12),
        **dict.fromkeys(_DURATIONS, st.integers(-(10**12), 10**12)),
        **dict.fromkeys(_TIMES, st.integers(0, _YEAR_9999_S).map(lambda seconds: seconds * 1000)),
    },
    private_tags=False,
)


def kio_class(case: Case) -> type[Any]:
    load = index.load_request_schema if issubclass(case.cls, Request) else index.load_response_schema
    found: type[Any] = load(case.cls.WIRE.api_key, case.version)
    return found


def plain(value: object) -> object:
    """A value of kio as we spell it."""
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return (value - dt.datetime.fromtimestamp(0, tz=dt.UTC)) // dt.timedelta(milliseconds=1)
    return value


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Compare field by field, in wire order: the names differ (``throttle_time_ms`` is ``throttle_time`` in kio)."""
    own_fields = fields_on_wire(type(ours), version, private=False)
    kio_fields = dataclasses.fields(theirs)
    assert len(own_fields) == len(kio_fields), f"{type(ours).__name__} v{version}"
    for own, other in zip(own_fields, kio_fields, strict=True):
        _assert_same_value(getattr(ours, own.name), getattr(theirs, other.name), version, own.name)


def _assert_same_value(ours: Any, theirs: Any, version: int, name: str) -> None:
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs), name
        for mine, other in zip(ours, theirs, strict=True):
            _assert_same_value(mine, other, version, name)
    elif isinstance(ours, WireStruct):
        assert_same(ours, theirs, version)
    elif isinstance(ours, uuid.UUID):
        assert ours == (theirs or ZERO_UUID), name
    elif theirs is None and name == "log_append_time_ms":
        assert ours == -1
    else:
        assert ours == plain(theirs), name


@pytest.mark.parametrize("case", _KNOWN_CASES, ids=str)
def test_kio_reads_what_we_write_and_writes_the_same_bytes(case: Case) -> None:
    """If this fails, a broker misreads our request, or a client our answer: silently, in the worst case."""
    reader = entity_reader(kio_class(case))
    writer = entity_writer(kio_class(case))

    @settings(max_examples=max(4, settings().max_examples // 8), suppress_health_check=list(HealthCheck))
    @given(messages(case, _KIO_HOLDS))
    def check(message: Any) -> None:
        pieces: list[bytes] = []
        encode_body(message, case.version, pieces)
        body = b"".join(pieces)

        theirs, size = reader(body, 0)
        assert size == len(body)
        assert_same(message, theirs, case.version)
        written = io.BytesIO()
        writer(written, theirs)
        assert written.getvalue() == body
        assert decode_body(case.cls, case.version, body, 0) == message

    check()


def test_every_version_of_the_table_is_compared() -> None:
    """A version that slips out of the comparison could be wrong for every user of it."""
    assert len(_KNOWN_CASES) == len({str(case) for case in _KNOWN_CASES})
    assert {case.cls.WIRE.api_key for case in _KNOWN_CASES} >= {0, 1, 2, 3, 8, 9, 10, 16, 18, 22, 23, 68, 69}
