"""Frames of requests and responses: header and body, without the four bytes of size in front.

Owns the header rules (which header version goes with which message, and the exceptions of ApiVersions). Bodies are
compiled from the declarations in `messages/`.

Header versions (KIP-482): a request has header v2 (v1 and a tag section) from its flexible version on; its client id
stays a classic string. A response has header v1 from there on, except ApiVersions, which always has v0, since it is
read before the versions are known.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar

import msgspec

from kip848_client.errors import ErrorCode, MessageValueError, ProtocolError, UnsupportedVersionError
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.compiler.compiler import ELEMENTS_UNBOUNDED, decode_body, encode_body
from kip848_client.wire.compiler.primitives import rest_of_tag_count, skip_tags
from kip848_client.wire.messages import message_pair
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

_REQUEST_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION)


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields before the body of a request."""

    api_key: int
    """May be a key that we do not know."""
    api_version: int
    correlation_id: int
    client_id: str | None


def frame(payload: bytes) -> bytes:
    """*payload* with its size in front, as it goes into the socket."""
    return _INT32.pack(len(payload)) + payload


def refused_size(start: bytes, *, peer: str, size_max: int) -> ProtocolError:
    """Why the four bytes *start* cannot be the size of an answer from *peer*; names the usual mix-ups."""
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        return ProtocolError(
            f"{peer} answers with a TLS record (bytes {start.hex()}): it expects TLS; "
            "set security.protocol to SSL or SASL_SSL, or use its plaintext port"
        )
    if start in (b"HTTP", b"<!DO", b"<htm"):
        return ProtocolError(f"{peer} answers with {start!r}: that is a web server, not a Kafka broker")
    size = int.from_bytes(start, "big", signed=True)
    return ProtocolError(f"{peer} claims an answer of {size} bytes; 4 to {size_max} are allowed")


