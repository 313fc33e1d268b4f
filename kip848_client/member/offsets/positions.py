"""Where each owned partition starts: a seek, else the committed offset, else the reset policy (`new_partitions`: or
the one for partitions that appeared while the member was subscribed).

A partition is looked up once its assigned callback has returned. Partitions that become ready, or fail, together share
one request, even a thousand of them. The set of a lookup never changes; an answer for a partition that was lost or
sought meanwhile is dropped.

Does not own: positions of partitions that are being fetched, and pause marks (the application's thread has them).

Source: Kafka's ``OffsetsRequestManager``; KAFKA-17674 (a partition that was added during a lookup never takes the reset
path because of it).
Rules: R90 to R101 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.common.model import (
    NamedPartition,
    OffsetAndMetadata,
    Subscription,
    TopicIdPartition,
    describe_partitions,
)
from kip848_client.errors import (
    FencedError,
    Kip848Error,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    error_for_code,
    error_name,
    join_names,
)
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import TOPIC_GONE
from kip848_client.member.core.events import (
    ListOffsets,
    OffsetsListed,
    PositionLost,
    RequestFailed,
    StartCause,
    StartFetching,
    StartReason,
    TopicsDescribed,
)
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.settings import ByDuration, ResetPolicy, missing_permission
from kip848_client.member.offsets.commit_requests import FetchResult
from kip848_client.member.offsets.new_partitions import NewPartitions
from kip848_client.member.offsets.offset_fetches import Lookup, OffsetFetches

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
_LOGICAL: Final = frozenset({LATEST_TIMESTAMP, EARLIEST_TIMESTAMP})
_POLICY: Final = {ResetPolicy.EARLIEST: EARLIEST_TIMESTAMP, ResetPolicy.LATEST: LATEST_TIMESTAMP}


class _Stage(enum.Enum):
    __hash__ = object.__hash__  # enum hashes in Python code

    NOT_READY = enum.auto()
    """The assigned callback is not over."""
    LOOK_UP = enum.auto()
    """Needs its committed offset; no request is in flight."""
    LOOKING_UP = enum.auto()
    UNDECIDED = enum.auto()
    """Has no committed offset; whether the partition is new is not known yet."""
    RESET = enum.auto()
    """Needs the offset of a timestamp; no request is in flight."""
    RESETTING = enum.auto()
    START = enum.auto()
    """The position is known; `StartFetching` was not emitted yet."""
    FETCHING = enum.auto()


_ACTIVE: Final = frozenset({_Stage.LOOK_UP, _Stage.RESET, _Stage.START})
"""Stages in which the member itself has something to do."""


_UNDER_WAY: Final = _ACTIVE | {_Stage.LOOKING_UP, _Stage.UNDECIDED, _Stage.RESETTING}


class _Slot(msgspec.Struct, eq=False):
    partition: TopicIdPartition
    backoff: Backoff
    stage: _Stage = _Stage.NOT_READY
    position: OffsetAndMetadata | None = None
    is_committed: bool = False
    """Whether `position` is the committed offset."""
    start: StartCause = StartCause()
    """Why `position` is what it is."""
    reset_to: int | ByDuration = LATEST_TIMESTAMP
    """A timestamp, or how old the first record may be."""
    lookup: Lookup | None = None
    listing: int | None = None
    """Number of the request for the offset of `reset_to`. Answers to earlier requests are ignored."""


class Positions:
    """One slot per owned partition."""

    def __init__(self, context: Context, *, fetches: OffsetFetches) -> None:
        self._context = context
        self._fetches = fetches
        self._slots: dict[TopicIdPartition, _Slot] = {}
        self._active: dict[TopicIdPartition, _Slot] = {}
        """Slots in an `_ACTIVE` stage: few, while a member may have thousands of partitions."""
        self.under_way: set[TopicIdPartition] = set()
        """Partitions whose position is being looked up."""
        self._listing: dict[int, list[_Slot]] = {}
        self._new: Final = NewPartitions(context, on_known=self._decide)

    # --- subscription

    def subscribed(self, subscription: Subscription) -> None:
        """The application subscribes: partitions that appear from now on are new."""
        self._new.listen(subscription)

    def unsubscribed(self) -> None:
        """The member leaves its group."""
        self._new.stop()

    def topics_described(self, event: TopicsDescribed) -> bool:
        """Take an answer about topics; False if another part asked."""
        return self._new.described(event)

    # --- slots

    def prepare(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Add partitions whose assigned callback is still to return. A seek made meanwhile counts."""
        for partition in partitions:
            if partition not in self._slots:
                self._slots[partition] = _Slot(partition, self._context.new_backoff())

    def release(self, partitions: Iterable[TopicIdPartition]) -> None:
        """The assigned callback returned: start the partitions that waited for it, in sorted order."""
        slots = self._slots
        for partition in sorted(item for item in partitions if slots[item].stage is _Stage.NOT_READY):
            self._begin(slots[partition], slots[partition].position)

    def hold(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Pause partitions that are to be revoked. `release` resumes them at the application's position."""
        for partition in partitions:
            slot = self._slots[partition]
            if slot.stage is _Stage.FETCHING:
                slot.start = StartCause(StartReason.GOES_ON)
            if slot.stage in {_Stage.FETCHING, _Stage.START}:
                slot.position = self._context.consumed.get(partition.topic_partition, slot.position)
            self._set(slot, _Stage.NOT_READY)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Remove partitions; results for them are dropped."""
        for partition in partitions:
            slot = self._slots.pop(partition, None)
            if slot is not None:
                self._set(slot, _Stage.NOT_READY)
                self._forget_lookup(slot)

    def _forget_lookup(self, slot: _Slot) -> None:
        lookup, slot.lookup = slot.lookup, None
        if lookup is not None:
            lookup.interested -= 1
            if not lookup.interested:
                self._fetches.cancel(lookup)

    def clear(self) -> None:
        """Remove all partitions."""
        self.drop(list(self._slots))
        self._listing.clear()

    def seek(
        self, partition: NamedPartition, position: OffsetAndMetadata, *, reason: StartReason = StartReason.SOUGHT
    ) -> None:
        """Start there instead: an absolute offset, or -2 for the beginning and -1 for the end."""
        slot = self._by_name(partition)
        if slot is None:
            return
        slot.start = StartCause(reason)
        if slot.stage is _Stage.NOT_READY:
            slot.position = position
        else:
            self._begin(slot, position)

    def lost(self, event: PositionLost) -> None:
        """The broker no longer has a record at the position: apply the reset policy."""
        slot = self._by_name(event.partition)
        if slot is None or slot.stage is not _Stage.FETCHING:
            return
        # The committed offset of a new partition that has no such record is one of a deleted topic of the same name.
        at_committed = slot.is_committed and slot.position is not None and slot.position.offset == event.position.offset
        is_new = at_committed and bool(self._new.is_new(slot.partition))
        reset_to = self._policy(is_new=is_new)
        if reset_to is None:
            error = OffsetOutOfRangeError(event.partition, offset=event.position.offset)
            self._context.surface(error, key=event.partition)
        else:
            slot.start = StartCause(StartReason.OUT_OF_RANGE, _policy_name(reset_to), event.position.offset)
            self._reset(slot, reset_to)

    def _policy(self, *, is_new: bool) -> int | ByDuration | None:
        """The reset policy: where to start without a committed offset; None: do not start."""
        config = self._context.config
        policy = config.auto_offset_reset_new_partitions if is_new else config.auto_offset_reset
        return policy if policy is None or isinstance(policy, ByDuration) else _POLICY.get(policy)

    def _set(self, slot: _Slot, stage: _Stage) -> None:
        slot.stage = stage
        if stage in _ACTIVE:
            self._active[slot.partition] = slot
        else:
            self._active.pop(slot.partition, None)
        if stage in _UNDER_WAY:
            self.under_way.add(slot.partition)
        else:
            self.under_way.discard(slot.partition)

    def _by_name(self, partition: NamedPartition) -> _Slot | None:
        owned = self._context.owned_by_name.get(partition)
        return self._slots.get(owned) if owned is not None else None

    def _begin(self, slot: _Slot, position: OffsetAndMetadata | None) -> None:
        self._forget_lookup(slot)
        slot.position, slot.is_committed = position, False
        if position is None:
            self._set(slot, _Stage.LOOK_UP)
        elif position.offset in _LOGICAL:
            self._reset(slot, position.offset)
        else:
            self._set(slot, _Stage.START)

    def _reset(self, slot: _Slot, reset_to: int | ByDuration) -> None:
        slot.backoff.reset()
        # Without a position a partition that is held back meanwhile looks up its committed offset again.
        position = None if isinstance(reset_to, ByDuration) else OffsetAndMetadata(reset_to)
        slot.reset_to, slot.position, slot.is_committed = reset_to, position, False
        self._set(slot, _Stage.RESET)

    # --- advance

    def advance(self) -> None:
        """Ask for the missing offsets."""
        if self._new.due:
            self._new.advance()
        if self._active:
            self._look_up()
            self._list_offsets()

    def flush(self) -> None:
        """Emit `StartFetching` for all positions that became known."""
        if not self._active:
            return
        ready = {slot.partition: slot for slot in self._active.values() if slot.stage is _Stage.START}
        if ready:
            positions = {partition: slot.position for partition, slot in ready.items() if slot.position is not None}
            for slot in ready.values():
                self._set(slot, _Stage.FETCHING)
            committed = frozenset(partition for partition, slot in ready.items() if slot.is_committed)
            starts = {partition: slot.start for partition, slot in ready.items()}
            self._context.emit(StartFetching(positions, committed, starts))
        for slot in self._active.values():
            self._context.wake_at(slot.backoff.ready_ms)

    def _ready(self, stage: _Stage) -> list[_Slot]:
        now_ms = self._context.now_ms
        return [slot for slot in self._active.values() if slot.stage is stage and now_ms >= slot.backoff.ready_ms]

    # --- committed offset

    def _look_up(self) -> None:
        slots = self._ready(_Stage.LOOK_UP)
        if not slots:
            return

        def done(result: FetchResult | None, error: Kip848Error | None) -> None:
            self._looked_up(lookup, slots, result, error)

        lookup = Lookup(done, interested=len(slots))
        for slot in slots:
            self._set(slot, _Stage.LOOKING_UP)
            slot.lookup = lookup
        self._fetches.look_up(frozenset(slot.partition.topic_partition for slot in slots), lookup)

    def _looked_up(
        self, lookup: Lookup, slots: list[_Slot], result: FetchResult | None, error: Kip848Error | None
    ) -> None:
        waiting = [slot for slot in slots if slot.stage is _Stage.LOOKING_UP and slot.lookup is lookup]
        if error is not None:
            self._retry(waiting, _Stage.LOOK_UP)
            # If the member was removed, its next heartbeat tells it.
            if waiting and not isinstance(error, FencedError):
                self._context.surface(error, key=("positions", type(error)))
            return
        assert result is not None, "a lookup ends with a result or an error"
        unset: list[_Slot] = []
        failed: list[_Slot] = []
        for slot in waiting:
            key = slot.partition.topic_partition
            if key in result.failed:
                failed.append(slot)
            elif (position := result.offsets.get(key)) is not None:
                slot.position, slot.is_committed, slot.start = position, True, StartCause()
                self._set(slot, _Stage.START)
            else:
                unset.append(slot)
        self._retry(failed, _Stage.LOOK_UP)
        codes = {slot.partition.topic_partition: result.failed[slot.partition.topic_partition] for slot in failed}
        self._complain(codes, "committed offset")
        self._apply_policy(unset)

    def _apply_policy(self, slots: list[_Slot]) -> None:
        nowhere: list[_Slot] = []
        for slot in slots:
            is_new = self._new.is_new(slot.partition)
            if is_new is None:
                self._set(slot, _Stage.UNDECIDED)
                continue
            reset_to = self._policy(is_new=is_new)
            if reset_to is None:
                nowhere.append(slot)
            else:
                reason = StartReason.PARTITION_IS_NEW if is_new else StartReason.NOTHING_COMMITTED
                slot.start = StartCause(reason, _policy_name(reset_to))
                self._reset(slot, reset_to)
        if nowhere:
            self._retry(nowhere, _Stage.LOOK_UP)
            missing = NoOffsetForPartitionError(slot.partition.topic_partition for slot in nowhere)
            self._context.surface(missing, key=missing.partitions)

    def _decide(self) -> None:
        """More is known about which partitions are new."""
        self._apply_policy([slot for slot in self._slots.values() if slot.stage is _Stage.UNDECIDED])

    def _retry(self, slots: Sequence[_Slot], stage: _Stage) -> None:
        """Partitions that failed together are retried together, after the longest of their backoffs."""
        if not slots:
            return
        backoff = max((slot.backoff for slot in slots), key=attrgetter("failures"))
        backoff.failed(self._context.now_ms)
        for slot in slots:
            self._set(slot, stage)
            slot.backoff.follow(backoff)

    def _complain(self, failed: dict[NamedPartition, int], what: str) -> None:
        """Surface errors that the application can fix; transient ones are only retried.

        A deleted topic is only retried too while the application is subscribed: the next assignment omits it (R177).
        """
        quiet = TOPIC_GONE if self._context.subscribed else frozenset()
        codes = sorted(set(failed.values()) - (quiet if what == "committed offset" else RETRIABLE))
        for code in codes:
            partitions = sorted(key for key, its_code in failed.items() if its_code == code)
            names = describe_partitions(partitions)
            text = f"{what} of {names}; still trying"
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topics = {partition.topic for partition in partitions}
                lacks = missing_permission(
                    self._context.config, "DESCRIBE", f"topic {join_names(map(repr, sorted(topics)))}"
                )
                error: Kip848Error = TopicAuthorizationError(f"{error_name(code)}: {text}; {lacks}", topics=topics)
            else:
                error = error_for_code(code, text)
            self._context.surface(error, key=("positions", code))

    # --- reset

    def _list_offsets(self) -> None:
        slots = self._ready(_Stage.RESET)
        if not slots:
            return
        request_id = self._context.expect(None, self._list_failed)
        for slot in slots:
            self._set(slot, _Stage.RESETTING)
            slot.listing = request_id
        self._listing[request_id] = slots
        timestamps: dict[NamedPartition, int] = {}
        durations_ms: dict[NamedPartition, int] = {}
        for slot in slots:
            if isinstance(slot.reset_to, ByDuration):
                durations_ms[slot.partition.topic_partition] = slot.reset_to.duration_ms
            else:
                timestamps[slot.partition.topic_partition] = slot.reset_to
        self._context.emit(ListOffsets(request_id, timestamps, self._context.config.request_timeout_ms, durations_ms))

    def _listed(self, request_id: int) -> list[_Slot]:
        """Partitions that still wait for this request. One that was sought meanwhile does not."""
        slots = self._listing.pop(request_id, [])
        return [slot for slot in slots if slot.stage is _Stage.RESETTING and slot.listing == request_id]

    def listed(self, event: OffsetsListed) -> None:
        """The partitions' leaders answered."""
        self._context.finish(event.request_id)
        failed: list[_Slot] = []
        codes: dict[NamedPartition, int] = {}
        for slot in self._listed(event.request_id):
            key = slot.partition.topic_partition
            position = event.offsets.get(key)
            if key not in event.errors and position is not None and position.offset >= 0:
                slot.position = position
                self._set(slot, _Stage.START)
                continue
            failed.append(slot)
            if key in event.errors:
                codes[key] = event.errors[key]
        self._retry(failed, _Stage.RESET)
        self._complain(codes, "position")

    def _list_failed(self, failure: RequestFailed) -> None:
        self._retry(self._listed(failure.request_id), _Stage.RESET)
        if not is_passing(failure):
            self._context.surface(failure_error(failure), key=("positions", failure.kind))


def _policy_name(reset_to: int | ByDuration) -> str:
    if isinstance(reset_to, ByDuration):
        return f"by_duration:PT{reset_to.duration_ms / 1_000:g}S"
    return "latest" if reset_to == LATEST_TIMESTAMP else "earliest"
