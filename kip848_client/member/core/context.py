"""State that the parts of one member share: time, identity, phase, requests in flight, and effects of this step.

Bookkeeping only; the rules are in the parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar, cast

import msgspec

from kip848_client.common.model import NO_EPOCH, NamedPartition, OffsetAndMetadata, Subscription, TopicIdPartition
from kip848_client.errors import Kip848Error
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.events import (
    AssignPartitions,
    Destination,
    GroupLeft,
    LosePartitions,
    MemberEffect,
    RequestFailed,
    RevokePartitions,
    SendRequest,
    StateChanged,
    SurfaceError,
)
from kip848_client.member.core.failures import poll_missed
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.core.states import WITH_EPOCH, Phase, Trigger, move
from kip848_client.member.core.statistics import Statistics
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

MIN_REPEAT_MS: Final = 5000
"""The same error is surfaced at most this often."""

_LOOKUP_IN_GROUP_MS: Final = 1_000
_LOOKUP_MS: Final = 5_000
"""Timeout of the first lookup: of a member whose session runs, and of others."""
_MOST_DOUBLINGS: Final = 20


class _Pending(msgspec.Struct, eq=False):
    """A request in flight; without handlers once its answer is to be ignored."""

    on_answer: Callable[[Response], None] | None
    on_failure: Callable[[RequestFailed], None] | None
    link: int | None
    """The coordinator's connection that carries it."""


