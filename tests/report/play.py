"""A group that is played with a clock of its own: its coordinator's log, as `groups record` writes it.

Records come all the time; each member commits once a second what is there.
"""

from __future__ import annotations

from typing import Final

from kip848_client.journal import JournalEvent, JsonValue

_STEP_MS: Final = 100
_COMMIT_MS: Final = 1_000
_REVOKE_MS: Final = 50


class PlayedGroup:
    """A group with the members *names*, which have been there for half a minute; `app@b` has client id `app`, host `b`.

    Attributes:
        stalled: from when until when no member commits, since something stops them all.
    """

    def __init__(self, *names: str, group_id: str = "orders", partitions: int = 6, session_ms: int = 10_000) -> None:
        self.events: Final[list[JournalEvent]] = []
        self.now_ms = 0
        self.stalled = range(0)
        self._group_id, self._partitions, self._session_ms = group_id, partitions, session_ms
        self._members: dict[str, str] = {}
        """Member id -> name, in the order in which they joined."""
        self._owned: dict[str, list[int]] = {}
        self._removed_ms: dict[str, int] = {}
        """Members that died -> when their sessions end."""
        self._idle: set[str] = set()
        self._joins = self._epoch = 0
        for name in names:
            self.join(name)
            self.run(1_000)
        self.run(30_000)

    def run(self, ms: int) -> None:
        """Let time pass."""
        for at_ms in range(self.now_ms - self.now_ms % _STEP_MS + _STEP_MS, self.now_ms + ms + 1, _STEP_MS):
            self.now_ms = at_ms
            for member, removed_ms in list(self._removed_ms.items()):
                if at_ms >= removed_ms:
                    self._remove(member)
            if at_ms % _COMMIT_MS == 0 and at_ms not in self.stalled:
                for member in self._members.keys() - self._removed_ms.keys() - self._idle:
                    offsets: dict[str, JsonValue] = {f"t-{index}": at_ms // 100 for index in self._owned[member]}
                    self._say("offsets_committed", member, offsets=offsets)

    def join(self, name: str, *, member: str | None = None) -> None:
        """A process starts; or one that lived on is back, under its member id."""
        self._joins += 1
        member = member or f"{name}-{self._joins}"
        self._members[member] = name
        self._say("member_joined", member, topics=["t"], client_host=f"/{name.rpartition('@')[2]}", instance_id=None)
        self._rebalance("member_joined")

    def leave(self, name: str) -> None:
        """A member leaves."""
        self._remove(self._find(name))

    def die(self, name: str) -> str:
        """A member stops: its session ends in a while. Its member id."""
        member = self._find(name)
        self._removed_ms[member] = self.now_ms + self._session_ms
        return member

    def keep_without_reading(self, name: str) -> None:
        """A member goes on with its heartbeats only."""
        self._idle.add(self._find(name))

    def restart(self, *names: str) -> None:
        """These leave and are back after two seconds, one after the other."""
        for name in names:
            self.leave(name)
            self.run(2_000)
            self.join(name)
            self.run(8_000)

    def _find(self, name: str) -> str:
        return next(each for each in reversed(self._members) if self._members[each] == name)

    def _remove(self, member: str) -> None:
        self._say("member_left", member, reason="removed")
        del self._members[member]
        self._owned.pop(member, None)
        self._removed_ms.pop(member, None)
        self._rebalance("member_left")

    def _rebalance(self, reason: str) -> None:
        self._epoch += 1
        self._say("group_epoch_bumped", reason=reason)
        if not self._members:
            self._say("group_state_changed", new="Empty")
            return
        self._say("group_state_changed", new="Reconciling")
        members = list(self._members)
        target = {one: list(range(self._partitions))[number :: len(members)] for number, one in enumerate(members)}
        living = [member for member in members if member not in self._removed_ms]
        kept = {index for member in self._removed_ms for index in self._owned.get(member, [])}
        for member in living:
            self._count(member, [index for index in self._owned.get(member, []) if index in target[member]])
        self.now_ms += _REVOKE_MS
        for member in living:  # one that died gives nothing up, and gets nothing
            self._count(member, [index for index in target[member] if index not in kept])
        self._say("group_state_changed", new="Stable")

    def _count(self, member: str, owned: list[int]) -> None:
        if owned != self._owned.get(member):
            self._owned[member] = owned
            assigned: dict[str, JsonValue] = {"t": list(owned)}
            self._say("member_assignment_changed", member, state="STABLE", assigned=assigned, pending_revocation={})

    def _say(self, event: str, member: str | None = None, **fields: JsonValue) -> None:
        name = None if member is None else self._members[member].partition("@")[0]
        more = {"member_id": member, "client_id": name, "member_epoch": self._epoch, "group_epoch": self._epoch}
        self.events.append(
            JournalEvent(self.now_ms, "coordinator", event, self._group_id, **more, fields=fields)  # type: ignore[arg-type]
        )
