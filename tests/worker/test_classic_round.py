"""The classic side of a worker, driven by hand: what it sends, and what the core is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from kip848_client.common.model import Unit
from kip848_client.errors import BrokerError, ConnectionLostError, ErrorCode, Kip848Error, error_for_code
from kip848_client.wire.messages.connect_group_heartbeat import (
    Catalog,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.worker.classic.classic_messages import Claim, Given, token_of, transactional_id
from kip848_client.worker.classic.classic_round import RENEW_MS, ClassicRound, Compute
from kip848_client.worker.core import WorkerSettings
from kip848_client.worker.planning import units_on_wire
from kip848_client.worker.refusals import may_pass

FIRST: Final = (7 << 16) + 1
"""The token of epoch 0 of producer id 7."""

Answers = Callable[[Any], Any]


class Bench:
    """Three workers, w1 leads; a coordinator that answers what the test says."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.epochs: dict[str, int] = {}
        self.sent: list[Any] = []
        self.heartbeat_error = 0
        self.join_error = 0
        self.token_error: int | Kip848Error = 0
        self.token_errors: dict[str, int | Kip848Error] = {}
        self.late: dict[str, bytes] = {}
        """What an old JoinGroup of a member says, which arrives after its last one."""
        self.generation = 0
        self.metadata: dict[str, bytes] = {}
        self.planned: dict[str, bytes] = {}
        self.rounds = {
            name: ClassicRound(WorkerSettings("g", name, name), session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
            for name in ("w0", "w1", "w2")
        }

    def beat(
        self,
        name: str,
        *,
        epoch: int = 1,
        runs: str | None = None,
        version: int = 0,
        units: str = "ab",
        leave_version: int = 5,
    ) -> ConnectGroupHeartbeatResponse:
        """A heartbeat of the core; *runs* are the units that it names, None if it names none."""
        beat = ConnectGroupHeartbeatRequest(
            group_id="g",
            member_epoch=epoch,
            server_assignor="uniform",
            catalog=Catalog(version, units_on_wire(map(Unit, units))),
            owned_units=None if runs is None else units_on_wire(Unit(one) for one in runs),
        )
        talk = self.rounds[name].converse(beat, now_ms=self.now_ms, wall_ms=self.now_ms, leave_version=leave_version)
        answer: Any = None
        while True:
            try:
                step = talk.send(answer)
            except StopIteration as end:
                found: ConnectGroupHeartbeatResponse = end.value
                return found
            assert not isinstance(step, Compute)
            self.sent.append(step.request)
            answer = self._answer(name, step.request)

    def _answer(self, name: str, request: object) -> object:
        match request:
            case JoinGroupRequest():
                if self.join_error:
                    return JoinGroupResponse(error_code=self.join_error)
                self.metadata[name] = request.protocols[0].metadata
                self.metadata |= self.late
                self.generation += name == "w1"
                members = tuple(JoinGroupResponseMember(one, metadata=data) for one, data in self.metadata.items())
                return JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name="uniform",
                    leader="w1",
                    member_id=name,
                    members=members if name == "w1" else (),
                )
            case SyncGroupRequest():
                self.planned.update({one.member_id: one.assignment for one in request.assignments})
                return SyncGroupResponse(assignment=self.planned.get(name, b""))
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=self.heartbeat_error)
            case InitProducerIdRequest():
                assert request.transactional_id is not None
                error = self.token_errors.get(request.transactional_id, self.token_error)
                if isinstance(error, Kip848Error):
                    return error
                if error:
                    return InitProducerIdResponse(error_code=error)
                epoch = self.epochs[request.transactional_id] = self.epochs.get(request.transactional_id, -1) + 1
                return InitProducerIdResponse(producer_id=7, producer_epoch=epoch)
        return None


def given(response: ConnectGroupHeartbeatResponse) -> tuple[dict[str, int], list[str]]:
    """(unit -> token, units that others have to stop first)"""
    assert not response.error_code, response
    assert response.assignment is not None
    tokens = {item.name: item.epochs[0] for item in response.assignment.assigned}
    return tokens, [item.name for item in response.assignment.pending]


def test_a_unit_moves_only_after_its_owner_has_stopped_it() -> None:
    """C1 and C2: else the newcomer would start a unit that still runs."""
    bench = Bench()
    assert given(bench.beat("w1", epoch=0, runs="")) == ({"a": FIRST, "b": FIRST}, [])
    bench.beat("w2", epoch=0, runs="")
    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    assert given(bench.beat("w1", runs="ab")) == ({"a": FIRST}, [])
    bench.heartbeat_error = 0
    joins = len([sent for sent in bench.sent if isinstance(sent, JoinGroupRequest)])

    bench.beat("w1", runs="ab")  # b has not stopped yet
    assert len([sent for sent in bench.sent if isinstance(sent, JoinGroupRequest)]) == joins

    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    assert given(bench.beat("w2")) == ({}, ["b"])
    bench.heartbeat_error = 0
    assert given(bench.beat("w1", runs="a")) == ({"a": FIRST}, [])
    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    assert given(bench.beat("w2")) == ({"b": FIRST + 1}, [])


