"""Workers on the classic group protocol: the core's heartbeats as JoinGroup, SyncGroup and so on. Pure.

The core talks to a coordinator of connect groups. Where the broker has none, `ClassicRound` takes that part: it turns
each heartbeat of the core into classic requests, and their answers into the heartbeat's answer. The rules:

* C1: JoinGroup says which units this worker may be running. The leader gives a unit only to the worker that runs it, or
  to another one when no member says that it runs it: a unit moves in two rounds, and nothing else stops.
* C2: A worker that has stopped the units that were taken away joins again, and so the second round begins.
* C3: A worker that was removed from the group says that it runs nothing: the core has released everything first.
* C4: A fencing token is the epoch of a transactional id of the unit's own. The worker takes it after it was given the
  unit and before it starts it, and the core starts the unit only if its lease still holds then.
* C5: Transactional ids that are not used expire, so a running unit renews its id twice a day. Its token stays.
* C6: The newest list of units counts, also when all workers that were started with it have left: the others know it.
  Of two lists with one version, the one that the group already has counts.
* C7: While a unit waits until its present owner has stopped it, all members send heartbeats more often. So they learn
  early of the next round, in which the unit starts. They do the same after a plan in which a worker drains, because
  that worker leaves soon, which starts another round.
* C8: A worker that gives up its units says so in JoinGroup, and gets none. An administrator may ask for it: it joins
  for one round, names the worker, and leaves.
* C9: A JoinGroup may arrive late: its worker may have been given units since, which the request does not name. If it
  does not name the last generation, the leader assumes that this worker may run any unit that nobody names. Such units
  wait for another round.
* C10: A worker that gives up a unit, since its runner fails or its leader steps down, says so in JoinGroup until the
  unit is given to it again. The unit goes to a worker that has not given it up; if there is none, to the one that did
  so first.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan, WorkerSpec
from kip848_client.assignors.units.unit_plans import UNIT_PLANS
from kip848_client.common.model import Unit
from kip848_client.errors import BrokerError, ErrorCode, Kip848Error, ProtocolError
from kip848_client.wire.messages.connect_group_heartbeat import (
    AssignedUnits,
    Assignment,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
    UnitsOfName,
)
from kip848_client.wire.messages.connect_protocol import PlanMetadata, WorkerMetadata, decode, encode
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kip848_client.worker.classic.classic_messages import (
    PROTOCOL_TYPE,
    Claim,
    Given,
    Pair,
    from_pairs,
    to_pairs,
    token_of,
    transactional_id,
)
from kip848_client.worker.core import WorkerSettings, round_timeout_ms
from kip848_client.worker.planning import RETRY_MS, units_on_wire
from kip848_client.worker.refusals import conflict, may_pass, refusal

RENEW_MS: Final = 12 * 3_600_000
"""C5: a unit's transactional id is renewed this long after its last use; brokers forget it after seven days."""

_TRANSACTION_TIMEOUT_MS: Final = 10_000
"""No transaction is begun; brokers refuse more than their ``transaction.max.timeout.ms``."""
_QUICK_MS: Final = 100
"""C7: the first time between two heartbeats while units move; each further one is a quarter longer."""
_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REBALANCE_IN_PROGRESS,  # of a JoinGroup in whose place another one came
    }
)
_GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


ToWait: TypeAlias = JoinGroupRequest | SyncGroupRequest
"""Requests that the coordinator may answer after seconds."""


class ToGroup(msgspec.Struct, frozen=True):
    """Send a request to the group's coordinator; it answers with the response."""

    request: JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest


class ToTransaction(msgspec.Struct, frozen=True):
    """Send a request to the coordinator of its transactional id; answered with the response, or a `Kip848Error`."""

    request: InitProducerIdRequest


class Compute(msgspec.Struct, frozen=True):
    """Run a client-side assignor; answered with its plan, or None if it raised."""

    assignor_name: str
    group: WorkerGroup


ClassicStep: TypeAlias = ToGroup | ToTransaction | Compute
Conversation: TypeAlias = Generator[ClassicStep, Any, ConnectGroupHeartbeatResponse]


