"""Kafka consumers for the next-generation rebalance protocol (KIP-848), and an embedded broker to test them with.

The public names, nothing else. Each is loaded when it is first used (PEP 562), so that a pure core, a Spark worker or a
test run that needs none of it does not load librdkafka.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""Type checkers know this name and take it for true; importing it from ``typing`` would cost more than all the rest."""

if TYPE_CHECKING:
    from kip848_client.broker.broker import EmbeddedBroker
    from kip848_client.client.data_plane import Message
    from kip848_client.client.data_plane import PublicTopicPartition as TopicPartition
    from kip848_client.consumer import Consumer
    from kip848_client.errors import BrokerError, ConfigError, IllegalStateError, Kip848Error
    from kip848_client.listener import ConsumerRebalanceListener
    from kip848_client.member.events import LeaveMode
    from kip848_client.member.states import MemberState
    from kip848_client.model import SubscriptionPattern

__all__ = [
    "Consumer",
    "ConsumerRebalanceListener",
    "SubscriptionPattern",
    "TopicPartition",
    "Message",
    "MemberState",
    "LeaveMode",
    "Kip848Error",
    "BrokerError",
    "ConfigError",
    "IllegalStateError",
    "EmbeddedBroker",
]

_HOMES = {
    "Consumer": ("kip848_client.consumer", "Consumer"),
    "ConsumerRebalanceListener": ("kip848_client.listener", "ConsumerRebalanceListener"),
    "SubscriptionPattern": ("kip848_client.model", "SubscriptionPattern"),
    "TopicPartition": ("kip848_client.client.data_plane", "PublicTopicPartition"),
    "Message": ("kip848_client.client.data_plane", "Message"),
    "MemberState": ("kip848_client.member.states", "MemberState"),
    "LeaveMode": ("kip848_client.member.events", "LeaveMode"),
    "Kip848Error": ("kip848_client.errors", "Kip848Error"),
    "BrokerError": ("kip848_client.errors", "BrokerError"),
    "ConfigError": ("kip848_client.errors", "ConfigError"),
    "IllegalStateError": ("kip848_client.errors", "IllegalStateError"),
    "EmbeddedBroker": ("kip848_client.broker", "EmbeddedBroker"),
}
"""Public name -> (module, name there)."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kip848_client' has no attribute {name!r}")
    import importlib  # with the first name that is used, for the same reason

    value = getattr(importlib.import_module(home[0]), home[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
