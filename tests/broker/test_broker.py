"""Life of an embedded broker: start, stop, crash, start again; what it refuses; what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kip848_client.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    ForkedProcessError,
    IllegalStateError,
    RequestTimeoutError,
)
from kip848_client.journal import JournalEvent, MemoryJournal
from kip848_client.testing import EmbeddedBroker, Listener
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.open_files import files_under, sockets_of_port
from tests.support.waiting import SOON_S


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_started_broker_serves_its_topics_on_a_free_loopback_port() -> None:
    """The first thing that a new user does: start a broker with topics, and connect to it."""
    with EmbeddedBroker({"orders": 3, "users": 1}) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            response = connection.ask(MetadataRequest(topics=None), version=12)
        assert {topic.name: len(topic.partitions) for topic in response.topics} == {"orders": 3, "users": 1}
        assert broker.topics == {"orders": 3, "users": 1}
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"


def test_a_stopped_broker_leaves_no_thread_and_no_socket() -> None:
    """A test suite starts hundreds of brokers in one process."""
    broker = EmbeddedBroker({"orders": 3}).start()
    port = broker.port
    assert f"kip848-broker-{port}" in thread_names()
    connections = [RawConnection(broker.bootstrap_servers) for _ in range(5)]
    for connection in connections:
        connection.ask(MetadataRequest(topics=None), version=12)
    broker.stop()
    for connection in connections:
        assert connection.is_closed_by_peer()
        connection.close()
    assert f"kip848-broker-{port}" not in thread_names()
    assert sockets_of_port(port) == 0


def test_stop_twice_and_stop_before_start_do_nothing() -> None:
    """Clean-up code calls stop without knowing how far the start came."""
    broker = EmbeddedBroker()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()
    assert not broker.running


def test_it_works_as_an_asynchronous_context_manager() -> None:
    """Asynchronous tests write ``async with EmbeddedBroker(...)``; a start that blocks their loop hangs them."""

    async def use() -> str:
        async with EmbeddedBroker({"orders": 1}) as broker:
            return ",".join(broker.topics)

    assert asyncio.run(use()) == "orders"


def test_a_running_broker_is_not_started_twice() -> None:
    """A second start would leave the first one's thread behind."""
    with EmbeddedBroker() as broker, pytest.raises(IllegalStateError, match="is already running"):
        broker.start()


def test_using_a_broker_that_does_not_run_says_so() -> None:
    """Without the message a forgotten start() looks like a hang."""
    with pytest.raises(IllegalStateError, match="call start"):
        EmbeddedBroker().topics.create("orders")


