"""Names of spans and metrics, and thin wrappers that write them. The home of OpenTelemetry.

OpenTelemetry is imported only if the program itself has imported it: its API alone takes a third of the time that the
import of a consumer takes, and without it there is no collector. With the API and without an SDK every call is a no-op.

Metric names are Kafka's, with dots for hyphens. The client's rates, averages and maxima are left to the back end, which
has the counters and histograms; those of the coordinator are the list of KIP-848, whole. How to
use them: docs/observability.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kip848_client.common.version import __version__
from kip848_client.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from opentelemetry import metrics, trace

_INSTRUMENTATION: Final = "kip848_client"

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of OpenTelemetry's conventions that the ``messaging.*`` names are from."""

_LOOK_EVERY_S: Final = 0.1
"""How often to look for an SDK, which may be set up while consumers run already."""

_METER_PROVIDER_NAMED: Final = "OTEL_PYTHON_METER_PROVIDER" in os.environ
_TRACER_PROVIDER_NAMED: Final = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
"""Then the API itself loads an SDK, with the first question for a provider."""

METRICS: Final[Mapping[str, str]] = {
    "kafka.consumer.heartbeat.total": "heartbeats answered",
    "kafka.consumer.heartbeat.response.time": "ms from writing a heartbeat to its answer",
    "kafka.consumer.join.total": "JoinGroup requests answered (the classic protocol)",
    "kafka.consumer.join.time": "ms from writing a JoinGroup to its answer, which waits for all members",
    "kafka.consumer.sync.total": "SyncGroup requests answered (the classic protocol)",
    "kafka.consumer.sync.time": "ms from writing a SyncGroup to its answer, which waits for the leader",
    "kafka.consumer.rebalance.total": "rebalances that ended with an acknowledgement, or with a classic assignment; by"
    " cause: join, rejoin_removed (by the coordinator), rejoin_poll_missed (max.poll.interval.ms), assignment (another"
    " one for this member, because members or topics have changed)",
    "kafka.consumer.rebalance.latency": "ms from the assignment that began a rebalance to its end",
    "kafka.consumer.failed.rebalance.total": "rebalances ended by a removal from the group, or a fatal error",
    "kip848.consumer.standby.total": "times that the consumer began to stand by for a slot",
    "kip848.consumer.takeover.total": "slots that it took over after it had stood by",
    "kip848.consumer.standby.time": "ms that it stood by before it took a slot over",
    "kafka.consumer.partition.assigned.latency": "ms in on_partitions_assigned",
    "kafka.consumer.partition.revoked.latency": "ms in on_partitions_revoked",
    "kafka.consumer.partition.lost.latency": "ms in on_partitions_lost",
    "kafka.consumer.commit.total": "OffsetCommit requests answered",
    "kafka.consumer.commit.latency": "ms from writing an OffsetCommit to its answer",
    "kafka.consumer.commit.sync.time.ns.total": "ns in commit(asynchronous=False)",
    "kafka.consumer.committed.time.ns.total": "ns in committed()",
    "kafka.consumer.bytes.consumed.total": "bytes of keys and values read, by topic",
}
"""Counters (``.total``) and histograms: name -> description."""

GAUGES: Final[Mapping[str, str]] = {
    "kafka.consumer.last.heartbeat.seconds.ago": "s since the last heartbeat was sent; -1 before the first",
    "kafka.consumer.last.rebalance.seconds.ago": "s since the last rebalance ended; -1 before the first",
    "kafka.consumer.last.poll.seconds.ago": "s since the application was last inside poll(); -1 before the first",
    "kafka.consumer.time.between.poll.avg": "ms between two polls that looked at the group, since the last collection",
    "kafka.consumer.time.between.poll.max": "the longest of these",
    "kafka.consumer.poll.idle.ratio.avg": "part of the time since the last collection that poll() waited for records",
    "kafka.consumer.assigned.partitions": "partitions that the consumer has",
    "kafka.consumer.records.lag": "records between the position in a partition and its end, by topic and partition",
    "kafka.consumer.records.lag.max": "the largest of these",
    "kip848.consumer.stalled.partitions": "partitions whose position does not move although records wait",
    "kafka.consumer.lag.seconds": "s since the timestamp of the last record read of a partition; 0 at its end",
    "kafka.consumer.application.event.queue.size": "events that the heartbeat thread has not taken yet",
    "kafka.consumer.background.event.queue.size": "what waits to be done by poll(): listeners, new positions, errors",
}
"""Read when a reader of the SDK collects: name -> description."""

