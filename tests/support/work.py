"""How much a call does, in lines of Python run: the same on every machine, where a duration is not.

For tests that something is not done per record, per batch or per member. How fast the rest is, `benchmarks/` says.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal


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


@contextmanager
def traced(step: Callable[[], None], *modules: str, event: Literal["line", "opcode"] = "line") -> Iterator[None]:
    """Call *step* before each line that this thread runs in *modules*, such as ``...partitions.partition_log``.

    Args:
        step: may raise, which ends the tracing.
        modules: all if none is given.
        event: ``opcode`` for each instruction.
    """

    def trace(frame: FrameType, seen: str, _: Any) -> Any:
        if modules and frame.f_globals.get("__name__") not in modules:
            return None
        frame.f_trace_opcodes = event == "opcode"
        if seen == event:
            step()
        return trace

    before = sys.gettrace()
    # Python 3.12 looks in settrace() whether any frame is traced by instructions, and does not notice one later.
    sys._getframe().f_trace_opcodes = event == "opcode"
    with undisturbed():
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)


def lines_run(call: Callable[[], object], *modules: str) -> int:
    """Lines that *call* runs in *modules*; in all if none is given."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    with traced(step, *modules):
        call()
    return count
