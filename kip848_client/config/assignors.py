"""The part of the configuration about client-side assignors. Checks only; `member` and `client` run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.interface import PartitionAssignor
from kip848_client.assignors.client.loading import load_assignors
from kip848_client.config.reader import ConfigReader
from kip848_client.errors import ConfigError

_ASSIGNORS: Final = "group.local.assignors"
_FALLBACK: Final = "group.local.assignors.fallback"
_TIMEOUT: Final = "group.local.assignors.timeout.ms"

OWN_ASSIGNOR_KEYS: Final = frozenset({_ASSIGNORS, _FALLBACK, _TIMEOUT})
"""Keys that are read here and never passed to the data plane."""

_DEFAULT_TIMEOUT_MS: Final = 60_000
_STRATEGY: Final = "partition.assignment.strategy"
_DEFAULT_STRATEGY: Final = ("range", "cooperative-sticky")
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
    "StickyAssignor": "sticky",
}
"""Class of Java's client -> the name by which members of all clients know it."""


class LocalAssignors(msgspec.Struct, frozen=True):
    """Client-side assignors of one consumer.

    Args:
        assignors: by priority; none if the coordinator assigns.
        fallback: let the coordinator assign if it has no client-side assignment, instead of failing.
        timeout_ms: time limit of one call of an assignor.
    """

    assignors: tuple[PartitionAssignor, ...] = ()
    fallback: bool = False
    timeout_ms: int = _DEFAULT_TIMEOUT_MS


def read_classic_assignors(reader: ConfigReader, *, max_poll_interval_ms: int) -> LocalAssignors:
    """Read what a member on the classic protocol offers: assignors of the user's own first, then the strategies.

    Raises:
        ConfigError: something is not an assignor, two have one name, or a key does not fit the protocol.
    """
    if reader.conf.get(_FALLBACK) is not None:
        raise ConfigError(f"{_FALLBACK}: the classic protocol needs none, as members always assign; leave it out")
    if reader.conf.get("group.remote.assignor") is not None:
        raise ConfigError(
            "group.remote.assignor: on the classic protocol the group's leader assigns; choose assignors with "
            f"{_STRATEGY}, or set group.protocol=consumer"
        )
    own = reader.conf.get(_ASSIGNORS)
    strategy = reader.conf.get(_STRATEGY)
    given: list[object] = []
    for key, value in ((_ASSIGNORS, own), (_STRATEGY, strategy)):
        if value is None:
            continue
        if isinstance(value, str):
            items: list[object] = [text.strip() for text in value.split(",") if text.strip()]
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, PartitionAssignor, type)):
            items = list(value)
        else:
            items = [value]
        if not items:
            raise ConfigError(f"{key} is empty; leave it out, or name an assignor")
        given += items
    if not given:
        given = list(_DEFAULT_STRATEGY)
    assignors = load_assignors([_strategy(item) for item in given], key=_STRATEGY if own is None else _ASSIGNORS)
    for assignor in assignors:
        if assignor.name in {*BUILT_IN, "sticky"} and type(assignor) is not BUILT_IN.get(assignor.name):
            raise ConfigError(
                f"{_ASSIGNORS}: {type(assignor).__qualname__} has the name of the built-in assignor {assignor.name!r}, "
                "which members of other clients would take it for; give it another name"
            )
    timeout_ms = reader.integer(
        _TIMEOUT, default=min(_DEFAULT_TIMEOUT_MS, max_poll_interval_ms), low=1, high=max_poll_interval_ms
    )
    return LocalAssignors(assignors=assignors, timeout_ms=timeout_ms)


def _strategy(item: object) -> object:
    """A built-in assignor by its name; anything else as it is."""
    if not isinstance(item, str) or ":" in item:
        return item
    item = _JAVA_NAMES.get(item.removeprefix(_JAVA_PACKAGE), item)
    if item in BUILT_IN:
        return BUILT_IN[item]
    import difflib  # here: only a mistake needs it

    if item == "sticky":
        raise ConfigError(f"{_STRATEGY}: there is no 'sticky' here; use cooperative-sticky, which moves as little")
    near = difflib.get_close_matches(item, BUILT_IN, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(BUILT_IN)}"
    raise ConfigError(
        f"{_STRATEGY}: {item!r} is not a built-in assignor{hint} (an assignor of your own is an instance, a class, or "
        '"package.module:Name")'
    )


def is_cooperative(assignors: Iterable[PartitionAssignor]) -> bool:
    """Whether a member that offers *assignors* keeps its partitions while it joins again."""
    return all(assignor.name == "cooperative-sticky" or assignor.name not in BUILT_IN for assignor in assignors)


def read_local_assignors(reader: ConfigReader, *, max_poll_interval_ms: int) -> LocalAssignors:
    """Read the keys.

    Args:
        max_poll_interval_ms: the rebalance timeout; the coordinator waits no longer for an assignment.

    Raises:
        ConfigError: a value is not an assignor, or the keys contradict each other.
    """
    given = reader.conf.get(_ASSIGNORS)
    if given is None or given == "" or given == []:
        for key in (_FALLBACK, _TIMEOUT):
            if reader.conf.get(key) is not None:
                raise ConfigError(f"{key} has no effect without {_ASSIGNORS}; set that, or leave this out")
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
