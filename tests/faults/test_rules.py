"""Which request a rule takes, and how often."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from kip848_client.errors import ArgumentTypeError, ConfigError, ErrorCode
from kip848_client.testing.faults import (
    ALWAYS,
    FaultBook,
    Match,
    Rule,
    Subject,
    close,
    error,
    pass_through,
    select_apis,
)
from kip848_client.testing.faults.actions import Action
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.fetch import FetchRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.metadata import MetadataRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.schema import Request

ORDERS = uuid.UUID(int=1)
NAMES = {ORDERS: "orders"}
BUSY = error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
GONE = error(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def subject(request: Request[Any], *, version: int = 1, client_id: str = "c", node_id: int | None = None) -> Subject:
    return Subject(
        request,
        api_key=type(request).WIRE.api_key,
        api_version=version,
        client_id=client_id,
        topic_name=NAMES.get,
        node_id=node_id,
    )


HEARTBEAT = build(
    ConsumerGroupHeartbeatRequest,
    group_id="g",
    member_id="m",
    instance_id="i",
    member_epoch=3,
    topic_partitions=[{"topic_id": ORDERS, "partitions": [0, 2]}],
)
COMMIT = build(
    OffsetCommitRequest,
    group_id="g",
    member_id="m",
    topics=[
        {"name": "orders", "partitions": [{"partition_index": 1}]},
        {"name": "users", "partitions": [{"partition_index": 5}]},
    ],
)
FETCH = build(FetchRequest, topics=[{"topic_id": ORDERS, "partitions": [{"partition": 4}]}])
OLD_OFFSET_FETCH = build(OffsetFetchRequest, group_id="g", topics=[{"name": "orders", "partition_indexes": [7]}])
OFFSET_FETCH = build(
    OffsetFetchRequest,
    groups=[
        {"group_id": "g", "member_id": "m", "topics": [{"topic_id": ORDERS, "partition_indexes": [7]}]},
        {"group_id": "h", "topics": []},
    ],
)


def configs(resource_type: int, name: str) -> Request[Any]:
    resource = {"resource_type": resource_type, "resource_name": name}
    return build(IncrementalAlterConfigsRequest, resources=[resource])


@pytest.mark.parametrize(
    ("criteria", "request_"),
    [
        ({}, HEARTBEAT),
        ({"group": "g"}, HEARTBEAT),
        ({"member": "m"}, HEARTBEAT),
        ({"member": "i"}, HEARTBEAT),
        ({"topic": "orders"}, HEARTBEAT),
        ({"topic": "orders", "partition": 2}, HEARTBEAT),
        ({"client_id": "c"}, HEARTBEAT),
        ({"node_id": 7}, HEARTBEAT),
        ({"when": lambda request: request.member_epoch == 3}, HEARTBEAT),
        ({"topic": "new"}, ConsumerGroupHeartbeatRequest(subscribed_topic_names=("new",))),
        ({"group": "g", "topic": "users", "partition": 5}, COMMIT),
        ({"partition": 5}, COMMIT),
        ({"topic": "orders", "partition": 4}, FETCH),
        ({"topic": "orders", "partition": 7}, OLD_OFFSET_FETCH),
        ({"group": "h"}, OFFSET_FETCH),
        ({"group": "g", "member": "m", "topic": "orders", "partition": 7}, OFFSET_FETCH),
        ({"topic": "anything"}, build(OffsetFetchRequest, groups=[{"group_id": "g", "topics": None}])),
        ({"topic": "orders"}, build(MetadataRequest, topics=[{"topic_id": ORDERS}])),
        ({"topic": "anything"}, MetadataRequest(topics=None)),
        ({"group": "g"}, FindCoordinatorRequest(coordinator_keys=("f", "g"))),
        ({"group": "g"}, FindCoordinatorRequest(key="g")),
        ({"member": "m2"}, build(LeaveGroupRequest, group_id="g", members=[{"member_id": "m2"}])),
        ({"group": "g"}, configs(32, "g")),
        ({"topic": "orders"}, configs(2, "orders")),
    ],
)
def test_a_rule_matches_what_a_request_is_about(criteria: dict[str, Any], request_: Request[Any]) -> None:
    """A rule on a topic that misses requests with topic ids would stop working with the next client version."""
    assert Match(**criteria).fits(subject(request_, node_id=7))


@pytest.mark.parametrize(
    ("criteria", "request_"),
    [
        ({"group": "h"}, HEARTBEAT),
        ({"member": "n"}, HEARTBEAT),
        ({"topic": "users"}, HEARTBEAT),
        ({"topic": "orders", "partition": 1}, HEARTBEAT),
        ({"client_id": "d"}, HEARTBEAT),
        ({"node_id": 8}, HEARTBEAT),
        ({"apis": frozenset({ApiKey.FETCH})}, HEARTBEAT),
        ({"when": lambda request: request.member_epoch == 0}, HEARTBEAT),
        ({"topic": "orders", "partition": 5}, COMMIT),
        ({"topic": "users", "partition": 4}, FETCH),
        ({"group": "tx"}, FindCoordinatorRequest(key="tx", key_type=1)),
        ({"topic": "orders"}, MetadataRequest(topics=())),
        ({"group": "g"}, MetadataRequest(topics=None)),
    ],
)
def test_a_rule_leaves_other_requests_alone(criteria: dict[str, Any], request_: Request[Any]) -> None:
    """A fault that hits a bystander makes a test fail for a reason that it does not show."""
    assert not Match(**criteria).fits(subject(request_, node_id=7))


def actions_of(rule: Rule, count: int) -> list[Action | None]:
    return [rule.decide(subject(HEARTBEAT), random.Random(0)) for _ in range(count)]


def test_a_rule_acts_once_by_default() -> None:
    """The usual test: one thing goes wrong, and then the client must recover."""
    rule = Rule(Match(), [BUSY])
    assert actions_of(rule, 3) == [BUSY, None, None]
    assert (rule.matches, rule.hits, rule.spent) == (1, 1, True)


def test_times_repeats_the_whole_script() -> None:
    """Several actions are a story; a story told twice is told from its beginning."""
    rule = Rule(Match(), [BUSY, pass_through(), GONE], times=2)
    assert actions_of(rule, 7) == [BUSY, pass_through(), GONE, BUSY, pass_through(), GONE, None]


def test_always_never_ends() -> None:
    """A broker that is down stays down until the test says otherwise."""
    rule = Rule(Match(), [BUSY, GONE], times=ALWAYS)
    assert actions_of(rule, 5) == [BUSY, GONE, BUSY, GONE, BUSY]
    assert not rule.spent


def test_nth_lets_the_first_ones_pass() -> None:
    """The third heartbeat is a different situation than the first one."""
    rule = Rule(Match(), [BUSY], nth=3, times=2)
    assert actions_of(rule, 6) == [None, None, BUSY, BUSY, None, None]
    assert (rule.matches, rule.hits) == (4, 2)


def test_a_probability_is_drawn_from_the_given_generator() -> None:
    """Chaos that cannot be repeated finds bugs that cannot be fixed."""

    def hits(seed: int) -> list[bool]:
        rule, rng = Rule(Match(), [BUSY], times=ALWAYS, probability=0.3), random.Random(seed)
        return [rule.decide(subject(HEARTBEAT), rng) is not None for _ in range(200)]

    assert hits(1) == hits(1) != hits(2)
    assert 30 < sum(hits(1)) < 90


def test_the_first_rule_that_has_an_action_decides() -> None:
    """Two rules on one request: the order in which they were made, and a spent rule is out of the way."""
    book = FaultBook(random.Random(0))
    first, second = Rule(Match(), [BUSY]), Rule(Match(group="g"), [GONE], times=ALWAYS)
    book.add(first)
    book.add(second)
    decided = [book.decide(subject(HEARTBEAT)) for _ in range(3)]
    assert [decision and decision.rule for decision in decided] == [first, second, second]
    assert second.matches == 2
    book.remove(second)
    assert book.decide(subject(HEARTBEAT)) is None
    book.clear()
    assert book.rules == ()


def test_a_predicate_that_raises_takes_nothing_and_is_remembered() -> None:
    """A mistake in a test's lambda must not look like a client that never asked."""
    rule = Rule(Match(when=lambda request: request.no_such_field), [BUSY])
    assert actions_of(rule, 1) == [None]
    assert isinstance(rule.failure, AttributeError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"script": []}, "needs an action"),
        ({"nth": 0}, "counted from 1"),
        ({"times": 0}, "at least once"),
        ({"probability": 1.5}, "between 0 and 1"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    """A rule that never acts would let a test pass that tests nothing."""
    with pytest.raises(ConfigError, match=message):
        Rule(Match(), arguments.pop("script", [BUSY]), **arguments)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (ApiKey.FETCH, {1}),
        ("Fetch", {1}),
        ("offset_commit", {8}),
        ("ConsumerGroupHeartbeat", {68}),
        ("heartbeat", {12, 68, 76}),
        (OffsetCommitRequest, {8}),
        ([ApiKey.FETCH, "heartbeat", OffsetCommitRequest], {1, 8, 12, 68, 76}),
    ],
)
def test_an_api_is_named_in_any_way(selector: Any, expected: set[int]) -> None:
    """People know Kafka's names, programs the keys, type checkers the classes."""
    assert select_apis(selector) == frozenset(expected)


