"""`EmbeddedBroker`: starting, stopping, and the calls on a running broker: topics, groups, transactions, time.

The broker runs on its own thread, ``kip848-broker-<port>``. Any thread may call the methods here; they pass their work
to the broker's thread and wait for it. A call takes the way of a request: through the topic registry and the group
coordinator, into the records and to the observers of changes.
"""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar, assert_never

import msgspec

from kip848_client.broker.apis import ApiTable, load_apis
from kip848_client.broker.authentication import Authentication
from kip848_client.broker.config import BrokerConfig, Profile
from kip848_client.broker.context import RequestContext
from kip848_client.broker.data_folder import new_cluster_id
from kip848_client.broker.dispatch import Dispatcher
from kip848_client.broker.faults import Faults
from kip848_client.broker.group_admin import (
    committed_offsets,
    expire_assignment,
    expire_session,
    force_rebalance,
    member_of,
    remove_member,
)
from kip848_client.broker.group_configs import GroupConfigStore
from kip848_client.broker.group_log import GroupLog, MemoryGroupLog
from kip848_client.broker.groups import GroupHost
from kip848_client.broker.log import DataDir, Repair
from kip848_client.broker.logged_request import api_title
from kip848_client.broker.loop_thread import LoopThread
from kip848_client.broker.offsets_topic import OffsetsTopic
from kip848_client.broker.request_log import RequestLog
from kip848_client.broker.security import BrokerSasl, BrokerTls, check_exposure, protocol_name, server_context
from kip848_client.broker.server import Server
from kip848_client.broker.snapshots import GroupSnapshot
from kip848_client.broker.state import BrokerState
from kip848_client.broker.topic_configs import PARTITION_RACKS, racks_to_text
from kip848_client.broker.topic_names import KnownTopics
from kip848_client.broker.topics import (
    PartitionsAdded,
    Topic,
    TopicChange,
    TopicCreated,
    TopicDeleted,
    TopicReconfigured,
    TopicRegistry,
)
from kip848_client.broker.transactions import TransactionHost
from kip848_client.clock import Clock, ManualClock, SystemClock
from kip848_client.coordinator.timers import TimerKind
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    DataDirError,
    ErrorCode,
    ForkedProcessError,
    IllegalStateError,
    RequestTimeoutError,
)
from kip848_client.faults import Action, Subject
from kip848_client.journal import Journal, JournalEvent, JsonValue, NullJournal
from kip848_client.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.model import TopicPartition

if TYPE_CHECKING:
    from kip848_client.broker.transactions import TransactionSnapshot
    from kip848_client.telemetry import Figure

__all__ = ["EmbeddedBroker"]

ResultT = TypeVar("ResultT")


_FIGURES_TIMEOUT_S: Final = 1.0

load_apis()  # while the module is imported, so that a start takes milliseconds


