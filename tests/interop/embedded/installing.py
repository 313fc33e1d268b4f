"""Clients of others, installed once into the cache by their own package managers."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

PEERS: Final = Path(__file__).parent / "peers"
CACHE: Final = Path.home() / ".cache" / "kip848_client" / "peers"
INSTALL_TIMEOUT_S: Final = 300
GO_MODULES: Final = {
    "kafka_go": "kafka-go-0.4.47",
    "franz_go": "franz-go-1.18.1",
    "franz_go_share": "franz-go-1.22.3",
    "franz_go_transactions": "franz-go-transactions-1.22.3",
    "sarama": "sarama-1.45.1",
}
"""Folder of a program in Go -> what its build is called in the cache."""


def installed(name: str, install: Callable[[Path], None], *, source: Path | None = None) -> Path:
    """The folder *name* of the cache, made by *install* if it is not there; one test process at a time.

    Args:
        source: a file that it is made from; a change of the file makes another folder.
    """
    if source is not None:
        name = f"{name}-{zlib.crc32(source.read_bytes()):08x}"
    CACHE.mkdir(parents=True, exist_ok=True)
    folder, done = CACHE / name, CACHE / f"{name}.done"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            done.touch()
    return folder


def run(*command: str, cwd: Path | None = None, timeout_s: float = INSTALL_TIMEOUT_S) -> list[str]:
    """Run a program and return the lines that it printed; one that fails shows what it said."""
    if shutil.which(command[0]) is None:
        pytest.fail(f"{command[0]} is not installed; this test needs it")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=cwd, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stdout}\n{ended.stderr}"
    return ended.stdout.split()


def go_program(peer: str) -> list[str]:
    """The program of a Go client, built."""

    def install(folder: Path) -> None:
        shutil.copytree(PEERS / peer, folder)
        run("go", "build", "-o", "reader", ".", cwd=folder)

    return [str(installed(GO_MODULES[peer], install, source=PEERS / peer / "main.go") / "reader")]
