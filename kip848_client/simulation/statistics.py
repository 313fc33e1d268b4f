"""What many runs come to: which of the counted things are faults, and the middle of a distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FAULTS: Final[Mapping[str, str]] = {
    "request_lost": "requests lost",
    "answer_lost": "answers lost",
    "request_duplicated": "requests doubled",
    "connection_broken": "connections broken",
    "message_stuck": "messages stuck",
    "cut_off": "clients cut off",
    "crashed": "consumers crashed",
    "frozen": "processes frozen",
    "listener_hangs": "listeners that hang",
    "application_stalls": "applications that stall",
    "assigned_raised": "on_partitions_assigned raised",
    "revoked_raised": "on_partitions_revoked raised",
    "lost_raised": "on_partitions_lost raised",
    "double_start": "instance ids started twice",
    "coordinator_crashed": "coordinator crashes",
    "coordinator_moved": "failovers",
    "log_truncated": "logs truncated",
    "two_coordinators": "two coordinators at once",
    "rule_acted": "requests refused or changed",
    "topic_deleted": "topics deleted",
    "wall_clock_jumped": "wall clocks set",
    "group_config_changed": "group settings changed",
}
"""What is counted in a history -> what it is, for each class of faults."""


def median(counts: Mapping[int, int]) -> int:
    """The middle of a distribution.

    Args:
        counts: value -> how often; 0 if it is empty.
    """
    left = (sum(counts.values()) + 1) // 2
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0
