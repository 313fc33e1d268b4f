"""Kafka consumers for the next-generation rebalance protocol (KIP-848), and an embedded broker to test them with.

The public names, nothing else. Each is loaded when it is first used (PEP 562), so that a pure core, a Spark worker or a
test run that needs none of it does not load librdkafka.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""Type checkers know this name and take it for true; importing it from ``typing`` would cost more than all the rest."""

if TYPE_CHECKING:
    from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener
    from kip848_client.aio.worker import AsyncWorker
    from kip848_client.assignors.client.interface import (
        AssignmentSpec,
        AssignorMetadata,
        ConsumerGroupMetadata,
        GroupAssignment,
        MemberAssignment,
        MemberSpec,
        PartitionAssignor,
        TopicSpec,
    )
    from kip848_client.assignors.client.plan import AssignmentPlan
    from kip848_client.assignors.client.spread import keep_held, spread_by_weight, spread_evenly
    from kip848_client.assignors.units.cooperative import CooperativeAssignor, EagerAssignor
    from kip848_client.broker.broker import EmbeddedBroker
    from kip848_client.client.group.health import ConsumerHealth, PartitionHealth
    from kip848_client.client.records.data_plane import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        KafkaError,
        KafkaException,
        Message,
    )
    from kip848_client.client.records.data_plane import TopicPartition as TopicPartition
    from kip848_client.client.records.kafka_errors import ErrorDetails
    from kip848_client.consumer import Consumer, ConsumerRebalanceListener
    from kip848_client.error_codes import ErrorCode
    from kip848_client.errors import (
        ArgumentTypeError,
        AssignorTimeoutError,
        AuthenticationError,
        BrokerError,
        CatalogConflictError,
        ClientAssignorError,
        ClientAssignorsUnsupportedError,
        CommitFailedError,
        ConfigError,
        ConnectionLostError,
        DataDirCorruptError,
        DataDirError,
        DataDirForeignError,
        DataDirLockedError,
        DeserializationError,
        FatalGroupError,
        FencedError,
        FencedInstanceIdError,
        FencedMemberEpochError,
        ForkedProcessError,
        GroupAuthorizationError,
        GroupIdNotFoundError,
        GroupMaxSizeReachedError,
        IllegalStateError,
        InvalidAssignmentError,
        InvalidGroupRequestError,
        InvalidRegularExpressionError,
        KeyDeserializationError,
        Kip848Error,
        ListenerError,
        MaxPollExceededError,
        MessageValueError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        ProtocolError,
        RefusedRecordsError,
        RequestTimeoutError,
        RetriableCommitFailedError,
        StaleMemberEpochError,
        TopicAuthorizationError,
        UnknownMemberIdError,
        UnreleasedInstanceIdError,
        UnsupportedAssignorError,
        UnsupportedByBrokerError,
        UnsupportedGroupProtocolError,
        UnsupportedVersionError,
        ValueDeserializationError,
    )
    from kip848_client.member.core.events import LeaveMode
    from kip848_client.member.core.states import MemberState
    from kip848_client.model import SubscriptionPattern, Unit
    from kip848_client.worker.events import OwnedUnit
    from kip848_client.worker.observer import WorkerHealth
    from kip848_client.worker.worker import LeaderElection, Worker

__all__ = [
    "Consumer",
    "AsyncConsumer",
    "ConsumerRebalanceListener",
    "AsyncConsumerRebalanceListener",
    "Worker",
    "AsyncWorker",
    "LeaderElection",
    "CooperativeAssignor",
    "EagerAssignor",
    "Unit",
    "OwnedUnit",
    "SubscriptionPattern",
    "TopicPartition",
    "Message",
    "MemberState",
    "ConsumerHealth",
    "WorkerHealth",
    "PartitionHealth",
    "LeaveMode",
    "Kip848Error",
    "BrokerError",
    "CatalogConflictError",
    "ConfigError",
    "IllegalStateError",
    "ArgumentTypeError",
    "AssignorTimeoutError",
    "AuthenticationError",
    "ClientAssignorError",
    "ClientAssignorsUnsupportedError",
    "CommitFailedError",
    "ConnectionLostError",
    "DataDirCorruptError",
    "DataDirError",
    "DataDirForeignError",
    "DeserializationError",
    "KeyDeserializationError",
    "ValueDeserializationError",
    "DataDirLockedError",
    "FatalGroupError",
    "FencedError",
    "FencedInstanceIdError",
    "FencedMemberEpochError",
    "ForkedProcessError",
    "GroupAuthorizationError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "InvalidAssignmentError",
    "InvalidGroupRequestError",
    "InvalidRegularExpressionError",
    "ListenerError",
    "MaxPollExceededError",
    "MessageValueError",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "ProtocolError",
    "RefusedRecordsError",
    "RequestTimeoutError",
    "RetriableCommitFailedError",
    "StaleMemberEpochError",
    "TopicAuthorizationError",
    "UnknownMemberIdError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedByBrokerError",
    "UnsupportedGroupProtocolError",
    "UnsupportedVersionError",
    "ErrorCode",
    "ErrorDetails",
    "KafkaError",
    "KafkaException",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "EmbeddedBroker",
    "PartitionAssignor",
    "AssignorMetadata",
    "AssignmentSpec",
    "MemberSpec",
    "TopicSpec",
    "GroupAssignment",
    "MemberAssignment",
    "ConsumerGroupMetadata",
    "AssignmentPlan",
    "spread_evenly",
    "spread_by_weight",
    "keep_held",
]

