"""Settings of brokers that change while they run: of one node, or of all of them as a default.

Only these change; Kafka can change some more, and none of the others that are here. Nodes share their logs and
coordinators, so in a cluster only ``max.connections`` can differ from node to node.

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
from kip848_client.testing.broker.metadata.topic_configs import MIN_IN_SYNC
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.topics.log_cleaner import LogCleaner
from kip848_client.testing.broker.topics.registry import TopicRegistry

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir

ALL_NODES: Final = ""
"""The name of the default for all nodes; a node's name is its id."""

_OF_EACH_NODE: Final = frozenset({"max.connections"})
LIVE_SETTINGS: Final = _OF_EACH_NODE | {
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "log.cleaner.backoff.ms",
    "log.flush.interval.messages",
    "message.max.bytes",
    MIN_IN_SYNC,
}


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
        data: DataDir | None,
    ) -> None:
        self.static: Final = static
        self._store: Final = store
        self._nodes: Final = nodes
        self._topics: Final = topics
        self._cleaner: Final = cleaner
        self._groups: Final = groups
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

    def changed(self, name: str) -> Mapping[str, str]:
        """The settings that were changed for a node, or for `ALL_NODES`.

        Kafka (since 4.1) writes down ``min.insync.replicas`` for all nodes when it starts; so it is always among them.
        """
        changed = self._store.get(name)
        return {MIN_IN_SYNC: str(self.static.in_sync_min), **changed} if name == ALL_NODES else changed

    def config(self, node_id: int) -> BrokerConfig:
        """The settings of a node that are in force."""
        return self.static.changed_by({**self.changed(ALL_NODES), **self.changed(str(node_id))})

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
        unknown = [key for key in settings if key not in LIVE_SETTINGS]
        if unknown:
            raise _invalid(f"this broker has no setting {unknown[0]}; it can change {', '.join(sorted(LIVE_SETTINGS))}")
        shared = [key for key in settings if key not in _OF_EACH_NODE]
        if shared and name != ALL_NODES and len(self._nodes) > 1:
            raise _invalid(f"all nodes of this cluster share {shared[0]}; change the default of all brokers")
        if name != ALL_NODES and MIN_IN_SYNC in settings:
            raise _not_in_sync("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
        if name == ALL_NODES and MIN_IN_SYNC not in settings:
            raise _not_in_sync("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
        for key, value in settings.items():
            try:
                self.static.changed_by({key: value})
            except ConfigError as error:
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
        self._cleaner.compact_every(shared.cleaner_backoff_ms)
        if shared.coordinator != self._applied.coordinator:
            self._groups.set_config(shared)
        if self._data is not None:
            self._data.flush_messages = shared.flush_messages
        self._applied = shared


def _not_in_sync(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_CONFIG)


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
