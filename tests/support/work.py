"""How much a call does, in lines of Python run: the same on every machine, where a duration is not.

For tests that something is not done per record, per batch or per member. How fast the rest is, `benchmarks/` says.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def undisturbed() -> Iterator[None]:
    """Collect no garbage in the block: it is due when other tests have made enough of it.

    A collection runs Python code in the middle of whatever is traced: finalizers of what earlier tests left behind, and
    hypothesis's own measurement of collections.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def lines_run(call: Callable[[], object], *modules: str) -> int:
    """Lines that *call* runs, in *modules* such as ``kip848_client.partition_log``; in all if none is given."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if modules and frame.f_globals.get("__name__") not in modules:
            return None
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    with undisturbed():
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
    return count
