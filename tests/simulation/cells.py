"""Counts the cells that runs reach: combinations of a member's phase, an event, and its error code or kind."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from kip848_client.errors import ErrorCode
from kip848_client.member.core.events import ListenerDone, MemberEvent, RequestFailed, ResponseReceived
from kip848_client.testing.simulation.observer import Observer, RunState
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

Cell: TypeAlias = tuple[object, str, object]


class Cells(Observer):
    """Cells of all runs that it watches: ``run(..., watch=[cells.watch])``. `named` turns a cell into text."""

    def __init__(self) -> None:
        self.reached: Final[Counter[Cell]] = Counter()

    def watch(self, run_state: RunState) -> list[Observer]:
        """This observer, for one more run."""
        del run_state
        return [self]

    def told(self, consumer: ClientProcess, event: MemberEvent) -> None:
        """A member in some phase gets *event*."""
        what: str
        error: object
        match event:
            case ResponseReceived(response=ConsumerGroupHeartbeatResponse() as response):
                is_assignment = not response.error_code and response.assignment is not None
                what, error = "assignment" if is_assignment else "heartbeat", response.error_code
            case ResponseReceived(response=response):
                what, error = type(response).__name__, getattr(response, "error_code", 0)
            case RequestFailed():
                what, error = "RequestFailed", event.kind
            case ListenerDone():
                what, error = "ListenerDone", event.error is not None
            case _:
                what, error = type(event).__name__, None
        self.reached[consumer.member.phase, what, error] += 1


def named(cell: Cell) -> str:
    """A cell as text: ``IN_SYNC heartbeat FENCED_MEMBER_EPOCH``."""
    return " ".join(_name(part) for part in cell if part is not None)


def _name(part: object) -> str:
    if isinstance(part, bool):
        return "raised" if part else "returned"
    if isinstance(part, int):
        return "" if not part else ErrorCode(part).name if part in ErrorCode._value2member_map_ else str(part)
    name: str = getattr(part, "name", str(part))
    return name
