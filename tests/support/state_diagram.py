"""Diagrams and tables of the member's states, made from the rows that the code runs on.

The ``transitions`` library draws, as Mermaid; this file selects the rows of each diagram. `protocol_document` puts them
into the pages.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterable

from transitions.extensions import GraphMachine

from kip848_client.member.core.states import (
    MEMBER,
    PHASE_ROWS,
    STATES,
    TRANSITIONS,
    MemberState,
    Phase,
    PhaseRow,
    Transition,
)


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
    return _mermaid(_arrows(TRANSITIONS), first=MemberState.UNJOINED.name)


def membership_diagram() -> str:
    """Joining, leaving, being removed: what all phases of a member have in common leaves their box as one arrow."""
    rows = [row for row in PHASE_ROWS if not is_shared(row) and not _is_inside(row)]
    shared = [(trigger, "MEMBER", dest.name) for trigger, dest in shared_triggers().items()]
    box = ['state "joining, or in the group" as MEMBER', f"{Phase.JOINING.name} --> MEMBER"]
    return _mermaid([*_arrows(rows), *shared], first=Phase.IDLE.name, more=box)


def reconciliation_diagram() -> str:
    """From one assignment to the next, as in both protocols."""
    rows = [row for row in PHASE_ROWS if _is_inside(row) and not _is_classic(row)]
    return _mermaid(_arrows(rows), first=Phase.JOINING.name)


def classic_diagram() -> str:
    """The moves that only a member of the classic protocol makes."""
    return _mermaid(_arrows(row for row in PHASE_ROWS if _is_inside(row) and _is_classic(row)))


def state_table() -> str:
    """Each public state, what it means, and its phases."""
    rows = ["| state | meaning | phases |", "| --- | --- | --- |"]
    meanings = docstrings(MemberState)
    rows += [
        f"| {state.name} | {meanings[state.name]} | {', '.join(phase.name for phase in phases)} |"
        for state, phases in STATES.items()
    ]
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


def _arrows(rows: Iterable[PhaseRow | Transition]) -> list[tuple[str, str, str]]:
    return [(row.trigger, row.source.name, row.dest.name) for row in rows]


def _mermaid(arrows: list[tuple[str, str, str]], *, first: str | None = None, more: Iterable[str] = ()) -> str:
    names = dict.fromkeys(name for _, source, dest in arrows for name in (source, dest))
    machine = GraphMachine(
        states=list(names),
        initial=first or next(iter(names)),
        transitions=[[trigger, source, dest] for trigger, source, dest in arrows],
        auto_transitions=False,
        graph_engine="mermaid",
    )
    drawing: str = machine.get_graph().draw(None)
    # Without the colours, which fit light pages only. A line for each trigger: Mermaid draws a label as wide as its
    # longest line, and wide labels cover each other.
    lines = [line.strip().replace(" | ", "<br/>") for line in drawing.splitlines() if " --> " in line]
    if first is None:
        lines = [line for line in lines if not line.startswith("[*]")]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in [*more, *lines]), "```"])
