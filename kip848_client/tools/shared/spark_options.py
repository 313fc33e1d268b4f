"""``--master`` and ``--conf`` of the commands that run on Spark. Starts no session."""

from __future__ import annotations

import argparse
import os

from kip848_client.cli.shared.properties import add_client_arguments
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


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``kip848 report --spark``, which runs `spark.commands.report_spark`."""
    group = parser.add_argument_group("on Spark (pip install 'kip848_client[spark]')")
    group.add_argument(
        "--spark",
        action="store_true",
        help="count on Spark; FILE may be a folder, a pattern or an address",
    )
    group.add_argument("--out", metavar="FOLDER", help="with --spark: write the tables there, as Parquet")
    add_session_arguments(group, prefix="with --spark: ")
    cluster = parser.add_argument_group("of a cluster, in place of FILE; a large one with --spark and --out")
    add_client_arguments(cluster)


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