class Context:
    """The state that several parts of one member need."""

    def __init__(self, config: MemberConfig, rng: random.Random) -> None:
        self.config: Final = config
        self.rng: Final = rng
        self.now_ms: int = 0
        self.effects: list[MemberEffect] = []
        self.wake_ms: int | None = None
        """When something is due by time alone. In every step each part that waits for a time tells it, with `due` or
        `wake_at`; the member asks none of them."""
        self.statistics: Final = Statistics()

        self.phase = Phase.IDLE
        self.member_id: str = config.member_id
        self.instance_id: str | None = config.instance_id
        """The static slot that the member has, or tries to take; see `slots`."""
        self.member_id_confirmed = False
        """An answer confirmed the member id; a version 0 coordinator does not know it before."""
        self.epoch = 0
        self.fetches_name_member = True
        """Whether an OffsetFetch carries member id and epoch, so that the coordinator can refuse a stale one."""
        self.incarnation = 0
        """Grows with every fencing, poll timeout and leave.

        Answers to requests of an older one are ignored.
        """
        self.subscription: Subscription = Subscription()
        self.assignors: tuple[Assignor, ...] = ()
        """Client-side assignors to advertise; see `assignor_round`."""
        self.expedite = False
        """Send the next heartbeat at once, because its answer has news. `commits` and `offset_fetches` set it when a
        member id or epoch was refused, `assignor_round` when a target was installed; sending a heartbeat clears it."""
        self.closing = False
        self.polled_ms = 0
        """When the application was last known to be inside poll()."""
        self.departure: str | None = None
        """Why the member was last outside its group; None if it never left one."""
        self.poll_missed: bool = False
        """It is outside because poll() was not called for max.poll.interval.ms."""
        self.fatal_error: Kip848Error | None = None

        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.owned_by_name: Mapping[NamedPartition, TopicIdPartition] = {}
        self.given_away: frozenset[NamedPartition] | set[NamedPartition] = frozenset()
        """Partitions that were owned as a member once, and are not now: revoked, lost or released."""
        self.consumed: dict[NamedPartition, OffsetAndMetadata] = {}
        """Consumed positions of owned partitions, as of the last reported poll."""
        self.stored: dict[NamedPartition, OffsetAndMetadata] | None = None
        """Offsets of store_offsets() for owned partitions; None if positions count as processed by themselves."""

        self.link: int | None = None
        """Number of the coordinator's connection; None while the coordinator is not known. See `discovery`."""
        self._last_request_id = 0
        self._last_token = 0
        self._pending: dict[int, _Pending] = {}
        self.listener_calls: Final[dict[int, Callable[[BaseException | None], None] | None]] = {}
        """Listener calls that have not returned yet, with the function to call at the end of each."""
        self._surfaced: tuple[object, int] | None = None

    # --- time

    def begin_step(self, now_ms: int) -> None:
        """A step begins at *now_ms*; an earlier time than that of the last step counts as that."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        self.effects = []
        self.wake_ms = None

    def due(self, at_ms: int) -> bool:
        """Whether this time has come. If not, the member is woken then."""
        if self.now_ms >= at_ms:
            return True
        if self.wake_ms is None or at_ms < self.wake_ms:
            self.wake_ms = at_ms
        return False

    def wake_at(self, at_ms: int) -> None:
        """Wake the member then; at once if that time has passed."""
        if self.wake_ms is None or at_ms < self.wake_ms:
            self.wake_ms = at_ms

    # --- phase, epoch

    def move(self, trigger: Trigger) -> None:
        """Make one legal move.

        Raises:
            IllegalStateError: this phase has no such exit in `STATES`; nothing changed.
        """
        old = self.phase
        move(self, trigger)
        if trigger == "subscribed":
            self.departure, self.poll_missed = None, False  # it is outside for another reason now
        new = self.phase
        self.statistics.moved(old, new, now_ms=self.now_ms)
        if new.state is not old.state:
            self.emit(StateChanged(old.state, new.state, trigger, self.epoch))

    @property
    def live_epoch(self) -> int:
        """The epoch that commits and fetches carry now: -1 while the member has none."""
        return self.epoch if self.phase in WITH_EPOCH and self.epoch > 0 else NO_EPOCH

    @property
    def subscribed(self) -> bool:
        """Whether the application wants to be, or is, a member (as opposed to idle or assigned by hand)."""
        return self.phase is not Phase.IDLE

    def set_owned(self, partitions: Iterable[TopicIdPartition], *, by_hand: bool = False) -> None:
        """Replace the owned partitions, and forget consumed positions of all others.

        Args:
            by_hand: of a manual assignment: no other member gets what is not owned any more.
        """
        before = frozenset() if by_hand else self.owned_by_name.keys()
        self.owned = frozenset(partitions)
        self.owned_by_name = {partition.topic_partition: partition for partition in self.owned}
        self.given_away = (self.given_away | before) - self.owned_by_name.keys()
        self.consumed = {key: value for key, value in self.consumed.items() if key in self.owned_by_name}
        if self.stored is not None:
            self.stored = {key: value for key, value in self.stored.items() if key in self.owned_by_name}

    @property
    def committable(self) -> dict[NamedPartition, OffsetAndMetadata]:
        """Offsets that an automatic commit sends."""
        return self.consumed if self.stored is None else self.stored

    # --- leaving

    def left_group(self, reason: str, *, poll_missed: bool = False) -> None:
        """The member is in the group no more.

        Args:
            reason: in words that go on "the member is not in the group: ...".
            poll_missed: poll() was not called for max.poll.interval.ms.
        """
        self.departure, self.poll_missed = reason, poll_missed
        self.emit(GroupLeft(reason))

    @property
    def why_outside(self) -> str:
        """Why the member is not in its group now; of one that did not poll with the time until now."""
        if self.poll_missed:
            return poll_missed(silent_ms=self.now_ms - self.polled_ms, limit_ms=self.config.max_poll_interval_ms)
        return self.departure or "it has not joined yet, which poll() does"

    # --- effects

    def emit(self, effect: MemberEffect) -> None:
        """Add an effect of this step."""
        self.effects.append(effect)

    def surface(self, error: Kip848Error, *, key: object, every_ms: int = MIN_REPEAT_MS) -> None:
        """Raise *error* from poll(), unless the last one surfaced had the same *key* less than *every_ms* ago."""
        if self._surfaced is not None:
            last_key, at_ms = self._surfaced
            if last_key == key and self.now_ms - at_ms < every_ms:
                return
        self._surfaced = (key, self.now_ms)
        self.emit(SurfaceError(error))

    def new_backoff(self) -> Backoff:
        """A counter of failures with the configured waits."""
        return Backoff(initial_ms=self.config.retry_backoff_ms, max_ms=self.config.retry_backoff_max_ms, rng=self.rng)

    # --- requests

    @property
    def requests_under_way(self) -> int:
        """How many requests are in flight."""
        return len(self._pending)

    def send(
        self,
        request: Request[ResponseT],
        *,
        destination: Destination,
        timeout_ms: int,
        on_answer: Callable[[ResponseT], None],
        on_failure: Callable[[RequestFailed], None],
        max_version: int | None = None,
        urgent: bool = False,
    ) -> int:
        """Ask the shell to send *request*; exactly one of the handlers is called when it ends. Returns its number."""
        request_id = self.expect(
            cast("Callable[[Response], None]", on_answer),
            on_failure,
            link=self.link if destination is Destination.COORDINATOR else None,
        )
        self.emit(SendRequest(request_id, destination, request, timeout_ms, max_version, urgent=urgent))
        return request_id

    def expect(
        self,
        on_answer: Callable[[Response], None] | None,
        on_failure: Callable[[RequestFailed], None],
        *,
        link: int | None = None,
    ) -> int:
        """Number a request whose failure comes to *on_failure*."""
        self._last_request_id += 1
        self._pending[self._last_request_id] = _Pending(on_answer, on_failure, link)
        return self._last_request_id

    def orphan(self, request_id: int | None) -> None:
        """Ignore the outcome of a request."""
        if request_id is not None and (pending := self._pending.get(request_id)) is not None:
            pending.on_answer = None
            pending.on_failure = None

    def lookup_timeout_ms(self, failures: int) -> int:
        """Timeout of a request that another broker or connection could answer as well (R199).

        A connection that the network dropped silently looks like one to a slow broker. To wait the full request timeout
        would cost a member its session, so the first attempt is short, and each failure doubles the timeout.

        Args:
            failures: how many attempts in a row failed before.
        """
        first_ms = _LOOKUP_IN_GROUP_MS if self.live_epoch != NO_EPOCH else _LOOKUP_MS
        return min(self.config.request_timeout_ms, first_ms << min(failures, _MOST_DOUBLINGS))

    def take_answer(self, request_id: int) -> Callable[[Response], None] | None:
        """Take the handler of an answer; None if the answer is to be ignored."""
        pending = self._pending.pop(request_id, None)
        return pending.on_answer if pending is not None else None

    def take_failure(self, request_id: int) -> tuple[Callable[[RequestFailed], None] | None, int | None]:
        """Take the handler of a failure, and the coordinator's connection that carried the request."""
        pending = self._pending.pop(request_id, None)
        return (pending.on_failure, pending.link) if pending is not None else (None, None)

    def finish(self, request_id: int) -> None:
        """A request without a response message is over."""
        self._pending.pop(request_id, None)

    def lose_link(self, link: int | None) -> None:
        """The coordinator's connection *link* broke, or its broker is no longer the coordinator."""
        if link is not None and link == self.link:
            self.link = None

    # --- listeners

    def call_listener(
        self,
        effect: type[RevokePartitions | AssignPartitions | LosePartitions],
        partitions: frozenset[TopicIdPartition],
        on_done: Callable[[BaseException | None], None] | None,
    ) -> int:
        """Ask the application's thread to run a listener; *on_done* is None if the outcome does not matter."""
        self._last_token += 1
        self.listener_calls[self._last_token] = on_done
        self.emit(effect(self._last_token, partitions))
        return self._last_token

    def redirect_listener(self, token: int, on_done: Callable[[BaseException | None], None] | None) -> None:
        """Replace the callback of a listener call that has not returned; None for no callback."""
        if token in self.listener_calls:
            self.listener_calls[token] = on_done

    def listener_done(self, token: int, error: BaseException | None) -> None:
        """A call ended; unknown numbers are ignored."""
        on_done = self.listener_calls.pop(token, None)
        if on_done is not None:
            on_done(error)

    def listener_awaited(self, token: int) -> bool:
        """Whether this call has not returned yet."""
        return token in self.listener_calls
