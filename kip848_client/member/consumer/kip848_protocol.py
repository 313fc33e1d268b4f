"""The KIP-848 protocol behind `GroupPart`: connects its parts, and fixes the order in which they act.

The rules are in the parts:

- `membership`: join, and what an answer changes
- `group_exit`: leave, removal, failure, poll timer
- `heartbeats`: when, and with which fields
- `reconciler`: revoke, then assign
- `hand_over`: revoke everything once the others are ready
- `assignor_round`: client-side assignors
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.model import Subscription, TopicIdPartition
from kip848_client.member.consumer.assignor_round import AssignorRound
from kip848_client.member.consumer.hand_over import HandOver
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.membership import Membership
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.core.assignor_events import AssignorEvent
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import HandOverRequested, MetadataUpdated, RequestFailed, TopicsDescribed
from kip848_client.member.core.states import IN_GROUP, Phase
from kip848_client.member.group.group_exit import GroupExit
from kip848_client.member.group.group_part import GroupFacts, GroupPart
from kip848_client.member.group.runs import Run
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions


class ConsumerProtocol(GroupPart):
    """The coordinator assigns, or asks a member to."""

    def __init__(self, context: Context, *, discovery: Discovery, commits: Commits, positions: Positions) -> None:
        self._context: Final = context
        self._heartbeats: Final = Heartbeats(context)
        self._assignors: Final = AssignorRound(context, heartbeats=self._heartbeats)
        self._reconciler: Final = Reconciler(
            context, heartbeats=self._heartbeats, commits=commits, positions=positions, assignors=self._assignors
        )
        self._membership: Final = Membership(
            context,
            discovery=discovery,
            heartbeats=self._heartbeats,
            reconciler=self._reconciler,
            positions=positions,
            assignors=self._assignors,
        )
        self._hand_over: Final = HandOver(
            context,
            discovery=discovery,
            heartbeats=self._heartbeats,
            reconciler=self._reconciler,
            membership=self._membership,
        )
        self.exit: GroupExit = self._membership.exit

    def resume(self) -> None:
        self._reconciler.advance()

    def advance(self) -> None:
        assigns = self._context.config.client_assignors
        if assigns:
            self._assignors.watch()  # before the heartbeat that tells what this makes known
        hand_over = self._hand_over
        if hand_over.active and hand_over.releasing:
            hand_over.advance_release()
        if hand_over.active and not hand_over.releasing:
            hand_over.advance()
        self._membership.advance()
        while hand_over.active and hand_over.releasing and hand_over.advance_release():
            self._membership.advance()  # what was due has ended a release
        if hand_over.active and hand_over.releasing:
            hand_over.wake()
        elif hand_over.active:
            # A wait that ended above may end all of it, as may what was due: nothing else wakes the member for that.
            hand_over.advance()
        if assigns:
            self._assignors.advance()

    def subscribe(self, subscription: Subscription) -> None:
        self._membership.subscribe(subscription)

    def polled(self) -> None:
        self._membership.polled()
        self._reconciler.polled()

    def hand_over(self, event: HandOverRequested) -> None:
        self._hand_over.request(event)

    def coordinator_found(self) -> None:
        self._heartbeats.coordinator_found()

    def connection_refused(self, failure: RequestFailed) -> None:
        self._membership.connection_refused(failure)

    def metadata_updated(self, event: MetadataUpdated) -> None:
        self._reconciler.metadata_updated(event)
        self._assignors.metadata_updated(event)

    def topics_described(self, event: TopicsDescribed) -> None:
        # This protocol never asks.
        self._context.finish(event.request_id)

    def handle(self, event: AssignorEvent) -> None:
        self._assignors.handle(event)

    # --- for the member

    @property
    def poll_wanted(self) -> bool:
        phase = self._context.phase
        if phase in {Phase.PENDING, Phase.REJOIN_DUE}:
            return self._reconciler.poll_wanted
        return phase not in IN_GROUP and self._membership.poll_wanted

    @property
    def run(self) -> Run | None:
        return self._reconciler.run

    @property
    def blocked(self) -> frozenset[TopicIdPartition]:
        reconciler = self._reconciler
        if reconciler.unconfirmed or reconciler.reported_unowned:
            return reconciler.held_back | reconciler.unconfirmed | reconciler.reported_unowned
        return reconciler.held_back

    @property
    def handing_over(self) -> bool:
        return self._hand_over.active

    @property
    def standing_by(self) -> bool:
        slots = self._membership.slots
        return slots is not None and slots.standing_by

    @property
    def expects_partitions(self) -> bool:
        return self._heartbeats.early.wait is not None

    def facts(self) -> GroupFacts:
        return GroupFacts(
            target=self._reconciler.target.partitions,
            current=self._reconciler.current.partitions,
            ack_due=self._heartbeats.ack_due,
            heartbeat_in_flight=self._heartbeats.in_flight,
            heartbeat_interval_ms=self._heartbeats.interval_ms,
        )
