"""Types of options that several commands share, for the *type* of `argparse.ArgumentParser.add_argument`."""

from __future__ import annotations

import argparse

from kip848_client.cli.shared.properties import add_client_arguments


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
