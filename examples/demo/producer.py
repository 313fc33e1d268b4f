"""The demo's producer: sends the flights evenly over the time of the story, on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from demo.flights import Flight
from kip848_client.errors import Kip848Error

STEP_S: Final = 0.02
HELD_BACK: Final = 0.08
"""Share of the flights that waits for `FlightProducer.finish`, so that records flow until the story is told."""

FLUSH_TIMEOUT_S: Final = 30.0


class ProducerFailedError(Kip848Error):
    """A flight could not be produced."""


class FlightProducer:
    """Produces flights at an even pace; `finish` lets the rest go at once.

    Args:
        duration_s: over which most of the flights are sent.
        producer: a ``confluent_kafka.Producer``.
    """

    def __init__(self, producer: Any, topic: str, flights: Sequence[Flight], *, duration_s: float) -> None:
        self._producer = producer
        self._topic: Final = topic
        self._flights: Final = flights
        self._duration_s: Final = max(duration_s, STEP_S)
        self._delivered: Counter[int] = Counter()
        self._failure: str | None = None
        self._hurry: Final = threading.Event()
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._produce, name="demo-producer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer = None  # closes its connections while the broker is still there

    @property
    def delivered(self) -> dict[int, int]:
        """Partition -> flights that the broker acknowledged.

        Raises:
            ProducerFailedError: one was refused.
        """
        if self._failure is not None:
            raise ProducerFailedError(f"a flight could not be produced: {self._failure}")
        return dict(self._delivered)

    @property
    def done(self) -> bool:
        """Whether every flight was sent and acknowledged."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Send what is left without waiting any longer."""
        self._hurry.set()

    def _produce(self) -> None:
        began_s = time.monotonic()
        total = len(self._flights)
        sent = 0
        while sent < total and not self._stop.is_set():
            elapsed = (time.monotonic() - began_s) / self._duration_s
            share = 1.0 if self._hurry.is_set() else min(elapsed, 1.0 - HELD_BACK)
            until = min(int(total * share), sent + 5_000)  # a bounded step, so that acknowledgements are served
            for flight in self._flights[sent:until]:
                self._send(flight)
            sent = max(sent, until)
            self._producer.poll(0)
            if not self._hurry.is_set():
                self._hurry.wait(STEP_S)
        if not self._stop.is_set() and self._producer.flush(FLUSH_TIMEOUT_S):
            self._failure = f"the broker did not acknowledge everything in {FLUSH_TIMEOUT_S:.0f} s"

    def _send(self, flight: Flight) -> None:
        while True:
            try:
                self._producer.produce(self._topic, flight.value, flight.key, on_delivery=self._on_delivery)
                return
            except BufferError:
                self._producer.poll(STEP_S)  # the local queue is full

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None:
            self._failure = str(error)
        else:
            self._delivered[message.partition()] += 1


def make_producer(bootstrap_servers: str) -> Any:
    """Make the librdkafka producer: idempotent, so that a retry cannot add a flight twice.

    It logs nothing: delivery reports show what failed, and what librdkafka logs on closing is not about the flights.
    """
    from confluent_kafka import Producer  # loads librdkafka

    return Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    )
