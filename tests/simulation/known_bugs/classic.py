"""Bugs in classic groups, their members and the migration, put in one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.member.classic.classic_plan import ClassicPlan
from kip848_client.member.classic.classic_protocol import ClassicProtocol
from kip848_client.testing.coordinator.classic import classic_commit, classic_kind, rebalance
from kip848_client.testing.coordinator.classic import classic_group as group
from kip848_client.testing.coordinator.consumer import consumer_conversion, consumer_departure
from kip848_client.testing.coordinator.migration import mixed_group
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("a completed join phase keeps the generation", "K2", scenario="classic")
def _(patch: Patch) -> None:
    patch.setattr(
        rebalance,
        "next_generation",
        lambda before, **at: replace(group.next_generation(before, **at), generation=max(1, before.generation)),
    )


@known_bug("a leader that is removed stays the leader", "K3", scenario="classic")
def _(patch: Patch) -> None:
    patch.setattr(rebalance, "without", lambda one, gone: replace(group.without(one, gone), leader=one.leader))


@known_bug("two members get each other's assignment", "K5", scenario="classic")
def _(patch: Patch) -> None:
    def exchanged(one: Any, given: Any) -> Any:
        return group.with_assignments(one, dict(zip(given, reversed(given.values()), strict=True)))

    patch.setattr(rebalance, "with_assignments", exchanged)


@known_bug("a downgrade records what members hold, and not their target", "K6", scenario="migration")
def _(patch: Patch) -> None:
    begin = consumer_conversion.begin_downgrade

    def held(*group: Any, members: Any, targets: Any, **times: Any) -> Any:
        left = list(members)
        return begin(*group, members=left, targets={one.member_id: one.current.assigned for one in left}, **times)

    patch.setattr(consumer_conversion, "begin_downgrade", held)


@known_bug("members of a mixed group are not sent to join again", "L1", scenario="migration")
def _(patch: Patch) -> None:
    patch.setattr(mixed_group.MixedGroup, "_must_rejoin", lambda *_: False)


@known_bug("a load forgets the generation", "K8", "S3", scenario="classic")
def _(patch: Patch) -> None:
    patch.setattr(classic_kind, "from_value", lambda name, value: replace(group.from_value(name, value), generation=1))


@known_bug("a group of classic members alone stays a consumer group", "K9", scenario="migration")
def _(patch: Patch) -> None:
    patch.setattr(consumer_departure, "can_downgrade", lambda *_, **__: False)


@known_bug("a commit of any generation counts", "K11", scenario="classic")
def _(patch: Patch) -> None:
    patch.setattr(classic_commit, "check_generation", lambda *_: None)


@known_bug("a leader gives away what is still owned", "C1", scenario="classic")
def _(patch: Patch) -> None:
    patch.setattr(ClassicPlan, "_adjusted", lambda _self, _member_id, partitions: frozenset(partitions))


@known_bug("a static member takes what its former self had for all of it", "L1", scenario="classic", seed=390)
def _(patch: Patch) -> None:
    patch.setattr(ClassicProtocol, "_once_more", lambda *_: None)
