"""Names that generated source uses: fresh locals, ready-made `struct` calls, constants. Shared by both generators."""

from __future__ import annotations

import struct
from typing import Final


class Source:
    """Hands out names, and remembers the objects behind them in `globals`."""

    def __init__(self) -> None:
        self.globals: Final[dict[str, object]] = {}
        self._count = 0

    def fresh(self, stem: str) -> str:
        """A name that no other part of the source uses."""
        self._count += 1
        return f"{stem}{self._count}"

    def packer(self, codes: str) -> str:
        """Name of `struct.Struct(...).pack` for big-endian *codes*."""
        return self._named(f"pack_{_spelled(codes)}", struct.Struct(f">{codes}").pack)

    def unpacker(self, codes: str) -> str:
        """Name of `struct.Struct(...).unpack_from` for big-endian *codes*."""
        return self._named(f"unpack_{_spelled(codes)}", struct.Struct(f">{codes}").unpack_from)

    def constant(self, value: object) -> str:
        """Name of an object that cannot be written as source."""
        for name, known in self.globals.items():
            if known is value:
                return name
        return self._named(self.fresh("K"), value)

    def _named(self, name: str, value: object) -> str:
        self.globals.setdefault(name, value)
        return name


def is_default_free(value: object) -> bool:
    """Whether `repr` of *value* is source that makes it again; ids count, they are compared by their number."""
    import uuid

    if isinstance(value, uuid.UUID):
        return value.int == 0
    return value is None or isinstance(value, bool | int | float | str | bytes) or value == ()


def _spelled(codes: str) -> str:
    return codes.replace("?", "B1")