_HOMES = {
    "Consumer": ("kip848_client.consumer", "Consumer"),
    "AsyncConsumer": ("kip848_client.aio.consumer", "AsyncConsumer"),
    "AsyncConsumerRebalanceListener": ("kip848_client.aio.consumer", "AsyncConsumerRebalanceListener"),
    "ConsumerRebalanceListener": ("kip848_client.consumer", "ConsumerRebalanceListener"),
    "SubscriptionPattern": ("kip848_client.model", "SubscriptionPattern"),
    "TopicPartition": ("kip848_client.client.records.data_plane", "TopicPartition"),
    "Message": ("kip848_client.client.records.data_plane", "Message"),
    "WorkerHealth": ("kip848_client.worker.observer", "WorkerHealth"),
    "ConsumerHealth": ("kip848_client.client.group.health", "ConsumerHealth"),
    "PartitionHealth": ("kip848_client.client.group.health", "PartitionHealth"),
    "MemberState": ("kip848_client.member.core.states", "MemberState"),
    "LeaveMode": ("kip848_client.member.core.events", "LeaveMode"),
    **dict.fromkeys(
        """
        ArgumentTypeError AssignorTimeoutError AuthenticationError BrokerError CatalogConflictError ClientAssignorError
        ClientAssignorsUnsupportedError
        CommitFailedError ConfigError ConnectionLostError DataDirCorruptError DataDirError
        DataDirForeignError DataDirLockedError FatalGroupError FencedError FencedInstanceIdError FencedMemberEpochError
        ForkedProcessError GroupAuthorizationError GroupIdNotFoundError GroupMaxSizeReachedError IllegalStateError
        InvalidAssignmentError InvalidGroupRequestError InvalidRegularExpressionError Kip848Error ListenerError
        MaxPollExceededError MessageValueError NoOffsetForPartitionError OffsetOutOfRangeError ProtocolError
        RefusedRecordsError
        RequestTimeoutError
        RetriableCommitFailedError StaleMemberEpochError TopicAuthorizationError UnknownMemberIdError
        UnreleasedInstanceIdError UnsupportedAssignorError UnsupportedGroupProtocolError UnsupportedVersionError
        UnsupportedByBrokerError
        DeserializationError KeyDeserializationError ValueDeserializationError
        """.split(),
        ("kip848_client.errors", ""),
    ),
    "ErrorCode": ("kip848_client.error_codes", "ErrorCode"),
    "ErrorDetails": ("kip848_client.client.records.kafka_errors", "ErrorDetails"),
    **dict.fromkeys(
        """
        KafkaError KafkaException OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED TIMESTAMP_CREATE_TIME
        TIMESTAMP_LOG_APPEND_TIME TIMESTAMP_NOT_AVAILABLE
        """.split(),
        ("kip848_client.client.records.data_plane", ""),
    ),
    "AsyncWorker": ("kip848_client.aio.worker", "AsyncWorker"),
    "Worker": ("kip848_client.worker.worker", "Worker"),
    "LeaderElection": ("kip848_client.worker.worker", "LeaderElection"),
    "CooperativeAssignor": ("kip848_client.assignors.units.cooperative", "CooperativeAssignor"),
    "EagerAssignor": ("kip848_client.assignors.units.cooperative", "EagerAssignor"),
    "OwnedUnit": ("kip848_client.worker.events", "OwnedUnit"),
    "Unit": ("kip848_client.model", "Unit"),
    "EmbeddedBroker": ("kip848_client.broker", "EmbeddedBroker"),
    "PartitionAssignor": ("kip848_client.assignors.client.interface", "PartitionAssignor"),
    "AssignorMetadata": ("kip848_client.assignors.client.interface", "AssignorMetadata"),
    "AssignmentSpec": ("kip848_client.assignors.client.interface", "AssignmentSpec"),
    "MemberSpec": ("kip848_client.assignors.client.interface", "MemberSpec"),
    "TopicSpec": ("kip848_client.assignors.client.interface", "TopicSpec"),
    "GroupAssignment": ("kip848_client.assignors.client.interface", "GroupAssignment"),
    "MemberAssignment": ("kip848_client.assignors.client.interface", "MemberAssignment"),
    "ConsumerGroupMetadata": ("kip848_client.assignors.client.interface", "ConsumerGroupMetadata"),
    "AssignmentPlan": ("kip848_client.assignors.client.plan", "AssignmentPlan"),
    "spread_evenly": ("kip848_client.assignors.client.spread", "spread_evenly"),
    "spread_by_weight": ("kip848_client.assignors.client.spread", "spread_by_weight"),
    "keep_held": ("kip848_client.assignors.client.spread", "keep_held"),
}
"""Public name -> (module, name there; the same if empty)."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        from kip848_client.other_clients import NAMES

        if name in NAMES:  # an ImportError, because `from ... import` drops the text of an AttributeError
            raise ImportError(f"kip848_client has no {name}: {NAMES[name]}")
        raise AttributeError(f"module 'kip848_client' has no attribute {name!r}")
    import importlib  # with the first name that is used, for the same reason

    value = getattr(importlib.import_module(home[0]), home[1] or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
