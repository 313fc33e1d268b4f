"""What a scenario does to a client: bring it into the situations in which members break rules.

A scenario waits until a member of a group is in step, does something to it by a fault rule or from outside, and waits
until the member is in step again. One that does not come back broke the rule that demands it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import Kip848Error, RequestTimeoutError
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.faults import HEARTBEAT_APIS, Action, error, lose_reply
from kip848_client.testing.judge.wording import read_subscription
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

COMPANION: Final = "kip848-judge"
"""The client id of the judge's own member, which is not judged."""
_SLICE_S: Final = 0.25
_PAUSED_S: Final = 2.0
_COMMIT_S: Final = 6.0
"""Longer than Kafka's interval of automatic commits."""
_JOINS: Final = (*HEARTBEAT_APIS, ApiKey.JOIN_GROUP)


class SceneError(Kip848Error):
    """A scenario cannot be played, or not to its end; the message says why."""


class Judge(Protocol):
    """What a scenario needs of a judge; see `judging`."""

    @property
    def target(self) -> EmbeddedBroker | FaultProxy:
        """Whose clients are judged."""
        ...

    def missed(self, rule: int, group_id: str, member_id: str, *, expected: str, seen: str) -> None:
        """A member did not do in time what a rule demands."""
        ...


class MemberOnStage(msgspec.Struct, frozen=True):
    """The member that a scenario is about.

    Args:
        protocol: ``consumer``, ``classic`` or ``share``.
        heartbeat: the API of its heartbeats.
    """

    group_id: str
    member_id: str
    client_id: str
    protocol: str
    heartbeat: ApiKey


