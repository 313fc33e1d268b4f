"""The requests of simulated workers: heartbeats of connect groups, and the conversations of classic groups.

`ClassicExchange` does on the virtual clock what `worker.classic.classic_talk` does with sockets; the production
`ClassicRound` decides what is said. `TokenService` stands for the coordinator of transactions.

Does not own: the worker's core and its units (`simulated_workers`), delays and faults (`network`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from kip848_client.assignors.units.cooperative import CooperativeAssignor
from kip848_client.errors import ConnectionLostError, ErrorCode, Kip848Error
from kip848_client.testing.simulation.virtual.cluster import ANY_NODE, VirtualCluster
from kip848_client.testing.simulation.virtual.environment import GROUP
from kip848_client.testing.simulation.virtual.network import AnyRequest, Network, Reply, SimulatedConnection
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import ConnectGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Response
from kip848_client.worker.classic.classic_messages import PROTOCOL_TYPE, Claim
from kip848_client.worker.classic.classic_round import (
    ClassicRound,
    Compute,
    Conversation,
    ToGroup,
    ToTransaction,
    ToWait,
)
from kip848_client.worker.events import Answered, Confirmed, NotAnswered, Send, WorkerEvent
from kip848_client.worker.refusals import may_pass

_FIND_VERSION: Final = 4
_VERSIONS: Final[dict[int, int]] = {
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
}
_ALIVE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
_EPOCH_MAX: Final = 32_766
_TOKEN_MS: Final = 1_500
"""How long a slow coordinator of transactions takes, at most."""
_REFUSED: Final = 0.05
"""Part of the requests for a token that the coordinator of transactions refuses for now."""
_PASSING: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class TokenService:
    """Transactional ids and their epochs, as one broker keeps them: they outlive groups and coordinators of groups.

    In some runs the epochs begin shortly before their roll-over, after which the id has a new producer id. In some the
    coordinator is slow, so that a worker needs more than a session for its tokens.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self._rng: Final = scheduler.random("tokens")
        self._first_epoch: Final = self._rng.choice((0, 0, 0, _EPOCH_MAX - 2))
        self.delay_ms: Final = self._rng.choice((1, 1, 1, _TOKEN_MS))
        """How long an answer takes at most."""
        self._producer_ids = 0
        self._last: Final[dict[str, tuple[int, int]]] = {}
        self.faulty = True

    def answer(self, request: AnyRequest, reply: Reply) -> None:
        """Give the id its next epoch."""
        assert isinstance(request, InitProducerIdRequest)
        assert request.transactional_id is not None
        if self.faulty and self._rng.random() < _REFUSED:
            reply(InitProducerIdResponse(error_code=self._rng.choice(_PASSING)))
            return
        producer_id, epoch = self._last.get(request.transactional_id, (-1, _EPOCH_MAX))
        if epoch >= _EPOCH_MAX:
            first = self._first_epoch if producer_id < 0 else 0
            producer_id, epoch = self._producer_ids, first
            self._producer_ids += 1
        else:
            epoch += 1
        self._last[request.transactional_id] = producer_id, epoch
        answer = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        self._scheduler.call_in(self._rng.randrange(self.delay_ms), lambda: reply(answer))


class Requester(Protocol):
    """A worker's process, as its requests see it.

    Attributes:
        rate: of its clock.
        link: to the coordinator of the group.
        second_link: to it, too, while a JoinGroup waits on the first.
        token_link: to the coordinator of transactions.
        dead: the process has ended.
    """

    name: str
    network: Network
    scheduler: Scheduler
    rate: float
    heartbeat_interval_ms: int
    assignor: CooperativeAssignor
    classic: ClassicRound | None
    link: SimulatedConnection | None
    second_link: SimulatedConnection | None
    token_link: SimulatedConnection | None
    dead: bool

    @property
    def now_ms(self) -> int: ...  # noqa: D102

    def step(self, event: WorkerEvent) -> None: ...  # noqa: D102

    def awake(self, action: Callable[[], None]) -> None: ...  # noqa: D102

    def later(self, delay_ms: int, action: Callable[[], None]) -> Timer: ...  # noqa: D102

    def draw(self, limit: int) -> int: ...  # noqa: D102


