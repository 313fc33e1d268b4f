"""``kip848 sweep --like GROUP``: what a change would cost a real group, under its settings and under others.

The group's shape is asked of its cluster; the plays are those of `kip848_client.testing.simulation.what_if`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from kip848_client.admin import Admin, GroupDescription
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import BrokerError, ConfigError, UnsupportedVersionError
from kip848_client.testing.simulation.what_if import PLAYS, Job, Setting, Shape, WhatIfOutcome, play_job
from kip848_client.tools.report.figures import Percentiles, percentiles
from kip848_client.tools.report.wording import duration

Player: TypeAlias = Callable[[Shape, Sequence[Job]], Iterable[WhatIfOutcome]]
"""Plays jobs with a group of a shape; one outcome for each, in order."""

SEEDS: Final = range(100)
AS_IT_IS: Final = Setting("as it is")
_CHUNK: Final = 5
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_SESSION: Final = "consumer.session.timeout.ms"


class Row(msgspec.Struct, frozen=True):
    """The results of the plays of one kind, under one setting.

    Args:
        unsettled: plays after which the group did not come to rest in ten minutes.
        unread: time without a reader, summed over the partitions.
        unread_max: the longest time without a reader of one partition.
        moved: partitions that changed their readers.
    """

    play: str
    setting: str
    count: int
    unsettled: int
    settled: Percentiles
    unread: Percentiles
    unread_max: Percentiles
    moved: Percentiles


def run_like(arguments: argparse.Namespace, seeds: range, player: Player | None = None) -> int:
    """Ask for the shape, play, and print.

    Args:
        player: plays; all cores of this machine do if it is None.

    Raises:
        ConfigError: an option makes no sense, or the group has no members.
        Kip848Error: no broker answers, or there is no such group.
    """
    tried = [read_setting(text) for text in arguments.tries]
    poll_ms = _poll_ms(arguments.poll_ms)
    conf = read_properties(arguments)
    with Admin(conf) as admin:
        shape = _shape_of(admin, arguments.like, poll_ms)
    settings = [AS_IT_IS, *(tried or _others(shape))]
    jobs = [Job(name, setting, seed) for name in PLAYS for setting in settings for seed in seeds]
    rows = list(summarize(jobs, (player or _play_here)(shape, jobs)))
    if arguments.plot is not None:
        _plot(rows, arguments.plot, title=f"like {arguments.like}: {_sentence(shape)}")
    if arguments.json:
        print(to_json({"group_id": arguments.like, "shape": shape, "rows": rows}))
    else:
        print(f"{printable(f'like {arguments.like}: {_sentence(shape)}')}\n\n{_table(rows)}")
    return 0


def read_setting(text: str) -> Setting:
    """Read ``assignor=range,heartbeat=1000,session=10000,static=yes``.

    Raises:
        ConfigError: it says something else.
    """
    fields: dict[str, object] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name == "assignor" and value in {"uniform", "range"}:
            fields["assignor"] = value
        elif name == "static" and value in {"yes", "no"}:
            fields["static"] = value == "yes"
        elif name in {"heartbeat", "session"} and value.isdecimal() and int(value) > 0:
            fields["heartbeat_interval_ms" if name == "heartbeat" else "session_timeout_ms"] = int(value)
        else:
            raise ConfigError(
                f"{text!r}: expected assignor=uniform|range, static=yes|no, heartbeat=MS, session=MS, joined by commas"
            )
    return Setting(text, **fields)  # type: ignore[arg-type]


def _poll_ms(text: str) -> tuple[int, int]:
    least, comma, most = text.partition(",")
    if not (comma and least.isdecimal() and most.isdecimal() and int(least) <= int(most)):
        raise ConfigError(f"--poll-ms {text!r}: give two numbers such as 10,200")
    return int(least), int(most)


def _shape_of(admin: Admin, group_id: str, poll_ms: tuple[int, int]) -> Shape:
    """The group as the cluster describes it; settings that it does not report are Kafka's defaults."""
    group = admin.describe_groups([group_id])[group_id]
    if not isinstance(group, GroupDescription):
        raise ConfigError(f"group {group_id!r} is a {group.type} group; only groups of consumers are played")
    if not group.members:
        raise ConfigError(f"group {group_id!r} has no members: there is no shape to play")
    if group.type == "classic":
        print(f"{group_id} is a classic group; it is played as if it had moved to KIP-848", file=sys.stderr)
    topics = {name: one.partitions for name, one in admin.list_topics(_topics_of(group)).values.items()}
    settings: Mapping[str, str] = {}
    with contextlib.suppress(BrokerError, UnsupportedVersionError):
        settings = admin.group_config(group_id)
    return Shape(
        members=len(group.members),
        topics=topics,
        members_of_a_node=max(Counter(member.client_host for member in group.members).values()),
        statics=sum(member.instance_id is not None for member in group.members) / len(group.members),
        heartbeat_interval_ms=int(settings.get(_HEARTBEAT, 5_000)),
        session_timeout_ms=int(settings.get(_SESSION, 45_000)),
        poll_ms=poll_ms,
        assignor=group.assignor if group.assignor in {"uniform", "range"} else "",
    )


