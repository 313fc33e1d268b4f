"""What follows when a runner ends before it was told to stop, and what its stop event knows of the lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from kip848_client import (
    AsyncLeaderElection,
    ConfigError,
    EmbeddedBroker,
    LeaderElection,
    LossReason,
    OwnedUnit,
    Unit,
    Worker,
)
from kip848_client.aio.worker import AsyncStopEvent
from kip848_client.errors import RunnerEndedError
from kip848_client.worker.runners import StopEvent
from tests.support.waiting import SOON_S, wait_until

QUICK = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 50, "runner.backoff.ms": 10}


@pytest.fixture(params=["classic", "connect"])
def protocol(request: pytest.FixtureRequest) -> str:
    """The protocol of the group's members."""
    return str(request.param)


@pytest.fixture
def broker(protocol: str) -> Iterator[EmbeddedBroker]:
    """A broker with connect groups, or one that has what every Kafka has."""
    config = {"group.connect.session.timeout.ms": 1_500, "group.connect.heartbeat.interval.ms": 50}
    is_connect = protocol == "connect"
    with EmbeddedBroker(connect_groups=is_connect, config=config if is_connect else {}) as running:
        yield running


@pytest.fixture
def conf(broker: EmbeddedBroker) -> dict[str, Any]:
    """Settings of a worker."""
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUICK}


