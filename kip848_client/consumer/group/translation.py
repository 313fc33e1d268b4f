"""Between confluent_kafka's values, which the public API speaks, and ours. Pure; no state.

Not here: the meaning of the values (`kip848_client.consumer.consumer`, `member`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.common.callables import USE_ASYNC_CONSUMER, check_not_async, check_result_not_async, check_takes
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription, SubscriptionPattern
from kip848_client.consumer.group.commit_manager import Offsets, OnCommitted
from kip848_client.consumer.records.data_plane import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ErrorDetails,
    Message,
    TopicPartition,
    describe_error,
    internal,
    leader_epoch,
    public_commit,
)
from kip848_client.errors import ArgumentTypeError, ConfigError, IllegalStateError, Kip848Error
from kip848_client.member.core.events import LeaveMode

EARLIEST: Final = OffsetAndMetadata(-2)
LATEST: Final = OffsetAndMetadata(-1)
"""Positions that the member resolves by asking the partition's leader."""

CommitCallback = Callable[[ErrorDetails | None, list[TopicPartition]], object]
"""``on_commit(error, partitions)``, as in confluent-kafka; ``error.exception`` is the exception behind it."""


_FOREVER_S: Final = 1_000_000.0
"""A longer limit (above twelve days) counts as no limit: librdkafka counts in milliseconds of 32 bits."""

FOREVER_MS: Final = 10**12
"""A limit that no consumer lives to see."""

_LAST_PLACE: Final = -3
"""The last of the numbers that ListOffsets takes for a place: -1 the end, -2 the beginning, -3 the latest timestamp."""

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def read_subscription(topics: object) -> Subscription:
    """The topics and pattern of subscribe(); empty without a subscription.

    Several patterns become one, which matches what any of them matches.

    Raises:
        ConfigError: not a list of names, or what cannot be a name.
    """
    if isinstance(topics, SubscriptionPattern):
        return Subscription(pattern=topics.pattern)
    if isinstance(topics, str):
        raise ConfigError(f"subscribe() takes a list of topics, got {topics!r}; write [{topics!r}]")
    if not isinstance(topics, Iterable):
        raise ConfigError(f'subscribe() takes a list of topics such as ["orders"], got {topics!r}')
    names, patterns = set(), []
    for topic in topics:
        if isinstance(topic, SubscriptionPattern):
            patterns.append(topic.pattern)
        elif not isinstance(topic, str) or not topic.strip():
            raise ConfigError(f"subscribe() takes names of topics, got {topic!r}")
        elif topic.startswith("^"):
            patterns.append(topic)
        elif not _TOPIC_NAME.fullmatch(topic):
            raise ConfigError(
                f"subscribe() takes names of topics, got {topic!r}; a name has letters, digits, '.', '_' and '-', "
                "and a pattern begins with '^' or is a SubscriptionPattern"
            )
        else:
            names.add(topic)
    pattern = "|".join(f"(?:{one})" for one in patterns) if len(patterns) > 1 else "".join(patterns) or None
    return Subscription(topics=frozenset(names), pattern=pattern)


def record_count(num_messages: object) -> int:
    """How many records consume() is asked for.

    Raises:
        ArgumentTypeError, ConfigError: no number from 0 to 1,000,000.
    """
    if not isinstance(num_messages, int) or isinstance(num_messages, bool):
        raise ArgumentTypeError(f"num_messages is a whole number, got {num_messages!r}")
    if not 0 <= num_messages <= 1_000_000:
        raise ConfigError(f"num_messages is {num_messages}; 0 to 1,000,000 are allowed")
    return num_messages


def limit_s(timeout: object, *, default: float = math.inf) -> float:
    """How long a call may wait, in seconds; infinite if *timeout* is negative.

    Args:
        default: if *timeout* is None.

    Raises:
        ArgumentTypeError: no number.
        ConfigError: not a number (NaN).
    """
    if timeout is None:
        return default
    if not isinstance(timeout, (int, float)):
        raise ArgumentTypeError(f"timeout is a number of seconds, got {timeout!r}")
    if math.isnan(timeout):
        raise ConfigError(f"timeout is a number of seconds, got {timeout!r}")
    return math.inf if timeout < 0 or timeout > _FOREVER_S else float(timeout)


def limit_ms(timeout: object, *, default_ms: int) -> int:
    """How long a call may wait, in milliseconds; `FOREVER_MS` if *timeout* is negative.

    Raises:
        ArgumentTypeError, ConfigError: as `limit_s`.
    """
    waits_s = limit_s(timeout, default=default_ms / 1_000)
    return FOREVER_MS if waits_s == math.inf else int(waits_s * 1_000)


def librdkafka_s(timeout: object) -> float:
    """The time limit of a call to librdkafka, which is without limit if it is negative.

    Raises:
        ArgumentTypeError, ConfigError: as `limit_s`.
    """
    waits_s = limit_s(timeout)
    return -1.0 if waits_s == math.inf else waits_s


def flag(value: object, *, name: str) -> bool:
    """An argument that is true or false.

    Raises:
        ArgumentTypeError: neither; text such as "no" would count as true.
    """
    if not isinstance(value, int):
        raise ArgumentTypeError(f"{name} is True or False, got {value!r}")
    return bool(value)


def check_commit_callback(on_commit: object, *, awaited: bool = False) -> None:
    """Check the callback of a commit when it is given: it is called much later, from another line of the program.

    Args:
        awaited: whether it may be an async function.

    Raises:
        ArgumentTypeError: it cannot be called.
        ConfigError: it is an async function, or takes other arguments.
    """
    if on_commit is None:
        return
    if not callable(on_commit):
        raise ArgumentTypeError(f"on_commit is a callable (error, partitions), got {on_commit!r}")
    if not awaited:
        check_not_async(on_commit, name="on_commit", instead=USE_ASYNC_CONSUMER)
    check_takes(on_commit, "error", "partitions", name="on_commit")


