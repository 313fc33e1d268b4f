"""``kip848 report --period``: periods of a log side by side, as text, JSON, a page or a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.errors import Kip848Error
from kip848_client.tools.report.periods import Comparison, comparison_lines, summary_of
from kip848_client.tools.report.png import draw_periods
from kip848_client.tools.report.summary import render_summary


def tell_comparison(comparison: Comparison, arguments: argparse.Namespace) -> int:
    """Print periods side by side, and draw them if options ask for it.

    Raises:
        Kip848Error: a file cannot be written.
    """
    if arguments.html is not None:
        try:
            arguments.html.write_text(render_summary(summary_of(comparison)), encoding="utf-8")
        except OSError as error:
            raise Kip848Error(f"the page cannot be written: {error}") from error
    if arguments.png is not None:
        draw(comparison, arguments.png)
    if arguments.json:
        print(to_json(comparison.to_plain()))
        return 0
    print("\n".join(map(printable, comparison_lines(comparison))))
    for path in (arguments.html, arguments.png):
        if path is not None:
            print(f"written: {path}")
    return 0


def draw(comparison: Comparison, path: Path) -> None:
    """Draw the periods into a file.

    Raises:
        Kip848Error: it cannot be written, or matplotlib is missing.
    """
    try:
        draw_periods(comparison.periods, path)
    except Kip848Error:
        raise
    except (OSError, ValueError) as error:
        raise Kip848Error(f"the picture cannot be written: {error}") from error
