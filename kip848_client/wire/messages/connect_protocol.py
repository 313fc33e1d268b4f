"""The opaque bytes of workers for a client-side assignor: of themselves, and with a plan. Version 0 of both.

Ours, for `cooperative` and `eager`; Kafka Connect's classic bytes are others.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeVar

from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import Int32, Int64, MessageSpec, RecordPart, record, wire

_NO_TYPE: Final = 0
"""These are not records of a log; the number of a record type means nothing here."""


class WorkerMetadata(RecordPart, frozen=True):
    """A worker's wishes. `trigger_seq` grows with every new plan that it asks for."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0", flexible="0+")

    trigger_seq: Annotated[Int32, wire("0+")] = 0
    draining: Annotated[bool, wire("0+")] = False


class PlanMetadata(RecordPart, frozen=True):
    """A plan's message to each worker: who computed it, for which catalogue, and in how many ms the next one is due."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0", flexible="0+")

    leader: Annotated[str, wire("0+")] = ""
    leader_url: Annotated[str | None, wire("0+", nullable="0+")] = None
    catalog_offset: Annotated[Int64, wire("0+")] = 0
    delay_ms: Annotated[Int32, wire("0+")] = 0


PartT = TypeVar("PartT", WorkerMetadata, PlanMetadata)


def encode(part: WorkerMetadata | PlanMetadata) -> bytes:
    """The bytes of *part*."""
    pieces: list[bytes] = []
    encode_body(part, 0, pieces)
    return b"".join(pieces)


def decode(cls: type[PartT], data: bytes) -> PartT:
    """Read bytes that `encode` wrote.

    Raises:
        ProtocolError: they are not of this layout.
    """
    return decode_body(cls, 0, data, 0)
