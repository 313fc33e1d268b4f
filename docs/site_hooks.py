"""Pages of the site that are made from the code: README as the first page, the reference, settings, the command line.

Loaded by mkdocs (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import inspect
import io
import os
import re
from pathlib import Path
from typing import Final, get_type_hints

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from kip848_client import Admin, journal
from kip848_client.cli import COMMANDS, main
from kip848_client.common.logs import LogEvent
from kip848_client.common.telemetry import (
    COORDINATOR_METRICS,
    GAUGES,
    MESSAGING_METRICS,
    METRICS,
    PROCESS_GAUGES,
    PROCESS_METRICS,
    SHARE_GAUGES,
    WORKER_GAUGES,
    WORKER_METRICS,
)
from kip848_client.spark.analytics.analytics import TABLES
from kip848_client.spark.analytics.figure_rows import FIGURE_TABLES
from kip848_client.testing.broker.apis import load_apis
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig, properties_of
from kip848_client.wire.api_keys import ApiKey

ROOT: Final = Path(__file__).resolve().parents[1]

MERMAID: Final = "javascripts/mermaid.js"

REFERENCE: Final = {
    "consumers": ("Consumers and workers", ("kip848_client", "kip848_client.confluent")),
    "admin": ("Administration", ("kip848_client.admin",)),
    "testing": ("Test kit", ("kip848_client.testing",)),
    "assignors": (
        "Assignors",
        ("kip848_client.assignors", "kip848_client.assignors.library", "kip848_client.assignors.streams"),
    ),
    "errors": ("Errors", ("kip848_client.errors",)),
    "simulation": ("Simulation", ("kip848_client.testing.simulation",)),
    "journal": ("Event log", ("kip848_client.journal",)),
    "spark": ("Spark", ("kip848_client.spark",)),
}
"""Page -> its title, and the public modules that it describes."""


NOT_SEARCHED: Final = ("changelog", "protocol")
WEIGHTS: Final = {
    "configuration": 4,  # who searches for a key wants its row
    **dict.fromkeys(("architecture", "contributing", "differences", "performance", "simulation"), 0.0005),
    **dict.fromkeys(("reference", "examples"), 0.001),
    "reference/errors": 1,  # names from a traceback are looked up
}
"""Pages, or folders of them -> their weight in the search. Guides have 1, and what contributors read comes last.

A word of a heading counts a thousand times as much as one of a text.
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give each example an entry of its own before the reference, and say the version at the foot of each page."""
    config.copyright = f"kip848_client {importlib.metadata.version('kip848_client')}"
    entries = [{_title(example): f"examples/{example.stem}.md"} for example in _examples()]
    assert config.nav is not None
    config.nav.insert([next(iter(entry)) for entry in config.nav].index("Reference"), {"Examples": entries})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the examples, and mermaid, which the theme fetches otherwise."""
    pages = {
        "index.md": _readme(),
        "reference/cli.md": _cli(),
        "reference/broker-configuration.md": _settings(),
        "reference/events.md": _events(),
        "reference/metrics.md": _metrics(),
        "reference/broker-apis.md": _apis(),
        "reference/report-tables.md": _tables(),
    }
    described: set[str] = set()
    for name, (title, modules) in REFERENCE.items():
        path = f"reference/{name}.md"
        pages[path] = _reference(title, modules, described)
        if written := files.get_file_from_path(path):  # by hand; what the docstrings say stands below
            pages[path] = written.content_string + pages[path].replace(f"# {title}", "## Classes")
            files.remove(written)
    for example in _examples():
        pages[f"examples/{example.stem}.md"] = _example(example)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    mermaid = str(importlib.metadata.distribution("mermaidx").locate_file("mermaidx/assets/mermaid.js"))
    files.append(File.generated(config, MERMAID, abs_src_path=mermaid))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to examples lead to their pages, name other files of the repository without a link, rank the page."""
    name = page.file.src_uri.removesuffix(".md")
    weight = WEIGHTS.get(name, WEIGHTS.get(name.partition("/")[0], 1))
    page.meta["search"] = {"boost": weight, "exclude": name in NOT_SEARCHED}
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\((?:\.\./)+examples/(\w+)\.py\)", rf"]({up}examples/\1.md)", markdown)
    if page.file.src_uri == "reference/index.md":
        markdown += _names()
    markdown = re.sub(r"\]\(\.\./kip848_client/(?:common/logs|journal)\.py\)", "](reference/events.md)", markdown)
    markdown = re.sub(r"\]\(\.\./kip848_client/common/telemetry\.py\)", "](reference/metrics.md)", markdown)
    markdown = re.sub(r"\]\((?:\.\./)+README\.md(#[\w-]+)?\)", rf"]({up}index.md\1)", markdown)
    return re.sub(
        r"\[([^\]]+)\]\((?:\.\./)+(?:tests|benchmarks|kip848_client|examples/monitoring)/[^)]*\)", r"\1", markdown
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let names break between their words, end what stands before code with one colon, and hide private bases."""
    html = html.replace("::</p>", ":</p>")
    html = "".join(
        part if part.startswith("<pre") else _breakable(part) for part in re.split(r"(?s)(<pre.*?</pre>)", html)
    )
    return re.sub(r'<p class="doc doc-class-bases">\s*Bases: <code>(<[^>]*>)*_\w+(<[^>]*>)*</code></p>', "", html)


