"""Conversations written by hand, for what chance meets too rarely. Told to both brokers like the generated ones."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from kip848_client.testing.judge.broker.steps import (
    LOOK,
    Ask,
    ChangeTopic,
    Commit,
    DeleteOffsets,
    Epoch,
    Fetch,
    Heartbeat,
    Owned,
    RemoveMembers,
    Step,
    join,
)
from tests.interop.differential.conftest import Converse

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

FOUR: Final = ChangeTopic("t0", 4)


def acknowledge(member: str, *, instance: str | None = None) -> Heartbeat:
    """A heartbeat that gives up what is to be given up."""
    return Heartbeat(member, owned=Owned.ASSIGNED, instance=instance)


def away(member: str, instance: str) -> Heartbeat:
    """A static member that will be back."""
    return Heartbeat(member, Epoch.AWAY, instance=instance)


SEQUENCES: Final[dict[str, list[Step]]] = {
    "three members join one after the other, and two leave": [
        *(FOUR, join("a"), join("b"), Heartbeat("a"), LOOK, acknowledge("a"), LOOK, Heartbeat("b"), join("c")),
        *(acknowledge("b"), acknowledge("a"), LOOK, acknowledge("b"), Heartbeat("c"), acknowledge("a"), Heartbeat("c")),
        *(LOOK, Heartbeat("a", Epoch.LEAVE), LOOK, Heartbeat("b"), Heartbeat("c"), LOOK, Heartbeat("b", Epoch.LEAVE)),
        *(Heartbeat("c"), LOOK, Heartbeat("c", Epoch.LEAVE), LOOK, join("c"), LOOK),
    ],
    "a static member comes back as another and commits with an epoch of its predecessor": [
        *(FOUR, join("s", instance="i"), join("a"), acknowledge("s", instance="i"), acknowledge("s", instance="i")),
        *(Heartbeat("a"), away("s", "i"), Commit(member="s", owned=Owned.ASSIGNED), LOOK, join("s2", instance="i")),
        *(Commit(member="s", owned=Owned.ASSIGNED), Commit(member="s2", owned=Owned.ASSIGNED)),
        *(Commit(member="s2", epoch=Epoch.BELOW, owned=Owned.ASSIGNED), Commit(member="s2", epoch=Epoch.ABOVE)),
        *(Commit(member="s2", epoch=Epoch.BELOW, owned=Owned.FOREIGN), Fetch(), Fetch(member="s2"), LOOK),
        *(away("s2", "i"), away("s2", "i"), Heartbeat("s2", Epoch.LEAVE, instance="i"), LOOK),
    ],
    "a static member comes back alone, at the epoch at which it left": [
        *(FOUR, join("s", instance="i"), away("s", "i"), join("s2", instance="i")),
        *(Commit(member="s2", epoch=Epoch.BELOW, owned=Owned.ASSIGNED), Fetch(), LOOK),
    ],
    "a member that lags behind commits what it keeps and what it must give up": [
        *(FOUR, join("a"), join("b"), Commit(member="a", owned=Owned.ASSIGNED), Heartbeat("a")),
        *(Commit(member="a", owned=Owned.HELD), Commit(member="a", epoch=Epoch.ABOVE, owned=Owned.HELD)),
        *(acknowledge("a"), Commit(member="a", epoch=Epoch.PREVIOUS, owned=Owned.ASSIGNED)),
        *(Commit((("t0", 3, 1),), member="a", epoch=Epoch.PREVIOUS), Commit((("t0", 3, 1),), member="a")),
        *(Commit(member="a", epoch=Epoch.PREVIOUS, owned=Owned.FOREIGN), Heartbeat("b"), Fetch()),
        *(Commit(member="b", owned=Owned.ASSIGNED), Commit(member="b", epoch=Epoch.BELOW, owned=Owned.ASSIGNED)),
        *(Fetch(member="b", epoch=Epoch.CURRENT), Fetch(member="b", epoch=Epoch.BELOW), Fetch()),
    ],
    "an answer is lost while partitions change hands": [
        *(FOUR, join("a"), join("b"), Heartbeat("a", lost=True), Heartbeat("a"), Heartbeat("a", owned=Owned.HELD)),
        *(Heartbeat("a", names=("t0",), owned=Owned.ASSIGNED, timeout_ms=60_000), acknowledge("a"), LOOK),
        *(Heartbeat("b", lost=True), Heartbeat("b"), acknowledge("b"), LOOK),
        *(join("c"), Heartbeat("a", owned=Owned.ASSIGNED, lost=True), Heartbeat("a", owned=Owned.HELD)),
        *(Heartbeat("a", owned=Owned.NOTHING), acknowledge("a"), LOOK),
    ],
    "a topic is deleted under its members and made again": [
        *(FOUR, ChangeTopic("t1", 2), join("a", "t0", "t1"), join("b", "t0", "t1"), Heartbeat("a"), acknowledge("a")),
        *(Heartbeat("b"), Commit(member="b", owned=Owned.ASSIGNED), Fetch(), ChangeTopic("t1"), LOOK, Heartbeat("a")),
        *(LOOK, ChangeTopic("t1", 3), Heartbeat("b"), LOOK, acknowledge("a"), acknowledge("b"), acknowledge("a"), LOOK),
        *(Fetch(), Fetch((("t1", 0),), version=10), ChangeTopic("t1"), ChangeTopic("t0"), acknowledge("a")),
        *(acknowledge("b"), acknowledge("a"), LOOK, Fetch()),
    ],
    "a topic that is subscribed comes later, and grows": [
        *(join("a"), join("b", "t0", "t1"), Heartbeat("a"), LOOK, ChangeTopic("t0", 1), LOOK, Heartbeat("b"), LOOK),
        *(acknowledge("a"), ChangeTopic("t0", 5), acknowledge("a"), acknowledge("b"), acknowledge("a"), LOOK),
        *(ChangeTopic("t1", 2), acknowledge("b"), acknowledge("a"), LOOK),
    ],
    "a member that still revokes drops another topic and does not list its partitions": [
        *(FOUR, ChangeTopic("t1", 2), join("a", "t0", "t1"), join("b", "t0", "t1"), Heartbeat("a"), LOOK),
        *(Heartbeat("a", names=("t0",), owned=Owned.SUBSCRIBED), LOOK, Heartbeat("b"), acknowledge("b"), LOOK),
        *(acknowledge("a"), LOOK, Heartbeat("b"), acknowledge("b"), acknowledge("a"), LOOK),
    ],
    "an administrator removes members by id and by instance id": [
        *(FOUR, join("a"), join("b"), join("s", instance="i"), join("t", instance="j"), acknowledge("a"), LOOK),
        *(RemoveMembers((("a", None), (None, "i"), ("b", "j"), ("t", "k"), ("gone", None), (None, None))), LOOK),
        *(Heartbeat("a"), Heartbeat("s", instance="i"), Heartbeat("b"), acknowledge("t", instance="j"), LOOK),
        *(away("t", "j"), RemoveMembers((("s", "j"),)), RemoveMembers(((None, "j"),), version=3), LOOK),
        *(RemoveMembers((("b", None), ("b", None)), version=4), LOOK, RemoveMembers((("b", None),)), join("b")),
        *(RemoveMembers((("x", None),), version=2), RemoveMembers((("b", None),), version=0), LOOK),
        *(RemoveMembers((("b", None),), group="nogroup"), RemoveMembers((("b", None),), group="")),
        *(Commit((("t0", 0, 1),), group="h"), RemoveMembers((("b", None), (None, "i")), group="h")),
    ],
    "the preferred assignor changes, also of a group that was left": [
        *(FOUR, join("a", assignor="uniform"), Heartbeat("a", assignor="range"), LOOK, Heartbeat("a"), LOOK),
        *(Heartbeat("a", Epoch.LEAVE), LOOK, replace(join("b"), names=()), LOOK),
    ],
    "a member changes its instance id while it lives": [
        *(join("s", instance="i"), join("s", instance="j"), Heartbeat("s", instance="i"), LOOK),
        *(Heartbeat("s", instance="j"), away("s", "i"), away("s", "j"), LOOK),
    ],
    "one pattern takes the place of another while it is matched": [
        *(FOUR, ChangeTopic("t1", 2), join("a", regex="t0"), Heartbeat("a"), LOOK, Heartbeat("a", regex="t1")),
        *(LOOK, Heartbeat("a"), acknowledge("a"), acknowledge("a"), LOOK, Heartbeat("a", regex="t1", owned=Owned.HELD)),
        *(join("b", regex="t1"), acknowledge("a"), acknowledge("b"), LOOK, Heartbeat("b", regex="", names=("t0",))),
        *(acknowledge("a"), acknowledge("b"), LOOK, Heartbeat("a", Epoch.LEAVE), Heartbeat("b"), LOOK),
    ],
    "a group of offsets becomes a group of members, and is deleted": [
        *(FOUR, Commit((("t0", 0, 5), ("t0", 1, 6))), Ask("describe_groups", 6, ("g",)), LOOK),
        *(Ask("list_groups", 5), join("a"), LOOK, Fetch(), Ask("list_groups", 5), Ask("delete_groups", 2, ("g",))),
        *(DeleteOffsets((("t0", 0),)), Heartbeat("a", names=()), DeleteOffsets((("t0", 0), ("t0", 9)))),
        *(Fetch(), Heartbeat("a", Epoch.LEAVE), Ask("list_groups", 5, filters=(("empty",), ("CONSUMER",)))),
        *(Commit((("t0", 2, 7),)), Commit((("t0", 2, 8),), member="a"), Fetch(), Ask("delete_groups", 2, ("g", "g"))),
        *(LOOK, Fetch(), Ask("list_groups", 5), join("a"), LOOK),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_both_brokers_answer_alike(name: str, converse: Converse) -> None:
    """As for the generated sequences; here the name says what would go wrong."""
    with converse() as conversation:
        conversation.tell(SEQUENCES[name])

    assert conversation.step_count == len(SEQUENCES[name])
