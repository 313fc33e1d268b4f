"""Workers that share units: the production `WorkerCore` in processes of their own, and the invariants U1 to U4.

`play_workers` plays one run of a scenario with units, in connect groups or in classic groups. The checks know which
process really runs which unit, by the scheduler's clock. Faults and planned events are those of consumers that also
make sense for workers.

Does not own: the protocol (`kip848_client.worker`), requests (`worker_requests`), delays and faults (`network`), the
coordinator (`cluster`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import msgspec

from kip848_client.assignors.units.cooperative import CooperativeAssignor
from kip848_client.common.model import Unit
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.simulation.actors.worker_requests import (
    ClassicExchange,
    Requester,
    TokenService,
    WorkerExchange,
    drain_from_outside,
)
from kip848_client.testing.simulation.virtual.environment import GROUP, Environment, Kind
from kip848_client.testing.simulation.virtual.network import Network, SimulatedConnection
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.connect_group_heartbeat import ConnectGroupHeartbeatRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.schema import Response
from kip848_client.worker.classic.classic_round import ClassicRound
from kip848_client.worker.core import CLOCK_DRIFT, WorkerCore, WorkerSettings
from kip848_client.worker.events import (
    CallbackDone,
    CallbackKind,
    CloseRequested,
    DrainRequested,
    Left,
    Plan,
    Planned,
    RunCallback,
    Send,
    StartRequested,
    StopNow,
    WorkerEvent,
    WorkerFailed,
    WorkerTick,
)

_DELETE_VERSION: Final = 2
_PLAN_MS_MAX: Final = 200
_START_MS_MAX: Final = 300
_HANG: Final = 0.1
"""Part of the calls of on_revoked that hang until the lease ends."""


class Running(msgspec.Struct, eq=False):
    """A unit that runs.

    Args:
        stopping: its runner was told to stop, and will.
    """

    process: WorkerProcess
    token: int
    stopping: bool = False

    @property
    def worker(self) -> str:
        """Name of its worker."""
        return self.process.name


class Fleet(Environment):
    """All workers of one run, and the units that really run."""

    def __init__(self, scenario: Scenario, *, scheduler: Scheduler) -> None:
        rng = scheduler.random("fleet")
        half = scenario.units // 2
        self.units: Final = [Unit(f"unit-{number}") for number in range(scenario.units - half)] + [
            Unit("tasks", number) for number in range(half)
        ]
        self.client_side: Final = rng.random() < scenario.assignors
        self.classic: bool = scheduler.random("protocol").random() < scenario.classic
        """The workers are in a classic group."""
        self.assignor: Final = CooperativeAssignor(max_delay_ms=scenario.session_timeout_ms // 2)
        config = CoordinatorConfig(
            protocols=("classic", "consumer", "connect"),
            connect_session_timeout_ms=scenario.session_timeout_ms,
            connect_heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            client_assignors=True,
        )
        super().__init__(scenario, scheduler, config, rng=rng)
        scheduler.after_step = self._check_coordinator
        self.tokens: Final = TokenService(scheduler)
        self.cluster.others[InitProducerIdRequest] = self.tokens.answer
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
        worker.step(StartRequested())

    def idle(self) -> list[Unit]:
        """Units that run nowhere."""
        return [unit for unit in self.units if not any(run.process.acts for run in self._running[unit])]

    def rests(self) -> bool:
        """Whether every unit runs, and every worker that was told to leave has left."""
        return not self.idle() and all(worker.dead or not worker.ends for worker in self.workers)

    # --- running units

    def begins(self, unit: Unit, run: Running) -> None:
        """A runner starts: U1 and U2."""
        runs = self._running[unit]
        others = [one.worker for one in runs if one.process.acts]
        if others:
            fail("U1", f"{unit} starts on {run.worker} while it runs on {', '.join(others)}")
        token, owner = self._owners.get(unit, (-1, ""))
        if run.token <= token and owner != run.worker:
            fail("U2", f"{unit} goes from {owner} with token {token} to {run.worker} with token {run.token}")
        self._owners[unit] = run.token, run.worker
        runs.append(run)

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
            case Kind.FREEZE if living:
                rng.choice(living).freeze(rng.randint(200, 2 * self.scenario.session_timeout_ms))
            case Kind.DELETE_GROUP if living:
                self._delete_group(rng)
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
        self.tokens.faulty = False
        if not self.living():
            self.join()

    def _replace(self) -> None:
        if not self.healed:
            self.join()

    def _delete_group(self, rng: random.Random) -> None:
        """All processes end at once; the empty group is deleted; then they come back."""
        living = self.living()
        for worker in living:
            worker.crash()

        def deleted(response: Response) -> None:
            assert isinstance(response, DeleteGroupsResponse)
            self.scheduler.note("scenario", "group_deleted", errors=[one.error_code for one in response.results])

        def delete() -> None:
            if not self.healed:
                request = DeleteGroupsRequest(groups_names=(GROUP,))
                self.cluster.host.serve(request, api_version=_DELETE_VERSION, client_id="admin", reply=deleted)

        away_ms = rng.randint(1, 2 * self.scenario.session_timeout_ms)
        self.scheduler.call_in(away_ms, delete)
        for _ in living:
            self.scheduler.call_in(away_ms + rng.randint(0, 1_000), self._replace)

    def _check_coordinator(self) -> None:
        self.cluster.coordinator.check_invariants()


class WorkerProcess(Requester):
    """One process, with a clock that runs fast or slow, from its start to its end."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet: Final = fleet
        self.network: Network = fleet.network
        self.assignor: CooperativeAssignor = fleet.assignor
        self.heartbeat_interval_ms: int = fleet.scenario.heartbeat_interval_ms
        self.name = name
        scheduler, scenario = fleet.scheduler, fleet.scenario
        self.scheduler = scheduler
        self._rng: Final = scheduler.random(name)
        self.rate: float = self._rng.uniform(1 - scenario.drift, 1 + scenario.drift)
        self.dead: bool = False
        """Its process has ended."""
        self.ends: bool = False
        """It was told to leave."""
        self._runs: Final[dict[Unit, Running]] = {}
        self.link: SimulatedConnection | None = None
        self.second_link: SimulatedConnection | None = None
        self.token_link: SimulatedConnection | None = None
        self._thaws_ms = -1
        self._frozen_lease_ms = 0
        self._timer: Timer | None = None
        settings = WorkerSettings(
            group_id=GROUP,
            member_id=f"{name}-{self._rng.randrange(1000)}",
            worker_id=name,
            rebalance_timeout_ms=scenario.max_poll_interval_ms,
            request_timeout_ms=scenario.request_timeout_ms,
            client_assignors=("cooperative",) if fleet.client_side else (),
        )
        self._core: Final = WorkerCore(settings, offset=1, units=fleet.units)
        self.classic: ClassicRound | None = (
            ClassicRound(
                settings,
                session_timeout_ms=scenario.session_timeout_ms,
                heartbeat_interval_ms=scenario.heartbeat_interval_ms,
            )
            if fleet.classic
            else None
        )
        self.note("started")

    def step(self, event: WorkerEvent) -> None:
        """Give *event* to the core, and perform its effects."""
        if self.dead:
            return
        if self.frozen:
            self.awake(lambda: self.step(event))
            return
        for effect in self._core.step(event, now_ms=self.now_ms):
            match effect:
                case Send():
                    is_beat = isinstance(effect.request, ConnectGroupHeartbeatRequest)
                    (ClassicExchange if self.classic is not None and is_beat else WorkerExchange)(self, effect).begin()
                case RunCallback():
                    self._call(effect)
                case StopNow(units):
                    for owned in units:
                        self._stop(owned.unit)
                case Plan(plan_id, _, group):
                    plan = self.assignor.assign(group)
                    self._later(self._rng.randrange(_PLAN_MS_MAX), Planned(plan_id, plan))
                case WorkerFailed(error):
                    fail("U3", f"{self.name} stops working: {error}")
                case Left():
                    self.note("left")
                    self._die()  # units whose stop hung were told to stop at the end of close(), and do
                case _:
                    pass
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._core.deadline_ms()
        if due_ms is not None and not self.dead:
            wait_ms = max(int(due_ms / self.rate) + 1 - self.scheduler.now_ms, 1)
            self._timer = self.scheduler.call_in(wait_ms, self._tick)

    def leave(self, rng: random.Random) -> None:
        """Give all units away, and end. Some workers are drained first, or hand over."""
        self.ends = True
        self.note("closing")
        if rng.random() < 0.3:
            if self.classic is None:
                self.step(DrainRequested())
            elif rng.random() < 0.5:
                drain_from_outside(self.name, self._fleet.cluster, self.scheduler, client_side=self._fleet.client_side)
            else:
                self.classic.draining = True
                self.step(DrainRequested(in_group=True, then_close=True))
            self._later(rng.randint(0, 3_000), CloseRequested(deadline_ms=self.now_ms + 33_000))
        else:
            self.step(CloseRequested(deadline_ms=self.now_ms + 30_000))
        self.scheduler.call_in(rng.randint(1, 2 * self._fleet.scenario.session_timeout_ms), self._fleet._replace)

    def crash(self) -> None:
        """The process and its units end at once."""
        self.note("crashed")
        self._die()
        for unit, run in tuple(self._runs.items()):
            self._ended(unit, run)

    def freeze(self, for_ms: int) -> None:
        """The process stands still, as a paused virtual machine does. Its clock goes on."""
        if self.frozen:
            return
        self.note("frozen", ms=for_ms)
        lease_ms = self._core.view().lease_ends_ms
        self._frozen_lease_ms = self.now_ms if lease_ms is None else lease_ms
        self._thaws_ms = self.scheduler.now_ms + for_ms
        self.scheduler.call_in(for_ms + 1, self._thawed)

    def _thawed(self) -> None:
        """What waited for the process has reached the core, which may have learned that it has a lease still."""
        lease_ms = self._core.view().lease_ends_ms
        if self.now_ms >= self._frozen_lease_ms and (lease_ms is None or self.now_ms >= lease_ms):
            # A runner looks at its lease before each act, so none follows.
            for unit, run in tuple(self._runs.items()):
                self._ended(unit, run)

    @property
    def frozen(self) -> bool:
        """Whether the process stands still."""
        return self.scheduler.now_ms < self._thaws_ms

    @property
    def acts(self) -> bool:
        """Whether its units count as running: it stands still no more, or their lease has not ended yet."""
        return self.scheduler.now_ms > self._thaws_ms or self.now_ms < self._frozen_lease_ms

    def awake(self, action: Callable[[], None]) -> None:
        """Run *action* now, or when the process thaws."""
        if self.frozen:
            self.scheduler.call_in(self._thaws_ms - self.scheduler.now_ms, lambda: self.awake(action))
        else:
            action()

    def later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run *action* when that much has passed on the worker's clock."""
        return self.scheduler.call_in(max(int(delay_ms / self.rate), 1), lambda: self.awake(action))

    def draw(self, limit: int) -> int:
        """A number below *limit*."""
        return self._rng.randrange(limit)

    def _die(self) -> None:
        self.dead = True
        for link in (self.link, self.second_link, self.token_link):
            if link is not None:
                self.network.close(link, "the process died")

    def note(self, what: str, **details: object) -> None:
        """Write to the history."""
        self.scheduler.note(self.name, what, **details)

    @property
    def now_ms(self) -> int:
        """Its own clock."""
        return int(self.scheduler.now_ms * self.rate)

    def _tick(self) -> None:
        self.scheduler.events += 1
        self.step(WorkerTick())

    def _later(self, delay_ms: int, event: WorkerEvent) -> None:
        self.scheduler.call_in(delay_ms, lambda: self.step(event))

    # --- runners

    def _call(self, call: RunCallback) -> None:
        done = CallbackDone(call.call_id)
        if call.kind is CallbackKind.ASSIGNED:
            for owned in call.units:
                run = self._runs[owned.unit] = Running(self, owned.token)
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

    def _wait_for_stop(self, call: RunCallback, done: CallbackDone) -> None:
        if not self.dead and any(owned.unit in self._runs for owned in call.units):
            self.scheduler.call_in(
                50, lambda: None if self.dead else self.awake(lambda: self._wait_for_stop(call, done))
            )
        else:
            self.step(done)

    def _stop(self, unit: Unit) -> None:
        run = self._runs.get(unit)
        if run is not None and not run.stopping:
            run.stopping = True
            stop_ms = self._rng.randrange(self._fleet.stop_ms_max)
            self.scheduler.call_in(stop_ms, lambda: self.awake(lambda: self._ended(unit, run)))

    def _ended(self, unit: Unit, run: Running) -> None:
        if self._runs.get(unit) is run:
            del self._runs[unit]
            self.note("unit_stopped", unit=str(unit), token=run.token)
            self._fleet.ends(unit, run)


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
    # A unit that stops now must run again by then; one that moves at that moment may take its two rounds.
    scheduler.run_until(scheduler.now_ms + 2 * scenario.session_timeout_ms)
    if not scheduler.wait_until(lambda: not fleet.idle(), scenario.session_timeout_ms):
        fail("U3", f"{', '.join(map(str, fleet.idle()))} stopped after the last fault")
    rng = scheduler.random("trials")
    for _ in range(scenario.trials):
        _fail_some(fleet, rng)


