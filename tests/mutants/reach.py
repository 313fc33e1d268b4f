"""Which statements of the cores each play executes, without any mutant.

A mutant in a statement that a play does not reach cannot change that play: it is not played. And what hardly any play
reaches is no target. The cores are imported with a mark before every statement; that costs a quarter of the speed, and
the result is kept in `.cache/mutants/` for as long as no line of the package changes.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.mutants.generated import Mutation, blocks, functions
from tests.mutants.plays import Play, plays
from tests.mutants.sources import CACHE, ROOT, ChangedModules, digest_of_sources, modules

_MARKS: Final = "__statements_reached__"

Place = tuple[str, int, int]
"""Module, line and column where a statement begins."""


class Reach:
    """For each statement the plays that execute it.

    Args:
        places: every statement of a function.
        masks: for each play a number; bit n stands for statement n of *places*.
    """

    def __init__(self, places: Sequence[Place], masks: Sequence[int]) -> None:
        self._index = {place: number for number, place in enumerate(places)}
        self._masks = masks
        self._by_statement: dict[int, list[int]] = {}

    @property
    def statements(self) -> int:
        """How many statements there are."""
        return len(self._index)

    def plays_of(self, mutation: Mutation) -> list[int]:
        """Numbers of the plays that execute the statement that *mutation* changes, ascending."""
        number = self._index[mutation.module, mutation.line, mutation.column]
        known = self._by_statement.get(number)
        if known is None:
            bit = 1 << number
            known = self._by_statement[number] = [play for play, mask in enumerate(self._masks) if mask & bit]
        return known

    def how_often(self) -> list[int]:
        """For each statement the number of plays that execute it."""
        counts = [0] * len(self._index)
        for mask in self._masks:
            for number, digit in enumerate(reversed(bin(mask)[2:])):
                counts[number] += digit == "1"
        return counts


def reach(count: int, *, progress: Callable[[int], None] = lambda _done: None, keep: bool = True) -> Reach:
    """Play the first *count* plays, or read what the last time found.

    Args:
        progress: called with the number of plays that are done.
        keep: False plays in any case, and keeps nothing.
    """
    if not keep:
        return _read(_ask(count, progress))
    kept = CACHE / f"reach-{digest_of_sources()}-{count}.json"
    if not kept.exists():
        found = _ask(count, progress)
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in kept.parent.glob(f"reach-*-{count}.json"):
            old.unlink()
        kept.write_text(json.dumps(found))
    return _read(json.loads(kept.read_text()))


def _read(read: dict[str, Any]) -> Reach:
    places = [(module, line, column) for module, line, column in read["places"]]
    return Reach(places, [int(mask, 16) for mask in read["masks"]])


def _ask(count: int, progress: Callable[[int], None]) -> dict[str, list[Any]]:
    """In a process of its own: the cores must not have been imported before."""
    command = [sys.executable, "-m", "tests.mutants.reach", str(count)]
    found: dict[str, list[Any]] = {"places": [], "masks": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                found["places"] = json.loads(line)
            else:
                found["masks"].append(line.strip())
                progress(len(found["masks"]))
    if process.returncode or len(found["masks"]) != count:
        raise RuntimeError("the plays without a mutant ended in an error, see above")
    return found


def main() -> None:
    """Play, and write a line for each play."""
    count = int(sys.argv[1])
    names = modules()
    places: list[Place] = []
    given: dict[str, dict[str, object]] = {}
    marks: dict[str, bytearray] = {}

    def change(module: str, tree: ast.Module) -> ast.Module:
        return _with_marks(tree)

    from tests.mutants.sources import path_of

    for name in names:
        statements = _statements(ast.parse(path_of(name).read_bytes()))
        places += [(name, statement.lineno, statement.col_offset) for statement in statements]
        marks[name] = bytearray(len(statements))
        given[name] = {_MARKS: marks[name]}
    sys.meta_path.insert(0, ChangedModules(names, change, given=given))
    print(json.dumps(places), flush=True)

    from kip848_client.simulation import run, scenario_of

    for play in plays(count):
        _play(play, run, scenario_of)
        bits = b"".join(bytes(marks[name]) for name in names)
        print(f"{int(bits[::-1].translate(_DIGITS) or b'0', 2):x}", flush=True)
        for name in names:
            marks[name][:] = bytes(len(marks[name]))


_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def _play(play: Play, run, scenario_of) -> None:  # type: ignore[no-untyped-def]
    report = run(scenario_of(play.scenario, seed=play.seed, changes=play.changes), seed=play.seed, keep_history=False)
    if report.violation is not None:
        raise RuntimeError(f"without any mutant: {report.violation}; {play.command}")


def _statements(tree: ast.Module) -> list[ast.stmt]:
    found: list[ast.stmt] = []

    def collect(block: list[ast.stmt]) -> None:
        for statement in block:
            found.append(statement)
            for inner in blocks(statement):
                collect(inner)

    for _, node in functions(tree):
        collect(node.body)
    return found


def _with_marks(tree: ast.Module) -> ast.Module:
    numbers = {id(statement): number for number, statement in enumerate(_statements(tree))}

    def mark(block: list[ast.stmt]) -> None:
        for statement in block:
            for inner in blocks(statement):
                mark(inner)
        block[:] = [one for statement in block for one in (_mark(numbers[id(statement)]), statement)]

    for _, node in functions(tree):
        mark(node.body)
    return tree


def _mark(number: int) -> ast.stmt:
    return ast.parse(f"{_MARKS}[{number}] = 1").body[0]


if __name__ == "__main__":
    main()
