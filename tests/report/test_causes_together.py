"""Two things that go wrong near to each other in time: the report tells both, and none of them as the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.findings import Finding, findings_of_all
from tests.report.play import PlayedGroup


def _found(*groups: PlayedGroup) -> Mapping[str, Sequence[Finding]]:
    """By kind, the worst first."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in findings_of_all([timeline for group in groups for timeline in build_timelines(group.events)]):
        found[each.kind].append(each)
    return found


def test_a_container_that_crashes_over_and_over_before_a_deploy_is_flapping() -> None:
    """Those of it whose sessions had not ended yet were taken for further members of that name, which hid it."""
    group = PlayedGroup("a", "b", "c", "d", session_ms=45_000)
    for back_off_ms in (10_000, 20_000, 40_000, 60_000, 60_000):
        group.die("d")
        group.run(back_off_ms)
        group.join("d")
        group.run(6_000)
    group.run(60_000)
    group.restart("a", "b", "c", "d")
    found = _found(group)
    assert [each.text[:18] for each in found["flapping"]] == ["d (d) went 5 times"]
    assert [each.who for each in found["deploy"]] == [["a (a)", "b (b)", "c (c)", "d (d)"]]


def test_a_client_that_flaps_after_a_deploy_does_not_lengthen_it() -> None:
    """The deploy seemed to last until the client had gone for the second time."""
    group = PlayedGroup("a", "b", "c", "d")
    group.restart("a", "b", "c", "d")
    group.run(20_000)
    group.restart(*"dddd")
    found = _found(group)
    assert [each.who for each in found["flapping"]] == [("d (d)",)]
    assert [(each.who, round(each.ms or 0.0, -3)) for each in found["deploy"]] == [
        (["a (a)", "b (b)", "c (c)", "d (d)"], 32_000)
    ]


def test_three_deploys_in_ten_minutes_are_no_flapping() -> None:
    """A first member that is started for the third time had been left out, as if it had come and gone by itself."""
    group = PlayedGroup("a", "b")
    for _ in range(3):
        group.restart("a", "b")
        group.run(90_000)
    found = _found(group)
    assert {each.why for each in found["stand-still"]} == {"deploy"}
    assert found["flapping"] == []


def test_a_group_of_one_that_is_stopped_is_out() -> None:
    """Its member "was started again, after 60 s", which does not say that somebody stopped it."""
    group = PlayedGroup("a")
    group.leave("a")
    group.run(60_000)
    group.join("a")
    group.run(30_000)
    (outage,) = _found(group)["outage"]
    assert outage.text.endswith("; before: its last member was stopped, and started again: a (a)")


def test_deploys_before_and_after_an_outage_are_told_beside_it() -> None:
    """All of it was one deploy of six minutes, and the outage in it had no finding of its own cause."""
    group = PlayedGroup("a", "b", "c")
    group.restart("a", "b", "c")
    group.run(120_000)
    for name in "abc":
        stopped_ms = group.now_ms
        group.leave(name)
    group.run(60_000)
    for name in "abc":
        group.join(name)
    group.run(120_000)
    again_ms = group.now_ms
    group.restart("a", "b", "c")
    found = _found(group)
    (outage,) = found["outage"]
    assert (outage.start_ms, outage.ms, outage.records > 0) == (stopped_ms, 60_000, True)
    assert outage.text.endswith("; before: all were stopped, and started again: a (a), b (b), c (c)")
    deploys = sorted(found["deploy"], key=lambda each: each.start_ms)
    assert [(len(each.who), round(each.ms or 0.0, -3)) for each in deploys] == [(3, 22_000), (3, 22_000)]
    assert [each.start_ms for each in deploys][1] == again_ms


def test_a_group_of_two_is_deployed_and_out_and_deployed_while_members_come_and_go() -> None:
    """They were started more often than others: they were flapping, and not deployed."""
    group = PlayedGroup("a", "b")
    for _ in range(2):
        group.restart("a", "b")
        group.leave("a")
        group.leave("b")
        group.run(60_000)
        group.join("a")
        group.join("b")
        group.run(10_000)
        group.restart("a", "b")
        group.die("a")
        group.run(30_000)
        group.join("a")
        group.run(20_000)
    found = _found(group)
    assert len(found["deploy"]) == 4
    assert {each.text.partition("; before: ")[2] for each in found["outage"]} == {
        "all were stopped, and started again: a (a), b (b)"
    }
    assert found["flapping"] == []


