"""What moves a group, and what does not: S2 and S3, one wish at a time, asked of a coordinator that only decides.

Members of a simulation change several things at once, or hardly ever anything else than their topics. Here one field
of one member changes, it leaves, or a static member comes back under another id; what that must lead to is written down
a second time, for the whole group. Does not own: what is refused (`questions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import MemberMetadata
from kip848_client.coordinator.records import member_metadata_record
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import CoordinatorRecord
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Seen
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.world import World
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.schema import Response
from tests.simulation.probes.questions import Question, ask, join

_SUCCESSOR: Final = "successor"
_Records = tuple[CoordinatorRecord, ...]
_Check = Callable[[Response, _Records], bool]


class WishQuestions(Observer):
    """S3: the group moves by one epoch if a member changes its subscription, the assignor that most ask for becomes
    another one, or a member leaves for good; nothing else moves it. The epoch accounts for the topics of that moment.

    S2: a member that comes back under another id has what it had. S14: who has all that it shall have is told so if it
    says everything, and else not.

    Args:
        assignors: of the coordinator, in order.
        every: of so many changes of the group, one is followed by a question.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, *, assignors: Sequence[str], every: int) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._assignors = assignors
        self._every = every
        self._changes = 0

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Now and then, ask one."""
        self._changes += 1
        if self._changes % self._every or not self._cluster.up or self._cluster.host.deposed:
            return
        questions = list(self._questions())
        if questions:
            self._ask(questions[(self._world.seed + self._changes // self._every) % len(questions)])

    def converged(self) -> None:
        """Ask all of them at the end."""
        for question in self._questions():
            self._ask(question)

    def _ask(self, question: Question) -> None:
        sender = question.sender
        request = ApiRequest(-1, question.version, question.message, self._world.wall_ms, sender[0], sender[1])
        ask(self._cluster.coordinator, request, question, now_ms=self._world.now_ms)

    def _questions(self) -> Iterator[Question]:
        group, image = self._mirror.group, self._cluster.topics.image
        if group is None or group.metadata_hash != image.metadata_hash(group.subscribed_topics):
            return  # topics or patterns changed: the next heartbeat, or match, moves the group
        for member_id, seen in self._mirror.members.items():
            if seen.epoch > 0:
                yield from self._of_member(group, member_id, seen)
                yield self._leave(group, member_id, seen)
                yield from self._cannot_compute(group, member_id, seen)
                if seen.epoch == group.group_epoch and seen.member.is_reconciled_to(group.target_epoch):
                    yield from self._of_settled(group, member_id, seen)
            elif seen.epoch == -2:
                yield self._return(group, seen)
                if len(self._mirror.members) == 1 and seen.member.metadata.client_assignors:
                    yield self._return_alone(group, seen)

    # ---------------------------------------------------------------------------------------------------- one member

    def _of_member(self, group: ConsumerGroup, member_id: str, seen: Seen) -> Iterator[Question]:
        metadata = seen.member.metadata
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id, member_id=member_id, member_epoch=seen.epoch, instance_id=metadata.instance_id
        )
        names = tuple(sorted(topic.name for topic in self._cluster.topics.image.topics))
        wishes: list[tuple[str, object]] = [
            ("rack_id", "elsewhere"),
            ("rebalance_timeout_ms", metadata.rebalance_timeout_ms + 1),
            ("subscribed_topic_names", ()),
            ("subscribed_topic_names", names),
            ("subscribed_topic_names", names[:1]),
            ("subscribed_topic_regex", ""),
            ("subscribed_topic_regex", "nobody.*"),
            *(("subscribed_topic_regex", regex) for regex in sorted(group.resolved_regexes)),
        ]
        if not metadata.client_assignors:
            wishes += [("server_assignor", name) for name in self._assignors]
        for name, value in wishes:
            stored = None if value == "" else value
            after = replace(metadata, **{name: stored})
            moves = self._moves(group, member_id, metadata, after)
            moved = self._moved(group, {**self._metadata(), member_id: after})
            check = moved if moves else _stays
            if not moves and name == "subscribed_topic_regex":
                check = _either(moved)  # if topics changed since, it accounts for topics without subscribers, too
            yield self._question(f"only {name}", replace(beat, **{name: value}), metadata, check)

    def _of_settled(self, group: ConsumerGroup, member_id: str, seen: Seen) -> Iterator[Question]:
        """One that has all that it shall have is told so if it asks, by saying everything; and else not."""
        metadata = seen.member.metadata
        sender = (metadata.client_id, metadata.client_host)
        owned = tuple(
            TopicPartitions(topic_id, tuple(sorted(held))) for topic_id, held in seen.member.current.assigned.items()
        )
        whole = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=member_id,
            member_epoch=seen.epoch,
            instance_id=metadata.instance_id,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            subscribed_topic_names=metadata.subscribed_topic_names,
            subscribed_topic_regex=metadata.subscribed_topic_regex or "",
            topic_partitions=owned,
        )
        yield Question("everything", whole, 1, 0, _told)
        no_names = replace(whole, subscribed_topic_names=None)
        yield Question("everything but names", no_names, 1, 0, _told)
        for what, less in (
            ("timeout", replace(whole, rebalance_timeout_ms=-1)),
            ("partitions", replace(whole, topic_partitions=None)),
            ("subscription", replace(no_names, subscribed_topic_regex=None)),
        ):
            yield Question(f"everything but its {what}", less, 1, 0, _not_told, sender)
        beat = ConsumerGroupHeartbeatRequest(group_id=group.group_id, member_id=member_id, member_epoch=seen.epoch)
        yield Question("nothing", beat, 1, 0, _nothing, sender)
        nobodys = replace(beat, instance_id="nobody's")
        yield Question("an unused instance id", nobodys, 1, ErrorCode.UNKNOWN_MEMBER_ID, _nothing, sender)
        for place, (client_id, client_host) in enumerate((("another", sender[1]), (sender[0], "/elsewhere"))):
            moved = replace(metadata, client_id=client_id, client_host=client_host)
            wanted = member_metadata_record(group.group_id, member_id=member_id, metadata=moved)
            what = ("client id", "host")[place]
            yield Question(f"another {what}", beat, 1, 0, _writes_only(wanted), (client_id, client_host))

    def _moves(self, group: ConsumerGroup, member_id: str, before: MemberMetadata, after: MemberMetadata) -> bool:
        if before.subscribed_topic_names != after.subscribed_topic_names:
            return True
        regex = after.subscribed_topic_regex
        if before.subscribed_topic_regex != regex:
            return regex is None or regex in group.resolved_regexes
        metadata = self._metadata()
        return self._voted(metadata) != self._voted({**metadata, member_id: after})

    def _voted(self, metadata: Mapping[str, MemberMetadata]) -> str:
        votes = Counter(one.server_assignor for one in metadata.values())
        return max(self._assignors, key=lambda name: votes[name])

    def _leave(self, group: ConsumerGroup, member_id: str, seen: Seen) -> Question:
        metadata = seen.member.metadata
        rest = {name: one for name, one in self._metadata().items() if name != member_id}
        leave = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id, member_id=member_id, member_epoch=-1, instance_id=metadata.instance_id
        )
        return self._question("a leave", leave, metadata, self._moved(group, rest))

    def _return(self, group: ConsumerGroup, seen: Seen) -> Question:
        """It has what it had, at the epoch of the target; no other member notices."""
        metadata = seen.member.metadata
        back = join(
            group.group_id,
            member_id=_SUCCESSOR,
            instance_id=metadata.instance_id,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            subscribed_topic_names=metadata.subscribed_topic_names,
            subscribed_topic_regex=metadata.subscribed_topic_regex,
        )

        def kept(response: Response, records: _Records) -> bool:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            told = response.assignment
            if told is None or response.member_id != _SUCCESSOR or not _stays(response, records):
                return False
            given = {(topic.topic_id, index) for topic in told.topic_partitions for index in topic.partitions}
            return given >= seen.assigned & seen.target and given <= seen.target

        settled = group.group_epoch == group.target_epoch and not metadata.client_assignors
        return self._question("a return", back, metadata, kept if settled else _anything)

    def _return_alone(self, group: ConsumerGroup, seen: Seen) -> Question:
        """S10: with another assignor; what its former self had does not count."""
        metadata = seen.member.metadata
        back = join(
            group.group_id,
            member_id=_SUCCESSOR,
            instance_id=metadata.instance_id,
            subscribed_topic_names=("orders",),
            client_assignors=(Assignor("a successor's", 0, 0, 0, 0, b""),),
        )
        return self._question("a return alone with another assignor", back, metadata, _computes)

    def _cannot_compute(self, group: ConsumerGroup, member_id: str, seen: Seen) -> Iterator[Question]:
        """S10: the member that is to compute reads less from now on, and another one reads all."""
        flying = self._cluster.coordinator.round_in_flight(group.group_id)
        if flying is None or flying.member_id != member_id or flying.prepared is not None:
            return
        offers = {
            name: assignor
            for name, one in self._metadata().items()
            for assignor in one.client_assignors
            if assignor.name == flying.assignor_name
        }
        common = set.intersection(
            *({offered.name for offered in one.client_assignors} for one in self._metadata().values())
        )
        if common != {flying.assignor_name}:
            return  # another one may be run instead
        own, others = offers[member_id], [one for name, one in offers.items() if name != member_id]
        for written in (own.minimum_version, own.maximum_version):
            needed = {written, *(one.metadata_version for one in others)}
            able = [one for one in others if one.minimum_version <= min(needed) and max(needed) <= one.maximum_version]
            if len(needed) == 1 or not able:
                continue
            less = tuple(
                Assignor(
                    one.name,
                    written if one is own else one.minimum_version,
                    written if one is own else one.maximum_version,
                    one.reason,
                    written if one is own else one.metadata_version,
                    one.metadata_bytes,
                )
                for one in seen.member.metadata.client_assignors
            )
            beat = ConsumerGroupHeartbeatRequest(
                group_id=group.group_id,
                member_id=member_id,
                member_epoch=seen.epoch,
                instance_id=seen.member.metadata.instance_id,
                client_assignors=less,
            )
            yield self._question(f"reads version {written} only", beat, seen.member.metadata, _does_not_compute)

    # ----------------------------------------------------------------------------------------------------- the group

    def _metadata(self) -> dict[str, MemberMetadata]:
        return {member_id: seen.member.metadata for member_id, seen in self._mirror.members.items()}

    def _moved(self, group: ConsumerGroup, metadata: Mapping[str, MemberMetadata]) -> _Check:
        """The epoch is the next one, and accounts for what all of them subscribe to."""
        topics = frozenset[str]().union(*(group.topics_of(one) for one in metadata.values()))
        wanted = (group.group_epoch + 1, self._cluster.topics.image.metadata_hash(topics))
        return lambda _response, records: _epochs(records) == [wanted]

    @staticmethod
    def _question(
        what: str, message: ConsumerGroupHeartbeatRequest, metadata: MemberMetadata, check: _Check
    ) -> Question:
        return Question(what, message, 1, 0, check, (metadata.client_id, metadata.client_host))


def _epochs(records: _Records) -> list[tuple[int, int]]:
    return [
        (record.value.epoch, record.value.metadata_hash)
        for record in records
        if isinstance(record.value, wire.ConsumerGroupMetadataValue)
    ]


def _told(response: Response, _records: _Records) -> bool:
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response.assignment is not None


def _not_told(response: Response, records: _Records) -> bool:
    return not _told(response, records)


def _nothing(response: Response, records: _Records) -> bool:
    return not records and not _told(response, records)


def _writes_only(record: CoordinatorRecord) -> _Check:
    return lambda _response, records: records == (record,)


def _stays(_response: Response, records: _Records) -> bool:
    return not _epochs(records)


def _computes(response: Response, _records: _Records) -> bool:
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response.should_compute_assignment


def _does_not_compute(response: Response, records: _Records) -> bool:
    return not _computes(response, records)


def _either(moved: _Check) -> _Check:
    return lambda response, records: _stays(response, records) or moved(response, records)


def _anything(_response: Response, _records: _Records) -> bool:
    return True
