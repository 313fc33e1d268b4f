"""A consumer that assigns partitions itself, compared with a model: R90, R97, R103, R147 to R149.

No group has such a consumer, and no run: this one is made when a group has come to rest, and whoever asks it is its
network, its application and its clock (`twins`). It assigns, seeks, commits, asks and polls; answers come, or do not.

Does not own: answers to commits and questions one by one (`twin_commits`, `twin_offsets`, `twin_coordinators`).
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.member.events import (
    AppPolled,
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    FailureKind,
    FetchOffsetsRequested,
    LeaveDone,
    LeaveRequested,
    ListOffsets,
    ManuallyAssigned,
    OffsetsListed,
    PositionSet,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    StartFetching,
    StopFetching,
    SubscriptionChanged,
    SurfaceError,
)
from kip848_client.member.positions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip848_client.member.settings import MemberConfig, ResetPolicy
from kip848_client.member.states import Phase
from kip848_client.model import OffsetAndMetadata, Subscription, TopicPartition
from kip848_client.simulation.clientside import VERSIONS
from kip848_client.simulation.manual_model import (
    AUTOMATIC,
    ManualModel,
    Positions,
    is_commit,
    metadata_of,
    tip_of,
)
from kip848_client.simulation.twin_commits import answer_commit, positions_of
from kip848_client.simulation.twin_coordinators import ask_about_a_lookup
from kip848_client.simulation.twin_heartbeats import NODE, REASON, answer_lookup
from kip848_client.simulation.twin_offsets import RESETS, answer_fetch, ask_about_committed, partitions_of
from kip848_client.simulation.twins import Twin
from kip848_client.simulation.walk import Walk
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

_WALKS: Final = 2
_STEPS: Final = 60
_PARTITIONS: Final = tuple(TopicPartition(topic, index) for topic in ("by hand", "by hand, too") for index in range(2))
_ASKED: Final = TopicPartition("somebody asks", 0)
_FAR_MS: Final = 10_000_000


class ManualWalk(Walk):
    """C10: assign() makes no member, and commits, positions and questions work as they do for one."""

    def converged(self) -> None:
        """Walk."""
        rng = self._world.random("manual walk")
        config = MemberConfig(
            group_id=self._mirror.group_id,
            member_id="by hand",
            instance_id=rng.choice((None, "its own")),
            auto_commit_interval_ms=rng.choice((None, 0, 5_000)),
            auto_offset_reset=rng.choice(list(ResetPolicy)),
            retry_backoff_ms=rng.choice((0, 100)),
        )
        for _ in range(_WALKS):
            walk = _Walk(Twin("somebody by hand", config, random.Random(rng.random())), rng)
            for _ in range(_STEPS):
                walk.step()
            walk.end()


class _Walk(ManualModel):
    """One walk."""

    def step(self) -> None:
        """Do something, and look at what the consumer does."""
        self.number += 1
        kinds = (
            self._assign,
            self._poll,
            self._poll,
            self._seek,
            self._commit,
            self._ask,
            self._answer,
            self._answer,
            self._answer,
            self._wait,
            self._disconnect,
        )
        self.rng.choice(kinds)()
        self.look()

    # --------------------------------------------------------------------------------------------------- application

    def _assign(self) -> None:
        """R148: what is left out, or starts elsewhere, stops; the rest is read on."""
        rng = self.rng
        positions = {
            partition: rng.choice((None, None, OffsetAndMetadata(rng.randint(0, 9), 1), OffsetAndMetadata(-2, 0)))
            for partition in _PARTITIONS
            if rng.random() < 0.5
        }
        consumed = {key: value for key, value in self.consumed.items() if rng.random() < 0.7}
        known = self.known()
        self.twin.tell(ManuallyAssigned(positions, consumed))
        gone = {one for one in self.owned if one not in positions or positions[one] is not None}
        added = positions.keys() - (self.owned - gone)
        stopped = {tip for effect in self.twin.did(StopFetching) for tip in effect.partitions}
        if stopped != {tip_of(partition) for partition in gone}:
            self.wrong(f"must stop {sorted(map(str, gone))}")
        self.waiting = {one: since for one, since in self.waiting.items() if one not in gone}
        self.owned = frozenset(positions)
        self.consumed = {key: value for key, value in self.consumed.items() if key in self.owned and key not in gone}
        self.expect_started({one: value for one in added if (value := positions[one]) and value.offset >= 0})
        for partition in added:
            value = positions[partition]
            if value is None or value.offset < 0:
                self.waiting[partition] = (None if value is None else value.offset, self.number)
        interval_ms = self.twin.config.auto_commit_interval_ms
        if interval_ms is not None:
            self.due_ms = self.twin.now_ms + max(1, interval_ms)
            self.retries = False
            self.confirmed.clear()
            if consumed:
                self.commits_itself = True
                self._expect_automatic(consumed, known=known)

    def _expect_automatic(self, consumed: Positions, *, known: bool) -> None:
        """R117, R148: all that was consumed, at once if the coordinator is known."""
        said = [positions_of(sent) for sent in self.twin.asked(OffsetCommitRequest)]
        if known and dict(consumed) not in said:
            self.wrong(f"must commit {consumed}")

    def _poll(self) -> None:
        """R117, R119: what was consumed is committed once the interval is over, not before; anew after others."""
        twin, rng = self.twin, self.rng
        started = self.owned - self.waiting.keys()
        fresh = {
            partition: OffsetAndMetadata(100 * self.number + partition.partition, 2, AUTOMATIC)
            for partition in sorted(started)
            if rng.random() < 0.4
        }
        quiet = not self.commits_itself and not self.retries and AUTOMATIC not in self.under_way()
        interval_ms = twin.config.auto_commit_interval_ms
        due = self.due_ms is not None and twin.now_ms >= self.due_ms and bool(self.owned)
        twin.tell(AppPolled({**fresh, _ASKED: OffsetAndMetadata(1, 0, AUTOMATIC)}))
        self.consumed.update(fresh)
        sent = [said for one in twin.asked(OffsetCommitRequest) if AUTOMATIC in metadata_of(said := positions_of(one))]
        if quiet and not due and sent:
            self.wrong("commits before the interval is over")
        if quiet and any(said != self.consumed for said in sent):
            self.wrong(f"must commit {self.consumed}, and nothing else")
        if (due or self.retries) and self.consumed:
            self.commits_itself = True
        others = any(isinstance(call, CommitRequested) for call in twin.calls.values())
        news = any(self.confirmed.get(key) != value for key, value in self.consumed.items())
        if quiet and due and not news and not others and sent:
            self.wrong("commits again what is committed")
        if quiet and due and (news or (others and self.consumed)):
            if self.known() and not sent:
                self.wrong(f"must commit {self.consumed}")
            if not self.known():
                self.expect_search("to commit what was consumed")
        if interval_ms is not None and (sent or (quiet and due)):
            self.due_ms, self.retries = twin.now_ms + max(1, interval_ms), False
        elif not quiet:
            self.retries = True

    def _seek(self) -> None:
        """R97: it is where it starts, whatever was looked for."""
        partition, offset = (
            self.rng.choice(_PARTITIONS),
            self.rng.choice((7, 0, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)),
        )
        self.twin.tell(PositionSet(partition, OffsetAndMetadata(offset, 3)))
        if partition not in self.owned:
            if self.twin.effects:
                self.wrong("must not mind what it does not have")
            return
        self.waiting.pop(partition, None)
        if offset >= 0:
            self.expect_started({partition: OffsetAndMetadata(offset, 3)})
        else:
            self.expect_started({})
            self.waiting[partition] = (offset, self.number)

    def _commit(self) -> None:
        """R103, R110, R111: also of what it does not have, and of nothing."""
        twin, number = self.twin, self.twin.next_number()
        kind = self.rng.choice((CommitKind.SYNC, CommitKind.ASYNC))
        chosen = self.rng.sample(_PARTITIONS, self.rng.randint(0, 2))
        offsets = {partition: OffsetAndMetadata(5, 1, str(number)) for partition in chosen}
        twin.tell(CommitRequested(number, offsets, kind, twin.now_ms + _FAR_MS if kind is CommitKind.SYNC else None))
        if not offsets:
            blocked = kind is CommitKind.SYNC and any(
                isinstance(call, CommitRequested) and call.kind is CommitKind.ASYNC for call in twin.calls.values()
            )
            if number in twin.calls and not blocked:
                self.wrong("must say at once that nothing is committed")
            return
        self.commits[str(number)] = len(offsets)
        if self.known() and [positions_of(sent) for sent in twin.asked(OffsetCommitRequest)] != [offsets]:
            self.wrong(f"must commit {offsets}")

    def _ask(self) -> None:
        twin = self.twin
        twin.tell(FetchOffsetsRequested(twin.next_number(), frozenset({_ASKED}), twin.now_ms + _FAR_MS))

    def _wait(self) -> None:
        """Whatever is tried again may be sent now; positions are told when they are known, and not by time."""
        left_ms = 0 if self.due_ms is None else max(0, self.due_ms - self.twin.now_ms)
        self.twin.wait(self.rng.choice((1, 80, 121, 1_001, 5_001, left_ms)))
        self.expect_started({})

    # ------------------------------------------------------------------------------------------------------ network

    def _disconnect(self) -> None:
        self.twin.tell(CoordinatorDisconnected(NODE.node_id))
        if self.known():
            self.wrong("must forget its coordinator with the connection")

    def _answer(self) -> None:
        """One of those that are under way, or that it failed."""
        twin, rng = self.twin, self.rng
        asked = [effect for effect, _ in twin.under_way.values()]
        if not asked:
            return
        effect = rng.choice(asked)
        if rng.random() < 0.15:
            self._fail(effect)
            return
        match effect:
            case SendRequest(request=FindCoordinatorRequest()):
                answer_lookup(twin)
            case ConnectCoordinator():
                twin.tell(CoordinatorConnected(effect.request_id, VERSIONS))
                if not self.known():
                    self.wrong("is connected")
            case SendRequest(request=OffsetCommitRequest()):
                self._answer_commit(effect)
            case SendRequest(request=OffsetFetchRequest()):
                self._answer_fetch(effect)
            case ListOffsets():
                self._answer_list(effect)
            case _:
                self.wrong(f"must not ask for {effect}")

    def _fail(self, effect: object) -> None:
        """What does not pass is told; nothing starts, and who waits for a commit is told at once, or it is retried."""
        twin = self.twin
        kind = self.rng.choice((FailureKind.TIMED_OUT, FailureKind.DISCONNECTED))
        metadata = metadata_of(positions_of(effect)) if isinstance(effect, SendRequest) and is_commit(effect) else set()
        twin.tell(RequestFailed(effect.request_id, kind, REASON))  # type: ignore[attr-defined]
        self.expect_started({})
        self.retries = self.retries or AUTOMATIC in metadata
        if twin.did_any(SurfaceError):
            self.wrong("must tell nobody of what passes")
        for done in twin.did(CommitDone):
            if str(done.commit_id) in metadata:
                self.commits.pop(str(done.commit_id), None)
        for number in metadata:
            if number in self.commits and not self._is_waited_for(number):
                self.wrong("must say that nobody confirmed the commit")

    def _is_waited_for(self, number: str) -> bool:
        call = self.twin.calls.get(int(number))
        return isinstance(call, CommitRequested) and call.kind is not CommitKind.ASYNC

    def _answer_commit(self, sent: SendRequest) -> None:
        said = positions_of(sent)
        answer_commit(self.twin, sent, 0)
        for number in metadata_of(said) & self.commits.keys():
            del self.commits[number]
            done = [effect for effect in self.twin.did(CommitDone) if effect.commit_id == int(number)]
            if int(number) in self.twin.calls and not self.twin.asynchronous:
                self.wrong("must say that it committed")
            if done and (done[0].error is not None or done[0].offsets != said):
                self.wrong(f"must say that {said} are committed")
        self.confirmed.update(said)
        automatic = [effect for effect in self.twin.did(CommitDone) if effect.commit_id == 0]
        if (AUTOMATIC in metadata_of(said)) != bool(automatic) or any(one.offsets != said for one in automatic):
            self.wrong(f"must say that {said} are committed by itself")

    def _answer_fetch(self, sent: SendRequest) -> None:
        """R90, R98: whoever began to wait before the question was sent starts there; others do not."""
        twin = self.twin
        found = {one: self.rng.choice((OffsetAndMetadata(31, 4), None)) for one in partitions_of(sent)}
        under_way = [other for other in twin.waits_for_answer(OffsetFetchRequest) if other is not sent]
        others = {one for other in under_way for one in partitions_of(other)}
        others |= {one for one in found if twin.asking.get(one) != sent.request_id}  # failed, and is to be repeated
        served = {
            one: value
            for one, value in found.items()
            if one in self.waiting and self.waiting[one][0] is None and self.waiting[one][1] <= self._sent_in(sent)
        }
        answer_fetch(twin, sent, found=found, by_name=True)
        begun = {tip.topic_partition for effect in twin.did(StartFetching) for tip in effect.positions}
        policy = RESETS.get(twin.config.auto_offset_reset)
        for one in served.keys() & others:  # it may wait for either
            if one not in begun and not self._is_listed(one, policy):
                del served[one]
        self.expect_started({one: value for one, value in served.items() if value is not None})
        for one, value in served.items():
            if value is not None:
                del self.waiting[one]
            elif policy is not None:
                self.waiting[one] = (policy, self.number)
                if not self._is_listed(one, policy):
                    self.wrong(f"must look for {policy} of {one}")

    def _is_listed(self, partition: TopicPartition, timestamp: int | None) -> bool:
        return timestamp is not None and self.is_asked(partition, timestamp)

    def _answer_list(self, sent: ListOffsets) -> None:
        found = {one: OffsetAndMetadata(55, 6) for one in sent.timestamps}
        served = {
            one: position
            for one, position in found.items()
            if self.waiting.get(one, (None, 0))[0] is not None and self.waiting[one][1] <= self._sent_in(sent)
        }
        self.twin.tell(OffsetsListed(sent.request_id, found, {}))
        self.expect_started(served)
        for one in served:
            del self.waiting[one]

    def _sent_in(self, sent: SendRequest | ListOffsets) -> int:
        return self.sent[sent.request_id]

    # ---------------------------------------------------------------------------------------------------------- end

    def end(self) -> None:
        """R149: a subscription ends it, and so does leaving; or ask what is asked of members, too."""
        twin, rng = self.twin, self.rng
        if rng.random() < 0.5 and (ask_about_a_lookup(twin, rng) or ask_about_committed(twin, rng)):
            return
        if rng.random() < 0.4 and self._joins_meanwhile():
            return
        tips = frozenset(tip_of(partition) for partition in self.owned)
        number = twin.next_number()
        leaves = rng.random() < 0.5
        wish = Subscription(frozenset({"a twin wants"}))
        twin.tell(LeaveRequested(number, twin.now_ms + 1, closing=False) if leaves else SubscriptionChanged(wish))
        if [effect.partitions for effect in twin.did(StopFetching)] != [tips] * bool(tips):
            self.wrong("must stop reading what it assigned itself")
        if twin.member.view().assigned or (leaves and [one.leave_id for one in twin.did(LeaveDone)] != [number]):
            self.wrong("has nothing any more")
        if not twin.is_in(Phase.IDLE if leaves else Phase.WAIT_FIRST_POLL):
            self.wrong("must be what its application wants it to be")
        if not leaves:
            twin.tell(ManuallyAssigned({_PARTITIONS[0]: OffsetAndMetadata(1, 1)}))
            if twin.did_any(StartFetching, StopFetching) or twin.member.view().assigned:
                self.wrong("is subscribed, and must ignore assign()")

    def _joins_meanwhile(self) -> bool:
        """R107: what it commits by hand is not its own once it is a member. False without a coordinator."""
        twin, number = self.twin, self.twin.next_number()
        if not self.known():
            return False
        offsets = {_PARTITIONS[0]: OffsetAndMetadata(5, 1, str(number))}
        twin.tell(CommitRequested(number, offsets, CommitKind.SYNC, twin.now_ms + _FAR_MS))
        (sent,) = twin.asked(OffsetCommitRequest)
        twin.tell(SubscriptionChanged(Subscription(frozenset({"a twin wants"}))))
        twin.tell(AppPolled())
        beats = twin.asked(ConsumerGroupHeartbeatRequest)
        if len(beats) != 1:
            self.wrong("must join")
        answer = ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=_FAR_MS)
        twin.tell(ResponseReceived(beats[0].request_id, answer))
        answer_commit(twin, sent, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        done = [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
        twin.wait(twin.longest_backoff_ms)
        done += [effect for effect in twin.did(CommitDone) if effect.commit_id == number]
        blocked = twin.asynchronous
        if twin.asked(OffsetCommitRequest) or not (done or blocked) or any(one.error is None for one in done):
            self.wrong("is a member now, and must not commit what it does not own")
        return True
