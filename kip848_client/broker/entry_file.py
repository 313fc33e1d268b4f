"""An append-only file of checksummed entries: write, read back, cut a torn tail, refuse damage elsewhere.

Knows nothing of what an entry means: that is `log`. Layout, all numbers big endian::

    file   = "KIP848" format:u8 kind:u8  entry*
    entry  = length:u32  crc32(length):u32  crc32(payload):u32  payload

The length has a checksum of its own, so that a damaged length is not mistaken for an entry that was still being
written. Every append is one write to the operating system, made before the call returns: a killed process loses
nothing that was acknowledged. There is no fsync, so a power failure may lose the end of a file.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kip848_client.errors import DataDirCorruptError, DataDirError

__all__ = ["EntryFile", "LoadedEntries", "FORMAT_VERSION"]

FORMAT_VERSION: Final = 1
"""Written into every file; a reader refuses any other."""

_MAGIC: Final = b"KIP848"
_FILE_HEADER_SIZE: Final = 8
_ENTRY: Final = struct.Struct(">III")
_LENGTH: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class LoadedEntries:
    """What a file held.

    Attributes:
        payloads: the entries, oldest first.
        cut_bytes: length of a torn tail that was cut off; 0 if the file was whole.
    """

    payloads: Sequence[memoryview]
    cut_bytes: int = 0


class EntryFile:
    """One file, open for appending.

    Args:
        path: the file; made with its header by the first `append` if it is not there.
        kind: one byte that says what the entries are; a file of another kind is refused.
    """

    def __init__(self, path: Path, *, kind: bytes) -> None:
        self.path: Final = path
        self._header: Final = _MAGIC + bytes([FORMAT_VERSION]) + kind
        self._fd: int | None = None
        self._size = 0
        self._broken = False

    def load(self) -> LoadedEntries:
        """Read every entry; a torn tail is cut off the file.

        Torn is what a crash can leave: a last entry that is cut short or whose bytes never arrived.

        Raises:
            DataDirCorruptError: anything else that does not add up; the file is left as it is.
            DataDirError: the file cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return LoadedEntries(())
        except OSError as error:
            raise DataDirError(f"{self.path}: cannot be read: {error.strerror}") from error
        payloads, good_end = self._parse(data)
        if good_end < len(data):
            try:
                os.truncate(self.path, good_end)
            except OSError as error:
                raise DataDirError(f"{self.path}: its torn tail cannot be cut off: {error.strerror}") from error
        return LoadedEntries(payloads, len(data) - good_end)

    def append(self, payload: bytes) -> None:
        """Write one entry; when this returns the operating system has it.

        Raises:
            DataDirError: it could not be written whole (a full disk); what was written of it is taken back.
        """
        length = _LENGTH.pack(len(payload))
        head = length + _LENGTH.pack(zlib.crc32(length)) + _LENGTH.pack(zlib.crc32(payload))
        fd = self._open()
        parts = [head, payload] if self._size else [self._header, head, payload]
        expected = sum(map(len, parts))
        try:
            written = os.writev(fd, parts)
            if written < expected:
                rest = b"".join(parts)
                while written < expected:
                    written += os.write(fd, rest[written:])
        except OSError as error:
            self._take_back()
            raise DataDirError(f"{self.path}: {expected} bytes could not be written: {error.strerror}") from error
        self._size += expected

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Put other entries in the place of all that there are, as a whole or not at all, also if the process ends.

        Raises:
            DataDirError: it could not be done; the file is as it was.
        """
        self.close()
        temporary = EntryFile(self.path.with_name(self.path.name + ".new"), kind=self._header[-1:])
        try:
            temporary.path.unlink(missing_ok=True)
            for payload in payloads:
                temporary.append(payload)
            fd = temporary._open()
            os.fsync(fd)  # a rename may reach the disk before what it renames
            temporary.path.replace(self.path)
        except OSError as error:
            raise DataDirError(f"{self.path}: cannot be rewritten: {error.strerror}") from error
        finally:
            temporary.close()

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._broken:
            raise DataDirError(f"{self.path}: ends in half an entry since a write failed; restart the broker")
        if self._fd is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._size = os.fstat(self._fd).st_size
            except OSError as error:
                raise DataDirError(f"{self.path}: cannot be opened for writing: {error.strerror}") from error
        return self._fd

    def _take_back(self) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            # What follows would stand behind half an entry. Refuse to write on; loading cuts the half entry off.
            self._broken = True
            self.close()
            raise DataDirError(f"{self.path}: half an entry could not be taken back: {error.strerror}") from error

    def _parse(self, data: bytes) -> tuple[list[memoryview], int]:
        size = len(data)
        if size < _FILE_HEADER_SIZE:
            if self._header.startswith(data):
                return [], 0
            raise self._corrupt("not a file of this broker", 0)
        if data[:_FILE_HEADER_SIZE] != self._header:
            raise self._corrupt(self._describe_header(data), 0)
        view = memoryview(data)
        payloads: list[memoryview] = []
        position = _FILE_HEADER_SIZE
        crc32, unpack_from, header_size = zlib.crc32, _ENTRY.unpack_from, _ENTRY.size
        while position + header_size <= size:
            length, length_crc, payload_crc = unpack_from(data, position)
            if crc32(view[position : position + 4]) != length_crc:
                if not any(view[position:]):
                    break  # the file grew, but its bytes never arrived
                raise self._corrupt("the length of an entry does not match its checksum", position)
            begin = position + header_size
            end = begin + length
            if end > size:
                break
            payload = view[begin:end]
            if crc32(payload) != payload_crc:
                if end == size:
                    break
                raise self._corrupt("an entry does not match its checksum, and others follow it", position)
            payloads.append(payload)
            position = end
        return payloads, position

    def _describe_header(self, data: bytes) -> str:
        if not data.startswith(_MAGIC):
            return "not a file of this broker"
        if data[6] != FORMAT_VERSION:
            return f"written in format {data[6]}, this version reads format {FORMAT_VERSION}"
        return f"holds entries of kind {data[7:8]!r}, expected {self._header[7:8]!r}"

    def _corrupt(self, what: str, position: int) -> DataDirCorruptError:
        return DataDirCorruptError(
            f"{what}. Restore the folder from a copy, or move this file away and lose what it holds",
            file=str(self.path),
            position=position,
        )
