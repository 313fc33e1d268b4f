"""The referee as an observer of simulated runs: what members send, and what reaches them, on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kip848_client.testing.judge.client.findings import BrokenRule
from kip848_client.testing.judge.client.referee import Referee
from kip848_client.testing.simulation.observer import Checker, Observer, RunState
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail


class RefereeChecker(Checker):
    """Ends the run at the first rule that a member breaks."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self.referee: Final = Referee(topic_name=lambda topic_id: None)
        self._places: Final[dict[int, tuple[int, int, Any]]] = {}
        """Request under way, by its identity -> connection, number, and itself."""
        self._ends: Final[dict[int, tuple[int, object]]] = {}
        """Connection, by its identity -> its number, and itself."""
        self._number = 0

    def sent(self, consumer: ClientProcess, request: Any) -> None:
        """A request was written."""
        self._number += 1
        end = getattr(consumer, "connection", None) or consumer
        connection, _ = self._ends.setdefault(id(end), (len(self._ends), end))
        self._places[id(request)] = (connection, self._number, request)
        self.referee.asked(
            request,
            connection_id=connection,
            correlation_id=self._number,
            client_id=consumer.name,
            api_version=request.WIRE.versions.last,
            now_ms=self._scheduler.now_ms,
        )
        self._judge()

    def answered(self, consumer: ClientProcess, request: Any, response: Any) -> None:
        """Its answer arrived."""
        connection, number, _ = self._places.pop(id(request))
        self.referee.answered(response, connection_id=connection, correlation_id=number, now_ms=self._scheduler.now_ms)
        self._judge()

    def ended(self, consumer: ClientProcess, request: Any) -> None:
        """It was answered, or it failed: then the client reads its answer no more."""
        place = self._places.pop(id(request), None)
        if place is not None:
            self.referee.answered(None, connection_id=place[0], correlation_id=place[1], now_ms=self._scheduler.now_ms)

    def _judge(self) -> None:
        found: BrokenRule | None = self.referee.broken
        if found is not None:
            said = "".join(f"\n  {one.sender} -> {one.receiver}: {one.text}" for one in found.exchange)
            fail(
                f"R{found.rule}", f"{found.member}: {found.asked}; expected: {found.expected}; seen: {found.seen}{said}"
            )


def watch(run_state: RunState) -> Iterable[Observer]:
    """For `run(..., watch=[watch])`."""
    return (RefereeChecker(run_state),)
