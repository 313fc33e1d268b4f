"""Requests that no well-behaved client sends, and what the coordinator must answer: S13.

The coordinator only decides about them, as it may: what it decides is looked at and thrown away, so that a run is the
same with and without. One question at a time, in turn, as the group goes on.

Does not own: what the answers of members must be (`checkers.answers`, `checkers.fencing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.group_member import ClientAssignor
from kip848_client.coordinator.records import member_metadata_record
from kip848_client.coordinator.requests import ApiRequest, GroupMessage
from kip848_client.coordinator.result import CoordinatorRecord
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.group_records import OffsetCommitValue
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kip848_client.wire.schema import Response

_STRANGER: Final = "stranger"
_ELSEWHERE: Final = "elsewhere"
"""A group that does not exist."""
_NUMBER: Final = -1
"""Of a request that no call waits for."""
_NO_ID: Final = UUID(int=0)
_RETENTION_MS: Final = 5_000
_INVALID: Final = ErrorCode.INVALID_REQUEST
_ASSIGNOR: Final = Assignor("a stranger's", 0, 1, 0, 1, b"")

_LONGEST: Final = replace(
    _ASSIGNOR, metadata_bytes=bytes(CoordinatorConfig().client_assignors_bytes_max - len(_ASSIGNOR.name))
)

_Records: TypeAlias = tuple[CoordinatorRecord, ...]


class Question(NamedTuple):
    """What is asked.

    Args:
        code: that must be answered; none changes anything.
        check: looks at what would be written if the code is 0.
        sender: client id and host; a stranger's if there is none.
    """

    what: str
    message: GroupMessage
    version: int
    code: int
    check: Callable[[Response, _Records], bool] = lambda _response, _records: True
    sender: tuple[str, str] = (_STRANGER, "/nowhere")


class Questions(Observer):
    """S13: what breaks the protocol is refused with the right code, and changes nothing.

    Args:
        every: of so many changes of the group, one is followed by a question.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, *, max_size: int, every: int) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._max_size = max_size
        self._every = every
        self._changes = 0
        self._turns: Iterator[Question] = iter(())

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Now and then, ask the next one."""
        self._changes += 1
        if self._changes % self._every or not self._cluster.up or self._cluster.host.deposed:
            return
        members = self._mirror.members
        is_full = 0 < self._max_size <= len(members)
        questions = _questions(self._cluster, self._mirror, is_full=is_full, wall_ms=self._world.wall_ms)
        self._ask(questions[(self._world.seed + self._changes // self._every) % len(questions)])

    def converged(self) -> None:
        """Ask all of them at the end."""
        is_full = 0 < self._max_size <= len(self._mirror.members)
        wall_ms = self._world.wall_ms
        for question in _questions(self._cluster, self._mirror, is_full=is_full, wall_ms=wall_ms):
            self._ask(question)

    def _ask(self, question: Question) -> None:
        request = ApiRequest(
            _NUMBER, question.version, question.message, self._world.wall_ms, question.sender[0], question.sender[1]
        )
        ask(self._cluster.coordinator, request, question, now_ms=self._world.now_ms)


def ask(coordinator: GroupCoordinator, request: ApiRequest, question: Question, *, now_ms: int) -> None:
    """Let the coordinator decide, and compare."""
    result = coordinator.handle(request, now_ms=now_ms)
    response = result.replies[0].response
    code = _code(response)
    if code != question.code:
        fail("S13", f"{question.what}: answered {code}, not {int(question.code)}: {request.message}")
    if code and result.records:
        fail("S13", f"{question.what}: refused, and yet it writes {result.records}")
    if code not in (0, ErrorCode.FENCED_MEMBER_EPOCH) and (result.soft or result.tasks):
        fail("S13", f"{question.what}: refused, and yet it leads to {result.soft or result.tasks}")
    if not code and not question.check(response, result.records):
        fail("S13", f"{question.what}: {request.message} is answered {response} and writes {result.records}")


def _code(response: Response) -> int:
    match response:
        case OffsetCommitResponse(topics=topics):
            return max((item.error_code for topic in topics for item in topic.partitions), default=0)
        case OffsetFetchResponse(groups=groups):
            return max(
                max([group.error_code, *(i.error_code for t in group.topics for i in t.partitions)]) for group in groups
            )
        case _:
            code: int = response.error_code  # type: ignore[attr-defined]
            return code


def _questions(cluster: Cluster, mirror: Mirror, *, is_full: bool, wall_ms: int) -> list[Question]:
    found = [
        *_malformed(mirror),
        *_without_a_member(mirror),
        *_commits_without_a_member(cluster, mirror, wall_ms=wall_ms),
    ]
    if not is_full:
        found += [*_newcomers(mirror), *_of_assignors(mirror)]
    if mirror.group is not None:
        flying = cluster.coordinator.round_in_flight(mirror.group_id)
        # The member that is to compute the target has something to lose.
        chosen = [] if flying is None or flying.member_id not in mirror.members else [flying.member_id]
        for member_id in (chosen or sorted(mirror.members))[:1]:
            found += _of_a_member(cluster, mirror, member_id, mirror.members[member_id])
            found += _wishes(mirror, member_id, mirror.members[member_id])
        found += _of_instances(mirror, is_full=is_full)
    return found


# --------------------------------------------------------------------------------------------------------- heartbeats


def join(group: str, **changes: object) -> ConsumerGroupHeartbeatRequest:
    """A join in order, but for *changes*."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=_STRANGER,
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    return replace(request, **changes)


