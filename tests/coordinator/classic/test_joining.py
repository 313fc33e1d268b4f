"""Who may join a classic group, and what a refusal says (s01 to s12, s21, s22)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from tests.support.classic_harness import FOO, ClassicHarness

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("number", "options", "code", "member_id"),
    [
        ("s01", {"group_id": "", "member_id": "m"}, ErrorCode.INVALID_GROUP_ID, "m"),
        ("s02", {"session_ms": 99, "member_id": "m"}, ErrorCode.INVALID_SESSION_TIMEOUT, "m"),
        ("s02", {"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT, ""),
        ("s03", {"protocols": ()}, INCONSISTENT, ""),
        ("s04", {"protocol_type": ""}, INCONSISTENT, ""),
        ("s05", {"member_id": "nobody"}, UNKNOWN, "nobody"),
    ],
)
def test_a_join_that_is_refused_leaves_nothing(
    number: str, options: dict[str, object], code: ErrorCode, member_id: str
) -> None:
    """A client with a mistake learns which, and tools show no group that never was."""
    del number
    h = ClassicHarness()
    answer = h.join_group(**options).answer  # type: ignore[arg-type]
    assert (answer.error_code, answer.member_id) == (code, member_id)
    assert (answer.generation_id, answer.leader, answer.members, answer.protocol_name) == (-1, "", (), None)
    assert h.listed() == {}
    assert h.coordinator.deadline_ms() is None


@pytest.mark.parametrize("session_ms", [100, 1_800_000])
def test_s02_the_shortest_and_the_longest_session_timeout_are_allowed(session_ms: int) -> None:
    """A client that is set to the limit of its broker must be able to join."""
    assert ClassicHarness().join_group(session_ms=session_ms).code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [0, 3])
def test_s06_a_member_of_an_old_version_joins_in_one_round(version: int) -> None:
    """Clients before KIP-394 do not know the round for the member id."""
    h = ClassicHarness()
    answer = h.join_group(version=version).answer
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert answer.leader == answer.member_id
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, FOO)]


@pytest.mark.parametrize(("version", "protocol"), [(4, ""), (6, ""), (7, None)])
def test_s07_a_member_without_an_id_is_sent_one_first(version: int, protocol: str | None) -> None:
    """A client that gives up after its first request must not leave a member behind."""
    h = ClassicHarness()
    answer = h.join_group(version=version).answer
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.MEMBER_ID_REQUIRED, protocol)
    assert answer.member_id.startswith("client-")
    described = h.describe()
    assert (described.error_code, described.group_state, described.protocol_type) == (ErrorCode.NONE, "Empty", "")
    assert described.members == ()


def test_s08_a_static_member_joins_in_one_round() -> None:
    """Its instance id says who it is, so nothing is left behind without the extra round."""
    h = ClassicHarness()
    call = h.join_group(instance="i1", version=5)
    assert call.code == ErrorCode.NONE
    assert call.answer.member_id.startswith("i1-")


def test_s09_an_id_that_was_handed_out_cannot_become_static() -> None:
    """Apache Kafka fails with UNKNOWN_SERVER_ERROR; a client can do something about UNKNOWN_MEMBER_ID."""
    h = ClassicHarness()
    member_id = h.join_group().answer.member_id
    call = h.join_group(member_id, instance="x")
    assert (call.code, call.answer.member_id) == (UNKNOWN, member_id)


def test_s10_an_id_that_was_given_back_is_unknown() -> None:
    """A client that closes before it has joined takes its id along."""
    h = ClassicHarness()
    member_id = h.join_group().answer.member_id
    assert h.leave_group(member_id) == [ErrorCode.NONE]
    assert h.listed() == {}
    assert h.join_group(member_id).code == UNKNOWN


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout() -> None:
    """A group of which nothing became does not stay in the list for ever."""
    h = ClassicHarness()
    member_id = h.join_group(session_ms=600).answer.member_id
    h.advance(599)
    assert h.listed() == {"g": ("Empty", "classic", "")}
    h.advance(1)
    assert h.listed() == {}
    assert h.join_group(member_id).code == UNKNOWN


@pytest.mark.parametrize(("sent_ms", "is_ms"), [(-1, 700), (0, 0)])
def test_s11_without_a_rebalance_timeout_it_is_the_session_timeout(sent_ms: int, is_ms: int) -> None:
    """The oldest clients have one timeout for both."""
    h = ClassicHarness()
    h.join_group(version=0, session_ms=700, rebalance_ms=sent_ms)
    assert [member.rebalance_timeout_ms for member in h.classic.members.values()] == [is_ms]


@pytest.mark.parametrize(("protocol_type", "protocol"), [(None, "range"), ("consumer", None)])
def test_s12_a_sync_of_version_5_has_to_name_the_protocol(protocol_type: str | None, protocol: str | None) -> None:
    """KIP-559: it is refused before anything else is looked at."""
    h = ClassicHarness()
    assert h.sync_group("nobody", 1, protocol_type=protocol_type, protocol=protocol).code == INCONSISTENT


@pytest.mark.parametrize("options", [{"protocols": ["sticky"]}, {"protocol_type": "connect"}])
def test_s21_a_newcomer_needs_a_protocol_that_every_member_has(options: dict[str, object]) -> None:
    """A misconfigured client fails; the group does not."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    call = h.join_group(**options)  # type: ignore[arg-type]
    assert (call.code, call.answer.member_id) == (INCONSISTENT, "")
    assert h.beat(a, 1) == ErrorCode.NONE


