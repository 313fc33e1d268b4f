"""Being removed, coming too late, failing: seen from the coordinator, with callbacks that are slow or raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kip848_client import MemberState
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    CommitFailedError,
    FatalGroupError,
    IllegalStateError,
    ListenerError,
    MaxPollExceededError,
)
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce, keys_of
from tests.interop.client.scripted import HEARTBEAT, ScriptedCoordinator, without_heartbeats
from tests.interop.client.watched import Watched
from tests.support.waiting import assert_stays, wait_until

pytestmark = pytest.mark.interop

FENCED = int(ErrorCode.FENCED_MEMBER_EPOCH)
UNKNOWN = int(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.fixture
def member(scripted: ScriptedCoordinator, watch: Watch) -> Watched:
    """A member that owns ``orders-0`` and ``orders-1``."""
    scripted.start_with({"orders": [0, 1]})
    return watch().subscribe().drive_to("report 1 orders-0 orders-1", "heartbeat 1")


def refused_meanwhile(scripted: ScriptedCoordinator, member: Watched, code: int) -> Callable[[Any], None]:
    """A callback during which a heartbeat is answered with *code*, and which returns when the member knows."""

    def callback(_: Any) -> None:
        before = member.consumer.state
        scripted.script(HEARTBEAT, code)
        wait_until(lambda: member.consumer.state is not before)

    return callback


# ------------------------------------------------------------------------------------------------------------- fenced


def test_fenced_while_its_leave_calls_revoked(scripted: ScriptedCoordinator, member: Watched) -> None:
    """Nothing to leave any more: no leave is sent, close() returns, and a commit of the callback fails."""
    failed: list[str] = []

    def revoked(_: Any) -> None:
        refused_meanwhile(scripted, member, FENCED)(_)
        wait_until(lambda: member.consumer.state is MemberState.UNJOINED)
        try:
            member.consumer.commit(offsets=[at(0, 5)], asynchronous=False)
        except CommitFailedError as error:
            failed.append(type(error).__name__)

    member.hooks["revoked"] = revoked
    member.consumer.close(timeout_s=60)
    assert not any(words.startswith("leave") for words in scripted.story)
    assert member.told[-1] == "revoked orders-0 orders-1"
    assert [request.generation_id_or_member_epoch for request in scripted.commits] in ([], [-1])


def at(partition: int, offset: int) -> Any:
    from kip848_client import TopicPartition

    return TopicPartition("orders", partition, offset)


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
def test_fenced_inside_a_callback_of_a_reconciliation(
    scripted: ScriptedCoordinator, member: Watched, callback: str
) -> None:
    """The late end of the callback belongs to a life that is over: it acknowledges nothing."""
    member.hooks[callback] = refused_meanwhile(scripted, member, FENCED)
    scripted.give({"orders": [1, 2]})
    member.drive(lambda: any(words.startswith("lost") for words in scripted.story))
    member.hooks.clear()
    scripted.give({"orders": [1, 2]})
    member.drive(lambda: member.assigned == [1, 2]).drive_to("join", "assigned orders-1 orders-2")
    story = without_heartbeats(scripted.story)
    lost = "lost orders-1" if callback == "revoked" else "lost orders-1 orders-2"
    middle = ["revoked orders-0"] if callback == "revoked" else ["revoked orders-0", "assigned orders-2"]
    begin = story.index("revoked orders-0")
    assert story[begin : begin + len(middle) + 3] == [*middle, lost, "join", "assigned orders-1 orders-2"]


def raising(_: Any) -> None:
    raise ValueError("the listener is broken")


def test_records_are_read_again_after_a_fence(scripted: ScriptedCoordinator, member: Watched, produce: Produce) -> None:
    """Nothing was committed, so the new life begins where the old one did; and nothing is left out."""
    produce("orders", 5, partitions=[0, 1])
    member.drive(lambda: len(member.records) == 10)
    scripted.script(HEARTBEAT, UNKNOWN)
    member.drive(lambda: len(member.records) == 20)
    assert set(member.records) == keys_of("orders", 5, partitions=[0, 1])


# ------------------------------------------------------------------------------------------------- callbacks that raise


def test_revoked_that_raises_is_called_again_and_not_acknowledged(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    member.hooks["revoked"] = raising
    scripted.give({"orders": [0]})
    member.drive(lambda: scripted.story.count("revoked orders-1") == 2)
    assert member.consumer.state is MemberState.RECONCILING
    assert "report 2 orders-0" not in scripted.story
    produce("orders", 3, partitions=[0, 1])
    del member.hooks["revoked"]
    member.drive_to("report 2 orders-0").drive(lambda: len(member.records) >= 3).drive_for(0.1)
    assert {partition for _, partition, _ in member.records} == {0}
    assert member.told == ["assigned orders-0 orders-1", *["revoked orders-1"] * 3, "assigned nothing"]


def test_assigned_that_raises_is_called_again_and_nothing_is_read_meanwhile(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    produce("orders", 3, partitions=[2])
    member.hooks["assigned"] = raising
    scripted.give({"orders": [0, 1, 2]})
    member.drive(lambda: scripted.story.count("assigned orders-2") >= 3)
    assert member.records == []
    assert not any(words.startswith("report 2") for words in scripted.story)
    del member.hooks["assigned"]
    member.drive_to("report 2 orders-0 orders-1 orders-2").drive(lambda: len(member.records) == 3)


def test_revoked_that_raises_at_close_does_not_keep_the_leave(scripted: ScriptedCoordinator, member: Watched) -> None:
    member.hooks["revoked"] = raising
    with pytest.raises(ListenerError, match="the listener is broken"):
        member.consumer.close(timeout_s=60)
    assert scripted.story[-2:] == ["revoked orders-0 orders-1", "leave -1"]
    assert member.consumer.close() is None  # type: ignore[func-returns-value]  # the second one does nothing


def test_an_interrupted_callback_is_reported(scripted: ScriptedCoordinator, member: Watched) -> None:
    """Ctrl-C inside a listener comes out as KeyboardInterrupt; the next poll() goes on."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    member.hooks["assigned"] = interrupted
    scripted.give({"orders": [0, 1, 2]})
    with pytest.raises(KeyboardInterrupt):
        member.drive_for(60)
    member.hooks.clear()
    member.drive_to("assigned orders-2", "assigned orders-2", "report 2 orders-0 orders-1 orders-2")


