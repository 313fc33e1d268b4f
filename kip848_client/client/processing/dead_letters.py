"""Dead letters: a record whose handler failed for good goes to another topic, and counts as done once that has it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from kip848_client.client.records.data_plane import Message
from kip848_client.errors import ArgumentTypeError, Kip848Error

__all__ = ["DeadLetters"]


class DeadLetters:
    """Where failed records go: key, value, headers and timestamp stay as they are.

    Each gets the headers ``kip848.topic``, ``.partition``, ``.offset``, ``.timestamp``, ``.error`` and ``.attempts``.
    The record is committed only after the broker has acknowledged its letter; if it does not, processing stops.

    Args:
        producer: a `confluent_kafka.Producer`.
        topic: their topic; it must exist, or be created by the broker.

    Raises:
        ArgumentTypeError: *producer* cannot produce, or is asynchronous.
    """

    def __init__(self, producer: Any, topic: str) -> None:
        produce = getattr(producer, "produce", None)
        if not callable(produce) or not callable(getattr(producer, "poll", None)):
            raise ArgumentTypeError(f"{producer!r} is not a producer; give a confluent_kafka.Producer")
        if inspect.iscoroutinefunction(produce):
            raise ArgumentTypeError(
                f"{type(producer).__name__} cannot write headers; give a confluent_kafka.Producer, which never waits"
            )
        self._producer: Final = producer
        self.topic: Final = topic

    def send(
        self, message: Message, error: BaseException, *, attempts: int, on_end: Callable[[Exception | None], object]
    ) -> None:
        """Produce one letter; *on_end* is called from `serve`, with what went wrong.

        Args:
            attempts: how often the handler was called.
        """
        kind, timestamp_ms = message.timestamp()
        headers = list(message.headers() or ())
        headers += [
            ("kip848.topic", str(message.topic()).encode()),
            ("kip848.partition", str(message.partition()).encode()),
            ("kip848.offset", str(message.offset()).encode()),
            ("kip848.timestamp", str(timestamp_ms).encode()),
            ("kip848.error", f"{type(error).__name__}: {error}".encode("utf-8", "replace")),
            ("kip848.attempts", str(attempts).encode()),
        ]

        def delivered(failure: Any, _: object) -> None:
            on_end(None if failure is None else Kip848Error(f"the dead letter was not written: {failure}"))

        try:
            self._producer.produce(
                self.topic,
                key=_raw(message.key()),
                value=_raw(message.value()),
                headers=headers,
                timestamp=timestamp_ms if kind else 0,
                on_delivery=delivered,
            )
        except Exception as failure:  # noqa: BLE001  its queue is full, or it is closed
            on_end(failure)

    def serve(self) -> None:
        """Let the producer report what was delivered; returns at once."""
        self._producer.poll(0)


def _raw(value: Any) -> bytes | str | None:
    """Key or value as bytes; what a deserializer has made of them is written as its text."""
    return value if value is None or isinstance(value, (bytes, str)) else str(value)
