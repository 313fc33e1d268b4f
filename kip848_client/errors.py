"""Every exception of the library, and the table from Kafka's error codes to them.

::

    Kip848Error
    ├── ConfigError                 a key, value or argument is wrong (caller; also a ValueError)
    │   └── ArgumentTypeError       an argument has a wrong type (also a TypeError)
    ├── IllegalStateError           the call does not fit the state of the object (caller)
    │   └── ForkedProcessError      the consumer was made before fork(); make a new one in the child
    ├── RequestTimeoutError         no answer in time (network or broker; also a TimeoutError)
    ├── ConnectionLostError         the connection could not be made, or broke (also a ConnectionError)
    │   ├── AuthenticationError     TLS or SASL refused the connection; a retry cannot help
    │   └── OtherClusterError       the addresses lead to another cluster by now
    ├── OutOfResourcesError         the process may have no more files or threads (also a RuntimeError)
    ├── ProtocolError               a peer sent what the protocol does not allow
    ├── MessageValueError           a value does not fit its field on the wire (caller; also a ValueError)
    ├── DataDirError                the embedded broker's folder cannot be read or written
    │   ├── DataDirLockedError      another process uses it
    │   ├── DataDirForeignError     it holds files that no broker wrote; untouched
    │   └── DataDirCorruptError     its content is damaged: .file, .position
    ├── UnsupportedVersionError     no common version, or the version lacks a field that is needed
    │   └── UnsupportedByBrokerError   the broker lacks a whole feature, such as workers
    ├── ListenerError               a rebalance listener raised; the cause is attached
    ├── RunnerEndedError            the runner of a worker's unit raised or returned: .unit
    ├── ClientAssignorError         a PartitionAssignor failed: .assignor; the cause is attached
    │   ├── InvalidAssignmentError  its result cannot be applied: .partitions, .members
    │   └── AssignorTimeoutError    it took longer than group.local.assignors.timeout.ms
    ├── MaxPollExceededError        poll() was not called for max.poll.interval.ms
    ├── CommitFailedError           offsets were not committed, and a retry of this call cannot help
    │   └── RetriableCommitFailedError   ... but a new commit may
    ├── DeserializationError        key.deserializer or value.deserializer raised: .kafka_message
    │   ├── KeyDeserializationError
    │   └── ValueDeserializationError
    ├── HandlerDiedError            a handler of process() has ended its process: .records
    ├── ProcessingError             process() ended as a handler failed: .records, .attempt
    ├── TransactionAbortedError     a transaction was aborted; its records are read again
    ├── TransactionFailedError      the producer cannot go on: end the process
    │   └── ProducerFencedError     another process has taken its transactional.id
    ├── NoOffsetForPartitionError   no committed offset and auto.offset.reset=none: .partitions
    ├── OffsetOutOfRangeError       no record at the position and auto.offset.reset=none: .partition, .offset
    └── BrokerError                 a Kafka error code: .code, .retriable, .fatal
        ├── FencedError             the member was removed or is behind; it rejoins by itself
        │   ├── FencedMemberEpochError
        │   ├── UnknownMemberIdError
        │   └── StaleMemberEpochError
        ├── TopicAuthorizationError     .topics
        ├── RefusedRecordsError     the embedded broker refuses single records of a batch: .records
        └── FatalGroupError         the member stopped; only close() is useful now
            ├── GroupAuthorizationError
            ├── GroupMaxSizeReachedError
            ├── FencedInstanceIdError
            ├── UnreleasedInstanceIdError
            ├── UnsupportedAssignorError
            ├── ClientAssignorsUnsupportedError
            ├── InvalidRegularExpressionError
            ├── InvalidGroupRequestError
            │   └── CatalogConflictError   workers of a group have different units under one version
            ├── GroupIdNotFoundError
            └── UnsupportedGroupProtocolError

Messages name the cause and the way out. Foreign exceptions are mapped where they enter, with ``from``.

Once confluent_kafka is loaded, which importing `Consumer` does, every `Kip848Error` is also a
``confluent_kafka.KafkaException`` (`consumer/records/kafka_errors.py`), so that existing handlers keep working.
Importing this file alone loads nothing of librdkafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode, error_name

if TYPE_CHECKING:
    from confluent_kafka import KafkaException as _KafkaExceptionLater

    from kip848_client.common.named_partition import NamedPartition
    from kip848_client.consumer.records.message import Message
else:

    class _KafkaExceptionLater(Exception):
        """Holds the place of confluent_kafka's KafkaException, whose memory layout it shares."""


