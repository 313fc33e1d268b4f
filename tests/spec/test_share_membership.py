"""The rules of docs/protocol.md, section Share groups: joining, heartbeats, errors, leaving."""

from __future__ import annotations

import random
from typing import TypeVar
from uuid import UUID

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import Subscription
from kip848_client.errors import FatalGroupError, TopicAuthorizationError
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    Fail,
    FailureKind,
    LeaveDone,
    LeaveRequested,
    MemberEffect,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    SubscriptionChanged,
    SurfaceError,
    Tick,
)
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.core.states import MemberState
from kip848_client.member.share.share_member import ShareEvent, ShareMember
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kip848_client.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.schema import Response

TOPIC = UUID(int=1)
INTERVAL_MS = 5_000
EffectT = TypeVar("EffectT", bound=MemberEffect)
VERSIONS: dict[int, tuple[int, int]] = {ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1)}


class Driver:
    """A member whose coordinator is found at once, and a clock."""

    def __init__(self, versions: dict[int, tuple[int, int]] | None = None) -> None:
        config = MemberConfig(group_id="g", member_id="m", rack_id="r1")
        self.member = ShareMember(config, rng=random.Random(0))
        self.now_ms = 0
        self.effects: list[MemberEffect] = []
        self.versions = VERSIONS if versions is None else versions
        self.find()

    def step(self, event: ShareEvent) -> None:
        self.effects = self.member.step(event, now_ms=self.now_ms)

    def find(self) -> None:
        """Subscribe, and find the coordinator."""
        self.step(SubscriptionChanged(Subscription(topics=frozenset({"mails"}))))
        self.find_again()

    def find_again(self) -> None:
        (find,) = self.told(SendRequest)
        found = Coordinator("g", 1, "a", 9092)
        self.step(ResponseReceived(find.request_id, FindCoordinatorResponse(coordinators=(found,))))
        (connect,) = self.told(ConnectCoordinator)
        self.step(CoordinatorConnected(connect.request_id, self.versions))

    def told(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """The one that was just sent."""
        (send,) = self.told(SendRequest)
        self.request_id = send.request_id
        assert isinstance(send.request, ShareGroupHeartbeatRequest)
        return send.request

    def answer(self, response: Response) -> None:
        self.step(ResponseReceived(self.request_id, response))

    def accept(self, *partitions: int, epoch: int = 1) -> None:
        """Answer the heartbeat that was just sent."""
        self.heartbeat()
        given = Assignment((TopicPartitions(TOPIC, partitions),)) if partitions else None
        self.answer(
            ShareGroupHeartbeatResponse(
                member_id="m", member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=given
            )
        )

    def refuse(self, code: int) -> None:
        """Refuse the heartbeat that was just sent."""
        self.heartbeat()
        self.answer(ShareGroupHeartbeatResponse(error_code=code, error_message="no"))

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.step(Tick())


def stable() -> Driver:
    """A member with partitions 0 and 1."""
    driver = Driver()
    driver.accept(0, 1)
    return driver


def test_r320_a_join_has_epoch_0_and_everything() -> None:
    """The coordinator knows nothing of the member yet."""
    request = Driver().heartbeat()
    assert (request.member_id, request.member_epoch) == ("m", 0)
    assert (request.rack_id, request.subscribed_topic_names) == ("r1", ("mails",))


def test_r321_a_later_heartbeat_has_what_changed() -> None:
    """Each full heartbeat would make the coordinator compare everything."""
    driver = stable()
    driver.later(INTERVAL_MS)
    request = driver.heartbeat()
    assert (request.member_epoch, request.rack_id, request.subscribed_topic_names) == (1, None, None)


def test_r321_another_subscription_is_told_at_once() -> None:
    """The records of a new topic would wait for an interval."""
    driver = stable()
    driver.step(SubscriptionChanged(Subscription(topics=frozenset({"letters"}))))
    assert driver.heartbeat().subscribed_topic_names == ("letters",)


def test_r322_a_heartbeat_after_a_failed_one_is_full() -> None:
    """Whether the coordinator has read the last one is not known, and it repeats an assignment only then."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.heartbeat()
    driver.step(RequestFailed(driver.request_id, FailureKind.TIMED_OUT, "no answer"))
    driver.find_again()  # the connection was closed
    driver.later(2_000)
    request = driver.heartbeat()
    assert (request.member_epoch, request.rack_id, request.subscribed_topic_names) == (1, "r1", ("mails",))


def test_r323_the_interval_is_that_of_the_last_answer() -> None:
    """Heartbeats that come too late end the membership."""
    driver = stable()
    driver.later(INTERVAL_MS - 1)
    assert driver.told(SendRequest) == []
    driver.later(1)
    assert driver.heartbeat().member_epoch == 1


def test_r324_a_new_assignment_replaces_the_old_one_at_once() -> None:
    """Nobody waits for this member to give something up: others may read the same partitions."""
    driver = stable()
    assert driver.member.assignment == {(TOPIC, 0), (TOPIC, 1)}
    driver.later(INTERVAL_MS)
    driver.accept(1, epoch=2)
    assert driver.member.assignment == {(TOPIC, 1)}
    assert driver.member.state is MemberState.STABLE


def test_r324_an_answer_without_an_assignment_changes_nothing() -> None:
    """The coordinator repeats an assignment only if it has to."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.accept(epoch=1)
    assert driver.member.assignment == {(TOPIC, 0), (TOPIC, 1)}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_r325_a_removed_member_joins_again_at_once(code: ErrorCode) -> None:
    """A worker that a pause of its process has removed would do nothing any more."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.refuse(code)
    request = driver.heartbeat()
    assert (request.member_id, request.member_epoch) == ("m", 0)
    assert driver.member.assignment == frozenset()


def test_r326_a_coordinator_that_loads_is_asked_again_and_one_that_moved_is_looked_for() -> None:
    """A rolling restart of the brokers would end every worker."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.told(SendRequest) == []
    driver.later(2_000)
    driver.refuse(ErrorCode.NOT_COORDINATOR)
    (find,) = driver.told(SendRequest)
    assert not isinstance(find.request, ShareGroupHeartbeatRequest)
    assert driver.member.assignment == {(TOPIC, 0), (TOPIC, 1)}


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "another type"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another type"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.share.max.size"),
    ],
)
def test_r327_what_no_retry_cures_stops_the_member_and_says_what_to_do(code: ErrorCode, advice: str) -> None:
    """A worker that retries for ever looks as if it had nothing to do."""
    driver = Driver()
    driver.refuse(code)
    (failed,) = driver.told(Fail)
    assert isinstance(failed.error, FatalGroupError)
    assert advice in str(failed.error)
    driver.later(60_000)
    assert driver.told(SendRequest) == []