WORKER_METRICS: Final[Mapping[str, str]] = {
    "kip848.worker.heartbeat.total": "heartbeats answered",
    "kip848.worker.heartbeat.response.time": "ms from a heartbeat to its answer",
    "kip848.worker.lease.ended.total": "leases that ended: all units were stopped, since no heartbeat was answered",
    "kip848.worker.fenced.total": "heartbeats refused because the coordinator had removed the worker",
    "kip848.worker.unit.started.total": "units that began to run here; of an election: how often this was elected",
    "kip848.worker.unit.stopped.total": "units that stopped here: they moved, or the worker left or was cut off",
    "kip848.worker.unit.failed.total": "units for which a callback raised",
    "kip848.worker.unit.assigned.latency": "ms in on_assigned",
    "kip848.worker.unit.revoked.latency": "ms in on_revoked, or until the runners had stopped",
    "kip848.worker.unit.lost.latency": "the same when a lease had ended, or the worker was removed",
}
"""Counters and histograms of workers."""

WORKER_GAUGES: Final[Mapping[str, str]] = {
    "kip848.worker.assigned.units": "units that run here",
    "kip848.worker.pending.units": "units that come here when other workers have stopped them",
    "kip848.worker.lease.remaining.seconds": "s until the units stop unless a heartbeat is answered; 0 without units",
    "kip848.worker.without.units.seconds": "s since a unit last ran here; 0 while one does",
}

MESSAGING_METRICS: Final[Mapping[str, str]] = {
    "messaging.process.duration": "s that a call of a handler of process() took",
    "messaging.client.consumed.messages": "records read, by topic",
    "messaging.client.operation.duration": "s that a read from librdkafka (operation poll) or a commit took",
}
"""Names of OpenTelemetry's conventions for messaging: name -> description."""

PROCESS_METRICS: Final[Mapping[str, str]] = {
    "kip848.process.e2e.latency.seconds": "s from the timestamp of a record until process() has done it",
}
"""Histograms of process()."""

PROCESS_GAUGES: Final[Mapping[str, str]] = {
    "kip848.process.running": "records that handlers of process() work on",
    "kip848.process.waiting.slot": "records that wait for a free slot",
    "kip848.process.waiting.lane": "records that wait for an earlier one of their key or partition",
    "kip848.process.waiting.retry": "records that wait to be tried again",
    "kip848.process.waiting.dead.letter": "records whose dead letter is not acknowledged yet",
    "kip848.process.waiting.output": "records whose handler has returned, and what it produced is not acknowledged yet",
    "kip848.process.paused.partitions": "partitions that are not fetched, because their records wait here",
    "kip848.process.oldest.seconds": "s that the record in hand that was taken first has been here; 0 without one",
    "kip848.process.lag.seconds": "age in s, by its timestamp, of the oldest record that is not done; 0 without one",
    "kip848.process.done.total": "records done, with those in retry topics, in dead letters and skipped ones",
    "kip848.process.retries.total": "calls of the handler that followed a failed one",
    "kip848.process.dead.letters.total": "records in dead letters",
    "kip848.process.retry.later.total": "records sent to retry topics",
    "kip848.process.held.partitions": "partitions of retry topics that wait until their first record is due",
    "kip848.process.skipped.total": "failed records that were skipped",
    "kip848.process.abandoned.total": "calls that did not end when they should have",
}
"""Read while process() runs, the counters (``.total``), too."""

