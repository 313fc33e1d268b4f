"""Plays a `Processing` by hand: records in, calls of the handler out, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.core import Bounds, Processing
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.work import Cancel, Failed, Give, Item, Renew, Start, Work

P = NamedPartition("t", 0)
Q = NamedPartition("t", 1)


class Played:
    """A core with what it asked for so far."""

    def __init__(self, concurrency: int = 10, **limits: Any) -> None:
        given: dict[str, Any] = {"buffer": 2 * concurrency, "buffer_bytes": 1 << 20, "metadata_known": True} | limits
        self.core = Processing(Bounds(concurrency=concurrency, **given))
        self.now = 0
        self.running: dict[tuple[int, int], Work] = {}
        """(partition, offset of the first record) -> its running call."""
        self.started: list[int] = []
        self.calls: list[Work] = []
        self.failed: list[Work] = []
        self.cancelled: list[int] = []
        self.given_up = False
        self.renewals = 0

    def take(
        self,
        *offsets: int,
        lanes: str | None = None,
        keys: str | None = None,
        partition: NamedPartition = P,
        size: int = 1,
    ) -> None:
        """Deliver records; *lanes* and *keys* have a letter for each, '-' for none."""
        none = "-" * len(offsets)
        items = [
            Item(partition, offset, _letter(lane), size, offset, key=_letter(key))
            for offset, lane, key in zip(offsets, lanes or none, keys or none, strict=True)
        ]
        self.core.arrived(items, self.now)
        self.perform()

    def perform(self) -> None:
        for effect in self.core.take_effects():
            match effect:
                case Start(work):
                    self.started.append(work.items[0].offset)
                    self.calls.append(work)
                    self.running[work.partition.partition, work.items[0].offset] = work
                case Failed(work, _):
                    self.failed.append(work)
                case Cancel(work):
                    self.cancelled.append(work.items[0].offset)
                case Give(_):
                    self.given_up = True
                case Renew():
                    self.renewals += 1

    def end(self, *offsets: int, partition: NamedPartition = P, error: Exception | None = None) -> None:
        """Let calls return, or raise."""
        for offset in offsets:
            work = self.running.pop((partition.partition, offset))
            if error is None:
                self.core.succeeded(work, self.now)
            else:
                self.core.failed(work, error, self.now)
            self.perform()

    def change(self, **bounds: Any) -> None:
        """Other bounds hold from now on."""
        self.core.change(replace(self.core._bounds, **bounds), self.now)
        self.perform()

    def advance(self, ms: int) -> None:
        self.now += ms
        self.core.tick(self.now)
        self.perform()

    def commit(self, partition: NamedPartition = P) -> tuple[int, list[tuple[int, int]]] | None:
        """The offset to commit, and the ranges that are done beyond it; None if nothing has changed."""
        offsets = self.core.to_commit()
        self.core.committed(offsets, self.now)
        at = offsets.get(partition)
        return None if at is None else (at.offset, list(decode_marks(at.offset, at.metadata) or ()))


def _letter(letter: str) -> str | None:
    return None if letter == "-" else letter
