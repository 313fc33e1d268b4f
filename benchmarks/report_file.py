"""What all benchmarks share: their options, the machine they ran on, and where the result goes. Measures nothing."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TASK_TIMEOUT_S = 240.0
LINE_MAX = 240
"""Characters of a line in a kept result."""


def options(doc: str | None) -> argparse.ArgumentParser:
    """``--quick``, ``--json-file`` and the hidden ``--task`` of `in_a_process`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: to see that it works")
    parser.add_argument("--json-file", type=Path, help="keep the result here")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    return parser


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def versions(*names: str) -> dict[str, str]:
    """Versions of the installed ones."""
    found = {}
    for name in ("kip848_client", *names):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def keep(result: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Write the result where the caller wants it."""
    if arguments.json_file is not None:
        arguments.json_file.write_text(as_text(result) + "\n", encoding="utf-8")


def as_text(value: Any, indent: str = "") -> str:
    """JSON in which a case of a table is one line."""
    line = json.dumps(value)
    if len(indent) + len(line) <= LINE_MAX or not isinstance(value, Mapping | Sequence) or isinstance(value, str):
        return line
    inner = indent + "  "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(key)}: {as_text(each, inner)}" for key, each in value.items()]
    else:
        parts = [as_text(each, inner) for each in value]
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def in_a_process(script: str, task: Mapping[str, Any], *, python: str = sys.executable) -> Any:
    """Run ``script --task {...}``, which prints one JSON value, in a process of its own.

    Raises:
        RuntimeError: it failed; the message is what it wrote.
    """
    done = subprocess.run(
        [python, script, "--task", json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=TASK_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} could not do {task}:\n{done.stderr}")
    return json.loads(done.stdout)


def median(values: Sequence[float], digits: int = 3) -> float:
    """The median, rounded."""
    return round(statistics.median(values), digits)


def table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns; the first row is the heading, the first column stands left."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    for row in texts:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip(), flush=True)
