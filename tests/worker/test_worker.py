"""Workers against the embedded broker; the numbers are those of the scenarios in their specification."""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kip848_client import (
    ConfigError,
    EmbeddedBroker,
    IllegalStateError,
    LeaderElection,
    LossReason,
    MemberState,
    OwnedUnit,
    Unit,
    Worker,
)
from kip848_client.errors import CatalogConflictError, UnsupportedByBrokerError
from kip848_client.testing.faults import ALWAYS, delay, drop
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.worker.classic.classic_messages import PROTOCOL_TYPE, Claim
from kip848_client.worker.classic.classic_round import ClassicRound
from kip848_client.worker.core import WorkerSettings
from kip848_client.worker.events import DrainRequested
from tests.support.waiting import SOON_S, wait_until

FEEDS = ["audusd", "eurusd", "gbpusd", "usdjpy"]
SESSION_MS = 1_500


@pytest.fixture(params=["connect", "classic"])
def protocol(request: pytest.FixtureRequest) -> str:
    """The protocol of the group's members."""
    return str(request.param)


@pytest.fixture
def session_ms() -> int:
    """The session of the group's members: longer than a busy machine lets a process stand still."""
    return 30_000


@pytest.fixture
def broker(protocol: str, session_ms: int) -> Iterator[EmbeddedBroker]:
    """A broker with connect groups, or one that has what every Kafka has."""
    config = {"group.connect.session.timeout.ms": session_ms, "group.connect.heartbeat.interval.ms": 50}
    is_connect = protocol == "connect"
    with EmbeddedBroker(connect_groups=is_connect, config=config if is_connect else {}) as running:
        yield running


class Fleet:
    """Workers of one group, and what runs where."""

    def __init__(self, broker: EmbeddedBroker, session_ms: int = SESSION_MS) -> None:
        self._broker = broker
        self._session_ms = session_ms
        self.lock = threading.Lock()
        self.running: dict[Unit, list[str]] = {}
        self.tokens: dict[Unit, list[tuple[int, str]]] = {}
        self.overlaps: list[str] = []
        self.stack = ExitStack()

    def conf(self, **more: Any) -> dict[str, Any]:
        """Configuration of a worker."""
        timings = {"session.timeout.ms": self._session_ms, "heartbeat.interval.ms": 50}
        return {"bootstrap.servers": self._broker.bootstrap_servers, "group.id": "feeds", **timings, **more}

    def add(self, worker_id: str, *, units: Any = FEEDS, **more: Any) -> Worker:
        """Start a worker whose runners note what they run."""
        worker = Worker(self.conf(**{"worker.id": worker_id}, **more), units=units)

        @worker.runner
        def run(owned: OwnedUnit, stop: threading.Event) -> None:
            with self.lock:
                self.running.setdefault(owned.unit, []).append(worker_id)
                self.tokens.setdefault(owned.unit, []).append((owned.token, worker_id))
                if len(self.running[owned.unit]) > 1:
                    self.overlaps.append(f"{owned.unit}: {self.running[owned.unit]}")
            stop.wait()
            with self.lock:
                self.running[owned.unit].remove(worker_id)

        self.stack.callback(worker.close, 5.0)
        return worker.start()

    def runs(self, worker: Worker) -> int:
        """How many units a worker runs."""
        return len(worker.assignment())


@pytest.fixture
def fleet(broker: EmbeddedBroker, session_ms: int) -> Iterator[Fleet]:
    made = Fleet(broker, session_ms)
    with made.stack:
        yield made
    assert not made.overlaps
    for begun in made.tokens.values():  # a worker that paused for longer than its lease begins again with its token
        owners = dict(begun)
        assert [token for token, _ in begun] == sorted(token for token, _ in begun), made.tokens
        assert all(owners[token] == worker_id for token, worker_id in begun), made.tokens