def _malformed(mirror: Mirror) -> Iterator[Question]:
    group_id = mirror.group_id
    some = TopicPartitions(UUID(int=1), (0,))
    for what, changes in (
        ("no member id", {"member_id": ""}),
        ("a blank member id", {"member_id": " "}),
        ("no group id", {"group_id": " "}),
        ("a blank instance id", {"instance_id": " "}),
        ("a blank rack", {"rack_id": " "}),
        ("a join without a timeout", {"rebalance_timeout_ms": -1}),
        ("a join with a timeout of 0", {"rebalance_timeout_ms": 0}),
        ("a join that does not say what it owns", {"topic_partitions": None}),
        ("a join that owns something", {"topic_partitions": (some,)}),
        ("a join without a subscription", {"subscribed_topic_names": None}),
        ("a static leave without an instance id", {"member_epoch": -2}),
        ("an epoch of -3", {"member_epoch": -3, "instance_id": "instance"}),
        ("an assignor without a name", {"client_assignors": (replace(_ASSIGNOR, name=" "),)}),
        ("an assignor twice", {"client_assignors": (_ASSIGNOR, _ASSIGNOR)}),
        ("a version of -2", {"client_assignors": (replace(_ASSIGNOR, minimum_version=-2),)}),
        (
            "a highest version of -1",
            {"client_assignors": (Assignor(_ASSIGNOR.name, -1, -1, 0, -1, b""),)},
        ),
        ("no version at all", {"client_assignors": (replace(_ASSIGNOR, minimum_version=2),)}),
        (
            "metadata too old",
            {"client_assignors": (replace(_ASSIGNOR, minimum_version=1, metadata_version=0),)},
        ),
        ("metadata too new", {"client_assignors": (replace(_ASSIGNOR, metadata_version=2),)}),
        ("assignors of both kinds", {"client_assignors": (_ASSIGNOR,), "server_assignor": "uniform"}),
        ("endless metadata", {"client_assignors": (replace(_ASSIGNOR, metadata_bytes=bytes(2**21)),)}),
    ):
        yield Question(what, join(group_id, **changes), 1, _INVALID)
    yield Question("version 0 that goes on without an id", join(group_id, member_id="", member_epoch=3), 0, _INVALID)
    yield Question("an unknown assignor", join(group_id, server_assignor="nobody's"), 1, ErrorCode.UNSUPPORTED_ASSIGNOR)


def _newcomers(mirror: Mirror) -> Iterator[Question]:
    def accepted(response: Response, records: _Records) -> bool:
        member_id: str = response.member_id  # type: ignore[attr-defined]
        epoch: int = response.member_epoch  # type: ignore[attr-defined]
        told: object = response.assignment  # type: ignore[attr-defined]
        generated = member_id == _STRANGER or UUID(member_id).version == 4
        return bool(records) and generated and epoch > 0 and told is not None

    group_id = mirror.group_id
    for what, changes, version in (
        ("a join", {}, 1),
        ("a join by pattern", {"subscribed_topic_names": None, "subscribed_topic_regex": "ord.*"}, 1),
        ("a join of version 0", {"member_id": ""}, 0),
        ("a join with the shortest time", {"rebalance_timeout_ms": 1}, 1),
        ("a static join", {"instance_id": "a stranger's"}, 1),
        ("a join with as much to tell as may be", {"client_assignors": (_LONGEST,)}, 1),
        (
            "a join with the lowest versions",
            {"client_assignors": (replace(_ASSIGNOR, minimum_version=-1),)},
            1,
        ),
    ):
        yield Question(what, join(group_id, **changes), version, 0, accepted)
    yield Question("another group", join(_ELSEWHERE), 1, 0, accepted)
    bad = join(group_id, subscribed_topic_names=None, subscribed_topic_regex="(")
    yield Question("an invalid pattern", bad, 1, ErrorCode.INVALID_REGULAR_EXPRESSION)


