"""The coordinator's inputs: requests of clients, and changes of its environment. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import msgspec

from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.wire.schema import Request, Response

GroupMessage: TypeAlias = Request[Response]
"""A request that a group coordinator answers: one of the ``ROUTES`` of its parts and kinds."""


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
    """The overrides of one group are now these (names as `GroupConfig.properties` has them); empty means none.

    They must have passed `group_overrides.resolve_group_config`; what does not is refused with its ConfigError.
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


class ShareStateInitialized(msgspec.Struct, frozen=True):
    """The state of share partitions was made, as `result.InitializeShareState` asked.

    Args:
        partitions: (topic id, partition) of each.
    """

    group_id: str
    partitions: tuple[tuple[UUID, int], ...]


GroupRequest: TypeAlias = (
    ApiRequest
    | TopicsChanged
    | ConfigChanged
    | RegexResolved
    | ShareStateInitialized
    | TransactionEnded
    | OffsetRetentionDue
    | CoordinatorStops
)