def test_each_unit_runs_on_one_worker_while_workers_come_and_go(fleet: Fleet) -> None:
    """Scenario 63: three workers share four units, one closes, its units run elsewhere, and no unit runs twice."""
    first = fleet.add("w1")
    wait_until(lambda: fleet.runs(first) == 4)
    second, third = fleet.add("w2"), fleet.add("w3")
    wait_until(lambda: sorted(map(fleet.runs, (first, second, third))) == [1, 1, 2])
    wait_until(lambda: first.state is MemberState.STABLE)

    second.close()

    wait_until(lambda: fleet.runs(first) + fleet.runs(third) == 4)
    assert second.assignment() == []
    wait_until(lambda: sum(map(len, list(fleet.running.values()))) == 4)


@pytest.mark.parametrize("session_ms", [SESSION_MS])
def test_a_worker_that_is_cut_off_stops_before_others_start(
    fleet: Fleet, broker: EmbeddedBroker, protocol: str
) -> None:
    """Scenario 61: two pollers of one feed would spend its quota twice, or write twice."""
    first = fleet.add("w1", units=["a", "b"], **{"client.id": "cut-off"})
    wait_until(lambda: fleet.runs(first) == 2)
    second = fleet.add("w2", units=["a", "b"])
    wait_until(lambda: fleet.runs(first) == fleet.runs(second) == 1)

    classic = [ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP]
    for api in [ApiKey.CONNECT_GROUP_HEARTBEAT] if protocol == "connect" else classic:
        broker.faults.on(api, drop(), client_id="cut-off", times=None)

    wait_until(lambda: fleet.runs(first) == 0)
    wait_until(lambda: fleet.runs(second) == 2)
    broker.faults.clear()
    wait_until(lambda: fleet.runs(first) == 1)


def test_exactly_one_process_leads(fleet: Fleet) -> None:
    """Scenario 64: a scheduler runs once; if its process ends another one takes over with a greater token."""
    elections = [LeaderElection(fleet.conf(), name="scheduler").start() for _ in range(3)]
    wait_until(lambda: sum(election.is_leader for election in elections) == 1)
    (leader,) = [election for election in elections if election.is_leader]
    token = leader.token

    leader.close()

    assert not leader.is_leader
    wait_until(lambda: sum(election.is_leader for election in elections) == 1)
    (heir,) = [election for election in elections if election.is_leader]
    assert token is not None
    assert heir.token is not None
    assert heir.token > token
    assert heir.wait_for_leadership(1.0)
    assert not heir.wait_for_loss(0.05)
    for election in elections:
        election.close()


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"group.protocol": "connect"}, "Apache Kafka does not have them: use group.protocol=classic"),
        ({"group.instance.id": "i"}, "group.instance.id needs connect groups"),
    ],
)
def test_a_broker_without_connect_groups_says_what_it_cannot_do(conf: dict[str, str], text: str) -> None:
    """Scenario 66: a user who asks Apache Kafka for what it does not have learns what to change."""
    with EmbeddedBroker() as plain:
        conf = {"bootstrap.servers": plain.bootstrap_servers, "group.id": "g", **conf}
        worker = Worker(conf, units=["a"], on_assigned=lambda *_: None).start()
        with pytest.raises(UnsupportedByBrokerError, match=text):
            worker.wait(10)
        assert worker.state is MemberState.FATAL


def test_a_worker_is_not_live_in_a_child_of_fork(fleet: Fleet) -> None:
    """A pre-forking server would call a process ready in which nothing runs."""
    worker = fleet.add("w1")
    wait_until(lambda: worker.health().ready)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point
        child = os.fork()
    if not child:  # no assertion, no clean-up of pytest here
        os._exit(worker.health().live)
    assert os.waitpid(child, 0)[1] == 0
    assert worker.health().live


async def never_awaited(*_: object) -> None:
    """What a Worker cannot run."""


@pytest.mark.parametrize("key", ["on_assigned", "on_revoked", "on_lost", "units", "runner"])
def test_an_async_callback_is_refused(key: str) -> None:
    """It would be called, and never run: the unit would start nowhere."""
    conf = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
    make = functools.partial(Worker, conf, units=["a"])
    call = make().runner if key == "runner" else lambda callback: make(**{key: callback})
    with pytest.raises(ConfigError, match=f"{key} is an async function, which would never run here"):
        call(never_awaited)


