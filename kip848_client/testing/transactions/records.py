"""A transaction as a record of ``__transaction_state``, and back."""

from __future__ import annotations

import itertools

from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionState
from kip848_client.wire.messages.transaction_records import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    decode_transaction_record,
    encode_transaction_record,
)


def record_of(transaction: TransactionMetadata) -> tuple[bytes, bytes | None]:
    """Key and value; the value is None for an id that is forgotten. Topics and partitions are in ascending order."""
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    if transaction.state is TransactionState.DEAD:
        return encode_transaction_record(key, None)
    topics = itertools.groupby(sorted(transaction.partitions), key=lambda partition: partition[0])
    partitions = tuple(
        TransactionLogPartitions(topic=topic, partition_ids=tuple(number for _, number in items))
        for topic, items in topics
    )
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
        last_producer_epoch=transaction.last_epoch,
    )
    return encode_transaction_record(key, value)


def transaction_of(key: bytes, value: bytes | None) -> TransactionMetadata:
    """The way back of `record_of`.

    Raises:
        ProtocolError: not a record of ``__transaction_state``, or a state that does not exist.
        UnsupportedVersionError: a version of the value that is not known.
    """
    read_key, read = decode_transaction_record(key, value)
    if read is None:
        return TransactionMetadata.forgotten(read_key.transactional_id)
    return TransactionMetadata(
        transactional_id=read_key.transactional_id,
        producer_id=read.producer_id,
        epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        updated_ms=read.transaction_last_update_timestamp_ms,
        last_epoch=read.last_producer_epoch,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        state=TransactionState(read.transaction_status),
        partitions=frozenset(
            (topic.topic, number) for topic in read.transaction_partitions or () for number in topic.partition_ids
        ),
        started_ms=read.transaction_start_timestamp_ms,
        client_version=read.client_transaction_version,
    )