__all__ = [
    "ArgumentTypeError",
    "AssignorTimeoutError",
    "AuthenticationError",
    "OtherClusterError",
    "OutOfResourcesError",
    "BrokerError",
    "ClientAssignorError",
    "ClientAssignorsUnsupportedError",
    "CatalogConflictError",
    "CommitFailedError",
    "ConfigError",
    "ConnectionLostError",
    "DataDirCorruptError",
    "DataDirError",
    "DeserializationError",
    "KeyDeserializationError",
    "ValueDeserializationError",
    "DataDirForeignError",
    "DataDirLockedError",
    "ErrorCode",
    "FatalGroupError",
    "FencedError",
    "FencedInstanceIdError",
    "FencedMemberEpochError",
    "ForkedProcessError",
    "GroupAuthorizationError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "HandlerDiedError",
    "IllegalStateError",
    "InvalidAssignmentError",
    "InvalidGroupRequestError",
    "InvalidRegularExpressionError",
    "Kip848Error",
    "ListenerError",
    "MaxPollExceededError",
    "MessageValueError",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "ProcessingError",
    "ProducerFencedError",
    "ProtocolError",
    "RefusedRecordsError",
    "RequestTimeoutError",
    "RetriableCommitFailedError",
    "RunnerEndedError",
    "StaleMemberEpochError",
    "TopicAuthorizationError",
    "TransactionAbortedError",
    "TransactionFailedError",
    "UnknownMemberIdError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedByBrokerError",
    "UnsupportedGroupProtocolError",
    "UnsupportedVersionError",
    "error_for_code",
    "error_name",
]


_NAMES_SHOWN: Final = 10


def join_names(names: Iterable[str]) -> str:
    """Write names for an error or a log: ``a, b``. After ten names, only the number of the rest."""
    listed = list(names)
    more = f" and {len(listed) - _NAMES_SHOWN:,} more" if len(listed) > _NAMES_SHOWN else ""
    return ", ".join(listed[:_NAMES_SHOWN]) + more


class Kip848Error(_KafkaExceptionLater):
    """Base of every exception that this library raises on purpose.

    Attributes:
        librdkafka_code: ``error.args[0].code()``, unless a broker sent a code; negative, one of librdkafka's
            ``ERR__...`` numbers.
        args: with confluent_kafka loaded, a single `confluent_kafka.KafkaError`, as in confluent-kafka; the text is
            ``str(error)``.
    """

    librdkafka_code: ClassVar[int] = -196  # _FAIL
    _describe: ClassVar[Callable[[Kip848Error], object] | None] = None
    """Makes ``args[0]``; set by `consumer/records/kafka_errors.py`."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments, as confluent_kafka's exceptions have them."""
        describe = Kip848Error._describe
        if describe is None:
            given: tuple[Any, ...] = BaseException.args.__get__(self)  # type: ignore[attr-defined]
            return given
        return (describe(self),)

    @args.setter
    def args(self, given: tuple[Any, ...]) -> None:
        BaseException.args.__set__(self, given)  # type: ignore[attr-defined]


class ConfigError(Kip848Error, ValueError):
    """A configuration key, a value or an argument is wrong. The message says what was given and what is allowed."""

    librdkafka_code = -186  # _INVALID_ARG


class ArgumentTypeError(ConfigError, TypeError):
    """An argument has a wrong type."""


class IllegalStateError(Kip848Error, RuntimeError):
    """The call does not fit the state of the object, for example poll() on a closed consumer."""

    librdkafka_code = -172  # _STATE


class ForkedProcessError(IllegalStateError):
    """The object was made before ``os.fork()`` and is used in the child. Make a new one in the child."""


class RequestTimeoutError(Kip848Error, TimeoutError):
    """A request or a whole call did not finish in time. The cause, if one is known, is attached."""

    librdkafka_code = -185  # _TIMED_OUT


