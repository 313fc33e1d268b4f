"""How Apache Kafka describes its settings: type, documentation, synonyms. Read from a recording of its answers.

`tests/interop/record_configs.py` makes the recording. It has also settings that this broker does not have.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files

import msgspec


class KafkaConfig(msgspec.Struct, frozen=True):
    """One setting of a topic, a broker, a group or a client-metrics subscription.

    Attributes:
        type: a number of Kafka's ``ConfigType``.
        synonyms: the settings of a broker that it is inherited from, the first that is set.
        shows_default: whether its default counts as a synonym.
        default: of a setting of a broker; None if it has none.
        dynamic: whether a running broker can change it.
    """

    type: int
    documentation: str
    synonyms: tuple[str, ...] = ()
    shows_default: bool = True
    default: str | None = None
    dynamic: bool = False


class _Recorded(msgspec.Struct, frozen=True):
    topic: dict[str, KafkaConfig]
    broker: dict[str, KafkaConfig]
    group: dict[str, KafkaConfig]
    client_metrics: dict[str, KafkaConfig]


@functools.cache
def _recorded() -> _Recorded:
    text = files("kip848_client.testing.broker.metadata").joinpath("kafka_configs.json").read_bytes()
    return msgspec.json.decode(text, type=_Recorded)


def topic_configs() -> Mapping[str, KafkaConfig]:
    """Of topics."""
    return _recorded().topic


def broker_configs() -> Mapping[str, KafkaConfig]:
    """Of brokers."""
    return _recorded().broker


def group_configs() -> Mapping[str, KafkaConfig]:
    """Of groups."""
    return _recorded().group


def client_metrics_configs() -> Mapping[str, KafkaConfig]:
    """Of client-metrics subscriptions."""
    return _recorded().client_metrics
