"""Faults for the embedded broker: a line of it that says something else, and the rule that is broken by that.

`plant` compiles a function of the broker anew, with one piece of its source replaced, so that every reference to it has
the fault. A piece that is not there any more fails: the fault has to be written anew then.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from kip848_client.assignors.server import range as range_assignor
from kip848_client.testing.coordinator.classic import classic_describe, classic_heartbeat, classic_lookup, join
from kip848_client.testing.coordinator.consumer import (
    consumer_commit,
    consumer_departure,
    consumer_describe,
    consumer_heartbeat,
    heartbeat_answer,
    member_steps,
    subscriptions,
)
from kip848_client.testing.coordinator.core import group_overrides, list_and_delete
from kip848_client.testing.coordinator.migration import conversion, mixed_group
from kip848_client.testing.coordinator.modern import (
    assignor_votes,
    current_assignment,
    departure,
    member_lookup,
    member_timers,
)
from kip848_client.testing.coordinator.offsets import offset_commit, offset_deletion
from kip848_client.testing.coordinator.share import share_departure, share_heartbeat
from kip848_client.testing.share_partitions import share_partition, share_sessions


class Fault(msgspec.Struct, frozen=True):
    """One piece of source that is replaced.

    Args:
        rule: the one that is broken.
        function: of the broker.
        old: the piece; it occurs once.
        new: what stands there instead.
    """

    rule: int
    function: Callable[..., Any]
    old: str
    new: str


validate = consumer_heartbeat.validate_heartbeat
validate_join = consumer_heartbeat._validate_join
check_epoch = member_lookup.check_epoch
find_static = member_lookup._find_static
next_step = current_assignment._revoke_then_assign
updated = consumer_heartbeat._ConsumerHeartbeat._updated_metadata
find_group = consumer_heartbeat._ConsumerHeartbeat._find_group
reason = member_steps.MemberSteps._reason_to_bump

FAULTS: Final = (
    Fault(400, consumer_heartbeat._ConsumerHeartbeat.run, "heartbeat_interval_ms=", "heartbeat_interval_ms=7 + "),
    Fault(401, validate, "not message.rack_id.strip()", "False"),
    Fault(401, validate, "not message.instance_id.strip()", "False"),
    Fault(401, validate, "not message.member_id.strip() and (api_version >= 1 or epoch != JOIN_EPOCH)", "False"),
    Fault(402, validate_join, "message.rebalance_timeout_ms <= 0", "False"),
    Fault(402, validate_join, "message.topic_partitions is None or message.topic_partitions", "False"),
    Fault(
        402, validate_join, "message.topic_partitions is None or message.topic_partitions", "message.topic_partitions"
    ),
    Fault(403, validate, "epoch < STATIC_LEAVE_EPOCH", "False"),
    Fault(404, validate, "(api_version >= 1 or epoch != JOIN_EPOCH)", "True"),
    Fault(405, validate_join, "message.subscribed_topic_names is None and", "not message.subscribed_topic_names and"),
    Fault(410, member_lookup.find_member, "if message.member_epoch != JOIN_EPOCH:", "if False:"),
    Fault(411, find_group, "if known is None and self._message.member_epoch != JOIN_EPOCH:", "if False:"),
    Fault(412, check_epoch, 'what = "greater"', "return"),
    Fault(413, check_epoch, 'what = "smaller"', "return"),
    Fault(414, check_epoch, "if received == current.previous_member_epoch and", "if False and"),
    Fault(415, check_epoch, "and owned is not None and is_subset(owned, current.assigned)", ""),
    Fault(417, consumer_heartbeat.answer_steady, "member_epoch=epoch, heartbeat", "member_epoch=epoch + 1, heartbeat"),
    Fault(418, heartbeat_answer.plain_assignment, "and not _asks_for_assignment(message)", ""),
    Fault(419, consumer_departure._remove, "epoch = group.group_epoch + 1", "epoch = group.group_epoch + 2"),
    Fault(426, next_step, "assigned=keep,\n", "assigned=current.assigned,\n"),
    Fault(427, current_assignment._find_free, "and target.is_free(key, number)", ""),
    Fault(428, current_assignment._owns_any, "return True", "return False"),
    Fault(430, reason, "before.subscribed_topic_names != after.subscribed_topic_names", "found.is_new"),
    Fault(440, find_static, "holder.current.member_epoch != STATIC_LEAVE_EPOCH and", "False and"),
    Fault(441, consumer_departure.leave, "message.member_epoch == STATIC_LEAVE_EPOCH", "False"),
    Fault(443, member_lookup.static_member, "if holder_id != member_id:", "if False:"),
    Fault(444, member_lookup.static_member, "ErrorCode.UNKNOWN_MEMBER_ID", "ErrorCode.FENCED_INSTANCE_ID"),
    Fault(450, subscriptions.resolve, "_match(regex, names)", '_match(regex + ".*", names)'),
    Fault(452, subscriptions._invalid, "INVALID_REGULAR_EXPRESSION", "INVALID_REQUEST"),
    Fault(455, validate, "message.server_assignor not in assignors", "False"),
    Fault(456, range_assignor._runs, "yield every[start:end]", "yield every[count - end : count - start]"),
    Fault(458, assignor_votes.choose_name, "votes.get(name, 0))", "min(votes.get(name, 0), 1))"),
    Fault(
        460,
        offset_commit._commit_partition,
        "offset=partition.committed_offset",
        "offset=partition.committed_offset + 1",
    ),
    Fault(461, consumer_commit.may_commit, "return epoch == current.member_epoch", "return True"),
    Fault(462, consumer_commit._given_by, "given is not None and given <= epoch", "given is not None"),
    Fault(463, consumer_commit.check_commit, "raise unknown_member(group, member_id=commit.member_id)", "return"),
    Fault(464, consumer_commit.check_commit, "commit.epoch < 0 and not group.members", "commit.epoch < 0"),
    Fault(466, offset_commit._is_metadata_too_long, "> state", "> 10 * state"),
    Fault(467, offset_commit._commit_partition, "ErrorCode.UNKNOWN_TOPIC_ID if by_id else ", ""),
    Fault(468, consumer_commit.check_fetch, "member.current.member_epoch != member_epoch", "False"),
    Fault(470, offset_deletion._delete_offsets, "elif is_subscribed:", "elif False:"),
    Fault(471, offset_commit._check_without_group, "if commit.epoch < 0:", "if True:"),
    Fault(475, consumer_describe._member, "group.target_of(member.member_id)", "{}"),
    Fault(477, list_and_delete.handle_list_groups, "str(group.state).lower() in states", "str(group.state) in states"),
    Fault(
        478, classic_describe._describe_classic, "error_code=ErrorCode.GROUP_ID_NOT_FOUND", "error_code=ErrorCode.NONE"
    ),
    Fault(479, list_and_delete._delete_group, "not group.is_empty", "False"),
    Fault(480, list_and_delete._delete_group, "for topic, partitions in", "for topic, partitions in () and"),
    Fault(481, departure._named_member, 'group.static_members.get(instance_id, "")', '""'),
    Fault(
        482,
        group_overrides.resolve_group_config,
        "if name not in known:",
        "if name not in known:\n            continue\n        if False:",
    ),
    Fault(485, join._Join._join_without_id, "if instance_id is None and", "if False and"),
    Fault(
        487,
        classic_heartbeat.handle_heartbeat,
        "code, timers = other.beat",
        "(code, timers) = (0, ()) if True else other.beat",
    ),
    Fault(487, mixed_group.MixedGroup._find_classic, "generation != member.current.member_epoch", "False"),
    Fault(491, conversion.can_downgrade, "state.config.may_downgrade", "False"),
    Fault(492, classic_lookup.check_generation, "generation != group.generation", "False"),
    Fault(493, member_timers.session_timeout_ms, "group.session_timeout_ms(", "1_000 + 0 * group.session_timeout_ms("),
    Fault(494, member_timers.arm_member_timers, "now_ms + member.metadata.rebalance_timeout_ms", "now_ms + 500"),
    Fault(501, share_heartbeat._Heartbeat._find_member, "raise unknown_member(group, message.member_id)", "pass"),
    Fault(502, share_departure.leave, '_remove(state, group, batch, member, reason="leave")', "pass"),
    Fault(504, share_partition._Taking._insert, "AcquiredRecords(first, last, 1)", "AcquiredRecords(first, last, 2)"),
    Fault(506, share_partition._Changing.acknowledge, "_STATE_AFTER[kind]", "_STATE_AFTER[2 if kind == 1 else kind]"),
    Fault(507, share_partition._Taking._acquire, "run.count + 1", "max(run.count, 1)"),
    Fault(508, share_partition._Changing.acknowledge, "_STATE_AFTER[kind]", "_STATE_AFTER[2 if kind == 3 else kind]"),
    Fault(509, share_sessions.ShareSessions._step, "session.epoch != epoch", "False"),
    Fault(
        510,
        share_partition._check_owner,
        "if run.state is not RecordState.ACQUIRED or run.member != member_id:",
        "if False:",
    ),
    Fault(511, share_partition.SharePartition.release, "run.member == member_id", "False"),
)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Break the broker."""
    function = fault.function
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(fault.old) == 1, (
        f"R{fault.rule}: {fault.old!r} is not once in {function.__qualname__}:\n{source}"
    )
    made: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source.replace(fault.old, fault.new)}", "<fault>", "exec")
    exec(code, function.__globals__ | {"__name__": function.__module__}, made)
    monkeypatch.setattr(function, "__code__", made[function.__name__].__code__)
