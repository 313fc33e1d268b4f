"""Rounds of client-side assignment in the group that a run has made, walked at random and compared with a model: S10.

Members of a simulation rarely offer two assignors, read other versions than their neighbours, go in the middle of a
round, or fail twice. Here another coordinator reads the log of the run, and a walk does all of that to its group:
members join, offer something else, leave, go away and come back, are fenced, let time pass, prepare, and install.
After each step, who is asked must be who the model says (`round_model`). Nothing of it comes back to the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors import TopicPartitions as Partitions
from kip848_client.coordinator.assignment_round import AssignmentRound, PreparedGroup
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import ClientAssignor, GroupMember
from kip848_client.coordinator.requests import ApiRequest, GroupMessage
from kip848_client.coordinator.result import CoordinatorResult
from kip848_client.coordinator.timers import TimerKey, TimerKind
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.violation import InvariantViolation, fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    Member,
    TopicPartition,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from tests.simulation.probes.reader import Walk, coordinator_reading, join
from tests.simulation.probes.round_model import Asked, ask, away_of, is_understood, offers_of, runners, runners_of

_STEPS: Final = 40
_MEMBERS_MAX: Final = 6
_NAMES: Final = ("a", "b")
_VERSION_MAX: Final = 2
_NONE: Final = 0.03
"""Of the members, those that offer no assignor: then no member is asked."""
_TIMEOUT_MS: Final = 5_000


class RoundWalk(Walk):
    """S10: the assignor is one that all offer, who can run it is asked, and another member when that one fails."""

    def converged(self) -> None:
        """Walk."""
        rng = self._world.random("round walk")
        config = replace(
            self._config,
            client_assignors=True,
            client_assignment_timeout_ms=rng.choice((0, _TIMEOUT_MS)),
            consumer_assignment_interval_ms=rng.choice((0, 0, 1, 150)),
            consumer_max_size=_MEMBERS_MAX,
        )
        walk = _Walk(self._cluster, config, group_id=self._mirror.group_id, now_ms=self._world.now_ms, rng=rng)
        walk.begin()
        for _ in range(_STEPS):
            walk.step()


class _Walk:
    """One walk, with a coordinator beside that of the run."""

    def __init__(
        self, cluster: Cluster, config: CoordinatorConfig, *, group_id: str, now_ms: int, rng: random.Random
    ) -> None:
        self._rng = rng
        self._config = config
        self._group_id = group_id
        self._now_ms = now_ms
        self._image = cluster.topics.image
        self._coordinator = coordinator_reading(cluster.log, config, image=cluster.topics.image)
        self._coordinator.loaded(now_ms=now_ms)
        self._computed_ms: int | None = None
        """When the last target was installed or computed."""
        self._before: AssignmentRound | None = None
        self._group_epoch = 0
        self._target_epoch = 0
        self._result = CoordinatorResult()
        """Of the last step."""
        self._number = 0
        """Of the last member that joined."""

    # --------------------------------------------------------------------------------------------------------- actions

    def begin(self) -> None:
        """Let those that there are offer assignors, too."""
        group = self._coordinator.group(self._group_id)
        for member_id in [] if group is None else group.sorted_member_ids:
            member = self._group().members[member_id]
            if member.current.member_epoch >= 0 and not member.metadata.client_assignors:
                self._offers(self._group(), member)

    def step(self) -> None:
        """Do something, and compare."""
        self._now_ms += self._rng.choice((0, 50, 100))
        group = self._coordinator.group(self._group_id)
        present = [] if group is None else [one for one in group.members.values() if one.current.member_epoch >= 0]
        if group is None or len(present) < 2 or (len(group.members) < _MEMBERS_MAX and self._rng.random() < 0.1):
            self._joins(None if group is None else self._away(group))
            return
        actions: list[Callable[[ConsumerGroup, GroupMember], None]] = [
            self._beats,
            self._beats,
            self._offers,
            self._offers,
            self._leaves,
            self._bounces,
            self._is_fenced,
            self._fails,
            self._prepares,
            self._prepares,
            self._installs,
            self._installs,
        ]
        self._rng.choice(actions)(group, self._somebody(group, present))

    def _somebody(self, group: ConsumerGroup, present: list[GroupMember]) -> GroupMember:
        """Mostly the one that is asked."""
        flying = self._coordinator.round_in_flight(self._group_id)
        chosen = None if flying is None else group.members.get(flying.member_id)
        return chosen if chosen in present and self._rng.random() < 0.7 else self._rng.choice(present)

    def _away(self, group: ConsumerGroup) -> GroupMember | None:
        away = [group.members[member_id] for member_id in sorted(away_of(group))]
        is_full = len(group.members) >= _MEMBERS_MAX  # then no new member is let in
        return self._rng.choice(away) if away and (is_full or self._rng.random() < 0.7) else None

    def _joins(self, former: GroupMember | None) -> None:
        """A new member, or a static one under another id."""
        self._number += 1
        member_id = f"walker-{self._number}"
        instance_id = f"of {member_id}" if self._rng.random() < 0.4 else None
        if former is not None:
            instance_id = former.metadata.instance_id
            is_full = len(self._group().members) >= _MEMBERS_MAX  # then no static member comes back under another id
            member_id = former.member_id if self._rng.random() < 0.4 or is_full else member_id
        offers = self._some_offers()
        if former is not None and self._rng.random() < 0.5:
            offers = former.metadata.client_assignors
        request = join(
            self._group_id,
            member_id=member_id,
            instance_id=instance_id,
            subscribed_topic_names=() if self._rng.random() < 0.3 else ("orders",),
            client_assignors=tuple(map(_to_wire, offers)) if offers else None,
        )
        self._beat(request, member_id, offers, former)

    def _some_offers(self) -> tuple[ClientAssignor, ...]:
        rng = self._rng
        if rng.random() < _NONE:
            return ()
        found = []
        for name in rng.sample(_NAMES, rng.choice((1, 2, 2, 2))):
            low = rng.choice((0, 0, 0, 0, 0, 1))
            high = rng.randint(max(low, 1), _VERSION_MAX) if rng.random() < 0.8 else low
            found.append(ClientAssignor(name, low, high, 0, rng.choice((low, low, min(1, high))), b""))
        return tuple(found)

    def _beats(self, _group: ConsumerGroup, member: GroupMember) -> None:
        """With what it has: whatever it was to give up is given up."""
        self._beat(self._heartbeat_of(member), member.member_id, member.metadata.client_assignors, None)

    def _offers(self, _group: ConsumerGroup, member: GroupMember) -> None:
        offers = self._some_offers()
        if self._rng.random() < 0.3:
            offers = tuple(
                replace(one, reason=self._rng.randint(0, 2)) for one in member.metadata.client_assignors[::-1]
            )
        request = replace(self._heartbeat_of(member), client_assignors=tuple(map(_to_wire, offers)))
        self._beat(request, member.member_id, offers, None)

    def _heartbeat_of(self, member: GroupMember) -> ConsumerGroupHeartbeatRequest:
        owned = tuple(
            TopicPartitions(topic_id, tuple(sorted(epochs))) for topic_id, epochs in member.current.assigned.items()
        )
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            instance_id=member.metadata.instance_id,
            topic_partitions=owned,
        )

    # ------------------------------------------------------------------------------------------------ what is expected

    def _beat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        offers: tuple[ClientAssignor, ...],
        former: GroupMember | None,
    ) -> None:
        """A heartbeat, and what must come of it."""
        group = self._coordinator.group(self._group_id)
        known = {} if group is None else dict(offers_of(group))
        before = known.pop(former.member_id if former else member_id, ())
        is_new = group is None or (former is None and member_id not in group.members)
        had = runners(known if is_new else {**known, (former.member_id if former else member_id): before})
        fits = is_understood({**known, member_id: offers}, member_id, before)
        interval_over = self._interval_over()
        response = self._ask(request)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code or not fits:
            self._refused(response.error_code, ErrorCode.UNSUPPORTED_ASSIGNOR if not fits else 0, request)
            return
        group, flying = self._group(), self._flying()
        found, was = runners(offers_of(group)), self._before
        moved = group.group_epoch > self._group_epoch
        if (
            not moved
            and (had and had.assignor_name) != (found and found.assignor_name)
            and (is_new or before != offers)
        ):
            fail("S10", f"{member_id} makes {had} {found}, and the group does not move")
        if group.group_epoch == self._target_epoch:
            self._compare({_asked_by(was)}, "group_epoch_bumped")
            return
        if found is None:
            self._compare({None}, "")
            if interval_over and group.target_epoch != group.group_epoch:
                fail("S10", f"no member is asked, and the coordinator computes no target of {group.group_epoch}")
        else:
            if group.target_epoch not in (self._target_epoch, group.group_epoch - 1):
                fail("S10", f"a member is to compute, and the target is of {group.target_epoch}")
            away = away_of(group)
            firsts = (member_id,) if moved else (member_id, None)
            new = {ask(found, first=first, tried=was.tried if was else (), never=away) for first in firsts}
            if was is None:
                self._compare(new if interval_over else {None}, "group_epoch_bumped")
            elif was.prepared is not None or (
                was.assignor_name == found.assignor_name and found.include(was.member_id)
            ):
                self._compare({_asked_by(was)}, "")
            elif _runs(group, was):
                self._compare({_asked_by(was), *new}, "assignor_changed")  # Prepare sees another order
            else:
                self._compare(new, "assignor_changed")
        flying = self._flying()
        if response.should_compute_assignment != (flying is not None and flying.member_id == member_id):
            fail("S10", f"{member_id} is told to compute: {response.should_compute_assignment}; asked is {flying}")
        if response.should_compute_assignment:
            self._runs_for(member_id)

    def _leaves(self, group: ConsumerGroup, member: GroupMember) -> None:
        """For good, or for a while; or it falls silent."""
        static, member_id = member.metadata.instance_id is not None, member.member_id
        for_a_while = static and self._rng.random() < 0.6
        if not for_a_while and self._rng.random() < 0.4:
            self._run_out(TimerKind.SESSION, member_id)
        else:
            epoch = -2 if for_a_while else -1
            self._ask(ConsumerGroupHeartbeatRequest(self._group_id, member_id, epoch, member.metadata.instance_id))
        left = self._coordinator.group(self._group_id)
        assert left is not None
        self._moves_on(left, failed=member_id, reason="member_left", for_good=True)

    def _bounces(self, group: ConsumerGroup, member: GroupMember) -> None:
        """A static member goes away, and is back at once."""
        static = [one for one in group.members.values() if one.metadata.instance_id and one.current.member_epoch >= 0]
        if not static:
            self._beats(group, member)
            return
        former = self._rng.choice(static)
        member_id, instance_id = former.member_id, former.metadata.instance_id
        self._ask(ConsumerGroupHeartbeatRequest(self._group_id, member_id, -2, instance_id))
        self._moves_on(self._group(), failed=member_id, reason="member_left", for_good=True)
        self._joins(self._group().members[member_id])

    def _is_fenced(self, _group: ConsumerGroup, member: GroupMember) -> None:
        request = replace(self._heartbeat_of(member), member_epoch=member.current.member_epoch + 5)
        response = self._ask(request)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code != ErrorCode.FENCED_MEMBER_EPOCH:
            fail("S7", f"{member.member_id} heartbeats with an epoch to come, and is answered {response}")
        told = [(fact.member_id, fact.fields) for fact in self._result.events if fact.event == "member_fenced"]
        if told != [(member.member_id, {"error": "FENCED_MEMBER_EPOCH", "sent_epoch": request.member_epoch})]:
            fail("T1", f"{member.member_id} was fenced, and told is {told}")
        self._moves_on(self._group(), failed=member.member_id, reason="member_fenced", for_good=False)

    def _fails(self, group: ConsumerGroup, member: GroupMember) -> None:
        """Its time to compute is over, if it runs."""
        flying = self._coordinator.round_in_flight(self._group_id)
        if flying is None or not flying.is_notified:
            self._beats(group, member)
            return
        self._run_out(TimerKind.CLIENT_ASSIGNMENT, flying.member_id)
        self._moves_on(self._group(), failed=flying.member_id, reason="timeout", for_good=False)

    def _moves_on(self, group: ConsumerGroup, *, failed: str, reason: str, for_good: bool) -> None:
        """Another one is asked if it was the one; for a while it may be asked again when all others failed, too."""
        was = self._before
        if was is None or was.member_id != failed:
            in_common = runners(offers_of(group)) is not None
            self._compare({_asked_by(was) if in_common else None}, "")
            return
        never = away_of(group) | ({failed} if for_good else set())
        wanted = ask(runners(offers_of(group)), first=None, tried=was.tried | {failed}, never=never)
        self._compare({wanted}, reason)

    def _prepares(self, group: ConsumerGroup, member: GroupMember) -> None:
        was = self._coordinator.round_in_flight(self._group_id)
        request = ConsumerGroupPrepareAssignmentRequest(self._group_id, member.member_id, member.current.member_epoch)
        response = self._ask(request)
        assert isinstance(response, ConsumerGroupPrepareAssignmentResponse)
        found = runners(offers_of(group))
        if was is None or was.member_id != member.member_id:
            self._refused(response.error_code, ErrorCode.UNKNOWN_MEMBER_ID, request)
        elif found is None:
            self._expect_code(response.error_code, ErrorCode.UNKNOWN_MEMBER_ID, request)
            self._compare({None}, "")
        elif not found.include(member.member_id):
            self._expect_code(response.error_code, ErrorCode.UNKNOWN_MEMBER_ID, request)
            tried = was.tried | {member.member_id}
            self._compare({ask(found, first=None, tried=tried, never=away_of(group))}, "assignor_changed")
        else:
            self._expect_code(response.error_code, 0, request)
            self._compare({Asked(found.assignor_name, member.member_id, was.tried)}, "")
            self._runs_for(member.member_id)
            if response.assignor_name != found.assignor_name or response.group_epoch != group.group_epoch:
                fail("S10", f"{found} are to run epoch {group.group_epoch}, and {member.member_id} is told {response}")

    def _installs(self, group: ConsumerGroup, member: GroupMember) -> None:
        was = self._coordinator.round_in_flight(self._group_id)
        told = was.prepared if was is not None and was.member_id == member.member_id else None
        prepared = told if isinstance(told, PreparedGroup) else None
        error = self._rng.choice((0, 0, 7))
        given: dict[str, list[TopicPartition]] = {}
        for topic_id, count in () if prepared is None else prepared.topics.items():
            owners = [one for one, wanted in prepared.subscriptions.items() if topic_id in wanted] if prepared else []
            parts = TopicPartition(topic_id, tuple(range(count)))
            given.setdefault(self._rng.choice(owners), []).append(parts)
        request = ConsumerGroupInstallAssignmentRequest(
            self._group_id,
            member.member_id,
            member.current.member_epoch,
            -1 if prepared is None else prepared.group_epoch,
            error,
            () if error else tuple(Member(one, tuple(parts), 1, one.encode()) for one, parts in given.items()),
        )
        if prepared is not None and not error and self._rng.random() < 0.2:
            request = replace(request, members=(*request.members, Member("nobody", (), 0, b"")))
        is_legal = prepared is not None and not any(part.member_id == "nobody" for part in request.members)
        before = dict(group.target)
        response = self._ask(request)
        assert isinstance(response, ConsumerGroupInstallAssignmentResponse)
        if prepared is None or not is_legal:
            chosen = was is not None and was.member_id == member.member_id
            code = ErrorCode.INVALID_ASSIGNMENT if chosen else ErrorCode.UNKNOWN_MEMBER_ID
            self._refused(response.error_code, code, request)
            heard = [fact.member_id for fact in self._result.events if fact.event == "assignment_refused"]
            if heard != [member.member_id] * chosen:
                fail("T1", f"{member.member_id} hands in {request}, which is refused, and told is {heard}")
            return
        self._expect_code(response.error_code, 0, request)
        group = self._group()
        if group.target_epoch != prepared.group_epoch:
            fail("S10", f"a target of {prepared.group_epoch} was installed, and it is of {group.target_epoch}")
        self._compare_parts(group, before, prepared, None if error else request.members)
        is_behind = group.group_epoch > group.target_epoch and not self._config.consumer_assignment_interval_ms
        found = runners(offers_of(group)) if is_behind else None
        self._compare({ask(found, first=None, tried=(), never=away_of(group))}, "group_epoch_bumped")

    def _compare_parts(
        self,
        group: ConsumerGroup,
        before: Mapping[str, Partitions],
        prepared: PreparedGroup,
        members: tuple[Member, ...] | None,
    ) -> None:
        """Everybody has the part that was handed in, a static member under another id that of its former self.

        Args:
            members: what was handed in; None for an error: the target stays, without topics that are gone or dropped.
        """
        if members is None:
            wanted = {
                member_id: {
                    topic_id: partitions
                    for topic_id, partitions in before.get(member_id, {}).items()
                    if topic_id in self._image.ids_of(group.topics_of(member.metadata))
                }
                for member_id, member in group.members.items()
            }
        else:
            parts = {one.member_id: {part.topic_id: part.partitions for part in one.partitions} for one in members}
            wanted = {member_id: parts.get(member_id, {}) for member_id in group.members}
            for former, instance_id in prepared.instance_ids.items():
                successor = group.static_members.get(instance_id)
                if former not in group.members and successor is not None and successor not in prepared.subscriptions:
                    wanted[successor] = parts.get(former, {})
        found = {member_id: dict(group.target_of(member_id)) for member_id in group.members}
        if found != wanted:
            fail("S10", f"{members} was handed in, and the target is {found}, not {wanted}")

    # -------------------------------------------------------------------------------------------------------- comparing

    def _interval_over(self) -> bool:
        interval_ms = self._config.consumer_assignment_interval_ms
        first = self._coordinator.group(self._group_id) is None or not self._group().target_epoch
        return first or self._computed_ms is None or self._now_ms - self._computed_ms >= interval_ms

    def _refused(self, code: int, wanted: int, request: object) -> None:
        self._expect_code(code, wanted, request)
        self._compare({_asked_by(self._before)}, "")

    @staticmethod
    def _expect_code(code: int, wanted: int, request: object) -> None:
        if code != wanted:
            fail("S10", f"{request} is answered {code}, and not {int(wanted)}")

    def _compare(self, wanted: set[Asked | None], reason: str) -> None:
        """Who is asked, and whether that is told if it is another member."""
        flying, was = self._flying(), self._before
        if _asked_by(flying) not in wanted:
            fail("S10", f"asked is {flying}, and wanted {wanted}; before it was {was}; {self._members()}")
        told = [fact for fact in self._result.events if fact.event == "assignment_requested"]
        started = flying is not None and (was is None or _asked_by(was) != _asked_by(flying)) and bool(reason)
        if flying is not None and was is not None and flying.member_id == was.member_id:
            return
        found = [(fact.member_id, fact.fields["assignor"], fact.fields["reason"]) for fact in told]
        if found != ([(flying.member_id, flying.assignor_name, reason)] if started and flying else []):
            fail("T1", f"asked is {flying} because of {reason!r}, before {was}, and told {found}")
        key = TimerKey(TimerKind.CLIENT_ASSIGNMENT, self._group_id, "" if was is None else was.member_id)
        if self._coordinator.timer(key) is not None:
            fail("S10", f"{was} is not asked any more, and its time runs")

    def _runs_for(self, member_id: str) -> None:
        """The time limit of the member that was asked runs from the first answer on."""
        timer = self._coordinator.timer(TimerKey(TimerKind.CLIENT_ASSIGNMENT, self._group_id, member_id))
        metadata = self._group().members[member_id].metadata
        limit_ms = self._config.client_assignment_timeout_ms or metadata.rebalance_timeout_ms
        flying, was = self._flying(), self._before
        if flying is None or not flying.is_notified or timer is None or timer.deadline_ms > self._now_ms + limit_ms:
            fail("S10", f"{member_id} was told to compute within {limit_ms} ms, and its time is {timer}; {flying}")
        first = was is None or was.member_id != member_id or not was.is_notified
        if first and timer is not None and timer.deadline_ms != self._now_ms + limit_ms:
            fail("S10", f"{member_id} is told to compute within {limit_ms} ms, and its time is over at {timer}")

    def _members(self) -> str:
        offers = offers_of(self._group())
        return f"members offer {offers}, away are {sorted(away_of(self._group()))}"

    # ------------------------------------------------------------------------------------------------- the coordinator

    def _group(self) -> ConsumerGroup:
        group = self._coordinator.group(self._group_id)
        if group is None:
            raise InvariantViolation("S10", "the group is gone")
        return group

    def _flying(self) -> AssignmentRound | None:
        return self._coordinator.round_in_flight(self._group_id)

    def _ask(self, message: GroupMessage) -> object:
        self._remember()
        result = self._coordinator.handle(
            ApiRequest(-1, 1 if isinstance(message, ConsumerGroupHeartbeatRequest) else 0, message, 0, "walker", "/w"),
            now_ms=self._now_ms,
        )
        self._do(result)
        return result.replies[0].response

    def _run_out(self, kind: TimerKind, member_id: str) -> None:
        self._remember()
        if not self._coordinator.let_time_run_out(TimerKey(kind, self._group_id, member_id), now_ms=0):
            fail("S10", f"the time of {member_id} ({kind}) does not run")
        self._do(self._coordinator.expire(now_ms=self._now_ms, wall_ms=0))

    def _remember(self) -> None:
        group = self._coordinator.group(self._group_id)
        self._before = self._flying()
        self._group_epoch = 0 if group is None else group.group_epoch
        self._target_epoch = 0 if group is None else group.target_epoch

    def _do(self, result: CoordinatorResult) -> None:
        self._result = result
        for record in result.records:
            self._coordinator.replay(record)
        self._coordinator.apply(result)
        group = self._coordinator.group(self._group_id)
        if group is not None and group.target_epoch != self._target_epoch and self._target_epoch:
            self._computed_ms = self._now_ms
        self._coordinator.check_invariants()
        for member_id, member in {} if group is None else group.members.items():
            told = group.target_metadata_of(member_id) if group is not None else None
            if member.current.member_epoch == (group and group.target_epoch) and member.current.metadata != told:
                fail("S10", f"{member_id} is at the target, and is told {member.current.metadata}, not {told}")


def _runs(group: ConsumerGroup, flying: AssignmentRound) -> bool:
    """Whether all still offer its assignor, and it reads what they write."""
    offers, name = offers_of(group), flying.assignor_name
    in_common = all(name in [one.name for one in offered] for offered in offers.values())
    return in_common and runners_of(offers, name).include(flying.member_id)


def _to_wire(offered: ClientAssignor) -> Assignor:
    return Assignor(
        offered.name,
        offered.minimum_version,
        offered.maximum_version,
        offered.reason,
        offered.metadata_version,
        offered.metadata_bytes,
    )


def _asked_by(flying: AssignmentRound | None) -> Asked | None:
    """Who is asked in a round, in the words of the model."""
    return None if flying is None else Asked(flying.assignor_name, flying.member_id, flying.tried)
