"""Decides which request gets which action, and how often. Does not carry out actions.

A rule has a script of one or more actions. The first request that matches gets the first, the next one the second, and
so on; the whole script is played `times` times. Then the rule is spent, and no request matches it.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from kip848_client.common.typed import text, whole_number
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.testing.faults import actions
from kip848_client.testing.faults.actions import Action
from kip848_client.testing.faults.subject import Element, Subject, api_keys
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response

ALWAYS: Final = None
"""`times` of a rule that is never spent."""

ApiSelector = ApiKey | str | type[Request[Response]]
"""An API by its key, by Kafka's name in any spelling, or by the class of its requests."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a rule matches. A field that is None matches every request.

    Attributes:
        apis: keys of APIs.
        group: it names this group.
        member: it is sent for the member with this member id or group instance id.
        topic: it names this topic, by name or id, or asks for all topics.
        partition: it names this partition (of `topic`, if that is given).
        node_id: this broker received it.
        when: a predicate over the decoded request.
    """

    apis: frozenset[int] | None = None
    group: str | None = None
    member: str | None = None
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    node_id: int | None = None
    when: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        for name in ("group", "member", "client_id", "topic"):
            if (given := getattr(self, name)) is not None:
                text(given, name=name)
        for name in ("partition", "node_id"):
            if (given := getattr(self, name)) is not None:
                whole_number(given, name=name)

    def fits(self, subject: Subject) -> bool:
        """Whether *subject* matches. An error that `when` raises is passed on."""
        return (
            (self.apis is None or subject.api_key in self.apis)
            and (self.client_id is None or self.client_id == subject.client_id)
            and (self.node_id is None or self.node_id == subject.node_id)
            and (self.group is None or self.group in subject.groups)
            and (self.member is None or self.member in subject.members)
            and self._fits_topic(subject)
            and (self.when is None or bool(self.when(subject.request)))
        )

    def wanted(self, subject: Subject) -> Callable[[Element], bool] | None:
        """Which elements of *subject* match; None if the whole request does."""
        one_of_several = self.group is not None and len(subject.groups) > 1
        if self.topic is None and self.partition is None and not one_of_several:
            return None
        return self._wants

    def _wants(self, item: Element) -> bool:
        return (
            (self.group is None or item.group is None or self.group == item.group)
            and (self.topic is None or self.topic == item.topic)
            and (self.partition is None or self.partition == item.partition)
            and item != Element()
        )

    def _fits_topic(self, subject: Subject) -> bool:
        if self.topic is None and self.partition is None:
            return True
        topics = subject.topics
        if topics is None:
            return True
        if self.partition is None:
            return self.topic in topics
        return any(
            item.partition == self.partition and (self.topic is None or item.topic == self.topic)
            for item in subject.partitions
        )

    def __str__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in self._criteria() if value is not None]
        apis = "any API" if self.apis is None else " or ".join(_api_name(key) for key in sorted(self.apis))
        return " ".join([apis, *parts, *(["when ..."] if self.when is not None else [])])

    def _criteria(self) -> Iterable[tuple[str, object]]:
        for name in ("group", "member", "client_id", "topic", "partition", "node_id"):
            yield name, getattr(self, name)


class Decision(NamedTuple):
    """A rule's decision about one request."""

    rule: Rule
    action: Action


