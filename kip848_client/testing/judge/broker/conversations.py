"""The conversations of `kip848 judge broker`, by the rules of docs/protocol.md that they try.

Each is as short as its rule allows, so that what differs names the rule. The topics t0 and t1 have four and two
partitions; members ask for the assignor `range`, which gives the partitions of a topic out in the order of member ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.classic_steps import ClassicHeartbeat, ClassicJoin, ClassicLeave, ClassicSync
from kip848_client.testing.judge.broker.share_steps import (
    ACCEPT,
    REJECT,
    RELEASE,
    Produce,
    ShareAcknowledge,
    ShareFetch,
    ShareHeartbeat,
)
from kip848_client.testing.judge.broker.steps import (
    LOOK,
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
    join,
)
from kip848_client.testing.judge.broker.story import DESCRIBING, JOINING, Await, Older, RestartBroker, Step, Story

SHORT_MS: Final = 5_000
"""A rebalance timeout that is let run out. Members choose theirs."""
LONG_TEXT: Final = "x" * 5_000
SHARE_JOINING: Final = 500
BEHIND: Final = Older(
    "up to 4.3",
    "the assignment epoch of a group stays behind when its last member leaves",
    difference=r"groups\[0\]\.assignment_epoch: .*",
)
ONLY_USABLE: Final = Older(
    "4.0",
    "a description leaves out partitions that a member has yet to give up",
    difference=r"groups\[0\]\.members\[\d+\]\.assignment\..*",
)


def acknowledge(member: str, *, instance: str | None = None) -> Heartbeat:
    """A heartbeat that gives up what is to be given up."""
    return Heartbeat(member, owned=Owned.ASSIGNED, instance=instance)


def leave(member: str, *, instance: str | None = None) -> Heartbeat:
    """A heartbeat that leaves for good."""
    return Heartbeat(member, Epoch.LEAVE, instance=instance)


def away(member: str, instance: str = "i") -> Heartbeat:
    """A heartbeat of a static member that will be back."""
    return Heartbeat(member, Epoch.AWAY, instance=instance)


def static(member: str) -> Heartbeat:
    """A join with the instance id `i`."""
    return join(member, instance="i")


TWO: Final[tuple[Step, ...]] = (
    join("a"),
    join("b"),
    acknowledge("a"),
    acknowledge("a"),
    acknowledge("b"),
    acknowledge("b"),
)
"""Two members that share t0, and have settled."""
SETTLED: Final = (JOINING, 426, 427, 429, 456)
"""Rules without which two members do not settle."""
GROUP: Final = Ask("list_groups", 5)
SHARED: Final[tuple[Step, ...]] = (
    ChangeTopic("s0", 1),
    ShareHeartbeat("a", Epoch.JOIN, names=("s0",)),
    ShareFetch("a", session=0),
    Produce(4),
)
"""A member of a share group that has a session, and four records that nobody has yet."""


def stories() -> Iterator[Story]:
    """All conversations, in the order of their rules."""
    yield from _joining()
    yield from _epochs()
    yield from _assignments()
    yield from _static_members()
    yield from _patterns_and_assignors()
    yield from _offsets()
    yield from _descriptions()
    yield from _classic_members()
    yield from _time_limits()
    yield from _restarts()
    yield from _share_groups()


def _joining() -> Iterator[Story]:
    yield Story(JOINING, (join("a"),), needs=())
    for odd in (
        replace(join("a"), group=""),
        replace(join(""), version=1),
        replace(join("a"), instance=" "),
        replace(join("a"), rack=""),
    ):
        yield Story(401, (odd, LOOK))
    yield Story(402, (replace(join("a"), timeout_ms=-1), LOOK))
    yield Story(402, (replace(join("a"), owned=Owned.UNSAID), LOOK))
    yield Story(402, (join("b"), replace(join("a"), owned=Owned.NOWHERE), LOOK))
    yield Story(402, (replace(join("a"), names=None), LOOK))
    yield Story(403, (join("a"), Heartbeat("a", Epoch.INVALID), Heartbeat("a", Epoch.AWAY), LOOK))
    yield Story(404, (replace(join("new1"), version=0), Heartbeat("new1", owned=Owned.ASSIGNED, version=0)))
    later = Heartbeat("a", names=("t0",))
    yield Story(405, (replace(join("a"), names=()), acknowledge("a"), later, LOOK), needs=(JOINING, 430))
    fenced = Older("4.0", "a member that is still known cannot join again", code=ErrorCode.FENCED_MEMBER_EPOCH)
    yield Story(406, (*TWO, join("a"), acknowledge("a"), LOOK), needs=(*SETTLED, 418), older=(fenced,))
    yield Story(407, (join("a", "t0", "missing"), LOOK))


def _epochs() -> Iterator[Story]:
    yield Story(410, (join("a"), Heartbeat("b", Epoch.FAR)))
    yield Story(411, (Heartbeat("a", Epoch.FAR), leave("a")))
    yield Story(412, (join("a"), Heartbeat("a", Epoch.ABOVE)))
    more = (Heartbeat("a", names=("t0", "t1")), Heartbeat("a", names=("t0", "t1", "missing")))
    yield Story(413, (join("a"), *more, Heartbeat("a", Epoch.LONG_AGO, Owned.ASSIGNED)), needs=(JOINING, 430))
    late = (join("a"), join("b"), acknowledge("a"), _lost("a"))
    yield Story(414, (*late, Heartbeat("a", owned=Owned.ASSIGNED)), needs=SETTLED)
    yield Story(415, (*late, Heartbeat("a"), Heartbeat("a", owned=Owned.FOREIGN)), needs=SETTLED)
    refused = Heartbeat("a", Epoch.ABOVE, names=("t1",))
    yield Story(416, (*TWO, refused, Heartbeat("a"), LOOK), needs=(*SETTLED, 412, 417))
    yield Story(417, (*TWO, Heartbeat("a"), Heartbeat("a"), acknowledge("a")), needs=SETTLED, exact=3)
    yield Story(418, (*TWO, _full("a"), _full("b")), needs=SETTLED, exact=2)
    yield Story(419, (*TWO, leave("a"), leave("a"), Heartbeat("a"), LOOK), needs=SETTLED)


def _lost(member: str) -> Heartbeat:
    """An acknowledgement whose answer does not arrive."""
    return Heartbeat(member, owned=Owned.ASSIGNED, lost=True)


def _full(member: str) -> Heartbeat:
    return Heartbeat(member, owned=Owned.ASSIGNED, names=("t0",), timeout_ms=60_000, assignor="range")


def _assignments() -> Iterator[Story]:
    yield Story(425, (join("a", "t0", "t1"), join("b", "t0"), *_settle("a", "b"), LOOK), needs=(*SETTLED, 430))
    told: tuple[Step, ...] = (join("a"), join("b"), Heartbeat("a", owned=Owned.ASSIGNED))
    fewer: tuple[Step, ...] = (join("a", "t0", "t1"), Heartbeat("a", names=("t1",), owned=Owned.HELD))
    yield Story(426, (*fewer, LOOK), needs=(JOINING, 430), older=(ONLY_USABLE,))
    waits = acknowledge("b")
    yield Story(427, (*told, waits, acknowledge("a"), waits, LOOK), needs=(JOINING, 426, 456))
    yield Story(
        428,
        (*told, Heartbeat("a"), Heartbeat("a", owned=Owned.HELD), acknowledge("b"), LOOK),
        needs=(JOINING, 426, 427, 456),
        older=(ONLY_USABLE,),
    )
    yield Story(429, (*TWO, LOOK), needs=(JOINING, 426, 427, 456))
    yield Story(430, (join("a"), Heartbeat("a", names=("t0",)), Heartbeat("a", names=("t0", "t1")), LOOK))
    yield Story(431, (*fewer, acknowledge("a"), LOOK), needs=(JOINING, 426, 429))
    yield Story(432, (*TWO, leave("a"), Heartbeat("b"), acknowledge("b"), LOOK), needs=(*SETTLED, 419))
    yield Story(
        433,
        (ChangeTopic("t0", 1), join("a"), ChangeTopic("t0", 3), Heartbeat("a"), acknowledge("a"), LOOK),
    )
    yield Story(
        434,
        (ChangeTopic("t0", 2), ChangeTopic("t1", 1), join("a", "t0", "t1"), ChangeTopic("t1"), *_settle("a"), LOOK),
    )
    yield Story(435, (ChangeTopic("t1", 1), join("a", "t0"), ChangeTopic("t0", 2), *_settle("a"), LOOK))
    yield Story(436, (*TWO, Heartbeat("a", owned=Owned.FOREIGN), Heartbeat("a"), LOOK), needs=SETTLED)


def _settle(*members: str) -> tuple[Step, ...]:
    """Everybody acknowledges, twice."""
    return (*map(acknowledge, members), *map(acknowledge, members))


def _static_members() -> Iterator[Story]:
    yield Story(440, (static("s"), static("s2"), LOOK))
    yield Story(441, (static("s"), join("b"), *_both(), away("s"), Heartbeat("b"), LOOK), needs=SETTLED)
    yield Story(
        442, (static("s"), join("b"), *_both(), away("s"), static("s2"), Heartbeat("b"), LOOK), needs=(400, 441)
    )
    yield Story(443, (static("s"), away("s"), static("s2"), Heartbeat("s", Epoch.FAR, instance="i")), needs=(400, 441))
    yield Story(444, (join("b"), Heartbeat("s", Epoch.FAR, instance="i")))
    yield Story(445, (static("s"), join("b"), *_both(), leave("s", instance="i"), acknowledge("b"), LOOK), SETTLED)
    yield Story(446, (static("s"), join("b"), leave("b", instance="i"), leave("b", instance="k"), LOOK), SETTLED)


def _both() -> tuple[Step, ...]:
    return (
        acknowledge("s", instance="i"),
        acknowledge("b"),
        acknowledge("s", instance="i"),
        acknowledge("b"),
    )


def _patterns_and_assignors() -> Iterator[Story]:
    yield Story(450, (join("a", regex="t0"), *_settle("a"), LOOK), epochs=False)
    yield Story(450, (join("a", regex="t"), *_settle("a"), LOOK), epochs=False)
    yield Story(451, (join("a", "t1", regex="t0"), *_settle("a"), LOOK), needs=(JOINING, 450), epochs=False)
    yield Story(452, (replace(join("a"), regex="(", names=()), LOOK))
    yield Story(
        453,
        (join("a", "t1", regex="t0"), *_settle("a"), Heartbeat("a", regex="", owned=Owned.HELD), *_settle("a"), LOOK),
        needs=(JOINING, 450, 451),
        epochs=False,
        older=(Older("4.0", "a pattern that is withdrawn keeps its partitions", difference=r"assigned.*|epoch.*"),),
    )
    yield Story(455, (join("a", assignor="no-such-assignor"), join("b"), LOOK))
    late: tuple[Step, ...] = (ChangeTopic("t0", 4), *_settle("a", "b", "c"), LOOK)
    yield Story(456, (ChangeTopic("t1", 1), *map(join, "abc"), *late), needs=(JOINING, 435))
    uniform = (join(name, assignor="uniform") for name in "abc")
    even: tuple[Step, ...] = (ChangeTopic("t0", 6), *_settle("a", "b", "c"), LOOK)  # who gets one more is chance
    yield Story(457, (ChangeTopic("t1", 1), *uniform, *even), needs=(JOINING, 435), sizes=True)
    voted = (join("a", assignor="uniform"), join("b"), join("c"))
    yield Story(458, (ChangeTopic("t1", 1), *voted, *late), needs=(JOINING, 435, 456))


def _offsets() -> Iterator[Story]:
    at_5 = (("t0", 0, 5),)
    yield Story(460, (join("a"), Commit(at_5, member="a"), Fetch(member="a", epoch=Epoch.CURRENT), Fetch()))
    yield Story(461, (join("a"), Commit(at_5, member="a", epoch=Epoch.ABOVE), Fetch()))
    yield Story(
        462,
        (*TWO, Commit((("t0", 2, 5),), member="b", epoch=Epoch.BELOW), Fetch()),
        needs=SETTLED,
    )
    yield Story(463, (join("a"), Commit(at_5, member="b", epoch=Epoch.FAR), Fetch()))
    yield Story(464, (join("a"), Commit(at_5), Fetch()))
    yield Story(465, (Commit(at_5), Fetch(), Commit((("t0", 0, 6),)), Fetch()), needs=())
    yield Story(466, (join("a"), Commit(at_5, member="a", metadata=LONG_TEXT), Fetch()))
    yield Story(
        467, (join("a"), Commit((("missing", 0, 5),), member="a", version=10), Commit(at_5, member="a", version=10))
    )
    yield Story(468, (join("a"), Fetch(member="a", epoch=Epoch.ABOVE), Fetch(member="b", epoch=Epoch.FAR)))
    yield Story(469, (join("a"), Fetch((("t0", 0), ("t1", 1))), Fetch((("t0", 0),), member="a", epoch=Epoch.CURRENT)))
    yield Story(470, (join("a"), Commit(at_5, member="a"), DeleteOffsets((("t0", 0),)), Fetch()), needs=(400, 460))
    yield Story(471, (Commit(at_5, member="a", epoch=Epoch.FAR), Fetch()))
    yield Story(472, (join("a"), Commit(at_5, member="a"), leave("a"), Fetch(), LOOK), (400, 460, 419), older=(BEHIND,))


def _descriptions() -> Iterator[Story]:
    yield Story(DESCRIBING, (join("a"), LOOK))
    yield Story(476, (Ask("consumer_group_describe", 1, ("g",)), Commit((("t0", 0, 1),)), LOOK), needs=())
    yield Story(477, (join("a"), GROUP, replace(GROUP, filters=(("stable",), ("consumer",)))))
    yield Story(477, (join("a"), replace(GROUP, filters=((), ("classic",))), replace(GROUP, filters=(("empty",), ()))))
    yield Story(478, (join("a"), Ask("describe_groups", 6, ("g",))))
    yield Story(479, (join("a"), Ask("delete_groups", 2, ("g",)), LOOK))
    yield Story(
        480,
        (join("a"), Commit((("t0", 0, 5),), member="a"), leave("a"), Ask("delete_groups", 2, ("g",)), Fetch(), LOOK),
        needs=(400, 460, 419),
    )
    removed = RemoveMembers((("a", None), (None, "i"), ("x", None)))
    yield Story(481, (join("a"), join("s", instance="i"), removed, LOOK), SETTLED, older=(BEHIND,))
    yield Story(
        482,
        (
            Configure("consumer.heartbeat.interval.ms", "1"),
            Configure("consumer.nonsense", "1"),
            join("a"),
        ),
    )


def _classic_members() -> Iterator[Story]:
    first: tuple[Step, ...] = (ClassicJoin("new1"), ClassicJoin("new1"), ClassicSync("new1", {"new1": (0, 1, 2, 3)}))
    yield Story(485, (*first, ClassicHeartbeat("new1"), Ask("describe_groups", 6, ("g",)), GROUP), needs=())
    yield Story(486, (*first, replace(join("x"), assignor=None), LOOK), needs=(*SETTLED, 485))
    yield Story(
        487,
        (*first, join("x"), ClassicHeartbeat("new1"), ClassicHeartbeat("new1", off=-1)),
        needs=(*SETTLED, 485, 486),
    )
    yield Story(
        488,
        (join("x"), ClassicJoin("new1"), ClassicSync("new1"), LOOK),
    )
    yield Story(489, (join("x"), replace(ClassicJoin("new1"), protocol_type="connect"), LOOK))
    yield Story(
        490,
        (*first, join("x"), ClassicLeave("new1"), *_settle("x"), LOOK),
        needs=(*SETTLED, 485, 486),
    )
    yield Story(491, (*first, join("x"), leave("x"), LOOK, GROUP), needs=(*SETTLED, 485, 486))
    yield Story(492, (*first, ClassicHeartbeat("new1", off=1), Heartbeat("x", Epoch.FAR)), needs=(485,))


def _time_limits() -> Iterator[Story]:
    silent = (join("b"), join("a"), Await(LOOK, beats=(acknowledge("b"),)))
    yield Story(493, silent, needs=(JOINING, DESCRIBING))
    yield Story(
        494,
        (
            join("a", timeout_ms=SHORT_MS),
            join("b"),
            Heartbeat("a"),
            Await(LOOK, SHORT_MS, beats=(Heartbeat("a", owned=Owned.HELD), acknowledge("b"))),
        ),
        needs=(JOINING, DESCRIBING, 426, 427),
    )
    yield Story(
        495,
        (join("b"), static("s"), Await(LOOK, beats=(acknowledge("b"),)), static("s2")),
        needs=(JOINING, DESCRIBING, 441),
    )


def _restarts() -> Iterator[Story]:
    yield Story(496, (*TWO, LOOK, RestartBroker(), Heartbeat("a"), Heartbeat("b"), LOOK), SETTLED)
    yield Story(
        497,
        (join("a"), Commit((("t0", 0, 5),), member="a"), RestartBroker(), Fetch(), Heartbeat("a")),
        needs=(400, 460),
    )
    yield Story(498, (static("s"), away("s"), RestartBroker(), LOOK, static("s2"), LOOK), needs=(400, 441, 442))


def _share_groups() -> Iterator[Story]:
    look = Ask("share_group_describe", 1, ("g",))
    yield Story(
        SHARE_JOINING, (ChangeTopic("s0", 2), ShareHeartbeat("a", Epoch.JOIN, names=("s0",)), look), needs=(JOINING,)
    )
    needs: tuple[int, ...] = (SHARE_JOINING,)
    members: tuple[Step, ...] = (ChangeTopic("s0", 1), ShareHeartbeat("a", Epoch.JOIN, names=("s0",)))
    yield Story(501, (*members, ShareHeartbeat("b", Epoch.FAR), ShareHeartbeat("a", Epoch.ABOVE)), needs=needs)
    yield Story(502, (*members, ShareHeartbeat("a", Epoch.LEAVE), ShareHeartbeat("a", Epoch.LEAVE), look), needs=needs)
    yield Story(503, (*members, ShareHeartbeat("b", Epoch.JOIN, names=("s0",)), ShareHeartbeat("a"), look), needs=needs)
    fetch = ShareFetch("a")
    yield Story(504, (*SHARED, fetch), needs=needs)
    needs = (SHARE_JOINING, 504)
    other = ShareFetch("b", session=0)
    second = ShareHeartbeat("b", Epoch.JOIN, names=("s0",))
    yield Story(505, (*SHARED, second, fetch, other), needs=needs)
    accepted = ShareAcknowledge("a", ((0, 3, ACCEPT),))
    yield Story(506, (*SHARED, second, fetch, accepted, other), needs=needs)
    yield Story(507, (*SHARED, second, fetch, ShareAcknowledge("a", ((0, 3, RELEASE),)), other), needs=needs)
    yield Story(508, (*SHARED, second, fetch, ShareAcknowledge("a", ((0, 3, REJECT),)), other), needs=needs)
    yield Story(509, (*SHARED, fetch, ShareFetch("a", session=9), ShareFetch("c", session=4)), needs=needs)
    thief = ShareAcknowledge("b", ((0, 3, ACCEPT),))
    yield Story(510, (*SHARED, second, fetch, other, thief, accepted, accepted), needs=(SHARE_JOINING, 504, 505))
    yield Story(511, (*SHARED, second, fetch, ShareFetch("a", session=-1, reads=False), other), needs=needs)
    yield Story(
        512,
        (*members, GROUP, ShareHeartbeat("a", Epoch.LEAVE), Ask("delete_groups", 2, ("g",)), GROUP),
        needs=needs,
    )


STORIES: Final = tuple(stories())
