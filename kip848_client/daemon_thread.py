"""Makes the threads of this library: daemons, each in an empty context.

Python without the GIL gives a new thread the context of the one that made it (``sys.flags.thread_inherit_context``). In
a thread that lives longer, that would be wrong for ever: anyio would believe that the event loop of the application
runs there, and log lines would carry the trace in which the consumer was made.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def daemon_thread(target: Callable[P, object], name: str | None, *args: P.args, **kwargs: P.kwargs) -> threading.Thread:
    """Make a thread that calls *target*; it is not started yet."""
    context = contextvars.Context()
    return threading.Thread(target=lambda: context.run(target, *args, **kwargs), name=name, daemon=True)