@pytest.mark.parametrize("ends", ["raises", "returns"])
def test_a_runner_that_ends_is_started_again_and_loudly(
    conf: dict[str, Any], ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A scheduler that met one error led for ever, and nothing ran; one broken feed takes no others along."""
    begun: dict[str, list[int]] = {"bad": [], "good": []}
    worker = Worker(conf, units=["bad", "good"])

    @worker.runner
    def run(owned: OwnedUnit, stop: threading.Event) -> None:
        begun[owned.name].append(owned.token)
        if owned.name == "good":
            stop.wait()
        elif ends == "raises":
            raise ValueError("no such feed")

    with worker:
        wait_until(lambda: len(begun["bad"]) >= 3)
        assert len(set(begun["bad"])) == 1, "its token stays: nobody else ran it"
        assert isinstance(worker.errors[Unit("bad")], ValueError if ends == "raises" else RunnerEndedError)
        assert worker.health().failed == (Unit("bad"),)
        assert worker.health().live
    assert len(begun["good"]) == 1
    logged = [record for record in caplog.records if "unit_failed" in record.getMessage()]
    assert "it starts again in 0.02 s" in logged[1].getMessage()


def test_a_leader_whose_runner_fails_lets_another_one_lead(conf: dict[str, Any]) -> None:
    """A process whose database is away gives the job to one that reaches its own."""
    runs = threading.Event()
    broken = LeaderElection(conf | {"worker.id": "broken"}, on_runner_end="give_up")
    working = LeaderElection(conf | {"worker.id": "working"}, on_runner_end="give_up")
    may_fail = threading.Event()

    @broken.runner
    def fail(token: int, stop: threading.Event) -> None:
        while not may_fail.wait(0.01):
            if stop.is_set():
                return
        raise OSError("the database is away")

    @working.runner
    def work(token: int, stop: threading.Event) -> None:
        runs.set()
        stop.wait()

    with broken:
        assert broken.wait_for_leadership(SOON_S)
        with working:
            wait_until(lambda: working.worker.member_epoch > 0)
            may_fail.set()
            assert working.wait_for_leadership(SOON_S)
            assert runs.wait(SOON_S)
            assert not broken.is_leader
            assert broken.error is None
        assert broken.wait_for_leadership(SOON_S), "without others it tries again"


def test_a_runner_that_ends_may_end_its_worker(conf: dict[str, Any]) -> None:
    """A supervisor restarts the process, as it does for any other crash."""
    election = LeaderElection(conf, on_runner_end="end")

    @election.runner
    def run(token: int, stop: threading.Event) -> None:
        raise ValueError("no such job")

    with election:
        with pytest.raises(RunnerEndedError, match=r"unit leader raised ValueError: no such job, before it was told"):
            election.wait(SOON_S)
        assert isinstance(election.error, RunnerEndedError)
        wait_until(lambda: not election.health().live)


def test_a_leader_that_steps_down_stays_a_candidate(conf: dict[str, Any], protocol: str) -> None:
    """An operator moves the leader away from a process, and it leads again when the others are gone."""
    with LeaderElection(conf) as first:
        assert first.wait_for_leadership(SOON_S)
        token = first.token
        if protocol == "classic":
            epoch = first.worker.member_epoch
            first.step_down()  # nobody else is there
            wait_until(lambda: first.worker.member_epoch > epoch)  # else the second may come before it takes effect
        with LeaderElection(conf) as second:
            second.step_down()  # it does not lead: nothing happens
            wait_until(lambda: second.worker.member_epoch > 0)
            assert (first.is_leader, first.token) == (True, token)
            first.step_down()
            assert first.wait_for_loss(SOON_S)
            assert second.wait_for_leadership(SOON_S)
            assert token is not None
            assert second.token is not None
            assert second.token > token
            second.step_down()
            assert first.wait_for_leadership(SOON_S), "both gave it up: the one that did so first"
        assert not second.is_leader


@pytest.mark.parametrize("protocol", ["classic"])
def test_a_unit_that_is_given_up_goes_to_another_worker(conf: dict[str, Any]) -> None:
    """One feed that this process can't reach runs elsewhere, and loads stay equal."""
    units = ["a", "b", "c", "d"]
    first = Worker(conf, units=units, on_assigned=lambda *_: None)
    second = Worker(conf, units=units, on_assigned=lambda *_: None)
    with first, second:
        wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        unit = first.assignment()[0].unit
        first.give_up([unit])
        wait_until(lambda: unit in {owned.unit for owned in second.assignment()})
        wait_until(lambda: len(first.assignment()) + len(second.assignment()) == 4)
        second.give_up([unit])
        wait_until(lambda: unit in {owned.unit for owned in first.assignment()})


def test_a_start_that_raises_is_tried_again(conf: dict[str, Any]) -> None:
    """on_assigned met a database that was away; the unit never ran, although its worker called itself ready."""
    calls: list[str] = []

    def start(worker: Worker, units: list[OwnedUnit]) -> None:
        calls.append("start")
        if calls.count("start") < 3:
            raise OSError("the database is away")

    worker = Worker(conf, units=["a"], on_assigned=start, on_revoked=lambda *_: calls.append("stop"))
    with worker:
        wait_until(lambda: calls.count("start") == 3 and not worker.failed)
        assert calls == ["start", "stop", "start", "stop", "start"]
    assert calls[-1] == "stop"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("protocol", ["classic"])
def test_an_async_runner_that_ends_is_treated_as_others(conf: dict[str, Any], backend: str) -> None:
    """The same three policies."""
    begun: list[int] = []

    async def main() -> None:
        election = AsyncLeaderElection(conf)

        @election.runner
        async def run(token: int, stop: anyio.Event) -> None:
            begun.append(token)
            if len(begun) < 3:
                raise ValueError("no such job")
            await stop.wait()

        with anyio.fail_after(SOON_S):
            async with election:
                assert await election.worker.wait_for(lambda _: len(begun) == 3)
                assert isinstance(election.worker.errors[Unit("leader")], ValueError)
            ending = AsyncLeaderElection(conf, on_runner_end="end")

            @ending.runner
            async def end(token: int, stop: anyio.Event) -> None:
                pass

            async with ending:
                with pytest.raises(RunnerEndedError, match="unit leader returned before it was told to stop"):
                    await ending.wait()

    anyio.run(main, backend=backend)


def test_a_policy_that_does_not_exist_is_refused() -> None:
    """A typing error must not be found by a unit that does not run."""
    policy: Any = "giveup"
    with pytest.raises(ConfigError, match="on_runner_end must be one of restart, give_up, end"):
        LeaderElection({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}, on_runner_end=policy)


def test_a_stop_event_sees_the_end_of_the_lease_itself() -> None:
    """Before the worker's thread has run again, the loop in the documentation would act once more."""
    left_s = [5.0]
    stop = StopEvent(lambda: left_s[0])
    assert not stop.wait(0)
    assert not stop.is_set()
    left_s[0] = 0.0
    assert stop.wait(0)
    assert stop.wait()
    assert stop.is_set()
    left_s[0] = 5.0
    assert stop.wait_for_lease()
    assert not stop.is_set()
    stop.set()
    assert stop.wait()
    assert not stop.wait_for_lease()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_stop_event_sees_the_end_of_the_lease_itself(backend: str) -> None:
    """The same for `while not stop.is_set()`."""

    async def main() -> None:
        left_s = [5.0]
        stop = AsyncStopEvent(lambda: left_s[0])
        assert not stop.is_set()
        left_s[0] = 0.0
        assert stop.is_set()
        with anyio.fail_after(SOON_S):
            await stop.wait()
            left_s[0] = 5.0
            assert await stop.wait_for_lease()
            stop.set()
            await stop.wait()
            assert not await stop.wait_for_lease()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("protocol", ["classic"])
def test_a_machine_that_was_suspended_has_no_lease(conf: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop or a virtual machine that slept for an hour: Python's monotonic clock stood still meanwhile."""
    slept_ns, clock = [0], time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: clock(which) + slept_ns[0])
    lost: list[tuple[LossReason, float]] = []
    told = threading.Event()

    def on_lost(reason: LossReason, deadline: float) -> None:
        lost.append((reason, deadline - time.monotonic()))
        told.set()

    with LeaderElection(conf, on_lost=on_lost) as election:
        assert election.wait_for_leadership(SOON_S)
        slept_ns[0] = 3_600 * 10**9
        assert not election.is_leader
        assert told.wait(SOON_S)
    assert lost[0][0] is LossReason.LEASE_ENDED
    assert -3_700 < lost[0][1] < -3_500, "others could start the unit an hour ago"


SUSPENDED = """
import sys, threading, time
from kip848_client import Worker

worker = Worker({"bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 600,
                 "heartbeat.interval.ms": 50, "group.protocol": "classic", "worker.id": "suspended"}, units=["a"])

@worker.runner
def run(owned, stop):
    while not stop.wait(0.01):
        print("act", owned.token, time.monotonic(), flush=True)

with worker:
    sys.stdin.read()
"""


@pytest.mark.parametrize("protocol", ["classic"])
def test_a_process_that_was_suspended_begins_no_new_act(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its loop looks at `stop`: 143 acts followed while a newer owner ran."""
    program = tmp_path / "program.py"
    program.write_text(SUSPENDED)
    acts: list[tuple[int, float]] = []
    process = subprocess.Popen(
        [sys.executable, str(program), broker.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines = process.stdout

    def read() -> None:
        for line in lines:
            _, token, at_s = line.split()
            acts.append((int(token), float(at_s)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_until(lambda: len(acts) > 3)
        os.kill(process.pid, signal.SIGSTOP)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUICK, "worker.id": "heir"}
        with Worker(conf, units=["a"], on_assigned=lambda *_: None) as heir:
            wait_until(lambda: bool(heir.assignment()))
            newer, resumed_s = heir.assignment()[0].token, time.monotonic()
            os.kill(process.pid, signal.SIGCONT)
            broker.wait_for_group("g", members=2)
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.stdin.close()
        process.wait(timeout=SOON_S)
        reader.join()
        process.stdout.close()
    assert [at_s - resumed_s for token, at_s in acts if token < newer and at_s > resumed_s] == []
