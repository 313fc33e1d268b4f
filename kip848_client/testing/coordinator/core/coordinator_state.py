"""The state of the coordinator. Handlers read it; only `GroupCoordinator.replay` and `.apply` write it.

Hard state comes from records (groups, offsets). Soft state is lost with the process (timers) or kept by the shell
(topics, group configs). State that only one room needs is a `StatePart` of that room.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeVar

from kip848_client.assignors.server.spec import ServerAssignor
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry, OffsetStore
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.timers import Timers
from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.wire.messages.group_records import GroupRecord


class AnyGroup(Protocol):
    """The properties of a group that the core reads, whatever its kind. `kind.GroupKind` decides everything else."""

    kind: ClassVar[str]
    """Kafka's word for its type, as ListGroups shows it."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type that its members name, such as "consumer"; None if no member named one."""

    @property
    def state(self) -> object:
        """Its state; its text is the name on the wire."""

    @property
    def size(self) -> int:
        """Number of members, and of ids handed out to clients that have not joined yet."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""

    @property
    def has_private_topics(self) -> bool:
        """Whether it has members whose topics the coordinator cannot read."""

    @property
    def offset_expiry(self) -> OffsetExpiry:
        """When its offsets expire."""

    def reads(self, topic: str) -> bool:
        """Whether members read *topic*, so that its offsets stay."""

    def tombstones(self) -> Iterator[GroupRecord]:
        """Tombstones for all its records but the offsets, in the order that replay demands."""

    def check_invariants(self) -> None:
        """Assert what must hold between two events."""


class StatePart:
    """State that one room keeps for itself. `CoordinatorState.part` makes it when it is asked for first."""

    def __init__(self, state: CoordinatorState) -> None:
        self.state: Final = state

    def forget(self, group_id: str) -> None:
        """Drop the state kept for a group that no longer exists."""


GroupT = TypeVar("GroupT", bound=AnyGroup)
PartT = TypeVar("PartT", bound=StatePart)


class CoordinatorState:
    """Hard and soft state.

    Args:
        offsets_only: makes the group of an id that has offsets and no group.
        others: the states of the coordinators that share the limits of members and groups with this one.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        rng: random.Random,
        assignors: Mapping[str, ServerAssignor],
        offsets_only: Callable[[str], AnyGroup],
        others: Callable[[], Iterable[CoordinatorState]] = tuple,
    ) -> None:
        self.config: CoordinatorConfig = config
        self.rng: Final = rng
        self.assignors: Final = assignors
        """The assignors of ``group.consumer.assignors``, in that order."""
        self.groups: Final[dict[str, AnyGroup]] = {}
        self.offsets: Final = OffsetStore()
        self.member_count: int = 0
        """Members of all groups, and ids that may become members of classic ones."""
        self.timers: Final = Timers()
        self.image: TopicsImage = TopicsImage()
        """The topics of the cluster."""
        self.topics_created_version: int = 0
        """`TopicsImage.version` at which the last topic was created."""
        self.group_configs: Final[dict[str, GroupConfig]] = {}
        self._default_group_config = GroupConfig.of(config)
        self._offsets_only: Final = offsets_only
        self._others: Final = others
        self._parts: Final[dict[type[StatePart], Any]] = {}

    def find(self, kind: type[GroupT], group_id: str) -> GroupT | None:
        """The group of this id, if it is of this kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def all_of(self, kind: type[GroupT]) -> list[GroupT]:
        """All groups of one kind, the oldest first."""
        return [group for group in self.groups.values() if isinstance(group, kind)]

    def known_group(self, group_id: str) -> AnyGroup | None:
        """The group of this id; one without members if there are offsets of it alone (a *simple* group)."""
        group = self.groups.get(group_id)
        return self._offsets_only(group_id) if group is None and self.offsets.has_group(group_id) else group

    def existing(self, kind: type[GroupT], group_id: str) -> GroupT:
        """The group of this id.

        Raises:
            Refused: GROUP_ID_NOT_FOUND: there is none, or it is of another kind.
        """
        group = self.known_group(group_id)
        if isinstance(group, kind):
            return group
        what = "not found" if group is None else f"is not a {kind.kind} group"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def part(self, kind: type[PartT]) -> PartT:
        """The state that a room keeps for itself."""
        part: PartT | None = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind(self)
        return part

    def replace_image(self, image: TopicsImage) -> None:
        """Replace `image`."""
        if not image.by_id.keys() <= self.image.by_id.keys():
            self.topics_created_version = image.version
        self.image = image

    def set_config(self, config: CoordinatorConfig) -> None:
        """Use other settings for groups without overrides; those with overrides are resolved by the caller."""
        self.config = config
        self._default_group_config = GroupConfig.of(config)

    def group_config(self, group_id: str) -> GroupConfig:
        """The settings in force for a group."""
        return self.group_configs.get(group_id, self._default_group_config)

    def has_room_for_group(self, group_id: str) -> bool:
        """Whether a group of this id exists, or may be created."""
        if group_id in self.groups or self.offsets.has_group(group_id):
            return True
        # One that has members and offsets counts more than once; that is looked at only near the limit.
        groups_max, states = self.config.groups_max, (self, *self._others())
        if sum(len(state.groups) + state.offsets.group_count_max for state in states) < groups_max:
            return True
        return sum(len(state.offsets.group_ids() | state.groups.keys()) for state in states) < groups_max

    @property
    def has_room_for_member(self) -> bool:
        """Whether one more member may join any group."""
        return sum(state.member_count for state in (self, *self._others())) < self.config.members_max

    def put_group(self, group: AnyGroup) -> None:
        """Add a group, or replace it whole."""
        before = self.groups.get(group.group_id)
        self.groups[group.group_id] = group
        self.member_count += group.size - (0 if before is None else before.size)

    def forget_group(self, group_id: str) -> None:
        """Drop the group, and the soft state of it."""
        before = self.groups.pop(group_id, None)
        self.member_count -= 0 if before is None else before.size
        for part in self._parts.values():
            part.forget(group_id)
