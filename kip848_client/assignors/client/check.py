"""Checks the result of an assignor before it is sent, by the rules by which the coordinator would refuse it.

Not here: the reaction to a bad result (`kip848_client.member.consumer.assignor_round`).

Source: KIP-848 "Assignment Validation".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, MemberAssignment, TopicSpec
from kip848_client.common.model import TopicIdPartition, describe_partitions
from kip848_client.errors import InvalidAssignmentError

_MOST_NAMED = 20
"""How many partitions or members one message names; it gives the number of the rest."""


class Violation(msgspec.Struct, frozen=True):
    """One thing that is wrong with an assignment.

    Args:
        text: a sentence for people.
        partitions: the offending partitions, as far as they exist, sorted.
        members: the offending member ids, sorted.
    """

    text: str
    partitions: tuple[TopicIdPartition, ...] = ()
    members: tuple[str, ...] = ()


def violations(spec: AssignmentSpec, assignment: object) -> tuple[Violation, ...]:
    """Everything that is wrong with *assignment*; nothing if it can be applied.

    Args:
        spec: the input of the assignor. assignment: its result, of any type.
    """
    return _Check(spec).run(assignment)


def checked(spec: AssignmentSpec, assignment: object, *, assignor: str) -> GroupAssignment:
    """*assignment* with every partition as a `TopicIdPartition`, sorted, and with every member of *spec*.

    Raises:
        InvalidAssignmentError: it cannot be applied; the error names members and partitions.
    """
    check = _Check(spec)
    found = check.run(assignment)
    if found:
        raise InvalidAssignmentError(
            f"assignor {assignor!r} returned an assignment for group epoch {spec.group_epoch} that cannot be applied: "
            + "; ".join(violation.text for violation in found),
            assignor=assignor,
            partitions=sorted({str(tip) for violation in found for tip in violation.partitions}),
            members=sorted({member_id for violation in found for member_id in violation.members}),
        )
    assert isinstance(assignment, GroupAssignment)
    if assignment.error:
        return assignment
    nothing = MemberAssignment()
    return GroupAssignment(
        {
            member_id: MemberAssignment(
                tuple(sorted(check.given[member_id])),
                assignment.members.get(member_id, nothing).metadata,
                assignment.members.get(member_id, nothing).version,
            )
            for member_id in spec.members
        }
    )


class _Topic:
    """One topic, with the members that its partitions were given to."""

    __slots__ = ("owners", "spec")

    def __init__(self, spec: TopicSpec) -> None:
        self.spec = spec
        self.owners: list[str | None] = [None] * spec.partition_count


class _Check:
    """One walk over one result. By topic and number, because a group may have half a million partitions."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._spec = spec
        self._topics = {name: _Topic(topic) for name, topic in spec.topics.items()}
        self._names: Mapping[UUID, str] = {topic.topic_id: topic.name for topic in spec.topics.values()}
        self._twice: dict[TopicIdPartition, list[str]] = {}
        self._found: list[Violation] = []
        self._unreadable: list[str] = []
        self._unknown: list[str] = []
        self._unsubscribed: defaultdict[str, list[TopicIdPartition]] = defaultdict(list)
        self.given: defaultdict[str, list[TopicIdPartition]] = defaultdict(list)
        """Member id -> partitions, resolved."""

    def run(self, assignment: object) -> tuple[Violation, ...]:
        if not isinstance(assignment, GroupAssignment):
            return (Violation(f"it is {_shown(assignment)}, and not a GroupAssignment"),)
        if assignment.error:
            return ()
        # Authors need not use a type checker, so that here nothing is taken for granted.
        members: object = assignment.members
        if not isinstance(members, Mapping):
            return (Violation(f"members is {_shown(members)}, and not a mapping by member id"),)
        for member_id, member in members.items():
            if member_id not in self._spec.members:
                known = isinstance(member_id, str)
                self._found.append(
                    Violation(f"{member_id!r} is not a member of the group", members=(member_id,) if known else ())
                )
            elif not isinstance(member, MemberAssignment):
                text = f"member {member_id!r} is given {_shown(member)}, and not a MemberAssignment"
                self._found.append(Violation(text, members=(member_id,)))
            else:
                self._walk(member_id, member.partitions)
        self._judge()
        return tuple(self._found)

    def _walk(self, member_id: str, partitions: object) -> None:
        if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
            text = f"the partitions of member {member_id!r} are {_shown(partitions)}, and not a collection"
            self._found.append(Violation(text, members=(member_id,)))
            return
        subscribed = frozenset(self._spec.members[member_id].subscribed_topics)
        topics, given = self._topics, self.given[member_id]
        for ref in partitions:
            partition = self._resolve(ref)
            if partition is None:
                continue
            name, index, _ = partition
            owners = topics[name].owners
            other = owners[index]
            if other is None:
                owners[index] = member_id
            else:
                self._twice.setdefault(partition, [other]).append(member_id)
            given.append(partition)
            if name not in subscribed:
                self._unsubscribed[member_id].append(partition)

    def _resolve(self, ref: object) -> TopicIdPartition | None:
        """The partition that *ref* names (a `PartitionRef`), or None after noting why there is none."""
        topic: object
        index: object
        topic_id: object = None
        if isinstance(ref, TopicIdPartition):
            topic, index, topic_id = ref
        elif isinstance(ref, tuple) and len(ref) == 2:
            head, index = ref
            topic = self._names.get(head, str(head)) if isinstance(head, UUID) else head
        else:
            topic, index = getattr(ref, "topic", None), getattr(ref, "partition", None)
        if not isinstance(topic, str) or not isinstance(index, int) or isinstance(index, bool):
            self._unreadable.append(_shown(ref))
            return None
        found = self._topics.get(topic)
        if found is not None and 0 <= index < len(found.owners):
            spec = found.spec
            if topic_id is spec.topic_id and isinstance(ref, TopicIdPartition):
                return ref
            if topic_id is None or topic_id == spec.topic_id:
                return TopicIdPartition(topic, index, spec.topic_id)
        self._unknown.append(f"{topic}-{index}")
        return None

    def _judge(self) -> None:
        if self._unreadable:
            self._found.append(Violation(f"these name no partition: {_listed(self._unreadable)}"))
        if self._unknown:
            text = f"these do not exist, or no member subscribes to their topic: {_listed(sorted(self._unknown))}"
            self._found.append(Violation(text))
        if self._twice:
            listed = [f"{tip} ({', '.join(map(repr, self._twice[tip]))})" for tip in sorted(self._twice)]
            members = tuple(sorted({owner for owners in self._twice.values() for owner in owners}))
            text = f"assigned more than once: {_listed(listed)}"
            self._found.append(Violation(text, tuple(sorted(self._twice)), members))
        for member_id, partitions in sorted(self._unsubscribed.items()):
            text = f"member {member_id!r} does not subscribe to the topics of {_described(partitions)}"
            self._found.append(Violation(text, tuple(sorted(partitions)), (member_id,)))
        missing = [
            TopicIdPartition(name, index, topic.spec.topic_id)
            for name, topic in sorted(self._topics.items())
            if None in topic.owners
            for index, owner in enumerate(topic.owners)
            if owner is None
        ]
        if missing:
            self._found.append(Violation(f"not assigned: {_described(missing)}", tuple(missing)))


def _described(partitions: list[TopicIdPartition]) -> str:
    if len(partitions) <= _MOST_NAMED:
        return describe_partitions(partitions)
    return f"{describe_partitions(sorted(partitions)[:_MOST_NAMED])} and {len(partitions) - _MOST_NAMED} more"


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


def _shown(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 80 else f"{text[:77]}..."