def _fail_some(fleet: Fleet, rng: random.Random) -> None:
    """U4: let one worker or two of a healthy group fail; the others run the units soon after."""
    scenario, scheduler = fleet.scenario, fleet.scheduler
    session_ms = scenario.session_timeout_ms
    while len(fleet.living()) < 3:
        fleet.join()
    if not scheduler.wait_until(fleet.rests, 4 * session_ms):
        fail("U3", f"{', '.join(map(str, fleet.idle()))} run nowhere although nothing fails")
    scheduler.run_until(scheduler.now_ms + rng.randint(2 * session_ms, 3 * session_ms))
    victims = rng.sample(fleet.living(), rng.choice((1, 1, 2)))
    first = True
    for victim in victims:
        if not first:
            scheduler.run_until(scheduler.now_ms + rng.randrange(session_ms))
        first = False
        if rng.random() < 0.5:
            victim.crash()
        else:
            victim.freeze(rng.randint(session_ms, 3 * session_ms))
    failed_ms = scheduler.now_ms
    if rng.random() < 0.5:  # a new process comes while the group does not know yet
        scheduler.call_in(rng.randrange(session_ms), fleet.join)
    # One that failed while its JoinGroup waited for another one to be given up begins a new session after that.
    limit_ms = session_ms * len(victims) + 3 * scenario.heartbeat_interval_ms + _START_MS_MAX
    limit_ms += scenario.units * fleet.tokens.delay_ms
    if fleet.client_side:
        limit_ms += session_ms  # the delay of the plan, on a slow clock, and another round

    scheduler.run_until(failed_ms + session_ms)  # by then the leases of those that stand still have ended
    if not scheduler.wait_until(lambda: not fleet.idle(), limit_ms - session_ms):
        idle = ", ".join(map(str, fleet.idle()))
        fail("U4", f"{idle} run nowhere {scheduler.now_ms - failed_ms} ms after the last failure")


def _heal_ms(scenario: Scenario) -> int:
    """How long a unit may take: a session, an acknowledgement that hung, the delay of the plan, and the moves."""
    return (
        3 * scenario.session_timeout_ms
        + 2 * scenario.max_poll_interval_ms
        + 30_000  # a close() that hung when the faults ended
        + 3 * max(scenario.request_timeout_ms, 5_000)
        + 20 * scenario.heartbeat_interval_ms
    )
