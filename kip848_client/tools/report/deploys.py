"""Which restarts of members belong to one deploy.

In a deploy most members are started again, each of them once. So another deploy begins with the first member that is
started again after a deploy had started it, however soon that is; and a group whose members all stop at once was
stopped, which is no part of a deploy before or after it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from kip848_client.tools.report.lives import Arrival, Departure

_TOGETHER_MS: Final = 600_000.0
"""Restarts within this time may be of one deploy."""
_NEXT_MS: Final = 300_000.0
"""... and those that follow each other within this one: large groups take long."""
_FLAPS: Final = 2
"""In a deploy a client is not started more often."""


class Restart(NamedTuple):
    """A member went, and its client came back under another member id, or one of its client id on another host."""

    gone: Departure
    back: Arrival

    @property
    def moved(self) -> bool:
        """Whether it is on another host now."""
        return self.gone.client != self.back.client and self.gone.instance_id is None


def deploys_of(restarts: Sequence[Restart], stops: Sequence[Collection[Departure]] = ()) -> list[list[Restart]]:
    """The deploys of one group, in order of time.

    Args:
        restarts: in order of their departures.
        stops: departures after which the group had no members, by stop.
    """
    stop_of = {(each.at_ms, each.who): number for number, stop in enumerate(stops) for each in stop}
    found: list[list[Restart]] = []
    together: deque[Restart] = deque()
    for each, flaps in zip(restarts, _flaps(restarts), strict=True):
        if flaps:
            continue
        while together and not _continues(together, each, stop_of):
            if _is_deploy(together):
                found.append(list(together))
                together.clear()
            else:
                together.popleft()
        together.append(each)
    if _is_deploy(together):
        found.append(list(together))
    return found


def _continues(together: Sequence[Restart], each: Restart, stop_of: dict[tuple[float, str], int]) -> bool:
    """Whether a restart may be of the same deploy as those before it."""
    first, last, gone = together[0].gone, together[-1].gone, each.gone
    if stop_of.get((gone.at_ms, gone.who)) != stop_of.get((last.at_ms, last.who)):
        return False
    if gone.at_ms - first.at_ms > _TOGETHER_MS and gone.at_ms - last.at_ms > _NEXT_MS:
        return False
    return all(gone.who != before.back.who for before in together)


def _is_deploy(together: Sequence[Restart]) -> bool:
    """Whether most members were started again."""
    return bool(together) and len({each.back.who for each in together}) >= max(2, together[0].gone.live // 2 + 1)


def _flaps(restarts: Sequence[Restart]) -> Sequence[bool]:
    """Which departures are of clients that come and go by themselves then, far more often than the others do."""
    flaps = [False] * len(restarts)
    recent: defaultdict[str, deque[int]] = defaultdict(deque)
    first = 0
    for index, (gone, _) in enumerate(restarts):
        while restarts[first].gone.at_ms < gone.at_ms - _TOGETHER_MS:
            old = restarts[first].gone.client
            recent[old].popleft()
            if not recent[old]:
                del recent[old]
            first += 1
        own = recent[gone.client]
        own.append(index)
        others = len(recent) - 1
        usual = (index + 1 - first - len(own)) / others if others else 0.0
        if len(own) > _FLAPS + usual:
            for each in own:
                flaps[each] = True
    return flaps
