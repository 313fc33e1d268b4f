"""``kip848 assignor``: a user tries an assignor and looks at what it does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kip848_client.assignors import library
from kip848_client.cli import main

OWN = """
from kip848_client.assignors import GroupAssignment, PartitionAssignor, spread_evenly

class Good(PartitionAssignor):
    name = "good"
    def assign(self, spec):
        return spread_evenly(spec)

class Forgetful(PartitionAssignor):
    name = "forgetful"
    def assign(self, spec):
        return GroupAssignment()

class Restless(PartitionAssignor):
    name = "restless"
    def assign(self, spec):
        given = {m: [] for m in spec.members}
        for p in spec.partitions:
            able = spec.subscribers(p.topic)
            holder = [i for i, m in enumerate(able) if p in spec.members[m].target]
            given[able[(holder[0] + 1 if holder else 0) % len(able)]].append(p)
        return GroupAssignment.of(given)

class Crashes(PartitionAssignor):
    name = "crashes"
    def assign(self, spec):
        return spec.members["nobody"]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's, in the folder where they stand."""
    (tmp_path / "own_assignors.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield "own_assignors"
    sys.modules.pop("own_assignors", None)


def test_a_sound_assignor_passes(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The report names each check, and the exit status is for CI."""
    assert main(["assignor", "check", f"{own}:Good", "--groups", "20", "--members", "50"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("  ok  ") == 10
    assert "50 members in time: fresh" in printed


@pytest.mark.parametrize(
    ("name", "check", "says"),
    [
        ("Forgetful", "the result can be applied", "not assigned: topic-"),
        ("Restless", "it comes to rest", "still moves partitions after 3 runs"),
        ("Crashes", "the result can be applied", "assign raised KeyError: 'nobody'"),
    ],
)
def test_a_broken_assignor_fails_with_the_group_that_breaks_it(
    own: str, name: str, check: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The author must be able to repeat it by hand."""
    assert main(["assignor", "check", f"{own}:{name}", "--groups", "20", "--members", "0", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (result,) = [result for result in report["results"] if result["name"] == check]
    assert not report["passed"]
    assert not result["passed"]
    assert says in result["detail"]


def test_one_that_is_too_slow_for_the_large_group_fails(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be abandoned in production, after the time limit."""
    assert main(["assignor", "check", f"{own}:Good", "--groups", "1", "--members", "300", "--limit-ms", "0"]) == 1
    assert "the limit is 0 s" in capsys.readouterr().out


def test_show_tells_what_moved(capsys: pytest.CaptureFixture[str]) -> None:
    """An author of an assignor sees in the terminal which partitions a join moves."""
    options = ["--member", 'big={"weight":3}', "--member", "small", "--topic", "orders:8", "--join", "new"]
    assert main(["assignor", "show", "Weighted", *options]) == 0
    printed = capsys.readouterr().out
    assert "after new joined:" in printed
    assert "1 of 8 partitions moved (*)" in printed


def test_show_draws_a_picture_that_is_well_formed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names come from the user: the picture must stay XML."""
    path = tmp_path / "picture.svg"
    options = ["--member", "<a>&", "--member", "b", "--topic", "t:3", "--leave", "b", "--svg", str(path)]
    assert main(["assignor", "show", "Uniform", *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["after"]["<a>&"]) == ["t-0", "t-1", "t-2"]
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "after b left" in texts
    assert any(text.startswith("<a>& (") for text in texts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nonsense"], "write package.module:Name, or one of Buckets"),
        (["check", "json:loads"], "is function"),
        (["check", "Buckets"], "give an instance if it needs arguments"),
        (["show", "Uniform", "--topic", "orders"], "write NAME:COUNT"),
        (["show", "Uniform", "--leave", "nobody"], "no such member"),
        (["show", "Uniform", "--hold", "m1=orders:99"], "not a TOPIC:NUMBER of this group"),
        (["show", "Weighted", "--member", "a=heavy"], "weighted refuses this group: member 'a' has metadata"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error is answered by one sentence that names the option, and not by a traceback."""
    assert main(["assignor", *arguments]) == 1
    assert says in capsys.readouterr().err


def test_the_library_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, by the names that check and show take."""
    assert main(["assignor", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == library.__all__