class ConnectionLostError(Kip848Error, ConnectionError):
    """A connection could not be opened, or broke while a request was outstanding."""

    librdkafka_code = -195  # _TRANSPORT


class OutOfResourcesError(Kip848Error, RuntimeError):
    """The process may open no more files or start no more threads; the message says which limit to raise."""


class AuthenticationError(ConnectionLostError):
    """The peer refused our credentials, or its certificate was refused. A retry cannot help."""

    librdkafka_code = -169  # _AUTHENTICATION


class OtherClusterError(ConnectionLostError):
    """The bootstrap servers lead to another cluster than the one that this consumer began with. Nothing is read there.

    Its offsets and topic ids mean nothing in the other cluster. If that cluster is meant, make a new consumer.
    """


class ProtocolError(Kip848Error):
    """Bytes or a message that the protocol does not allow. They were not applied."""

    librdkafka_code = -199  # _BAD_MSG


class MessageValueError(Kip848Error, ValueError):
    """A value does not fit its field on the wire: out of range, too long, None or of another type. Names the field."""

    librdkafka_code = -186  # _INVALID_ARG


class DataDirError(Kip848Error):
    """The folder behind an embedded broker cannot be read or written. The message names the file."""


class DataDirLockedError(DataDirError):
    """Another process, or another broker in this process, uses the folder."""


class DataDirForeignError(DataDirError):
    """The folder holds files and is not marked as a broker's data folder. Nothing in the folder was changed."""


class DataDirCorruptError(DataDirError):
    """A file in the folder is damaged where a crash cannot have damaged it; nothing was changed.

    Args:
        file: path of the damaged file.
        position: byte in it where the first unreadable entry begins.
    """

    def __init__(self, message: str, *, file: str, position: int) -> None:
        self.file: Final = file
        self.position: Final = position
        super().__init__(f"{file}, byte {position}: {message}")


class UnsupportedVersionError(Kip848Error):
    """Client and broker have no common version of a request, or it lacks a field that is set."""

    librdkafka_code = -165  # _UNSUPPORTED_FEATURE


class UnsupportedByBrokerError(UnsupportedVersionError):
    """The broker lacks a feature as a whole: Apache Kafka does not serve workers."""


class ListenerError(Kip848Error):
    """A rebalance listener raised ``__cause__``; a later poll() retries the step."""

    librdkafka_code = -143  # _APPLICATION


class RunnerEndedError(Kip848Error):
    """The runner of a unit raised ``__cause__``, or returned, before it was told to stop.

    Args:
        unit: the unit, as ``str(Unit(...))``.
    """

    librdkafka_code = -143  # _APPLICATION

    def __init__(self, message: str, *, unit: str) -> None:
        super().__init__(message)
        self.unit: Final = unit


class ClientAssignorError(Kip848Error):
    """A client-side assignor failed. Its exception, if any, is ``__cause__``.

    Args:
        assignor: its name.
    """

    def __init__(self, message: str, *, assignor: str) -> None:
        super().__init__(message)
        self.assignor: Final = assignor


class InvalidAssignmentError(ClientAssignorError):
    """The result of a client-side assignor cannot be applied.

    Args:
        partitions: ``topic-partition`` names of the offending partitions, sorted.
        members: ids of the offending members, sorted.
    """

    def __init__(
        self, message: str, *, assignor: str, partitions: Iterable[str] = (), members: Iterable[str] = ()
    ) -> None:
        super().__init__(message, assignor=assignor)
        self.partitions: Final = tuple(partitions)
        self.members: Final = tuple(members)


class AssignorTimeoutError(ClientAssignorError):
    """A call of a client-side assignor took longer than ``group.local.assignors.timeout.ms``; it is abandoned."""


class MaxPollExceededError(Kip848Error):
    """poll() was not called for max.poll.interval.ms: the member left the group and rejoins with this poll()."""

    librdkafka_code = -147  # _MAX_POLL_EXCEEDED


class CommitFailedError(Kip848Error):
    """Offsets were not committed. The partitions may have moved to another member."""

    librdkafka_code = -142  # _ASSIGNMENT_LOST


