"""One group on a clock that moves when told: real members, a real coordinator, and no delay between them.

`World` performs what members ask for and writes down every message, listener call and state change. Listeners and
everything else that belongs to the application's thread run only while the application polls or closes, as in a real
consumer. A member that is cut off sends into the void, and its requests time out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.interface import PartitionAssignor
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription
from kip848_client.config.assignors import is_cooperative
from kip848_client.errors import Kip848Error, error_name
from kip848_client.member.core import assignor_events, events
from kip848_client.member.core.assignor_values import advertised, announce, compute
from kip848_client.member.core.settings import GroupProtocol, MemberConfig, ResetPolicy
from kip848_client.member.member import Member
from kip848_client.testing.judge.wording import Wording, is_steady, partitions_text
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.schema import Response
from tests.support.coordinator_harness import Harness
from tests.support.member_harness import NoJitter

VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (0, 0),
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (0, 0),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
}
_APPLICATION_EFFECTS: Final = (
    events.PausePartitions,
    events.RevokePartitions,
    events.AssignPartitions,
    events.LosePartitions,
    events.StartFetching,
    events.StopFetching,
    events.CommitDone,
    events.OffsetsFetched,
    events.LeaveDone,
    events.SurfaceError,
    events.Fail,
)
_CALLBACKS: Final[dict[type[object], str]] = {
    events.RevokePartitions: "on_partitions_revoked",
    events.AssignPartitions: "on_partitions_assigned",
    events.LosePartitions: "on_partitions_lost",
}
COORDINATOR: Final = "coordinator"
_COORDINATORS_ID: Final = re.compile(r"\b(\w+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""A member id that the coordinator made, on the classic protocol; it begins with the member's name."""


