"""The part of the configuration about client-side assignors. Checks only; what they do is in `member` and `client`."""

from __future__ import annotations

from typing import Final

import msgspec

from kip848_client.assignors.interface import PartitionAssignor
from kip848_client.assignors.loading import load_assignors
from kip848_client.config.reader import ConfigReader
from kip848_client.errors import ConfigError

__all__ = ["OWN_ASSIGNOR_KEYS", "LocalAssignors", "read_local_assignors"]

_ASSIGNORS: Final = "group.local.assignors"
_FALLBACK: Final = "group.local.assignors.fallback"
_TIMEOUT: Final = "group.local.assignors.timeout.ms"

OWN_ASSIGNOR_KEYS: Final = frozenset({_ASSIGNORS, _FALLBACK, _TIMEOUT})
"""Keys that are read here and never passed to the data plane."""

_DEFAULT_TIMEOUT_MS: Final = 60_000


class LocalAssignors(msgspec.Struct, frozen=True):
    """Client-side assignors of one consumer.

    Args:
        assignors: by priority; none if the coordinator assigns.
        fallback: let the coordinator assign where it knows no client-side assignment, instead of failing.
        timeout_ms: longest that a call of an assignor counts.
    """

    assignors: tuple[PartitionAssignor, ...] = ()
    fallback: bool = False
    timeout_ms: int = _DEFAULT_TIMEOUT_MS


def read_local_assignors(reader: ConfigReader, *, max_poll_interval_ms: int) -> LocalAssignors:
    """Read the keys.

    Args:
        max_poll_interval_ms: the rebalance timeout; the coordinator waits no longer for an assignment.

    Raises:
        ConfigError: something is no assignor, or the keys contradict each other.
    """
    given = reader.conf.get(_ASSIGNORS)
    if given is None or given == "" or given == []:
        for key in (_FALLBACK, _TIMEOUT):
            if reader.conf.get(key) is not None:
                raise ConfigError(f"{key} says what to do about {_ASSIGNORS}, and that is not set")
        return LocalAssignors()
    if reader.conf.get("group.remote.assignor") is not None:
        raise ConfigError(
            f"{_ASSIGNORS} and group.remote.assignor exclude each other: either this group's members assign, or its "
            f"coordinator does; leave one out (to assign by the coordinator only where it must, see {_FALLBACK})"
        )
    fallback = reader.one_of(_FALLBACK, {"none": "none", "server": "server"}, default="none")
    return LocalAssignors(
        assignors=load_assignors(given),
        fallback=fallback == "server",
        timeout_ms=reader.integer(
            _TIMEOUT, default=min(_DEFAULT_TIMEOUT_MS, max_poll_interval_ms), low=1, high=86_400_000
        ),
    )
