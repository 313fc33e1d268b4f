"""One coordinator on one node: the production `GroupCoordinator`, driven as the embedded broker drives it.

Decide, append, replay, apply, then reply; an answer leaves when everything is durable that was appended before it. The
host may die before or after an append, be loading, or be deposed: then it goes on from its memory until it must write,
if everything in its memory is durable; if not, it never answers again.

Does not own: the log, and which node is the coordinator (`cluster`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kip848_client.coordinator import subscriptions
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.requests import ApiRequest, GroupRequest, TopicsChanged
from kip848_client.coordinator.result import CoordinatorResult, ResolveRegexes
from kip848_client.errors import ErrorCode
from kip848_client.faults.replies import ErrorPlacer
from kip848_client.simulation.network import AnyRequest, Reply
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.schema import Response

if TYPE_CHECKING:
    from kip848_client.simulation.cluster import Cluster


class Asked(NamedTuple):
    """A request that waits for the coordinator's answer."""

    request: AnyRequest
    api_version: int
    client_id: str
    reply: Reply


class CoordinatorHost:
    """A coordinator in one process.

    Args:
        coordinator: with nothing replayed yet.
        loading: True until `load` is called: then every request is refused.
    """

    def __init__(self, cluster: Cluster, world: World, node_id: int, coordinator: GroupCoordinator) -> None:
        self._cluster = cluster
        self._world = world
        self.node_id: Final = node_id
        self.coordinator: Final = coordinator
        self.loading = True
        self.alive = True
        self.deposed = False
        """Another one is the coordinator, and this one does not know."""
        self.ahead = False
        """It has appended what was not replicated when it was deposed: whatever it answers would wait for that."""
        self._rng = cluster.rng
        self._number = 0
        self._asked: dict[int, Asked] = {}
        self._unreplied: deque[tuple[int, int, Response]] = deque()
        """(records that must be durable first, request number, answer)."""
        self._timer_ms: int | None = None
        self.matching = 0
        """How many times patterns are being matched."""

    # ----------------------------------------------------------------------------------------------------- requests

    def serve(self, request: AnyRequest, *, api_version: int, client_id: str, reply: Reply) -> None:
        """Answer one request."""
        if self.loading:
            reply(refusal(request, api_version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._number += 1
        number = self._number
        self._asked[number] = Asked(request, api_version, client_id, reply)
        event = ApiRequest(
            number,
            api_version,
            request,  # type: ignore[arg-type]  # members send nothing else to their coordinator
            self._world.wall_ms,
            client_id,
            "/simulated",
        )
        self.decide(event, check_purity=self._rng.random() < self._cluster.purity)

    def decide(self, event: GroupRequest, *, check_purity: bool = False) -> None:
        """Let the coordinator decide about *event*, and do what it says."""
        result = self.coordinator.handle(event, now_ms=self._world.now_ms)
        if check_purity:
            again = self.coordinator.handle(event, now_ms=self._world.now_ms)
            if result != again:
                fail("S9", f"decided twice, it comes to another end: {event}: {result} and {again}")
        self.finish(result)

    def finish(self, result: CoordinatorResult) -> None:
        """Append, replay, apply, reply."""
        cluster = self._cluster
        if result.records:
            if self.deposed:
                self._learn_of_successor(result)
                return
            if cluster.dies(cluster.crash_before_append):
                cluster.crash("before_append")
                return
            cluster.append(result.records)
            for record in result.records:
                self.coordinator.replay(record)
        self.coordinator.apply(result)
        for fact in result.events:
            self._world.history.add_fact(self._world.now_ms, fact)
        if result.records:
            cluster.facts += result.events
        if result.records and cluster.dies(cluster.crash_after_append):
            cluster.crash("after_append")
            return
        for reply in result.replies:
            self._answer(reply.request_id, reply.response)
        for task in result.tasks:
            if not self.deposed:
                cluster.on_resolving(task)
            self.matching += 1
            self._world.call_in(cluster.matching_ms, lambda task=task: self._resolve(task))  # type: ignore[misc]
        self._arm()

    def _answer(self, number: int, response: Response) -> None:
        if not self.deposed:
            asked = self._asked[number]
            self._cluster.on_served(asked.client_id, asked.request, response)
        if self.ahead:
            del self._asked[number]
            return
        end = len(self._cluster.log)
        if self.deposed or self._cluster.durable >= end:
            self._asked.pop(number).reply(response)
        else:
            self._unreplied.append((end, number, response))

    def replicated(self) -> None:
        """More of the log is durable: answers that waited for it leave."""
        while self._unreplied and self._unreplied[0][0] <= self._cluster.durable:
            _, number, response = self._unreplied.popleft()
            self._asked.pop(number).reply(response)

    def _learn_of_successor(self, result: CoordinatorResult) -> None:
        """The append is refused: somebody else is the leader of the log."""
        self._world.history.add(self._world.now_ms, f"coordinator {self.node_id}", "coordinator_resigned")
        self.alive = False
        for reply in result.replies:
            asked = self._asked.pop(reply.request_id)
            asked.reply(refusal(asked.request, asked.api_version, ErrorCode.NOT_COORDINATOR))

    def _resolve(self, task: ResolveRegexes) -> None:
        self.matching -= 1
        if self.alive:
            outcome = subscriptions.resolve(task, wall_ms=self._world.wall_ms)
            self.decide(outcome)

    # ---------------------------------------------------------------------------------------------------- life, time

    def load(self) -> None:
        """Serve, after the log was replayed."""
        self.loading = False
        self.decide(TopicsChanged(self._cluster.topics.image))
        if self.alive:
            self.coordinator.loaded(now_ms=self._world.now_ms)
            self._arm()

    def die(self) -> None:
        """Whatever was not answered never will be."""
        self.alive = False
        self._asked.clear()
        self._unreplied.clear()

    def _arm(self) -> None:
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        self._timer_ms = max(deadline_ms, self._world.now_ms)
        self._world.call_in(self._timer_ms - self._world.now_ms, self._expire)

    def _expire(self) -> None:
        self._timer_ms = None
        if not self.alive:
            return
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._world.now_ms:
            self._world.events += 1
            self.finish(self.coordinator.expire(now_ms=self._world.now_ms, wall_ms=self._world.wall_ms))
        if self.alive:
            self._arm()


def refusal(request: AnyRequest, api_version: int, code: ErrorCode) -> Response:
    """An answer to *request* with an error code where its API has room for one."""
    placer = ErrorPlacer(
        api_key=request.WIRE.api_key,
        api_version=api_version,
        code=code,
        message=code.name,
        topic_name=lambda _: None,
        wanted=None,
    )
    response = placer.refuse(request)
    assert response is not None, f"{type(request).__name__} has no room for an error"
    return response