def test_a_sole_member_cannot_change_to_other_protocols_only() -> None:
    """It counts itself among those who have to support one; it has to leave and join again."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    call = h.join_group(a, protocols=["sticky"])
    assert (call.code, call.answer.member_id) == (INCONSISTENT, a)


@pytest.mark.parametrize(
    ("offers", "selected"),
    [
        (["range roundrobin", "roundrobin range"], "range"),
        (["range roundrobin", "roundrobin range", "roundrobin range"], "roundrobin"),
        (["range roundrobin sticky", "sticky roundrobin", "roundrobin sticky"], "roundrobin"),
    ],
)
def test_s22_the_protocol_is_voted_for_and_of_equals_the_earliest_member_decides(
    offers: list[str], selected: str
) -> None:
    """A rolling change of the assignor takes effect when most members prefer the new one."""
    h = ClassicHarness()
    protocols = [{name: FOO + name.encode() for name in offer.split()} for offer in offers]
    ids = [h.newcomer(protocols=offer) for offer in protocols]
    answer = h.join_group(ids[0], protocols=protocols[0]).answer
    assert (answer.generation_id, answer.protocol_name) == (2, selected)
    assert [(member.member_id, member.metadata) for member in answer.members] == [
        (member_id, FOO + selected.encode()) for member_id in ids
    ]


def test_a_full_group_takes_no_newcomer_but_its_members() -> None:
    """``group.max.size`` protects the group from a deployment gone wrong."""
    h = ClassicHarness(size_max=2)
    a, b = h.stable("a", "b")
    call = h.join_group()
    assert (call.code, call.answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert h.join_group(b).code == ErrorCode.NONE
    h.join_group(a)
    assert h.join_group(b).code == ErrorCode.NONE


def test_the_last_to_come_back_are_left_out_of_a_group_that_has_become_too_large() -> None:
    """A broker that is started with a smaller ``group.max.size`` brings its groups down to it."""
    h = ClassicHarness()
    a, b, c = h.stable("a", "b", "c")
    h.config = ClassicHarness(size_max=3).config
    h.restart()
    assert h.state_is(ClassicState.STABLE)
    h.config = ClassicHarness(size_max=2).config
    h.restart()
    assert h.state_is(ClassicState.PREPARING)
    calls = [h.join_group(member_id) for member_id in (c, b, a)]
    assert [call.code for call in calls] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert list(h.classic.members) == [b, c]


def test_groups_are_bounded() -> None:
    """A program that makes up names would fill the memory of the broker."""
    h = ClassicHarness()
    h.stable("a")
    h.config = replace(h.config, groups_max=1)
    h.restart()
    assert h.join_group(group_id="other").code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join_group().code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_heartbeat_and_a_sync_name_their_group() -> None:
    """A client that sends an empty group id learns that this is its mistake."""
    h = ClassicHarness()
    h.group_id = ""
    assert h.beat("m", 1) == h.sync_group("m", 1).code == ErrorCode.INVALID_GROUP_ID


def test_members_and_ids_of_all_groups_are_bounded() -> None:
    """Parked requests cost memory for so many members and no more."""
    h = ClassicHarness(members_max=2)
    member_id = h.join_group().answer.member_id
    assert h.join_group(instance="i", group_id="other").code == ErrorCode.NONE
    assert h.join_group(instance="j", group_id="other").code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join_group(group_id="third").code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join_group(member_id).code == ErrorCode.NONE
    assert h.listed().keys() == {"g", "other"}
