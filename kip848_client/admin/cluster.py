"""Sends each question to the broker that can answer it, in as few requests as possible, and again after what may pass.

A question about thousands of groups or partitions is split by coordinator or leader; these answer side by side. If a
broker is gone, or is no longer the right one, the request is sent to the next one until the time of the call is over.
Everything here runs in one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

import anyio.abc

from kip848_client.common.clock import SystemClock
from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.common.model import BrokerNode, NamedPartition
from kip848_client.config import ConsumerConfig
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    Kip848Error,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedByBrokerError,
    error_for_code,
)
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.old_layouts import heard, spoken
from kip848_client.network.request_sender import BrokerConnection, RequestSender
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kip848_client.wire.schema import Request, Response

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
ResponseT = TypeVar("ResponseT", bound=Response)

GROUP: Final = 0
TRANSACTION: Final = 1
"""The kinds of keys that FindCoordinator looks up."""

TIMEOUT_S_DEFAULT: Final = 30.0
_PAUSE_S: Final = 0.1
_ATTEMPT_MS: Final = 10_000
_BRIEF: Final = 10
"""Attempts, with pauses in between."""
_KEYS_OF_ONE_LOOKUP: Final = 1_000
_SEVERAL_KEYS: Final = 4
"""First version of FindCoordinator that takes several keys."""

_PASSING: Final = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "this user needs DESCRIBE on the group, DELETE to delete it, READ to reset its offsets"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user needs DESCRIBE on the topic, READ to read it",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "this user needs DESCRIBE on the transactional id, WRITE to end its transaction"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "see kip848 groups list",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
}
"""Advice for a code that a broker answers."""

Ask: TypeAlias = "Callable[[AskedBroker, Sequence[KeyT]], Awaitable[Mapping[KeyT, ValueT | Kip848Error]]]"
"""Asks one broker about some keys."""
Locate: TypeAlias = "Callable[[Sequence[KeyT]], Awaitable[Mapping[KeyT, int | Kip848Error]]]"
"""Which node to ask about each key."""


class Cluster:
    """The connections of one administrator, made when they are needed.

    Args:
        config: bootstrap.servers and security.
        opener: opens connections with that security.
        tasks: where logins are renewed.
        await_broker: wait for the first broker for as long as a call may take, instead of failing at once.
    """

    def __init__(
        self, config: ConsumerConfig, opener: ConnectionOpener, tasks: anyio.abc.TaskGroup, *, await_broker: bool
    ) -> None:
        self.config: Final = config
        self.sender: Final = RequestSender(
            bootstrap=[(server.host, server.port) for server in config.bootstrap_servers],
            open_connection=opener,
            tasks=tasks,
            clock=SystemClock(),
            rng=random.Random(random.SystemRandom().random()),
            backoff_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
            setup_timeout_ms=config.connection_setup_timeout_ms,
            rebootstraps=config.rebootstraps,
        )
        self.patient = await_broker
        """Whether a cluster of which no broker can be reached is asked again."""
        self._nodes: dict[int, BrokerNode] = {}

    def learn(self, nodes: Iterable[BrokerNode], *, all_of_them: bool = False) -> None:
        """Remember the addresses of nodes; without the others, if these are *all_of_them*."""
        known = {} if all_of_them else self._nodes
        self._nodes = {**known, **{node.node_id: node for node in nodes}}
        self.sender.learn_nodes(self._nodes.values())

    def call(self, timeout_s: float) -> AdminCall:
        """Begin a call that may take *timeout_s*.

        Raises:
            ConfigError: it is not above 0.
        """
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s={timeout_s!r}: seconds above 0")
        return AdminCall(self, timeout_s)


class AskedBroker:
    """One broker, in one call.

    Args:
        once: a request is sent only once, and may take all the time that is left.
    """

    def __init__(self, call: AdminCall, connection: BrokerConnection, *, once: bool = False) -> None:
        self._call = call
        self._connection = connection
        self._once = once

    def highest(self, api_key: ApiKey) -> int:
        """The highest version of *api_key* that it serves; -1 if it does not serve it."""
        return self._connection.api_versions.get(api_key, (-1, -1))[1]

    async def send(self, request: Request[ResponseT], *, max_version: int | None = None) -> ResponseT:
        """Send, in the layout that the broker reads, and wait for the answer in today's layout.

        Raises:
            UnsupportedByBrokerError: it does not serve this API.
            Kip848Error: no answer.
        """
        api_key = request.WIRE.api_key
        if api_key not in self._connection.api_versions:
            name = type(request).__name__.removesuffix("Request")
            raise UnsupportedByBrokerError(f"the broker does not serve {name} (API key {api_key}); a newer one may")
        general = cast("Request[Response]", request)
        sent = spoken(general, self._connection.api_versions)
        timeout_ms = self._call.left_ms if self._once else self._call.attempt_ms
        answer = await self._connection.send(sent, timeout_ms=timeout_ms, max_version=max_version)
        return cast("ResponseT", heard(sent, answer))


class AdminCall:
    """One call of an administrator: how much time is left, and where its questions go."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._began_s = time.monotonic()
        self._end_s = self._began_s + timeout_s

    @property
    def left_ms(self) -> int:
        """The remaining time, at least 1."""
        return max(1, int((self._end_s - time.monotonic()) * 1_000))

    @property
    def attempt_ms(self) -> int:
        """How long one attempt may take, so that a node which hangs leaves time for another."""
        return min(self.left_ms, self._cluster.config.request_timeout_ms, _ATTEMPT_MS)

    async def pause(self) -> bool:
        """Wait a moment before the next attempt; False if no time is left for one."""
        if time.monotonic() + _PAUSE_S >= self._end_s:
            return False
        await asyncio.sleep(_PAUSE_S)
        return True

    # --- any broker

    async def ask_any(
        self, request: Request[ResponseT], code_of: Callable[[ResponseT], int] | None = None
    ) -> ResponseT:
        """Ask whichever broker answers, again after a loss or a passing error.

        Args:
            code_of: the error code in the answer.

        Raises:
            ConnectionLostError, RequestTimeoutError: none answers.
            Kip848Error: it refuses.
        """
        while True:
            node = await self.any_node()
            try:
                answer = await node.send(request)
            except (ConnectionLostError, RequestTimeoutError) as error:
                if isinstance(error, AuthenticationError) or not await self.pause():
                    raise self._unreachable(error) from error
                continue
            code = 0 if code_of is None else code_of(answer)
            if code not in _PASSING or not await self.pause():
                return answer

    async def any_node(self) -> AskedBroker:
        """A broker that is connected.

        Raises:
            ConnectionLostError, RequestTimeoutError: there is none.
        """
        lost: ConnectionLostError | None = None
        while True:
            try:
                connection = await self._cluster.sender.any_broker(timeout_ms=self.left_ms)
            except (ConnectionLostError, RequestTimeoutError) as error:
                if isinstance(error, ConnectionLostError):
                    lost = error
                if isinstance(error, AuthenticationError) or not self._cluster.patient or not await self.pause():
                    told = lost or error  # the last attempt may have had no time
                    raise self._unreachable(told) from told
                continue
            self._cluster.patient = True
            return AskedBroker(self, connection)

    def _unreachable(self, error: ConnectionLostError | RequestTimeoutError) -> Kip848Error:
        servers = ",".join(map(str, self._cluster.config.bootstrap_servers))
        if isinstance(error, AuthenticationError):
            return error
        return type(error)(
            f"no broker answered in {time.monotonic() - self._began_s:.0f} s; bootstrap.servers is {servers}: {error}. "
            "Check that a broker listens there, that this machine can reach it, and that security.protocol is what it "
            "speaks"
        )

    # --- many brokers

    async def everywhere(self, ask: Callable[[AskedBroker], Awaitable[ValueT]]) -> dict[int, ValueT | Kip848Error]:
        """Ask every node of the cluster; node id -> answer.

        Raises:
            Kip848Error: no node answers at all.
        """

        async def one(node: AskedBroker, keys: Sequence[int]) -> Mapping[int, ValueT | Kip848Error]:
            return {key: await ask(node) for key in keys}

        async def itself(keys: Sequence[int]) -> Mapping[int, int | Kip848Error]:
            return {key: key for key in keys}

        metadata = await self.metadata(())
        answers = await self._route([broker.node_id for broker in metadata.brokers], itself, one, chunk=1)
        errors = [answer for answer in answers.values() if isinstance(answer, Kip848Error)]
        if errors and len(errors) == len(answers):
            raise errors[0]
        return answers

    async def at_coordinators(
        self, keys: Iterable[str], ask: Ask[str, ValueT], *, of: int = GROUP, chunk: int = 500, once: bool = False
    ) -> dict[str, ValueT | Kip848Error]:
        """Ask the coordinator of each group or transactional id.

        Args:
            of: `GROUP` or `TRANSACTION`.
            chunk: how many one request names at most.
            once: a request that got no answer is not sent again, because it may have been carried out.

        Raises:
            Kip848Error: no broker of the cluster answers.
        """

        async def locate(wanted: Sequence[str]) -> Mapping[str, int | Kip848Error]:
            return await self._coordinators(wanted, of)

        return await self._route(keys, locate, ask, chunk=chunk, once=once)

    async def at_leaders(
        self,
        partitions: Iterable[NamedPartition],
        ask: Ask[NamedPartition, ValueT],
        *,
        brief: bool = False,
    ) -> dict[NamedPartition, ValueT | Kip848Error]:
        """Ask the leader of each partition, of up to 5,000 at once; *ask* is as of `at_coordinators`.

        Args:
            brief: wait a second for a leader and no longer: an answer without some partitions is of use.
        """
        return await self._route(partitions, self._leaders, ask, chunk=5_000, rounds=_BRIEF if brief else None)

    async def metadata(self, topics: Collection[str] | None) -> MetadataResponse:
        """The nodes, and *topics*; all of them if None."""
        asked = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in sorted(topics))
        answer = await self.ask_any(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False), lambda response: response.error_code
        )
        check(answer.error_code, "metadata of the cluster")
        nodes = (BrokerNode(broker.node_id, broker.host, broker.port) for broker in answer.brokers)
        self._cluster.learn(nodes, all_of_them=True)
        return answer

    async def _route(
        self,
        keys: Iterable[KeyT],
        locate: Locate[KeyT],
        ask: Ask[KeyT, ValueT],
        *,
        chunk: int,
        once: bool = False,
        rounds: int | None = None,
    ) -> dict[KeyT, ValueT | Kip848Error]:
        answers: dict[KeyT, ValueT | Kip848Error] = {}
        waiting = list(dict.fromkeys(keys))
        for _ in itertools.count() if rounds is None else range(rounds):
            if not waiting:
                break
            try:
                places = await locate(waiting)
            except Kip848Error:
                if not answers:
                    raise
                break  # what is there is kept, with the error that made us look again
            by_node: dict[int, list[KeyT]] = {}
            for key in waiting:
                place = places[key]
                if isinstance(place, Kip848Error):
                    answers[key] = place
                else:
                    by_node.setdefault(place, []).append(key)
            asking = [self._ask_node(node_id, part, ask, chunk, once=once) for node_id, part in by_node.items()]
            unsure: set[KeyT] = set()
            for answered, unanswered in await asyncio.gather(*asking):
                answers |= answered
                unsure |= unanswered
            waiting = [key for key in waiting if _may_pass(answers[key]) and not (once and key in unsure)]
            if waiting and not await self.pause():
                break
        return answers

    async def _ask_node(
        self, node_id: int, keys: Sequence[KeyT], ask: Ask[KeyT, ValueT], chunk: int, *, once: bool
    ) -> tuple[dict[KeyT, ValueT | Kip848Error], set[KeyT]]:
        """The answers of one node, and the keys whose request was sent and not answered."""
        answers: dict[KeyT, ValueT | Kip848Error] = {}
        unsure: set[KeyT] = set()
        for part in _chunks(keys, chunk):
            try:
                connection = await self._cluster.sender.node(node_id, timeout_ms=self.attempt_ms)
            except Kip848Error as error:
                answers |= dict.fromkeys(part, error)
                continue
            try:
                answered = await ask(AskedBroker(self, connection, once=once), part)
            except Kip848Error as error:
                answered = dict.fromkeys(part, error)
                unsure |= set(part)
            for key in part:
                answers[key] = answered[key] if key in answered else ProtocolError(f"no answer about {key} came")
        return answers, unsure

    async def _coordinators(self, keys: Sequence[str], key_type: int) -> Mapping[str, int | Kip848Error]:
        found: dict[str, int | Kip848Error] = {}
        several = (await self.any_node()).highest(ApiKey.FIND_COORDINATOR) >= _SEVERAL_KEYS
        for part in _chunks(keys, _KEYS_OF_ONE_LOOKUP if several else 1):
            request = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=tuple(part))
            answer = await self.ask_any(request)
            for key in part:
                one = answer.of(key)
                if one.error_code or not one.host:
                    code = one.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE
                    found[key] = refusal(code, f"coordinator of {key!r}")
                else:
                    found[key] = one.node_id
                    self._cluster.learn([BrokerNode(one.node_id, one.host, one.port)])
        return found

    async def _leaders(self, partitions: Sequence[NamedPartition]) -> Mapping[NamedPartition, int | Kip848Error]:
        metadata = await self.metadata({partition.topic for partition in partitions})
        known: dict[NamedPartition, int] = {}
        codes: dict[str, int] = {}
        for topic in metadata.topics:
            codes[topic.name or ""] = topic.error_code
            for one in topic.partitions:
                known[NamedPartition(topic.name or "", one.partition_index)] = one.leader_id
        nodes = {broker.node_id for broker in metadata.brokers}
        found: dict[NamedPartition, int | Kip848Error] = {}
        for partition in partitions:
            leader = known.get(partition)
            if leader is None:
                code = codes.get(partition.topic, 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[partition] = refusal(code, f"there is no {partition}, or it may not be seen")
            elif leader not in nodes:
                found[partition] = refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
            else:
                found[partition] = leader
        return found


def refusal(code: int, what: str, *, advice: str | None = None) -> BrokerError:
    """The error for a code that a broker answered, with advice."""
    advice = advice or _ADVICE.get(code)
    return error_for_code(code, f"{what.rstrip('.')}; {advice}" if advice else what)


def check(code: int, what: str) -> None:
    """Raise if a broker answered with an error code.

    Raises:
        BrokerError: it did.
    """
    if code:
        raise refusal(code, what)


def by_topic(partitions: Iterable[NamedPartition]) -> dict[str, list[NamedPartition]]:
    """*partitions* by the names of their topics, as requests have them."""
    return {
        topic: list(group) for topic, group in itertools.groupby(sorted(partitions), lambda partition: partition.topic)
    }


def _chunks(keys: Sequence[KeyT], size: int) -> Iterator[Sequence[KeyT]]:
    return (keys[start : start + size] for start in range(0, len(keys), size))


def _may_pass(answer: object) -> bool:
    if isinstance(answer, BrokerError):
        return answer.code in _PASSING
    return isinstance(answer, (ConnectionLostError, RequestTimeoutError)) and not isinstance(
        answer, AuthenticationError
    )