SHARE_GAUGES: Final[Mapping[str, str]] = {
    "kip848.share.acquired.total": "deliveries to this member, with those given back unread",
    "kip848.share.accepted.total": "records accepted, as their leaders confirmed",
    "kip848.share.released.total": "records released, as their leaders confirmed",
    "kip848.share.rejected.total": "records rejected, as their leaders confirmed",
    "kip848.share.renewed.total": "locks renewed, as their leaders confirmed",
    "kip848.share.lock.lost.total": "locks that ended while the application had the record",
    "kip848.share.not.acknowledged.total": "acknowledgements that were refused, or whose answer was lost",
    "kip848.share.in.hand": "records that the application has and has not acknowledged",
    "kip848.share.oldest.seconds": "s since the first of these was handed out; 0 without one",
}
"""Read while a share consumer is open, the counters (``.total``), too."""

SPANS: Final[Mapping[str, str]] = {
    "kafka.consumer.rebalance": "from the assignment that began a rebalance until its acknowledgement is due",
    "kafka.consumer.partitions_assigned": "on_partitions_assigned runs",
    "kafka.consumer.partitions_revoked": "on_partitions_revoked runs",
    "kafka.consumer.partitions_lost": "on_partitions_lost runs",
    "kafka.consumer.commit": "a commit, from the call, or for an automatic one from its request, to its end",
}
"""Span name -> what happens during it."""


Attributes: TypeAlias = Mapping[str, str | int]


class OpenSpan:
    """A span that one thread begins and another may end.

    Attributes:
        began_ns: since 1970.
        context: makes it the parent of another span.
    """

    def __init__(self, span: trace.Span, began_ns: int) -> None:
        from opentelemetry import trace

        self._span = span
        self.began_ns: Final = began_ns
        self.context: Final = trace.set_span_in_context(span)

    def end(self, error: BaseException | str | None = None, attributes: Attributes | None = None) -> None:
        """End it, as failed if there is an *error*. Ending it again does nothing."""
        from opentelemetry import trace

        span = self.__dict__.pop("_span", None)  # one step: of two threads that end it, one does
        if span is None:
            return
        if attributes is not None:
            span.set_attributes(attributes)
        if isinstance(error, BaseException):
            span.record_exception(error)
            span.set_attribute("error.type", error_type(error))
            error = f"{type(error).__name__}: {error}"
        if error is not None:
            span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        span.end()


Figures: TypeAlias = Callable[[], float | list[tuple[float, Mapping[str, str]]]]
"""The value of a gauge, or its values with their attributes."""


