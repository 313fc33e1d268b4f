"""Members in the situations in which rules apply. Arrangement only, no assertions about the rules."""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.events import MetadataUpdated, RequestMetadata, SendRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness

ONE = {"t": [0]}
TWO = {"t": [0, 1]}
AUTO_MS = 5000
FENCING = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH]

Partitions = Mapping[str, list[int]]


def joining(**settings: object) -> MemberHarness:
    """Its join is under way."""
    member = MemberHarness(settings=settings)
    member.subscribe("t")
    member.poll()
    return member


def looking(**settings: object) -> MemberHarness:
    """It wants to join, and does not know the coordinator yet."""
    member = MemberHarness(coordinator_found=False, settings=settings)
    member.subscribe("t")
    member.poll()
    return member


def stable(assignment: Partitions = ONE, /, **settings: object) -> MemberHarness:
    """It owns *assignment* and acknowledged it; nothing is under way."""
    member = MemberHarness(settings=settings)
    member.become_stable(assignment)
    return member


def auto_committing(assignment: Partitions = ONE, /, **settings: object) -> MemberHarness:
    """Stable, with auto-commit."""
    return stable(assignment, auto_commit_interval_ms=AUTO_MS, **settings)


def revoking(**settings: object) -> MemberHarness:
    """It owned t-0 and t-1, and its revoked callback for t-1 is running."""
    member = stable(TWO, **settings)
    member.assign_more(ONE)
    member.poll()
    return member


def assigning(**settings: object) -> MemberHarness:
    """It owned t-0, and its assigned callback for t-1 is running."""
    member = stable(ONE, **settings)
    member.assign_more(TWO)
    member.poll()
    return member


def fenced(
    assignment: Partitions = ONE, /, code: int = ErrorCode.FENCED_MEMBER_EPOCH, **settings: object
) -> MemberHarness:
    """It owned *assignment*, and was just removed."""
    member = stable(assignment, **settings)
    fence(member, code)
    return member


def fence(member: MemberHarness, code: int = ErrorCode.FENCED_MEMBER_EPOCH) -> None:
    """The next heartbeat is answered with *code*."""
    if not member.requests(ConsumerGroupHeartbeatRequest):
        member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=code)


def unresolved(target: Partitions, owned: Partitions = ONE) -> MemberHarness:
    """It owns *owned* and was given *target*; the cluster knows no name that the member does not know already."""
    member = stable(owned)
    member.metadata_answered = False
    member.assign_more(target)
    member.step(MetadataUpdated({}, member.take_waiting(RequestMetadata).request_id))
    return member


def looking_up(assignment: Partitions = ONE, /, **settings: object) -> MemberHarness:
    """It acknowledged its first assignment; its OffsetFetch is under way."""
    member = MemberHarness(settings=settings)
    member.join(assignment)
    member.reconcile()
    member.answer_heartbeat()
    member.forget_history()
    return member


def pass_time(member: MemberHarness, ms: int) -> None:
    """Let time pass without a poll, while the coordinator answers heartbeats."""
    for _ in range(ms // 100):
        member.advance(100)
        answer_heartbeats(member)
    member.advance(ms % 100)


def answer_heartbeats(member: MemberHarness) -> None:
    """Confirm every heartbeat of a member in the group."""
    while any(heartbeat.member_epoch > 0 for heartbeat in member.requests(ConsumerGroupHeartbeatRequest)):
        member.answer_heartbeat(epoch=member.member.snapshot().member_epoch)


def without_coordinator(member: MemberHarness) -> MemberHarness:
    """Its coordinator's connection broke, and no broker answers lookups."""
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    return member


def heartbeats(member: MemberHarness) -> list[ConsumerGroupHeartbeatRequest]:
    """All heartbeats ever sent, oldest first."""
    requests = [effect.request for effect in member.emitted(SendRequest)]
    return [request for request in requests if isinstance(request, ConsumerGroupHeartbeatRequest)]


def heartbeat_epochs(member: MemberHarness) -> list[int]:
    """Epochs of the heartbeats that wait for their answers."""
    return [heartbeat.member_epoch for heartbeat in member.requests(ConsumerGroupHeartbeatRequest)]


def commits(member: MemberHarness) -> list[tuple[int, dict[str, int]]]:
    """Epoch and offsets of the commits that wait for their answers."""
    return [
        (
            commit.generation_id_or_member_epoch,
            {
                f"{topic.name}-{e.partition_index}": e.committed_offset
                for topic in commit.topics
                for e in topic.partitions
            },
        )
        for commit in member.requests(OffsetCommitRequest)
    ]


def fetches(member: MemberHarness) -> list[list[str]]:
    """Partitions of the offset fetches that wait for their answers."""
    return [
        [f"{topic.name}-{index}" for topic in fetch.groups[0].topics or () for index in topic.partition_indexes]
        for fetch in member.requests(OffsetFetchRequest)
    ]


def calls(member: MemberHarness) -> list[str]:
    """Listener calls that are not over, as the history words them."""
    return [f"{call.kind}({','.join(call.partitions)})" for call in member.calls]
