"""Slots: static places (``group.instance.id``) that a member takes when they are free, or stands by for.

A deploy that moves nothing: the new process is up and *stands by*, the old one *releases* its slot (it leaves with
epoch -2, which keeps its partitions), and the new one takes the slot and with it the same partitions. No group epoch
moves, and no other member hears of it. While the owner lives, a join with its slot is refused with
UNRELEASED_INSTANCE_ID, at no cost to the group; so a standby is a member that goes on joining.

`Slots` chooses the slot to join with: the only one, or from a pool what ConsumerGroupDescribe shows as free or
released. `Release` is the other side: after the release it watches the slot, and gives it up (a leave with epoch -1) if
no standby takes it in time. So standbys need not be visible, and they need no membership, permission or coordinator
besides the group's own.

Source: own; KIP-848 "Static membership". Rules: R301 to R310 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.core.events import Destination, RequestFailed, SlotsUnseen, SlotTaken, StandbyBegan
from kip848_client.member.core.states import Phase
from kip848_client.member.group.group_exit import ignore_answer
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)

CROWD: Final = 20
"""With more slots than this, there may be more standbys, and each tries less often, in proportion."""
FRESH_MS: Final = 60_000
"""A standby that has waited for longer tries a quarter as often: the pool is too small, or the deploy stands still."""
TOLD_EVERY_MS: Final = 60_000
"""How often the log says that a member still stands by."""
WATCH_EVERY_MS: Final = 50
"""Pause between two looks at a slot that was released."""
_TIRED: Final = 4
_JITTER: Final = 0.2
LEAVE_EPOCH: Final = -1
"""Leave for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""Leave for a while: a static member keeps its slot until the session ends."""


class _Look:
    """Asks who has which slot."""

    def __init__(self, context: Context, *, discovery: Discovery, heartbeats: Heartbeats) -> None:
        self._context: Final = context
        self._discovery: Final = discovery
        self._heartbeats: Final = heartbeats
        self._request_id: int | None = None

    @property
    def under_way(self) -> bool:
        """Whether an answer is awaited."""
        return self._request_id is not None

    def forget(self) -> None:
        """Ignore the answer that is awaited."""
        self._context.orphan(self._request_id)
        self._request_id = None

    def ask(
        self,
        *,
        on_members: Callable[[Iterable[Member]], None],
        on_refused: Callable[[str], None],
        on_nothing: Callable[[], None],
    ) -> None:
        """Describe the group.

        Args:
            on_members: called with its members.
            on_refused: called with the reason if it will never be described.
            on_nothing: called if it may be described later.
        """
        if self._discovery.highest_version(ApiKey.CONSUMER_GROUP_DESCRIBE) is None:
            on_refused("the coordinator does not offer ConsumerGroupDescribe")
            return

        link = self._context.link

        def answered(response: ConsumerGroupDescribeResponse) -> None:
            self._request_id = None
            group = next(iter(response.groups), None)
            if group is None or group.error_code in RETRIABLE:
                if group is not None and heartbeat_error_class(group.error_code) is HeartbeatErrorClass.REDISCOVER:
                    self._context.lose_link(link)  # a standby sends no heartbeat that would be told so
                on_nothing()
            elif group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                on_members(())
            elif group.error_code:
                on_refused(f"the group cannot be described: error code {group.error_code}")
            else:
                on_members(group.members)

        def failed(_: RequestFailed) -> None:
            self._request_id = None
            on_nothing()

        self._request_id = self._context.send(
            ConsumerGroupDescribeRequest(group_ids=(self._context.config.group_id,)),
            destination=Destination.COORDINATOR,
            timeout_ms=self._heartbeats.timeout_ms,
            on_answer=answered,
            on_failure=failed,
        )


def subscribes(member: Member) -> bool:
    """Whether a member wants partitions; else it is about to leave."""
    return bool(member.subscribed_topic_names or member.subscribed_topic_regex)


class Slots:
    """Which slot a member that joins tries next, and when. Only for members with `MemberConfig.slots`."""

    def __init__(self, context: Context, *, discovery: Discovery, heartbeats: Heartbeats) -> None:
        self._context: Final = context
        self._slots: Final = context.config.slots
        self._look: Final = _Look(context, discovery=discovery, heartbeats=heartbeats)
        self._asks = len(self._slots) > 1
        """The group is described before a slot is chosen."""
        self._turn = 0
        self._candidates: list[str] = []
        """Slots to try, the next one first."""
        self._before: dict[str, str] = {}
        """Slot -> the member that has released it."""
        self._next_ms = 0
        self._since_ms: int | None = None
        self._told_ms = 0

    @property
    def standing_by(self) -> bool:
        """Whether all slots were found to be held, and the member waits for one."""
        return self._since_ms is not None and self._context.phase is Phase.JOINING

    def begin(self) -> None:
        """The member joins, or joins again: with the slot that it had."""
        held = self._context.instance_id
        self._look.forget()
        self._candidates = [] if held is None else [held]
        self._next_ms = self._context.now_ms
        self._since_ms = None

    def may_join(self) -> bool:
        """Whether to send a join now, with ``Context.instance_id``; else the member is woken when there is work."""
        context = self._context
        if self._since_ms is not None and context.due(self._told_ms):
            self._tell()
        if not self._candidates:
            if self._look.under_way or not context.due(self._next_ms):
                return False
            if not self._find():
                return False
        if not context.due(self._next_ms):
            return False
        context.instance_id = self._candidates[0]
        return True

    def refused(self) -> None:
        """Another member has the slot: try the next one, or stand by."""
        context = self._context
        self._candidates = self._candidates[1:]
        context.instance_id = None
        if self._candidates:
            # Not in order: the processes of a deployment that begin together would all try the same one next.
            context.rng.shuffle(self._candidates)
            return
        self._wait()

    def taken(self) -> None:
        """The join was accepted."""
        context = self._context
        slot = context.instance_id
        assert slot is not None
        waited_ms = None if self._since_ms is None else context.now_ms - self._since_ms
        context.emit(SlotTaken(slot, self._before.get(slot), waited_ms))
        self._since_ms = None
        self._candidates = []
        self._before = {}
        self._look.forget()

    def stop(self) -> None:
        """The member leaves: it stands by no longer."""
        self._since_ms = None
        self._candidates = []
        self._look.forget()

    # --- looking for a slot

    def _find(self) -> bool:
        """Look for slots that may be free; whether that is known now."""
        if self._asks:
            self._look.ask(on_members=self._seen, on_refused=self._unseen, on_nothing=self._retry_later)
            if self._asks:
                return False
        self._candidates = [self._slots[self._turn % len(self._slots)]]
        self._turn += 1
        return True

    def _seen(self, members: Iterable[Member]) -> None:
        """Free slots first, in the order of the pool; then those whose owners have released them."""
        held = {member.instance_id: member for member in members if member.instance_id is not None}
        own = self._context.member_id
        free = [slot for slot in self._slots if slot not in held or held[slot].member_id == own]
        released = [slot for slot in self._slots if slot not in free and held[slot].member_epoch == STATIC_LEAVE_EPOCH]
        self._before = {slot: held[slot].member_id for slot in released}
        self._candidates = free + released
        if not self._candidates:
            self._wait()

    def _unseen(self, reason: str) -> None:
        self._asks = False
        self._next_ms = self._context.now_ms
        self._context.emit(SlotsUnseen(reason))

    def _retry_later(self) -> None:
        self._next_ms = self._context.now_ms + self._pause_ms()

    def _wait(self) -> None:
        """Nothing is free: stand by, and look again after a pause."""
        context = self._context
        if self._since_ms is None and (self._asks or len(self._slots) == 1 or self._turn >= len(self._slots)):
            self._since_ms = context.now_ms
            self._tell()
        self._retry_later()

    def _tell(self) -> None:
        assert self._since_ms is not None
        self._told_ms = self._context.now_ms + TOLD_EVERY_MS
        waited_ms = self._context.now_ms - self._since_ms
        self._context.emit(StandbyBegan(self._context.subscription.topics, len(self._slots), waited_ms))

    def _pause_ms(self) -> int:
        pause_ms = self._context.config.takeover_retry_ms * max(1.0, len(self._slots) / CROWD)
        if self._since_ms is not None and self._context.now_ms - self._since_ms >= FRESH_MS:
            pause_ms *= _TIRED
        return max(1, round(pause_ms * self._context.rng.uniform(1 - _JITTER, 1 + _JITTER)))


class Release:
    """Releases the slot of a member that leaves, and gives it up if no standby takes it in time."""

    def __init__(self, context: Context, *, discovery: Discovery, heartbeats: Heartbeats) -> None:
        self._context: Final = context
        self._heartbeats: Final = heartbeats
        self._look: Final = _Look(context, discovery=discovery, heartbeats=heartbeats)
        self._asks = True
        self._on_end: Callable[[object], None] | None = None
        self._request_id: int | None = None
        """The leave, while its answer is awaited."""
        self._slot: str | None = None
        self.unwanted: bool = False
        """The last release ended because no standby came, and the slot was not given up."""
        self._gives_up = True
        self.watches: bool = False
        """Whether it waits for a standby."""
        self._until_ms = 0
        self._ask_ms = 0

    @property
    def active(self) -> bool:
        """Whether the slot was released, and nobody is known to have it."""
        return self._on_end is not None

    def begin(self, on_end: Callable[[object], None], *, gives_up: bool) -> int:
        """Leave with epoch -2. Returns the number of the request.

        Args:
            on_end: called when a standby has taken the slot, or none came.
            gives_up: leave for good if none came; else see `unwanted`.
        """
        context = self._context
        self.forget()
        self._gives_up, self._slot, self._on_end = gives_up, context.instance_id, on_end
        self._request_id = self._heartbeats.send_leave(
            epoch=STATIC_LEAVE_EPOCH,
            on_answer=lambda answer: self._answered(answer.error_code),
            on_failure=self._failed,
        )
        return self._request_id

    def forget(self) -> None:
        """The member joins again: its slot is its own. An answer that comes late is about an earlier leave."""
        self._on_end, self.watches, self.unwanted = None, False, False
        self._context.orphan(self._request_id)
        self._request_id = None
        self._look.forget()

    def _failed(self, failure: RequestFailed) -> None:
        self._request_id = None
        self._end(failure)

    def _answered(self, error_code: int) -> None:
        self._request_id = None
        if error_code:
            self._end(None)  # the member was not in the group any more
            return
        self.watches = True
        self._until_ms = self._context.now_ms + self._context.config.takeover_wait_ms
        self._ask_ms = self._context.now_ms + WATCH_EVERY_MS

    def advance(self) -> None:
        """Look at the slot, or give it up, while it `watches`."""
        context = self._context
        if context.due(self._until_ms):
            if self._gives_up:
                self.give_up()
            else:
                self.unwanted = True
                self._end(None)
        elif self._asks and not self._look.under_way and context.link is not None and context.due(self._ask_ms):
            self._ask_ms = context.now_ms + WATCH_EVERY_MS
            self._look.ask(on_members=self._seen, on_refused=self._unseen, on_nothing=lambda: None)

    def _seen(self, members: Iterable[Member]) -> None:
        members = tuple(members)
        holder = next((member for member in members if member.instance_id == self._slot), None)
        taken = holder is None or holder.member_epoch != STATIC_LEAVE_EPOCH
        # If nobody stays, nobody can take the partitions over: the slots wait for the next start.
        if taken or not any(member.member_epoch >= 0 and subscribes(member) for member in members):
            self._end(None)

    def _unseen(self, reason: str) -> None:
        """It cannot be seen whether a standby came. A leave from a slot that another member has changes nothing."""
        del reason
        self._asks = False

    def give_up(self) -> None:
        """Leave for good a slot that was released."""
        on_end, slot = self._on_end or ignore_answer, self._slot
        self._on_end, self.watches, self.unwanted = None, False, False
        self._look.forget()
        if self._context.link is None:
            on_end(None)  # the coordinator is away: the session of the slot ends by itself
        else:
            self._heartbeats.send_leave(epoch=LEAVE_EPOCH, on_answer=on_end, on_failure=on_end, instance_id=slot)

    def _end(self, answer: object) -> None:
        on_end, self._on_end, self.watches = self._on_end, None, False
        self._look.forget()
        if on_end is not None:
            on_end(answer)
