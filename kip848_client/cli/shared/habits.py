"""What people write who know kcat and Kafka's own scripts, in our words. Only for errors: nothing is run for it.

``kip848 topics --list`` is told to write ``kip848 topics list``, and ``kip848 -b host:9092 -t orders -C`` to write
``kip848 consume orders --bootstrap host:9092``.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

_NAME: Final = ""
"""In place of an option: its value is an argument of ours that has no name."""

_WITH_VALUE: Final = {
    # kcat
    "-b": "--bootstrap",
    "-t": _NAME,
    "-o": "--from",
    "-p": "--partition",
    "-c": "--max",
    "-f": "--format",
    "-G": "--group",
    "-K": "--key-separator",
    "-k": "--key",
    "-H": "--header",
    "-r": "--registry",
    # kafka-console-consumer.sh and the like
    "--topic": _NAME,
    "--max-messages": "--max",
    "--offset": "--from",
    "--broker-list": "--bootstrap",
    "--consumer-property": "-X",
    "--producer-property": "-X",
    "--command-property": "-X",
    "--consumer-config": "-F",
    "--producer-config": "-F",
    "--consumer.config": "-F",
    "--producer.config": "-F",
    "--command-config": "-F",
}
_ALONE: Final[dict[str, tuple[str, ...]]] = {
    "-C": (),
    "-P": (),
    "-L": (),
    "-e": ("--until", "end"),
    "-J": ("--json",),
    "-u": (),
    "-Z": (),
    "--sync": (),
    "--all-groups": ("--all",),
    "--all-topics": (),
    "--if-not-exists": (),
    "--if-exists": (),
}
_LEFT_OUT: Final = frozenset({"--timeout-ms", "--formatter", "--zookeeper", "--request-timeout-ms"})
"""Options with a value that ours does not need."""
_PROPERTIES: Final = {
    "print.key=true": ("--format", "%k %s\\n"),
    "print.offset=true": ("--format", "%o %s\\n"),
    "print.partition=true": ("--format", "%p %s\\n"),
}
"""Of ``--property`` of the console consumer."""
_PLACES: Final = {"earliest": "beginning", "latest": "end", "stored": "end"}
_MODES: Final = {"-P": "produce", "-C": "consume", "-G": "consume", "-L": "topics", "-b": "consume", "-t": "consume"}


def as_we_write_it(prog: str, args: Sequence[str], *, known: Collection[str], actions: Collection[str]) -> str | None:
    """The command to write instead, or None if there is nothing foreign in *args*.

    Args:
        prog: the words before *args*, such as ``kip848 topics``.
        known: options that are ours.
        actions: what may come next; none if *args* are the options of a command.
    """
    words, args = prog.split(), list(args)
    if not actions:
        ours, changed = _translated(args, known=known)
        return shlex.join([*words, *ours]) if changed else None
    if not args or not args[0].startswith("-") or args[0] in known:
        return None
    if len(words) == 1:
        mode = next((mode for mode in _MODES if any(arg == mode or _glued(arg) == mode for arg in args)), None)
        if mode is None:
            return None
        ours, _ = _translated(args, known=known)
        if mode == "-L":
            words += ["topics", "describe" if "-t" in args else "list"]
        else:
            words.append(_MODES[mode])
        return shlex.join([*words, *ours])
    action = next((arg[2:] for arg in args if arg.startswith("--") and arg[2:] in actions), None)
    if action is None:
        return None
    if "--members" in args and "members" in actions:
        action = "members"
    rest = [arg for arg in args if arg[2:] not in actions or not arg.startswith("--")]
    named = {"--group"} if words[-1] == "groups" else set()
    topics_stay = {"--topic"} if words[-1] == "groups" else set()
    ours, _ = _translated(rest, known={*known, *topics_stay}, named=named)
    return shlex.join([*words, action, *ours])


def _translated(
    args: Sequence[str], *, known: Collection[str], named: Collection[str] = frozenset()
) -> tuple[list[str], bool]:
    """*args* in our words, names first; and whether anything was foreign."""
    names: list[str] = []
    options: list[str] = []
    changed = False
    left = list(args)
    while left:
        arg = left.pop(0)
        if arg == "--":
            options += [arg, *left]
            break
        option, equals, value = arg.partition("=")
        if not arg.startswith("--") and (short := _glued(arg)) is not None and short not in known:
            left.insert(0, arg[2:])
            arg = option = short
        if option in named or (option in _WITH_VALUE and option not in known):
            changed = True
            if not (equals and arg.startswith("--")):
                value = left.pop(0) if left else "..."
            ours = _NAME if option in named else _WITH_VALUE[option]
            if ours == "--from":
                value = _PLACES.get(value, value)
            if ours == _NAME:
                names.append(value)
            else:
                options += [ours, value]
        elif option == "--property" and option not in known:
            changed = True
            value = value if equals and arg.startswith("--property=") else left.pop(0) if left else ""
            if value.startswith("key.separator="):
                options += ["--key-separator", value.removeprefix("key.separator=")]
            options += _PROPERTIES.get(value, ())
        elif option in _LEFT_OUT and option not in known:
            changed = True
            if not equals and left:
                left.pop(0)
        elif arg in _ALONE and arg not in known:
            changed = True
            options += _ALONE[arg]
        elif arg.startswith("-"):
            options.append(arg)
            if not equals and left and not left[0].startswith("-"):
                options.append(left.pop(0))
        else:
            names.append(arg)
    return names + options, changed


def _glued(arg: str) -> str | None:
    """``-b`` of ``-bhost:9092``, which kcat takes."""
    return arg[:2] if len(arg) > 2 and arg[0] == "-" and arg[1] != "-" and arg[:2] in _WITH_VALUE else None
