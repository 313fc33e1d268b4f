"""Starts a broker: wires its stored state, coordinators, servers and metrics, on its own thread."""

from __future__ import annotations

import itertools
import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kip848_client.common.clock import Clock
from kip848_client.errors import BrokerError, ConfigError
from kip848_client.journal import Journal
from kip848_client.testing.broker.client_telemetry import ClientTelemetry, MetricsPush
from kip848_client.testing.broker.cluster.fail_over import FailOver
from kip848_client.testing.broker.cluster.live_settings import LiveSettings
from kip848_client.testing.broker.cluster.nodes import Nodes
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.coordinators.transaction_host import abort_orphans
from kip848_client.testing.broker.coordinators.transaction_shards import TransactionShards
from kip848_client.testing.broker.dispatch import Dispatcher
from kip848_client.testing.broker.events import BrokerEvents
from kip848_client.testing.broker.kept import Kept
from kip848_client.testing.broker.metadata.placement import GROUP_OFFSETS
from kip848_client.testing.broker.net.listener_security import BrokerSasl
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.broker.net.server import ClientConnection, Server
from kip848_client.testing.broker.quotas.throttling import Throttling
from kip848_client.testing.broker.security.access import Access
from kip848_client.testing.broker.security.authentication import Authentication
from kip848_client.testing.broker.security.scram_users import Users
from kip848_client.testing.broker.share.dead_letters import DeadLetterTopics
from kip848_client.testing.broker.share.share_partition_manager import SharePartitionManager
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.fetch_sessions import FetchSessions
from kip848_client.testing.broker.topics.log_cleaner import LogCleaner
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.testing.broker.topics.topic_images import TopicImages
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_sessions import ShareSessions

if TYPE_CHECKING:
    from kip848_client.common.telemetry import Figure

_FIGURES_TIMEOUT_S: Final = 1.0


class Started(NamedTuple):
    """A broker that serves.

    Attributes:
        fail_over: the steps when a node goes or comes back.
        stop_working: ends what the dispatcher still does; before the servers stop.
        stop_listening: ends what watches topics and groups; after all else was closed.
    """

    state: BrokerState
    fail_over: FailOver
    stop_working: Callable[[], None]
    stop_listening: Callable[[], None]


