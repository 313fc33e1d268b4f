"""Our codec against the bytes of a real broker (tests/interop/record_golden.py recorded them)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import msgspec
import pytest

from kip848_client.wire.codec import decode_request, decode_response, encode_request, encode_response
from kip848_client.wire.schema import WireStruct

RECORDINGS = Path(__file__).parent / "wire"
REQUESTS = sorted(path.stem for path in RECORDINGS.glob("*_request.hex"))
RESPONSES = sorted(path.stem for path in RECORDINGS.glob("*_response.hex"))


def test_there_are_recordings_of_every_group_api() -> None:
    """An empty folder would let every other test here pass."""
    apis = {recording(name).api for name in REQUESTS}

    assert apis >= {
        "api_versions",
        "metadata",
        "find_coordinator",
        "consumer_group_heartbeat",
        "consumer_group_describe",
        "offset_commit",
        "offset_fetch",
        "list_offsets",
        "fetch",
        "produce",
    }


@pytest.mark.parametrize("name", REQUESTS)
def test_a_recorded_request_is_read_and_written_back_byte_for_byte(name: str) -> None:
    """A broker of ours that misreads a field serves real clients wrongly; a client that miswrites it is refused."""
    said = recording(name)

    header, message = decode_request(said.frame)
    written = encode_request(
        message, api_version=header.api_version, correlation_id=header.correlation_id, client_id=header.client_id
    )

    assert (header.api_key, header.api_version) == (said.api_key, said.version)
    assert (header.correlation_id, header.client_id) == (said.correlation_id, said.client_id)
    assert_says(message, said.fields)
    assert written.hex() == said.frame.hex()


@pytest.mark.parametrize("name", RESPONSES)
def test_a_recorded_response_is_read_and_written_back_byte_for_byte(name: str) -> None:
    """A client that misreads an assignment consumes what belongs to another member."""
    said = recording(name)

    correlation_id, message = decode_response(said.api_key, said.frame, api_version=said.version)
    written = encode_response(message, api_version=said.version, correlation_id=correlation_id)

    assert correlation_id == said.correlation_id
    assert_says(message, said.fields)
    assert written.hex() == said.frame.hex()


def test_an_unsupported_version_is_answered_in_the_layout_of_version_0() -> None:
    """A client that asks in a newer version must still learn which versions there are (KIP-511)."""
    said = recording("api_versions_v0_unsupported_version_response")

    _, message = decode_response(18, said.frame, api_version=4)

    assert_says(message, said.fields)


class Recording(msgspec.Struct, frozen=True):
    """One frame and what kio read in it."""

    frame: bytes
    api: str
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    fields: object


def recording(name: str) -> Recording:
    said = json.loads((RECORDINGS / f"{name}.json").read_text())
    return Recording(
        frame=bytes.fromhex((RECORDINGS / f"{name}.hex").read_text()),
        api=said["api"],
        api_key=said["api_key"],
        version=said["version"],
        correlation_id=said["correlation_id"],
        client_id=said["client_id"],
        fields=said["fields"],
    )


def assert_says(message: object, fields: object) -> None:
    """Every recorded field has its value in *message*; fields of other versions do not matter."""
    assert spelled(message, like=fields) == fields


def spelled(value: object, *, like: object) -> object:
    """A message in the spelling of the recordings, reduced to the fields that *like* has."""
    match value:
        case uuid.UUID():
            return str(value) if value.int else None
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case tuple() | list():
            assert isinstance(like, list)
            return [spelled(item, like=wanted) for item, wanted in zip(value, like, strict=True)]
        case WireStruct():
            assert isinstance(like, dict)
            return {name: spelled(getattr(value, name), like=wanted) for name, wanted in like.items()}
        case int() if not isinstance(value, bool):
            return int(value)
        case _:
            return value
