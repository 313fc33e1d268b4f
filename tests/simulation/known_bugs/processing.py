"""Bugs of ``process()``: what its invariants are there for."""

from __future__ import annotations

from typing import Any

from kip848_client.common.model import OffsetAndMetadata
from kip848_client.member.processing import core as processing_core
from kip848_client.member.processing.core import Processing
from kip848_client.member.processing.limits import Pacing
from kip848_client.member.processing.marks import encode_marks
from kip848_client.member.processing.outbox import Outbox
from kip848_client.member.processing.progress import PartitionProgress
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("two records of one key run at once", "P1", scenario="processing")
def _(patch: Patch) -> None:
    original = Processing._call

    def call(core: Any, work: Any, now_ms: int) -> None:
        original(core, work, now_ms)
        work.lane.busy = False

    patch.setattr(Processing, "_call", call)


@known_bug("a commit goes to the last record that was taken", "P2", scenario="processing")
def _(patch: Patch) -> None:
    patch.setattr(PartitionProgress, "low_mark", property(lambda progress: progress._end_offset))
    patch.setattr(PartitionProgress, "done_beyond", ())


@known_bug("a partition that is revoked goes on", "P3", scenario="processing")
def _(patch: Patch) -> None:
    patch.setattr(Processing, "revoke", lambda *_: None)


@known_bug("a handler that does not end gives its slot away", "P4", scenario="processing")
def _(patch: Patch) -> None:
    original = Processing._abandon

    def abandon(core: Any, work: Any, now_ms: int) -> None:
        core._occupied -= 1
        original(core, work, now_ms)

    patch.setattr(Processing, "_abandon", abandon)


@known_bug("a record is forgotten while another one arrives", "P2", "P5", scenario="processing")
def _(patch: Patch) -> None:
    original = Processing.arrived

    def arrived(core: Any, items: Any, now_ms: int) -> None:
        original(core, items[:1], now_ms)

    patch.setattr(Processing, "arrived", arrived)


@known_bug("what is done beyond a commit is not read", "P6", scenario="processing")
def _(patch: Patch) -> None:
    original = Processing.assigned

    def assigned(core: Any, name: Any, offset: int, done: Any = ()) -> None:
        original(core, name, offset)

    patch.setattr(Processing, "assigned", assigned)


@known_bug("results are written that the marks have no room for", "P7", scenario="processing_transactions")
def _(patch: Patch) -> None:
    def cover(progress: Any, works: Any, *, bytes_max: int) -> Any:
        few = min(bytes_max, 12)  # with more, marks are hardly ever full in a run
        marks, _ = encode_marks(progress.low_mark, progress.done_beyond, bytes_max=few)
        return OffsetAndMetadata(progress.low_mark, metadata=marks), []

    patch.setattr(processing_core, "cover", cover)


@known_bug("the results of an aborted transaction are forgotten", "P7", scenario="processing_transactions")
def _(patch: Patch) -> None:
    patch.setattr(Outbox, "aborted", lambda outbox, again_ms: outbox.committed())


@known_bug("a call does not count for the limits", "P8", scenario="processing_limits")
def _(patch: Patch) -> None:
    original = Pacing.begins

    def begins(pacing: Any, topic: str, key: object, now_ms: int) -> None:
        if now_ms % 2:
            original(pacing, topic, key, now_ms)
        else:
            pacing._running[topic] += 1

    patch.setattr(Pacing, "begins", begins)
