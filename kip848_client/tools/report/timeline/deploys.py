"""Which restarts of members belong to one deploy.

In a deploy most members are started again, each of them once. A member that is started once more while the others are
not comes and goes by itself; if most of them are, that is another deploy, however soon it is. A group whose members all
stop at once was stopped, which is no part of a deploy before or after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kip848_client.tools.report.timeline.lives import Arrival, Departure

_TOGETHER_MS: Final = 600_000.0
"""Restarts within this time may be of one deploy."""
_NEXT_MS: Final = 300_000.0
"""... and those that follow each other within this one: large groups take long."""
_DEPLOYS_MAX: Final = 5
"""So many deploys in that time may be; members that are started again more often crash."""


_FLAPS: Final = 2
"""A member that was started again so often before a deploy comes and goes by itself."""


class Restart(NamedTuple):
    """A member went, and its client came back under another member id, or one of its client id on another host.

    Attributes:
        joined_ms: when the member that went had joined.
    """

    gone: Departure
    back: Arrival
    joined_ms: float

    @property
    def moved(self) -> bool:
        """Whether it is on another host now."""
        return self.gone.client != self.back.client and self.gone.instance_id is None


_Round: TypeAlias = dict[str, Restart]
"""By the member that came back."""


def deploys_of(restarts: Sequence[Restart], stops: Sequence[Collection[Departure]] = ()) -> list[list[Restart]]:
    """The deploys of one group, in order of time.

    Args:
        restarts: in order of their departures.
        stops: departures after which the group had no members, by stop.
    """
    stop_of = {(each.at_ms, each.who): number for number, stop in enumerate(stops) for each in stop}
    found: list[list[Restart]] = []
    together: _Round = {}
    again: _Round = {}  # of those that `together` has
    times: Counter[str] = Counter()
    restless: set[str] = set()
    for each in restarts:
        while together and not _continues(together, again, each, stop_of):
            if _is_deploy(together):
                found.append(_without(together, restless))
                together, again = again, {}
            else:
                del together[next(iter(together))]
        if not _is_deploy(together):
            times[each.gone.client] = times[each.gone.client] + 1 if _forget(together, each) else 0
            if times[each.gone.client] >= _FLAPS:
                restless.add(each.back.who)
            together[each.back.who] = each
        elif each.joined_ms > next(iter(together.values())).gone.at_ms:
            _forget(again, each)
            again[each.back.who] = each
            if _is_deploy(again):
                found.append(_without(together, restless))
                together, again = again, {}
        else:
            together[each.back.who] = each
    found += [_without(each, restless) for each in (together, again) if _is_deploy(each)]
    return _without_crashes(found, stop_of)


def _forget(several: _Round, each: Restart) -> bool:
    """Take out an earlier restart of the member that went, or of its client; whether there was one."""
    for who, one in several.items():
        if who == each.gone.who or (one.gone.client == each.gone.client and one.gone.at_ms < each.joined_ms):
            del several[who]
            return True
    return False


def _without(together: _Round, restless: Collection[str]) -> list[Restart]:
    """A deploy without members that came and went before it, if most were started again without them."""
    others = {who: each for who, each in together.items() if who not in restless}
    return list((others if _is_deploy(others) else together).values())


def _continues(together: _Round, again: _Round, each: Restart, stop_of: Mapping[tuple[float, str], int]) -> bool:
    """Whether a restart may be of the same deploy as those before it, or of one that follows at once."""
    before = [one.gone for one in (*together.values(), *again.values())]
    first, last_ms = before[0], max(one.at_ms for one in before)
    if stop_of.get((each.gone.at_ms, each.gone.who)) != stop_of.get((first.at_ms, first.who)):
        return False
    return each.gone.at_ms - first.at_ms <= _TOGETHER_MS or each.gone.at_ms - last_ms <= _NEXT_MS


def _is_deploy(together: _Round) -> bool:
    """Whether most members were started again."""
    return bool(together) and len(together) >= max(2, next(iter(together.values())).gone.live // 2 + 1)


def _without_crashes(deploys: Sequence[list[Restart]], stop_of: Mapping[tuple[float, str], int]) -> list[list[Restart]]:
    """Deploys that do not follow each other so often that members must come and go by themselves."""
    rolling = [each for each in deploys if (each[0].gone.at_ms, each[0].gone.who) not in stop_of]
    crashes: set[int] = set()
    for index in range(_DEPLOYS_MAX, len(rolling)):
        several = rolling[index - _DEPLOYS_MAX : index + 1]
        if several[-1][0].gone.at_ms - several[0][0].gone.at_ms <= _TOGETHER_MS:
            crashes.update(map(id, several))
    return [each for each in deploys if id(each) not in crashes]