@pytest.mark.parametrize("key", ["on_assigned", "on_revoked", "on_lost", "runner"])
def test_a_callback_that_does_not_take_its_arguments_is_refused(key: str) -> None:
    """It would fail at each call, and no unit would ever start."""
    conf = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
    make = functools.partial(Worker, conf, units=["a"])
    call: Any = make().runner if key == "runner" else lambda callback: make(**{key: callback})
    with pytest.raises(ConfigError, match=f"{key} is called with"):
        call(lambda units: None)


def test_callbacks_stop_before_they_start_and_hear_of_their_worker(fleet: Fleet) -> None:
    """The three-callback style: what another library needs to start and stop work."""
    calls: list[tuple[str, list[str]]] = []

    def note(name: str) -> Callable[[Worker, list[OwnedUnit]], None]:
        return lambda worker, owned: calls.append((f"{worker.worker_id} {name}", [str(one.unit) for one in owned]))

    first = Worker(
        fleet.conf(**{"worker.id": "w1"}), units=["a", "b"], on_assigned=note("starts"), on_revoked=note("stops")
    )
    with first:
        wait_until(lambda: len(first.assignment()) == 2)
        second = fleet.add("w2", units=["a", "b"])
        wait_until(lambda: fleet.runs(second) == 1)
        assert calls == [("w1 starts", ["a", "b"]), ("w1 stops", ["b"])]
    assert calls[-1] == ("w1 stops", ["a"])
    wait_until(lambda: fleet.runs(second) == 2)


def test_a_worker_that_hands_over_runs_its_units_until_others_are_ready(fleet: Fleet, protocol: str) -> None:
    """A rolling deployment pauses no feed; after close() the others would notice only with their next heartbeat."""
    stops: list[LossReason] = []
    units = ["a", "b"]
    others: list[Worker] = []

    def stop(worker: Worker, owned: list[OwnedUnit]) -> None:
        assert worker.loss is not None
        assert worker.loss.deadline > time.monotonic()
        if protocol == "classic":  # told at the same moment, and maybe before `add` has returned
            wait_until(lambda: others and {one.unit for one in owned} <= set(others[0].pending))
        stops.append(worker.loss.reason)

    first = Worker(fleet.conf(**{"worker.id": "w1"}), units=units, on_assigned=lambda *_: None, on_revoked=stop)
    fleet.stack.callback(first.close)
    first.start()
    wait_until(lambda: fleet.runs(first) == 2)
    second = fleet.add("w2", units=units)
    others.append(second)
    fleet.stack.callback(second.close)
    wait_until(lambda: fleet.runs(second) == 1)
    assert stops == [LossReason.MOVED]

    first.hand_over()

    wait_until(lambda: fleet.runs(second) == 2)
    assert first.state is MemberState.UNJOINED
    assert stops[1:] == [LossReason.CLOSED]
    second.hand_over()  # the last one has no one to wait for
    assert not second.assignment()


def test_a_drained_worker_takes_no_units_any_more(fleet: Fleet) -> None:
    """A process is emptied before maintenance, and stays empty when others come and go."""
    first, second = fleet.add("w1"), fleet.add("w2")
    wait_until(lambda: fleet.runs(first) == fleet.runs(second) == 2)
    first.drain()
    wait_until(lambda: fleet.runs(second) == 4)
    assert first.health().drains
    third = fleet.add("w3")
    wait_until(lambda: fleet.runs(third) == 2)
    assert fleet.runs(first) == 0


def test_a_list_of_units_changes_by_its_version(fleet: Fleet) -> None:
    """Scenarios 14 and 16 seen by a worker: new feeds are taken up, a conflicting deployment is told so."""
    worker = fleet.add("w1", units=["a", "b"])
    wait_until(lambda: fleet.runs(worker) == 2)

    worker.update_units(1, ["b", "c", Unit("d", 0)])
    wait_until(lambda: [str(owned.unit) for owned in worker.assignment()] == ["b", "c", "d/0"])
    wait_until(lambda: not fleet.running[Unit("a")])

    other = fleet.add("w2", units=["x"], **{"units.version": 1})
    with pytest.raises(CatalogConflictError, match="catalogue conflict"):
        other.wait(10)
    with pytest.raises(ConfigError, match="version above 1"):
        worker.update_units(1, ["z"])


