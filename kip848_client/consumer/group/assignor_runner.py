"""Runs a user's `PartitionAssignor` in a thread of its own, so that nothing it does can delay a heartbeat.

One daemon thread for each consumer with local assignors, started by the first call. It makes one call at a time, as the
member asks for them; a call that hangs keeps the thread, and the member, which watches the limit, asks for no other
until it returns. Everything that such a call needs is done here as well: taking the group apart, and checking the
result.

Does not own: limits and what a result means (`member.consumer.assignor_round`), the checks
(`assignors.client.check`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from kip848_client.assignors.client.interface import PartitionAssignor
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import AssignorTimeoutError, ClientAssignorError
from kip848_client.member.core.assignor_events import (
    AssignorCall,
    AssignorEvent,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    RunAssignor,
)
from kip848_client.member.core.assignor_values import advertised, announce, compute
from kip848_client.network.observer import MemberObserver
from kip848_client.network.queues import Latch
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor

_STOP_TIMEOUT_S: Final = 0.5
"""For a call under way when the consumer is closed; the thread is a daemon, so nothing depends on it."""


class FirstDescription:
    """The description of the local assignors that the member needs before it joins the first time.

    Args:
        runner: calls them.
        timeout_s: for the first ``metadata()``.
    """

    def __init__(self, runner: AssignorRunner, *, timeout_s: float) -> None:
        self.runner: Final = runner
        self._timeout_s = timeout_s
        self._described = False

    def first_description(self) -> AssignorsDescribed | None:
        """The event that the member needs before it joins the first time; later it asks by itself.

        Raises:
            ClientAssignorError: ``metadata()`` raised, took too long, or returned what cannot be sent.
        """
        if self._described:
            return None
        described = AssignorsDescribed(self.runner.describe_first(timeout_s=self._timeout_s))
        self._described = True
        return described


class AssignorRunner:
    """The thread for the user's assignors.

    Args:
        assignors: by priority.
        report: takes each answer; called on this thread.
        observer: logs failures.
        name: of the thread.
    """

    def __init__(
        self,
        assignors: Sequence[PartitionAssignor],
        *,
        report: Callable[[AssignorEvent], None],
        observer: MemberObserver,
        name: str,
    ) -> None:
        self.assignors: Final = tuple(assignors)
        self._report = report
        self._observer = observer
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.RLock()  # a signal handler may close the consumer in the middle of a start
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._last: dict[str, Assignor] = {}
        """The last description of each assignor."""

    def perform(self, call: AssignorCall) -> None:
        """Make a call; its answer goes to *report*."""
        self._put(lambda: self._report(self._answer(call)))

    def describe_first(self, *, timeout_s: float) -> tuple[Assignor, ...]:
        """The assignors to advertise when nothing is known yet. Waits for them.

        Raises:
            ClientAssignorError: ``metadata()`` of some assignor raised, or returned what cannot be sent.
            AssignorTimeoutError: it took too long.
        """
        described: list[Assignor] = []
        failures: list[ClientAssignorError] = []
        finished = Latch()

        def describe() -> None:
            try:
                described.extend(map(self._describe, self.assignors))
            except ClientAssignorError as error:
                failures.append(error)
            finally:
                finished.set()

        self._put(describe)
        if not finished.wait(timeout_s):
            raise AssignorTimeoutError(
                f"metadata() of the client-side assignors did not return within {int(timeout_s * 1_000)} ms "
                "(group.local.assignors.timeout.ms)",
                assignor="",
            )
        if failures:
            raise failures[0]
        return tuple(described)

    def stop(self, *, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """End the thread once the call under way returns; waits at most so long for that. May be called twice."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _put(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                return
            if self._thread is None:
                thread = daemon_thread(self._run, self._name)
                thread.start()
                self._thread = thread
        self._calls.put(call)

    # --- on its thread

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._stopped:
                continue
            try:
                call()
            except Exception as error:  # noqa: BLE001  a bug: without this thread no call would ever be answered again
                failure = ClientAssignorError(f"calling the client-side assignors failed: {error!r}", assignor="")
                failure.__cause__ = error
                self._observer.assignor_failed(failure)

    def _answer(self, call: AssignorCall) -> AssignorEvent:
        match call:
            case DescribeAssignors(call_id=call_id):
                return AssignorsDescribed(tuple(map(self._described_again, self.assignors)), call_id)
            case RunAssignor():
                with self._observer.assignor(call.snapshot):
                    done, failure = compute(self.assignors, call)
                if failure is not None:
                    self._observer.assignor_failed(failure)
                return done
            case CallOnAssignment(call_id=call_id):
                for failure in announce(self.assignors, call):
                    self._observer.assignor_failed(failure)
                return OnAssignmentDone(call_id)
            case _:
                assert_never(call)

    def _describe(self, assignor: PartitionAssignor) -> Assignor:
        described = self._last[assignor.name] = advertised(assignor)
        return described

    def _described_again(self, assignor: PartitionAssignor) -> Assignor:
        try:
            return self._describe(assignor)
        except ClientAssignorError as error:
            self._observer.assignor_failed(error)
            return self._last[assignor.name]
