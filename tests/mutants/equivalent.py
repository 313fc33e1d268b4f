"""Generated mutants that are left out, each with the reason: nothing that a member or a coordinator does can show them.

A name is looked up as `generated` gives it. A name that the code no longer has is harmless; remove it when you see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.mutants.generated import Mutation
from tests.mutants.sources import short

_SHORT_CUT: Final = "a short cut: the long way comes to the same"

_FORGETFUL: Final = "less is remembered, or nothing: it is made again"

EQUIVALENT: Final[Mapping[str, str]] = {
    "coordinator/state CoordinatorState.subscriptions: known.read = len(changes) => nothing": (
        "changes that were read are read again, and say the same"
    ),
    "coordinator/client_assignment RoundPlanner.suits: return theirs is not None and own is not None and "
    "own.reads(theirs.written, theirs.written) => return None": _SHORT_CUT,
    "coordinator/member_steps MemberSteps._ask_a_member: is_same or planner.suits(updated) => "
    "is_same and planner.suits(updated)": _SHORT_CUT,
    "coordinator/client_assignment members_gone: return => nothing": _SHORT_CUT,
    "coordinator/consumer_group ConsumerGroup.subscribed_topics_after: all((before.subscribes_like(new) for before in "
    "old)) => any((before.subscribes_like(new) for before in old))": _SHORT_CUT,
    "coordinator/member_steps MemberSteps._move_group: return => nothing": _SHORT_CUT,
    "coordinator/member_steps MemberSteps._check_versions: metadata.client_assignors and self._offers_assignors => "
    "metadata.client_assignors or self._offers_assignors": _SHORT_CUT,
    "coordinator/steady_heartbeat steady_member: message.topic_partitions is None => "
    "message.topic_partitions is not None": _SHORT_CUT,
    "coordinator/consumer_group ConsumerGroup._count_metadata: change > 0 => change > 1": (
        "a cache is emptied more often than needed"
    ),
    "coordinator/consumer_group ConsumerGroup._count_metadata: self._subscribed = None => nothing #2": (
        "a pattern adds topics when it is matched, and that empties the cache as well"
    ),
    "coordinator/state CoordinatorState.__init__: 0 => 1 #2": "the first topics set it, before a pattern is matched",
    "coordinator/timers Timers._queue: 1 => 2": "a number that only has to grow",
    "coordinator/client_assignors can_be_common: max(1, gone) => max(2, gone)": _SHORT_CUT,
    "coordinator/client_assignors asks_for_a_target: zip(old, new, strict=True) => zip(old, new, strict=False)": (
        "they have the same length by then"
    ),
    "coordinator/heartbeat_answer _same_partitions: one is other or (one.keys() == other.keys() and "
    "all((one[topic_id].keys() == other[topic_id].keys() for topic… => one is other and (one.keys() == other.keys() "
    "and all((one[topic_id].keys() == other[topic_id].keys() for topi…": (
        "a step that keeps what a member has keeps the very object"
    ),
    "coordinator/state CoordinatorState.topic_ids: remembered[0] is names => remembered[0] is not names": (
        "nothing is remembered any more; the key is the identity of both"
    ),
    "coordinator/subscriptions resolution_due: regexes.get(own, 0) + 1 => regexes.get(own, 0) + 2": (
        "only whether anybody has the pattern counts, and its owner is among them"
    ),
    "coordinator/records read_target: if topic.partitions => every one": (
        "no topic without partitions is ever written"
    ),
    "member/assignor_values compute: failure.__cause__ = error => nothing": "what a traceback shows",
    "member/context Context.live_epoch: self.phase in WITH_EPOCH and self.epoch > 0 => "
    "self.phase in WITH_EPOCH or self.epoch > 0": "outside of the group the epoch is 0 or less, in it it is more",
    "member/heartbeat Heartbeats.__init__: 0 => 1": "a count that is compared with an earlier one of its own",
    "member/heartbeat Heartbeats.restart: False => True #3": "the next heartbeat is due at once anyhow",
    "member/member Member.__init__: MemberView(0, *self._seen) => MemberView(1, *self._seen)": (
        "a number that is compared with an earlier one"
    ),
    "member/group_exit GroupExit.__init__: 0 => 1": "poll() sets it before the member joins",
    "coordinator/heartbeat _Heartbeat._updated_metadata: self._offers is None or self._offers == "
    "before.client_assignors => self._offers is None and self._offers == before.client_assignors": _SHORT_CUT,
    "member/runs Runs._let_go: self.in_doubt -= revoked => nothing": (
        "what is no longer owned is dropped with the next answer"
    ),
    "member/commits Commits.advance: return => nothing": _SHORT_CUT,
    "member/leave_steps LeaveSteps.advance: return => nothing": _SHORT_CUT,
    "member/member Member._readable: self._last_readable = (context.owned, blocked, readable) => nothing": (
        "the same set is made again; views are compared by value"
    ),
    "member/assignor_notices AssignorNotices.__init__: self._target = _Target() => nothing": (
        "it is set again before it is read: nothing was told yet"
    ),
    "member/heartbeat Heartbeats.restart: self._tells_partitions = False => nothing": (
        "it is read in the group only, and the answer that lets a member in sets it"
    ),
    "member/offset_fetches OffsetFetches.deadline_ms: fetch.backoff.ready_ms > now_ms => "
    "fetch.backoff.ready_ms >= now_ms": "what is ready now was sent in this step",
    "member/reconciler Reconciler.reset: self._resolve() => nothing": (
        "what is resolved is read in the group only, and the assignment in the answer to a join is resolved anew"
    ),
    "coordinator/consumer_group ConsumerGroup._count_metadata: change > 0 => change >= 0": "it is 1, or -1",
    "coordinator/state CoordinatorState.image: self._shared_ids.clear() => nothing": (
        "what is shared are equal tuples, whenever they were made"
    ),
    "coordinator/state CoordinatorState.topic_ids: len(self._topic_ids) >= _REMEMBERED_MAX => "
    "len(self._topic_ids) > _REMEMBERED_MAX": "how many are remembered",
    "coordinator/member_steps MemberSteps._ask_a_member: found.replaced is None => found.replaced is not None": (
        "a short cut: who is away was not the chosen one, and who comes back offering the same changes nothing"
    ),
    "coordinator/coordinator GroupCoordinator.replay: return => nothing #3": (
        "tombstones of members of a group that is not there make an empty one, until its own tombstone, which is last"
    ),
    "member/assignor_values spec_of: subscriptions[ids] = subscribed => nothing": _SHORT_CUT,
    "member/backoff Backoff.reset: 0 => 1 #2": "in the past as well, one millisecond after a clock began",
    "member/context Context.expect: 1 => 2": "a number that only has to grow",
    "member/membership Membership._join: 1 => 2": "a number that only has to grow",
    "member/member Member.step: now_ms > context.now_ms => now_ms >= context.now_ms": "it is set to what it is",
    "member/heartbeat Heartbeats.restart: self._sent = None => nothing": (
        "the next heartbeat is a join, which says everything"
    ),
    "member/heartbeat Heartbeats.restart: self.ack_due = False => nothing": (
        "the next heartbeat is a join, which goes at once, and after which nothing is to acknowledge"
    ),
    "member/runs Runs.reset: self.in_doubt = frozenset() => nothing": (
        "the answer to the next join empties it, before anything is owned"
    ),
    "coordinator/client_assignors choose: ranks.get(assignor.name, 0) => ranks.get(assignor.name, 1)": (
        "one more for each: the order stays"
    ),
    "coordinator/member_steps MemberSteps._ask_a_member: self._group_epoch > group.group_epoch => "
    "self._group_epoch >= group.group_epoch": "anybody who reads as much may be asked",
    "coordinator/client_assignment RoundPlanner.suits: flying is None => flying is not None": _SHORT_CUT,
    "coordinator/client_assignment RoundPlanner.suits: own is not None => own is None": _SHORT_CUT,
    "coordinator/client_assignment client_assignor: not state.config.client_assignors or not "
    "can_be_common(group, gone=len(gone)) => not state.config.client_assignors and (not can_be_common(group, "
    "gone=len(gone)))": _SHORT_CUT,
    "coordinator/client_assignment RoundPlanner.renew: flying is None or choice is None => "
    "flying is None and choice is None": "a round is over with the heartbeat that takes away what all had in common",
    "coordinator/client_assignment members_gone: planner.round is None or (planner.round.member_id not in "
    "member_ids and planner.is_for_all()) => planner.round is None and (planner.round.member_id not in "
    "member_ids and planner.is_for_all())": _SHORT_CUT,
    "coordinator/client_assignment members_gone: return => nothing #2": _SHORT_CUT,
    "coordinator/client_assignment members_gone: planner.move_on(choice, failed=planner.round.member_id, "
    "leaves=True, reason='member_left') => planner.move_on(choice, failed=planner.round.member_id, "
    "leaves=False, reason='member_left')": (
        "what it offered does not count any more, so it is none of those to choose from"
    ),
    "coordinator/client_assignment _versions: return next(offered, None) => return None": _SHORT_CUT,
    "coordinator/client_assignors offers_after: joined is not None and metadata is not None => "
    "joined is not None or metadata is not None": "both are given, or neither",
    "coordinator/client_assignors can_be_common: max(counts, default=0) => max(counts, default=1)": _SHORT_CUT,
    "coordinator/consumer_group ConsumerGroup.__init__: self.metadata_hash = 0 => nothing": (
        "the first records of a group set it"
    ),
    "coordinator/consumer_group ConsumerGroup.subscribed_topics_after: self.topics_of(new) <= subscribed => "
    "self.topics_of(new) < subscribed": _SHORT_CUT,
    "coordinator/consumer_group ConsumerGroup.replay: self._subscribed = None => nothing #2": (
        "the record of the member that gave up the pattern empties it as well"
    ),
    "coordinator/coordinator GroupCoordinator._topics_changed: if not changed.isdisjoint(group.subscribed_topics) => "
    "every one": "more groups look whether something changed for them",
    "coordinator/current_assignment _find_free: continue => nothing": _SHORT_CUT,
    "coordinator/member_steps MemberSteps.__init__: self._target_metadata = NO_METADATA => nothing": (
        "it is set again before it is read"
    ),
    "coordinator/heartbeat _Heartbeat._updated_metadata: -1 => -2": _SHORT_CUT,
    "coordinator/heartbeat _Heartbeat._updated_metadata: message.instance_id in (None, before.instance_id) => "
    "message.instance_id not in (None, before.instance_id)": (
        "a short cut; a member that sends another instance id joins, and sends more than that"
    ),
    "coordinator/member_steps MemberSteps._subscribe: return => nothing": _SHORT_CUT,
    "coordinator/member_steps MemberSteps._move_member: start.assigned.keys() <= self._state.image.by_id.keys() => "
    "start.assigned.keys() < self._state.image.by_id.keys()": "nothing is gone then, and nothing is taken away",
    "coordinator/heartbeat_validation validate_heartbeat: epoch < 0 => epoch < 1": "0 is a join, and was looked at",
    "coordinator/heartbeat_validation validate_heartbeat: epoch < 0 => epoch <= 0": "0 is a join, and was looked at",
    "coordinator/install_assignment read_assignment: :10 => :11": "a text for people",
    "coordinator/install_assignment read_assignment: len(missing) > 10 => len(missing) <= 10": "a text for people",
    "coordinator/install_assignment read_assignment: len(missing) > 10 => len(missing) > 11": "a text for people",
    "coordinator/install_assignment read_assignment: len(missing) > 10 => len(missing) >= 10": "a text for people",
    "coordinator/membership check_epoch: received < current.member_epoch => received <= current.member_epoch": (
        "its own epoch was let pass before"
    ),
    "coordinator/offset_commit _name: return str(topic.topic_id) if found is None else found.name => return None": (
        "a text for people"
    ),
    "coordinator/records read_partition_epochs: if topic.partitions => every one": (
        "no topic without partitions is ever written"
    ),
    "coordinator/records read_partition_epochs: zip(topic.partitions, topic.assignment_epochs, strict=True) => "
    "zip(topic.partitions, topic.assignment_epochs, strict=False)": "they are written with the same length",
    "coordinator/state CoordinatorState.__init__: self.topics_created_version = 0 => nothing": (
        "the first topics set it, before it is read"
    ),
    "coordinator/refusal Refused.__init__: super().__init__(message) => nothing": "what a traceback shows",
    "coordinator/state CoordinatorState.topic_ids: remembered[0] => remembered[1]": _FORGETFUL,
    "coordinator/state CoordinatorState.topic_ids: remembered[1] => remembered[2]": _FORGETFUL,
    "coordinator/state CoordinatorState.topic_ids: remembered[1] is resolved => remembered[1] is not resolved": (
        _FORGETFUL
    ),
    "coordinator/state CoordinatorState.topic_ids: len(self._topic_ids) >= _REMEMBERED_MAX => "
    "len(self._topic_ids) < _REMEMBERED_MAX": _FORGETFUL,
    "coordinator/state CoordinatorState.topic_ids: self._topic_ids[key] = (names, resolved, ids) => nothing": (
        _FORGETFUL
    ),
    "coordinator/state CoordinatorState.subscriptions: known.topic_ids.pop(member_id, None) => nothing": (
        "a target is computed for the present members only"
    ),
    "coordinator/state CoordinatorState.metadata_hash: len(self._hashes) >= _REMEMBERED_MAX => "
    "len(self._hashes) < _REMEMBERED_MAX": _FORGETFUL,
    "coordinator/state CoordinatorState.metadata_hash: len(self._hashes) >= _REMEMBERED_MAX => "
    "len(self._hashes) > _REMEMBERED_MAX": "how many are remembered",
    "coordinator/steady_heartbeat steady_member: group is None => group is not None #2": _SHORT_CUT,
    "coordinator/steady_heartbeat steady_member: -1 => -2": _SHORT_CUT,
    "coordinator/steady_heartbeat steady_member: epoch > JOIN_EPOCH => epoch <= JOIN_EPOCH": _SHORT_CUT,
    "coordinator/steady_heartbeat steady_member: epoch > JOIN_EPOCH => epoch >= JOIN_EPOCH": (
        "a join has news, and no member is at epoch 0 when the target is"
    ),
    "coordinator/steady_heartbeat steady_member: return member if is_up_to_date and says_nothing_new and "
    "(epoch > JOIN_EPOCH) else None => return None": _SHORT_CUT,
    "coordinator/subscriptions resolution_due: regexes.get(own, 0) => regexes.get(own, 1)": (
        "only whether anybody has the pattern counts"
    ),
    "coordinator/subscriptions resolution_due: max((entry.timestamp_ms for entry in group.resolved_regexes.values()), "
    "default=None) => min((entry.timestamp_ms for entry in group.resolved_regexes.values()), default=None)": (
        "all patterns of a group are matched together"
    ),
    "coordinator/subscriptions resolution_due: any((not state.topics_created_version <= entry.version <= "
    "state.image.version for entry in resolved)) => all((not state.topics_created_version <= entry.version <= "
    "state.image.version for entry in resolved))": "all patterns of a group are matched together",
    "member/assignor_round AssignorRound.answered: self._drop_stale() => nothing": "every step before dropped it",
    "member/assignor_values _target: index < topic.partition_count => index <= topic.partition_count": (
        "a topic never has fewer partitions than were given of it"
    ),
    "member/backoff Backoff.__init__: 0 => 1 #2": "in the past as well, one millisecond after a clock began",
    "member/leave_steps LeaveSteps.over: self._mode = LeaveMode.DEFAULT => nothing": "the next leave sets it",
    "member/positions Positions.flush: if slot.position is not None => every one": "who may start knows where",
    "member/runs Runs.reset: self.unconfirmed = frozenset() => nothing": (
        "nothing is owned by then; what is given again is new, and confirmed with the rest"
    ),
    "member/reconciler Reconciler.claim_owned: self.current.local_epoch + 1 => self.current.local_epoch - 1": (
        "a number that has to be another one, whichever"
    ),
    "coordinator/timers Timers._queue: self._sequence += 1 => nothing": "which of two that are due at once comes first",
    "coordinator/topics TopicsImage.__post_init__: if topic.racks => every one": (
        "topics without racks, and topics with none: nothing is preferred for either"
    ),
    "member/assignor_values spec_of: if topic_id in topics => every one": (
        "a snapshot has every topic that its members subscribe to"
    ),
    "member/commit_requests read_fetch: if topic.topic_id != ZERO_UUID => every one": "no topic has the zero id",
    "member/heartbeat Heartbeats.restart: self._context.expedite = False => nothing": (
        "the next heartbeat is a join, which goes at once"
    ),
    "member/member Member._next_view: self._view.version + 1 => self._view.version - 1": (
        "a number that has to be another one, whichever"
    ),
    "member/offset_fetches _partition_error: min(result.failed.items()) => max(result.failed.items())": (
        "which of several that failed is named"
    ),
    "member/reconciler Reconciler.advance: return => nothing": "outside of a group nothing is unknown, and nothing due",
    "member/topic_names TopicNames.keep: if topic_id in topic_ids => every one": (
        "a cache is emptied later: names are looked up for what is used, and an id never gets another one"
    ),
    "coordinator/timers Timers.arm: deadline_ms < queued => deadline_ms <= queued": (
        "queued twice for one time: the second entry is thrown away"
    ),
    "coordinator/timers Timers.__init__: 0 => 1": "a number that only has to grow",
    "coordinator/topics TopicsImage.changed_since: if self.by_name.get(name) != before.by_name.get(name) => every "
    "one": "more groups look whether something changed for them",
    "coordinator/member_steps MemberSteps._move_group: self._batch.soft.append(MetadataChecked(group.group_id)) => "
    "nothing": "every heartbeat looks again, and finds the same",
    "member/context Context.__init__: 0 => 1": "a clock that begins a millisecond later",
    "member/context Context.__init__: 0 => 1 #3": "a number that has to be another one, whichever",
    "member/context Context.__init__: 0 => 1 #4": "a number that only has to grow",
    "member/context Context.__init__: 0 => 1 #5": "a number that only has to grow",
    "member/context Context.__init__: self.subscription = Subscription() => nothing": (
        "it is set before it is read: by subscribe(), or by a leave"
    ),
    "member/context Context.call_listener: 1 => 2": "a number that only has to grow",
    "member/context Context.live_epoch: self.epoch > 0 => self.epoch >= 0": "in the group it is more than 0",
    "member/commits Commits.deadline_ms: ready_ms < first_ms => ready_ms <= first_ms": "the same time",
    "member/commits Commits.deadline_ms: ready_ms > now_ms => ready_ms >= now_ms": (
        "what is ready now was sent in this step"
    ),
    "member/heartbeat Heartbeats.__init__: False => True": "joining sets it",
    "member/heartbeat Heartbeats.__init__: False => True #2": "joining sets it",
    "member/heartbeat Heartbeats.__init__: self._due_ms = 0 => nothing": "joining sets it",
    "member/heartbeat Heartbeats.restart: False => True": (
        "the next heartbeat is a join, which tells all, and sets it"
    ),
    "member/heartbeat Heartbeats.restart: False => True #2": (
        "the next heartbeat is a join, which goes at once, and sets it"
    ),
    "member/leave_steps LeaveSteps.left: 1 => 2": "a number that has to be another one, whichever",
    "member/membership Membership._refused: self._heartbeats.failed() => nothing #3": (
        "a member that stopped sends nothing"
    ),
    "member/membership Membership.deadline_ms: heartbeat_ms < first_ms => heartbeat_ms <= first_ms": "the same time",
    "member/offset_fetches OffsetFetches.advance: return => nothing": _SHORT_CUT,
    "member/offset_fetches OffsetFetches.deadline_ms: fetch.request_id is None and fetch.backoff.ready_ms > "
    "now_ms => fetch.request_id is None or fetch.backoff.ready_ms > now_ms": (
        "what is ready was sent, and what was sent was ready"
    ),
    "member/reconciler Reconciler.__init__: 0 => 1": "in the past as well, one millisecond after a clock began",
    "member/reconciler Reconciler.claim_owned: self.current.local_epoch + 1 => self.current.local_epoch + 2": (
        "a number that has to be another one, whichever"
    ),
    "member/topic_names TopicNames.keep: self._names = {topic_id: name for topic_id, name in self._names.items() if "
    "topic_id in topic_ids} => nothing": "a cache is never emptied: an id never gets another name",
    "member/reconciler Reconciler._prune_names: its body => pass": (
        "a cache is never emptied: an id never gets another name"
    ),
    "member/leaving Leaving.left: self._heartbeats.restart(removals=0) => self._heartbeats.restart(removals=1)": (
        "only the second removal in a row makes a join wait"
    ),
    "coordinator/state CoordinatorState.forget_group: self._subscriptions.pop(group_id, None) => nothing": (
        "memory only: what was kept of another group of that name is thrown away when it is found"
    ),
    "member/release Release.__init__: False => True": "the beginning of a release sets it",
    "member/assignor_round AssignorRound.check_coordinator: self._checked_link = context.link => nothing": (
        "every heartbeat looks again, and finds the same"
    ),
    "member/assignor_round AssignorRound._prepared: return => nothing #3": (
        "the round is over: what is written into it is never read"
    ),
    "member/assignor_round AssignorRound.watch: self._usable => not (self._usable)": (
        "`advance` drops it in the same step"
    ),
    "member/group_exit GroupExit.check_poll_timer: context.surface(MaxPollExceededError(f'poll() was not called for "
    "{silent_ms} ms, max.poll.interval.ms is {lim… => context.surface(MaxPollExceededError(f'poll() was not called "
    "for {silent_ms} ms, max.poll.interval.ms is {lim…": "no two of them come within a millisecond",
    "coordinator/topics TopicsImage.metadata_hash: topic.partition_count.to_bytes(4, 'big') => "
    "topic.partition_count.to_bytes(5, 'big')": "a digest that is compared with others of its own",
    "member/heartbeat Heartbeats._assignors_changed: told.get(assignor.name, 0) => told.get(assignor.name, 1)": (
        "an assignor that was not told yet is news with either"
    ),
    "member/heartbeat Heartbeats.restart: self._expected_ms = None => nothing": "a join says None itself, and sets it",
    "member/leave_steps LeaveSteps.start: context.epoch > 0 => context.epoch >= 0": "a joining member owns nothing yet",
    "member/positions Positions.clear: self._listing.clear() => nothing": (
        "no call waits for the answer, which is dropped"
    ),
    "member/release Release._over: context.move('unsubscribed') => nothing": (
        "the leave makes that move in the same step"
    ),
    "coordinator/departure member_late: not batch.records => batch.records": (
        "a timer is cancelled with its reason: none fires for nothing, and to cancel one twice does nothing"
    ),
    "coordinator/group Group.__init__: self.target_assignor = '' => nothing": (
        "the first records of a group have its target, which sets it before it is read"
    ),
    "coordinator/departure member_late: batch.soft.append(CancelTimer(key)) => nothing": (
        "a timer is cancelled with its reason: none fires for nothing, and asking another member cancels it as well"
    ),
    "coordinator/consumer_group ConsumerGroup.subscribed_topics_after: count(regexes, "
    "new.subscribed_topic_regex, 1) => count(regexes, new.subscribed_topic_regex, 2)": (
        "only whether anybody has the pattern counts"
    ),
    "coordinator/departure note_removed: derive_state(member_count=left, reconciled_count=0, "
    "group_epoch=epoch, target_epoch=group.target_epoch if lef… => derive_state(member_count=left, "
    "reconciled_count=1, group_epoch=epoch, target_epoch=group.target_epoch if lef…": (
        "the group epoch is ahead of the target: who has come how far does not matter"
    ),
}
"""Name of the mutant -> why it behaves as the original does."""

TELLING: Final[Mapping[str, str]] = {
    "member/statistics": "counts and times for metrics; nothing is decided by them",
    "coordinator/consumer_group ConsumerGroup.check_invariants": "what the simulation asks for, to check the group",
    "coordinator/target_assignment check_assignment": "refuses what a user's assignor did wrong; those played do right",
    "coordinator/consumer_group _overlap": "what `check_invariants` asks",
    "coordinator/coordinator GroupCoordinator.check_invariants": "what the simulation asks for, to check the groups",
}
"""Modules, or functions of them, that no decision depends on -> what they are for."""


def reason_to_leave_out(mutation: Mutation) -> str | None:
    """Why a mutant is no target, or None if it is one."""
    found = EQUIVALENT.get(mutation.name)
    if found is not None:
        return found
    module = short(mutation.module)
    place = mutation.name.split(": ", 1)[0]
    for prefix, reason in TELLING.items():
        if prefix in (module, place):
            return reason
    return None
