"""Conversations of share groups: random requests of members and administrators, sent to both brokers.

Which of equal members gets a partition is the order of a hash map in Kafka: compared are how many members each
partition has, and how many partitions each member.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.side import Side, read_partitions, rows
from tests.interop.differential.conftest import conversing
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

SEEDS: Final = "0-9"
STEPS: Final = 25
GROUP, OTHER = "workers", "others"
MEMBERS: Final = ("a", "b", "c", "d")
TOPICS: Final = ("t0", "t1")
INIT_TIMEOUT_S: Final = 10.0

Step: TypeAlias = Callable[["Workers"], object]


class Workers:
    """The members of a share group on one side, and what they were told."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.epochs: dict[str, int] = {}
        self.before: dict[str, int] = {}

    def beat(self, member: str, epoch: int, topics: tuple[str, ...] | None, group: str = GROUP) -> object:
        names = None if topics is None else [self.side.topic_name(topic) for topic in topics]
        fields = {"group_id": self.side.group_id(group), "member_id": member, "member_epoch": epoch}
        answer = self.side.ask("share_group_heartbeat", 1, fields | {"subscribed_topic_names": names})
        code, told = answer["error_code"], answer["member_epoch"]
        if not code and epoch < 0:
            self.epochs.pop(member, None)
        elif not code and group == GROUP:
            if self.epochs.get(member) != told:
                self.before[member] = self.epochs.get(member, 0)
            self.epochs[member] = told  # type: ignore[assignment]
        is_told = answer["assignment"] is not None if epoch == 0 or topics is not None else None
        return code, told, answer["heartbeat_interval_ms"], is_told

    def described(self, group: str = GROUP) -> object:
        answer = self.side.ask("share_group_describe", 1, {"group_ids": [self.side.group_id(group)]})
        (found,) = rows(answer["groups"])
        members = rows(found["members"])
        held = {str(each["member_id"]): read_partitions(each["assignment"]["topic_partitions"]) for each in members}  # type: ignore[index,call-overload]
        shared: dict[str, dict[int, int]] = {}
        for partitions in held.values():
            for topic_id, numbers in partitions.items():
                counts = shared.setdefault(self.side.label(topic_id), {})
                for number in numbers:
                    counts[number] = counts.get(number, 0) + 1
        is_settled = all(each["member_epoch"] == found["group_epoch"] for each in members)
        return {
            "head": [found[key] for key in ("error_code", "group_state", "group_epoch", "assignment_epoch")],
            "assignor": found["assignor_name"],
            "members": sorted((str(each["member_id"]), each["member_epoch"]) for each in members),
            "shared": {topic: sorted(counts.items()) for topic, counts in sorted(shared.items())} if is_settled else {},
            "sizes": sorted(sum(map(len, each.values())) for each in held.values()) if is_settled else [],
        }

    def offsets(self, group: str = GROUP) -> list[Any]:
        asked = {"group_id": self.side.group_id(group), "topics": None}
        (found,) = rows(self.side.ask("describe_share_group_offsets", 1, {"groups": [asked]})["groups"])
        return sorted(
            (self.side.label(str(topic["topic_id"])), each["partition_index"], each["start_offset"], each["lag"])
            for topic in rows(found["topics"])
            for each in rows(topic["partitions"])
        )

    def alter(self, topic: str, starts: dict[int, int], group: str) -> object:
        partitions = [{"partition_index": number, "start_offset": offset} for number, offset in starts.items()]
        fields = {"topics": [{"topic_name": self.side.topic_name(topic), "partitions": partitions}]}
        answer = self.side.ask("alter_share_group_offsets", 0, {"group_id": self.side.group_id(group)} | fields)
        return answer["error_code"], [
            [(each["partition_index"], each["error_code"]) for each in rows(row["partitions"])]
            for row in rows(answer["responses"])
        ]

    def delete_offsets(self, topics: tuple[str, ...], group: str) -> object:
        named = [{"topic_name": self.side.topic_name(topic)} for topic in topics]
        answer = self.side.ask(
            "delete_share_group_offsets", 0, {"group_id": self.side.group_id(group), "topics": named}
        )
        found = [(self.side.label(str(row["topic_name"])), row["error_code"]) for row in rows(answer["responses"])]
        return answer["error_code"], sorted(found)

    def delete(self, group: str) -> object:
        answer = self.side.ask("delete_groups", 2, {"groups_names": [self.side.group_id(group)]})
        return [row["error_code"] for row in rows(answer["results"])]

    def listed(self) -> object:
        answer = self.side.ask("list_groups", 5, {"types_filter": ["share"]})
        mine = {self.side.group_id(group) for group in (GROUP, OTHER)}
        return sorted(
            (self.side.label(str(row["group_id"])), row["protocol_type"], row["group_state"], row["group_type"])
            for row in rows(answer["groups"])
            if row["group_id"] in mine
        )

    def clear(self) -> None:
        for member in tuple(self.epochs):
            self.beat(member, -1, None)
        for group in (GROUP, OTHER):
            self.delete(group)


