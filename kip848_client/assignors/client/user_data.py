"""User data of the classic protocol: the bytes that a member's subscription and assignment carry for its assignor.

Built-in assignors have the bytes that other clients know: nothing, or the generation (``cooperative-sticky``). An
assignor of the user's own has a frame, big endian::

    subscription  int16 0x4B38, int8 1, int8 flags (1 = cooperative), int16 minimum, int16 maximum,
                  int16 metadata version, int8 reason, int32 wish,
                  held: int32 -1, or a count of (string topic, int32[] partitions), then int32 generation,
                  bytes metadata
    assignment    int16 0x4B38, int8 1, int8 0, int8 error, int16 version, bytes metadata

An assignment has a frame only if it has an error, metadata or a version to tell: a group with user data in any
assignment cannot be upgraded to KIP-848. A reader ignores further bytes, and reads a later version as this one.

Source: own; the built-in bytes as kafka-clients 4.3.1 writes them.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from kip848_client.common.model import NamedPartition

_MAGIC: Final = 0x4B38
_VERSION: Final = 1
_COOPERATIVE: Final = 1
_SUBSCRIPTION: Final = struct.Struct(">hbbhhhbi")
_ASSIGNMENT: Final = struct.Struct(">hbbbh")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


class SubscriptionFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A member's message to its own assignor, which runs in the leader.

    Args:
        wish: grows with every request_reassignment(), so that the bytes differ.
        held: partitions of an eager member before it gave everything up to join; None if it owns the listed ones.
        generation: the generation in which it was given *held*.
    """

    minimum_version: int = 0
    maximum_version: int = 0
    version: int = 0
    reason: int = 0
    wish: int = 0
    cooperative: bool = True
    held: tuple[NamedPartition, ...] | None = None
    generation: int = -1
    metadata: bytes = b""


class AssignmentFrame(msgspec.Struct, frozen=True):
    """An assignor's message to a member, beside its partitions."""

    error: int = 0
    version: int = 0
    metadata: bytes = b""


def generation_user_data(generation: int) -> bytes:
    """The user data of ``cooperative-sticky``; -1 before the first assignment."""
    return _INT32.pack(generation)


def read_generation(user_data: bytes | None) -> int:
    """The generation in the user data of ``cooperative-sticky``; -1 if there is none."""
    if user_data is None or len(user_data) < _INT32.size:
        return -1
    generation: int = _INT32.unpack_from(user_data)[0]
    return generation


def write_subscription_frame(frame: SubscriptionFrame) -> bytes:
    """User data of a subscription."""
    pieces = [
        _SUBSCRIPTION.pack(
            _MAGIC,
            _VERSION,
            _COOPERATIVE if frame.cooperative else 0,
            frame.minimum_version,
            frame.maximum_version,
            frame.version,
            frame.reason,
            frame.wish,
        )
    ]
    if frame.held is None:
        pieces.append(_INT32.pack(-1))
    else:
        topics: dict[str, list[int]] = {}
        for partition in sorted(frame.held):
            topics.setdefault(partition.topic, []).append(partition.partition)
        pieces.append(_INT32.pack(len(topics)))
        for topic, indexes in topics.items():
            name = topic.encode()
            pieces += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes))]
            pieces += [_INT32.pack(index) for index in indexes]
        pieces.append(_INT32.pack(frame.generation))
    pieces += [_INT32.pack(len(frame.metadata)), frame.metadata]
    return b"".join(pieces)


def read_subscription_frame(user_data: bytes | None) -> SubscriptionFrame | None:
    """The frame of a subscription; None if the bytes are something else, or damaged."""
    if user_data is None or len(user_data) < _SUBSCRIPTION.size:
        return None
    magic, frame_version, flags, minimum, maximum, version, reason, wish = _SUBSCRIPTION.unpack_from(user_data)
    if magic != _MAGIC or frame_version < 1:
        return None
    reader = _Reader(user_data, _SUBSCRIPTION.size)
    try:
        held: list[NamedPartition] | None = None
        generation = -1
        count = reader.int32()
        if count >= 0:
            held = []
            for _ in range(count):
                topic = reader.take(reader.int16()).decode()
                held += [NamedPartition(topic, reader.int32()) for _ in range(reader.count())]
            generation = reader.int32()
        metadata = reader.take(reader.int32())
    except ValueError:
        return None
    return SubscriptionFrame(
        minimum_version=minimum,
        maximum_version=maximum,
        version=version,
        reason=reason,
        wish=wish,
        cooperative=bool(flags & _COOPERATIVE),
        held=None if held is None else tuple(held),
        generation=generation,
        metadata=metadata,
    )


def write_assignment_frame(frame: AssignmentFrame) -> bytes | None:
    """User data of an assignment; None if there is nothing to tell."""
    if frame == AssignmentFrame():
        return None
    head = _ASSIGNMENT.pack(_MAGIC, _VERSION, 0, frame.error, frame.version)
    return head + _INT32.pack(len(frame.metadata)) + frame.metadata


def read_assignment_frame(user_data: bytes | None) -> AssignmentFrame:
    """The frame of an assignment; an empty one if the bytes are something else, or damaged."""
    if user_data is None or len(user_data) < _ASSIGNMENT.size:
        return AssignmentFrame()
    magic, frame_version, _, error, version = _ASSIGNMENT.unpack_from(user_data)
    if magic != _MAGIC or frame_version < 1:
        return AssignmentFrame()
    reader = _Reader(user_data, _ASSIGNMENT.size)
    try:
        return AssignmentFrame(error, version, reader.take(reader.int32()))
    except ValueError:
        return AssignmentFrame()


class _Reader:
    """Reads on from an offset; raises ValueError where the bytes end too early or a length is negative."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, length: int) -> bytes:
        end = self._offset + length
        if length < 0 or end > len(self._data):
            raise ValueError("the frame is cut off")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    def int16(self) -> int:
        number: int = _INT16.unpack(self.take(_INT16.size))[0]
        return number

    def int32(self) -> int:
        number: int = _INT32.unpack(self.take(_INT32.size))[0]
        return number

    def count(self) -> int:
        """The length of an array of int32: never more than the bytes that are left can hold."""
        count = self.int32()
        if not 0 <= count <= (len(self._data) - self._offset) // _INT32.size:
            raise ValueError("the frame is cut off")
        return count
