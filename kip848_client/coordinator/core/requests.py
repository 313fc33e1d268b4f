"""The coordinator's inputs: requests of clients, and changes of its environment. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from kip848_client.coordinator.core.topics import TopicsImage
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.connect_group_heartbeat import ConnectGroupHeartbeatRequest
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest
from kip848_client.wire.messages.connect_group_prepare_assignment import ConnectGroupPrepareAssignmentRequest
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

GroupMessage: TypeAlias = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
    | ConsumerGroupPrepareAssignmentRequest
    | ConsumerGroupInstallAssignmentRequest
    | ConsumerGroupDescribeRequest
    | ConnectGroupHeartbeatRequest
    | ConnectGroupPrepareAssignmentRequest
    | ConnectGroupInstallAssignmentRequest
    | ConnectGroupDescribeRequest
    | OffsetCommitRequest
    | TxnOffsetCommitRequest
    | OffsetFetchRequest
    | OffsetDeleteRequest
    | ListGroupsRequest
    | DescribeGroupsRequest
    | DeleteGroupsRequest
)
"""The requests that a group coordinator answers."""


class ApiRequest(msgspec.Struct, frozen=True):
    """A decoded request of a client that the shell has authenticated and authorised.

    Args:
        request_id: chosen by the shell, unique among the requests that wait; the reply carries it.
        api_version: version that the client spoke; some rules depend on it.
        client_host: as Kafka writes it, for example ``/127.0.0.1``.
        wall_ms: milliseconds since 1970, for timestamps in records.
    """

    request_id: int
    api_version: int
    message: GroupMessage
    wall_ms: int
    client_id: str = ""
    client_host: str = ""


class TopicsChanged(msgspec.Struct, frozen=True):
    """Topics were created, deleted, or got more partitions. Also sent once at the start."""

    image: TopicsImage


class ConfigChanged(msgspec.Struct, frozen=True):
    """The overrides of one group are now these (names of `group_configs.GROUP_CONFIG_NAMES`); empty means none.

    They must have passed `group_configs.resolve_group_config`; what does not is refused with its ConfigError.
    """

    group_id: str
    overrides: Mapping[str, str]


class CoordinatorStops(msgspec.Struct, frozen=True):
    """The process ends in order: requests that are parked are answered, and their clients look for a coordinator."""


class TransactionEnded(msgspec.Struct, frozen=True):
    """The transaction of a producer has ended: the offsets that it committed count from now on, or are dropped."""

    producer_id: int
    commit: bool


class OffsetRetentionDue(msgspec.Struct, frozen=True):
    """Look for offsets that have expired. The shell sends it every ``offsets.retention.check.interval.ms``."""

    wall_ms: int


class RegexResolved(msgspec.Struct, frozen=True):
    """The patterns of a group were matched against the topics; made by `subscriptions.resolve`.

    Args:
        topics: pattern -> names of the topics that it matches.
        version: `TopicsImage.version` of those topics.
        wall_ms: when, in ms since 1970.
    """

    group_id: str
    topics: Mapping[str, frozenset[str]]
    version: int
    wall_ms: int


GroupRequest: TypeAlias = (
    ApiRequest
    | TopicsChanged
    | ConfigChanged
    | RegexResolved
    | TransactionEnded
    | OffsetRetentionDue
    | CoordinatorStops
)
