"""Which tests run in one process of pytest-xdist.

The tests of a file stay together, as ``--dist loadfile`` has it, because they share what the file sets up; the whole
folder of Spark stays together, because each process would start a Java machine of its own. (The groups of
``--dist loadgroup`` say the same, but pytest-xdist 3.8 does not see them under pytest 9: it marks the tests by a name
that pytest no longer reads.)
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

__all__ = ["StayTogether", "share_of"]

_FOLDERS: Final = ("tests/spark/",)
"""Folders whose tests share a thing so dear that one process runs them all."""


def share_of(nodeid: str) -> str:
    """The name of the tests that one process runs together with the test *nodeid*."""
    return next((folder for folder in _FOLDERS if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


class StayTogether(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands out whole shares."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
