"""Writes records with librdkafka's producer, idempotent or in a transaction.

`begin` opens a transaction; `flush` leaves it open. `Admin.end_transactions` commits or aborts it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kip848_client.config import ConfigValue
from kip848_client.config.security import for_librdkafka
from kip848_client.consumer.records.data_plane import translate
from kip848_client.consumer.records.librdkafka_log import LIBRDKAFKA_LOGGER
from kip848_client.errors import ConfigError, RequestTimeoutError

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

_DEFAULTS: Final[Mapping[str, ConfigValue]] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    # A record with a key goes to the same partition as from Java's producer, and so from Spark's own sink.
    "partitioner": "murmur2_random",
}


class RecordWriter:
    """One producer, used by one thread.

    Args:
        conf: properties for librdkafka; they override `_DEFAULTS`.
        timeout_ms: limit of `begin`, and of `flush`.

    Raises:
        ConfigError: a key or a value is refused.
        ConnectionLostError, AuthenticationError: there is no token to log in with.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, timeout_ms: int) -> None:
        self._timeout_s: Final = timeout_ms / 1_000
        self._failure: KafkaError | None = None
        settings: dict[str, Any] = {**_DEFAULTS, **for_librdkafka(conf), "logger": logging.getLogger(LIBRDKAFKA_LOGGER)}
        try:
            self._producer = Producer({**settings, "on_delivery": self._delivered})
        except KafkaException as error:
            raise ConfigError(str(translate(error, what="a setting of the producer"))) from error

    def begin(self) -> None:
        """Open a transaction. One that an earlier producer with this transactional id left open is aborted.

        Raises:
            Kip848Error: the broker refused it, or did not answer in time.
        """
        try:
            self._producer.init_transactions(self._timeout_s)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise translate(error, what="opening a transaction") from error

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int = -1, headers: Headers | None = None
    ) -> None:
        """Queue one record for librdkafka; with *partition* -1 its key decides the partition.

        Raises:
            Kip848Error: this record, or one before it, was refused.
        """
        if self._failure is not None:
            raise translate(self._failure, what="writing records")
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=headers)
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise translate(error, what=f"writing to {topic}") from error
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all records are stored.

        Raises:
            Kip848Error: one was refused.
            RequestTimeoutError: not in time.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while left := self._producer.flush(max(0.0, min(1.0, deadline_s - time.monotonic()))):
            if self._failure is not None or time.monotonic() >= deadline_s:
                break
        if self._failure is not None:
            raise translate(self._failure, what="writing records")
        if left:
            raise RequestTimeoutError(f"{left} records were not stored in {self._timeout_s:g} s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None and self._failure is None:
            self._failure = error
