"""Which groups of the new protocol members on the classic one may be in."""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator.connect.mixed_group import MixedConnectGroup
from kip848_client.coordinator.mixed_consumer_group import MixedConsumerGroup
from kip848_client.coordinator.mixed_group import MixedGroup
from kip848_client.coordinator.state import CoordinatorState


def mixed_group(state: CoordinatorState, group_id: str) -> MixedGroup[Any, Any, Any] | None:
    """The group of this id for requests of the classic protocol; None if it is classic, or there is none."""
    group = state.groups.get(group_id)
    if group is not None:
        return MixedConsumerGroup(state, group)
    connect = state.connect.get(group_id)
    return None if connect is None else MixedConnectGroup(state, connect)
