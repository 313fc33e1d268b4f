"""What handlers of ``process(outputs=...)`` produce: a record is done once all of it is acknowledged."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.consumer.records.data_plane import KafkaError, KafkaException
from kip848_client.errors import ArgumentTypeError, IllegalStateError

_POLL_S: Final = 0.05
"""Longest time until the thread sees what another one was told, that polls the same producer."""
_IDLE_S: Final = 2.0
"""How long the thread stays when nothing is awaited."""


class HandlerOutputs:
    """What a handler of ``process(outputs=...)`` produces with: its second argument.

    What it produces is sent once it has returned, and its record is done once the brokers have acknowledged all of it.
    If it raises, or does not end in time, nothing is sent.
    """

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] | None = []

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        *,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Produce a record, as with ``Producer.produce``; never waits. It may be called in any thread.

        Raises:
            ArgumentTypeError: *topic* is not a name.
            IllegalStateError: the call of the handler is over.
        """
        given: object = topic
        if not isinstance(given, str) or not given:
            raise ArgumentTypeError(f"produce() takes the name of a topic, got {topic!r}")
        records = self._records
        if records is None:
            raise IllegalStateError(
                "this call of the handler is over, and what it produced was decided on; await or join what it started"
            )
        record = {"topic": topic, "value": value, "key": key, "partition": partition, "timestamp": timestamp}
        if headers is not None:
            record["headers"] = headers
        records.append(record)

    def end(self) -> list[dict[str, Any]]:
        """The call is over: what it has produced."""
        records = self._records
        self._records = None
        return [] if records is None else records


def check_producer(producer: Any, *, name: str) -> None:
    """Check that *producer* produces as confluent_kafka's does.

    Args:
        name: of the argument.

    Raises:
        ArgumentTypeError: it does not.
    """
    produce = getattr(producer, "produce", None)
    if not callable(produce) or not callable(getattr(producer, "poll", None)) or inspect.iscoroutinefunction(produce):
        raise ArgumentTypeError(f"{name}={producer!r}: give a confluent_kafka.Producer")


class _Sent:
    """The records of one call of a handler."""

    def __init__(self, count: int, ended: Callable[[Exception | None], None]) -> None:
        self.left = count
        self.ended: Final = ended
        self.failure: Exception | None = None


class OutputSender:
    """Sends records with one producer, and tells when all of a call are acknowledged. A shell guards it, as the core.

    A thread polls the producer while something is awaited: the application's may not, or seldom.

    Args:
        tell: calls a function where `send` and `look` may be called; from a thread of its own.
    """

    def __init__(self, producer: Any, tell: Callable[[Callable[[], None]], object]) -> None:
        self._producer: Final = producer
        self._tell: Final = tell
        self._unsent: Final[deque[tuple[_Sent, dict[str, Any]]]] = deque()
        """In order; what did not fit into the producer's queue comes first."""
        self._reports: Final[deque[tuple[_Sent, Exception | None]]] = deque()
        self._awaited = 0
        """Records whose report has not been looked at."""
        self._lock: Final = threading.Lock()
        """Guards `_polls`."""
        self._polls = False

    def send(self, records: list[dict[str, Any]], ended: Callable[[Exception | None], None]) -> None:
        """Send at least one record. *ended* is called from `look`, with why one of them is not written."""
        sent = _Sent(len(records), ended)
        self._awaited += len(records)
        self._unsent.extend((sent, record) for record in records)
        self._produce()
        with self._lock:
            starts, self._polls = not self._polls, True
        if starts:
            daemon_thread(self._poll, "kip848-outputs").start()

    def look(self) -> None:
        """See what was reported, and send what had no room."""
        while self._reports:
            sent, failure = self._reports.popleft()
            self._awaited -= 1
            sent.left -= 1
            sent.failure = sent.failure or failure
            if not sent.left:
                sent.ended(sent.failure)
        self._produce()

    def _produce(self) -> None:
        while self._unsent:
            sent, record = self._unsent[0]
            try:
                self._producer.produce(**record, on_delivery=partial(self._delivered, sent))
            except BufferError:
                return  # until reports make room
            except Exception as error:  # noqa: BLE001  too large, or not serialisable: the handler's failure
                self._reports.append((sent, error))
            self._unsent.popleft()

    def _delivered(self, sent: _Sent, error: KafkaError | None, _: object) -> None:
        self._reports.append((sent, None if error is None else KafkaException(error)))

    def _poll(self) -> None:
        idle_since_s = time.monotonic()
        while True:
            self._producer.poll(_POLL_S)
            if self._reports or self._unsent:
                try:
                    self._tell(self.look)
                except RuntimeError:  # the event loop has ended, and with it what awaited this
                    with self._lock:
                        self._polls = False
                    return
            if self._awaited:
                idle_since_s = time.monotonic()
            elif time.monotonic() - idle_since_s > _IDLE_S:
                with self._lock:
                    if not self._awaited:
                        self._polls = False
                        return
