"""The data folder of a broker: its marker file, its lock, and ``set-aside/`` for files that are not served.

A broker uses a folder only if it is empty or new, or has the marker file of a broker. It refuses any other folder
before it touches a file. Nothing here deletes a file: files that cannot be served move to ``set-aside/``.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

import msgspec

from kip848_client.common.file_lock import lock_file, unlock_file
from kip848_client.errors import DataDirError, DataDirForeignError, DataDirLockedError
from kip848_client.testing.broker.storage.entry_file import sync_file

MARKER_NAME: Final = "kip848-data-folder.json"
FOLDER_FORMAT: Final = 1
"""Written into the marker; a broker refuses a folder of any other."""

_ABOUT: Final = (
    "Topics, records and consumer groups of a kip848_client broker. Copy or move the folder as a whole, while no "
    "broker uses it."
)
_NAMES_SHOWN: Final = 3
_LOCK_NAME: Final = "lock"
_LOCK_BYTES_MAX: Final = 32


class FolderMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the marker file.

    Attributes:
        format: the layout of the folder.
        cluster_id: 22 characters of URL-safe base64, the same for the life of the folder; empty in a marker that a
            person wrote.
        about: a sentence for a person who finds the folder.
    """

    format: int = FOLDER_FORMAT
    cluster_id: str = ""
    about: str = _ABOUT


def claim_folder(path: Path) -> tuple[FolderMarker, int]:
    """Make *path* a data folder if it is empty or not there, or see that it is one; and lock it.

    Returns:
        The marker, and the descriptor of the locked file; `release_folder` takes it back.

    Raises:
        DataDirForeignError: it holds files and no marker; nothing in it was touched.
        DataDirLockedError: another broker uses it.
        DataDirError: it cannot be made, read or written, or its marker cannot be understood.
    """
    lock_fd = -1
    try:
        path.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(path)
        lock_fd = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        _lock(path, lock_fd)
        return _marker_of(path), lock_fd
    except OSError as error:
        _close(lock_fd)
        raise DataDirError(f"{path}: cannot be used as a data folder: {error.strerror}") from error
    except BaseException:
        _close(lock_fd)
        raise


def release_folder(lock_fd: int) -> None:
    """Give the folder free."""
    unlock_file(lock_fd)
    os.close(lock_fd)


def new_cluster_id() -> str:
    """A random cluster id of Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def write_whole_file(path: Path, data: bytes, *, to_disk: bool = False) -> None:
    """Write a file so that a reader sees either all of it or the old content.

    Args:
        to_disk: return only when the disk has it; a power failure may lose it otherwise.

    Raises:
        OSError: it could not be written.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if to_disk:
                file.flush()
                sync_file(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # our own half-written copy
        raise


class SetAside:
    """The folder for files that are not served. Files are moved or copied into it, never removed.

    Args:
        root: the data folder.
    """

    def __init__(self, root: Path) -> None:
        self._root: Final = root

    def move(self, path: Path) -> Path:
        """Move a file or folder of the data folder; a symbolic link and its target stay where they are.

        Returns:
            Its new path.

        Raises:
            OSError: it cannot be moved; it is where it was.
        """
        if path.is_symlink():
            raise OSError(None, "it is a symbolic link, which is not followed")
        target = self._place_for(path.relative_to(self._root))
        path.rename(target)
        return target

    def copy(self, path: Path) -> Path:
        """Keep a copy of a file that will be replaced.

        Raises:
            DataDirError: it cannot be kept.
        """
        try:
            target = self._place_for(path.relative_to(self._root))
            shutil.copyfile(path, target)
        except OSError as error:
            raise DataDirError(
                f"{path}: must be repaired, and no copy of it can be kept: {error.strerror}. Nothing was changed"
            ) from error
        return target

    def keep_tail(self, path: Path, tail: bytes, *, position: int) -> Path:
        """Keep the bytes that will be cut off a file.

        Raises:
            DataDirError: they cannot be kept.
        """
        try:
            name = path.relative_to(self._root)
            target = self._place_for(name.with_name(f"{name.name}.from-byte-{position}"))
            write_whole_file(target, tail)
        except OSError as error:
            raise DataDirError(
                f"{path}: {len(tail)} bytes of an incomplete entry must be cut off, and no copy of them can be kept: "
                f"{error.strerror}. Nothing was changed"
            ) from error
        return target

    def _place_for(self, relative: Path) -> Path:
        wanted = self._root / "set-aside" / relative
        wanted.parent.mkdir(parents=True, exist_ok=True)
        candidates = itertools.chain([wanted], (wanted.with_name(f"{wanted.name}.{n}") for n in itertools.count(2)))
        return next(place for place in candidates if not os.path.lexists(place))


def _read_marker(path: Path) -> FolderMarker:
    try:
        marker = msgspec.json.decode(path.read_bytes(), type=FolderMarker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataDirError(
            f"{path}: cannot be understood ({error}). It says that its folder belongs to a broker. Restore it from a "
            f'copy of the folder, or write {{"format": {FOLDER_FORMAT}}} into it'
        ) from error
    if marker.format != FOLDER_FORMAT:
        raise DataDirError(
            f"{path}: the folder has format {marker.format}, this version of kip848_client reads format "
            f"{FOLDER_FORMAT}; use the version that made it. Nothing was changed"
        )
    return marker


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder that is neither ours nor empty. A start that was interrupted may have left the names below."""
    names = sorted(os.listdir(path))  # noqa: PTH208  names are all that is needed
    if MARKER_NAME in names:
        return
    others = [name for name in names if name != f"{MARKER_NAME}.new" and not _is_our_lock(path / name)]
    if others:
        shown = ", ".join(others[:_NAMES_SHOWN]) + (", ..." if len(others) > _NAMES_SHOWN else "")
        raise DataDirForeignError(
            f"{path}: is not empty and not the data folder of a broker: it holds {shown} and no {MARKER_NAME}. "
            f"Nothing in it was touched. Name a new or empty folder, for example {path / 'broker'}. If this is a data "
            f'folder that lost its marker, write {{"format": {FOLDER_FORMAT}}} into {path / MARKER_NAME}'
        )


def _is_our_lock(path: Path) -> bool:
    if path.name != _LOCK_NAME or path.is_symlink() or not path.is_file() or path.stat().st_size > _LOCK_BYTES_MAX:
        return False
    content = path.read_bytes().strip()
    return not content or content.isdigit()


def _lock(path: Path, lock_fd: int) -> None:
    try:
        lock_file(lock_fd)
    except OSError as error:
        holder = ""
        with contextlib.suppress(OSError, ValueError):
            os.lseek(lock_fd, 0, os.SEEK_SET)
            holder = f" (process {int(os.read(lock_fd, _LOCK_BYTES_MAX))})"
        raise DataDirLockedError(
            f"{path}: another broker uses this folder{holder}; stop it, or choose another folder"
        ) from error
    os.ftruncate(lock_fd, 0)
    os.lseek(lock_fd, 0, os.SEEK_SET)
    os.write(lock_fd, f"{os.getpid()}\n".encode())


def _close(lock_fd: int) -> None:
    if lock_fd >= 0:
        os.close(lock_fd)


def _marker_of(path: Path) -> FolderMarker:
    file = path / MARKER_NAME
    marker = _read_marker(file) if os.path.lexists(file) else FolderMarker()
    if not marker.cluster_id:
        marker = FolderMarker(cluster_id=new_cluster_id())
        text = msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n"
        write_whole_file(file, text, to_disk=True)
    return marker
