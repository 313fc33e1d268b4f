"""Names of members in a picture: as short as possible, and different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kip848_client.journal import JournalEvent


def member_name(client_id: str, member_id: str, *, shared: bool) -> str:
    """The client id, followed by the beginning of the member id if several members of the group share the client id.

    Classic member ids begin with the client id, which several members may share.
    """
    return f"{client_id} {member_id.removeprefix(f'{client_id}-')[:8]}" if shared else client_id


class MemberNames:
    """Names by group and member id: a worker's own id, or the client id; each alone if no other member has it.

    Args:
        events: the whole log.
    """

    def __init__(self, events: Iterable[JournalEvent]) -> None:
        clients: dict[tuple[str | None, str], str] = {}
        workers: dict[tuple[str | None, str], str] = {}
        members_of: defaultdict[tuple[str | None, str], set[str]] = defaultdict(set)
        self._coordinated: set[str | None] = set()
        self._last_spoken: dict[tuple[str | None, str], int] = {}
        kept = list(events)
        for event in kept:
            if event.member_id and event.client_id:
                key = event.group_id, event.member_id
                if worker_id := event.fields.get("worker_id"):
                    workers[key] = str(worker_id)
                clients[key] = workers.get(key, event.client_id)
                members_of[event.group_id, clients[key]].add(event.member_id)
        self._names: dict[tuple[str | None, str], str] = {}
        for key, name in clients.items():
            group_id, member_id = key
            self._names[key] = member_name(name, member_id, shared=len(members_of[group_id, name]) > 1)
        for event in kept:
            if event.source != "client":
                self._coordinated.add(event.group_id)
            else:
                key = event.group_id, self.of(event)
                self._last_spoken[key] = max(event.ts_ms, self._last_spoken.get(key, event.ts_ms))

    def of(self, event: JournalEvent) -> str:
        """The name of the client or member of *event*; ``coordinator`` if it has none."""
        if event.member_id:
            return self._names.get((event.group_id, event.member_id), event.member_id)
        return event.client_id or ("coordinator" if event.source == "coordinator" else event.source)

    def is_coordinated(self, group_id: str) -> bool:
        """Whether the log has the coordinator's side of a group."""
        return group_id in self._coordinated

    def speaks_after(self, group_id: str | None, name: str, ts_ms: float) -> bool:
        """Whether that member's own log goes on after *ts_ms*: it lives, even if the coordinator removed it."""
        return self._last_spoken.get((group_id, name), -1) > ts_ms
