"""Types of options that several commands share, for the *type* of `argparse.ArgumentParser.add_argument`."""

from __future__ import annotations

import argparse


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


def key_value(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``, both without the spaces around them. The value may be empty.

    Raises:
        argparse.ArgumentTypeError: no ``=``, or no key before it.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()
