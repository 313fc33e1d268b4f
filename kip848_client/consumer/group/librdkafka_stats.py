"""The JSON for ``stats_cb``: librdkafka's statistics, with the group's fields filled in.

librdkafka is not the group's member, so it reports no lag, no commits and no group. The fields that are filled in:
docs/observability.md. Called inside poll(), on the application's thread; asks librdkafka nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.config import ConfigValue
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.consumer.records.fetcher import Fetcher
from kip848_client.member.core.states import MemberState

_INVALID: Final = -1001
_JOIN_STATES: Final = {
    MemberState.UNJOINED: "init",
    MemberState.STABLE: "steady",
    MemberState.RECONCILING: "wait-assign-call",
    MemberState.RELEASING_ASSIGNMENT: "wait-unassign-call",
    MemberState.FATAL: "init",
}
"""librdkafka's word for each state of ours."""


class CompletedStats:
    """Stands in for the application's callback; librdkafka calls it with JSON text.

    Args:
        callback: the application's.
        read_committed: whether the end of a partition is its last stable offset.
    """

    def __init__(self, callback: Callable[[str], object], *, read_committed: bool) -> None:
        self._callback = callback
        self._end: Final = "ls_offset" if read_committed else "hi_offset"
        self._fetcher: Callable[[], Fetcher | None] = lambda: None
        self._group: Callable[[], GroupMember | None] = lambda: None

    def attach(self, fetcher: Fetcher, group: GroupMember) -> None:
        """Report about these from now on; holds weak references."""
        self._fetcher, self._group = weakref.ref(fetcher), weakref.ref(group)

    def __call__(self, text: str) -> None:
        """Fill in, and pass on."""
        fetcher, group = self._fetcher(), self._group()
        if fetcher is not None and group is not None:
            stats: dict[str, Any] = msgspec.json.decode(text)
            stats["cgrp"] = stats.get("cgrp", {}) | _group_fields(group)
            self._fill_partitions(stats, fetcher, group)
            text = msgspec.json.encode(stats).decode()
        self._callback(text)

    def _fill_partitions(self, stats: dict[str, Any], fetcher: Fetcher, group: GroupMember) -> None:
        waiting = fetcher.oldest_waiting()
        own_stores = group.thread.stored is not None
        for assigned in group.view.assigned:
            name = assigned.topic_partition
            fields = stats.get("topics", {}).get(name.topic, {}).get("partitions", {}).get(str(name.partition))
            if fields is None:
                continue
            known = group.commits.committed.get(name)
            stored = fetcher.stored.get(name)
            position = _position(fields, waiting.get(name), name, fetcher)
            fields["app_offset"] = position
            fields["committed_offset"] = _INVALID if known is None else known.offset
            fields["stored_offset"] = (_INVALID if stored is None else stored.offset) if own_stores else position
            end = fields.get(self._end, -1)
            fields["consumer_lag"] = _behind(end, fields["committed_offset"])
            fields["consumer_lag_stored"] = _behind(end, fields["stored_offset"])


def complete_stats(data_plane: dict[str, ConfigValue]) -> CompletedStats | None:
    """Put a `CompletedStats` in the place of the application's callback; None if there is none."""
    callback = data_plane.get("stats_cb")
    if not callable(callback):
        return None
    read_committed = str(data_plane.get("isolation.level", "read_committed")).lower() == "read_committed"
    completed = CompletedStats(callback, read_committed=read_committed)
    data_plane["stats_cb"] = completed
    return completed


def _position(fields: dict[str, Any], waiting: int | None, name: NamedPartition, fetcher: Fetcher) -> int:
    """The next offset that poll() hands out; librdkafka counts the records that it gave to us."""
    if waiting is not None:
        return waiting
    position: int = fields.get("app_offset", _INVALID)
    if position < 0:
        began = fetcher.began(name)
        return _INVALID if began is None else began.offset
    return position


def _behind(end: int, offset: int) -> int:
    return max(0, end - offset) if end >= 0 and offset >= 0 else -1


def _group_fields(group: GroupMember) -> dict[str, Any]:
    view, statistics = group.view, group.manager.statistics
    now_ms = group.clock.now_ms()
    rebalanced_ms = statistics.last_rebalance_ended_ms
    return {
        "state": "up" if view.member_epoch > 0 else "init",
        "join_state": _JOIN_STATES[view.state],
        "rebalance_cnt": statistics.rebalances + statistics.failed_rebalances,
        "rebalance_age": 0 if rebalanced_ms is None else max(0, now_ms - rebalanced_ms),
        "assignment_size": len(view.assigned),
        "member_id": view.member_id,
        "member_epoch": view.member_epoch,
    }
