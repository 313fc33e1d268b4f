"""The members of one classic group of consumers, as their rounds, heartbeats and commits show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.errors import ProtocolError
from kip848_client.testing.judge.client.findings import Exchange, Findings
from kip848_client.testing.judge.wording import read_subscription
from kip848_client.wire.messages.consumer_protocol import TopicPartition, decode_assignment
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

_Named = tuple[str, int]

_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_BEFORE_A_JOIN_MS: Final = 10_000
"""A join may wait for commits that are under way, and for callbacks."""
_LATE_MS: Final = 5000
"""How late a join may be beyond the rebalance timeout."""


class _Member:
    """What is known of one member id."""

    def __init__(self) -> None:
        self.told: set[int] = set()
        """Generations that were written to it."""
        self.leads: set[int] = set()
        """Generations that it leads."""
        self.sent_on: dict[int, int] = {}
        """Connection -> the newest generation that it has used there."""
        self.owned: set[_Named] = set()
        """All that it was ever assigned since it lost everything."""
        self.claimed: frozenset[_Named] = frozenset()
        """What it said that it owns, in its last join."""
        self.rebalance_timeout_ms = 0
        self.refused = 0
        """Heartbeats in a row that told it that it is out, since its last join."""
        self.refused_ms = 0
        """When the first of them was answered."""
        self.refusal = 0
        self.joined_at = 0
        """Number of its last JoinGroup."""
        self.join_due_ms: int | None = None
        self.join_due_by = 0
        """The rule by which it has to join again."""
        self.join_late = False
        """A heartbeat came after that was due: the first one of a process that stood still may."""
        self.left: Exchange | None = None
        self.unknown_on: set[int] = set()
        """Connections on which a join was answered with UNKNOWN_MEMBER_ID."""
        self.others: dict[str, frozenset[_Named]] = {}
        """As leader: what each member claims."""
        self.cooperative = False
        self.commits: set[tuple[int, object]] = set()


class JudgedClassicGroup:
    """All members of one group."""

    def __init__(self, findings: Findings) -> None:
        self._findings: Final = findings
        self._members: Final[dict[str, _Member]] = {}
        self._ids_given: Final[set[str]] = set()
        self._id_to_use: Final[dict[int, str]] = {}
        """Connection -> the id that MEMBER_ID_REQUIRED has given there."""
        self._lost_on: Final[set[int]] = set()
        """Connections whose member was told that it is unknown, and has not joined since."""

    def has(self, member_id: str) -> bool:
        """Whether a member of this id was seen here."""
        return member_id in self._members

    # --- requests

    def join(self, exchange: Exchange) -> None:
        """JoinGroup."""
        request = exchange.request
        assert isinstance(request, JoinGroupRequest)
        check, connection, member_id = self._findings.check, exchange.connection_id, request.member_id
        given = self._id_to_use.pop(connection, None)
        if given is not None:
            check(
                200,
                member_id == given,
                exchange,
                expected=f"a join with the id that it was just given, {given}",
                seen=f"a join {f'as {member_id}' if member_id else 'without an id'}",
            )
        if member_id:
            check(
                200,
                member_id in self._ids_given,
                exchange,
                expected="on the classic protocol the coordinator makes the member id",
                seen=f"{member_id}, which it gave to nobody",
            )
        else:
            missing = [
                *(["SessionTimeoutMs"] if request.session_timeout_ms <= 0 else []),
                *(["ProtocolType"] if not request.protocol_type else []),
                *(["Protocols"] if not request.protocols else []),
            ]
            check(
                200,
                not missing,
                exchange,
                expected="a join has a session timeout, a protocol type and an assignor",
                seen=f"a join without {' and '.join(missing)}",
            )
        member = self._members.get(member_id)
        if member is not None:
            check(
                207,
                connection not in member.unknown_on,
                exchange,
                expected="a member that is unknown joins without an id",
                seen=f"a join as {member_id}, which was answered with UNKNOWN_MEMBER_ID before",
            )
            self._check_left(exchange, member)
            member.refused = 0
            member.join_due_ms, member.join_late = None, False
            member.joined_at = exchange.number
        self._check_claims(exchange, request, member)
        self._lost_on.discard(connection)

    def joined(self, exchange: Exchange) -> None:
        """JoinGroup was answered."""
        request, response = exchange.request, exchange.response
        assert isinstance(request, JoinGroupRequest)
        if not isinstance(response, JoinGroupResponse):
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._ids_given.add(response.member_id)
            self._id_to_use[exchange.connection_id] = response.member_id
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID and request.member_id in self._members:
            self._members[request.member_id].unknown_on.add(exchange.connection_id)
        if response.error_code:
            return
        self._ids_given.add(response.member_id)
        member = self._members.setdefault(response.member_id, _Member())
        member.told.add(response.generation_id)
        if any(sent > response.generation_id for sent in member.sent_on.values()):
            member.sent_on.clear()  # the coordinator crashed, and had not kept the generations since
        member.left = None
        member.rebalance_timeout_ms = max(request.rebalance_timeout_ms, request.session_timeout_ms)
        member.claimed = _claims(request)
        member.cooperative = bool(member.claimed) or (response.protocol_name or "").startswith("cooperative")
        if response.leader == response.member_id:
            member.leads.add(response.generation_id)
            member.others = {
                one.member_id: frozenset(_named(told.owned_partitions))
                for one in response.members
                if (told := read_subscription(one.metadata)) is not None
            }

    def sync(self, exchange: Exchange) -> None:
        """SyncGroup."""
        request = exchange.request
        assert isinstance(request, SyncGroupRequest)
        member = self._members.get(request.member_id)
        if member is None:
            return
        self._check_left(exchange, member)
        if not self._check_generation(exchange, member, request.generation_id, rule=201):
            return
        if request.assignments:
            self._findings.check(
                201,
                request.generation_id in member.leads,
                exchange,
                expected="only the leader of a generation sends assignments",
                seen=f"assignments from {request.member_id}, which does not lead generation {request.generation_id}",
            )
            if request.generation_id in member.leads:
                self._check_plan(exchange, request, member)

    def synced(self, exchange: Exchange) -> None:
        """SyncGroup was answered."""
        request, response = exchange.request, exchange.response
        assert isinstance(request, SyncGroupRequest)
        member = self._members.get(request.member_id)
        if member is None or not isinstance(response, SyncGroupResponse) or response.error_code:
            return
        given = _assigned(response.assignment)
        if given is None:
            return
        member.owned |= given
        if member.cooperative and member.claimed - given:
            member.join_due_ms, member.join_due_by = exchange.answered_ms or exchange.asked_ms, 205

    def heartbeat(self, exchange: Exchange) -> None:
        """Heartbeat."""
        request = exchange.request
        assert isinstance(request, HeartbeatRequest)
        member = self._members.get(request.member_id)
        if member is None:
            return
        self._check_left(exchange, member)
        self._findings.check(
            207,
            member.refused < 2 or exchange.asked_ms - member.refused_ms < _BEFORE_A_JOIN_MS,
            exchange,
            expected=f"after {error_name(member.refusal)} the member has lost everything, and joins again",
            seen=f"one more heartbeat of generation {request.generation_id}, after {member.refused} that were refused",
        )
        if request.generation_id < 0:  # librdkafka's after a join that failed; it is refused, and does no harm
            self._findings.note(201, exchange, "sends heartbeats without a generation")
        else:
            self._check_generation(exchange, member, request.generation_id, rule=201)
        self._check_rejoin(exchange, member)

    def heard(self, exchange: Exchange) -> None:
        """Heartbeat was answered."""
        request, response = exchange.request, exchange.response
        assert isinstance(request, HeartbeatRequest)
        member = self._members.get(request.member_id)
        if member is None or not isinstance(response, HeartbeatResponse) or exchange.number < member.joined_at:
            return
        now_ms = exchange.answered_ms or exchange.asked_ms
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            if member.join_due_ms is None:
                member.join_due_ms, member.join_due_by = now_ms, 203 if member.cooperative else 204
        elif response.error_code in _REMOVED:
            member.refused_ms = member.refused_ms if member.refused else now_ms
            member.refused += 1
            member.refusal = response.error_code
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._lost_on.add(exchange.connection_id)
        else:
            member.refused = 0
            if member.join_due_by != 205:  # the group has gone on without waiting for this member
                member.join_due_ms = None

    def leave(self, exchange: Exchange) -> None:
        """LeaveGroup."""
        request = exchange.request
        assert isinstance(request, LeaveGroupRequest)
        ids = {request.member_id, *(one.member_id for one in request.members)} - {""}
        for member_id in ids:
            member = self._members.get(member_id)
            if member is not None and member.sent_on.get(exchange.connection_id) is not None:
                member.left = exchange
                self._findings.check(211, True, exchange, expected="", seen="")

    def commit(self, exchange: Exchange, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> None:
        """OffsetCommit or TxnOffsetCommit of a member."""
        transactional = isinstance(request, TxnOffsetCommitRequest)
        generation = request.generation_id_or_member_epoch
        member = self._members.get(request.member_id)
        if member is None or generation < 0:
            return
        if transactional or (generation, request.topics) in member.commits:
            return
        member.commits.add((generation, request.topics))
        if len(member.commits) > 1000:
            member.commits.clear()
        self._check_left(exchange, member)
        self._check_generation(exchange, member, generation, rule=210)

    # --- the rules

    def _check_left(self, exchange: Exchange, member: _Member) -> None:
        if member.left is not None and member.left.connection_id == exchange.connection_id:
            self._findings.check(
                211, False, exchange, expected="nothing of a member that left", seen="a request after its LeaveGroup"
            )

    def _check_generation(self, exchange: Exchange, member: _Member, generation: int, *, rule: int) -> bool:
        check = self._findings.check
        if not check(
            rule,
            generation in member.told,
            exchange,
            expected=f"the generation that JoinGroup told the member: {max(member.told, default='none yet')}",
            seen=f"generation {generation}",
        ):
            return False
        sent = member.sent_on.get(exchange.connection_id, generation)
        member.sent_on[exchange.connection_id] = max(sent, generation)
        return check(
            rule,
            generation >= sent,
            exchange,
            expected=f"generation {sent}, which it used before on this connection",
            seen=f"generation {generation}",
        )

    def _check_claims(self, exchange: Exchange, request: JoinGroupRequest, member: _Member | None) -> None:
        claims = _claims(request)
        if not claims:
            return
        if exchange.connection_id in self._lost_on and not request.member_id:
            self._findings.check(
                207,
                False,
                exchange,
                expected="a member that was removed has lost its partitions",
                seen=f"a join that claims {_listed(claims)}",
            )
        elif member is not None:
            strangers = claims - member.owned
            self._findings.check(
                203,
                not strangers,
                exchange,
                expected=f"a member lists what it owns: {_listed(member.owned) or 'nothing'}",
                seen=f"it claims {_listed(strangers)}, which it was never assigned",
            )

    def _check_plan(self, exchange: Exchange, request: SyncGroupRequest, member: _Member) -> None:
        plan = {one.member_id: _assigned(one.assignment) for one in request.assignments}
        owner: dict[_Named, str] = {}
        for member_id, given in plan.items():
            for named in given or ():
                other = owner.setdefault(named, member_id)
                self._findings.check(
                    212,
                    other == member_id,
                    exchange,
                    expected="a leader gives each partition to one member",
                    seen=f"{_listed([named])} goes to {other} and to {member_id}",
                )
        if not member.cooperative and not any(member.others.values()):
            return
        claims: dict[_Named, set[str]] = {}
        for member_id, claimed in member.others.items():
            for named in claimed:
                claims.setdefault(named, set()).add(member_id)
        taken = sorted(
            (named, next(iter(claims[named])), member_id)
            for named, member_id in owner.items()
            if len(claims.get(named, ())) == 1 and member_id not in claims[named]
        )
        self._findings.check(
            212,
            not taken,
            exchange,
            expected="the leader leaves out of a round what another member still owns",
            seen="; ".join(f"{_listed([named])} goes to {new}, but {old} still owns it" for named, old, new in taken),
        )

    def _check_rejoin(self, exchange: Exchange, member: _Member) -> None:
        if member.join_due_ms is None:
            return
        late_ms = exchange.asked_ms - member.join_due_ms - member.rebalance_timeout_ms
        late, member.join_late = member.join_late, late_ms >= _LATE_MS
        kept = not (late and member.join_late)
        why = "the assignment took something from it" if member.join_due_by == 205 else "the group rebalances"
        self._findings.check(
            member.join_due_by,
            kept,
            exchange,
            expected=f"the member joins again, because {why}",
            seen=f"no JoinGroup {late_ms} ms after the rebalance timeout",
        )
        if not kept:
            member.join_due_ms, member.join_late = None, False


def _claims(request: JoinGroupRequest) -> frozenset[_Named]:
    """What a member says that it owns."""
    told = read_subscription(request.protocols[0].metadata) if request.protocols else None
    return frozenset(_named(told.owned_partitions)) if told is not None else frozenset()


def _assigned(assignment: bytes) -> set[_Named] | None:
    if not assignment:
        return set()
    try:
        return set(_named(decode_assignment(assignment).assigned_partitions))
    except ProtocolError:
        return None


def _named(topics: Iterable[TopicPartition]) -> Iterable[_Named]:
    return ((topic.topic, index) for topic in topics for index in topic.partitions)


def _listed(partitions: Iterable[_Named]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
