"""Shows a watched group: a live table in a terminal, a line for each change elsewhere, or JSON. Decides nothing.

`rich` draws the live table; without it (it comes with the extra ``cli``) the lines are shown.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import sys
from typing import IO, TYPE_CHECKING, Final, Protocol

from kip848_client.cli.shared.tables import name_partitions
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.tools.groups.watch_view import LINES_KEPT, GroupView, MemberRow
from kip848_client.tools.shared.held_back import held_back_sentence

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
_BEHIND_MS: Final = 5_000
"""Shorter times are those between two questions for the lag, and between two commits."""
_STATE_STYLES: Final = {"Stable": "bold green", "Empty": "dim", "Dead": "bold red"}


class Screen(Protocol):
    """Where the group is shown."""

    def show(self, view: GroupView, *, now_ms: int) -> None:
        """Show the group as it is now; called often. Another *view* than before is shown as if it were the first."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found, with the last picture on it."""
        ...


def open_screen(stream: IO[str], *, json: bool) -> Screen:
    """Choose how to show a group on *stream*; say on stderr if something better could be had."""
    if json:
        return JsonLines(stream)
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines(stream)
    if importlib.util.find_spec("rich") is None:
        print("for a live table: pip install 'kip848_client[cli]'", file=sys.stderr)
        return PlainLines(stream)
    from rich.console import Console  # an extra, and slow to import

    return LiveTable(Console(file=stream))


class JsonLines:
    """The whole group as one JSON object a line, whenever something changed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._shown: tuple[GroupView, int] | None = None

    def show(self, view: GroupView, *, now_ms: int) -> None:
        """Print the group if it changed."""
        if (view, view.changes) != self._shown:
            self._shown = view, view.changes
            print(to_json(view.to_plain(now_ms=now_ms)), file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """The group as it is at first, then one line for everything that happens."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._view: GroupView | None = None
        self._said = 0

    def show(self, view: GroupView, *, now_ms: int) -> None:
        """Print the changes."""
        if view is not self._view:
            self._view = view
            self._first(view, now_ms)
        else:
            new = min(view.lines_said - self._said, len(view.lines))
            for line in list(view.lines)[len(view.lines) - new :]:
                self._print(line.ts_ms, line.text)
        self._said = view.lines_said

    def close(self) -> None:
        """Do nothing."""

    def _first(self, view: GroupView, now_ms: int) -> None:
        self._print(now_ms, _headline(view, now_ms=now_ms))
        for member in view.sorted_members():
            text = f"{member.name} has {name_partitions(member.owned)} since {_clock(member.since_ms)}"
            waits = _waits(view, member)
            self._print(now_ms, text + (f", waits for {waits}" if waits else ""))

    def _print(self, ts_ms: int, text: str) -> None:
        print(f"{_clock(ts_ms)}  {text}", file=self._stream, flush=True)