class Stage:
    """What scenarios may do.

    Args:
        patience_s: how long a client may take for each step.
        process: the client; None if it is not a process of the judge.
    """

    def __init__(
        self, judge: Judge, *, patience_s: float = 60.0, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.judge: Final = judge
        self.target: Final = judge.target
        self._patience_s: Final = patience_s
        self._process: Final = process

    def in_step(self) -> MemberOnStage:
        """Wait until a member's heartbeat from now on is accepted."""
        since = self.target.requests.mark()
        heartbeat = self._wait(_is_accepted, since=since, answered=True)
        if heartbeat is None:
            raise SceneError(f"no member was in step within {self._patience_s:.0f} s")
        return _subject(heartbeat)

    def refuse(self, subject: MemberOnStage, code: int, *, times: int = 1) -> None:
        """Refuse the next heartbeats of a member."""
        rule = self.target.faults.on(
            subject.heartbeat, error(code), client_id=subject.client_id, group=subject.group_id, times=times
        )
        with rule:
            self._until(lambda: rule.hits >= times, f"{times} heartbeats")

    def act_on(self, subject: MemberOnStage, api: ApiKey, action: Action, *, patience_s: float | None = None) -> None:
        """Do something to the next request of a member's client, and wait until it was done."""
        with self.target.faults.on(api, action, client_id=subject.client_id) as rule:
            self._until(lambda: rule.hits > 0, f"a request of {api.name}", patience_s=patience_s)

    def comes_back(
        self, subject: MemberOnStage, rule: int, *, since: int, expected: str, joining: bool = False
    ) -> None:
        """Wait until the client of a member is in step again, after a join if it has to join.

        A member that does not has broken *rule*.
        """
        wanted = _is_join if joining else _is_accepted
        found = self._wait(lambda one: one.client_id == subject.client_id and wanted(one), since=since, answered=True)
        if found is None:
            self.judge.missed(
                rule,
                subject.group_id,
                subject.member_id,
                expected=expected,
                seen=f"nothing like that within {self._patience_s:.0f} s",
            )
            raise SceneError(f"the member did not come back within {self._patience_s:.0f} s")

    def mark(self) -> int:
        """The present, for `comes_back`."""
        return self.target.requests.mark()

    def topics_of(self, subject: MemberOnStage) -> list[str]:
        """The topics that a member subscribed to by name."""
        names: list[str] = []
        for one in self.target.requests.of(_JOINS, client_id=subject.client_id, group=subject.group_id):
            names = _topics_in(one) or names
        if not names:
            raise SceneError("its topics are not known: it subscribes to a pattern, or joined long ago")
        return names

    def protocols_of(self, subject: MemberOnStage) -> list[str]:
        """The assignors of a member of a classic group, in its order."""
        joins = self.target.requests.of(ApiKey.JOIN_GROUP, client_id=subject.client_id, group=subject.group_id)
        last = joins[-1].request if joins else None
        return [one.name for one in last.protocols] if isinstance(last, JoinGroupRequest) else []

    @contextlib.contextmanager
    def companion(self, subject: MemberOnStage) -> Iterator[None]:
        """Let another member join the group, which owns partitions for a while and commits nothing."""
        conf: dict[str, object] = {
            "bootstrap.servers": self.target.bootstrap_servers,
            "group.id": subject.group_id,
            "client.id": COMPANION,
            "group.protocol": subject.protocol,
            "enable.auto.commit": False,
        }
        if subject.protocol == "classic":
            known = [name for name in self.protocols_of(subject) if name in {"range", "cooperative-sticky"}]
            if not known:
                raise SceneError("no other member can join: it knows none of the assignors of this one")
            conf["partition.assignment.strategy"] = ",".join(known)
        elif subject.protocol != "consumer":
            raise SceneError("members of share groups do not rebalance")
        from kip848_client.consumer.consumer import Consumer  # here: without a companion nobody needs librdkafka

        topics = self.topics_of(subject)
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                consumer.consume(100, 0.1)

        with Consumer(conf) as consumer:
            consumer.subscribe(topics)
            reader = daemon_thread(read, "kip848-judge-companion")
            reader.start()
            try:
                self._until(lambda: bool(consumer.assignment()), "a partition for the other member")
                yield
            finally:
                over.set()
                reader.join()

    def stand_still(self) -> None:
        """Stop the client's process for two seconds, as a machine without CPU does."""
        process = self._process
        if process is None or sys.platform == "win32":
            return
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(_PAUSED_S)  # standing still for this time is what the client is put through
        finally:
            process.send_signal(signal.SIGCONT)

    # --- waiting

    def _wait(
        self, when: Callable[[LoggedRequest], bool], *, since: int, answered: bool = False
    ) -> LoggedRequest | None:
        deadline_s = time.monotonic() + self._patience_s
        while True:
            self._check()
            try:
                return self.target.requests.wait_for(
                    _JOINS,
                    when=lambda one: one.client_id != COMPANION and when(one),
                    since=since,
                    answered=answered,
                    timeout_s=_SLICE_S,
                )
            except RequestTimeoutError:
                if time.monotonic() > deadline_s:
                    return None

    def _until(self, is_done: Callable[[], bool], what: str, *, patience_s: float | None = None) -> None:
        deadline_s = time.monotonic() + (patience_s or self._patience_s)
        while not is_done():
            self._check()
            if time.monotonic() > deadline_s:
                raise SceneError(f"{what} did not come within {self._patience_s:.0f} s")
            time.sleep(_SLICE_S / 5)  # what is waited for is seen by looking: a hit of a fault, an assignment

    def _check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise SceneError("the client has ended")


def fenced(stage: Stage) -> None:
    """Tell a member that it was removed, once for each code that says so."""
    for number in (0, 1):
        subject = stage.in_step()
        codes = _REMOVED[subject.protocol]
        if number >= len(codes):
            return
        since = stage.mark()
        stage.refuse(subject, codes[number])
        stage.comes_back(
            subject,
            {"consumer": 57, "classic": 207, "share": 325}[subject.protocol],
            since=since,
            expected="a removed member joins again",
            joining=True,
        )


def coordinator_moves(stage: Stage) -> None:
    """Let the coordinator move, load, and be nowhere for a while."""
    for code, times in ((ErrorCode.NOT_COORDINATOR, 1), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 4)):
        subject = stage.in_step()
        since = stage.mark()
        stage.refuse(subject, code, times=times)
        stage.comes_back(subject, _back(subject), since=since, expected="the member goes on with its next coordinator")
    subject = stage.in_step()
    since = stage.mark()
    with stage.target.faults.on(
        ApiKey.FIND_COORDINATOR, error(ErrorCode.COORDINATOR_NOT_AVAILABLE), client_id=subject.client_id, times=4
    ):
        stage.refuse(subject, ErrorCode.NOT_COORDINATOR)
        stage.comes_back(subject, _back(subject), since=since, expected="the member looks on until there is one")