class RetriableCommitFailedError(CommitFailedError):
    """An asynchronous commit failed for a temporary reason; a new commit may succeed."""

    librdkafka_code = -153  # _RETRY


class NoOffsetForPartitionError(Kip848Error):
    """A partition has neither a committed offset nor a reset policy.

    Args:
        partitions: sorted; ``seek(TopicPartition(*partition, offset))`` says where to begin.
    """

    librdkafka_code = -140  # _AUTO_OFFSET_RESET

    def __init__(self, partitions: Iterable[NamedPartition]) -> None:
        self.partitions: Final = tuple(sorted(partitions))
        super().__init__(
            f"no committed offset for {join_names(map(str, self.partitions))} and auto.offset.reset is none; "
            "seek() to a position or set auto.offset.reset to earliest or latest"
        )


class OffsetOutOfRangeError(Kip848Error):
    """A partition has no record at the position, and no reset policy.

    Args:
        partition: ``seek(TopicPartition(*error.partition, offset))`` says where to go on.
        offset: the position; records before it were deleted, or it is behind the end.
    """

    librdkafka_code = -140  # _AUTO_OFFSET_RESET

    def __init__(self, partition: NamedPartition, *, offset: int) -> None:
        self.partition: Final = partition
        self.offset: Final = offset
        super().__init__(
            f"{partition} has no record at offset {offset} and auto.offset.reset is none; "
            "seek() to a position or set auto.offset.reset to earliest or latest"
        )


class DeserializationError(Kip848Error):
    """A deserialiser raised: ``__cause__``. The position stays at the record, so the next poll() raises again.

    Args:
        kafka_message: the record, with key and value as they came.
    """

    librdkafka_code = -159  # _VALUE_DESERIALIZATION

    def __init__(self, message: str, *, kafka_message: Message) -> None:
        super().__init__(message)
        self.kafka_message: Final = kafka_message


class KeyDeserializationError(DeserializationError):
    """``key.deserializer`` raised."""

    librdkafka_code = -160  # _KEY_DESERIALIZATION


class ValueDeserializationError(DeserializationError):
    """``value.deserializer`` raised."""


class HandlerDiedError(Kip848Error):
    """A handler of ``process()`` has ended its worker process: out of memory, a crash in C, ``os._exit``.

    It is a failure of the handler, for ``retry``, ``retry_later``, ``dead_letter`` and ``on_error``.

    Args:
        records: what the handler was given, alone in its pool.
    """

    def __init__(self, message: str, *, records: tuple[Message, ...] = ()) -> None:
        super().__init__(message)
        self.records: Final = records


class ProcessingError(Kip848Error):
    """``process()`` has ended because a handler failed for good; ``__cause__`` is what it raised.

    Args:
        records: what the handler was given; not committed.
        attempt: the call that failed, from 1.
    """

    def __init__(self, message: str, *, records: tuple[Message, ...] = (), attempt: int = 0) -> None:
        super().__init__(message)
        self.records: Final = records
        self.attempt: Final = attempt


class TransactionAbortedError(Kip848Error):
    """A transaction was not committed. Its records are read again: go on with the next one. The cause is attached."""


class TransactionFailedError(Kip848Error):
    """A producer cannot go on, or whether a transaction was committed is not known: end the process.

    The process that is started after it, with the same ``transactional.id``, begins behind the last transaction that
    was committed.
    """


class ProducerFencedError(TransactionFailedError):
    """Another process has taken the producer's ``transactional.id``, or its transaction took too long."""

    librdkafka_code = -144  # _FENCED


class BrokerError(Kip848Error):
    """An error code that a broker sent.

    Attributes:
        code: Kafka's error code (`ErrorCode`, or a plain int for one that is newer than this library).
        retriable: the same call may succeed later.
        fatal: the member stopped because of it.
    """

    fatal: bool = False

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        try:
            self.code: int = ErrorCode(code)
        except ValueError:
            self.code = code

    @property
    def retriable(self) -> bool:
        """Whether Kafka marks the code as retriable."""
        return not self.fatal and self.code in RETRIABLE


class FencedError(BrokerError):
    """The coordinator no longer counts this member, or counts it at another epoch. The member rejoins by itself."""


