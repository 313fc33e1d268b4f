"""Fault rules of a running broker: made on any thread, applied on the broker's. Their meaning: `testing.faults`.

`Faults` is what tests hold as ``broker.faults``; a `FaultRule` is one rule of it, with its counters and its hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import ConfigError, IllegalStateError, ProtocolError, RequestTimeoutError
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.logged_request import api_title
from kip848_client.testing.broker.net.loop_thread import wait_s
from kip848_client.testing.broker.net.server import ClientConnection
from kip848_client.testing.faults.actions import Action
from kip848_client.testing.faults.perform import OnResponse, perform
from kip848_client.testing.faults.rules import ApiSelector, FaultBook, Match, Rule, select_apis
from kip848_client.testing.faults.subject import Subject, TopicNames
from kip848_client.wire.schema import Request, Response

Handle = Callable[[Request[Response], RequestContext], None]
"""Handles a request as if there were no rule; the answer goes to the context."""

OnFault = Callable[[RequestContext, Subject, Action], None]
"""Told about each request that a rule takes."""


class FaultRule:
    """One rule. Made by `Faults.on`; in a ``with`` statement it ends with the block."""

    def __init__(self, faults: Faults, rule: Rule) -> None:
        self._faults: Final = faults
        self._rule: Final = rule
        self._held: list[Callable[[], None]] = []

    @property
    def hits(self) -> int:
        """Requests to which it did something."""
        return self._rule.hits

    @property
    def matches(self) -> int:
        """Requests that matched, those before ``nth`` included."""
        return self._rule.matches

    @property
    def spent(self) -> bool:
        """Whether it has done all it had to do."""
        return self._rule.spent

    @property
    def held(self) -> int:
        """Requests that wait for `release` now."""
        return len(self._held)

    def wait(self, timeout_s: float = 30.0, *, hits: int = 1) -> Self:
        """Wait until it has done something to *hits* requests.

        Raises:
            RequestTimeoutError: it has not; the message shows the rule and its counters.
            IllegalStateError: the rule itself failed: its predicate or function raised, or its action does not fit.
        """
        with self._faults._changed:
            self._faults._changed.wait_for(lambda: self.hits >= hits or self._rule.failure, wait_s(timeout_s))
            self.check()
            if self.hits < hits:
                raise RequestTimeoutError(f"after {timeout_s} s, {hits} hits were expected of the fault rule: {self}")
        return self

    def release(self) -> int:
        """Let the requests go on that it holds now; return how many these are. Later ones are held again."""
        with self._faults._changed:
            held, self._held = self._held, []
        for callback in held:
            self._faults._run_on_loop(callback)
        return len(held)

    def cancel(self) -> None:
        """Take the rule out and release the requests that it holds."""
        self._faults._remove(self)
        self.release()

    def check(self) -> None:
        """Raise what went wrong inside the rule, if anything did.

        Raises:
            IllegalStateError: its predicate or function raised, or its action does not fit the request.
        """
        if self._rule.failure is not None:
            raise IllegalStateError(
                f"the fault rule failed, and did nothing to that request: {self._rule.failure!r}; the rule: {self}"
            ) from self._rule.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def __str__(self) -> str:
        return str(self._rule)

    # --- for the exchange

    def _keep(self, callback: Callable[[], None]) -> None:
        """Hold a request until `release`; one that the rule took just before it was cancelled goes on at once."""
        with self._faults._changed:
            holds = self._rule in self._faults._rules
            if holds:
                self._held.append(callback)
                self._faults._changed.notify_all()
        if not holds:
            callback()

    def _forget_held(self) -> None:
        """The broker stopped: drop its requests."""
        self._held = []

    def _failed(self, failure: Exception) -> None:
        """Remember what went wrong."""
        log_event(logging.WARNING, LogEvent.FAULT_RULE_FAILED, logger=BROKER_LOGGER, exc_info=failure, rule=self)
        with self._faults._changed:
            self._rule.failure = failure
            self._faults._changed.notify_all()


class Faults:
    """The fault rules of one broker; they outlive its restarts.

    Args:
        clock: lets a `ManualClock` decide when a delay is over.
        topic_name: resolves topic ids.
        serves: whether the broker serves an API; rules for others are refused. Without it everything is allowed.
        on_fault: called on the broker's thread for each request that a rule takes.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        topic_name: TopicNames,
        serves: Callable[[int], bool] | None = None,
        on_fault: OnFault | None = None,
    ) -> None:
        self._clock: Final = clock
        self._topic_name: Final = topic_name
        self._serves: Final = serves
        self._on_fault: Final = on_fault
        self._book: Final = FaultBook(random.Random())
        self._rules: dict[Rule, FaultRule] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._delayed: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._changed: Final = threading.Condition()
        """Notified when a counter moves."""

    # --- for tests, from any thread

    def on(
        self,
        api: ApiSelector | Iterable[ApiSelector] | None,
        *script: Action,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        when: Callable[[Any], object] | None = None,
        nth: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> FaultRule:
        """Apply actions to requests that match all arguments, from now on.

        If several rules match a request, the oldest one decides, until it is used up.

        Args:
            api: by key, by Kafka's name or by the class of the request; several in a list; None for any.
            script: what is done: the first request gets the first action, the second one the second, ...
            group: id of a group.
            member: member id or group instance id.
            topic: by name, whether the request has the name or the id.
            partition: number of a partition of *topic*, or of any.
            node_id: the broker that gets the request, where there are several.
            when: a predicate over the decoded request, called on the broker's thread.
            nth: the first matching request that counts.
            times: how often the script is played; `ALWAYS` has no limit.
            probability: with which a matching request counts at all; see `seed`.

        Raises:
            ConfigError: the API is not known or not served, or an argument makes no sense.

        Example::

            rule = broker.faults.on("OffsetCommit", lose_reply(), group="billing")
            ...
            rule.wait()
        """
        apis = select_apis(api)
        if apis is not None and self._serves is not None:
            served = frozenset(filter(self._serves, apis))
            if not served:
                names = " or ".join(map(api_title, sorted(apis)))
                raise ConfigError(f"{names} is not served here: a fault rule for it would never act")
            apis = served
        match = Match(
            apis=apis,
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
            when=when,
        )
        rule = Rule(match, script, nth=nth, times=times, probability=probability)
        handle = FaultRule(self, rule)
        with self._changed:
            self._rules[rule] = handle
            self._book.add(rule)
        return handle

    def clear(self) -> None:
        """Take all rules out, and let everything go on that they hold."""
        for rule in self:
            rule.cancel()

    def seed(self, seed: int) -> None:
        """Let rules with a probability act on the same requests in every run."""
        with self._changed:
            self._book.rng = random.Random(seed)

    def check(self) -> None:
        """Raise what went wrong inside a rule, if anything did; the ``kip848_broker`` fixture calls it at the end.

        Raises:
            IllegalStateError: a predicate or function raised, or an action does not fit its request.
        """
        for rule in self:
            rule.check()

    def __iter__(self) -> Iterator[FaultRule]:
        """The rules that were not cancelled, oldest first."""
        with self._changed:
            return iter(tuple(self._rules.values()))

    def __len__(self) -> int:
        return len(self._rules)

    # --- for the broker, on its thread

    @property
    def _armed(self) -> bool:
        """Whether there is any rule; asked for every request."""
        return bool(self._rules)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The broker serves, on *loop*."""
        self._loop = loop

    def _detach(self) -> None:
        """The broker ends; what waits here goes with it."""
        self._loop = None
        self._delayed.clear()
        for rule in self:
            rule._forget_held()

    def _intercept(
        self,
        request: Request[Response],
        context: RequestContext,
        connection: ClientConnection,
        *,
        node_id: int,
        handle: Handle,
    ) -> bool:
        """Let the rules have a look at *request*; whether one of them took it."""
        subject = Subject(
            request,
            api_key=context.api_key,
            api_version=context.api_version,
            client_id=context.client_id,
            topic_name=self._topic_name,
            node_id=node_id,
        )
        with self._changed:
            decision = self._book.decide(subject)
            rule = None if decision is None else self._rules[decision.rule]
            self._changed.notify_all()
        if decision is None or rule is None:
            return False
        if self._on_fault is not None:
            self._on_fault(context, subject, decision.action)
        perform(
            decision.action, _Exchange(self, rule, context, connection, handle), rule=decision.rule, subject=subject
        )
        return True

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call back after *delay_ms*: of the `ManualClock` if there is one, else of real time."""
        if isinstance(self._clock, ManualClock):
            self._sequence += 1
            heapq.heappush(self._delayed, (self._clock.now_ms() + delay_ms, self._sequence, callback))
        elif self._loop is not None:
            self._loop.call_later(delay_ms / 1000, callback)

    def _run_due(self) -> None:
        """Do the delayed work that is due, after the `ManualClock` was moved."""
        while self._delayed and self._delayed[0][0] <= self._clock.now_ms():
            heapq.heappop(self._delayed)[2]()

    # --- for the rules

    def _run_on_loop(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the broker's thread, if there still is one."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the broker was stopped in this moment
                loop.call_soon_threadsafe(callback)

    def _remove(self, rule: FaultRule) -> None:
        """Take *rule* out."""
        with self._changed:
            for pure, handle in tuple(self._rules.items()):
                if handle is rule:
                    del self._rules[pure]
                    self._book.remove(pure)


class _Exchange:
    """One request of a client of this broker, as `perform` sees it."""

    def __init__(
        self, faults: Faults, rule: FaultRule, context: RequestContext, connection: ClientConnection, handle: Handle
    ) -> None:
        self._faults: Final = faults
        self._rule: Final = rule
        self._context: Final = context
        self._connection: Final = connection
        self._handle: Final = handle

    def apply(self, request: Request[Response], on_response: OnResponse) -> None:
        try:
            self._handle(request, self._context.fork(on_response))
        except ProtocolError as error:  # from a timer there is no connection above that would catch it
            self._connection.refuse(str(error))

    def reply(self, response: Response | None) -> None:
        if not self._context.done:
            self._context.reply(response)

    def reply_cut(self, response: Response | None, *, byte_count: int) -> None:
        self._context.cut_to = byte_count
        self.reply(response)

    def fall_silent(self) -> None:
        """The request stays first in the connection's queue, unanswered, and all others wait behind it."""

    def end(self, *, reset: bool) -> None:
        if reset:
            self._connection.reset()
        else:
            self._context.cut_to = 0
            self.reply(None)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._faults._call_later(delay_ms, callback)

    def hold(self, callback: Callable[[], None]) -> None:
        self._rule._keep(callback)

    def failed(self, failure: Exception) -> None:
        self._rule._failed(failure)
