"""What a person and a program read of the demo."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from demo.ledger import CountedRun, Disappearance, Verdict
from demo.processes import Said
from demo.reports import Counted, Started, Status
from demo.scene import Rebalance, Scene
from demo.table import LiveTable, PlainLines, describe_result, open_screen
from rich.console import Console


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def scene() -> Scene:
    """Two workers: counter-1 was killed after it counted flights 1 and 2 without a commit, counter-2 goes on."""
    scene = Scene("flights", partitions=4, flights=4, started_ms=0)
    for name in ("counter-1", "counter-2"):
        scene.start(name, now_ms=0)
        scene.hear(Said(name, Started(pid=4711)), now_ms=0)
    scene.produced = {0: 4}
    scene.hear(Said("counter-1", Counted((CountedRun(0, 0, ["UA", "B6", "UA"]),))), now_ms=0)
    scene.hear(Said("counter-1", Status("STABLE", 3, (0, 1, 2, 3))), now_ms=0)
    scene.kill("counter-1", now_ms=2_000)
    scene.act = "counter-1 is killed"
    scene.ledger.disappeared(Disappearance("counter-1", {0: 1}, "was killed"))
    scene.rebalances.append(Rebalance("counter-1 joined", group_epoch=1, members=1, duration_ms=210))
    scene.rebalances.append(Rebalance("counter-2 joined", group_epoch=2, members=2, duration_ms=190))
    return scene


def verdict_of(scene: Scene) -> Verdict:
    expected = Counter({"UA": 3, "B6": 1})
    return scene.ledger.verdict(expected=expected, produced=scene.produced, committed=scene.produced)


def test_the_live_table_shows_members_partitions_and_what_happened(scene: Scene) -> None:
    """The first thing that a person sees of the project."""
    console = Console(file=io.StringIO(), width=80, height=40, force_terminal=True, color_system=None, record=True)
    table = LiveTable(console)
    table.show(scene, elapsed_ms=2_100)
    table.close()
    text = console.export_text()
    assert "counted" in text
    assert "3 of 4 flights" in text
    assert "0 1 2 3" in text
    assert "counter-1 is killed" in text
    assert "2.0 s  counter-1    killed with SIGKILL" in text


def test_without_a_terminal_every_line_is_printed_once(scene: Scene) -> None:
    """In a CI log or a file a redrawn table would be unreadable."""
    stream = io.StringIO()
    screen, hint = open_screen(stream, json=False)
    assert isinstance(screen, PlainLines)
    assert hint is None
    screen.show(scene, elapsed_ms=100)
    scene.say("coordinator", "counter-1 was silent", now_ms=5_000)
    screen.show(scene, elapsed_ms=5_000)
    assert stream.getvalue().splitlines() == [
        "   0.0 s  counter-1    is started",
        "   0.0 s  counter-1    runs as process 4711",
        "   0.0 s  counter-2    is started",
        "   0.0 s  counter-2    runs as process 4711",
        "   2.0 s  counter-1    killed with SIGKILL, without leaving",
        "   5.0 s  coordinator  counter-1 was silent",
        "   5.0 s  demo         produced 4 of 4 flights, counted 3",
    ]


def test_a_terminal_without_rich_gets_plain_lines_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich comes with an extra: its absence must not be a traceback."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    screen, hint = open_screen(Terminal(), json=False)
    assert isinstance(screen, PlainLines)
    assert hint == "for a live table: pip install 'rich'"


def test_the_result_explains_what_was_counted_twice(scene: Scene) -> None:
    """Unexplained duplicates would make a reader distrust the client."""
    scene.ledger.count("counter-2", [CountedRun(0, 1, ["B6", "UA", "UA"])])
    assert describe_result(scene, verdict_of(scene)).splitlines() == [
        "carrier    data set    counted  of these twice  exact",
        "UA                3          4               1    yes",
        "B6                1          2               1    yes",
        "all               4          6               2    yes",
        "",
        "2 rebalances while records flowed; the slowest was over in 210 ms.",
        "2 flights (partition 0) were counted twice: counter-1 was killed before it",
        "  committed them, and the next owner began at the committed offset. That is",
        "  at-least-once delivery.",
        "Each counted once, the numbers are exactly those of the data set: 4 flights.",
    ]


def test_a_wrong_count_is_shouted(scene: Scene) -> None:
    """A demo that hides a lost record is worse than none."""
    text = describe_result(scene, verdict_of(scene))
    assert "The numbers are WRONG:\n  partition 0: offsets 3..3 were not counted" in text
    assert "UA                3          2               0     NO" in text
