"""Ends transactions that another process has opened: their producers write and go, and one decides for all of them.

A producer's id and epoch are all that EndTxn asks for; DescribeTransactions tells them of a transactional id. That a
transaction may be ended from elsewhere is what the sinks of Flink rest on, too (KIP-939 is to make it official).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import msgspec

from kip848_client.client.control.connection_opener import ConnectionOpener
from kip848_client.config import ConfigValue, ConsumerConfig, parse_consumer_config
from kip848_client.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
    RequestTimeoutError,
    error_for_code,
)
from kip848_client.wire.connection import Connection, open_connection
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.describe_transactions import DescribeTransactionsRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.list_transactions import ListTransactionsRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

AnswerT = TypeVar("AnswerT")

_GROUP: Final = 0
_TRANSACTION: Final = 1
_PAUSE_S: Final = 0.1
_CLIENT_ID: Final = "kip848-transactions"

_END_VERSION_MAX: Final = 4
"""From 5 on an end makes the epoch of the producer grow (KIP-890), so that it could not be repeated."""

_OFFSETS_BY_NAME: Final = 9
"""The last version of OffsetFetch that names topics."""

_ONGOING: Final = "Ongoing"

_PASSING: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that was written and not ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionEnds:
    """Asks the coordinators of transactions; opens connections for each call.

    Args:
        conf: bootstrap.servers and security, as for a consumer.
        timeout_ms: of one call, with everything that is tried again.

    Raises:
        ConfigError: a key or value is wrong.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, timeout_ms: int) -> None:
        self._config = parse_consumer_config({"group.id": _CLIENT_ID, "client.id": _CLIENT_ID, **conf})
        self._timeout_ms: Final = timeout_ms

    def find(self, transactional_id: str) -> OpenTransaction:
        """The open transaction of *transactional_id*.

        Raises:
            Kip848Error: there is none, it is not allowed, or no answer.
        """

        async def ask(cluster: _Cluster) -> OpenTransaction:
            connection = await cluster.coordinator(transactional_id, _TRANSACTION)
            answer = await connection.send(
                DescribeTransactionsRequest(transactional_ids=(transactional_id,)), timeout_ms=self._timeout_ms
            )
            (found,) = answer.transaction_states
            _check(found.error_code, f"transaction {transactional_id!r} cannot be described")
            if found.transaction_state != _ONGOING:
                raise Kip848Error(
                    f"transaction {transactional_id!r} is {found.transaction_state}, although it was just written: "
                    "another producer has the same transactional id"
                )
            return OpenTransaction(transactional_id, found.producer_id, found.producer_epoch)

        return self._run(ask)

    def ongoing(self, transactional_ids: re.Pattern[str]) -> tuple[list[OpenTransaction], list[str]]:
        """The open transactions whose ids match, and the errors of nodes that could not be asked.

        Raises:
            Kip848Error: no node of the cluster answers.
        """

        async def ask(cluster: _Cluster) -> tuple[list[OpenTransaction], list[str]]:
            found: list[OpenTransaction] = []
            silent: list[str] = []
            for address in await cluster.nodes():
                try:
                    connection = await cluster.connection(address)
                    found += await _ongoing_at(connection, transactional_ids, timeout_ms=self._timeout_ms)
                except Kip848Error as error:
                    silent.append(str(error))
            return found, silent

        return self._run(ask)

    def end(self, transactions: Iterable[OpenTransaction], *, commit: bool) -> None:
        """Commit or abort *transactions*; does nothing for one that has ended in that way already.

        Raises:
            FencedError: another producer took a transactional id, so that its transaction was aborted.
            Kip848Error: refused, or no answer.
        """
        what = "committed" if commit else "aborted"

        async def ask(cluster: _Cluster) -> None:
            for each in transactions:
                request = EndTxnRequest(each.transactional_id, each.producer_id, each.producer_epoch, commit)
                connection = await cluster.coordinator(each.transactional_id, _TRANSACTION)
                answer = await connection.send(request, timeout_ms=self._timeout_ms, max_version=_END_VERSION_MAX)
                _check(answer.error_code, f"transaction {each.transactional_id!r} was not {what}")

        self._run(ask)

    def notes(self, group_id: str) -> list[str]:
        """The metadata of all offsets that are committed in a group.

        Raises:
            Kip848Error: refused, or no answer.
        """

        async def ask(cluster: _Cluster) -> list[str]:
            connection = await cluster.coordinator(group_id, _GROUP)
            request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),))
            answer = await connection.send(request, timeout_ms=self._timeout_ms, max_version=_OFFSETS_BY_NAME)
            (group,) = answer.groups
            _check(group.error_code, f"offsets of group {group_id!r}")
            return [each.metadata or "" for topic in group.topics for each in topic.partitions]

        return self._run(ask)

    def _run(self, ask: Callable[[_Cluster], Awaitable[AnswerT]]) -> AnswerT:
        """Ask, and again after what may pass: a coordinator that moves, a transaction that is being ended."""
        deadline_s = time.monotonic() + self._timeout_ms / 1_000

        async def once() -> AnswerT:
            async with _open(self._config, timeout_ms=self._timeout_ms) as cluster:
                return await ask(cluster)

        while True:
            try:
                return asyncio.run(once())
            except Kip848Error as error:
                code = getattr(error, "code", None)
                passing = isinstance(error, (ConnectionLostError, RequestTimeoutError)) or code in _PASSING
                if not passing or isinstance(error, AuthenticationError) or time.monotonic() >= deadline_s:
                    raise
            time.sleep(_PAUSE_S)  # before the next try, on the thread of the caller, who waits for the outcome


