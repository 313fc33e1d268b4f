"""One story, played on the reference coordinator and then on the broker that is judged, step by step.

The reference is an embedded broker of its own, on a clock that is moved where the story lets time pass. What it answers
is what Apache Kafka 4.4.0 answers: tests/interop tells these stories to Kafka.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kip848_client.common.clock import ManualClock
from kip848_client.errors import error_name
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.judge.broker.comparison import brief, disagreements, shared_form
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.share_steps import ShareFetch, ShareHeartbeat
from kip848_client.testing.judge.broker.side import Shared, Side, rows
from kip848_client.testing.judge.broker.steps import Ask, ChangeTopic, Commit, Heartbeat, line
from kip848_client.testing.judge.broker.story import DESCRIBING, Await, Request, RestartBroker, Story
from kip848_client.testing.judge.verdicts import BROKER, Said
from kip848_client.testing.judge.wording import Wording
from kip848_client.wire.api_keys import ApiKey

MINE: Final = ("g", "h")
"""Groups of conversations."""
TOPICS: Final = {"t0": 4, "t1": 2}
"""Topics that the stories share."""
EARLY_MS: Final = 30
"""Clocks of different processes are compared, and their milliseconds are rounded."""
LATE_S: Final = 30.0
"""How much later than its limit a broker may act."""
PAUSE_S: Final = 0.02
ATTEMPTS_MIN: Final = 10
"""So many times a broker is asked before it counts as late, however long this machine was held up."""
_UNSAID: Final = ("error_message", "throttle_time_ms", "member_metadata", "member_assignment")
_HEARTBEATS_OF_SHARES: Final = 3
_OF_A_REFUSAL: Final = ("error_code", "group_id", "name", "topic_id", "partition_index")
"""What counts where there is an error code; the rest has no meaning then."""
_OF_A_TARGET: Final = ("member_epoch", "assignment")
"""What a broker that computes targets beside its coordinator tells with one of the next heartbeats."""


class Timing(msgspec.Struct, frozen=True):
    """The times of the broker that is judged, in ms.

    Args:
        interval_ms: of heartbeats.
        session_ms: after which a silent member is removed; of the groups in which time limits run out.
        patience_ms: how long a target may take, or anything else that comes some time after an answer.
    """

    interval_ms: int = 100
    session_ms: int = 2_000
    patience_ms: int = 5_000


class Expected(msgspec.Struct, frozen=True):
    """What the reference answered to one step.

    Args:
        answer: in shared form.
        view: epoch and assignment of the member that asked, after the answer.
    """

    answer: dict[str, Json]
    view: Json = None


class Difference(msgspec.Struct, frozen=True):
    """Where the broker left the path of the reference."""

    asked: str
    expected: str
    seen: str


def expectations(story: Story, pace: Timing) -> list[Expected]:
    """Play *story* on a reference of its own."""
    clock = ManualClock() if story.waits else None
    settings = {
        "group.consumer.heartbeat.interval.ms": pace.interval_ms,
        "group.consumer.session.timeout.ms": max(pace.session_ms, pace.interval_ms + 1),
        "group.share.heartbeat.interval.ms": pace.interval_ms,
        "group.consumer.assignment.interval.ms": 0,
        "group.initial.rebalance.delay.ms": 0,
    }
    topics = {} if story.makes_topics else TOPICS
    with EmbeddedBroker(config=settings, clock=clock) as broker:
        ids = {topic: str(broker.topics.create(f"ref-topic.{topic}", count)) for topic, count in topics.items()}
        if ApiKey.SHARE_FETCH in {key for key, _ in apis_of(story)}:
            broker.groups.set_config("ref-group.g", {"share.auto.offset.reset": "earliest"})
        side = Side("reference", broker.bootstrap_servers, prefix="ref-group.", shared=Shared("ref-topic.", ids))
        try:
            return [_expected(step, side, broker, pace, story) for step in story.steps]
        finally:
            side.close()


def _expected(step: object, side: Side, broker: EmbeddedBroker, pace: Timing, story: Story) -> Expected:
    match step:
        case RestartBroker():
            return Expected({})
        case ChangeTopic():
            return Expected(step.perform(side))
        case Await():
            left = pace.session_ms if step.after_ms is None else step.after_ms
            while left > 0:
                part = min(left, max(pace.interval_ms, 20))
                broker.clock.advance(part)
                left -= part
                for beat in step.beats:
                    ask(beat, side)
            broker.clock.advance(EARLY_MS)
            for _ in range(3):
                for beat in step.beats:
                    ask(beat, side)
            return _answered(step.step, side, story)
        case _:
            return _answered(step, side, story)  # type: ignore[arg-type]  # the other steps are requests


def _answered(step: Request, side: Side, story: Story) -> Expected:
    answer = shaped(step, side, ask(step, side), story)
    if isinstance(step, ShareHeartbeat) and side.view(step.group, step.member).epoch > 0:
        for _ in range(_HEARTBEATS_OF_SHARES):  # the state of partitions is made beside the coordinator
            ask(ShareHeartbeat(step.member, group=step.group), side)
    return Expected(answer, view_of(step, side, story))


def ask(step: Request, side: Side) -> dict[str, Json]:
    """Send one step and let its member hear the answer."""
    api, version, fields = step.request(side)
    answer = side.ask(api, version, fields)
    step.hear(side, fields, answer)
    return answer


def shaped(step: Request, side: Side, answer: dict[str, Json], story: Story) -> dict[str, Json]:
    """What counts in an answer, in terms that both sides share."""
    group = getattr(step, "group", "")
    found = shared_form(side, step.shape(side, answer), group=group)
    assert isinstance(found, dict)
    if isinstance(step, Ask) and step.api == "list_groups":
        found["groups"] = [row for row in rows(found["groups"]) if row["group_id"] in MINE]
    found = _reduced(found, sizes=story.sizes)
    if not _counts_epochs(step, story):
        found = _without_epochs(found)
    assert isinstance(found, dict)
    return found


def _counts_epochs(step: Request, story: Story) -> bool:
    """Those of share groups also move when the state of a partition is made, some time later."""
    of_shares = isinstance(step, ShareHeartbeat) or (isinstance(step, Ask) and step.api == "share_group_describe")
    return story.epochs and not of_shares


def view_of(step: Request, side: Side, story: Story) -> Json:
    """Epoch and assignment of the member that took the step."""
    if not isinstance(step, Heartbeat | ShareHeartbeat):
        return None
    view = side.view(step.group, step.member)
    epoch = view.epoch - side.epoch_offset.get(step.group, 0) if view.epoch > 0 else view.epoch
    if not _counts_epochs(step, story):
        epoch = min(epoch, 1)
    assigned: dict[str, Json] = {}
    for topic, numbers in view.assigned.items():
        if numbers:
            assigned[side.label(topic)] = len(numbers) if story.sizes else [*numbers]
    return {"epoch": epoch, "assigned": assigned}


def _without_epochs(value: Json) -> Any:
    match value:
        case dict():
            return {name: _without_epochs(item) for name, item in value.items() if not name.endswith("_epoch")}
        case list():
            return [_without_epochs(item) for item in value]
        case _:
            return value


def _reduced(value: Json, *, sizes: bool) -> Json:
    """Without texts, which are each broker's own, and if asked for with numbers in place of lists of partitions."""
    if value is None:
        return ""  # no text, and an empty one, say the same
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if name not in _UNSAID}
        if value.get("member_epoch") in (-1, -2):
            kept.pop("heartbeat_interval_ms", None)  # who leaves has no use for it
        if value.get("error_code"):
            kept = {name: item for name, item in kept.items() if name in _OF_A_REFUSAL}
        return {name: _reduced(item, sizes=sizes) for name, item in kept.items()}
    if not isinstance(value, list):
        return value
    if sizes and value and isinstance(value[0], int):
        return len(value)
    return [_reduced(item, sizes=sizes) for item in value]