class World:
    """The group, its coordinator and its members by name.

    Attributes:
        arrows: everything that happened as (from, to, text), for sequence diagrams; from and to are equal for what
            happens inside one of them. Steady heartbeats are left out.
    """

    def __init__(self) -> None:
        self.harness: Final = Harness()
        self.consumers: Final[dict[str, TranscriptConsumer]] = {}
        self.answers_to_lose: Final[defaultdict[str, list[str]]] = defaultdict(list)
        """Name of a consumer, also of one that comes later -> APIs whose next answer is lost; "" stands for any."""
        self._lines: Final[list[str]] = []
        self._steady: Final[Counter[str]] = Counter()
        self.arrows: Final[list[tuple[str, str, str]]] = []
        self._timers: Final[list[tuple[int, int, TranscriptConsumer, events.MemberEvent]]] = []
        self._topic_names: Final[dict[UUID, str]] = {}
        self._last_time_shown_ms = 0
        self._events_shown = 0

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.harness.now_ms

    # --- writing

    def say(self, source: str, target: str, text: str) -> None:
        """Write down one thing; the time stands before it if the clock moved since the last one."""
        text = _COORDINATORS_ID.sub(r"\1", text)
        if self.now_ms != self._last_time_shown_ms:
            self._lines.append(f"-- {self.now_ms / 1000:.3f} s")
            self._last_time_shown_ms = self.now_ms
        sign = {True: ":", False: " <-" if source == COORDINATOR else " ->"}[source == target]
        name = target if source == COORDINATOR else source
        self._lines.append(f"{name}{sign} {text}")
        self.arrows.append((source, target, text))

    def mark(self) -> tuple[int, int, int]:
        """How much is written; for `take_back`."""
        return len(self._lines), len(self.arrows), self._last_time_shown_ms

    def said_once_since(self, mark: tuple[int, int, int]) -> bool:
        """Whether exactly one thing was said since *mark*."""
        return len(self.arrows) == mark[1] + 1

    def take_back(self, mark: tuple[int, int, int]) -> None:
        """Strike out what was written since *mark*."""
        lines, arrows, self._last_time_shown_ms = mark
        del self._lines[lines:]
        del self.arrows[arrows:]

    def steady_heartbeat(self, name: str) -> None:
        """Count a heartbeat that told nothing and was told nothing; `take_lines` writes how many there were."""
        self._steady[name] += 1

    def take_lines(self) -> list[str]:
        """What was written since the last call."""
        taken = list(self._lines)
        if self._steady:
            counts = ", ".join(f"{name} {count}" for name, count in sorted(self._steady.items()))
            taken.append(f"(steady heartbeats: {counts})")
        self._lines.clear()
        self._steady.clear()
        return taken

    def wording(self) -> Wording:
        """Texts for messages. A topic keeps its name here after it was deleted."""
        self._topic_names.update({topic.topic_id: topic.name for topic in self.harness.image.topics})
        return Wording(self._topic_names.get)

    # --- doing

    def start_classic(self, name: str, config: Mapping[str, object], assignor: str) -> None:
        """A process with one consumer on the classic protocol begins."""
        assignors = (BUILT_IN[assignor](),)
        settings: dict[str, object] = {
            "protocol": GroupProtocol.CLASSIC,
            "cooperative": is_cooperative(assignors),
            "session_timeout_ms": 45_000,
            "heartbeat_interval_ms": 3_000,
        }
        self.start(name, settings | dict(config), assignors)

    def start(
        self, name: str, config: Mapping[str, object] | None = None, assignors: tuple[PartitionAssignor, ...] = ()
    ) -> TranscriptConsumer:
        """A process with one consumer begins."""
        consumer = self.consumers[name] = TranscriptConsumer(self, name, config or {}, assignors)
        return consumer

    def settle(self) -> None:
        """Let all members act until nothing more can happen at this time."""
        while True:
            acted = [consumer.act() for consumer in list(self.consumers.values())]
            if not any(acted):
                break
            self.show_coordinator()
        self.show_coordinator()

    def advance(self, ms: int) -> None:
        """Move the clock from one deadline to the next; coordinator's timers come before members' deadlines."""
        end_ms = self.now_ms + ms
        self.settle()
        while (next_ms := self._next_ms()) is not None and next_ms <= end_ms:
            self.harness.advance(max(0, next_ms - self.now_ms))
            self.show_coordinator()
            due = [timer for timer in self._timers if timer[0] <= self.now_ms]
            for timer in due:
                self._timers.remove(timer)
                timer[2].post(timer[3])
            for consumer in list(self.consumers.values()):
                deadline_ms = consumer.member.deadline_ms()
                if deadline_ms is not None and deadline_ms <= self.now_ms:
                    consumer.tick()
            self.settle()
        self.harness.advance(end_ms - self.now_ms)
        self.show_coordinator()

    def call_later(self, delay_ms: int, consumer: TranscriptConsumer, event: events.MemberEvent) -> None:
        """Hand *event* to the member in *delay_ms*."""
        self._timers.append((self.now_ms + delay_ms, len(self._timers), consumer, event))

    def _next_ms(self) -> int | None:
        deadlines = [timer[0] for timer in self._timers]
        deadlines += [ms for c in self.consumers.values() if (ms := c.member.deadline_ms()) is not None]
        coordinator_ms = self.harness.coordinator.deadline_ms()
        if coordinator_ms is not None:
            deadlines.append(coordinator_ms)
        return min(deadlines, default=None)

    def show_coordinator(self) -> None:
        """Write down what happened inside the coordinator."""
        self.harness.run_tasks()
        new = self.harness.events[self._events_shown :]
        self._events_shown = len(self.harness.events)
        for event in new:
            text = self.wording().fact(event)
            if text is not None:
                self.say(COORDINATOR, COORDINATOR, text)


