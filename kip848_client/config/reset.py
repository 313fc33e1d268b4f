"""``auto.offset.reset``: a word, or how far back (KIP-1106)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kip848_client.config.reader import ConfigReader

RESET_WORDS: Final[Mapping[str, str]] = {
    "earliest": "earliest",
    "beginning": "earliest",
    "smallest": "earliest",
    "latest": "latest",
    "end": "latest",
    "largest": "latest",
    "none": "none",
    "error": "none",
}
"""The words, librdkafka's other spellings among them."""

_PREFIX: Final = "by_duration:"
_ISO_8601: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?", re.IGNORECASE | re.ASCII
)
_LONGEST_MS: Final = 100 * 366 * 86_400_000


def read_reset(reader: ConfigReader, key: str, *, default: str) -> str:
    """The word that Kafka uses, or ``by_duration:`` with the duration as it was given."""
    value = reader.conf.get(key)
    if value is None:
        return default
    text = str(value).strip()
    word = RESET_WORDS.get(text.lower())
    if word is not None:
        return word
    if text.lower().startswith(_PREFIX):
        if duration_ms(text) is not None:
            return text
        return reader.refuse(
            f"{key}={text} has no duration as ISO 8601 writes it, of at most 100 years: by_duration:PT1H is an hour, "
            "P7D seven days, PT0.5S half a second",
            default,
        )
    words = ", ".join(RESET_WORDS)
    return reader.refuse(f"{key} must be one of {words}, or by_duration:PT1H; got {reader.show(key, value)}", default)


def duration_ms(reset: str) -> int | None:
    """The duration of ``by_duration:PT1H``; None if *reset* is none, or not valid."""
    if not reset.lower().startswith(_PREFIX):
        return None
    matched = _ISO_8601.fullmatch(reset[len(_PREFIX) :].strip())
    if matched is None or not any(matched.groups()):
        return None
    days, hours, minutes, seconds = (int(matched[index] or 0) for index in (1, 2, 3, 4))
    fraction_ms = int((matched[5] or "").ljust(9, "0")[:3])
    total_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + fraction_ms
    return total_ms if total_ms <= _LONGEST_MS else None
