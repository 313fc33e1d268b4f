"""Options by which every command finds its cluster: ``--bootstrap``, ``-X KEY=VALUE``, ``-F FILE``.

A file holds secrets, because ``ps`` shows the command line. The nearest source wins: ``-X``, then the command's other
options, such as ``--bootstrap`` and ``--group``, then ``-F``, then the environment's ``KIP848_BOOTSTRAP``, then the
file that ``KIP848_CONFIG`` names (``~/.config/kip848/client.properties``, if it is there).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from kip848_client.cli.shared.property_file import read_property_file
from kip848_client.config.assignors import OWN_ASSIGNOR_KEYS
from kip848_client.config.consumer import CLASSIC_KEYS, ONLY_OWN_KEYS, nearest_key
from kip848_client.config.java_names import JAVA_NAMES, translated
from kip848_client.config.keys import is_secret
from kip848_client.errors import ConfigError
from kip848_client.share.config import share_consumer_takes

BOOTSTRAP_VARIABLE: Final = "KIP848_BOOTSTRAP"
CONFIG_VARIABLE: Final = "KIP848_CONFIG"
_OF_APPLICATIONS: Final = frozenset(
    (
        "key.serializer value.serializer key.deserializer value.deserializer partitioner.class interceptor.classes "
        "metric.reporters max.poll.records transactional.id "
        # One process has this name in the group, and the command is another.
        "group.instance.id "
        # An application that stores offsets calls for it, and one that looks for ends expects them.
        "enable.auto.offset.store enable.partition.eof "
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
_OF_MEMBERS: Final = (
    (ONLY_OWN_KEYS - {"request.timeout.ms"})  # which librdkafka has, too, as a setting of a topic
    | CLASSIC_KEYS.keys()
    | OWN_ASSIGNOR_KEYS
    | {"group.id", "auto.offset.reset", "enable.auto.commit"}
)
"""Keys in files that only a member of a group has a use for."""
_NAMES: Final = {
    **JAVA_NAMES,
    "metadata.broker.list": "bootstrap.servers",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "retries": "message.send.max.retries",
    "acks": "request.required.acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
}
"""Other name -> librdkafka's first name."""
_HIDDEN: Final = "(hidden)"
Role: TypeAlias = Literal["client", "member", "queue", "producer"]
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


def read_properties(
    arguments: argparse.Namespace, *, role: Role = "client", options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The properties of a client, with ``bootstrap.servers``. A property has one name, whichever the user wrote.

    Args:
        role: ``member`` joins a group, ``queue`` a share group, ``producer`` writes records; what is only for one of
            them is left out of files for the others.
        options: properties that the command's own options stand for; they win over files, and ``-X`` over them.

    Raises:
        ConfigError: no broker is named; a key is misspelt; an option is not KEY=VALUE; or a file cannot be read. A line
            of a file is not shown: it may be a secret.
    """
    properties: dict[str, str] = {}
    named = os.environ.get(CONFIG_VARIABLE)
    usual = Path(named or "~/.config/kip848/client.properties").expanduser()
    if named or usual.is_file():
        properties |= _read_file(usual, CONFIG_VARIABLE if named else "the file", role)
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        properties["bootstrap.servers"] = bootstrap
    if arguments.property_file is not None:
        properties |= _read_file(arguments.property_file, "-F", role)
    if arguments.bootstrap is not None:
        properties["bootstrap.servers"] = arguments.bootstrap
    properties |= options or {}
    given = {}
    for text in arguments.properties:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-X {text!r} is not KEY=VALUE")
        given[key.strip()] = value.strip()
    properties |= _in_one_spelling(given)
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


class FileProperty(msgspec.Struct, frozen=True):
    """A property of a file, and what becomes of it.

    Args:
        means: for people; empty if it is taken as it is.
        becomes: the name under which it is taken; None if it is ignored, or becomes several.
    """

    key: str
    value: str
    means: str
    becomes: str | None = None


def explain_file(path: Path) -> list[FileProperty]:
    """What each property of a file is for a consumer, in the order of the file.

    Raises:
        ConfigError: it cannot be read.
    """
    found = read_property_file(path, source="-F", sections=("default", "consumer"))
    noted = []
    for key, value in found.items():
        if key in _OF_APPLICATIONS:
            noted.append(FileProperty(key, value, "ignored by commands"))
            continue
        try:
            taken = _in_one_spelling({key: value})
        except ConfigError:  # it needs others beside it, or is wrong, which is told where the whole file is read
            noted.append(FileProperty(key, value, "read with the others"))
            continue
        others = [name for name in taken if name != key]
        if taken == {key: value}:
            noted.append(FileProperty(key, value, "", key))
        elif len(others) == 1 and taken[others[0]] == value:
            noted.append(FileProperty(key, value, f"is {others[0]} here", others[0]))
        else:
            means = ", ".join(f"{name}={_HIDDEN if is_secret(name) else text}" for name, text in taken.items())
            noted.append(FileProperty(key, value, f"translated: {means}" if means else "has no meaning here"))
    return noted


def reach(conf: Mapping[str, str], *, timeout_s: float) -> None:
    """Ask something small: librdkafka, which some commands use, only says that no broker answers.

    Raises:
        ConfigError: a property of *conf* is wrong.
        Kip848Error: no broker answers, or one refuses; the message says why.
    """
    from kip848_client.admin import Admin  # here: a broker, and reports of files, have no client

    with Admin(conf) as admin:
        admin.list_topics((), timeout_s=timeout_s)


def _read_file(path: Path, source: str, role: Role) -> dict[str, str]:
    sections = ("default", "producer" if role == "producer" else "consumer")
    ignored = _OF_APPLICATIONS if role == "member" else _OF_APPLICATIONS | _OF_MEMBERS
    found = read_property_file(path, source=source, sections=sections)
    try:
        found = _in_one_spelling({key: value for key, value in found.items() if key not in ignored})
        return {key: value for key, value in found.items() if role != "queue" or share_consumer_takes(key)}
    except ConfigError as error:
        raise ConfigError(f"{source} {path}: {error}") from error


def _in_one_spelling(properties: Mapping[str, str]) -> dict[str, str]:
    """Java's settings and librdkafka's second names as librdkafka's first names: one source can win over another."""
    return {_NAMES.get(key, key): value for key, value in translated(properties).items()}
