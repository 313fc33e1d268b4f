"""Which member of a classic group may commit offsets. A commit restarts the member's session.

Source: Kafka's ``ClassicGroup.validateOffsetCommit``.
"""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.classic.classic_heartbeat import session_restart
from kip848_client.testing.coordinator.classic.classic_lookup import check_generation, find_member
from kip848_client.testing.coordinator.core.kind import CommitAttempt
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import ArmTimer


def check_commit(group: ClassicGroup, commit: CommitAttempt, *, now_ms: int) -> tuple[ArmTimer, ...]:
    """Accept a commit of a member, or of a sender outside the group if the group has no members.

    A commit in a transaction may go on while the group waits for its assignment, and restarts no session.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS between the answer
            to JoinGroup and the one to SyncGroup.
    """
    if commit.epoch < 0 and group.state is ClassicState.EMPTY:
        return ()
    member = find_member(group, member_id=commit.member_id, instance_id=commit.instance_id)
    check_generation(group, commit.epoch)
    if commit.is_transactional:
        return ()
    if group.state is ClassicState.COMPLETING:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, f"Group {group.group_id} waits for its assignment.")
    return (session_restart(group, member, now_ms=now_ms),)
