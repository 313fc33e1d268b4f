"""Judge a broker: make what the conversations need, hold them all, and take away what was made."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from kip848_client.errors import ErrorCode, Kip848Error, error_name
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import GROUP_RESOURCE, Shared, Side, rows, wait_until
from kip848_client.testing.judge.broker.steps import Epoch, Heartbeat, Owned
from kip848_client.testing.judge.broker.story import DESCRIBING, Story
from kip848_client.testing.judge.broker.trial import (
    TOPICS,
    Difference,
    Expected,
    StoryTrial,
    Timing,
    apis_of,
    ask,
    expectations,
)
from kip848_client.testing.judge.rulebook import rulebook
from kip848_client.testing.judge.verdicts import Judgement, Outcome, Said, Verdict
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair

REFERENCE: Final = "the answers of Apache Kafka 4.4.0"
AT_ONCE: Final = 8
"""Conversations that are held at the same time."""
START_S: Final = 15.0
RESTART_S: Final = 90.0
_SETTINGS: Final = (
    ("consumer.assignment.interval.ms", "0"),
    ("consumer.assignor.offload.enable", "false"),
    ("share.assignment.interval.ms", "0"),
    ("share.assignor.offload.enable", "false"),
    ("share.auto.offset.reset", "earliest"),
)
"""So that targets are computed at once, where a broker can be told so, and no record is missed. Others have time."""
_DELETE: Final = 1
_SESSION: Final = "consumer.session.timeout.ms"
_SHORT_SESSION_MS: Final = 6_000
"""Where a broker lets a group choose, and heartbeats often enough. By default Kafka takes no less than 45 s."""
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Outcomes(msgspec.Struct, frozen=True):
    """How one story ended."""

    story: Story
    difference: Difference | None = None
    why: str = ""
    exchange: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()
    duration_s: float = 0.0


def judge_broker(
    address: str,
    *,
    stories: Sequence[Story] = STORIES,
    restart: Callable[[], None] | None = None,
    expected: Mapping[int, Sequence[Expected]] | None = None,
    patience_ms: int = 5_000,
) -> Judgement:
    """Hold *stories* with the broker at *address*.

    Args:
        restart: restarts the broker and returns, or raises Kip848Error. Without it, rules about restarts cannot be
            tried.
        expected: index of a story -> what the reference answers, if that is known already.
        patience_ms: how long targets and descriptions may lag behind.

    Raises:
        Kip848Error: no broker answers, or it offers nothing that is needed.
    """
    began = time.monotonic()
    premises = Premises(address, patience_ms=patience_ms)
    try:
        try:
            premises.prepare(stories)
        except TimeoutError as error:
            raise Kip848Error(f"the broker at {address} is not ready: {error}") from error
        except (OSError, EOFError) as error:
            raise Kip848Error(f"the connection to {address} ended while topics were made: {error}") from error
        ended = _hold(premises, stories, restart, expected or {})
    finally:
        left = premises.clear()
    facts = premises.facts()
    if left:
        facts["could not be removed"] = ", ".join(left)
    verdicts = tuple(judged(ended))
    return Judgement(f"broker at {address}", REFERENCE, verdicts, time.monotonic() - began, facts)


def _hold(
    premises: Premises,
    stories: Sequence[Story],
    restart: Callable[[], None] | None,
    expected: Mapping[int, Sequence[Expected]],
) -> list[Outcomes]:
    """All conversations; those in which topics change one by one, and those in which the broker is restarted last.

    A change of a topic may move the epochs of all groups, with some brokers.
    """
    ended: dict[int, Outcomes] = {}

    def hold(index: int) -> None:
        ended[index] = premises.hold(index, stories[index], expected.get(index))

    numbers = [index for index, story in enumerate(stories) if not story.restarts]
    for index in numbers:
        if stories[index].rule == DESCRIBING:
            hold(index)
            premises.describes = premises.describes and not (ended[index].difference or ended[index].why)
    for index in numbers:
        if stories[index].makes_topics:
            hold(index)
    left = sorted((index for index in numbers if index not in ended), key=lambda index: not stories[index].waits)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kip848-judge") as pool:
        list(pool.map(hold, left))
    restarting = [index for index, story in enumerate(stories) if story.restarts]
    if restarting:
        ended |= premises.restart(restart, {index: stories[index] for index in restarting}, expected)
    return [ended[index] for index in range(len(stories))]


def judged(ended: Iterable[Outcomes]) -> list[Verdict]:
    """A verdict for each rule: the first story of it that differs counts, else the first that cannot be tried.

    A rule is not tried where another one differs that it needs: what is seen there says nothing about it.
    """
    by_rule: dict[int, list[Outcomes]] = {}
    for one in ended:
        by_rule.setdefault(one.story.rule, []).append(one)
    differing = {rule for rule, ones in by_rule.items() if any(one.difference for one in ones)}
    verdicts = []
    for rule, ones in by_rule.items():
        told = next((one for one in ones if one.difference), None) or next((one for one in ones if one.why), ones[0])
        duration = sum(one.duration_s for one in ones)
        notes = tuple(dict.fromkeys(note for one in ones for note in one.notes))
        needed = sorted(differing.intersection(told.story.needs) - {rule})
        known = rulebook()[rule]
        if told.difference is not None and needed:
            why = f"R{needed[0]} differs, and it is needed here"
            verdicts.append(Verdict(known, Outcome.CANNOT_BE_TRIED, why=why, duration_s=duration))
        elif told.difference is not None:
            verdicts.append(
                Verdict(
                    known,
                    Outcome.DIFFERS,
                    asked=told.difference.asked,
                    expected=told.difference.expected,
                    seen=told.difference.seen,
                    exchange=told.exchange,
                    notes=notes,
                    duration_s=duration,
                )
            )
        elif told.why:
            verdicts.append(Verdict(known, Outcome.CANNOT_BE_TRIED, why=told.why, duration_s=duration))
        else:
            verdicts.append(Verdict(known, Outcome.HOLDS, notes=notes, duration_s=duration))
    return verdicts


class Premises:
    """What is made at the broker for the conversations, and how they reach it.

    Everything has a prefix of this run. Groups and topics of others are neither changed nor looked at.
    """

    def __init__(self, address: str, *, patience_ms: int) -> None:
        self._address: Final = address
        self._patience_ms: Final = patience_ms
        self._prefix: Final = f"kip848-judge-{uuid.uuid4().hex[:8]}."
        self._versions: dict[int, int] = {}
        self._shared = Shared()
        self._pace = Timing()
        self._configured: set[str] = set()
        self.describes = True
        """Whether descriptions are as they should be."""
        self._timed: list[str] = []
        self._session_known = False
        self._session_ms = 45_000
        self._sides: list[Side] = []
        self._lock: Final = threading.Lock()

    # --- before and after

    def prepare(self, stories: Sequence[Story]) -> None:
        """Ask what the broker offers, make the topics that are shared, and find out its times."""
        try:
            with RawConnection(self._address, timeout_s=START_S) as connection:
                offered = connection.call(ApiKey.API_VERSIONS, 0).api_keys
        except (OSError, EOFError) as error:
            raise Kip848Error(f"no broker answers at {self._address}: {error}") from error
        self._versions = {row.api_key: row.max_version for row in offered}
        for key in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CREATE_TOPICS, ApiKey.METADATA):
            if key not in self._versions:
                raise Kip848Error(f"the broker at {self._address} does not offer {key.name}: there is nothing to judge")
        side = self._side("premises", Shared())
        self._configure(side, stories)
        self._timed = [f"{self._prefix}{index}.g" for index, story in enumerate(stories) if story.waits]
        ids = self._create_topics(side)
        self._shared = Shared(self._prefix, ids)
        self._measure(self._side("pace.", self._shared))

    def facts(self) -> dict[str, str]:
        """What was found out about the broker."""
        session = f"{self._session_ms} ms" + ("" if self._session_known else " (assumed)")
        return {"heartbeat interval": f"{self._pace.interval_ms} ms", "session timeout": session}

    def clear(self) -> list[str]:
        """Remove every group, topic and setting of this run; what could not be removed."""
        left: list[str] = []
        with self._lock:
            sides, self._sides = self._sides, []
        for side in sides:
            try:
                side.drop_connections()
                left += side.clear_all()
            except (OSError, EOFError, Kip848Error, TimeoutError) as error:
                left.append(f"{side.prefix}* ({error})")
            finally:
                side.close()
        if not sides:
            return left
        last = self._side("cleaning", self._shared)
        try:
            names = [f"{self._prefix}{topic}" for topic in TOPICS]
            if self._shared.topic_ids:
                last.ask("delete_topics", 5, {"topic_names": names, "timeout_ms": 20_000})
            self._unconfigure(last)
        except (OSError, EOFError, Kip848Error) as error:
            left.append(str(error))
        finally:
            last.close()
        return left

    def _side(self, name: str, shared: Shared) -> Side:
        side = Side(
            "broker",
            self._address,
            prefix=f"{self._prefix}{name}",
            shared=shared,
            versions=self._versions,
            finds_coordinators=True,
            settle_timeout_s=START_S,
        )
        with self._lock:
            self._sides.append(side)
        return side

    def _create_topics(self, side: Side) -> dict[str, str]:
        created = [
            {"name": f"{self._prefix}{topic}", "num_partitions": count, "replication_factor": -1}
            for topic, count in TOPICS.items()
        ]
        answer = side.ask("create_topics", 5, {"topics": created, "timeout_ms": 20_000})
        for row in rows(answer["topics"]):
            if row["error_code"]:
                raise Kip848Error(f"topic {row['name']} cannot be created: {error_name(int(str(row['error_code'])))}")
        ids: dict[str, str] = {}

        def are_there() -> bool:
            found = side.ask("metadata", 12, {"topics": [{"name": f"{self._prefix}{topic}"} for topic in TOPICS]})
            for row in rows(found["topics"]):
                if not row["error_code"]:
                    ids[str(row["name"]).removeprefix(self._prefix)] = str(row["topic_id"])
            return len(ids) == len(TOPICS)

        wait_until(are_there, START_S, "the topics of this run")
        return ids

    def _measure(self, side: Side) -> None:
        """Find out the interval, and wait until the coordinator knows the topics."""
        join = Heartbeat("p", Epoch.JOIN, Owned.NOTHING, names=tuple(TOPICS), timeout_ms=60_000)
        answer: dict[str, Json] = {}

        def knows() -> bool:
            nonlocal answer
            answer = ask(join, side)
            if answer["error_code"] and answer["error_code"] != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return True
            return sum(map(len, side.view("g", "p").assigned.values())) == sum(TOPICS.values())

        with contextlib.suppress(TimeoutError):  # the conversations say what is missing
            wait_until(knows, START_S, "the topics in an assignment", every_s=0.1)
        interval = answer.get("heartbeat_interval_ms")
        interval_ms = interval if isinstance(interval, int) and interval > 0 else 5_000
        self._find_session(side, interval_ms)
        self._pace = Timing(interval_ms, self._session_ms, patience_ms=self._patience_ms)

    def _find_session(self, side: Side, interval_ms: int) -> None:
        """Shorten the session of groups in which it runs out, if the broker lets them; else find out how long it is."""
        if not self._timed:
            return
        may_be_short = ApiKey.INCREMENTAL_ALTER_CONFIGS in self._versions and interval_ms * 3 <= _SHORT_SESSION_MS
        if may_be_short and self._alter(side, self._timed, _SESSION, str(_SHORT_SESSION_MS)):
            self._configured.update(f"{group} {_SESSION}" for group in self._timed)
            self._session_ms, self._session_known = _SHORT_SESSION_MS, True
            return
        if ApiKey.DESCRIBE_CONFIGS not in self._versions:
            return
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self._timed[0], "configuration_keys": [_SESSION]}
        answer = side.ask("describe_configs", 4, {"resources": [resource]})
        for row in rows(answer["results"]):
            for config in rows(row["configs"]):
                if config["name"] == _SESSION and str(config["value"]).isdigit():
                    self._session_ms, self._session_known = int(str(config["value"])), True

    def _configure(self, side: Side, stories: Sequence[Story]) -> None:
        """Have targets of the groups of this run computed at once, if the broker has settings for it."""
        if ApiKey.INCREMENTAL_ALTER_CONFIGS not in self._versions:
            return
        for name, value in _SETTINGS:
            wanted = [f"{self._prefix}{index}.g" for index in range(len(stories))]
            if not self._alter(side, wanted[:1], name, value):
                continue
            self._alter(side, wanted[1:], name, value)
            self._configured.update(f"{one} {name}" for one in wanted)

    def _unconfigure(self, side: Side) -> None:
        for name in sorted({one.split(" ")[1] for one in self._configured}):
            groups = [one.split(" ")[0] for one in self._configured if one.endswith(f" {name}")]
            if groups:
                self._alter(side, groups, name, None)

    def _alter(self, side: Side, groups: Sequence[str], name: str, value: str | None) -> bool:
        """Change a setting of groups, or remove it; whether the broker took it."""
        config = {"name": name, "config_operation": _DELETE if value is None else 0, "value": value}
        resources = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]} for group in groups]
        try:
            answer = side.ask("incremental_alter_configs", 1, {"resources": resources})
        except (OSError, EOFError, Kip848Error):
            side.drop_connections()
            return False
        return not any(row["error_code"] for row in rows(answer["responses"]))

    # --- conversations

    def hold(self, index: int, story: Story, expected: Sequence[Expected] | None) -> Outcomes:
        """One conversation, from its beginning to its end."""
        began = time.monotonic()
        if why := self._why_not(story):
            return Outcomes(story, why=why)
        return self._advance(self._trial(index, story, expected), began)

    def restart(
        self,
        command: Callable[[], None] | None,
        stories: Mapping[int, Story],
        expected: Mapping[int, Sequence[Expected]],
    ) -> dict[int, Outcomes]:
        """Conversations in which the broker is restarted, once for all of them."""
        if command is None:
            why = "give --restart COMMAND, which restarts the broker"
            return {index: Outcomes(story, why=why) for index, story in stories.items()}
        ended: dict[int, Outcomes] = {}
        trials: dict[int, StoryTrial] = {}
        began = time.monotonic()
        for index, story in stories.items():
            if why := self._why_not(story):
                ended[index] = Outcomes(story, why=why)
                continue
            trial = self._trial(index, story, expected.get(index))
            first = self._advance(trial, began)
            if first.difference is not None or first.why:
                ended[index] = first
            else:
                trials[index] = trial
        failed = self._restarted(command)
        for index, trial in trials.items():
            if failed:
                ended[index] = Outcomes(trial.story, why=failed)
                continue
            trial.side.drop_connections()
            ended[index] = self._advance(trial, began)
        return ended

    def _restarted(self, command: Callable[[], None]) -> str:
        """Restart the broker and wait until it serves groups; why that failed, if it did."""
        try:
            command()
            wait_until(self._serves, RESTART_S, "the broker after its restart", every_s=0.1)
        except (Kip848Error, TimeoutError) as error:
            return str(error)
        return ""

    def _serves(self) -> bool:
        side = None
        try:
            side = Side("broker", self._address, prefix=f"{self._prefix}probe.", versions=self._versions)
            found = side.ask("describe_groups", 5, {"groups": [side.group_id("g")]})
            return rows(found["groups"])[0]["error_code"] not in _NOT_YET
        except (OSError, EOFError):
            return False
        finally:
            if side is not None:
                side.close()

    def _why_not(self, story: Story) -> str:
        for key, version in apis_of(story):
            if key == ApiKey.CONSUMER_GROUP_DESCRIBE and not self.describes and not story.waits:
                continue
            name = message_pair(key).request.__name__.removesuffix("Request")
            if key not in self._versions:
                return f"the broker does not offer {name}"
            if self._versions[key] < version:
                return f"the broker offers {name} up to version {self._versions[key]}, and {version} is needed"
        return ""

    def _trial(self, index: int, story: Story, expected: Sequence[Expected] | None) -> StoryTrial:
        side = self._side(f"{index}.", Shared() if story.makes_topics else self._shared)
        known = list(expected or expectations(story, self._pace))
        return StoryTrial(story, side, known, self._pace, describes=self.describes)

    def _advance(self, trial: StoryTrial, began: float) -> Outcomes:
        difference, why = None, ""
        try:
            difference = trial.run()
        except TimeoutError as error:
            why = str(error)
        except (OSError, EOFError) as error:
            difference = Difference(_last(trial), "an answer", f"the connection ended: {error}")
        except Kip848Error as error:
            difference = Difference(_last(trial), "an answer that can be read", str(error))
        except (AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
            difference = Difference(_last(trial), "an answer of the usual shape", f"one that ends in {error!r}")
        return Outcomes(
            trial.story, difference, why, tuple(trial.exchange), tuple(trial.notes), time.monotonic() - began
        )


def _last(trial: StoryTrial) -> str:
    return trial.exchange[-1].text if trial.exchange else "the first request"
