"""When a client-side assignor is called again: what a plan was made from, and how often one may be wanted.

An assignor may look at more than the group: at the clock, at a load, at a random number. Called again for an unchanged
group it may then plan something else, and each plan would begin another rebalance.

Does not own: when a plan is made or kept (`classic_leader`, `assignor_round`).

Rules: R262 to R264 and R266 in docs/protocol.md.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    Assignor,
    ConsumerGroupPrepareAssignmentResponse,
    TopicMetadata,
)

RETRY_MS: Final = 1_000
"""How long after its first failure in a row an assignor is called again; each further failure doubles it."""
RETRY_MS_MAX: Final = 30_000
WISH_MS: Final = 1_000
"""Calls of request_reassignment() within this time count as one."""

RESTLESS_PLANS: Final = 10
RESTLESS_WITHIN_MS: Final = 60_000
"""A group that needs so many plans in this time, with the same members and topics, does not come to rest."""


class PlanInputs(msgspec.Struct, frozen=True):
    """The inputs of a plan, except the owned partitions: these change while the plan is carried out.

    Args:
        members: of each member id, instance id, rack and subscribed topics.
        topics: with their partition counts.
        metadata: what each member tells the assignor; empty for an assignor that reads none.
        wishes: of each member how often it called request_reassignment(), where members tell.
    """

    assignor_name: str
    members: tuple[tuple[str, str | None, str | None, tuple[UUID, ...]], ...]
    topics: tuple[TopicMetadata, ...]
    racks: Mapping[UUID, tuple[frozenset[str], ...]]
    metadata: tuple[Assignor, ...]
    wishes: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        snapshot: ConsumerGroupPrepareAssignmentResponse,
        *,
        racks: Mapping[UUID, tuple[frozenset[str], ...]],
        reads_metadata: bool,
        wishes: tuple[int, ...] = (),
    ) -> PlanInputs:
        """The inputs of a plan for *snapshot*."""
        return cls(
            assignor_name=snapshot.assignor_name,
            members=tuple(
                (member.member_id, member.instance_id, member.rack_id, member.subscribed_topic_ids)
                for member in snapshot.members
            ),
            topics=snapshot.topics,
            racks=racks,
            metadata=tuple(member.assignor for member in snapshot.members) if reads_metadata else (),
            wishes=wishes,
        )

    def same_group(self, before: PlanInputs) -> bool:
        """Whether members, subscriptions and topics are those of *before*."""
        return (
            self.assignor_name == before.assignor_name
            and self.members == before.members
            and self.topics == before.topics
            and self.racks == before.racks
        )

    def wish_since(self, before: PlanInputs) -> str | None:
        """Why members of the same group want another plan; None if none does. A reason that is over is no wish."""
        for now, earlier in zip(self.metadata, before.metadata, strict=True):
            if replace(now, reason=earlier.reason) != earlier:
                return "metadata() returned something else"
        if self.wishes != before.wishes or any(
            now.reason not in (0, earlier.reason) for now, earlier in zip(self.metadata, before.metadata, strict=True)
        ):
            return "request_reassignment() was called"
        return None

    def wants_the_plan_of(self, before: PlanInputs) -> bool:
        """Whether a plan made from *before* is still the one to carry out."""
        return self.same_group(before) and self.wish_since(before) is None


class Unrest:
    """Notices that one group needs plan after plan, although its members and topics stay the same (R263)."""

    def __init__(self) -> None:
        self._last: PlanInputs | None = None
        self._plans: Final[deque[tuple[int, str]]] = deque()
        """When each plan was wanted, and why."""

    def planned(self, inputs: PlanInputs, *, now_ms: int) -> str | None:
        """A plan is made from *inputs*. Returns what to warn of, at most once in `RESTLESS_WITHIN_MS`."""
        last, self._last = self._last, inputs
        plans = self._plans
        if last is None or not inputs.same_group(last):
            plans.clear()
            return None
        plans.append((now_ms, inputs.wish_since(last) or "a member joined again"))
        while now_ms - plans[0][0] >= RESTLESS_WITHIN_MS:
            plans.popleft()
        if len(plans) < RESTLESS_PLANS:
            return None
        seconds = max(1, round((now_ms - plans[0][0]) / 1_000))
        causes = Counter(cause for _, cause in plans)
        counted = ", ".join(f"{cause} ({count} times)" for cause, count in causes.most_common())
        text = f"{len(plans)} assignments in {seconds} s with the same members and topics: {counted}"
        plans.clear()
        return text
