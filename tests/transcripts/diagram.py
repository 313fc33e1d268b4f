"""Sequence diagrams of transcripts, in Mermaid's language."""

from __future__ import annotations

from tests.transcripts.language import FOLDER, parse, perform
from tests.transcripts.world import COORDINATOR, World


def sequence_diagram(name: str, *, first_command: str | None = None) -> str:
    """The conversation *name* as a fenced Mermaid diagram.

    Args:
        first_command: what comes before this command is played, and not drawn.
    """
    world = World()
    for block in parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8")):
        for command in block.commands:
            if command == first_command:
                world.arrows.clear()
            perform(world, command)
            world.settle()
    seen = {end for source, target, _ in world.arrows for end in (source, target)} - {COORDINATOR}
    members = sorted(seen)
    order = [*members[:1], COORDINATOR, *members[1:]]
    lines = ["```mermaid", "sequenceDiagram", *(f"    participant {name}" for name in order)]
    for source, target, text in world.arrows:
        safe = text.replace(";", ",").replace("#", "")
        if source == target:
            lines.append(f"    Note over {source}: {safe}")
        elif source == COORDINATOR:
            lines.append(f"    {source}-->>{target}: {safe}")
        else:
            lines.append(f"    {source}->>{target}: {safe}")
    return "\n".join([*lines, "```"])
