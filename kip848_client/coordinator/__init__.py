"""The reference group coordinator of KIP-848. Pure: no socket, clock or disk; `group_coordinator` says how to drive it.

Belongs here: the dispatch (`group_coordinator`), the list of kinds (`kinds`), and what others may import. Everything
else is in the folder of its subject: `core` knows no kind of group; each kind registers its requests, records and
    timers.
"""

from __future__ import annotations

from kip848_client.coordinator.consumer.consumer_group import GroupState
from kip848_client.coordinator.consumer.subscriptions import resolve
from kip848_client.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.coordinator.core.group_events import GroupEvent, to_journal
from kip848_client.coordinator.core.group_overrides import GROUP_CONFIG_NAMES, GroupConfig, resolve_group_config
from kip848_client.coordinator.core.inputs import (
    ApiRequest,
    ConfigChanged,
    GroupMessage,
    GroupRequest,
    OffsetRetentionDue,
    RegexResolved,
    TopicsChanged,
)
from kip848_client.coordinator.core.result import CoordinatorRecord, CoordinatorResult, Reply, ResolveRegexes
from kip848_client.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.coordinator.group_coordinator import GroupCoordinator
from kip848_client.coordinator.group_image import GroupImage, MemberImage
from kip848_client.coordinator.modern.member_record import ReconciliationState

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
    "GroupImage",
    "MemberImage",
    "GroupState",
    "ReconciliationState",
    "GROUP_CONFIG_NAMES",
    "GroupConfig",
    "resolve_group_config",
]
