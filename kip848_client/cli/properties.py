"""Options by which every command finds its cluster: ``--bootstrap``, ``-X KEY=VALUE``, ``-F FILE``.

A file holds secrets, because ``ps`` shows the command line. The nearest source wins: ``-X``, then
``--bootstrap``, then ``-F``, then the environment's ``KIP848_BOOTSTRAP``, then the file that ``KIP848_CONFIG`` names
(``~/.config/kip848/client.properties``, if it is there).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from kip848_client.config.consumer import nearest_key
from kip848_client.errors import ConfigError

BOOTSTRAP_VARIABLE: Final = "KIP848_BOOTSTRAP"
CONFIG_VARIABLE: Final = "KIP848_CONFIG"
_OF_APPLICATIONS: Final = frozenset(
    (
        "key.serializer value.serializer key.deserializer value.deserializer partitioner.class interceptor.classes "
        "metric.reporters max.poll.records partition.assignment.strategy transactional.id "
        "schema.registry.url specific.avro.reader auto.register.schemas config.providers "
        # Settings of Java's client that librdkafka does not have, or has by another name.
        "buffer.memory max.block.ms max.request.size receive.buffer.bytes send.buffer.bytes default.api.timeout.ms "
        "fetch.max.wait.ms exclude.internal.topics metadata.max.idle.ms partitioner.ignore.keys "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms auto.include.jmx.reporter "
        "metrics.num.samples metrics.sample.window.ms metrics.recording.level"
    ).split()
)
"""Keys in files of Java applications: what one does with records, and how Java's client buffers and measures.

Commands have no use for them.
"""
MISSPELT: Final = 0.9
"""How similar to a known key an unknown one is a mistake; a file may also have properties of producers."""


def add_client_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare the options. Brokers can be named as for Kafka's own tools, too."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help=f"brokers to start from; without it {BOOTSTRAP_VARIABLE}, or a properties file",
    )
    parser.add_argument(
        "-X", metavar="KEY=VALUE", action="append", default=[], dest="properties", help="a consumer property"
    )
    parser.add_argument(
        "-F", metavar="FILE", type=Path, dest="property_file", help="properties of a client, one KEY=VALUE a line"
    )


def read_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties of a client, with ``bootstrap.servers``.

    Raises:
        ConfigError: no broker is named; a key is misspelt; an option is not KEY=VALUE; or a file cannot be read. A line
            of a file is not shown: it may be a secret.
    """
    properties: dict[str, str] = {}
    named = os.environ.get(CONFIG_VARIABLE)
    usual = Path(named or "~/.config/kip848/client.properties").expanduser()
    if named or usual.is_file():
        properties |= _read_file(usual, CONFIG_VARIABLE if named else "the file")
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        properties["bootstrap.servers"] = bootstrap
    if arguments.property_file is not None:
        properties |= _read_file(arguments.property_file, "-F")
    if arguments.bootstrap is not None:
        properties["bootstrap.servers"] = arguments.bootstrap
    for text in arguments.properties:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-X {text!r} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    for key in properties:
        meant = nearest_key(key, cutoff=MISSPELT)
        if meant not in {key, None}:
            raise ConfigError(f"{key} is not a property; did you mean {meant}?")
    if not properties.get("bootstrap.servers"):
        raise ConfigError(
            f"no broker is named: give --bootstrap HOST:PORT, set {BOOTSTRAP_VARIABLE}, or write "
            f"bootstrap.servers=HOST:PORT into {usual}"
        )
    return properties


def _read_file(path: Path, source: str) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{source} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} {path}: not UTF-8 text") from error
    found = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{source} {path}, line {number}: not KEY=VALUE")
        if key.strip() not in _OF_APPLICATIONS:
            found[key.strip()] = value.strip()
    return found