def encode_request(message: Request[Any], *, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The frame of a request.

    Raises:
        UnsupportedVersionError: the version is not spoken here, or lacks a field that is set and may not be ignored.
        MessageValueError: a value does not fit its field.
    """
    spec = message.WIRE
    client = b"" if client_id is None else client_id.encode()
    try:
        pieces = [
            _REQUEST_HEADER.pack(spec.api_key, api_version, correlation_id, -1 if client_id is None else len(client)),
            client,
        ]
    except struct.error as failure:
        raise MessageValueError(
            f"request header: version {api_version}, correlation id {correlation_id} or a client id of "
            f"{len(client)} bytes does not fit its field"
        ) from failure
    if spec.flexible.first <= api_version <= spec.flexible.last:
        pieces.append(b"\0")
    encode_body(message, api_version, pieces)
    return b"".join(pieces)


def peek_request_header(data: bytes | memoryview) -> RequestHeader:
    """Read the header of a request without its body; works for keys and versions that we do not know.

    Raises:
        ProtocolError: the frame is too short for its header, or the client id is not UTF-8.
    """
    header, _ = _read_request_header(bytes(data))
    return header


def decode_request(
    data: bytes | memoryview, *, elements_max: int = ELEMENTS_UNBOUNDED
) -> tuple[RequestHeader, Request[Any]]:
    """Read a whole request.

    Args:
        elements_max: how many elements and tagged fields all its arrays and structs together may have.

    Raises:
        UnsupportedVersionError: a key or version that we do not speak (`peek_request_header` still reads the header).
        ProtocolError: the bytes are not what their header says, or there are more than *elements_max*.
    """
    data = bytes(data)
    header, position = _read_request_header(data)
    cls = _request_class(header.api_key)
    spec = cls.WIRE
    version = header.api_version
    if spec.flexible.first <= version <= spec.flexible.last and spec.versions.first <= version <= spec.versions.last:
        position = _skip_header_tags(data, position)
    # Apache Kafka does not look behind the last field, and librdkafka's request for all topics (Metadata 9 and later
    # with a null list) has three bytes there.
    return header, decode_body(cls, version, data, position, allow_trailing=True, elements_max=elements_max)


def encode_response(message: Response, *, api_version: int, correlation_id: int) -> bytes:
    """The frame of a response to a request of *api_version*.

    An ApiVersions request of a version above ours is answered in version 0, as KIP-511 says.

    Raises:
        UnsupportedVersionError: the version is not spoken here, or lacks a field that is set and may not be ignored.
        MessageValueError: a value does not fit its field.
    """
    spec = message.WIRE
    try:
        header = _INT32.pack(correlation_id)
    except struct.error as failure:
        raise MessageValueError(f"response header: correlation id {correlation_id} is not an int32") from failure
    if spec.api_key == _API_VERSIONS:
        if api_version > spec.versions.last:
            api_version = 0
    elif spec.flexible.first <= api_version <= spec.flexible.last:
        header += b"\0"
    pieces = [header]
    encode_body(message, api_version, pieces)
    return b"".join(pieces)


def peek_correlation_id(data: bytes | memoryview) -> int:
    """Which request a response answers.

    Raises:
        ProtocolError: fewer than four bytes.
    """
    try:
        value: int = _INT32.unpack_from(data, 0)[0]
    except struct.error as failure:
        raise ProtocolError(f"a response of {len(data)} bytes has no correlation id") from failure
    return value


def decode_response(
    api_key: int, data: bytes | memoryview, *, api_version: int, allow_trailing: bool = False
) -> tuple[int, Response]:
    """Read the answer to a request of *api_key* and *api_version*: (correlation id, message).

    Args:
        allow_trailing: ignore bytes after the last field instead of refusing them.

    Raises:
        UnsupportedVersionError: a key or version that we do not speak.
        ProtocolError: the bytes are not such a response.
    """
    data = bytes(data)
    correlation_id = peek_correlation_id(data)
    try:
        cls = message_pair(api_key).response
    except KeyError:
        raise UnsupportedVersionError(f"API key {api_key} is not spoken here") from None
    if api_key == _API_VERSIONS:
        return correlation_id, _decode_api_versions(cls, data, api_version)
    position = 4
    spec = cls.WIRE
    if spec.flexible.first <= api_version <= spec.flexible.last:
        position = _skip_header_tags(data, position)
    return correlation_id, decode_body(cls, api_version, data, position, allow_trailing=allow_trailing)


def _decode_api_versions(cls: type[ResponseT], data: bytes, api_version: int) -> ResponseT:
    """UNSUPPORTED_VERSION comes in the layout of version 0, whichever version was sent (KIP-511)."""
    if api_version > 0 and data[4:6] == _INT16.pack(_UNSUPPORTED_VERSION):
        try:
            return decode_body(cls, 0, data, 4)
        except ProtocolError:
            pass  # some peers do use the version that was asked
        try:
            return decode_body(cls, api_version, data, 4)
        except ProtocolError:
            # ... and librdkafka's mock cluster mixes both; the code is all that is needed to ask again in version 0.
            return cls(error_code=_UNSUPPORTED_VERSION)
    return decode_body(cls, api_version, data, 4)


def _request_class(api_key: int) -> type[Request[Any]]:
    try:
        return message_pair(api_key).request
    except KeyError:
        raise UnsupportedVersionError(f"API key {api_key} is not spoken here") from None


def _read_request_header(data: bytes) -> tuple[RequestHeader, int]:
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(data, 0)
    except struct.error as failure:
        raise ProtocolError(f"a request of {len(data)} bytes is too short for its header") from failure
    stop = 10 + length
    if length < -1 or stop > len(data):
        raise ProtocolError(f"request header: a client id of {length} bytes in a request of {len(data)} bytes")
    if length == -1:
        return RequestHeader(api_key, api_version, correlation_id, None), 10
    try:
        client_id = data[10:stop].decode()
    except UnicodeDecodeError as failure:
        raise ProtocolError(f"request header: the client id is not UTF-8: {failure}") from failure
    return RequestHeader(api_key, api_version, correlation_id, client_id), stop


def _skip_header_tags(data: bytes, position: int) -> int:
    try:
        count = data[position]
        position += 1
        if count > 127:
            count, position = rest_of_tag_count(data, position, count)
        return skip_tags(data, position, len(data), count) if count else position
    except IndexError as failure:
        raise ProtocolError(f"a frame of {len(data)} bytes ends inside its header") from failure
