"""``--topic NAME[:0,1]``: the partitions that an option names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kip848_client.errors import ConfigError


def topics_and_partitions(texts: Iterable[str]) -> Iterator[str | tuple[str, int]]:
    """Read NAME, which stands for all partitions of a topic, or NAME:0,1,2.

    Raises:
        ConfigError: it is neither.
    """
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            yield name
            continue
        try:
            yield from [(name, int(number)) for number in numbers.split(",")]
        except ValueError as error:
            raise ConfigError(f"--topic {text!r} is not NAME or NAME:0,1,2") from error
