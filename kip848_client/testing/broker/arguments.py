"""Checks of the arguments of `EmbeddedBroker`, and the values that it makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kip848_client.common.typed import whole_number
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.testing.broker.cluster.nodes import Listener
from kip848_client.testing.broker.config import BrokerConfig, Profile
from kip848_client.testing.broker.net.listener_security import BrokerSasl, BrokerTls

NODES_MAX: Final = 100


def settings_of(
    config: Mapping[str, object] | None, *, profile: Profile, acls: bool, connect_groups: bool
) -> BrokerConfig:
    """The settings of a broker; *acls* and *connect_groups* stand for a property each.

    Raises:
        ConfigError: a property is wrong, or ACLs would refuse every client.
    """
    properties = dict(config or {})
    if acls:
        properties.setdefault("authorizer.class.name", "standard")
    if connect_groups:
        properties.setdefault("group.coordinator.rebalance.protocols", "classic,consumer,connect")
    settings = BrokerConfig.parse(properties, profile=profile)
    if settings.authorizer and not (acls or settings.super_user_names or settings.allow_everyone):
        raise ConfigError(
            "authorizer.class.name is set, and no client could do anything: set super.users (User:admin) or "
            "allow.everyone.if.no.acl.found, or make the broker with acls=True and call broker.acls.allow()"
        )
    return settings


def check_helpers(*, tls: object, sasl: object, journal: object) -> None:
    """What a broker is given to use is of the right type; their contents may be secret, and are not shown.

    Raises:
        ArgumentTypeError: it is not.
    """
    for name, given, kind in (("tls", tls, BrokerTls), ("sasl", sasl, BrokerSasl)):
        if given is not None and not isinstance(given, kind):
            raise ArgumentTypeError(f"{name} is a {kind.__name__}, got a {type(given).__name__}")
    if journal is not None and not hasattr(journal, "write"):
        raise ArgumentTypeError(
            f'journal is a Journal, such as JsonLinesJournal.open(Path("x.jsonl")), got {journal!r}'
        )


def listeners_of(listeners: Sequence[Listener], *, port: int) -> tuple[Listener, ...]:
    """What a broker listens at: the *listeners*, or *port* of 127.0.0.1 if there are none.

    Raises:
        ConfigError: both are given, or a listener is of another type.
    """
    if not all(isinstance(each, Listener) for each in listeners):
        raise ArgumentTypeError(f'listeners are Listener objects, such as Listener("0.0.0.0", 9092), got {listeners!r}')
    if listeners and port:
        raise ConfigError(f"port={port} beside listeners: give each Listener its port")
    return tuple(listeners) or (Listener(port=port),)


def ports_of(
    *, node_id: int, nodes: int, listeners: Sequence[Listener], racks: Sequence[str]
) -> dict[int, tuple[int, ...]]:
    """Node id -> its port at each listener: 0 where the first start takes a free one.

    Raises:
        ConfigError: an id, a number or a port is out of range, or there is not one rack for each node.
    """
    if whole_number(node_id, name="node_id") < 0:
        raise ConfigError(f"node_id {node_id} is negative")
    if not 1 <= whole_number(nodes, name="nodes") <= NODES_MAX:
        raise ConfigError(f"nodes={nodes} is not between 1 and {NODES_MAX}")
    for port in (each.port for each in listeners):
        if not 0 <= whole_number(port, name="port") <= 65535 - (nodes - 1):
            which = f"one of the ports {port} to {port + nodes - 1}" if nodes > 1 else f"port {port}"
            raise ConfigError(f"{which} is not between 0 and 65535")
    if racks and len(racks) != nodes:
        raise ConfigError(f"racks names {len(racks)} racks for {nodes} node(s); give one for each, or none")
    return {
        node_id + place: tuple(each.port + place if each.port else 0 for each in listeners) for place in range(nodes)
    }


def topic_counts(topics: object) -> dict[str, int]:
    """Topics by name, with their numbers of partitions.

    Raises:
        TypeError: it is not a mapping.
    """
    if topics is None:
        return {}
    if not isinstance(topics, Mapping):
        raise TypeError(f'topics is a mapping of names to partition counts, such as {{"orders": 3}}; got {topics!r}')
    return {name: whole_number(count, name=f"the number of partitions of {name!r}") for name, count in topics.items()}
