"""Handing over: a member that is about to leave goes on reading while the next owners of its partitions prepare.

After an ordinary leave the others learn of their new partitions only with their next heartbeats; until then no member
reads them. A member that hands over first unsubscribes from its topics and holds back the revocation. The group
computes a target without it, and the others learn of that target while it still reads. When the next owners of its
partitions have heard of them, it revokes and acknowledges. They are waiting by then, and early heartbeats bring them
the partitions in about a tenth of a second.

ConsumerGroupDescribe shows who the next owners are, and which epoch they have reached. A member that subscribes to
nothing is leaving as well: it takes over nothing, and nobody waits for it. If the coordinator does not offer
ConsumerGroupDescribe, or refuses it, the member stops waiting and revokes at once.

Does not own: the leave that the application makes afterwards (`group_exit`).

Source: own. Rules: R188 to R191 and R300 in docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import RETRIABLE
from kip848_client.common.model import Subscription
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.membership import Membership
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.consumer.slots import subscribes
from kip848_client.member.core.assignment import IdPartition, partitions_described
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import Destination, HandOverFailed, HandOverRequested, RequestFailed
from kip848_client.member.core.states import IN_GROUP, LEAVING, MEMBER, Phase
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kip848_client.wire.messages.consumer_group_describe import Member as DescribedMember

QUESTION_EVERY_MS: Final = 100
"""Pause between two ConsumerGroupDescribe requests."""
WAITING_SHARE: Final = 0.75
"""Part of the time that the others get to prepare. The rest is for handlers and listeners that have to end."""


class HandOver:
    """The only hand-over of one member."""

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        heartbeats: Heartbeats,
        reconciler: Reconciler,
        membership: Membership,
    ) -> None:
        self._context: Final = context
        self._discovery: Final = discovery
        self._heartbeats: Final = heartbeats
        self._reconciler: Final = reconciler
        self._membership: Final = membership
        self.active: bool = False
        """Whether a hand-over was requested and has not ended."""
        self._until_ms = 0
        self._waits_until_ms = 0
        self._heirs: dict[IdPartition, tuple[str, int]] = {}
        """Who takes over each partition, and since which epoch of the target."""
        self._ask_ms = 0
        self._returns = False
        """No standby came: the member takes its slot back."""
        self._subscription = Subscription()
        self._request_id: int | None = None

    def request(self, event: HandOverRequested) -> None:
        """Begin. Ends at once if there is nothing to hand over."""
        context = self._context
        if self.active or context.phase not in IN_GROUP:
            return
        releases = bool(context.config.slots)
        if not context.owned and not releases:
            return
        self.active = True
        self._until_ms = event.deadline_ms
        if releases:
            self._membership.releasing = True
            self._returns = False
            self._subscription = context.subscription
            return
        self._announce()

    def _announce(self) -> None:
        """Tell the others, and go on reading until they are ready."""
        context = self._context
        self._waits_until_ms = context.now_ms + int((self._until_ms - context.now_ms) * WAITING_SHARE)
        self._heirs.clear()
        self._reconciler.hold_back_runs = True
        context.subscription = Subscription()

    def advance(self) -> None:
        """Ask for the epochs of the others, let the revocation begin, or end; while `active` and not `releasing`."""
        context = self._context
        if context.phase not in IN_GROUP or context.subscription:
            self._end()
        elif context.due(self._until_ms):
            self._end()  # it may still own partitions, or commit, without a coordinator: the leave gives them up
        elif self._reconciler.hold_back_runs:
            if context.due(self._waits_until_ms):
                self._stop_waiting("time is up")
            elif self._may_ask and context.due(self._ask_ms):
                self._ask()
        elif context.phase is Phase.IN_SYNC and not context.owned and not self._heartbeats.ownership_report_pending:
            self._end()

    # --- a slot

    def wake(self) -> None:
        """Have the member woken when a release takes too long."""
        self._context.wake_at(self._until_ms)

    @property
    def releasing(self) -> bool:
        """Whether the member hands over by a release of its slot."""
        return self._membership.releasing

    def advance_release(self) -> bool:
        """Revoke everything, and leave so that a standby may take the slot: it has to be free before one can show.

        If none comes, take the slot back, and hand over to the other members.

        Returns:
            Whether the membership has something to do.
        """
        context, release = self._context, self._membership.release
        if context.now_ms >= self._until_ms:
            if release.active or release.unwanted:
                release.give_up()
            self._end()  # the application leaves: what it still owns goes with the slot
        elif context.phase in {Phase.IN_SYNC, Phase.PENDING} and self._heartbeats.ownership_report_pending:
            pass  # the acknowledgement of an assignment is under way
        elif context.phase in {Phase.IN_SYNC, Phase.PENDING} and not self._returns:
            if not context.owned:
                self._membership.exit.release()
                return True
            self._reconciler.revoke_all(self._membership.exit.release)
            context.move("rejoin_wanted")
        elif context.phase is Phase.IN_SYNC:
            self._membership.releasing = False
            if context.owned:
                self._announce()
                # Others that leave as well take their slots back now, too, and seem to stay until then.
                self._ask_ms = context.now_ms + context.config.takeover_wait_ms
                return True
            self._end()
        elif context.phase is Phase.IDLE and release.unwanted and not self._returns:
            self._returns = True
            context.subscription = self._subscription
            context.move("subscribed")
            self._membership.join()
            return True
        elif context.phase not in MEMBER | LEAVING and not release.active:
            self._end()
        elif context.phase is Phase.JOINING and not self._returns:
            self._end()  # the application subscribed again
        return False

    # --- asking

    @property
    def _may_ask(self) -> bool:
        """Whether the coordinator knows that the member unsubscribed, and no ConsumerGroupDescribe is in flight."""
        return self._context.link is not None and self._request_id is None and self._heartbeats.empty_subscription_known

    def _ask(self) -> None:
        context = self._context
        if self._discovery.highest_version(ApiKey.CONSUMER_GROUP_DESCRIBE) is None:
            self._stop_waiting("the coordinator does not offer ConsumerGroupDescribe")
            return
        self._ask_ms = context.now_ms + QUESTION_EVERY_MS
        self._request_id = context.send(
            ConsumerGroupDescribeRequest(group_ids=(context.config.group_id,)),
            destination=Destination.COORDINATOR,
            timeout_ms=self._heartbeats.timeout_ms,
            on_answer=self._described,
            on_failure=self._not_described,
        )

    def _not_described(self, _: RequestFailed) -> None:
        self._request_id = None

    def _described(self, response: ConsumerGroupDescribeResponse) -> None:
        self._request_id = None
        group = next(iter(response.groups), None)
        if group is None:
            return
        if group.error_code:
            if group.error_code not in RETRIABLE:
                self._stop_waiting(f"the group cannot be described: error code {group.error_code}")
        elif self._others_are_ready(group):
            self._stop_waiting(None)

    def _others_are_ready(self, group: DescribedGroup) -> bool:
        """Whether no partition has to wait for its next owner: it has reached the epoch that gives it the partition.

        A member reaches that epoch only after its own revocations.
        """
        own = next((one for one in group.members if one.member_id == self._context.member_id), None)
        if own is None:
            return False
        staying = [one for one in group.members if one is not own and subscribes(one)]
        if not staying:
            return True  # the whole group leaves
        if own.target_assignment.topic_partitions:
            return False  # the target is older than the heartbeat that unsubscribed
        heirs = {partition: one for one in staying for partition in partitions_described(one.target_assignment)}
        owned = {(partition.topic_id, partition.partition) for partition in self._context.owned}
        ready = [self._is_ready(partition, heirs.get(partition), group) for partition in owned]  # asks for each
        return all(ready)

    def _is_ready(self, partition: IdPartition, heir: DescribedMember | None, group: DescribedGroup) -> bool:
        """Whether the next owner of *partition* knows of it; *heir* is None if the target gives it to no one."""
        if heir is None:
            return group.assignment_epoch >= group.group_epoch  # no other target is being computed
        known = self._heirs.get(partition)
        if known is None or known[0] != heir.member_id:
            known = self._heirs[partition] = (heir.member_id, group.assignment_epoch)
        return heir.member_epoch <= 0 or heir.member_epoch >= known[1]  # a static member that is away hears nothing

    # --- the end

    def _stop_waiting(self, failure: str | None) -> None:
        """Stop waiting for the other members: the revocation may begin.

        Args:
            failure: why the others may not be ready; None if they are, or if no wait is needed.
        """
        self._reconciler.hold_back_runs = False
        self._context.orphan(self._request_id)
        self._request_id = None
        if failure is not None:
            self._context.emit(HandOverFailed(failure))

    def _end(self) -> None:
        self.active = False
        self._membership.releasing = False
        self._stop_waiting(None)
