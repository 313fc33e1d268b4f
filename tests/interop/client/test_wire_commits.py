"""Commits and committed offsets, seen from the coordinator: epochs, retries, errors, and who is told."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kip848_client import ErrorDetails, TopicPartition
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    BrokerError,
    CommitFailedError,
    Kip848Error,
    RequestTimeoutError,
    RetriableCommitFailedError,
)
from kip848_client.model import TopicPartition as Name
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import (
    CLOSE,
    COMMIT,
    FIND,
    HEARTBEAT,
    ScriptedCoordinator,
)
from tests.interop.client.watched import Watched
from tests.support.waiting import SOON_S

pytestmark = pytest.mark.interop

STALE = int(ErrorCode.STALE_MEMBER_EPOCH)
LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
UNKNOWN_MEMBER = int(ErrorCode.UNKNOWN_MEMBER_ID)
P0 = [TopicPartition("orders", 0, 3)]


@pytest.fixture
def member(scripted: ScriptedCoordinator, watch: Watch) -> Watched:
    """A member that owns ``orders-0`` at epoch 5."""
    scripted.give({"orders": [0]}, epoch=5)
    return watch().subscribe().drive_to("report 5 orders-0", "heartbeat 5")


@pytest.fixture
def reader(scripted: ScriptedCoordinator, watch: Watch, produce: Produce) -> Watched:
    """A member that commits by itself every 400 ms, and has read five records of ``orders-0``."""
    produce("orders", 5, partitions=[0])
    scripted.give({"orders": [0]}, epoch=5)
    member = watch(enable_auto_commit=True, auto_commit_interval_ms=400).subscribe()
    return member.drive(lambda: len(member.records) == 5 and "report 5 orders-0" in scripted.story)


def epochs(scripted: ScriptedCoordinator) -> list[int]:
    return [request.generation_id_or_member_epoch for request in scripted.commits]


def offsets(request: Any) -> dict[int, int]:
    return {one.partition_index: one.committed_offset for topic in request.topics for one in topic.partitions}


def commit(member: Watched, *, timeout_s: float = 60.0, at: list[TopicPartition] | None = None) -> None:
    member.consumer.commit(offsets=at or P0, asynchronous=False, timeout_s=timeout_s)


def test_a_commit_names_member_and_epoch(scripted: ScriptedCoordinator, member: Watched) -> None:
    commit(member)
    (request,) = scripted.commits
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, member.consumer.member_id)


def test_a_manual_assignment_commits_without_an_epoch(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce
) -> None:
    produce("orders", 4, partitions=[0])
    member = watch()
    member.consumer.assign([TopicPartition("orders", 0)])
    member.drive(lambda: len(member.records) == 4)
    member.consumer.commit(asynchronous=False)
    (request,) = scripted.commits
    assert (request.generation_id_or_member_epoch, request.member_id, offsets(request)) == (-1, "", {0: 4})
    assert scripted.heartbeats == []


@pytest.mark.parametrize("code", [14, 16, 3])
def test_a_synchronous_commit_is_retried_until_it_works(
    scripted: ScriptedCoordinator, member: Watched, code: int
) -> None:
    lookups = len(scripted.of(FIND))
    scripted.script(COMMIT, code, code)
    commit(member)
    assert len(scripted.commits) == 3
    assert len(scripted.of(FIND)) - lookups == (2 if code in {15, 16, 7} else 0)
    assert scripted.committed == {Name("orders", 0): 3}


def test_a_synchronous_commit_gives_up_at_its_deadline_and_says_why(
    scripted: ScriptedCoordinator, member: Watched
) -> None:
    scripted.always(COMMIT, LOADING)
    began_s = time.monotonic()
    with pytest.raises(RequestTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        commit(member, timeout_s=0.4)
    assert 0.35 < time.monotonic() - began_s < SOON_S
    assert len(scripted.commits) >= 3


def test_a_stale_commit_without_a_newer_epoch_fails(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.always(COMMIT, STALE)
    began_s = time.monotonic()
    with pytest.raises(CommitFailedError, match="stale"):
        commit(member, timeout_s=3.0)  # the first answer arrives in it, also on a busy machine
    assert time.monotonic() - began_s < SOON_S
    assert len(scripted.commits) == 1


def asynchronous(member: Watched) -> list[Exception | None]:
    told: list[Exception | None] = []
    main = threading.get_ident()

    def on_commit(error: ErrorDetails | None, _: object) -> None:
        assert threading.get_ident() == main
        told.append(error.exception if error is not None else None)

    member.consumer.commit(offsets=P0, on_commit=on_commit)
    member.drive(lambda: told)
    return told


@pytest.mark.parametrize("answer", [14, 16, CLOSE], ids=repr)
def test_an_asynchronous_commit_is_one_attempt(scripted: ScriptedCoordinator, member: Watched, answer: Any) -> None:
    lookups = len(scripted.of(FIND))
    scripted.script(COMMIT, answer)
    (error,) = asynchronous(member)
    assert isinstance(error, RetriableCommitFailedError)
    assert len(scripted.commits) == 1
    if answer is CLOSE:
        member.drive(lambda: len(scripted.of(FIND)) == lookups + 1)
    assert member.told == ["assigned orders-0"]


@pytest.mark.parametrize("code", [30, 82, 9999])
def test_an_error_that_does_not_pass_is_raised_once(scripted: ScriptedCoordinator, member: Watched, code: int) -> None:
    scripted.always(COMMIT, code)
    with pytest.raises((BrokerError, CommitFailedError)):
        commit(member)
    assert len(scripted.commits) == 1
    member.drive_for(0.1)
    assert member.told == ["assigned orders-0"]


# --------------------------------------------------------------------------------------------------------- auto-commit


def test_committing_inside_callbacks(scripted: ScriptedCoordinator, member: Watched) -> None:
    """Inside revoked it works; inside lost it cannot."""
    failed: list[Exception] = []

    def inside_lost(_: Any) -> None:
        try:
            commit(member)
        except Kip848Error as error:
            failed.append(error)

    member.hooks["revoked"] = lambda _: commit(member)
    member.hooks["lost"] = inside_lost
    scripted.give({"orders": [1]})
    member.drive_to("revoked orders-0", "commit 6", "assigned orders-1", "report 6 orders-1")
    scripted.script(HEARTBEAT, int(ErrorCode.FENCED_MEMBER_EPOCH))
    member.drive(lambda: failed)
    assert isinstance(failed[0], CommitFailedError)
    assert len(scripted.commits) == 1


def test_a_synchronous_commit_ends_after_the_asynchronous_one_before_it(
    scripted: ScriptedCoordinator, member: Watched
) -> None:
    told: list[str] = []
    scripted.script(COMMIT, LOADING)
    member.consumer.commit(offsets=P0, on_commit=lambda error, _: told.append(type(error and error.exception).__name__))
    commit(member)
    assert told == ["RetriableCommitFailedError"]
    scripted.script(COMMIT, LOADING)
    member.consumer.commit(offsets=P0, on_commit=lambda error, _: told.append(type(error and error.exception).__name__))
    member.consumer.commit(offsets=[], asynchronous=False)
    assert len(told) == 2


def test_a_commit_that_stays_stale_until_the_session_ends_does_not_keep_close(
    scripted: ScriptedCoordinator, reader: Watched
) -> None:
    def stale_then_gone(_: Any) -> Any:
        scripted.always(HEARTBEAT, UNKNOWN_MEMBER)
        return STALE

    reader.consumer.seek(TopicPartition("orders", 0, 1))
    scripted.committed.clear()
    scripted.always(COMMIT, stale_then_gone)
    began_s = time.monotonic()
    reader.consumer.close(timeout_s=60)
    assert time.monotonic() - began_s < SOON_S
    assert scripted.committed == {}
