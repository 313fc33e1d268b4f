"""What every command that is a client is told of its cluster: ``--bootstrap``, ``-X KEY=VALUE``, ``-F FILE``.

A file is for what must not be seen by everybody: ``ps`` shows the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from kip848_client.errors import ConfigError


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options. Brokers can be named as for Kafka's own tools, too."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        "--bootstrap-servers",
        metavar="HOST:PORT",
        required=True,
        help="brokers to start from",
    )
    parser.add_argument(
        "-X", metavar="KEY=VALUE", action="append", default=[], dest="properties", help="a consumer property"
    )
    parser.add_argument(
        "-F", metavar="FILE", type=Path, dest="property_file", help="consumer properties, one KEY=VALUE a line"
    )


def read_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """What both options give; ``-X`` wins.

    Raises:
        ConfigError: not KEY=VALUE, or the file cannot be read. A line of the file is not shown: it may be a secret.
    """
    properties = {} if arguments.property_file is None else dict(_read_file(arguments.property_file))
    for text in arguments.properties:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-X {text!r} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def _read_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"-F {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"-F {path}: not UTF-8 text") from error
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-F {path}, line {number}: not KEY=VALUE")
        yield key.strip(), value.strip()
