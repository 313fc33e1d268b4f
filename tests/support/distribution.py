"""Which tests run in one process of pytest-xdist, and which are begun first.

The tests of a file stay together, as ``--dist loadfile`` has it, because they share what the file sets up; the whole
folder of Spark stays together, because each process would start a Java machine of its own. (The groups of
``--dist loadgroup`` say the same, but pytest-xdist 3.8 does not see them under pytest 9: it marks the tests by a name
that pytest no longer reads.)
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

_FOLDERS: Final = ("tests/spark/",)
"""Folders whose tests share a thing so dear that one process runs them all."""

LONG: Final = (
    "tests/spark/",
    "tests/simulation/test_safety.py",
    "tests/simulation/test_coverage.py",
    "tests/judge/test_faults.py",
    "tests/judge/test_broker.py",
    "tests/judge/client/test_judging.py",
    "tests/security/test_logins_by_keys.py",
    "tests/examples/test_examples.py",
    "tests/interop/real/test_processes.py",
    "tests/interop/real/test_broker_restarts.py",
    "tests/interop/embedded/test_java_clients.py",
    "tests/interop/embedded/test_java_security.py",
)
"""Shares of few tests that take long, longest first: whichever is begun last, the other processes wait for."""


def share_of(nodeid: str) -> str:
    """The name of the tests that one process runs together with the test *nodeid*."""
    return next((folder for folder in _FOLDERS if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


class StayTogether(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands out whole shares: the long ones, then those of most tests."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        for share in reversed(LONG):
            if share in self.workqueue:
                self.workqueue.move_to_end(share, last=False)
        super()._assign_work_unit(node)
