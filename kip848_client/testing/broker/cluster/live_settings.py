"""Settings of brokers that change while they run: of one node, or of all of them as a default.

Settings that Kafka changes at runtime and this broker does not have are kept and shown. Those that topics inherit
count for topics; the others, such as numbers of threads, have no effect.

Nodes share their logs and coordinators. In a cluster each node shows its own values, and what nodes share follows the
first node; only ``max.connections`` counts for each.

Source:
    apache/kafka ``DynamicBrokerConfig``; KIP-226.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kip848_client.errors import BrokerError, ConfigError, ErrorCode
from kip848_client.testing.broker.cluster.nodes import Nodes
from kip848_client.testing.broker.config import PROPERTY_NAMES, BrokerConfig
from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.metadata.kafka_configs import KafkaConfig, broker_configs, topic_configs
from kip848_client.testing.broker.metadata.topic_configs import MIN_IN_SYNC, check_topic_configs
from kip848_client.testing.broker.share.dead_letters import DeadLetterTopics
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.topics.log_cleaner import LogCleaner
from kip848_client.testing.broker.topics.registry import TopicRegistry

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir

ALL_NODES: Final = ""
"""The name of the default for all nodes; a node's name is its id."""

_BOOLEAN, _INT, _LONG, _DOUBLE = 1, 3, 5, 6
"""Kafka's ``ConfigType``."""

LIVE_SETTINGS: Final = frozenset(
    {
        "max.connections",
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignment.interval.ms",
        "group.share.assignment.interval.ms",
        "log.cleaner.backoff.ms",
        "log.flush.interval.messages",
        "message.max.bytes",
        MIN_IN_SYNC,
    }
)
"""Settings of this broker that change at runtime."""


@functools.cache
def kept_settings() -> Mapping[str, KafkaConfig]:
    """What Kafka changes at runtime, and this broker does not have."""
    known = broker_configs().items()
    return {name: each for name, each in known if each.dynamic and name not in PROPERTY_NAMES}


@functools.cache
def _topic_settings() -> Mapping[str, str]:
    """Setting of a broker -> the setting of topics that inherits it."""
    known = topic_configs().items()
    return {each.synonyms[0]: name for name, each in known if each.synonyms and each.synonyms[0] in kept_settings()}


class LiveSettings:
    """The settings in force, node by node.

    Args:
        static: the settings that the broker was started with.
        store: what was changed since, and by earlier starts.
        data: the data folder; None without one.
    """

    def __init__(
        self,
        static: BrokerConfig,
        store: ConfigStore,
        *,
        nodes: Nodes,
        topics: TopicRegistry,
        cleaner: LogCleaner,
        groups: GroupShards,
        dead_letter_topics: DeadLetterTopics,
        data: DataDir | None,
    ) -> None:
        self.static: Final = static
        self._store: Final = store
        self._nodes: Final = nodes
        self._topics: Final = topics
        self._cleaner: Final = cleaner
        self._groups: Final = groups
        self._dead_letter_topics: Final = dead_letter_topics
        self._data: Final = data
        self._applied = static
        self._apply()

    @functools.cached_property
    def static_properties(self) -> Mapping[str, str]:
        """The settings that the broker was started with, as text."""
        return self.static.properties()

    @functools.cached_property
    def default_properties(self) -> Mapping[str, str]:
        """The defaults of its profile, as text."""
        return BrokerConfig.parse({}, profile=self.static.profile).properties()

    def default_of(self, name: str) -> str | None:
        """The default of a setting, also of one that this broker does not have; None without one."""
        own = self.default_properties.get(name)
        if own is not None:
            return own
        known = broker_configs().get(name)
        return None if known is None else known.default

    def changed(self, name: str) -> Mapping[str, str]:
        """The settings that were changed for a node, or for `ALL_NODES`.

        Kafka (since 4.1) writes down ``min.insync.replicas`` for all nodes when it starts; so it is always among them.
        """
        changed = self._store.get(name)
        return {MIN_IN_SYNC: str(self.static.in_sync_min), **changed} if name == ALL_NODES else changed

    def config(self, node_id: int) -> BrokerConfig:
        """The settings of a node that are in force."""
        changed = {**self.changed(ALL_NODES), **self.changed(str(node_id))}
        return self.static.changed_by({name: value for name, value in changed.items() if name in PROPERTY_NAMES})

    def replace(self, name: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
        """Change these, and nothing else, for a node or for `ALL_NODES`.

        Raises:
            BrokerError: INVALID_REQUEST: a setting cannot be changed so, or not to this value.
            DataDirError: it could not be kept; everything is as before.
        """
        self._check(name, settings)
        if not validate_only:
            self._store.replace(name, settings)
            self._apply()

    def _check(self, name: str, settings: Mapping[str, str]) -> None:
        fixed = [key for key in settings if key in PROPERTY_NAMES and key not in LIVE_SETTINGS]
        if fixed:
            raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        unknown = [key for key in settings if key not in LIVE_SETTINGS and key not in kept_settings()]
        if unknown:
            raise _invalid(f"this broker has no setting {unknown[0]}; it can change {', '.join(sorted(LIVE_SETTINGS))}")
        if name != ALL_NODES and MIN_IN_SYNC in settings:
            raise _not_in_sync("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
        if name == ALL_NODES and MIN_IN_SYNC not in settings:
            raise _not_in_sync("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
        for key, value in settings.items():
            try:
                if key in LIVE_SETTINGS:
                    self.static.changed_by({key: value})
                elif key in _topic_settings():
                    check_topic_configs({_topic_settings()[key]: value})
                else:
                    _check_type(kept_settings()[key], value)
            except (ConfigError, BrokerError) as error:
                raise _invalid(
                    f"Invalid value {value} for configuration {key}: {str(error).rpartition(': ')[2]}"
                ) from error

    def _apply(self) -> None:
        configs = {node.node_id: self.config(node.node_id) for node in self._nodes}
        for node in self._nodes:
            if node.server is not None:
                node.server.config = configs[node.node_id]
        shared = next(iter(configs.values()))
        self._topics.message_bytes_max = shared.message_bytes_max
        first = next(iter(configs), 0)
        changed = {**self.changed(ALL_NODES), **self.changed(str(first))}
        kept = [key for key in changed if key not in PROPERTY_NAMES]  # mostly none: the recording is not read
        self._topics.inherit({_topic_settings()[key]: changed[key] for key in kept if key in _topic_settings()})
        self._dead_letter_topics.name_prefix = shared.dead_letter_prefix
        self._dead_letter_topics.creates_topics = shared.creates_dead_letter_topics
        self._cleaner.compact_every(shared.cleaner_backoff_ms)
        if shared.coordinator != self._applied.coordinator:
            self._groups.set_config(shared)
        if self._data is not None:
            self._data.flush_messages = shared.flush_messages
        self._applied = shared


def _check_type(known: KafkaConfig, value: str) -> None:
    """Refuse what is no value of this type.

    Raises:
        ConfigError: it is none.
    """
    try:
        if known.type in (_INT, _LONG):
            int(value)
        elif known.type == _DOUBLE:
            float(value)
        elif known.type == _BOOLEAN and value.lower() not in ("true", "false"):
            raise ValueError
    except ValueError as error:
        raise ConfigError("it is of another type") from error


def _not_in_sync(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_CONFIG)


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
