"""The output of the demo: a live table in a terminal, plain lines elsewhere, and the result. Decides nothing.

`rich` draws the live table; without it (``make demo`` installs it) the plain lines are shown.
"""

from __future__ import annotations

import importlib.util
import os
import textwrap
from typing import IO, TYPE_CHECKING, Final, Protocol

from demo.ledger import Verdict
from demo.scene import Fate, Scene, WorkerView, name_partitions

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

FRAMES_PER_SECOND: Final = 10
LINES_SHOWN: Final = 12
STATUS_EVERY_MS: Final = 2_000
_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


class Screen(Protocol):
    """Where the demo is shown."""

    def show(self, scene: Scene, *, elapsed_ms: int) -> None:
        """Show the scene as it is now; called often."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found, with the last picture on it."""
        ...


class NoScreen:
    """Shows nothing: for ``--json``."""

    def show(self, scene: Scene, *, elapsed_ms: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """One line for everything that happens, and one for the progress every two seconds."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._said = 0
        self._status_due_ms = STATUS_EVERY_MS

    def show(self, scene: Scene, *, elapsed_ms: int) -> None:
        """Print what is new."""
        new = scene.lines_said - self._said
        self._said = scene.lines_said
        for line in list(scene.lines)[len(scene.lines) - new :]:
            self._print(line.elapsed_ms, f"{line.actor:<12} {line.text}")
        if elapsed_ms >= self._status_due_ms:
            self._status_due_ms = elapsed_ms + STATUS_EVERY_MS
            counted = scene.ledger.distinct
            text = f"produced {scene.produced_total:,} of {scene.flights:,} flights, counted {counted:,}"
            self._print(elapsed_ms, f"{'demo':<12} {text}")

    def close(self) -> None:
        """Do nothing."""

    def _print(self, elapsed_ms: int, text: str) -> None:
        print(f"{elapsed_ms / 1000:6.1f} s  {text}", file=self._stream, flush=True)


class LiveTable:
    """A table that is drawn again ten times a second."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # rich is an extra, and slow to import

        self._live = Live(console=console, auto_refresh=False)
        self._live.start()
        self._due_ms = 0
        self._last: tuple[Scene, int] | None = None

    def show(self, scene: Scene, *, elapsed_ms: int) -> None:
        """Draw the scene, unless that was done just now."""
        self._last = (scene, elapsed_ms)
        if elapsed_ms >= self._due_ms:
            self._due_ms = elapsed_ms + 1000 // FRAMES_PER_SECOND
            self._live.update(draw(scene, elapsed_ms=elapsed_ms), refresh=True)

    def close(self) -> None:
        """Draw what was shown last, and stop."""
        if self._last is not None:
            scene, elapsed_ms = self._last
            self._live.update(draw(scene, elapsed_ms=elapsed_ms), refresh=True)
        self._live.stop()


def open_screen(stream: IO[str], *, json: bool) -> tuple[Screen, str | None]:
    """Choose how to show the demo on *stream*.

    Returns:
        The screen, and a hint for the user if something better could be had.
    """
    if json:
        return NoScreen(), None
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(stream), None
    if importlib.util.find_spec("rich") is None:
        return PlainLines(stream), "for a live table: pip install 'rich'"
    from rich.console import Console

    return LiveTable(Console(file=stream)), None


# --- the live table


def draw(scene: Scene, *, elapsed_ms: int) -> RenderableType:
    """Draw the scene: progress, members with their partitions, and what happened last. Fits 80 columns."""
    from rich.console import Group
    from rich.text import Text

    return Group(_progress(scene, elapsed_ms=elapsed_ms), Text(), _members(scene), Text(), *_lines(scene))


def _progress(scene: Scene, *, elapsed_ms: int) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    headline = Text(no_wrap=True, overflow="ellipsis")
    headline.append(f"{elapsed_ms / 1000:6.1f} s  ", "dim")
    headline.append(scene.act, "bold")
    bars = Table.grid(padding=(0, 1))
    for name, done in (("produced", scene.produced_total), ("counted", scene.ledger.distinct)):
        bar = ProgressBar(total=max(1, scene.flights), completed=done, width=36, finished_style="green")
        bars.add_row(f"{name:>10}", bar, f"{done:>8,} of {scene.flights:,} flights")
    page = [Text(f"as a page: {scene.page}", "dim")] if scene.page else []
    return Group(headline, *page, Text(), bars)


def _members(scene: Scene) -> Table:
    from rich.table import Table

    title = f"group of topic {scene.topic}: {scene.group_state}, group epoch {scene.group_epoch}"
    table = Table(
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
    )
    table.add_column("member", no_wrap=True)
    table.add_column("process", no_wrap=True, min_width=8)
    table.add_column("state", no_wrap=True, min_width=11)
    table.add_column("epoch", justify="right")
    table.add_column("partitions", no_wrap=True)
    table.add_column("lag", justify="right", min_width=6)
    table.add_column("counted", justify="right", min_width=7)
    for number, worker in enumerate(scene.workers.values()):
        colour = _COLOURS[number % len(_COLOURS)]
        gone = worker.fate.gone
        table.add_row(
            f"[{colour}]{worker.name}[/]",
            f"[bold red]{worker.fate.value}[/]" if worker.fate is Fate.KILLED else worker.fate.value,
            worker.state if not gone else "",
            str(worker.member_epoch) if worker.state and not gone else "",
            _strip(scene, worker, colour),
            f"{scene.lag(worker.owned):,}" if worker.owned else "",
            f"{scene.ledger.counted_by(worker.name):,}",
            style="dim" if gone and worker.fate is not Fate.KILLED else "",
        )
    return table


def _strip(scene: Scene, worker: WorkerView, colour: str) -> Text:
    """The worker's partitions by number, a dot for each that is not its own; struck out while they have no reader."""
    from rich.text import Text

    strip = Text()
    for number in range(scene.partitions):
        owned = number in worker.owned
        style = "dim" if not owned else "bold red strike" if worker.fate is Fate.KILLED else f"bold {colour}"
        strip.append(str(number) if owned else "·".rjust(len(str(number))), style)
        if number + 1 < scene.partitions:
            strip.append(" ")
    return strip


def _lines(scene: Scene) -> list[Text]:
    from rich.text import Text

    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(scene.workers)}
    shown = list(scene.lines)[-LINES_SHOWN:]
    drawn = []
    for line in shown:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{line.elapsed_ms / 1000:6.1f} s  ", "dim")
        text.append(f"{line.actor:<13}", colours.get(line.actor, "bold"))
        text.append(line.text)
        drawn.append(text)
    return drawn + [Text() for _ in range(LINES_SHOWN - len(shown))]  # always as high, so that nothing jumps