def _without_a_member(mirror: Mirror) -> Iterator[Question]:
    beat = ConsumerGroupHeartbeatRequest(group_id=_ELSEWHERE, member_id=_STRANGER, member_epoch=3)
    for epoch in (3, -1):
        asked = replace(beat, member_epoch=epoch)
        yield Question("a group that is not there", asked, 1, ErrorCode.GROUP_ID_NOT_FOUND)
        if mirror.group is not None and epoch < 0:
            asked = replace(asked, group_id=mirror.group_id)
            yield Question("a leave of a stranger", asked, 1, ErrorCode.UNKNOWN_MEMBER_ID)
    for request in (ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest):
        rest = (0, 0, ()) if request is ConsumerGroupInstallAssignmentRequest else ()
        for what, group_id, member_id, epoch, code in (
            ("an assignment without group", " ", _STRANGER, 1, _INVALID),
            ("an assignment without member", mirror.group_id, " ", 1, _INVALID),
            ("an assignment of a past epoch", mirror.group_id, _STRANGER, -1, _INVALID),
            ("an assignment elsewhere", _ELSEWHERE, _STRANGER, 1, ErrorCode.GROUP_ID_NOT_FOUND),
        ):
            yield Question(what, request(group_id, member_id, epoch, *rest), 0, code)


# ------------------------------------------------------------------------------------------------------------ offsets


def _commit(
    group: str, topic: str, *, topic_id: UUID = _NO_ID, index: int = 0, epoch: int = -1, **changes: object
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(index, 7, 3, "told")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        topics=(OffsetCommitRequestTopic(topic, topic_id, (partition,)),),
        member_id="",
    )
    return replace(request, **changes)