def _breakable(html: str) -> str:
    """Let code of twenty characters and more be broken after a dot and the like, and between ``Long`` and ``Name``.

    Shorter code stays in one line.
    """
    html = re.sub(r"<code>([^<]{1,19})</code>", r'<code class="short">\1</code>', html)
    spots = r"(?<=[\w\]])([._=/:,(-]+)(?=\w)|(?<=[a-z])()(?=[A-Z][a-z])"
    return re.sub(
        r"<code>([^<]{20,})</code>",
        lambda code: f"<code>{re.sub(spots, lambda spot: f'{spot[0]}<wbr>', code[1])}</code>",
        html,
    )


def _examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def _title(example: Path) -> str:
    return example.stem.replace("_", " ").capitalize()


def _example(example: Path) -> str:
    """A program's page: what its docstring says, and the program."""
    code = example.read_text(encoding="utf-8")
    about = ast.get_docstring(ast.parse(code)) or ""
    program = code.partition('"""\n')[2] if code.startswith('"""') else code
    return f'# {_title(example)}\n\n{about}\n\n```python title="examples/{example.name}"\n{program.lstrip()}```\n'


def _readme() -> str:
    """README, with its links as they are inside docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(examples/(\w+)\.py\)", r"](examples/\1.md)", text)
    return re.sub(r"\]\(docs/", "](", text)


def _public() -> dict[str, list[str]]:
    """Public module -> its names."""
    modules = (module for _, modules in REFERENCE.values() for module in modules)
    return {module: list(importlib.import_module(module).__all__) for module in modules}


def _home(module: str, name: str) -> str | None:
    """Where a public name of ours is described; None for one of another library, or a value."""
    value = getattr(importlib.import_module(module), name)
    home = getattr(value, "__module__", "")
    ours = home.startswith("kip848_client.") and hasattr(value, "__qualname__")
    return f"{home}.{value.__qualname__}" if ours else None


def _names() -> str:
    """A table of the names of each public module, with the first line of what each says about itself."""
    lines = []
    for module, names in _public().items():
        lines += ["", f"## `{module}`", "", "| name | is |", "| --- | --- |"]
        for name in names:
            home = _home(module, name)
            about = (inspect.getdoc(getattr(importlib.import_module(module), name)) or "") if home else ""
            lines.append(f"| {f'[`{name}`][{home}]' if home else f'`{name}`'} | {_cell(about.partition(chr(10))[0])} |")
    return "\n".join([*lines, ""])


def _reference(title: str, modules: tuple[str, ...], described: set[str]) -> str:
    """Classes and functions of *modules*, each on the first page that has it, or on that of a more special module."""
    public = _public()
    special = {_home(module, name) for module in public if module != "kip848_client" for name in public[module]}
    lines = [f"# {title}", ""]
    for module in modules:
        for name in public[module]:
            whole = _home(module, name)
            if whole and (module != "kip848_client" or whole not in special):
                lines += [f"`{name}`: [{whole}][]" if whole in described else f"::: {whole}", ""]
                described.add(whole)
    if title == "Administration":
        lines += ["The functions are the methods of `Admin` and `AsyncAdmin`: the client stands for `cluster`.", ""]
        questions = [one.__wrapped__ for one in vars(Admin).values() if hasattr(one, "__wrapped__")]
        lines += [f"::: {one.__module__}.{one.__qualname__}\n" for one in questions]
    return "\n".join(lines)


def _settings() -> str:
    """The properties of the embedded broker, with both profiles."""
    own, kafka = BrokerConfig(), BrokerConfig.parse({}, profile="kafka")
    lines = [
        "# Broker configuration",
        "",
        'Give them as `EmbeddedBroker(config={"num.partitions": 3})`, as `kip848 broker --set num.partitions=3`, or in '
        "the marker `kip848_broker`. The profile is `default` (fast, for tests) or `kafka` (Kafka's own values).",
        "",
        "| property | type | profile `default` | profile `kafka` | from, to |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows = []
    for kind, values, others in (
        (BrokerConfig, own, kafka),
        (CoordinatorConfig, own.coordinator, kafka.coordinator),
    ):
        hints = get_type_hints(kind)
        for field, setting in properties_of(kind).items():
            number = hints[field] is int
            bounds = f"{setting.minimum:,} to {setting.maximum:,}" if number else ""
            rows.append(
                f"| `{setting.name}` | {getattr(hints[field], '__name__', 'list')} | {_shown(getattr(values, field))} "
                f"| {_shown(getattr(others, field))} | {bounds} |"
            )
    return "\n".join([*lines, *sorted(rows), ""])


def _shown(value: object) -> str:
    if isinstance(value, (tuple, list, frozenset)):
        return f"`{','.join(str(getattr(item, 'name', item)) for item in value)}`"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"`{value}`"


def _events() -> str:
    """Every log event and journal event, with its fields."""
    parts = {
        "Log events": {str(event): event.fields for event in LogEvent},
        "Event log: the coordinator's side": journal.COORDINATOR_EVENTS,
        "Event log: the client's side": journal.CLIENT_EVENTS,
        "Event log: what only a simulation knows": journal.SIMULATION_EVENTS,
    }
    lines = ["# Events", "", "How to get them is on the page [observability](../observability.md).", ""]
    for title, events in parts.items():
        lines += [f"## {title}", "", "| event | fields |", "| --- | --- |"]
        lines += [f"| `{name}` | {_cell(fields)} |" for name, fields in events.items()]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A text in a cell of a table: braces at its end would be attributes of the cell, and go."""
    return re.sub(r"([{}|<>])", lambda found: f"&#{ord(found[0])};", text)


