"""A sequence of steps, told to both brokers at once, until their answers disagree; and the smallest part that shows it.

conversation = Conversation(ours, kafka, ours_group=broker.groups.get)
conversation.tell(steps)          # raises Disagreement, whose text is a transcript
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.judge.broker.comparison import brief, disagreements, shared_form
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import JOIN_EPOCH, Side, as_int, rows
from kip848_client.testing.judge.broker.steps import (
    Ask,
    Asking,
    ChangeTopic,
    Commit,
    Configure,
    DeleteOffsets,
    Fetch,
    Heartbeat,
    Step,
    line,
)
from tests.support.waiting import wait_until

AWAY_EPOCH: Final = -2
METADATA_MAX: Final = 4096
RESOLUTION_TIMEOUT_S: Final = 2.0


class Disagreement(AssertionError):
    """The brokers answered differently; the text shows the conversation up to there."""

    def __init__(self, transcript: str, *, step: Step, index: int) -> None:
        super().__init__(transcript)
        self.step = step
        self.index = index


@dataclass
class Conversation:
    """Both brokers, and what was said so far.

    Args:
        ours_group: looks at a group of the embedded broker, by its real id.
    """

    ours: Side
    kafka: Side
    ours_group: Callable[[str], GroupSnapshot | None]

    def __post_init__(self) -> None:
        self.transcript: list[str] = []
        self.step_count = 0
        self._alive: set[str] = set()
        self._with_patterns: set[str] = set()

    def tell(self, steps: Sequence[Step]) -> None:
        """Send *steps* to both brokers.

        Raises:
            Disagreement: at the first step whose answers differ by more than docs/differences.md allows.
        """
        for index, step in enumerate(steps):
            number = f"{len(self.transcript) + 1:3}"
            if left_out := self._why_left_out(step):
                self.transcript.append(f"{number} {line(step)}\n      left out: {left_out}")
                continue
            self.step_count += 1
            ours, kafka = self._told(step)
            differences = list(disagreements(ours, kafka)) or self._after(step)
            differences += self._first_epoch(step)
            answers = (
                f"ours   {_brief(ours)}\n      Kafka  {_brief(kafka)}" if ours != kafka else f"both   {_brief(ours)}"
            )
            self.transcript.append(f"{number} {line(step)}\n      {answers}")
            if differences:
                self.transcript += [f"  => {difference}" for difference in differences]
                raise Disagreement("\n".join(self.transcript), step=step, index=index)

    def _told(self, step: Step) -> tuple[Json, Json]:
        if isinstance(step, ChangeTopic):
            return step.perform(self.ours), step.perform(self.kafka)
        ours, kafka = ask(step, self.ours), ask(step, self.kafka)
        self._note_lives(step, ours, kafka)
        group = "" if isinstance(step, Ask) else step.group
        return (
            _of_this_run(self.ours, shared_form(self.ours, ours, group=group), step),
            _of_this_run(self.kafka, shared_form(self.kafka, kafka, group=group), step),
        )

    def _note_lives(self, step: Asking, ours: dict[str, Json], kafka: dict[str, Json]) -> None:
        """Notice groups that begin, whose epochs are counted from there on, and groups that end."""
        if isinstance(step, Heartbeat) and not (ours["error_code"] or kafka["error_code"]):
            if as_int(ours["member_epoch"]) > 0 and step.group not in self._alive:
                self._alive.add(step.group)
                ahead = as_int(kafka["member_epoch"]) - as_int(ours["member_epoch"])
                self.kafka.epoch_offset[step.group] = ahead
        elif isinstance(step, Ask) and step.api == "delete_groups":
            for row in rows(kafka["results"]):
                if not row["error_code"]:
                    self._alive.discard(self.kafka.label(str(row["group_id"])))

    def _first_epoch(self, step: Step) -> list[str]:
        """Kafka gives a new group epoch 1 and bumps it for the first subscription; that and no more may differ."""
        if isinstance(step, Heartbeat) and self.kafka.epoch_offset.get(step.group, 0) not in (0, 1):
            return [f"first epoch of the group: Kafka is {self.kafka.epoch_offset[step.group]} ahead"]
        return []

    def _after(self, step: Step) -> list[str]:
        """Wait for what a step sets going: settings come to the coordinator, and topics are matched with patterns."""
        if isinstance(step, Configure) and step.value is not None:
            for side in (self.ours, self.kafka):
                side.await_settings()
        if not isinstance(step, Heartbeat):
            return []
        if step.regex:
            self._with_patterns.add(step.group)
        if step.group not in self._with_patterns:
            return []
        look = Ask("consumer_group_describe", 1, (step.group,))
        differences: list[str] = []

        def agree() -> bool:
            differences[:] = disagreements(*self._told(look))
            return not differences

        try:
            wait_until(agree, RESOLUTION_TIMEOUT_S)
        except AssertionError:
            return [f"after topics were matched, {difference}" for difference in differences]
        return []

    def _why_left_out(self, step: Step) -> str | None:
        """The documented difference that a step would run into, if any. Afterwards the groups would not be alike."""
        match step:
            case Heartbeat() if self._joins_again(step):
                return "a static member joins again under its own id"
            case Heartbeat(names=None | ()) if self._state(step.group) == "Assigning" and self._is_unmatched(step):
                return "a target is due when a pattern comes that is not matched yet"
            case Heartbeat(regex=str() as regex) if (
                regex and self._had_another_pattern(step) and not self._matches(regex)
            ):
                return "a pattern that matches nothing takes the place of another"
            case Commit() if len(step.metadata or "") > METADATA_MAX and not self._committed(step.group):
                if not self._is_consumer_group(step.group):
                    return "a refused commit makes a group without offsets"
            case DeleteOffsets() if self._would_end(step.group, step.partitions):
                return "a group loses its last offset"
            case ChangeTopic(topic, 0):
                for name in ("g", "h", ""):
                    if self._would_end(name, [found for found in self._committed(name) if found[0] == topic]):
                        return "a group loses its last offset"
            case _:
                pass
        return None

    def _joins_again(self, step: Heartbeat) -> bool:
        """Whether a static member that has not left joins under the id that it has."""
        if step.instance is None or not self._is_join(step):
            return False
        group = self.ours_group(self.ours.group_id(step.group))
        return group is not None and any(
            member.instance_id == step.instance
            and member.member_epoch != AWAY_EPOCH
            and member.member_id == self.ours.view(step.group, step.member).member_id
            for member in group.members
        )

    def _would_end(self, group: str, gone: Iterable[tuple[str, int]]) -> bool:
        """Whether a group without members is nothing but offsets, and these are all of them."""
        committed = self._committed(group)
        return bool(committed) and committed <= set(gone) and not self._is_consumer_group(group)

    def _state(self, group: str) -> str:
        found = self.ours_group(self.ours.group_id(group))
        return "Dead" if found is None else found.state

    def _is_unmatched(self, step: Heartbeat) -> bool:
        """Whether a heartbeat may bring a member without topics, or a pattern that is new in the group."""
        if step.regex:
            group = self.ours_group(self.ours.group_id(step.group))
            known = {member.subscribed_regex for member in group.members} if group is not None else set()
            return self.ours.pattern(step.regex) not in known
        return self._is_join(step)

    def _had_another_pattern(self, step: Heartbeat) -> bool:
        group = self.ours_group(self.ours.group_id(step.group))
        return group is not None and any(
            member.subscribed_regex not in (None, self.ours.pattern(step.regex))
            for member in group.members
            if member.member_id == step.member or (step.instance and member.instance_id == step.instance)
        )

    def _matches(self, regex: str) -> bool:
        """Whether a pattern of the generator, which Python reads as RE2 does, matches any topic, or is refused."""
        try:
            pattern = re.compile(str(self.ours.pattern(regex)))
        except re.error:
            return True
        return any(pattern.fullmatch(self.ours.topic_name(topic)) for topic in self.ours.topic_ids)

    def _is_join(self, step: Heartbeat) -> bool:
        return step.sent_epoch(self.ours) == JOIN_EPOCH

    def _is_consumer_group(self, group: str) -> bool:
        return self.ours_group(self.ours.group_id(group)) is not None

    def _committed(self, group: str) -> set[tuple[str, int]]:
        """Topic and partition of every offset that our side keeps for a group."""
        answer = ask(Fetch(group=group), self.ours)
        return {
            (self.ours.label(str(topic["name"])), as_int(partition["partition_index"]))
            for fetched in rows(answer["groups"])
            for topic in rows(fetched["topics"])
            for partition in rows(topic["partitions"])
        }


def ask(step: Asking, side: Side) -> dict[str, Json]:
    """Send a step to one side and let its member hear the answer."""
    api, version, fields = step.request(side)
    answer = side.ask(api, version, fields)
    step.hear(side, fields, answer)
    return answer


def smallest(
    steps: Sequence[Step], fails: Callable[[Sequence[Step]], Disagreement | None], *, budget_s: float
) -> Disagreement | None:
    """Leave steps out as long as the rest still ends in a disagreement about the same kind of step.

    Returns:
        The last disagreement; None if not even the whole sequence led to one again.
    """
    deadline = time.monotonic() + budget_s
    found = fails(steps)
    if found is None:
        return None
    kept = list(steps[: found.index + 1])
    size = max(len(kept) // 2, 1)
    while time.monotonic() < deadline:
        start = len(kept) - 1 - size
        shorter = False
        while start > -size and time.monotonic() < deadline:
            tried = kept[: max(start, 0)] + kept[start + size :]
            again = fails(tried)
            if again is not None and type(again.step) is type(found.step):
                found, kept, shorter = again, tried[: again.index + 1], True
            start = min(start, len(kept) - 1) - size
        if size == 1 and not shorter:
            break
        size = max(size // 2, 1)
    return found


def _of_this_run(side: Side, answer: Json, step: Step) -> Json:
    """ListGroups without the groups of others, and without those that only the test's helpers use."""
    if isinstance(step, Ask) and step.api == "list_groups":
        assert isinstance(answer, dict)
        answer["groups"] = [row for row in rows(answer["groups"]) if row["group_id"] in ("g", "h")]
    return answer


def _brief(answer: Json) -> str:
    assert isinstance(answer, dict)
    return brief(answer)