def test_the_newest_list_counts_while_a_deployment_rolls(fleet: Fleet) -> None:
    """The newest list holds on old workers too, also on one that starts again: no unit runs for one version only."""

    def running() -> set[str]:
        with fleet.lock:
            return {unit.name for unit, where in fleet.running.items() if where}

    old, new = ["a", "b", "c"], ["b", "c", "d", "e"]
    first, second = fleet.add("old-1", units=old), fleet.add("old-2", units=old)
    wait_until(lambda: fleet.runs(first) + fleet.runs(second) == 3)

    third = fleet.add("new-1", units=new, **{"units.version": 1})
    wait_until(lambda: running() == set(new))
    first.hand_over()
    again = fleet.add("old-1", units=old)  # a process that is restarted before its turn
    wait_until(lambda: fleet.runs(again) > 0 and running() == set(new))
    third.hand_over()  # the last one that was started with the new list
    wait_until(lambda: fleet.runs(second) + fleet.runs(again) == 4 and running() == set(new))


def test_units_may_come_from_a_function(fleet: Fleet) -> None:
    """A list that lives in a database or a file is followed without a restart."""
    listed: list[tuple[int, list[str]]] = [(3, ["a"])]
    worker = fleet.add("w1", units=lambda: listed[-1], **{"units.refresh.interval.ms": 10})
    wait_until(lambda: fleet.runs(worker) == 1)

    listed.append((4, ["a", "b"]))

    wait_until(lambda: fleet.runs(worker) == 2)


@pytest.mark.parametrize("protocol", ["connect"])
def test_a_static_worker_comes_back_to_its_units(fleet: Fleet) -> None:
    """A rolling restart of static workers moves no unit (scenario 28)."""
    first = fleet.add("w1", **{"group.instance.id": "i1"})
    second = fleet.add("w2", **{"group.instance.id": "i2"})
    wait_until(lambda: fleet.runs(first) == fleet.runs(second) == 2)
    before = second.assignment()

    second.close(keep_units=True)
    fleet.tokens.clear()
    again = fleet.add("w2", **{"group.instance.id": "i2"})

    wait_until(lambda: again.assignment() == before)
    assert fleet.runs(first) == 2


