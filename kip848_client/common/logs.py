"""Log events with stable names and fields, on ``kip848_client`` and, for the embedded broker, its child ``broker``.

The message of a record is ``name key=value ...`` for people: one line, in which nothing that others chose controls a
terminal. The record itself carries the name as ``kip848_event`` and every field as an attribute with its own type, so
that a JSON formatter or structlog's ``ExtraAdder`` needs no parsing.
Tests and alerts may rely on the names in `LogEvent`.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from typing import Final, Self

from kip848_client.common.plain_text import printable

LOGGER: Final = logging.getLogger("kip848_client")
BROKER_LOGGER: Final = logging.getLogger("kip848_client.broker")


class LogEvent(enum.StrEnum):
    """Every log event of client and embedded broker. Events of a member also have group_id and, once known, member_id.

    Args:
        fields: the names of its fields, then what it means.
    """

    fields: str

    def __new__(cls, name: str, fields: str) -> Self:
        """Keep *fields* as an attribute; the name is the value."""
        event = str.__new__(cls, name)
        event._value_ = name
        event.fields = fields
        return event

    STATE_CHANGED = "member.state_changed", "from, to, trigger, member_epoch"
    JOINED = (
        "member.joined",
        "protocol, coordinator, member_epoch, heartbeat_interval_ms (not known on the classic protocol before Kafka "
        "answers: the setting), instance_id, assignor",
    )
    LEFT = "member.left", "reason: by itself or removed; a member that is FATAL logs member.failed instead"
    PARTITIONS_ASSIGNED = (
        "member.partitions_assigned",
        "partitions, count: new ones, before the listener is called; several in one text: orders-[0-7,9]",
    )
    PARTITIONS_REVOKED = "member.partitions_revoked", "partitions, count: before the listener is called"
    PARTITIONS_LOST = "member.partitions_lost", "partitions, count: before the listener is called"
    READING_FROM = (
        "member.reading_from",
        "reason, reset, partitions, count, offsets, lost_offsets: where partitions begin and why, one line for each "
        "reason; reset is the policy that chose, and the mappings have the first ten partitions",
    )
    COMMIT_FAILED = (
        "member.commit_failed",
        "partitions, count, offsets, error: a commit of the application, which also gets the error",
    )
    READS_NOTHING = (
        "consumer.reads_nothing",
        "reason, seconds, partitions, count, starts, records, hint: nothing was read since subscribe() or assign(), "
        "although the partitions are at their end; starts is why they began there, records how many they hold; once",
    )
    FAILED = "member.failed", "error: the member is FATAL"
    COORDINATOR_CONNECTED = "member.coordinator_connected", "node"
    SHARE_NOT_ACKNOWLEDGED = (
        "share.not_acknowledged",
        "partition, records, error: what was said about records of a share group was refused, or its answer was lost",
    )
    SHARE_LOCKS_LOST = (
        "share.locks_lost",
        "partition, records: their locks ended, or their leader went, while the application had them: they may be done "
        "twice",
    )
    SHARE_HANDLER_FAILED = (
        "share.handler_failed",
        "partition, offset, delivery, attempt, again, error: a handler of a share consumer's process() failed",
    )
    SHARE_LEADERS_UNKNOWN = "share.leaders_unknown", "error: the leaders of the partitions could not be looked up"
    SHARE_LEADER_REFUSES = "share.leader_refuses", "node_id, error: a leader refuses for now; it is asked again"
    SHARE_CRASHED = "share.crashed", "group_id: a bug of this library has ended a share consumer's thread"
    WORKER_NOTED = (
        "worker.noted",
        "group_id, worker_id, what (fenced, lease_ended, request_failed, start_failed, stop_failed, not_prepared, "
        "not_installed, units_behind, units_late, margin_changed), error, units or times",
    )
    WORKER_FAILED = "worker.failed", "group_id, worker_id, error: the worker has stopped for good"
    WORKER_CRASHED = "worker.crashed", "group_id: a bug of this library has ended the worker's thread"
    UNIT_FAILED = (
        "worker.unit_failed",
        "unit, token, what, then: the runner of a unit raised, or returned before it was told to stop; what follows",
    )
    PLAN_FAILED = "worker.plan_failed", "assignor: a client-side assignor raised"
    UNITS_NOT_READ = "worker.units_not_read", "group_id: the function that gives the units raised"
    REQUEST_FAILED = "member.request_failed", "api, kind, error"
    LISTENER_FAILED = "member.listener_failed", "callback, partitions, count, error"
    ERROR_DROPPED = (
        "member.error_dropped",
        "error, times: further errors of one call, whose first one was raised; or what a next poll() would have raised",
    )
    ASYNC_COMMIT_FAILED = (
        "member.async_commit_failed",
        "error: asynchronous commits without on_commit fail because of a broker or a rebalance; unless later ones have "
        "their partitions, or these go, they are sent again. At most one line in ten seconds",
    )
    LEAVE_TIMED_OUT = "member.leave_timed_out", "timeout_ms: the coordinator did not answer the leave in time"
    MARKS_IGNORED = (
        "processing.marks_ignored",
        "group_id, partition, offset: the metadata of the commit is another program's, newer, or damaged",
    )
    HANDLER_FAILED = (
        "processing.handler_failed",
        "group_id, records, attempt, error, then (retry, split, dead_letter, skip, stop), delay_s: a call of the "
        "handler of process() failed",
    )
    RECORD_SKIPPED_BY_HANDLER = (
        "processing.record_skipped",
        'group_id, records, attempts, error: a handler failed for good, and on_error="skip" goes on',
    )
    PROCESSING_METADATA_LIMITED = (
        "processing.metadata_limited",
        "group_id, bytes: the broker takes less metadata in a commit than usual (offset.metadata.max.bytes), so that "
        "fewer records may be done ahead of the oldest one",
    )
    PROCESSING_LATE = (
        "processing.late",
        "group_id, error: the event loop or a listener took longer than max.poll.interval.ms; process() joins again",
    )
    HANDLERS_DO_NOT_END = (
        "processing.handlers_do_not_end",
        "group_id, handlers, oldest, at, seconds: handlers swallow their cancellation; process() waits for them",
    )
    HANDLER_PROCESS_DIED = (
        "processing.process_died",
        "group_id, records, alone, how: a worker process has ended, and these records were in hand. They run again "
        "one by one; if they were alone they have failed",
    )
    PROCESSING_COMMIT_FAILED = (
        "processing.commit_failed",
        "group_id, offsets, error: what was done may be handled again; the next commit has it, too",
    )
    TRANSACTION_ABORTED = (
        "processing.transaction_aborted",
        "group_id, error: a transaction was not committed; process() writes it again, a block reads its records again",
    )
    AUTO_COMMIT_FAILED = (
        "member.auto_commit_failed",
        "partitions, count, offsets, error: an automatic commit was refused; offsets of the first ten partitions",
    )
    COMMIT_GAVE_UP = (
        "member.commit_gave_up",
        "partitions, count, offsets, error: commit() inside on_partitions_revoked left these out, because their topic "
        "was deleted",
    )
    EFFECT_FAILED = (
        "member.effect_failed",
        "effect, failures, error: a bug of this library cut off a step of poll(); the next poll() repeats it",
    )
    ASSIGNOR_FAILED = (
        "member.assignor_failed",
        "group_id, error: a client-side assignor failed, or its result was refused",
    )
    ASSIGNORS_UNSUPPORTED = (
        "member.assignors_unsupported",
        "group_id, missing: the server assigns, because the coordinator has no client-side assignment",
    )
    GROUP_RESTLESS = (
        "member.group_restless",
        "group_id, assignments: the group does not come to rest; how many, in which time, and why",
    )
    ASSIGNORS_IDLE = (
        "member.assignors_idle",
        "group_id, assignors: while members of both protocols are in the group, its coordinator assigns",
    )
    STANDBY_BEGAN = (
        "standby.began",
        "group_id, slots, seconds: every slot is held, and the member waits for one; again every minute, with the "
        "seconds since it began",
    )
    STANDBY_TOOK_OVER = (
        "standby.took_over",
        "group_id, slot, from_member (who had released it, if that is known), ms (how long it stood by): the member "
        "has joined with this slot",
    )
    SLOTS_UNSEEN = (
        "standby.slots_unseen",
        "group_id, reason: the group cannot be described, so the slots are tried in turn, which takes longer",
    )
    HAND_OVER_FAILED = (
        "member.hand_over_failed",
        "group_id, reason: partitions were given up before the other members were known to be ready",
    )
    HEARTBEAT_THREAD_DIED = "member.heartbeat_thread_died", "error: a bug of this library"
    NOT_CLOSED = "consumer.not_closed", "group_id, client_id: the consumer was dropped without close()"
    CLASSIC_BY_KEYS = (
        "consumer.classic_by_keys",
        "group_id, keys, hint: these keys decided for the classic protocol, as group.protocol is not given",
    )
    NOT_SUBSCRIBED = (
        "consumer.not_subscribed",
        "group_id, hint: poll() was called before subscribe() or assign(); logged once",
    )
    TOPICS_MISSING = (
        "consumer.topics_missing",
        "group_id, topics, hint: topics, or partitions of assign(), do not exist; once per subscription and deletion",
    )
    NOT_ASSIGNED = (
        "consumer.not_assigned",
        "call, partitions: pause() or resume() was called for partitions that the consumer does not have",
    )
    OAUTH_FAILED = "consumer.oauth_failed", "error: no new token: oauth_cb or the issuer failed; tried again"
    NOT_VERIFIED = "consumer.tls_not_verified", "key: the setting that turned a check of the broker's certificate off"
    DATA_PLANE_ERROR = "consumer.data_plane_error", "error: reported by librdkafka, and not raised"
    DATA_PLANE_RENEWED = (
        "consumer.data_plane_renewed",
        "topics: created again, so records are read with a new librdkafka consumer",
    )
    PARTITIONS_STALLED = (
        "consumer.partitions_stalled",
        "partitions, seconds, error: their position does not move although records wait; repeated now and then",
    )
    PARTITIONS_MOVE = "consumer.partitions_move", "partitions: they were stalled, and are not any more"
    REQUEST_NOT_HANDLED = (
        "broker.request_failed",
        "api, version, client_id: a handler raised; the client was told UNKNOWN_SERVER_ERROR",
    )
    CONNECTION_REFUSED = (
        "broker.connection_refused",
        "peer, reason: a connection was closed for what it sent, or because there are too many",
    )
    CONNECTIONS_REFUSED = (
        "broker.connections_refused",
        "count, last_reason: refused connections of the last ten seconds that were not logged one by one",
    )
    RECORD_SKIPPED = (
        "broker.record_skipped",
        "record_type: a record in the coordinator's log has a type that this version does not know",
    )
    GROUP_CONFIG_IGNORED = (
        "broker.group_config_ignored",
        "group_id, reason: a stored group setting is outside the broker's bounds",
    )
    PATTERNS_NOT_RESOLVED = (
        "broker.patterns_not_resolved",
        "group_id: a bug of this library; the group's patterns match nothing until the topics change",
    )
    TIMER_FAILED = "broker.timer_failed", "retry_ms: a bug of this library; the timer is tried again"
    FAULT_RULE_FAILED = "broker.fault_rule_failed", "rule: its function raised, or its result could not be sent"
    SHARE_STATE_NOT_KEPT = (
        "broker.share_state_not_kept",
        "group_id, topic, partition, reason: records of a share group may be delivered once more",
    )
    DEAD_LETTERS_NOT_WRITTEN = (
        "broker.dead_letters_not_written",
        "group_id, topic, partition, reason: records that a share group gave up are in no dead-letter topic",
    )
    STORAGE_FAILED = (
        "broker.storage_failed",
        "error: the data folder cannot be written; writes of clients are refused until it can",
    )
    STORAGE_RECOVERED = "broker.storage_recovered", "data_dir: the data folder can be written again"


def log_event(
    level: int,
    event: LogEvent,
    /,
    *,
    exc_info: BaseException | None = None,
    logger: logging.Logger = LOGGER,
    **fields: object,
) -> None:
    """Write one event; costs nothing if *level* is not logged.

    Args:
        exc_info: an exception to log with its traceback, such as one that user code raised.
        fields: numbers, text, lists and mappings of these stay what they are; everything else becomes text. A trailing
            underscore is dropped, for ``from``.
    """
    if not logger.isEnabledFor(level):
        return
    plain = {key.rstrip("_"): _plain(value) for key, value in fields.items()}
    text = "".join(f" {key}={printable(_readable(value))}" for key, value in plain.items())
    logger.log(level, "%s%s", event.value, text, exc_info=exc_info, extra={**plain, "kip848_event": event.value})


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value)


def _readable(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items()) or "none"
    return str(value)