class ClientMetrics:
    """Metrics and spans of one consumer or worker, with its client id and group id as attributes.

    Args:
        client_id: client.id of the consumer.
        group_id: its group.
        worker_id: of a worker, as a third attribute.
    """

    def __init__(self, *, client_id: str, group_id: str, worker_id: str | None = None) -> None:
        self.attributes: Final = {"client-id": client_id, "group-id": group_id}
        if worker_id is not None:
            self.attributes["worker-id"] = worker_id
        self._span_attributes: Final[Attributes] = {
            "messaging.system": "kafka",
            "messaging.client.id": client_id,
            "messaging.consumer.group.name": group_id,
        }
        self.place: Final = object()
        """Its key among those whose gauges are read."""
        self._open_tracer: trace.Tracer | None = None
        self.tracing: bool = False
        """Whether spans go anywhere."""
        self.measuring: bool = False
        """Whether metrics go anywhere."""
        self._look_again_s = 0.0
        self._figures: Mapping[str, Figures] = {}
        self._instruments: _Instruments | None = None
        self.look()

    def count(self, name: str, amount: int = 1, *, cause: str | None = None) -> None:
        """Add to the counter *name* of `METRICS` or `WORKER_METRICS`."""
        if self._instruments is not None or _metrics_imported():
            attributes = self.attributes if cause is None else {**self.attributes, "cause": cause}
            self._own_instruments().counters[name].add(amount, attributes)

    def measure(self, name: str, ms: float) -> None:
        """Record a duration in the histogram *name* of `METRICS` or `WORKER_METRICS`."""
        if self._instruments is not None or _metrics_imported():
            self._own_instruments().histograms[name].record(ms, self.attributes)

    def record(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        """Record a value in the histogram *name* of `MESSAGING_METRICS` or `PROCESS_METRICS`, if `measuring`."""
        self._own_instruments().histograms[name].record(value, attributes)

    def add(self, name: str, amount: int, attributes: Mapping[str, str]) -> None:
        """Add to a counter with attributes of its own, if `measuring`."""
        self._own_instruments().counters[name].add(amount, attributes)

    def _own_instruments(self) -> _Instruments:
        if self._instruments is None:
            self._instruments = _instruments_of_clients()
        return self._instruments

    def offer(self, figures: Mapping[str, Figures]) -> None:
        """Have *figures*, the values of gauges, called when metrics are collected, until `withdraw`."""
        self._figures = figures
        _clients.offer(self)
        if _metrics_imported():
            _make_gauges()

    def withdraw(self) -> None:
        """The consumer is closed: there is nothing to be read any more."""
        self._figures = {}
        _clients.withdraw(self)

    def observed(self, name: str) -> Iterator[metrics.Observation]:
        """The values of a gauge now."""
        from opentelemetry import metrics

        figure = self._figures.get(name)
        if figure is None:
            return
        value = figure()
        for each, attributes in value if isinstance(value, list) else [(value, {})]:
            yield metrics.Observation(each, {**self.attributes, **attributes})

    def look(self) -> None:
        """Find out whether there is an SDK by now; cheap enough for every step of a member."""
        now_s = time.monotonic()
        if now_s < self._look_again_s:
            return
        self._look_again_s = now_s + _LOOK_EVERY_S
        if not self.tracing and _trace_imported():
            from opentelemetry import trace

            self.tracing = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        if not self.measuring and _metrics_imported():
            from opentelemetry import metrics

            # The API has providers that do nothing, under private names.
            self.measuring = not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")
        if self._figures and _metrics_imported():
            _make_gauges()

    @property
    def _tracer(self) -> trace.Tracer:
        if self._open_tracer is None:
            from opentelemetry import trace

            self._open_tracer = trace.get_tracer(_INSTRUMENTATION, __version__, schema_url=_SCHEMA)
        return self._open_tracer

    @contextmanager
    def span(self, name: str, *, parent: OpenSpan | None, partitions: str) -> Iterator[None]:
        """Cover a block with the span *name* of `SPANS`.

        Args:
            parent: the span of a rebalance; then the one that is current is linked to. Without it that is the parent.
        """
        assert name in SPANS, name
        if not _trace_imported():
            yield
            return
        from opentelemetry import trace

        caller = trace.get_current_span().get_span_context()
        links = [trace.Link(caller)] if parent is not None and caller.is_valid else []
        with self._tracer.start_as_current_span(
            name,
            context=parent.context if parent is not None else None,
            links=links,
            attributes={**self._span_attributes, "partitions": partitions},
        ):
            yield

    def begin(
        self,
        name: str,
        *,
        parent: OpenSpan | None = None,
        root: bool = False,
        began_ns: int | None = None,
        attributes: Attributes,
    ) -> OpenSpan:
        """Begin the span *name* of `SPANS`; the caller ends it.

        Args:
            parent: without it, the current span of the calling thread is the parent.
            root: the span has no parent.
            began_ns: since 1970; now if None.
        """
        assert name in SPANS, name
        from opentelemetry import trace
        from opentelemetry.context import Context

        began_ns = time.time_ns() if began_ns is None else began_ns
        context = parent.context if parent is not None else Context() if root else None
        span = self._tracer.start_span(
            name,
            context=context,
            kind=trace.SpanKind.CLIENT if "messaging.operation.name" in attributes else trace.SpanKind.INTERNAL,
            attributes={**self._span_attributes, **attributes},
            start_time=began_ns,
        )
        return OpenSpan(span, began_ns)


def _meter() -> metrics.Meter:
    from opentelemetry import metrics

    return metrics.get_meter(_INSTRUMENTATION, __version__, schema_url=_SCHEMA)


def _metrics_imported() -> bool:
    """Whether metrics may be read: before, no SDK can have been set up."""
    return "opentelemetry.metrics" in sys.modules or _METER_PROVIDER_NAMED


def _trace_imported() -> bool:
    """Whether the application uses the traces of OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules or _TRACER_PROVIDER_NAMED


class _Clients:
    """The clients whose gauges are read. Changed in single steps, without a lock.

    A collector that reads it holds a lock of the SDK, which `_make_gauges` waits for. And a signal handler may close a
    consumer in the middle of these, which waits until the member's thread has withdrawn.
    """

    def __init__(self) -> None:
        self._refs: Final[dict[object, weakref.ref[ClientMetrics]]] = {}
        """By `ClientMetrics.place`."""

    def __iter__(self) -> Iterator[ClientMetrics]:
        return iter([client for ref in list(self._refs.values()) if (client := ref()) is not None])

    def offer(self, client: ClientMetrics) -> None:
        for place, ref in list(self._refs.items()):
            if ref() is None:
                self._refs.pop(place, None)
        self._refs[client.place] = weakref.ref(client)

    def withdraw(self, client: ClientMetrics) -> None:
        self._refs.pop(client.place, None)


_clients: Final = _Clients()
_gauges: Final[list[tuple[object, object]]] = []
"""(meter provider, its gauges): one set for all consumers of the process, since a meter has each name once."""
_making_gauges: Final = threading.Lock()
"""Taken by the thread that makes them. Others do not wait."""


_SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 3600)
"""Those of the conventions, and some for handlers that take minutes."""


class _Instruments:
    """The counters and histograms of one meter provider; all consumers of the process share them."""

    def __init__(self, provider: metrics.MeterProvider) -> None:
        self.provider: Final = provider
        meter = _meter()
        every = {**METRICS, **WORKER_METRICS}
        self.counters: Final = {
            name: meter.create_counter(name, unit=unit_of(name), description=text)
            for name, text in {**every, **MESSAGING_METRICS}.items()
            if is_counter(name)
        }
        self.histograms: Final = {
            name: meter.create_histogram(name, unit=unit_of(name), description=text)
            for name, text in every.items()
            if not is_counter(name)
        } | {
            name: meter.create_histogram(
                name, unit=unit_of(name), description=text, explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS
            )
            for name, text in {**MESSAGING_METRICS, **PROCESS_METRICS}.items()
            if not is_counter(name)
        }


_last_instruments: list[_Instruments] = []
"""At most one. OpenTelemetry keeps every proxy that it hands out while no SDK is there, so they are made once."""


def _instruments_of_clients() -> _Instruments:
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    with _publishing:
        if not _last_instruments or _last_instruments[0].provider is not provider:
            _last_instruments[:] = [_Instruments(provider)]
        return _last_instruments[0]


def _make_gauges() -> None:
    """Make the gauges of the present meter provider, unless they are made, or another thread is about it."""
    if _making_gauges.acquire(blocking=False):
        try:
            _make_missing_gauges()
        finally:
            _making_gauges.release()


def _make_missing_gauges() -> None:
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if any(known is provider for known, _ in _gauges):
        return
    meter = _meter()
    made: list[object] = []
    for name, text in {**GAUGES, **WORKER_GAUGES, **PROCESS_GAUGES, **SHARE_GAUGES}.items():
        make = meter.create_observable_counter if is_counter(name) else meter.create_observable_gauge
        made.append(make(name, callbacks=[partial(_observe_clients, name)], unit=unit_of(name), description=text))
    _gauges.append((provider, made))


def _observe_clients(name: str, _options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    for client in _clients:
        yield from client.observed(name)


COORDINATOR_METRICS: Final[Mapping[str, str]] = {
    "kafka.group_coordinator.group.count": "groups by protocol: consumer, classic",
    "kafka.group_coordinator.consumer.group.count": "by state: empty, assigning, reconciling, stable, dead",
    "kafka.group_coordinator.consumer.group.rebalance.count": "group epochs that began since the start",
    "kafka.group_coordinator.consumer.group.rebalance.rate": "group epochs that began, each second, in the last 30 s",
    "kafka.group_coordinator.group.completed.rebalance.count": "rebalances of classic groups that ended stable",
    "kafka.group_coordinator.group.completed.rebalance.rate": "the same, each second, in the last 30 s",
    "kafka.group_coordinator.partition.count": "partitions of the coordinator's log by state: loading, active, failed",
    "kafka.group_coordinator.partition.load.time.max": "ms that the longest load of the log took",
    "kafka.group_coordinator.partition.load.time.avg": "ms that a load of the log took",
    "kafka.group_coordinator.event.queue.size": "requests that the coordinator was given and has not answered",
    "kafka.group_coordinator.thread.idle.ratio.avg": "part of the last 30 s that the thread was idle",
    "kafka.group_coordinator.thread.idle.ratio.min": "the same, of the busiest five seconds of these",
}
"""Metrics of a group coordinator: name -> description. Source: KIP-848 "Broker Metrics"."""


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
_publishing: Final = threading.RLock()
"""A signal handler may come back to it in the middle."""


def publish_coordinator(
    figures: Callable[[], Iterable[Figure]], *, attributes: Mapping[str, str]
) -> Callable[[], None]:
    """Offer the figures of a coordinator to the meter provider of this process; returns a function that ends it.

    Args:
        figures: returns the present values of all metrics; called on the collector's thread.
        attributes: added to each of them; tell coordinators of one process apart.
    """
    with _publishing:
        if not _instruments:  # one set for all coordinators: a meter has each name once
            meter = _meter()
            for name, text in COORDINATOR_METRICS.items():
                grows = name.endswith(".rebalance.count")
                make = meter.create_observable_counter if grows else meter.create_observable_gauge
                callbacks = [partial(_observe, name)]
                _instruments.append(make(name, callbacks=callbacks, unit=unit_of(name), description=text))
        key = max(_coordinators, default=0) + 1
        _coordinators[key] = (figures, attributes)

    def end() -> None:
        _coordinators.pop(key, None)

    return end


def _observe(name: str, _options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    from opentelemetry import metrics

    for figures, attributes in list(_coordinators.values()):
        for figure in figures():
            if figure.name == name:
                yield metrics.Observation(figure.value, {**attributes, **figure.attributes})


_UNITS: Final = (
    (".ns.", "ns"),
    (".seconds", "s"),
    ("messaging.process.duration", "s"),
    ("messaging.client.operation.duration", "s"),
    (".time", "ms"),
    (".latency", "ms"),
    (".bytes.", "By"),
    (".ratio", "1"),
    (".rate", "{event}/s"),
    ("messages", "{message}"),
    ("partition", "{partition}"),
    (".process.", "{record}"),
    (".records.", "{record}"),
)
"""The first that is part of the name wins. Prometheus calls a gauge of the unit 1 a ratio."""


def unit_of(name: str) -> str:
    """The unit of a metric."""
    return next((unit for part, unit in _UNITS if part in name), "{event}")


def is_counter(name: str) -> bool:
    """Whether a metric only grows."""
    return name.endswith((".total", ".messages"))


def code_name(code: int) -> str:
    """Kafka's name of an error code; of one that is newer than this library, the number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def error_type(error: BaseException) -> str:
    """The value of ``error.type``: the broker's error code by name, or the class of the exception."""
    if isinstance(error, BrokerError):
        return code_name(error.code)
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
