"""How a record is printed: its value, JSON, or a format of the user."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.errors import ConfigError

JSON_FIELDS: Final = (
    "With --json each record is one object on a line: topic, partition, offset, timestamp_ms, key, value, headers (a "
    'list of pairs), of a share group delivery_count. Bytes that are not UTF-8 are {"base64": "..."}.'
)
FORMAT_FIELDS: Final = (
    r"TEXT of --format may have %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, "
    r"%K and %S their lengths in bytes (-1: none), %h headers, %%, \n, \t, \r and \\, as in kcat; "
    "of a share group also %d, which delivery it is."
)
_FIELD: Final = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}


def unescaped(text: str) -> str:
    """*text* with ``\\t``, ``\\n``, ``\\r`` and ``\\\\`` as what they stand for: shells pass them on as they are."""
    return re.sub(r"\\([ntr\\])", lambda found: _ESCAPES[found[1]].decode(), text)


def speller(*, as_json: bool, text: str | None = None) -> Callable[[Any], bytes]:
    """How records are printed, with what stands behind each of them.

    Args:
        as_json: as JSON, one a line.
        text: a format; its end is the end of a record.

    Raises:
        ConfigError: the format has unknown fields.
    """
    if as_json:
        return lambda message: spell_json(message) + b"\n"
    spell: Callable[[Any], bytes] = spell_value if text is None else formatter(text)
    end = b"\n" if text is None else b""
    if sys.stdout.isatty():
        return lambda message: for_terminal(spell(message)) + end
    return lambda message: spell(message) + end


def for_terminal(data: bytes) -> bytes:
    """The same as text; what a terminal would obey is escaped, except line breaks and tabs."""
    text = printable(data.decode("utf-8", "backslashreplace"), keep="\n\t")
    return text.encode("utf-8", "backslashreplace")


def spell_value(message: Any) -> bytes:
    """The value unchanged, or as JSON if it was deserialised; empty for a tombstone."""
    return _bytes(message.value())


def spell_json(message: Any) -> bytes:
    """The record as one JSON object. Bytes that are not UTF-8 come as ``{"base64": "..."}``."""
    kind, timestamp_ms = message.timestamp()
    delivery = getattr(message, "delivery_count", None)
    return to_json(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": timestamp_ms if kind else None,
            "key": _readable(message.key()),
            "value": _readable(message.value()),
            "headers": [[name, _readable(value)] for name, value in message.headers() or ()],
        }
        | ({} if delivery is None else {"delivery_count": delivery()})
    ).encode()


def formatter(text: str) -> Callable[[Any], bytes]:
    """A function that writes a record as *text* says.

    Raises:
        ConfigError: it has an unknown field.
    """
    parts: list[bytes | Callable[[Any], bytes]] = []
    for field, escape, plain, stray in _FIELD.findall(text):
        if field == "%" or plain:
            parts.append((plain or "%").encode())
        elif field in _FIELDS:
            parts.append(_FIELDS[field])
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            known = " ".join(f"%{name}" for name in _FIELDS)
            seen = stray or (f"%{field}" if field else f"\\{escape}")
            raise ConfigError(f"--format {text!r}: {seen!r} is no field; there are {known} %% \\n \\t \\r \\\\")
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def _time(message: Any) -> bytes:
    return b"%d" % message.timestamp()[1]


def _headers(message: Any) -> bytes:
    pairs = [
        name.encode() + b"=" + (b"NULL" if value is None else _bytes(value)) for name, value in message.headers() or ()
    ]
    return b",".join(pairs)


def _length(data: Any) -> bytes:
    return b"-1" if data is None else b"%d" % len(_bytes(data))


_FIELDS: Final[dict[str, Callable[[Any], bytes]]] = {
    "t": lambda message: message.topic().encode(),
    "p": lambda message: b"%d" % message.partition(),
    "o": lambda message: b"%d" % message.offset(),
    "T": _time,
    "k": lambda message: _bytes(message.key()),
    "K": lambda message: _length(message.key()),
    "s": lambda message: _bytes(message.value()),
    "S": lambda message: _length(message.value()),
    "h": _headers,
    "d": lambda message: b"%d" % message.delivery_count() if hasattr(message, "delivery_count") else b"",
}


def _bytes(data: Any) -> bytes:
    if data is None:
        return b""
    if isinstance(data, str):
        return data.encode()
    return bytes(data) if isinstance(data, bytes | bytearray) else msgspec.json.encode(data, enc_hook=str)


def _readable(data: Any) -> Any:
    """What JSON shows of a key, value or header."""
    if not isinstance(data, bytes):
        return data if data is None or isinstance(data, str) else msgspec.to_builtins(data, enc_hook=str)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