def test_a_worker_that_was_removed_takes_new_tokens() -> None:
    """C3 and C4: another worker may have run its units since, with tokens of its own."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.heartbeat_error = ErrorCode.ILLEGAL_GENERATION
    assert bench.beat("w1", runs="ab").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    bench.heartbeat_error = 0
    assert given(bench.beat("w1", epoch=0, runs=""))[0] == {"a": FIRST + 1, "b": FIRST + 1}


def test_the_first_token_of_a_cluster_is_true() -> None:
    """`if election.token:` would be false for the first leader of a new cluster."""
    assert token_of(0, 0) == 1
    assert token_of(0, 1) < token_of(1, 0)


def test_a_unit_that_runs_for_long_renews_its_transactional_id() -> None:
    """C5: brokers forget an id after seven days, and might then give a smaller token to the next owner."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.now_ms = RENEW_MS
    assert bench.beat("w1", runs="ab").assignment is None
    bench.beat("w1")
    bench.beat("w1")
    assert bench.epochs == {transactional_id("g", Unit(name)): 1 for name in "ab"}


def test_a_join_group_that_arrives_late_does_not_free_units() -> None:
    """C9: it names no units, since it was sent before its worker had any; another worker would start them, too."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.beat("w2", epoch=0, runs="")
    old = bench.metadata["w2"]
    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    bench.beat("w1", runs="ab")
    bench.beat("w2")
    bench.beat("w1", runs="a")
    assert given(bench.beat("w2"))[0] == {"b": FIRST + 1}
    bench.beat("w0", epoch=0, runs="")
    bench.late = {"w2": old}
    bench.beat("w1", runs="a")
    assert given(bench.beat("w0")) == ({}, ["b"])

    bench.late = {}
    del bench.metadata["w2"]  # its session is over
    bench.heartbeat_error = 0
    assert given(bench.beat("w1", runs="a")) == ({"a": FIRST}, [])
    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    assert given(bench.beat("w0"))[0].keys() == {"b"}


def test_a_round_that_another_one_replaces_is_tried_again() -> None:
    """A coordinator that gets a second JoinGroup of a worker refuses the first one; that must not end the worker."""
    bench = Bench()
    bench.join_error = ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.beat("w1", epoch=0, runs="").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_lost_answer_is_not_waited_for() -> None:
    """The others' round would wait for this worker, and its new units for it, until the rebalance timeout is over."""
    join, sync, overtaken = JoinGroupRequest(), SyncGroupRequest(), ClassicRound.is_overtaken
    assert not overtaken(join, ErrorCode.REBALANCE_IN_PROGRESS)
    assert overtaken(join, ErrorCode.ILLEGAL_GENERATION)
    assert not overtaken(sync, ErrorCode.NONE)
    assert overtaken(sync, ErrorCode.REBALANCE_IN_PROGRESS)
    assert Bench().rounds["w1"].wait_ms(join) == 20_000


@pytest.mark.parametrize("refused_by", ["InitProducerId", "FindCoordinator"])
def test_a_worker_that_may_take_no_tokens_says_so(refused_by: str) -> None:
    """Without the permission for the transactional ids it would keep its units, and start none of them, for ever."""
    bench = Bench()
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    bench.token_error = error_for_code(code, "FindCoordinator") if refused_by == "FindCoordinator" else code
    with pytest.raises(BrokerError, match=refused_by) as caught:
        bench.beat("w1", epoch=0, runs="")
    assert (caught.value.code, may_pass(caught.value)) == (code, False)


@pytest.mark.parametrize("error", [ErrorCode.CONCURRENT_TRANSACTIONS, ConnectionLostError("refused")])
def test_a_token_that_cannot_be_had_now_holds_back_its_unit_only(error: int | Kip848Error) -> None:
    """A partition of __transaction_state without a leader would stop units that run, and start no others."""
    bench = Bench()
    bench.token_errors = {transactional_id("g", Unit("a")): error}
    first = bench.beat("w1", epoch=0, runs="")
    assert bench.rounds["w1"].without_token == {Unit("a"), Unit("b")} - {Unit(name) for name in given(first)[0]}
    second = bench.beat("w1", runs="b")
    assert {*given(first)[0], *(given(second)[0] if second.assignment else ())} == {"b"}, "units with a token run"
    assert second.heartbeat_interval_ms < 1_000, "the others are tried again soon"
    bench.token_errors = {}
    assert given(bench.beat("w1", runs="b"))[0].keys() == {"a", "b"}
    assert not bench.rounds["w1"].without_token
    assert bench.rounds["w1"].token_error is None


