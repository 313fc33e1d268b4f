"""Several errors wait for one poll(): the first is raised, the others are logged, and nothing is lost by that."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from kip848_client.errors import ListenerError, TopicAuthorizationError
from kip848_client.logs import LogEvent
from kip848_client.member.states import MemberState
from kip848_client.model import Subscription
from tests.threads.bench import Bench, ScriptedCoordinator, closing


@pytest.fixture
def bench() -> Iterator[Bench]:
    with closing(Bench(ScriptedCoordinator())) as bench:
        yield bench


def poll_until_error(bench: Bench) -> Exception:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            bench.member.poll(0.01)
        except Exception as error:
            return error
    raise AssertionError(f"no error came out of poll(); told {bench.callbacks.calls}, {bench.manager.view}")


def test_the_first_error_is_raised_and_the_other_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An exception can carry one story; the other one must not vanish without a trace."""
    denied = TopicAuthorizationError("DESCRIBE is missing on orders")
    failures = [OSError("disk full")]

    def act(_: str) -> None:
        if failures:
            bench.thread.errors.append(denied)
            raise failures.pop()

    bench.callbacks.act = act
    bench.member.subscribe(Subscription(frozenset({"orders"})), bench.callbacks)
    with caplog.at_level(logging.WARNING):
        error = poll_until_error(bench)

    assert error is denied
    dropped = [record for record in caplog.records if LogEvent.ERROR_DROPPED in record.getMessage()]
    assert len(dropped) == 1
    assert "disk full" in dropped[0].getMessage()


def test_after_the_error_the_member_goes_on(bench: Bench) -> None:
    """poll() raised: the next one takes up the rebalance where it was."""
    failures = [OSError("disk full")]

    def act(_: str) -> None:
        if failures:
            raise failures.pop()

    bench.callbacks.act = act
    bench.member.subscribe(Subscription(frozenset({"orders"})), bench.callbacks)
    assert isinstance(poll_until_error(bench), ListenerError)
    deadline_s = time.monotonic() + 60
    while bench.member.view.state is not MemberState.STABLE:
        assert time.monotonic() < deadline_s
        bench.member.poll(0.01)
    assert bench.callbacks.calls == [("assigned", [0, 1]), ("assigned", [0, 1])]
    assert not bench.thread.errors