def check_leave_mode(mode: object) -> None:
    """Check how close() is to leave.

    Raises:
        ArgumentTypeError: no `LeaveMode`.
    """
    if not isinstance(mode, LeaveMode):
        raise ArgumentTypeError(f"mode is a LeaveMode, got {mode!r}")


def check_partitions(partitions: object, *, call: str) -> list[TopicPartition]:
    """The partitions that *call* was given.

    Raises:
        ArgumentTypeError: no list of `TopicPartition`.
    """
    if isinstance(partitions, TopicPartition):
        raise ArgumentTypeError(f"{call}() takes a list, got {partitions!r}; put brackets around it")
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise ArgumentTypeError(f"{call}() takes a list of TopicPartition, got {partitions!r}")
    return [check_partition(partition, call=call) for partition in partitions]


def check_partition(partition: object, *, call: str) -> TopicPartition:
    """The partition that *call* was given.

    Raises:
        ArgumentTypeError: no `TopicPartition`.
    """
    if isinstance(partition, TopicPartition):
        return partition
    hint = ""
    if isinstance(partition, tuple) and len(partition) in {2, 3} and isinstance(partition[0], str):
        hint = f"; write TopicPartition({', '.join(map(repr, partition))})"
    raise ArgumentTypeError(f"{call}() takes TopicPartition objects, got {partition!r}{hint}")


def assign_positions(
    partitions: Iterable[TopicPartition], *, call: str = "assign"
) -> dict[NamedPartition, OffsetAndMetadata | None]:
    """The start of each partition given to assign(); None for the committed offset.

    Raises:
        IllegalStateError: an offset that means nothing here.
        ArgumentTypeError: no list of `TopicPartition`.
    """
    given = check_partitions(partitions, call=call)
    return {internal(partition): start_position(partition) for partition in given}


def start_position(partition: TopicPartition) -> OffsetAndMetadata | None:
    """The offset field of *partition* as a position; None if it names no place.

    Raises:
        IllegalStateError: an offset that means nothing here.
    """
    offset = partition.offset
    if offset in {OFFSET_INVALID, OFFSET_STORED}:
        return None
    if offset == OFFSET_BEGINNING:
        return EARLIEST
    if offset == OFFSET_END:
        return LATEST
    if offset < 0:
        raise IllegalStateError(
            f"{internal(partition)}: {offset} is not an offset; give one >= 0, OFFSET_BEGINNING or OFFSET_END"
        )
    return OffsetAndMetadata(offset, leader_epoch(partition))


def seek_position(partition: TopicPartition) -> tuple[NamedPartition, OffsetAndMetadata]:
    """Partition and position of a seek().

    Raises:
        IllegalStateError: it has no offset.
    """
    position = start_position(check_partition(partition, call="seek"))
    if position is None:
        raise IllegalStateError(f"seek() needs an offset; {internal(partition)} has none")
    return internal(partition), position


def check_times(partitions: object) -> list[TopicPartition]:
    """The partitions of offsets_for_times(), which have a time in their offset field.

    Raises:
        IllegalStateError: there is no time. Brokers answer that with an unsupported version.
        ArgumentTypeError: no list of `TopicPartition`.
    """
    given = check_partitions(partitions, call="offsets_for_times")
    for partition in given:
        if partition.offset < _LAST_PLACE:
            raise IllegalStateError(
                "offsets_for_times() needs milliseconds since 1970 as the offset of each partition; "
                f"{internal(partition)} has {'none' if partition.offset == OFFSET_INVALID else partition.offset}"
            )
    return given


def commit_offsets(
    message: Message | None, offsets: Iterable[TopicPartition] | None, *, call: str = "commit"
) -> Offsets | None:
    """The offsets that commit(), or another *call*, was given; None for everything handed out.

    Raises:
        IllegalStateError: both were given, or a partition has no offset.
    """
    if message is not None and offsets is not None:
        raise IllegalStateError(f"give {call}() a message or offsets, not both")
    if message is not None and not isinstance(message, Message):
        raise ArgumentTypeError(
            f"{call}() takes a message that was consumed, got {message!r}; "
            f"offsets are given as {call}(offsets=[TopicPartition(topic, partition, offset)])"
        )
    if message is not None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None or offset < 0 or message.error() is not None:
            raise IllegalStateError(f"{call}() takes a message that was consumed")
        epoch = message.leader_epoch()
        return {NamedPartition(topic, partition): OffsetAndMetadata(offset + 1, epoch if epoch is not None else -1)}
    if offsets is None:
        return None
    chosen = {}
    for given in check_partitions(offsets, call=call):
        if given.offset < 0:
            raise IllegalStateError(f"{call}() needs an offset >= 0; {internal(given)} has {given.offset}")
        chosen[internal(given)] = OffsetAndMetadata(given.offset, leader_epoch(given), given.metadata or "")
    return chosen


def public_offsets(offsets: Offsets) -> list[TopicPartition]:
    """Offsets as confluent_kafka's partitions, sorted."""
    return [public_commit(partition, position) for partition, position in sorted(offsets.items())]


def public_callback(callback: CommitCallback) -> OnCommitted:
    """A commit callback of the application, for our values."""

    def call(error: Kip848Error | None, offsets: Offsets) -> None:
        result = callback(None if error is None else describe_error(error), public_offsets(offsets))
        check_result_not_async(result, name="on_commit", instead=USE_ASYNC_CONSUMER)

    return call
