"""Dead letters: a record whose handler failed for good goes to another topic, and counts as done once that has it."""

from __future__ import annotations

import time
from typing import Any, Final

from kip848_client.consumer.processing.sender import check_producer
from kip848_client.consumer.records.data_plane import Message
from kip848_client.errors import ArgumentTypeError
from kip848_client.member.processing.tiers import FailureHeaders, without_own


class DeadLetters:
    """Where failed records go: key, value, headers and timestamp stay as they are.

    Each gets the headers ``kip848.topic``, ``.partition``, ``.offset``, ``.timestamp``, ``.error``, ``.attempts`` and
    ``.failed`` (when, in milliseconds since 1970), and from ``Consumer.process`` ``.group`` and ``.retries``. The
    record is committed only after the broker has acknowledged its letter; if it does not, processing stops.

    Args:
        producer: a `confluent_kafka.Producer`.
        topic: their topic; it must exist, or be created by the broker.

    Raises:
        ArgumentTypeError: *producer* cannot produce, or is asynchronous; or *topic* is no name.
    """

    def __init__(self, producer: Any, topic: str) -> None:
        check_producer(producer, name="producer")
        name: object = topic
        if not (isinstance(name, str) and name.strip()):
            raise ArgumentTypeError(f"topic={topic!r}: give the name of the topic for dead letters")
        self.producer: Final = producer
        self.topic: Final = topic

    def letter(
        self,
        message: Message,
        error: BaseException,
        *,
        original: tuple[Any, Any] | None,
        attempts: int,
        group: str | None = None,
        retries: str | None = None,
    ) -> dict[str, Any]:
        """The arguments of ``produce()`` for one letter.

        Args:
            group: whose handler failed.
            retries: the name of its retry topics, if it has any.
        """
        failed = failed_now(message, error, attempts=attempts, group=group, retries=retries)
        return letter_of(message, failed, topic=self.topic, original=original)


def describe(error: BaseException) -> str:
    """Type and text of what the application raised, also if that cannot say what it is."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  its __str__ is the application's, too
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}"


def failed_now(
    message: Any, error: BaseException, *, attempts: int, group: str | None, retries: str | None = None
) -> FailureHeaders:
    """What the headers of a record say whose handler has failed now."""
    return FailureHeaders(
        topic=str(message.topic()),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        error=describe(error),
        attempts=attempts,
        failed_ms=time.time_ns() // 1_000_000,
        group=group,
        retries=retries,
    )


def letter_of(message: Any, failed: FailureHeaders, *, topic: str, original: tuple[Any, Any] | None) -> dict[str, Any]:
    """The arguments of ``produce()`` for a record that has failed: as it was fetched, with headers that say so."""
    kind, timestamp_ms = message.timestamp()
    key, value = original or (message.key(), message.value())
    return {
        "topic": topic,
        "key": key,
        "value": value,
        "headers": without_own(message.headers()) + failed.headers(),
        "timestamp": timestamp_ms if kind else 0,
    }