def test_units_stay_where_they_are_while_the_broker_restarts(tmp_path: Path) -> None:
    """Scenario 67 end to end: an upgrade of the broker moves nothing, and tokens go on growing."""
    config = {"group.connect.session.timeout.ms": 20_000, "group.connect.heartbeat.interval.ms": 50}
    with EmbeddedBroker(connect_groups=True, config=config, data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        worker = Fleet(broker).add("w1", units=["a", "b"])
        wait_until(lambda: len(worker.assignment()) == 2)
        before = worker.assignment()
    with EmbeddedBroker(connect_groups=True, config=config, data_dir=tmp_path, port=port) as broker:
        broker.requests.wait_for(ApiKey.CONNECT_GROUP_HEARTBEAT, answered=True)
        assert worker.assignment() == before
        worker.close()
        again = Fleet(broker).add("w2", units=["a", "b"])
        wait_until(lambda: len(again.assignment()) == 2)
        assert min(owned.token for owned in again.assignment()) > max(owned.token for owned in before)
        again.close()


def test_workers_find_the_coordinator_among_several_brokers() -> None:
    """A cluster of several nodes has one coordinator for each group."""
    with EmbeddedBroker(connect_groups=True, nodes=3) as broker:
        for group in ("a", "b", "c", "d"):
            conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
            with LeaderElection(conf) as election:
                assert election.wait_for_leadership(20)


def test_a_runner_that_fails_rests_and_is_reported(fleet: Fleet) -> None:
    """One broken feed must not take the others along."""
    worker = Worker(fleet.conf(), units=["bad", "good"])

    @worker.runner
    def run(owned: OwnedUnit, stop: threading.Event) -> None:
        if owned.name == "bad":
            raise ValueError("no such feed")
        stop.wait()

    with worker:
        wait_until(lambda: len(worker.assignment()) == 2)
        wait_until(lambda: Unit("bad") in worker.errors)
        assert worker.lease_remaining_s > 0


@pytest.mark.parametrize(
    ("conf", "units", "text"),
    [
        ({"worker.name": "w"}, ["a"], "did you mean worker.id"),
        ({"stop.error": "ignore"}, ["a"], "stop.error must be one of hold, release"),
        ({}, "eurusd", "must be a list"),
        ({}, ["a", "a"], "twice"),
        ({}, [Unit("a", -2)], "index"),
        ({"auto.offset.reset": "earliest"}, ["a"], "not a setting of a worker"),
        ({"fence.margin.ms": 6_000, "rebalance.timeout.ms": 10_000}, ["a"], "half of rebalance.timeout.ms"),
    ],
)
def test_a_wrong_configuration_is_refused(conf: dict[str, str], units: Any, text: str) -> None:
    """A typing error must not be found by a unit that does not run."""
    with pytest.raises(ConfigError, match=text):
        Worker({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g", **conf}, units=units)


def test_calls_out_of_order_are_refused() -> None:
    """Mistakes in a program are told where they are made."""
    worker = Worker({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}, units=["a"])
    with pytest.raises(IllegalStateError, match="nothing would run"):
        worker.start()
    with pytest.raises(IllegalStateError, match="was not started"):
        worker.wait()
    worker.close()
    before_s = time.monotonic()
    with Worker({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}, units=["a"], on_assigned=lambda *_: None):
        pass
    assert time.monotonic() - before_s < SOON_S


def test_a_bug_in_the_thread_is_raised_by_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only asyncio's log had it, and wait() waited for ever."""
    worker = Worker({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}, units=["a"], on_assigned=lambda *_: None)
    with worker:

        def step(*_: object, **__: object) -> None:
            raise RuntimeError("unforeseen")

        host = worker._host
        assert host is not None
        wait_until(lambda: host._timer is not None, what="it has begun")
        monkeypatch.setattr(host._core, "step", step)
        host.post(DrainRequested())
        with pytest.raises(IllegalStateError, match="see the cause") as raised:
            worker.wait(SOON_S)
        assert str(raised.value.__cause__) == "unforeseen"


def test_a_newcomer_that_dies_and_is_never_expired_holds_the_units_up_for_two_sessions() -> None:
    """Kafka 2.2 to 2.4 expire such a member only when the round's time is over (KAFKA-9752); a long session does here
    what that bug does there. All units rested for the rebalance timeout, which is a minute.
    """
    settings = WorkerSettings("g", "m", "w")
    round_timeout_ms = ClassicRound(settings, session_timeout_ms=600, heartbeat_interval_ms=50).round_timeout_ms
    claim = msgspec.msgpack.encode(Claim("newcomer", units=[("a", -1), ("b", -1)]))
    with EmbeddedBroker() as broker:
        fleet = Fleet(broker)
        conf = {"session.timeout.ms": 600, "group.id": "g"}
        with fleet.stack, RawConnection(broker.bootstrap_servers) as connection:
            worker = fleet.add("w1", units=["a", "b"], **conf)
            wait_until(lambda: fleet.runs(worker) == 2)
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=round_timeout_ms,
                protocol_type=PROTOCOL_TYPE,
                protocols=(JoinGroupRequestProtocol("uniform", claim),),
            )
            member_id = connection.ask(request, version=9).member_id
            connection.ask(replace(request, member_id=member_id), version=9)  # and it dies
            wait_until(lambda: fleet.runs(worker) < 2)
            wait_until(lambda: fleet.runs(worker) == 2)
        assert not fleet.overlaps


def test_tokens_that_take_longer_than_a_session_do_not_cost_the_membership() -> None:
    """A worker that is given many units at once, or a slow coordinator of transactions, would begin again for ever."""
    conf = {"group.id": "slow-tokens", "session.timeout.ms": 600, "heartbeat.interval.ms": 50}
    with EmbeddedBroker() as broker:
        broker.faults.on("InitProducerId", delay(120), times=ALWAYS)
        worker = Worker({"bootstrap.servers": broker.bootstrap_servers, **conf}, units=[f"u{n}" for n in range(8)])
        worker.runner(lambda _, stop: stop.wait())
        with worker:
            assert worker.wait_for(lambda one: len(one.assignment()) == 8, SOON_S)
        assert len(broker.requests.of("InitProducerId")) == 8
