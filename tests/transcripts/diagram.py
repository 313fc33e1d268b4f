"""Sequence diagrams of transcripts, in Mermaid's language."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby
from typing import Final

from tests.transcripts.language import FOLDER, parse, perform
from tests.transcripts.world import COORDINATOR, World

WIDTH: Final = 48
"""Longest line of a label, in characters: the longest one decides how small a page shows the whole picture."""


def sequence_diagram(name: str, *, first_command: str | None = None, last_text: str | None = None) -> str:
    """The conversation *name* as a fenced Mermaid diagram; an arrow that repeats is drawn once.

    Args:
        first_command: the commands before this one are played, and not drawn.
        last_text: the drawing ends with the first arrow or note that says this.
    """
    world = World()
    blocks = parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    for command in (command for block in blocks for command in block.commands):
        if command == first_command:
            world.arrows.clear()
        perform(world, command)
        world.settle()
    arrows = world.arrows
    if last_text is not None:
        arrows = arrows[: [text for _, _, text in arrows].index(last_text) + 1]
    seen = {end for source, target, _ in arrows for end in (source, target)} - {COORDINATOR}
    members = sorted(seen)
    order = [*members[:1], COORDINATOR, *members[1:]]
    lines = ["```mermaid", "sequenceDiagram", *(f"    participant {name}" for name in order)]
    for (source, target, text), repeated in groupby(arrows):
        count = len(list(repeated))
        safe = text.replace(";", ",").replace("#", "") + (f" ({count} times)" if count > 1 else "")
        safe = "<br/>".join(_wrapped(safe))
        if source == target:
            lines.append(f"    Note over {source}: {safe}")
        elif source == COORDINATOR:
            lines.append(f"    {source}-->>{target}: {safe}")
        else:
            lines.append(f"    {source}->>{target}: {safe}")
    return "\n".join([*lines, "```"])


def _wrapped(text: str) -> list[str]:
    """The lines of a label, which end after a comma where they can."""
    lines = [""]
    for part in re.split(r"(?<=, )", text):
        if len(lines[-1]) + len(part.rstrip()) > WIDTH:
            lines.append("")
        lines[-1] += part
    return [short for line in lines if line for short in textwrap.wrap(line, WIDTH)]
