"""What all tests share: hypothesis profiles, a broker and a connection to it, and the check that no thread is left.

Also which tests stay together in one process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.journal import MemoryJournal
from kip848_client.testing.judge.broker.connection import RawConnection
from tests.support.brokers import marked_broker

# No deadline per example, nor a limit for making them: a shared machine pauses, and a slow example is not a wrong one.
_SLOWLY: Final[dict[str, Any]] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("dev", max_examples=30, **_SLOWLY)
hypothesis.settings.register_profile("ci", max_examples=100, print_blob=True, **_SLOWLY)
hypothesis.settings.register_profile("nightly", max_examples=2_000, print_blob=True, **_SLOWLY)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# A shell that starts the tests in the background has SIGINT ignored, and every process under it inherits that; the
# tests that interrupt a child process mean a child that can be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_OURS = "kip848-"
"""Every thread of the library has this prefix."""

_JOIN_TIMEOUT_S = 30.0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Several processes, whatever ``--dist`` says: tests stay together that share what is dear to make."""
    from tests.support.distribution import StayTogether

    return StayTogether(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show how tests failed that passed when they were run once more; a file can collect their names."""
    reports = terminalreporter.stats.get("rerun", [])
    for report in reports:
        terminalreporter.section(f"failed, and was run once more: {report.nodeid}", red=True)
        terminalreporter.write_line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.section(name, sep="-")
            terminalreporter.write_line(text)
    if reports and (path := os.environ.get("RERUNS_FILE")):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{report.nodeid}\n" for report in reports)


@pytest.fixture
def journal() -> MemoryJournal:
    """The event log of `broker`."""
    return MemoryJournal()


@pytest.fixture
def broker(request: pytest.FixtureRequest, journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    """A broker with four partitions of ``orders``, unless a marker says otherwise."""
    with marked_broker(request, topics={"orders": 4}, journal=journal) as running:
        yield running


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[RawConnection]:
    """A connection to `broker`."""
    with RawConnection(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    """Closing a consumer or a broker ends its threads; a test that leaves one has found a leak."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith(_OURS)]
    for thread in left:
        thread.join(_JOIN_TIMEOUT_S)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads still alive after the test: {alive}"
