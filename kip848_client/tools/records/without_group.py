"""Reading partitions without a group: nothing is committed, and no member joins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Final

from kip848_client.admin import Admin
from kip848_client.admin.results import raise_all
from kip848_client.admin.topics import IsolationLevel
from kip848_client.common.model import INTERNAL_TOPICS, NamedPartition, OffsetRange
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, Kip848Error, error_for_code
from kip848_client.tools.records.places import ReadFrom, find

BATCH_RECORDS: Final = 500
POLL_S: Final = 0.2


def ranges_of(
    conf: Mapping[str, str],
    topics: Sequence[str],
    *,
    numbers: Sequence[int] | None,
    begin: ReadFrom,
    until: ReadFrom | None,
    isolation_level: IsolationLevel,
    timeout_s: float,
) -> list[OffsetRange | tuple[NamedPartition, int]]:
    """What to read of each partition: a range, or a partition and where to begin, for ever.

    Raises:
        ConfigError: no topic matches, or there is no such partition.
        Kip848Error: no broker answers, or a topic does not exist.
    """
    with Admin(conf) as admin:
        partitions = list(_partitions(admin, topics, numbers, timeout_s=timeout_s))
        wanted = [begin] if until is None else [begin, until]
        begins, *bounds = find(admin, wanted, partitions, isolation_level=isolation_level, timeout_s=timeout_s)
    if not bounds:
        return list(begins.items())
    (ends,) = bounds
    return [OffsetRange(one, begins[one], ends[one]) for one in partitions if begins[one] < ends[one]]


def _partitions(
    admin: Admin, topics: Sequence[str], numbers: Sequence[int] | None, *, timeout_s: float
) -> Iterator[NamedPartition]:
    patterns = [re.compile(one) for one in topics if one.startswith("^")]
    names = [one for one in topics if not one.startswith("^")]
    if patterns:
        every = admin.list_topics(timeout_s=timeout_s).values
        matching = [n for n in every if n not in INTERNAL_TOPICS and any(each.fullmatch(n) for each in patterns)]
        names = [*names, *sorted(set(matching) - set(names))]
        if not names:
            raise ConfigError(f"no topic matches {' or '.join(one.pattern for one in patterns)}")
    found = admin.list_topics(names, timeout_s=timeout_s)
    raise_all(map(_worded, found.errors.items()))
    for name in names:
        count = found.values[name].partitions
        for number in range(count) if numbers is None else sorted(set(numbers)):
            if not 0 <= number < count:
                raise ConfigError(f"--partition {number}: topic {name!r} has the partitions 0 to {count - 1}")
            yield NamedPartition(name, number)


def _worded(refused: tuple[str, Kip848Error]) -> Kip848Error:
    name, error = refused
    if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        text = f"there is no topic {name!r}, or this user may not DESCRIBE it; see kip848 topics list"
        return error_for_code(error.code, text)
    return error


def read(
    conf: Mapping[str, Any], wanted: Iterable[OffsetRange | tuple[NamedPartition, int]], stopped: Event
) -> Iterator[list[Any]]:
    """Yield records until every range is read, or for ever.

    Raises:
        Kip848Error: the consumer raised it.
    """
    from kip848_client import Consumer, TopicPartition  # here: options can be listed without loading librdkafka

    begins = [(one.partition, one.start) if isinstance(one, OffsetRange) else one for one in wanted]
    ends = {one.partition: one.end for one in wanted if isinstance(one, OffsetRange)}
    if not begins:
        return
    bounded = bool(ends)
    with Consumer({**conf, "enable.auto.commit": False, "enable.partition.eof": bounded}) as consumer:
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in begins])
        batches = consumer.batches(BATCH_RECORDS, POLL_S)
        while not stopped.is_set() and (ends or not bounded):
            shown = []
            for message in next(batches):
                partition = NamedPartition(message.topic(), message.partition())
                end = ends.get(partition)
                if bounded and end is None:
                    continue  # its range is read
                error, offset = message.error(), message.offset()
                if error is None and (end is None or offset < end):
                    shown.append(message)
                # At the end there may be records that no reader sees: markers, or what was compacted away.
                if end is not None and (offset if error is not None else offset + 1) >= end:
                    del ends[partition]
                    consumer.pause([TopicPartition(*partition)])
            if shown:
                yield shown
