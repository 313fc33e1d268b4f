"""Names of log events, spans and metrics, and thin wrappers that write them. The home of OpenTelemetry.

Without an OpenTelemetry SDK in the process every call here is a no-op of the API. Metric names are Kafka's, with dots
for hyphens. The client's rates, averages and maxima are left to the back end, which has the counters and histograms;
those of the coordinator are the list of KIP-848, whole. Logs are events
with fields on the logger ``kip848_client``; tests and alerts may rely on the names in `LogEvent`.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from opentelemetry import metrics, trace

__all__ = [
    "COORDINATOR_METRICS",
    "METRICS",
    "SPANS",
    "ClientMetrics",
    "Figure",
    "LogEvent",
    "log_event",
    "publish_coordinator",
]

LOGGER: Final = logging.getLogger("kip848_client")

_INSTRUMENTATION: Final = "kip848_client"


class LogEvent(enum.StrEnum):
    """Every log event of the client; the comment gives its fields."""

    STATE_CHANGED = "member.state_changed"
    """from, to, trigger, member_epoch."""
    FAILED = "member.failed"
    """error: the member is FATAL."""
    COORDINATOR_CONNECTED = "member.coordinator_connected"
    """node."""
    REQUEST_FAILED = "member.request_failed"
    """api, kind, error."""
    LISTENER_FAILED = "member.listener_failed"
    """callback, partitions, error."""
    ERROR_DROPPED = "member.error_dropped"
    """error: a second error of one call; the first one was raised."""
    LEAVE_TIMED_OUT = "member.leave_timed_out"
    """timeout_ms: the coordinator did not answer the leave in time."""
    AUTO_COMMIT_FAILED = "member.auto_commit_failed"
    """offsets, error."""
    ASSIGNOR_FAILED = "member.assignor_failed"
    """group_id, error: a client-side assignor failed, or its result was refused. What it raised follows."""
    ASSIGNORS_UNSUPPORTED = "member.assignors_unsupported"
    """group_id, missing: the server assigns, because the coordinator has no client-side assignment."""
    HEARTBEAT_THREAD_DIED = "member.heartbeat_thread_died"
    """error: a bug of this library."""
    NOT_CLOSED = "consumer.not_closed"
    """The consumer was dropped, or the interpreter ended, without close()."""
    OAUTH_FAILED = "consumer.oauth_failed"
    """error: oauth_cb raised, took too long, or returned what is no token."""
    NOT_VERIFIED = "consumer.tls_not_verified"
    """key: the setting that turned a check of the broker's certificate off."""
    DATA_PLANE_ERROR = "consumer.data_plane_error"
    """error: reported by librdkafka, and not raised."""


METRICS: Final[Mapping[str, str]] = {
    "kafka.consumer.heartbeat.total": "heartbeats answered",
    "kafka.consumer.heartbeat.response.time": "ms from writing a heartbeat to its answer",
    "kafka.consumer.rebalance.total": "rebalances ended: RECONCILING left with everything reconciled",
    "kafka.consumer.rebalance.latency": "ms from entering RECONCILING to leaving it",
    "kafka.consumer.failed.rebalance.total": "rebalances cut short by fencing, a fatal error or the poll interval",
    "kafka.consumer.partition.assigned.latency": "ms in on_partitions_assigned",
    "kafka.consumer.partition.revoked.latency": "ms in on_partitions_revoked",
    "kafka.consumer.partition.lost.latency": "ms in on_partitions_lost",
    "kafka.consumer.commit.total": "OffsetCommit requests answered",
    "kafka.consumer.commit.latency": "ms from writing an OffsetCommit to its answer",
}
"""Metric name -> what it counts or measures."""

SPANS: Final[Mapping[str, str]] = {
    "kafka.consumer.partitions_assigned": "on_partitions_assigned runs",
    "kafka.consumer.partitions_revoked": "on_partitions_revoked runs",
    "kafka.consumer.partitions_lost": "on_partitions_lost runs",
}
"""Span name -> what happens during it."""


def log_event(level: int, event: LogEvent, /, **fields: object) -> None:
    """Write ``event key=value ...`` at *level*; costs nothing if nobody listens."""
    if LOGGER.isEnabledFor(level):
        text = " ".join(f"{key.rstrip('_')}={value}" for key, value in fields.items())
        LOGGER.log(level, "%s %s", event.value, text, extra={"kip848_event": event.value})