# --- the result


def describe_result(scene: Scene, verdict: Verdict) -> str:
    """Write the result for people: the carriers, what was counted twice and why, and whether all is exact."""
    rows = [f"{'carrier':<8} {'data set':>10} {'counted':>10} {'of these twice':>15} {'exact':>6}"]
    for carrier, expected in sorted(verdict.expected.items(), key=lambda item: (-item[1], item[0])):
        counted, distinct = verdict.counted[carrier], verdict.distinct[carrier]
        exact = "yes" if distinct == expected else "NO"
        rows.append(f"{carrier:<8} {expected:>10,} {counted:>10,} {counted - distinct:>15,} {exact:>6}")
    totals = (verdict.expected.total(), verdict.counted.total(), verdict.repeated)
    rows.append(f"{'all':<8} {totals[0]:>10,} {totals[1]:>10,} {totals[2]:>15,} {'yes' if verdict.ok else 'NO':>6}")
    return "\n".join([*rows, "", *_sentences(scene, verdict)])


def _sentences(scene: Scene, verdict: Verdict) -> list[str]:
    settled = [rebalance for rebalance in scene.rebalances if rebalance.members]
    slowest_ms = max((rebalance.duration_ms for rebalance in settled), default=0)
    sentences = [f"{len(settled)} rebalances while records flowed; the slowest was over in {slowest_ms:,} ms."]
    for reason in sorted({duplicate.reason for duplicate in verdict.duplicates if duplicate.reason is not None}):
        where = [duplicate.where for duplicate in verdict.duplicates if duplicate.reason == reason]
        partitions = name_partitions({run.partition for run in where})
        sentences.append(
            f"{sum(run.records for run in where):,} flights (partition {partitions}) were counted twice: {reason}, and "
            "the next owner began at the committed offset. That is at-least-once delivery."
        )
    if verdict.ok:
        once = "Each counted once, the numbers" if verdict.repeated else "The numbers"
        sentences.append(f"{once} are exactly those of the data set: {verdict.distinct.total():,} flights.")
    else:
        sentences += ["The numbers are WRONG:", *(f"  {difference}" for difference in verdict.differences())]
    return [textwrap.fill(sentence, 79, subsequent_indent="  ", break_on_hyphens=False) for sentence in sentences]


def result_object(scene: Scene, verdict: Verdict, *, duration_ms: int) -> dict[str, object]:
    """The result for programs: what ``--json`` prints."""
    return {
        "ok": verdict.ok,
        "differences": verdict.differences(),
        "duration_ms": duration_ms,
        "flights": scene.flights,
        "partitions": scene.partitions,
        "counts": {
            carrier: {
                "data_set": expected,
                "counted": verdict.counted[carrier],
                "distinct": verdict.distinct[carrier],
            }
            for carrier, expected in sorted(verdict.expected.items())
        },
        "duplicates": [
            {
                "partition": duplicate.where.partition,
                "first_offset": duplicate.where.first_offset,
                "last_offset": duplicate.where.last_offset,
                "first_by": duplicate.first_by,
                "again_by": duplicate.again_by,
                "reason": duplicate.reason,
            }
            for duplicate in verdict.duplicates
        ],
        "rebalances": [
            {
                "reason": rebalance.reason,
                "group_epoch": rebalance.group_epoch,
                "members": rebalance.members,
                "duration_ms": rebalance.duration_ms,
            }
            for rebalance in scene.rebalances
        ],
        "members": [
            {"name": worker.name, "fate": worker.fate.value, "counted": scene.ledger.counted_by(worker.name)}
            for worker in scene.workers.values()
        ],
    }
