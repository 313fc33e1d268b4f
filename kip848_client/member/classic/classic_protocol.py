"""The classic protocol behind `GroupPart`: membership in a group whose leader assigns.

Every outcome of a round or a heartbeat that changes the phase of the member ends here, and so do poll() and
subscribe(). The reaction to REBALANCE_IN_PROGRESS in a heartbeat's answer depends on the phase:

=====================  ==================================================================
phase                  reaction
=====================  ==================================================================
IN_SYNC                revoke if needed (inside poll()), else join again at once
REJOIN_DUE, REJOINING  nothing: the join is on its way
PENDING                the assignment is dropped, and the member joins again
during a run           the run ends, then the member joins again
=====================  ==================================================================

A request to join again keeps its reason, and waits until the run or the round in progress has ended.

Does not own: the ways out of the group (`group_exit`), the requests of a round (`join_round`), heartbeats
(`classic_heartbeats`), runs (`classic_reconciler`), assignors (`classic_assignors`), topics (`topic_watch`).

Source: Kafka's ``AbstractCoordinator`` and ``ConsumerCoordinator``; KIP-429, KIP-814; KAFKA-13419, KAFKA-12984.
Rules: R200 to R223, R240 to R246, R250 and R265 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.assignors.client.classic import EAGER
from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.common.model import NO_EPOCH, ZERO_UUID, NamedPartition, Subscription, TopicIdPartition
from kip848_client.common.patterns import compiled
from kip848_client.errors import Kip848Error, error_for_code
from kip848_client.member.classic.classic_assignors import ClassicAssignors
from kip848_client.member.classic.classic_errors import ClassicErrorClass, beat_error_class, fatal_error
from kip848_client.member.classic.classic_heartbeats import ClassicHeartbeats
from kip848_client.member.classic.classic_reconciler import ClassicReconciler, RunOwner
from kip848_client.member.classic.join_round import JoinRound, RoundOwner
from kip848_client.member.classic.standing import Standing
from kip848_client.member.classic.topic_watch import TopicWatch
from kip848_client.member.core.assignor_events import AssignorEvent
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import (
    FailureKind,
    HandOverRequested,
    LeaveMode,
    MetadataUpdated,
    RequestFailed,
    TopicsDescribed,
)
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.states import IN_GROUP, MEMBER, Phase
from kip848_client.member.group.group_exit import ExitOwner, GroupExit, Unsent
from kip848_client.member.group.group_part import GroupFacts, GroupPart
from kip848_client.member.group.runs import Run
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.positions import Positions
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from kip848_client.wire.messages.heartbeat import HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember


class ClassicProtocol(GroupPart, RunOwner, RoundOwner, ExitOwner):
    """A member that joins with JoinGroup, and is assigned by the group's leader."""

    keeps_member_id = False  # the coordinator chooses it

    def __init__(self, context: Context, *, discovery: Discovery, commits: Commits, positions: Positions) -> None:
        context.member_id = ""  # the coordinator chooses it
        context.fetches_name_member = False
        self._context: Final = context
        self._discovery: Final = discovery
        self._positions: Final = positions
        self._heartbeats: Final = ClassicHeartbeats(context, discovery=discovery)
        self._reconciler: Final = ClassicReconciler(context, commits=commits, positions=positions, owner=self)
        self.exit: GroupExit = GroupExit(
            context, discovery=discovery, reconciler=self._reconciler, positions=positions, owner=self
        )
        self._topics: Final = TopicWatch(context, on_changed=self.rejoin)
        self._assignors: Final = ClassicAssignors(context, topics=self._topics, rejoin=self.rejoin)
        self._round: Final = JoinRound(context, discovery=discovery, commits=commits, owner=self)
        self._wanted: str | None = None
        """Why the member must join again, once no run and no round is in progress; None if it need not."""
        self._synced: frozenset[TopicIdPartition] = frozenset()
        """The last assignment; in PENDING it waits for poll()."""
        self._held: frozenset[NamedPartition] = frozenset()
        """The partitions applied last; an eager member passes them to its assignor."""
        self._held_generation = NO_EPOCH
        self._standing: Final = Standing(context)
        self._last_leader: str | None = None
        """Of the last answered JoinGroup."""
        self._led_generation = NO_EPOCH
        """The last generation for which this member assigned."""
        self._led_as = ""
        """Its member id then."""
        self._sent_subscription = Subscription()
        """The subscription of the last JoinGroup."""
        self._matched: frozenset[str] = frozenset()
        self._matching: int | None = None
        self._match_again_ms: int | None = None
        """When to ask again for topics that match the pattern, after the request failed."""
        self._mismatched = False
        """The last assignment held topics that the member does not subscribe to."""
        self._overtaken: int | None = None
        """The JoinGroup in flight when a heartbeat was last refused because of its generation."""

    # --- subscribe and join

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription. While the member leaves, the change waits for the end of the leave."""
        context = self._context
        if self.exit.put_off(subscription):
            return
        changed = subscription != context.subscription
        other_pattern = subscription.pattern != context.subscription.pattern
        context.subscription = subscription
        if other_pattern:
            self._matched = frozenset()
            self._stop_matching()
            if subscription.pattern is not None and self._round.join_due:
                self._match()
        if context.phase is Phase.IDLE:
            context.move("subscribed")
            self.exit.seen_polling(context.now_ms)  # the first poll() has as long as any other
            self.join()
        elif changed and not self._round.join_due:  # a join that is due carries the change
            self.rejoin("the subscription changed")

    def subscribes_to(self, topic: str) -> bool:
        subscription = self._context.subscription
        # A new match is known only after the next answer; until then keep the topics that matched before.
        return topic in subscription.topics or topic in self._matched

    @property
    def poll_wanted(self) -> bool:
        waits = self._context.phase is Phase.AWAITING_POLL
        return waits or self._run_due or self.exit.poll_wanted

    @property
    def _run_due(self) -> bool:
        """Whether poll() revokes what a join waits for, or applies an assignment."""
        context = self._context
        if context.now_ms < self._reconciler.listener_backoff.ready_ms:
            return False
        return context.phase is Phase.REJOIN_DUE or (context.phase is Phase.PENDING and not self._assignors.holds_back)

    def polled(self) -> None:
        context = self._context
        self.exit.polled()
        if context.phase is Phase.AWAITING_POLL:
            context.move("polled")
            self.join()
        elif self._run_due:
            if context.phase is Phase.PENDING:
                self._reconciler.apply_assignment(self._synced)
            elif self._reconciler.to_revoke:
                self._reconciler.prepare()
            else:
                self._go_on_to_join()

    def join(self) -> None:
        """Start over without a generation; the move to JOINING was made."""
        self._held, self._held_generation = frozenset(), NO_EPOCH
        self._wanted = "first join" if not self.exit.removals else "the member was removed"
        self._begin_round(delayed=self.exit.removals > 1)

    def _begin_round(self, *, delayed: bool = False) -> None:
        """Join; the move to JOINING or REJOINING was made."""
        reason, self._wanted = self._wanted or "the group rebalances", None
        self._assignors.leader.stop()
        self._topics.stop()
        self._round.start(reason, delayed=delayed)
        if self._context.subscription.pattern is not None:
            self._match()

    def _forget_round(self) -> None:
        """Forget the round in progress."""
        self._stop_matching()
        self._topics.stop()
        self._assignors.leader.stop()
        self._assignors.forget_notice()
        self._round.stop()

    # --- joining again

    def rejoin(self, reason: str) -> None:
        """Join again as soon as no run and no round is in progress."""
        context = self._context
        if context.phase in MEMBER:
            self._wanted = reason
        if context.phase in {Phase.IN_SYNC, Phase.PENDING}:
            self._assignors.forget_notice()
            self._go_on_to_join()

    def _go_on_to_join(self) -> None:
        """Join, or wait for poll() if partitions must be revoked first."""
        if self._reconciler.to_revoke:
            self._context.move("rejoin_wanted")
        else:
            self._context.move("prepared")
            self._begin_round(delayed=self._mismatched)

    def _rebalance(self) -> None:
        """REBALANCE_IN_PROGRESS."""
        context = self._context
        reason = "the group rebalances"
        if context.phase is Phase.PENDING and self._round.leader == "":
            # The coordinator assigns and does not wait for us: a join with the same partitions changes nothing.
            self._wanted = reason
        elif context.phase in IN_GROUP and context.phase not in {Phase.REJOIN_DUE, Phase.REJOINING}:
            run = self._reconciler.run
            if run is None or not run.revokes_only:
                self.rejoin(reason)

    # --- runs: `RunOwner`

    def prepared(self) -> None:
        self._go_on_to_join()

    def assignment_applied(self, run: Run) -> None:
        context = self._context
        self._held = frozenset(partition.topic_partition for partition in run.partitions)
        self._held_generation = context.epoch
        if run.revoked:
            # Others wait for the revoked partitions, and only our next join releases them.
            self._wanted = self._wanted or "partitions were revoked"
        if self._wanted is None:
            context.move("taken_up")
            self._heartbeats.assignment_applied()
        else:
            self._go_on_to_join()

    def assignment_refused(self, run: Run) -> bool:
        if run.revoked:
            self._wanted = self._wanted or "partitions were revoked"  # R265: others wait for them
        if self._wanted is None:
            return False
        self._go_on_to_join()
        return True

    # --- the round: `RoundOwner`

    def ready_to_join(self) -> bool:
        if not self._reconciler.to_revoke:
            return True
        self._forget_round()
        self._wanted = "the subscription changed"
        self._context.move("rejoin_wanted")
        return False

    def offers(self) -> tuple[JoinGroupRequestProtocol, ...]:
        context = self._context
        self._sent_subscription = context.subscription
        # A member that was not given what it needs says its generation: to the same bytes as before the coordinator
        # answers from memory.
        owned, generation = frozenset(context.owned_by_name), context.epoch or NO_EPOCH
        if not context.config.cooperative:
            owned = frozenset()
            if self._held_generation != NO_EPOCH:
                generation = self._held_generation
        return self._assignors.offers(
            topics=self._subscribed_topics, owned=owned, held=self._held, generation=generation
        )

    @property
    def _subscribed_topics(self) -> frozenset[str]:
        return self._context.subscription.topics | self._matched

    def joined(self, *, before: int) -> bool:
        context, standing = self._context, self._standing
        by_coordinator = "" in {self._last_leader, self._round.leader}
        stayed = standing.is_certain if by_coordinator else context.epoch in {before, before + 1}
        if context.owned and not stayed:
            self.removed("the group has gone on without it", keep_id=True)
            return False
        self._last_leader = self._round.leader
        standing.joined(self._round.sent_ms)
        self._heartbeats.begin()
        return True

    def lead(self, members: tuple[JoinGroupResponseMember, ...]) -> None:
        self._led_generation, self._led_as = self._context.epoch, self._context.member_id
        self._assignors.leader.lead(members, self._round)

    def synced(self, assignment: ConsumerProtocolAssignment) -> None:
        context = self._context
        self.exit.removals = 0
        self._standing.synced(self._round.sent_ms)
        partitions = frozenset(
            TopicIdPartition(topic.topic, index, ZERO_UUID)
            for topic in assignment.assigned_partitions
            for index in topic.partitions
            if index >= 0
        )
        context.move("assignment_received")
        self._watch()
        strange = any(not self.subscribes_to(partition.topic) for partition in partitions)
        if self._wanted is None and not strange:
            self._mismatched = False
            self._synced = partitions
            self._wanted = self._once_more(partitions)
            self._assignors.assigned(self._round.protocol, assignment.user_data, partitions)
            return
        # The second time in a row, the leader is wrong: the subscription did not change in between.
        self._mismatched = strange and context.subscription == self._sent_subscription
        self.rejoin(self._wanted or "the assignment does not match the subscription")

    def _once_more(self, partitions: frozenset[TopicIdPartition]) -> str | None:
        """Reason to join again after this assignment although the coordinator does not ask for it; None for none.

        A static member that returns gets the assignment of its former process without a round. So the leader may not
        know its present subscription (R240); and if it leads, it does not know what the last round left out (R242).
        """
        if self._round.is_leader and self._round.skipped and self._round.protocol not in EAGER:
            return "the leader was replaced"
        is_first = self._context.config.instance_id is not None and self._held_generation == NO_EPOCH
        if is_first and not self._subscribed_topics <= {partition.topic for partition in partitions}:
            return "a topic was not assigned"
        return None

    def _watch(self) -> None:
        """Watch the topics if this member has to."""
        subscription = self._context.subscription
        led_as = {self._led_as, self._context.member_id}
        if self._led_generation == self._context.epoch and self._round.leader in led_as:
            # Also if it has just come back: what changed since its assignment is not assigned (R250). If another member
            # led, this generation is a different one: a coordinator that crashes may give the same number once more.
            leader = self._assignors.leader
            topics, known = leader.all_topics, leader.described_topics
            self._topics.watch(topics, known=known, pattern=subscription.pattern, matched=self._matched)
        elif self._round.is_leader or self._round.leader == "":
            # Compare with the first answer: this member does not know from which topics the assignment was made.
            topics = self._subscribed_topics
            self._topics.watch(topics, known=None, pattern=subscription.pattern, matched=self._matched)
        elif subscription.pattern is not None:
            self._topics.watch(frozenset(), known={}, pattern=subscription.pattern, matched=self._matched)

    def removed(self, why: str, *, keep_id: bool) -> None:
        self.exit.removed(why, keep_id=keep_id)

    def fail(self, error: Kip848Error) -> None:
        self.exit.fail(error)

    # --- leaving: `ExitOwner`

    def leave_begins(self) -> None:
        self._forget_round()  # a JoinGroup that waits need not be answered first

    def send_leave(self, mode: LeaveMode, *, reason: str, on_end: Callable[[object], None]) -> int | Unsent:
        """Send LeaveGroup, even while a JoinGroup waits."""
        static = self._context.config.instance_id is not None
        if mode is LeaveMode.REMAIN_IN_GROUP or (static and mode is not LeaveMode.LEAVE_GROUP):
            return Unsent.NOT_NEEDED  # its place is kept until a new process takes it, or the session ends
        if not self._context.member_id:
            return Unsent.NOT_NEEDED  # the coordinator does not know it
        # Also with an id but without a generation: the group would wait for this member to join.
        return self._heartbeats.send_leave(reason=reason, on_answer=on_end, on_failure=on_end)

    def epoch_after_leave(self, mode: LeaveMode) -> int:
        del mode
        return 0

    def forget_group(self) -> None:
        self._forget_round()
        self._heartbeats.stop()

    # --- patterns

    def _match(self) -> None:
        """Ask which topics the pattern matches; the member joins afterwards."""
        self._match_again_ms = None
        subscription = self._context.subscription
        assert subscription.pattern is not None
        try:
            compiled(subscription.pattern)
        except ValueError as error:
            text = f"the pattern {subscription.pattern!r} is not a valid regular expression: {error}"
            self.fail(fatal_error(self._context.config, ErrorCode.INVALID_REGULAR_EXPRESSION, text))
            return
        self._matching = self._topics.ask(subscription.topics, subscription.pattern, self._pattern_matched)

    def _stop_matching(self) -> None:
        """Forget the request for topics that match the pattern."""
        self._topics.forget(self._matching)
        self._matching = self._match_again_ms = None

    @property
    def _matched_now(self) -> bool:
        """Whether the topics that match the pattern are known."""
        return self._matching is None and self._match_again_ms is None

    def _pattern_matched(self, event: TopicsDescribed | None) -> None:
        self._matching = None
        if event is None:
            self._match_again_ms = self._context.now_ms + max(1, self._context.config.retry_backoff_ms)
            return
        self._matched = frozenset(event.topics) - self._context.subscription.topics

    # --- heartbeats

    def resume(self) -> None:
        """Nothing to do: every step of this protocol needs poll() or the coordinator."""

    def advance(self) -> None:
        context = self._context
        self._assignors.watch()
        self._assignors.advance()
        self._topics.advance()
        if self._match_again_ms is not None and context.due(self._match_again_ms):
            self._match()
        if self._matched_now:
            self._round.advance()
        if context.link is not None and self._heartbeats.due():
            self._beat()
        self.exit.advance()
        if self._reconciler.listener_backoff.ready_ms > context.now_ms:
            context.wake_at(self._reconciler.listener_backoff.ready_ms)

    def _beat(self) -> None:
        number, link, sent_ms = self._round.number, self._context.link, self._context.now_ms
        self._heartbeats.send(
            on_answer=lambda response: self._beat_answered(response, number, link, sent_ms),
            on_failure=self._beat_failed,
        )

    def _beat_answered(self, response: HeartbeatResponse, number: int, link: int | None, sent_ms: int) -> None:
        context = self._context
        self._heartbeats.ended()
        code = response.error_code
        if not code:
            self._discovery.proven()
            self._heartbeats.succeeded()
            self._standing.accepted(sent_ms)
            return
        match beat_error_class(code):
            case ClassicErrorClass.REJOIN:
                self._discovery.proven()
                self._heartbeats.succeeded()
                self._standing.asked_to_join(sent_ms)
                if number == self._round.number:
                    self._rebalance()
            case ClassicErrorClass.LOST_GENERATION:
                if number == self._round.number:
                    self._generation_refused()
            case ClassicErrorClass.LOST_ID:
                self.removed(error_name(code), keep_id=False)
            case ClassicErrorClass.RETRY:
                self._heartbeats.failed()
            case ClassicErrorClass.REDISCOVER:
                self._heartbeats.failed(at_once=True)
                context.lose_link(link)
            case ClassicErrorClass.SURFACE_RETRY:
                self._heartbeats.failed()
                text = f"group {context.config.group_id!r}: the coordinator could not answer a heartbeat"
                context.surface(error_for_code(code, text), key=code)
            case _:
                self.fail(fatal_error(context.config, code))

    def _generation_refused(self) -> None:
        """ILLEGAL_GENERATION, and no JoinGroup was answered since that heartbeat was sent."""
        waiting = self._round.join_waiting
        if self._round.leader == "":
            # The group became classic before this member had the coordinator's last epoch. It is still a member, and
            # its partitions can move only after it has joined.
            if waiting is None:
                self._rebalance()
        elif waiting not in {None, self._overtaken}:
            # The answer to the JoinGroup may be on its way, on the other connection, with the next generation.
            self._overtaken = waiting
        else:
            self.removed(error_name(ErrorCode.ILLEGAL_GENERATION), keep_id=True)

    def _beat_failed(self, failure: RequestFailed) -> None:
        self._heartbeats.ended()
        self._heartbeats.failed()
        if is_passing(failure):
            return
        if failure.kind is FailureKind.MALFORMED:
            self._context.surface(failure_error(failure), key=failure.kind)
        else:
            self.connection_refused(failure)

    def coordinator_found(self) -> None:
        """Nothing to do: the next heartbeat waits for its interval, because a join tells what changed."""

    def connection_refused(self, failure: RequestFailed) -> None:
        self.fail(failure_error(failure))

    def hand_over(self, event: HandOverRequested) -> None:
        """Nothing to do, because only a join moves partitions here: the application's loop ends, and it leaves."""

    # --- metadata

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Nothing to do: this protocol names topics."""

    def topics_described(self, event: TopicsDescribed) -> None:
        self._topics.described(event)

    def handle(self, event: AssignorEvent) -> None:
        self._assignors.handle(event)

    # --- for the member

    @property
    def run(self) -> Run | None:
        return self._reconciler.run

    @property
    def blocked(self) -> frozenset[TopicIdPartition]:
        return self._reconciler.held_back | self._reconciler.unconfirmed

    @property
    def handing_over(self) -> bool:
        return False

    @property
    def expects_partitions(self) -> bool:
        return self._context.phase is Phase.REJOINING

    def facts(self) -> GroupFacts:
        return GroupFacts(
            target=frozenset(),
            current=frozenset(),
            ack_due=False,
            heartbeat_in_flight=self._heartbeats.in_flight,
            heartbeat_interval_ms=self._heartbeats.interval_ms,
        )
