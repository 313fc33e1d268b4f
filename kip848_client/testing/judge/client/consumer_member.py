"""A member of a KIP-848 group, as its heartbeats, commits and lookups of offsets show it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.testing.judge.client.epoch_member import REMOVED, EpochMember, Lookups, NameOf, epochs_text
from kip848_client.testing.judge.client.findings import Exchange, Findings, was_heard
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_Partition = tuple[uuid.UUID, int]
_Named = tuple[str, int]

_FINAL: Final = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    }
)
"""Codes after which every client stops. Of others (permissions, an instance id that is taken, a pattern) some wait for
an operator."""
_FIELDS: Final = ("RebalanceTimeoutMs", "SubscribedTopicNames or SubscribedTopicRegex", "TopicPartitions")
_LEAVES: Final = (-1, -2)

_PIPELINED_MS: Final = 1000
"""Within this time no client gives up a heartbeat, so another one means two under way."""
_UNHEARD_MS: Final = 15_000
"""After this time a client that was not stopped has heard an answer that was written to it."""
_LATE_MS: Final = 5000
"""How late an acknowledgement may be beyond the rebalance timeout."""
_RUSH: Final = 20
"""So many heartbeats in a row, much closer than the interval, are no haste but a loop."""
_SILENCE_INTERVALS: Final = 3
_SILENCE_MS: Final = 10_000
"""A member is silent after three intervals and this, if its process sends other requests meanwhile."""

Alive = Callable[[Exchange, int], bool]
"""Whether the client of a request has sent others all the time since a moment."""


class JudgedConsumerMember(EpochMember):
    """One member of one group."""

    def __init__(
        self, findings: Findings, *, member_id: str, name_of: NameOf, looked_up: Lookups, was_alive: Alive
    ) -> None:
        super().__init__(findings, member_id=member_id, name_of=name_of, looked_up=looked_up)
        self._was_alive: Final = was_alive
        self._told: set[int] = set()
        """Epochs of this membership that were written to the member."""
        self._told_max = 0
        self._sent_on: Final[dict[int, int]] = {}
        """Connection -> the epoch of the last heartbeat that came on it."""
        self._instance_id: str | None = None
        self._joined = False
        self._rebalance_timeout_ms = 0
        self._may_own: set[_Partition] = set()
        self._not_yet: set[_Partition] = set()
        """Of these: assigned, and not reported since. A listener may be at work on them; they are reported after it."""
        self._target: frozenset[_Partition] = frozenset()
        self._reported: frozenset[_Partition] = frozenset()
        self._unacknowledged_ms: int | None = None
        self._gone: dict[_Named, tuple[int, int]] = {}
        """Partition that it said it has not any more -> when, and on which connection."""
        self._gone_with: int = 68
        """The rule by which it must not be read any more."""
        self._subscription: tuple[tuple[str, ...] | None, str | None] | None = None
        self._eventful_ms = 0
        """When something last happened, after which a member may be in haste."""
        self._rush = 0
        self._rush_without_interval = 0
        self._commits: Final[set[tuple[int, object]]] = set()

    # --- heartbeats

    def heartbeat(self, exchange: Exchange) -> None:
        """The member sends one."""
        request = exchange.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        last, epoch = self._last, request.member_epoch
        same = last is not None and last.connection_id == exchange.connection_id
        heard = was_heard(last, exchange)
        self._check_alone(exchange, request, same=same)
        self._learn(heard=heard)
        if epoch == 0:
            self._check_join(exchange, request, heard=heard)
            self._begin(exchange, request)
        elif epoch > 0:
            if self._check_epoch(exchange, epoch):
                self._check_final(exchange, heard=heard)
                self._check_moved(48, exchange, heard=heard)
                self._check_fields(exchange, request)
                self._check_owned(exchange, request)
                self._check_pace(exchange, request, same=same)
        else:
            self._check_leave(exchange, request)
        if self._joined and epoch:
            self._check_instance(exchange, request.instance_id)
        self._remember(exchange, request)

    def answered(self, exchange: Exchange) -> None:
        """A heartbeat was answered; whether the member gets the answer is not known yet."""
        response = exchange.response
        if not isinstance(response, ConsumerGroupHeartbeatResponse) or response.error_code:
            self._eventful_ms = exchange.answered_ms or exchange.asked_ms
            return
        if response.member_epoch <= 0 or self._left is not None:
            return
        now_ms = exchange.answered_ms or exchange.asked_ms
        if response.member_epoch not in self._told or response.assignment is not None:
            self._eventful_ms = now_ms
        self._told.add(response.member_epoch)
        self._told_max = max(self._told_max, response.member_epoch)
        if exchange is not self._last:
            self._epochs.add(response.member_epoch)
        if response.assignment is not None:
            given = frozenset(_pairs(response.assignment.topic_partitions))
            self._may_own |= given
            self._not_yet |= given - self._reported
            if given != self._target or self._unacknowledged_ms is None:
                self._target = given
                self._unacknowledged_ms = now_ms if given != self._reported else None
            for named in self._named(given):
                self._gone.pop(named, None)

    @property
    def interval_ms(self) -> int:
        """That of the last answer; 0 before the first."""
        response = None if self._last is None else self._last.response
        return response.heartbeat_interval_ms if isinstance(response, ConsumerGroupHeartbeatResponse) else 0

    # --- commits, and lookups of offsets

    def commit(
        self, exchange: Exchange, request: OffsetCommitRequest | TxnOffsetCommitRequest, *, partitions: set[_Named]
    ) -> None:
        """The member commits, or a producer does in its name."""
        transactional = isinstance(request, TxnOffsetCommitRequest)
        epoch = request.generation_id_or_member_epoch
        if epoch < 0:
            return
        self._check_instance(exchange, request.group_instance_id)
        self._findings.check(
            102,
            epoch <= self._told_max,
            exchange,
            expected=f"a commit has an epoch that the member was told, at most {self._told_max}",
            seen=f"epoch {epoch}",
        )
        repeated = (epoch, request.topics) in self._commits
        if transactional or repeated or epoch > self._told_max:
            return
        self._commits.add((epoch, request.topics))
        if len(self._commits) > 1000:
            self._commits.clear()
        gone = self._outside(exchange)
        if gone or epoch not in self._told:
            self._findings.check(
                104,
                False,
                exchange,
                expected="a consumer that is not a member at the moment commits nothing",
                seen=f"a commit of epoch {epoch} {gone or 'of a membership that has ended'}",
            )
            return
        self._findings.check(104, True, exchange, expected="", seen="")
        sent = self._sent_on.get(exchange.connection_id, 0)
        self._findings.check(
            102,
            epoch >= sent,
            exchange,
            expected=f"epoch {sent}, which the heartbeat before it on this connection had",
            seen=f"epoch {epoch}",
        )
        late = sorted(named for named in partitions if self._is_gone(named, exchange))
        self._findings.check(
            275,
            not late,
            exchange,
            expected="a commit names no partition that the member has given away",
            seen=f"offsets of {_listed(late)}, which its heartbeat before no longer listed",
        )

    def look_up(self, exchange: Exchange, *, epoch: int) -> None:
        """The member asks for committed offsets."""
        if epoch >= 0:
            self._findings.check(
                91,
                epoch <= self._told_max,
                exchange,
                expected=f"an epoch that the member was told, at most {self._told_max}",
                seen=f"epoch {epoch}",
            )

    # --- reading

    def gave_away(self, named: _Named) -> tuple[int, int] | None:
        """When the member told that it no longer has a partition, and by which rule it must not read it any more."""
        gone = self._gone.get(named)
        return None if gone is None else (gone[0], self._gone_with)

    def owns(self, named: _Named) -> bool:
        """Whether it may have a partition."""
        return any(index == named[1] and self._name_of(topic_id) == named[0] for topic_id, index in self._may_own)

    # --- what the member knows

    def _begin(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
        """It joins: what was before does not count any more."""
        if self._removed is not None:
            self._give_away(exchange, self._may_own, rule=57)
        self._epochs = {0}
        self._told = set()
        self._removed = self._left = None
        self._may_own, self._not_yet = set(), set()
        self._target = self._reported = frozenset()
        self._unacknowledged_ms = None
        self._joined = True
        self._instance_id = request.instance_id
        self._rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
        self._eventful_ms = exchange.asked_ms

    def _remember(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch < 0:
            self._give_away(exchange, self._may_own, rule=131)
            self._left, self._removed, self._epochs = exchange, None, {0}
            self._may_own, self._not_yet = set(), set()
            self._unacknowledged_ms = None
        if _subscription(request) is not None:
            self._subscription = _subscription(request)
            self._eventful_ms = exchange.asked_ms
        if request.rebalance_timeout_ms > 0:
            self._rebalance_timeout_ms = request.rebalance_timeout_ms
        self._sent_on[exchange.connection_id] = max(request.member_epoch, 0)
        while len(self._sent_on) > 100:
            del self._sent_on[next(iter(self._sent_on))]
        self._last = exchange

    def _outside(self, exchange: Exchange) -> str:
        """Why the member knows that it is not in the group; empty if it may be."""
        left = self._left
        if left is not None and left.connection_id == exchange.connection_id:
            return "after it left"
        last = self._last
        if (
            last is not None
            and last.connection_id == exchange.connection_id
            and last.error_code in REMOVED
            and last.answered_ms is not None
            and exchange.asked_ms - last.answered_ms > _UNHEARD_MS
            and self._was_alive(exchange, last.answered_ms)
        ):
            return f"after it was removed with {error_name(last.error_code)}"
        return ""

    def _give_away(self, exchange: Exchange, partitions: Iterable[_Partition], *, rule: int) -> None:
        for named in self._named(partitions):
            self._gone[named] = (exchange.asked_ms, exchange.connection_id)
        self._gone_with = rule

    def _is_gone(self, named: _Named, exchange: Exchange) -> bool:
        gone = self._gone.get(named)
        return gone is not None and gone[1] == exchange.connection_id

    def _named(self, partitions: Iterable[_Partition]) -> set[_Named]:
        return {(self._name_of(topic_id), index) for topic_id, index in partitions}

    # --- the rules

    def _check_alone(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest, *, same: bool) -> None:
        last = self._last
        if last is None or not same or request.member_epoch < 0:
            return
        under_way = last.response is None and not last.lost and exchange.asked_ms - last.asked_ms < _PIPELINED_MS
        leaving = isinstance(last.request, ConsumerGroupHeartbeatRequest) and last.request.member_epoch < 0
        self._findings.check(
            29,
            not under_way or leaving,
            exchange,
            expected="at most one heartbeat is under way",
            seen=f"another one {exchange.asked_ms - last.asked_ms} ms after one that is not answered yet",
        )

    def _check_join(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest, *, heard: bool) -> None:
        check = self._findings.check
        if exchange.api_version >= 1:
            check(
                11,
                bool(request.member_id),
                exchange,
                expected="the client makes the member id, from version 1 on",
                seen="a join without one",
            )
        missing = [name for name in _FIELDS if not _has(request, name)]
        check(
            10, not missing, exchange, expected="a join has all fields", seen=f"a join without {' and '.join(missing)}"
        )
        if request.topic_partitions:
            owned = self._named(_pairs(request.topic_partitions))
            check(
                10,
                False,
                exchange,
                expected="a join owns nothing: its list of partitions is empty",
                seen=f"a join that owns {_listed(owned)}",
            )
        if self._removed is not None:
            check(57, True, exchange, expected="", seen="")
        elif self._left is None and heard:
            check(
                36,
                0 in self._epochs,
                exchange,
                expected=f"epoch {epochs_text(self._epochs)}: the member is in the group, and nobody removed it",
                seen="epoch 0, which joins",
            )
            self._check_final(exchange, heard=heard)

    def _check_epoch(self, exchange: Exchange, epoch: int) -> bool:
        check = self._findings.check
        if self._removed is not None:
            return check(
                57,
                False,
                exchange,
                expected="a removed member gives up its partitions, and joins again with epoch 0",
                seen=f"epoch {epoch} after {error_name(self._removed.error_code)}",
            )
        left = self._left
        if left is not None:
            overtaken = left.connection_id != exchange.connection_id
            return (overtaken and exchange.asked_ms - left.asked_ms < _PIPELINED_MS) or check(
                6,
                False,
                exchange,
                expected="nothing follows the heartbeat that leaves, unless it is a join",
                seen=f"epoch {epoch} after it",
            )
        return check(
            36,
            epoch in self._epochs,
            exchange,
            expected=f"the epoch of the last answer: {epochs_text(self._epochs - {0}) or 'none was given yet'}",
            seen=f"epoch {epoch}" + ("" if epoch <= self._told_max else ", which nobody has given it"),
        )

    def _check_final(self, exchange: Exchange, *, heard: bool) -> None:
        last = self._last
        if last is not None and heard:
            self._findings.check(
                50,
                last.error_code not in _FINAL,
                exchange,
                expected=f"no heartbeat after {error_name(last.error_code)}, which no retry cures",
                seen="one more",
            )

    def _check_fields(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
        missing = [name for name in _FIELDS if not _has(request, name)]
        refused = self._refused
        if self._unanswered:
            self._findings.check(
                40,
                not missing,
                exchange,
                expected="all fields, because the heartbeat before it had no answer",
                seen=f"a heartbeat without {' and '.join(missing)}",
            )
        elif refused is not None:
            untold = [name for name in missing if _has(refused.request, name)]
            self._findings.check(
                40,
                not untold,
                exchange,
                expected=f"all that the heartbeat before it had, which {error_name(refused.error_code)} refused",
                seen=f"a heartbeat without {' and '.join(untold)}",
            )
            if missing and not untold:
                self._findings.note(
                    40, exchange, f"repeats only what changed after {error_name(refused.error_code)}; nothing is lost"
                )
        elif _subscription(request) is not None and _subscription(request) == self._subscription:
            self._findings.note(39, exchange, "repeats its subscription although it has not changed")

    def _check_owned(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.topic_partitions is None:
            if self._unacknowledged_ms is not None and self._rebalance_timeout_ms:
                if self._last is not None:  # a process that stood still could not report meanwhile
                    gap_ms = exchange.asked_ms - self._last.asked_ms
                    self._unacknowledged_ms += max(0, gap_ms - 2 * self.interval_ms)
                late_ms = exchange.asked_ms - self._unacknowledged_ms - self._rebalance_timeout_ms
                kept = late_ms < _LATE_MS + 2 * self.interval_ms
                if not kept:
                    self._unacknowledged_ms = None
                    self._findings.check(
                        72,
                        False,
                        exchange,
                        expected=f"the member reports {_listed(self._named(self._target)) or 'nothing'} "
                        "as soon as it has given up the rest",
                        seen=f"no report {late_ms} ms after the rebalance timeout",
                    )
            return
        owned = frozenset(_pairs(request.topic_partitions))
        strangers = owned - self._may_own
        self._findings.check(
            42,
            not strangers,
            exchange,
            expected=f"only partitions that it was assigned: {_listed(self._named(self._may_own)) or 'none'}",
            seen=f"it says that it owns {_listed(self._named(strangers))}",
        )
        self._give_away(exchange, self._may_own - owned - self._target, rule=68)
        self._not_yet -= owned
        self._may_own = {*(owned & self._may_own), *self._target, *self._not_yet}
        self._reported = owned
        if owned == self._target:
            if self._unacknowledged_ms is not None:
                self._findings.check(72, True, exchange, expected="", seen="")
            self._unacknowledged_ms = None

    def _check_pace(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest, *, same: bool) -> None:
        last, interval_ms = self._last, self.interval_ms
        if last is None or interval_ms <= 0 or last.error_code or last.answered_ms is None:
            return
        gap_ms = exchange.asked_ms - last.asked_ms
        self._check_silence(exchange, gap_ms=gap_ms, since_ms=last.asked_ms)
        has_news = _subscription(request) is not None or request.topic_partitions is not None
        in_step = same and not has_news
        steady = exchange.asked_ms - self._eventful_ms > 3 * interval_ms
        self._rush = self._rush + 1 if in_step and gap_ms < min(10, interval_ms / 2) else 0
        too_soon = in_step and steady and gap_ms < interval_ms / 10
        self._rush_without_interval = self._rush_without_interval + 1 if too_soon else 0
        self._findings.check(
            27,
            self._rush < _RUSH and self._rush_without_interval < _RUSH,
            exchange,
            expected=f"heartbeats without news come every {interval_ms} ms",
            seen=f"the {_RUSH}th in a row that came at once, {gap_ms} ms after the one before",
        )
        if max(self._rush, self._rush_without_interval) >= _RUSH:
            self._rush = self._rush_without_interval = 0

    def _check_silence(self, exchange: Exchange, *, gap_ms: int, since_ms: int) -> None:
        limit_ms = _SILENCE_INTERVALS * self.interval_ms + _SILENCE_MS
        self._findings.check(
            28,
            gap_ms <= limit_ms or not self._was_alive(exchange, since_ms),
            exchange,
            expected=f"a heartbeat every {self.interval_ms} ms, as the last answer said",
            seen=f"none for {gap_ms} ms, while the client sent other requests",
        )

    def _check_leave(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
        static = request.instance_id is not None or (self._joined and self._instance_id is not None)
        allowed = _LEAVES if static else _LEAVES[:1]
        self._findings.check(
            132,
            request.member_epoch in allowed,
            exchange,
            expected="a static member leaves with -2 or -1" if static else "a dynamic member leaves with epoch -1",
            seen=f"epoch {request.member_epoch}",
        )
        more = [
            *(["SubscribedTopicNames"] if _subscription(request) is not None else []),
            *(["TopicPartitions"] if request.topic_partitions else []),
        ]
        for rule in (6, 46, 131):  # broken by what follows, if anything does
            self._findings.check(rule, True, exchange, expected="", seen="")
        if more:
            self._findings.note(46, exchange, f"leaves with {' and '.join(more)}, which nobody reads")

    def _check_instance(self, exchange: Exchange, instance_id: str | None) -> None:
        # Null means "unchanged", as in every other field: librdkafka says it in its joins alone.
        if instance_id is not None:
            self._findings.check(
                143,
                instance_id == self._instance_id,
                exchange,
                expected=f"the instance id with which the member joined, {self._instance_id or 'none'}",
                seen=instance_id,
            )


def _has(request: object, field: str) -> bool:
    """Whether a heartbeat says anything about one of `_FIELDS`."""
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    match field:
        case "RebalanceTimeoutMs":
            return request.rebalance_timeout_ms > 0
        case "TopicPartitions":
            return request.topic_partitions is not None
        case _:
            return _subscription(request) is not None


def _subscription(request: ConsumerGroupHeartbeatRequest) -> tuple[tuple[str, ...] | None, str | None] | None:
    """The subscription in a request; None if it has none."""
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return None
    names = request.subscribed_topic_names
    return None if names is None else tuple(sorted(names)), request.subscribed_topic_regex


def _pairs(topics: Iterable[TopicPartitions]) -> set[_Partition]:
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}


def _listed(partitions: Iterable[_Named]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
