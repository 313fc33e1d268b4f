"""Translates a simulated history to the event log (`kip848_client.journal`), for ``kip848 report`` and analytics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.simulation import history

FAULTS: Final = frozenset(history.FAULTS) - {
    "crashed",
    "coordinator_crashed",
    "topic_deleted",
    "assigned_raised",
    "revoked_raised",
    "lost_raised",
}
"""Kinds of history lines that become ``fault_injected`` with their name as the action."""

_RENAMED: Final[Mapping[str, str]] = {
    "started": "consumer_started",
    "closed": "consumer_closed",
    "crashed": "consumer_crashed",
    "healed": "faults_ended",
}
_CALLS: Final = ("assigned", "revoked", "lost")
_OF_NO_GROUP: Final = frozenset(
    {"topic_created", "topic_deleted", "partitions_added", "coordinator_crashed", "coordinator_loaded", "faults_ended"}
)
_FROM_CONSUMER: Final = frozenset(
    {
        "commit_done",
        "commit_failed",
        "consumer_closed",
        "consumer_crashed",
        "consumer_started",
        "error_surfaced",
        "heartbeat_sent",
        "member_failed",
        "state_changed",
    }
)
_FROM_COORDINATOR: Final = frozenset(
    {
        "commit_refused",
        "group_epoch_bumped",
        "group_state_changed",
        "member_assignment_changed",
        "member_fenced",
        "member_joined",
        "member_left",
        "offsets_committed",
        "subscription_changed",
        "target_assignment_computed",
    }
)


def to_event_log(lines: Iterable[str], *, group_id: str = "simulated") -> Iterator[JournalEvent]:
    """Translate a history.

    Times are milliseconds of the virtual clock, from 0. A consumer and its member share a name (``consumer-3``).
    Lines without a name in the event log are left out.

    Args:
        lines: as in ``Report.lines``.
        group_id: id of the group in the log.
    """
    calls: dict[str, tuple[int, list[JsonValue]]] = {}
    for line in lines:
        history = msgspec.json.decode(line)
        at_ms, who, what = history.pop("t"), history.pop("who").replace("member-", "consumer-"), history.pop("what")
        call, _, stage = what.partition("_")
        if call in _CALLS and stage in {"begins", "ended", "raised"}:
            if stage == "begins":
                calls[who] = (at_ms, history["partitions"])
                continue
            began_ms, partitions = calls.pop(who, (at_ms, []))
            fields: dict[str, JsonValue] = {"partitions": partitions, "duration_ms": at_ms - began_ms}
            if stage == "raised":
                yield _event("listener_failed", at_ms, who, group_id, fields | {"callback": f"on_partitions_{call}"})
            yield _event(f"partitions_{call}", at_ms, who, group_id, fields)
        elif what in FAULTS:
            yield _event("fault_injected", at_ms, who, group_id, {"action": what, "api": "", **history})
        else:
            event = _RENAMED.get(what, what)
            if event in _OF_NO_GROUP or event in _FROM_CONSUMER or event in _FROM_COORDINATOR:
                yield _event(event, at_ms, who, None if event in _OF_NO_GROUP else group_id, history)


def _event(event: str, at_ms: int, who: str, group_id: str | None, fields: Mapping[str, Any]) -> JournalEvent:
    rest = dict(fields)
    epoch = rest.pop("epoch", None)
    of_group = event in {"group_epoch_bumped", "group_state_changed", "target_assignment_computed"}
    person = who.startswith("consumer-")
    return JournalEvent(
        ts_ms=at_ms,
        source="coordinator" if event in _FROM_COORDINATOR else "client" if person else "simulation",
        event=event,
        group_id=group_id,
        member_id=who if person else None,
        client_id=who if person else None,
        member_epoch=None if of_group else epoch,
        group_epoch=epoch if of_group else None,
        fields=rest,
    )
