"""The decision over ACLs, without a broker: a table of cases, and a second formulation of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.broker.acls import (
    Acl,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Verdict,
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


def judge(acls: Sequence[str], operation: str, name: str = "foo") -> Verdict:
    return decide(Acls(map(acl, acls)), Operation[operation], ResourceType.TOPIC, name, principal=ALICE, host=HERE)


@pytest.mark.parametrize(
    ("acls", "operation", "verdict"),
    [
        ([], "READ", Verdict.NO_ACL),
        (["ALLOW User:alice READ foo"], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ foo"], "WRITE", Verdict.DENIED),
        (["ALLOW User:bob READ foo"], "READ", Verdict.DENIED),
        (["ALLOW User:bob READ bar"], "READ", Verdict.NO_ACL),
        (["ALLOW User:* READ foo"], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ *"], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ fo..."], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ foo..."], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ fo"], "READ", Verdict.NO_ACL),
        (["ALLOW User:alice@127.0.0.1 READ foo"], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice@10.0.0.1 READ foo"], "READ", Verdict.DENIED),
        (["ALLOW User:alice ALL foo", "DENY User:alice READ foo"], "READ", Verdict.DENIED),
        (["ALLOW User:alice ALL foo", "DENY User:alice READ foo"], "DESCRIBE", Verdict.ALLOWED),
        (["ALLOW User:alice ALL foo", "DENY User:alice@10.0.0.1 READ foo"], "READ", Verdict.ALLOWED),
        (["ALLOW User:alice READ foo", "DENY User:* ALL *"], "READ", Verdict.DENIED),
        (["ALLOW User:alice READ foo"], "DESCRIBE", Verdict.ALLOWED),
        (["ALLOW User:alice WRITE foo"], "DESCRIBE", Verdict.ALLOWED),
        (["ALLOW User:alice DELETE foo"], "DESCRIBE", Verdict.ALLOWED),
        (["ALLOW User:alice ALTER foo"], "DESCRIBE", Verdict.ALLOWED),
        (["ALLOW User:alice CREATE foo"], "DESCRIBE", Verdict.DENIED),
        (["ALLOW User:alice ALTER_CONFIGS foo"], "DESCRIBE_CONFIGS", Verdict.ALLOWED),
        (["ALLOW User:alice ALTER_CONFIGS foo"], "DESCRIBE", Verdict.DENIED),
        (["ALLOW User:alice DESCRIBE foo"], "READ", Verdict.DENIED),
    ],
)
def test_acls_decide_as_kafkas_standard_authorizer(acls: list[str], operation: str, verdict: Verdict) -> None:
    """A test of permissions is worth nothing if the broker grants what Kafka refuses."""
    assert judge(acls, operation) is verdict


NAMES: Final = st.sampled_from(["", "*", "f", "fo", "foo", "bar"])
ACLS: Final = st.lists(
    st.builds(
        Acl,
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        st.sampled_from([LITERAL, PREFIXED]),
        NAMES,
        st.sampled_from([ALICE, "User:bob", "User:*"]),
        st.sampled_from([HERE, "10.0.0.1", "*"]),
        st.sampled_from([each for each in Operation if each is not Operation.ANY]),
        st.sampled_from([Permission.ALLOW, Permission.DENY]),
    ),
    max_size=6,
)
ASKED: Final = st.sampled_from([each for each in Operation if each not in (Operation.ANY, Operation.ALL)])


def spelled_out(acls: Sequence[Acl], asked: Operation, name: str) -> Verdict:
    """The rules once more: every ACL is unfolded into the plain (operation, permission) pairs that it stands for."""
    implies = {"READ": "DESCRIBE", "WRITE": "DESCRIBE", "DELETE": "DESCRIBE", "ALTER": "DESCRIBE"}
    implies["ALTER_CONFIGS"] = "DESCRIBE_CONFIGS"
    grants: set[str] = set()
    denials: set[str] = set()
    touched = False
    for each in acls:
        prefixes = {name[:length] for length in range(len(name) + 1)}
        names = prefixes if each.pattern_type is PREFIXED else {name, "*"}
        if each.resource_type is not ResourceType.TOPIC or each.name not in names:
            continue
        touched = True
        if each.principal == "User:bob" or each.host == "10.0.0.1":
            continue
        plain = set(Operation.__members__) if each.operation is Operation.ALL else {each.operation.name}
        if each.permission is Permission.DENY:
            denials |= plain
        else:
            grants |= plain | {implies[one] for one in plain if one in implies}
    if asked.name in grants - denials:
        return Verdict.ALLOWED
    return Verdict.DENIED if touched else Verdict.NO_ACL


@given(ACLS, ASKED, NAMES)
def test_the_decision_is_that_of_a_second_formulation(acls: list[Acl], asked: Operation, name: str) -> None:
    """A hole that the table of cases does not show."""
    verdict = decide(Acls(acls), asked, ResourceType.TOPIC, name, principal=ALICE, host=HERE)
    assert verdict is spelled_out(acls, asked, name)


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
