"""The page of groups beside the demo, by ``kip848 groups serve``, if what it needs is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEEDED: Final = ("starlette", "uvicorn", "prometheus_client")
"""The extra ``page`` of the package."""
_CHILD: Final = """
import os, sys, threading
def end():
    sys.stdin.read()  # until the demo has ended, however that was
    os._exit(0)
threading.Thread(target=end, daemon=True).start()
from kip848_client.cli import main
sys.exit(main(["groups", "serve", "--listen", "127.0.0.1:0", "--bootstrap", sys.argv[1]]))
"""


@contextmanager
def page_of(bootstrap_servers: str) -> Iterator[str]:
    """Serve the page until the block ends; yields its address, empty if there is no page."""
    if not all(map(importlib.util.find_spec, NEEDED)):
        yield ""
        return
    command = [sys.executable, "-c", _CHILD, bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().strip()
        finally:
            process.kill()
