"""The topics that members subscribe to, by name and by pattern: their ids, and when patterns are matched.

Matching takes long with many topics, so it is a task of the shell: a result carries `ResolveRegexes`, the shell calls
`resolve` on any thread and hands in `RegexResolved` as an event. Until then a new pattern matches nothing, and the
first answer to its member has an empty assignment. All patterns of a group are matched together, and at most one such
task runs per group.

The syntax is RE2's, which always ends in linear time; Python's `re` accepts other patterns and may hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.common.patterns import PATTERN_LENGTH_MAX, Pattern, compiled
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer import consumer_records
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMetadata
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState, StatePart
from kip848_client.testing.coordinator.core.inputs import RegexResolved
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, ResolveRegexes
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.topics_image import TopicsImage

_REMEMBERED_MAX: Final = 100_000
"""Entries kept in one memo before it is emptied."""


class Subscriptions(StatePart):
    """Checks that are due in each group, and results computed from its subscriptions and the present topics."""

    def __init__(self, state: CoordinatorState) -> None:
        super().__init__(state)
        self.metadata_check_due: Final[set[str]] = set()
        """Groups whose next heartbeat checks whether their topics changed since the group epoch was set."""
        self.regex_check_due: Final[set[str]] = set()
        """Groups whose patterns were not matched since the load."""
        self.resolutions_running: Final[set[str]] = set()
        """Groups whose patterns are being matched."""
        self._image = TopicsImage()
        self._of_groups: dict[str, _GroupTopics] = {}
        self._of_members: dict[tuple[int, int], tuple[object, object, tuple[UUID, ...]]] = {}
        self._shared_ids: dict[tuple[UUID, ...], tuple[UUID, ...]] = {}
        self._hashes: dict[frozenset[str], int] = {}

    def forget(self, group_id: str) -> None:
        """Drop the state kept for a group that no longer exists."""
        self.metadata_check_due.discard(group_id)
        self.regex_check_due.discard(group_id)
        self._of_groups.pop(group_id, None)

    def of_member(self, group: ConsumerGroup, metadata: ConsumerMetadata) -> tuple[UUID, ...]:
        """Ids of the topics that exist and that a member subscribes to, ascending. Equal results are one object."""
        self._follow_topics()
        names, regex = metadata.subscribed_topic_names, metadata.subscribed_topic_regex
        resolved = None if regex is None else group.resolved_regexes.get(regex)
        key = (id(names), id(resolved))  # by identity: hashing a thousand names for each member would cost too much
        remembered = self._of_members.get(key)
        if remembered is not None and remembered[0] is names and remembered[1] is resolved:
            return remembered[2]
        ids = self._image.ids_of(group.topics_of(metadata))
        ids = self._shared_ids.setdefault(ids, ids)
        if len(self._of_members) >= _REMEMBERED_MAX:
            self._of_members.clear()
        self._of_members[key] = (names, resolved, ids)
        return ids

    def of_group(self, group: ConsumerGroup) -> Mapping[str, tuple[UUID, ...]]:
        """`of_member` of every member, in no order; kept from call to call, so it must not be changed."""
        self._follow_topics()
        changes = group.metadata_changes
        known = self._of_groups.get(group.group_id)
        if known is None or known.changes is not changes or group.regex_subscribers:
            known = self._of_groups[group.group_id] = _GroupTopics(changes)
            members: Iterable[str] = group.members
        else:
            members = changes[known.read :]
        for member_id in members:
            member = group.members.get(member_id)
            if member is None:
                known.topic_ids.pop(member_id, None)
            else:
                known.topic_ids[member_id] = self.of_member(group, member.metadata)
        known.read = len(changes)
        return known.topic_ids

    def metadata_hash(self, topics: frozenset[str]) -> int:
        """`TopicsImage.metadata_hash` of *topics*, remembered."""
        self._follow_topics()
        remembered = self._hashes.get(topics)
        if remembered is None:
            if len(self._hashes) >= _REMEMBERED_MAX:
                self._hashes.clear()
            remembered = self._hashes[topics] = self._image.metadata_hash(topics)
        return remembered

    def _follow_topics(self) -> None:
        """Forget results that were computed from the topics as they were before."""
        if self._image is not self.state.image:
            self._image = self.state.image
            self._of_groups.clear()
            self._of_members.clear()
            self._shared_ids.clear()
            self._hashes.clear()


class _GroupTopics(msgspec.Struct, eq=False):
    """The result that `Subscriptions.of_group` remembers for one group."""

    changes: list[str]
    """`ConsumerGroup.metadata_changes` that were read."""
    read: int = 0
    """How many of them."""
    topic_ids: dict[str, tuple[UUID, ...]] = msgspec.field(default_factory=dict)


class MetadataChecked(msgspec.Struct, frozen=True):
    """The group epoch accounts for the topics as they are now."""

    group_id: str

    def apply(self, state: CoordinatorState) -> None:
        """No check is due."""
        state.part(Subscriptions).metadata_check_due.discard(self.group_id)


class MetadataCheckDue(msgspec.Struct, frozen=True):
    """Topics of these groups changed: the next heartbeat of any member looks."""

    group_ids: tuple[str, ...]

    def apply(self, state: CoordinatorState) -> None:
        """A check is due."""
        state.part(Subscriptions).metadata_check_due.update(self.group_ids)


class AllChecksDue(msgspec.Struct, frozen=True):
    """These groups were loaded: topics may have changed, and may have come that a pattern matches."""

    group_ids: tuple[str, ...]

    def apply(self, state: CoordinatorState) -> None:
        """Both checks are due."""
        subscriptions = state.part(Subscriptions)
        subscriptions.metadata_check_due.update(self.group_ids)
        subscriptions.regex_check_due.update(self.group_ids)


class ResolutionStarted(msgspec.Struct, frozen=True):
    """The patterns of a group are being matched."""

    group_id: str

    def apply(self, state: CoordinatorState) -> None:
        """Start no other match of this group meanwhile."""
        subscriptions = state.part(Subscriptions)
        subscriptions.regex_check_due.discard(self.group_id)
        subscriptions.resolutions_running.add(self.group_id)


class ResolutionEnded(msgspec.Struct, frozen=True):
    """They were matched, or could not be."""

    group_id: str

    def apply(self, state: CoordinatorState) -> None:
        """Another match may start."""
        state.part(Subscriptions).resolutions_running.discard(self.group_id)


def check_regex(pattern: str) -> None:
    """Refuse a pattern that cannot be used.

    Raises:
        Refused: INVALID_REGULAR_EXPRESSION; says why.
    """
    _compile(pattern)


def resolve(task: ResolveRegexes, *, wall_ms: int, is_visible: Callable[[str], bool] = lambda _: True) -> RegexResolved:
    """Match the patterns of *task*. Pure, may be called on any thread.

    Args:
        wall_ms: time of the match, in ms since 1970.
        is_visible: whether the group's members may know of a topic; no pattern matches one that they may not.
    """
    names = [topic.name for topic in task.image.topics if is_visible(topic.name)]
    return RegexResolved(
        group_id=task.group_id,
        topics={regex: _match(regex, names) for regex in task.regexes},
        version=task.image.version,
        wall_ms=wall_ms,
    )


def resolution_due(
    state: CoordinatorState,
    group: ConsumerGroup,
    *,
    old: ConsumerMetadata | None,
    new: ConsumerMetadata,
    wall_ms: int,
) -> ResolveRegexes | None:
    """Whether the patterns of a group must be matched now.

    Args:
        old: the member's metadata as *group* counts it; None if it is new.
        new: its metadata after the heartbeat.

    Returns:
        The task, or None: there are no patterns, a task runs already, the last one was just now, or nothing is new.

    Source:
        Kafka's ``GroupMetadataManager.maybeScheduleRegularExpressionResolution``. Beyond Kafka: after a load the
        patterns are matched again, since topics may have been created meanwhile; and a wall clock that goes back delays
        nothing.
    """
    due = state.part(Subscriptions)
    own = new.subscribed_topic_regex
    regexes = dict(group.regex_subscribers)
    if old is not None and old.subscribed_topic_regex is not None:
        regexes[old.subscribed_topic_regex] -= 1
    if own is not None:
        regexes[own] = regexes.get(own, 0) + 1
    subscribed = {regex for regex, count in regexes.items() if count}
    if not subscribed or group.group_id in due.resolutions_running:
        return None
    resolved = [group.resolved_regexes[regex] for regex in subscribed if regex in group.resolved_regexes]
    last_ms = max((entry.timestamp_ms for entry in group.resolved_regexes.values()), default=None)
    if last_ms is not None and last_ms <= wall_ms <= last_ms + state.config.consumer_regex_refresh_min_interval_ms:
        return None  # a clock that was set back is no reason to wait until it is where it was
    is_due = (
        last_ms is None
        or len(resolved) < len(subscribed)
        or group.group_id in due.regex_check_due
        or any(not state.topics_created_version <= entry.version <= state.image.version for entry in resolved)
        or wall_ms > last_ms + state.config.consumer_regex_refresh_interval_ms
    )
    return ResolveRegexes(group.group_id, tuple(sorted(subscribed)), state.image) if is_due else None


def regex_resolved(state: CoordinatorState, event: RegexResolved) -> CoordinatorResult:
    """Install the topics that patterns matched, and drop patterns without subscribers.

    The group epoch is bumped if any pattern matches other topics than before, the group subscribes to others than the
    group epoch accounts for, or a member's target holds topics that it no longer subscribes to; the next heartbeat
    computes the target. The last case is ours: a member that changes its pattern revokes its partitions at once, and
    if the new pattern matches nothing, nothing else would assign them to the members that keep the old one.
    """
    batch = Batch(event.group_id)
    batch.soft.append(ResolutionEnded(event.group_id))
    group = state.find(ConsumerGroup, event.group_id)
    if group is None:
        return batch.result()
    topics = {regex: found for regex, found in sorted(event.topics.items()) if regex in group.regex_subscribers}
    batch.records += [
        consumer_records.regex_record(
            group.group_id, regex=regex, topics=found, version=event.version, timestamp_ms=event.wall_ms
        )
        for regex, found in topics.items()
    ]
    metadata_hash = state.part(Subscriptions).metadata_hash(group.subscribed_topics_with(topics))
    # The hash alone moves where a pattern took the place of one that matched something.
    if (
        metadata_hash != group.metadata_hash
        or any(_is_changed(group, *found) for found in topics.items())
        or _targets_outlived_patterns(state, group, topics)
    ):
        epoch = group.group_epoch + 1
        batch.records.append(
            consumer_records.group_epoch_record(group.group_id, epoch=epoch, metadata_hash=metadata_hash)
        )
        batch.happened("group_epoch_bumped", group_epoch=epoch, fields={"reason": "regex_resolved"})
        batch.state_changed(old=group.state, new=group.state_at(group_epoch=epoch), group_epoch=epoch)
    return batch.result()


def forgotten_regexes(
    group: ConsumerGroup, *, old: Sequence[ConsumerMetadata], new: ConsumerMetadata | None = None
) -> list[str]:
    """The resolved patterns without subscribers after *old* metadata are replaced by *new*."""
    dropped = Counter(metadata.subscribed_topic_regex for metadata in old)
    return [
        regex
        for regex, count in dropped.items()
        if regex is not None
        and (new is None or new.subscribed_topic_regex != regex)
        and group.regex_subscribers[regex] == count
        and regex in group.resolved_regexes
    ]


def started(task: ResolveRegexes, batch: Batch) -> None:
    """Put *task* into *batch*."""
    batch.tasks.append(task)
    batch.soft.append(ResolutionStarted(task.group_id))


def _is_changed(group: ConsumerGroup, regex: str, found: frozenset[str]) -> bool:
    before = group.resolved_regexes.get(regex)
    return found != (frozenset() if before is None else before.topics)


def _targets_outlived_patterns(
    state: CoordinatorState, group: ConsumerGroup, topics: Mapping[str, frozenset[str]]
) -> bool:
    """Whether a member whose pattern was matched for the first time has a target that it does not subscribe to."""
    new = {regex for regex in topics if regex not in group.resolved_regexes}
    if not new:
        return False
    for member_id, member in group.members.items():
        regex = member.metadata.subscribed_topic_regex
        if regex in new and (target := group.target_of(member_id)):
            subscribed = state.image.ids_of(topics[regex].union(member.metadata.subscribed_topic_names))
            if not target.keys() <= set(subscribed):
                return True
    return False


def _match(regex: str, names: list[str]) -> frozenset[str]:
    try:
        pattern = _compile(regex)
    except Refused:
        return frozenset()  # a pattern from the log of a coordinator with another engine
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)


def _compile(pattern: str) -> Pattern:
    try:
        return compiled(pattern)
    except ValueError as error:
        shown = pattern if len(pattern) <= PATTERN_LENGTH_MAX else pattern[:40] + "..."
        if isinstance(error.__cause__, UnicodeEncodeError):
            shown = repr(pattern)
        raise _invalid(shown, str(error)) from error


def _invalid(pattern: str, why: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}. The syntax is that of RE2.",
    )
