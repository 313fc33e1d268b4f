"""`Kept`: what a broker keeps between two starts, in a data folder or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.events import BrokerEvents
from kip848_client.testing.broker.metadata.placement import Placement
from kip848_client.testing.broker.quotas.client_quotas import ClientQuotas
from kip848_client.testing.broker.security.access import AclStore
from kip848_client.testing.broker.security.scram_users import ScramChanges
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.storage.data_dir import DataDir, Repair
from kip848_client.testing.broker.storage.data_folder import new_cluster_id
from kip848_client.testing.broker.storage.group_log import DecisionLog, GroupLog, MemoryGroupLog
from kip848_client.testing.broker.storage.share_state_log import MemoryShareStateLog
from kip848_client.testing.broker.storage.transaction_log import FolderTransactionLog, MemoryTransactionLog
from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.testing.transactions.transaction import TransactionMetadata


class Kept(NamedTuple):
    """Topics with their records, groups, transactions, and what clients may do.

    Attributes:
        data: the data folder; None if all is in memory.
    """

    topics: TopicRegistry
    offsets_topic: OffsetsTopic
    log: GroupLog
    transaction_log: DecisionLog[TransactionMetadata]
    share_state_log: GroupLog
    group_configs: ConfigStore
    cluster_id: str
    acls: AclStore
    scram: ScramChanges
    quotas: ClientQuotas
    broker_configs: ConfigStore
    client_metrics: ConfigStore
    data: DataDir | None = None

    @classmethod
    def in_memory(cls, config: BrokerConfig, *, placement: Placement) -> Kept:
        """Nothing yet, and kept for as long as the object lives."""
        topics = TopicRegistry(message_bytes_max=config.message_bytes_max, placement=placement)
        return cls(
            topics,
            OffsetsTopic(topics.watchers),
            MemoryGroupLog(),
            MemoryTransactionLog(),
            MemoryShareStateLog(),
            ConfigStore("group"),
            new_cluster_id(),
            AclStore(),
            ScramChanges(),
            ClientQuotas(ConfigStore("client_quota")),
            ConfigStore("broker"),
            ConfigStore("client_metrics"),
        )

    @classmethod
    def in_folder(cls, folder: Path, config: BrokerConfig, *, placement: Placement, events: BrokerEvents) -> Kept:
        """The content of a data folder; `close` lets go of it.

        Raises:
            DataDirError: the folder cannot be used.
        """
        data = DataDir.open(folder, flush_messages=config.flush_messages)
        data.on_write_failed = events.storage_failed
        data.on_write_recovered = lambda: events.storage_recovered(folder)
        try:
            topics = TopicRegistry(data, message_bytes_max=config.message_bytes_max, placement=placement)
            return cls(
                topics,
                OffsetsTopic(topics.watchers),
                data.coordinator_log,
                FolderTransactionLog(data.transaction_log),
                data.share_state_log,
                ConfigStore("group", data),
                data.cluster_id,
                AclStore(data),
                ScramChanges(data),
                ClientQuotas(ConfigStore("client_quota", data)),
                ConfigStore("broker", data),
                ConfigStore("client_metrics", data),
                data,
            )
        except BaseException:
            data.close()
            raise

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of the data folder when it was opened."""
        return () if self.data is None else tuple(self.data.repairs)

    def start_again(self) -> None:
        """The broker stopped, and starts with the same memory: leaders are elected anew."""
        self.topics.elect_leaders()
        self.offsets_topic.elect_leader()

    def close(self) -> None:
        """Let go of the data folder."""
        if self.data is not None:
            self.data.close()
