"""Applies a record of a group with heartbeats to the state: the first record makes the group, its tombstone ends it."""

from __future__ import annotations

from typing import Any

from kip848_client.errors import IllegalStateError
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState


def replay(state: CoordinatorState, key: Any, value: Any, *, kind: type[Any]) -> None:
    """Apply a record; a tombstone of a group that is gone needs none.

    Args:
        kind: the class of its group, which has a `replay` of its own.

    Raises:
        IllegalStateError: the group is of another kind, or tombstones come in a wrong order; the log is damaged.
    """
    group_id: str = key.group_id
    group = state.find(kind, group_id)
    if group is None:
        if value is None:
            return
        if group_id in state.groups:
            raise IllegalStateError(f"the log has records of {group_id!r} as a group of two kinds")
        group = kind(group_id)
        state.put_group(group)
    size_before = group.size
    is_left = group.replay(key, value)
    state.member_count += group.size - size_before
    if not is_left:
        state.forget_group(group_id)