def _metrics() -> str:
    """Every metric, and what it tells."""
    parts = {
        "Of a consumer": {**METRICS, **GAUGES},
        "Of a consumer, with OpenTelemetry's names": MESSAGING_METRICS,
        "Of process()": {**PROCESS_METRICS, **PROCESS_GAUGES},
        "Of a share consumer": SHARE_GAUGES,
        "Of a worker": {**WORKER_METRICS, **WORKER_GAUGES},
        "Of the coordinator": COORDINATOR_METRICS,
    }
    lines = ["# Metrics", "", "How to get them is on the page [observability](../observability.md).", ""]
    for title, metrics in parts.items():
        lines += [f"## {title}", "", "| metric | tells |", "| --- | --- |"]
        lines += [f"| `{name}` | {_cell(text)} |" for name, text in metrics.items()]
        lines.append("")
    return "\n".join(lines)


def _apis() -> str:
    """Every API of the embedded broker with its versions."""
    lines = [
        "# Broker APIs",
        "",
        "What the embedded broker serves. [Its page](../broker.md#apis) names the APIs of Kafka that it does not. "
        "Keys above 30,000 are private.",
        "",
        "| API | key | versions |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {ApiKey(api.api_key).name.title().replace('_', '')} | {api.api_key} "
        f"| {api.version_min} to {api.version_max} |"
        for api in sorted(load_apis(), key=lambda api: api.api_key)
    ]
    return "\n".join([*lines, ""])


def _tables() -> str:
    """The tables of a report on Spark, with their columns."""
    lines = [
        "# Tables of a report",
        "",
        "`kip848 report --spark --out FOLDER` writes a folder of Parquet files for each table ([reports on Spark]"
        "(../report.md#on-spark)); `Analysis` has them as DataFrames. Each begins with `group_id` (string), which is "
        "null for marks of no group. Names that end with `_ms` are milliseconds: lengths, or points in time since 1970 "
        "(in a simulation: of its clock). A *spread* is a struct of `count`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.",
        "",
        "| table | one row for each | columns |",
        "| --- | --- | --- |",
    ]
    for name, content in TABLES.items():
        columns = FIGURE_TABLES.get(name)
        told = (
            ", ".join(f"`{column}` {_kind(kind)}" for column, kind in columns.items())
            if columns is not None
            else "`file` string, `line` bigint, `problem` string; no `group_id`"
        )
        lines.append(f"| `{name}` | {content} | {told} |")
    lines += ["| `commits` | group and minute, of a cluster only | `minute_ms`, `commits`, `offsets` |", ""]
    return "\n".join(lines)


def _kind(kind: object) -> str:
    """A type of a column, as Spark names it."""
    words = {"int64": "bigint", "bool": "boolean"}
    name = words.get(str(kind), str(kind))
    if name.startswith("struct"):
        return "spread"
    return f"list of {re.sub('.*item: |>', '', name)}" if name.startswith("list") else name


def _cli() -> str:
    """Every command's own help."""
    lines = ["# Command line", "", f"```text\n{_help()}```", ""]
    for module in COMMANDS:
        command = module.rpartition(".")[2]
        text = _help(command)
        lines += [f"## kip848 {command}", "", f"```text\n{text}```", ""]
        for action in _actions(text):
            lines += [f"### kip848 {command} {action}", "", f"```text\n{_help(command, action)}```", ""]
    return "\n".join(lines)


def _help(*command: str) -> str:
    """What ``kip848 COMMAND --help`` prints."""
    out = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return out.getvalue()


def _actions(text: str) -> list[str]:
    """The actions that a command's help lists, such as those of ``kip848 groups``."""
    if not re.search(r"^usage: .* (ACTION|COMMAND) \.\.\.", text, re.MULTILINE | re.DOTALL):
        return []
    section = text.partition("positional arguments:")[2].partition("\noptions:")[0]
    return re.findall(r"^    ([a-z][a-z-]*)(?: |$)", section, re.MULTILINE)
