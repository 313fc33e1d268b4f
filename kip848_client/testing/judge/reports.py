"""A report as text, JSON, JUnit's XML, or one page of HTML with the first difference as a sequence diagram. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final
from xml.sax.saxutils import quoteattr

import msgspec

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.testing.judge.verdicts import Judgement, Outcome, Said, Verdict, by_chapter

_WIDTH: Final = 100
_COLOURS: Final = {Outcome.HOLDS: "#2e7d32", Outcome.DIFFERS: "#c62828", Outcome.CANNOT_BE_TRIED: "#757575"}
_LANE: Final = 260
_ARROW: Final = 44
_LABEL: Final = 40
"""Characters of a label's line in the diagram."""
_LABEL_LINE: Final = 14
_SHOWN: Final = 40
"""Arrows of a diagram, the last ones; before them stands how many are left out."""
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left; vertical-align: top; }
code, pre, svg text { font: 12px/1.4 ui-monospace, monospace; }
pre { white-space: pre-wrap; margin: .3rem 0; }
h2 { margin-top: 2rem; }
svg { max-width: 100%; height: auto; }
"""


def as_text(report: Judgement, *, verbose: bool = False) -> str:
    """Lines for a terminal: a line for each rule, and what differs in full.

    Args:
        verbose: also what was said before each difference.
    """
    lines = [f"{report.subject}, measured by {report.reference}"]
    lines += [f"  {name}: {value}" for name, value in report.facts.items()]
    for chapter, verdicts in by_chapter(report.verdicts).items():
        lines += ["", chapter]
        for verdict in verdicts:
            lines += _lines_of(verdict, verbose=verbose)
    lines += ["", f"{report.summary} ({report.duration_s:.1f} s)"]
    return "\n".join(printable(line) for line in lines)


def as_json(report: Judgement) -> str:
    """One JSON object: subject, reference, facts, duration in seconds, counts, and the verdicts."""
    verdicts = [
        {
            "rule": verdict.rule.number,
            "chapter": verdict.rule.chapter,
            "sentence": verdict.rule.plain_sentence,
            "source": verdict.rule.source,
            **{name: value for name, value in msgspec.structs.asdict(verdict).items() if name != "rule"},
        }
        for verdict in report.verdicts
    ]
    return to_json(
        {
            "subject": report.subject,
            "reference": report.reference,
            "facts": report.facts,
            "duration_s": report.duration_s,
            "counts": {outcome.value: len(report.of(outcome)) for outcome in Outcome},
            "verdicts": verdicts,
        }
    )


def as_junit(report: Judgement) -> str:
    """JUnit's XML as CI servers read it: a test case for each rule, by chapter."""
    skipped, failed = len(report.of(Outcome.CANNOT_BE_TRIED)), len(report.of(Outcome.DIFFERS))
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites><testsuite name={_attribute(report.subject)} tests="{len(report.verdicts)}" '
        f'failures="{failed}" skipped="{skipped}" errors="0" time="{report.duration_s:.3f}">',
    ]
    for verdict in report.verdicts:
        name = _attribute(f"{verdict.rule.name} {verdict.rule.plain_sentence}")
        chapter = _attribute(verdict.rule.chapter)
        case = f'<testcase classname={chapter} name={name} time="{verdict.duration_s:.3f}"'
        match verdict.outcome:
            case Outcome.HOLDS:
                lines.append(f"{case}/>")
            case Outcome.DIFFERS:
                told = _xml("\n".join(_difference(verdict) + _transcript(verdict.exchange)))
                lines.append(f"{case}><failure message={_attribute(verdict.seen)}>{told}</failure></testcase>")
            case Outcome.CANNOT_BE_TRIED:
                lines.append(f"{case}><skipped message={_attribute(verdict.why)}/></testcase>")
    return "\n".join([*lines, "</testsuite></testsuites>", ""])


