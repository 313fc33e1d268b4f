"""`EmbeddedBroker`: starting, stopping, and the calls that a newcomer types first.

The broker runs on its own thread, ``kip848-broker-<port>``. Any thread may call the methods here and in `controls`;
they run their work on the broker's thread and wait for it. A call acts like a request: the topic registry or the group
coordinator makes the change, writes records and tells the observers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self, TypeVar

from msgspec.structs import replace

from kip848_client.common.addresses import in_url
from kip848_client.common.clock import Clock, SystemClock
from kip848_client.errors import (
    ArgumentTypeError,
    ConfigError,
    IllegalStateError,
    MessageValueError,
    OutOfResourcesError,
    RequestTimeoutError,
)
from kip848_client.journal import Journal, NullJournal
from kip848_client.testing.broker.apis import ApiTable, load_apis
from kip848_client.testing.broker.arguments import check_helpers, listeners_of, ports_of, settings_of, topic_counts
from kip848_client.testing.broker.cluster.nodes import Listener, Nodes
from kip848_client.testing.broker.config import Profile
from kip848_client.testing.broker.controls.acls import BrokerAcls
from kip848_client.testing.broker.controls.async_waits import AsyncWait, awaited
from kip848_client.testing.broker.controls.clock import BrokerClock
from kip848_client.testing.broker.controls.groups import BrokerGroups, conditions
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.controls.nodes import BrokerNodes
from kip848_client.testing.broker.controls.quotas import BrokerQuotas
from kip848_client.testing.broker.controls.shares import BrokerShares
from kip848_client.testing.broker.controls.telemetry import BrokerTelemetry
from kip848_client.testing.broker.controls.topics import BrokerTopics
from kip848_client.testing.broker.controls.transactions import BrokerTransactions
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.broker.dispatch import Dispatcher
from kip848_client.testing.broker.events import BrokerEvents
from kip848_client.testing.broker.kept import Kept
from kip848_client.testing.broker.metadata.placement import Placement
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.faults import Faults
from kip848_client.testing.broker.net.listener_security import (
    BrokerSasl,
    BrokerTls,
    check_exposure,
    protocol_name,
    server_context,
)
from kip848_client.testing.broker.net.loop_thread import LoopThread, wait_s
from kip848_client.testing.broker.net.request_log import RequestLog
from kip848_client.testing.broker.share.share_group import ShareGroupSnapshot, share_group
from kip848_client.testing.broker.start_up import Started, StartUp
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.storage.data_dir import Repair
from kip848_client.testing.broker.topics.records import (
    BrokerRecord,
    Content,
    Headers,
    NewRecord,
    append_records,
    read_records,
    watch_records,
)
from kip848_client.testing.broker.topics.topic_names import KnownTopics
from kip848_client.testing.faults import Action, Subject

ResultT = TypeVar("ResultT")


load_apis()  # while the module is imported, so that a start takes milliseconds


class EmbeddedBroker:
    """A Kafka broker in this process, or a cluster of several, on loopback TCP, for any Kafka client.

    Args:
        topics: topics to create at start, name to number of partitions.
        profile: ``default`` is fast and serves the client-side assignor extension; ``kafka`` has Apache Kafka's
            defaults and serves no extension.
        config: Kafka broker properties over those defaults.
        port: port to listen on, at 127.0.0.1; 0 takes a free one. Further nodes take the ports after it.
        data_dir: folder that keeps topics, groups and offsets; without it they live as long as this object.
        clock: drives group timers. With a `ManualClock` they move only by ``broker.clock.advance``.
        journal: receives the events.
        node_id: the broker's id, >= 0; the lowest one of several nodes.
        nodes: how many brokers the cluster has; each has its own port, and requests are judged by the one they came to.
        racks: of the nodes, in the order of their ids. Consumers that set ``client.rack`` read from a replica there.
        listeners: the addresses at which every node listens instead, each with what its clients are told;
            `bootstrap_servers` is at the first.
        allow_remote: needed for a listener that is not loopback, together with authentication; ``"anonymous"`` needs
            none, and is for a network in which every program is trusted, such as that of a compose file.
        tls: if given, every connection uses TLS.
        sasl: if given, every connection must log in.
        connect_groups: serve `kip848_client.Worker`, which Apache Kafka cannot; the same as ``connect`` in
            ``group.coordinator.rebalance.protocols``.
        acls: refuse what no ACL allows; see `BrokerAcls.allow`. The same as ``authorizer.class.name=standard``, which
            needs ``super.users`` or ``allow.everyone.if.no.acl.found``, while this does not.

    Attributes:
        topics: the topics by name, and what changes them; see `BrokerTopics`.
        groups: the groups, and what time or an operator may do to them; see `BrokerGroups`.
        transactions: the transactional ids; see `BrokerTransactions`.
        shares: the records in flight of share groups; see `BrokerShares`.
        nodes: the brokers of a cluster: kill, stop, start or pause one, move what it leads; see `BrokerNodes`.
        acls: who may do what; see `BrokerAcls`.
        telemetry: metrics that clients pushed; see `BrokerTelemetry.wait_for`.
        quotas: how fast clients may be; see `BrokerQuotas.set`.
        clock: lets time pass, with a `ManualClock`; see `BrokerClock.advance`.
        faults: rules that inject faults into requests; see `Faults.on`.
        requests: the requests of clients with their answers; see `RequestLog.of` and `RequestLog.wait_for`.
        aio: the waiting calls for asynchronous code: ``await broker.aio.wait_for_group("orders", members=2)``.

    Raises:
        ConfigError: a property, a host or a port is wrong.

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
        port: int = 0,
        data_dir: str | Path | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
        node_id: int = 1,
        nodes: int = 1,
        racks: Sequence[str] = (),
        listeners: Sequence[Listener] = (),
        allow_remote: bool | Literal["anonymous"] = False,
        tls: BrokerTls | None = None,
        sasl: BrokerSasl | None = None,
        connect_groups: bool = False,
        acls: bool = False,
    ) -> None:
        self.config: Final = settings_of(config, profile=profile, acls=acls, connect_groups=connect_groups)
        check_helpers(tls=tls, sasl=sasl, journal=journal)
        self._listeners: Final = listeners_of(listeners, port=port)
        for each in self._listeners:
            check_exposure(
                each.host, advertised_host=each.advertised_host, allow_remote=allow_remote, tls=tls, sasl=sasl
            )
        self.security_protocol: Final = protocol_name(tls, sasl)
        """The value of ``security.protocol`` for clients."""
        self._ssl_context: Final = None if tls is None else server_context(tls)
        self._sasl = sasl
        self._apis: Final = ApiTable(extensions=self.config.extensions | ({"sasl"} if sasl is not None else set()))
        self.node_id: Final = node_id
        self._ports = ports_of(node_id=node_id, nodes=nodes, listeners=self._listeners, racks=racks)
        self._racks: Final = tuple(racks)
        self._topics_at_start: dict[str, int] = topic_counts(topics)
        self._data_dir: Final = Path(data_dir) if data_dir is not None else None
        if isinstance(clock, type):
            raise ArgumentTypeError(f"clock is the class {clock.__name__}; give an instance of it: {clock.__name__}()")
        self._clock: Clock = clock or SystemClock()
        self._journal: Final[Journal] = journal or NullJournal()
        self._events: Final = BrokerEvents(self._journal, clock=self._clock)
        self._live: Final = LiveBroker()
        self._started: Started | None = None
        self._kept: Kept | None = None
        self._known_topics: Final = KnownTopics()
        self.requests: Final = RequestLog(
            entries_max=self.config.request_log_entries_max,
            bytes_max=self.config.request_log_bytes_max,
            clock=self._clock,
            topic_name=self._known_topics,
        )
        self.faults: Final = Faults(
            clock=self._clock,
            topic_name=self._known_topics,
            serves=self._apis.serves,
            on_fault=self._fault_injected,
        )
        self.topics: Final = BrokerTopics(self._live)
        self.groups: Final = BrokerGroups(self._live)
        self.transactions: Final = BrokerTransactions(self._live)
        self.shares: Final = BrokerShares(self._live)
        self.nodes: Final = BrokerNodes(self._live)
        self.acls: Final = BrokerAcls(self._live, config=self.config)
        self.quotas: Final = BrokerQuotas(self._live)
        self.telemetry: Final = BrokerTelemetry(self._live)
        self.clock: Final = BrokerClock(self._live, self._clock, run_due=self._run_due)
        self.aio: Final = AsyncWaits(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a broker cannot be sent to another process, or copied; pass its bootstrap_servers")

    def __repr__(self) -> str:
        if not self.running:
            return f"<EmbeddedBroker on port {self.port}, stopped>" if self.port else "<EmbeddedBroker, not started>"
        topics = ", ".join(f"{name}:{partitions}" for name, partitions in self.topics.items())
        return f"<EmbeddedBroker {self.bootstrap_servers}, topics {topics or 'none'}>"

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> object:
            if (meant := _meant(self, name)) is not None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: use {meant}")
            return object.__getattribute__(self, name)  # raises Python's own error, also that of a property

    # --- life

    def start(self) -> Self:
        """Serve. Returns when clients may connect; a running broker cannot be started again.

        After `stop` or `crash` it starts on the same port with its topics, records, groups and offsets. As in Kafka the
        leader epoch of their partitions grows by one; in topics created later it starts at 0.

        Raises:
            ConfigError: the port is taken, or a topic to create is refused.
            DataDirError: the data directory cannot be used.
            IllegalStateError: it is already running.
            OutOfResourcesError: the process may have no more files or threads.
        """
        if self.running:
            raise IllegalStateError(f"the broker on {self.bootstrap_servers} is already running")
        nodes = Nodes(self._ports, self._listeners, racks=self._racks)
        nodes.bind()
        self._ports = nodes.ports
        try:
            thread = LoopThread(f"kip848-broker-{self.port}")
        except OutOfResourcesError:
            nodes.close()
            raise
        try:
            started = self._started = thread.run(self._start_on_loop(thread, nodes))
        except BaseException:
            thread.stop()
            nodes.close()
            self._close_kept()
            raise
        self._live.begin(thread, started.state, started.fail_over, bootstrap_servers=self.bootstrap_servers)
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
        return self._live.running

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node at its first listener.

        Raises:
            IllegalStateError: the broker takes a free port, and was never started.
        """
        return self._servers_at(0)

    @property
    def all_bootstrap_servers(self) -> tuple[str, ...]:
        """`bootstrap_servers` at each of its *listeners*.

        Raises:
            IllegalStateError: as of `bootstrap_servers`.
        """
        return tuple(map(self._servers_at, range(len(self._listeners))))

    def _servers_at(self, number: int) -> str:
        listener = self._listeners[number]
        host = in_url(listener.advertised_host or listener.host)
        first = listener.advertised_port
        ports = [each[number] for each in self._ports.values()]
        if first is not None:
            ports = list(range(first, first + len(ports)))
        if 0 in ports:
            raise IllegalStateError("the broker has no port yet: it takes a free one in start(); call that first")
        return ",".join(f"{host}:{port}" for port in ports)

    @property
    def port(self) -> int:
        """The port of the first node; 0 before the first start if none was asked for."""
        return self._ports[self.node_id][0]

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Repairs of the data folder at the last start; empty if there were none."""
        return () if self._kept is None else self._kept.repairs

    def set_users(self, users: Mapping[str, str]) -> None:
        """Replace the users: passwords by name. A logged-in user stays until the session ends.

        Raises:
            ConfigError: this broker has no SASL, or a name or password is not usable.
        """
        if self._sasl is None:
            raise ConfigError("this broker demands no login; give it users when it is made (sasl=BrokerSasl(...))")
        sasl = self._sasl = replace(self._sasl, users=dict(users))

        if self.running:
            self._on_loop(lambda state: state.users.replace(sasl))

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
            Kip848Error: as `produce`. Nothing is written if a record or partition is wrong.
        """
        if isinstance(records, str | bytes):
            raise MessageValueError("produce_many takes several records; for one there is produce()")
        new = tuple(each if isinstance(each, NewRecord) else NewRecord(each) for each in records)
        return self._on_loop(
            lambda state: append_records(state.topics, state.topics.find(topic), new, wall_ms=self._clock.wall_ms())
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
            lambda state: read_records(state.topics.find(topic, partition), partition, committed=committed)
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

        Args:
            timeout_s: seconds to wait.

        Raises:
            RequestTimeoutError: the time is up; the message says how many there are.
            Kip848Error: as `records`.
        """
        future: concurrent.futures.Future[tuple[BrokerRecord, ...]] = concurrent.futures.Future()

        watch = self._on_loop(
            lambda state: watch_records(state.topics, topic, count, partition, committed=committed, future=future)
        )
        try:
            return future.result(wait_s(timeout_s))
        except concurrent.futures.TimeoutError:
            there = len(self.records(topic, partition, committed=committed))
            where = topic if partition is None else f"{topic}-{partition}"
            raise RequestTimeoutError(f"{where} has {there} records, not {count}, after {timeout_s} s") from None
        finally:
            future.cancel()
            with contextlib.suppress(IllegalStateError):  # it was stopped meanwhile
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
                a classic group ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``; of a share
                group ``Empty`` or ``Stable``.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
            assignor: the assignor in use, a server-side one or a client-side one that all members offer; the protocol
                of a classic group.
            timeout_s: seconds to wait.

        Raises:
            ConfigError: no group is ever in such a state.
            RequestTimeoutError: the time is up; the message shows the current group.
        """
        predicate, what = conditions(state=state, members=members, epoch=epoch, assignor=assignor)
        return self.groups.wait_for(group_id, predicate, what=what, timeout_s=timeout_s)

    def share_group(self, group_id: str) -> ShareGroupSnapshot | None:
        """A share group as it is now: its members, and of each partition the start offset and the records in flight.

        None if there is no share group of this id.
        """
        return self._on_loop(lambda state: share_group(state.groups, state.shares, group_id))

    def metrics(self) -> dict[str, float]:
        """The current values of the coordinator's metrics: ``name`` or ``name{attribute=value}`` -> value.

        The names are in ``telemetry.COORDINATOR_METRICS``; an OpenTelemetry SDK in this process is given the same.
        """
        return {str(figure): figure.value for figure in self._on_loop(lambda state: state.groups.figures())}

    # --- internals

    async def _start_on_loop(self, thread: LoopThread, nodes: Nodes) -> Started:
        kept = self._kept = self._open_kept()
        start_up = StartUp(
            config=self.config,
            clock=self._clock,
            journal=self._journal,
            events=self._events,
            ssl_context=self._ssl_context,
            sasl=self._sasl,
            data_dir=self._data_dir,
            topics=self._topics_at_start,
            served=self._apis.versions,
            follow_topics=self._known_topics.follow,
            new_dispatcher=self._new_dispatcher,
            on_push=self.telemetry._took,
        )
        started = await start_up.run(kept, nodes, thread)
        self._topics_at_start = {}
        ports = {node.node_id: node.port for node in nodes}
        self._events.started(kept.topics, kept.repairs, bootstrap_servers=self.bootstrap_servers, nodes=ports)
        return started

    def _open_kept(self) -> Kept:
        if self._data_dir is None and self._kept is not None:
            self._kept.start_again()
            return self._kept
        placement = Placement(tuple(self._ports), replication_factor=self.config.default_replication_factor)
        if self._data_dir is None:
            return Kept.in_memory(self.config, placement=placement)
        return Kept.in_folder(self._data_dir, self.config, placement=placement, events=self._events)

    def _new_dispatcher(self, state: BrokerState) -> Dispatcher:
        self.faults._attach(state.loop)
        return Dispatcher(state, apis=self._apis, faults=self.faults, requests=self.requests)

    def _end(self, *, abort: bool) -> None:
        run, started = self._live.end(), self._started
        if run is None:
            return
        assert started is not None
        thread, state = run.thread, run.state
        try:
            thread.run(self._stop_on_loop(state, started, abort=abort))
            started.stop_listening()
        finally:
            thread.stop()
            self._close_kept()
        if not abort:
            self._events.write("broker_stopped", {})

    async def _stop_on_loop(self, state: BrokerState, started: Started, *, abort: bool) -> None:
        self.faults._detach()
        started.fail_over.close()
        started.stop_working()
        state.throttling.close()
        if not abort:
            state.groups.stop_coordinating()
        state.shares.close()
        await state.nodes.stop(abort=abort)
        state.cleaner.close()
        state.transactions.close()
        state.groups.close()

    def _close_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def _on_loop(self, function: Callable[[BrokerState], ResultT]) -> ResultT:
        return self._live.on_loop(function)

    def _run_due(self, state: BrokerState) -> None:
        self._live.current().fail_over.run_due()
        state.groups.run_due()
        state.transactions.run_due()
        state.shares.run_due()
        state.cleaner.run_due()
        state.throttling.run_due()
        self.faults._run_due()

    def _fault_injected(self, context: RequestContext, subject: Subject, action: Action) -> None:
        self.requests._faulted(context, str(action))
        self._events.fault_injected(context, subject, action)


_SUBJECTS: Final = ("topics", "groups", "transactions", "shares", "nodes", "acls", "quotas", "telemetry", "requests")


def _meant(broker: EmbeddedBroker, name: str) -> str | None:
    """Where *name* is: ``create_topic`` and ``committed`` are methods of the subjects that a broker has."""
    verb, _, noun = name.rpartition("_")
    for subject in _SUBJECTS:
        held = type(vars(broker).get(subject))
        if not name.startswith("_") and hasattr(held, name):
            return f"{subject}.{name}"
        if noun and noun in {subject, subject.removesuffix("s")}:
            names = sorted(one for one in vars(held) if not one.startswith("_"))
            return f"{subject}.{verb}" if hasattr(held, verb) else f"{subject}, which has {', '.join(names)}"
    return None


class AsyncWaits:
    """Every waiting call stands here under its own name: ``await broker.aio.groups.wait_for(...)``.

    Arguments, results and errors are those of the broker's.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.wait_for_group: Final = awaited(broker.wait_for_group)
        self.wait_for_records: Final = awaited(broker.wait_for_records)
        self.groups: Final = AsyncWait(broker.groups.wait_for)
        self.requests: Final = AsyncWait(broker.requests.wait_for)
        self.telemetry: Final = AsyncWait(broker.telemetry.wait_for)
        self.transactions: Final = AsyncWait(broker.transactions.wait_for)
        self.shares: Final = AsyncWait(broker.shares.wait_for)
