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

from kip848_client.member.core.states import MEMBER, PHASE_ROWS, TRANSITIONS, MemberState, Phase, PhaseRow


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
    lines = [f"[*] --> {MemberState.UNJOINED.name}"]
    return _mermaid([*lines, *(_arrow(source, dest, labels[source, dest]) for source, dest in labels)])


def membership_diagram() -> str:
    """Joining, leaving, being removed: what all phases of a member have in common leaves their box as one arrow."""
    rows = [row for row in PHASE_ROWS if not is_shared(row) and not _is_inside(row)]
    shared = [f"MEMBER --> {dest.name}: {trigger}" for trigger, dest in shared_triggers().items()]
    box = ['state "joining, or in the group" as MEMBER', f"{Phase.JOINING.name} --> MEMBER"]
    return _mermaid([f"[*] --> {Phase.IDLE.name}", *_arrows(rows), *box, *shared])


def reconciliation_diagram() -> str:
    """From one assignment to the next, as in both protocols."""
    rows = [row for row in PHASE_ROWS if _is_inside(row) and not _is_classic(row)]
    return _mermaid([f"[*] --> {Phase.JOINING.name}", *_arrows(rows)])


def classic_diagram() -> str:
    """The moves that only a member of the classic protocol makes."""
    return _mermaid(_arrows(row for row in PHASE_ROWS if _is_inside(row) and _is_classic(row)))


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


def _is_inside(row: PhaseRow) -> bool:
    return row.source in MEMBER and row.dest in MEMBER


def _is_classic(row: PhaseRow) -> bool:
    return row.trigger == "taken_up" or bool({row.source, row.dest} & {Phase.REJOIN_DUE, Phase.REJOINING})


def _arrows(rows: Iterable[PhaseRow]) -> list[str]:
    labels: defaultdict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for row in rows:
        labels[row.source, row.dest].append(row.trigger)
    return [_arrow(source, dest, triggers) for (source, dest), triggers in labels.items()]


def _arrow(source: enum.Enum, dest: enum.Enum, triggers: list[str]) -> str:
    # A line for each trigger: Mermaid draws a label as wide as its longest line, and wide labels cover each other.
    return f"{source.name} --> {dest.name}: {'<br/>'.join(triggers)}"


def _mermaid(lines: list[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"])
