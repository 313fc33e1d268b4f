"""The state that all request handlers of one broker share. Held by the broker's loop; no behaviour but the timer call.

Other modules make its parts: topics in `topics`, groups and transactions in `coordinators`, configuration in `config`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kip848_client.common.clock import Clock, TimerHandle
from kip848_client.testing.broker.config import BrokerConfig

if TYPE_CHECKING:
    from kip848_client.journal import Journal
    from kip848_client.testing.broker.client_telemetry import ClientTelemetry
    from kip848_client.testing.broker.cluster.live_settings import LiveSettings
    from kip848_client.testing.broker.cluster.nodes import Node, Nodes
    from kip848_client.testing.broker.coordinators.group_shards import GroupShards
    from kip848_client.testing.broker.coordinators.transaction_shards import TransactionShards
    from kip848_client.testing.broker.metadata.placement import Placement
    from kip848_client.testing.broker.quotas.throttling import Throttling
    from kip848_client.testing.broker.security.access import Access
    from kip848_client.testing.broker.security.authentication import Authentication
    from kip848_client.testing.broker.security.scram_users import Users
    from kip848_client.testing.broker.share.share_partition_manager import SharePartitionManager
    from kip848_client.testing.broker.topics.fetch_sessions import FetchSessions
    from kip848_client.testing.broker.topics.log_cleaner import LogCleaner
    from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
    from kip848_client.testing.broker.topics.registry import TopicRegistry
    from kip848_client.testing.share_partitions.share_sessions import ShareSessions


class BrokerState(msgspec.Struct, eq=False):
    """The broker, or the cluster of brokers, as its request handlers see it.

    A handler for which nodes differ asks `RequestContext.node_id`.

    Attributes:
        nodes: all nodes, running or not.
        cluster_id: 22 characters of URL-safe base64, as Kafka's.
        served: API key -> (lowest, highest) version that is served.
        loop: the loop of the broker's own thread; all state here is touched from it alone.
        data_dir: folder of everything durable, or None if memory is all there is.
        config: the settings of the start; those that changed since are in *settings*.
        throttling: slows down clients that exceed a quota.
        settings: those of the brokers that can change while they run.
        telemetry: takes the metrics of clients.
        users: who can log in; empty without logins, unless AlterUserScramCredentials made some.
        authentication: who may use a connection; None admits every client.
        access: who may do what; None if every client may do everything.
        fetch_sessions: of each node, since it was started last.
        share_sessions: the same for share groups.
    """

    nodes: Nodes
    cluster_id: str
    clock: Clock
    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    served: Mapping[int, tuple[int, int]]
    topics: TopicRegistry
    offsets_topic: OffsetsTopic
    groups: GroupShards
    transactions: TransactionShards
    shares: SharePartitionManager
    cleaner: LogCleaner
    journal: Journal
    data_dir: Path | None
    users: Users
    throttling: Throttling
    settings: LiveSettings
    telemetry: ClientTelemetry
    authentication: Authentication | None = None
    access: Access | None = None
    fetch_sessions: dict[int, FetchSessions] = msgspec.field(default_factory=dict)
    share_sessions: dict[int, ShareSessions] = msgspec.field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        """Which node leads what."""
        return self.topics.placement

    def living_nodes(self) -> list[Node]:
        """The nodes in answers to clients, by ascending id: a dead one is among them until the others notice."""
        return [self.nodes[node_id] for node_id in self.placement.living]

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Run *callback* on the loop in *delay_ms* of real time (what a parked fetch waits for)."""
        return self.loop.call_later(delay_ms / 1000, callback)
