"""Options that several commands share, most of them for the *type* of `argparse.ArgumentParser.add_argument`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

from kip848_client.cli.shared.properties import add_client_arguments
from kip848_client.errors import ConfigError

_COUNT: Final = re.compile(r"[0-9]{1,9}")


def request_timeout(text: str) -> float:
    """Read the SECONDS of ``--timeout``.

    Raises:
        argparse.ArgumentTypeError: not a number above 0 and up to 3600.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, up to 3600")
    return seconds


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--timeout`` and ``--json`` of a command that asks a cluster something, and how to reach it."""
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=request_timeout, default=10.0, help="for each request (10)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_client_arguments(parser)


def key_value(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``, both without the spaces around them. The value may be empty.

    Raises:
        argparse.ArgumentTypeError: no ``=``, or no key before it.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--topic`` and ``--set`` of a command that starts an embedded broker."""
    parser.add_argument(
        "--topic", metavar="NAME:PARTITIONS", action="append", default=[], help="create a topic; may be repeated"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        type=key_value,
        action="append",
        default=[],
        dest="properties",
        help="a Kafka broker property of the embedded broker",
    )


def parse_topics(texts: Sequence[str], *, option: str = "--topic", partitions: int = 1) -> dict[str, int]:
    """Read ``NAME:PARTITIONS`` of each; ``NAME`` alone has *partitions*.

    Args:
        option: name of the argument in errors.

    Raises:
        ConfigError: not a number of partitions, or a name that comes twice.
    """
    topics: dict[str, int] = {}
    for text in texts:
        name, colon, count = text.partition(":")
        if colon and not (_COUNT.fullmatch(count) and int(count) > 0):
            raise ConfigError(f"{option} {text!r} is not NAME:PARTITIONS")
        if name in topics:
            raise ConfigError(f"{option} {name!r} is given twice")
        topics[name] = int(count) if colon else partitions
    return topics