class TranscriptConsumer:
    """A member with its application: what `consumer.Consumer` is to a program."""

    def __init__(
        self, world: World, name: str, config: Mapping[str, object], assignors: tuple[PartitionAssignor, ...]
    ) -> None:
        defaults: dict[str, object] = {
            "group_id": world.harness.group_id,
            "member_id": name,
            "auto_commit_interval_ms": None,
            "auto_offset_reset": ResetPolicy.EARLIEST,
            "client_assignors": tuple(advertised(assignor) for assignor in assignors),
        }
        self._world: Final = world
        self.name: Final = name
        self._assignors: Final = assignors
        settings: dict[str, Any] = {**defaults, **config}
        self.member: Final = Member(MemberConfig(**settings), rng=NoJitter())
        self.reachable = True
        self._parked: dict[int, events.SendRequest] = {}
        """Requests that the coordinator has not answered yet, by their number there."""
        self.answers_to_lose: Final[list[str]] = world.answers_to_lose[name]
        self.failing_callback: str | None = None
        self._app_polled_ms: int | None = None
        self._in_call = False
        self._raised = False
        self._closing = False
        self._events: list[events.MemberEvent] = []
        self._for_application: list[events.MemberEffect] = []
        self._positions: dict[NamedPartition, OffsetAndMetadata] = {}
        self._call_id = 1000

    # --- what applications do

    def subscribe(self, topics: Iterable[str], *, pattern: str | None = None) -> None:
        """subscribe()."""
        if self._assignors and self.member.view().member_epoch < 0:
            self.post(assignor_events.AssignorsDescribed(tuple(advertised(assignor) for assignor in self._assignors)))
        self.post(events.SubscriptionChanged(Subscription(frozenset(topics), pattern)))

    def poll(self) -> None:
        """poll(): serve what waits for the application until there is nothing more."""
        self._app_polled_ms = self._world.now_ms
        self._in_call = True
        self.act()
        if self.member.view().poll_wanted:
            self.post(events.AppPolled(dict(self._positions)))
        else:
            self.tick()
        self._raised = False
        self._world.settle()
        while self.member.view().poll_wanted and not self._raised:
            self.post(events.AppPolled(dict(self._positions)))
            before = len(self._world.arrows)
            self._world.settle()
            if len(self._world.arrows) == before:
                break
        self._in_call = False

    def consume(self, partition: NamedPartition, offset: int) -> None:
        """Records up to *offset* were handed out and processed."""
        self._positions[partition] = OffsetAndMetadata(offset)

    def commit(self, partition: NamedPartition, offset: int) -> None:
        """commit(asynchronous=False)."""
        self._call_id += 1
        deadline_ms = self._world.now_ms + 60_000
        offsets = {partition: OffsetAndMetadata(offset)}
        self._in_call = True
        self.post(events.CommitRequested(self._call_id, offsets, events.CommitKind.SYNC, deadline_ms))
        self._world.settle()
        self._in_call = False

    def leave(self, *, closing: bool) -> None:
        """unsubscribe() or close()."""
        self._call_id += 1
        self._in_call = True
        self.post(
            events.LeaveRequested(
                self._call_id, self._world.now_ms + 30_000, mode=events.LeaveMode.DEFAULT, closing=closing
            )
        )
        self._closing = closing
        self._world.settle()

    # --- the engine

    def post(self, event: events.MemberEvent) -> None:
        """Queue an event for the member."""
        self._events.append(event)

    def tick(self) -> None:
        """The shell wakes up."""
        self.post(events.Tick(self._app_polled_ms))

    def act(self) -> bool:
        """Handle the events that wait, and what waits for the application if it is in a call. True if any did."""
        acted = self._hear()
        while self._events or (self._in_call and self._for_application):
            acted = True
            if self._events:
                for effect in self.member.step(self._events.pop(0), now_ms=self._world.now_ms):
                    if isinstance(effect, _APPLICATION_EFFECTS):
                        self._for_application.append(effect)
                    else:
                        self._perform(effect)
            else:
                self._serve(self._for_application.pop(0))
        return acted

    def _perform(self, effect: events.MemberEffect) -> None:
        match effect:
            case events.SendRequest(request_id=request_id, request=FindCoordinatorRequest()) if self.reachable:
                found = Coordinator(self._world.harness.group_id, 1, "broker", 9092, 0, None)
                self.post(events.ResponseReceived(request_id, FindCoordinatorResponse(coordinators=(found,))))
            case events.SendRequest():
                self._send(effect)
            case events.ConnectCoordinator(request_id=request_id, timeout_ms=timeout_ms):
                if self.reachable:
                    self.post(events.CoordinatorConnected(request_id, VERSIONS))
                else:
                    self._time_out(request_id, timeout_ms)
            case events.RequestMetadata(request_id=request_id, topic_ids=topic_ids, timeout_ms=timeout_ms):
                if self.reachable:
                    topics = self._world.harness.image.topics
                    names = {topic.topic_id: topic.name for topic in topics if topic.topic_id in topic_ids}
                    self.post(events.MetadataUpdated(names, request_id))
                else:
                    self._time_out(request_id, timeout_ms)
            case events.DescribeTopics(request_id=request_id):
                topics_found = {
                    topic.name: events.TopicDescription(topic.topic_id, topic.partition_count)
                    for topic in self._world.harness.image.topics
                }
                self.post(events.TopicsDescribed(request_id, topics_found))
            case events.ListOffsets(request_id=request_id, timestamps=timestamps):
                offsets = {partition: OffsetAndMetadata(0) for partition in timestamps}
                self.post(events.OffsetsListed(request_id, offsets, {}))
            case events.StateChanged(old=old, new=new, trigger=trigger):
                self._say(f"{old.name} to {new.name} ({trigger})")
            case assignor_events.DescribeAssignors(call_id=call_id):
                self.post(assignor_events.AssignorsDescribed(tuple(advertised(a) for a in self._assignors), call_id))
            case assignor_events.RunAssignor():
                done, failure = compute(self._assignors, effect)
                self._say(
                    f"assign() of {effect.snapshot.assignor_name} " + ("fails" if failure else "computes a target")
                )
                self.post(done)
            case assignor_events.CallOnAssignment(call_id=call_id):
                announce(self._assignors, effect)
                self.post(assignor_events.OnAssignmentDone(call_id))
            case assignor_events.AssignorFailed(error=error):
                self._say(f"assignor failed: {_error_text(error)}")
            case events.GroupLeft():
                pass  # the change of the state says it
            case assignor_events.AssignorsUnsupported():
                self._say("the coordinator has no client-side assignment")
            case _:
                raise AssertionError(f"an effect that the transcript does not know: {effect}")

    def _send(self, effect: events.SendRequest) -> None:
        world = self._world
        request = effect.request
        began = world.mark()
        world.say(self.name, COORDINATOR, world.wording().message(request))
        if not self.reachable:
            self._time_out(effect.request_id, effect.timeout_ms)
            return
        version = VERSIONS[request.WIRE.api_key][1]
        if effect.max_version is not None:
            version = min(version, effect.max_version)
        number = world.harness.post(request, version=version, client_id=self.name)
        world.show_coordinator()
        response = world.harness.answers.get(number)
        if response is None:
            self._parked[number] = effect
            return
        self._answered(effect, response, began)

    def _hear(self) -> bool:
        """Take the answers that have come to requests that waited. True if there was one."""
        answers = self._world.harness.answers
        come = [number for number in self._parked if number in answers]
        for number in come:
            self._answered(self._parked.pop(number), answers[number], self._world.mark())
        return bool(come)

    def _answered(self, effect: events.SendRequest, response: Response, began: tuple[int, int, int]) -> None:
        world, request = self._world, effect.request
        lost = next((api for api in self.answers_to_lose if api in type(request).__name__), None)
        if lost is not None:
            self.answers_to_lose.remove(lost)
            world.say(COORDINATOR, self.name, f"(lost) {world.wording().message(response)}")
            self._time_out(effect.request_id, effect.timeout_ms)
            return
        if not (world.said_once_since(began) and is_steady(request, response)):
            world.say(COORDINATOR, self.name, world.wording().message(response))
        else:
            world.take_back(began)
            world.steady_heartbeat(self.name)
        self.post(events.ResponseReceived(effect.request_id, response))

    def _time_out(self, request_id: int, timeout_ms: int) -> None:
        self._world.call_later(
            timeout_ms, self, events.RequestFailed(request_id, events.FailureKind.TIMED_OUT, "no answer")
        )

    def _serve(self, effect: events.MemberEffect) -> None:
        match effect:
            case events.RevokePartitions() | events.AssignPartitions() | events.LosePartitions():
                callback = _CALLBACKS[type(effect)]
                error = None
                text = f"{callback}({partitions_text(effect.partitions)})"
                if self.failing_callback == callback:
                    self.failing_callback = None
                    error = ValueError("the listener's own error")
                    text += " raises ValueError, and so does poll()"
                    self._raised = True
                self._say(text)
                self.post(events.ListenerDone(effect.token, error))
            case events.StartFetching(positions=positions):
                starts = ", ".join(f"{partition} at {positions[partition].offset}" for partition in sorted(positions))
                self._say(f"fetches {starts}")
            case events.StopFetching(partitions=partitions):
                self._say(f"stops fetching {partitions_text(partitions)}")
            case events.PausePartitions(partitions=partitions):
                self._say(f"hands out no more records of {partitions_text(partitions)}")
            case events.CommitDone(error=failure):
                self._say("commit done" if failure is None else f"commit failed: {_error_text(failure)}")
            case events.LeaveDone():
                self._say("has left")
                self._in_call = False
                if self._closing:
                    del self._world.consumers[self.name]
            case events.SurfaceError(error=raised):
                self._say(f"poll() raises {_error_text(raised)}")
            case events.Fail(error=raised):
                self._say(f"fatal: {_error_text(raised)}")
            case _:
                raise AssertionError(f"an effect that the transcript does not know: {effect}")

    def _say(self, text: str) -> None:
        self._world.say(self.name, self.name, text)


def _error_text(error: Kip848Error) -> str:
    code = getattr(error, "code", None)
    return type(error).__name__ if not isinstance(code, int) else f"{type(error).__name__} ({error_name(code)})"
