"""A conversation as data: the rule that it tries, its steps, and which other answers of Apache Kafka are right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.classic_steps import ClassicHeartbeat, ClassicJoin, ClassicLeave, ClassicSync
from kip848_client.testing.judge.broker.share_steps import Produce, ShareAcknowledge, ShareFetch, ShareHeartbeat
from kip848_client.testing.judge.broker.steps import Asking, ChangeTopic, Heartbeat

Request: TypeAlias = (
    Asking
    | ClassicJoin
    | ClassicSync
    | ClassicHeartbeat
    | ClassicLeave
    | ShareHeartbeat
    | ShareFetch
    | ShareAcknowledge
    | Produce
)
JOINING: Final = 400
"""The rule about an ordinary join: nearly no other can be tried on a broker that breaks it."""
DESCRIBING: Final = 475
"""The rule about descriptions. Where it does not hold, other conversations do not look at any."""


class Await(msgspec.Struct, frozen=True):
    """Let a time limit of the broker run out, which began when the step before was sent.

    Args:
        step: asked again and again, until the answer is the one of a broker on which the limit has run out.
        after_ms: the limit; None for the session timeout, which is the broker's.
        beats: heartbeats of members that stay alive meanwhile.
    """

    step: Request
    after_ms: int | None = None
    beats: tuple[Heartbeat, ...] = ()


class RestartBroker(msgspec.Struct, frozen=True):
    """The broker is restarted here."""


Step: TypeAlias = Request | ChangeTopic | Await | RestartBroker


class Older(msgspec.Struct, frozen=True):
    """What older versions of Apache Kafka answer otherwise, which is right as well.

    Args:
        versions: such as ``up to 4.3``.
        what: what they do, in words.
        code: the error code that they answer; what follows in the story is not tried then.
        difference: a regular expression for every difference, as `comparison.disagreements` writes it.
    """

    versions: str
    what: str
    code: ErrorCode | None = None
    difference: str = ""

    def explains(self, differences: Sequence[str], codes: Iterable[int]) -> bool:
        """Whether there is nothing else.

        Args:
            codes: all error codes of the answer.
        """
        if self.code is not None:
            return self.code in codes
        return bool(differences) and all(re.fullmatch(self.difference, difference) for difference in differences)


class Story(msgspec.Struct, frozen=True):
    """One conversation.

    Args:
        rule: its number in docs/protocol.md.
        steps: what is said. Whatever is answered must be answered as by the reference.
        needs: rules without which this one cannot be tried.
        exact: at so many steps at the end, an answer must be the reference's as a whole. Elsewhere a member may get its
            target some heartbeats later, and be told its assignment once more.
        sizes: compare how many partitions members have, and not which.
        epochs: compare the epochs of the group and its members.
        older: what else is right.
    """

    rule: int
    steps: tuple[Step, ...]
    needs: tuple[int, ...] = (JOINING,)
    exact: int = 0
    sizes: bool = False
    epochs: bool = True
    older: tuple[Older, ...] = ()

    @property
    def makes_topics(self) -> bool:
        """Whether it makes its topics itself; others share theirs."""
        return any(isinstance(step, ChangeTopic) for step in self.steps)

    @property
    def waits(self) -> bool:
        """Whether it lets time limits run out."""
        return any(isinstance(step, Await) for step in self.steps)

    @property
    def restarts(self) -> bool:
        """Whether the broker is restarted in it."""
        return any(isinstance(step, RestartBroker) for step in self.steps)

    def requests(self) -> Iterator[Request]:
        """Every request that it makes."""
        for step in self.steps:
            if isinstance(step, Await):
                yield step.step
            elif not isinstance(step, ChangeTopic | RestartBroker):
                yield step
