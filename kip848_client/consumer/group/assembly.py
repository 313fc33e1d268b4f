"""Puts one member together from a checked configuration: the only place that knows every part of the shell."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Sized
from typing import Final

import anyio.abc

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.config import CLASSIC_KEYS, ConsumerConfig
from kip848_client.config.assignors import is_cooperative
from kip848_client.config.reset import duration_ms
from kip848_client.consumer.group.app_thread import AppThread, RecordSource
from kip848_client.consumer.group.assignor_runner import AssignorRunner, FirstDescription
from kip848_client.consumer.group.commit_manager import CommitManager, OnCommitted
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.consumer.group.heartbeat_manager import AppEffect, HeartbeatRequestManager
from kip848_client.consumer.group.listener_invoker import ListenerInvoker
from kip848_client.journal import Journal, NullJournal
from kip848_client.member.core.assignor_values import undescribed
from kip848_client.member.core.events import MemberEvent
from kip848_client.member.core.settings import ByDuration, GroupProtocol, MemberConfig, ResetPolicy
from kip848_client.member.member import Member
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.observer import MemberObserver
from kip848_client.network.presence import AppPresence
from kip848_client.network.queues import AppQueue
from kip848_client.network.request_sender import RequestSender
from kip848_client.network.requests import NetworkPerformer, RequestPerformer
from kip848_client.network.topic_metadata import TopicMetadataRequestManager

_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


def build_group_member(
    config: ConsumerConfig,
    *,
    records: RecordSource,
    buffer: Sized = (),
    on_commit: OnCommitted | None = None,
    clock: Clock | None = None,
    journal: Journal | None = None,
    opener: ConnectionOpener | None = None,
) -> GroupMember:
    """Make a member that has joined nothing yet. Its thread starts with the first call that needs it.

    Args:
        records: where the records come from.
        buffer: records that poll() hands out without passing through the member; see `AppPresence`.
        on_commit: called for every commit without a callback of its own.
        journal: where the client's events go.
        opener: opens connections, if the caller needs it as well.
    """
    clock = clock or SystemClock()
    if config.classic_keys:
        instead = "; ".join(f"{key}: {CLASSIC_KEYS[key]}" for key in config.classic_keys)
        log_event(
            logging.WARNING,
            LogEvent.CLASSIC_BY_KEYS,
            group_id=config.group_id,
            keys=",".join(config.classic_keys),
            hint=f"set group.protocol=classic to keep it; for group.protocol=consumer: {instead}",
        )
    # From the operating system, per object: a fork or a seeded process must not give two members one id (KIP-1082).
    system_random = random.SystemRandom()
    member = Member(member_config(config, member_id=str(uuid.uuid4())), rng=random.Random(system_random.random()))
    observer = MemberObserver(
        group_id=config.group_id,
        client_id=config.client_id,
        clock=clock,
        journal=journal or NullJournal(),
        max_poll_interval_ms=config.max_poll_interval_ms,
        settings=_log_settings(config),
        own_assignors=[own.name for own in config.local_assignors.assignors if own.name not in BUILT_IN],
    )
    app_queue: AppQueue[AppEffect] = AppQueue()
    commits = CommitManager(on_commit)
    presence = AppPresence(buffer)

    open_connection = opener or ConnectionOpener(config)

    def make_performer(tasks: anyio.abc.TaskGroup, report: Callable[[MemberEvent], None]) -> RequestPerformer:
        sender = RequestSender(
            bootstrap=[(server.host, server.port) for server in config.bootstrap_servers],
            open_connection=open_connection,
            tasks=tasks,
            clock=clock,
            rng=random.Random(system_random.random()),
            backoff_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
            setup_timeout_ms=config.connection_setup_timeout_ms,
            rebootstraps=config.rebootstraps,
        )
        metadata = TopicMetadataRequestManager(
            sender, clock=clock, isolation_level=_ISOLATION_LEVELS[config.isolation_level]
        )
        return NetworkPerformer(sender=sender, metadata=metadata, tasks=tasks, observer=observer, report=report)

    def report_assignors(event: MemberEvent) -> None:
        manager.report(event)

    local = config.local_assignors
    runner = AssignorRunner(
        local.assignors, report=report_assignors, observer=observer, name=f"kip848-assignor-{config.client_id}"
    )
    manager = HeartbeatRequestManager(
        member,
        make_performer=make_performer,
        app_queue=app_queue,
        commits=commits,
        presence=presence,
        observer=observer,
        clock=clock,
        name=f"kip848-heartbeat-{config.client_id}",
        assignors=runner,
    )
    listeners = ListenerInvoker(report=lambda done: thread.post(done), observer=observer)  # noqa: PLW0108  it is made below
    thread = AppThread(
        manager,
        queue=app_queue,
        commits=commits,
        presence=presence,
        listeners=listeners,
        records=records,
        clock=clock,
    )
    return GroupMember(
        thread,
        manager=manager,
        commits=commits,
        listeners=listeners,
        clock=clock,
        default_api_timeout_ms=config.default_api_timeout_ms,
        auto_commit=config.auto_commit_interval_ms is not None,
        assignors=FirstDescription(runner, timeout_s=local.timeout_ms / 1_000) if local.assignors else None,
    )


def _log_settings(config: ConsumerConfig) -> dict[str, object]:
    """What the log says about a member that has joined."""
    given: dict[str, object] = {"protocol": config.protocol}
    if config.protocol == GroupProtocol.CLASSIC.value:
        given["heartbeat_interval_ms"] = config.heartbeat_interval_ms
    elif config.group_remote_assignor is not None:
        given["assignor"] = config.group_remote_assignor
    if config.group_instance_id is not None:
        given["instance_id"] = config.group_instance_id
    return given


def member_config(config: ConsumerConfig, *, member_id: str) -> MemberConfig:
    """The part of the configuration that the pure member needs."""
    return MemberConfig(
        group_id=config.group_id,
        member_id=member_id,
        instance_id=None if config.slots.slots else config.group_instance_id,
        slots=config.slots.slots,
        gives_up_slot=config.slots.pooled,
        takeover_retry_ms=config.slots.retry_ms,
        takeover_wait_ms=config.slots.wait_ms,
        rack_id=config.client_rack,
        user=None if config.security.sasl is None else config.security.sasl.username or None,
        server_assignor=config.group_remote_assignor,
        client_assignors=tuple(map(undescribed, config.local_assignors.assignors)),
        assignor_timeout_ms=config.local_assignors.timeout_ms,
        assignor_fallback=config.local_assignors.fallback,
        max_poll_interval_ms=config.max_poll_interval_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        auto_offset_reset=_reset_policy(config.auto_offset_reset),
        auto_offset_reset_new_partitions=_reset_policy(config.auto_offset_reset_new_partitions),
        early_heartbeats=config.early_heartbeats,
        heartbeat_interval_max_ms=config.heartbeat_interval_max_ms,
        protocol=GroupProtocol(config.protocol),
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        cooperative=is_cooperative(config.local_assignors.assignors),
        topic_refresh_ms=config.topic_refresh_ms,
    )


def _reset_policy(text: str) -> ResetPolicy | ByDuration:
    age_ms = duration_ms(text)
    return ResetPolicy(text) if age_ms is None else ByDuration(age_ms)
