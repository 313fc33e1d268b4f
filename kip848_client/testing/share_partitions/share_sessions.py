"""Share sessions: which partitions each member of a share group reads on one node. Pure.

A session belongs to the connection on which it was opened: when that is gone, the member gives back all records that it
has. A request may name partitions to add and to forget; only a session with a new epoch begins anew.

Source:
    apache/kafka ``ShareSessionCache``, ``ShareSession``, ``SharePartitionManager.newContext``; KIP-932.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from kip848_client.errors import BrokerError, ErrorCode

OPENING_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class ReadPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: uuid.UUID
    partition: int


class EndedSession(NamedTuple):
    """A session that is over.

    Attributes:
        partitions: from which the member may have records.
    """

    group_id: str
    member_id: str
    partitions: tuple[ReadPartition, ...]


class GoneConnection(NamedTuple):
    """What the end of a connection means.

    Attributes:
        ended: the session that was open on it.
        left_group: the group of which no member has a session on the node any more.
    """

    ended: EndedSession | None
    left_group: str | None


class _Session:
    __slots__ = ("connection_id", "epoch", "partitions")

    def __init__(self, partitions: Iterable[ReadPartition], connection_id: int) -> None:
        self.epoch = 1
        self.connection_id: Final = connection_id
        # The value: whether the next answer must say something about the partition.
        self.partitions = dict.fromkeys(partitions, False)


class ShareSessions:
    """The sessions of one node.

    Args:
        sessions_max: how many there are at most (``group.share.max.share.sessions``).
    """

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max: Final = sessions_max
        self._sessions: Final[dict[tuple[str, str], _Session]] = {}
        self._last_opened: Final[dict[int, tuple[str, str]]] = {}
        """Group and member by connection, also after the session has ended."""

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group_id: str,
        member_id: str,
        *,
        epoch: int,
        named: Iterable[ReadPartition],
        forgotten: Iterable[ReadPartition],
        acknowledges: bool,
        connection_id: int,
    ) -> tuple[ReadPartition, ...]:
        """Open or update the session of a ShareFetch, and return the partitions that it reads, the next one first.

        Args:
            acknowledges: the request acknowledges records, which one that opens a session cannot.

        Raises:
            BrokerError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED or
                INVALID_REQUEST.
        """
        key = (group_id, member_id)
        if epoch == FINAL_EPOCH:
            self._find(key)
            return ()
        if epoch == OPENING_EPOCH:
            if acknowledges:
                raise BrokerError(
                    "a request that opens a share session cannot acknowledge records", code=ErrorCode.INVALID_REQUEST
                )
            self._sessions.pop(key, None)
            if len(self._sessions) >= self._sessions_max:
                raise BrokerError(
                    f"the node has {self._sessions_max} share sessions (group.share.max.share.sessions)",
                    code=ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                )
            session = self._sessions[key] = _Session(named, connection_id)
            self._last_opened[connection_id] = key
            return tuple(session.partitions)
        session = self._step(key, epoch)
        for partition in named:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        partitions = tuple(session.partitions)
        turn = epoch % len(partitions) if partitions else 0
        return partitions[turn:] + partitions[:turn]

    def acknowledge(self, group_id: str, member_id: str, *, epoch: int) -> None:
        """Admit a ShareAcknowledge.

        Raises:
            BrokerError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == OPENING_EPOCH:
            raise BrokerError("only a ShareFetch opens a share session", code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            self._find((group_id, member_id))
        else:
            self._step((group_id, member_id), epoch)

    def tells(
        self,
        group_id: str,
        member_id: str,
        *,
        epoch: int,
        partition: ReadPartition,
        has_records: bool,
        has_error: bool,
    ) -> bool:
        """Whether the answer to a ShareFetch of *epoch* says something about a partition.

        Raises:
            BrokerError: INVALID_SHARE_SESSION_EPOCH: the member has asked again meanwhile.
        """
        if epoch in (OPENING_EPOCH, FINAL_EPOCH):
            return True
        session = self._sessions.get((group_id, member_id))
        if session is None or session.epoch != _after(epoch):
            raise BrokerError(
                "the member has sent another request meanwhile", code=ErrorCode.INVALID_SHARE_SESSION_EPOCH
            )
        must_tell = session.partitions.get(partition, False)
        if partition in session.partitions:
            session.partitions[partition] = has_error
            if has_records:
                session.partitions[partition] = session.partitions.pop(partition)
        return must_tell or has_records or has_error

    def end(self, group_id: str, member_id: str) -> EndedSession | None:
        """End a session; None if there is none."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is None:
            return None
        return EndedSession(group_id, member_id, tuple(session.partitions))

    def connection_gone(self, connection_id: int) -> GoneConnection:
        """End the session that was opened last on a connection."""
        key = self._last_opened.pop(connection_id, None)
        if key is None:
            return GoneConnection(None, None)
        session = self._sessions.get(key)
        ended = self.end(*key) if session is not None and session.connection_id == connection_id else None
        return GoneConnection(ended, None if any(group == key[0] for group, _ in self._sessions) else key[0])

    def _find(self, key: tuple[str, str]) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(
                f"member {key[1]!r} of group {key[0]!r} has no share session on this node",
                code=ErrorCode.SHARE_SESSION_NOT_FOUND,
            )
        return session

    def _step(self, key: tuple[str, str], epoch: int) -> _Session:
        session = self._find(key)
        if session.epoch != epoch:
            raise BrokerError(
                f"the share session of member {key[1]!r} has epoch {session.epoch}, not {epoch}",
                code=ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            )
        session.epoch = _after(epoch)
        return session


def _after(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1
