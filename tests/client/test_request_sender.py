"""`request_sender.py` and `coordinator_manager.py`: who is dialled, and what is never repeated."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable

import anyio
import pytest
from anyio.abc import TaskGroup

from kip848_client.common.clock import ManualClock
from kip848_client.common.model import BrokerNode
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    ErrorCode,
    Kip848Error,
    OtherClusterError,
    RequestTimeoutError,
)
from kip848_client.network.coordinator_manager import CoordinatorManager
from kip848_client.network.request_sender import OpenConnection, RequestSender
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from kip848_client.wire.schema import Request, Response
from tests.client.fakes import FakeConnection, FakeNetwork

pytestmark = pytest.mark.anyio

REQUEST = MetadataRequest(topics=None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    """Where connections and the test's own tasks live; they end with the test."""
    async with anyio.create_task_group() as running:
        yield running
        running.cancel_scope.cancel()


def answers(request: Request[Response]) -> Response | Kip848Error:
    """Every request gets an empty answer."""
    return MetadataResponse()


def falls_silent(request: Request[Response]) -> Response | Kip848Error:
    """No request is answered."""
    return RequestTimeoutError("no answer")


class Bench:
    """A sender on a fake network; sleeping moves the clock."""

    def __init__(
        self, network: OpenConnection, tasks: TaskGroup, *, bootstrap: list[tuple[str, int]], **options: bool
    ) -> None:
        self.clock = ManualClock()
        self.slept_ms: list[float] = []
        self.sender = RequestSender(
            bootstrap=bootstrap,
            open_connection=network,
            tasks=tasks,
            clock=self.clock,
            rng=random.Random(1),
            sleep=self._sleep,
            **options,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept_ms.append(seconds * 1_000)
        self.clock.advance(round(seconds * 1_000))


async def test_the_bootstrap_list_is_tried_in_turn(tasks: TaskGroup) -> None:
    """One dead bootstrap server must not keep a consumer from starting."""
    network = FakeNetwork({("c", 3): FakeConnection(answers)})
    bench = Bench(network, tasks, bootstrap=[("a", 1), ("b", 2), ("c", 3)])
    await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    assert all(50 <= ms <= 1_200 for ms in bench.slept_ms)
    assert network.dialled[-1] == ("c", 3)
    assert len(set(network.dialled)) == len(network.dialled), "the second request uses the first one's connection"


async def test_silent_brokers_are_not_waited_for_in_turn(tasks: TaskGroup) -> None:
    """A host that was taken away drops packets without a word; two of three cost ten seconds."""
    dialled: list[tuple[str, int]] = []

    async def open_connection(*, host: str, port: int, **_: object) -> FakeConnection:
        dialled.append((host, port))
        if len(dialled) < 3:
            await anyio.sleep_forever()
        return FakeConnection(answers)

    bench = Bench(open_connection, tasks, bootstrap=[("a", 1), ("b", 2), ("c", 3)])
    await bench.sender.send_any(REQUEST, timeout_ms=5_000)
    assert len(set(dialled)) == 3
    assert bench.clock.now_ms() <= 1_000


async def test_an_attempt_without_time_does_not_hide_why_none_succeeds(tasks: TaskGroup) -> None:
    """ "No time left to connect" says nothing about the broker that is down."""

    async def open_connection(**_: object) -> FakeConnection:
        if bench.clock.now_ms():
            raise RequestTimeoutError("no connection in 3 ms")
        bench.clock.advance(4_700)
        raise ConnectionLostError("refused")

    bench = Bench(open_connection, tasks, bootstrap=[("a", 1)])
    with pytest.raises(ConnectionLostError, match="refused"):
        await bench.sender.send_any(REQUEST, timeout_ms=5_000)


async def test_a_request_that_is_given_up_while_it_connects_leaves_no_connection_open(tasks: TaskGroup) -> None:
    """A time-out in that moment would be a warning in a program whose warnings are errors."""
    connection = FakeConnection(answers)

    async def open_connection(**_: object) -> FakeConnection:
        given_up.cancel()
        return connection

    bench = Bench(open_connection, tasks, bootstrap=[("a", 1)])
    with anyio.CancelScope() as given_up:
        await bench.sender.send_any(REQUEST, timeout_ms=5_000)
    assert connection.closed


@pytest.mark.parametrize("bootstrap", [[("a", 1)], [("a", 1), ("b", 2)]])
async def test_a_slow_broker_is_waited_for(tasks: TaskGroup, bootstrap: list[tuple[str, int]]) -> None:
    """The first attempt goes on beside the later ones, and no broker is dialled twice at once."""
    dialled: list[tuple[str, int]] = []
    all_dialled = anyio.Event()

    async def open_connection(*, host: str, port: int, **_: object) -> FakeConnection:
        dialled.append((host, port))
        if len(dialled) == len(bootstrap):
            all_dialled.set()
        if len(dialled) > 1:
            await anyio.sleep_forever()
        await all_dialled.wait()
        return FakeConnection(answers)

    bench = Bench(open_connection, tasks, bootstrap=bootstrap)
    await bench.sender.send_any(REQUEST, timeout_ms=5_000)
    assert sorted(dialled) == bootstrap


async def test_opening_gives_up_at_its_time(tasks: TaskGroup) -> None:
    """The member decides what happens without a broker; it must hear of it in time."""
    network = FakeNetwork({})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    with pytest.raises(ConnectionLostError, match="no broker listens on a:1"):
        await bench.sender.send_any(REQUEST, timeout_ms=150)
    assert bench.clock.now_ms() <= 150
    assert sum(bench.slept_ms) <= 150
    assert 2 <= len(network.dialled) <= 3


async def test_a_refused_password_is_not_tried_again(tasks: TaskGroup) -> None:
    """Repeating a wrong password locks the account of the user."""
    network = FakeNetwork({("a", 1): AuthenticationError("wrong password")})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    with pytest.raises(AuthenticationError):
        await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    assert network.dialled == [("a", 1)]


async def test_a_request_that_was_written_is_never_written_again(tasks: TaskGroup) -> None:
    """Two layers that both retry multiply, and a repeated delta heartbeat breaks the protocol."""
    connection = FakeConnection(falls_silent)
    bench = Bench(FakeNetwork({("a", 1): connection}), tasks, bootstrap=[("a", 1)])
    with pytest.raises(RequestTimeoutError):
        await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    assert len(connection.sent) == 1


async def test_a_broken_connection_is_replaced(tasks: TaskGroup) -> None:
    """Brokers restart, and close what is idle for ten minutes."""
    first, second = FakeConnection(answers), FakeConnection(answers)
    network = FakeNetwork({("a", 1): first})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    first.break_off()
    network.connections["a", 1] = second
    await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    assert (len(first.sent), len(second.sent)) == (1, 1)


async def test_when_the_whole_bootstrap_list_has_gone_known_brokers_are_asked(tasks: TaskGroup) -> None:
    """Clusters are moved node by node; a consumer of months must survive the last of its bootstrap servers."""
    network = FakeNetwork({("new", 9): FakeConnection(answers)})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    bench.sender.learn_nodes([BrokerNode(7, "new", 9)])
    await bench.sender.send_any(REQUEST, timeout_ms=10_000)
    assert ("new", 9) in network.dialled


async def test_two_tasks_share_one_opening(tasks: TaskGroup) -> None:
    """Two requests at once must not open two connections to one broker."""
    network = FakeNetwork({("a", 1): FakeConnection(answers)})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    bench.sender.learn_nodes([BrokerNode(1, "a", 1)])
    async with anyio.create_task_group() as both:
        both.start_soon(lambda: bench.sender.node(1, timeout_ms=1_000))
        both.start_soon(lambda: bench.sender.node(1, timeout_ms=1_000))
    with pytest.raises(ConnectionLostError, match="broker 2 is not in the cluster's metadata"):
        await bench.sender.node(2, timeout_ms=1_000)
    assert network.dialled == [("a", 1)]


async def test_a_closed_sender_opens_nothing(tasks: TaskGroup) -> None:
    """A request that comes late must not leave a socket behind close()."""
    connection = FakeConnection(answers)
    network = FakeNetwork({("a", 1): connection})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    await bench.sender.any_broker(timeout_ms=1_000)
    await bench.sender.aclose()
    with pytest.raises(ConnectionLostError, match="closed"):
        await bench.sender.any_broker(timeout_ms=1_000)
    assert connection.closed
    assert network.dialled == [("a", 1)]


async def test_a_connection_that_opens_while_its_sender_closes_is_closed(tasks: TaskGroup) -> None:
    """Nobody would close it: the program ended with a warning of an unclosed transport."""
    opened: list[FakeConnection] = []
    parked = anyio.Event()

    async def open_connection(**_: object) -> FakeConnection:
        await parked.wait()
        opened.append(FakeConnection(answers))
        return opened[-1]

    sender = Bench(open_connection, tasks, bootstrap=[("a", 1)]).sender
    node = BrokerNode(1, "b", 2)
    sender.learn_nodes([node])

    async def refused(opening: Awaitable[object]) -> None:
        with pytest.raises(ConnectionLostError, match="closed"):
            await opening

    async with anyio.create_task_group() as all_of_them:
        all_of_them.start_soon(refused, sender.any_broker(timeout_ms=1_000))
        all_of_them.start_soon(refused, sender.node(1, timeout_ms=1_000))
        all_of_them.start_soon(refused, sender.open(node, timeout_ms=1_000))
        await anyio.wait_all_tasks_blocked()
        await sender.aclose()
        parked.set()
    assert opened
    assert all(connection.closed for connection in opened)


async def test_the_coordinators_connection_tells_when_it_is_lost(tasks: TaskGroup) -> None:
    """Between two heartbeats nothing is outstanding; the loss must be known before the next one is due."""
    connection, replacement = FakeConnection(answers), FakeConnection(answers)
    network = FakeNetwork({("a", 1): connection, ("b", 2): replacement})
    lost: list[int] = []

    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    coordinator = CoordinatorManager(bench.sender, on_disconnected=lost.append)
    versions = await coordinator.connect(BrokerNode(1, "a", 1), timeout_ms=1_000, tasks=tasks)
    assert versions == connection.api_versions
    await coordinator.send(REQUEST, timeout_ms=1_000, max_version=None)
    connection.break_off()
    await anyio.wait_all_tasks_blocked()
    assert lost == [1]
    with pytest.raises(ConnectionLostError, match="coordinator is gone"):
        await coordinator.send(REQUEST, timeout_ms=1_000, max_version=None)
    await coordinator.connect(BrokerNode(2, "b", 2), timeout_ms=1_000, tasks=tasks)
    await coordinator.aclose()
    await anyio.wait_all_tasks_blocked()
    assert lost == [1], "closing it ourselves is no loss"
    assert replacement.closed


class DelayedNetwork(FakeNetwork):
    """Opens *connections* in turn; the second one only once *opens* is set."""

    def __init__(self, *connections: FakeConnection) -> None:
        super().__init__({})
        self._next = iter(enumerate(connections))
        self.opens = anyio.Event()

    async def __call__(self, **_: object) -> FakeConnection:
        number, connection = next(self._next)
        if number == 1:
            await self.opens.wait()
        return connection


async def test_a_join_that_still_waits_for_its_connection_is_not_sent_after_a_later_join(tasks: TaskGroup) -> None:
    """Broken: the late connection closes that of the later JoinGroup, and brings an old subscription to the group."""
    coordinator_side, late, later = (FakeConnection(answers) for _ in range(3))

    network = DelayedNetwork(coordinator_side, late, later)
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    coordinator = CoordinatorManager(bench.sender, on_disconnected=lambda _: None)
    await coordinator.connect(BrokerNode(1, "a", 1), timeout_ms=1_000, tasks=tasks)

    async def join_too_late() -> None:
        with pytest.raises(ConnectionLostError, match="later request"):
            await coordinator.send_round(REQUEST, timeout_ms=1_000, max_version=None)

    tasks.start_soon(join_too_late)
    await anyio.wait_all_tasks_blocked()
    await coordinator.send_round(REQUEST, timeout_ms=1_000, max_version=None)
    network.opens.set()
    await anyio.wait_all_tasks_blocked()
    assert (late.sent, late.closed) == ([], True)
    assert (later.sent, later.closed) == ([REQUEST], False)
    await coordinator.aclose()


async def test_a_join_that_still_waits_for_its_connection_is_not_sent_after_a_leave(tasks: TaskGroup) -> None:
    """Broken: the group waits for a member that is gone."""
    coordinator_side, late = FakeConnection(answers), FakeConnection(answers)
    network = DelayedNetwork(coordinator_side, late)
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    coordinator = CoordinatorManager(bench.sender, on_disconnected=lambda _: None)
    await coordinator.connect(BrokerNode(1, "a", 1), timeout_ms=1_000, tasks=tasks)

    async def join_too_late() -> None:
        with pytest.raises(ConnectionLostError, match="the member left"):
            await coordinator.send_round(REQUEST, timeout_ms=1_000, max_version=None)

    tasks.start_soon(join_too_late)
    await anyio.wait_all_tasks_blocked()
    coordinator.start(REQUEST, timeout_ms=1_000, max_version=None, on_end=lambda _: None, urgent=True)
    network.opens.set()
    await anyio.wait_all_tasks_blocked()
    assert (late.sent, late.closed) == ([], True)
    await coordinator.aclose()


def of_cluster(cluster_id: str) -> FakeConnection:
    """A broker of that cluster."""
    return FakeConnection(lambda _: MetadataResponse(cluster_id=cluster_id))


async def test_a_bootstrap_server_that_leads_to_another_cluster_is_not_used(tasks: TaskGroup) -> None:
    """Otherwise a consumer reads records of a cluster that got an address of ours, from positions of ours."""
    network = FakeNetwork({("a", 1): of_cluster("new"), ("b", 2): of_cluster("old")})
    bench = Bench(network, tasks, bootstrap=[("a", 1), ("b", 2)])
    bench.sender.learn_nodes([BrokerNode(1, "gone", 9)], cluster_id="old")

    assert await bench.sender.any_broker(timeout_ms=10_000) is network.connections["b", 2]


async def test_a_consumer_whose_servers_all_lead_to_another_cluster_is_told_so(tasks: TaskGroup) -> None:
    """Silence, or a time-out, would send its owner to look for a fault of the network."""
    network = FakeNetwork({("a", 1): of_cluster("new")})
    bench = Bench(network, tasks, bootstrap=[("a", 1), ("b", 2)])
    bench.sender.learn_nodes([], cluster_id="old")

    with pytest.raises(OtherClusterError, match="cluster new by now; this client began in cluster old"):
        await bench.sender.any_broker(timeout_ms=10_000)


async def test_a_node_is_asked_by_the_cluster_and_id_that_are_meant(tasks: TaskGroup) -> None:
    """KIP-1242: a node whose address another one has by now is looked for again, from the bootstrap servers on."""
    moved = BrokerError("not node 7 any more", code=ErrorCode.REBOOTSTRAP_REQUIRED)
    network = FakeNetwork({("a", 1): of_cluster("old"), ("n", 7): moved})
    bench = Bench(network, tasks, bootstrap=[("a", 1)])
    bench.sender.learn_nodes([BrokerNode(7, "n", 7)], cluster_id="old")

    with pytest.raises(ConnectionLostError, match="not node 7 any more"):
        await bench.sender.node(7, timeout_ms=10_000)

    assert network.meant == [("old", 7)]
    with pytest.raises(ConnectionLostError, match="not in the cluster's metadata"):
        await bench.sender.node(7, timeout_ms=10_000)
    await bench.sender.any_broker(timeout_ms=10_000)
    assert network.meant[-1] == (None, -1)


async def test_a_broker_that_asks_for_a_new_start_is_left(tasks: TaskGroup) -> None:
    """KIP-1102: a broker that is taken out of a cluster sends its clients back to the bootstrap servers."""
    network = FakeNetwork({("a", 1): of_cluster("c"), ("b", 2): of_cluster("c")})
    bench = Bench(network, tasks, bootstrap=[("a", 1), ("b", 2)])
    bench.sender.learn_nodes([BrokerNode(7, "n", 7)], cluster_id="c")
    first = await bench.sender.any_broker(timeout_ms=10_000)

    bench.sender.rebootstrap()

    assert await bench.sender.any_broker(timeout_ms=10_000) is not first
    with pytest.raises(ConnectionLostError, match="not in the cluster's metadata"):
        await bench.sender.node(7, timeout_ms=10_000)


async def test_without_recovery_the_bootstrap_servers_are_asked_once(tasks: TaskGroup) -> None:
    """metadata.recovery.strategy=none is set where the bootstrap address leads elsewhere later on."""
    network = FakeNetwork({("a", 1): of_cluster("c")})
    bench = Bench(network, tasks, bootstrap=[("a", 1)], rebootstraps=False)
    connection = await bench.sender.any_broker(timeout_ms=10_000)
    bench.sender.learn_nodes([BrokerNode(7, "n", 7)], cluster_id="c")

    bench.sender.rebootstrap()
    assert await bench.sender.any_broker(timeout_ms=10_000) is connection
    await connection.aclose()
    with pytest.raises(ConnectionLostError, match="no broker listens on n:7"):
        await bench.sender.any_broker(timeout_ms=10_000)


async def test_a_client_without_metadata_asks_for_its_cluster(tasks: TaskGroup) -> None:
    """A worker learns no nodes; it would go on in another cluster, where its units may run already."""
    network = FakeNetwork({("a", 1): of_cluster("old")})
    bench = Bench(network, tasks, bootstrap=[("a", 1)], asks_cluster=True)
    await (await bench.sender.any_broker(timeout_ms=10_000)).aclose()
    network.connections["a", 1] = of_cluster("new")

    with pytest.raises(OtherClusterError, match="cluster new by now; this client began in cluster old"):
        await bench.sender.any_broker(timeout_ms=10_000)
