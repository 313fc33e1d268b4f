"""`LeaderElection` and `AsyncLeaderElection`: what the leader runs, and what it hears of its end."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from kip848_client import (
    AsyncLeaderElection,
    AsyncWorker,
    ConfigError,
    EmbeddedBroker,
    IllegalStateError,
    LeaderElection,
    LossReason,
    OwnedUnit,
    Worker,
)
from kip848_client.testing.faults import drop
from kip848_client.wire.api_keys import ApiKey
from tests.support.waiting import SOON_S, wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def conf(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a worker, in a group of the test's own."""
    group = f"{request.node.name}"
    servers = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    return {**servers, "session.timeout.ms": 1_500, "heartbeat.interval.ms": 50}


def token_of(election: LeaderElection) -> int | None:
    """A job that uses the leader's token."""
    return election.token


def test_the_leader_hears_that_it_leads_and_why_it_does_no_longer(broker: EmbeddedBroker, conf: dict[str, Any]) -> None:
    """A service starts and stops its scheduler there, and sees how long it may still act."""
    told: list[tuple[Any, ...]] = []

    def lost(reason: LossReason, deadline: float) -> None:
        told.append((reason, election.is_leader, round(deadline - time.monotonic(), 1)))

    conf["client.id"] = "leader"
    with LeaderElection(conf, on_elected=lambda token: told.append((token,)), on_lost=lost) as election:
        assert election.wait_for_leadership(SOON_S)
        wait_until(lambda: len(told) == 1)
        assert told == [(election.token,)]
        for api in (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.FIND_COORDINATOR):
            broker.faults.on(api, drop(), client_id="leader", times=None)
        wait_until(lambda: len(told) == 2)
        broker.faults.clear()
        assert election.wait_for_leadership(SOON_S)
    reason, leads, left_s = told[1]
    assert (reason, leads) == (LossReason.LEASE_ENDED, False)
    assert left_s <= 0.3  # a fifth of the session
    assert told[-1][:2] == (LossReason.CLOSED, False)
    assert told[-1][2] > 0


def test_a_function_of_the_leader_runs_on_one_process_only(conf: dict[str, Any]) -> None:
    """Each replica schedules the job, and one does it."""
    with LeaderElection(conf) as first, LeaderElection(conf) as second:
        wait_until(lambda: first.is_leader or second.is_leader)
        done = [election.leader_only(partial(token_of, election))() for election in (first, second)]
    assert [token is not None for token in done].count(True) == 1


def test_another_leader_waits_for_a_call_that_has_begun(conf: dict[str, Any]) -> None:
    """Two leaders would do the same job at the same time while a deployment rolls."""
    began, may_end = threading.Event(), threading.Event()
    with LeaderElection(conf) as first, LeaderElection(conf) as second:
        wait_until(lambda: first.is_leader or second.is_leader)
        leader, heir = (first, second) if first.is_leader else (second, first)
        token, seen = leader.token, []

        @leader.leader_only
        def job() -> None:
            began.set()
            may_end.wait()
            seen.extend([leader.is_leader, heir.is_leader, leader.token == token])
            with pytest.raises(IllegalStateError, match="inside what the leader runs"):
                leader.close()

        thread = threading.Thread(target=job)
        thread.start()
        began.wait()
        leaving = threading.Thread(target=leader.hand_over)
        leaving.start()
        wait_until(lambda: not leader.is_leader)
        assert job() is None
        may_end.set()
        assert heir.wait_for_leadership(SOON_S)
        thread.join()
        leaving.join()
    assert seen == [False, False, True]


def test_the_runner_of_the_leader_is_a_thread_that_knows_its_token(conf: dict[str, Any]) -> None:
    """The shortest form of a scheduler."""
    seen: list[tuple[int, int | None]] = []
    stopped = threading.Event()
    election = LeaderElection(conf)

    @election.runner
    def run(token: int, stop: threading.Event) -> None:
        seen.append((token, election.token))
        stop.wait()
        stopped.set()

    with election:
        wait_until(lambda: bool(seen))
    assert stopped.is_set()
    assert seen[0][0] == seen[0][1]


