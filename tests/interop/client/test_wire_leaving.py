"""Leaving, closing and what is in the way of it, seen from the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kip848_client import KafkaError, LeaveMode, MemberState
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import IllegalStateError
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import COMMIT, FIND, HEARTBEAT, HOLD, ScriptedCoordinator, without_heartbeats
from tests.interop.client.watched import Watched
from tests.support.waiting import SOON_S, assert_stays, outlast, wait_until

pytestmark = pytest.mark.interop


def seconds(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


def test_unsubscribe_revokes_leaves_and_returns(scripted: ScriptedCoordinator, member: Watched) -> None:
    member.consumer.unsubscribe()
    assert without_heartbeats(scripted.story)[-2:] == ["revoked orders-0", "leave -1"]
    assert member.assigned == []
    assert member.consumer.member_epoch == -1
    seen = len(scripted.story)
    assert_stays(lambda: scripted.story[seen:] == [], 0.15)


def test_unsubscribe_without_a_coordinator_returns(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.always(FIND, HOLD)
    scripted.disconnect()
    wait_until(lambda: any(not one.answered for one in scripted.of(FIND)))
    assert seconds(member.consumer.unsubscribe) < SOON_S
    assert member.told[-1] == "revoked orders-0"
    assert "leave -1" not in scripted.story


def test_a_leave_that_is_never_answered_ends_at_the_deadline(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(default_api_timeout_ms=500).subscribe().drive_to("report 1 orders-0")
    scripted.always(HEARTBEAT, lambda request: HOLD if request.member_epoch < 0 else None)
    assert 0.4 < seconds(member.consumer.unsubscribe) < SOON_S
    assert member.consumer.state is MemberState.UNJOINED


def test_subscribe_and_unsubscribe_in_quick_succession(scripted: ScriptedCoordinator, watch: Watch) -> None:
    member = watch()
    for _ in range(2):
        member.subscribe().poll(0)
        member.consumer.unsubscribe()
    member.subscribe().poll(0)
    member.subscribe()
    member.consumer.unsubscribe()
    assert member.errors == []
    assert member.consumer.state is MemberState.UNJOINED


def test_the_same_without_a_cluster(watch: Watch, scripted: ScriptedCoordinator) -> None:
    scripted.stop()
    member = watch()
    for _ in range(2):
        member.subscribe().poll(0)
        assert seconds(member.consumer.unsubscribe) < SOON_S
    assert seconds(member.consumer.close) < SOON_S


def test_close_commits_revokes_leaves_in_that_order(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce
) -> None:
    produce("orders", 5, partitions=[0])
    scripted.start_with({"orders": [0]})
    member = watch(enable_auto_commit=True).subscribe().drive_to("report 1 orders-0")
    member.drive(lambda: len(member.records) == 5)
    member.consumer.close()
    assert without_heartbeats(scripted.story)[-3:] == ["commit 1", "revoked orders-0", "leave -1"]
    assert list(scripted.committed.values()) == [5]
    seen = len(scripted.story)
    assert_stays(lambda: scripted.story[seen:] == [], 0.1)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_close_in_no_time_still_leaves(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce, auto_commit: bool
) -> None:
    produce("orders", 5, partitions=[0])
    scripted.start_with({"orders": [0]})
    member = watch(enable_auto_commit=auto_commit).subscribe().drive_to("report 1 orders-0")
    member.drive(lambda: len(member.records) == 5)
    assert seconds(lambda: member.consumer.close(timeout_s=0)) < SOON_S
    wait_until(lambda: scripted.story[-1] == "leave -1")
    assert member.told[-1] == "revoked orders-0"


def test_a_silent_coordinator_gets_the_leave_all_the_same(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce
) -> None:
    """The commit before it is not answered either; it must not eat all the time."""
    produce("orders", 5, partitions=[0])
    scripted.start_with({"orders": [0]})
    member = watch(enable_auto_commit=True).subscribe().drive_to("report 1 orders-0")
    member.drive(lambda: len(member.records) == 5)
    scripted.always(COMMIT, HOLD)
    scripted.always(HEARTBEAT, HOLD)
    assert seconds(lambda: member.consumer.close(timeout_s=2.0)) < SOON_S
    assert "commit 1" in scripted.story
    assert scripted.story[-1] == "leave -1"


def test_close_with_asynchronous_commits_and_no_coordinator(scripted: ScriptedCoordinator, member: Watched) -> None:
    from kip848_client import TopicPartition

    scripted.always(FIND, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    scripted.disconnect()
    told: list[object] = []
    wait_until(lambda: len(scripted.of(FIND)) >= 2)
    for offset in range(3):
        member.consumer.commit(
            offsets=[TopicPartition("orders", 0, offset)], on_commit=lambda error, _: told.append(error)
        )
    assert seconds(lambda: member.consumer.close(timeout_s=60)) < SOON_S
    assert len(told) == 3
    assert all(isinstance(error, KafkaError) for error in told)


def test_close_twice_is_once(scripted: ScriptedCoordinator, member: Watched) -> None:
    member.consumer.close()
    member.consumer.close()
    assert scripted.story.count("leave -1") == 1
    assert member.told.count("revoked orders-0") == 1


MODES: list[tuple[str | None, LeaveMode, str | None]] = [
    (None, LeaveMode.DEFAULT, "leave -1"),
    (None, LeaveMode.LEAVE_GROUP, "leave -1"),
    (None, LeaveMode.REMAIN_IN_GROUP, None),
    ("i", LeaveMode.DEFAULT, "leave -2"),
    ("i", LeaveMode.LEAVE_GROUP, "leave -1"),
    ("i", LeaveMode.REMAIN_IN_GROUP, "leave -2"),
]


@pytest.mark.parametrize(("instance", "mode", "said"), MODES)
def test_how_a_member_leaves(
    scripted: ScriptedCoordinator, watch: Watch, instance: str | None, mode: LeaveMode, said: str | None
) -> None:
    scripted.start_with({"orders": [0]})
    conf = {} if instance is None else {"group.instance.id": instance}
    member = watch(**conf).subscribe().drive_to("report 1 orders-0")
    member.consumer.close(mode=mode)
    assert [words for words in scripted.story if words.startswith("leave")] == ([] if said is None else [said])
    assert member.told[-1] == "revoked orders-0"


@pytest.mark.parametrize("callback", ["assigned", "revoked", "lost"])
@pytest.mark.parametrize("call", ["unsubscribe", "subscribe", "close", "poll"])
def test_calls_from_inside_a_callback_never_hang(
    scripted: ScriptedCoordinator, member: Watched, callback: str, call: str
) -> None:
    """unsubscribe() and subscribe() do what they say, later; close() and poll() are refused."""
    refused: list[str] = []

    def hook(_: Any) -> None:
        del member.hooks[callback]
        try:
            if call == "subscribe":
                member.subscribe("orders", "more")
            elif call == "poll":
                member.consumer.poll(0.1)
            else:
                getattr(member.consumer, call)()
        except IllegalStateError as error:
            refused.append(str(error))

    member.hooks[callback] = hook
    if callback == "lost":
        scripted.script(HEARTBEAT, int(ErrorCode.FENCED_MEMBER_EPOCH))
    else:
        scripted.give({"orders": [1]})
    member.drive(lambda: callback not in member.hooks)
    if call == "unsubscribe":
        wait_until(lambda: member.consumer.state is MemberState.UNJOINED)
        assert member.assigned == []
    else:
        member.drive(lambda: member.consumer.state is MemberState.STABLE)
    assert bool(refused) == (call in {"close", "poll"})


def test_a_slow_revoked_callback_at_close_keeps_its_place_in_the_group(
    scripted: ScriptedCoordinator, member: Watched
) -> None:
    """Heartbeats with the epoch go on while it runs, and the leave follows, though the time of close() is over."""
    began = len(scripted.story)

    def slow(_: Any) -> None:
        outlast(0.4)
        wait_until(lambda: scripted.story[began:].count("heartbeat 1") >= 5)

    member.hooks["revoked"] = slow
    member.consumer.close(timeout_s=0.2)
    wait_until(lambda: scripted.story[-1] == "leave -1")
