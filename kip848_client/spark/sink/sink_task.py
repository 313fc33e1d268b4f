"""Writes the records of one task, and commits a whole batch. Knows nothing of Spark.

Without transactions a task writes with an idempotent producer, and is done when all is stored: at least once, because
Spark repeats tasks and batches. With transactions it is done in two phases:

1. Each task writes into a transaction of its own (``<transactional.id>-<task>``) and leaves it open.
2. The driver notes the batch and its transactions in one offset commit of the group ``<transactional.id>``: that is the
   decision. Then it commits them.

A batch that is repeated finds the note: its tasks write nothing, and the driver commits the transactions in the note
again. A batch without a note is written anew; the producer of a task aborts what the one before it has left open. An
earlier
run may have had more tasks: the driver aborts their open transactions, with the first batch that a run decides on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from kip848_client.admin import Admin, OpenTransaction
from kip848_client.admin.transactions import ONGOING
from kip848_client.common.model import NamedPartition
from kip848_client.consumer.records.record_writer import RecordWriter
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.spark.group.group_offsets import GroupOffsets
from kip848_client.spark.sink.sink_options import SinkOptions

_log = logging.getLogger("kip848_client.spark")

_PREFIX: Final = "kip848-sink "
_LEFTOVERS_TIMEOUT_MS: Final = 10_000
_NOTE_LENGTH_MAX: Final = 4_096
"""offset.metadata.max.bytes of Kafka."""


class BatchId(msgspec.Struct, frozen=True):
    """A batch of a streaming query.

    Args:
        query: as Spark's checkpoint names it.
        run: from one start of the query to its end; blank if Spark does not tell.
    """

    query: str
    number: int
    run: str = ""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """The decision on a batch: these transactions are committed, even after a crash.

    Args:
        transactions: task, producer id and producer epoch of each.
        run: that decided, and has aborted what earlier ones left; blank if it could not.
    """

    query: str
    number: int
    transactions: tuple[tuple[int, int, int], ...]
    run: str = ""

    def opened(self, prefix: str) -> list[OpenTransaction]:
        """The transactions."""
        return [OpenTransaction(f"{prefix}-{task}", *producer) for task, *producer in self.transactions]


class Written(msgspec.Struct, frozen=True):
    """The message of a task to the driver.

    Args:
        transaction: to be ended; None if there is none.
        topic: one that was written to; None if nothing was.
    """

    task: int
    rows: int
    transaction: OpenTransaction | None = None
    topic: str | None = None


def write_task(batches: Iterable[pa.RecordBatch], options: SinkOptions, *, task: int, batch: BatchId | None) -> Written:
    """Write the records of one task.

    Args:
        batch: of a stream; None for a batch write.

    Raises:
        ConfigError: a column has a wrong type, or there is no topic.
        Kip848Error: records were not stored.
    """
    if options.transactional_id is None:
        return _write(batches, options, RecordWriter(options.producer, timeout_ms=options.timeout_ms), task)
    if batch is not None and decided(options, batch) is not None:
        return Written(task, 0)
    transactional_id = f"{options.transactional_id}-{task}"
    conf = {**options.producer, "transactional.id": transactional_id}
    writer = RecordWriter(conf, timeout_ms=options.timeout_ms)
    writer.begin()
    written = _write(batches, options, writer, task)
    if not written.rows:
        return written
    return msgspec.structs.replace(written, transaction=_opened(options, transactional_id))


def decide(written: Sequence[Written], options: SinkOptions, *, batch: BatchId | None) -> None:
    """All tasks are done: make their records visible.

    Raises:
        ConfigError: there are too many tasks for one decision.
        Kip848Error: no answer, or a transaction was aborted meanwhile; the batch must be repeated.
    """
    prefix = options.transactional_id
    if prefix is None:
        return
    transactions = [each.transaction for each in written if each.transaction is not None]
    notes = _notes(options)
    note = None if batch is None else _decision(notes, batch)
    run = "" if batch is None else batch.run
    if not run or all(each.run != run for each in notes):
        run = run if _abort_leftovers(options, notes, but=transactions) else ""
    if batch is not None:
        if note is None:
            note = Note(
                batch.query,
                batch.number,
                tuple(
                    (each.task, each.transaction.producer_id, each.transaction.producer_epoch)
                    for each in written
                    if each.transaction is not None
                ),
                run,
            )
            topic = next((each.topic for each in written if each.topic is not None), None)
            if topic is None:
                return  # nothing was written: repeating the batch writes nothing, too
            _keep(note, topic, options)
        elif transactions:
            # Another run of the query decided while this one wrote: what that one wrote stands.
            _end(options, transactions, commit=False)
        transactions = note.opened(prefix)
    _end(options, transactions, commit=True)


def give_up(options: SinkOptions) -> None:
    """The batch failed: abort what its tasks have left open, so that readers need not wait for the time-out."""
    if options.transactional_id is not None:
        _abort_leftovers(options, _notes(options), but=())


def decided(options: SinkOptions, batch: BatchId) -> Note | None:
    """The decision on *batch*, or on a later one of the same query; None if there is none.

    Raises:
        Kip848Error: no answer.
    """
    return _decision(_notes(options), batch)


def _decision(notes: Iterable[Note], batch: BatchId) -> Note | None:
    return next((note for note in notes if note.query == batch.query and note.number >= batch.number), None)


def _notes(options: SinkOptions) -> list[Note]:
    assert options.transactional_id is not None
    with _admin(options) as admin:
        offsets = admin.committed_offsets([options.transactional_id], timeout_s=options.timeout_ms / 1_000)
    texts = [position.metadata for position in offsets[options.transactional_id].values()]
    return [msgspec.json.decode(text[len(_PREFIX) :], type=Note) for text in texts if text.startswith(_PREFIX)]


def _abort_leftovers(options: SinkOptions, notes: Iterable[Note], *, but: Iterable[OpenTransaction]) -> bool:
    """Abort every open transaction of the sink, except *but* and the transactions that *notes* decide to commit.

    Returns:
        Whether none is left. A remaining one ends by its time-out, so it is no reason to fail a batch.
    """
    prefix = options.transactional_id
    assert prefix is not None
    kept = {*but, *(each for note in notes for each in note.opened(prefix))}
    timeout_ms = min(options.timeout_ms, _LEFTOVERS_TIMEOUT_MS)
    try:
        found, silent = _ongoing(options, rf"{re.escape(prefix)}-\d+", timeout_ms=timeout_ms)
        left = [each for each in found if each not in kept]
        if left:
            _log.warning("aborting what an earlier run has left: %s", ", ".join(each.transactional_id for each in left))
            _end(options, left, commit=False, timeout_ms=timeout_ms)
    except Kip848Error as error:
        silent = [str(error)]
    if silent:
        _log.warning("readers of committed records may wait for an earlier run's transactions: %s", "; ".join(silent))
    return not silent


def _admin(options: SinkOptions) -> Admin:
    return Admin(options.control, await_broker=True)


def _opened(options: SinkOptions, transactional_id: str) -> OpenTransaction:
    """The transaction that a task has just written."""
    with _admin(options) as admin:
        described = admin.describe_transactions([transactional_id], timeout_s=options.timeout_ms / 1_000)
    found = described[transactional_id]
    if found.state != ONGOING:
        raise Kip848Error(
            f"transaction {transactional_id!r} is {found.state}, although it was just written: another producer has "
            "the same transactional id"
        )
    return found.opened


def _ongoing(options: SinkOptions, matching: str, *, timeout_ms: int) -> tuple[list[OpenTransaction], list[str]]:
    """The open transactions whose ids match, and the errors of nodes that could not be asked."""
    timeout_s = timeout_ms / 1_000
    with _admin(options) as admin:
        listed = admin.list_transactions(states=(ONGOING,), matching=matching, timeout_s=timeout_s)
        names = [one.transactional_id for one in listed.found]
        described = admin.describe_transactions(names, timeout_s=timeout_s)
    found = [one.opened for one in described.values.values() if one.state == ONGOING]
    return found, [str(error) for error in (*listed.errors.values(), *described.errors.values())]


def _end(
    options: SinkOptions, transactions: Iterable[OpenTransaction], *, commit: bool, timeout_ms: int | None = None
) -> None:
    """Commit or abort *transactions*, again after a crash as well.

    Raises:
        Kip848Error: one of them was not ended so.
    """
    with _admin(options) as admin:
        timeout_s = (timeout_ms or options.timeout_ms) / 1_000
        ended = admin.end_transactions(transactions, commit=commit, timeout_s=timeout_s)
    for error in ended.errors.values():
        raise error


def _keep(note: Note, topic: str, options: SinkOptions) -> None:
    text = _PREFIX + msgspec.json.encode(note).decode()
    if len(text) > _NOTE_LENGTH_MAX:
        raise ConfigError(
            f"{len(note.transactions)} tasks wrote in this batch, too many for one decision: coalesce(100) before that"
        )
    assert options.transactional_id is not None
    group = GroupOffsets({**options.control, "group.id": options.transactional_id}, timeout_ms=options.timeout_ms)
    try:
        group.commit({NamedPartition(topic, 0): note.number}, metadata=text)
    finally:
        group.close()


def _write(batches: Iterable[pa.RecordBatch], options: SinkOptions, writer: RecordWriter, task: int) -> Written:
    rows, last = 0, None
    for batch in batches:
        for topic, key, value, partition, headers in _records(batch, options.topic):
            writer.write(topic, key, value, partition, headers)
            last = topic
        rows += batch.num_rows
    writer.flush()
    return Written(task, rows, topic=last)


def _records(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[Any, ...]]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    missing = [None] * batch.num_rows
    topics = [topic] * batch.num_rows if topic is not None else columns["topic"]
    partitions = columns.get("partition", missing)
    rows = zip(
        topics, columns.get("key", missing), columns["value"], partitions, columns.get("headers", missing), strict=True
    )
    for name, key, value, number, headers in rows:
        if name is None:
            raise ConfigError("a record has no topic: the column is null, and there is no option topic")
        pairs = [(header["key"], header["value"]) for header in headers] if headers else None
        yield name, _bytes(key), _bytes(value), -1 if number is None else number, pairs


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
