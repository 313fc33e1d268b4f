"""Everything the coordinator knows, in one place. Handlers read it; only `GroupCoordinator.replay` and `.apply` write.

Hard state comes from records (groups, offsets); soft state is lost with the process (timers, checks that are due) or
belongs to somebody else (topics, group configs). What is remembered to save work is derived from both.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from kip848_client.assignors import ServerAssignor
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_configs import GroupConfig
from kip848_client.coordinator.group_member import MemberMetadata
from kip848_client.coordinator.offset_store import OffsetStore
from kip848_client.coordinator.refusal import Refused
from kip848_client.coordinator.timers import Timers
from kip848_client.coordinator.topics import TopicsImage
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
        self.offsets: Final = OffsetStore()

        self.timers: Final = Timers()
        self.metadata_check_due: Final[set[str]] = set()
        """Groups whose next heartbeat compares the topics with those that the group epoch accounts for."""
        self.target_computed_ms: Final[dict[str, int]] = {}
        self.group_configs: Final[dict[str, GroupConfig]] = {}
        self._default_group_config: Final = GroupConfig.of(config)
        self._image = TopicsImage()
        self._topic_ids: dict[int, tuple[object, tuple[UUID, ...]]] = {}
        self._shared_ids: dict[tuple[UUID, ...], tuple[UUID, ...]] = {}
        self._hashes: dict[frozenset[str], int] = {}

    @property
    def image(self) -> TopicsImage:
        """The topics of the cluster."""
        return self._image

    @image.setter
    def image(self, image: TopicsImage) -> None:
        self._image = image
        self._topic_ids.clear()
        self._shared_ids.clear()
        self._hashes.clear()

    def group_config(self, group_id: str) -> GroupConfig:
        """The settings in force for a group."""
        return self.group_configs.get(group_id, self._default_group_config)

    def existing_group(self, group_id: str) -> ConsumerGroup:
        """The group of this id.

        Raises:
            Refused: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def forget_group(self, group_id: str) -> None:
        """Drop the group and all soft state of it."""
        self.groups.pop(group_id, None)
        self.metadata_check_due.discard(group_id)
        self.target_computed_ms.pop(group_id, None)

    def topic_ids(self, group: ConsumerGroup, metadata: MemberMetadata) -> tuple[UUID, ...]:
        """Ids of the topics that exist and that a member subscribes to, ascending. Equal results are one object."""
        resolved = (
            None
            if metadata.subscribed_topic_regex is None
            else group.resolved_regexes.get(metadata.subscribed_topic_regex)
        )
        names: object = metadata.subscribed_topic_names if resolved is None else (metadata, resolved)
        if resolved is None:
            remembered = self._topic_ids.get(id(names))
            if remembered is not None and remembered[0] is names:
                return remembered[1]
        ids = self._image.ids_of(group.topics_of(metadata))
        ids = self._shared_ids.setdefault(ids, ids)
        if resolved is None:
            if len(self._topic_ids) >= _REMEMBERED_MAX:
                self._topic_ids.clear()
            self._topic_ids[id(names)] = (names, ids)
        return ids

    def metadata_hash(self, topics: frozenset[str]) -> int:
        """`TopicsImage.metadata_hash` of *topics*, remembered."""
        remembered = self._hashes.get(topics)
        if remembered is None:
            if len(self._hashes) >= _REMEMBERED_MAX:
                self._hashes.clear()
            remembered = self._hashes[topics] = self._image.metadata_hash(topics)
        return remembered
