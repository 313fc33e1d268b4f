"""`EmbeddedBroker`: start, stop, topics and groups from the outside. Everything else of the broker is behind it.

The broker runs on one thread of its own, named ``kip848-broker-<port>``. Methods here may be called from any thread;
they hand their work to that thread and wait for it.
"""

from __future__ import annotations

import base64
import concurrent.futures
import errno
import ipaddress
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar, assert_never

from kip848_client.broker.apis import ApiTable, load_apis
from kip848_client.broker.config import BrokerConfig, Profile
from kip848_client.broker.dispatch import Dispatcher
from kip848_client.broker.group_configs import GroupConfigStore
from kip848_client.broker.group_log import GroupLog, MemoryGroupLog
from kip848_client.broker.groups import GroupHost
from kip848_client.broker.log import DataDir
from kip848_client.broker.loop_thread import LoopThread
from kip848_client.broker.server import Server
from kip848_client.broker.snapshots import GroupSnapshot
from kip848_client.broker.state import BrokerState
from kip848_client.broker.topics import PartitionsAdded, TopicChange, TopicCreated, TopicDeleted, TopicRegistry
from kip848_client.clock import Clock, ManualClock, SystemClock
from kip848_client.errors import (
    BrokerError,
    ConfigError,
    ForkedProcessError,
    IllegalStateError,
    RequestTimeoutError,
)
from kip848_client.journal import Journal, JournalEvent, JsonValue, NullJournal

__all__ = ["EmbeddedBroker"]