class EmbeddedBroker:
    """A Kafka broker of one node in this process, on loopback TCP, for any Kafka client.

    Args:
        topics: topics to create at start, name to number of partitions.
        profile: ``default`` is fast and serves the client-side assignor extension; ``kafka`` has Apache Kafka's
            defaults and serves no extension.
        config: Kafka broker properties over those defaults.
        host: loopback address to listen on.
        port: port to listen on; 0 takes a free one.
        data_dir: folder that keeps topics, groups and offsets; without it they live as long as this object.
        clock: drives group timers. With a `ManualClock` they move only by `advance_clock`.
        journal: receives the events.
        node_id: the broker's id, >= 0.
        allow_remote: needed for a host that is not loopback, together with authentication.
        advertised_host: the address that clients are given; *host* if None.
        tls: if given, every connection uses TLS.
        sasl: if given, every connection must log in.

    Attributes:
        faults: rules that inject faults into requests; see `Faults.on`.
        requests: the requests of clients with their answers; see `RequestLog.of` and `RequestLog.wait_for`.

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
        allow_remote: bool = False,
        advertised_host: str | None = None,
        tls: BrokerTls | None = None,
        sasl: BrokerSasl | None = None,
    ) -> None:
        self.config: Final = BrokerConfig.parse(config or {}, profile=profile)
        check_exposure(host, advertised_host=advertised_host, allow_remote=allow_remote, tls=tls, sasl=sasl)
        self.security_protocol: Final = protocol_name(tls, sasl)
        """The value of ``security.protocol`` for clients."""
        self._ssl_context: Final = None if tls is None else server_context(tls)
        self._sasl = sasl
        self._advertised_host: Final = advertised_host or host
        if not 0 <= port <= 65535:
            raise ConfigError(f"port {port} is not between 0 and 65535")
        if node_id < 0:
            raise ConfigError(f"node_id {node_id} is negative")
        self.node_id: Final = node_id
        self._topics_at_start: dict[str, int] = _topic_counts(topics)
        self._host: Final = host
        self._port = port
        self._data_dir: Final = Path(data_dir) if data_dir is not None else None
        self._clock: Clock = clock or SystemClock()
        self._journal: Final[Journal] = journal or NullJournal()
        self._thread: LoopThread | None = None
        self._process_id = 0
        self._server: Server | None = None
        self._state: BrokerState | None = None
        self._data: DataDir | None = None
        self._memory: _Storage | None = None
        self._repairs: tuple[Repair, ...] = ()
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
            serves=ApiTable(extension=self.config.client_assignors).serves,
            on_fault=self._fault_injected,
        )

    # --- life

    def start(self) -> Self:
        """Serve. Returns when clients may connect; a running broker cannot be started again.

        After `stop` or `crash` it starts on the same port with its topics, records, groups and offsets. As in Kafka the
        leader epoch of their partitions grows by one; in topics created later it starts at 0.

        Raises:
            ConfigError: the port is taken, or a topic to create is refused.
            DataDirError: the data directory cannot be used.
            IllegalStateError: it runs already.
        """
        if self._thread is not None:
            raise IllegalStateError(f"the broker on {self.bootstrap_servers} runs already")
        listening = _listen(self._host, self._port)
        self._port = listening.getsockname()[1]
        thread = LoopThread(f"kip848-broker-{self._port}")
        try:
            thread.run(self._start_on_loop(thread, listening))
        except BaseException:
            thread.stop()
            listening.close()
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
        """``host:port`` for clients; complete once the broker has been started."""
        host = self._advertised_host
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port; 0 before the first start if none was asked for."""
        return self._port

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
            assert state.authentication is not None
            state.authentication.replace_users(sasl)

        if self.running:
            self._on_loop(replace)

    # --- topics

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> uuid.UUID:
        """Create a topic and return its id.

        Raises:
            BrokerError: the name is taken or not allowed, or there are too few or too many partitions.
        """
        return self._on_loop(lambda state: state.topics.create(name, partitions, configs=configs).topic_id)

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
        """Where each partition of a topic starts and ends: partition -> (first offset, next offset).

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

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group; empty if there is no such group."""
        return self._on_loop(lambda state: committed_offsets(state.groups, group_id))

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
            IllegalStateError: it has nothing to give up.
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
            IllegalStateError: no member was told to compute a target.
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

        Every member gets the new epoch with its next heartbeat, and keeps its partitions if the assignor is sticky.

        Raises:
            BrokerError: there is no such group, or it is full.
            IllegalStateError: it is a classic group; only its own members can begin a rebalance of it.
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
            RequestTimeoutError: it did not come to be; the message shows the transaction as it is.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[TransactionSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda broker: broker.transactions.add_waiter(transactional_id, state, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            known = self.transactions() if self.running else ()
            now = next((each for each in known if each.transactional_id == transactional_id), None)
            raise RequestTimeoutError(
                f"transactional id {transactional_id!r}: {state} did not come to be within {timeout_s} s; "
                f"{'there is no such id' if now is None else now}"
            ) from error
        finally:
            future.cancel()

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when it has taken too long.

        Raises:
            IllegalStateError: there is no such open transaction.
        """
        self._on_loop(lambda state: state.transactions.abort(transactional_id))

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

        Checked whenever the group changes, not in intervals. Blocks the calling thread: in asynchronous code call it
        through ``asyncio.to_thread`` or ``anyio.to_thread.run_sync``.

        Args:
            state: as Kafka names it, case does not matter: ``Empty``, ``Assigning``, ``Reconciling`` or ``Stable``; of
                a classic group ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
            assignor: the assignor in use, a server-side one or a client-side one that all members offer; the protocol
                of a classic group.

        Raises:
            RequestTimeoutError: the time is up; the message shows the current group.
        """
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
        except concurrent.futures.TimeoutError as error:
            now = self.group(group_id) if self.running else None
            raise RequestTimeoutError(
                f"group {group_id!r}: {what}: not within {timeout_s} s; "
                f"{'there is no such group' if now is None else now}"
            ) from error
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

        def advance(state: BrokerState) -> None:
            state.groups.advance(lambda: clock.advance(ms))
            state.transactions.run_due()
            self.faults.run_due()

        self._on_loop(advance)

    # --- inside

    async def _start_on_loop(self, thread: LoopThread, listening: socket.socket) -> None:
        topics, offsets_topic, log, transaction_log, configs, cluster_id = self._open_storage()
        groups = GroupHost(
            self.config,
            log=log,
            configs=configs,
            topics=topics,
            offsets_topic=offsets_topic,
            clock=self._clock,
            journal=self._journal,
            loop=thread.loop,
        )
        apis = ApiTable(extension=self.config.client_assignors)
        transactions = TransactionHost(
            self.config,
            log=transaction_log,
            topics=topics,
            groups=groups,
            clock=self._clock,
            loop=thread.loop,
        )
        state = BrokerState(
            node_id=self.node_id,
            cluster_id=cluster_id,
            host=self._advertised_host,
            port=self._port,
            clock=self._clock,
            config=self.config,
            loop=thread.loop,
            served=apis.versions,
            topics=topics,
            offsets_topic=offsets_topic,
            groups=groups,
            transactions=transactions,
            journal=self._journal,
            data_dir=self._data_dir,
        )
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
        dispatcher = Dispatcher(state, apis=apis, faults=self.faults, requests=self.requests)
        server = self._make_server(dispatcher, state)
        self.faults.attach(thread.loop)
        await server.start(listening)
        self._state, self._server = state, server
        stop_publishing = self._publish_metrics(thread, state)
        self._stop_listening = lambda: (stop_following(), stop_writing(), stop_publishing())[0]
        self._repairs = () if self._data is None else tuple(self._data.repairs)
        for repair in self._repairs:
            self._write_event("data_folder_repaired", msgspec.to_builtins(repair))
        self._write_event(
            "broker_started",
            {
                "bootstrap_servers": self.bootstrap_servers,
                "node_id": self.node_id,
                "topics": {topic.name: topic.partition_count for topic in topics},
            },
        )

    def _make_server(self, dispatcher: Dispatcher, state: BrokerState) -> Server:
        def refused(reason: str) -> None:
            self._write_event("connection_refused", {"reason": reason})

        if self._sasl is None:
            return Server(
                self.config,
                open_request=dispatcher.open_request,
                encode=dispatcher.encode,
                on_refused=refused,
                ssl_context=self._ssl_context,
            )
        authentication = Authentication(
            self._sasl, self.config, clock=self._clock, call_later=state.call_later, on_refused=refused
        )
        authentication.open_request = dispatcher.open_request
        state.authentication = authentication
        return Server(
            self.config,
            open_request=authentication.admit,
            encode=dispatcher.encode,
            on_refused=refused,
            on_gone=authentication.forget,
            ssl_context=self._ssl_context,
            authenticated=False,
        )

    def _open_storage(self) -> _Storage:
        limit = self.config.message_bytes_max
        if self._data_dir is not None:
            data = self._data = DataDir.open(self._data_dir, flush_messages=self.config.flush_messages)
            data.on_write_failed = self._storage_failed
            data.on_write_recovered = self._storage_recovered
            registry = TopicRegistry(data, message_bytes_max=limit)
            return _Storage(
                registry,
                OffsetsTopic(registry.watchers),
                data.coordinator_log,
                data.transaction_log,
                GroupConfigStore(data),
                data.cluster_id,
            )
        if self._memory is None:
            registry = TopicRegistry(message_bytes_max=limit)
            self._memory = _Storage(
                registry,
                OffsetsTopic(registry.watchers),
                MemoryGroupLog(),
                MemoryGroupLog(),
                GroupConfigStore(),
                new_cluster_id(),
            )
        else:
            self._memory.topics.elect_leaders()
            self._memory.offsets_topic.elect_leader()
        return self._memory

    def _close_data(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            data.close()

    def _end(self, *, abort: bool) -> None:
        thread, server, state = self._thread, self._server, self._state
        if thread is None or self._process_id != os.getpid():
            return  # a forked child has the object, but neither thread nor loop: the parent's broker runs on
        assert server is not None
        assert state is not None
        thread.refuse_own_thread()
        self._thread = self._server = self._state = None
        try:
            thread.call(self.faults.detach)
            if not abort:
                thread.call(state.groups.stop_coordinating)
            thread.run(server.stop(abort=abort))
            thread.call(state.transactions.close)
            thread.call(state.groups.close)
            self._stop_listening()
        finally:
            thread.stop()
            self._close_data()
        if not abort:
            self._write_event("broker_stopped", {})

    def _on_loop(self, function: Callable[[BrokerState], ResultT]) -> ResultT:
        thread, state = self._thread, self._state
        if thread is None or state is None:
            raise IllegalStateError("the broker does not run; call start() or use it in a with statement")
        if self._process_id != os.getpid():
            raise ForkedProcessError(
                f"the broker on {self.bootstrap_servers} runs in process {self._process_id}; "
                "a child may connect to it, but only its parent may call its methods"
            )
        return thread.call(lambda: function(state))

    def _storage_failed(self, error: DataDirError) -> None:
        log_event(logging.ERROR, LogEvent.STORAGE_FAILED, logger=BROKER_LOGGER, error=error)
        self._write_event("storage_failed", {"error": str(error)})

    def _storage_recovered(self) -> None:
        log_event(logging.WARNING, LogEvent.STORAGE_RECOVERED, logger=BROKER_LOGGER)
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

        return publish_coordinator(figures, attributes={"cluster-id": state.cluster_id, "node-id": str(state.node_id)})

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


class _Storage(NamedTuple):
    """The state that a broker keeps between two starts."""

    topics: TopicRegistry
    offsets_topic: OffsetsTopic
    log: GroupLog
    transaction_log: GroupLog
    configs: GroupConfigStore
    cluster_id: str


def _create_at_start(topics: TopicRegistry, name: str, partitions: int) -> None:
    try:
        topics.create(name, partitions)
    except BrokerError as error:
        raise ConfigError(f"topic {name!r} with {partitions} partitions cannot be created: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} on {host} is taken; choose another, or 0 for a free one") from error
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _topic_counts(topics: object) -> dict[str, int]:
    if topics is None:
        return {}
    if not isinstance(topics, Mapping):
        raise TypeError(f'topics is a mapping of names to partition counts, such as {{"orders": 3}}; got {topics!r}')
    return dict(topics)


def _topic(state: BrokerState, name: str, partition: int) -> Topic:
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < topic.partition_count:
        raise BrokerError(
            f"there is no {name}-{partition}; topics are {sorted(state.topics.names())}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return topic
