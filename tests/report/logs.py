"""Small event logs, written by hand."""

from __future__ import annotations

from kip848_client.journal import JournalEvent, JsonValue, Source

GROUP = "orders"


def said(
    ts_ms: int,
    event: str,
    member: str | None = None,
    *,
    source: Source = "client",
    group_epoch: int | None = None,
    member_epoch: int | None = None,
    **fields: JsonValue,
) -> JournalEvent:
    """One event of group ``orders``; the member's client id is its member id and ``-client``."""
    return JournalEvent(
        ts_ms=ts_ms,
        source=source,
        event=event,
        group_id=GROUP,
        member_id=member,
        client_id=member and f"{member}-client",
        member_epoch=member_epoch,
        group_epoch=group_epoch,
        fields=fields,
    )


def assigned(ts_ms: int, member: str, *partitions: str, took_ms: int = 0) -> JournalEvent:
    """on_partitions_assigned returned."""
    return said(ts_ms, "partitions_assigned", member, partitions=list(partitions), duration_ms=took_ms)


def revoked(ts_ms: int, member: str, *partitions: str, took_ms: int = 0) -> JournalEvent:
    """on_partitions_revoked returned."""
    return said(ts_ms, "partitions_revoked", member, partitions=list(partitions), duration_ms=took_ms)


def counted(ts_ms: int, member: str, *indexes: int, pending: tuple[int, ...] = ()) -> JournalEvent:
    """The coordinator counts these partitions of topic ``t`` as the member's."""
    return said(
        ts_ms,
        "member_assignment_changed",
        member,
        source="coordinator",
        state="STABLE",
        assigned={"t": list(indexes)},
        pending_revocation={"t": list(pending)} if pending else {},
    )


def bumped(ts_ms: int, epoch: int, reason: str = "member_joined") -> JournalEvent:
    """The group epoch grew."""
    return said(ts_ms, "group_epoch_bumped", source="coordinator", group_epoch=epoch, reason=reason)


def group_became(ts_ms: int, state: str) -> JournalEvent:
    """The group's state changed."""
    return said(ts_ms, "group_state_changed", source="coordinator", old="?", new=state)
