"""Records of owned partitions, through librdkafka. Knows no protocol rule.

The member says which partitions to fetch, and from which absolute offsets: `start`, `hold`, `stop`. librdkafka is
never subscribed and never commits. Its assignment changes partition by partition, so that the others go on undisturbed;
only if nothing remains it is given up as a whole.

**On the way.** Ctrl-C may interrupt any call after librdkafka has moved its position. Records that librdkafka returned
and that did not reach the application would be skipped. So `on_the_way` is set before librdkafka is called, until the
caller has the records. A later call that finds it set starts the partitions again at their last known positions, never
before a position that was reported or committed.

**Handed out.** A position counts only records that the application got from an earlier poll() or consume(). librdkafka
counts the records that it returned; those that are still in `ready`, or stashed by pause(), are subtracted on reading.
Nothing is counted per record.

**Threads.** Every method takes `Fetcher.lock`, also `read` while it waits for records. One thread reads. Only that one
moves records: what another thread pauses or resumes moves when the reading thread comes by (`_tidy`). The records that
it is handing out at this moment are not the business of others, who see the positions before them. `Fetcher.turn` lets
them in between two reads: they hold it while they wait for the lock, and the reading thread waits for it before it
takes the lock again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import ZERO_UUID, NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.consumer.records.data_plane import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    RecordConsumer,
    TopicPartition,
    internal,
    leader_epoch,
    list_topics,
    public,
    translate,
)
from kip848_client.consumer.records.origins import Origins
from kip848_client.errors import IllegalStateError, Kip848Error, OutOfResourcesError
from kip848_client.wire.name_lookups import LOOKUPS

if TYPE_CHECKING:
    from kip848_client.consumer.records.checks.gap_check import GapCheck
    from kip848_client.consumer.records.data_plane import ClusterMetadata, TopicMetadata
    from kip848_client.consumer.records.read_meter import ReadMeter

_CLOSE_S: Final = 0.3
"""How long close() waits for librdkafka while it looks up names."""

_CLOSE_MANY: Final = 2_000
_CLOSE_MANY_S: Final = 1.0
"""And how long if it had more partitions than that: it goes through all of them for each that it stops, which takes
seconds for 10,000. The group has been left by then, and nothing depends on it."""

WARM_TIMEOUT_S: Final = 0.5
"""For the metadata of topics that are new to librdkafka; without it the first fetch waits 500 ms longer."""

_LOOK_ALWAYS_MAX: Final = 8
"""Up to this many partitions, positions are noted before every read: nothing is repeated after Ctrl-C."""

_LOOK_READS_MIN: Final = 8
"""With more partitions, after this many reads and one more for each partition: Ctrl-C may repeat that much. As often
does a consume() that finds its records at hand look at all else, too."""

_LOOK_S_PER_PARTITION: Final = 0.000_1
"""How often, at most, a reader does it that is about to wait for records; that takes 4 us for each of 1,000."""

_CUT_OFF_S: Final = 0.001
"""confluent_kafka takes whole milliseconds: less than one would not wait, and the caller call again and again."""

_WARM_SINGLY_MAX: Final = 16
"""Above this many new topics one request for all topics is cheaper than one for each."""


WATCH_S: Final = 5.0
"""After so long without a record of a topic that was created again its leader is asked for its end; then less often."""

WATCH_S_MAX: Final = 60.0
"""The longest time between two such questions, and so without records that are there."""

_WATCH_PARTITIONS_MAX: Final = 8
_WATCH_TIMEOUT_S: Final = 1.0

_TURN_S: Final = 0.05
_HANDING_OUT_S: Final = 0.001
_HANDING_OUT_LOOKS: Final = 20
"""How often, and how many times, another thread looks whether records that are handed out now have been."""

TOPIC_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


P = ParamSpec("P")
ResultT = TypeVar("ResultT")


def _locked(
    method: Callable[Concatenate[Fetcher, P], ResultT],
) -> Callable[Concatenate[Fetcher, P], ResultT]:
    """*method*, under the lock of its fetcher."""

    @functools.wraps(method)
    def locked(self: Fetcher, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        with self.lock:
            try:
                return method(self, *args, **kwargs)
            except (LookupError, RuntimeError) as error:
                self._raise_if_closed(error)
                raise

    return locked


class Fetcher:
    """Partitions that are fetched now, and records that were fetched but not handed out.

    Args:
        plane: made by `create_record_consumer`; used under `lock`.
        make_plane: makes another one, to replace *plane* when a topic was created again; see `_renew`.
    """

    def __init__(self, plane: RecordConsumer, *, make_plane: Callable[[], RecordConsumer] | None = None) -> None:
        self.plane: RecordConsumer = plane
        self.lock: Final = threading.RLock()
        """A signal handler may call again on the same thread. Python leaves no `with` of it locked on Ctrl-C."""
        self.turn: Final = threading.RLock()
        """Taken before `lock` by a thread that does not read, and never after it."""
        self.asked_s: float = 0.0
        """When another thread asked for its turn last, on ``time.monotonic``."""
        self.is_reader: Callable[[], bool] = lambda: True
        """Whether the current thread is the one that reads."""
        self.inside: int = 0
        """How many calls of librdkafka go on that a signal handler may interrupt."""
        self.close_due: bool = False
        """Close librdkafka's consumer when these have ended: a signal handler has closed this in the middle of one."""
        self._untidy = False
        """Another thread has paused or resumed partitions, whose records are where they were."""
        self._make_plane = make_plane
        self.on_renewed: Callable[[Sequence[str]], None] = lambda _topics: None
        """Told when `plane` was replaced, with the topics that were created again."""
        self.gaps: GapCheck | None = None
        """Looks for records that librdkafka leaves out."""
        self.meter: ReadMeter | None = None
        self._topic_ids: dict[str, UUID] = {}
        """Id of each topic that `plane` ever fetched."""
        self._missing: set[str] = set()
        """Topics that librdkafka could not find. If one of them is started again, it was created again meanwhile."""
        self._watched: dict[NamedPartition, OffsetAndMetadata] = {}
        """Partitions of recreated topics that have returned no record yet, with the position where they began."""
        self._watch_due_s = 0.0
        self._watch_wait_s = WATCH_S
        self.ready: Final[deque[Any]] = deque()
        """Records read from librdkafka and not handed out; emptied from the left."""
        self._starts: dict[NamedPartition, OffsetAndMetadata] = {}
        """Start of every partition that is fetched; used as its position until librdkafka has one."""
        self._safe: dict[NamedPartition, OffsetAndMetadata] = {}
        """Positions when they were last looked at. None of them is past a record that was not handed out."""
        self._looked_s = 0.0
        self.reads: int = 0
        """How often records came from librdkafka or `_stash` since then; at 0 `_safe` is true now."""
        self._at_hand_reads = 0
        """How often `read_at_hand` was called since the last `read`."""
        self.returned: int = 0
        """How many records came from librdkafka."""
        self.emptied: int = 0
        """How often a read left nothing in librdkafka's queue."""
        self._dry = False
        """Whether the last call of `read` found nothing."""
        self._unfinished: dict[NamedPartition, OffsetAndMetadata] = {}
        """Partitions that an interrupted `_begin_again` still has to start."""
        self.on_the_way: bool = False
        """True while records may have left librdkafka without having reached the caller; see the module's docstring."""
        self.bytes_max: int | None = None
        """How many bytes of keys and values one read may bring; only its last record may exceed them."""
        self._held: dict[NamedPartition, OffsetAndMetadata] = {}
        """Partitions paused because they are about to be revoked, with their positions at that moment."""
        self._paused: set[NamedPartition] = set()
        """Paused by the application, fetched or not."""
        self._stash: dict[NamedPartition, list[Message]] = {}
        """Records of paused partitions that were read before the pause."""
        self.stored: Final[dict[NamedPartition, OffsetAndMetadata]] = {}
        """The offsets of store_offsets(), of partitions that are still owned."""
        self.origins: Final = Origins()
        self._sought: dict[NamedPartition, OffsetAndMetadata] = {}
        """seek() before fetching began; wins over the position that the member finds."""
        self._silent: set[NamedPartition] = set()
        """Partitions that are paused in librdkafka. A partition stays paused there after it has been revoked, and is
        resumed when it is assigned again: librdkafka needs seconds to resume thousands of partitions."""
        self._warm: set[str] = set()
        self._errors: deque[Kip848Error] = deque()
        self._lost: deque[tuple[NamedPartition, OffsetAndMetadata]] = deque()
        self.closed: bool = False
        self._most = 0
        """Partitions that were fetched at once."""

    # --- questions

    @_locked
    def list_topics(self, topic: str | None = None, *, timeout: float) -> ClusterMetadata:
        """The metadata of the cluster, or of *topic* alone.

        Raises:
            KafkaException: no answer within *timeout* seconds.
            IllegalStateError: a signal handler has closed the consumer.
        """
        if self.closed:
            raise IllegalStateError("the consumer is closed; make a new one")
        self.inside += 1
        try:
            return list_topics(self.plane, topic, timeout=timeout)
        finally:
            self.inside -= 1
            if self.close_due:
                self.close_plane()

    # --- what the member asks for

    @_locked
    def warm(
        self, topics: Iterable[str], *, anew: bool = False, timeout_s: float = WARM_TIMEOUT_S
    ) -> dict[str, TopicMetadata] | None:
        """Let librdkafka learn about *topics* now, because a first fetch of an unknown topic waits 500 ms longer.

        Args:
            anew: ask also about topics that it knows already.
            timeout_s: how long each question may take.

        Returns:
            The metadata of the topics that were asked about. If many do not exist, it asks about the first ones only.
            None if no broker answered in time.
        """
        new = sorted(set(topics) if anew else set(topics) - self._warm)
        if not new:
            return {}
        known: dict[str, TopicMetadata] = {}
        try:
            if len(new) > _WARM_SINGLY_MAX:
                known.update(self.list_topics(timeout=timeout_s).topics)
            for topic in [topic for topic in new if topic not in known][:_WARM_SINGLY_MAX]:
                known.update(self.list_topics(topic, timeout=timeout_s).topics)
        except KafkaException as error:
            # Fetching works without; it only begins later.
            log_event(logging.INFO, LogEvent.DATA_PLANE_ERROR, error=translate(error, what=f"metadata of {new}"))
            return None
        described = {topic: known[topic] for topic in new if topic in known}
        self._warm.update(topic for topic in described if not is_missing(described[topic]))
        return described

    @_locked
    def start(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        """Fetch partitions from absolute offsets. One that is fetched already begins again there."""
        # Ctrl-C may end this call anywhere; it is made again then, so marks are taken off last.
        wanted = {tip.topic_partition: self._sought.get(tip.topic_partition, at) for tip, at in positions.items()}
        named = {tip.topic: tip.topic_id for tip in positions if tip.topic_id != ZERO_UUID}
        created_again = sorted(name for name in named if self._topic_ids.get(name, named[name]) != named[name])
        created_again = sorted({*created_again, *(self._missing & {partition.topic for partition in wanted})})
        if created_again:
            self._renew(created_again)
            self._watched.update({p: at for p, at in wanted.items() if p.topic in created_again})
            self._watch_wait_s = WATCH_S
            self._watch_due_s = time.monotonic() + WATCH_S
        self._topic_ids.update(named)
        self._forget([partition for partition in wanted if partition in self._starts])
        self.warm({partition.topic for partition in wanted})
        self._fetch(wanted)
        self.origins.began(wanted)
        for partition, at in wanted.items():
            self._sought.pop(partition, None)
            stored = self.stored.get(partition)
            if stored is not None and stored.offset < at.offset:  # another thread stored it as the partition went
                self.stored.pop(partition, None)

    @_locked
    def hold(self, partitions: Iterable[NamedPartition]) -> None:
        """Stop fetching *partitions* and drop their buffered records; their positions do not change."""
        held = sorted(set(partitions) & self._starts.keys())
        if not held:
            return
        # First of all, and only once: records dropped below would be missing in a position taken later.
        for partition, position in self.positions([p for p in held if p not in self._held]).items():
            self._held.setdefault(partition, position)
        if len(held) < len(self._starts):  # if all are held, nothing is read until they stop
            self._silence(held)
        self._drop(set(held))

    @_locked
    def stop(self, partitions: Iterable[NamedPartition]) -> None:
        """End fetching *partitions*, and forget all that is known of them: they may be assigned again later."""
        gone = set(partitions)
        unheld = [partition for partition in gone if partition in self.origins and partition not in self._held]
        self.origins.ended(gone, self._positions(unheld) | self._held)
        if self.meter is not None:
            self.meter.stopped(gone)
        self._forget(sorted(gone & self._starts.keys()))
        for partition in gone:
            self._unfinished.pop(partition, None)
            self._watched.pop(partition, None)
            self._paused.discard(partition)
            self._sought.pop(partition, None)
            self.stored.pop(partition, None)

    @_locked
    def stop_all(self) -> None:
        """End fetching."""
        self.origins.clear()
        self.stop([*self._starts, *self._unfinished, *self._paused, *self._sought, *self.stored])
        self.ready.clear()

    @_locked
    def positions(self, partitions: Iterable[NamedPartition] | None = None) -> dict[NamedPartition, OffsetAndMetadata]:
        """The next offset to hand out, of each fetched partition that has one; all of them if *partitions* is None.

        An interrupted call of the thread that reads begins again at the position that was returned here, not before it.
        """
        if not self.is_reader():
            return self._last_safe(partitions) if self.on_the_way else self._positions(partitions)
        if self.on_the_way:
            self._begin_again()
        if partitions is None and not self.reads and not (self.ready or self._stash or self._held):
            return self._safe.copy()  # nothing came since: librdkafka takes 4 us for each partition
        known = self._positions(partitions)
        self._safe.update(known)
        return known

    def _last_safe(self, partitions: Iterable[NamedPartition] | None) -> dict[NamedPartition, OffsetAndMetadata]:
        """Positions before the records that another thread is handing out now, or that it was cut off in."""
        known = self._safe | self._held
        return {p: known[p] for p in (self._starts if partitions is None else partitions) if p in known}

    def _positions(self, partitions: Iterable[NamedPartition] | None = None) -> dict[NamedPartition, OffsetAndMetadata]:
        wanted = [p for p in (self._starts if partitions is None else partitions) if p in self._starts]
        if not wanted:
            return {}
        known: dict[NamedPartition, OffsetAndMetadata] = {}
        for found in self.plane.position([public(partition) for partition in wanted]):
            partition = internal(found)
            if found.offset >= 0:
                known[partition] = OffsetAndMetadata(found.offset, leader_epoch(found))
            else:
                known[partition] = self._starts[partition]
        for message in self._not_handed_out():
            partition = _of(message)
            if partition in known:
                known[partition] = OffsetAndMetadata(_offset(message))
        for partition, position in self._held.items():
            if partition in known:
                known[partition] = position
        return known

    # --- what the user asks for

    @property
    def fetched(self) -> frozenset[NamedPartition]:
        """Partitions that librdkafka fetches, paused ones included."""
        return frozenset(self._starts)

    @property
    def paused(self) -> frozenset[NamedPartition]:
        """Partitions that pause() was called for."""
        return frozenset(self._paused)

    @property
    def idle(self) -> bool:
        """Whether no record can arrive, so that waiting for one is of no use."""
        if not self._paused and not self._held:
            return not self._starts
        return not (self._starts.keys() - self._paused - self._held.keys())

    @property
    def unread(self) -> set[NamedPartition]:
        """Partitions that are not read now: paused, about to be revoked, or with records that wait to be handed out."""
        return {*self._paused, *self._held, *(_of(message) for message in self._not_handed_out())}

    def began(self, partition: NamedPartition) -> OffsetAndMetadata | None:
        """The position at which a fetched partition was started."""
        return self._starts.get(partition)

    @_locked
    def oldest_waiting(self) -> dict[NamedPartition, int]:
        """Per partition the offset of the first record that was read and not handed out; asks librdkafka nothing."""
        return first_offsets(self._not_handed_out())

    def sought(self, partition: NamedPartition) -> OffsetAndMetadata | None:
        """The position that seek() chose for a partition that is not fetched yet."""
        return self._sought.get(partition)

    @_locked
    def mark(self, partition: NamedPartition, position: OffsetAndMetadata) -> None:
        """Remember where a partition starts that is not fetched yet; beginning and end are for the member to find."""
        if position.offset >= 0:
            self._sought[partition] = position
        else:
            self._sought.pop(partition, None)

    @_locked
    def detach(self, partitions: Iterable[NamedPartition]) -> None:
        """End fetching *partitions*, which will be started again elsewhere; pause marks stay."""
        gone = set(partitions)
        for partition, at in self._positions(gone).items():
            self.origins.sought(partition, at, target=OffsetAndMetadata(OFFSET_INVALID))
        self._forget(sorted(gone & self._starts.keys()))
        for partition in gone:
            self._unfinished.pop(partition, None)

    @_locked
    def seek(self, partition: NamedPartition, position: OffsetAndMetadata) -> bool:
        """Hand out *partition* from *position* on.

        Returns:
            False if it is not fetched yet: the mark is kept until it is.
        """
        if self.on_the_way:
            self._begin_again()
        if partition not in self._starts:
            self.mark(partition, position)
            return False
        self.origins.sought(partition, self._positions([partition]).get(partition), target=position)
        self._safe[partition] = position
        self.on_the_way = True  # a call that is cut off must not lose dropped records
        self._drop({partition})
        try:
            self._call("seek", public(partition, position))
        except IllegalStateError:  # it was started a moment ago, and librdkafka has not begun with it
            if partition not in self._held:
                self._unfinished = {partition: position}
                self._forget([partition])
                self._fetch(self._unfinished)
                self._unfinished = {}
        self._starts[partition] = position
        if partition in self._held:
            self._held[partition] = position
        self.on_the_way = False
        return True

    def between_reads(self, work: Callable[[], ResultT], *, wanted: Callable[[], object]) -> ResultT:
        """Do *work* when the thread that reads has ended its present read; on that thread, or if none reads, now.

        Args:
            wanted: makes the reading thread look up, so that it does not go on with its fast path.
        """
        if self.is_reader():
            with self.lock:
                return self._while_open(work)
        self.asked_s = time.monotonic()  # first: from then on the reading thread looks whether the turn is taken
        with self.turn:
            wanted()
            for _ in range(_HANDING_OUT_LOOKS):
                with self.lock:
                    if not self.on_the_way:
                        return self._while_open(work)
                time.sleep(_HANDING_OUT_S)  # the reader takes no lock when it hands out, so nothing can tell of it
            with self.lock:
                return self._while_open(work)

    def _while_open(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return work()
        except (LookupError, RuntimeError) as error:
            self._raise_if_closed(error)
            raise

    def _raise_if_closed(self, error: Exception) -> None:
        """Raise in place of *error* if a signal handler has closed this in the middle of a step, which then found it
        empty, or changed while it went through it.

        Raises:
            IllegalStateError: the consumer is closed.
        """
        if self.closed and not isinstance(error, Kip848Error):
            raise IllegalStateError("the consumer is closed; make a new one") from error

    def hands_out(self) -> bool:
        """Whether the thread that reads is handing out records at this moment, or was cut off there."""
        return self.on_the_way

    def give_way(self, *, unless: Callable[[], bool]) -> bool:
        """Let other threads that wait have their turn; not under `lock`. False as soon as *unless* says so."""
        while True:
            try:
                free = self.turn.acquire(timeout=_TURN_S)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # it was not taken yet
                    self.turn.release()
                raise
            if free:
                self.turn.release()
                return True
            if unless():
                return False

    def processed(self, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        """The application has processed these: let no later Ctrl-C of the thread that reads repeat them."""
        if self.is_reader():
            self.positions(offsets)

    @_locked
    def pause(self, partitions: Iterable[NamedPartition]) -> None:
        """Hand out nothing of *partitions* until `resume`; buffered records are kept."""
        moving = set(partitions)
        self._paused.update(moving)
        fetched = sorted(moving & self._starts.keys())
        if not fetched:
            return
        self._silence(fetched)
        if not self.is_reader():
            self._untidy = True
            return
        self._stash_paused(moving)

    def _stash_paused(self, moving: set[NamedPartition]) -> None:
        if not self.ready:
            return
        if self.on_the_way:
            self._begin_again()
        self.on_the_way = True  # records are on their way from one place to another, and the call may be cut off
        for message in self.ready:
            if _of(message) in moving:
                self._stash.setdefault(_of(message), []).append(message)
        self._drop_ready(moving)
        self.on_the_way = False

    @_locked
    def resume(self, partitions: Iterable[NamedPartition]) -> None:
        """Hand out *partitions* again, from where they were paused."""
        resumed = sorted(set(partitions) & self._paused)
        fetched = [partition for partition in resumed if partition in self._starts and partition not in self._held]
        self._unsilence(fetched)
        if not self.is_reader():
            self._paused.difference_update(resumed)
            self._untidy = True
            return
        self._bring_back(resumed)
        self._paused.difference_update(resumed)
        self.on_the_way = False

    def _bring_back(self, resumed: Iterable[NamedPartition]) -> None:
        """Hand out the records that were stashed; `on_the_way` stays set."""
        if self.on_the_way:
            self._begin_again()
        self.on_the_way = True  # records are on their way from one place to another, and the call may be cut off
        self.reads += 1
        for partition in resumed:
            self.ready.extend(self._stash.pop(partition, ()))

    def _tidy(self) -> None:
        """Move the records of partitions that another thread has paused or resumed."""
        self._untidy = False
        self._stash_paused(set(self._paused))
        self._bring_back([partition for partition in self._stash if partition not in self._paused])
        self.on_the_way = False

    # --- records

    def read(self, count: int, *, timeout_s: float, filling: bool = False) -> list[Any]:
        """Read at most *count* records from librdkafka: those at hand, else the first that comes in *timeout_s*.

        Under `lock`, which the caller takes.

        Args:
            filling: read *count*, or as many as come in *timeout_s*; the caller has others in `ready` already.

        Errors that librdkafka delivers in place of records are kept for `take_error` and `first_lost`; see `eventful`.
        """
        self._at_hand_reads = 0
        return self._read_inside(count, timeout_s, filling=filling)

    def read_at_hand(self, count: int) -> list[Any]:
        """The same for what is at hand, while the fetcher is `smooth`."""
        self._at_hand_reads += 1
        return self._read_inside(count, 0, filling=False)

    def _read_inside(self, count: int, timeout_s: float, *, filling: bool) -> list[Any]:
        self.inside += 1
        try:
            return self._read(count, timeout_s, filling=filling)
        finally:
            self.inside -= 1
            if self.close_due:
                self.close_plane()

    def _read(self, count: int, timeout_s: float, *, filling: bool) -> list[Any]:
        plane = self.plane
        if self.on_the_way:
            self._begin_again()
        if self._untidy:
            self._tidy()
            if self.ready:
                return []
        if self._held and self.idle:
            return []  # what comes would be dropped
        if self.reads >= self._reads_max and not filling:  # nothing of what is ready was handed out meanwhile
            self._look(time.monotonic())
        self.on_the_way = True
        meter = self.meter
        began_s = time.monotonic() if meter is not None and meter.metrics.measuring else 0.0
        # After a wait that brought nothing, more of it comes first: an idle consumer makes one call each time.
        if filling:
            batch = plane.consume(count, timeout_s + _CUT_OFF_S if timeout_s > 0 else 0)
            self.emptied += len(batch) < count
        else:
            batch = self._at_hand(count) if timeout_s <= 0 or not self._dry else []
        if not batch and timeout_s > 0 and not filling:
            if self.reads:
                now_s = time.monotonic()
                if now_s - self._looked_s > _LOOK_S_PER_PARTITION * len(self._starts):
                    self._look(now_s)
            batch = plane.consume(1, timeout_s + _CUT_OFF_S)
            self.emptied += not batch
            if batch and count > 1:
                batch += self._at_hand(count - 1, after=batch[0])
        self._dry = not batch
        if batch:
            if not self.reads and self.gaps is not None and not self._held:
                self.gaps.look(batch, expected=self._safe, starts=self._starts, now_s=time.monotonic())
            self.reads += 1
            self.returned += len(batch)
        # map and any stay in C: 25 ns a record, where a loop costs 60.
        if any(map(Message.error, batch)):
            batch = self.without_errors(batch)
        if began_s:
            assert meter is not None
            meter.took(batch, time.monotonic() - began_s)
        if not self.undisturbed:
            batch = self.without_paused(batch)
        if not batch:
            self.on_the_way = False
            if self._watched and time.monotonic() >= self._watch_due_s:
                self._watch(time.monotonic())
        return batch

    def _at_hand(self, count: int, *, after: Message | None = None) -> list[Any]:
        """At most *count* records of librdkafka's queue, within `bytes_max`, which *after* has used a part of.

        librdkafka does not say how large a record is before it gives it: one at a time takes 0.4 us more for each.
        """
        if self.bytes_max is None:
            at_hand = self.plane.consume(count, 0)
            self.emptied += len(at_hand) < count
            return at_hand
        left = self.bytes_max - (0 if after is None else _size(after))
        batch: list[Any] = []
        while left > 0 and len(batch) < count and (one := self.plane.consume(1, 0)):
            batch += one
            left -= _size(one[0])
        self.emptied += left > 0 and len(batch) < count
        return batch

    @_locked
    def take_back(self, batch: Sequence[Message]) -> None:
        """These were read last and not handed out after all: they come first, if their partitions are still fetched."""
        self.reads += 1
        for message in reversed(batch):
            partition = _of(message)
            if partition in self._held or partition not in self._starts:
                continue
            if partition in self._paused:
                self._stash.setdefault(partition, []).insert(0, message)
            else:
                self.ready.appendleft(message)

    @_locked
    def unprocessed(
        self, in_hand: Iterable[Message], committed: Mapping[NamedPartition, OffsetAndMetadata]
    ) -> list[Message]:
        """The records *in_hand* that were not *committed*, and that a seek() will not return anyway."""
        positions = self.positions()
        left = []
        for message in in_hand:
            partition, offset = _of(message), _offset(message)
            done = committed.get(partition)
            if partition in positions and offset < positions[partition].offset and (not done or offset >= done.offset):
                left.append(message)
        return left

    def _look(self, now_s: float) -> None:
        self._safe = self._positions()
        self._looked_s = now_s
        self.reads = int(bool(self.ready))  # what is in hand is handed out without a read

    def _begin_again(self) -> None:
        """A call was cut off: fetch again from where positions were looked at last, rather than lose records.

        All of it: what came in place of a record may be lost as well, such as "there is no such offset", after which
        librdkafka fetches that partition no more.
        """
        again = self._unfinished | {p: at for p, at in self._safe.items() if p in self._starts and p not in self._held}
        self._unfinished = again
        self._forget(sorted(again.keys() & self._starts.keys()))
        if again:
            self._fetch(again)
        self._unfinished = {}
        self.on_the_way = False

    @property
    def smooth(self) -> bool:
        """Whether consume() may hand out what is at hand without a look at all else."""
        if self._untidy or self.bytes_max is not None or self.on_the_way or self.eventful or not self.undisturbed:
            return False
        return self._at_hand_reads < _LOOK_READS_MIN + len(self._starts)

    @property
    def _reads_max(self) -> int:
        count = len(self._starts)
        return 1 if count <= _LOOK_ALWAYS_MAX else _LOOK_READS_MIN + count

    @property
    def undisturbed(self) -> bool:
        """Whether every record that librdkafka returns may be handed out: nothing is paused or held."""
        return not self._paused and not self._held

    def without_paused(self, batch: list[Message]) -> list[Message]:
        """The records in *batch* that may be handed out; those of paused partitions wait behind the ones before them.

        A pause() right after a resume() does not stop what librdkafka was fetching in between: such records still come.
        """
        records = []
        for message in batch:
            partition = _of(message)
            if partition in self._held:
                continue  # its position was taken already; it is read again from there
            if partition in self._paused:
                self._stash.setdefault(partition, []).append(message)
            else:
                records.append(message)
        return records

    @_locked
    def without_errors(self, batch: list[Any]) -> list[Any]:
        """The records in *batch*; errors in place of records are kept for `take_error` and `first_lost`."""
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                records.append(message)  # enable.partition.eof: the application asked for it
            elif error.code() == KafkaError._AUTO_OFFSET_RESET and message.topic() is not None:
                self._position_lost(_of(message), _offset(message))
            else:
                what = "fetching"
                if message.topic() is not None:
                    if error.code() in TOPIC_MISSING:
                        self._missing.add(_of(message).topic)
                    what = f"fetching {message.topic()}-{message.partition()}"
                self._errors.append(translate(error, what=what))
        return records

    @_locked
    def keep_readable(self, readable: frozenset[NamedPartition]) -> None:
        """Drop ready records of partitions that may not be read now; a partition that is still fetched is paused."""
        if self._untidy:
            self._tidy()
        if self.ready:
            gone = {_of(message) for message in self.ready} - readable
            if gone:
                self.hold(gone)
                self._drop(gone)

    @property
    def eventful(self) -> bool:
        """Whether `take_error` or `first_lost` has something."""
        return bool(self._errors or self._lost)

    def first_lost(self) -> tuple[NamedPartition, OffsetAndMetadata] | None:
        """A partition whose position has no record (out of range), with that position; it was stopped already.

        It is returned again until `forget_lost`, so that nothing is lost if the caller is interrupted.
        """
        return self._lost[0] if self._lost else None

    def forget_lost(self, lost: tuple[NamedPartition, OffsetAndMetadata]) -> None:
        """*lost* was reported to the member."""
        if self._lost and self._lost[0] is lost:
            self._lost.popleft()

    def report(self, error: Kip848Error) -> None:
        """Keep *error* for `take_error` (any thread)."""
        self._errors.append(error)

    def take_error(self) -> Kip848Error | None:
        """An error that librdkafka reported since; the caller raises it."""
        return self._errors.popleft() if self._errors else None

    @_locked
    def close(self) -> None:
        """End fetching and close librdkafka's consumer; may be called again. Nothing is fetched or known afterwards."""
        if self.closed:
            return
        self.closed = True
        self.ready.clear()
        self._stash.clear()
        self._starts.clear()
        self._safe.clear()
        self.close_due = True
        self.close_plane()

    def close_plane(self) -> None:
        """Close librdkafka's consumer, if no call of it goes on. Under `lock`, so that it would be one of this thread.

        A signal handler may close the consumer while confluent_kafka runs it in the middle of consume() or
        list_topics(): librdkafka would wait for ever for the records that the call has taken, or crash.
        """
        if self.inside:
            return
        self.close_due = False
        _close(self.plane, wait_s=_CLOSE_MANY_S if self._most > _CLOSE_MANY else None)

    # --- internals

    # Any call below may be cut off, by Ctrl-C or by an exception, and is made again then. So `_starts` has a partition
    # from before librdkafka begins to fetch it until after it was stopped.

    def _fetch(self, wanted: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        self._starts.update(wanted)
        self._safe.update(wanted)
        self._most = max(self._most, len(self._starts))
        self._call("incremental_assign", [public(partition, at) for partition, at in sorted(wanted.items())])
        self._unsilence(wanted)
        self._silence(sorted(self._paused.intersection(wanted)))

    def _renew(self, topics: Sequence[str]) -> None:
        """Go on with a new librdkafka consumer, because these topics were created again.

        librdkafka keeps the highest leader epoch that it saw of a partition as long as it lives, by name. The epochs of
        a new topic begin at 0, and it ignores the leader of a smaller one for ever: nothing would be read.
        """
        if self._make_plane is None or self.closed:
            return
        plane = self._make_plane()  # before anything else: if it fails, everything is as it was
        self.positions()  # the others go on here: records that were not handed out are fetched again
        old = self.plane
        self.on_the_way = True  # if this is cut off, `_begin_again` does the rest
        self._topic_ids = {name: its_id for name, its_id in self._topic_ids.items() if name not in topics}
        self._missing.difference_update(topics)
        self.plane = plane
        self._silent.clear()
        self._warm.clear()
        self.ready.clear()
        self._stash.clear()
        self.warm({partition.topic for partition in self._starts})
        again = {p: at for p, at in self._safe.items() if p in self._starts and p not in self._held}
        if again:
            self._fetch(again)
        self.on_the_way = False
        self.on_renewed(topics)
        old.close()

    def _watch(self, now_s: float) -> None:
        """See whether topics that were created again are read; if their log has records and none came, renew again.

        A broker that lags behind may have sent the old topic's leader epoch to the new handle once more.
        """
        for partition, position in self._positions(self._watched).items():
            if position.offset > self._watched[partition].offset:
                del self._watched[partition]
        self._watch_wait_s = min(2 * self._watch_wait_s, WATCH_S_MAX)
        self._watch_due_s = now_s + self._watch_wait_s
        for partition in sorted(self._watched)[:_WATCH_PARTITIONS_MAX]:
            if partition in self._paused or partition in self._held:
                continue
            ends: tuple[int, int] | None = None
            with contextlib.suppress(KafkaException):  # no leader now; it is asked again
                ends = self.plane.get_watermark_offsets(public(partition), timeout=_WATCH_TIMEOUT_S)
            if ends is not None and ends[1] > max(ends[0], self._watched[partition].offset):
                self._renew(sorted({watched.topic for watched in self._watched}))
                return

    def _forget(self, partitions: Sequence[NamedPartition]) -> None:
        if not partitions:
            return
        named = [public(partition) for partition in partitions]
        self._drop(set(partitions))
        try:
            if len(named) == len(self._starts):
                self._call("unassign")  # incremental_unassign searches its list for each: a second for 10,000
            else:
                self._call("incremental_unassign", named)
        except Kip848Error:  # an interrupted call did not come to assign one of them, and librdkafka took none off
            for one in named:
                with contextlib.suppress(Kip848Error):
                    self._call("incremental_unassign", [one])
        for partition in partitions:
            self._held.pop(partition, None)
            self._starts.pop(partition, None)
            self._safe.pop(partition, None)
        self._warm.intersection_update({partition.topic for partition in self._starts})

    def _silence(self, partitions: Sequence[NamedPartition]) -> None:
        """Pause in librdkafka."""
        if partitions:
            self._silent.update(partitions)
            self._call("pause", [public(partition) for partition in partitions])

    def _unsilence(self, partitions: Iterable[NamedPartition]) -> None:
        """Take the pause marks off in librdkafka that *partitions* have."""
        marked = sorted(self._silent.intersection(partitions))
        if marked:
            self._call("resume", [public(partition) for partition in marked])
            self._silent.difference_update(marked)

    def _drop(self, partitions: set[NamedPartition]) -> None:
        """Forget the records of *partitions* that were read and not handed out."""
        for partition in partitions:
            self._stash.pop(partition, None)
        self._drop_ready(partitions)

    def _drop_ready(self, partitions: set[NamedPartition]) -> None:
        ready = self.ready
        for index in reversed(range(len(ready))):  # one by one, so that being cut off loses none of the others
            if _of(ready[index]) in partitions:
                del ready[index]

    def _not_handed_out(self) -> Iterable[Message]:
        """From the newest to the oldest, so that the oldest of a partition is met last."""
        # A copy: without the GIL the thread that reads may hand out the first one meanwhile.
        yield from reversed(self.ready.copy())
        for messages in self._stash.values():
            yield from reversed(messages)

    def _position_lost(self, partition: NamedPartition, offset: int) -> None:
        if partition in self._starts:
            at = OffsetAndMetadata(offset) if offset >= 0 else self._starts[partition]
            self._lost.append((partition, at))
            self._forget([partition])

    def _call(self, name: str, *argument: list[TopicPartition] | TopicPartition) -> None:
        if self.closed:
            return
        try:
            getattr(self.plane, name)(*argument)
        except KafkaException as error:
            raise translate(error, what=f"librdkafka's {name}") from error


def _close(plane: RecordConsumer, *, wait_s: float | None) -> None:
    """Close *plane*.

    Its threads that look up names are not waited for long: librdkafka does until they are told.

    Args:
        wait_s: how long to wait in any case; None for ever.
    """
    if LOOKUPS.troubled:
        wait_s = _CLOSE_S
    if wait_s is None:
        plane.close()
        return
    closing = daemon_thread(plane.close, "kip848-close")
    try:
        closing.start()
    except OutOfResourcesError:
        plane.close()
    else:
        closing.join(wait_s)


def _of(message: Message) -> NamedPartition:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return NamedPartition(topic, partition)


def first_offsets(messages: Iterable[Message]) -> dict[NamedPartition, int]:
    """The offset of the first record of each partition; *messages* come from the newest to the oldest."""
    return {_of(message): _offset(message) for message in messages}


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def is_missing(described: TopicMetadata) -> bool:
    """Whether the topic does not exist."""
    error = described.error
    return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _offset(message: Message) -> int:
    offset = message.offset()
    return OFFSET_INVALID if offset is None else offset
