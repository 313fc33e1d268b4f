"""The cluster of a simulation: topics that grow by themselves, and one coordinator with its log, which may crash.

Hosts the production `GroupCoordinator` exactly as the embedded broker does: decide, append, replay, apply, then reply.
Does not own: what a member does with an answer (`consumer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from kip848_client.coordinator import subscriptions
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.events import to_journal
from kip848_client.coordinator.requests import ApiRequest, TopicsChanged
from kip848_client.coordinator.result import CoordinatorRecord, CoordinatorResult, ResolveRegexes
from kip848_client.coordinator.topics import TopicInfo, TopicsImage
from kip848_client.model import BrokerNode, TopicPartition
from kip848_client.simulation.pictures import GroupPicture, take_picture
from kip848_client.simulation.world import World
from kip848_client.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kip848_client.wire.schema import Request, Response

NODE: Final = BrokerNode(0, "simulated", 9092)


class Cluster:
    """Topics, records and the coordinator.

    Args:
        config: settings of the coordinator.
    """

    def __init__(self, world: World, config: CoordinatorConfig) -> None:
        self._world = world
        self._config = config
        self._rng = world.random("cluster")
        self._coordinator_rng = world.random("coordinator")
        self._request_id = 0
        self._waiting: dict[int, Callable[[Response], None]] = {}
        self._timer_ms: int | None = None
        self._image = TopicsImage()
        self._pictures: dict[str, tuple[int, GroupPicture]] = {}
        self.up = True
        self.version = 0
        """Grows whenever the coordinator's state may have changed, or the topics."""
        self.loads = 0
        """How often a coordinator was loaded."""
        self.records: list[CoordinatorRecord] = []
        """The coordinator's log."""
        self.end_offsets: dict[TopicPartition, int] = {}
        """Records in each partition: offsets 0 to this, exclusive."""
        self.crash_after_append = 0.0
        """Part of the appends after which the coordinator dies before it answers."""
        self.on_crash: Callable[[], None] = lambda: None
        self.on_served: Callable[[str, Request[Any], Response], None] = lambda _client, _request, _response: None
        """(client id, request, response) of everything answered, before the answer leaves."""
        self.coordinator = self._new_coordinator()

    # ---------------------------------------------------------------------------------------------- topics

    def create_topic(self, name: str, *, partitions: int) -> None:
        """Create a topic; one that was deleted before gets another id."""
        self._change(
            (*self._image.topics, TopicInfo(name, UUID(int=self._rng.getrandbits(128)), partitions)),
            "topic_created",
            name,
        )
        self.end_offsets.update({TopicPartition(name, index): 0 for index in range(partitions)})

    def add_partitions(self, name: str, *, count: int) -> None:
        """Let a topic grow by *count*."""
        topics = []
        for topic in self._image.topics:
            if topic.name == name:
                grown = topic.partition_count + count
                for index in range(topic.partition_count, grown):
                    self.end_offsets[TopicPartition(name, index)] = 0
                topics.append(TopicInfo(name, topic.topic_id, grown))
            else:
                topics.append(topic)
        self._change(tuple(topics), "partitions_added", name)

    def _change(self, topics: tuple[TopicInfo, ...], what: str, name: str) -> None:
        self._image = TopicsImage(topics, version=self._image.version + 1)
        self.version += 1
        self._world.history.add(self._world.now_ms, "administrator", what, topic=name)
        if self.up:
            self._finish(self.coordinator.handle(TopicsChanged(self._image), now_ms=self._world.now_ms))

    @property
    def topics(self) -> TopicsImage:
        """The topics that exist."""
        return self._image

    def produce(self) -> None:
        """A record or some arrive in one partition."""
        if self.end_offsets:
            partition = self._rng.choice(sorted(self.end_offsets))
            self.end_offsets[partition] += self._rng.randint(1, 20)

    # --------------------------------------------------------------------------------------------- serving

    def serve(
        self, request: Request[Any], *, api_version: int, client_id: str, reply: Callable[[Response], None]
    ) -> None:
        """Answer one request."""
        if isinstance(request, FindCoordinatorRequest):
            keys = request.coordinator_keys or (request.key,)
            found = tuple(Coordinator(key, NODE.node_id, NODE.host, NODE.port) for key in keys)
            reply(
                FindCoordinatorResponse(coordinators=found)
                if api_version >= 4
                else FindCoordinatorResponse(node_id=NODE.node_id, host=NODE.host, port=NODE.port)
            )
            return
        self._request_id += 1

        def answer(response: Response) -> None:
            self.on_served(client_id, request, response)
            reply(response)

        self._waiting[self._request_id] = answer
        self._finish(
            self.coordinator.handle(
                ApiRequest(
                    request_id=self._request_id,
                    api_version=api_version,
                    message=request,  # type: ignore[arg-type]  # members send nothing else to their coordinator
                    wall_ms=self._world.wall_ms,
                    client_id=client_id,
                    client_host="/simulated",
                ),
                now_ms=self._world.now_ms,
            )
        )

    def _finish(self, result: CoordinatorResult) -> None:
        self.records.extend(result.records)
        for record in result.records:
            self.coordinator.replay(record)
        self.coordinator.apply(result)
        self.version += bool(result.records)
        for event in result.events:
            line = to_journal(
                event,
                ts_ms=self._world.wall_ms,
                topic_name=self.coordinator.topic_name,
                source="simulation",
            )
            self._world.history.add(
                self._world.now_ms, line.member_id or "coordinator", line.event, epoch=line.group_epoch, **line.fields
            )
        if result.records and self._rng.random() < self.crash_after_append:
            self.crash()
            return
        for reply in result.replies:
            self._waiting.pop(reply.request_id)(reply.response)
        for task in result.tasks:
            coordinator = self.coordinator

            def resolve(task: ResolveRegexes = task, owner: GroupCoordinator = coordinator) -> None:
                if self.up and self.coordinator is owner:
                    outcome = subscriptions.resolve(task, wall_ms=self._world.wall_ms)
                    self._finish(owner.handle(outcome, now_ms=self._world.now_ms))

            self._world.call_in(1, resolve)
        self._arm()

    def _arm(self) -> None:
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        self._timer_ms = max(deadline_ms, self._world.now_ms)
        self._world.call_in(self._timer_ms - self._world.now_ms, self._expire)

    def _expire(self) -> None:
        self._timer_ms = None
        if not self.up:
            return
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._world.now_ms:
            self._finish(self.coordinator.expire(now_ms=self._world.now_ms, wall_ms=self._world.wall_ms))
        if self.up:
            self._arm()

    # -------------------------------------------------------------------------------------------- crashing

    def crash(self) -> None:
        """Die: what was appended stays, what was not answered never will be."""
        if not self.up:
            return
        self.up = False
        self._waiting.clear()
        self._timer_ms = None
        self._world.history.add(self._world.now_ms, "coordinator", "coordinator_crashed")
        self.on_crash()

    def restart(self) -> None:
        """Load the log and serve again."""
        if self.up:
            return
        self.coordinator = self.reloaded()
        self.version += 1
        self.loads += 1
        self.up = True
        self._finish(self.coordinator.handle(TopicsChanged(self._image), now_ms=self._world.now_ms))
        self.coordinator.loaded(now_ms=self._world.now_ms)
        self._world.history.add(self._world.now_ms, "coordinator", "coordinator_loaded", records=len(self.records))
        self._arm()

    def reloaded(self) -> GroupCoordinator:
        """Another coordinator with the state that the log leads to."""
        other = self._new_coordinator()
        for record in self.records:
            other.replay(record)
        return other

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self._config, rng=self._coordinator_rng)

    # --------------------------------------------------------------------------------------------- looking

    def picture(self, group_id: str) -> GroupPicture | None:
        """A group as it is now; the same object until something changes."""
        known = self._pictures.get(group_id)
        if known is not None and known[0] == self.version:
            return known[1]
        group = self.coordinator.snapshot(group_id)
        if group is None:
            return None
        picture = take_picture(group, self._image)
        self._pictures[group_id] = (self.version, picture)
        return picture

    def pictures(self) -> Iterator[GroupPicture]:
        """All groups as they are now."""
        for group_id in self.coordinator.groups():
            picture = self.picture(group_id)
            assert picture is not None
            yield picture

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Committed offsets of a group."""
        return {
            TopicPartition(topic, index): offset.offset
            for topic, partitions in self.coordinator.committed(group_id).items()
            for index, offset in partitions.items()
        }
