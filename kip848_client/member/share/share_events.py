"""The effects of a share group's member that no consumer has. Values only, no rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import msgspec

from kip848_client.common.model import BrokerNode
from kip848_client.errors import Kip848Error
from kip848_client.member.core.assignment import IdPartition
from kip848_client.wire.schema import Request, Response


class ShareSend(msgspec.Struct, frozen=True):
    """Send one request to a leader, once; answer with `ShareReader.answered` or `failed`."""

    request_id: int
    node_id: int
    request: Request[Response]
    timeout_ms: int


class FindLeaders(msgspec.Struct, frozen=True):
    """Ask the cluster for the leaders of these topics; answer with `ShareReader.leaders_found` or `find_failed`."""

    topic_ids: frozenset[UUID]


class AcknowledgementOutcome(msgspec.Struct, frozen=True):
    """What became of acknowledgements of one partition that were sent together.

    Args:
        offsets: offset -> what was said.
        error: None if the leader confirmed them. A `BrokerError`: it refused them, with INVALID_RECORD_STATE if their
            locks had ended. Another error: the answer was lost, so they may count or not.
    """

    partition: IdPartition
    offsets: Mapping[int, int]
    error: Kip848Error | None


class CommitEnded(msgspec.Struct, frozen=True):
    """A commit has ended: each partition that it covered, with the error or None.

    Args:
        timed_out: its time was over before all outcomes were known.
    """

    commit_id: int
    results: Mapping[IdPartition, Kip848Error | None]
    timed_out: bool = False


class LocksLost(msgspec.Struct, frozen=True):
    """The locks of these records ended while the application had them: others may have them now."""

    partition: IdPartition
    offsets: frozenset[int]


class ReaderFailed(msgspec.Struct, frozen=True):
    """A leader refused what no retry cures."""

    error: Kip848Error


class ReaderSurfaced(msgspec.Struct, frozen=True):
    """Raise this from the next poll(), and go on."""

    error: Kip848Error


class LeaderRefuses(msgspec.Struct, frozen=True):
    """A leader refuses for now; the reader asks it again."""

    node_id: int
    error: Kip848Error


class ReaderClosed(msgspec.Struct, frozen=True):
    """All sessions are closed, or the time for it is over."""


ReaderEffect: TypeAlias = (
    ShareSend
    | FindLeaders
    | AcknowledgementOutcome
    | CommitEnded
    | LocksLost
    | ReaderFailed
    | ReaderSurfaced
    | LeaderRefuses
    | ReaderClosed
)


class Leader(msgspec.Struct, frozen=True):
    """The leader of a partition, and the name of its topic."""

    node: BrokerNode
    topic: str
