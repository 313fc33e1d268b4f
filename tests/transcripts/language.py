"""The language of transcripts: a block of commands, ``----``, and what came of them, up to an empty line.

Lines that begin with ``#`` are for readers. The commands are the rows of `COMMANDS`; ``docs/contributing.md`` shows an
example. `python -m tests.transcripts` (``make transcripts``) writes the outcomes anew; a person reads the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kip848_client.assignors.library.from_server import Uniform
from kip848_client.common.model import NamedPartition
from tests.transcripts.world import World

FOLDER: Final = Path(__file__).parent / "conversations"
_SEPARATOR: Final = "----"


class Block(msgspec.Struct, frozen=True):
    """Commands and their outcome; or, without commands, text for readers.

    Args:
        text: what stands before the separator, as it was written.
    """

    text: tuple[str, ...]
    commands: tuple[str, ...]
    outcome: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """Take a transcript apart.

    Raises:
        ValueError: commands without a separator.
    """
    blocks = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        if _SEPARATOR in lines:
            at = lines.index(_SEPARATOR)
            before, outcome = lines[:at], lines[at + 1 :]
        else:
            before, outcome = lines, []
        commands = tuple(line for line in before if not line.startswith("#"))
        if commands and _SEPARATOR not in lines:
            raise ValueError(f"commands without {_SEPARATOR} after them: {commands}")
        blocks.append(Block(tuple(before), commands, tuple(outcome)))
    return blocks


def play(text: str) -> tuple[str, World]:
    """Perform the commands of a transcript.

    Returns:
        The transcript with the outcomes as they are now, and the world at its end.
    """
    world = World()
    written = []
    for block in parse(text):
        if not block.commands:
            written.append("\n".join(block.text))
            continue
        for command in block.commands:
            perform(world, command)
            world.settle()
        outcome = world.take_lines() or ["(nothing)"]
        written.append("\n".join([*block.text, _SEPARATOR, *outcome]))
    world.harness.verify_log()
    return "\n\n".join(written) + "\n", world


def transcripts() -> Iterator[Path]:
    """All files, sorted."""
    yield from sorted(FOLDER.glob("*.txt"))


def rewrite() -> int:
    """Write every transcript's outcomes anew. Returns how many files changed."""
    changed = 0
    for path in transcripts():
        before = path.read_text(encoding="utf-8")
        after, _ = play(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"rewritten: {path.name}")
            changed += 1
    return changed


def perform(world: World, command: str) -> None:
    """Perform one command.

    Raises:
        ValueError: there is no such command.
    """
    for pattern, action in COMMANDS:
        match = re.fullmatch(pattern, command.strip())
        if match:
            action(world, match)
            return
    known = "\n  ".join(pattern for pattern, _ in COMMANDS)
    raise ValueError(f"no such command: {command!r}; there are\n  {known}")


Action = Callable[[World, "re.Match[str]"], object]


def _subscribe(world: World, match: re.Match[str]) -> None:
    name = match["name"]
    if name not in world.consumers:
        config: dict[str, object] = {}
        if match["instance"]:
            config["instance_id"] = match["instance"]
        if match["options"] and "auto-commit" in match["options"]:
            config["auto_commit_interval_ms"] = 5000
        if match["interval"]:
            config["max_poll_interval_ms"] = config["rebalance_timeout_ms"] = int(match["interval"])
        if match["classic"]:
            world.start_classic(name, config, match["classic"])
        assignors = (Uniform(),) if match["options"] and "client-side assignor" in match["options"] else ()
        if not match["classic"]:
            world.start(name, config, assignors)
    world.consumers[name].subscribe(re.split(r",\s*", match["topics"]))


def _poll(world: World, match: re.Match[str]) -> None:
    for name in match["names"].split(", "):
        world.consumers[name].poll()


def _partition(text: str) -> NamedPartition:
    topic, _, index = text.rpartition("-")
    return NamedPartition(topic, int(index))


def _crash(world: World, match: re.Match[str]) -> None:
    world.consumers.pop(match["name"])


def _reach(world: World, match: re.Match[str]) -> None:
    world.consumers[match["name"]].reachable = match["how"] == "is connected again"


def _lose(world: World, match: re.Match[str]) -> None:
    world.answers_to_lose[match["name"]].append(match["api"] or "")


def _fail_listener(world: World, match: re.Match[str]) -> None:
    world.consumers[match["name"]].failing_callback = match["callback"]


COMMANDS: Final[list[tuple[str, Action]]] = [
    (r"topic (?P<topic>\S+) with (?P<count>\d+) partitions?",
     lambda w, m: w.harness.create_topic(m["topic"], partitions=int(m["count"]))),
    (r"topic (?P<topic>\S+) grows to (?P<count>\d+) partitions",
     lambda w, m: w.harness.add_partitions(m["topic"], partitions=int(m["count"]))),
    (r"topic (?P<topic>\S+) is deleted", lambda w, m: w.harness.delete_topic(m["topic"])),
    (r"(?P<name>\w+) subscribes to pattern (?P<pattern>\S+)",
     lambda w, m: w.start(m["name"]).subscribe([], pattern=m["pattern"])),
    (r"(?P<name>\w+) subscribes to (?P<topics>[^\s,]+(?:, [^\s,]+)*?)(?: as instance (?P<instance>\w+))?"
     r"(?: with a poll interval of (?P<interval>\d+) ms)?(?: with (?P<options>auto-commit|a client-side assignor))?"
     r"(?: on the classic protocol with (?P<classic>range|roundrobin|cooperative-sticky))?",
     _subscribe),
    (r"(?P<names>\w+(?:, \w+)*) polls?", _poll),
    (r"(?P<name>\w+) has processed (?P<partition>\S+) up to (?P<offset>\d+)",
     lambda w, m: w.consumers[m["name"]].consume(_partition(m["partition"]), int(m["offset"]))),
    (r"(?P<name>\w+) commits (?P<partition>\S+) at (?P<offset>\d+)",
     lambda w, m: w.consumers[m["name"]].commit(_partition(m["partition"]), int(m["offset"]))),
    (r"(?P<name>\w+) unsubscribes", lambda w, m: w.consumers[m["name"]].leave(closing=False)),
    (r"(?P<name>\w+) closes", lambda w, m: w.consumers[m["name"]].leave(closing=True)),
    (r"(?P<name>\w+) crashes", _crash),
    (r"(?P<name>\w+) (?P<how>is cut off|is connected again)", _reach),
    (r"the next (?:(?P<api>\w+) )?answer to (?P<name>\w+) is lost", _lose),
    (r"(?P<name>\w+)'s (?P<callback>on_partitions_\w+) will raise", _fail_listener),
    (r"time (?P<ms>\d+) ms", lambda w, m: w.advance(int(m["ms"]))),
    (r"the coordinator restarts", lambda w, m: w.harness.restart()),
]  # fmt: skip
"""Pattern of a command -> what it does."""
