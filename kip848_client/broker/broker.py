"""`EmbeddedBroker`: starting, stopping, and the calls on a running broker: topics, groups, transactions, time.

The broker runs on its own thread, ``kip848-broker-<port>``. Any thread may call the methods here; they run their work
on the broker's thread and wait for it. A call acts like a request: the topic registry or the group coordinator makes
the change, writes records and tells the observers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self, TypeVar, assert_never

import msgspec

from kip848_client.broker.apis import ApiTable, load_apis
from kip848_client.broker.cluster.fail_over import FailOver, node_snapshots
from kip848_client.broker.cluster.nodes import Nodes, NodeSnapshot
from kip848_client.broker.config import BrokerConfig, Profile
from kip848_client.broker.coordinators.group_admin import (
    OffsetsByPartition,
    committed_offsets,
    expire_assignment,
    expire_session,
    force_rebalance,
    member_of,
    remove_member,
)
from kip848_client.broker.coordinators.group_configs import GroupConfigStore
from kip848_client.broker.coordinators.group_host import GroupHost
from kip848_client.broker.coordinators.group_metrics import GroupMetrics
from kip848_client.broker.coordinators.group_shards import Groups, GroupShards
from kip848_client.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.broker.coordinators.transaction_host import TransactionHost, abort_orphans
from kip848_client.broker.coordinators.transaction_shards import TransactionShards
from kip848_client.broker.dispatch import Dispatcher
from kip848_client.broker.metadata.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    Operation,
    OperationName,
    PatternType,
    Permission,
    ResourceType,
)
from kip848_client.broker.metadata.placement import GROUP_OFFSETS, TRANSACTION_STATE, CoordinatorTopic, Placement
from kip848_client.broker.metadata.topic_configs import PARTITION_RACKS, racks_to_text
from kip848_client.broker.net.async_waits import awaited
from kip848_client.broker.net.context import RequestContext
from kip848_client.broker.net.faults import Faults
from kip848_client.broker.net.listener_security import (
    BrokerSasl,
    BrokerTls,
    check_exposure,
    protocol_name,
    server_context,
)
from kip848_client.broker.net.logged_request import api_title
from kip848_client.broker.net.loop_thread import LoopThread
from kip848_client.broker.net.request_log import RequestLog
from kip848_client.broker.net.server import Server
from kip848_client.broker.security.access import Access, AclStore, principal_of
from kip848_client.broker.security.authentication import Authentication
from kip848_client.broker.security.scram_users import ScramChanges, Users
from kip848_client.broker.state import BrokerState
from kip848_client.broker.storage.data_dir import DataDir, Repair
from kip848_client.broker.storage.data_folder import new_cluster_id
from kip848_client.broker.storage.group_log import GroupLog, MemoryGroupLog
from kip848_client.broker.topics.append_watchers import Watch
from kip848_client.broker.topics.fetch_sessions import FetchSessions
from kip848_client.broker.topics.log_cleaner import LogCleaner
from kip848_client.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.broker.topics.records import BrokerRecord, Content, Headers, NewRecord, append_records, read_records
from kip848_client.broker.topics.registry import (
    PartitionsAdded,
    Topic,
    TopicChange,
    TopicCreated,
    TopicDeleted,
    TopicReconfigured,
    TopicRegistry,
)
from kip848_client.broker.topics.topic_images import TopicImages
from kip848_client.broker.topics.topic_names import KnownTopics
from kip848_client.clock import Clock, ManualClock, SystemClock
from kip848_client.coordinator.classic.classic_group import ClassicState
from kip848_client.coordinator.core.timers import TimerKind
from kip848_client.coordinator.modern.modern_group import GroupState
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    DataDirError,
    ErrorCode,
    ForkedProcessError,
    IllegalStateError,
    MessageValueError,
    ProtocolError,
    RequestTimeoutError,
)
from kip848_client.faults import Action, Subject
from kip848_client.journal import Journal, JournalEvent, JsonValue, NullJournal
from kip848_client.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.model import NamedPartition

if TYPE_CHECKING:
    from kip848_client.broker.coordinators.transaction_host import TransactionSnapshot
    from kip848_client.telemetry import Figure

__all__ = ["EmbeddedBroker"]

ResultT = TypeVar("ResultT")


_FIGURES_TIMEOUT_S: Final = 1.0
_GROUP_STATES: Final = tuple(dict.fromkeys(map(str, (*GroupState, *ClassicState))))
NODES_MAX: Final = 100

load_apis()  # while the module is imported, so that a start takes milliseconds


class EmbeddedBroker:
    """A Kafka broker in this process, or a cluster of several, on loopback TCP, for any Kafka client.

    Args:
        topics: topics to create at start, name to number of partitions.
        profile: ``default`` is fast and serves the client-side assignor extension; ``kafka`` has Apache Kafka's
            defaults and serves no extension.
        config: Kafka broker properties over those defaults.
        host: loopback address to listen on.
        port: port to listen on; 0 takes a free one. Further nodes take the ports after it.
        data_dir: folder that keeps topics, groups and offsets; without it they live as long as this object.
        clock: drives group timers. With a `ManualClock` they move only by `advance_clock`.
        journal: receives the events.
        node_id: the broker's id, >= 0; the lowest one of several nodes.
        nodes: how many brokers the cluster has; each has its own port, and requests are judged by the one they came to.
        racks: of the nodes, in the order of their ids. Consumers that set ``client.rack`` read from a replica there.
        allow_remote: needed for a host that is not loopback, together with authentication.
        advertised_host: the address that clients are given; *host* if None.
        tls: if given, every connection uses TLS.
        sasl: if given, every connection must log in.
        connect_groups: serve `kip848_client.Worker`, which Apache Kafka cannot; the same as ``connect`` in
            ``group.coordinator.rebalance.protocols``.
        acls: refuse what no ACL allows; see `allow`. The same as ``authorizer.class.name=standard``, which needs
            ``super.users`` or ``allow.everyone.if.no.acl.found``, while this does not.

    Attributes:
        faults: rules that inject faults into requests; see `Faults.on`.
        requests: the requests of clients with their answers; see `RequestLog.of` and `RequestLog.wait_for`.
        aio: the waiting calls for asynchronous code: ``await broker.aio.wait_for_group("orders", members=2)``.

    Raises:
        ConfigError: a property, the host or the port is wrong.

    Example::

        with EmbeddedBroker({"orders": 6}) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        profile: Profile = "default",
        config: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | Path | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
        node_id: int = 1,
        nodes: int = 1,
        racks: Sequence[str] = (),
        allow_remote: bool = False,
        advertised_host: str | None = None,
        tls: BrokerTls | None = None,
        sasl: BrokerSasl | None = None,
        connect_groups: bool = False,
        acls: bool = False,
    ) -> None:
        config = dict(config or {})
        if acls:
            config.setdefault("authorizer.class.name", "standard")
        if connect_groups:
            config.setdefault("group.coordinator.rebalance.protocols", "classic,consumer,connect")
        self.config: Final = BrokerConfig.parse(config, profile=profile)
        if self.config.authorizer and not (acls or self.config.super_user_names or self.config.allow_everyone):
            raise ConfigError(
                "authorizer.class.name is set, and no client could do anything: set super.users (User:admin) or "
                "allow.everyone.if.no.acl.found, or make the broker with acls=True and call allow()"
            )
        check_exposure(host, advertised_host=advertised_host, allow_remote=allow_remote, tls=tls, sasl=sasl)
        self.security_protocol: Final = protocol_name(tls, sasl)
        """The value of ``security.protocol`` for clients."""
        self._ssl_context: Final = None if tls is None else server_context(tls)
        self._sasl = sasl
        self._apis: Final = ApiTable(extensions=self.config.extensions | ({"sasl"} if sasl is not None else set()))
        self._advertised_host: Final = advertised_host or host
        if node_id < 0:
            raise ConfigError(f"node_id {node_id} is negative")
        if not 1 <= nodes <= NODES_MAX:
            raise ConfigError(f"nodes={nodes} is not between 1 and {NODES_MAX}")
        if not 0 <= port <= 65535 - (nodes - 1):
            which = f"one of the ports {port} to {port + nodes - 1}" if nodes > 1 else f"port {port}"
            raise ConfigError(f"{which} is not between 0 and 65535")
        if racks and len(racks) != nodes:
            raise ConfigError(f"racks names {len(racks)} racks for {nodes} node(s); give one for each, or none")
        self.node_id: Final = node_id
        # Node id -> its port: 0 before the first start where a free one will do.
        self._ports = {node_id + place: port + place if port else 0 for place in range(nodes)}
        self._racks: Final = tuple(racks)
        self._topics_at_start: dict[str, int] = _topic_counts(topics)
        self._host: Final = host
        self._data_dir: Final = Path(data_dir) if data_dir is not None else None
        self._clock: Clock = clock or SystemClock()
        self._journal: Final[Journal] = journal or NullJournal()
        self._thread: LoopThread | None = None
        self._process_id = 0
        self._fail_over: FailOver | None = None
        self._state: BrokerState | None = None
        self._data: DataDir | None = None
        self._memory: _Storage | None = None
        self._repairs: tuple[Repair, ...] = ()
        self._stop_working: Callable[[], None] = lambda: None
        self._stop_listening: Callable[[], None] = lambda: None
        self._known_topics: Final = KnownTopics()
        self.requests = RequestLog(
            entries_max=self.config.request_log_entries_max,
            bytes_max=self.config.request_log_bytes_max,
            clock=self._clock,
            topic_name=self._known_topics,
        )
        self.faults = Faults(
            clock=self._clock,
            topic_name=self._known_topics,
            serves=self._apis.serves,
            on_fault=self._fault_injected,
        )

        self.aio: Final = AsyncWaits(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a broker cannot be sent to another process, or copied; pass its bootstrap_servers")

    def __repr__(self) -> str:
        if not self.running:
            return f"<EmbeddedBroker on port {self.port}, stopped>" if self.port else "<EmbeddedBroker, not started>"
        topics = ", ".join(f"{name}:{partitions}" for name, partitions in self.topics().items())
        return f"<EmbeddedBroker {self.bootstrap_servers}, topics {topics or 'none'}>"

    # --- life

    def start(self) -> Self:
        """Serve. Returns when clients may connect; a running broker cannot be started again.

        After `stop` or `crash` it starts on the same port with its topics, records, groups and offsets. As in Kafka the
        leader epoch of their partitions grows by one; in topics created later it starts at 0.

        Raises:
            ConfigError: the port is taken, or a topic to create is refused.
            DataDirError: the data directory cannot be used.
            IllegalStateError: it is already running.
        """
        if self._thread is not None:
            raise IllegalStateError(f"the broker on {self.bootstrap_servers} is already running")
        nodes = Nodes(self._ports, bind_host=self._host, host=self._advertised_host, racks=self._racks)
        nodes.bind()
        self._ports = nodes.ports
        thread = LoopThread(f"kip848-broker-{self.port}")
        try:
            thread.run(self._start_on_loop(thread, nodes))
        except BaseException:
            thread.stop()
            nodes.close()
            self._close_data()
            raise
        self._thread, self._process_id = thread, os.getpid()
        return self

    def stop(self) -> None:
        """Stop serving and close every connection. No thread, socket or task remains; a second call does nothing."""
        self._end(abort=False)

    def crash(self) -> None:
        """Stop like a killed process: connections break, and nothing more is written."""
        self._end(abort=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()  # takes milliseconds; the broker itself runs on its own thread

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it serves."""
        return self._thread is not None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, for clients; complete once the broker has been started."""
        host = f"[{self._advertised_host}]" if ":" in self._advertised_host else self._advertised_host
        return ",".join(f"{host}:{port}" for port in self._ports.values())

    @property
    def port(self) -> int:
        """The port of the first node; 0 before the first start if none was asked for."""
        return self._ports[self.node_id]

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of the data folder at the last start; empty if there were none."""
        return self._repairs

    def set_users(self, users: Mapping[str, str]) -> None:
        """Replace the users: passwords by name. A logged-in user stays until the session ends.

        Raises:
            ConfigError: this broker has no SASL, or a name or password is not usable.
        """
        if self._sasl is None:
            raise ConfigError("this broker demands no login; give it users when it is made (sasl=BrokerSasl(...))")
        sasl = self._sasl = BrokerSasl(dict(users), self._sasl.mechanisms)

        def replace(state: BrokerState) -> None:
            state.users.replace(sasl)

        if self.running:
            self._on_loop(replace)

    def allow(
        self,
        principal: str,
        *operations: OperationName,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = ANY_HOST,
    ) -> None:
        """Allow a principal to do something with one resource, from the next request on.

        Args:
            principal: a user, ``User:alice`` or just ``alice``; ``*`` for all. A client without a login is
                ``ANONYMOUS``; one with a certificate is its distinguished name, ``User:CN=alice``.
            operations: such as ``READ``; ``ALL`` if none is given.
            topic: its name; ``*`` for all topics. So with *group* and *transactional_id*; give exactly one.
            prefixed: all resources whose name begins so.
            host: the address of the client.

        Raises:
            IllegalStateError: this broker has no authorizer; make it with ``acls=True``.
            ValueError: there is no such operation.
            TypeError: not exactly one resource is given.
        """
        acls = _acls(Permission.ALLOW, principal, operations, topic, group, transactional_id, cluster, prefixed, host)
        self._with_access(lambda access: access.store.change(added=acls))

    def deny(
        self,
        principal: str,
        *operations: OperationName,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = ANY_HOST,
    ) -> None:
        """Deny a principal to do something with one resource, even if an ACL allows it. Arguments as `allow`."""
        acls = _acls(Permission.DENY, principal, operations, topic, group, transactional_id, cluster, prefixed, host)
        self._with_access(lambda access: access.store.change(added=acls))

    def acls(self) -> tuple[Acl, ...]:
        """All ACLs, in the order in which they were added.

        Raises:
            IllegalStateError: this broker has no authorizer.
        """
        return self._with_access(lambda access: tuple(access.store.acls))

    def remove_acls(self, acls: Iterable[Acl] | None = None) -> None:
        """Remove ACLs: *acls*, or all.

        Raises:
            IllegalStateError: this broker has no authorizer.
        """
        self._with_access(lambda access: access.store.change(removed=access.store.acls if acls is None else acls))

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> uuid.UUID:
        """Create a topic and return its id.

        Args:
            replication_factor: nodes that have a replica of a partition; None takes ``default.replication.factor``.

        Raises:
            BrokerError: the name is taken or not allowed, there are too few or too many partitions, or fewer nodes than
                replicas.
        """
        return self._on_loop(
            lambda state: (
                state.topics.create(name, partitions, configs=configs, replication_factor=replication_factor).topic_id
            )
        )

    def add_partitions(self, name: str, count: int) -> None:
        """Increase the partitions of a topic to *count*.

        Raises:
            BrokerError: there is no such topic, or it has at least as many.
        """
        self._on_loop(lambda state: state.topics.add_partitions(name, count))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. A topic created under that name later has another id.

        Raises:
            BrokerError: there is no such topic.
        """
        self._on_loop(lambda state: state.topics.delete(name))

    def recreate_topic(self, name: str, partitions: int | None = None) -> uuid.UUID:
        """Delete a topic and create it again in one step, empty and with another id, which is returned.

        Args:
            partitions: the new number; unchanged if not given.

        Raises:
            BrokerError: there is no such topic.
        """

        def recreate(state: BrokerState) -> uuid.UUID:
            old = state.topics.delete(name)
            return state.topics.create(name, partitions or old.partition_count).topic_id

        return self._on_loop(recreate)

    def delete_records(self, name: str, partition: int, before_offset: int = -1) -> int:
        """Delete the records of a partition below an offset, as retention does; return its new start.

        Args:
            before_offset: the first offset that stays; -1 for none.

        Raises:
            BrokerError: there is no such partition, or the offset is outside it.
        """
        return self._on_loop(
            lambda state: state.topics.delete_records(_topic(state, name, partition), partition, before_offset)
        )

    def apply_retention(self, name: str | None = None) -> dict[NamedPartition, int]:
        """Delete the records that a topic, or each topic, keeps no longer by ``retention.ms`` and ``retention.bytes``.

        The profile ``kafka`` does it by itself every ``log.retention.check.interval.ms``; the profile ``default`` never
        does.

        Returns:
            The new starts of the partitions that lost records.

        Raises:
            BrokerError: there is no such topic.
            DataDirError: it could not be written.
        """
        return self._on_loop(
            lambda state: state.cleaner.apply_retention(None if name is None else _topic(state, name, None))
        )

    def compact(self, name: str) -> dict[NamedPartition, int]:
        """Keep the last record of each key, as compaction does; offsets stay as they are.

        The newest batch of a partition stays whole. A tombstone stays for ``delete.retention.ms``.

        Returns:
            How many records went, by partition.

        Raises:
            BrokerError: there is no such topic.
            IllegalStateError: its ``cleanup.policy`` is not ``compact``.
            DataDirError: it could not be written.
        """
        return self._on_loop(lambda state: state.cleaner.compact(_topic(state, name, None)))

    def set_partition_racks(self, name: str, racks: Sequence[str | Iterable[str]]) -> None:
        """Set the racks of the replicas of a topic's partitions, for rack-aware assignors.

        Args:
            racks: of partition 0, 1 and so on, one rack or several; the list repeats. Empty: unknown.

        Raises:
            BrokerError: there is no such topic, or a rack is blank or holds a comma or a slash.
        """
        text = racks_to_text([(item,) if isinstance(item, str) else tuple(item) for item in racks])

        def set_racks(state: BrokerState) -> None:
            configs = {key: value for key, value in _topic(state, name, 0).configs.items() if key != PARTITION_RACKS}
            state.topics.set_configs(name, {**configs, PARTITION_RACKS: text} if racks else configs)

        self._on_loop(set_racks)

    def offsets(self, name: str) -> dict[int, tuple[int, int]]:
        """First and next offset of each partition of a topic: partition -> (first offset, next offset).

        Raises:
            BrokerError: there is no such topic.
        """
        return self._on_loop(
            lambda state: {
                index: (log.log_start_offset, log.high_watermark)
                for index, log in enumerate(_topic(state, name, 0).partitions)
            }
        )

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions, by name."""
        return self._on_loop(lambda state: {topic.name: topic.partition_count for topic in state.topics})

    # --- groups

    def metrics(self) -> dict[str, float]:
        """The current values of the coordinator's metrics: ``name`` or ``name{attribute=value}`` -> value.

        The names are in ``telemetry.COORDINATOR_METRICS``; an OpenTelemetry SDK in this process is given the same.
        """
        return {str(figure): figure.value for figure in self._on_loop(lambda state: state.groups.figures())}

    def groups(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return self._on_loop(lambda state: state.groups.group_ids())

    def group(self, group_id: str) -> GroupSnapshot | None:
        """The current snapshot of a group; None if there is no such consumer group."""
        return self._on_loop(lambda state: state.groups.snapshot(group_id))

    def set_group_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override ``consumer.session.timeout.ms`` and the like for one group; replaces earlier overrides.

        Raises:
            ConfigError: a name is unknown, or a value is outside the broker's bounds.
        """
        self._on_loop(lambda state: state.groups.set_config_overrides(group_id, dict(overrides)))

    def committed(self, group_id: str) -> OffsetsByPartition:
        """The committed offsets of a group; empty if there is no such group.

        Keys may be asked for as ``("orders", 0)`` or as any ``TopicPartition``.
        """
        return OffsetsByPartition(self._on_loop(lambda state: committed_offsets(state.groups, group_id)))

    def expire_session(self, group_id: str, member: str) -> None:
        """Expire the session of a member now, as if it had sent no heartbeat for too long.

        Its next heartbeat is refused with UNKNOWN_MEMBER_ID; a static member leaves its instance id free.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
        """
        self._on_loop(lambda state: expire_session(state.groups, group_id, member))

    def expire_revocation(self, group_id: str, member: str) -> None:
        """Expire a member's time for revoking partitions (``max.poll.interval.ms``) now.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
            IllegalStateError: it has nothing to revoke.
        """
        self._on_loop(
            lambda state: state.groups.let_time_run_out(
                TimerKind.REBALANCE, group_id=group_id, member_id=member_of(state.groups, group_id, member).member_id
            )
        )

    def expire_assignment(self, group_id: str) -> str:
        """Expire a member's time for computing the target with its client-side assignor now.

        Another member is asked; a later result of the slow one is refused.

        Returns:
            The id of the member that was too slow.

        Raises:
            BrokerError: there is no such group.
            IllegalStateError: no member was asked to compute a target.
        """
        return self._on_loop(lambda state: expire_assignment(state.groups, group_id))

    def remove_member(self, group_id: str, member: str) -> None:
        """Remove a member, as an operator may: its next heartbeat is refused.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
        """
        self._on_loop(lambda state: remove_member(state.groups, group_id, member))

    def force_rebalance(self, group_id: str) -> int:
        """Move a group to a new epoch, as when a member joins and leaves; return that epoch.

        Every member gets the new epoch with its next heartbeat, and keeps its partitions if the assignor is sticky. The
        members of a classic group join again; its epoch is the generation that begins then.

        Raises:
            BrokerError: there is no such group, or it is full.
            IllegalStateError: it is a classic group without members.
        """
        return self._on_loop(lambda state: force_rebalance(state.groups, group_id))

    # --- transactions

    def transactions(self) -> tuple[TransactionSnapshot, ...]:
        """Every transactional id that producers have used, by name."""
        return self._on_loop(lambda state: state.transactions.snapshots())

    def wait_for_transaction(
        self, transactional_id: str, state: str, *, timeout_s: float = 30.0
    ) -> TransactionSnapshot:
        """Wait until a transactional id is in *state*, and return it as it was then.

        Args:
            state: as Kafka names it: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit`` or
                ``CompleteAbort``.

        Raises:
            RequestTimeoutError: it did not reach the state in time; the message shows the transaction as it is.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[TransactionSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda broker: broker.transactions.add_waiter(transactional_id, state, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            known = self.transactions() if self.running else ()
            now = next((each for each in known if each.transactional_id == transactional_id), None)
            raise RequestTimeoutError(
                f"transactional id {transactional_id!r}: not in state {state} within {timeout_s} s; "
                f"{'there is no such id' if now is None else now}"
            ) from None
        finally:
            future.cancel()

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when it has taken too long.

        Raises:
            IllegalStateError: there is no such open transaction.
        """
        self._on_loop(lambda state: state.transactions.abort(transactional_id))

    # --- nodes

    @property
    def nodes(self) -> tuple[NodeSnapshot, ...]:
        """The nodes, by id: where each listens, whether it runs, and what it leads."""
        return self._on_loop(node_snapshots)

    def kill_node(self, node_id: int) -> None:
        """End a node as a power failure does: connections are reset, and what it led goes to other nodes.

        A group that it coordinated is loaded by another node: members keep their partitions and epochs, sessions begin
        anew. ``kip848.election.delay.ms`` puts time before the others notice, ``kip848.coordinator.load.ms`` before
        groups and transactions are served again.

        Raises:
            IllegalStateError: there is no such node, it is not running, or the broker has a single node.
        """
        thread, fail_over = self._failing_over()
        thread.run(fail_over.kill(node_id))

    def stop_node(self, node_id: int) -> None:
        """Shut a node down as an operator does: what it leads moves first, then its connections are closed.

        Raises:
            IllegalStateError: there is no such node, it is not running, or the broker has a single node.
        """
        thread, fail_over = self._failing_over()
        thread.run(fail_over.stop(node_id))

    def start_node(self, node_id: int, *, preferred: bool = False) -> None:
        """Start a node that was killed or stopped, on its old port.

        Args:
            preferred: it leads again what it led by preference; else others keep that.

        Raises:
            IllegalStateError: there is no such node, it runs, or the broker has a single node.
            ConfigError: another process has taken its port.
        """
        thread, fail_over = self._failing_over()
        thread.run(fail_over.start(node_id, preferred=preferred))

    def pause_node(self, node_id: int) -> None:
        """Let a node hang, as SIGSTOP does: it takes requests, answers none, and lets no time run out.

        It keeps what it leads for as long as it hangs, and its groups and transactions stay as they are.

        Raises:
            IllegalStateError: there is no such node, it is not running, or the broker has a single node.
        """
        thread, fail_over = self._failing_over()
        thread.call(lambda: fail_over.pause(node_id))

    def resume_node(self, node_id: int) -> None:
        """Let a paused node go on: it answers what came meanwhile, in order, and then does what became due.

        So a member whose heartbeat waited stays in its group, and one that sent none is removed.

        Raises:
            IllegalStateError: there is no such node, it is not paused, or the broker has a single node.
        """
        thread, fail_over = self._failing_over()
        thread.call(lambda: fail_over.resume(node_id))

    def leader(self, topic: str, partition: int) -> int:
        """The id of the node that leads a partition; -1 while none does.

        Raises:
            BrokerError: there is no such partition.
        """
        return self._on_loop(
            lambda state: state.placement.get(_topic(state, topic, partition).topic_id, partition).leader
        )

    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int:
        """The id of the node that coordinates a group, or a transactional id; -1 while none does.

        Raises:
            TypeError: not exactly one of them is given.
        """
        kind, key = _coordinated(group, transactional_id)
        return self._on_loop(lambda state: state.placement.coordinator(kind, key))

    def move_leader(self, topic: str, partition: int, to: int, *, lose_records: int = 0) -> None:
        """Let another node lead a partition, with the next leader epoch.

        Args:
            lose_records: how many of its last records the new leader does not have; consumers that have read them
                learn that the log was truncated. Whole batches are lost, so it may be some more.

        Raises:
            BrokerError: there is no such partition, or it holds fewer records.
            IllegalStateError: the node is not running, or the broker has a single node.
        """
        _, fail_over = self._failing_over()
        self._on_loop(
            lambda state: fail_over.move_leader(
                _topic(state, topic, partition), partition, to, lose_records=lose_records
            )
        )

    def move_coordinator(self, *, group: str | None = None, transactional_id: str | None = None, to: int) -> None:
        """Let another node coordinate a group, or a transactional id, and those that share its partition in Kafka.

        Raises:
            IllegalStateError: the node is not running, or the broker has a single node.
            TypeError: not exactly one of *group* and *transactional_id* is given.
        """
        kind, key = _coordinated(group, transactional_id)
        thread, fail_over = self._failing_over()
        thread.call(lambda: fail_over.move_coordinator(kind, key, to))

    # --- records, without a client

    def produce(
        self,
        topic: str,
        value: Content,
        key: Content = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BrokerRecord:
        """Write one record, and return it with its offset.

        It does not go over the network: it needs no login, meets no fault rule, and is not in `requests`.

        Args:
            value: text is written as UTF-8; None is a tombstone.
            partition: by default as Java's producer chooses by the key, and in turn without a key.
            timestamp_ms: by default the broker's wall clock.

        Raises:
            BrokerError: there is no such topic or partition, or the record is too large.
            MessageValueError: key, value or a header is neither bytes nor text.
        """
        new = NewRecord(value, key, headers, partition, timestamp_ms)
        return self.produce_many(topic, (new,))[0]

    def produce_many(self, topic: str, records: Iterable[NewRecord | Content]) -> tuple[BrokerRecord, ...]:
        """Write records, each partition's as one batch; return them with their offsets, in the order given.

        Args:
            records: values, or `NewRecord` for those with more than a value.

        Raises:
            As `produce`. Nothing is written if a record or partition is wrong.
        """
        if isinstance(records, str | bytes):
            raise MessageValueError("produce_many takes several records; for one there is produce()")
        new = tuple(each if isinstance(each, NewRecord) else NewRecord(each) for each in records)
        return self._on_loop(
            lambda state: append_records(state.topics, _topic(state, topic, None), new, wall_ms=self._clock.wall_ms())
        )

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> tuple[BrokerRecord, ...]:
        """Read all records of a topic, or of one partition, by partition and offset.

        Args:
            committed: leave out those of open and aborted transactions, as ``read_committed`` does.

        Raises:
            BrokerError: there is no such topic or partition.
            ProtocolError: a producer wrote a batch whose records are damaged.
        """
        return self._on_loop(
            lambda state: read_records(_topic(state, topic, partition), partition, committed=committed)
        )

    def wait_for_records(
        self,
        topic: str,
        count: int,
        partition: int | None = None,
        *,
        committed: bool = True,
        timeout_s: float = 30.0,
    ) -> tuple[BrokerRecord, ...]:
        """Wait until a topic, or one partition, has at least *count* records, and return all that it has.

        Checked whenever records are appended, not in intervals.

        Raises:
            RequestTimeoutError: the time is up; the message says how many there are.
            As `records`.
        """
        future: concurrent.futures.Future[tuple[BrokerRecord, ...]] = concurrent.futures.Future()

        def begin(state: BrokerState) -> Watch:
            found = _topic(state, topic, partition)
            logs = found.partitions if partition is None else found.partitions[partition : partition + 1]

            def look(_size_bytes: int = 0) -> None:
                if not future.done() and sum(log.log_end_offset - log.log_start_offset for log in logs) >= count:
                    try:
                        records = read_records(found, partition, committed=committed)
                    except ProtocolError as error:
                        future.set_exception(error)
                    else:
                        if len(records) >= count:
                            future.set_result(records)

            watch = state.topics.watchers.watch(logs, on_append=look, on_gone=look)
            look()
            return watch

        watch = self._on_loop(begin)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            there = len(self.records(topic, partition, committed=committed))
            where = topic if partition is None else f"{topic}-{partition}"
            raise RequestTimeoutError(f"{where} has {there} records, not {count}, after {timeout_s} s") from None
        finally:
            future.cancel()
            if self.running:
                self._on_loop(lambda _: watch.cancel())

    # --- waiting for groups

    def wait_for_group(
        self,
        group_id: str,
        *,
        state: str | None = None,
        members: int | None = None,
        epoch: int | None = None,
        assignor: str | None = None,
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until a group matches; all given conditions must hold at once.

        Checked whenever the group changes, not in intervals. Blocks the calling thread; asynchronous code awaits
        `aio.wait_for_group` instead.

        Args:
            state: as Kafka names it, case does not matter: ``Empty``, ``Assigning``, ``Reconciling`` or ``Stable``; of
                a classic group ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
            assignor: the assignor in use, a server-side one or a client-side one that all members offer; the protocol
                of a classic group.

        Raises:
            ConfigError: no group is ever in such a state.
            RequestTimeoutError: the time is up; the message shows the current group.
        """
        if state is not None and state.lower() not in {name.lower() for name in _GROUP_STATES}:
            raise ConfigError(f"no group is ever {state!r}; its states are {', '.join(_GROUP_STATES)}")
        return self.wait_for(
            group_id,
            lambda group: (
                (state is None or group.state.lower() == state.lower())
                and (members is None or len(group.members) == members)
                and (epoch is None or group.group_epoch >= epoch)
                and (assignor is None or group.assignor == assignor)
            ),
            what=", ".join(
                f"{name}={value}"
                for name, value in (("state", state), ("members", members), ("epoch", epoch), ("assignor", assignor))
                if value is not None
            )
            or "to exist",
            timeout_s=timeout_s,
        )

    def wait_for(
        self,
        group_id: str,
        predicate: Callable[[GroupSnapshot], bool],
        *,
        what: str = "the condition",
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until *predicate* holds for a snapshot of a group, and return that snapshot.

        Args:
            predicate: called on the broker's thread with each new snapshot; must be quick and call no broker method.
            what: names the condition in the error.

        Raises:
            RequestTimeoutError: the time is up.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[GroupSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda state: state.groups.add_waiter(group_id, predicate, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            now = self.group(group_id) if self.running else None
            raise RequestTimeoutError(
                f"group {group_id!r}: {what}: not within {timeout_s} s; "
                f"{'there is no such group' if now is None else now}"
            ) from None
        finally:
            future.cancel()

    def advance_clock(self, ms: int) -> None:
        """Advance the `ManualClock` and perform what becomes due: sessions, revocations and offsets expire.

        Raises:
            IllegalStateError: the broker runs on real time.
        """
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise IllegalStateError(
                "advance_clock needs EmbeddedBroker(clock=ManualClock()); this one runs on real time"
            )

        fail_over = self._fail_over

        def advance(state: BrokerState) -> None:
            clock.advance(ms)
            if fail_over is not None:
                fail_over.run_due()
            state.groups.run_due()
            state.transactions.run_due()
            state.cleaner.run_due()
            self.faults.run_due()

        self._on_loop(advance)

    # --- internals

    async def _start_on_loop(self, thread: LoopThread, nodes: Nodes) -> None:
        storage = self._open_storage()
        topics, cluster_id = storage.topics, storage.cluster_id
        images = TopicImages(
            topics, clock=self._clock, node_racks={node.node_id: node.rack for node in nodes if node.rack}
        )
        groups, transactions = self._coordinators(storage, images, thread.loop)
        access = self._new_access(storage) if self.config.authorizer else None
        if access is not None:
            images.visible_to = access.visible_to
        state = BrokerState(
            nodes=nodes,
            cluster_id=cluster_id,
            clock=self._clock,
            config=self.config,
            loop=thread.loop,
            served=self._apis.versions,
            topics=topics,
            offsets_topic=storage.offsets_topic,
            groups=groups,
            transactions=transactions,
            cleaner=LogCleaner(
                topics,
                clock=self._clock,
                loop=thread.loop,
                retention_interval_ms=self.config.retention_check_interval_ms,
                compaction_interval_ms=self.config.cleaner_backoff_ms,
            ),
            journal=self._journal,
            data_dir=self._data_dir,
            users=Users(self._sasl, storage.scram),
            access=access,
        )
        for number, placed in enumerate(topics.placement.of(GROUP_OFFSETS)):
            storage.offsets_topic.lead(number, epoch=placed.epoch)
        stop_following = self._known_topics.follow(topics)
        stop_writing = topics.subscribe(self._write_topic_event)
        for name, partitions in self._topics_at_start.items():
            existing = topics.get(name)
            if existing is None:
                _create_at_start(topics, name, partitions)
            elif existing.partition_count < partitions:
                topics.add_partitions(name, partitions)
        self._topics_at_start = {}
        groups.load()
        transactions.load()
        abort_orphans(topics, transactions, now_ms=self._clock.wall_ms())
        dispatcher = Dispatcher(state, apis=self._apis, faults=self.faults, requests=self.requests)
        make_server = self._server_maker(dispatcher, state)
        self.faults.attach(thread.loop)
        await nodes.start(make_server)
        self._state = state
        if isinstance(groups, GroupShards) and isinstance(transactions, TransactionShards):
            self._fail_over = FailOver(
                self.config,
                state=state,
                groups=groups,
                transactions=transactions,
                make_server=make_server,
                on_event=lambda event, node_id: self._write_event(event, {"node_id": node_id}),
            )
        self._stop_working = dispatcher.close
        stop_publishing = self._publish_metrics(thread, state)
        self._stop_listening = lambda: (stop_following(), stop_writing(), stop_publishing(), images.close())[0]
        self._repairs = () if self._data is None else tuple(self._data.repairs)
        for repair in self._repairs:
            self._write_event("data_folder_repaired", msgspec.to_builtins(repair))
        self._write_event(
            "broker_started",
            {
                "bootstrap_servers": self.bootstrap_servers,
                "node_id": self.node_id,
                "nodes": len(nodes),
                "topics": {topic.name: topic.partition_count for topic in topics},
            },
        )

    def _coordinators(
        self, storage: _Storage, images: TopicImages, loop: asyncio.AbstractEventLoop
    ) -> tuple[Groups, TransactionHost | TransactionShards]:
        """One coordinator for everything on a single node; of several nodes one for each partition."""
        topics = storage.topics
        if topics.placement.is_spread:
            shards = GroupShards(
                self.config,
                log=storage.log,
                configs=storage.configs,
                images=images,
                offsets_topic=storage.offsets_topic,
                placement=topics.placement,
                clock=self._clock,
                journal=self._journal,
                loop=loop,
            )
            return shards, TransactionShards(
                self.config,
                log=storage.transaction_log,
                topics=topics,
                groups=shards,
                clock=self._clock,
                loop=loop,
            )
        groups = GroupHost(
            self.config,
            log=storage.log,
            configs=storage.configs,
            images=images,
            offsets_topic=storage.offsets_topic,
            metrics=GroupMetrics(loop),
            clock=self._clock,
            journal=self._journal,
            loop=loop,
        )
        return groups, TransactionHost(
            self.config,
            log=storage.transaction_log,
            topics=topics,
            groups=groups,
            clock=self._clock,
            loop=loop,
            coordinator_epoch=0 if self._data is None else self._data.coordinator_epoch,
        )

    def _server_maker(self, dispatcher: Dispatcher, state: BrokerState) -> Callable[[int], Server]:
        """A function that makes the server of a node, at the start and whenever the node comes back."""
        numbers = itertools.count(1)

        def refused(reason: str) -> None:
            self._write_event("connection_refused", {"reason": reason})

        authentication: Authentication | None = None
        if self._sasl is not None:
            state.authentication = authentication = Authentication(
                self._sasl.mechanisms,
                state.users,
                self.config,
                clock=self._clock,
                call_later=state.call_later,
                on_refused=refused,
            )
            authentication.open_request = dispatcher.open_request

        def make_server(node_id: int) -> Server:
            state.fetch_sessions[node_id] = FetchSessions(
                slots=self.config.fetch_session_slots,
                session_partitions_max=self.config.request_elements_max,
                new_id=lambda: secrets.randbits(31),
            )
            return Server(
                self.config,
                open_request=dispatcher.open_request if authentication is None else authentication.admit,
                encode=dispatcher.encode,
                on_refused=refused,
                on_gone=None if authentication is None else authentication.forget,
                ssl_context=self._ssl_context,
                authenticated=authentication is None,
                node_id=node_id,
                numbers=numbers,
            )

        return make_server

    def _open_storage(self) -> _Storage:
        limit = self.config.message_bytes_max
        if self._data_dir is not None:
            data = self._data = DataDir.open(self._data_dir, flush_messages=self.config.flush_messages)
            data.on_write_failed = self._storage_failed
            data.on_write_recovered = self._storage_recovered
            registry = TopicRegistry(data, message_bytes_max=limit, placement=self._new_placement())
            return _Storage(
                registry,
                OffsetsTopic(registry.watchers),
                data.coordinator_log,
                data.transaction_log,
                GroupConfigStore(data),
                data.cluster_id,
                AclStore(data),
                ScramChanges(data),
            )
        if self._memory is None:
            registry = TopicRegistry(message_bytes_max=limit, placement=self._new_placement())
            self._memory = _Storage(
                registry,
                OffsetsTopic(registry.watchers),
                MemoryGroupLog(),
                MemoryGroupLog(),
                GroupConfigStore(),
                new_cluster_id(),
                AclStore(),
                ScramChanges(),
            )
        else:
            self._memory.topics.elect_leaders()
            self._memory.offsets_topic.elect_leader()
        return self._memory

    def _new_access(self, storage: _Storage) -> Access:
        def denied(context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> None:
            self._write_event(
                "authorization_denied",
                {
                    "principal": context.principal,
                    "host": context.client_host,
                    "api": api_title(context.api_key),
                    "operation": operation.name,
                    "resource_type": resource_type.name,
                    "resource_name": name,
                },
                client_id=context.client_id,
            )

        return Access(
            storage.acls,
            super_users=self.config.super_user_names,
            allow_everyone=self.config.allow_everyone,
            topics=storage.topics,
            offsets_topic=storage.offsets_topic,
            creates_topics=self.config.auto_create_topics,
            on_denied=denied,
        )

    def _with_access(self, function: Callable[[Access], ResultT]) -> ResultT:
        if not self.config.authorizer:
            raise IllegalStateError("this broker allows everything; make it with acls=True")

        def run(state: BrokerState) -> ResultT:
            assert state.access is not None
            return function(state.access)

        return self._on_loop(run)

    def _new_placement(self) -> Placement:
        return Placement(tuple(self._ports), replication_factor=self.config.default_replication_factor)

    def _close_data(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            data.close()

    def _end(self, *, abort: bool) -> None:
        thread, state, fail_over = self._thread, self._state, self._fail_over
        if thread is None or self._process_id != os.getpid():
            return  # a forked child has the object, but neither thread nor loop: the parent's broker runs on
        assert state is not None
        thread.refuse_own_thread()
        self._thread = self._state = self._fail_over = None
        try:
            thread.call(self.faults.detach)
            if fail_over is not None:
                thread.call(fail_over.close)
            thread.call(self._stop_working)
            if not abort:
                thread.call(state.groups.stop_coordinating)
            thread.run(state.nodes.stop(abort=abort))
            thread.call(state.cleaner.close)
            thread.call(state.transactions.close)
            thread.call(state.groups.close)
            self._stop_listening()
        finally:
            thread.stop()
            self._close_data()
        if not abort:
            self._write_event("broker_stopped", {})

    def _on_loop(self, function: Callable[[BrokerState], ResultT]) -> ResultT:
        thread, state = self._living()
        return thread.call(lambda: function(state))

    def _failing_over(self) -> tuple[LoopThread, FailOver]:
        thread, _ = self._living()
        if self._fail_over is None:
            raise IllegalStateError(
                "this broker has a single node, which only stops as a whole: stop() or crash(). "
                "EmbeddedBroker(nodes=3) has nodes that come and go"
            )
        return thread, self._fail_over

    def _living(self) -> tuple[LoopThread, BrokerState]:
        thread, state = self._thread, self._state
        if thread is None or state is None:
            raise IllegalStateError("the broker is not running; call start() or use it in a with statement")
        if self._process_id != os.getpid():
            raise ForkedProcessError(
                f"the broker on {self.bootstrap_servers} runs in process {self._process_id}; "
                "a child may connect to it, but only its parent may call its methods"
            )
        return thread, state

    def _storage_failed(self, error: DataDirError) -> None:
        log_event(logging.ERROR, LogEvent.STORAGE_FAILED, logger=BROKER_LOGGER, error=error)
        self._write_event("storage_failed", {"error": str(error)})

    def _storage_recovered(self) -> None:
        log_event(logging.WARNING, LogEvent.STORAGE_RECOVERED, logger=BROKER_LOGGER, data_dir=self._data_dir)
        self._write_event("storage_recovered", {})

    def _publish_metrics(self, thread: LoopThread, state: BrokerState) -> Callable[[], None]:
        from kip848_client.telemetry import publish_coordinator  # here: an import of the broker does not load it

        process_id = os.getpid()

        def figures() -> tuple[Figure, ...]:
            if os.getpid() != process_id:
                return ()  # a forked child has no such thread
            try:
                return thread.call(state.groups.figures, timeout_s=_FIGURES_TIMEOUT_S)
            except (TimeoutError, RuntimeError):  # stopped, or too busy to wait for
                return ()

        # Figures of several nodes say themselves which node is theirs.
        own = {} if state.placement.is_spread else {"node-id": str(self.node_id)}
        return publish_coordinator(figures, attributes={"cluster-id": state.cluster_id, **own})

    def _fault_injected(self, context: RequestContext, subject: Subject, action: Action) -> None:
        self.requests.faulted(context, str(action))
        fields: dict[str, JsonValue] = {
            "api": api_title(context.api_key),
            "action": str(action),
            "groups": [*sorted(subject.groups)],
            "members": [*sorted(subject.members)],
        }
        self._write_event("fault_injected", fields, client_id=context.client_id)

    def _write_topic_event(self, change: TopicChange) -> None:
        topic = change.topic
        fields: dict[str, JsonValue] = {"topic": topic.name, "topic_id": str(topic.topic_id)}
        match change:
            case TopicCreated():
                self._write_event("topic_created", fields | {"partitions": topic.partition_count})
            case PartitionsAdded():
                self._write_event("partitions_added", fields | {"partitions": topic.partition_count})
            case TopicDeleted():
                self._write_event("topic_deleted", fields)
            case TopicReconfigured():
                self._write_event("topic_reconfigured", {**fields, "configs": {**topic.configs}})
            case _:
                assert_never(change)

    def _write_event(self, event: str, fields: Mapping[str, JsonValue], *, client_id: str | None = None) -> None:
        self._journal.write(
            JournalEvent(
                ts_ms=self._clock.wall_ms(), source="coordinator", event=event, client_id=client_id, fields=fields
            )
        )


class AsyncWaits:
    """The waiting calls of a broker, for asynchronous code. Arguments, results and errors are those of the broker's."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.wait_for_group = awaited(broker.wait_for_group)
        self.wait_for = awaited(broker.wait_for)
        self.wait_for_records = awaited(broker.wait_for_records)
        self.wait_for_transaction = awaited(broker.wait_for_transaction)
        self.wait_for_request = awaited(broker.requests.wait_for)


class _Storage(NamedTuple):
    """The state that a broker keeps between two starts."""

    topics: TopicRegistry
    offsets_topic: OffsetsTopic
    log: GroupLog
    transaction_log: GroupLog
    configs: GroupConfigStore
    cluster_id: str
    acls: AclStore
    scram: ScramChanges


def _create_at_start(topics: TopicRegistry, name: str, partitions: int) -> None:
    try:
        topics.create(name, partitions)
    except BrokerError as error:
        raise ConfigError(f"topic {name!r} with {partitions} partitions cannot be created: {error}") from error


def _coordinated(group: str | None, transactional_id: str | None) -> tuple[CoordinatorTopic, str]:
    if group is not None and transactional_id is None:
        return GROUP_OFFSETS, group
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE, transactional_id
    raise TypeError("give either group= or transactional_id=")


def _acls(
    permission: Permission,
    principal: str,
    operations: Iterable[str],
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    prefixed: bool,
    host: str,
) -> list[Acl]:
    """One ACL for each operation."""
    given = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    named = [(resource_type, name) for resource_type, name in given.items() if name is not None]
    if len(named) != 1:
        raise TypeError("give exactly one of topic=, group=, transactional_id= and cluster=True")
    ((resource_type, name),) = named
    found = []
    for operation in tuple(operations) or ("ALL",):
        if operation.upper() not in Operation.__members__ or operation.upper() == "ANY":
            raise ValueError(
                f"{operation!r} is not an operation; choose from {', '.join(list(Operation.__members__)[1:])}"
            )
        found.append(
            Acl(
                resource_type,
                PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                name,
                principal_of(principal),
                host,
                Operation[operation.upper()],
                permission,
            )
        )
    return found


def _topic_counts(topics: object) -> dict[str, int]:
    if topics is None:
        return {}
    if not isinstance(topics, Mapping):
        raise TypeError(f'topics is a mapping of names to partition counts, such as {{"orders": 3}}; got {topics!r}')
    return dict(topics)


def _topic(state: BrokerState, name: str, partition: int | None) -> Topic:
    topic = state.topics.get(name)
    if topic is None:
        known = ", ".join(sorted(state.topics.names())) or "none"
        text = f"there is no topic {name!r}; topics are: {known}"
    elif partition is not None and not 0 <= partition < topic.partition_count:
        text = f"topic {name!r} has no partition {partition}; it has 0 to {topic.partition_count - 1}"
    else:
        return topic
    raise BrokerError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
