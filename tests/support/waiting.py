"""Waiting for something that offers no event to wait on: foreign clients, child processes, threads that must go.

The one place where a test lets time pass for real. Whatever can be awaited as a condition of ours (a future, a queue, a
group's state) is awaited there and not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_PAUSE_S: Final = 0.005

TIMEOUT_S: Final = 120.0
"""How long a test waits for what must come about: of a thread, a child process, a client, a server.

Only a failing test waits for as long; a machine that is busy with thirty other things needs most of a minute.
"""

SOON_S: Final = 20.0
"""The limit for a call that ends soon, or by a deadline of less than two seconds, as opposed to one that waits.

Less than everything that it might wait for by mistake (the time-outs of a request, of a call, of a session are half a
minute and more), and many times what it needs: machines that run tests pause, and no test may fail for that.
"""


def wait_until(
    predicate: Callable[[], object],
    timeout_s: float = TIMEOUT_S,
    what: str = "the condition",
    *,
    every_s: float = _PAUSE_S,
) -> None:
    """Ask *predicate* again and again until it is true.

    Args:
        every_s: between two questions; longer where asking would be the load of the test.

    Raises:
        AssertionError: it was not true within *timeout_s*; the message says *what* was awaited.
    """
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what} did not come about within {timeout_s} s")
        time.sleep(every_s)  # nothing signals the awaited state: it is asked again until the deadline above


def outlast(for_s: float) -> None:
    """Be the slow user code that a test is about: a callback that takes *for_s*."""
    time.sleep(for_s)  # it is the thing that is tested, and no wait for anything
