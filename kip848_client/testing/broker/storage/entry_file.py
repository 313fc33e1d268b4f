"""An append-only file of checksummed entries: write, read, cut a torn tail, detect damage elsewhere.

`cluster_log` and `group_log` give the entries their meaning. Layout, all numbers big endian::

    file   = "KIP848" format:u8 kind:u8  entry*
    entry  = length:u32  crc32(length):u32  crc32(payload):u32  payload

The length has a checksum of its own, so that a damaged length is not mistaken for an entry that was still being
written. Every append is one write to the operating system, made before the call returns: a killed process loses
nothing that was acknowledged. A power failure may lose entries that were not flushed to the disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kip848_client.errors import DataDirCorruptError, DataDirError

if sys.platform == "darwin":
    import fcntl

FORMAT_VERSION: Final = 1
"""Written into every file; a reader refuses any other."""

_MAGIC: Final = b"KIP848"
_FILE_HEADER_SIZE: Final = 8
_ENTRY: Final = struct.Struct(">III")
_LENGTH: Final = struct.Struct(">I")
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Windows writes another end of line into files that are open as text."""


class LoadedEntries(msgspec.Struct, frozen=True):
    """The content of a file.

    Attributes:
        payloads: the entries, oldest first.
        end: where the last of them ends in the file.
        torn_tail: an incomplete entry behind *end*; empty if the file is whole. See `EntryFile.cut`.
    """

    payloads: Sequence[memoryview]
    end: int = 0
    torn_tail: bytes = b""


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

    def is_ours(self) -> bool:
        """Whether it is there, as a file and not as a link to one, and begins as this class begins such a file."""
        try:
            if not stat.S_ISREG(self.path.lstat().st_mode):
                return False
            with self.path.open("rb") as file:
                return self._header.startswith(file.read(_FILE_HEADER_SIZE))
        except OSError:
            return False

    def load(self) -> LoadedEntries:
        """Read every entry, and change nothing.

        A torn tail is what a crash can leave: a last entry that is cut short or whose bytes never arrived. It has to
        be `cut` before anything is appended.

        Raises:
            DataDirCorruptError: damage other than a torn tail.
            DataDirError: the file cannot be read.
        """
        data = self._read()
        payloads, end = self._parse(data)
        return LoadedEntries(payloads, end, data[end:])

    def cut(self, loaded: LoadedEntries) -> None:
        """Cut the torn tail of *loaded* off the file. The caller keeps it first.

        Raises:
            DataDirError: it cannot be cut off.
        """
        try:
            os.truncate(self.path, loaded.end)
        except OSError as error:
            raise DataDirError(f"{self.path}: its torn tail cannot be cut off: {error.strerror}") from error

    def salvage(self) -> list[bytes]:
        """Every entry of a damaged file whose checksums are right, oldest first, wherever damage lies between them.

        Looks at each byte of the damaged stretches: for small files.

        Raises:
            DataDirError: the file cannot be read.
        """
        data = self._read()
        found = []
        position = 0
        while position + _ENTRY.size <= len(data):
            length, length_crc, payload_crc = _ENTRY.unpack_from(data, position)
            begin = position + _ENTRY.size
            payload = data[begin : begin + length]
            if (
                length_crc == zlib.crc32(data[position : position + _LENGTH.size])
                and len(payload) == length
                and payload_crc == zlib.crc32(payload)
            ):
                found.append(payload)
                position = begin + length
            else:
                position += 1
        return found

    def append(self, payload: bytes, *, to_disk: bool = False) -> None:
        """Write one entry; when this returns the operating system has it.

        Args:
            to_disk: the disk itself has it, and all before it, when this returns: a power failure cannot take it.

        Raises:
            DataDirError: it could not be written whole (a full disk); the written part is taken back.
        """
        length = _LENGTH.pack(len(payload))
        head = length + _LENGTH.pack(zlib.crc32(length)) + _LENGTH.pack(zlib.crc32(payload))
        fd = self._open()
        parts = [head, payload] if self._size else [self._header, head, payload]
        expected = sum(map(len, parts))
        try:
            written = _write(fd, parts)
            if written < expected:
                rest = b"".join(parts)
                while written < expected:
                    written += os.write(fd, rest[written:])
            if to_disk:
                sync_file(fd)
        except OSError as error:
            self._take_back()
            raise DataDirError(f"{self.path}: {expected} bytes could not be written: {error.strerror}") from error
        self._size += expected

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace all entries atomically, even if the process ends meanwhile.

        Raises:
            DataDirError: it could not be done; the file is as it was.
        """
        self.close()
        temporary = EntryFile(self.path.with_name(self.path.name + ".new"), kind=self._header[-1:])
        try:
            temporary.path.unlink(missing_ok=True)
            for payload in payloads:
                temporary.append(payload)
            sync_file(temporary._open())  # a rename may reach the disk before the content of the file
            temporary.close()  # Windows neither renames nor removes an open file
            temporary.path.replace(self.path)
        except (OSError, DataDirError) as error:
            temporary.close()
            with contextlib.suppress(OSError):
                temporary.path.unlink(missing_ok=True)
            reason = error.strerror if isinstance(error, OSError) else error
            raise DataDirError(f"{self.path}: cannot be rewritten: {reason}") from error
        finally:
            temporary.close()

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise DataDirError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _open(self) -> int:
        if self._broken:
            raise DataDirError(f"{self.path}: ends in half an entry since a write failed; restart the broker")
        if self._fd is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY, 0o644)
                self._size = os.fstat(self._fd).st_size
            except OSError as error:
                raise DataDirError(f"{self.path}: cannot be opened for writing: {error.strerror}") from error
        return self._fd

    def _take_back(self) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            # The next entry would stand behind half an entry. Refuse to write on; loading cuts the half entry off.
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
            f"{what}. Nothing was changed; restore this file from a copy of the folder",
            file=str(self.path),
            position=position,
        )


def _write(fd: int, parts: Sequence[bytes]) -> int:
    """Write what the system takes in one call, and return how much it was."""
    if sys.platform == "win32":
        return os.write(fd, b"".join(parts))
    return os.writev(fd, parts)


def sync_file(fd: int) -> None:
    """Bring a file to the disk.

    Raises:
        OSError: it cannot be done.
    """
    if sys.platform == "darwin":  # there fsync leaves it in the drive's memory
        with contextlib.suppress(OSError):  # some file systems know only fsync
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk. Windows does that by itself, and opens no folder.

    Raises:
        OSError: it cannot be done.
    """
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        sync_file(fd)
    finally:
        os.close(fd)