class LiveTable:
    """A table that is drawn again when something changed, and every second."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False)
        self._live.start()
        self._drawn: tuple[GroupView, int, int] | None = None

    def show(self, view: GroupView, *, now_ms: int) -> None:
        """Draw the group, unless that was done just now."""
        drawn = (view, view.changes, now_ms // 1000)
        if drawn != self._drawn:
            self._drawn = drawn
            self._live.update(draw(view, now_ms=now_ms), refresh=True)

    def close(self) -> None:
        """Stop."""
        self._live.stop()


def draw(view: GroupView, *, now_ms: int) -> RenderableType:
    """Draw the group: its state, its members, and what happened last."""
    from rich.console import Group
    from rich.text import Text

    colours = {member.name: _COLOURS[index % len(_COLOURS)] for index, member in enumerate(view.sorted_members())}
    headline = Text(no_wrap=True, overflow="ellipsis")
    headline.append(f"{printable(view.group_id)}  ", "bold")
    headline.append(printable(view.state), _STATE_STYLES.get(view.state, "bold yellow"))
    headline.append(
        _headline(view, now_ms=now_ms).removeprefix(f"{printable(view.group_id)} is {printable(view.state)}")
    )
    return Group(headline, Text(), _members(view, colours, now_ms=now_ms), Text(), *_lines(view, colours))


def _members(view: GroupView, colours: dict[str, str], *, now_ms: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    members = view.sorted_members()
    waits = [_waits(view, member) for member in members]
    # A narrow terminal has no room for columns that are empty most of the time.
    left_out = {"gives up"} if not any(member.pending for member in members) else set()
    left_out |= {"waits for"} if not any(waits) else set()
    for name in ("member", "host", "epoch", "state", "since", "owns", "gives up", "waits for", "lag", "committed"):
        if name not in left_out:
            table.add_column(name, justify="right" if name in {"epoch", "lag", "since", "committed"} else "left")
    for member, waits_for in zip(members, waits, strict=True):
        colour = colours[member.name]
        lag = view.lag(member.owned)
        cells: dict[str, RenderableType] = {
            "member": Text(member.name, colour),
            "host": Text(printable(member.host), "dim"),
            "epoch": "" if member.epoch is None else str(member.epoch),
            "state": Text(
                printable(member.state).lower().replace("_", " "), "green" if member.state == "STABLE" else "yellow"
            ),
            "since": _ago(now_ms - member.since_ms) if member.since_ms else "",
            "owns": Text(name_partitions(member.owned), f"bold {colour}"),
            "gives up": Text(name_partitions(member.pending) if member.pending else "", "yellow"),
            "waits for": Text(waits_for, "bold yellow"),
            "lag": "-" if lag is None else f"{lag:,}",
            "committed": Text(_committed(member, now_ms=now_ms), "bold red" if member.is_silent else ""),
        }
        table.add_row(*(cell for name, cell in cells.items() if name not in left_out))
    return table


def _lines(view: GroupView, colours: dict[str, str]) -> list[Text]:
    from rich.text import Text

    drawn = []
    for line in view.lines:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{_clock(line.ts_ms)}  ", "dim")
        text.append(line.text)
        for name, colour in colours.items():
            if line.text.startswith(name):
                text.stylize(colour, 14, 14 + len(name))
        drawn.append(text)
    return drawn + [Text() for _ in range(LINES_KEPT - len(drawn))]  # always as high, so that nothing jumps


def _headline(view: GroupView, *, now_ms: int) -> str:
    parts = [f"{printable(view.group_id)} is {printable(view.state)}"]
    if view.state_since_ms:
        parts[0] += f" for {_ago(now_ms - view.state_since_ms)}"
    if view.epoch is not None:
        parts.append(f"epoch {view.epoch}")
    parts.append(counted(len(view.members), "member"))
    if view.free:
        parts.append(f"{counted(len(view.free), 'partition')} without an owner")
    if view.progress:
        lag = view.lag(view.progress)
        parts.append("lag unknown" if lag is None else f"lag {lag:,}")
        behind_ms = view.behind_ms(now_ms=now_ms) or 0.0
        if behind_ms >= _BEHIND_MS:
            parts.append(f"{_ago(int(behind_ms))} behind")
        if view.lag_per_s is not None:
            parts.append(f"{'growing' if view.lag_per_s > 0 else 'shrinking'} by {abs(view.lag_per_s):,.1f}/s")
    if view.held:
        parts.append(held_back_sentence(view.held))
    rate = view.commits_per_s(now_ms=now_ms)
    return ", ".join(parts) + (f", {rate:.1f} commits/s" if rate else "")


def _waits(view: GroupView, member: MemberRow) -> str:
    return ", ".join(f"{name_partitions(wait.partitions)} of {wait.owner}" for wait in view.waits(member))


def _committed(member: MemberRow, *, now_ms: int) -> str:
    return "-" if member.commits is None else f"{_ago(now_ms - int(member.commits.last_ms))} ago"


def _clock(ts_ms: int) -> str:
    return dt.datetime.fromtimestamp(ts_ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]


def _ago(ms: int) -> str:
    seconds = max(0, ms) / 1000
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