ResultT = TypeVar("ResultT")

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
        journal: where events go.
        node_id: the broker's id, >= 0.
        allow_remote: needed for a host that is not loopback, together with authentication.

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
    ) -> None:
        self.config: Final = BrokerConfig.parse(config or {}, profile=profile)
        _check_host(host, allow_remote=allow_remote)
        if not 0 <= port <= 65535:
            raise ConfigError(f"port {port} is not between 0 and 65535")
        if node_id < 0:
            raise ConfigError(f"node_id {node_id} is negative")
        self.node_id: Final = node_id
        self._topics_at_start: dict[str, int] = dict(topics or {})
        self._host: Final = host
        self._port = port
        self._data_dir: Final = Path(data_dir) if data_dir is not None else None
        self._clock: Final[Clock] = clock or SystemClock()
        self._journal: Final[Journal] = journal or NullJournal()
        self._thread: LoopThread | None = None
        self._process_id = 0
        self._server: Server | None = None
        self._state: BrokerState | None = None
        self._data: DataDir | None = None
        self._memory: _Storage | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    # --- life

    def start(self) -> Self:
        """Serve. Returns when clients may connect; a running broker cannot be started again.

        After `stop` or `crash` it starts on the same port, with the topics, records, groups and offsets of before.

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
        """Stop serving and close every connection. Leaves no thread, socket or task; a second call does nothing."""
        self._end(abort=False)

    def crash(self) -> None:
        """Stop as if the process had been killed: connections end in mid-sentence, and nothing more is written."""
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
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """The port; 0 before the first start if none was asked for."""
        return self._port

    # --- topics

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> uuid.UUID:
        """Create a topic and return its id.

        Raises:
            BrokerError: the name is taken or not allowed, or there are too few or too many partitions.
        """
        return self._on_loop(lambda state: state.topics.create(name, partitions, configs=configs).topic_id)

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic grow to *count* partitions.

        Raises:
            BrokerError: there is no such topic, or it has as many already.
        """
        self._on_loop(lambda state: state.topics.add_partitions(name, count))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. A topic created under that name later has another id.

        Raises:
            BrokerError: there is no such topic.
        """
        self._on_loop(lambda state: state.topics.delete(name))

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions, by name."""
        return self._on_loop(lambda state: {topic.name: topic.partition_count for topic in state.topics})

    # --- groups

    def groups(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return self._on_loop(lambda state: state.groups.group_ids())

    def group(self, group_id: str) -> GroupSnapshot | None:
        """What the coordinator knows of a group now; None if there is no such consumer group."""
        return self._on_loop(lambda state: state.groups.snapshot(group_id))

    def set_group_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Let one group override ``consumer.session.timeout.ms`` and its like; replaces what it overrode before.

        Raises:
            ConfigError: a name is unknown, or a value is outside the broker's bounds.
        """
        self._on_loop(lambda state: state.groups.set_config_overrides(group_id, dict(overrides)))

    def wait_for_group(
        self,
        group_id: str,
        *,
        state: str | None = None,
        members: int | None = None,
        epoch: int | None = None,
        timeout_s: float = 10.0,
    ) -> GroupSnapshot:
        """Wait until a group is as described; all that is given must hold at once.

        Checked whenever the group changes, not in intervals. Blocks the calling thread: in asynchronous code call it
        through ``asyncio.to_thread`` or ``anyio.to_thread.run_sync``.

        Args:
            state: ``Empty``, ``Assigning``, ``Reconciling`` or ``Stable``, as Kafka names it; case does not matter.
            members: exactly so many.
            epoch: the group epoch is at least this.

        Raises:
            RequestTimeoutError: it did not come to be; the message shows the group as it is.
        """
        return self.wait_for(
            group_id,
            lambda group: (
                (state is None or group.state.lower() == state.lower())
                and (members is None or len(group.members) == members)
                and (epoch is None or group.group_epoch >= epoch)
            ),
            what=", ".join(
                f"{name}={value}"
                for name, value in (("state", state), ("members", members), ("epoch", epoch))
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
        timeout_s: float = 10.0,
    ) -> GroupSnapshot:
        """Wait until *predicate* holds for a group, and return the group as it was then.

        Args:
            predicate: called on the broker's thread with each new snapshot; must be quick and call no broker method.
            what: names the condition in the error.

        Raises:
            RequestTimeoutError: it did not come to be.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[GroupSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda state: state.groups.add_waiter(group_id, predicate, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            now = self.group(group_id) if self.running else None
            raise RequestTimeoutError(
                f"group {group_id!r}: {what} did not come to be within {timeout_s} s; "
                f"{'there is no such group' if now is None else now}"
            ) from error
        finally:
            future.cancel()

    def advance_clock(self, ms: int) -> None:
        """Move the `ManualClock` and do what is due by then: sessions and revocations run out, offsets expire.

        Raises:
            IllegalStateError: the broker runs on real time.
        """
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise IllegalStateError(
                "advance_clock needs EmbeddedBroker(clock=ManualClock()); this one runs on real time"
            )
        self._on_loop(lambda state: state.groups.advance(lambda: clock.advance(ms)))

    # --- inside

    async def _start_on_loop(self, thread: LoopThread, listening: socket.socket) -> None:
        topics, log, configs, cluster_id = self._open_storage()
        groups = GroupHost(
            self.config,
            log=log,
            configs=configs,
            topics=topics,
            clock=self._clock,
            journal=self._journal,
            loop=thread.loop,
        )
        state = BrokerState(
            node_id=self.node_id,
            cluster_id=cluster_id,
            host=self._host,
            port=self._port,
            clock=self._clock,
            config=self.config,
            loop=thread.loop,
            apis=ApiTable(extension=self.config.client_assignors),
            topics=topics,
            groups=groups,
            journal=self._journal,
            data_dir=self._data_dir,
        )
        stop_listening = topics.subscribe(self._write_topic_event)
        for name, partitions in self._topics_at_start.items():
            existing = topics.get(name)
            if existing is None:
                _create_at_start(topics, name, partitions)
            elif existing.partition_count < partitions:
                topics.add_partitions(name, partitions)
        self._topics_at_start = {}
        groups.load()
        dispatcher = Dispatcher(state)
        server = Server(
            self.config,
            open_request=dispatcher.open_request,
            encode=dispatcher.encode,
            on_refused=lambda reason: self._write_event("connection_refused", {"reason": reason}),
        )
        await server.start(listening)
        self._state, self._server, self._stop_listening = state, server, stop_listening
        for repair in self._data.repairs if self._data is not None else ():
            self._write_event("log_repaired", {"file": repair.file, "bytes": repair.cut_bytes})
        self._write_event(
            "broker_started",
            {
                "bootstrap_servers": self.bootstrap_servers,
                "node_id": self.node_id,
                "topics": {topic.name: topic.partition_count for topic in topics},
            },
        )

    def _open_storage(self) -> _Storage:
        limit = self.config.message_bytes_max
        if self._data_dir is not None:
            self._data = DataDir.open(self._data_dir)
            registry = TopicRegistry(self._data, message_bytes_max=limit)
            cluster_id = self._data.fact("cluster_id", _new_cluster_id)
            return _Storage(registry, self._data.coordinator_log, GroupConfigStore(self._data), cluster_id)
        if self._memory is None:
            registry = TopicRegistry(message_bytes_max=limit)
            self._memory = _Storage(registry, MemoryGroupLog(), GroupConfigStore(), _new_cluster_id())
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
            thread.run(server.stop(abort=abort))
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
            case _:
                assert_never(change)

    def _write_event(self, event: str, fields: Mapping[str, JsonValue]) -> None:
        self._journal.write(JournalEvent(ts_ms=self._clock.wall_ms(), source="coordinator", event=event, fields=fields))


class _Storage(NamedTuple):
    """What a broker has again when it starts again."""

    topics: TopicRegistry
    log: GroupLog
    configs: GroupConfigStore
    cluster_id: str


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _create_at_start(topics: TopicRegistry, name: str, partitions: int) -> None:
    try:
        topics.create(name, partitions)
    except BrokerError as error:
        raise ConfigError(f"topic {name!r} with {partitions} partitions cannot be created: {error}") from error


def _check_host(host: str, *, allow_remote: bool) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise ConfigError(f"host {host!r} is not an IP address; use 127.0.0.1, ::1 or localhost") from error
    if loopback:
        return
    if not allow_remote:
        raise ConfigError(f"host {host!r} is not loopback: this broker serves its own machine only")
    raise ConfigError(f"host {host!r} is not loopback, and serving others needs authentication, which is not there yet")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} on {host} is taken; choose another, or 0 for a free one") from error
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
