"""The state of the coordinator. Handlers read it; only `GroupCoordinator.replay` and `.apply` write it.

Hard state comes from records (groups, offsets). Soft state is lost with the process (timers, due checks) or kept by the
shell (topics, group configs). Caches are derived from both.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kip848_client.assignors import ServerAssignor
from kip848_client.coordinator.classic.classic_group import ClassicGroup
from kip848_client.coordinator.connect.connect_group import ConnectGroup
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.core.config import CoordinatorConfig
from kip848_client.coordinator.core.group_configs import GroupConfig
from kip848_client.coordinator.core.offset_store import OffsetStore
from kip848_client.coordinator.core.refusal import Refused
from kip848_client.coordinator.core.timers import Timers
from kip848_client.coordinator.core.topics import TopicsImage
from kip848_client.coordinator.modern.assignment_round import AssignmentRound
from kip848_client.coordinator.modern.member_record import ClassicProtocols, Member, MemberMetadata
from kip848_client.errors import ErrorCode

_REMEMBERED_MAX: Final = 100_000
"""Entries kept in one memo before it is emptied."""


class CoordinatorState:
    """Hard and soft state."""

    def __init__(
        self, config: CoordinatorConfig, *, rng: random.Random, assignors: Mapping[str, ServerAssignor]
    ) -> None:
        self.config: Final = config
        self.rng: Final = rng
        self.assignors: Final = assignors
        """Those of ``group.consumer.assignors``, in that order."""
        self.groups: Final[dict[str, ConsumerGroup]] = {}
        self.classic: Final[dict[str, ClassicGroup]] = {}
        """Classic groups; none of them is in `groups`."""
        self.connect: Final[dict[str, ConnectGroup]] = {}
        """Connect groups; none of them is in `groups` or `classic`."""
        self.offsets: Final = OffsetStore()
        self.member_count = 0
        """Members of all groups, and ids that may become members of classic ones."""

        self.timers: Final = Timers()
        self.metadata_check_due: Final[set[str]] = set()
        """Groups whose next heartbeat compares the topics with those that the group epoch accounts for."""
        self.regex_check_due: Final[set[str]] = set()
        """Groups whose patterns were not matched since the load."""
        self.resolutions_running: Final[set[str]] = set()
        """Groups whose patterns are being matched."""
        self.topics_created_version = 0
        """`TopicsImage.version` at which the last topic was created."""
        self.target_computed_ms: Final[dict[str, int]] = {}
        self.rounds: Final[dict[str, AssignmentRound]] = {}
        """Groups whose target a member is to compute."""
        self.heard: Final[dict[str, dict[str, int]]] = {}
        """Connect group -> worker -> number of the latest heartbeat that came."""
        self.group_configs: Final[dict[str, GroupConfig]] = {}
        self._default_group_config: Final = GroupConfig.of(config)
        self._image = TopicsImage()
        self._subscriptions: dict[str, _Subscriptions] = {}
        self._topic_ids: dict[tuple[int, int], tuple[object, object, tuple[UUID, ...]]] = {}
        self._shared_ids: dict[tuple[UUID, ...], tuple[UUID, ...]] = {}
        self._hashes: dict[frozenset[str], int] = {}

    @property
    def image(self) -> TopicsImage:
        """The topics of the cluster."""
        return self._image

    @image.setter
    def image(self, image: TopicsImage) -> None:
        if not image.by_id.keys() <= self._image.by_id.keys():
            self.topics_created_version = image.version
        self._image = image
        self._subscriptions.clear()
        self._topic_ids.clear()
        self._shared_ids.clear()
        self._hashes.clear()

    def group_config(self, group_id: str) -> GroupConfig:
        """The settings in force for a group."""
        return self.group_configs.get(group_id, self._default_group_config)

    def all_groups(self) -> dict[str, ConsumerGroup | ConnectGroup]:
        """Every group of the new protocol by its id."""
        return {**self.groups, **self.connect}

    def check_not_connect(self, group_id: str) -> None:
        """Refuse what concerns other groups than connect groups.

        Raises:
            Refused: GROUP_ID_NOT_FOUND.
        """
        if group_id in self.connect:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a connect group, whose members share units."
            )

    def session_timeout_ms(self, group_id: str, member: Member[Any, Any]) -> int:
        """How long a member may be silent; one on the classic protocol has said so itself."""
        classic: ClassicProtocols | None = member.metadata.classic
        if classic is not None:
            return classic.session_timeout_ms
        config = self.group_config(group_id)
        is_consumer = isinstance(member.metadata, MemberMetadata)
        return config.session_timeout_ms if is_consumer else config.connect_session_timeout_ms

    def existing_group(self, group_id: str) -> ConsumerGroup:
        """The group of this id.

        Raises:
            Refused: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            what = "is not a consumer group" if self.is_classic(group_id) else "not found"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def existing_classic_group(self, group_id: str) -> ClassicGroup:
        """The classic group of this id.

        Raises:
            Refused: UNKNOWN_MEMBER_ID: there is no such group.
        """
        group = self.classic.get(group_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no classic group {group_id}.")
        return group

    def is_classic(self, group_id: str) -> bool:
        """Whether there is a classic group of this id, or there are offsets of it and no group."""
        return group_id in self.classic or (group_id not in self.groups and self.offsets.has_group(group_id))

    def put_classic_group(self, group_id: str, group: ClassicGroup | None) -> None:
        """Replace a classic group whole; None: there is none."""
        before = self.classic.pop(group_id, None) if group is None else self.classic.get(group_id)
        if group is not None:
            self.classic[group_id] = group
        self.member_count += (0 if group is None else group.size) - (0 if before is None else before.size)

    def has_room_for_group(self, group_id: str) -> bool:
        """Whether a group of this id exists, or may be created."""
        kinds: tuple[Mapping[str, object], ...] = (self.groups, self.classic, self.connect)
        if any(group_id in groups for groups in kinds) or self.offsets.has_group(group_id):
            return True
        # One that has members and offsets counts more than once; that is looked at only near the limit.
        groups_max = self.config.groups_max
        if sum(map(len, kinds)) + self.offsets.group_count_max < groups_max:
            return True
        return len(set(self.offsets.group_ids()).union(*kinds)) < groups_max

    def forget_group(self, group_id: str) -> None:
        """Drop the group and all soft state of it."""
        self.groups.pop(group_id, None)
        self.connect.pop(group_id, None)
        self._subscriptions.pop(group_id, None)
        self.metadata_check_due.discard(group_id)
        self.regex_check_due.discard(group_id)
        self.target_computed_ms.pop(group_id, None)
        self.rounds.pop(group_id, None)
        self.heard.pop(group_id, None)

    def topic_ids(self, group: ConsumerGroup, metadata: MemberMetadata) -> tuple[UUID, ...]:
        """Ids of the topics that exist and that a member subscribes to, ascending. Equal results are one object."""
        names, regex = metadata.subscribed_topic_names, metadata.subscribed_topic_regex
        resolved = None if regex is None else group.resolved_regexes.get(regex)
        key = (id(names), id(resolved))  # by identity: hashing a thousand names for each member would cost too much
        remembered = self._topic_ids.get(key)
        if remembered is not None and remembered[0] is names and remembered[1] is resolved:
            return remembered[2]
        ids = self._image.ids_of(group.topics_of(metadata))
        ids = self._shared_ids.setdefault(ids, ids)
        if len(self._topic_ids) >= _REMEMBERED_MAX:
            self._topic_ids.clear()
        self._topic_ids[key] = (names, resolved, ids)
        return ids

    def subscriptions(self, group: ConsumerGroup) -> Mapping[str, tuple[UUID, ...]]:
        """`topic_ids` of every member, in no order; kept from call to call, so it must not be changed."""
        changes = group.metadata_changes
        known = self._subscriptions.get(group.group_id)
        if known is None or known.changes is not changes or group.regex_subscribers:
            known = self._subscriptions[group.group_id] = _Subscriptions(changes)
            members: Iterable[str] = group.members
        else:
            members = changes[known.read :]
        for member_id in members:
            member = group.members.get(member_id)
            if member is None:
                known.topic_ids.pop(member_id, None)
            else:
                known.topic_ids[member_id] = self.topic_ids(group, member.metadata)
        known.read = len(changes)
        return known.topic_ids

    def metadata_hash(self, topics: frozenset[str]) -> int:
        """`TopicsImage.metadata_hash` of *topics*, remembered."""
        remembered = self._hashes.get(topics)
        if remembered is None:
            if len(self._hashes) >= _REMEMBERED_MAX:
                self._hashes.clear()
            remembered = self._hashes[topics] = self._image.metadata_hash(topics)
        return remembered


class _Subscriptions(msgspec.Struct, eq=False):
    """What `CoordinatorState.subscriptions` remembers of one group."""

    changes: list[str]
    """`ConsumerGroup.metadata_changes` that were read."""
    read: int = 0
    """How many of them."""
    topic_ids: dict[str, tuple[UUID, ...]] = msgspec.field(default_factory=dict)