def test_members_that_crash_in_turn_all_the_time_are_not_deployed() -> None:
    """Two of three that were started again twice a minute were a deploy each time."""
    group = PlayedGroup("a", "b", "c")
    for _ in range(12):
        group.restart("a", "b")
    found = _found(group)
    assert found["deploy"] == []
    assert {each.who[0] for each in found["flapping"]} == {"a (a)", "b (b)"}


def test_a_group_that_is_stopped_in_the_middle_of_a_deploy_is_out() -> None:
    """The members that were not started again before the stop belonged to the deploy, and lengthened it."""
    group = PlayedGroup("a", "b", "c", "d", "e")
    group.restart("a", "b", "c")
    group.run(20_000)
    for name in "abcde":
        group.leave(name)
    group.run(60_000)
    for name in "abcde":
        group.join(name)
    group.run(30_000)
    found = _found(group)
    assert [each.who for each in found["deploy"]] == [["a (a)", "b (b)", "c (c)"]]
    (outage,) = found["outage"]
    assert outage.text.endswith("; before: all were stopped, and started again: a (a), b (b), c (c) and 2 more")


def test_a_group_whose_members_come_for_a_moment_and_read_nothing_is_out_all_the_time() -> None:
    """The first of three outages was not told, and each return was a deploy in which nothing stood still."""
    group = PlayedGroup("a", "b", "c")
    for _ in range(3):
        for name in "abc":
            group.leave(name)
        group.run(19_500)
        group.stalled = range(group.now_ms, group.now_ms + 700)
        for name in "abc":
            group.join(name)
        group.run(500)
    group.stalled = range(0)
    group.run(30_000)
    found = _found(group)
    (outage,) = found["outage"]
    assert round(outage.ms or 0.0, -3) == 60_000
    assert " (but for 2 short times, in which members read nothing), and at least " in outage.text
    assert found["deploy"] == []


def test_a_deploy_of_a_large_group_is_one_deploy() -> None:
    """Restarts of half of its members within ten minutes were needed, and thirty members took thirty-five."""
    names = [f"m{number}" for number in range(30)]
    group = PlayedGroup(*names, partitions=30)
    for name in names:
        group.restart(name)
        group.run(60_000)
    (deploy,) = _found(group)["deploy"]
    assert deploy.text.startswith("a deploy: 30 members were started again within ")


@pytest.mark.parametrize("surge", [True, False])
def test_members_that_others_on_new_hosts_take_the_place_of_are_a_deploy(surge: bool) -> None:
    """In Kubernetes each new pod has an address of its own: members left and joined, and there was no deploy."""
    group = PlayedGroup("app@1", "app@2", "app@3")
    for number in "123":
        first, then = (group.join, f"app@new{number}"), (group.leave, f"app@{number}")
        for act, name in (first, then) if surge else (then, first):
            act(name)
            group.run(4_000)
    group.run(300_000)
    found = _found(group)
    (deploy,) = found["deploy"]
    assert deploy.text.startswith("a deploy: 3 members were replaced within 20.")
    assert {each.why for each in found["stand-still"]} == {"deploy"}


def test_members_of_a_young_group_that_leave_for_good_are_no_deploy() -> None:
    """Those that stay were there before, and took nobody's place."""
    group = PlayedGroup("app@1", "app@2", "app@3", "app@4")
    for number in "123":
        group.leave(f"app@{number}")
    group.run(300_000)
    assert _found(group)["deploy"] == []


def test_a_crash_some_minutes_before_a_deploy_is_no_part_of_it() -> None:
    """The deploy seemed to last for eight minutes."""
    group = PlayedGroup("a", "b", "c")
    group.restart("a")
    group.run(300_000)
    group.restart("a", "b", "c")
    (deploy,) = _found(group)["deploy"]
    assert round(deploy.ms or 0.0, -3) == 22_000


