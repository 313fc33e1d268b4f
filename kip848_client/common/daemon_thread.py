"""Makes the threads of this library: daemons, each in an empty context; and says what the process lacks for one.

Python without the GIL gives a new thread the context of the one that made it (``sys.flags.thread_inherit_context``). In
a thread that lives longer, that would be wrong for ever: anyio would believe that the event loop of the application
runs there, and log lines would carry the trace in which the consumer was made.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec

from kip848_client.errors import OutOfResourcesError

P = ParamSpec("P")


def daemon_thread(target: Callable[P, object], name: str | None, *args: P.args, **kwargs: P.kwargs) -> threading.Thread:
    """Make a thread that calls *target*; it is not started yet.

    Its ``start()`` raises `OutOfResourcesError` if the process may have no more threads.
    """
    context = contextvars.Context()
    return _Thread(target=lambda: context.run(target, *args, **kwargs), name=name, daemon=True)


class _Thread(threading.Thread):
    def start(self) -> None:
        try:
            super().start()
        except RuntimeError as error:
            raise OutOfResourcesError(
                f"the thread {self.name} cannot be started: {error}; let this process have more (ulimit -u, or the "
                "limit of its container)"
            ) from error


def no_event_loop(error: OSError) -> OutOfResourcesError:
    """The error of a call that needs an event loop, which could not be made."""
    return OutOfResourcesError(
        f"no event loop can be made: {error.strerror or error}; close files that this process has open, or let it have "
        "more (ulimit -n)"
    )
