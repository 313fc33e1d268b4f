"""Sequences of steps from a seed: what members of a group do on good days and on bad ones.

Equal seeds give equal sequences in every process. The generator keeps a rough idea of who is in the group, so that
most steps meet a member that is there; it never looks at an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from kip848_client.testing.judge.broker.steps import (
    Ask,
    ChangeTopic,
    Commit,
    Configure,
    DeleteOffsets,
    Epoch,
    Fetch,
    Heartbeat,
    Owned,
    RemoveMembers,
    Step,
)

TIMEOUT_MS: Final = 60_000
DYNAMIC: Final = ("a", "b", "c", "d")
STATIC: Final = (("s1", "i1"), ("s2", "i2"), ("s1x", "i1"), ("s1y", "i1"), ("s2x", "i2"))
"""Member ids that come with an instance id; several for one instance take each other's place."""
MISSING: Final = "missing"
ALONE: Final = "t9"
"""Topic of the one member whose id the broker makes: ids that differ give members another order."""


class Generator:
    """One sequence.

    Args:
        assignor: what every member asks for.
    """

    def __init__(self, seed: int, *, assignor: str = "range") -> None:
        self._random: Final = random.Random(seed)
        self._assignor: Final = assignor
        self._version: Final = self._random.choice((0, 1, 1, 1))
        self._moves_topics: Final = self._random.random() < 0.4
        self._patterns: Final = self._version == 1 and self._random.random() < 0.5
        self._lossy: Final = self._random.choice((0.0, 0.1, 0.25))
        self._topics: dict[str, int] = {}
        self._joined: dict[str, str | None] = {}
        self._away: dict[str, str] = {}
        self._new_ids = 0
        self._actions: Final[tuple[tuple[int, Callable[[], Iterator[Step]]], ...]] = (
            (14, self._join),
            (8, self._keep_alive),
            (16, self._acknowledge),
            (7, self._full),
            (6, self._settle),
            (6, self._change_subscription),
            (4, self._unsubscribe_while_revoking),
            (4, self._swap_patterns),
            (3, self._join_again),
            (4, self._wrong_epoch),
            (5, self._previous_epoch),
            (4, self._odd_owned),
            (2, self._change_details),
            (4, self._leave),
            (5, self._go_away),
            (4, self._come_back),
            (4, self._confuse_instances),
            (2, self._stranger),
            (4, self._bad_value),
            (10, self._commit),
            (6, self._fetch),
            (10, self._look),
            (2, self._delete),
            (2, self._remove_members),
            (4, self._move_topic),
            (2, self._other_group),
            (2, self._configure),
        )

    def steps(self, count: int) -> list[Step]:
        """*count* steps, then a look at what came out of them."""
        found: list[Step] = [
            ChangeTopic(f"t{number}", self._random.randint(1, 6)) for number in range(self._random.randint(1, 3))
        ]
        if self._version == 0:
            found.append(ChangeTopic(ALONE, 2))
        self._topics = {step.topic: step.partitions for step in found if isinstance(step, ChangeTopic)}
        self._topics.pop(ALONE, None)
        weights = [weight for weight, _ in self._actions]
        while len(found) < count:
            ((_, action),) = self._random.choices(self._actions, weights)
            found += action()
        found = found[:count]
        found += [*self._settle(), Ask("consumer_group_describe", 1, ("g",)), Fetch()]
        return found

    # --- members that behave

    def _join(self) -> Iterator[Step]:
        if self._version == 0 and self._random.random() < 0.15 and not self._new_ids:
            self._new_ids += 1
            yield replace(self._joining(f"new{self._new_ids}", None), lost=False)
            return
        absent = [member for member in DYNAMIC if member not in self._joined]
        free = [(m, i) for m, i in STATIC if i not in self._joined.values() and i not in self._away.values()]
        candidates = [(member, None) for member in absent] * 2 + free
        if candidates:
            member, instance = self._random.choice(candidates)
            yield self._joining(member, instance)

    def _keep_alive(self) -> Iterator[Step]:
        for member in self._somebody():
            yield self._beat(member)

    def _acknowledge(self) -> Iterator[Step]:
        for member in self._somebody():
            yield self._beat(member, owned=Owned.ASSIGNED)

    def _full(self) -> Iterator[Step]:
        for member in self._somebody():
            names = self._names(member)
            owned = self._random.choice((Owned.ASSIGNED, Owned.ASSIGNED, Owned.HELD))
            yield self._beat(member, owned=owned, names=names, timeout_ms=TIMEOUT_MS, assignor=self._assignor)

    def _settle(self) -> Iterator[Step]:
        """All members acknowledge, twice: enough for one rebalance to come to its end."""
        for _ in range(2):
            for member, instance in sorted(self._joined.items()):
                yield Heartbeat(member, owned=Owned.ASSIGNED, instance=instance, version=self._version)

    def _change_subscription(self) -> Iterator[Step]:
        for member in self._somebody():
            owned = self._random.choice((Owned.UNSAID, Owned.ASSIGNED, Owned.HELD, Owned.SUBSCRIBED, Owned.NOTHING))
            beat = self._beat(member, owned=owned, names=self._names(member))
            if self._patterns and self._random.random() < 0.7:
                beat = replace(beat, regex=self._pattern(), names=self._random.choice((beat.names, None, ())))
            yield beat

    def _unsubscribe_while_revoking(self) -> Iterator[Step]:
        """A member that is to give up partitions of one topic drops another, whose partitions it does not list."""
        topics = sorted(self._topics)
        others = [member for member in self._joined if not member.startswith("new")]
        if len(topics) < 2 or len(others) < 2:
            return
        member, other = self._random.sample(sorted(others), 2)
        first, second = self._random.sample(topics, 2)
        beat, after = self._beat(member, lossy=False), self._beat(other, lossy=False)
        both = replace(after, owned=Owned.ASSIGNED, names=(first, second))
        # The member takes both topics alone; then the other one asks for its part of them.
        yield replace(after, owned=Owned.ASSIGNED, names=(MISSING,))
        yield replace(beat, owned=Owned.ASSIGNED, names=(first, second))
        yield replace(after, owned=Owned.ASSIGNED)
        yield replace(beat, owned=Owned.ASSIGNED)
        yield both
        yield beat
        yield replace(beat, names=(first,), owned=self._random.choice((Owned.SUBSCRIBED, Owned.SUBSCRIBED, Owned.HELD)))
        yield replace(after, owned=Owned.ASSIGNED)
        yield Ask("consumer_group_describe", 1, ("g",))
        yield replace(beat, owned=Owned.ASSIGNED)
        yield replace(after, owned=Owned.ASSIGNED)

    def _swap_patterns(self) -> Iterator[Step]:
        """One pattern after the other; the second is not matched at once, and its topics go meanwhile."""
        if not self._patterns:
            return
        for member in self._somebody():
            first, second = self._random.sample(("t.*", "t[01]", "t0", "t1|t2"), 2)
            beat = self._beat(member, lossy=False)
            yield replace(beat, regex=first, names=())
            yield replace(beat, owned=Owned.ASSIGNED)
            yield replace(beat, owned=Owned.ASSIGNED)
            yield replace(beat, regex=second, owned=self._random.choice((Owned.UNSAID, Owned.HELD, Owned.NOTHING)))
            yield replace(beat, owned=self._random.choice((Owned.HELD, Owned.ASSIGNED)))

    def _change_details(self) -> Iterator[Step]:
        for member in self._somebody():
            beat = self._beat(member)
            yield self._random.choice(
                (
                    replace(beat, rack=self._random.choice(("r1", "r2"))),
                    replace(beat, timeout_ms=TIMEOUT_MS + 1),
                    replace(beat, names=(*self._names(member), *self._names(member))),
                    replace(beat, timeout_ms=TIMEOUT_MS, names=self._names(member)),
                    replace(beat, timeout_ms=TIMEOUT_MS, owned=Owned.ASSIGNED),
                )
            )

    def _leave(self) -> Iterator[Step]:
        for member in self._somebody():
            yield self._beat(member, Epoch.LEAVE, lossy=False)
            self._joined.pop(member)

    def _go_away(self) -> Iterator[Step]:
        static = [member for member, instance in self._joined.items() if instance is not None]
        if static:
            member = self._random.choice(static)
            instance = self._joined[member]
            yield Heartbeat(member, Epoch.AWAY, instance=instance, version=self._version)
            assert instance is not None
            self._away[member] = instance
            self._joined.pop(member)

    def _come_back(self) -> Iterator[Step]:
        """In place of a static member that went away, under its id or another."""
        if self._away:
            member = self._random.choice(sorted(self._away))
            instance = self._away.pop(member)
            successors = [other for other, i in STATIC if i == instance and other not in self._joined]
            successor = self._random.choice([member, *successors])
            yield replace(self._joining(successor, instance), lost=False)
            if self._random.random() < 0.4:  # what it took over it may commit with any epoch
                yield Commit(member=successor, epoch=Epoch.BELOW, owned=Owned.ASSIGNED)

    # --- members that do not

    def _join_again(self) -> Iterator[Step]:
        for member in self._somebody():
            if self._joined[member] is None:
                yield self._joining(member, None)

    def _wrong_epoch(self) -> Iterator[Step]:
        for member in self._somebody():
            epoch = self._random.choice((Epoch.ABOVE, Epoch.BELOW, Epoch.FAR))
            yield self._beat(member, epoch, owned=self._random.choice((Owned.UNSAID, Owned.ASSIGNED, Owned.NOTHING)))

    def _previous_epoch(self) -> Iterator[Step]:
        """As after a lost answer: something new is decided, and the member has not heard of it."""
        for member in self._somebody():
            owned = self._random.choice((Owned.UNSAID, Owned.ASSIGNED, Owned.PART, Owned.NOTHING, Owned.FOREIGN))
            if self._random.random() < 0.5:
                yield replace(self._beat(member, owned=Owned.ASSIGNED), lost=True)
                yield self._beat(member, owned=owned)
            else:
                yield self._beat(member, Epoch.PREVIOUS, owned=owned)

    def _odd_owned(self) -> Iterator[Step]:
        for member in self._somebody():
            owned = self._random.choice(
                (Owned.HELD, Owned.PART, Owned.FOREIGN, Owned.NOTHING, Owned.NOWHERE, Owned.TWICE)
            )
            yield self._beat(member, owned=owned)

    def _confuse_instances(self) -> Iterator[Step]:
        member, instance = self._random.choice(STATIC)
        taken = Heartbeat(member, instance=instance, version=self._version, owned=Owned.ASSIGNED)
        yield self._random.choice(
            (
                taken,
                replace(taken, epoch=Epoch.LEAVE, owned=Owned.UNSAID),
                replace(taken, epoch=Epoch.AWAY, owned=Owned.UNSAID),
                replace(taken, instance="nobody"),
                replace(taken, instance="nobody", epoch=Epoch.LEAVE, owned=Owned.UNSAID),
                replace(taken, instance=None, epoch=Epoch.FAR),
                self._taking(member, instance),
                self._taking(member, instance),
                Heartbeat(member, version=self._version, owned=Owned.ASSIGNED),
            )
        )

    def _taking(self, member: str, instance: str) -> Heartbeat:
        holder = next((m for m, i in (self._joined | self._away).items() if i == instance), None)
        if holder is None:
            self._joined[member] = instance
        elif holder in self._away:
            del self._away[holder]
            self._joined[member] = instance
        return self._joining(member, instance, count=False)

    def _stranger(self) -> Iterator[Step]:
        yield self._random.choice(
            (
                Heartbeat("stranger", Epoch.FAR, version=self._version),
                Heartbeat("stranger", Epoch.LEAVE, version=self._version),
                Heartbeat("stranger", Epoch.FAR, group="nogroup", version=self._version),
                Heartbeat("stranger", Epoch.LEAVE, group="nogroup", version=self._version),
                Heartbeat("stranger", Epoch.AWAY, group="nogroup", instance="i1", version=self._version),
            )
        )

    def _bad_value(self) -> Iterator[Step]:
        join = replace(self._joining("x", None, count=False), lost=True)
        beat = self._beat(self._random.choice(sorted(self._joined) or ["a"]), lossy=False)
        yield self._random.choice(
            (
                replace(join, member="  "),
                replace(join, member="", version=1),
                replace(join, group=" "),
                replace(join, group=""),
                replace(join, instance=""),
                replace(join, instance=" "),
                replace(join, rack=""),
                replace(join, timeout_ms=-1),
                replace(join, owned=Owned.UNSAID),
                replace(join, owned=Owned.NOWHERE),
                replace(join, names=None),
                replace(join, assignor="sticky"),
                replace(join, assignor=""),
                replace(beat, assignor="sticky"),
                replace(beat, member=""),
                replace(beat, epoch=Epoch.INVALID),
                replace(beat, epoch=Epoch.AWAY, instance=None),
                replace(beat, rack=" "),
                replace(join, epoch=Epoch.LEAVE, group=""),
                replace(join, epoch=Epoch.ABOVE),
                replace(join, rack="  "),
                replace(beat, epoch=Epoch.JOIN),
                replace(beat, assignor=""),
                replace(join, regex="(t" if self._version else None, names=None),
                replace(join, regex="t(?=0)" if self._version else None),
                replace(beat, regex="[t" if self._version else None),
            )
        )

    # --- offsets

    def _commit(self) -> Iterator[Step]:
        version = self._random.choice((9, 9, 9, 10, 10, 8, 2, 6))
        count = self._random.randint(1, 3)
        partitions = tuple((topic, number, self._random.randint(-1, 99)) for topic, number in self._some(count))
        member = self._random.choice([*self._joined, *self._joined, None, "stranger", *self._away])
        epoch = self._random.choice(
            (Epoch.CURRENT, Epoch.CURRENT, Epoch.CURRENT, Epoch.PREVIOUS, Epoch.BELOW, Epoch.ABOVE, Epoch.LEAVE)
        )
        metadata = self._random.choice(("", "", None, "said", "x" * 4096, "x" * 4097))
        group = self._random.choice(("g", "g", "g", "g", "g", "h", ""))
        if member is not None and self._random.random() < 0.5:
            # Who lags behind may commit what it was given by then, and nothing else.
            owned = self._random.choice((Owned.ASSIGNED, Owned.ASSIGNED, Owned.HELD, Owned.PART, Owned.FOREIGN))
            epoch = self._random.choice((Epoch.CURRENT, Epoch.PREVIOUS, Epoch.PREVIOUS, Epoch.BELOW, Epoch.BELOW))
            yield Commit(member=member, epoch=epoch, owned=owned, version=self._random.choice((9, 10)))
            return
        yield Commit(partitions, member=member, epoch=epoch, metadata=metadata, version=version, group=group)

    def _fetch(self) -> Iterator[Step]:
        version = self._random.choice((9, 9, 10, 8, 7, 2))
        partitions = self._random.choice((None, self._some(3), self._some(2)))
        member = self._random.choice([*self._joined, None, None, "stranger"])
        epoch = Epoch.LEAVE
        if member is not None:
            epoch = self._random.choice((Epoch.CURRENT, Epoch.CURRENT, Epoch.PREVIOUS, Epoch.ABOVE, Epoch.LEAVE))
        group = self._random.choice(("g", "g", "g", "h", "nogroup"))
        yield Fetch(partitions, member=member, epoch=epoch, version=version, group=group)

    def _some(self, count: int) -> tuple[tuple[str, int], ...]:
        """Partitions that exist, mostly."""
        found: dict[tuple[str, int], None] = {}
        for _ in range(count):
            topic = self._random.choice([*self._topics, *self._topics, *self._topics, MISSING])
            partitions = self._topics.get(topic, 1)
            found[topic, self._random.randint(0, partitions if self._random.random() < 0.2 else partitions - 1)] = None
        return tuple(found)

    # --- administration

    def _look(self) -> Iterator[Step]:
        groups = self._random.choice((("g",), ("g",), ("g", "h"), ("g", "nogroup", ""), ("h",)))
        filters = self._random.choice(
            (
                ((), ()),
                (("Stable", "reconciling"), ()),
                (("EMPTY",), ("classic",)),
                (("Assigning",), ("Consumer",)),
                ((), ("consumer",)),
                (("nonsense",), ()),
                ((), ("nonsense",)),
            )
        )
        yield self._random.choice(
            (
                Ask("consumer_group_describe", 1, groups),
                Ask("consumer_group_describe", 1, groups),
                Ask("consumer_group_describe", 0, groups, operations=True),
                Ask("list_groups", self._random.choice((3, 4, 5, 5)), filters=filters),
                Ask("describe_groups", self._random.choice((5, 6)), groups, operations=self._random.random() < 0.5),
                Ask("find_coordinator", self._random.choice((1, 2, 4, 6)), groups),
            )
        )

    def _delete(self) -> Iterator[Step]:
        groups = self._random.choice((("g",), ("h",), ("g", "h"), ("nogroup", ""), ("g", "g")))
        yield self._random.choice(
            (
                Ask("delete_groups", self._random.choice((1, 2)), groups),
                DeleteOffsets(self._some(3), group=self._random.choice(("g", "g", "h", "nogroup"))),
            )
        )

    def _remove_members(self) -> Iterator[Step]:
        """An administrator removes some at once: by id, static ones by instance id alone, or with a wrong id."""
        known = sorted((self._joined | self._away).items())
        named: list[tuple[str | None, str | None]] = [("stranger", None), (None, None), (None, "nobody")]
        for member, instance in known:
            named += [(member, instance)] * 2 + [(None, instance), (member, None), ("stranger", instance)]
        some = tuple(self._random.choice(named) for _ in range(self._random.randint(1, 3)))
        yield RemoveMembers(some, self._random.choice((2, 3, 5, 5)), self._random.choice(("g", "g", "g", "g", "h", "")))
        for name, instance_id in some:
            holder = next((m for m, i in known if i is not None and i == instance_id), name)
            if self._random.random() < 0.8:  # the others go on as if nothing had happened
                self._joined.pop(holder or "", None)
                self._away.pop(holder or "", None)

    def _move_topic(self) -> Iterator[Step]:
        if not self._moves_topics:
            return
        topic = self._random.choice(("t0", "t0", "t1", "t2", MISSING))
        count = self._topics.get(topic, 0)
        if count and self._random.random() < 0.5:
            del self._topics[topic]
            yield ChangeTopic(topic)
        else:
            self._topics[topic] = count + self._random.randint(1, 3)
            yield ChangeTopic(topic, self._topics[topic])

    def _other_group(self) -> Iterator[Step]:
        """Another group has its own epochs and partitions."""
        join = replace(self._joining("z", None, count=False), group="h", lost=False)
        beat = Heartbeat("z", owned=Owned.ASSIGNED, group="h", version=self._version)
        yield from self._random.choice(
            ((join,), (beat,), (join, beat), (replace(beat, epoch=Epoch.LEAVE, owned=Owned.UNSAID),))
        )

    def _configure(self) -> Iterator[Step]:
        name = self._random.choice(("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"))
        values = {"consumer.heartbeat.interval.ms": ("50", "200", "9", "15001")}.get(name, ("59999", "99", "60001"))
        yield self._random.choice(
            (
                Configure(name, self._random.choice(values)),
                Configure(name, self._random.choice(values)),
                Configure(name, self._random.choice(("abc", "", "-1"))),
                Configure("consumer.nonsense", "1"),
                Configure(name),
                Configure(name, "1", group=""),
            )
        )

    # --- steps

    def _joining(self, member: str, instance: str | None, *, count: bool = True) -> Heartbeat:
        if count:
            self._joined[member] = instance
        join = Heartbeat(
            member,
            Epoch.JOIN,
            owned=Owned.NOTHING,
            names=self._names(member),
            instance=instance,
            rack=self._random.choice((None, None, "r1")),
            assignor=self._assignor,
            timeout_ms=TIMEOUT_MS,
            version=self._version,
            lost=self._is_lost(),
        )
        if self._patterns and self._random.random() < 0.5:
            join = replace(join, regex=self._pattern(), names=self._random.choice((join.names, None, ())))
        return join

    def _beat(self, member: str, epoch: Epoch = Epoch.CURRENT, *, lossy: bool = True, **fields: object) -> Heartbeat:
        beat = Heartbeat(member, epoch, instance=self._joined.get(member), version=self._version)
        return replace(beat, lost=lossy and self._is_lost(), **fields)  # a subset of the fields

    def _names(self, member: str) -> tuple[str, ...]:
        if member.startswith("new"):
            return (ALONE,)
        known = sorted({*self._topics, "t0"})
        names = self._random.sample(known, self._random.randint(1, len(known)))
        if self._random.random() < 0.08:
            names.append(MISSING)
        return () if self._random.random() < 0.04 else tuple(names)

    def _pattern(self) -> str:
        return self._random.choice(("t.*", "t.*", "t[01]", "t1|t2", "", "nothing"))

    def _somebody(self) -> tuple[str, ...]:
        """A member of the group, if there is one."""
        return (self._random.choice(sorted(self._joined)),) if self._joined else ()

    def _is_lost(self) -> bool:
        return self._random.random() < self._lossy