def test_a_client_that_flaps_in_the_night_and_in_the_morning_is_told_twice() -> None:
    """Only the worse of both was told."""
    group = PlayedGroup("a", "b", "c")
    group.restart(*"aaaa")
    group.run(2 * 3_600_000)
    group.restart(*"aaa")
    group.run(60_000)
    assert sorted(each.text[:18] for each in _found(group)["flapping"]) == ["a (a) went 3 times", "a (a) went 4 times"]


def test_a_member_that_dies_during_a_deploy_has_died() -> None:
    """Its partitions stood still for five times as long as those of the others, and all of it was "a deploy"."""
    group = PlayedGroup("a", "b", "c", "d", "e", "f", partitions=12)
    group.restart("a", "b")
    group.die("f")
    group.run(2_000)
    group.restart("c", "d", "e")
    found = _found(group)
    worst = found["stand-still"][0]
    assert (worst.why, list(worst.who)) == ("died", ["f (f)", "c (c)"])
    assert worst.text.endswith(
        ": f (f) died or lost its connection (no commit for 10.00 s before); at the same time a deploy: c (c) was "
        "started again, like the others"
    )
    assert [each.why for each in found["stand-still"][1:]] == ["deploy"] * 4
    assert len(found["deploy"][0].who) == 5


def test_a_member_that_is_started_again_while_nobody_can_commit_has_not_died() -> None:
    """A database that all groups need was away for 25 s in a rolling restart: silence says nothing of one member."""
    groups = [PlayedGroup("a", "b", "c", group_id=f"g{number}") for number in range(3)]
    for group in groups:
        group.stalled = range(50_000, 75_000)
    groups[0].restart("a", "b", "c")
    for group in groups:
        group.run(150_000 - group.now_ms)
    found = _found(*groups)
    (stopped,) = found["all groups"]
    assert stopped.text.startswith("3 of 3 groups that commit stopped at once")
    assert {each.why for each in found["stand-still"]} == {"deploy"}
    assert [each.who for each in found["deploy"]] == [["a (a)", "b (b)", "c (c)"]]


def test_members_of_one_machine_that_die_together_have_died() -> None:
    """That others fell silent at the same time excuses a member only if they live on."""
    group = PlayedGroup("a", "b", "c", "d")
    group.die("a")
    group.die("b")
    group.die("c")
    group.run(30_000)
    assert {each.why for each in _found(group)["stand-still"]} == {"died"}


def test_a_hang_in_a_group_that_is_stopped_is_told_with_its_outage() -> None:
    """Which of the members hung and which was stopped is the next question."""
    group = PlayedGroup("a", "b")
    hung = group.die("a")
    group.run(3_000)
    group.leave("b")
    group.run(60_000)
    group.join("a", member=hung)
    group.join("b")
    group.run(30_000)
    (outage,) = _found(group)["outage"]
    assert outage.why == "hung"
    assert outage.text.endswith("; before: 2 members went (1 hung: a (a); 1 started again: b (b))")


def test_a_group_that_is_stopped_for_minutes_is_an_outage_and_no_deploy_beside_it() -> None:
    """One sentence says that all were stopped, for how long, and that they were started again."""
    group = PlayedGroup("a", "b")
    group.leave("a")
    group.leave("b")
    group.run(300_000)
    group.join("a")
    group.join("b")
    group.run(30_000)
    found = _found(group)
    (outage,) = found["outage"]
    assert outage.text.endswith("; before: all were stopped, and started again: a (a), b (b)")
    assert found["deploy"] == []


def test_a_member_that_does_not_read_is_told_beside_one_that_died() -> None:
    """The death explained ten seconds of fifty: the longest stood still since another member had hung before."""
    group = PlayedGroup("a", "b", "c")
    group.keep_without_reading("a")
    group.run(40_000)
    group.die("b")
    group.run(60_000)
    worst = _found(group)["stand-still"][0]
    assert worst.why == "died"
    assert worst.text.endswith(
        ": b (b) died or lost its connection (no commit for 10.00 s before); a had 1 partition for 50.00 s without "
        "committing anything new"
    )
