"""Twins: another member in the same state, and the questions that it is asked."""

from __future__ import annotations

import random

import pytest

from kip848_client.member.events import AppPolled, FailureKind, RequestFailed, SubscriptionChanged
from kip848_client.member.member import Member
from kip848_client.member.settings import MemberConfig
from kip848_client.member.states import Phase
from kip848_client.model import Subscription
from kip848_client.simulation import run, scenario_of
from kip848_client.simulation import twin_questions as questions
from kip848_client.simulation.twin_coordinators import ask_about_a_lookup
from kip848_client.simulation.twin_heartbeats import ask_about_an_error
from kip848_client.simulation.twins import Diary, Twin
from kip848_client.simulation.violation import InvariantViolation
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest

CONFIG = MemberConfig(group_id="group", member_id="member")


def told_member(diary: Diary) -> Member:
    """A member whose first lookup of the coordinator failed."""
    member = Member(CONFIG, rng=diary.jitter)
    for now_ms, event in (
        (10, SubscriptionChanged(Subscription(frozenset({"orders"})))),
        (20, AppPolled()),
        (30, RequestFailed(1, FailureKind.TIMED_OUT, "no answer")),
    ):
        diary.told.append((event, now_ms))
        member.step(event, now_ms=now_ms)
    return member


def test_a_twin_is_in_the_state_of_its_original_and_draws_the_same_jitter() -> None:
    """Otherwise a question would be answered by a member that no run ever had."""
    diary = Diary("one", CONFIG, random.Random(4))
    member = told_member(diary)
    twin = diary.twin(random.Random(5), now_ms=40)
    assert twin.member.snapshot() == member.snapshot()
    assert twin.member.deadline_ms() == member.deadline_ms()
    assert twin.member.phase is Phase.JOINING


def test_what_a_twin_is_told_changes_nothing_for_its_original() -> None:
    """A run with questions must be the run without them."""
    diary = Diary("one", CONFIG, random.Random(4))
    member = told_member(diary)
    before, deadline_ms = member.snapshot(), member.deadline_ms()
    twin = diary.twin(random.Random(5), now_ms=40)
    twin.wait(5_000)
    assert twin.asked(FindCoordinatorRequest)
    assert ask_about_a_lookup(twin, random.Random(1))
    assert (member.snapshot(), member.deadline_ms()) == (before, deadline_ms)


def test_a_question_that_does_not_fit_the_moment_is_not_asked() -> None:
    """The next one is tried instead."""
    diary = Diary("one", CONFIG, random.Random(4))
    told_member(diary)
    assert not ask_about_an_error(diary.twin(random.Random(5), now_ms=40), random.Random(1))


def test_a_twin_that_does_wrong_breaks_the_run() -> None:
    """The report says what the twin was asked, and what it did."""
    with pytest.raises(InvariantViolation, match=r"C10: a twin of one \(IDLE, epoch -1\) must wake up; it does \[\]"):
        Twin("one", CONFIG, random.Random(1)).wrong("must wake up")


@pytest.mark.slow
def test_every_question_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fits no moment would check nothing, and nobody would notice."""
    asked: set[str] = set()

    def watched(question: questions.Question) -> questions.Question:
        def ask(twin: Twin, rng: random.Random) -> bool:
            fits = question(twin, rng)
            asked.update({question.__name__} if fits else ())
            return fits

        return ask

    every = set()
    for group in ("OF_THE_MOMENT", "OF_HEARTBEATS", "OF_CALLS"):
        each = getattr(questions, group)
        every |= {question.__name__ for question in each}
        monkeypatch.setattr(questions, group, tuple(map(watched, each)))
    for seed in range(60):
        changes = ("probes=1", "refusals=2", f"assignors={seed % 2}", "behaviour.commit=0.5")
        assert run(scenario_of("mixed", seed=seed, changes=changes), seed=seed, keep_history=False).violation is None
        if asked == every:
            return
    assert sorted(every - asked) == []
