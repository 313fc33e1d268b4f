"""What Spark starts Python workers from, in tests: its own daemon, but for what it does after each task.

A full collection of garbage takes a worker fifty milliseconds, which is more than any task of a test takes.
"""

from __future__ import annotations

from types import SimpleNamespace

from pyspark import daemon

if __name__ == "__main__":
    daemon.gc = SimpleNamespace(collect=lambda: 0)  # type: ignore[attr-defined, assignment]
    daemon.manager()
