"""Counts the cells of state x event x error that runs reached, to find combinations that no run tests.

A member's cell is (phase, event, error or kind); a coordinator's cell is (state of the group, request, error code).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.errors import ErrorCode
from kip848_client.member.events import ListenerDone, MemberEvent, RequestFailed, ResponseReceived
from kip848_client.member.states import Phase
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchResponse
from kip848_client.wire.schema import Request, Response

Cell: TypeAlias = tuple[object, str, object]


class Coverage:
    """Cells and how often they were reached. Enum members as they are; `named` turns them into text."""

    def __init__(self) -> None:
        self.member: Final[dict[Cell, int]] = {}
        self.coordinator: Final[dict[Cell, int]] = {}

    def member_event(self, phase: Phase, event: MemberEvent) -> None:
        """A member in *phase* gets *event*."""
        match event:
            case ResponseReceived():
                kind, code = _of_response(event.response)
                cell: Cell = (phase, kind, code)
            case RequestFailed():
                cell = (phase, "RequestFailed", event.kind)
            case ListenerDone():
                cell = (phase, "ListenerDone", event.error is not None)
            case _:
                cell = (phase, type(event).__name__, None)
        self.member[cell] = self.member.get(cell, 0) + 1

    def served(self, group: ConsumerGroup | None, request: Request[Any], response: Response) -> None:
        """The coordinator answered; *group* is the group afterwards."""
        what = type(request).__name__
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            epoch = request.member_epoch
            what = "join" if epoch == 0 else _LEAVES.get(epoch, "heartbeat")
            if epoch > 0 and request.topic_partitions is not None:
                what = "full heartbeat"
        cell = (None if group is None else group.state, what, _of_response(response)[1])
        self.coordinator[cell] = self.coordinator.get(cell, 0) + 1


_LEAVES: Final = {-1: "leave", -2: "static leave"}


def _of_response(response: Response) -> tuple[str, object]:
    """(kind, code): the first code that is not 0, wherever the API puts it."""
    match response:
        case ConsumerGroupHeartbeatResponse():
            if response.error_code:
                return "heartbeat", response.error_code
            return ("heartbeat", 0) if response.assignment is None else ("assignment", 0)
        case OffsetCommitResponse():
            codes = (item.error_code for topic in response.topics for item in topic.partitions)
            return "commit", next((code for code in codes if code), 0)
        case OffsetFetchResponse():
            for group in response.groups:
                if group.error_code:
                    return "fetch", group.error_code
                codes = (item.error_code for topic in group.topics for item in topic.partitions)
                return "fetch", next((code for code in codes if code), 0)
            return "fetch", response.error_code
        case FindCoordinatorResponse():
            found = response.coordinators
            return "find", found[0].error_code if found else response.error_code
        case _:
            return type(response).__name__, getattr(response, "error_code", 0)


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
