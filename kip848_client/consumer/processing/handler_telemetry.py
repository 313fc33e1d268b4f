"""Spans and durations of handlers, with the names of OpenTelemetry's conventions for messaging (version 1.44).

Without an SDK nothing is measured: `HandlerTelemetry.on` is false, and handlers are called directly.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kip848_client.common.telemetry import ClientMetrics, error_type
from kip848_client.consumer.records.data_plane import Message
from kip848_client.member.processing.work import Item, Work

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


class HandlerTelemetry(ClientMetrics):
    """What one ``process()`` reports."""

    def __init__(self, *, client_id: str, group_id: str) -> None:
        super().__init__(client_id=client_id, group_id=group_id)
        self._client_id: Final = client_id
        self._metric_attributes: Final = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group_id,
        }

    @property
    def on(self) -> bool:
        """Whether spans or metrics go anywhere."""
        return self.tracing or self.measuring

    def call(self, work: Work) -> HandlerCall:
        """A call of the handler that begins now."""
        return HandlerCall(self, work, self._span(work) if self.tracing else None)

    def ended(self, work: Work, seconds: float, error_type: str | None) -> None:
        """A call of the handler took so long."""
        if self.measuring:
            attributes = self._metric_attributes | {"messaging.destination.name": work.partition.topic}
            if error_type is not None:
                attributes["error.type"] = error_type
            self.record("messaging.process.duration", seconds, attributes)

    def done(self, work: Work) -> None:
        """The records of a work are done."""
        if self.measuring:
            attributes = self.attributes | {"topic": work.partition.topic}
            for item in work.items:
                if (age := age_s(item)) is not None:
                    self.record("kip848.process.e2e.latency.seconds", age, attributes)

    def _span(self, work: Work) -> Span:
        from opentelemetry import trace

        messages: list[Message] = work.records
        topic, partition = work.partition
        contexts = [_creation_context(message) for message in messages]
        producers = [trace.get_current_span(context).get_span_context() for context in contexts]
        attributes: dict[str, str | int | bool] = {
            **self._metric_attributes,
            "messaging.client.id": self._client_id,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "kip848.process.attempt": work.told.number,
        }
        if len(messages) == 1:
            attributes.update(_attributes_of(messages[0], work.items[0].offset))
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        return self._tracer.start_span(
            f"process {topic}",
            # The producer's span is the parent of the only record's; a batch has a trace of its own.
            context=contexts[0] if len(messages) == 1 else _no_context(),
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(producer) for producer in producers if producer.is_valid],
            attributes=attributes,
        )


class HandlerCall:
    """Covers one call of the handler; inside, its span is the current one."""

    def __init__(self, telemetry: HandlerTelemetry, work: Work, span: Span | None) -> None:
        self._telemetry: Final = telemetry
        self._work: Final = work
        self._span: Final = span
        self._began_s: Final = time.perf_counter()
        self._token: object = None

    def __enter__(self) -> None:
        if self._span is not None:
            from opentelemetry import context, trace

            self._token = context.attach(trace.set_span_in_context(self._span))

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._span is not None:
            from opentelemetry import context

            context.detach(self._token)  # type: ignore[arg-type]
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """The handler has ended; for one that ran in another process."""
        seconds = time.perf_counter() - self._began_s
        failure = None if error is None else error_type(error)
        if self._work.timed_out or self._work.state == "abandoned":
            failure = "TimeoutError"
        elif self._work.heeded or (error is not None and self._work.state == "cancelled"):
            failure = "cancelled"
        self._telemetry.ended(self._work, seconds, failure)
        span = self._span
        if span is None:
            return
        if failure is not None:
            from opentelemetry import trace

            span.set_attribute("error.type", failure)
            if isinstance(error, Exception):
                span.record_exception(error)
            text = str(error) if isinstance(error, Exception) else failure
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))
        span.end()


def age_s(item: Item) -> float | None:
    """Seconds since the timestamp of a record; None if it has none."""
    kind, timestamp_ms = item.record.timestamp()
    return max(0.0, time.time() - timestamp_ms / 1000) if kind else None


def _no_context() -> Context:
    from opentelemetry.context import Context

    return Context()


def _creation_context(message: Message) -> Context:
    """What the producer's propagator has written into the headers: by default the header ``traceparent``."""
    headers = message.headers()
    if not headers:
        return _no_context()
    from opentelemetry import propagate

    carrier = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in (headers.items() if isinstance(headers, dict) else headers)
        if value is not None
    }
    return propagate.extract(carrier, _no_context())


def _attributes_of(message: Message, offset: int) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {"messaging.kafka.offset": offset}
    key: object = message.key()
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            key = None  # it has no text that is clear
    if isinstance(key, str):
        attributes["messaging.kafka.message.key"] = key
    if message.value() is None:
        attributes["messaging.kafka.message.tombstone"] = True
    return attributes
