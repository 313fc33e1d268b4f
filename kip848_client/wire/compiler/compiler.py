"""Encoders and decoders of messages: compiled when first needed, kept for ever, and their failures made clear.

Owns the two caches and the mapping of low-level failures to `ProtocolError` (bad bytes) and `MessageValueError` (bad
value). Frames and headers are `codec`'s.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, cast

from kip848_client.errors import MessageValueError, ProtocolError, UnsupportedVersionError
from kip848_client.wire.compiler import primitives
from kip848_client.wire.compiler.decoder_source import DecoderSource
from kip848_client.wire.compiler.encoder_source import EncoderSource
from kip848_client.wire.schema import ApiMessage, MessageSpec

MessageT = TypeVar("MessageT", bound=ApiMessage)
Encoder = Callable[[Any, list[bytes]], None]
Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]
ELEMENTS_UNBOUNDED: Final = 2**31
"""More than fit into any frame."""

_ENCODERS: Final[dict[type, dict[int, Encoder]]] = {}
_DECODERS: Final[dict[type, dict[int, Decoder]]] = {}


def encoder_for(cls: type[ApiMessage], version: int) -> Encoder:
    """The compiled encoder of *cls* in *version*: appends pieces of bytes to a list.

    Raises:
        UnsupportedVersionError: we do not speak that version.
    """
    try:
        return _ENCODERS[cls][version]
    except KeyError:
        pass
    spec = _check_version(cls, version)
    made = EncoderSource(cls, version, spec.flexible)
    environment: dict[str, object] = {
        **made.names.globals,
        "SHORT": primitives.SHORT_UVARINTS,
        "PACK_INT32S": primitives.PACK_INT32S,
        "uvarint": primitives.encode_uvarint,
        "string_length": primitives.encode_string_length,
        "pack": struct.pack,
        "lost": lambda struct_, field: _lost(struct_, field, cls=cls, version=version),
    }
    encoder = cast("Encoder", _run(made.text, environment, "encode", cls, version))
    _ENCODERS.setdefault(cls, {})[version] = encoder
    return encoder


def decoder_for(cls: type[ApiMessage], version: int) -> Decoder:
    """The compiled decoder of *cls* in *version*: reads bytes from a position up to an end.

    Raises:
        UnsupportedVersionError: we do not speak that version.
    """
    try:
        return _DECODERS[cls][version]
    except KeyError:
        pass
    spec = _check_version(cls, version)
    made = DecoderSource(cls, version, spec.flexible)
    environment: dict[str, object] = {
        **made.names.globals,
        "UUIDS": primitives.KNOWN_UUIDS,
        "UNPACK_INT32S": primitives.UNPACK_INT32S,
        "unpack_from": struct.unpack_from,
        "uuid_of": primitives.uuid_of,
        "decode_uvarint": primitives.decode_uvarint,
        "rest_of_uvarint": primitives.rest_of_uvarint,
        "rest_of_string_length": primitives.rest_of_string_length,
        "rest_of_array_length": primitives.rest_of_array_length,
        "rest_of_tag_count": primitives.rest_of_tag_count,
        "skip_tags": primitives.skip_tags,
        "bad_length": primitives.bad_length,
        "bad_array_length": primitives.bad_array_length,
        "bad_tag_size": primitives.bad_tag_size,
        "too_long_array": primitives.too_long_array,
        "too_many_elements": primitives.too_many_elements,
    }
    decoder = cast("Decoder", _run(made.text, environment, "decode", cls, version))
    _DECODERS.setdefault(cls, {})[version] = decoder
    return decoder


def encode_body(message: ApiMessage, version: int, pieces: list[bytes]) -> None:
    """Append the bytes of *message* in *version* to *pieces*.

    Raises:
        UnsupportedVersionError: we do not speak that version, or it lacks a field that is set and may not be ignored.
        MessageValueError: a value does not fit its field.
    """
    cls = message.__class__
    try:
        encoder = _ENCODERS[cls][version]
    except KeyError:
        encoder = encoder_for(cls, version)
    try:
        encoder(message, pieces)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError, MessageValueError) as failure:
        from kip848_client.wire.compiler.explain import explain_value  # here: only a wrong value needs it

        raise explain_value(message, version) from failure


def decode_body(
    cls: type[MessageT],
    version: int,
    data: bytes,
    position: int,
    *,
    allow_trailing: bool = False,
    elements_max: int = ELEMENTS_UNBOUNDED,
) -> MessageT:
    """Read a *cls* in *version* from *data*, from *position* to its end exactly.

    Args:
        allow_trailing: ignore bytes after the last field instead of refusing them.
        elements_max: how many elements and tagged fields all its arrays and structs together may have.

    Raises:
        UnsupportedVersionError: we do not speak that version.
        ProtocolError: the bytes are not such a message, or it is larger than *elements_max*.
    """
    try:
        decoder = _DECODERS[cls][version]
    except KeyError:
        decoder = decoder_for(cls, version)
    end = len(data)
    try:
        message, position = decoder(data, position, end, elements_max)
    except (struct.error, IndexError) as failure:
        raise ProtocolError(f"{cls.__name__} v{version} of {end} bytes ends before its last field") from failure
    except UnicodeDecodeError as failure:
        raise ProtocolError(f"{cls.__name__} v{version} has a string that is not UTF-8: {failure}") from failure
    except ProtocolError as failure:
        raise ProtocolError(f"{cls.__name__} v{version} of {end} bytes: {failure}") from failure
    if position != end and not allow_trailing:
        raise ProtocolError(f"{cls.__name__} v{version} is followed by {end - position} unexpected bytes")
    made: MessageT = message
    return made


def source_of(cls: type[ApiMessage], version: int) -> tuple[str, str]:
    """The generated source of encoder and decoder, to read or to debug."""
    flexible = _check_version(cls, version).flexible
    return EncoderSource(cls, version, flexible).text, DecoderSource(cls, version, flexible).text


def _check_version(cls: type[ApiMessage], version: int) -> MessageSpec:
    spec = cls.WIRE
    if not spec.versions.includes(version):
        raise UnsupportedVersionError(f"{cls.__name__} version {version}: only {spec.versions} is spoken here")
    return spec


def _run(text: str, environment: dict[str, object], name: str, cls: type, version: int) -> object:
    """Execute generated source; tracebacks show its lines."""
    filename = f"<{name} {cls.__name__} v{version}>"
    exec(compile(text, filename, "exec"), environment)  # noqa: S102  made from our own declarations only
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return environment[name]


def _lost(struct_: object, field: str, *, cls: type, version: int) -> NoReturn:
    raise UnsupportedVersionError(
        f"{cls.__name__} version {version} cannot carry {type(struct_).__name__}.{field}={getattr(struct_, field)!r}; "
        "use a version that has the field, or leave it at its default"
    )
