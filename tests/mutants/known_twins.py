"""Bugs in what a member does about answers that are hardly ever given, put in one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from kip848_client.member.commit_requests import FetchResult, read_fetch
from kip848_client.member.commits import Commits
from kip848_client.member.discovery import Discovery
from kip848_client.member.positions import Positions
from tests.mutants.registry import Patch, mutant


@mutant("a committed offset of 0 counts as none", "C10")
def _(patch: Patch) -> None:
    def read_nonzero(*arguments: Any) -> FetchResult:
        found = read_fetch(*arguments)
        return FetchResult(found.code, {key: one for key, one in found.offsets.items() if one.offset}, found.failed)

    patch.setattr("kip848_client.member.offset_fetches.read_fetch", read_nonzero)


@mutant("a commit that nobody waits for any more ends the others", "C10")
def _(patch: Patch) -> None:
    patch.setattr(Commits, "abandon", lambda self, _: self._queue.clear())


@mutant("the answer to an earlier seek is where a partition starts", "C10")
def _(patch: Patch) -> None:
    def listed(self: Positions, request_id: int) -> list[Any]:
        return self._listing.pop(request_id, [])

    patch.setattr(Positions, "_listed", listed)


@mutant("a consumer that assigns partitions itself looks for no coordinator", "C10")
def _(patch: Patch) -> None:
    patch.setattr(Commits, "coordinator_wanted", property(lambda _: False))


@mutant("a member goes on with a coordinator that does not know heartbeats", "C10")
def _(patch: Patch) -> None:
    patch.setattr(Discovery, "highest_version", lambda *_: 1)