class WorkerExchange:
    """One heartbeat of a worker's core, or one request of a plan. Finds the coordinator; ends exactly once."""

    def __init__(self, worker: Requester, send: Send) -> None:
        self._worker: Final = worker
        self._send: Final = send
        self._network: Final = worker.network
        self._over = False

    def begin(self) -> None:
        """Send it; the worker hears of its end in time."""
        worker = self._worker
        self._timer: Timer = worker.later(self._send.timeout_ms, lambda: self._lost("time-out", "no answer in time"))
        link = worker.link
        if link is not None and (self._send.anew or not link.open):
            self._network.close(link, "the coordinator may be another one")
            link = worker.link = None
        if link is not None:
            self._connected(link)
        else:
            self._connect(ANY_NODE, self._find)

    def _connected(self, link: SimulatedConnection) -> None:
        self._write(link, self._send.request, 0, self._answered)

    def _find(self, connection: SimulatedConnection) -> None:
        request = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=(GROUP,))

        def found(response: Response) -> None:
            assert isinstance(response, FindCoordinatorResponse)
            self._network.close(connection, "it said where the coordinator is")
            if not response.coordinators or response.coordinators[0].error_code:
                self._lost("error", "no coordinator")
            elif not self._over:
                self._connect(response.coordinators[0].node_id, self._open)

        self._write(connection, request, _FIND_VERSION, found)

    def _open(self, connection: SimulatedConnection) -> None:
        if self._worker.link is None and not self._worker.dead:
            self._worker.link = connection
        if not self._over:
            self._connected(connection)

    def _connect(
        self,
        node_id: int,
        opened: Callable[[SimulatedConnection], None],
        *,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        awake = self._worker.awake

        def lost(kind: object, message: str) -> None:
            self._lost(kind, message) if failed is None else failed(message)

        self._network.connect(
            self._worker.name,
            node_id,
            on_open=lambda connection: awake(lambda: opened(connection)),
            on_failure=lambda kind, message: awake(lambda: lost(kind, message)),
        )

    def _write(
        self,
        connection: SimulatedConnection,
        request: AnyRequest,
        version: int,
        answered: Callable[[Response], None],
        *,
        timeout_ms: int | None = None,
        failed: Callable[[str], None] | None = None,
    ) -> None:
        worker = self._worker

        def lost(kind: object, message: str) -> None:
            self._lost(kind, message) if failed is None else failed(message)

        self._network.send(
            connection,
            request,
            api_version=version,
            timeout_ms=max(int((timeout_ms or self._send.timeout_ms) / worker.rate), 1),
            on_answer=lambda response: worker.awake(lambda: answered(response)),
            on_failure=lambda kind, message: worker.awake(lambda: lost(kind, message)),
        )

    def _answered(self, response: Response) -> None:
        if not self._over:
            self._over = True
            self._worker.step(Answered(self._send.request_id, response))  # type: ignore[arg-type]  # of its request

    def _lost(self, kind: object, message: str) -> None:
        """A request got no answer."""
        del kind
        if not self._over:
            self._over = True
            link, self._worker.link = self._worker.link, None
            if link is not None:
                self._network.close(link, "its request failed")
            self._failed(ConnectionLostError(message))

    def _failed(self, error: Kip848Error) -> None:
        self._over = True
        self._worker.step(NotAnswered(self._send.request_id, error, final=not may_pass(error)))


class ClassicExchange(WorkerExchange):
    """One heartbeat of the core, as a conversation of the classic protocol."""

    _talk: Conversation

    def _connected(self, link: SimulatedConnection) -> None:
        worker, beat = self._worker, self._send.request
        assert isinstance(beat, ConnectGroupHeartbeatRequest)
        assert worker.classic is not None
        self._timer.cancel()  # a round may take as long as the slowest worker
        self._link = link
        self._waits_for: ToWait | None = None
        self._overtaken: list[ToWait] = []
        self._talk = worker.classic.converse(
            beat,
            now_ms=worker.now_ms,
            wall_ms=worker.scheduler.wall_ms,
            leave_version=_VERSIONS[ApiKey.LEAVE_GROUP],
        )
        self._stay_alive()
        self._go_on(None)

    def _go_on(self, answer: Any) -> None:
        worker = self._worker
        if self._over or worker.dead:
            return
        self._waits_for = None
        try:
            step = self._talk.send(answer)
        except StopIteration as end:
            self._answered(end.value)
            return
        except Kip848Error as error:
            self._failed(error)
            return
        match step:
            case ToGroup(request):
                timeout_ms = None
                if isinstance(request, ToWait):
                    assert worker.classic is not None
                    self._waits_for, timeout_ms = request, worker.classic.wait_ms(request)
                version, sent_ms = _VERSIONS[request.WIRE.api_key], worker.now_ms

                def answered(response: Any) -> None:
                    if isinstance(request, SyncGroupRequest) and not response.error_code:
                        worker.step(Confirmed(sent_ms, settled=True))
                    self._go_on(response)

                self._write(self._link, request, version, answered, timeout_ms=timeout_ms)
            case ToTransaction(request):
                self._to_transaction(request)
            case Compute(_, group):
                plan = worker.assignor.assign(group)
                worker.later(worker.draw(200), lambda: self._go_on(plan))

    def _to_transaction(self, request: InitProducerIdRequest) -> None:
        link = self._worker.token_link

        def failed(message: str) -> None:
            self._go_on(ConnectionLostError(message))

        if link is not None and link.open:
            self._write(link, request, 5, self._go_on, failed=failed)
            return

        def opened(connection: SimulatedConnection) -> None:
            self._worker.token_link = connection
            self._write(connection, request, 5, self._go_on, failed=failed)

        self._connect(ANY_NODE, opened, failed=failed)

    def _stay_alive(self) -> None:
        if not self._over and not self._worker.dead:
            self._worker.later(self._worker.heartbeat_interval_ms, self._beat)

    def _beat(self) -> None:
        worker = self._worker
        assert worker.classic is not None
        if self._over or worker.dead:
            return
        if worker.classic.keep_alive is None:
            self._stay_alive()
        elif worker.second_link is None or not worker.second_link.open:
            self._connect(self._link.node_id, self._open_second)
        else:
            self._say(worker.second_link)

    def _open_second(self, connection: SimulatedConnection) -> None:
        self._worker.second_link = connection
        if not self._over:
            self._say(connection)

    def _say(self, connection: SimulatedConnection) -> None:
        worker, waits_for = self._worker, self._waits_for
        classic, sent_ms = worker.classic, worker.now_ms
        assert classic is not None
        request = classic.keep_alive
        if request is None:
            self._stay_alive()
            return

        def answered(response: Any) -> None:
            if self._over or worker.dead:
                return
            if response.error_code in _ALIVE:
                worker.step(Confirmed(sent_ms, response.error_code == ErrorCode.NONE))
            if waits_for is not None and classic.is_overtaken(waits_for, response.error_code):
                if any(waits_for is one for one in self._overtaken):
                    self._network.close(self._link, "the coordinator does not keep the request waiting any more")
                    return
                self._overtaken.append(waits_for)
            self._stay_alive()

        def failed(kind: object, message: str) -> None:
            if not self._over:
                self._network.close(connection, message)
                self._network.close(self._link, message)

        self._network.send(
            connection,
            request,
            api_version=_VERSIONS[ApiKey.HEARTBEAT],
            timeout_ms=max(int(self._send.timeout_ms / worker.rate), 1),
            on_answer=lambda response: worker.awake(lambda: answered(response)),
            on_failure=lambda kind, message: worker.awake(lambda: failed(kind, message)),
        )


def drain_from_outside(worker_id: str, cluster: VirtualCluster, scheduler: Scheduler, *, client_side: bool) -> None:
    """An administrator joins for one round to drain a worker, as `kip848 workers drain` does.

    It gives up when the coordinator is away.
    """
    claim = msgspec.msgpack.encode(Claim("administrator", drain=[worker_id]))
    protocols = (JoinGroupRequestProtocol("cooperative" if client_side else "uniform", claim),)

    def ask(request: AnyRequest, api_key: ApiKey, reply: Reply) -> None:
        def arrives() -> None:
            if cluster.host.alive:
                cluster.host.serve(request, api_version=_VERSIONS[api_key], client_id="admin", reply=reply)

        scheduler.call_in(1, arrives)

    def join(member_id: str) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=cluster.scenario.session_timeout_ms,
            rebalance_timeout_ms=cluster.scenario.max_poll_interval_ms,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
        )
        ask(request, ApiKey.JOIN_GROUP, joined)

    def joined(response: Response) -> None:
        assert isinstance(response, JoinGroupResponse)
        member_id = response.member_id
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            join(member_id)
        elif not response.error_code and response.leader == member_id:
            leave(member_id)
        elif not response.error_code:
            request = SyncGroupRequest(
                group_id=GROUP,
                generation_id=response.generation_id,
                member_id=member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=response.protocol_name,
            )
            ask(request, ApiKey.SYNC_GROUP, partial(synced, member_id))

    def synced(member_id: str, response: Response) -> None:
        assert isinstance(response, SyncGroupResponse)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            join(member_id)
        else:
            leave(member_id)

    def leave(member_id: str) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=(MemberIdentity(member_id),))
        ask(request, ApiKey.LEAVE_GROUP, lambda _: None)

    join("")