def test_code_inside_a_runner_knows_its_unit_and_token(conf: dict[str, Any]) -> None:
    """A database layer needs the token, and no parameter in every function above it."""
    seen: dict[str, tuple[OwnedUnit | None, int | None]] = {}
    worker = Worker(conf, units=["a", "b"])

    @worker.runner
    def run(owned: OwnedUnit, stop: threading.Event) -> None:
        seen[owned.name] = worker.current, worker.token
        stop.wait()

    with worker:
        wait_until(lambda: len(seen) == 2)
        assert seen == {owned.name: (owned, owned.token) for owned in worker.assignment()}
        assert (worker.current, worker.token) == (None, None)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_service_elects_its_leader(conf: dict[str, Any], backend: str) -> None:
    """FastAPI and others start an election in their lifespan; callbacks, runner and jobs are coroutines."""
    told: list[object] = []

    async def elected(token: int) -> None:
        told.append(token)

    async def lost(reason: LossReason, deadline: float) -> None:
        told.append(reason)

    async def main() -> None:
        first = AsyncLeaderElection(conf, on_elected=elected, on_lost=lost)
        second = AsyncLeaderElection(conf)

        @first.runner
        async def run(token: int, stop: anyio.Event) -> None:
            told.append(("runs", token == first.token))
            await stop.wait()
            told.append("stops")

        async def job() -> int | None:
            return second.token

        with anyio.fail_after(SOON_S):
            async with first:
                assert await first.wait_for_leadership()
                assert await first.worker.wait_for(lambda _: len(told) == 2)
                async with second:
                    assert await second.leader_only(job)() is None
                    await first.hand_over()
                    assert await second.wait_for_leadership()
                    assert await second.leader_only(job)() == second.token

    anyio.run(main, backend=backend)
    assert isinstance(told[0], int)
    assert told[1:] == [("runs", True), LossReason.CLOSED, "stops"]


@pytest.mark.parametrize("make", [AsyncLeaderElection, partial(AsyncWorker, units=["a"])])
def test_a_plain_function_is_refused_where_it_would_be_awaited(conf: dict[str, Any], make: Any) -> None:
    """The error would be in the log only, and nothing would run."""

    def plain(*_: object) -> None:
        pass

    with pytest.raises(ConfigError, match="on_lost is no async function: give an async function, or use"):
        make(conf, on_lost=plain)
    with pytest.raises(ConfigError, match="the runner is no async function"):
        make(conf).runner(plain)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_of_an_async_runner_know_their_token(conf: dict[str, Any], backend: str) -> None:
    """A task that a runner starts writes with the runner's token."""
    seen: list[int | None] = []

    async def main() -> None:
        worker = AsyncWorker(conf, units=["a"])

        async def write() -> None:
            seen.append(worker.token)

        @worker.runner
        async def run(owned: OwnedUnit, stop: anyio.Event) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
            seen.append(owned.token)
            await stop.wait()

        with anyio.fail_after(SOON_S):
            async with worker:
                assert await worker.wait_for(lambda _: len(seen) == 2)
        assert worker.token is None

    anyio.run(main, backend=backend)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("call", ["close", "hand_over", "wait", "wait_for_leadership", "wait_for_loss"])
def test_async_elections_are_called_as_the_others(call: str) -> None:
    """A program that moves to asyncio writes `await` in front, and changes nothing else."""
    plain, awaited = (inspect.signature(getattr(one, call)) for one in (LeaderElection, AsyncLeaderElection))
    assert plain.parameters == awaited.parameters


@pytest.mark.parametrize("call", ["close", "hand_over", "wait", "wait_for"])
def test_async_workers_are_called_as_the_others(call: str) -> None:
    """The same."""
    plain, awaited = (inspect.signature(getattr(one, call)) for one in (Worker, AsyncWorker))
    assert [(one.name, one.kind, one.default) for one in plain.parameters.values()] == [
        (one.name, one.kind, one.default) for one in awaited.parameters.values()
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_waits_end_in_time(conf: dict[str, Any], backend: str) -> None:
    """A service asks whether it leads, and does something else if it does not."""

    async def main() -> None:
        async with AsyncLeaderElection(conf) as leader:
            assert await leader.wait_for_leadership(SOON_S)
            async with AsyncLeaderElection(conf) as other:
                assert not await other.wait_for_leadership(0.01)
                assert not await leader.wait_for_loss(0.01)
                assert not await other.wait(0.01)
                assert not await other.worker.wait_for(lambda _: False, 0.01)
                await leader.close()
                assert await leader.wait(0.01)

    anyio.run(main, backend=backend)


def test_calls_that_begin_after_the_end_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do nothing; but with many threads some call was always under way, and on_lost took too long."""
    election = LeaderElection({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    before, after = election._as_leader(), election._as_leader()

    def wait_for(holds: Callable[[], bool], _timeout_s: float) -> bool:
        after.__enter__()
        assert not holds()
        before.__exit__(None, None, None)
        return holds()

    monkeypatch.setattr(election._idle, "wait_for", wait_for)
    before.__enter__()
    election._wait_for_calls()
    after.__exit__(None, None, None)
