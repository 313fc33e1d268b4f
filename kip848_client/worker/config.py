"""A worker's configuration: its own keys, and those of connections, which are a consumer's."""

from __future__ import annotations

import difflib
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.model import Unit
from kip848_client.config import ConsumerConfig, parse_consumer_config
from kip848_client.config.reader import ConfigReader, ConfigValue
from kip848_client.errors import ConfigError
from kip848_client.worker.core import WorkerSettings

UnitLike: TypeAlias = str | Unit
UnitSource: TypeAlias = Callable[[], tuple[int, Iterable[UnitLike]]]
"""Returns a list of units and its version, which grows whenever the list changes."""

_OWN: Final = (
    "worker.id",
    "worker.url",
    "units.version",
    "units.refresh.interval.ms",
    "worker.sync.timeout.ms",
    "worker.unsync.backoff.ms",
    "rebalance.timeout.ms",
    "fence.margin.ms",
    "stop.error",
    "runner.backoff.ms",
    "runner.backoff.max.ms",
    "group.remote.assignor",
    "group.protocol",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)
_SHARED: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "client.id",
    "group.instance.id",
    "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
)
_SECURITY: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "kip848.", "oauth", "https.")


class WorkerConfig(msgspec.Struct, frozen=True):
    """The settings of a worker, checked.

    Args:
        units_version: of a fixed list of units.
        connections: the keys of connections.
        protocol: `classic` or `connect`; None: connect groups where the broker offers them.
        session_timeout_ms, heartbeat_interval_ms: of the classic protocol.
        runner_backoff_ms, runner_backoff_ms_max: how long a unit rests whose runner ended, at first and at most.
    """

    settings: WorkerSettings
    connections: ConsumerConfig
    units_version: int
    units_refresh_ms: int
    protocol: str | None = None
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    runner_backoff_ms: int = 1_000
    runner_backoff_ms_max: int = 30_000


def parse_worker_config(
    conf: Mapping[str, ConfigValue], *, assignors: tuple[str, ...] = (), reads_units: bool = False
) -> WorkerConfig:
    """Check a worker's configuration.

    Args:
        assignors: names of its client-side assignors.
        reads_units: its units come from a function.

    Raises:
        ConfigError: keys are missing, unknown or out of range. The message names all of them.
    """
    reader = ConfigReader(conf, aliases={})
    for key in reader.conf:
        if key not in _OWN and key not in _SHARED and not key.startswith(_SECURITY):
            near = difflib.get_close_matches(key, [*_OWN, *_SHARED], n=1)
            reader.refuse(f"{key} is not a setting of a worker{f'; did you mean {near[0]}?' if near else ''}", None)
    stop_error = reader.one_of("stop.error", {"hold": "hold", "release": "release"}, default="hold")
    runner_backoff_ms = reader.integer("runner.backoff.ms", default=1_000, low=1, high=86_400_000)
    runner_backoff_ms_max = reader.integer("runner.backoff.max.ms", default=30_000, low=1, high=86_400_000)
    margin_ms = reader.integer("fence.margin.ms", default=-1, low=1, high=3_600_000)
    rebalance_timeout_ms = reader.integer("rebalance.timeout.ms", default=60_000, low=1, high=86_400_000)
    worker_id = reader.not_blank("worker.id") or f"{socket.gethostname()}:{os.getpid()}"
    worker_url = reader.not_blank("worker.url")
    assignor = reader.one_of("group.remote.assignor", {"uniform": "uniform", "eager": "eager"}, default="uniform")
    version = reader.integer("units.version", default=0, low=0, high=2**62)
    refresh_ms = reader.integer("units.refresh.interval.ms", default=5_000, low=10, high=86_400_000)
    sync_timeout_ms = reader.integer("worker.sync.timeout.ms", default=3_000, low=1, high=3_600_000)
    unsync_backoff_ms = reader.integer("worker.unsync.backoff.ms", default=300_000, low=1, high=86_400_000)
    protocols = {"classic": "classic", "connect": "connect", "auto": ""}
    protocol = reader.one_of("group.protocol", protocols, default="")
    session_timeout_ms = reader.integer("session.timeout.ms", default=10_000, low=100, high=1_800_000)
    interval_ms = reader.integer("heartbeat.interval.ms", default=1_000, low=10, high=1_800_000)
    if interval_ms > session_timeout_ms // 3:
        reader.refuse(
            f"heartbeat.interval.ms ({interval_ms}) must not be above a third of session.timeout.ms "
            f"({session_timeout_ms}): one lost heartbeat would end the lease",
            None,
        )
    if margin_ms > rebalance_timeout_ms // 2:
        reader.refuse(
            f"fence.margin.ms ({margin_ms}) must not be above half of rebalance.timeout.ms ({rebalance_timeout_ms}): "
            "while the coordinator waits for units to stop, they are given away after that time",
            None,
        )
    reader.check()
    connections = parse_consumer_config({key: value for key, value in reader.conf.items() if key not in _OWN})
    return WorkerConfig(
        settings=WorkerSettings(
            group_id=connections.group_id,
            member_id=str(uuid.uuid4()),
            worker_id=worker_id,
            instance_id=connections.group_instance_id,
            worker_url=worker_url,
            rebalance_timeout_ms=rebalance_timeout_ms,
            request_timeout_ms=connections.request_timeout_ms,
            retry_backoff_ms=connections.retry_backoff_ms,
            retry_backoff_max_ms=connections.retry_backoff_max_ms,
            fence_margin_ms=margin_ms if margin_ms > 0 else None,
            hold_failed_stops=stop_error == "hold",
            server_assignor=assignor,
            client_assignors=assignors,
            reads_units=reads_units,
            sync_timeout_ms=sync_timeout_ms,
            unsync_backoff_ms=unsync_backoff_ms,
        ),
        connections=connections,
        units_version=version,
        units_refresh_ms=refresh_ms,
        protocol=protocol or None,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=interval_ms,
        runner_backoff_ms=runner_backoff_ms,
        runner_backoff_ms_max=max(runner_backoff_ms, runner_backoff_ms_max),
    )


def read_units(units: Iterable[UnitLike]) -> frozenset[Unit]:
    """Units as the user wrote them.

    Raises:
        ConfigError: a unit is neither a name nor a `Unit`, is blank, has an index below -1, or is there twice.
    """
    if isinstance(units, str):
        raise ConfigError(f"units must be a list of names, got the text {units!r}; write [{units!r}]")
    read: set[Unit] = set()
    for given in units:
        unit = Unit(given) if isinstance(given, str) else given
        if not isinstance(unit, Unit):
            raise ConfigError(f"a unit is a name or a Unit, got {given!r}")
        if not unit.name.strip() or unit.index < -1:
            raise ConfigError(f"the name of a unit can't be blank and its index must be -1 or more, got {given!r}")
        if unit in read:
            raise ConfigError(f"unit {unit} is there twice")
        read.add(unit)
    return frozenset(read)