def log_exception(event: LogEvent, error: BaseException, /) -> None:
    """Write what user code raised, with its traceback, at ERROR: whoever wrote that code needs it."""
    LOGGER.error("%s traceback", event.value, exc_info=error, extra={"kip848_event": event.value})


class ClientMetrics:
    """Metrics and spans of one consumer, with its client id and group id as attributes.

    Args:
        client_id: client.id of the consumer.
        group_id: its group.
    """

    def __init__(self, *, client_id: str, group_id: str) -> None:
        self._attributes: Final = {"client-id": client_id, "group-id": group_id}
        self._tracer = trace.get_tracer(_INSTRUMENTATION)
        meter = metrics.get_meter(_INSTRUMENTATION)
        self._counters = {
            name: meter.create_counter(name, description=text) for name, text in METRICS.items() if _counts(name)
        }
        self._histograms = {
            name: meter.create_histogram(name, unit="ms", description=text)
            for name, text in METRICS.items()
            if not _counts(name)
        }

    def count(self, name: str) -> None:
        """Add one to the counter *name* of `METRICS`."""
        self._counters[name].add(1, self._attributes)

    def measure(self, name: str, ms: float) -> None:
        """Record a duration in the histogram *name* of `METRICS`."""
        self._histograms[name].record(ms, self._attributes)

    @contextmanager
    def span(self, name: str, *, partitions: str) -> Iterator[None]:
        """Cover a block with the span *name* of `SPANS`."""
        assert name in SPANS, name
        with self._tracer.start_as_current_span(name, attributes={**self._attributes, "partitions": partitions}):
            yield


COORDINATOR_METRICS: Final[Mapping[str, str]] = {
    "kafka.group_coordinator.group.count": "groups by protocol: consumer, classic",
    "kafka.group_coordinator.consumer.group.count": "by state: empty, assigning, reconciling, stable, dead",
    "kafka.group_coordinator.consumer.group.rebalance.count": "group epochs that began since the start",
    "kafka.group_coordinator.consumer.group.rebalance.rate": "group epochs that began, each second, in the last 30 s",
    "kafka.group_coordinator.partition.count": "partitions of the coordinator's log by state: loading, active, failed",
    "kafka.group_coordinator.partition.load.time.max": "ms that the longest load of the log took",
    "kafka.group_coordinator.partition.load.time.avg": "ms that a load of the log took",
    "kafka.group_coordinator.event.queue.size": "requests that the coordinator was given and has not answered",
    "kafka.group_coordinator.thread.idle.ratio.avg": "part of the last 30 s that the thread was idle",
    "kafka.group_coordinator.thread.idle.ratio.min": "the same, of the busiest five seconds of these",
}
"""Metric name -> what it tells of a group coordinator. Source: KIP-848 "Broker Metrics"."""


class Figure(NamedTuple):
    """One value of a metric of `COORDINATOR_METRICS`."""

    name: str
    value: float
    attributes: Mapping[str, str]

    def __str__(self) -> str:
        """``name`` or ``name{attribute=value}``."""
        inside = ",".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.name}{{{inside}}}" if inside else self.name


_coordinators: Final[dict[int, tuple[Callable[[], Iterable[Figure]], Mapping[str, str]]]] = {}
_instruments: Final[list[object]] = []
_publishing: Final = threading.Lock()


def publish_coordinator(
    figures: Callable[[], Iterable[Figure]], *, attributes: Mapping[str, str]
) -> Callable[[], None]:
    """Offer the figures of a coordinator to the meter provider of this process; call what is returned to end it.

    Args:
        figures: the values of all metrics now; called on the thread of whoever collects.
        attributes: added to each of them; tell coordinators of one process apart.
    """
    with _publishing:
        if not _instruments:  # one set for all coordinators: a meter has each name once
            meter = metrics.get_meter(_INSTRUMENTATION)
            for name, text in COORDINATOR_METRICS.items():
                grows = name == "kafka.group_coordinator.consumer.group.rebalance.count"
                make = meter.create_observable_counter if grows else meter.create_observable_gauge
                unit = "ms" if ".time." in name else "1"
                _instruments.append(make(name, callbacks=[partial(_observe, name)], unit=unit, description=text))
        key = max(_coordinators, default=0) + 1
        _coordinators[key] = (figures, attributes)

    def end() -> None:
        _coordinators.pop(key, None)

    return end


def _observe(name: str, _options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    for figures, attributes in list(_coordinators.values()):
        for figure in figures():
            if figure.name == name:
                yield metrics.Observation(figure.value, {**attributes, **figure.attributes})


def _counts(name: str) -> bool:
    return name.endswith(".total")