def as_html(report: Judgement) -> str:
    """One page without anything from elsewhere: the rules as tables, and the first difference drawn."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_html(report.subject)}</title>",
        f"<style>{_STYLE}</style>",
        f"<h1>{_html(report.subject)}</h1>",
        f"<p><b>{_html(report.summary)}</b>, measured by {_html(report.reference)} in {report.duration_s:.1f} s.</p>",
    ]
    if report.facts:
        rows = "".join(f"<tr><th>{_html(name)}<td>{_html(value)}" for name, value in report.facts.items())
        parts.append(f"<table>{rows}</table>")
    if (first := report.first_difference) is not None:
        parts += [f"<h2>The first difference: {first.rule.name}</h2>", f"<p>{_html(first.rule.plain_sentence)}</p>"]
        parts += [_definitions(first), _diagram(first.exchange)]
    for chapter, verdicts in by_chapter(report.verdicts).items():
        parts.append(f"<h2>{_html(chapter)}</h2><table>")
        parts += [_row(verdict) for verdict in verdicts]
        parts.append("</table>")
    return "\n".join([*parts, "</html>", ""])


# --- text


def _lines_of(verdict: Verdict, *, verbose: bool) -> Iterator[str]:
    head = f"  {verdict.rule.name:5} {verdict.outcome.value}"
    match verdict.outcome:
        case Outcome.HOLDS:
            yield f"{head:24} {_short(verdict.rule.plain_sentence)}"
        case Outcome.DIFFERS:
            yield head
        case Outcome.CANNOT_BE_TRIED:
            yield f"{head}: {verdict.why}"
    yield from (f"        note: {note}" for note in verdict.notes)
    if verdict.outcome is Outcome.DIFFERS:
        yield from (f"        {line}" for line in _difference(verdict))
        if verbose:
            yield from (f"        {line}" for line in _transcript(verdict.exchange))


def _short(sentence: str) -> str:
    return textwrap.shorten(sentence, _WIDTH - 24, placeholder=" ...")


def _difference(verdict: Verdict) -> list[str]:
    return [
        verdict.rule.plain_sentence,
        f"asked:    {verdict.asked}",
        f"expected: {verdict.expected}",
        f"seen:     {verdict.seen}",
    ]


def _transcript(exchange: Sequence[Said]) -> list[str]:
    return [
        f"{said.sender}: {said.text}"
        if said.sender == said.receiver
        else f"{said.sender} -> {said.receiver}: {said.text}"
        for said in exchange
    ]


# --- XML and HTML


def _xml(text: str) -> str:
    """Text for XML, which has no room for most control characters."""
    return escape(printable(text, keep="\n"), quote=False)


def _attribute(text: str) -> str:
    return quoteattr(printable(text))


def _html(text: str) -> str:
    return escape(printable(text))


def _definitions(verdict: Verdict) -> str:
    rows = (("asked", verdict.asked), ("expected", verdict.expected), ("seen", verdict.seen))
    return "<table>" + "".join(f"<tr><th>{name}<td><code>{_html(text)}</code>" for name, text in rows) + "</table>"


def _row(verdict: Verdict) -> str:
    told = _html(verdict.rule.plain_sentence)
    told += "".join(f"<br><small>{_html(note)}</small>" for note in verdict.notes)
    if verdict.why:
        told += f"<br><small>{_html(verdict.why)}</small>"
    if verdict.outcome is Outcome.DIFFERS:
        spoken = "\n".join(_transcript(verdict.exchange))
        told += (
            _definitions(verdict)
            + f"<details><summary>the conversation</summary><pre>{_html_lines(spoken)}</pre></details>"
        )
    colour = _COLOURS[verdict.outcome]
    return f'<tr><th>{verdict.rule.name}<td style="color: {colour}">{verdict.outcome.value}<td>{told}'


def _html_lines(text: str) -> str:
    return escape(printable(text, keep="\n"))


def _diagram(exchange: Sequence[Said]) -> str:
    """A sequence diagram as SVG: a lane for each end, an arrow for each message."""
    if not exchange:
        return ""
    shown = exchange[-_SHOWN:]
    ends = list(dict.fromkeys(end for said in shown for end in (said.sender, said.receiver)))
    lanes = {end: _LANE // 2 + index * _LANE for index, end in enumerate(ends)}
    parts: list[str] = []
    y = 30
    for index, said in enumerate(shown):
        label = textwrap.wrap(printable(said.text), _LABEL) or [""]
        colour = _COLOURS[Outcome.DIFFERS] if index == len(shown) - 1 else "currentColor"
        one, other = lanes[said.sender], lanes[said.receiver]
        middle, anchor = ((one + other) // 2, "middle") if one != other else (one + 6, "start")
        for line in label:
            y += _LABEL_LINE
            parts.append(f'<text x="{middle}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(line)}</text>')
        y += 8
        if one != other:
            tip = other - 8 if other > one else other + 8
            parts.append(f'<line x1="{one}" y1="{y}" x2="{tip}" y2="{y}" stroke="{colour}"/>')
            parts.append(f'<path d="M{other} {y} L{tip} {y - 4} L{tip} {y + 4} Z" fill="{colour}"/>')
        y += _ARROW - 2 * _LABEL_LINE
    height, width = y + 20, _LANE * len(ends)
    rails = [
        f'<line x1="{x}" y1="26" x2="{x}" y2="{height}" stroke="currentColor" stroke-opacity=".3"/>'
        f'<text x="{x}" y="18" text-anchor="middle" font-weight="bold" fill="currentColor">{_html(end)}</text>'
        for end, x in lanes.items()
    ]
    left_out = len(exchange) - len(shown)
    before = f"<p>After {left_out} messages that are left out:</p>" if left_out else ""
    return (
        f'{before}<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"{''.join(rails)}{''.join(parts)}</svg>"
    )