class _Cluster:
    def __init__(self, stack: AsyncExitStack, opener: ConnectionOpener, bootstrap: Connection, timeout_ms: int) -> None:
        self._stack = stack
        self._opener = opener
        self._bootstrap = bootstrap
        self._timeout_ms = timeout_ms
        self._connections: dict[tuple[str, int], Connection] = {}

    async def coordinator(self, key: str, key_type: int) -> Connection:
        many = self._bootstrap.version_for(FindCoordinatorRequest) >= 4
        request = FindCoordinatorRequest(
            key="" if many else key, key_type=key_type, coordinator_keys=(key,) if many else ()
        )
        answer = await self._bootstrap.send(request, timeout_ms=self._timeout_ms)
        found = answer.coordinators[0] if many else answer
        _check(found.error_code, f"coordinator of {key!r}")
        return await self.connection((found.host, found.port))

    async def nodes(self) -> list[tuple[str, int]]:
        answer = await self._bootstrap.send(DescribeClusterRequest(), timeout_ms=self._timeout_ms)
        _check(answer.error_code, "nodes of the cluster")
        return [(broker.host, broker.port) for broker in answer.brokers]

    async def connection(self, address: tuple[str, int]) -> Connection:
        if address not in self._connections:
            self._connections[address] = await _connect(self._stack, self._opener, *address, self._timeout_ms)
        return self._connections[address]


async def _ongoing_at(
    connection: Connection, transactional_ids: re.Pattern[str], *, timeout_ms: int
) -> list[OpenTransaction]:
    """The open transactions of one coordinator whose ids match."""
    listed = await connection.send(ListTransactionsRequest(state_filters=(_ONGOING,)), timeout_ms=timeout_ms)
    _check(listed.error_code, f"transactions of {connection.peer}")
    names = tuple(
        each.transactional_id
        for each in listed.transaction_states
        if transactional_ids.fullmatch(each.transactional_id)
    )
    if not names:
        return []
    described = await connection.send(DescribeTransactionsRequest(transactional_ids=names), timeout_ms=timeout_ms)
    return [
        OpenTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in described.transaction_states
        if each.transaction_state == _ONGOING
    ]


@asynccontextmanager
async def _open(config: ConsumerConfig, *, timeout_ms: int) -> AsyncIterator[_Cluster]:
    opener = ConnectionOpener(config)
    async with AsyncExitStack() as stack:
        failures: list[str] = []
        for server in config.bootstrap_servers:
            try:
                bootstrap = await _connect(stack, opener, server.host, server.port, timeout_ms)
            except AuthenticationError:
                raise
            except Kip848Error as error:
                failures.append(str(error))
                continue
            yield _Cluster(stack, opener, bootstrap, timeout_ms)
            return
        raise ConnectionLostError("; ".join(failures))


async def _connect(
    stack: AsyncExitStack, opener: ConnectionOpener, host: str, port: int, timeout_ms: int
) -> Connection:
    opener.check_address(host, port)
    opened = open_connection(
        host,
        port,
        client_id=_CLIENT_ID,
        ssl_context=opener.ssl_context,
        sasl_client=opener.sasl_client,
        connect_timeout_ms=timeout_ms,
    )
    return await stack.enter_async_context(opened)


def _check(code: int, what: str) -> None:
    if code:
        raise error_for_code(code, what)