def test_a_taken_port_is_a_configuration_error() -> None:
    """Two brokers on one fixed port is the most common mistake; the message names port and way out."""
    with EmbeddedBroker() as first:
        with pytest.raises(ConfigError, match=rf"port {first.port} on 127\.0\.0\.1 is taken"):
            EmbeddedBroker(port=first.port).start()
        with RawConnection(first.bootstrap_servers) as connection:
            assert connection.ask(MetadataRequest(topics=None), version=12).topics == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_a_host_that_others_can_reach_is_refused(host: str) -> None:
    """The broker has no authentication: it must not be open to a network by accident."""
    with pytest.raises(ConfigError, match="is not loopback"):
        EmbeddedBroker(listeners=[Listener(host)])
    with pytest.raises(ConfigError, match="needs authentication"):
        EmbeddedBroker(listeners=[Listener(host)], allow_remote=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"listeners": [Listener("example.org")]}, "not an IP address"),
        ({"listeners": [Listener()], "port": 9092}, "give each Listener its port"),
        ({"port": 65536}, "between 0 and 65535"),
        ({"node_id": -1}, "negative"),
        ({"config": {"no.such.property": "1"}}, "not known"),
        ({"profile": "fast"}, "profile 'fast' is unknown"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_opened(arguments: dict[str, object], message: str) -> None:
    """A mistake in a fixture must fail where it stands."""
    with pytest.raises(ConfigError, match=message):
        EmbeddedBroker(**arguments)  # type: ignore[arg-type]


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next start of the same folder and port must not meet the remains of the failed one."""
    with EmbeddedBroker() as broker:
        port = broker.port
    with pytest.raises(ConfigError, match="'bad name'"):
        EmbeddedBroker({"bad name": 1}, data_dir=tmp_path, port=port).start()
    assert f"kip848-broker-{port}" not in thread_names()
    assert sockets_of_port(port) == files_under(tmp_path) == 0
    with EmbeddedBroker({"good": 1}, data_dir=tmp_path, port=port) as broker:
        assert broker.topics == {"good": 1}


def test_topics_are_created_grown_and_deleted_from_the_test() -> None:
    """Tests change topics under running groups; a re-created topic is another topic."""
    with EmbeddedBroker() as broker:
        first_id = broker.topics.create("orders", 2)
        broker.topics.add_partitions("orders", 5)
        assert broker.topics == {"orders": 5}
        broker.topics.delete("orders")
        assert broker.topics == {}
        assert broker.topics.create("orders", partitions=1) != first_id


def test_errors_of_topic_calls_carry_kafkas_code() -> None:
    """The test side gets the same answer as an admin client."""
    with EmbeddedBroker({"orders": 1}) as broker:
        with pytest.raises(BrokerError) as taken:
            broker.topics.create("orders")
        with pytest.raises(BrokerError) as unknown:
            broker.topics.delete("users")
    assert taken.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_broker_that_starts_again_has_its_port_topics_and_cluster_id(
    tmp_path: Path, durable: bool, crash: bool
) -> None:
    """Clients reconnect to the address they know; another cluster id or topic id would be another cluster to them."""
    broker = EmbeddedBroker({"orders": 2}, data_dir=tmp_path if durable else None)
    with broker:
        broker.topics.add_partitions("orders", 3)
        address = broker.bootstrap_servers
        with RawConnection(address) as connection:
            before = connection.ask(MetadataRequest(topics=None), version=12)
        if crash:
            broker.crash()
    with broker:
        assert broker.bootstrap_servers == address
        with RawConnection(address) as connection:
            after = connection.ask(MetadataRequest(topics=None), version=12)
    assert leader_epochs(before) == [0, 0, 0]
    assert leader_epochs(after) == [1, 1, 1]
    assert without_leader_epochs(after) == without_leader_epochs(before)


def leader_epochs(metadata: MetadataResponse) -> list[int]:
    return [partition.leader_epoch for topic in metadata.topics for partition in topic.partitions]


def without_leader_epochs(metadata: MetadataResponse) -> MetadataResponse:
    topics = tuple(
        replace(topic, partitions=tuple(replace(partition, leader_epoch=0) for partition in topic.partitions))
        for topic in metadata.topics
    )
    return replace(metadata, topics=topics)


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_leader_epochs_grow_with_every_start_and_begin_at_0_in_a_new_topic(tmp_path: Path, durable: bool) -> None:
    """Clients refuse an epoch below one that they know, so it must never fall, not even without a record written."""
    broker = EmbeddedBroker({"orders": 2}, data_dir=tmp_path if durable else None)
    for _ in range(3):
        with broker:
            pass
        if durable:
            broker = EmbeddedBroker(data_dir=tmp_path)
    with broker:
        broker.topics.create("payments")
        broker.topics.add_partitions("orders", 3)
        with RawConnection(broker.bootstrap_servers) as connection:
            before = leader_epochs(connection.ask(MetadataRequest(topics=None), version=12))
        broker.topics.recreate("orders")
        with RawConnection(broker.bootstrap_servers) as connection:
            after = leader_epochs(connection.ask(MetadataRequest(topics=None), version=12))

    assert before == [3, 3, 3, 0]
    assert after == [0, 0, 0, 0]


def test_a_crash_ends_connections_and_says_nothing() -> None:
    """Tests of a client's behaviour when its broker dies need the death to look like one."""
    journal = MemoryJournal()
    broker = EmbeddedBroker(journal=journal).start()
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.ask(MetadataRequest(topics=None), version=12)
        broker.crash()
        assert connection.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), timeout=5)
    assert [event.event for event in journal.events] == ["broker_started"]


