"""confluent-kafka's AdminClient for commands, with the properties and errors of the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kip848_client.cli.shared.properties import Role, read_properties
from kip848_client.config import ConfigValue
from kip848_client.config.security import for_librdkafka
from kip848_client.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def client_conf(
    arguments: argparse.Namespace, *, role: Role = "client", options: Mapping[str, str] | None = None
) -> dict[str, ConfigValue]:
    """What a client of librdkafka without a group is made with; what `read_properties` returns wins over the defaults.

    Raises:
        ConfigError: a property without ``=``, a file that cannot be read, or a security key that is refused.
        ConnectionLostError, AuthenticationError: there is no token to log in with.
    """
    conf: dict[str, ConfigValue] = {
        "client.id": f"kip848-{arguments.command}",
        "log_level": "2",  # librdkafka would repeat each refused connection twenty times a second
        **read_properties(arguments, role=role, options=options),
    }
    return for_librdkafka(conf)


def admin_client(arguments: argparse.Namespace) -> AdminClient:
    """confluent-kafka's administrator, for what `kip848_client.Admin` does not ask.

    Raises:
        ConfigError: a property is refused.
    """
    from confluent_kafka import KafkaException  # here, so that the options can be listed without loading librdkafka
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient({**client_conf(arguments)})  # type: ignore[dict-item]  # its stubs know no callbacks
    except KafkaException as error:
        raise ConfigError(f"{error.args[0].str()}") from error


def asked(what: str, question: Callable[[], Any]) -> Any:
    """The answer to a question to *admin_client*.

    Raises:
        Kip848Error: it was refused, or not answered; the message begins with *what*.
    """
    from kip848_client.consumer.records.data_plane import KafkaException, translate

    try:
        return question()
    except KafkaException as error:
        raise translate(error, what=what) from error