def test_r355_a_share_group_that_was_deleted_is_joined_anew() -> None:
    """All workers were cut off for longer than their sessions, and the group was deleted."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    assert driver.told(Fail) == []
    assert driver.heartbeat().member_epoch == 0


def test_r327_a_cluster_without_share_groups_is_named() -> None:
    """Kafka 4.0 and clusters without the feature serve none: one clear error, and not a time-out."""
    driver = Driver(versions={})
    (failed,) = driver.told(Fail)
    assert "share.version=1" in str(failed.error)


def test_r328_a_missing_permission_on_a_topic_is_told_and_the_member_goes_on() -> None:
    """It is granted while the program runs."""
    driver = stable()
    driver.later(INTERVAL_MS)
    driver.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (told,) = driver.told(SurfaceError)
    assert isinstance(told.error, TopicAuthorizationError)
    driver.later(2_000)
    assert driver.heartbeat().subscribed_topic_names == ("mails",)


def test_r329_a_member_leaves_with_epoch_minus_1() -> None:
    """Its session would keep its place for ten seconds."""
    driver = stable()
    driver.step(LeaveRequested(3, 30_000, closing=True))
    request = driver.heartbeat()
    assert request.member_epoch == -1
    driver.answer(ShareGroupHeartbeatResponse(member_id="m", member_epoch=-1))
    assert driver.told(LeaveDone) == [LeaveDone(3)]
    assert driver.member.assignment == frozenset()


def test_r329_a_leave_that_nobody_answers_ends_at_its_deadline() -> None:
    """A program could not end while the brokers are away."""
    driver = stable()
    driver.step(LeaveRequested(3, 30_000, closing=True))
    driver.later(29_999)
    assert driver.told(LeaveDone) == []
    driver.later(1)
    assert driver.told(LeaveDone) == [LeaveDone(3)]