class FencedMemberEpochError(FencedError):
    """FENCED_MEMBER_EPOCH(110)."""


class UnknownMemberIdError(FencedError):
    """UNKNOWN_MEMBER_ID(25)."""


class StaleMemberEpochError(FencedError):
    """STALE_MEMBER_EPOCH(113)."""


class RefusedRecordsError(BrokerError):
    """Single records of a produced batch break a rule of their topic; nothing of the batch was appended.

    Args:
        records: index in the batch -> what is wrong; empty if the records are not known.
    """

    def __init__(self, message: str, *, code: int, records: Mapping[int, str]) -> None:
        super().__init__(message, code=code)
        self.records: Final = dict(records)


class TopicAuthorizationError(BrokerError):
    """TOPIC_AUTHORIZATION_FAILED(29): READ or DESCRIBE on a topic is missing."""

    def __init__(
        self, message: str, *, code: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics: Iterable[str] = ()
    ) -> None:
        super().__init__(message, code=code)
        self.topics: Final = tuple(sorted(topics))


class FatalGroupError(BrokerError):
    """A retry cannot help. If `fatal`, the member stopped: close the consumer, correct the cause, make a new one.

    Otherwise only a commit or a lookup of the coordinator was refused, and the member continues.
    """

    fatal = True


class GroupAuthorizationError(FatalGroupError):
    """GROUP_AUTHORIZATION_FAILED(30): READ on the group is missing."""


class InvalidGroupRequestError(FatalGroupError):
    """INVALID_REQUEST(42): the coordinator refuses what the member sends."""


class CatalogConflictError(InvalidGroupRequestError):
    """Workers of a group were given different units under the same ``units.version``."""


class GroupIdNotFoundError(FatalGroupError):
    """GROUP_ID_NOT_FOUND(69): the group cannot be joined: it is of another type."""


class GroupMaxSizeReachedError(FatalGroupError):
    """GROUP_MAX_SIZE_REACHED(81)."""


class FencedInstanceIdError(FatalGroupError):
    """FENCED_INSTANCE_ID(82): another member took over this group.instance.id."""


class UnreleasedInstanceIdError(FatalGroupError):
    """UNRELEASED_INSTANCE_ID(111): another living member holds this group.instance.id."""


class UnsupportedAssignorError(FatalGroupError):
    """UNSUPPORTED_ASSIGNOR(112)."""


class ClientAssignorsUnsupportedError(FatalGroupError):
    """``group.local.assignors`` is set, and the cluster has no client-side assignment. The message names what it
    lacks."""

    def __init__(self, message: str, *, code: int = ErrorCode.UNSUPPORTED_VERSION) -> None:
        super().__init__(message, code=code)


class InvalidRegularExpressionError(FatalGroupError):
    """INVALID_REGULAR_EXPRESSION(128): the coordinator cannot compile the subscription pattern (RE2 syntax)."""


class UnsupportedGroupProtocolError(FatalGroupError):
    """UNSUPPORTED_VERSION(35): the cluster does not offer the consumer group protocol."""


_BY_CODE: Final[dict[int, type[BrokerError]]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: UnknownMemberIdError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedGroupProtocolError,
    ErrorCode.INVALID_REQUEST: InvalidGroupRequestError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupIdNotFoundError,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupMaxSizeReachedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
    ErrorCode.FENCED_MEMBER_EPOCH: FencedMemberEpochError,
    ErrorCode.UNRELEASED_INSTANCE_ID: UnreleasedInstanceIdError,
    ErrorCode.UNSUPPORTED_ASSIGNOR: UnsupportedAssignorError,
    ErrorCode.STALE_MEMBER_EPOCH: StaleMemberEpochError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidRegularExpressionError,
}


def error_for_code(code: int, message: str, *, stopped: bool = False) -> BrokerError:
    """Build the exception for *code*; its text is ``NAME(code): message``.

    Args:
        stopped: the member stopped because of it; a commit or a lookup can be refused with the same code.

    Source:
        The tree above. A code without a class of its own becomes a plain `BrokerError`.
    """
    error = _BY_CODE.get(code, BrokerError)(f"{error_name(code)}: {message}", code=code)
    error.fatal = stopped
    return error
