"""What neither ruff nor import-linter can say of the package: calls of pure cores, how threads are made, names."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "kip848_client"
PURE: Final = (
    *("member", "assignors", "common/model.py"),
    *("testing/coordinator", "testing/simulation", "testing/partitions", "testing/faults"),
)
"""Places without sockets, clocks, threads and unseeded randomness; their imports: the contract `pure-cores`."""


def test_a_core_reads_no_clock_and_draws_no_hidden_randomness() -> None:
    """The simulation proves something for users only if the cores depend on nothing but their inputs."""
    faults = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if not any(path.is_relative_to(PACKAGE / place) for place in PURE):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                call = f"{node.value.id}.{node.attr}"
                hidden = node.value.id == "random" and node.attr != "Random"
                if hidden or call in {"uuid.uuid1", "uuid.uuid4", "datetime.now", "datetime.utcnow"}:
                    faults.append(f"{path}: a core calls {call}")
    assert not faults, "\n".join(faults)


def test_every_thread_has_a_context_of_its_own() -> None:
    """One that was made otherwise works in every test, and not on Python without the GIL (`daemon_thread`)."""
    faults = [
        str(path)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if "threading.Thread" in (*_called(node), *_derived_from(node))
    ]
    assert faults == [str(PACKAGE / "common/daemon_thread.py")]


def test_the_name_of_a_class_means_one_thing() -> None:
    """A reader who searches for a class finds it, and not another one. A name with an underscore ends with its file."""
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(PACKAGE / "wire/messages")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = {name for name, count in names.items() if count > 1}
    assert twice == {"Consumer", "Message"}  # with confluent_kafka's signatures; for type checkers and at run time


def _called(node: ast.AST) -> list[str]:
    return [ast.unparse(node.func)] if isinstance(node, ast.Call) else []


def _derived_from(node: ast.AST) -> list[str]:
    return [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
