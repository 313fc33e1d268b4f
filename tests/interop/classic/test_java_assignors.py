"""The built-in assignors of the classic protocol, beside those of the Java client, on groups drawn from a seed."""

from __future__ import annotations

import random
import subprocess
from typing import Final

import msgspec
import pytest

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.common.model import ZERO_UUID
from kip848_client.member.classic.classic_plan import ClassicPlan, read_members
from kip848_client.member.core.assignor_events import RunAssignor
from kip848_client.member.core.assignor_values import compute
from kip848_client.member.core.events import TopicDescription
from kip848_client.wire.messages.consumer_protocol import decode_assignment
from tests.support.member_harness import a_member

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

GROUPS: Final = 500
CLASSES: Final = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
RACKS: Final = ("r1", "r2", "r3")

Given = dict[str, frozenset[str]]
"""Member -> the names of its partitions."""


class Member(msgspec.Struct):
    """A member of a drawn group."""

    member_id: str
    topics: tuple[str, ...]
    rack: str = ""
    instance: str = ""
    owned: tuple[str, ...] = ()
    generation: int = -1

    @property
    def held(self) -> dict[str, list[int]]:
        """Topic -> the partitions that it owns."""
        return {
            topic: [int(index) for name, _, index in (one.rpartition("-") for one in self.owned) if name == topic]
            for topic in self.topics
        }


class Group(msgspec.Struct):
    """A drawn group; of each partition the racks of its replicas."""

    assignor: str
    topics: dict[str, tuple[tuple[str, ...], ...]]
    members: list[Member]

    def line(self) -> str:
        """As the Java program reads it."""
        racks = (f"{name}={';'.join('+'.join(each) or '-' for each in of)}" for name, of in self.topics.items())
        members = (
            f"{one.member_id}|{one.rack}|{one.instance}|{one.generation}|{','.join(one.topics)}|{','.join(one.owned)}"
            for one in self.members
        )
        return "\t".join([CLASSES[self.assignor], " ".join(racks), *members])

    @property
    def partitions(self) -> list[str]:
        return [f"{name}-{index}" for name, racks in self.topics.items() for index in range(len(racks))]

    @property
    def equal(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({one.topics for one in self.members}) == 1

    @property
    def decided(self) -> bool:
        """Whether Java's result does not depend on the order of its hash tables."""
        if self.assignor != "cooperative-sticky":
            return True
        least, more = divmod(len(self.partitions), len(self.members))
        return self.equal and not sum(len(one.owned) > least for one in self.members) > more > 0

    def ours(self) -> Given:
        """What our leader gives."""
        joined = [
            a_member(
                one.member_id,
                {
                    topic: [int(each.rpartition("-")[2]) for each in one.owned if each.startswith(topic)]
                    for topic in one.topics
                },
                generation=one.generation,
                topics=one.topics,
                instance=one.instance or None,
                rack=one.rack or None,
            )
            for one in self.members
        ]
        described = {
            name: TopicDescription(ZERO_UUID, len(racks), tuple(map(frozenset, racks)))
            for name, racks in self.topics.items()
        }
        members = read_members(joined, protocol=self.assignor)
        plan = ClassicPlan(members, protocol=self.assignor, generation=7, topics=described)
        done, failure = compute([BUILT_IN[self.assignor]()], RunAssignor(1, plan.snapshot, plan.racks))
        assert failure is None
        return {
            each.member_id: frozenset(
                f"{topic.topic}-{index}"
                for topic in decode_assignment(each.assignment).assigned_partitions
                for index in topic.partitions
            )
            for each in plan.assignments(done.members)
        }


def drawn(assignor: str, rng: random.Random) -> Group:
    """A group of up to six members: with and without racks, instance ids, and partitions from an earlier round."""
    names = [f"t{number}" for number in range(rng.randint(1, 3))]
    spread = rng.choice([0, 1, 2])  # how many replicas; 0: brokers without racks
    count = rng.randint(1, 8)
    topics = {
        name: tuple(tuple(rng.sample(RACKS, spread)) for _ in range(count if rng.random() < 0.6 else rng.randint(1, 8)))
        for name in names
    }
    all_alike = rng.random() < 0.7
    members = [
        Member(
            f"m{number}",
            tuple(names) if all_alike else tuple(sorted(rng.sample(names, rng.randint(1, len(names))))),
            rack=rng.choice(["", *RACKS]) if spread else rng.choice(["", "r1"]),
            instance=f"i{9 - number}" if rng.random() < 0.3 else "",
        )
        for number in range(rng.randint(1, 6))
    ]
    subscribed = {topic for one in members for topic in one.topics}
    group = Group(assignor, {name: racks for name, racks in topics.items() if name in subscribed}, members)
    if assignor == "cooperative-sticky" and group.equal and rng.random() < 0.8:
        owners = rng.sample(members, rng.randint(1, len(members)))
        for partition in group.partitions:
            owner = rng.choice([*owners, None])
            if owner is not None:
                owner.owned = (*owner.owned, partition)
        for one in members:
            one.generation = 6
    return group


@pytest.mark.parametrize("assignor", BUILT_IN)
def test_a_leader_gives_what_java_gives(java: list[str], assignor: str) -> None:
    """Any member of a mixed group may lead: with another result partitions would move whenever the leader changes.

    Where Java's result depends on the order of its hash tables, as many partitions go to as many members.
    """
    rng = random.Random(848)
    groups = [drawn(assignor, rng) for _ in range(GROUPS)]
    said = subprocess.run(
        [*java, "assign"], input="\n".join(group.line() for group in groups), capture_output=True, text=True, check=True
    )
    compared = 0
    for group, line in zip(groups, said.stdout.splitlines(), strict=True):
        pairs = (each.partition("=") for each in line.split())
        theirs = {name: frozenset(filter(None, given.split(","))) for name, _, given in pairs}
        ours = group.ours()
        if group.decided:
            assert ours == theirs, group.line()
            compared += 1
        elif not any(one.owned for one in group.members):
            assert sorted(map(len, ours.values())) == sorted(map(len, theirs.values())), group.line()
    assert compared > GROUPS / 3