@pytest.mark.timeout(120)
def test_share_groups_are_coordinated_as_by_kafka(
    embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka, seed: int
) -> None:
    """A worker, or a tool, that was tested here behaves on a cluster as in its tests."""
    rng = random.Random(seed)
    with conversing(embedded_broker, kafka_broker.bootstrap_servers) as conversation:
        ours, theirs = (Workers(side) for side in (conversation.ours, conversation.kafka))
        told: list[str] = []
        for side in (conversation.ours, conversation.kafka):
            assert [side.create_topic(topic, partitions=2 - index) for index, topic in enumerate(TOPICS)] == [0, 0]
        for _ in range(STEPS):
            name, step = _chosen(rng, ours)
            answers = step(ours), step(theirs)
            told.append(f"{name}: {answers[0]}")
            assert answers[0] == answers[1], "\n".join(told)
            for group in (GROUP, OTHER):  # Kafka makes and deletes the state of partitions after its answer
                wanted = ours.offsets(group)
                wait_until(
                    lambda group=group, wanted=wanted: theirs.offsets(group) == wanted,  # type: ignore[misc]
                    INIT_TIMEOUT_S,
                    "\n".join([*told, f"offsets of {group}: {wanted}, Kafka: {theirs.offsets(group)}"]),
                )
            shown = ours.described(), theirs.described()
            assert shown[0] == shown[1], "\n".join(told)
        for workers in (ours, theirs):
            workers.clear()


def _chosen(rng: random.Random, known: Workers) -> tuple[str, Step]:
    """A step, and its name; it may depend on what our side has told, which Kafka's has, too."""
    member, topic = rng.choice(MEMBERS), rng.choice(TOPICS)
    epoch, before = known.epochs.get(member, 0), known.before.get(member, 0)
    topics = tuple(sorted(rng.sample((*TOPICS, "t2"), rng.randint(1, 3))))
    group = rng.choice((GROUP, GROUP, OTHER))
    starts = {number: rng.randint(-2, 9) for number in (0, rng.randint(1, 3))}
    odd = rng.choice((before, epoch + 1, max(0, epoch - 2), -2))
    count = rng.randint(2, 5)
    again = topic in known.side.topic_ids

    def regrow(workers: Workers) -> object:
        return (
            workers.side.grow_topic(topic, partitions=count)
            if again
            else workers.side.create_topic(topic, partitions=2)
        )

    def drop(workers: Workers) -> object:
        return workers.side.delete_topic(topic) if again else None

    beat = f"{member} at {epoch}"
    steps: list[tuple[int, str, Step]] = [
        (6, f"{member} joins with {topics}", lambda workers: workers.beat(member, 0, topics)),
        (12, beat, lambda workers: workers.beat(member, epoch, None if epoch else topics)),
        (3, f"{beat} with {topics}", lambda workers: workers.beat(member, epoch, topics)),
        (3, f"{member} at the wrong epoch {odd}", lambda workers: workers.beat(member, odd, None)),
        (4, f"{member} leaves", lambda workers: workers.beat(member, -1, None)),
        (2, f"alter {topic} of {group}: {starts}", lambda workers: workers.alter(topic, starts, group)),
        (2, f"delete {topics} of {group}", lambda workers: workers.delete_offsets(topics, group)),
        (1, f"delete {group}", lambda workers: workers.delete(group)),
        (1, "list", lambda workers: workers.listed()),
        (1, f"more of {topic}", regrow),
        (1, f"without {topic}", drop),
    ]
    (_, name, step) = rng.choices(steps, [weight for weight, _, _ in steps])[0]
    return name, step
