"""The command ``kip848``: finds the subcommand, imports only its module, and runs it.

A subcommand is a line in `COMMANDS` and a module in the folder ``commands`` of its house, with

* ``add_arguments(parser)``: its options,
* ``run(arguments) -> int``: its exit status. It may raise `Kip848Error`: the message is shown and the status is 1.

Modules are imported only when their command is asked for, so that ``kip848 broker`` does not load librdkafka. A command
whose house is not installed is left out of the help.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kip848_client.cli.shared.parser import Parser, declare_when_given
from kip848_client.common.plain_text import printable
from kip848_client.common.version import __version__
from kip848_client.errors import Kip848Error

COMMANDS: Final[dict[str, str]] = {
    "tools.commands.acls": "who may do what: list, create and delete access rules",
    "tools.commands.assignor": "check a client-side assignor, and draw its result",
    "testing.commands.broker": "run the embedded broker until SIGTERM or Ctrl-C",
    "tools.commands.cluster": "the nodes of a cluster, its controller and its features",
    "cli.completion": "let a shell complete commands and options",
    "tools.commands.config": "check a file of properties: what is understood, and whether the login works",
    "tools.commands.consume": "print records: as a member of a group, or of any partitions, from and until any place",
    "tools.commands.groups": "list, describe, watch, export and delete groups; show lag, reset offsets",
    "testing.commands.judge": "whether a broker, or a client, keeps the rules of KIP-848",
    "tools.commands.produce": "write records to a topic: arguments, lines or JSON",
    "tools.commands.report": "turn event logs into figures, a page or a picture: who read which partition when",
    "tools.commands.retries": "what waits in retry topics and dead letters, by error; replay, drop or move it",
    "testing.commands.simulate": "play a group with faults on a virtual clock, from one seed or thousands",
    "spark.commands.sweep": "play many thousands of seeds on Spark, and keep the results as Parquet",
    "tools.commands.topics": "create, list, describe, change and delete topics",
    "tools.commands.transactions": "show open transactions and whom they hold back; abort them",
    "tools.commands.workers": "show which process runs which unit, since when and with which token; drain a process",
}
"""Module below `kip848_client`, which has the name of its subcommand -> its line in the help."""


_PACKAGE: Final = Path(__file__).resolve().parents[1]
_CANNOT_BE_WRITTEN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: the process's) and return the exit status.

    Usage errors end the process with status 2, as argparse does.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    parser = _parser()
    _write_utf8()
    try:
        try:
            if not arguments:
                parser.print_help(sys.stderr)
                return 2
            return _run(parser.parse_args(arguments))
        finally:
            sys.stdout.flush()  # here, also after --help: at the end of the interpreter we could not word the error
    except OSError as error:
        if _reader_has_gone(error):
            _drop_stdout()
            sys.stderr.close()  # end silently
            return 141
        if error.errno not in _CANNOT_BE_WRITTEN:
            raise
        _drop_stdout()
        print(f"kip848: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def whole_parser() -> argparse.ArgumentParser:
    """The command line with the options of every subcommand."""
    parser = _parser()
    parser.declare_all()
    return parser


def _parser() -> Parser:
    parser = Parser(prog="kip848", description="Kafka's next-generation consumer groups (KIP-848): broker and tools.")
    parser.add_argument("--version", action="version", version=f"kip848 {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module, help_text in COMMANDS.items():
        if not _is_there(module):
            continue
        name = module.rpartition(".")[2]
        subparser = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        declare_when_given(subparser, functools.partial(_declare, module))
    return parser


def _is_there(module: str) -> bool:
    """Whether the file of a subcommand is installed. Imports nothing of its house."""
    return _PACKAGE.joinpath(*module.split(".")).with_suffix(".py").is_file()


def _declare(name: str, parser: argparse.ArgumentParser) -> None:
    module = importlib.import_module(f"kip848_client.{name}")
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)


def _run(parsed: argparse.Namespace) -> int:
    try:
        return int(parsed.run(parsed))
    except Kip848Error as error:
        print(f"kip848 {parsed.command}: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _open_what_is_closed() -> None:
    """Let a command run without standard streams, as after ``>&-``. A connection would take the number of one."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nothing)


def _write_utf8() -> None:
    """Write UTF-8 into files and pipes; Windows would take a code page that lacks most characters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


def _reader_has_gone(error: OSError) -> bool:
    """Whether the other end of the pipe that takes our output was closed."""
    if sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None:
        return True
    return isinstance(error, BrokenPipeError)


def _drop_stdout() -> None:
    """Discard the rest of the output, which the interpreter would try to write again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
