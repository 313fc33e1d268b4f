"""``kip848 report --what-if``: what other settings would have saved in the worst stand-stills, by the simulation.

The shape of a group is that of the log: its members, hosts, topics and static members. Timeouts are not in a log, so
they are Kafka's defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kip848_client.common.plain_text import counted
from kip848_client.testing.simulation.what_if import Job, Shape, play_job
from kip848_client.tools.comparing.sweep_like import AS_IT_IS, read_setting, summarize
from kip848_client.tools.report import Timeline
from kip848_client.tools.report.figures import Percentiles, percentiles
from kip848_client.tools.report.findings import Finding
from kip848_client.tools.report.wording import duration

_PLAYS: Final[Mapping[str, str]] = {
    "died": "a node dies",
    **dict.fromkeys(("deploy", "restart", "left"), "rolling restart"),
    "member joined": "one joins",
}
"""Cause of a stand-still -> the play that is like it."""
_SEEDS: Final = range(5)
_IF: Final[Mapping[str, str]] = {"rolling restart": "its members restart one by one", "one joins": "a member joins"}
_PLAYED: Final = 4
_APART: Final = 2.0
"""A play that is so many times longer or shorter than what was measured is another one."""
_MEMBERS_MAX: Final = 50
_PARTITIONS_MAX: Final = 1_000


def savings(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> Iterator[str]:
    """Sentences about the worst stand-still of each group and play."""
    by_id = {timeline.group_id: timeline for timeline in timelines}
    told: set[tuple[str, str]] = set()
    for finding in findings:
        name = _PLAYS.get(finding.why)
        if finding.kind != "stand-still" or name is None or (finding.group_id, name) in told or len(told) == _PLAYED:
            continue
        told.add((finding.group_id, name))
        shape = shape_of(by_id[finding.group_id])
        if shape.members > _MEMBERS_MAX or shape.partitions > _PARTITIONS_MAX:
            yield f"{finding.group_id}: too large to be played here: kip848 sweep --like {finding.group_id}"
            continue
        yield from _of_group(finding.group_id, shape, name, _measured(findings, finding.group_id, name))


def shape_of(timeline: Timeline) -> Shape:
    """The group at its largest, as the log has it."""
    alive: set[str] = set()
    most: frozenset[str] = frozenset()
    moves = [(each.at_ms, 1, each.who) for each in timeline.lives.arrivals]
    moves += [(each.at_ms, 0, each.who) for each in timeline.lives.departures if each.reason != "static_leave"]
    for _, is_join, who in sorted(moves):
        (alive.add if is_join else alive.discard)(who)
        most = max(most, frozenset(alive), key=len)
    most = most or frozenset(lane.member for lane in timeline.members)
    statics = {each.who for each in timeline.lives.arrivals if each.instance_id is not None}
    hosts = Counter(lane.host for lane in timeline.members if lane.member in most)
    topics = Counter(lane.partition.rpartition("-")[0] for lane in timeline.partitions)
    return Shape(
        members=len(most),
        topics=dict(topics),
        members_of_a_node=max(hosts.values()),
        statics=len(statics & most) / len(most),
    )


def _measured(findings: Sequence[Finding], group_id: str, name: str) -> Percentiles:
    """The stand-stills of the log that the play is like; of a bound, the upper end."""
    like_it = (each for each in findings if each.kind == "stand-still" and each.group_id == group_id)
    return percentiles(each.ms for each in like_it if each.ms is not None and _PLAYS.get(each.why) == name)


def _of_group(group_id: str, shape: Shape, name: str, measured: Percentiles) -> Iterator[str]:
    static = f"static={'no' if shape.statics else 'yes'}"
    texts = [static, "heartbeat=1000", "session=10000" if name == "a node dies" else f"heartbeat=1000,{static}"]
    settings = [AS_IT_IS, *map(read_setting, texts)]
    jobs = [Job(name, setting, seed) for setting in settings for seed in _SEEDS]
    rows = list(summarize(jobs, (play_job(shape, job) for job in jobs)))
    yield (
        f"{group_id}, if {_IF.get(name, name)} (a group on KIP-848 of {counted(shape.members, 'member')} and "
        f"{counted(shape.partitions, 'partition')}, sessions of 45 s and heartbeats every 5 s, played "
        f"{counted(len(_SEEDS), 'time')}):"
    )
    yield (
        f"  {'in the log':<26} one partition unread for {duration(measured.p50_ms or 0.0)} (longest "
        f"{duration(measured.max_ms or 0.0)}), in {counted(measured.count, 'stand-still')} of a second or longer"
    )
    played_ms = rows[0].unread_max.p50_ms or 0.0
    if not (measured.p50_ms or 0.0) / _APART <= played_ms <= (measured.p50_ms or 0.0) * _APART:
        yield (
            "  what is played differs from the log: its members are those of this package with Kafka's timeouts, and "
            "read at once; yours may be others, or start slowly. Compare the settings with each other, not with the log"
        )
    for row in rows:
        yield (
            f"  {row.setting:<26} one partition unread for {duration(row.unread_max.p50_ms or 0.0)}, all together "
            f"{duration(row.unread.p50_ms or 0.0)}, {row.moved.p50_ms or 0:,.0f} moved"
        )
