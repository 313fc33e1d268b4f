"""Follow README's first page, block by block, in a clean environment without Java and without caches.

What the page shows is what runs here: each block is found in README by the heading above it, so one that is added
without a line in `PAGE` fails.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_ports

README = Path(__file__).resolve().parents[2] / "README.md"
TIMEOUT_S = 60
ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1):9092")

SERVICE = """
import threading
from kip848_client import Consumer

def start_my_service(bootstrap_servers):
    def run():
        with Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "orders",
                       "auto.commit.interval.ms": 100}) as consumer:
            consumer.subscribe(["orders"])
            while not stopping.is_set():
                consumer.poll(0.1)
    stopping = threading.Event()
    threading.Thread(target=run, daemon=True).start()
"""
"""What README's test calls the reader's own service."""


class Block(NamedTuple):
    """A block of README: the heading it stands under, its language and its text."""

    heading: str
    language: str
    text: str


class Newcomer:
    """A person with a terminal, the installed package and nothing else.

    Args:
        python: the interpreter of the environment in which the wheel is installed, with pytest.
        folder: an empty folder; home and working directory.
    """

    def __init__(self, python: Path, folder: Path) -> None:
        self._python, self._folder = python, folder
        # Only the environment's own programs: no Java, no other Python, no compiler.
        self._environment = {"PATH": str(python.parent), "HOME": str(folder), "LANG": "C.UTF-8"}
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        self._broker: subprocess.Popen[str] | None = None
        self._consumer = ""

    def read(self) -> int:
        """Follow the page; return how many blocks were run."""
        blocks = blocks_of(README.read_text(encoding="utf-8"))
        followed = {heading: iter(steps) for heading, steps in PAGE.items()}
        try:
            for block in blocks:
                step = next(followed.get(block.heading, iter(())), None)
                if step is None:
                    raise SystemExit(f"packaging: no step follows a block of README:\n{block.heading}\n{block.text}")
                step(self, ADDRESS.sub(self._address, block.text))
        finally:
            self._stop_broker()
        left = [heading for heading, steps in followed.items() if next(steps, None) is not None]
        if left:
            raise SystemExit(f"packaging: README has fewer blocks than are followed under {left}")
        return len(blocks)

    def skip(self, text: str) -> None:
        """CI runs this one by itself (make demo, make test), or has done it already (pip install)."""

    def start_broker(self, text: str) -> None:
        """Run the first command in the background until it says that it serves."""
        (command,) = commands_of(text)
        self._broker = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._broker.stdout is not None
        line = self._broker.stdout.readline()
        if self._address not in line:
            raise SystemExit(f"packaging: the broker said {line!r}")

    def type(self, text: str) -> None:
        """Run the commands one after the other."""
        for command in commands_of(text):
            self._run(command)

    def keep(self, text: str) -> None:
        """Put the consumer aside until there is a broker."""
        self._consumer = text

    def produce_and_consume(self, text: str) -> None:
        """Produce two records; run the consumer, which never ends, until it printed them; then press Ctrl-C."""
        self.type(text)
        # A shell starts background jobs with Ctrl-C switched off, and children inherit that; so switch it on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        program = subprocess.Popen(
            [str(self._python), "-u", "-c", self._consumer],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert program.stdout is not None
        printed = "".join(program.stdout.readline() for _ in range(2))
        program.send_signal(signal.SIGINT)
        rest, _ = program.communicate(timeout=TIMEOUT_S)
        if "hello" not in printed or "world" not in printed:
            raise SystemExit(f"packaging: README's consumer printed {printed + rest}")

    def test(self, text: str) -> None:
        """Run pytest on it."""
        (self._folder / "test_first.py").write_text(SERVICE + text, encoding="utf-8")
        self._run([str(self._python), "-m", "pytest", "-q", "test_first.py"], expected="1 passed")

    def _run(self, command: list[str], *, expected: str = "") -> None:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        if done.returncode != 0 or expected not in done.stdout:
            raise SystemExit(f"packaging: README's {command} exited with {done.returncode}\n{done.stdout}{done.stderr}")

    def _stop_broker(self) -> None:
        if self._broker is not None:
            self._broker.terminate()
            self._broker.communicate(timeout=TIMEOUT_S)


PAGE: dict[str, list[Callable[[Newcomer, str], None]]] = {
    "A consumer in ten lines": [Newcomer.keep],
    "A test in ten lines": [Newcomer.test],
    "Install": [Newcomer.skip],
    "First steps": [Newcomer.start_broker, Newcomer.produce_and_consume, Newcomer.type, Newcomer.skip],
}
"""Heading of README -> what is done with each of its blocks, in order."""


def blocks_of(markdown: str) -> list[Block]:
    """Find the console and Python blocks of *markdown* in order."""
    found = re.finditer(
        r"^## (?P<heading>[^\n]*)$|^```(?P<language>console|python)\n(?P<text>.*?)^```", markdown, re.M | re.S
    )
    heading, blocks = "", []
    for match in found:
        if match["heading"]:
            heading = match["heading"]
        else:
            blocks.append(Block(heading, match["language"], match["text"]))
    return blocks


def commands_of(text: str) -> list[list[str]]:
    """Split the lines that begin with ``$`` as a shell does."""
    return [shlex.split(line[2:], comments=True) for line in text.splitlines() if line.startswith("$ ")]
