"""An OpenTelemetry SDK for one test, which keeps in memory what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@contextmanager
def sdk_in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemorySpanExporter, InMemoryMetricReader]]:
    """Spans that have ended, and the metrics. A process may set an SDK only once, so it is put in place by hand."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", meters)
    assert trace.get_tracer_provider() is tracers
    assert metrics.get_meter_provider() is meters
    yield exporter, reader
    tracers.shutdown()
    meters.shutdown()
