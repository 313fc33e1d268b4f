"""The reference group coordinator of KIP-848. Pure: no socket, clock or disk; `coordinator` says how to drive it."""

from __future__ import annotations

from kip848_client.coordinator.consumer.consumer_group import GroupState
from kip848_client.coordinator.consumer.subscriptions import resolve
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.core.config import CoordinatorConfig
from kip848_client.coordinator.core.events import GroupEvent, to_journal
from kip848_client.coordinator.core.group_configs import GROUP_CONFIG_NAMES, GroupConfig, resolve_group_config
from kip848_client.coordinator.core.requests import (
    ApiRequest,
    ConfigChanged,
    GroupMessage,
    GroupRequest,
    OffsetRetentionDue,
    RegexResolved,
    TopicsChanged,
)
from kip848_client.coordinator.core.result import CoordinatorRecord, CoordinatorResult, Reply, ResolveRegexes
from kip848_client.coordinator.core.topics import TopicInfo, TopicsImage
from kip848_client.coordinator.modern.member_record import MemberState
from kip848_client.coordinator.snapshot import GroupSnapshot, MemberSnapshot

__all__ = [
    "GroupCoordinator",
    "CoordinatorConfig",
    "GroupRequest",
    "ApiRequest",
    "GroupMessage",
    "TopicsChanged",
    "TopicsImage",
    "TopicInfo",
    "ConfigChanged",
    "OffsetRetentionDue",
    "RegexResolved",
    "ResolveRegexes",
    "resolve",
    "CoordinatorResult",
    "CoordinatorRecord",
    "Reply",
    "GroupEvent",
    "to_journal",
    "GroupSnapshot",
    "MemberSnapshot",
    "GroupState",
    "MemberState",
    "GROUP_CONFIG_NAMES",
    "GroupConfig",
    "resolve_group_config",
]
