"""`Parser`: argparse's, whose commands declare their options only when their command is given."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from kip848_client.cli.shared.habits import as_we_write_it

Declare: TypeAlias = Callable[[argparse.ArgumentParser], None]


class _StoreOnce(argparse.Action):
    """An option with one value: given twice, argparse would forget the first one without a word."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        assert isinstance(parser, Parser)
        before = parser.given.setdefault(self.dest, values)
        if before != values and not parser.last_counts:
            raise argparse.ArgumentError(self, f"takes one value, and was given {before} and {values}")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Reports if its help cannot be written. argparse would drop the error of an unbuffered output.

    The subcommand itself refuses unknown options, because its own usage helps more than that of all commands.
    """

    _declare: Declare | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.given: dict[str, Any] = {}
        self.last_counts = False
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what is not known."""
        self._declare_now()
        self.given.clear()
        given = sys.argv[1:] if args is None else list(args)
        actions = [
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        ]
        instead = as_we_write_it(self.prog, given, known=self._option_string_actions, actions=actions)
        if instead is not None:
            self.error(f"these are options of kcat or of Kafka's scripts; write: {instead}")
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unknown argument: {' '.join(unknown)}{hint}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command, and name the one that was meant."""
        choices = list(action.choices or ())
        if isinstance(action, argparse._SubParsersAction) and value not in choices:
            near = difflib.get_close_matches(str(value), choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else f" (choose from {', '.join(choices)})"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")
        super()._check_value(action, value)

    def declare_all(self) -> None:
        """Declare the options of every command, as a shell needs them."""
        self._declare_now()
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    command.declare_all()

    def _declare_now(self) -> None:
        if self._declare is not None:
            declare, self._declare = self._declare, None
            declare(self)

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)


def declare_when_given(command: argparse.ArgumentParser, declare: Declare) -> None:
    """Have *declare* add the options of a command if it is given, so that others do not import what it imports."""
    assert isinstance(command, Parser)
    command._declare = declare  # noqa: SLF001  argparse makes it


def let_the_last_count(command: argparse.ArgumentParser) -> None:
    """Let an option of *command* that is given twice have its last value: the first one is that of an image."""
    assert isinstance(command, Parser)
    command.last_counts = True