class Rule:
    """One rule and its counters.

    Args:
        match: which requests.
        script: what is done to the first of them, the second, ...
        nth: the first match that counts, from 1; those before it pass by.
        times: how often the script is played; `ALWAYS` has no limit.
        probability: with which a match counts at all, 0 to 1.

    Attributes:
        matches: requests that matched so far, whether or not something was done to them.
        hits: those to which something was done.
        failure: what went wrong inside the rule (its predicate or function raised, or its action does not fit the
            request); the request concerned was treated as if there were no rule.

    Raises:
        ConfigError: a number is out of range, or the script is empty.
    """

    __slots__ = ("_left", "_nth", "_probability", "failure", "hits", "match", "matches", "script", "times")

    def __init__(
        self,
        match: Match,
        script: Sequence[Action],
        *,
        nth: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> None:
        if not script:
            raise ConfigError("a fault rule needs an action: error(...), drop(), lose_reply(), ...")
        for action in script:
            if not isinstance(action, get_args(Action)):
                name = getattr(action, "__name__", None)
                called = f"; write {name}()" if name in actions.__all__ else ""
                raise ArgumentTypeError(f"{action!r} is not an action of a fault rule{called}")
        if times is not None:
            whole_number(times, name="times")
        if whole_number(nth, name="nth") < 1:
            raise ConfigError(f"nth={nth}: requests are counted from 1")
        if times is not None and times < 1:
            raise ConfigError(f"times={times}: a rule acts at least once; ALWAYS (None) has no limit")
        if not 0.0 <= probability <= 1.0:
            raise ConfigError(f"probability={probability} is not between 0 and 1")
        self.match: Final = match
        self.script: Final = tuple(script)
        self.times: Final = times
        self._nth: Final = nth
        self._probability: Final = probability
        self._left = None if times is None else times * len(self.script)
        self.matches: int = 0
        self.hits: int = 0
        self.failure: Exception | None = None

    @property
    def spent(self) -> bool:
        """Whether the rule has played its script as often as it should."""
        return self._left is not None and self.hits >= self._left

    def decide(self, subject: Subject, rng: random.Random) -> Action | None:
        """The action for *subject*, or None if this rule has none. Counts the request."""
        if self.spent:
            return None
        try:
            if not self.match.fits(subject):
                return None
        except Exception as failure:  # noqa: BLE001 - the predicate is the user's; the waiting call raises the error
            self.failure = failure
            return None
        self.matches += 1
        if self.matches < self._nth or (self._probability < 1.0 and rng.random() >= self._probability):
            return None
        action = self.script[self.hits % len(self.script)]
        self.hits += 1
        return action

    def __str__(self) -> str:
        times = "always" if self.times is None else "once" if self.times == 1 else f"{self.times} times"
        script = ", ".join(map(str, self.script))
        return f"{self.match}: {script} ({times}; {self.matches} matched, {self.hits} hit)"


class FaultBook:
    """Rules in the order in which they were made; the first that has an action for a request decides.

    Args:
        rng: draws for rules with a probability; nothing else is random.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rules: tuple[Rule, ...] = ()
        self.rng = rng

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, spent ones included."""
        return self._rules

    def add(self, rule: Rule) -> None:
        """Add *rule* after the others."""
        self._rules = (*self._rules, rule)

    def remove(self, rule: Rule) -> None:
        """Remove *rule*, if it is there."""
        self._rules = tuple(other for other in self._rules if other is not rule)

    def clear(self) -> None:
        """Remove all rules."""
        self._rules = ()

    def decide(self, subject: Subject) -> Decision | None:
        """The action of the first rule that has one for *subject*; None without one."""
        for rule in self._rules:
            action = rule.decide(subject, self.rng)
            if action is not None:
                return Decision(rule, action)
        return None


def select_apis(selector: ApiSelector | Iterable[ApiSelector] | None) -> frozenset[int] | None:
    """The keys that *selector* means; None for every API.

    Raises:
        ConfigError: a name is not one of Kafka's.
    """
    if selector is None:
        return None
    if isinstance(selector, ApiKey):
        return frozenset({int(selector)})
    if isinstance(selector, type):
        return frozenset({int(selector.WIRE.api_key)})
    if isinstance(selector, str):
        try:
            return frozenset(map(int, api_keys(selector)))
        except KeyError:
            near = difflib.get_close_matches(selector, [_api_name(key) for key in ApiKey], n=1)
            hint = f"did you mean {near[0]}?" if near else "names are those of Kafka's protocol, such as OffsetCommit"
            raise ConfigError(f"{selector!r} is not an API of Kafka; {hint}") from None
    return frozenset().union(*(select_apis(one) or frozenset() for one in selector))


def _api_name(api_key: int) -> str:
    return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))
