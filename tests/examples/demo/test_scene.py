"""The demo's picture of the group: who owns what, why a rebalance began, when it was over, who was removed."""

from __future__ import annotations

from collections import Counter

from demo.ledger import CountedRun
from demo.processes import Ended, Said
from demo.reports import Committed, Counted, Left, Moved, Report, Started, Status
from demo.scene import Fate, Rebalance, Scene

from kip848_client.journal import JournalEvent, JsonValue


def a_scene(*workers: str) -> Scene:
    scene = Scene("flights", partitions=4, flights=10, started_ms=1_000)
    for number, name in enumerate(workers):
        scene.start(name, now_ms=1_000)
        hear(scene, name, Started(pid=number))
    return scene


def hear(scene: Scene, worker: str, *reports: Report) -> None:
    for report in reports:
        scene.hear(Said(worker, report), now_ms=1_000)


def note(scene: Scene, ts_ms: int, event: str, client_id: str | None = None, **fields: JsonValue) -> None:
    scene.note(
        JournalEvent(ts_ms, "coordinator", event, "counters", client_id=client_id, group_epoch=ts_ms, fields=fields)
    )


def seen(scene: Scene, worker: str) -> tuple[Fate, tuple[int, ...]]:
    return scene.workers[worker].fate, scene.workers[worker].owned


def texts(scene: Scene, actor: str) -> list[str]:
    return [line.text for line in scene.lines if line.actor == actor]


def test_a_group_has_settled_when_its_members_share_all_partitions_and_the_coordinator_agrees() -> None:
    """An act that begins too early would show a rebalance that is still going on."""
    scene = a_scene("a", "b")
    hear(scene, "a", Status("STABLE", 2, (0, 1)))
    hear(scene, "b", Status("STABLE", 2, (2,)))
    scene.group_state = "Stable"
    assert not scene.settled("a", "b"), "partition 3 has no owner"
    hear(scene, "b", Status("RECONCILING", 2, (2, 3)))
    assert not scene.settled("a", "b"), "b is still at it"
    hear(scene, "b", Status("STABLE", 2, (2, 3)))
    assert scene.settled("a", "b")
    scene.group_state = "Reconciling"
    assert not scene.settled("a", "b")


def test_a_rebalance_lasts_from_its_cause_to_the_stable_group() -> None:
    """This is the number that people compare with their own groups."""
    scene = a_scene("a")
    note(scene, 1_100, "member_joined", "a")
    note(scene, 1_100, "group_epoch_bumped")
    note(scene, 1_100, "group_state_changed", old="Empty", new="Reconciling")
    note(scene, 1_320, "group_state_changed", old="Reconciling", new="Stable")
    assert scene.rebalances == [Rebalance("a joined", group_epoch=1_320, members=1, duration_ms=220)]
    assert texts(scene, "coordinator") == ["group epoch 1320 is in effect after 220 ms: 1 member"]


def test_a_killed_member_stays_on_the_picture_until_the_coordinator_removes_it() -> None:
    """That its partitions rest for the session timeout is what the demo is to show."""
    scene = a_scene("a")
    hear(scene, "a", Status("STABLE", 2, (0, 1)), Counted((CountedRun(0, 0, ["UA", "UA"]),)))
    note(scene, 1_100, "offsets_committed", "a", offsets={"flights-0": 1, "other-0": 9})
    scene.kill("a", now_ms=1_200)
    scene.hear(Ended("a", -9, ()), now_ms=1_201)
    assert seen(scene, "a") == (Fate.KILLED, (0, 1))
    note(scene, 4_200, "member_left", "a", reason="session_timeout")
    assert seen(scene, "a") == (Fate.REMOVED, ())
    scene.ledger.count("b", [CountedRun(0, 1, ["UA"])])
    (duplicate,) = scene.ledger.verdict(expected=Counter({"UA": 2}), produced={0: 2}, committed={}).duplicates
    assert duplicate.reason == "a was killed before it committed them"


def test_a_member_that_left_in_order_explains_no_repetition() -> None:
    """A clean leave commits: records that come again after it are a bug, and must not be excused."""
    scene = a_scene("a")
    scene.leave("a", now_ms=1_000)
    hear(scene, "a", Counted((CountedRun(0, 0, ["UA"]),)), Left())
    note(scene, 1_100, "member_left", "a", reason="leave")
    scene.hear(Ended("a", 0, ()), now_ms=1_200)
    assert scene.workers["a"].fate is Fate.LEFT
    scene.ledger.count("b", [CountedRun(0, 0, ["UA"])])
    (duplicate,) = scene.ledger.verdict(expected=Counter({"UA": 1}), produced={0: 1}, committed={}).duplicates
    assert duplicate.reason is None


def test_a_worker_that_ends_unasked_has_failed() -> None:
    """A crash that the demo did not cause is a bug to be shown, not a member that left."""
    scene = a_scene("a")
    scene.hear(Ended("a", 1, ("Traceback",)), now_ms=1_000)
    assert scene.workers["a"].fate is Fate.FAILED
    assert scene.workers["a"].stderr == ("Traceback",)


def test_moves_are_told_but_for_empty_ones() -> None:
    """A listener is also called with nothing new; a line for that would only be noise."""
    scene = a_scene("a")
    hear(scene, "a", Moved("assigned", (0, 1, 3)), Moved("assigned", ()), Moved("revoked", (3,)))
    assert texts(scene, "a") == [
        "is started",
        "runs as process 0",
        "was given partitions 0-1, 3",
        "gave up partitions 3",
    ]


def test_lag_is_what_was_produced_and_not_counted() -> None:
    """The lag of a killed member's partitions grows until they have a new owner: the reader watches this number."""
    scene = a_scene("a")
    scene.produced = {0: 5, 1: 2}
    hear(scene, "a", Counted((CountedRun(0, 0, ["UA", "UA"]),)))
    assert (scene.lag([0]), scene.lag([0, 1, 2]), scene.caught_up) == (3, 5, False)
    assert scene.workers["a"].uncommitted
    hear(scene, "a", Counted((CountedRun(0, 2, ["UA"] * 3), CountedRun(1, 0, ["UA"] * 2))), Committed())
    assert scene.caught_up
    assert not scene.workers["a"].uncommitted