def test_a_newer_list_of_units_stays_when_its_last_worker_leaves() -> None:
    """C6: workers of the old program went back to the old list, and units of the new one ran nowhere."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.beat("w2", epoch=0, runs="", version=1, units="bcd")
    assert given(rebalance(bench, "w1", "ab"))[0].keys() <= {"b", "c", "d"}
    bench.beat("w2", version=1, units="bcd", epoch=-1)
    del bench.metadata["w2"]
    assert given(rebalance(bench, "w1", ""))[0].keys() == {"b", "c", "d"}
    bench.beat("w0", epoch=0, runs="")
    rebalance(bench, "w1", "bcd")
    told = msgspec.msgpack.decode(bench.planned["w0"], type=Given)
    assert (told.version, told.units) == (1, [("b", -1), ("c", -1), ("d", -1)]), "newcomers hear of it"
    assert msgspec.msgpack.decode(bench.planned["w1"], type=Given).version == -1, "others need not"


@pytest.mark.parametrize("version", [2, 3])
def test_a_worker_leaves_any_broker(version: int) -> None:
    """LeaveGroup 0 to 2 names one member, later versions a list; a field of the wrong one cannot be sent."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.beat("w1", epoch=-1, leave_version=version)
    sent = bench.sent[-1]
    assert isinstance(sent, LeaveGroupRequest)
    assert (sent.member_id, len(sent.members)) == (("w1", 0) if version < 3 else ("", 1))


def rebalance(bench: Bench, name: str, runs: str | None = None) -> ConnectGroupHeartbeatResponse:
    """A heartbeat that hears of a round, and its answer."""
    bench.heartbeat_error = ErrorCode.REBALANCE_IN_PROGRESS
    response = bench.beat(name, runs=runs)
    bench.heartbeat_error = 0
    return response


def test_heartbeats_are_quick_while_a_unit_moves() -> None:
    """C7: the next owner would hear up to a whole interval later that a unit has stopped."""
    bench = Bench()
    assert bench.beat("w1", epoch=0, runs="").heartbeat_interval_ms == 1_000
    bench.beat("w2", epoch=0, runs="")
    assert rebalance(bench, "w1", "ab").heartbeat_interval_ms == 100
    assert rebalance(bench, "w2").heartbeat_interval_ms == 100
    assert [bench.beat("w1", runs="ab").heartbeat_interval_ms for _ in range(12)][::11] == [125, 1_000]
    assert bench.beat("w1", runs="a").heartbeat_interval_ms == 1_000


def test_an_administrator_drains_a_worker() -> None:
    """C8: its units move before it is stopped, and it gets none in later rounds; the administrator gets none."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.beat("w2", epoch=0, runs="")
    rebalance(bench, "w1", "ab")
    rebalance(bench, "w2")
    bench.beat("w1", runs="a")
    assert given(rebalance(bench, "w2"))[0] == {"b": FIRST + 1}

    rebalance(bench, "w2", "b")
    bench.metadata["admin"] = msgspec.msgpack.encode(Claim("admin", drain=["w2"]))
    assert given(rebalance(bench, "w1", "a")) == ({"a": FIRST}, ["b"])
    assert given(rebalance(bench, "w2", "b")) == ({}, [])
    assert bench.rounds["w2"].draining
    assert msgspec.msgpack.decode(bench.planned["admin"], type=Given).assigned == []
    del bench.metadata["admin"]

    rebalance(bench, "w2", "")
    last = rebalance(bench, "w1", "a")
    assert set(given(last)[0]) == {"a", "b"}
    assert last.heartbeat_interval_ms == 100, "w2 leaves now: a worker whose SyncGroup comes later needs a round"
    assert given(rebalance(bench, "w2", ""))[0] == {}


def test_a_unit_that_was_given_up_goes_to_another_worker_and_back_to_the_first() -> None:
    """C10: a worker whose runner fails must not get the unit back while another one may run it."""
    bench = Bench()
    bench.beat("w1", epoch=0, runs="")
    bench.beat("w2", epoch=0, runs="")
    rebalance(bench, "w1", "ab")
    rebalance(bench, "w2")
    bench.beat("w1", runs="a")
    assert given(rebalance(bench, "w2"))[0].keys() == {"b"}

    bench.rounds["w1"].give_up([Unit("a")])
    assert given(bench.beat("w1", runs="a"))[0] == {}
    assert given(rebalance(bench, "w2", "b")) == ({"b": FIRST + 1}, ["a"])
    bench.beat("w1", runs="")
    assert "a" in given(rebalance(bench, "w2", "b"))[0]

    bench.rounds["w2"].give_up([Unit("a")])
    bench.beat("w2", runs="ab")
    assert "a" in given(rebalance(bench, "w1", ""))[1], "both gave it up, this one first"
    assert msgspec.msgpack.decode(bench.metadata["w1"], type=Claim).refused == [("a", -1, 3)]
    rebalance(bench, "w1", "")
    assert msgspec.msgpack.decode(bench.metadata["w1"], type=Claim).refused == []


def test_a_claim_says_since_when_a_unit_runs_and_with_which_token() -> None:
    """An administrator sees it in DescribeGroups; nothing else in the cluster knows."""
    bench = Bench()
    bench.now_ms = 5_000
    bench.beat("w1", epoch=0, runs="")
    bench.now_ms = 9_000
    rebalance(bench, "w1", "ab")
    claim = msgspec.msgpack.decode(bench.metadata["w1"], type=Claim)
    assert (claim.since, claim.tokens) == ([5_000, 5_000], [FIRST, FIRST])
