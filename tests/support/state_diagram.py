"""Diagrams and tables of the member's states, drawn from the rows that the code runs on.

Owns the drawing only; where it is shown is `protocol_document`'s business. Syntax: Mermaid's ``stateDiagram-v2``.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterable

from kip848_client.member.states import MEMBER, PHASE_ROWS, TRANSITIONS, MemberState, Phase, PhaseRow

"""Phases that share their ways out, drawn as one box."""


def docstrings(cls: type[enum.Enum]) -> dict[str, str]:
    """The text below each member of an enum, by name; Python itself does not keep it."""
    found: dict[str, str] = {}
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def state_diagram() -> str:
    """The five public states and the moves between them."""
    labels: defaultdict[tuple[MemberState, MemberState], list[str]] = defaultdict(list)
    for row in TRANSITIONS:
        labels[row.source, row.dest].append(row.trigger)
    lines = [f"    [*] --> {MemberState.UNJOINED.name}"]
    lines += [f"    {source.name} --> {dest.name}: {', '.join(labels[source, dest])}" for source, dest in labels]
    return _mermaid(lines)


def phase_diagram() -> str:
    """All phases and every legal move; what all phases of a member have in common leaves their box as one arrow."""
    inner, outer = [], []
    for (source, dest), triggers in _by_ends(row for row in PHASE_ROWS if not is_shared(row)):
        line = f"{source.name} --> {dest.name}: {', '.join(triggers)}"
        if source in MEMBER and dest in MEMBER:
            inner.append(f"        {line}")
        else:
            outer.append(f"    {line}")
    shared = [f"    MEMBER --> {dest.name}: {trigger}" for trigger, dest in shared_triggers().items()]
    box = ['    state "joining, or in the group" as MEMBER {', *inner, "    }"]
    return _mermaid([f"    [*] --> {Phase.IDLE.name}", *box, *shared, *outer])


def state_table() -> str:
    """Each public state, and what it means."""
    rows = ["| state | meaning |", "| --- | --- |"]
    rows += [f"| {name} | {text} |" for name, text in docstrings(MemberState).items()]
    return "\n".join(rows)


def shared_triggers() -> dict[str, Phase]:
    """Moves that every phase of a member can make, to the same end."""
    sources: defaultdict[tuple[str, Phase], set[Phase]] = defaultdict(set)
    for row in PHASE_ROWS:
        sources[row.trigger, row.dest].add(row.source)
    return {trigger: dest for (trigger, dest), its_sources in sources.items() if its_sources == MEMBER}


def is_shared(row: PhaseRow) -> bool:
    """Whether the box of a member's phases shows this move for all of them."""
    return row.source in MEMBER and shared_triggers().get(row.trigger) is row.dest


def _by_ends(rows: Iterable[PhaseRow]) -> list[tuple[tuple[Phase, Phase], list[str]]]:
    labels: defaultdict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for row in rows:
        labels[row.source, row.dest].append(row.trigger)
    return list(labels.items())


def _mermaid(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])