class StoryTrial:
    """One story on the broker that is judged.

    Args:
        describes: look at descriptions of groups.

    Attributes:
        exchange: what was said so far.
        notes: what a reader should know although the rule holds.
    """

    def __init__(
        self, story: Story, side: Side, expected: list[Expected], pace: Timing, *, describes: bool = True
    ) -> None:
        self.story: Final = story
        self.side: Final = side
        self.exchange: list[Said] = []
        self.notes: list[str] = []
        self._expected: Final = expected
        self._pace: Final = pace
        self._describes: Final = describes or story.rule == DESCRIBING
        self._at = 0
        self._sent_at = 0.0
        self._beat_at = 0.0
        self._alive: set[str] = set()

    def run(self) -> Difference | None:
        """Take the steps up to the end, or up to a restart; the next call goes on after it.

        Raises:
            OSError, EOFError: the connection broke.
            Kip848Error: an answer cannot be read.
            TimeoutError: the broker did not get somewhere in time, or this machine did not; the message says where.
        """
        if not self._at:
            self._beat_at = time.monotonic()
        while self._at < len(self.story.steps):
            step, expected = self.story.steps[self._at], self._expected[self._at]
            self._at += 1
            match step:
                case RestartBroker():
                    self.exchange.append(Said(BROKER, BROKER, "is restarted"))
                    return None
                case Ask(api="consumer_group_describe") if not self._describes:
                    continue
                case ChangeTopic():
                    found = self._change(step, expected)
                case Await():
                    found = self._await(step, expected)
                case _:
                    self._sent_at = time.monotonic()
                    found = self._ask(step, expected)
            if found is not None:
                return found
        return None

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self._at == len(self.story.steps)

    # --- one step

    def _change(self, step: ChangeTopic, expected: Expected) -> Difference | None:
        told = step.perform(self.side)
        now = f"has {step.partitions} partitions now" if step.partitions else "is deleted"
        text = f"topic {step.topic} {now}"
        self.exchange.append(Said("operator", BROKER, text))
        return None if told == expected.answer else self._difference(text, expected.answer, told)

    def _ask(self, step: Request, expected: Expected) -> Difference | None:
        seen = self._told(step, expected)
        differences = self._differences(expected.answer, seen)
        if isinstance(step, Heartbeat) and step.regex and not (seen["error_code"] or expected.answer["error_code"]):
            return None  # how soon a pattern is matched is not said
        is_given_all = not isinstance(step, ShareHeartbeat) or view_of(step, self.side, self.story) == expected.view
        if (not differences and is_given_all) or self._is_older(differences, seen):
            return None
        deadline = time.monotonic() + self._pace.patience_ms / 1000
        if self._at > len(self.story.steps) - self.story.exact:
            return self._difference(self._words_of(step), expected.answer, seen)
        match step:
            case Heartbeat() | ShareHeartbeat():
                return self._settle(step, expected, seen, deadline)
            case ShareFetch(said=()) if not (seen["error_code"] or seen["acquired"] or expected.answer["error_code"]):
                repeated: Request = step
            case Ask() if step.api != "delete_groups":
                repeated = step
            case _:
                return self._difference(self._words_of(step), expected.answer, seen)
        attempts = 0
        while time.monotonic() < deadline or attempts < ATTEMPTS_MIN:
            attempts += 1
            time.sleep(PAUSE_S)  # what a description shows may come some time after the answer that made it so
            seen = self._told(repeated, expected, is_new=False)
            differences = self._differences(expected.answer, seen)
            if not differences or self._is_older(differences, seen):
                return None
        return self._difference(self._words_of(step), expected.answer, seen)

    def _settle(
        self, step: Heartbeat | ShareHeartbeat, expected: Expected, seen: dict[str, Json], deadline: float
    ) -> Difference | None:
        """Let a member whose answer has another epoch or assignment heartbeat on until it has got the expected ones."""
        others = [found for found in self._differences(expected.answer, seen) if not found.startswith(_OF_A_TARGET)]
        if others or seen["error_code"]:
            return self._difference(self._words_of(step), expected.answer, seen)
        instance = step.instance if isinstance(step, Heartbeat) else None
        steady = Heartbeat(step.member, instance=instance, group=step.group)
        plain: Request = steady if isinstance(step, Heartbeat) else ShareHeartbeat(step.member, group=step.group)
        lost = isinstance(step, Heartbeat) and step.lost
        attempts = 0
        while not lost and view_of(step, self.side, self.story) != expected.view:
            attempts += 1
            if time.monotonic() >= deadline and attempts > ATTEMPTS_MIN:
                view = view_of(step, self.side, self.story)
                if self._is_older(list(disagreements(expected.view, view)), None):
                    self._at = len(self.story.steps)
                    return None
                after = f" within {self._pace.patience_ms / 1000:g} s of heartbeats"
                return Difference(self._words_of(step), _words(expected.view), _words(view) + after)
            time.sleep(PAUSE_S)  # a target may be computed beside the coordinator
            answer = self._told(plain, expected, is_new=False)
            if answer["error_code"]:
                return self._difference(self._words_of(step), expected.answer, answer)
        return None

    def _await(self, step: Await, expected: Expected) -> Difference | None:
        limit_ms = self._pace.session_ms if step.after_ms is None else step.after_ms
        asked = f"{self._words_of(step.step)}, again and again after {limit_ms} ms had to run out"
        self.exchange.append(Said(BROKER, BROKER, f"{limit_ms} ms pass"))
        first = True
        while True:
            held_up_ms = (time.monotonic() - self._beat_at) * 1000
            if held_up_ms > self._pace.session_ms / 2:
                raise TimeoutError(f"this machine was held up for {held_up_ms:.0f} ms, in which members may be removed")
            self._beat_at = time.monotonic()
            for beat in step.beats:
                ask(beat, self.side)
            seen = self._told(step.step, expected, is_new=first)
            first = False
            waited_ms = (time.monotonic() - self._sent_at) * 1000
            differences = self._differences(expected.answer, seen)
            if not differences or self._is_older(differences, seen):
                if waited_ms < limit_ms - EARLY_MS:
                    return Difference(asked, f"no change before {limit_ms} ms", f"the change after {waited_ms:.0f} ms")
                return None
            if waited_ms > limit_ms + LATE_S * 1000:
                return self._difference(asked, expected.answer, seen)
            time.sleep(min(self._pace.interval_ms / 1000, 0.2))  # time limits of a broker run on its clock

    # --- what was said

    def _told(self, step: Request, expected: Expected, *, is_new: bool = True) -> dict[str, Json]:
        """Ask, and write down what was said: once, if it is asked again and again."""
        answer = ask(step, self.side)
        self._count_epochs(step, expected, answer)
        sender = getattr(step, "member", None) or "operator"
        assert self.side.last is not None
        request, response = self.side.last
        wording = Wording({UUID(topic_id): topic for topic, topic_id in self.side.topic_ids.items()}.get)
        if not is_new:
            self.exchange.pop()
        else:
            self.exchange.append(Said(sender, BROKER, self._worded(wording, request)))
        found = shaped(step, self.side, answer, self.story)
        text = self._worded(wording, response)
        if text == type(response).__name__.removesuffix("Response"):
            text = brief(found)
        self.exchange.append(Said(BROKER, sender, text))
        return found

    def _worded(self, wording: Wording, message: Any) -> str:
        return self.side.label(wording.message(message))

    def _words_of(self, step: Request) -> str:
        return line(step)  # type: ignore[arg-type]  # any struct

    def _count_epochs(self, step: Request, expected: Expected, answer: Mapping[str, Json]) -> None:
        """Notice how far the epochs of a group that begins are ahead: Kafka 4.3 and later count one more."""
        if not isinstance(step, Heartbeat | ShareHeartbeat) or step.group in self._alive:
            return
        theirs, ours = answer["member_epoch"], expected.answer.get("member_epoch")
        if isinstance(theirs, int) and isinstance(ours, int) and theirs > 0 < ours:
            self._alive.add(step.group)
            if theirs - ours == 1:
                self.side.epoch_offset[step.group] = 1

    def _differences(self, expected: dict[str, Json], seen: dict[str, Json]) -> list[str]:
        return list(disagreements(expected, seen))

    def _is_older(self, differences: list[str], seen: Json) -> bool:
        """Whether an older version of Kafka differs like this; what it does with the rest of the story is not tried."""
        for older in self.story.older:
            if older.explains(differences, _codes(seen)):
                self.notes.append(f"{older.what}, as Apache Kafka {older.versions}")
                if older.code is not None:
                    self._at = len(self.story.steps)
                return True
        return False

    def _difference(self, asked: str, expected: dict[str, Json], seen: dict[str, Json]) -> Difference:
        return Difference(asked, _only(expected, seen), _only(seen, expected))