def _commits_without_a_member(cluster: Cluster, mirror: Mirror, *, wall_ms: int) -> Iterator[Question]:
    topics = cluster.topics.image.topics
    yield Question("a topic that is not there", _commit(_ELSEWHERE, "nothing"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    nothing = _commit(_ELSEWHERE, "", topic_id=UUID(int=5))
    yield Question("a topic id that is not there", nothing, 10, ErrorCode.UNKNOWN_TOPIC_ID)
    if not topics:
        return
    name, topic_id, count = topics[0].name, topics[0].topic_id, topics[0].partition_count
    for index in (-1, count):
        wanted = _commit(_ELSEWHERE, name, index=index)
        yield Question("a partition that is not there", wanted, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def kept(records: _Records, *, expires_ms: int, topic_id: UUID) -> bool:
        value = records[0].value if len(records) == 1 else None
        wanted = OffsetCommitValue(7, 3, "told", wall_ms, expires_ms, topic_id)
        return isinstance(value, OffsetCommitValue) and value == wanted

    last = _commit(_ELSEWHERE, name, index=count - 1)
    by_id = _commit(_ELSEWHERE, "", topic_id=topic_id)
    for_a_while = replace(last, retention_time_ms=_RETENTION_MS)
    lasting = lambda _, records: kept(records, expires_ms=-1, topic_id=topic_id)  # noqa: E731
    passing = lambda _, records: kept(records, expires_ms=wall_ms + _RETENTION_MS, topic_id=_NO_ID)  # noqa: E731
    yield Question("a commit without group", last, 9, 0, lasting)
    yield Question("a commit by id without group", by_id, 10, 0, lasting)
    yield Question("a commit for some time", for_a_while, 4, 0, passing)
    at_once = lambda _, records: kept(records, expires_ms=wall_ms, topic_id=_NO_ID)  # noqa: E731
    yield Question("a commit for no time", replace(last, retention_time_ms=0), 4, 0, at_once)
    long = OffsetCommitRequestPartition(0, 7, 3, "x" * 4_097)
    endless = replace(last, topics=(OffsetCommitRequestTopic(name, _NO_ID, (long,)),))
    yield Question("endless metadata of a commit", endless, 9, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    claims = replace(last, generation_id_or_member_epoch=3, member_id=_STRANGER)
    yield Question("an epoch without group", claims, 9, ErrorCode.GROUP_ID_NOT_FOUND)
    yield Question("a generation without group", claims, 8, ErrorCode.ILLEGAL_GENERATION)
    first = replace(claims, generation_id_or_member_epoch=0)
    yield Question("epoch 0 without group", first, 9, ErrorCode.GROUP_ID_NOT_FOUND)
    if mirror.members:
        for epoch, member_id in ((-1, ""), (3, _STRANGER)):
            strange = replace(last, group_id=mirror.group_id, generation_id_or_member_epoch=epoch, member_id=member_id)
            yield Question("a commit of a stranger", strange, 9, ErrorCode.UNKNOWN_MEMBER_ID)
        for member, epoch in ((None, 0), ("", -1), (_STRANGER, 3)):
            fetch = _fetch(mirror.group_id, member, epoch, name)
            yield Question("a fetch of a stranger", fetch, 9, ErrorCode.UNKNOWN_MEMBER_ID)
        yield Question("a fetch of anybody", _fetch(mirror.group_id, None, -1, name), 9, 0)
    yield Question("a fetch elsewhere", _fetch(_ELSEWHERE, _STRANGER, 3, name), 9, 0, _nothing_committed)


def _fetch(group_id: str, member_id: str | None, epoch: int, topic: str) -> OffsetFetchRequest:
    topics = (OffsetFetchRequestTopics(topic, _NO_ID, (0,)),)
    group = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=epoch, topics=topics)
    return OffsetFetchRequest(groups=(group,), require_stable=True)


def _nothing_committed(response: Response, records: _Records) -> bool:
    assert isinstance(response, OffsetFetchResponse)
    found = [item for group in response.groups for topic in group.topics for item in topic.partitions]
    return not records and [item.committed_offset for item in found] == [-1]


# ------------------------------------------------------------------------------------------------------------ members


def _of_a_member(cluster: Cluster, mirror: Mirror, member_id: str, seen: Seen) -> Iterator[Question]:
    """Epochs that it does not have. One that is away has none."""
    epoch, group_id, metadata = seen.epoch, mirror.group_id, seen.member.metadata
    if epoch <= 0:
        return
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch + 1, instance_id=metadata.instance_id
    )
    yield Question("an epoch from the future", beat, 1, ErrorCode.FENCED_MEMBER_EPOCH)
    own_epoch = replace(beat, member_epoch=epoch)
    blank = replace(own_epoch, rack_id=" ")
    yield Question("a blank rack of a member", blank, 1, _INVALID)
    bad = replace(own_epoch, subscribed_topic_regex="(")
    yield Question("an invalid pattern of a member", bad, 1, ErrorCode.INVALID_REGULAR_EXPRESSION)
    if 0 < seen.previous_epoch < epoch:
        before = replace(beat, member_epoch=seen.previous_epoch)
        yield Question("the epoch before, without a word", before, 1, ErrorCode.FENCED_MEMBER_EPOCH)
        boasts = replace(before, topic_partitions=(TopicPartitions(UUID(int=1), (0,)),))
        yield Question("the epoch before, with too much", boasts, 1, ErrorCode.FENCED_MEMBER_EPOCH)
        if seen.previous_epoch > 1:
            older = replace(before, member_epoch=seen.previous_epoch - 1, topic_partitions=())
            yield Question("an epoch of long ago", older, 1, ErrorCode.FENCED_MEMBER_EPOCH)
    prepare = ConsumerGroupPrepareAssignmentRequest(group_id, member_id, epoch + 1)
    yield Question("an assignment of another epoch", prepare, 0, ErrorCode.STALE_MEMBER_EPOCH)
    prepare = ConsumerGroupPrepareAssignmentRequest(group_id, member_id, 0)
    yield Question("an assignment of no epoch", prepare, 0, ErrorCode.STALE_MEMBER_EPOCH)
    for topic in cluster.topics.image.topics[:1]:
        ahead = _commit(group_id, topic.name, epoch=epoch + 1, member_id=member_id)
        yield Question("a commit of another epoch", ahead, 9, ErrorCode.STALE_MEMBER_EPOCH)
        own = replace(ahead, generation_id_or_member_epoch=epoch)
        yield Question("a commit of a member", own, 9, 0, lambda _, records: len(records) == 1)
        yield Question("a commit of an old client", own, 8, ErrorCode.UNSUPPORTED_VERSION)
        late = _fetch(group_id, member_id, epoch + 1, topic.name)
        yield Question("a fetch of another epoch", late, 9, ErrorCode.STALE_MEMBER_EPOCH)
        yield Question("a fetch of a member", _fetch(group_id, member_id, epoch, topic.name), 9, 0)


def _wishes(mirror: Mirror, member_id: str, seen: Seen) -> Iterator[Question]:
    """One field at a time, which our own members never send alone; all others stay what they were."""
    metadata = seen.member.metadata
    beat = ConsumerGroupHeartbeatRequest(
        group_id=mirror.group_id, member_id=member_id, member_epoch=seen.epoch, instance_id=metadata.instance_id
    )
    if seen.epoch <= 0:
        return
    for name, value in (
        ("subscribed_topic_names", ("another",)),
        ("subscribed_topic_regex", "another.*"),
        ("rebalance_timeout_ms", metadata.rebalance_timeout_ms + 1),
        ("rack_id", "another"),
    ):
        after = replace(metadata, **{name: value})
        wanted = member_metadata_record(mirror.group_id, member_id=member_id, metadata=after)
        yield Question(
            f"only {name}",
            replace(beat, **{name: value}),
            1,
            ErrorCode.NONE,
            _writes(wanted),
            (metadata.client_id, metadata.client_host),
        )


def _writes(record: CoordinatorRecord) -> Callable[[Response, _Records], bool]:
    return lambda _response, records: record in records


def _of_instances(mirror: Mirror, *, is_full: bool) -> Iterator[Question]:
    """Instance ids of others, and unused ones."""
    beat = ConsumerGroupHeartbeatRequest(
        group_id=mirror.group_id, member_id=_STRANGER, member_epoch=3, instance_id="nobody's"
    )
    if not is_full:
        yield Question("an unused instance id in a heartbeat", beat, 1, ErrorCode.UNKNOWN_MEMBER_ID)
    for _, seen in sorted(mirror.members.items())[:2]:
        instance_id = seen.member.metadata.instance_id
        if instance_id is None:
            continue
        theirs = replace(beat, instance_id=instance_id)
        full = ErrorCode.GROUP_MAX_SIZE_REACHED  # looked at first, as in Kafka
        yield Question("an instance of another", theirs, 1, full if is_full else ErrorCode.FENCED_INSTANCE_ID)
        for epoch in (-1, -2):
            leave = replace(theirs, member_epoch=epoch)
            yield Question("a leave for another", leave, 1, ErrorCode.FENCED_INSTANCE_ID)
        if seen.epoch > 0:
            joins = join(mirror.group_id, instance_id=instance_id)
            yield Question("an instance that is held", joins, 1, full if is_full else ErrorCode.UNRELEASED_INSTANCE_ID)


def _of_assignors(mirror: Mirror) -> Iterator[Question]:
    """Versions that no member has."""
    everybody = [offered for seen in mirror.members.values() for offered in seen.member.metadata.client_assignors]
    for _, seen in sorted(mirror.members.items())[:1]:
        for offered in seen.member.metadata.client_assignors[:1]:
            low = 1 + max(other.versions.maximum for other in everybody if other.name == offered.name)
            strange = Assignor(offered.name, low, low, 0, low, b"")
            joins = join(mirror.group_id, client_assignors=(strange,))
            yield Question("versions that no member has", joins, 1, ErrorCode.UNSUPPORTED_ASSIGNOR)
    for member_id, seen in mirror.members.items():
        yield from _upgrades(mirror, member_id, seen, everybody=everybody)


def _upgrades(mirror: Mirror, member_id: str, seen: Seen, *, everybody: list[ClientAssignor]) -> Iterator[Question]:
    """Versions that only its own earlier ones do not fit."""
    metadata = seen.member.metadata
    if seen.epoch <= 0 or not metadata.client_assignors:
        return
    offered = [
        Assignor(one.name, one.maximum_version + 1, one.maximum_version + 1, 0, one.maximum_version + 1, b"")
        for one in metadata.client_assignors
    ]
    if all(sum(other.name == one.name for other in everybody) == 1 for one in offered):
        beat = ConsumerGroupHeartbeatRequest(
            group_id=mirror.group_id,
            member_id=member_id,
            member_epoch=seen.epoch,
            instance_id=metadata.instance_id,
            client_assignors=tuple(offered),
        )
        yield Question("versions of its own", beat, 1, 0)
