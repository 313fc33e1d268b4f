"""``kip848 topics``: create, list, describe, change and delete topics.

::

    kip848 topics create orders:6 payments --config cleanup.policy=compact --bootstrap 127.0.0.1:9092
    kip848 topics list --bootstrap 127.0.0.1:9092
    kip848 topics describe orders --bootstrap 127.0.0.1:9092
    kip848 topics alter orders --partitions 12 --config retention.ms=60000 --bootstrap 127.0.0.1:9092
    kip848 topics delete payments --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kip848_client.admin import Admin
from kip848_client.admin.results import raise_all
from kip848_client.admin.topics import At
from kip848_client.cli.shared.options import add_question_arguments, key_value, parse_topics
from kip848_client.cli.shared.properties import reach, read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.model import INTERNAL_TOPICS, NamedPartition
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    ErrorCode,
    Kip848Error,
    RequestTimeoutError,
    error_for_code,
)
from kip848_client.tools.shared.admin_client import admin_client, asked

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ALL_BROKERS_REPLICAS: Final = -1
"""The brokers' own default of replicas."""
_DYNAMIC_TOPIC_CONFIG: Final = 1
_EDGES: Final[tuple[At, At]] = ("earliest", "latest")


class PartitionDescription(msgspec.Struct, frozen=True):
    """One partition. Offsets are None if its leader did not answer.

    Args:
        start: offset of the first record that can be read.
        end: offset that the next record gets.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None
    end: int | None


class TopicDetails(msgspec.Struct, frozen=True):
    """One topic; `configs` holds the settings of the topic itself."""

    topic: str
    configs: dict[str, str]
    partitions: tuple[PartitionDescription, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("list", "every topic, with its partitions"),
        ("create", "create topics"),
        ("describe", "partitions, leaders, offsets and configuration of topics"),
        ("alter", "add partitions to a topic, or change its configuration"),
        ("delete", "delete topics with their records"),
    ):
        action = actions.add_parser(name, help=help_text)
        if name == "create":
            action.add_argument("topics", metavar="NAME[:PARTITIONS]", nargs="+")
            action.add_argument(
                "--partitions", metavar="N", type=int, default=1, help="of topics without a number of their own (1)"
            )
            action.add_argument(
                "--replicas",
                "--replication-factor",
                metavar="N",
                type=int,
                default=ALL_BROKERS_REPLICAS,
                help="of each partition (the brokers' default)",
            )
            action.add_argument(
                "--config",
                metavar="KEY=VALUE",
                type=key_value,
                action="append",
                default=[],
                help="a topic configuration",
            )
        elif name == "alter":
            action.add_argument("topic", metavar="NAME")
            action.add_argument("--partitions", metavar="N", type=int, help="how many it is to have, more than now")
            action.add_argument(
                "--config", metavar="KEY=VALUE", type=key_value, action="append", default=[], help="set this"
            )
            action.add_argument(
                "--unset", metavar="KEY", action="append", default=[], help="back to the default of the brokers"
            )
        elif name != "list":
            action.add_argument("topics", metavar="NAME", nargs="+")
        add_question_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        ConfigError: an option is out of range, or a property is refused.
        Kip848Error: no broker answers, or one refuses.
    """
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "create": _create,
        "describe": _describe,
        "alter": _alter,
        "delete": _delete,
    }
    reach(read_properties(arguments), timeout_s=arguments.timeout)
    try:
        return actions[arguments.action](arguments)
    except (ConnectionLostError, RequestTimeoutError) as error:  # librdkafka's text has no address
        servers = read_properties(arguments)["bootstrap.servers"]
        raise type(error)(f"{error}; no answer from {servers}: check that a broker listens there") from error


def _list(arguments: argparse.Namespace) -> int:
    admin = admin_client(arguments)
    found = asked("the list of topics", lambda: admin.list_topics(timeout=arguments.timeout)).topics
    counts = {name: len(found[name].partitions) for name in sorted(found) if name not in INTERNAL_TOPICS}
    if arguments.json:
        print(to_json({"topics": [{"topic": name, "partitions": count} for name, count in counts.items()]}))
    else:
        print(
            table(("TOPIC", "PARTITIONS"), [(n, str(count)) for n, count in counts.items()]) if counts else "no topics"
        )
    return 0


def _create(arguments: argparse.Namespace) -> int:
    from confluent_kafka.cimpl import NewTopic

    configs = dict(arguments.config)
    topics = [
        NewTopic(name, num_partitions=count, replication_factor=arguments.replicas, config=configs)
        for name, count in parse_topics(arguments.topics, option="topic", partitions=arguments.partitions).items()
    ]
    admin = admin_client(arguments)
    futures = admin.create_topics(topics, request_timeout=arguments.timeout)
    return _do_each("created", "was not created", futures, as_json=arguments.json)


