"""Dead letters: a record whose handler failed for good goes to another topic, and counts as done once that has it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from kip848_client.consumer.records.data_plane import Message
from kip848_client.errors import ArgumentTypeError, Kip848Error

_ERROR_BYTES_MAX: Final = 8192
"""A letter that the text of an error makes too large would be refused."""


class DeadLetters:
    """Where failed records go: key, value, headers and timestamp stay as they are.

    Each gets the headers ``kip848.topic``, ``.partition``, ``.offset``, ``.timestamp``, ``.error`` and ``.attempts``.
    The record is committed only after the broker has acknowledged its letter; if it does not, processing stops.

    Args:
        producer: a `confluent_kafka.Producer`.
        topic: their topic; it must exist, or be created by the broker.

    Raises:
        ArgumentTypeError: *producer* cannot produce, or is asynchronous; or *topic* is no name.
    """

    def __init__(self, producer: Any, topic: str) -> None:
        produce = getattr(producer, "produce", None)
        if not callable(produce) or not callable(getattr(producer, "poll", None)):
            raise ArgumentTypeError(f"{producer!r} is not a producer; give a confluent_kafka.Producer")
        if inspect.iscoroutinefunction(produce):
            raise ArgumentTypeError(
                f"{type(producer).__name__} cannot write headers; give a confluent_kafka.Producer, which never waits"
            )
        name: object = topic
        if not (isinstance(name, str) and name.strip()):
            raise ArgumentTypeError(f"topic={topic!r}: give the name of the topic for dead letters")
        self.producer: Final = producer
        self.topic: Final = topic

    def send(
        self,
        message: Message,
        error: BaseException,
        *,
        original: tuple[Any, Any] | None,
        attempts: int,
        on_end: Callable[[Exception | None], object],
    ) -> bool:
        """Produce one letter; *on_end* is called from `serve`, with what went wrong.

        Args:
            original: key and value before a deserializer opened them; None if none did.
            attempts: how often the handler was called.

        Returns:
            False if the producer's queue is full: the letter is to be sent again later.
        """

        def delivered(failure: Any, _: object) -> None:
            on_end(None if failure is None else Kip848Error(f"the dead letter was not written: {failure}"))

        letter = self.letter(message, error, original=original, attempts=attempts)
        try:
            self.producer.produce(**letter, on_delivery=delivered)
        except BufferError:
            return False
        except Exception as failure:  # noqa: BLE001  it is closed, or the letter is too large
            on_end(failure)
        return True

    def letter(
        self, message: Message, error: BaseException, *, original: tuple[Any, Any] | None, attempts: int
    ) -> dict[str, Any]:
        """The arguments of ``produce()`` for one letter."""
        kind, timestamp_ms = message.timestamp()
        key, value = original or (message.key(), message.value())
        headers = list(message.headers() or ())
        headers += [
            ("kip848.topic", str(message.topic()).encode()),
            ("kip848.partition", str(message.partition()).encode()),
            ("kip848.offset", str(message.offset()).encode()),
            ("kip848.timestamp", str(timestamp_ms).encode()),
            ("kip848.error", describe(error).encode("utf-8", "replace")[:_ERROR_BYTES_MAX]),
            ("kip848.attempts", str(attempts).encode()),
        ]
        return {
            "topic": self.topic,
            "key": key,
            "value": value,
            "headers": headers,
            "timestamp": timestamp_ms if kind else 0,
        }

    def serve(self) -> None:
        """Let the producer report what was delivered; returns at once."""
        self.producer.poll(0)


def describe(error: BaseException) -> str:
    """Type and text of what the application raised, also if that cannot say what it is."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  its __str__ is the application's, too
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}"
