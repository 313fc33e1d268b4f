"""Moves the committed offsets of a group in two steps: a plan that can be looked at, then the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, AdminCall, Cluster
from kip848_client.admin.groups import size_and_type
from kip848_client.admin.offsets import commit_offsets, committed_of
from kip848_client.admin.results import OffsetMove, ResetPlan, ShiftBy, split
from kip848_client.admin.share_groups import alter_starts, starts_of
from kip848_client.admin.topics import EARLIEST, LATEST, Partition, named, offsets_of, timestamp_of
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError, IllegalStateError

ResetTo: TypeAlias = Literal["earliest", "latest"] | datetime | int | ShiftBy | Mapping[NamedPartition, int]
"""Where to reset to: an edge, a time, an offset (int), a shift, or an offset for each partition."""


async def plan_reset(
    cluster: Cluster,
    group_id: str,
    to: ResetTo,
    *,
    partitions: Iterable[str | Partition] | None = None,
    timeout_s: float = TIMEOUT_S_DEFAULT,
) -> ResetPlan:
    """Plan to move the committed offsets of a group, or the start offsets of a share group; `apply_reset` does it.

    Args:
        to: ``"earliest"``, ``"latest"``, a `datetime` (the first record since then, or the end), an offset, `ShiftBy`,
            or a mapping, which `read_offsets` reads from a file.
        partitions: these only; a topic's name stands for all its partitions. None: the partitions that the mapping
            names, or the ones with committed offsets.
        timeout_s: seconds for the whole call.

    Returns:
        The plan. An offset that a partition does not have is replaced by the nearest one.

    Raises:
        ConfigError: a topic or partition does not exist, or there is nothing to reset.
        IllegalStateError: the group has members, which would go on from where they are.
        BrokerError: the group may not be read.
        Kip848Error: no broker answers.
    """
    call = cluster.call(timeout_s)
    members, kind = await size_and_type(call, group_id)
    committed: Mapping[NamedPartition, int | None]
    if kind == "share":
        committed = {key: start for key, (start, _) in split(await starts_of(call, [group_id]))[group_id].items()}
    else:
        found = split(await committed_of(call, [group_id]))[group_id]
        committed = {key: position.offset for key, position in found.items()}
    if members:
        raise IllegalStateError(
            f"members of group {group_id!r}: {members}; they would go on from where they are; stop them first"
        )
    chosen = await _chosen(call, to if isinstance(to, Mapping) else committed, partitions)
    if not chosen:
        raise ConfigError(f"group {group_id!r} has no committed offsets; name the topics to reset")
    firsts = split(await offsets_of(call, dict.fromkeys(chosen, EARLIEST))).values
    ends = split(await offsets_of(call, dict.fromkeys(chosen, LATEST))).values
    times: Mapping[NamedPartition, int | None] = {}
    if isinstance(to, datetime):
        times = split(await offsets_of(call, dict.fromkeys(chosen, timestamp_of(to)))).values
    moves = []
    for partition in chosen:
        first, end = firsts.get(partition), ends.get(partition)
        if first is None or end is None:
            raise ConfigError(f"there is no {partition}, or its leader does not answer")
        old = committed.get(partition)
        wanted = _wanted(to, partition, old, first=first, end=end, since=times.get(partition))
        moves.append(OffsetMove(partition, old, wanted, min(max(wanted, first), end), first, end))
    return ResetPlan(group_id, tuple(moves), "share" if kind == "share" else "consumer")


def _wanted(to: ResetTo, partition: NamedPartition, old: int | None, *, first: int, end: int, since: int | None) -> int:
    match to:
        case "earliest":
            return first
        case "latest":
            return end
        case datetime():
            return end if since is None else since
        case int():
            return to
        case ShiftBy(records):
            if old is None:
                raise ConfigError(f"nothing is committed for {partition}, so it cannot be shifted; name an offset")
            return old + records
        case Mapping():
            if partition not in to:
                raise ConfigError(f"there is no offset for {partition} to reset to")
            return to[partition]
    raise ConfigError(f"{to!r}: reset to 'earliest', 'latest', a datetime, an offset, ShiftBy, or a mapping of offsets")


async def _chosen(
    call: AdminCall, default: Iterable[Partition], partitions: Iterable[str | Partition] | None
) -> list[NamedPartition]:
    wanted = list(default if partitions is None else partitions)
    topics = {one for one in wanted if isinstance(one, str)}
    found = {named(one) for one in wanted if not isinstance(one, str)}
    if topics:
        counts = {topic.name: len(topic.partitions) for topic in (await call.metadata(topics)).topics}
        for topic in sorted(topics):
            if not counts.get(topic):
                raise ConfigError(f"{topic}: there is no such topic")
            found |= {NamedPartition(topic, number) for number in range(counts[topic])}
    return sorted(found)


async def apply_reset(cluster: Cluster, plan: ResetPlan, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
    """Commit what *plan* says, or move the start offsets of a share group.

    Args:
        timeout_s: seconds for the whole call.

    Raises:
        BrokerError: the group has members by now, or committing is not allowed. The message says for which partitions
            nothing was committed.
        Kip848Error: no broker answers.
    """
    offsets = {move.partition: move.new for move in plan.moves}
    if plan.type == "share":
        await alter_starts(cluster.call(timeout_s), plan.group_id, offsets)
        return
    await commit_offsets(cluster, plan.group_id, offsets, timeout_s=timeout_s)


def read_offsets(path: str | PathLike[str]) -> dict[NamedPartition, int]:
    """Read offsets for `Admin.plan_reset` from a file: ``topic,partition,offset``, one a line.

    ``kafka-consumer-groups.sh --reset-offsets --export`` writes that, too.

    Raises:
        ConfigError: a line says something else, or the file cannot be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    found: dict[NamedPartition, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        topic, *numbers = (field.strip().strip('"') for field in line.split(","))
        if len(numbers) != 2 or not topic or not all(one.isdecimal() for one in numbers):
            raise ConfigError(f"{path}, line {number}: {line!r} is not topic,partition,offset")
        partition = NamedPartition(topic, int(numbers[0]))
        if partition in found:
            raise ConfigError(f"{path}, line {number}: {partition} has an offset already")
        found[partition] = int(numbers[1])
    return found
