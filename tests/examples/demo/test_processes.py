"""Worker processes are heard to the end, can be killed, and none outlives the demo."""

from __future__ import annotations

import os
import signal

import pytest
from demo.processes import Ended, News, Said, Workers
from demo.reports import Left, Started, Troubled

WAIT_S = 60.0


def start(workers: Workers) -> int:
    worker = workers.start("w")
    assert workers.news.get(timeout=WAIT_S) == Said("w", Started(worker.pid))
    return worker.pid


def news_until_the_end(workers: Workers) -> list[News]:
    news = [workers.news.get(timeout=WAIT_S)]
    while not isinstance(news[-1], Ended):
        news.append(workers.news.get(timeout=WAIT_S))
    return news


def stub(behaviour: str) -> Workers:
    return Workers(behaviour, module="tests.examples.demo.stub_worker")


def test_a_worker_that_is_asked_to_leave_is_heard_to_its_end() -> None:
    """Its last reports count flights: losing them would look like lost records."""
    with stub("obeys") as workers:
        start(workers)
        workers["w"].leave()
        assert news_until_the_end(workers) == [Said("w", Left()), Ended("w", 0, ("w says hello",))]


def test_a_killed_worker_ends_with_its_signal() -> None:
    """The demo tells a crash that it caused from one that it did not by this number."""
    with stub("obeys") as workers:
        start(workers)
        workers["w"].kill()
        (ended,) = news_until_the_end(workers)
        assert isinstance(ended, Ended)
        assert ended.exit_code == -signal.SIGKILL


def test_a_line_that_was_cut_short_never_happened() -> None:
    """A worker may be killed in the middle of a report: half a line must not be read as a whole one."""
    with stub("half-writes") as workers:
        start(workers)
        workers["w"].kill()
        assert all(isinstance(news, Ended) for news in news_until_the_end(workers))


def test_a_worker_that_fails_shows_what_it_wrote_to_stderr() -> None:
    """A person who sees the demo fail has only this to go by."""
    with stub("fails") as workers:
        start(workers)
        assert news_until_the_end(workers) == [Ended("w", 3, ("w says hello",))]


def test_what_is_not_a_report_is_told_and_not_fatal() -> None:
    """A library may print to standard output; the demo must go on."""
    with stub("babbles") as workers:
        start(workers)
        said = workers.news.get(timeout=WAIT_S)
        assert isinstance(said, Said)
        assert isinstance(said.report, Troubled)


def test_no_worker_outlives_the_demo() -> None:
    """A demo that fails half way must not leave consumers behind that hold a group for ever."""

    def fail_half_way() -> None:
        with stub("obeys") as workers:
            pids.append(start(workers))
            raise RuntimeError("half way")

    pids: list[int] = []
    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
