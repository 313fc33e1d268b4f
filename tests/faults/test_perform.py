"""What each action does to a request, on a transport that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client.errors import ConfigError, ErrorCode, IllegalStateError
from kip848_client.testing.faults import (
    Match,
    OpaqueRequest,
    Rule,
    Subject,
    answer,
    close,
    coordinator_not_here,
    cut_reply,
    delay,
    drop,
    duplicate,
    error,
    hold,
    lose_reply,
    pass_through,
    perform,
    rewrite,
    rewrite_request,
)
from kip848_client.testing.faults.actions import Action
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.produce import ProduceRequest
from kip848_client.wire.schema import Request, Response
from tests.support.group_requests import commit as commit_of
from tests.support.offset_answers import commit_answer

HEARTBEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
OK = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=4)


class Transport:
    """An exchange that answers with *response* and writes down what happens."""

    def __init__(self, response: Response | Callable[[Any], Response | None] | None = OK) -> None:
        self.response = response
        self.told: list[Any] = []
        self.waiting: list[Callable[[], None]] = []
        self.failures: list[Exception] = []

    def apply(self, request: Request[Response], on_response: Callable[[Response | None], None]) -> None:
        self.told.append(("apply", request))
        on_response(self.response(request) if callable(self.response) else self.response)

    def reply(self, response: Response | None) -> None:
        self.told.append(("reply", response))

    def reply_cut(self, response: Response | None, *, byte_count: int) -> None:
        self.told.append(("cut", response, byte_count))

    def fall_silent(self) -> None:
        self.told.append("silence")

    def end(self, *, reset: bool) -> None:
        self.told.append(("end", reset))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.told.append(("wait", delay_ms))
        self.waiting.append(callback)

    def hold(self, callback: Callable[[], None]) -> None:
        self.told.append("hold")
        self.waiting.append(callback)

    def failed(self, failure: Exception) -> None:
        self.failures.append(failure)


def run(
    action: Action,
    request: Request[Any] = HEARTBEAT,
    *,
    version: int = 1,
    transport: Transport | None = None,
    match: Match = Match(),  # noqa: B008 - frozen
) -> Transport:
    transport = transport or Transport()
    wire = getattr(type(request), "WIRE", None)
    subject = Subject(
        request,
        api_key=wire.api_key if wire else 77,
        api_version=version,
        client_id="c",
        topic_name=lambda _: None,
    )
    perform(action, transport, rule=Rule(match, [action]), subject=subject)
    return transport


APPLIED = ("apply", HEARTBEAT)
ANSWERED = ("reply", OK)


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (pass_through(), [APPLIED, ANSWERED]),
        (
            answer(ConsumerGroupHeartbeatResponse(member_epoch=9)),
            [("reply", ConsumerGroupHeartbeatResponse(member_epoch=9))],
        ),
        (drop(), ["silence"]),
        (close(), [("end", False)]),
        (close(reset=True), [("end", True)]),
        (lose_reply(), [APPLIED, ("end", False)]),
        (lose_reply(reset=True), [APPLIED, ("end", True)]),
        (lose_reply(silent=True), [APPLIED, "silence"]),
        (cut_reply(7), [APPLIED, ("cut", OK, 7)]),
        (duplicate(), [APPLIED, ANSWERED, APPLIED]),
        (
            rewrite(lambda response: replace(response, throttle_time_ms=5)),
            [APPLIED, ("reply", replace(OK, throttle_time_ms=5))],
        ),
        (
            rewrite_request(lambda request: replace(request, member_epoch=0)),
            [("apply", replace(HEARTBEAT, member_epoch=0)), ANSWERED],
        ),
    ],
    ids=str,
)
def test_an_action_does_what_its_row_says(action: Action, told: list[Any]) -> None:
    """Applied or not, answered or not, connection open or not: that is all that a client can tell apart."""
    assert run(action).told == told


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (delay(50), [("wait", 50)], [APPLIED, ANSWERED]),
        (delay(50, applied=True), [APPLIED, ("wait", 50)], [ANSWERED]),
        (delay(50, then=drop()), [("wait", 50)], ["silence"]),
        (hold(), ["hold"], [APPLIED, ANSWERED]),
        (hold(applied=True), [APPLIED, "hold"], [ANSWERED]),
        (hold(then=lose_reply()), ["hold"], [APPLIED, ("end", False)]),
        (duplicate(after_ms=9), [APPLIED, ANSWERED, ("wait", 9)], [APPLIED]),
    ],
    ids=str,
)
def test_what_waits_goes_on_when_its_time_has_come(action: Action, before: list[Any], after: list[Any]) -> None:
    """A late request and a late answer are different faults: the first changes the state late."""
    transport = run(action)
    assert transport.told == before
    transport.told.clear()
    transport.waiting.pop()()
    assert transport.told == after


def test_an_error_is_answered_without_applying() -> None:
    """The state must not change when the client is told that it did not."""
    (told,) = run(error(ErrorCode.FENCED_MEMBER_EPOCH, "try again")).told
    assert told == (
        "reply",
        ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH, error_message="try again"),
    )


def test_an_injected_error_says_so_unless_told_otherwise() -> None:
    """A user must not search the broker for the cause of an error that a test injected."""
    ((_, response),) = run(coordinator_not_here(), match=Match(group="g")).told
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert response.error_message == "a fault rule of the test did this: any API group='g'"


def test_an_applied_error_changes_the_state_and_hides_it() -> None:
    """REQUEST_TIMED_OUT of a commit that was written: the client must not assume either."""
    transport = run(error(ErrorCode.REQUEST_TIMED_OUT, applied=True))
    assert transport.told[0] == APPLIED
    assert transport.told[1][1].error_code == ErrorCode.REQUEST_TIMED_OUT


def commit(*partitions: int) -> OffsetCommitRequest:
    return commit_of(dict.fromkeys(partitions, 5), topic="t")


def test_a_heartbeat_that_names_a_topic_is_refused_as_a_whole() -> None:
    """A rule may choose a request by a topic that its answer has no place for."""
    request = replace(HEARTBEAT, subscribed_topic_names=("t", "u"))
    ((_, response),) = run(error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), request, match=Match(topic="t")).told
    assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_configuration_of_one_topic_is_refused() -> None:
    """Configurations carry topics and groups as resources of a type."""
    resources = [{"resource_type": kind, "resource_name": "t"} for kind in (2, 32)]
    request = build(DescribeConfigsRequest, resources=resources)
    answered = build(DescribeConfigsResponse, results=resources[1:])
    refusal = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    transport = run(refusal, request, version=4, transport=Transport(answered), match=Match(topic="t"))
    (_, applied), (_, response) = transport.told
    assert [item.resource_type for item in applied.resources] == [32]
    assert [(item.resource_type, item.error_code) for item in response.results] == [
        (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (32, 0),
    ]


@pytest.mark.parametrize("applied", [False, True])
def test_an_error_for_one_partition_leaves_the_others_to_the_broker(applied: bool) -> None:
    """A commit of which one partition is refused is the case that clients get wrong."""
    transport = run(
        error(ErrorCode.STALE_MEMBER_EPOCH, applied=applied),
        commit(0, 1, 2),
        version=9,
        transport=Transport(commit_answer),
        match=Match(topic="t", partition=1),
    )
    (_, request), (_, response) = transport.told
    assert request == (commit(0, 1, 2) if applied else commit(0, 2))
    assert sorted((item.partition_index, item.error_code) for item in response.topics[0].partitions) == [
        (0, 0),
        (1, ErrorCode.STALE_MEMBER_EPOCH),
        (2, 0),
    ]


def test_a_fetch_of_which_a_part_is_refused_does_not_wait_for_records() -> None:
    """The injected error would reach the client only after ``fetch.max.wait.ms``."""
    topic = {"topic": "t", "partitions": [{"partition": 0}, {"partition": 1}]}
    request = build(FetchRequest, max_wait_ms=500, topics=[topic])
    refusal = error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    transport = run(refusal, request, version=12, transport=Transport(FetchResponse()), match=Match(partition=0))
    assert transport.told[0][1].max_wait_ms == 0


def test_an_error_in_metadata_is_put_into_the_brokers_own_answer() -> None:
    """Without the list of brokers no client can go on."""
    everything = Transport(build(MetadataResponse, topics=[{"name": "t"}, {"name": "u"}]))
    refusal = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    transport = run(refusal, MetadataRequest(topics=None), version=12, transport=everything, match=Match(topic="u"))
    assert [item.error_code for item in transport.told[1][1].topics] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_a_refused_request_that_has_no_answer_ends_the_connection() -> None:
    """Produce with acks=0: there is nothing to read, so that is what a broker does."""
    request = build(ProduceRequest, acks=0, topic_data=[{"name": "t", "partition_data": [{}]}])
    assert run(error(ErrorCode.NOT_LEADER_OR_FOLLOWER), request, version=9).told == [("end", False)]


@pytest.mark.parametrize(
    ("action", "request_", "message"),
    [
        (error(1), OffsetCommitRequest(), "no place"),
        (error(1), OpaqueRequest(b""), "no place"),
        (answer(MetadataResponse()), HEARTBEAT, "does not answer"),
        (rewrite(lambda response: response.no_such_field), HEARTBEAT, "no_such_field"),
        (rewrite_request(lambda request: request.no_such_field), HEARTBEAT, "no_such_field"),
    ],
    ids=["commit", "opaque", "answer", "rewrite", "rewrite the request"],
)
def test_an_action_that_does_not_fit_lets_the_request_go_on(
    action: Action, request_: Request[Any], message: str
) -> None:
    """A mistake in a rule must be told to its author, not to the client under test."""
    transport = run(action, request_)
    assert transport.told == [("apply", request_), ("reply", OK)]
    (failure,) = transport.failures
    assert isinstance(failure, IllegalStateError | AttributeError)
    assert message in str(failure)


@pytest.mark.parametrize(
    "make",
    [
        lambda: error(0),
        lambda: error(2**15),
        lambda: delay(-1),
        lambda: duplicate(after_ms=-1),
        lambda: cut_reply(0),
        lambda: lose_reply(silent=True, reset=True),
        lambda: hold(applied=True, then=drop()),
        lambda: delay(1, applied=True, then=drop()),
    ],
)
def test_an_action_that_makes_no_sense_is_refused_where_it_is_written(make: Callable[[], Action]) -> None:
    """Later it would fail on the broker's thread, far from the mistake."""
    with pytest.raises(ConfigError):
        make()