def _topics_of(group: GroupDescription) -> list[str]:
    """The topics of which the group has partitions; they are known even if it subscribes with a pattern."""
    return sorted({partition.topic for member in group.members for partition in (*member.assigned, *member.target)})


def _others(shape: Shape) -> list[Setting]:
    """The questions that a platform team asks first."""
    other = "uniform" if shape.assignor == "range" else "range"
    texts = [f"static={'no' if shape.statics else 'yes'}", f"assignor={other}"]
    if shape.heartbeat_interval_ms > 1_000:
        texts.insert(0, "heartbeat=1000")
    return [read_setting(text) for text in texts]


def _play_here(shape: Shape, jobs: Sequence[Job]) -> Iterator[WhatIfOutcome]:
    # Not by fork: this process has threads, of librdkafka or of a test's broker.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(play_job, itertools.repeat(shape), jobs, chunksize=_CHUNK)


def summarize(jobs: Iterable[Job], outcomes: Iterable[WhatIfOutcome]) -> Iterator[Row]:
    """One row for each play and setting, in the order of the jobs."""
    found: dict[tuple[str, str], list[WhatIfOutcome]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        found.setdefault((job.play, job.setting.name), []).append(outcome)
    for (name, setting), played in found.items():
        yield Row(
            play=name,
            setting=setting,
            count=len(played),
            unsettled=sum(one.settled_ms is None for one in played),
            settled=percentiles(one.settled_ms for one in played if one.settled_ms is not None),
            unread=percentiles(one.unread_ms for one in played),
            unread_max=percentiles(one.unread_ms_max for one in played),
            moved=percentiles(one.moved for one in played),
        )


def _sentence(shape: Shape) -> str:
    topics = f"{counted(shape.partitions, 'partition')} of {counted(len(shape.topics), 'topic')}"
    return (
        f"{counted(shape.members, 'member')} ({shape.statics:.0%} static, {shape.members_of_a_node} on one host), "
        f"{topics}, "
        f"heartbeats every {duration(shape.heartbeat_interval_ms)}, sessions of {duration(shape.session_timeout_ms)}, "
        f"assignor {shape.assignor or 'of the coordinator'}"
    )


def _table(rows: Sequence[Row]) -> str:
    header = ("PLAY", "SETTING", "SETTLED", "90 %", "UNREAD IN ALL", "90 %", "LONGEST", "MOVED")
    cells = [
        (
            row.play,
            row.setting,
            _time(row.settled.p50_ms),
            _time(row.settled.p90_ms),
            _time(row.unread.p50_ms),
            _time(row.unread.p90_ms),
            _time(row.unread_max.p50_ms),
            f"{row.moved.p50_ms or 0:,.0f}",
        )
        for row in rows
    ]
    notes = [
        f"{row.play}, {row.setting}: {row.unsettled} of {row.count} plays did not come to rest in ten minutes"
        for row in rows
        if row.unsettled
    ]
    count = rows[0].count if rows else 0
    return "\n".join(
        [table(header, cells), "", f"medians of {counted(count, 'play')}; UNREAD is summed over the partitions", *notes]
    )


def _time(ms: float | None) -> str:
    return "-" if ms is None else duration(ms)


def _plot(rows: Sequence[Row], path: Path, *, title: str) -> None:
    from kip848_client.tools.report.pictures.png import plot_groups  # needs matplotlib, an extra

    settings = list(dict.fromkeys(row.setting for row in rows))
    of = {(row.play, row.setting): row for row in rows}
    plot_groups(
        path,
        title=title,
        y_label="partition-seconds without a reader (median; line: 90 %)",
        groups=list(PLAYS),
        bars={
            setting: [
                ((of[name, setting].unread.p50_ms or 0) / 1000, (of[name, setting].unread.p90_ms or 0) / 1000)
                for name in PLAYS
            ]
            for setting in settings
        },
    )
