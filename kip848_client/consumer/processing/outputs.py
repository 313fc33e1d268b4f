"""What handlers of ``process(outputs=...)`` produce: a record is done once all of it is acknowledged."""

from __future__ import annotations

from typing import Any

from kip848_client.errors import ArgumentTypeError, IllegalStateError


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
