"""Our exceptions as confluent_kafka's: ``except KafkaException`` catches them, and ``args[0]`` is a `KafkaError`.

Importing this file does it. One of the few homes of confluent_kafka; `errors` itself loads nothing of it.
"""

from __future__ import annotations

from typing import Final, cast

from confluent_kafka import KafkaError, KafkaException

from kip848_client.errors import BrokerError, CommitFailedError, Kip848Error


class ErrorDetails(KafkaError):
    """An exception of this library as a `confluent_kafka.KafkaError`: ``code()``, ``name()``, ``str()``, ...

    Attributes:
        exception: the exception itself, with what a `KafkaError` has no place for.
    """

    def __init__(self, exception: Kip848Error) -> None:
        fatal = isinstance(exception, BrokerError) and exception.fatal
        retriable = isinstance(exception, BrokerError) and exception.retriable
        super().__init__(_code_of(exception), str(exception), fatal=fatal, retriable=retriable)
        self.exception: Final = exception


def describe_error(exception: Kip848Error) -> ErrorDetails:
    """The `KafkaError` of *exception*: its ``args[0]``, and the error that ``on_commit`` gets."""
    return ErrorDetails(exception)


def _code_of(exception: Kip848Error) -> int:
    if isinstance(exception, BrokerError):
        return int(exception.code)
    cause = exception.__cause__
    if isinstance(exception, CommitFailedError) and isinstance(cause, BrokerError):
        return int(cause.code)  # what the coordinator answered
    return exception.librdkafka_code


Kip848Error._describe = staticmethod(describe_error)  # noqa: SLF001  its class may not load librdkafka
if not issubclass(Kip848Error, KafkaException):
    # A base class that is known later: inheriting at once would load librdkafka into every process that only needs
    # the errors, such as a Spark worker or a simulation.
    cast("type", Kip848Error).__bases__ = (KafkaException,)
