"""What a consumer that assigns partitions itself has and waits for, and what it must do at any moment because of that.

Does not own: what is done to it (`manual_walk`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NoReturn

from kip848_client.member.events import (
    AssignPartitions,
    ConnectCoordinator,
    Fail,
    FetchOffsetsRequested,
    ListOffsets,
    LosePartitions,
    PausePartitions,
    RequestMetadata,
    RevokePartitions,
    SendRequest,
    StartFetching,
    StateChanged,
)
from kip848_client.member.states import MemberState
from kip848_client.model import NO_EPOCH, ZERO_UUID, OffsetAndMetadata, TopicIdPartition, TopicPartition
from kip848_client.simulation.twin_offsets import partitions_of
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

AUTOMATIC: Final = "consumed"
"""Metadata of positions that nobody commits but the consumer itself."""
_BY_NAME: Final = 9

_OF_MEMBERS: Final = (
    AssignPartitions,
    RevokePartitions,
    LosePartitions,
    PausePartitions,
    RequestMetadata,
    StateChanged,
    Fail,
)
"""What only members of a group do."""

Positions = Mapping[TopicPartition, OffsetAndMetadata]


class ManualModel:
    """One consumer, and the model of it that whoever does something to it keeps up."""

    def __init__(self, twin: Twin, rng: random.Random) -> None:
        self.twin = twin
        self.rng = rng
        self.number = 0
        """Of this step."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.waiting: dict[TopicPartition, tuple[int | None, int]] = {}
        """Partitions that have not started -> what is looked for, a timestamp or None for what was committed; since."""
        self.sent: dict[int, int] = {}
        """Request -> the step in which it was sent."""
        self.commits: dict[str, int] = {}
        """Metadata of commits that wait to be sent, or for an answer -> how many partitions they have."""
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.confirmed: dict[TopicPartition, OffsetAndMetadata] = {}
        """What the coordinator stored of that, since it was assigned."""
        self.due_ms: int | None = None
        """When the next poll() commits by itself."""
        self.commits_itself = False
        """A commit that nobody asked for may wait to be sent."""
        self.retries = False
        """The last one of these failed, and the next one is due earlier."""

    def wrong(self, what: str) -> NoReturn:
        """Say that it does what it must not."""
        self.twin.wrong(f"{what} [step {self.number}, has {sorted(map(str, self.owned))}]")

    # ------------------------------------------------------------------------------------------------------ looking

    def look(self) -> None:
        """What holds after every step."""
        twin = self.twin
        self._note_requests()
        if self.known() and AUTOMATIC not in self.under_way():
            self.commits_itself = False
        view = twin.member.view()
        if twin.did_any(*_OF_MEMBERS) or view.state is not MemberState.UNJOINED or view.member_epoch != NO_EPOCH:
            self.wrong("is no member")
        if twin.member.snapshot().member_epoch:
            self.wrong("never joined, and has no epoch")
        if view.assigned != {tip_of(partition) for partition in self.owned} or view.readable != self.owned:
            self.wrong("must have, and read, what was assigned")
        if view.poll_wanted and (self.due_ms is None or not self.owned):
            self.wrong("has nothing to commit by itself, and wants to be polled")
        if twin.member.coordinator is None:
            self._look_for_lookups()
        elif any(metadata not in self.under_way() for metadata in self.commits) and self._deadline_is_far():
            self.wrong(f"must send {self.commits}")
        for partition, (timestamp, _) in self.waiting.items():
            if not self.is_asked(partition, timestamp) and self._deadline_is_far() and twin.member.coordinator:
                self.wrong(f"must find out where to start {partition}")

    def _look_for_lookups(self) -> None:
        """R20: a coordinator is looked for as long as somebody needs one, and not else."""
        twin = self.twin
        unsent = {metadata for metadata in self.commits if metadata not in self.under_way()}
        unasked = {
            partition
            for partition, (timestamp, _) in self.waiting.items()
            if timestamp is None and not self.is_asked(partition, timestamp)
        }
        questions = [call for call in twin.calls.values() if isinstance(call, FetchOffsetsRequested)]
        if unsent or unasked:
            self.expect_search(f"{unsent}, {unasked}")
        idle = not unsent and not self.waiting and not questions and not self.commits_itself
        if idle and twin.asked(FindCoordinatorRequest):
            self.wrong("looks for a coordinator that nobody needs")

    def _deadline_is_far(self) -> bool:
        due_ms = self.twin.member.deadline_ms()
        return due_ms is None or due_ms > self.twin.now_ms + self.twin.longest_backoff_ms

    def under_way(self) -> set[str]:
        """Metadata of commits that are under way."""
        return {
            item.committed_metadata or ""
            for sent in self.twin.waits_for_answer(OffsetCommitRequest)
            for topic in sent.request.topics  # type: ignore[attr-defined]
            for item in topic.partitions
        }

    def is_asked(self, partition: TopicPartition, timestamp: int | None) -> bool:
        """Whether a question is under way for where a partition starts; *timestamp* as in `waiting`."""
        if timestamp is not None:
            return any(sent.timestamps.get(partition) == timestamp for sent in self.twin.waits_for(ListOffsets))
        return any(partition in partitions_of(sent) for sent in self.twin.waits_for_answer(OffsetFetchRequest))

    def _note_requests(self) -> None:
        """R103, R114: who commits has no epoch and no id, and knows topics by name."""
        twin = self.twin
        for sent in twin.did(SendRequest):
            self.sent[sent.request_id] = self.number
            request = sent.request
            if isinstance(request, OffsetCommitRequest):
                who = (request.group_id, request.generation_id_or_member_epoch, request.member_id)
                if who != (twin.config.group_id, NO_EPOCH, "") or sent.max_version != _BY_NAME:
                    self.wrong("must commit as nobody, and by name")
                if any(topic.topic_id != ZERO_UUID for topic in request.topics):
                    self.wrong("knows no ids of topics")
            elif not isinstance(request, FindCoordinatorRequest | OffsetFetchRequest):
                self.wrong(f"must not send {request}")
        for listed in twin.did(ListOffsets):
            self.sent[listed.request_id] = self.number

    def expect_started(self, wanted: Positions) -> None:
        """Exactly these start now, and there."""
        begun = {
            tip.topic_partition: position
            for effect in self.twin.did(StartFetching)
            for tip, position in effect.positions.items()
        }
        if begun != dict(wanted):
            self.wrong(f"must start {wanted}")

    def known(self) -> bool:
        """Whether it is connected to its coordinator."""
        return self.twin.member.coordinator is not None

    def expect_search(self, why: str) -> None:
        """R20: somebody needs the coordinator."""
        looking = bool(self.twin.waits_for_answer(FindCoordinatorRequest))
        connecting = bool(self.twin.waits_for(ConnectCoordinator))
        if not looking and not connecting and self._deadline_is_far():
            self.wrong(f"must look for the coordinator: {why}")


def tip_of(partition: TopicPartition) -> TopicIdPartition:
    """A partition as its consumer has it: nobody told it the id of the topic."""
    return TopicIdPartition(partition.topic, partition.partition, ZERO_UUID)


def is_commit(sent: SendRequest) -> bool:
    """Whether a request commits something."""
    return isinstance(sent.request, OffsetCommitRequest)


def metadata_of(said: Positions) -> set[str]:
    """The marks of positions: who committed them."""
    return {position.metadata for position in said.values()}