def test_start_topics_and_stop_are_journaled() -> None:
    """The event log tells a story from its beginning."""
    journal = MemoryJournal()
    with EmbeddedBroker({"orders": 2}, journal=journal) as broker:
        broker.topics.add_partitions("orders", 3)
        broker.topics.delete("orders")
    assert [event.event for event in journal.events] == [
        "topic_created",
        "broker_started",
        "partitions_added",
        "topic_deleted",
        "broker_stopped",
    ]
    assert journal.named("broker_started")[0].fields["topics"] == {"orders": 2}


def test_waiting_for_a_missing_group_ends_in_time_and_shows_the_group() -> None:
    """A test that waits for ever must fail with the reason, not with the runner's time limit."""
    with EmbeddedBroker() as broker:
        with pytest.raises(
            RequestTimeoutError, match=r"group 'g': state=Stable, members=2: not within .* there is no such group"
        ):
            broker.wait_for_group("g", state="Stable", members=2, timeout_s=0.02)


def test_waiting_for_a_state_that_no_group_has_is_refused_at_once() -> None:
    """A misspelt state would cost the whole time, and look like a group that does not settle."""
    with EmbeddedBroker() as broker, pytest.raises(ConfigError, match=r"no group is ever 'Stabel'; .*, Stable, "):
        broker.wait_for_group("g", state="Stabel")


def test_stop_wakes_calls_that_wait_for_a_group() -> None:
    """A waiting thread of a test that is torn down must end."""
    broker = EmbeddedBroker().start()
    failures: list[Exception] = []

    def wait() -> None:
        try:
            broker.wait_for_group("g", timeout_s=60)
        except IllegalStateError as error:
            failures.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while broker._on_loop(lambda state: not state.groups.has_waiters):
        pass
    broker.stop()
    waiter.join(60)
    assert not waiter.is_alive()
    assert "stopped" in str(failures[0])


def test_a_call_that_comes_while_the_broker_stops_ends_with_an_error() -> None:
    """Broken: a test whose threads use the broker while another one stops it waits for ever, once in a while."""
    thread = LoopThread("test")
    failures: list[str] = []

    def call() -> None:
        try:
            thread.call(lambda: 1)
        except IllegalStateError as error:
            failures.append(str(error))

    caller = threading.Thread(target=call, daemon=True)

    async def last() -> AsyncIterator[int]:
        try:
            yield 1
        finally:  # the last that the loop does
            caller.start()
            caller.join(1)

    async def begin() -> AsyncIterator[int]:
        opened = last()
        await anext(opened)
        return opened

    opened = thread.run(begin())
    thread.stop()
    caller.join(SOON_S)
    assert not caller.is_alive()
    assert "stopped" in failures[0]
    del opened


def test_a_forked_child_may_not_use_the_broker_and_does_not_keep_it_alive() -> None:
    """Child processes copy sockets: a stopped broker must be gone for its clients although a child lives on."""
    broker = EmbeddedBroker({"orders": 1}).start()
    connection = RawConnection(broker.bootstrap_servers)
    connection.ask(MetadataRequest(topics=None), version=12)
    end_read, end_write = os.pipe()
    report_read, report_write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
        child = os.fork()
    if not child:  # no assertion, no clean-up of pytest here: report, wait for the end, go
        try:
            dict(broker.topics)
        except ForkedProcessError:
            os.write(report_write, b"refused")
        broker.stop()
        os.close(end_write)
        os.read(end_read, 1)
        os._exit(0)
    try:
        assert os.read(report_read, 100) == b"refused"
        assert broker.topics == {"orders": 1}
        broker.stop()
        assert connection.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), timeout=5)
    finally:
        connection.close()
        for descriptor in (end_read, end_write, report_read, report_write):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_stopping_a_broker_from_its_own_thread_says_so() -> None:
    """An event log whose callback stops the broker would wait for itself for ever."""
    failures: list[Exception] = []

    def stop(_event: JournalEvent) -> None:
        try:
            broker.stop()
        except IllegalStateError as error:
            failures.append(error)

    broker = EmbeddedBroker(journal=MemoryJournal(stop))
    with broker:
        broker.topics.create("orders")
    assert "from its own thread" in str(failures[0])


def test_advancing_the_clock_needs_a_manual_clock() -> None:
    """Silently doing nothing would make the test wait for a timer that runs on real time."""
    with EmbeddedBroker() as broker, pytest.raises(IllegalStateError, match="ManualClock"):
        broker.clock.advance(1000)