# ------------------------------------------------------------------------------------------------ max.poll.interval.ms


@pytest.mark.parametrize(("conf", "leave"), [({}, "leave -1"), ({"group.instance.id": "i"}, "leave -2")])
def test_a_member_that_does_not_poll_leaves_and_comes_back(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce, conf: dict[str, str], leave: str
) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(max_poll_interval_ms=1_000, **conf).subscribe().drive_to("report 1 orders-0")
    wait_until(lambda: scripted.story[-1] == leave)
    seen = len(scripted.heartbeats)
    assert_stays(lambda: len(scripted.heartbeats) == seen, 0.2)
    assert member.told == ["assigned orders-0"]
    produce("orders", 3, partitions=[0])
    member.drive_to(leave, "lost orders-0", "join", "assigned orders-0", "report 1 orders-0")
    member.drive(lambda: len(member.records) == 3)
    assert [type(error) for error in member.errors] == [MaxPollExceededError]


def test_a_callback_slower_than_the_poll_interval_is_evicted_and_comes_back(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(max_poll_interval_ms=1_000).subscribe()
    member.hooks["assigned"] = lambda _: wait_until(lambda: scripted.story[-1] == "leave -1")
    member.drive_to("assigned orders-0", "leave -1", "lost orders-0")
    member.hooks.clear()
    member.drive_to("lost orders-0", "join", "assigned orders-0", "report 1 orders-0")
    assert "report 1 orders-0" not in scripted.story[: scripted.story.index("lost orders-0")]


def test_waiting_inside_poll_is_polling(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(max_poll_interval_ms=1_000).subscribe().drive_to("report 1 orders-0")
    assert member.consumer.poll(2.0) is None
    assert without_heartbeats(scripted.story)[-1] == "report 1 orders-0"


# ------------------------------------------------------------------------------------------------------ fatal errors

FATAL = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.FENCED_INSTANCE_ID, 9999)
"""A missing permission, another process, and an unknown code; the others are in `tests/spec`."""


@pytest.mark.parametrize("code", FATAL, ids=str)
@pytest.mark.parametrize("moment", ["join", "acknowledgement"])
def test_a_fatal_code_ends_everything(scripted: ScriptedCoordinator, watch: Watch, code: int, moment: str) -> None:
    scripted.start_with({"orders": [0]})
    (scripted.script_reports if moment == "acknowledgement" else partial(scripted.script, HEARTBEAT))(int(code))
    member = watch().subscribe().drive(lambda: member_failed(scripted)).drive_for(0.15)
    assert member.told == ([] if moment == "join" else ["assigned orders-0", "lost orders-0"])
    assert len(member.errors) == 1
    assert isinstance(member.errors[0], FatalGroupError)
    assert "words of the coordinator" in str(member.errors[0])
    assert member.assigned == []
    with pytest.raises(FatalGroupError):
        member.consumer.subscribe(["orders"])
    refused = scripted.heartbeats[-1]
    assert len(scripted.heartbeats) == 1 or refused.topic_partitions
    member.consumer.close(timeout_s=2)
    assert scripted.heartbeats[-1] is refused


def member_failed(scripted: ScriptedCoordinator) -> bool:
    return any(words.startswith("raised") for words in scripted.story)


def test_a_closed_consumer_says_that_it_is(member: Watched) -> None:
    member.consumer.close()
    for call in (member.consumer.poll, lambda: member.consumer.subscribe(["x"]), member.consumer.commit):
        with pytest.raises(IllegalStateError):
            call()
