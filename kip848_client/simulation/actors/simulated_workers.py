"""Workers that share units: the production `WorkerCore` in processes of their own, and the invariants U1 to U3.

`play_workers` plays one run of a scenario with units. The checks know which process really runs which unit, by the
scheduler's clock. Faults and planned events are those of consumers that also make sense for workers.

Does not own: the protocol (`kip848_client.worker.core`), delays and faults (`network`), the coordinator (`cluster`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kip848_client.assignors.units.cooperative import CooperativeAssignor
from kip848_client.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.errors import ConnectionLostError
from kip848_client.model import Unit
from kip848_client.simulation.virtual.cluster import ANY_NODE
from kip848_client.simulation.virtual.environment import GROUP, Environment, Kind
from kip848_client.simulation.virtual.network import SimulatedConnection
from kip848_client.simulation.virtual.scenario import Scenario
from kip848_client.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.simulation.virtual.violation import fail
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.schema import Request, Response
from kip848_client.worker.core import CLOCK_DRIFT, WorkerCore, WorkerSettings
from kip848_client.worker.events import (
    Answered,
    Call,
    CallbackDone,
    CallbackKind,
    CloseRequested,
    DrainRequested,
    Left,
    NotAnswered,
    Plan,
    Planned,
    Send,
    Start,
    StopNow,
    Tick,
    WorkerEvent,
)

_FIND_VERSION: Final = 4
_PLAN_MS_MAX: Final = 200
_START_MS_MAX: Final = 300
_HANG: Final = 0.1
"""Part of the calls of on_revoked that hang until the lease ends."""


class Running(msgspec.Struct, eq=False):
    """A unit that runs.

    Args:
        stopping: its runner was told to stop, and will.
    """

    worker: str
    token: int
    stopping: bool = False


class Fleet(Environment):
    """All workers of one run, and the units that really run."""

    def __init__(self, scenario: Scenario, *, scheduler: Scheduler) -> None:
        rng = scheduler.random("fleet")
        half = scenario.units // 2
        self.units: Final = [Unit(f"unit-{number}") for number in range(scenario.units - half)] + [
            Unit("tasks", number) for number in range(half)
        ]
        self.client_side: Final = rng.random() < scenario.assignors
        config = CoordinatorConfig(
            protocols=("classic", "consumer", "connect"),
            connect_session_timeout_ms=scenario.session_timeout_ms,
            connect_heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            client_assignors=True,
        )
        super().__init__(scenario, scheduler, config, rng=rng)
        scheduler.after_step = self._check_coordinator
        self.workers: Final[list[WorkerProcess]] = []
        self.stop_ms_max: Final = int(scenario.session_timeout_ms * (1 / 3 - CLOCK_DRIFT) / (1 + CLOCK_DRIFT)) // 2
        """How long a runner takes to stop at most: what the lease's margin leaves, with clocks that drift."""
        self._running: Final[dict[Unit, list[Running]]] = {unit: [] for unit in self.units}
        self._owners: Final[dict[Unit, tuple[int, str]]] = {}
        self._number = 0

    def living(self) -> list[WorkerProcess]:
        """Workers whose process runs and was not told to end."""
        return [worker for worker in self.workers if not worker.dead and not worker.ends]

    def join(self) -> None:
        """Start one more worker."""
        self._number += 1
        worker = WorkerProcess(self, f"worker-{self._number}")
        self.workers[:] = [*(one for one in self.workers if not one.dead), worker]
        worker.step(Start())

    def idle(self) -> list[Unit]:
        """Units that run nowhere."""
        return [unit for unit in self.units if not self._running[unit]]

    def rests(self) -> bool:
        """Whether every unit runs, and every worker that was told to leave has left."""
        return not self.idle() and all(worker.dead or not worker.ends for worker in self.workers)

    # --- running units

    def begins(self, unit: Unit, run: Running) -> None:
        """A runner starts: U1 and U2."""
        others = self._running[unit]
        if others:
            fail("U1", f"{unit} starts on {run.worker} while it runs on {', '.join(one.worker for one in others)}")
        token, owner = self._owners.get(unit, (-1, ""))
        if run.token <= token and owner != run.worker:
            fail("U2", f"{unit} goes from {owner} with token {token} to {run.worker} with token {run.token}")
        self._owners[unit] = run.token, run.worker
        others.append(run)

    def ends(self, unit: Unit, run: Running) -> None:
        """A runner has stopped."""
        self._running[unit].remove(run)

    # --- events and faults

    def perform(self, kind: Kind, rng: random.Random) -> None:
        """Carry out one planned event; the kinds that concern consumers alone do nothing."""
        living = self.living()
        match kind:
            case Kind.JOIN if len(living) < self.scenario.members_max:
                self.join()
            case Kind.LEAVE if living:
                rng.choice(living).leave(rng)
            case Kind.CRASH if living:
                rng.choice(living).crash()
                self.scheduler.call_in(rng.randint(1, 2 * self.scenario.session_timeout_ms), self._replace)
            case Kind.CUT if living:
                self.network.cut(rng.choice(living).name, rng)
            case Kind.CRASH_COORDINATOR:
                self.cluster.crash()
            case Kind.FAIL_OVER:
                # The old one stops at once: leases are safe only while one coordinator answers.
                self.cluster.fail_over(
                    believes_for_ms=0, load_ms=rng.choice((0, 50, 700)), rumour_ms=rng.choice((0, 400))
                )
            case _:
                pass

    def heal(self) -> None:
        """End the faults, with at least one worker."""
        super().heal()
        if not self.living():
            self.join()

    def _replace(self) -> None:
        if not self.healed:
            self.join()

    def _check_coordinator(self) -> None:
        self.cluster.coordinator.check_invariants()


