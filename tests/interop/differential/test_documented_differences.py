"""docs/differences.md, row by row: what Kafka does, and what we do instead.

A test here fails when one of the two changes its mind; then the page, and what the comparison leaves out, is out of
date. Each test has the name of its row.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.messages import Json
from kip848_client.testing.judge.broker.side import Side, as_int, rows
from kip848_client.testing.judge.broker.steps import (
    LOOK,
    Ask,
    Asking,
    ChangeTopic,
    Commit,
    DeleteOffsets,
    Epoch,
    Fetch,
    Heartbeat,
    join,
)
from tests.interop.differential import conversation as conversation_module
from tests.interop.differential.conftest import Converse
from tests.interop.differential.conversation import Conversation, ask

pytestmark = [pytest.mark.interop]

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "differences.md"
HEARTBEATS: Final = 20


@pytest.mark.kafka
def test_a_new_group_begins_at_epoch_1(converse: Converse) -> None:
    """A test that asserts absolute epochs passes here with 1 and fails on Kafka, which begins with 2."""
    with converse() as both:
        assert epochs(both, join("a")) == (1, 2)
    with converse() as both:
        assert epochs(both, replace(join("a"), names=())) == (1, 2)


@pytest.mark.kafka
def test_a_static_member_joins_again_under_its_own_id(converse: Converse) -> None:
    """Here a static member that joins again gets its partitions back; Kafka answers a fatal error."""
    with converse() as both:
        told(both, join("s", instance="i"))
        assert codes(both, join("s", instance="i")) == (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)


@pytest.mark.kafka
def test_a_target_is_due_when_a_pattern_comes_that_is_not_matched_yet(converse: Converse) -> None:
    """Here the target waits until the pattern is matched; Kafka first computes one without its topics."""
    with converse() as both:
        perform(both, ChangeTopic("t0", 4))
        told(both, join("b"))
        told(both, join("c"))
        told(both, Heartbeat("b", Epoch.LEAVE))
        told(both, join("a", regex="nothing"))
        ours, kafka = (targets(side) for side in (both.ours, both.kafka))
    assert ours == {"a": 0, "c": 4}
    assert kafka in ({"a": 0, "c": 0}, {"a": 2, "c": 2})


@pytest.mark.kafka
def test_a_pattern_that_matches_nothing_takes_the_place_of_another(converse: Converse) -> None:
    """Here the other subscribers get the partitions; Kafka leaves them unread until the next rebalance."""
    with converse() as both:
        both.tell([ChangeTopic("t0", 4), join("a", regex="t0"), Heartbeat("a"), join("b")])
        told(both, Heartbeat("a", regex="nothing"))
        for _ in range(HEARTBEATS):  # the first of them has the pattern matched, some time after its answer
            told(both, Heartbeat("b"))
        assert [targets(side) for side in (both.ours, both.kafka)] == [{"a": 0, "b": 4}, {"a": 2, "b": 2}]


@pytest.mark.kafka
def test_a_member_that_lives_takes_the_place_of_a_static_one(converse: Converse) -> None:
    """Kafka lets a living dynamic member take over an instance id; here it is refused."""
    with converse() as both:
        told(both, join("a"))
        told(both, join("s", instance="i"))
        told(both, Heartbeat("s", Epoch.AWAY, instance="i"))
        assert codes(both, join("a", instance="i")) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)


@pytest.mark.kafka
def test_a_member_changes_its_instance_id(converse: Converse) -> None:
    """Here it keeps its partitions; Kafka answers with a smaller assignment."""
    with converse() as both:
        perform(both, ChangeTopic("t0", 2))
        told(both, join("a"))
        told(both, join("b"))
        for side in (both.ours, both.kafka):
            ask(join("a", instance="i"), side)
        assert [len(side.view("g", "a").assigned) for side in (both.ours, both.kafka)] == [1, 0]


@pytest.mark.kafka
@pytest.mark.parametrize("timeout_ms", [0, -2])
def test_the_rebalance_timeout_must_be_positive(converse: Converse, timeout_ms: int) -> None:
    """A rebalance timeout of 0 is an error here, as in KIP-848; Kafka refuses only -1."""
    with converse() as both:
        assert codes(both, join("a", timeout_ms=timeout_ms)) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)


@pytest.mark.kafka
def test_a_refused_commit_makes_a_group_without_offsets(converse: Converse) -> None:
    """Kafka lists a group after a commit of which nothing was stored; here there is none."""
    with converse() as both:
        perform(both, ChangeTopic("t0", 1))
        told(both, Commit((("t0", 0, 1),), metadata="x" * 5_000))
        told(both, Commit((("t0", 0, 1),), group="h"))  # until something is stored, Kafka does not show it
        assert [states(answer) for answer in told(both, Ask("describe_groups", 6, ("g",)))] == ["Dead", "Empty"]


@pytest.mark.kafka
def test_a_group_loses_its_last_offset(converse: Converse) -> None:
    """Here a group disappears with its last offset; Kafka keeps it for up to ten minutes."""
    with converse() as both:
        perform(both, ChangeTopic("t0", 1))
        told(both, Commit((("t0", 0, 1),)))
        told(both, DeleteOffsets((("t0", 0),)))
        assert [states(answer) for answer in told(both, Ask("describe_groups", 6, ("g",)))] == ["Dead", "Empty"]


@pytest.mark.kafka
def test_offsets_asked_for_with_an_epoch_and_no_member_id(converse: Converse) -> None:
    """A client with this mistake gets a named error here and UNKNOWN_SERVER_ERROR from Kafka."""
    with converse() as both:
        told(both, join("a"))
        answers = [rows(answer["groups"])[0] for answer in told(both, Fetch(epoch=Epoch.FAR))]
    found = [answer["error_code"] for answer in answers]
    assert found == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_what_the_comparison_leaves_out_is_a_row_of_the_page() -> None:
    """Users look for differences on the page, not in the test."""
    rows_of_page = {row.lower() for row in re.findall(r"^\| \*\*(.+?)\*\*", DOCUMENT.read_text(), flags=re.MULTILINE)}
    left_out = set(re.findall(r'^ +return "(.+)"$', inspect.getsource(conversation_module), flags=re.MULTILINE))

    assert len(left_out) >= 5
    assert left_out <= rows_of_page


def told(both: Conversation, step: Asking) -> tuple[dict[str, Json], dict[str, Json]]:
    """The answers of both."""
    return ask(step, both.ours), ask(step, both.kafka)


def perform(both: Conversation, step: ChangeTopic) -> None:
    """Change a topic on both."""
    step.perform(both.ours)
    step.perform(both.kafka)


def epochs(both: Conversation, step: Heartbeat) -> tuple[int, int]:
    """The epochs that both answer."""
    ours, kafka = told(both, step)
    return as_int(ours["member_epoch"]), as_int(kafka["member_epoch"])


def codes(both: Conversation, step: Heartbeat) -> tuple[int, int]:
    """The error codes that both answer."""
    ours, kafka = told(both, step)
    return as_int(ours["error_code"]), as_int(kafka["error_code"])


def states(answer: dict[str, Json]) -> Json:
    """State of the one group that was described."""
    return rows(answer["groups"])[0]["group_state"]


def targets(side: Side) -> dict[str, int]:
    """Number of partitions in the target of every member."""
    (group,) = rows(ask(LOOK, side)["groups"])
    found = {}
    for member in rows(group["members"]):
        target = member["target_assignment"]
        assert isinstance(target, dict)
        partitions = [topic["partitions"] for topic in rows(target["topic_partitions"])]
        found[str(member["member_id"])] = sum(len(numbers) for numbers in partitions if isinstance(numbers, list))
    return found
