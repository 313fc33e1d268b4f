"""``group.instance.id.takeover`` and ``group.instance.id.pool``: the slots that a member may take."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kip848_client.config.reader import ConfigReader

OWN_SLOT_KEYS: Final = frozenset(
    {
        "group.instance.id.takeover",
        "group.instance.id.pool",
        "group.instance.id.takeover.retry.ms",
        "group.instance.id.takeover.wait.ms",
    }
)
"""Keys that the control plane reads and librdkafka does not get."""
SLOTS_MAX: Final = 1_000
_RANGE: Final = re.compile(r"([^{},]*)\{(\d+)\.\.(\d+)\}([^{},]*)")


class SlotSettings(msgspec.Struct, frozen=True):
    """The slots that a member may take.

    Args:
        slots: instance ids in the order in which they are tried; none without takeover.
        pooled: several processes share them, and a leave gives a slot up that no standby takes.
        retry_ms, wait_ms: see the keys.
    """

    slots: tuple[str, ...] = ()
    pooled: bool = False
    retry_ms: int = 50
    wait_ms: int = 1_000


def read_slots(reader: ConfigReader, *, instance_id: str | None, classic: bool) -> SlotSettings:
    """Read the keys; what is wrong with them is refused through *reader*."""
    takeover = reader.one_of(
        "group.instance.id.takeover", {"fail": "fail", "wait": "wait"}, default="wait" if _given(reader) else "fail"
    )
    retry_ms = reader.integer("group.instance.id.takeover.retry.ms", default=50, low=10, high=60_000)
    wait_ms = reader.integer("group.instance.id.takeover.wait.ms", default=1_000, low=100, high=60_000)
    text = reader.not_blank("group.instance.id.pool")
    if classic and (text is not None or takeover == "wait"):
        reader.refuse(
            "group.instance.id.pool and group.instance.id.takeover=wait need group.protocol=consumer: on the classic "
            "protocol a join with the id of a living member removes that member at once",
            None,
        )
        return SlotSettings()
    if text is None:
        if takeover == "wait" and instance_id is None:
            reader.refuse(
                "group.instance.id.takeover=wait waits for a slot: name it with group.instance.id, or several with "
                "group.instance.id.pool",
                None,
            )
        slots = (instance_id,) if takeover == "wait" and instance_id is not None else ()
        return SlotSettings(slots, retry_ms=retry_ms, wait_ms=wait_ms)
    if instance_id is not None:
        reader.refuse("give group.instance.id or group.instance.id.pool, not both", None)
    if takeover == "fail":
        reader.refuse(
            "group.instance.id.takeover=fail and group.instance.id.pool contradict each other: a process whose pool is "
            "taken stands by",
            None,
        )
    return SlotSettings(_slots_of(reader, text), pooled=True, retry_ms=retry_ms, wait_ms=wait_ms)


def _given(reader: ConfigReader) -> bool:
    return reader.conf.get("group.instance.id.pool") is not None


def _slots_of(reader: ConfigReader, text: str) -> tuple[str, ...]:
    """The slots of ``a,b,c`` or ``name-{0..9}``."""
    key = "group.instance.id.pool"
    found = _RANGE.fullmatch(text.strip())
    if found is not None:
        before, first, last, after = found[1], int(found[2]), int(found[3]), found[4]
        if last < first:
            return reader.refuse(f"{key}={text!r}: the range ends before it begins", ())
        if last - first >= SLOTS_MAX:
            return reader.refuse(f"{key}={text!r} has {last - first + 1:,} slots; {SLOTS_MAX:,} are the most", ())
        return tuple(f"{before}{number}{after}" for number in range(first, last + 1))
    slots = tuple(part.strip() for part in text.split(","))
    if "{" in text or "}" in text or not all(slots):
        return reader.refuse(f"{key}={text!r}: give a list (a,b,c) or one range (orders-{{0..9}})", ())
    if len(slots) > SLOTS_MAX:
        return reader.refuse(f"{key} has {len(slots):,} slots; {SLOTS_MAX:,} are the most", ())
    if len(set(slots)) < len(slots):
        return reader.refuse(f"{key}={text!r} names a slot twice", ())
    return slots
