"""Public names can be imported and read, and what we show to users imports nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kip848_client
from kip848_client.testing import FaultRule, Faults, RequestLog
from tests.source.public_names import PAGE, ROOT, public_names

TOP_LEVEL_MAX = 64
"""Consumers of groups, of queues and workers, each with its health and its exceptions, are 62 names."""

SHOWN = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")])


@pytest.mark.parametrize("module", public_names())
def test_what_a_public_module_exports_can_be_imported(module: str) -> None:
    """A name in ``__all__`` that is not there breaks ``from module import *`` and the reference."""
    for name in public_names()[module]:
        getattr(importlib.import_module(module), name)


def test_the_top_level_stays_small_enough_to_be_read() -> None:
    """Completion after ``kip848_client.`` is the first page that a newcomer reads."""
    assert len(public_names()["kip848_client"]) <= TOP_LEVEL_MAX
    assert set(dir(kip848_client)) == set(public_names()["kip848_client"])


@pytest.mark.parametrize("module", public_names())
def test_signatures_name_what_users_have(module: str) -> None:
    """``help(Admin.lag)`` began with ``(cluster: Cluster``, which no caller passes or can import."""
    values = [getattr(importlib.import_module(module), name) for name in public_names()[module]]
    for kind in filter(inspect.isclass, values):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and method.__module__.startswith("kip848_client"):
                signature = inspect.signature(method)
                assert not re.search(r"\b_[A-Z]", str(signature)), f"{kind.__name__}.{name}{signature}"
                if not isinstance(inspect.getattr_static(kind, name), staticmethod):
                    assert next(iter(signature.parameters)) == "self", f"{kind.__name__}.{name}{signature}"


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_users_copy_imports_public_names_only(path: Path) -> None:
    """An import that users copy from a page or an example must still work after the next version."""
    public = public_names()
    for module, name in _imports(path):
        assert module in public, f"{module} is not on the page {PAGE.name}"
        assert name is None or name in public[module], f"{module}.{name} is not on the page {PAGE.name}"


def _imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Every (module, name) of this library that the Python code of a file imports."""
    text = path.read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if path.suffix == ".md" else [text]
    for code in codes:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names if alias.name.startswith("kip848_client"))
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kip848_client"):
                yield from ((str(node.module), alias.name) for alias in node.names)


def test_rules_and_requests_complete_to_what_a_test_calls() -> None:
    """A newcomer learns `broker.faults` and `broker.requests` by completion; what only the broker calls misleads."""
    assert _completed(Faults) == ["check", "clear", "on", "seed"]
    assert _completed(FaultRule) == ["cancel", "check", "held", "hits", "matches", "release", "spent", "wait"]
    assert _completed(RequestLog) == ["dump", "forgotten", "mark", "of", "wait_for"]


def _completed(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]
