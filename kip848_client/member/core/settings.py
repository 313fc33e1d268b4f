"""The checked settings of one member. Defaults are Kafka's.

Does not own: property names and their parsing (`kip848_client.config`).
"""

from __future__ import annotations

import enum

import msgspec

from kip848_client.errors import ConfigError
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor


class GroupProtocol(enum.Enum):
    """How a member speaks with its group (``group.protocol``)."""

    CONSUMER = "consumer"
    """KIP-848: the coordinator assigns."""
    CLASSIC = "classic"
    """JoinGroup and SyncGroup: a member assigns."""


class ResetPolicy(enum.Enum):
    """Where a partition without a committed offset starts (``auto.offset.reset``)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: raise an error to the application."""


class ByDuration(msgspec.Struct, frozen=True):
    """At the first record that is not older than this, else at the end (``auto.offset.reset=by_duration:PT1H``).

    Source:
        KIP-1106.
    """

    duration_ms: int


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one member.

    Args:
        group_id: ``group.id``; not empty.
        member_id: made by the shell, once per consumer, from the operating system's randomness (KIP-1082).
        instance_id: ``group.instance.id`` of a static member, or None.
        slots: instance ids of which the member takes one that is free, or stands by until one is released; with a
            KIP-848 group and without *instance_id* only.
        gives_up_slot: a leave gives the slot up if no standby takes it in time; else the session keeps it.
        takeover_retry_ms: pause between two attempts of a standby to take a slot.
        takeover_wait_ms: how long a member that has released its slot waits for a standby to take it.
        rack_id: ``client.rack``, or None.
        user: who logs in, named in errors about permissions; None if that is not known.
        server_assignor: ``group.remote.assignor``, or None for the coordinator's choice.
        client_assignors: ``group.local.assignors`` by priority, as first advertised; not with a server assignor.
        assignor_timeout_ms: longest that a call of a client-side assignor counts.
        assignor_fallback: go on without client-side assignors where the coordinator has no such thing.
        max_poll_interval_ms: longest time between two polls.
        rebalance_timeout_ms: as sent to the coordinator; Kafka uses max.poll.interval.ms.
        request_timeout_ms: one request.
        retry_backoff_ms: first wait after a failure.
        retry_backoff_max_ms: longest wait after a failure.
        auto_commit_interval_ms: None when ``enable.auto.commit`` is false.
        auto_offset_reset: what to do without a committed offset.
        auto_offset_reset_new_partitions: the same for partitions that appeared while the member was subscribed; None
            if those are no different.
        early_heartbeats: heartbeat sooner than the interval while partitions of other members are on their way.
        heartbeat_interval_max_ms: longest interval, even if the coordinator names a longer one; None for no limit.
        protocol: how it speaks with its group.
        session_timeout_ms: classic only: how long it may be silent.
        heartbeat_interval_ms: classic only.
        cooperative: classic only: keeps its partitions while it joins again. *client_assignors* are all that it offers
            then, in order of preference.
        topic_refresh_ms: classic only: how often the leader checks the group's topics for changes; None for never.
        unreleased_instance_retry_ms: how long UNRELEASED_INSTANCE_ID is taken as a passing error while joining. 0, as
            in Kafka: it is fatal at once. A static member that crashed can hit its own former self; with one session
            timeout here it waits that out.

    Raises:
        ConfigError: a value makes no sense.
    """

    group_id: str
    member_id: str
    instance_id: str | None = None
    slots: tuple[str, ...] = ()
    gives_up_slot: bool = False
    takeover_retry_ms: int = 50
    takeover_wait_ms: int = 1_000
    rack_id: str | None = None
    user: str | None = None
    server_assignor: str | None = None
    client_assignors: tuple[Assignor, ...] = ()
    assignor_timeout_ms: int = 60_000
    assignor_fallback: bool = False
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int = 300_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    auto_commit_interval_ms: int | None = 5000
    auto_offset_reset: ResetPolicy | ByDuration = ResetPolicy.LATEST
    auto_offset_reset_new_partitions: ResetPolicy | ByDuration | None = None
    unreleased_instance_retry_ms: int = 0
    early_heartbeats: bool = False
    heartbeat_interval_max_ms: int | None = None
    protocol: GroupProtocol = GroupProtocol.CONSUMER
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    cooperative: bool = True
    topic_refresh_ms: int | None = 300_000

    def __post_init__(self) -> None:
        if not self.group_id.strip():
            raise ConfigError("group.id is empty; a member needs the name of its group")
        if not self.member_id:
            raise ConfigError("member_id is empty; give a random UUID as text")
        if self.instance_id is not None and not self.instance_id:
            raise ConfigError("group.instance.id is empty; leave it out for a dynamic member")
        if self.protocol is GroupProtocol.CLASSIC and not self.client_assignors:
            raise ConfigError("a member on the classic protocol needs an assignor that it can offer")
        if self.server_assignor is not None and self.client_assignors:
            raise ConfigError(
                "group.remote.assignor and group.local.assignors exclude each other; leave one of them out"
            )
        for name, value, least in (
            ("group.local.assignors.timeout.ms", self.assignor_timeout_ms, 1),
            ("max.poll.interval.ms", self.max_poll_interval_ms, 1),
            ("rebalance timeout", self.rebalance_timeout_ms, 1),
            ("request.timeout.ms", self.request_timeout_ms, 1),
            ("retry.backoff.ms", self.retry_backoff_ms, 0),
            ("retry.backoff.max.ms", self.retry_backoff_max_ms, 0),
            ("auto.commit.interval.ms", self.auto_commit_interval_ms, 0),
            ("heartbeat.interval.max.ms", self.heartbeat_interval_max_ms, 1),
            ("session.timeout.ms", self.session_timeout_ms, 1),
            ("heartbeat.interval.ms", self.heartbeat_interval_ms, 1),
            ("topic.metadata.refresh.interval.ms", self.topic_refresh_ms, 1),
            ("group.instance.id.takeover.retry.ms", self.takeover_retry_ms, 1),
            ("group.instance.id.takeover.wait.ms", self.takeover_wait_ms, 0),
            ("unreleased_instance_retry_ms", self.unreleased_instance_retry_ms, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}; it must be at least {least} ms")


def missing_permission(config: MemberConfig, operation: str, resource: str) -> str:
    """The part of an error that names the missing permission: ``user 'alice' needs READ on group 'billing'``."""
    who = "this client" if config.user is None else f"user {config.user!r}"
    return f"{who} needs {operation} on {resource}"
