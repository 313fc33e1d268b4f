"""The common part of `Worker` and `AsyncWorker`: configuration, list of units, and readable state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors.units.unit_interface import UnitAssignor
from kip848_client.common.callables import check_methods_not_async, check_not_async
from kip848_client.common.clock import Clock, LeaseClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import Unit
from kip848_client.config.consumer import merge_settings
from kip848_client.config.reader import ConfigValue
from kip848_client.errors import ConfigError, IllegalStateError, Kip848Error, RunnerEndedError, join_names
from kip848_client.member.core.states import MemberState
from kip848_client.worker.config import UnitLike, UnitSource, parse_worker_config, read_units
from kip848_client.worker.core import WorkerCore
from kip848_client.worker.events import (
    CloseRequested,
    DrainRequested,
    GiveUpRequested,
    Loss,
    OwnedUnit,
    RebalanceRequested,
    UnitsChanged,
)
from kip848_client.worker.host import CallbackRunner, WorkerHost, check_started
from kip848_client.worker.inside import unit_here
from kip848_client.worker.observer import WorkerHealth, lease_remaining_s
from kip848_client.worker.runner_ends import RunnerEnd, RunnerEnds, check_runner_end, ended_error


class WorkerBase:
    """See `kip848_client.Worker`."""

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None,
        settings: Mapping[str, ConfigValue],
        *,
        units: Iterable[UnitLike] | UnitSource,
        assignors: Sequence[UnitAssignor],
        on_runner_end: RunnerEnd,
        clock: Clock | None,
    ) -> None:
        policy = check_runner_end(on_runner_end)
        for each in assignors:
            check_methods_not_async(each, "assign")
        if callable(units):
            check_not_async(units, name="units")
        self._assignors: Final = {assignor.name: assignor for assignor in assignors}
        self._config: Final = parse_worker_config(
            merge_settings(config, settings), assignors=tuple(self._assignors), reads_units=callable(units)
        )
        self._source: Final[UnitSource | None] = units if callable(units) else None
        self._fixed: Final = None if callable(units) else read_units(units)
        self._clock: Final[Clock] = clock or LeaseClock()
        self._host: WorkerHost | None = None
        self._known: tuple[int, frozenset[Unit]] | None = None
        self._ends: Final = RunnerEnds(
            policy,
            backoff_ms=self._config.runner_backoff_ms,
            backoff_ms_max=self._config.runner_backoff_ms_max,
            session_ms=self._config.session_timeout_ms,
        )
        self._end_error: RunnerEndedError | None = None
        """The runner's end that has ended the worker."""
        self._elects = False
        """It stands behind an election."""

    def _make_host(self, callbacks: CallbackRunner, *, on_view: Callable[[], None]) -> WorkerHost:
        offset, units = self._known = self._read_units()
        restarts = self._ends.policy != "end"
        settings = replace(
            self._config.settings,
            elects=self._elects,
            start_backoff_ms=self._ends.pause_ms(1) if restarts else None,
            start_backoff_ms_max=max(self._ends.pause_ms(1), self._config.runner_backoff_ms_max),
        )
        core = WorkerCore(settings, offset=offset, units=units)
        return WorkerHost(
            core,
            self._config,
            callbacks=callbacks,
            clock=self._clock,
            on_view=on_view,
            on_start_failed=self._start_failed,
            assignors=self._assignors,
        )

    @property
    def _stop_timeout_s(self) -> float:
        return self._config.settings.rebalance_timeout_ms / 1000

    # --- state

    def assignment(self) -> list[OwnedUnit]:
        """The units that run here, ascending. Empty from the end of the lease on."""
        host = self._host
        if host is None:
            return []
        view = host.view
        if view.lease_ends_ms is None or self._clock.now_ms() >= view.lease_ends_ms:
            return []
        return list(view.assignment)

    @property
    def current(self) -> OwnedUnit | None:
        """Inside a runner, and in what it calls or starts as tasks: the unit that it runs. None elsewhere."""
        return unit_here(self)

    @property
    def token(self) -> int | None:
        """Inside a runner, and in what it calls or starts as tasks: the fencing token of its unit. None elsewhere."""
        owned = self.current
        return None if owned is None else owned.token

    @property
    def pending(self) -> list[Unit]:
        """Units that come here as soon as other workers have stopped them."""
        return [] if self._host is None else list(self._host.view.pending)

    @property
    def failed(self) -> list[Unit]:
        """Units whose start raised in *on_assigned*."""
        return [] if self._host is None else list(self._host.view.failed)

    @property
    def state(self) -> MemberState:
        """The state of the membership."""
        return MemberState.UNJOINED if self._host is None else self._host.view.state

    @property
    def member_id(self) -> str:
        """The id of this worker in the group, made at its construction."""
        return self._config.settings.member_id

    @property
    def worker_id(self) -> str:
        """Its name for people (``worker.id``)."""
        return self._config.settings.worker_id

    @property
    def member_epoch(self) -> int:
        """The epoch that this worker has reached; 0 while it is not in the group."""
        return 0 if self._host is None else self._host.view.member_epoch

    @property
    def lease_remaining_s(self) -> float:
        """Seconds until the units are stopped unless a heartbeat is answered before; 0 without units."""
        return 0.0 if self._host is None else lease_remaining_s(self._host.view, self._clock)

    @property
    def error(self) -> Kip848Error | None:
        """The error that stopped the worker for good, or None."""
        host = self._host
        return self._end_error or (None if host is None else host.view.error)

    @property
    def loss(self) -> Loss | None:
        """Within *on_revoked* and *on_lost*: why the units stop, and until when they may act. None elsewhere."""
        host = self._host
        return None if host is None else host.loss

    @property
    def errors(self) -> Mapping[Unit, BaseException]:
        """The exceptions of the units' runners."""
        return {}

    def health(self) -> WorkerHealth:
        """The health of this worker, for a liveness or readiness probe. May be called on any thread; never waits."""
        host = self._host
        if host is None:
            return WorkerHealth(
                state=self.state,
                live=True,
                ready=False,
                worker_id=self.worker_id,
                member_id=self.member_id,
                member_epoch=0,
            )
        view, seen, now_ms = host.view, host.observer, self._clock.now_ms()

        def ago_s(moment_ms: int | None) -> float | None:
            return None if moment_ms is None else max(0, now_ms - moment_ms) / 1000

        callback_s, assignment = ago_s(seen.callback_began_ms), self.assignment()
        hangs = callback_s is not None and callback_s > self._stop_timeout_s
        live = not host.home.left and not host.ended.is_set() and view.state is not MemberState.FATAL and not hangs
        broken = {*view.failed, *self.errors}
        return WorkerHealth(
            state=view.state,
            live=live,
            ready=live and view.member_epoch > 0 and not seen.late(),
            worker_id=self.worker_id,
            member_id=view.member_id,
            member_epoch=view.member_epoch,
            heartbeat_answered_s=ago_s(seen.heartbeat_accepted_ms),
            callback_s=callback_s,
            lease_remaining_s=self.lease_remaining_s,
            assignment=tuple(assignment),
            pending=view.pending,
            waiting=view.waiting,
            drains=self.drains,
            failed=tuple(owned.unit for owned in assignment if owned.unit in broken),
            last_error=None if seen.last_error is None else seen.last_error[0],
            last_error_s=None if seen.last_error is None else ago_s(seen.last_error[1]),
        )

    # --- calls of the application

    def update_units(self, version: int, units: Iterable[UnitLike]) -> None:
        """Give the group another list of units.

        Args:
            version: higher than that of the list before.

        Raises:
            ConfigError: a unit is wrong, or the version does not grow although the list differs.
        """
        host = check_started(self._host)
        assert self._known is not None
        new = read_units(units)
        before, known = self._known
        if version < before or (version == before and new != known):
            raise ConfigError(f"another list of units needs a version above {before}, got {version}")
        if (version, new) != self._known:
            self._known = (version, new)
            host.post(UnitsChanged(version, new))

    def request_rebalance(self) -> None:
        """Ask for a new plan; only with a client-side assignor.

        Raises:
            IllegalStateError: the coordinator computes the plans of this worker's group.
        """
        host = check_started(self._host)
        if not self._assignors:
            raise IllegalStateError(
                "request_rebalance() needs a client-side assignor; with a server-side one the coordinator balances"
            )
        host.post(RebalanceRequested())

    def give_up(self, units: Iterable[UnitLike]) -> None:
        """Have other workers run these units, at once where they run here; without other workers they stay.

        They may come back when the others have given them up, too, or are gone. In a connect group the worker leaves
        the group and joins it again, so that all its units move.

        Raises:
            ConfigError: a unit is wrong.
        """
        check_started(self._host).post(GiveUpRequested(read_units(units)))

    def drain(self) -> None:
        """Give all units to other workers and take no new ones, for good; the worker stays open.

        Each unit stops here when the others are ready for it. In a connect group with a server-side assignor the worker
        leaves the group instead.
        """
        check_started(self._host).post(DrainRequested())

    @property
    def drains(self) -> bool:
        """Whether it gives up its units, after `drain`, `hand_over`, or ``kip848 workers drain``."""
        return self._host is not None and self._host.drains

    # --- internals

    def _runner_ended(self, owned: OwnedUnit, error: BaseException | None) -> None:
        """A runner ended before it was told to stop."""
        self._apply_policy([owned.unit], ended_error(owned, error))

    def _start_failed(self, units: Iterable[Unit]) -> None:
        """*on_assigned* raised."""
        listed = sorted(units)
        names = join_names(map(str, listed))
        self._apply_policy(
            listed, RunnerEndedError(f"the start of unit {names} raised; see the log", unit=str(listed[0]))
        )

    def _apply_policy(self, units: Iterable[Unit], error: RunnerEndedError) -> None:
        host = self._host
        assert host is not None, "something runs"
        if self._ends.policy == "give_up":
            host.post(GiveUpRequested(frozenset(units)))
        elif self._ends.policy == "end":
            self._end_error = self._end_error or error
            host.observer.failed(error)
            host.post(CloseRequested(self._clock.now_ms() + self._config.settings.request_timeout_ms))

    def _raise_end(self, host: WorkerHost) -> None:
        """Raise what ended the worker, if it was an error."""
        if host.crashed is not None:
            raise IllegalStateError("a bug ended the worker's thread; see the cause") from host.crashed
        if self.error is not None:
            raise self.error

    def _read_units(self) -> tuple[int, frozenset[Unit]]:
        if self._source is None:
            assert self._fixed is not None
            return self._config.units_version, self._fixed
        version, units = self._source()
        return version, read_units(units)

    def _refresh(self) -> None:
        try:
            version, units = self._read_units()
            if self._known is not None and version > self._known[0]:
                self.update_units(version, units)
        except Exception as error:  # noqa: BLE001  the application's code; the list before goes on
            log_event(logging.ERROR, LogEvent.UNITS_NOT_READ, exc_info=error, group_id=self._config.settings.group_id)
