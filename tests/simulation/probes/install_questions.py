"""What a member that is to compute the target is shown, and what it must not hand in: S10 and S13, in probing runs.

Right after each ConsumerGroupPrepareAssignment, because its answer is what a target is checked against. The coordinator
only decides. Does not own: what members of a simulation do hand in (`checkers.assignors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import NO_METADATA, AssignmentMetadata
from kip848_client.coordinator.records import read_assignment_metadata
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import ArmTimer, CoordinatorRecord, RoundChanged
from kip848_client.coordinator.timers import TimerKind
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    Member,
    TopicPartition,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.group_records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from kip848_client.wire.schema import Request, Response
from tests.simulation.probes.questions import Question, ask

_NOBODYS: Final = UUID(int=1)
_ERROR: Final = 9
_BAD: Final = ErrorCode.INVALID_ASSIGNMENT


class InstallQuestions(Observer):
    """S10: a snapshot shows the group as it is. S13: a target that does not fit it is refused, any other taken."""

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, *, bytes_max: int) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._bytes_max = bytes_max

    @about(ConsumerGroupPrepareAssignmentRequest)
    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Compare what is shown, and ask."""
        assert isinstance(request, ConsumerGroupPrepareAssignmentRequest)
        assert isinstance(response, ConsumerGroupPrepareAssignmentResponse)
        group = self._mirror.group
        if response.error_code or group is None:
            return
        self._compare(group, response)
        for question in self._questions(request, response):
            event = ApiRequest(-1, 0, question.message, self._world.wall_ms, client_id, "/simulated")
            ask(self._cluster.coordinator, event, question, now_ms=self._world.now_ms)

    def group_changed(self, changes: Sequence[Change]) -> None:
        """The time limit of the chosen member runs, also if it prepares before an answer asked it."""
        group, coordinator = self._mirror.group, self._cluster.coordinator
        flying = coordinator.round_in_flight(self._mirror.group_id)
        if group is None or flying is None or flying.is_notified or not self._cluster.up:
            return
        member = group.members.get(flying.member_id)
        if member is None or member.current.member_epoch <= 0:
            return
        prepare = ConsumerGroupPrepareAssignmentRequest(group.group_id, member.member_id, member.current.member_epoch)
        event = ApiRequest(-1, 0, prepare, self._world.wall_ms, member.metadata.client_id, "/simulated")
        result = coordinator.handle(event, now_ms=self._world.now_ms)
        armed = [change.key.kind for change in result.soft if isinstance(change, ArmTimer)]
        rounds = [change.round for change in result.soft if isinstance(change, RoundChanged)]
        if rounds and rounds[-1] and rounds[-1].prepared and armed != [TimerKind.CLIENT_ASSIGNMENT]:
            fail("S10", f"{member.member_id} prepares a target, and its time does not run: {result.soft}")

    def _compare(self, group: ConsumerGroup, response: ConsumerGroupPrepareAssignmentResponse) -> None:
        image = self._cluster.topics.image
        if response.group_epoch != group.group_epoch:
            fail("S10", f"the group is at {group.group_epoch}, and the snapshot says {response.group_epoch}")
        shown = {
            member.member_id: (
                member.member_epoch,
                member.instance_id,
                member.rack_id,
                member.subscribed_topic_ids,
                {topic.topic_id: topic.partitions for topic in member.topic_partitions},
                (member.assignor.reason, member.assignor.metadata_version, member.assignor.metadata_bytes),
            )
            for member in response.members
        }
        wanted = {}
        for member_id, member in group.members.items():
            metadata = member.metadata
            told = [one for one in metadata.client_assignors if one.name == response.assignor_name]
            wanted[member_id] = (
                member.current.member_epoch,
                metadata.instance_id,
                metadata.rack_id,
                image.ids_of(group.topics_of(metadata)),
                dict(group.target_of(member_id)),
                next(((one.reason, one.metadata_version, one.metadata_bytes) for one in told), None),
            )
        if shown != wanted or list(shown) != sorted(shown):
            fail("S10", f"the snapshot shows {shown}, and the group is {wanted}")
        topics = {(topic.topic_id, topic.topic_name, topic.num_partitions) for topic in response.topics}
        subscribed = {topic_id for one in wanted.values() for topic_id in one[3]}
        known = {
            (topic.topic_id, topic.name, topic.partition_count)
            for topic in image.topics
            if topic.topic_id in subscribed
        }
        if topics != known or len(response.topics) != len(known):
            fail("S10", f"the snapshot shows the topics {response.topics}, and they are {known}")

    def _questions(
        self, request: ConsumerGroupPrepareAssignmentRequest, response: ConsumerGroupPrepareAssignmentResponse
    ) -> Iterator[Question]:
        legal = _legal(response)
        whole = ConsumerGroupInstallAssignmentRequest(
            request.group_id, request.member_id, request.member_epoch, response.group_epoch, 0, legal
        )
        yield Question("a target", whole, 0, 0, lambda _response, records: bool(records))
        for epoch in (response.group_epoch - 1, response.group_epoch + 1):
            yield Question("a target of another epoch", replace(whole, group_epoch=epoch), 0, _BAD)
        late = replace(whole, member_epoch=request.member_epoch + 1)
        yield Question("a target of a member elsewhere", late, 0, ErrorCode.STALE_MEMBER_EPOCH)
        for member in response.members:
            if member.member_id != request.member_id:
                theirs = replace(whole, member_id=member.member_id, member_epoch=member.member_epoch)
                if member.member_epoch >= 0:
                    yield Question("a target of another", theirs, 0, ErrorCode.UNKNOWN_MEMBER_ID)
        for what, members in self._bad(legal, response):
            yield Question(what, replace(whole, members=members), 0, _BAD)
        signed = AssignmentMetadata(version=3, data=b"told", assignor=response.assignor_name)
        told = tuple(replace(member, metadata_version=3, metadata_bytes=b"told") for member in legal)
        yield Question("something to tell", replace(whole, members=told), 0, 0, _tells(lambda _: signed))
        failed = replace(whole, error=_ERROR, members=())
        yield Question(
            "an error", failed, 0, 0, _tells(lambda member_id: self._kept(member_id, response.assignor_name))
        )
        longest = replace(legal[0], metadata_bytes=bytes(self._bytes_max))
        yield Question("as much as may be told", replace(whole, members=(longest, *legal[1:])), 0, 0)

    def _kept(self, member_id: str, assignor_name: str) -> AssignmentMetadata:
        """What a member hears of an error: the number, beside what that assignor told it before."""
        group = self._mirror.group
        assert group is not None
        kept = group.target_metadata_of(member_id)
        if kept.assignor not in ("", assignor_name):
            kept = NO_METADATA
        return replace(kept, error=_ERROR, assignor=assignor_name)

    def _bad(
        self, legal: tuple[Member, ...], response: ConsumerGroupPrepareAssignmentResponse
    ) -> Iterator[tuple[str, tuple[Member, ...]]]:
        first, *rest = legal
        yield "a stranger", (*legal, Member("nobody", (), 0, b""))
        yield "a member twice", (*legal, Member(first.member_id, (), 0, b""))
        yield "too much to tell", (replace(first, metadata_bytes=bytes(self._bytes_max + 1)), *rest)
        yield (
            "an unknown topic",
            (replace(first, partitions=(*first.partitions, _some(_NOBODYS, 0))), *rest),
        )
        for topic in response.topics:
            topic_id, count = topic.topic_id, topic.num_partitions
            for index in (-1, count):
                more = replace(first, partitions=(*first.partitions, _some(topic_id, index)))
                yield f"partition {index} of {count}", (more, *rest)
            subscribers = {member.member_id for member in response.members if topic_id in member.subscribed_topic_ids}
            for position, member in enumerate(legal):
                others = legal[:position], legal[position + 1 :]
                if member.member_id not in subscribers:
                    more = replace(member, partitions=(*member.partitions, _some(topic_id)))
                    yield "a topic that it does not want", (*others[0], more, *others[1])
                elif count:
                    more = replace(member, partitions=(*member.partitions, _some(topic_id, 0)))
                    yield "a partition twice", (*others[0], more, *others[1])
            less = [
                replace(
                    member,
                    partitions=tuple(
                        replace(held, partitions=tuple(index for index in held.partitions if index != count - 1))
                        if held.topic_id == topic_id
                        else held
                        for held in member.partitions
                    ),
                )
                for member in legal
            ]
            yield "a partition that is not given", tuple(less)


def _tells(told: Callable[[str], AssignmentMetadata]) -> Callable[[Response, tuple[CoordinatorRecord, ...]], bool]:
    """Whether every target that is written comes with that, by member."""
    return lambda _response, records: all(
        read_assignment_metadata(record.value) == told(record.key.member_id)
        for record in records
        if isinstance(record.key, ConsumerGroupTargetAssignmentMemberKey)
        and isinstance(record.value, ConsumerGroupTargetAssignmentMemberValue)
    )


def _some(topic_id: UUID, *partitions: int) -> TopicPartition:
    return TopicPartition(topic_id, partitions)


def _legal(response: ConsumerGroupPrepareAssignmentResponse) -> tuple[Member, ...]:
    """Every topic to the first member that subscribes to it."""
    given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in response.members}
    for topic in response.topics:
        owner = next(one.member_id for one in response.members if topic.topic_id in one.subscribed_topic_ids)
        given[owner].append(TopicPartition(topic.topic_id, tuple(range(topic.num_partitions))))
    return tuple(Member(member_id, tuple(held), 0, b"") for member_id, held in given.items())
