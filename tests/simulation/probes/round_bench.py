"""A coordinator beside that of a run, with its log: asked about rounds, and compared with a model (`round_model`).

Does not own: what is done to its group (`round_walk`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from kip848_client.assignors import TopicPartitions as Partitions
from kip848_client.coordinator.assignment_round import AssignmentRound, PreparedGroup
from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.requests import ApiRequest, GroupMessage
from kip848_client.coordinator.result import CoordinatorResult
from kip848_client.coordinator.timers import TimerKey, TimerKind
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.violation import InvariantViolation, fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_install_assignment import Member
from tests.simulation.probes.reader import coordinator_reading
from tests.simulation.probes.round_model import Asked, away_of, offers_of


class RoundBench:
    """Answers requests, and compares who is asked for a target with who should be."""

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
        self._compare({asked_by(self._before)}, "")

    @staticmethod
    def _expect_code(code: int, wanted: int, request: object) -> None:
        if code != wanted:
            fail("S10", f"{request} is answered {code}, and not {int(wanted)}")

    def _compare(self, wanted: set[Asked | None], reason: str) -> None:
        """Who is asked, and whether that is told if it is another member."""
        flying, was = self._flying(), self._before
        if asked_by(flying) not in wanted:
            fail("S10", f"asked is {flying}, and wanted {wanted}; before it was {was}; {self._members()}")
        told = [fact for fact in self._result.events if fact.event == "assignment_requested"]
        started = flying is not None and (was is None or asked_by(was) != asked_by(flying)) and bool(reason)
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


def asked_by(flying: AssignmentRound | None) -> Asked | None:
    """Who is asked in a round, in the words of the model."""
    return None if flying is None else Asked(flying.assignor_name, flying.member_id, flying.tried)