def _alter(arguments: argparse.Namespace) -> int:
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.cimpl import NewPartitions

    if arguments.partitions is None and not arguments.config and not arguments.unset:
        raise ConfigError("nothing to change: give --partitions, --config or --unset")
    admin, name, timeout_s = admin_client(arguments), arguments.topic, arguments.timeout
    done = []
    if arguments.config or arguments.unset:
        entries = [
            *(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in arguments.config),
            *(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in arguments.unset),
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        (future,) = admin.incremental_alter_configs([resource], request_timeout=timeout_s).values()
        asked(f"the configuration of topic {name!r} was not changed", future.result)
        done += [f"{key}={value}" for key, value in arguments.config] + [f"{key} unset" for key in arguments.unset]
    if arguments.partitions is not None:
        (future,) = admin.create_partitions(
            [NewPartitions(name, arguments.partitions)], request_timeout=timeout_s
        ).values()
        asked(f"topic {name!r} has no more partitions than before", future.result)
        done.append(counted(arguments.partitions, "partition"))
    print(to_json({"altered": name, "changes": done}) if arguments.json else f"{printable(name)}: {', '.join(done)}")
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    admin = admin_client(arguments)
    futures = admin.delete_topics(arguments.topics, request_timeout=arguments.timeout)
    return _do_each("deleted", "was not deleted", futures, as_json=arguments.json)


def _do_each(done: str, failed: str, futures: dict[str, Any], *, as_json: bool) -> int:
    """Wait for each topic, and print the finished ones before the refusals of the others are raised."""
    finished: list[str] = []
    refused: list[Kip848Error] = []
    for name, future in futures.items():
        try:
            asked(f"topic {name!r} {failed}", future.result)
        except Kip848Error as error:
            refused.append(error)
        else:
            finished.append(name)
    if as_json:
        print(to_json({done: finished}))
    else:
        print("".join(f"{done} {printable(name)}\n" for name in finished), end="")
    raise_all(refused)
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    admin = admin_client(arguments)
    described: list[TopicDetails] = []
    refused: list[Kip848Error] = []
    for name in arguments.topics:
        try:
            described.append(_description(admin, name, arguments))
        except BrokerError as error:
            refused.append(error)
    if arguments.json:
        print(to_json({"topics": described}))
        raise_all(refused)
        return 0
    blocks = []
    for topic in described:
        rows = [
            (
                str(item.partition),
                str(item.leader),
                ",".join(map(str, item.replicas)),
                "-" if item.start is None else f"{item.start:,}",
                "-" if item.end is None else f"{item.end:,}",
            )
            for item in topic.partitions
        ]
        configs = "".join(f"\n  {printable(f'{name}={value}')}" for name, value in sorted(topic.configs.items()))
        shown = table(("PARTITION", "LEADER", "REPLICAS", "START", "END"), rows)
        blocks.append(f"topic {printable(topic.topic)}{configs}\n\n{shown}")
    if blocks:
        print("\n\n".join(blocks))
    raise_all(refused)
    return 0


def _description(admin: AdminClient, name: str, arguments: argparse.Namespace) -> TopicDetails:
    from confluent_kafka.admin._config import ConfigResource

    timeout_s = arguments.timeout
    partitions = _partitions_of(admin, name, timeout_s=timeout_s)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (future,) = admin.describe_configs([resource], request_timeout=timeout_s).values()
    configs = asked(f"the configuration of topic {name!r}", future.result)
    starts, ends = _edges(arguments, name, sorted(partitions))
    return TopicDetails(
        topic=name,
        configs={key: entry.value for key, entry in configs.items() if entry.source == _DYNAMIC_TOPIC_CONFIG},
        partitions=tuple(
            PartitionDescription(
                partition=number,
                leader=found.leader,
                replicas=tuple(found.replicas),
                in_sync=tuple(found.isrs),
                start=starts.get(number),
                end=ends.get(number),
            )
            for number, found in sorted(partitions.items())
        ),
    )


def _partitions_of(admin: AdminClient, name: str, *, timeout_s: float) -> dict[int, Any]:
    found = asked(f"topic {name!r}", lambda: admin.list_topics(timeout=timeout_s)).topics.get(name)
    if found is None:
        raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    partitions: dict[int, Any] = found.partitions
    return partitions


def _edges(
    arguments: argparse.Namespace,
    name: str,
    numbers: Sequence[int],
) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the next offset of each partition; without those whose leaders do not answer."""
    partitions = [NamedPartition(name, number) for number in numbers]
    with Admin(read_properties(arguments)) as admin:
        found = [admin.list_offsets(partitions, at, timeout_s=arguments.timeout) for at in _EDGES]
    starts, ends = ({one.partition: offset for one, offset in of.values.items() if offset is not None} for of in found)
    return starts, ends
