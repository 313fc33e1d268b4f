"""``--master`` and ``--conf`` of the commands that run on Spark. Starts no session."""

from __future__ import annotations

import argparse
import os

from kip848_client.errors import ConfigError


def add_session_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, prefix: str = "") -> None:
    """Declare the options; *prefix* begins their help."""
    parser.add_argument("--master", metavar="URL", help=f"{prefix}the Spark master (all cores of this machine)")
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"{prefix}a property of Spark, such as spark.driver.memory=4g; may be repeated",
    )


def read_conf(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties of ``--conf``.

    Raises:
        ConfigError: not NAME=VALUE, or not a property of Spark.
    """
    conf = {}
    for text in arguments.conf:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().startswith("spark."):
            raise ConfigError(f"--conf {text!r}: expected NAME=VALUE with a name that begins with spark.")
        conf[name.strip()] = value.strip()
    return conf


def read_master(arguments: argparse.Namespace) -> str:
    """The value of ``--master``; without it all cores of this machine."""
    master: str | None = arguments.master
    return master or f"local[{os.cpu_count() or 1}]"
