"""The decision over ACLs, without a broker. tests/interop/differential/test_access.py compares it with Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.testing.broker.metadata.acls import (
    Acl,
    AclDecision,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    decide,
    is_allowed_anywhere,
)

ALICE: Final = "User:alice"
HERE: Final = "127.0.0.1"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(text: str) -> Acl:
    """``ALLOW User:alice READ foo``; a name that ends with ``...`` is a prefix, ``@host`` follows the principal."""
    permission, who, operation, name = text.split()
    principal, _, host = who.partition("@")
    return Acl(
        ResourceType.TOPIC,
        PREFIXED if name.endswith("...") else LITERAL,
        name.removesuffix("..."),
        principal,
        host or "*",
        Operation[operation],
        Permission[permission],
    )


def judge(acls: Sequence[str], operation: str, name: str = "foo") -> AclDecision:
    return decide(Acls(map(acl, acls)), Operation[operation], ResourceType.TOPIC, name, principal=ALICE, host=HERE)


@pytest.mark.parametrize(
    ("acls", "operation", "verdict"),
    [
        ([], "READ", AclDecision.NO_ACL),
        (["ALLOW User:alice READ foo"], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ foo"], "WRITE", AclDecision.DENIED),
        (["ALLOW User:bob READ foo"], "READ", AclDecision.DENIED),
        (["ALLOW User:bob READ bar"], "READ", AclDecision.NO_ACL),
        (["ALLOW User:* READ foo"], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ *"], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ fo..."], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ foo..."], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ fo"], "READ", AclDecision.NO_ACL),
        (["ALLOW User:alice@127.0.0.1 READ foo"], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice@10.0.0.1 READ foo"], "READ", AclDecision.DENIED),
        (["ALLOW User:alice ALL foo", "DENY User:alice READ foo"], "READ", AclDecision.DENIED),
        (["ALLOW User:alice ALL foo", "DENY User:alice READ foo"], "DESCRIBE", AclDecision.ALLOWED),
        (["ALLOW User:alice ALL foo", "DENY User:alice@10.0.0.1 READ foo"], "READ", AclDecision.ALLOWED),
        (["ALLOW User:alice READ foo", "DENY User:* ALL *"], "READ", AclDecision.DENIED),
        (["ALLOW User:alice READ foo"], "DESCRIBE", AclDecision.ALLOWED),
        (["ALLOW User:alice WRITE foo"], "DESCRIBE", AclDecision.ALLOWED),
        (["ALLOW User:alice DELETE foo"], "DESCRIBE", AclDecision.ALLOWED),
        (["ALLOW User:alice ALTER foo"], "DESCRIBE", AclDecision.ALLOWED),
        (["ALLOW User:alice CREATE foo"], "DESCRIBE", AclDecision.DENIED),
        (["ALLOW User:alice ALTER_CONFIGS foo"], "DESCRIBE_CONFIGS", AclDecision.ALLOWED),
        (["ALLOW User:alice ALTER_CONFIGS foo"], "DESCRIBE", AclDecision.DENIED),
        (["ALLOW User:alice DESCRIBE foo"], "READ", AclDecision.DENIED),
    ],
)
def test_acls_decide_as_kafkas_standard_authorizer(acls: list[str], operation: str, verdict: AclDecision) -> None:
    """A test of permissions is worth nothing if the broker grants what Kafka refuses."""
    assert judge(acls, operation) is verdict


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        (["ALLOW User:alice WRITE foo"], True),
        (["ALLOW User:alice READ foo"], False),
        (["ALLOW User:alice WRITE foo", "DENY User:alice WRITE foo"], False),
        (["ALLOW User:alice WRITE foo", "DENY User:alice WRITE fo..."], False),
        (["ALLOW User:alice WRITE fo...", "DENY User:alice WRITE foo"], True),
        (["ALLOW User:alice WRITE fo...", "DENY User:* ALL f..."], False),
        (["ALLOW User:alice WRITE *", "DENY User:alice WRITE f..."], True),
        (["ALLOW User:alice WRITE *", "DENY User:alice WRITE *"], False),
    ],
)
def test_a_producer_may_begin_if_it_may_write_to_some_topic(acls: list[str], allowed: bool) -> None:
    """An idempotent producer asks for its id before it names a topic."""
    found = [acl(text) for text in acls]
    assert is_allowed_anywhere(found, Operation.WRITE, ResourceType.TOPIC, principal=ALICE, host=HERE) is allowed


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.MATCH, "foo", {"f...", "fo...", "*", "foo"}),
        (PatternType.ANY, "foo", {"foo"}),
        (PatternType.LITERAL, "foo", {"foo"}),
        (PatternType.PREFIXED, "fo", {"fo..."}),
        (PatternType.ANY, "fo", {"fo...", "fo"}),
        (PatternType.LITERAL, None, {"fo", "foo", "*"}),
        (PatternType.ANY, None, {"f...", "fo...", "fo", "*", "foo"}),
    ],
)
def test_scenario_55_a_filter_finds_patterns(pattern: PatternType, name: str | None, found: set[str]) -> None:
    """``kafka-acls --resource-pattern-type match`` shows everything that applies to a topic, and no more."""
    acls = Acls(acl(f"ALLOW User:alice READ {each}") for each in ("f...", "fo...", "fo", "*", "foo"))
    matching = acls.matching(AclFilter(pattern_type=pattern, name=name))
    assert {each.name + "..." * (each.pattern_type is PREFIXED) for each in matching} == found


NAMES: Final = st.sampled_from(["*", "f", "fo", "foo", "bar"])
TYPES: Final = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
ACLS: Final = st.builds(
    Acl,
    TYPES,
    st.sampled_from([LITERAL, PREFIXED]),
    NAMES,
    st.sampled_from([ALICE, "User:bob"]),
    st.just(HERE),
    st.sampled_from([Operation.READ, Operation.WRITE]),
    st.just(Permission.ALLOW),
)
FILTERS: Final = st.builds(
    AclFilter,
    TYPES | st.just(ResourceType.ANY),
    st.sampled_from(PatternType),
    NAMES | st.none(),
    st.none() | st.just(ALICE),
    operation=st.sampled_from([Operation.ANY, Operation.READ]),
)


@given(acls=st.lists(ACLS, unique=True, max_size=30), wanted=FILTERS)
def test_a_filter_finds_what_a_look_at_each_acl_would(acls: list[Acl], wanted: AclFilter) -> None:
    """12,000 filters looked at 24,000 ACLs each: a minute in which the broker served nobody else."""
    assert sorted(Acls(acls).matching(wanted)) == sorted(each for each in acls if wanted.matches(each))


def test_a_filter_with_a_name_looks_only_at_acls_of_that_name() -> None:
    """Otherwise a deletion by names takes the square of its time."""
    looked_at: list[Acl] = []

    class Counting(AclFilter, frozen=True):
        def matches(self, acl: Acl) -> bool:
            looked_at.append(acl)
            return super().matches(acl)

    acls = Acls(acl(f"ALLOW {ALICE} READ t{number}") for number in range(100))
    assert acls.matching(Counting(name="t7")) == looked_at == [acl(f"ALLOW {ALICE} READ t7")]
