"""Verdicts as a person, a CI server and a script read them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kip848_client.errors import ConfigError
from kip848_client.testing.judge.output import add_report_arguments, write_report
from kip848_client.testing.judge.reports import as_html, as_json, as_junit, as_text
from kip848_client.testing.judge.rulebook import read_rules, rulebook
from kip848_client.testing.judge.verdicts import BROKER, Judgement, Outcome, Said, Verdict

DIFFERS = Verdict(
    rulebook()[57],
    Outcome.DIFFERS,
    asked="a heartbeat of <epoch> 1",
    expected="FENCED_MEMBER_EPOCH(110)",
    seen="epoch 2\x1b",
    exchange=(Said("a", BROKER, "heartbeat: epoch 1"), Said("a", "a", "fenced"), Said(BROKER, "a", "epoch 2")),
)
REPORT = Judgement(
    "broker at 127.0.0.1:9092",
    "Apache Kafka 4.4.0",
    (
        Verdict(rulebook()[10], Outcome.HOLDS, notes=("as Kafka 4.0 does",)),
        DIFFERS,
        Verdict(rulebook()[320], Outcome.CANNOT_BE_TRIED, why="no ShareGroupHeartbeat"),
    ),
    duration_s=1.5,
    facts={"heartbeat interval": "100 ms"},
)


def test_rules_are_read_with_their_chapters() -> None:
    """A verdict is looked up in the page by its number and chapter."""
    text = (
        "# Page\n\n## One\n\n* **R1** A sentence\n  goes `on`. *(KIP-1)*\n\n"
        "### Two\n\n* **R2** It [links](x.md). *(Own)*\n"
    )

    one, two = read_rules(text)

    assert (one.name, one.sentence, one.source, one.chapter) == ("R1", "A sentence goes `on`.", "KIP-1", "One")
    assert (two.chapter, two.plain_sentence) == ("One: Two", "It links.")


def test_text_names_the_rule_and_what_was_asked_expected_and_seen() -> None:
    """A person must see what to mend without opening anything else."""
    text = as_text(REPORT, verbose=True)

    assert "R57   differs" in text
    assert "asked:    a heartbeat of <epoch> 1" in text
    assert "seen:     epoch 2\\x1b" in text
    assert "a -> broker: heartbeat: epoch 1" in text
    assert "R320  cannot be tried: no ShareGroupHeartbeat" in text
    assert text.endswith("3 rules: 1 holds, 1 differs, 1 cannot be tried (1.5 s)")


def test_json_has_every_verdict_with_its_rule() -> None:
    """Scripts compare two runs by the numbers of the rules."""
    told = json.loads(as_json(REPORT))

    assert told["counts"] == {"holds": 1, "differs": 1, "cannot be tried": 1}
    assert [(verdict["rule"], verdict["outcome"]) for verdict in told["verdicts"]] == [
        (10, "holds"),
        (57, "differs"),
        (320, "cannot be tried"),
    ]


def test_junit_is_what_ci_servers_read() -> None:
    """A rule that differs fails, one that cannot be tried is skipped."""
    (suite,) = ET.fromstring(as_junit(REPORT))

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["skipped"]]


def test_the_page_draws_the_first_difference_and_escapes_what_a_broker_says() -> None:
    """A broker's text must not run as a script, and the picture must show who said what."""
    page = as_html(REPORT)

    assert "<svg" in page
    assert "a heartbeat of &lt;epoch&gt; 1" in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("verdicts", "status"), [(REPORT.verdicts, 1), (REPORT.verdicts[:1], 0), (REPORT.verdicts[2:], 3), ((), 3)]
)
def test_the_exit_status_says_whether_a_rule_differs(verdicts: tuple[Verdict, ...], status: int) -> None:
    """A pipeline goes on only if something was tried and nothing differs."""
    assert Judgement("x", "y", verdicts).exit_status == status


def test_files_are_written_beside_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run serves the terminal, the CI server and the browser."""
    parser = argparse.ArgumentParser()
    add_report_arguments(parser)
    junit, page = tmp_path / "junit.xml", tmp_path / "page.html"

    status = write_report(REPORT, parser.parse_args(["--json", f"--junit={junit}", f"--html={page}"]))

    assert status == 1
    assert json.loads(capsys.readouterr().out)["subject"] == REPORT.subject
    assert junit.read_text(encoding="utf-8") == as_junit(REPORT)
    assert page.read_text(encoding="utf-8") == as_html(REPORT)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Otherwise a traceback ends the run."""
    parser = argparse.ArgumentParser()
    add_report_arguments(parser)

    with pytest.raises(ConfigError, match="cannot be written"):
        write_report(REPORT, parser.parse_args([f"--html={tmp_path / 'missing' / 'page.html'}"]))
