"""What every judge does with its report: the options that say where it goes, and writing it there."""

from __future__ import annotations

import argparse
from pathlib import Path

from kip848_client.errors import ConfigError
from kip848_client.testing.judge.reports import as_html, as_json, as_junit, as_text
from kip848_client.testing.judge.verdicts import Judgement


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, ``--junit``, ``--html`` and ``--verbose``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write the verdicts as JUnit's XML")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write one page with all rules")
    parser.add_argument("--verbose", action="store_true", help="show what was said before each difference")


def write_report(report: Judgement, arguments: argparse.Namespace) -> int:
    """Print *report* and write the files that were asked for; the exit status.

    Raises:
        ConfigError: a file cannot be written.
    """
    for path, text in ((arguments.junit, as_junit), (arguments.html, as_html)):
        if path is not None:
            try:
                path.write_text(text(report), encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    print(as_json(report) if arguments.json else as_text(report, verbose=arguments.verbose))
    return report.exit_status
