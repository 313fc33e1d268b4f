"""Metrics and health of one worker. Decides nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.model import Unit
from kip848_client.common.telemetry import ClientMetrics
from kip848_client.member.core.states import MemberState
from kip848_client.worker.config import WorkerConfig
from kip848_client.worker.events import CallbackDone, CallbackKind, OwnedUnit, RunCallback, WorkerView

_LOUD: Final = frozenset({"fenced", "lease_ended", "start_failed", "stop_failed", "units_behind", "margin_changed"})
"""Notes of the core that are warnings."""


class WorkerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a worker at one moment. ``msgspec.json.encode(health)`` makes JSON of it.

    Attributes:
        live: whether the process should be left running. False once the worker is closed or FATAL, its thread has
            ended, or a callback has run for longer than rebalance.timeout.ms. A broker that is away leaves it True.
        ready: live, a member of its group, and no unit has been *waiting* for longer than a session.
        heartbeat_answered_s: seconds since the coordinator accepted a heartbeat; None if it never did.
        callback_s: seconds since the callback began that is running; None if none is.
        lease_remaining_s: seconds until the units are stopped unless a heartbeat is answered before; 0 without units.
        assignment: the units that run here, with their tokens.
        pending: units that come here as soon as other workers have stopped them.
        waiting: units that were given to this worker and have not been started: it has no token for them yet, its
            list of units is too old, or callbacks run. Empty in a healthy worker but for moments.
        drains: it gives its units to other workers, for good.
        failed: units of *assignment* whose start or runner raised.
        last_error: the last error of a request, or the one that stopped the worker; None if there was none.
        last_error_s: seconds since then.
    """

    state: MemberState
    live: bool
    ready: bool
    worker_id: str
    member_id: str
    member_epoch: int
    heartbeat_answered_s: float | None = None
    callback_s: float | None = None
    lease_remaining_s: float = 0.0
    assignment: tuple[OwnedUnit, ...] = ()
    pending: tuple[Unit, ...] = ()
    waiting: tuple[Unit, ...] = ()
    drains: bool = False
    failed: tuple[Unit, ...] = ()
    last_error: str | None = None
    last_error_s: float | None = None


class WorkerObserver:
    """Watches one worker on the worker's thread; its findings may be read on any thread."""

    def __init__(self, config: WorkerConfig, *, clock: Clock) -> None:
        self._clock: Final = clock
        self._metrics: Final = ClientMetrics(
            client_id=config.connections.client_id,
            group_id=config.settings.group_id,
            worker_id=config.settings.worker_id,
        )
        self._view: WorkerView | None = None
        self.heartbeat_accepted_ms: int | None = None
        self.callback_began_ms: int | None = None
        self._idle_since_ms: int | None = clock.now_ms()
        """None while units run here."""
        self.last_error: tuple[str, int] | None = None
        self._waiting_since_ms: dict[Unit, int] = {}
        self._told_late: frozenset[Unit] = frozenset()
        self._session_ms: Final = config.session_timeout_ms
        self._told_ms: int = clock.now_ms()
        """When it was last said that no heartbeat is accepted; at first the start."""

    def late(self) -> frozenset[Unit]:
        """Units that were given to this worker more than a session ago, and have not been started."""
        session_ms = 0 if self._view is None else self._view.session_timeout_ms
        since_ms, now_ms = self._waiting_since_ms, self._clock.now_ms()
        return frozenset(unit for unit, began_ms in since_ms.items() if now_ms - began_ms > session_ms)

    def stepped(self, view: WorkerView) -> list[Unit]:
        """The worker is like this now.

        Returns:
            Units that have become `late` since the last call.
        """
        if self._view is None:
            self._metrics.offer(
                {
                    "kip848.worker.assigned.units": lambda: len(self._now().assignment),
                    "kip848.worker.pending.units": lambda: len(self._now().pending),
                    "kip848.worker.lease.remaining.seconds": lambda: lease_remaining_s(self._now(), self._clock),
                    "kip848.worker.without.units.seconds": self._idle_s,
                }
            )
        self._view = view
        if view.assignment:
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = self._clock.now_ms()
        self._metrics.look()
        now_ms, before = self._clock.now_ms(), self._waiting_since_ms
        self._waiting_since_ms = {unit: before.get(unit, now_ms) for unit in view.waiting}
        told, self._told_late = self._told_late, self.late()
        return sorted(self._told_late - told)

    def ended(self) -> None:
        """The worker has stopped."""
        self._metrics.withdraw()

    def heartbeat_answered(self, *, sent_ms: int, accepted: bool) -> None:
        """A heartbeat was answered."""
        now_ms = self._clock.now_ms()
        self._metrics.count("kip848.worker.heartbeat.total")
        self._metrics.measure("kip848.worker.heartbeat.response.time", now_ms - sent_ms)
        if accepted:
            self.heartbeat_accepted_ms = now_ms

    def noted(self, what: str) -> None:
        """The core noted something."""
        if what == "lease_ended":
            self._metrics.count("kip848.worker.lease.ended.total")
        elif what == "fenced":
            self._metrics.count("kip848.worker.fenced.total")

    def is_loud(self, what: str) -> bool:
        """Whether somebody should hear of what the core noted; of failed requests if none has worked for a session."""
        if what != "request_failed":
            return what in _LOUD
        now_ms = self._clock.now_ms()
        if now_ms - max(self._told_ms, self.heartbeat_accepted_ms or 0) < self._session_ms:
            return False
        self._told_ms = now_ms
        return True

    def failed(self, error: BaseException) -> None:
        """A request failed, or the worker did."""
        self.last_error = (f"{type(error).__name__}: {error}", self._clock.now_ms())

    def callback_began(self) -> None:
        """A callback begins; there is one at a time."""
        self.callback_began_ms = self._clock.now_ms()

    def callback_ended(self, call: RunCallback, done: CallbackDone) -> None:
        """It returned or raised."""
        began_ms, self.callback_began_ms = self.callback_began_ms, None
        if began_ms is not None:
            name = call.kind.value.removeprefix("on_")
            self._metrics.measure(f"kip848.worker.unit.{name}.latency", self._clock.now_ms() - began_ms)
        stays = 0 if call.kind is CallbackKind.LOST else len(done.failed)
        what = "started" if call.kind is CallbackKind.ASSIGNED else "stopped"
        self._metrics.count(f"kip848.worker.unit.{what}.total", len(call.units) - stays)
        if done.failed:
            self._metrics.count("kip848.worker.unit.failed.total", len(done.failed))

    def _idle_s(self) -> float:
        since_ms = self._idle_since_ms
        return 0.0 if since_ms is None else max(0, self._clock.now_ms() - since_ms) / 1000

    def _now(self) -> WorkerView:
        assert self._view is not None
        return self._view


def lease_remaining_s(view: WorkerView, clock: Clock) -> float:
    """Seconds until the units must be stopped; 0 without units."""
    return 0.0 if view.lease_ends_ms is None else max(0.0, (view.lease_ends_ms - clock.now_ms()) / 1000)
