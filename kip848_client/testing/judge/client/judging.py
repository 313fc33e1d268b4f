"""`ClientJudge`: lets the referee watch a running broker or proxy, and makes a report of what it found.

The broker's thread tells the referee; any thread may ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.judge.client.findings import BrokenRule
from kip848_client.testing.judge.client.referee import JUDGED, Referee
from kip848_client.testing.judge.client.scenarios import COMPANION, SCENARIOS, Stage
from kip848_client.testing.judge.rulebook import rulebook
from kip848_client.testing.judge.verdicts import Judgement, Outcome, Verdict
from kip848_client.wire.schema import Request, Response


class ClientJudge:
    """Watches all clients of a broker or proxy, from its construction until `stop`.

    Args:
        target: whose clients are judged. It may be started later, and again.
        ignore: numbers of rules in docs/protocol.md that are not judged, as ``{"R39"}``.

    Raises:
        ConfigError: there is no such rule, or it is not judged.

    Example::

        with EmbeddedBroker({"orders": 6}) as broker, ClientJudge(broker) as judge:
            run_my_client(broker.bootstrap_servers)
            judge.check()
    """

    def __init__(self, target: EmbeddedBroker | FaultProxy, *, ignore: Iterable[str] = ()) -> None:
        self.target: Final = target
        self._began_s: Final = time.monotonic()
        self._changed: Final = threading.Condition()
        self._failure: Exception | None = None
        self._referee: Final = Referee(
            topic_name=target.requests._topic_name, ignore=[_number(name) for name in ignore]
        )
        target.requests._watch(self)

    # --- for tests, from any thread

    @property
    def broken(self) -> Verdict | None:
        """The first rule that a client broke; None as long as all is well."""
        self._raise_failure()
        found = self._referee.broken
        return None if found is None else self._differs(found)

    @property
    def members(self) -> int:
        """How many members of groups were seen."""
        return self._referee.members

    def check(self) -> None:
        """Raise if a rule was broken.

        Raises:
            AssertionError: one was; the message names it, with the last exchange.
        """
        broken = self.broken
        if broken is not None:
            raise AssertionError(in_words(broken))

    def wait_until_broken(self, timeout_s: float) -> Verdict | None:
        """Wait until a rule is broken, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._referee.findings.broken, timeout_s)
        return self.broken

    def play(self, *scenarios: str, patience_s: float = 60.0) -> None:
        """Bring the client that is watched into situations in which members break rules, one after the other.

        Args:
            scenarios: ``fenced``, ``coordinator-moves``, ``lost-answers``, ``topic-grows`` or ``slow-poll``.
            patience_s: how long the client may take for each step.

        Raises:
            AssertionError: a rule was broken.
            SceneError: a scenario cannot be played to its end; the message says why.
            ConfigError: there is no such scenario.
        """
        stage = Stage(self, patience_s=patience_s)
        for name in scenarios:
            if name not in SCENARIOS:
                raise ConfigError(f"play({name!r}): there is no such scenario; there are {', '.join(SCENARIOS)}")
            SCENARIOS[name](stage)
            self.check()

    def report(self, *, subject: str = "the client", facts: dict[str, str] | None = None) -> Judgement:
        """A verdict for each rule that is judged; one that never came up cannot be tried."""
        self._raise_failure()
        findings = self._referee.findings
        broken: dict[int, BrokenRule] = {}
        for found in tuple(findings.broken):
            broken.setdefault(found.rule, found)
        untried = self._referee.untried()
        verdicts = []
        for number, rule in rulebook().items():
            notes = tuple(findings.notes.get(number, ()))
            if number in broken:
                verdicts.append(self._differs(broken[number]))
            elif findings.kept[number] or notes:
                verdicts.append(Verdict(rule, Outcome.HOLDS, notes=notes))
            elif number in untried:
                verdicts.append(Verdict(rule, Outcome.CANNOT_BE_TRIED, why=JUDGED[number]))
        return Judgement(
            subject=subject,
            reference="the rules of docs/protocol.md that a client shows on the wire",
            verdicts=tuple(verdicts),
            duration_s=time.monotonic() - self._began_s,
            facts={"members": str(self.members)} | (facts or {}),
        )

    def missed(self, rule: int, group_id: str, member_id: str, *, expected: str, seen: str) -> None:
        """Write down that a member did not do in time what a rule demands; for scenarios."""
        self._referee.missed(rule, (group_id, member_id), expected=expected, seen=seen)
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Watch no longer. A second call does nothing."""
        self.target.requests._unwatch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- for the request log, on the broker's thread

    def asked(self, context: RequestContext, request: Request[Response]) -> None:
        """A request was read."""
        if context.client_id == COMPANION:
            return
        try:
            self._referee.asked(
                request,
                connection_id=context.connection_id,
                correlation_id=context.correlation_id,
                client_id=context.client_id,
                api_version=context.api_version,
                now_ms=_now_ms(),
            )
        except Exception as failure:  # noqa: BLE001 - a mistake of the referee must not stop the broker
            self._failed(failure)
        if self._referee.findings.broken:
            with self._changed:
                self._changed.notify_all()

    def answered(self, context: RequestContext, response: Response | None) -> None:
        """Its answer is about to be written."""
        if context.client_id == COMPANION:
            return
        try:
            self._referee.answered(
                response,
                connection_id=context.connection_id,
                correlation_id=context.correlation_id,
                now_ms=_now_ms(),
            )
        except Exception as failure:  # noqa: BLE001 - as above
            self._failed(failure)

    # --- internals

    def _failed(self, failure: Exception) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise IllegalStateError(
                f"the referee itself failed, please report it: {self._failure!r}"
            ) from self._failure

    def _differs(self, found: BrokenRule) -> Verdict:
        return Verdict(
            rulebook()[found.rule],
            Outcome.DIFFERS,
            asked=f"{found.member} after {found.moment_ms / 1000 - self._began_s:.3f} s: {found.asked}",
            expected=found.expected,
            seen=found.seen,
            exchange=found.exchange,
        )


def in_words(verdict: Verdict) -> str:
    """A broken rule with what was said before it, in lines."""
    said = [f"  {one.sender} -> {one.receiver}: {one.text}" for one in verdict.exchange]
    return "\n".join(
        [
            f"{verdict.rule.name} is broken: {verdict.rule.plain_sentence}",
            f"  {verdict.asked}",
            f"  expected: {verdict.expected}",
            f"  seen:     {verdict.seen}",
            "the last exchange:",
            *said,
        ]
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _number(name: str) -> int:
    number = int(name[1:]) if name[:1] == "R" and name[1:].isdigit() else 0
    if number not in JUDGED:
        raise ConfigError(f"ignore={name!r} is not a rule that is judged; those are R{', R'.join(map(str, JUDGED))}")
    return number