class _News(NamedTuple):
    """What this worker tells the others; another round is due when it changes."""

    version: int
    units: frozenset[Unit]
    offers: tuple[str, ...]
    trigger_seq: int
    drains: bool
    refused: frozenset[Unit]


class ClassicRound:
    """The classic side of one worker. One conversation at a time; one that is dropped is begun again by the next."""

    def __init__(self, settings: WorkerSettings, *, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._settings: Final = settings
        self._session_ms: Final = session_timeout_ms
        self._interval_ms: Final = heartbeat_interval_ms
        self._member_id = ""
        self._generation = -1
        self._stale = True
        """A round is due."""
        self._version, self._units = 0, frozenset[Unit]()
        self._followed: tuple[int, list[Pair]] = (-1, [])
        """C6: the newest list of units that another worker was started with, and its version."""
        self._offers: tuple[str, ...] = ()
        self._wishes = WorkerMetadata()
        self.draining: bool = False
        """C8: this worker wants no units, or was asked to give them up. For good."""
        self._running: frozenset[Unit] = frozenset()
        """Units that the core may be running."""
        self._taken: frozenset[Unit] = frozenset()
        """Units that the last plan took away, while they may be running."""
        self._delivered: frozenset[Unit] = frozenset()
        self._given = Given()
        self._given_ms = 0
        self._pace_ms = float(heartbeat_interval_ms)
        self._plan: tuple[int, list[int]] = (-1, [])
        """Of the last plan that came for this member id: its generation, and checksums of the ids in it."""
        self._fresh = False
        """The core does not have the last plan yet."""
        self._tokens: dict[Unit, int] = {}
        self._since_ms: dict[Unit, int] = {}
        """When a unit was given to this worker, in milliseconds since 1970."""
        self._used_ms: dict[Unit, int] = {}
        """When a unit's transactional id was last used."""
        self._joined_with: _News | None = None
        self._given_up: dict[Unit, int] = {}
        """C10: units that this worker has given up, and in which generation."""
        self._without_token: frozenset[Unit] = frozenset()
        """Units of the last plan whose token could not be taken yet."""
        self._token_failures: dict[Unit, int] = {}
        self.token_error: Kip848Error | None = None
        """Why not."""

    @property
    def without_token(self) -> frozenset[Unit]:
        """Units that were given to this worker, and wait for their token."""
        return self._without_token

    @property
    def keep_alive(self) -> HeartbeatRequest | None:
        """A heartbeat for the time of a pending JoinGroup or SyncGroup; None if the worker is no member yet."""
        if not self._member_id or self._generation < 0:
            return None
        return HeartbeatRequest(
            group_id=self._settings.group_id, generation_id=self._generation, member_id=self._member_id
        )

    @property
    def round_timeout_ms(self) -> int:
        """How long the coordinator may let a round take (W18)."""
        return round_timeout_ms(
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms, session_timeout_ms=self._session_ms
        )

    def wait_ms(self, request: ToWait) -> int:
        """How long to wait for the answer to JoinGroup or SyncGroup before it is sent again on another connection.

        A round waits for a silent member until its session is over, and for the plan of a leader that is alive.
        """
        if isinstance(request, JoinGroupRequest):
            return self.round_timeout_ms
        return max(self._settings.request_timeout_ms, self._session_ms)

    @staticmethod
    def is_overtaken(request: ToWait, code: int) -> bool:
        """Whether the answer to a heartbeat says that the coordinator does not keep *request* waiting any more."""
        return code in _GONE or (code == ErrorCode.REBALANCE_IN_PROGRESS and isinstance(request, SyncGroupRequest))

    def converse(
        self, beat: ConnectGroupHeartbeatRequest, *, now_ms: int, wall_ms: int, leave_version: int
    ) -> Conversation:
        """Take the core's heartbeat; yields requests, is sent their answers, and returns the heartbeat's answer.

        Args:
            wall_ms: since 1970.
            leave_version: of LeaveGroup, highest that the broker has.
        """
        if beat.member_epoch < 0:
            return (yield from self._leave(leave_version))
        has_news = self._hear(beat)
        if not self._stale:
            beating = self.keep_alive
            assert beating is not None, "a member that has no round to do is in the group"
            code = (yield ToGroup(beating)).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._stale = True
            elif code:
                return self._refused(code, "Heartbeat")
        if self._stale or has_news:
            code, request = yield from self._round(now_ms, wall_ms)
            if code:
                return self._refused(code, request)
        if self._given.conflict is not None:
            return ConnectGroupHeartbeatResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=self._given.conflict
            )
        yield from self._take_tokens(now_ms)
        return self._answer()

    # --- the core's heartbeat

    def _hear(self, beat: ConnectGroupHeartbeatRequest) -> bool:
        """Remember what the heartbeat says; whether another round is due for it."""
        if beat.catalog is not None:
            self._version, self._units = beat.catalog.offset, frozenset(_units(beat.catalog.units))
        if beat.client_assignors is not None:
            self._offers = tuple(assignor.name for assignor in beat.client_assignors)
            self._wishes = decode(WorkerMetadata, beat.client_assignors[0].metadata_bytes)
        elif beat.server_assignor is not None:
            self._offers = (beat.server_assignor,)
        if not beat.member_epoch:  # C3
            self._forget()
        news = self._joined_with != self._news()
        if beat.owned_units is not None:
            self._running = frozenset(_units(beat.owned_units))
            stopped = bool(self._taken) and not self._taken & self._running  # C2
            news = news or stopped or not self._delivered <= self._running
        return news

    def give_up(self, units: Iterable[Unit]) -> None:
        """C10: have other workers run these units."""
        self._given_up |= dict.fromkeys(units, self._generation)

    def _news(self) -> _News:
        refused = frozenset(self._given_up)
        return _News(self._version, self._units, self._offers, self._wishes.trigger_seq, self._drains, refused)

    @property
    def _drains(self) -> bool:
        return self.draining or self._wishes.draining

    def _forget(self) -> None:
        self._generation, self._stale = -1, True
        self._running = self._taken = self._delivered = frozenset()
        self._tokens, self._since_ms = {}, {}
        self._without_token, self._token_failures, self.token_error = frozenset(), {}, None
        self._given = Given()

    def _forget_member(self) -> None:
        self._forget()
        self._member_id, self._plan = "", (-1, [])

    def _refused(self, code: int, request: str) -> ConnectGroupHeartbeatResponse:
        if code in _GONE:
            self._forget_member()
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif code in _PASSING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        text = f"{request} of group {self._settings.group_id!r}"
        return ConnectGroupHeartbeatResponse(error_code=code, error_message=text)

    def _answer(self) -> ConnectGroupHeartbeatResponse:
        assignment = None
        if self._fresh:
            self._fresh = False
            self._delivered = frozenset(self._tokens)
            self._running |= self._delivered
            assignment = Assignment(
                assigned=tuple(
                    AssignedUnits(unit.name, (unit.index,), (token,)) for unit, token in sorted(self._tokens.items())
                ),
                pending=units_on_wire(from_pairs(self._given.pending)),
                metadata_bytes=self._given.metadata,
            )
        return ConnectGroupHeartbeatResponse(
            member_id=self._member_id,
            member_epoch=self._generation,
            heartbeat_interval_ms=self._next_interval_ms(),
            session_timeout_ms=self._session_ms,
            assignor_status=self._given.status,
            catalog_offset=self._version,
            assignment=assignment,
        )

    def _next_interval_ms(self) -> int:
        if not self._given.moving and not self._without_token:
            return self._interval_ms
        interval_ms = min(self._interval_ms, int(self._pace_ms))  # C7
        self._pace_ms *= 1.25
        return interval_ms

    def _leave(self, version: int) -> Conversation:
        if self._member_id:
            group_id, member_id = self._settings.group_id, self._member_id
            yield ToGroup(
                LeaveGroupRequest(group_id=group_id, member_id=member_id)
                if version < 3
                else LeaveGroupRequest(group_id=group_id, members=(MemberIdentity(member_id, reason="closed"),))
            )
        self._forget_member()
        return ConnectGroupHeartbeatResponse()

    # --- a round

    def _round(self, now_ms: int, wall_ms: int) -> Generator[ClassicStep, Any, tuple[int, str]]:
        """Join and synchronise until a round is complete; returns an error code, and the request that met it."""
        settings = self._settings
        while True:
            self._stale = True
            claimed, news, refused = self._running, self._news(), self._given_up.copy()
            data = msgspec.msgpack.encode(self._claim(now_ms))
            joined: JoinGroupResponse = yield ToGroup(
                JoinGroupRequest(
                    group_id=settings.group_id,
                    session_timeout_ms=self._session_ms,
                    rebalance_timeout_ms=self.round_timeout_ms,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=tuple(JoinGroupRequestProtocol(name, data) for name in self._offers),
                )
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if joined.error_code:
                return joined.error_code, "JoinGroup"
            self._member_id, self._generation = joined.member_id, joined.generation_id
            leads = joined.leader == joined.member_id and not joined.skip_assignment
            assignments = (yield from self._lead(joined, wall_ms)) if leads else ()
            synced = yield ToGroup(
                SyncGroupRequest(
                    group_id=settings.group_id,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=joined.protocol_name,
                    assignments=assignments,
                )
            )
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            if synced.error_code:
                return int(synced.error_code), "SyncGroup"
            self._given = msgspec.msgpack.decode(synced.assignment, type=Given) if synced.assignment else Given()
            self._given_ms, self._pace_ms = now_ms, _QUICK_MS
            if self._given.version > max(self._version, self._followed[0]):
                self._followed = self._given.version, self._given.units
            self._plan = (joined.generation_id, self._given.members)
            assigned = frozenset(from_pairs(self._given.assigned))
            # C4: a unit that this worker did not run may have been elsewhere since.
            self._tokens = {unit: token for unit, token in self._tokens.items() if unit in assigned & claimed}
            self._since_ms = {unit: self._since_ms.get(unit, self._given.planned_ms) for unit in assigned | claimed}
            self._taken = claimed - assigned
            if self._given.drain and not self.draining:
                self.draining = True
                news = news._replace(drains=True)  # C8: every later round says so; none is due for it
            for unit in refused.keys() & {*assigned, *from_pairs(self._given.pending)}:  # C10: it has it again
                del self._given_up[unit]
                news = news._replace(refused=news.refused - {unit})
            self._joined_with, self._stale, self._fresh = news, self._given.again, True
            return 0, ""

    def _claim(self, now_ms: int) -> Claim:
        given = self._given
        version, units = self._version, to_pairs(self._units)
        if self._followed[0] > version:
            version, units = self._followed
        return Claim(
            worker_id=self._settings.worker_id,
            generation=self._plan[0],
            version=version,
            units=units,
            running=to_pairs(self._running),
            tokens=[self._tokens.get(unit, 0) for unit in sorted(self._running)],
            since=[self._since_ms.get(unit, 0) for unit in sorted(self._running)],
            target=sorted([*given.assigned, *given.pending]),
            trigger_seq=self._wishes.trigger_seq,
            draining=self._drains,
            state=given.state,
            state_version=given.state_version,
            state_age_ms=now_ms - self._given_ms if given.state is not None else -1,
            members=self._plan[1],
            refused=sorted((unit.name, unit.index, generation) for unit, generation in self._given_up.items()),
        )

    def _lead(
        self, joined: JoinGroupResponse, wall_ms: int
    ) -> Generator[ClassicStep, Any, tuple[SyncGroupRequestAssignment, ...]]:
        try:
            everyone = {
                member.member_id: msgspec.msgpack.decode(member.metadata, type=Claim) for member in joined.members
            }
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a member of group {self._settings.group_id!r} is no worker: {error}") from error
        claims = {member_id: claim for member_id, claim in everyone.items() if claim.drain is None}
        asked = {name for claim in everyone.values() for name in claim.drain or ()}
        drained = {member_id for member_id, claim in claims.items() if claim.draining or claim.worker_id in asked}
        by_age = sorted(claims.items(), key=lambda item: (-item[1].version, -item[1].generation, item[0]))
        newest = by_age[0][1]
        conflicting = {
            member_id
            for member_id, claim in claims.items()
            if claim.version == newest.version and claim.units != newest.units
        }  # C6
        group = _group({key: claims[key] for key in claims if key not in conflicting}, newest, drained)
        name = joined.protocol_name or ""
        plan: WorkerPlan | None
        if name in self._settings.client_assignors:
            plan = yield Compute(name, group)
        else:
            member_ids = [worker.member_id for worker in group.workers if not worker.draining]
            previous = {worker.member_id: worker.target for worker in group.workers}
            plan = WorkerPlan(
                UNIT_PLANS[name](member_ids, group.units, previous),
                deferred=frozenset() if member_ids else group.units,
            )
        failed = plan is None or not _is_valid(plan, group)
        if plan is None or failed:  # everything goes on as it is, and the assignor is called again
            units = {worker.member_id: worker.target for worker in group.workers}
            plan = WorkerPlan(units, delay_ms=RETRY_MS, state=group.state, state_version=group.state_version)
        plan = _without_refused(plan, group, claims)
        metadata = encode(
            PlanMetadata(leader=self._settings.member_id, catalog_offset=newest.version, delay_ms=plan.delay_ms)
        )
        running: dict[Pair, set[str]] = {}
        for member_id, claim in claims.items():
            for pair in claim.running:
                running.setdefault(pair, set()).add(member_id)
        planned = {member_id: to_pairs(plan.units.get(member_id, ())) for member_id in everyone}
        behind = _behind(claims, generation=joined.generation_id)
        # C1: not before every other member has stopped it, or may have (C9).
        assigned = {
            member_id: [pair for pair in pairs if running.get(pair, behind) <= {member_id}]
            for member_id, pairs in planned.items()
        }
        waiting = [pair for member_id, pairs in planned.items() for pair in pairs if pair not in assigned[member_id]]
        again = any(pair not in running for pair in waiting)
        assignments = []
        for member_id in everyone:
            is_older = member_id in claims and claims[member_id].version < newest.version
            given = Given(
                assigned=assigned[member_id],
                pending=sorted(set(planned[member_id]) - set(assigned[member_id])),
                moving=bool(waiting or drained),
                members=[_checksum(one) for one in claims],
                again=again and member_id == joined.member_id,
                drain=member_id in claims and claims[member_id].worker_id in asked,
                planned_ms=wall_ms,
                metadata=metadata,
                state=plan.state,
                state_version=plan.state_version,
                status=2 if failed else 0,
                version=newest.version if is_older else -1,
                units=newest.units if is_older else [],
                conflict=_conflict(newest, claims[member_id]) if member_id in conflicting else None,
            )
            assignments.append(SyncGroupRequestAssignment(member_id, msgspec.msgpack.encode(given)))
        return tuple(assignments)

    # --- tokens

    def _take_tokens(self, now_ms: int) -> Generator[ClassicStep, Any, None]:
        """Take a token for each new unit, and renew the oldest id of the others if it is time.

        A unit whose token can't be had now is left out: it is tried again with the next heartbeat, after the others.

        Raises:
            BrokerError: the coordinator of transactions refuses a token, and no retry cures that.
        """
        assigned = from_pairs(self._given.assigned)
        old = [unit for unit in assigned if unit in self._tokens and now_ms - self._used_ms[unit] >= RENEW_MS]
        failures = self._token_failures
        new = sorted(set(assigned) - self._tokens.keys(), key=lambda unit: (failures.get(unit, 0), unit))
        self.token_error = None
        for unit in new + sorted(old)[:1]:
            token = yield from self._token(unit)
            if isinstance(token, int):
                self._fresh = self._fresh or unit not in self._tokens
                self._tokens.setdefault(unit, token)  # C4; C5: the next owner's token is greater still
                self._used_ms[unit] = now_ms
                failures.pop(unit, None)
            elif not may_pass(token):
                raise token
            else:
                self.token_error = token
                failures[unit] = failures.get(unit, 0) + 1
                if not isinstance(token, BrokerError):
                    break  # each further one may take as long
        self._without_token = frozenset(new) - self._tokens.keys()

    def _token(self, unit: Unit) -> Generator[ClassicStep, Any, int | Kip848Error]:
        name = transactional_id(self._settings.group_id, unit)
        answer: InitProducerIdResponse | Kip848Error = yield ToTransaction(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        )
        if isinstance(answer, Kip848Error):
            return answer
        if answer.error_code:
            text = f"no fencing token of unit {unit}: InitProducerId of transactional id {name!r}"
            return refusal(answer.error_code, text, elects=self._settings.elects)
        return token_of(answer.producer_id, answer.producer_epoch)


def _behind(claims: Mapping[str, Claim], *, generation: int) -> set[str]:
    """Members that may have been given units after they wrote their claims (C9).

    A member without a plan is a new one, unless others know it from theirs.
    """
    known = {member for claim in claims.values() for member in claim.members}
    return {
        member_id
        for member_id, claim in claims.items()
        if claim.generation < generation - 1 and (claim.generation >= 0 or _checksum(member_id) in known)
    }


def _checksum(member_id: str) -> int:
    return zlib.crc32(member_id.encode())


def _conflict(newest: Claim, claim: Claim) -> str:
    group, worker = {*from_pairs(newest.units)}, {*from_pairs(claim.units)}
    return conflict(newest.version, units=map(str, group - worker), others=map(str, worker - group))


def _group(claims: Mapping[str, Claim], newest: Claim, drained: Container[str]) -> WorkerGroup:
    """The group as an assignor sees it. A unit in two targets belongs to the newer plan."""
    left = {*newest.units}
    targets: dict[str, tuple[Unit, ...]] = {}
    for member_id, claim in sorted(claims.items(), key=lambda item: (-item[1].generation, item[0])):
        targets[member_id] = tuple(sorted(from_pairs(left.intersection(claim.target))))
        left.difference_update(claim.target)
    with_state = [claim for claim in claims.values() if claim.state is not None]
    memory = max(with_state, key=lambda claim: claim.generation, default=newest)
    return WorkerGroup(
        workers=tuple(
            WorkerSpec(
                member_id=member_id,
                worker_id=claim.worker_id,
                target=targets[member_id],
                reconciled=sorted(claim.running) == sorted(claim.target),
                draining=member_id in drained,
            )
            for member_id, claim in sorted(claims.items())
        ),
        units=frozenset(from_pairs(newest.units)),
        state=memory.state,
        state_version=memory.state_version,
        state_age_ms=memory.state_age_ms,
    )


def _without_refused(plan: WorkerPlan, group: WorkerGroup, claims: Mapping[str, Claim]) -> WorkerPlan:
    """C10: *plan*, with units that their workers have given up moved to others."""
    refused: dict[Unit, dict[str, int]] = {}
    able = [worker.member_id for worker in group.workers if not worker.draining]
    for member_id in able:
        for name, index, generation in claims[member_id].refused:
            refused.setdefault(Unit(name, index), {})[member_id] = generation
    units = {member_id: list(planned) for member_id, planned in plan.units.items()}
    for unit, by in sorted(refused.items()):
        owner = next((member_id for member_id, planned in units.items() if unit in planned), None)
        if owner is None or owner not in by:
            continue
        others = [member_id for member_id in able if member_id not in by]
        if others:
            heir = min(others, key=lambda member_id: (len(units.get(member_id, ())), member_id))
        else:
            heir = min(by, key=lambda member_id: (by[member_id], member_id))
        units[owner].remove(unit)
        units.setdefault(heir, []).append(unit)
    return replace(plan, units=units)


def _is_valid(plan: WorkerPlan, group: WorkerGroup) -> bool:
    """Whether the plan has known workers, and each unit once."""
    planned = [unit for units in plan.units.values() for unit in units] + list(plan.deferred)
    return len(planned) == len(set(planned)) == len(group.units & set(planned)) == len(group.units) and {
        *plan.units
    } <= {worker.member_id for worker in group.workers}


def _units(units: Iterable[UnitsOfName]) -> list[Unit]:
    return [Unit(item.name, index) for item in units for index in item.indexes]
