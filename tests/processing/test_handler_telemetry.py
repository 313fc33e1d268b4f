"""What OpenTelemetry is told of the handlers of ``process()``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kip848_client import AsyncConsumer, Consumer, ProcessingError
from kip848_client.common.telemetry import MESSAGING_METRICS, PROCESS_METRICS
from kip848_client.testing import EmbeddedBroker, NewRecord
from tests.support.telemetry_sdk import sdk_in_memory
from tests.support.waiting import wait_until

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
COMMON = {
    "messaging.system": "kafka",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "orders",
    "messaging.destination.partition.id": "0",
    "messaging.consumer.group.name": "g",
    "messaging.client.id": "c1",
    "kip848.process.attempt": 1,
}

Sdk = tuple[InMemorySpanExporter, InMemoryMetricReader]


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sdk]:
    with sdk_in_memory(monkeypatch) as made:
        yield made


def _conf(broker: EmbeddedBroker) -> dict[str, Any]:
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "c1"}
    return {**base, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 50}


def _filled(broker: EmbeddedBroker) -> None:
    broker.topics.create("orders")
    traced = NewRecord("tea", key="k", headers=[("traceparent", PARENT.encode())])
    broker.produce_many("orders", [traced, NewRecord(None, key=b"\xff")])


def _spans(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == "process orders"]


def _histograms(reader: InMemoryMetricReader) -> dict[str, list[HistogramDataPoint]]:
    collected = reader.get_metrics_data()
    assert collected is not None
    return {
        metric.name: [point for point in metric.data.data_points if isinstance(point, HistogramDataPoint)]
        for resource in collected.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name in {*MESSAGING_METRICS, *PROCESS_METRICS}
    }


def test_a_call_of_a_handler_is_a_span_of_the_trace_of_its_producer(kip848_broker: EmbeddedBroker, sdk: Sdk) -> None:
    """An order is followed from the service that wrote it into the handler, and to what that calls."""
    _filled(kip848_broker)
    tracer = trace.get_tracer("application")

    async def main() -> None:
        async with AsyncConsumer(_conf(kip848_broker)) as consumer:

            async def handle(message: Any) -> None:
                with tracer.start_as_current_span("call"):
                    await asyncio.sleep(0)  # other handlers run inside the span
                if message.offset() == 1:
                    consumer.hand_over()

            await consumer.subscribe(["orders"])
            await consumer.process(handle, order="partition")

    asyncio.run(main())
    first, second = _spans(sdk[0])
    assert first.attributes == COMMON | {"messaging.kafka.offset": 0, "messaging.kafka.message.key": "k"}
    assert second.attributes == COMMON | {"messaging.kafka.offset": 1, "messaging.kafka.message.tombstone": True}
    assert (first.kind, first.status.status_code) == (trace.SpanKind.CONSUMER, trace.StatusCode.UNSET)
    assert first.parent is not None
    assert format(first.parent.trace_id, "032x") == TRACE_ID
    assert [format(link.context.span_id, "016x") for link in first.links] == ["b7ad6b7169203331"]
    assert (second.parent, list(second.links)) == (None, [])
    assert first.instrumentation_scope is not None
    assert first.instrumentation_scope.version
    calls = [span for span in sdk[0].get_finished_spans() if span.name == "call"]
    assert [span.parent for span in calls] == [first.get_span_context(), second.get_span_context()]
    [duration] = _histograms(sdk[1])["messaging.process.duration"]
    assert (duration.count, 0.005 in duration.explicit_bounds) == (2, True)
    [latency] = _histograms(sdk[1])["kip848.process.e2e.latency.seconds"]
    assert (latency.count, latency.attributes) == (2, {"client-id": "c1", "group-id": "g", "topic": "orders"})


def test_a_call_that_fails_says_why(kip848_broker: EmbeddedBroker, sdk: Sdk) -> None:
    """The error rate of a handler is read from its metric, and its cause from the span; a thread is no exception."""
    _filled(kip848_broker)

    def handle(_: object) -> None:
        assert trace.get_current_span().is_recording()
        raise ValueError("poison")

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError):
            consumer.process(handle, order="partition")
    [failed] = _spans(sdk[0])
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert (failed.status.status_code, failed.status.description) == (trace.StatusCode.ERROR, "poison")
    [duration] = _histograms(sdk[1])["messaging.process.duration"]
    assert (duration.attributes or {})["error.type"] == "ValueError"


def test_a_batch_is_one_span_with_a_link_to_each_producer(kip848_broker: EmbeddedBroker, sdk: Sdk) -> None:
    """A bulk insert belongs to many traces."""
    _filled(kip848_broker)
    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(lambda _: consumer.hand_over(), order="partition", batch=(2, 60_000))
    [span] = _spans(sdk[0])
    assert span.attributes == COMMON | {"messaging.batch.message_count": 2}
    assert (span.parent, len(span.links)) == (None, 1)


def _handle_elsewhere(_: object) -> None:
    """Return."""


def test_a_handler_in_another_process_has_its_span_here(kip848_broker: EmbeddedBroker, sdk: Sdk) -> None:
    """Where the handler runs, no SDK may be set up."""
    _filled(kip848_broker)

    def end() -> None:
        wait_until(lambda: len(_spans(sdk[0])) == 2)
        consumer.hand_over()

    with ProcessPoolExecutor(1) as pool, Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        watcher = threading.Thread(target=end)
        watcher.start()
        consumer.process(_handle_elsewhere, executor=pool)
        watcher.join()
    assert [(span.attributes or {})["messaging.kafka.offset"] for span in _spans(sdk[0])] == [0, 1]


def test_a_call_that_is_cancelled_or_late_has_an_error_type(kip848_broker: EmbeddedBroker, sdk: Sdk) -> None:
    """Handlers that hang are counted as such."""
    _filled(kip848_broker)

    async def handle(_: Any, started: asyncio.Event | None = None) -> None:
        if started is not None:
            started.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncConsumer(_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ProcessingError):
                await consumer.process(handle, order="partition", timeout_s=0.01)
            started = asyncio.Event()
            running = asyncio.create_task(
                consumer.process(partial(handle, started=started), order="partition", grace_s=0)
            )
            await started.wait()
            status = consumer.processing_status()
            assert status is not None
            assert 0 < status.lag_s < 60
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())
    assert [(span.attributes or {})["error.type"] for span in _spans(sdk[0])] == ["TimeoutError", "cancelled"]
