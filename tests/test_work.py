"""Counting the lines that a call runs."""

from __future__ import annotations

import gc

from tests.support.work import lines_run


class InACircle:
    """What only the collector removes, and what runs code of its own when that happens."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        """Two lines that were never called."""
        self.itself = self
        self.itself = self


def test_what_the_collector_runs_is_not_counted() -> None:
    """Without this a count would depend on garbage that earlier tests left behind."""
    before = gc.get_threshold()
    gc.collect()
    try:
        gc.set_threshold(100)
        counts = {lines_run(lambda: [InACircle() for _ in range(1_000)]) for _ in range(3)}
    finally:
        gc.set_threshold(*before)
        gc.collect()
    assert len(counts) == 1
    assert counts.pop() < 2_500
    assert gc.isenabled()
