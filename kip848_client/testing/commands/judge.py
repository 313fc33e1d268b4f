"""``kip848 judge``: whether a broker, or a client, keeps the rules of KIP-848.

::

    kip848 judge broker --bootstrap 127.0.0.1:9092
    kip848 judge client --topic orders:6 --scenario all -- ./my-client --bootstrap {bootstrap}
"""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Any, Final

from kip848_client.cli.shared.parser import declare_when_given

_ACTIONS: Final = {
    "broker": "hold conversations with a broker, and say rule by rule whether it answers as Apache Kafka does",
    "client": "run a client against a judged broker, and name the first rule of a member that it breaks",
}
"""Action -> its line in the help. Each is the module `command` in its folder of `kip848_client.testing.judge`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions; their options are declared when they are given."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in _ACTIONS.items():
        action = actions.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        declare_when_given(action, functools.partial(_declare, name))


def run(arguments: argparse.Namespace) -> int:
    """Judge, and print what was found; the exit status."""
    return int(_module(arguments.action).run(arguments))


def _declare(name: str, action: argparse.ArgumentParser) -> None:
    _module(name).add_arguments(action)


def _module(name: str) -> Any:
    return importlib.import_module(f"kip848_client.testing.judge.{name}.command")
