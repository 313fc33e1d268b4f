"""Writes the history of a simulated run as sentences for users: who did what, and what went wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.common.plain_text import counted

Details: TypeAlias = Mapping[str, Any]


def tell(lines: Iterable[str], *, verbose: bool) -> list[str]:
    """Write a history as sentences.

    Args:
        lines: as in ``Report.lines``.
        verbose: include frequent events: messages that are late or lost, commits, states.

    Returns:
        One line each: time in virtual seconds, who, what.
    """
    told = []
    for line in lines:
        event = msgspec.json.decode(line)
        sentence = _SENTENCES.get(event["what"]) or (_DETAILS.get(event["what"]) if verbose else None)
        if sentence is not None and (text := sentence(event)):
            who = event["who"].replace("member-", "consumer-")
            told.append(f"{event['t'] / 1000:9.3f}  {who:<13} {text}")
    return told


def _partitions(by_topic: Mapping[str, list[int]]) -> str:
    """``orders 0-3,7, audit 1``; a plain unit of workers is its name alone."""
    return (
        ", ".join(
            topic if numbers == [-1] else f"{topic} {_runs(numbers)}" for topic, numbers in sorted(by_topic.items())
        )
        or "nothing"
    )


def _runs(numbers: list[int]) -> str:
    texts = []
    for _, group in itertools.groupby(enumerate(sorted(numbers)), key=lambda item: item[1] - item[0]):
        run = [number for _, number in group]
        texts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(texts)


def _by_topic(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in names:
        topic, _, number = name.rpartition("-")
        found.setdefault(topic, []).append(int(number))
    return found


def _target(event: Details) -> str:
    parts = [
        f"{member.replace('member-', 'consumer-')}: {_partitions(target)}"
        for member, target in sorted(event["members"].items())
    ]
    return f"computes the target of epoch {event['epoch']}: " + "; ".join(parts)


def _given(event: Details) -> str:
    text = f"is counted as having {_partitions(event['assigned'])}"
    if event["pending_revocation"]:
        text += f", and must give up {_partitions(event['pending_revocation'])}"
    elif event["state"] == "UNRELEASED_PARTITIONS":
        text += ", and waits for what others still have"
    return text


def _call(name: str) -> Callable[[Details], str]:
    def sentence(event: Details) -> str:
        return f"on_partitions_{name}({_partitions(_by_topic(event['partitions']))})"

    return sentence


def _joined(event: Details) -> str:
    static = f" as static member {event['instance_id']}" if event["instance_id"] else ""
    if "worker_id" in event:
        return f"joins the group{static}"
    wanted = ", ".join(event["topics"]) or "a pattern"
    return f"joins the group{static} and wants {wanted}"


_REASONS: Final[Mapping[str, str]] = {
    "leave": "left the group",
    "static_leave": "left for a while; its partitions are kept",
    "session_timeout": "was not heard of for a session: removed",
    "rebalance_timeout": "did not give up partitions in time: removed",
    "replaced": "comes back as another process",
}

_SENTENCES: Final[Mapping[str, Callable[[Details], str]]] = {
    "topic_deleted": lambda event: f"deletes topic {event['topic']}",
    "topic_created": lambda event: f"creates topic {event['topic']}",
    "partitions_added": lambda event: f"adds partitions to {event['topic']}",
    "started": lambda event: f"starts{' as ' + event['instance_id'] if 'instance_id' in event else ''}",
    "closing": lambda event: "closes",
    "closed": lambda event: "is closed",
    "crashed": lambda event: "CRASHES",
    "cut_off": lambda event: "is CUT OFF from the network" + (", in one direction" if event["one_way"] else ""),
    "double_start": lambda event: "a second process starts with the same instance id",
    "wall_clock_jumped": lambda event: "the coordinator's wall clock is set",
    "group_config_changed": lambda event: (
        f"the group's heartbeat interval is set to {event['interval_ms']} ms, its session timeout to "
        f"{event['session_ms']} ms"
    ),
    "frozen": lambda event: f"FREEZES for {event['ms']} ms",
    "listener_hangs": lambda event: f"has a listener that HANGS for {event['ms']} ms",
    "unit_started": lambda event: f"runs {event['unit']} with token {event['token']}",
    "unit_stopped": lambda event: f"has stopped {event['unit']}",
    "stop_hangs": lambda event: "is told to stop units, and HANGS",
    "left": lambda event: "has left",
    "application_stalls": lambda event: f"STALLS: no poll() for {event['ms']} ms",
    "coordinator_crashed": lambda event: f"CRASHES ({event['when'].replace('_', ' ')})",
    "coordinator_moved": lambda event: f"MOVES to another node; records lost: {event['records_lost']}",
    "two_coordinators": lambda event: "the old one goes on, and does not know",
    "coordinator_resigned": lambda event: "learns that it is not the coordinator any more",
    "coordinator_loaded": lambda event: f"is back, with {counted(event['records'], 'record')}",
    "member_joined": _joined,
    "member_left": lambda event: _REASONS.get(event["reason"], str(event["reason"])),
    "member_fenced": lambda event: f"is refused: {event['error']} (it sent epoch {event['sent_epoch']})",
    "member_failed": lambda event: f"FAILS for good: {event['error']}",
    "subscription_changed": lambda event: f"now wants {', '.join(event['topics']) or event['regex']}",
    "group_epoch_bumped": lambda event: f"group epoch {event['epoch']}: {event['reason'].replace('_', ' ')}",
    "target_assignment_computed": _target,
    "member_assignment_changed": _given,
    "assigned_begins": _call("assigned"),
    "revoked_begins": _call("revoked"),
    "lost_begins": _call("lost"),
    "assigned_raised": lambda event: "on_partitions_assigned RAISES",
    "revoked_raised": lambda event: "on_partitions_revoked RAISES",
    "lost_raised": lambda event: "on_partitions_lost RAISES",
    "error_surfaced": lambda event: f"poll() raises {event['error']}",
    "commit_refused": lambda event: f"may not commit: {event['error']}",
    "rule_acted": lambda event: f"a rule acts: {event['done']} ({event['rule']})",
    "healed": lambda event: "all faults end; now the group must come to rest",
    "at_rest": lambda event: "the group is at rest",
    "trial_join": lambda event: "trial: a consumer joins",
    "trial_close": lambda event: "trial: a consumer closes",
    "trial_crash": lambda event: "trial: a consumer crashes",
    "trial_freeze": lambda event: "trial: a consumer stands still for more than a session",
    "trial_grow": lambda event: "trial: a topic grows",
    "trial_recreate": lambda event: "trial: a topic is deleted and created again",
    "trial_fail_over": lambda event: "trial: the coordinator moves",
    "trial_nothing": lambda event: "trial: nothing happens",
}

_DETAILS: Final[Mapping[str, Callable[[Details], str]]] = {
    "request_lost": lambda event: f"request {event['api']} is lost",
    "answer_lost": lambda event: f"the answer to {event['api']} is lost",
    "request_duplicated": lambda event: f"request {event['api']} will arrive twice",
    "connection_broken": lambda event: f"the connection breaks under {event['api']}",
    "message_stuck": lambda event: "a message is stuck",
    "request_timed_out": lambda event: "waited in vain for an answer",
    "state_changed": lambda event: f"{event['old']} -> {event['new']} ({event['trigger'].replace('_', ' ')})",
    "group_state_changed": lambda event: f"group {event['old']} -> {event['new']}",
    "offsets_committed": lambda event: "commits " + ", ".join(f"{at} {to}" for at, to in event["offsets"].items()),
    "commit_failed": lambda event: f"commit failed: {event['error']}",
    "assigned_ended": lambda event: "on_partitions_assigned returned",
    "revoked_ended": lambda event: "on_partitions_revoked returned",
    "lost_ended": lambda event: "on_partitions_lost returned",
}
