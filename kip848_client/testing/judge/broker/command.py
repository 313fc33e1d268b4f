"""``kip848 judge broker``: hold the conversations with a broker, and print a verdict for each rule.

::

    kip848 judge broker --bootstrap 127.0.0.1:9092
    kip848 judge broker --bootstrap 127.0.0.1:9092 --rule R427 --rule R428 --verbose
    kip848 judge broker --bootstrap 127.0.0.1:9092 --restart 'docker compose restart kafka'
    kip848 judge broker --bootstrap 127.0.0.1:9092 --junit junit.xml --html judge.html

The exit status is 0 if no rule differs, 1 if one does, and 3 if none could be tried.
"""

from __future__ import annotations

import argparse
import subprocess

from kip848_client.cli.shared.properties import add_client_arguments, read_properties
from kip848_client.common.addresses import parse_bootstrap
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.testing.judge.broker.conversations import STORIES
from kip848_client.testing.judge.broker.judge import judge_broker
from kip848_client.testing.judge.broker.story import Story
from kip848_client.testing.judge.output import add_report_arguments, write_report

RESTART_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--restart", metavar="COMMAND", help="a shell command that restarts the broker, for rules about what survives"
    )
    parser.add_argument(
        "--rule",
        metavar="R412",
        action="append",
        default=[],
        help="try only this rule, and those that it needs; may be repeated",
    )
    add_report_arguments(parser)
    add_client_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge the broker.

    Raises:
        ConfigError: an option is wrong.
        Kip848Error: no broker answers, or it offers no consumer groups.
    """
    properties = read_properties(arguments)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise ConfigError(f"security.protocol is {protocol}: give a listener without encryption and logins (PLAINTEXT)")
    address, *_ = parse_bootstrap(properties["bootstrap.servers"])
    command = arguments.restart
    report = judge_broker(
        str(address),
        stories=_chosen(arguments.rule),
        restart=None if command is None else lambda: _restart(command),
    )
    return write_report(report, arguments)


def _chosen(names: list[str]) -> tuple[Story, ...]:
    if not names:
        return STORIES
    known = {story.rule for story in STORIES}
    wanted = set()
    for name in names:
        number = name.upper().removeprefix("R")
        if not number.isdigit() or int(number) not in known:
            raise ConfigError(f"--rule {name!r} is no rule that is tried; R{min(known)} to R{max(known)} are")
        wanted.add(int(number))
    while more := {need for story in STORIES if story.rule in wanted for need in story.needs} - wanted:
        wanted |= more
    return tuple(story for story in STORIES if story.rule in wanted)


def _restart(command: str) -> None:
    try:
        done = subprocess.run(  # noqa: S602  # the user's own command
            command,
            shell=True,
            timeout=RESTART_S,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise Kip848Error(f"{command!r} did not end within {RESTART_S:g} s") from error
    if done.returncode:
        raise Kip848Error(f"{command!r} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
