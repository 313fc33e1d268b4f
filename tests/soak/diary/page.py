"""The page of the diary: it follows the groups, begins again in the middle, and tells from its file what went wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from kip848_client.tools.groups.follower import now_ms
from kip848_client.tools.page.analysis import OF_NOW, what_went_wrong
from kip848_client.tools.page.follower import Board, Following, PageFollower
from tests.support.waiting import wait_until

_DAY_MS = 86_400_000


class DiaryPage:
    """One page, and its file."""

    def __init__(self, bootstrap: str, file: Path) -> None:
        self._bootstrap, self._file = bootstrap, file
        self._board = Board()
        self._following = self._begin()
        self.restarts = 0

    def begin_again(self) -> None:
        """End it, and start another one on the same file."""
        self._following.stop()
        self._following = self._begin()
        self.restarts += 1

    def findings(self, group_id: str, *, from_ms: float) -> list[dict[str, Any]]:
        """What its file and the last commits say of a group."""
        follower = self._board.follower
        assert follower is not None
        with contextlib.closing(follower.history.reader()) as reader:
            found = what_went_wrong(
                reader, group_id, follower.untold(group_id), from_ms=int(from_ms), to_ms=now_ms(), is_now=True
            )
        return [msgspec.to_builtins(each) for each in found if each.kind not in OF_NOW and each.start_ms >= from_ms]

    def wait_until_live(self) -> None:
        """The history has been read."""
        wait_until(lambda: self._board.status.phase == "live", what="the page's history")

    def shown_lately(self, from_ms: float) -> list[dict[str, Any]]:
        """What its first page says of the time since then."""
        follower = self._board.follower
        assert follower is not None
        with contextlib.closing(follower.history.reader()) as reader:
            return [msgspec.to_builtins(each) for each in reader.findings(from_ms=int(from_ms), to_ms=now_ms())]

    def close(self) -> None:
        """End it."""
        self._following.stop()

    def _begin(self) -> Following:
        def make() -> PageFollower:
            return PageFollower(
                {"bootstrap.servers": self._bootstrap},
                self._board,
                file=self._file,
                size_max=10**9,
                keep_ms=_DAY_MS,
                lag_every_s=1.0,
            )

        following = Following(self._board, make)
        following.start()
        return following