class StartUp(NamedTuple):
    """The inputs of one start.

    Attributes:
        topics: to create, name to number of partitions.
        follow_topics: learns the names of all topics; returns what ends that.
        on_push: called with the metrics that a client pushes.
        new_dispatcher: makes what answers requests, for the state of this start.
    """

    config: BrokerConfig
    clock: Clock
    journal: Journal
    events: BrokerEvents
    ssl_context: ssl.SSLContext | None
    sasl: BrokerSasl | None
    data_dir: Path | None
    topics: Mapping[str, int]
    served: Mapping[int, tuple[int, int]]
    follow_topics: Callable[[TopicRegistry], Callable[[], None]]
    new_dispatcher: Callable[[BrokerState], Dispatcher]
    on_push: Callable[[MetricsPush], None]

    async def run(self, kept: Kept, nodes: Nodes, thread: LoopThread) -> Started:
        """Serve. Runs on the broker's loop.

        Raises:
            ConfigError: a topic to create is refused.
            DataDirError: a log cannot be read.
        """
        topics = kept.topics
        racks = {node.node_id: node.rack for node in nodes if node.rack}
        images = TopicImages(topics, clock=self.clock, node_racks=racks)
        state = self._state(kept, nodes, images, thread)
        for number, placed in enumerate(topics.placement.of(GROUP_OFFSETS)):
            kept.offsets_topic.lead(number, epoch=placed.epoch)
        stop_following = self.follow_topics(topics)
        stop_writing = topics.subscribe(self.events.topic_changed)
        self._create_topics(topics)
        state.groups.load()
        state.transactions.load()
        state.shares.load()
        abort_orphans(topics, state.transactions, now_ms=self.clock.wall_ms())
        dispatcher = self.new_dispatcher(state)
        make_server = self._server_maker(dispatcher, state)
        await nodes.start(make_server)
        fail_over = FailOver(
            self.config,
            state=state,
            make_server=make_server,
            on_event=lambda event, node_id: self.events.write(event, {"node_id": node_id}),
        )
        stop_publishing = _publish_metrics(thread, state)

        def stop_listening() -> None:
            for stop in (stop_following, stop_writing, stop_publishing, images.close):
                stop()

        return Started(state, fail_over, dispatcher.close, stop_listening)

    def _state(self, kept: Kept, nodes: Nodes, images: TopicImages, thread: LoopThread) -> BrokerState:
        """Everything that the APIs' handlers find, from what was kept."""
        topics = kept.topics
        dead_letter_topics = DeadLetterTopics(
            topics,
            clock=self.clock,
            name_prefix=self.config.dead_letter_prefix,
            creates_topics=self.config.creates_dead_letter_topics,
            partitions=self.config.default_partitions,
        )
        shares = SharePartitionManager(
            log=kept.share_state_log,
            topics=topics,
            settings_of=lambda group_id: _share_settings(groups.group_config(group_id)),
            dead_letter_topics=dead_letter_topics,
            clock=self.clock,
            loop=thread.loop,
        )
        groups = GroupShards(
            self.config,
            log=kept.log,
            configs=kept.group_configs,
            images=images,
            offsets_topic=kept.offsets_topic,
            placement=topics.placement,
            clock=self.clock,
            journal=self.journal,
            loop=thread.loop,
            share_states=shares,
        )
        transactions = TransactionShards(
            self.config, log=kept.transaction_log, topics=topics, groups=groups, clock=self.clock, loop=thread.loop
        )
        access = self._access(kept) if self.config.authorizer else None
        if access is not None:
            images.visible_to = access.visible_to
        cleaner = LogCleaner(
            topics,
            clock=self.clock,
            loop=thread.loop,
            retention_interval_ms=self.config.retention_check_interval_ms,
            compaction_interval_ms=self.config.cleaner_backoff_ms,
        )
        return BrokerState(
            nodes=nodes,
            cluster_id=kept.cluster_id,
            clock=self.clock,
            config=self.config,
            loop=thread.loop,
            served=self.served,
            topics=topics,
            offsets_topic=kept.offsets_topic,
            groups=groups,
            transactions=transactions,
            shares=shares,
            cleaner=cleaner,
            journal=self.journal,
            data_dir=self.data_dir,
            users=Users(self.sasl, kept.scram),
            settings=LiveSettings(
                self.config,
                kept.broker_configs,
                nodes=nodes,
                topics=topics,
                cleaner=cleaner,
                groups=groups,
                dead_letter_topics=dead_letter_topics,
                data=kept.data,
            ),
            telemetry=ClientTelemetry(
                kept.client_metrics,
                clock=self.clock,
                push_bytes_max=self.config.telemetry_bytes_max,
                on_push=self.on_push,
            ),
            throttling=Throttling(kept.quotas, self.config, clock=self.clock, loop=thread.loop),
            access=access,
        )

    def _access(self, kept: Kept) -> Access:
        return Access(
            kept.acls,
            super_users=self.config.super_user_names,
            allow_everyone=self.config.allow_everyone,
            topics=kept.topics,
            offsets_topic=kept.offsets_topic,
            creates_topics=self.config.auto_create_topics,
            on_denied=self.events.authorization_denied,
        )

    def _create_topics(self, topics: TopicRegistry) -> None:
        for name, partitions in self.topics.items():
            existing = topics.get(name)
            if existing is None:
                try:
                    topics.create(name, partitions)
                except BrokerError as error:
                    raise ConfigError(
                        f"topic {name!r} with {partitions} partitions cannot be created: {error}"
                    ) from error
            elif existing.partition_count < partitions:
                topics.add_partitions(name, partitions)

    def _server_maker(self, dispatcher: Dispatcher, state: BrokerState) -> Callable[[int], Server]:
        """A function that makes the server of a node, at the start and whenever the node comes back."""
        numbers = itertools.count(1)
        authentication: Authentication | None = None
        if self.sasl is not None:
            state.authentication = authentication = Authentication(
                self.sasl,
                state.users,
                self.config,
                clock=self.clock,
                call_later=state.call_later,
                on_refused=self.events.connection_refused,
            )
            authentication.open_request = dispatcher.open_request

        def on_gone(connection: ClientConnection) -> None:
            if authentication is not None:
                authentication.forget(connection)
            gone = state.share_sessions[connection.node_id].connection_gone(connection.connection_id)
            state.shares.connection_gone(gone, node_id=connection.node_id)
            if self.config.client_telemetry:
                state.telemetry.forget(connection.connection_id)

        def make_server(node_id: int) -> Server:
            state.fetch_sessions[node_id] = FetchSessions(
                slots=self.config.fetch_session_slots,
                new_id=lambda: secrets.randbits(31),
            )
            state.share_sessions[node_id] = ShareSessions(sessions_max=self.config.share_sessions_max)
            return Server(
                state.settings.config(node_id),
                open_request=dispatcher.open_request if authentication is None else authentication.admit,
                encode=dispatcher.encode,
                on_refused=self.events.connection_refused,
                on_gone=on_gone,
                ssl_context=self.ssl_context,
                authenticated=authentication is None,
                node_id=node_id,
                numbers=numbers,
            )

        return make_server


def _publish_metrics(thread: LoopThread, state: BrokerState) -> Callable[[], None]:
    from kip848_client.common.telemetry import publish_coordinator  # here: an import of the broker does not load it

    process_id = os.getpid()

    def figures() -> tuple[Figure, ...]:
        if os.getpid() != process_id:
            return ()  # a forked child has no such thread
        try:
            return thread.call(state.groups.figures, timeout_s=_FIGURES_TIMEOUT_S)
        except (TimeoutError, RuntimeError):  # stopped, or too busy to wait for
            return ()

    # Figures of several nodes say themselves which node is theirs.
    own = {} if state.placement.is_spread else {"node-id": str(next(iter(state.nodes)).node_id)}
    return publish_coordinator(figures, attributes={"cluster-id": state.cluster_id, **own})


def _share_settings(config: GroupConfig) -> ShareSettings:
    return ShareSettings(
        record_lock_duration_ms=config.share_record_lock_duration_ms,
        delivery_count_limit=config.share_delivery_count_limit,
        partition_max_record_locks=config.share_partition_max_record_locks,
        auto_offset_reset=config.share_auto_offset_reset,
        isolation_level=config.share_isolation_level,
        renew_acknowledge_enable=config.share_renew_acknowledge_enable,
        dead_letter_topic=config.dead_letter_topic,
        dead_letter_copy_record=config.dead_letter_copy_record,
    )
