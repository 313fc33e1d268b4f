"""A group of workers as text, for `kip848 groups` and `kip848 workers`."""

from __future__ import annotations

import time
from collections import Counter

from kip848_client.admin import UnitDescription, WorkerGroupDescription
from kip848_client.cli.shared.tables import number, table
from kip848_client.common.plain_text import printable
from kip848_client.tools.report.wording import duration


def describe_workers(group: WorkerGroupDescription) -> str:
    """Write a group of workers: a headline, its workers, and who runs which unit since when."""
    headline = f"{group.type} group {group.group_id}: {group.state}"
    if group.group_epoch is not None:
        headline += f", epoch {group.group_epoch}"
    if group.assignment_epoch != group.group_epoch:
        headline += f" (assignment of epoch {group.assignment_epoch})"
    blocks = [printable(f"{headline}, assignor {group.assignor}" if group.assignor else headline)]
    if group.workers:
        units = Counter(unit.owner for unit in group.units)
        rows = [
            (
                one.worker_id,
                one.client_id,
                one.client_host.removeprefix("/"),
                str(units[one.worker_id]),
                "" if one.member_epoch is None else str(one.member_epoch),
                one.state,
                one.instance_id or "",
                one.member_id,
            )
            for one in group.workers
        ]
        blocks.append(table(("WORKER", "CLIENT", "HOST", "UNITS", "EPOCH", "STATE", "INSTANCE", "MEMBER ID"), rows))
    if group.units:
        now_ms = time.time() * 1000
        cells = [
            (unit.unit, unit.owner or "-", _since(unit, now_ms), number(unit.token), _target(unit))
            for unit in group.units
        ]
        blocks.append(table(("UNIT", "OWNER", "SINCE", "TOKEN", "TARGET"), cells))
    return "\n\n".join(blocks)


def _since(unit: UnitDescription, now_ms: float) -> str:
    if unit.since_ms is None:
        return ""
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unit.since_ms / 1000))
    return f"{began} ({duration(max(0.0, now_ms - unit.since_ms))})"


def _target(unit: UnitDescription) -> str:
    if unit.deferred:
        return "deferred"
    return "" if unit.target == unit.owner else unit.target or ""
