"""`ShareHealth`, what a liveness or readiness probe asks of a share consumer, and the figures of its metrics."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.telemetry import Figures
from kip848_client.member.core.states import MemberState
from kip848_client.share.host import ShareHost
from kip848_client.share.settings import QueueStatus


class ShareHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a share consumer at one moment. ``msgspec.json.encode(health)`` makes JSON of it.

    Attributes:
        live: whether the process should be left running. False once the consumer is closed or FATAL, or its thread has
            ended. A cluster that is away leaves it True.
        ready: live, and a member of its group.
        in_hand: records that the application has and has not acknowledged.
        oldest_in_hand_s: seconds since the first of them was handed out; None without one. A handler that hangs makes
            it grow, and leaves *live* True.
        waiting: records that were acquired and wait to be handed out.
        missing_topics: subscribed topics that do not exist, sorted; they are read once they do.
        last_error: the last error of any kind, which need not matter any more; None if there was none.
        last_error_s: seconds since then.
        processing: what ``process()`` has in hand; None while it does not run.
    """

    state: MemberState
    live: bool
    ready: bool
    member_id: str
    member_epoch: int
    in_hand: int
    oldest_in_hand_s: float | None
    waiting: int
    missing_topics: tuple[str, ...]
    last_error: str | None
    last_error_s: float | None
    processing: QueueStatus | None = None


def health_of(host: ShareHost, clock: Clock, *, closed: bool, processing: QueueStatus | None) -> ShareHealth:
    """The health of a share consumer now."""
    with host.lock:
        now_ms = clock.now_ms()
        taken_ms = [held.taken_ms for held in host.reader.held.out]
        live = not (closed or host.fatal is not None or host.ended.is_set() or host.home.left)
        at_ms = host.last_error_ms
        return ShareHealth(
            state=host.member.state,
            live=live,
            ready=live and host.member.in_group,
            member_id=host.member.member_id,
            member_epoch=host.member.member_epoch,
            in_hand=len(taken_ms),
            oldest_in_hand_s=(now_ms - min(taken_ms)) / 1000 if taken_ms else None,
            waiting=host.reader.held.waiting,
            missing_topics=tuple(sorted(host.missing)),
            last_error=host.last_error,
            last_error_s=None if at_ms is None else (now_ms - at_ms) / 1000,
            processing=processing,
        )


def figures_of(host: ShareHost, clock: Clock) -> Mapping[str, Figures]:
    """The functions behind `telemetry.SHARE_GAUGES`, called on the collector's thread."""
    counts = host.reader.counts

    def oldest_s() -> float:
        with host.lock:
            taken_ms = min((held.taken_ms for held in host.reader.held.out), default=None)
            return 0.0 if taken_ms is None else (clock.now_ms() - taken_ms) / 1000

    return {
        "kip848.share.acquired.total": lambda: counts.acquired,
        "kip848.share.accepted.total": lambda: counts.accepted,
        "kip848.share.released.total": lambda: counts.released,
        "kip848.share.rejected.total": lambda: counts.rejected,
        "kip848.share.renewed.total": lambda: counts.renewed,
        "kip848.share.lock.lost.total": lambda: counts.lock_lost,
        "kip848.share.not.acknowledged.total": lambda: counts.not_acknowledged,
        "kip848.share.in.hand": lambda: len(host.reader.held.out),
        "kip848.share.oldest.seconds": oldest_s,
    }
