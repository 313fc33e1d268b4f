"""docs/protocol.md keeps its word: every rule has a test, every test a rule, and drawings show what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.error_tables import (
    COMMIT_CODES,
    FATAL_ADVICE,
    HEARTBEAT_CODES,
    ROUND_CODES,
    HeartbeatErrorClass,
)
from kip848_client.member.core.states import PHASE_ROWS, TRANSITIONS
from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.rulebook import read_rules
from tests.support.protocol_document import (
    DOCUMENT,
    GENERATED,
    blocks,
    commit_codes,
    heartbeat_codes,
    rewrite,
    round_codes,
)
from tests.support.state_diagram import (
    classic_diagram,
    is_shared,
    membership_diagram,
    reconciliation_diagram,
    state_diagram,
)

ROOT = DOCUMENT.parents[1]
TEXT = DOCUMENT.read_text(encoding="utf-8")
RULES = {rule.number: rule for rule in read_rules(TEXT)}


def spec_tests() -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / "tests" / "spec").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node.name


def proven_numbers() -> set[int]:
    """The numbers in names of tests; rules of the coordinator have conversations, which tests/judge holds."""
    named = {int(match[1]) for _, name in spec_tests() if (match := re.match(r"test_r(\d+)_", name))}
    return named | {story.rule for story in STORIES}


def test_the_document_has_rules_and_no_number_twice() -> None:
    """A number is what code, tests and people cite."""
    assert len(RULES) > 100
    assert len(RULES) == len(read_rules(TEXT)) == TEXT.count("\n* **R")


def test_every_rule_has_a_test() -> None:
    """A sentence that nothing proves is a wish."""
    missing = RULES.keys() - proven_numbers()
    assert not missing, f"no function test_r<number>_... in tests/spec for {sorted(missing)}"


def test_every_test_of_the_rulebook_proves_a_rule() -> None:
    """Otherwise a rule was dropped, or its behaviour was never written down."""
    for path, name in spec_tests():
        match = re.match(r"test_r(\d+)_", name)
        assert match, f"{path.name}: {name} bears no number"
        assert int(match[1]) in RULES, f"{path.name}: {name} proves a rule that docs/protocol.md does not have"


@pytest.mark.parametrize("number", RULES, ids=lambda number: f"R{number}")
def test_a_rule_is_a_sentence_with_a_source(number: int) -> None:
    """Readers want to know who says so: the protocol, another client, or we."""
    rule = RULES[number]
    assert rule.sentence.endswith("."), f"R{number} is no sentence: {rule.sentence}"
    assert rule.source, f"R{number} says nothing about where it comes from"


def test_a_citation_names_a_rule_that_exists() -> None:
    """``R14`` in a comment or in the docs must lead somewhere."""
    files = [*(ROOT / "kip848_client").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    for path in files:
        for cited in re.findall(r"\bR(\d{1,3})\b", path.read_text(encoding="utf-8")):
            assert int(cited) in RULES, f"{path.relative_to(ROOT)} cites R{cited}"


def test_the_generated_parts_are_up_to_date() -> None:
    """An outdated diagram misleads. ``make docs`` draws them anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert sorted(blocks(text)) == sorted(GENERATED)
    assert rewrite(text) == text, f"docs/{DOCUMENT.name} differs from the code; run make docs"


def test_the_diagrams_show_every_move() -> None:
    """A reader looks for exactly the move that a picture left out."""
    public = state_diagram()
    for transition in TRANSITIONS:
        arrow = re.search(rf"{transition.source.name} --> {transition.dest.name}: (.*)", public)
        assert arrow, transition
        assert transition.trigger in arrow[1].split("<br/>")
    inside = "\n".join([membership_diagram(), reconciliation_diagram(), classic_diagram()])
    for row in PHASE_ROWS:
        source = "MEMBER" if is_shared(row) else row.source.name
        arrow = re.search(rf"{source} --> {row.dest.name}: (.*)", inside)
        assert arrow, row
        assert row.trigger in arrow[1].split("<br/>")


def test_the_tables_show_every_code_and_the_way_out_of_every_fatal_one() -> None:
    """Users look up the code that they see in a log."""
    tables = ((heartbeat_codes(), HEARTBEAT_CODES), (commit_codes(), COMMIT_CODES), (round_codes(), ROUND_CODES))
    for table, codes in tables:
        for code in codes:
            assert f"{ErrorCode(code).name}({code})" in table
    fatal = {code for code, error_class in HEARTBEAT_CODES.items() if error_class is HeartbeatErrorClass.FATAL}
    assert fatal == FATAL_ADVICE.keys()
