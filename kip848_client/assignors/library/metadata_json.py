"""Member metadata as JSON: written by one member, read by the member that computes the assignment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from kip848_client.assignors.client.interface import AssignorMetadata, MemberSpec

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

VERSION = 0


def encode(told: Mapping[str, Json], *, reason: int = 0) -> AssignorMetadata:
    """Write *told*; equal values give equal bytes."""
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return AssignorMetadata(text.encode(), VERSION, reason)


def decode(member: MemberSpec) -> dict[str, Json]:
    """The JSON object of *member*; empty if it sent no bytes.

    Raises:
        ValueError: they are not a JSON object; the message names the member.
    """
    return decode_bytes(member.metadata, whose=f"member {member.member_id!r}") if member.metadata else {}


def decode_bytes(metadata: bytes, *, whose: str) -> dict[str, Json]:
    """As `decode`.

    Raises:
        ValueError: they are not a JSON object.
    """
    try:
        told = json.loads(metadata)
    except ValueError as error:
        raise ValueError(f"{whose} has metadata that is not JSON: {metadata[:60]!r}") from error
    if not isinstance(told, dict):
        raise ValueError(f"{whose} has metadata that is not a JSON object: {metadata[:60]!r}")
    return told


def number_of(member: MemberSpec, told: Mapping[str, Json], key: str, default: float) -> float:
    """A number that *member* told.

    Raises:
        ValueError: it is something else; the message names the member.
    """
    found = told.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"member {member.member_id!r} tells {key}={found!r}; a number is expected")
    return found