def lost_answers(stage: Stage) -> None:
    """Lose the answers to heartbeats and commits, by a closed connection and in silence."""
    for silent in (False, True):
        subject = stage.in_step()
        if silent and subject.protocol == "classic":
            break  # its clients wait a minute, and their session is over before
        since = stage.mark()
        stage.act_on(subject, subject.heartbeat, lose_reply(silent=silent))
        stage.comes_back(subject, _back(subject), since=since, expected="the member repeats the heartbeat")
    subject = stage.in_step()
    api = ApiKey.SHARE_FETCH if subject.protocol == "share" else ApiKey.OFFSET_COMMIT
    with contextlib.suppress(SceneError):  # a client that commits nothing has nothing to lose
        stage.act_on(subject, api, lose_reply(), patience_s=_COMMIT_S)
    stage.in_step()


def topic_grows(stage: Stage) -> None:
    """Add a partition to each of a member's topics."""
    broker = stage.target
    if not isinstance(broker, EmbeddedBroker):
        raise SceneError("topics of another cluster stay as they are: play it on the embedded broker")
    subject = stage.in_step()
    for topic in stage.topics_of(subject):
        broker.topics.add_partitions(topic, broker.topics[topic] + 1)
    stage.in_step()


def slow_poll(stage: Stage) -> None:
    """Let another member come and go twice, while the client stands still for a moment."""
    for _ in range(2):
        subject = stage.in_step()
        with stage.companion(subject):
            stage.stand_still()
            stage.in_step()
        stage.in_step()


_REMOVED: Final = {
    "consumer": (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID),
    "share": (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID),
    # After UNKNOWN_MEMBER_ID it would join as another member, and wait for its own session to end.
    "classic": (ErrorCode.ILLEGAL_GENERATION,),
}
"""Protocol -> codes of a heartbeat by which a member is removed."""

SCENARIOS: Final[dict[str, Callable[[Stage], None]]] = {
    "fenced": fenced,
    "coordinator-moves": coordinator_moves,
    "lost-answers": lost_answers,
    "topic-grows": topic_grows,
    "slow-poll": slow_poll,
}


def _back(subject: MemberOnStage) -> int:
    """The rule by which a member goes on after a failure."""
    return {"consumer": 54, "classic": 209, "share": 326}[subject.protocol]


def _is_accepted(one: LoggedRequest) -> bool:
    """Whether it is a heartbeat of a member that was accepted."""
    epoch = getattr(one.request, "member_epoch", 1)
    return one.api in HEARTBEAT_APIS and one.error_code == 0 and epoch > 0 and one.response is not None


def _is_join(one: LoggedRequest) -> bool:
    """Whether it is an accepted join."""
    if isinstance(one.request, JoinGroupRequest):
        return one.error_code == 0 and one.response is not None
    return getattr(one.request, "member_epoch", 1) == 0 and one.error_code == 0 and one.response is not None


def _subject(heartbeat: LoggedRequest) -> MemberOnStage:
    request = heartbeat.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest | HeartbeatRequest)
    protocol = {ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer", ApiKey.SHARE_GROUP_HEARTBEAT: "share"}
    api = ApiKey(heartbeat.api)
    return MemberOnStage(
        group_id=request.group_id,
        member_id=request.member_id,
        client_id=heartbeat.client_id or "",
        protocol=protocol.get(api, "classic"),
        heartbeat=api,
    )


def _topics_in(one: LoggedRequest) -> list[str]:
    match one.request:
        case ConsumerGroupHeartbeatRequest() | ShareGroupHeartbeatRequest():
            return [*(one.request.subscribed_topic_names or ())]
        case JoinGroupRequest(protocols=(first, *_)):
            told = read_subscription(first.metadata)
            return [*told.topics] if told is not None else []
        case _:
            return []