def _only(one: dict[str, Json], other: dict[str, Json]) -> str:
    """What differs from another answer, in words; an error code alone if that is what differs."""
    mine, theirs = _codes(one), _codes(other)
    if mine != theirs:
        return ", ".join(error_name(code) if code else "no error" for code in mine)
    return _words({name: value for name, value in one.items() if name not in other or other[name] != value})


def _codes(value: Json) -> list[int]:
    match value:
        case dict():
            own = [item for name, item in value.items() if name == "error_code" and isinstance(item, int)]
            return own + [code for item in value.values() for code in _codes(item)]
        case list():
            return [code for item in value for code in _codes(item)]
        case _:
            return []


def _words(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False).replace('"', "")


def apis_of(story: Story) -> Iterator[tuple[ApiKey, int]]:
    """Every API that a story needs, with the lowest version that will do."""
    for step in story.requests():
        match step:
            case Ask():
                yield ApiKey[step.api.upper()], 5 if step.filters[1] else 0
            case Heartbeat(regex=str()):
                yield ApiKey.CONSUMER_GROUP_HEARTBEAT, 1
            case Commit(version=10):
                yield ApiKey.OFFSET_COMMIT, 10
            case _:
                yield _API_OF[type(step).__name__], 0


_API_OF: Final = {
    "Heartbeat": ApiKey.CONSUMER_GROUP_HEARTBEAT,
    "Commit": ApiKey.OFFSET_COMMIT,
    "Fetch": ApiKey.OFFSET_FETCH,
    "RemoveMembers": ApiKey.LEAVE_GROUP,
    "DeleteOffsets": ApiKey.OFFSET_DELETE,
    "Configure": ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "ClassicJoin": ApiKey.JOIN_GROUP,
    "ClassicSync": ApiKey.SYNC_GROUP,
    "ClassicHeartbeat": ApiKey.HEARTBEAT,
    "ClassicLeave": ApiKey.LEAVE_GROUP,
    "ShareHeartbeat": ApiKey.SHARE_GROUP_HEARTBEAT,
    "ShareFetch": ApiKey.SHARE_FETCH,
    "ShareAcknowledge": ApiKey.SHARE_ACKNOWLEDGE,
    "Produce": ApiKey.PRODUCE,
}
