"""Commits and look-ups of everybody in the group that a run has made, compared with a model of what is stored: S11.

By members at their epoch, before and after it, by strangers and by consumers without a group, in each version of the
requests, of topics and partitions that exist and that do not, with more metadata than is allowed. Another coordinator
reads the log of the run and answers; nothing of it comes back to the run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import GroupMember
from kip848_client.coordinator.offset_store import offset_tombstone
from kip848_client.coordinator.requests import ApiRequest, GroupMessage, TopicsChanged
from kip848_client.coordinator.result import CoordinatorResult
from kip848_client.coordinator.topics import TopicInfo, TopicsImage
from kip848_client.errors import ErrorCode
from kip848_client.model import ZERO_UUID
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.simulation.probes.reader import Walk, coordinator_reading

_STEPS: Final = 40
_IDS_VERSION: Final = 10
_EPOCHS_VERSION: Final = 9
_GROUPS_VERSION: Final = 8
_UNKNOWN: Final = UUID(int=0xD)
_STRANGER: Final = "a stranger"
_ELSEWHERE: Final = "an empty group"
_ANOTHER: Final = "another empty group"
_OFFSET: Final = OffsetCommitRequestPartition(0, 1, 1, "")
_LONGEST: Final = 8
_METADATA: Final = ("", None, "9" * _LONGEST, "9" * _LONGEST, "9" * (_LONGEST + 1))
_NOTHING: Final = (-1, -1, "")

_Stored: TypeAlias = dict[tuple[str, int], tuple[tuple[int, int, str], UUID]]
"""Topic and partition -> offset, leader epoch and metadata; and the id of the topic, if it was known."""


class _Sender(NamedTuple):
    """Who commits or asks, and as what."""

    group_id: str
    member_id: str
    epoch: int


class OffsetWalk(Walk):
    """S11: who may commit may, no other member, and what was committed is what is answered."""

    def converged(self) -> None:
        """Walk."""
        walk = _Walk(self._cluster, self._config, group_id=self._mirror.group_id, rng=self._world.random("offset walk"))
        for _ in range(_STEPS):
            walk.step()
        walk.forget()


class _Walk:
    """One walk."""

    def __init__(self, cluster: Cluster, config: CoordinatorConfig, *, group_id: str, rng: random.Random) -> None:
        self._rng = rng
        self._config = replace(config, offset_metadata_max_bytes=_LONGEST, groups_max=2)
        self._group_id = group_id
        self._image = cluster.topics.image
        self._coordinator = coordinator_reading(cluster.log, self._config, image=self._image)
        self._stored: dict[str, _Stored] = {group_id: {}, _ELSEWHERE: {}}
        for topic, partitions in self._coordinator.committed(group_id).items():
            for index, one in partitions.items():
                value = (one.offset, one.leader_epoch, one.metadata)
                self._stored[group_id][topic, index] = (value, one.topic_id)

    def step(self) -> None:
        """Commit, ask, or create a topic again."""
        roll = self._rng.random()
        if roll < 0.5:
            self._commit()
        elif roll < 0.95:
            self._fetch()
        else:
            self._recreate()

    def _sender(self) -> _Sender:
        group = self._coordinator.group(self._group_id)
        members = [] if group is None else sorted(group.members.values(), key=lambda member: member.member_id)
        roll = self._rng.random()
        if roll < 0.15:
            return _Sender(_ELSEWHERE, self._rng.choice(("", _STRANGER)), self._rng.choice((-1, -1, 0, 3)))
        if roll < 0.3 or not members:
            return _Sender(self._group_id, self._rng.choice(("", _STRANGER)), self._rng.choice((-1, 0, 3)))
        member = self._rng.choice(members)
        epoch = self._rng.choice((0, 0, 0, 0, -1, -1, 1)) + member.current.member_epoch
        return _Sender(self._group_id, member.member_id, self._rng.choice((epoch, epoch, epoch, 0, 1)))

    def _partitions(self) -> list[tuple[str, UUID, list[int]]]:
        """Some topics with some partitions; now and then one that does not exist."""
        rng, found = self._rng, []
        for topic in self._image.topics:
            indexes = sorted(rng.sample(range(topic.partition_count), rng.randint(0, min(2, topic.partition_count))))
            if rng.random() < 0.1:
                indexes.append(rng.choice((-1, topic.partition_count)))
            if indexes:
                found.append((topic.name, topic.topic_id, indexes))
        if rng.random() < 0.15 or not found:
            found.append(("nobody's", _UNKNOWN, [0]))
        return found

    # -------------------------------------------------------------------------------------------------------- commits

    def _commit(self) -> None:
        rng, sender = self._rng, self._sender()
        version = rng.choice((8, 9, 9, 10, 10, 10))
        topics = []
        for name, topic_id, indexes in self._partitions():
            partitions = tuple(
                OffsetCommitRequestPartition(
                    index,
                    rng.randint(0, 99),
                    rng.randint(0, 3),
                    rng.choice(_METADATA),
                )
                for index in indexes
            )
            by_id = version >= _IDS_VERSION
            topics.append(OffsetCommitRequestTopic("" if by_id else name, topic_id if by_id else ZERO_UUID, partitions))
        request = OffsetCommitRequest(sender.group_id, sender.epoch, sender.member_id, topics=tuple(topics))
        verdict = self._verdict(sender, request, version)
        wanted = [[self._code(topic, item, verdict) for item in topic.partitions] for topic in request.topics]
        response, result = self._ask(request, version)
        assert isinstance(response, OffsetCommitResponse)
        found = [[item.error_code for item in topic.partitions] for topic in response.topics]
        if found != wanted:
            fail("S11", f"{sender} commits in version {version}: {request}, answered {found}, not {wanted}")
        accepted = any(code == 0 for codes in wanted for code in codes)
        told = [(fact.event, fact.group_epoch) for fact in result.events]
        group = self._coordinator.group(sender.group_id)
        epoch = 0 if group is None else group.group_epoch
        name = "commit_refused" if verdict else "offsets_committed"
        if told != ([(name, epoch)] if verdict or accepted else []):
            fail("T1", f"{sender} commits {request}, answered {found}, and told is {told}")
        stored = self._stored[sender.group_id]
        for topic, codes in zip(request.topics, wanted, strict=True):
            info = self._find(topic)
            for item, code in zip(topic.partitions, codes, strict=True):
                if not code and info is not None:
                    value = (item.committed_offset, item.committed_leader_epoch, item.committed_metadata or "")
                    stored[info.name, item.partition_index] = (value, info.topic_id)

    def _find(self, topic: OffsetCommitRequestTopic) -> TopicInfo | None:
        return self._image.by_id.get(topic.topic_id) if topic.topic_id.int else self._image.by_name.get(topic.name)

    def _exists(self, topic: OffsetCommitRequestTopic, item: OffsetCommitRequestPartition) -> bool:
        info = self._find(topic)
        return info is not None and 0 <= item.partition_index < info.partition_count

    def _is_too_long(self, item: OffsetCommitRequestPartition) -> bool:
        return len(item.committed_metadata or "") > self._config.offset_metadata_max_bytes

    def _code(self, topic: OffsetCommitRequestTopic, item: OffsetCommitRequestPartition, verdict: int) -> int:
        """Of one partition: what does not exist, then who may not, then what is too long."""
        if self._find(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if topic.topic_id.int else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._exists(topic, item):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return verdict or (ErrorCode.OFFSET_METADATA_TOO_LARGE if self._is_too_long(item) else 0)

    def _verdict(self, sender: _Sender, request: OffsetCommitRequest, version: int) -> int:
        """Of the sender, for all that exists: a member at its epoch, or at one that covers it; or an empty group."""
        items = [(topic, item) for topic in request.topics for item in topic.partitions if self._exists(topic, item)]
        if not items:
            return 0
        group = self._coordinator.group(sender.group_id)
        if group is None:
            if sender.epoch < 0:
                return 0
            if self._stored[sender.group_id]:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= _EPOCHS_VERSION else ErrorCode.ILLEGAL_GENERATION
        if sender.epoch < 0 and not group.members:
            return 0
        member = group.members.get(sender.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < _EPOCHS_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        if sender.epoch == member.current.member_epoch:
            return 0
        stored = [(topic, item) for topic, item in items if not self._is_too_long(item)]
        covers = all(self._given_at(member, topic, item) <= sender.epoch for topic, item in stored)
        return 0 if sender.epoch < member.current.member_epoch and covers else ErrorCode.STALE_MEMBER_EPOCH

    def _given_at(
        self, member: GroupMember, topic: OffsetCommitRequestTopic, item: OffsetCommitRequestPartition
    ) -> float:
        """The epoch with which it was given what it still holds."""
        info, current = self._find(topic), member.current
        assert info is not None
        held = {**current.pending_revocation.get(info.topic_id, {}), **current.assigned.get(info.topic_id, {})}
        return held.get(item.partition_index, float("inf"))

    # -------------------------------------------------------------------------------------------------------- look-ups

    def _fetch(self) -> None:
        version = self._rng.choice((7, 8, 9, 10, 10))
        sender = self._sender()
        if version < _EPOCHS_VERSION or self._rng.random() < 0.2:
            sender = sender._replace(member_id="", epoch=-1)
        asked = None if self._rng.random() < 0.3 else self._partitions()
        code = self._fetch_verdict(sender)
        found = self._fetched(sender, asked, version)
        wanted = (code, {} if code else self._wanted(sender.group_id, asked, by_id=version >= _IDS_VERSION))
        if found != wanted:
            fail("S11", f"{sender} asks in version {version} for {asked}, answered {found}, not {wanted}")

    def _fetched(
        self, sender: _Sender, asked: list[tuple[str, UUID, list[int]]] | None, version: int
    ) -> tuple[int, Mapping[tuple[object, int], tuple[object, ...]]]:
        """The answer: code, and for each partition offset, leader epoch, metadata and code."""
        if version < _GROUPS_VERSION:
            old = None if asked is None else tuple(OffsetFetchRequestTopic(name, tuple(i)) for name, _, i in asked)
            response, _ = self._ask(OffsetFetchRequest(group_id=sender.group_id, topics=old), version)
            assert isinstance(response, OffsetFetchResponse)
            return response.error_code, {
                (topic.name, item.partition_index): (
                    (item.committed_offset, item.committed_leader_epoch, item.metadata),
                    item.error_code,
                )
                for topic in response.topics
                for item in topic.partitions
            }
        by_id = version >= _IDS_VERSION
        topics = (
            None
            if asked is None
            else tuple(
                OffsetFetchRequestTopics("" if by_id else name, topic_id if by_id else ZERO_UUID, tuple(indexes))
                for name, topic_id, indexes in asked
            )
        )
        group = OffsetFetchRequestGroup(sender.group_id, sender.member_id or None, sender.epoch, topics)
        response, _ = self._ask(OffsetFetchRequest(groups=(group,)), version)
        assert isinstance(response, OffsetFetchResponse)
        answered = response.groups[0]
        if answered.group_id != sender.group_id:
            fail("S11", f"{sender} is answered for {answered.group_id}")
        return answered.error_code, {
            (topic.topic_id if by_id else topic.name, item.partition_index): (
                (item.committed_offset, item.committed_leader_epoch, item.metadata),
                item.error_code,
            )
            for topic in answered.topics
            for item in topic.partitions
        }

    def _fetch_verdict(self, sender: _Sender) -> int:
        group: ConsumerGroup | None = self._coordinator.group(sender.group_id)
        if group is None or (not sender.member_id and sender.epoch < 0):
            return 0
        member = group.members.get(sender.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if sender.epoch == member.current.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _wanted(
        self, group_id: str, asked: list[tuple[str, UUID, list[int]]] | None, *, by_id: bool
    ) -> Mapping[tuple[object, int], tuple[object, ...]]:
        stored = self._stored[group_id]
        if asked is None:
            names = sorted({name for name, _ in stored})
            asked = [
                (name, info.topic_id if info else ZERO_UUID, [index for other, index in stored if other == name])
                for name in names
                if (info := self._image.by_name.get(name)) or not by_id
            ]
        wanted: dict[tuple[object, int], tuple[object, ...]] = {}
        for name, topic_id, indexes in asked:
            info = self._image.by_id.get(topic_id) if by_id else self._image.by_name.get(name)
            unknown = by_id and info is None
            for index in indexes:
                value, of_id = stored.get((name, index), (_NOTHING, ZERO_UUID))
                is_other = info is not None and of_id.int and info.topic_id != of_id
                wanted[topic_id if by_id else name, index] = (
                    _NOTHING if unknown or is_other else value,
                    ErrorCode.UNKNOWN_TOPIC_ID if unknown else 0,
                )
        return wanted

    # ------------------------------------------------------------------------------------------------- the coordinator

    def _recreate(self) -> None:
        """A topic is deleted and created again while there is no coordinator: its offsets stay, and are another's."""
        topics = list(self._image.topics)
        if topics:
            place = self._rng.randrange(len(topics))
            topics[place] = replace(topics[place], topic_id=UUID(int=self._rng.getrandbits(100)))
            self._image = TopicsImage(tuple(topics), self._image.version + 1)
            result = self._coordinator.handle(TopicsChanged(self._image), now_ms=0)
            self._coordinator.apply(replace(result, records=()))

    def forget(self) -> None:
        """One offset after the other is forgotten: a group that has none, and no members, takes no room."""
        if self._coordinator.group(self._group_id) is None or not self._image.topics:
            return
        for topic, index in sorted(self._stored[_ELSEWHERE]):
            self._expect_room(for_another=False)
            self._coordinator.replay(offset_tombstone(_ELSEWHERE, topic=topic, partition=index))
        self._expect_room(for_another=True)

    def _expect_room(self, *, for_another: bool) -> None:
        """S12: there is room for two groups."""
        commit = OffsetCommitRequest(
            group_id=_ANOTHER,
            member_id="",
            topics=(OffsetCommitRequestTopic(self._image.topics[0].name, ZERO_UUID, (_OFFSET,)),),
        )
        request = ApiRequest(-1, _EPOCHS_VERSION, commit, 0, "walker", "/w")
        response = self._coordinator.handle(request, now_ms=0).replies[0].response
        assert isinstance(response, OffsetCommitResponse)
        code = response.topics[0].partitions[0].error_code
        if code != (0 if for_another else ErrorCode.POLICY_VIOLATION):
            fail("S12", f"{_ELSEWHERE} has {self._coordinator.committed(_ELSEWHERE)}, and {_ANOTHER} is told {code}")

    def _ask(self, message: GroupMessage, version: int) -> tuple[object, CoordinatorResult]:
        request = ApiRequest(-1, version, message, 0, "walker", "/w")
        result = self._coordinator.handle(request, now_ms=0)
        self._do(result)
        return result.replies[0].response, result

    def _do(self, result: CoordinatorResult) -> None:
        for record in result.records:
            self._coordinator.replay(record)
        self._coordinator.apply(result)
