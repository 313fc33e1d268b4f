"""`LiveBroker`: the thread and the state of a broker while it runs, and how any other thread calls a function there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from kip848_client.errors import ForkedProcessError, IllegalStateError
from kip848_client.testing.broker.cluster.fail_over import FailOver
from kip848_client.testing.broker.net.loop_thread import LoopThread
from kip848_client.testing.broker.state import BrokerState

ResultT = TypeVar("ResultT")


class BrokerRun(NamedTuple):
    """One run of a broker, from its start to its end.

    Attributes:
        fail_over: the steps when a node goes or comes back.
        process_id: of the process that started it.
    """

    thread: LoopThread
    state: BrokerState
    fail_over: FailOver
    bootstrap_servers: str
    process_id: int


class LiveBroker:
    """A broker that runs, or does not. Every call waits for its result, and raises its error."""

    def __init__(self) -> None:
        self._run: BrokerRun | None = None
        self._ending: Final = threading.Lock()

    def begin(self, thread: LoopThread, state: BrokerState, fail_over: FailOver, *, bootstrap_servers: str) -> None:
        """The broker runs from now on, in this process."""
        self._run = BrokerRun(thread, state, fail_over, bootstrap_servers, os.getpid())

    def end(self) -> BrokerRun | None:
        """The broker stops; returns the run that ends.

        Returns:
            None if there was none, or if this is a forked child: it has the object, but neither thread nor loop, and
            its parent's broker runs on.

        Raises:
            IllegalStateError: this is the broker's own thread.
        """
        with self._ending:  # of two threads that stop it, one does
            run = self._run
            if run is None or run.process_id != os.getpid():
                return None
            run.thread.refuse_own_thread()
            self._run = None
        return run

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._run is not None

    def on_loop(self, function: Callable[[BrokerState], ResultT]) -> ResultT:
        """Call *function* with the state, on the broker's thread.

        Raises:
            IllegalStateError: it does not run.
            ForkedProcessError: it runs in another process.
        """
        run = self.current()
        return run.thread.call(lambda: function(run.state))

    def current(self) -> BrokerRun:
        """The run of now.

        Raises:
            As `on_loop`.
        """
        run = self._run
        if run is None:
            raise IllegalStateError("the broker is not running; call start() or use it in a with statement")
        if run.process_id != os.getpid():
            raise ForkedProcessError(
                f"the broker on {run.bootstrap_servers} runs in process {run.process_id}; "
                "a child may connect to it, but only its parent may call its methods"
            )
        return run
