"""The connections of a worker on the classic protocol: performs the conversations of `classic_round`.

Two connections lead to the coordinator: a broker reads nothing from the one whose JoinGroup waits, and the worker must
prove meanwhile that it is alive; also while a plan is computed, and while tokens are taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import anyio
from msgspec.structs import replace

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan
from kip848_client.common.clock import Clock
from kip848_client.common.model import BrokerNode, Unit
from kip848_client.errors import ErrorCode, Kip848Error
from kip848_client.network.old_layouts import spoken
from kip848_client.network.request_sender import BrokerConnection, RequestSender
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.worker.classic.classic_messages import PROTOCOL_TYPE
from kip848_client.worker.classic.classic_round import ClassicRound, Compute, ToGroup, ToTransaction, ToWait
from kip848_client.worker.refusals import group_users, refusal

_ALIVE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


async def find_coordinator(sender: RequestSender, key: str, *, key_type: int, timeout_ms: int) -> Coordinator:
    """The coordinator of a group (type 0) or a transactional id (type 1).

    Raises:
        BrokerError: there is none now, or this user may not know it.
    """
    connection = await sender.any_broker(timeout_ms=timeout_ms)
    request = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=(key,))
    response: Any = await connection.send(spoken(request, connection.api_versions), timeout_ms=timeout_ms)
    found: Coordinator = response.of(key)
    if found.error_code:
        kind = "transactional id" if key_type else "group"
        raise refusal(found.error_code, f"FindCoordinator of {kind} {key!r}", elects=False)
    return found


class ClassicTalk:
    """Performs conversations, one at a time.

    Args:
        confirmed: called with the send time of each heartbeat and SyncGroup that the coordinator accepts during a
            conversation, and whether it said that no round waits for this worker.
        compute: runs a client-side assignor.
    """

    def __init__(
        self,
        round_: ClassicRound,
        sender: RequestSender,
        *,
        group_id: str,
        clock: Clock,
        interval_ms: int,
        confirmed: Callable[[int, bool], None],
        compute: Callable[[str, WorkerGroup], Awaitable[WorkerPlan | None]],
    ) -> None:
        self._round: Final = round_
        self._sender: Final = sender
        self._group_id: Final = group_id
        self._clock: Final = clock
        self._interval_ms: Final = interval_ms
        self._confirmed: Final = confirmed
        self._compute: Final = compute
        self._second: BrokerConnection | None = None
        self._others: Final[dict[BrokerNode, BrokerConnection]] = {}
        self._transactions: Final[dict[str, BrokerNode]] = {}
        """Transactional id -> its coordinator, when it last answered without an error."""
        self._waits_for: ToWait | None = None

    @property
    def without_token(self) -> frozenset[Unit]:
        """Units that were given to this worker, and wait for their token."""
        return self._round.without_token

    @property
    def token_error(self) -> Kip848Error | None:
        """Why they do."""
        return self._round.token_error

    @property
    def drains(self) -> bool:
        """Whether this worker gives its units to others, for good."""
        return self._round.draining

    def drain(self) -> None:
        """Give the units to others, from the next heartbeat on."""
        self._round.draining = True

    def give_up(self, units: Iterable[Unit]) -> None:
        """Have other workers run these units, from the next heartbeat on."""
        self._round.give_up(units)

    async def converse(
        self, beat: ConnectGroupHeartbeatRequest, connection: BrokerConnection, node: BrokerNode, *, timeout_ms: int
    ) -> Any:
        """The answer to the core's heartbeat.

        Raises:
            Kip848Error: a request got no answer; the next heartbeat goes on from there.
        """
        answer: Any = None
        failure: Kip848Error | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stay_alive, connection, node, timeout_ms)
            try:
                answer = await self._converse(beat, connection, timeout_ms)
            except Kip848Error as error:
                failure = error
            tasks.cancel_scope.cancel()
        self._waits_for = None
        if failure is not None:
            raise failure
        return answer

    async def _converse(self, beat: ConnectGroupHeartbeatRequest, connection: BrokerConnection, timeout_ms: int) -> Any:
        leave_version = connection.api_versions.get(ApiKey.LEAVE_GROUP, (0, 0))[1]
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        talk = self._round.converse(beat, now_ms=now_ms, wall_ms=wall_ms, leave_version=leave_version)
        answer: Any = None
        try:
            while True:
                step, self._waits_for = talk.send(answer), None
                match step:
                    case ToGroup(request):
                        wait_ms = timeout_ms
                        if isinstance(request, ToWait):
                            self._waits_for, wait_ms = request, self._round.wait_ms(request)
                        sent_ms = self._clock.now_ms()
                        answer = await connection.send(request, timeout_ms=wait_ms)
                        if isinstance(request, SyncGroupRequest) and not answer.error_code:
                            self._confirmed(sent_ms, True)  # the session began anew, and a round begins only after it
                    case ToTransaction(request):
                        try:
                            answer = await self._to_transaction(request, timeout_ms=timeout_ms)
                        except Kip848Error as error:  # the units that run, and those with a token, don't wait for it
                            answer = error
                    case Compute(name, group):
                        answer = await self._compute(name, group)
        except StopIteration as end:
            return await self._explained(end.value, connection, timeout_ms)
        finally:
            talk.close()

    async def _explained(
        self, response: ConnectGroupHeartbeatResponse, connection: BrokerConnection, timeout_ms: int
    ) -> ConnectGroupHeartbeatResponse:
        """*response*; if other members than workers use the group, with a text that says who."""
        if response.error_code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return response
        group: DescribedGroup | None = None
        with contextlib.suppress(Kip848Error):  # it says less then
            answer = await connection.send(DescribeGroupsRequest(groups=(self._group_id,)), timeout_ms=timeout_ms)
            group = answer.groups[0] if answer.groups else None
        if group is not None and group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            group = None
        users = group_users(group, self._group_id, protocol_type=PROTOCOL_TYPE)
        return replace(response, error_message=f"{response.error_message}: {users}")

    async def _stay_alive(self, connection: BrokerConnection, node: BrokerNode, timeout_ms: int) -> None:
        """Send heartbeats while a conversation lasts; the end of the coordinator ends it, too."""
        overtaken: list[ToWait] = []
        while True:
            await anyio.sleep(self._interval_ms / 1_000)
            beat, waits_for = self._round.keep_alive, self._waits_for
            if beat is None:
                continue
            sent_ms = self._clock.now_ms()
            try:
                second = self._second
                if second is None or second.closed:
                    with anyio.CancelScope(shield=True):  # one that is opened must not be lost
                        second = self._second = await self._sender.open(node, timeout_ms=timeout_ms)
                assert second is not None, "opened, or an error was raised"
                answer = await second.send(beat, timeout_ms=timeout_ms)
            except Kip848Error:
                await self._close_second()
                await connection.aclose()
                return
            if answer.error_code in _ALIVE:
                self._confirmed(sent_ms, answer.error_code == ErrorCode.NONE)
            if waits_for is not None and self._round.is_overtaken(waits_for, answer.error_code):
                if any(waits_for is one for one in overtaken):  # the first one may have crossed the answer
                    await connection.aclose()
                    return
                overtaken.append(waits_for)

    async def _to_transaction(self, request: InitProducerIdRequest, *, timeout_ms: int) -> Any:
        name = request.transactional_id
        assert name is not None
        node = self._transactions.pop(name, None)
        if node is None:
            found = await find_coordinator(self._sender, name, key_type=1, timeout_ms=timeout_ms)
            node = BrokerNode(found.node_id, found.host, found.port)
        connection = self._others.get(node)
        if connection is None or connection.closed:
            connection = self._others[node] = await self._sender.open(node, timeout_ms=timeout_ms)
        answer: Any = await connection.send(request, timeout_ms=timeout_ms)
        if not answer.error_code:
            self._transactions[name] = node
        return answer

    async def _close_second(self) -> None:
        second, self._second = self._second, None
        if second is not None:
            await second.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._close_second()
        for connection in self._others.values():
            await connection.aclose()
        self._others.clear()
