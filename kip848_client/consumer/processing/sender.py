"""`Sender`: produces records and tells when brokers have them: outputs, retry topics, dead letters.

Does not own: what is produced, and what follows a refusal (`driver`, `share.processing`).
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.consumer.records.data_plane import KafkaError, KafkaException
from kip848_client.errors import ArgumentTypeError

_POLL_S: Final = 0.05
"""Longest time until the thread sees what another one was told, that polls the same producer."""
_IDLE_S: Final = 2.0
"""How long the thread stays when nothing is awaited."""


def check_producer(producer: Any, *, name: str) -> None:
    """Check that *producer* produces as confluent_kafka's does, which never waits.

    Args:
        name: of the argument.

    Raises:
        ArgumentTypeError: it cannot produce, or is asynchronous.
    """
    produce = getattr(producer, "produce", None)
    if not callable(produce) or not callable(getattr(producer, "poll", None)):
        raise ArgumentTypeError(f"{name}={producer!r} is not a producer; give a confluent_kafka.Producer")
    if inspect.iscoroutinefunction(produce):
        raise ArgumentTypeError(
            f"{name}={type(producer).__name__} cannot write headers; give a confluent_kafka.Producer, which never waits"
        )


class _Sent:
    """Records that are sent together."""

    def __init__(self, count: int, ended: Callable[[Exception | None], object]) -> None:
        self.left = count
        self.ended: Final = ended
        self.failure: Exception | None = None


class Sender:
    """Sends records with one producer, and tells when all of a call are acknowledged. A shell guards it, as the core.

    A thread polls the producer while something is awaited: the application's may not, or seldom.

    Args:
        tell: calls a function where `send` and `look` may be called, soon; from a thread of the sender. That function
            raises what a callback of the application's has raised inside the producer.
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
        self._polls = self._closed = False

    def send(self, records: Sequence[dict[str, Any]], ended: Callable[[Exception | None], object]) -> None:
        """Send at least one record, each as the arguments of ``produce()``.

        *ended* is called from `look`, with why one of them is not written.
        """
        sent = _Sent(len(records), ended)
        self._awaited += len(records)
        self._unsent.extend((sent, record) for record in records)
        self._produce()
        with self._lock:
            starts, self._polls = not self._polls, True
        if starts:
            daemon_thread(self._poll, "kip848-sender").start()

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

    def close(self) -> None:
        """Nothing is awaited any more: let the thread end."""
        self._closed = True

    def _produce(self) -> None:
        while self._unsent:
            sent, record = self._unsent[0]
            try:
                self._producer.produce(**record, on_delivery=partial(self._delivered, sent))
            except BufferError:
                return  # until reports make room
            except Exception as error:  # noqa: BLE001  too large, not serialisable, or the producer is closed
                self._reports.append((sent, error))
            self._unsent.popleft()

    def _delivered(self, sent: _Sent, error: KafkaError | None, _: object) -> None:
        self._reports.append((sent, None if error is None else KafkaException(error)))

    def _poll(self) -> None:
        idle_since_s = time.monotonic()
        while True:
            news = [self.look]
            try:
                self._producer.poll(_POLL_S)
            except BaseException as error:  # noqa: BLE001  of a callback of the application's, or the producer is closed
                news.append(partial(_raise, error))
                time.sleep(_POLL_S)  # a closed producer raises at once, each time
            if self._closed:
                break
            try:
                for each in news if len(news) > 1 or self._reports or self._unsent else ():
                    self._tell(each)
            except RuntimeError:  # the event loop has ended, and with it what awaited this
                break
            if self._awaited:
                idle_since_s = time.monotonic()
            elif time.monotonic() - idle_since_s > _IDLE_S:
                with self._lock:
                    if not self._awaited:
                        self._polls = False
                        return
        with self._lock:
            self._polls = False


def _raise(error: BaseException) -> None:
    raise error