class WorkerProcess:
    """One process, with a clock that runs fast or slow, from its start to its end."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet: Final = fleet
        self.name: Final = name
        scheduler, scenario = fleet.scheduler, fleet.scenario
        self._scheduler: Final = scheduler
        self._rng: Final = scheduler.random(name)
        self._rate: Final = self._rng.uniform(1 - scenario.drift, 1 + scenario.drift)
        self.dead = False
        """Its process has ended."""
        self.ends = False
        """It was told to leave."""
        self._runs: Final[dict[Unit, Running]] = {}
        self._link: SimulatedConnection | None = None
        self._timer: Timer | None = None
        self._core: Final = WorkerCore(
            WorkerSettings(
                group_id=GROUP,
                member_id=f"{name}-{self._rng.randrange(1000)}",
                worker_id=name,
                rebalance_timeout_ms=scenario.max_poll_interval_ms,
                request_timeout_ms=scenario.request_timeout_ms,
                client_assignors=("cooperative",) if fleet.client_side else (),
            ),
            offset=1,
            units=fleet.units,
        )
        self.note("started")

    def step(self, event: WorkerEvent) -> None:
        """Give *event* to the core, and perform its effects."""
        if self.dead:
            return
        for effect in self._core.step(event, now_ms=self._now_ms):
            match effect:
                case Send():
                    _Request(self, effect).begin()
                case Call():
                    self._call(effect)
                case StopNow(units):
                    for owned in units:
                        self._stop(owned.unit)
                case Plan(plan_id, _, group):
                    plan = CooperativeAssignor(max_delay_ms=self._fleet.scenario.session_timeout_ms // 2).assign(group)
                    self._later(self._rng.randrange(_PLAN_MS_MAX), Planned(plan_id, plan))
                case Left():
                    self.note("left")
                    self.dead = True  # units whose stop hung were told to stop at the end of close(), and do
                case _:
                    pass
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._core.deadline_ms()
        if due_ms is not None and not self.dead:
            wait_ms = max(int(due_ms / self._rate) + 1 - self._scheduler.now_ms, 1)
            self._timer = self._scheduler.call_in(wait_ms, self._tick)

    def leave(self, rng: random.Random) -> None:
        """Give all units away, and end. Some workers drain first, as before a restart."""
        self.ends = True
        self.note("closing")
        if rng.random() < 0.3:
            self.step(DrainRequested())
            self._later(rng.randint(0, 3_000), CloseRequested(deadline_ms=self._now_ms + 33_000))
        else:
            self.step(CloseRequested(deadline_ms=self._now_ms + 30_000))
        self._scheduler.call_in(rng.randint(1, 2 * self._fleet.scenario.session_timeout_ms), self._fleet._replace)

    def crash(self) -> None:
        """The process and its units end at once."""
        self.note("crashed")
        self.dead = True
        if self._link is not None:
            self._fleet.network.close(self._link, "the process died")
        for unit, run in tuple(self._runs.items()):
            self._ended(unit, run)

    def note(self, what: str, **details: object) -> None:
        """Write to the history."""
        self._scheduler.note(self.name, what, **details)

    @property
    def _now_ms(self) -> int:
        return int(self._scheduler.now_ms * self._rate)

    def _tick(self) -> None:
        self._scheduler.events += 1
        self.step(Tick())

    def _later(self, delay_ms: int, event: WorkerEvent) -> None:
        self._scheduler.call_in(delay_ms, lambda: self.step(event))

    # --- runners

    def _call(self, call: Call) -> None:
        done = CallbackDone(call.call_id)
        if call.kind is CallbackKind.ASSIGNED:
            for owned in call.units:
                run = self._runs[owned.unit] = Running(self.name, owned.token)
                self.note("unit_started", unit=str(owned.unit), token=owned.token)
                self._fleet.begins(owned.unit, run)
            self._later(self._rng.randrange(_START_MS_MAX), done)
            return
        hangs = call.kind is CallbackKind.REVOKED and not self._fleet.healed and self._rng.random() < _HANG
        if hangs:
            self.note("stop_hangs")
        for owned in call.units:
            if not hangs:
                self._stop(owned.unit)
        self._wait_for_stop(call, done)

    def _wait_for_stop(self, call: Call, done: CallbackDone) -> None:
        if any(owned.unit in self._runs for owned in call.units):
            self._scheduler.call_in(50, lambda: None if self.dead else self._wait_for_stop(call, done))
        else:
            self.step(done)

    def _stop(self, unit: Unit) -> None:
        run = self._runs.get(unit)
        if run is not None and not run.stopping:
            run.stopping = True
            self._scheduler.call_in(self._rng.randrange(self._fleet.stop_ms_max), lambda: self._ended(unit, run))

    def _ended(self, unit: Unit, run: Running) -> None:
        if self._runs.get(unit) is run:
            del self._runs[unit]
            self.note("unit_stopped", unit=str(unit), token=run.token)
            self._fleet.ends(unit, run)


class _Request:
    """One request of a worker. Finds the coordinator if there is no connection; ends exactly once."""

    def __init__(self, worker: WorkerProcess, send: Send) -> None:
        self._worker: Final = worker
        self._send: Final = send
        self._network: Final = worker._fleet.network
        self._over = False

    def begin(self) -> None:
        """Send it; the worker hears of its end in time."""
        worker = self._worker
        wait_ms = max(int(self._send.timeout_ms / worker._rate), 1)
        worker._scheduler.call_in(wait_ms, lambda: self._failed("time-out", "no answer in time"))
        link = worker._link
        if link is not None and (self._send.anew or not link.open):
            self._network.close(link, "the coordinator may be another one")
            link = worker._link = None
        if link is not None:
            self._write(link, self._send.request, 0, self._answered)
        else:
            self._connect(ANY_NODE, self._find)

    def _find(self, connection: SimulatedConnection) -> None:
        request = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=(GROUP,))

        def found(response: Response) -> None:
            assert isinstance(response, FindCoordinatorResponse)
            self._network.close(connection, "it said where the coordinator is")
            if not response.coordinators or response.coordinators[0].error_code:
                self._failed("error", "no coordinator")
            elif not self._over:
                self._connect(response.coordinators[0].node_id, self._open)

        self._write(connection, request, _FIND_VERSION, found)

    def _open(self, connection: SimulatedConnection) -> None:
        if self._worker._link is None and not self._worker.dead:
            self._worker._link = connection
        if not self._over:
            self._write(connection, self._send.request, 0, self._answered)

    def _connect(self, node_id: int, opened: Callable[[SimulatedConnection], None]) -> None:
        self._network.connect(self._worker.name, node_id, on_open=opened, on_failure=self._failed)

    def _write(
        self, connection: SimulatedConnection, request: Request[Any], version: int, answered: Callable[[Response], None]
    ) -> None:
        self._network.send(
            connection,
            request,
            api_version=version,
            timeout_ms=max(int(self._send.timeout_ms / self._worker._rate), 1),
            on_answer=answered,
            on_failure=self._failed,
        )

    def _answered(self, response: Response) -> None:
        if not self._over:
            self._over = True
            self._worker.step(Answered(self._send.request_id, response))  # type: ignore[arg-type]  # of its request

    def _failed(self, kind: object, message: str) -> None:
        del kind
        if not self._over:
            self._over = True
            link, self._worker._link = self._worker._link, None
            if link is not None:
                self._network.close(link, "its request failed")
            self._worker.step(NotAnswered(self._send.request_id, ConnectionLostError(message)))


def play_workers(scenario: Scenario, scheduler: Scheduler) -> None:
    """Play one run: faults, then healing, and then every unit must run again within a bounded time.

    Raises:
        InvariantViolation: U1, U2 or U3.
    """
    fleet = Fleet(scenario, scheduler=scheduler)
    for _ in range(scenario.members):
        fleet.join()
    fleet.play_plan(fleet.perform)
    fleet.heal()
    limit_ms = _heal_ms(scenario)
    if not scheduler.wait_until(fleet.rests, limit_ms):
        idle = ", ".join(map(str, fleet.idle())) or "no unit"
        fail("U3", f"{idle} run nowhere {limit_ms} ms after the last fault, or a close() has not ended")
    scheduler.run_until(
        scheduler.now_ms + 2 * scenario.session_timeout_ms
    )  # a unit that stops now must run again by then
    if left := fleet.idle():
        fail("U3", f"{', '.join(map(str, left))} stopped after the last fault")


def _heal_ms(scenario: Scenario) -> int:
    """How long a unit may take: a session, an acknowledgement that hung, the delay of the plan, and the moves."""
    return (
        3 * scenario.session_timeout_ms
        + 2 * scenario.max_poll_interval_ms
        + 30_000  # a close() that hung when the faults ended
        + 3 * max(scenario.request_timeout_ms, 5_000)
        + 20 * scenario.heartbeat_interval_ms
    )
