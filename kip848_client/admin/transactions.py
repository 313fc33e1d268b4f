"""Transactions: which there are, which hang, and how to end them from outside of their producers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kip848_client.admin.cluster import (
    TIMEOUT_S_DEFAULT,
    TRANSACTION,
    AdminCall,
    AskedBroker,
    Cluster,
    by_topic,
    check,
    refusal,
)
from kip848_client.admin.results import (
    HangingTransaction,
    Listing,
    OpenTransaction,
    Results,
    TransactionDescription,
    TransactionListing,
    split,
)
from kip848_client.admin.topics import Partition, named
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError, Kip848Error
from kip848_client.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from kip848_client.wire.messages.describe_transactions import DescribeTransactionsRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.list_transactions import ListTransactionsRequest
from kip848_client.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ONGOING: Final = "Ongoing"
"""The state of a transaction that was begun and not ended."""
_UNENDED: Final = {ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
"""States in which the coordinator will end the transaction by itself, at its time-out at the latest."""
_END_VERSION_MAX: Final = 4
"""From 5 on an end makes the epoch of the producer grow (KIP-890), so that it could not be repeated."""


async def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    matching: str | re.Pattern[str] | None = None,
    producer_ids: Iterable[int] = (),
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Listing[TransactionListing]:
    """List the transactional ids that coordinators know.

    Args:
        states: ``Ongoing`` and so on; all if there are none.
        matching: a regular expression that the whole transactional id matches.
        producer_ids: only these; all if there are none.
        timeout_s: seconds for the whole call.

    Raises:
        Kip848Error: no node answers.
    """
    request = ListTransactionsRequest(state_filters=tuple(states), producer_id_filters=tuple(producer_ids))
    wanted = re.compile(".*" if matching is None else matching, 0 if isinstance(matching, re.Pattern) else re.DOTALL)

    async def ask(node: AskedBroker) -> list[TransactionListing]:
        answer = await node.send(request)
        check(answer.error_code, "transactions of a node")
        return [
            TransactionListing(one.transactional_id, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
            if wanted.fullmatch(one.transactional_id)
        ]

    of_nodes = split(await cluster.call(timeout_s).everywhere(ask))
    found = [one for listed in of_nodes.values.values() for one in listed]
    return Listing(tuple(sorted(found, key=lambda one: one.transactional_id)), of_nodes.errors)


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, TransactionDescription]:
    """Describe transactions, with their producers and partitions.

    Args:
        timeout_s: seconds for the whole call.

    Returns:
        Of a transactional id that no coordinator knows, or that may not be described, the error.

    Raises:
        Kip848Error: no broker answers.
    """
    return split(await cluster.call(timeout_s).at_coordinators(transactional_ids, describe_at, of=TRANSACTION))


async def describe_at(node: AskedBroker, ids: Sequence[str]) -> Mapping[str, TransactionDescription | Kip848Error]:
    """Describe transactions that one coordinator has."""
    answer = await node.send(DescribeTransactionsRequest(transactional_ids=tuple(ids)))
    found: dict[str, TransactionDescription | Kip848Error] = {}
    for one in answer.transaction_states:
        name = one.transactional_id
        found[name] = TransactionDescription(
            transactional_id=name,
            state=one.transaction_state,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            timeout_ms=one.transaction_timeout_ms,
            started_ms=one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
            partitions=tuple(
                sorted(NamedPartition(topic.topic, number) for topic in one.topics for number in topic.partitions)
            ),
        )
        if one.error_code:
            found[name] = refusal(one.error_code, f"transaction {name!r} cannot be described")
    return found


async def end_transactions(
    cluster: Cluster,
    transactions: Iterable[OpenTransaction],
    *,
    commit: bool,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[str, None]:
    """Commit or abort open transactions in place of their producers; may be repeated.

    Their coordinators write the markers. One that was ended in the same way before is left as it is.

    Args:
        timeout_s: seconds for the whole call.

    Returns:
        By transactional id. Of a transaction whose producer was replaced, so that it was aborted, a `FencedError` or
        another error.

    Raises:
        Kip848Error: no broker answers.
    """
    wanted = {one.transactional_id: one for one in transactions}

    async def ask(node: AskedBroker, ids: Sequence[str]) -> Mapping[str, Kip848Error | None]:
        (name,) = ids
        one = wanted[name]
        request = EndTxnRequest(name, one.producer_id, one.producer_epoch, commit)
        answer = await node.send(request, max_version=_END_VERSION_MAX)
        what = f"transaction {name!r} was not {'committed' if commit else 'aborted'}"
        return {name: refusal(answer.error_code, what) if answer.error_code else None}

    return split(await cluster.call(timeout_s).at_coordinators(wanted, ask, of=TRANSACTION, chunk=1))


async def find_hanging_transactions(
    cluster: Cluster,
    partitions: Iterable[str | Partition],
    *,
    older_than_ms: int = 900_000,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> Results[NamedPartition, tuple[HangingTransaction, ...]]:
    """Find transactions that are open in partitions and that no coordinator will ever end.

    Args:
        partitions: to look into; a topic's name stands for all its partitions.
        older_than_ms: only those whose producer has written nothing for that long. The default is the longest
            transaction that brokers allow by default (``transaction.max.timeout.ms``).
        timeout_s: seconds for the whole call.

    Returns:
        For each partition its hanging transactions. Of one whose leader does not tell, the error.

    Raises:
        Kip848Error: no broker answers, or a coordinator does not: its transactions cannot be told from hanging ones.
    """
    call = cluster.call(timeout_s)
    several = list(partitions)
    chosen = {named(one) for one in several if not isinstance(one, str)}
    topics = {one for one in several if isinstance(one, str)}
    for topic in (await call.metadata(topics)).topics if topics else ():
        check(topic.error_code, f"topic {topic.name!r}")
        chosen |= {NamedPartition(topic.name or "", one.partition_index) for one in topic.partitions}
    since_ms = time.time_ns() // 1_000_000 - older_than_ms
    opened = split(await call.at_leaders(chosen, _open_in))
    old = {
        partition: tuple(one for one in several if one.last_record_ms < since_ms)
        for partition, several in opened.values.items()
    }
    known = await _known(call, {one.producer_id for several in old.values() for one in several})
    hanging = {
        partition: tuple(
            one
            for one in several
            if not any(
                (known_one.producer_id, known_one.producer_epoch) == (one.producer_id, one.producer_epoch)
                and partition in known_one.partitions
                for known_one in known
            )
        )
        for partition, several in old.items()
    }
    return Results(hanging, opened.errors)


async def _open_in(
    node: AskedBroker, partitions: Sequence[NamedPartition]
) -> Mapping[NamedPartition, tuple[HangingTransaction, ...] | Kip848Error]:
    """The transactions that are open in partitions, whether they hang or not."""
    topics = tuple(
        DescribeProducersTopic(name=name, partition_indexes=tuple(one.partition for one in group))
        for name, group in by_topic(partitions).items()
    )
    found: dict[NamedPartition, tuple[HangingTransaction, ...] | Kip848Error] = {}
    for topic in (await node.send(DescribeProducersRequest(topics=topics))).topics:
        for one in topic.partitions:
            partition = NamedPartition(topic.name, one.partition_index)
            found[partition] = tuple(
                HangingTransaction(
                    partition=partition,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    first_offset=producer.current_txn_start_offset,
                    last_record_ms=producer.last_timestamp,
                )
                for producer in one.active_producers
                if producer.current_txn_start_offset >= 0
            )
            if one.error_code:
                found[partition] = refusal(one.error_code, f"producers of {partition}")
    return found


async def _known(call: AdminCall, producer_ids: set[int]) -> list[TransactionDescription]:
    """The transactions of these producers that their coordinators will end."""
    if not producer_ids:
        return []

    async def ask(node: AskedBroker) -> list[str]:
        answer = await node.send(ListTransactionsRequest(producer_id_filters=tuple(sorted(producer_ids))))
        check(answer.error_code, "transactions of a node")
        return [one.transactional_id for one in answer.transaction_states]

    listed = split(await call.everywhere(ask))
    listed.raise_errors()
    names = [name for several in listed.values.values() for name in several]
    described = split(await call.at_coordinators(names, describe_at, of=TRANSACTION))
    described.raise_errors()
    return [one for one in described.values.values() if one.state in _UNENDED]


async def abort_hanging_transaction(
    cluster: Cluster, transaction: HangingTransaction, *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> None:
    """Write an abort marker into the partition of *transaction*. Needs ALTER on the cluster.

    Args:
        timeout_s: seconds for the whole call.

    Raises:
        BrokerError: it is not allowed, or the producer has a later epoch by now.
        Kip848Error: no broker answers.
    """
    partition = transaction.partition
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=partition.topic, partition_indexes=(partition.partition,)),),
        coordinator_epoch=max(0, transaction.coordinator_epoch),
    )

    async def ask(node: AskedBroker, _: Sequence[NamedPartition]) -> Mapping[NamedPartition, BrokerError | None]:
        answer = await node.send(WriteTxnMarkersRequest(markers=(marker,)))
        code = answer.markers[0].topics[0].partitions[0].error_code
        return {partition: refusal(code, f"the transaction in {partition} was not aborted") if code else None}

    split(await cluster.call(timeout_s).at_leaders([partition], ask)).raise_errors()
