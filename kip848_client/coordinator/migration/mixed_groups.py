"""Finds the group of the new protocol that a request of the classic protocol is about."""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator.connect.mixed_connect_group import MixedConnectGroup
from kip848_client.coordinator.consumer.mixed_consumer_group import MixedConsumerGroup
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.migration.mixed_group import MixedGroup


def group_of_new_protocol(state: CoordinatorState, group_id: str) -> MixedGroup[Any, Any, Any] | None:
    """The consumer or connect group of this id, which serves classic members too; None for any other id.

    It may have no classic member yet: a JoinGroup can add the first one.
    """
    group = state.groups.get(group_id)
    if group is not None:
        return MixedConsumerGroup(state, group)
    connect = state.connect.get(group_id)
    return None if connect is None else MixedConnectGroup(state, connect)