def test_a_misspelt_api_is_refused() -> None:
    """A rule for a misspelt API would match nothing, and the test would pass without its fault."""
    with pytest.raises(ConfigError, match="'fech' is not an API"):
        select_apis("fech")


def test_a_rule_tells_what_it_does_and_did() -> None:
    """The text stands in the error of a wait that runs out; it has to be enough to see why."""
    rule = Rule(Match(apis=frozenset({8}), group="g", when=lambda _: True), [BUSY, GONE], times=2)
    actions_of(rule, 1)
    assert str(rule) == (
        "OffsetCommit group='g' when ...: error COORDINATOR_LOAD_IN_PROGRESS(14), "
        "error COORDINATOR_NOT_AVAILABLE(15) (2 times; 0 matched, 0 hit)"
    )


def test_what_is_no_action_is_refused_when_the_rule_is_made() -> None:
    """``close`` without brackets was taken, and failed in the broker; the name of a code was a bare TypeError."""
    with pytest.raises(ArgumentTypeError, match=r"is not an action of a fault rule; write close\(\)"):
        Rule(Match(), [close])  # type: ignore[list-item]
    with pytest.raises(ArgumentTypeError, match=r"write ErrorCode\.NOT_COORDINATOR"):
        error("NOT_COORDINATOR")  # type: ignore[arg-type]
