"""The checksummed file: what a crash can do to it is repaired, anything else is refused."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.errors import DataDirCorruptError, DataDirError
from kip848_client.testing.broker.storage.entry_file import EntryFile


def a_file(folder: Path, *payloads: bytes) -> Path:
    path = folder / "some.log"
    path.unlink(missing_ok=True)
    file = EntryFile(path, kind=b"t")
    for payload in payloads:
        file.append(payload)
    file.close()
    return path


def loaded(path: Path) -> tuple[list[bytes], int]:
    """The entries of a file, and the length of the torn tail that was cut off it."""
    file = EntryFile(path, kind=b"t")
    entries = file.load()
    if entries.torn_tail:
        file.cut(entries)
    return [bytes(payload) for payload in entries.payloads], len(entries.torn_tail)


def test_a_file_that_is_not_there_is_empty_and_is_not_made_by_loading(tmp_path: Path) -> None:
    """Looking into a data folder must not change it."""
    assert loaded(tmp_path / "some.log") == ([], 0)
    assert list(tmp_path.iterdir()) == []


@given(payloads=st.lists(st.binary(max_size=50), max_size=6))
def test_what_was_appended_is_loaded(payloads: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Broken: a restart loses or changes what was acknowledged."""
    path = a_file(tmp_path_factory.mktemp("file"), *payloads)

    assert loaded(path) == (payloads, 0)


def test_every_append_is_in_the_file_when_it_returns(tmp_path: Path) -> None:
    """Broken: a killed process loses what it acknowledged, because it sat in a buffer."""
    file = EntryFile(tmp_path / "some.log", kind=b"t")

    for number in range(3):
        file.append(b"%d" % number)
        assert loaded(tmp_path / "some.log") == ([b"%d" % seen for seen in range(number + 1)], 0)
    file.close()


def test_a_file_cut_at_any_byte_loads_the_entries_that_are_whole(tmp_path: Path) -> None:
    """Broken: a broker that was killed while writing does not start again."""
    path = a_file(tmp_path, b"first", b"", b"third" * 4)
    whole = path.read_bytes()
    ends = [8, 8 + 12 + 5, 8 + 12 + 5 + 12, len(whole)]

    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = max((end for end in ends if end <= cut), default=0)

        payloads, cut_bytes = loaded(path)

        assert payloads == [b"first", b"", b"third" * 4][: max(0, ends.index(kept)) if kept else 0]
        assert cut_bytes == cut - kept
        assert path.stat().st_size == kept
        appending = EntryFile(path, kind=b"t")
        appending.append(b"next")
        appending.close()
        assert loaded(path) == ([*payloads, b"next"], 0)


def test_a_tail_of_zeros_is_a_torn_tail(tmp_path: Path) -> None:
    """Broken: after a power failure, which leaves grown files full of zeros, the broker does not start."""
    path = a_file(tmp_path, b"first")
    whole = path.read_bytes()

    for zeros in (1, 12, 13, 4096):
        path.write_bytes(whole + bytes(zeros))
        assert loaded(path) == ([b"first"], zeros)


def test_a_last_entry_whose_bytes_are_wrong_is_a_torn_tail(tmp_path: Path) -> None:
    """Broken: the same, when the length arrived and the content did not."""
    path = a_file(tmp_path, b"first", b"second")
    whole = path.read_bytes()

    path.write_bytes(whole[:-3] + bytes(3))

    assert loaded(path) == ([b"first"], 12 + 6)


def test_loading_a_torn_file_leaves_it_as_it_is(tmp_path: Path) -> None:
    """Broken: bytes are cut off before anybody kept them."""
    path = a_file(tmp_path, b"first", b"second")
    torn = path.read_bytes()[:-1]
    path.write_bytes(torn)

    entries = EntryFile(path, kind=b"t").load()

    assert (entries.end, entries.torn_tail) == (25, torn[25:])
    assert path.read_bytes() == torn


def test_salvaging_finds_every_entry_that_is_whole(tmp_path: Path) -> None:
    """Broken: one damaged byte in cluster.log costs topics that stand before or behind it."""
    entries = [b"first", b"second", b"", b"last"]
    path = a_file(tmp_path, *entries)
    whole = path.read_bytes()
    begins = [8, 8 + 17, 8 + 17 + 18, 8 + 17 + 18 + 12, len(whole)]

    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        hit = next((index for index in range(4) if begins[index] <= position < begins[index + 1]), None)

        salvaged = EntryFile(path, kind=b"t").salvage()

        assert salvaged == [entry for index, entry in enumerate(entries) if index != hit]
        assert path.read_bytes() == damaged


def test_no_changed_byte_before_the_last_entry_goes_unseen(tmp_path: Path) -> None:
    """Broken: damage in the middle of a file is served, or silently cuts off everything behind it."""
    path = a_file(tmp_path, b"first", b"second", b"last")
    whole = path.read_bytes()
    last_begins = len(whole) - 12 - 4

    for position in range(last_begins):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)

        with pytest.raises(DataDirCorruptError, match="Nothing was changed; restore this file from a copy") as error:
            loaded(path)

        assert error.value.file == str(path)
        assert error.value.position in (0, 8, 8 + 12 + 5)
        assert path.read_bytes() == damaged


def test_a_file_of_another_format_or_kind_is_refused(tmp_path: Path) -> None:
    """Broken: a newer or foreign file is read as if it were ours, and cut down to nothing."""
    path = a_file(tmp_path, b"first")
    whole = path.read_bytes()

    for content, says in (
        (b"something else entirely", "not a file of this broker"),
        (b"some", "not a file of this broker"),
        (whole[:6] + b"\x02" + whole[7:], "written in format 2, this version reads format 1"),
        (whole[:7] + b"x" + whole[8:], "holds entries of kind b'x', expected b't'"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataDirCorruptError, match=says):
            loaded(path)
        assert path.read_bytes() == content


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: half an entry stays in the file, and everything written after it is lost with the next start."""
    path = a_file(tmp_path, b"first")
    file = EntryFile(path, kind=b"t")
    real_writev = os.writev

    def short(fd: int, parts: list[bytes]) -> int:
        return real_writev(fd, [b"".join(parts)[:5]])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", short)
        patch.setattr(os, "write", full)
        with pytest.raises(DataDirError, match="could not be written: No space left on device"):
            file.append(b"second")

    assert loaded(path) == ([b"first"], 0)
    file.append(b"third")
    file.close()
    assert loaded(path) == ([b"first", b"third"], 0)


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: an entry interrupted by a signal is acknowledged and not there."""
    real_writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real_writev(fd, [b"".join(parts)[:5]]))

    path = a_file(tmp_path, b"first", b"second")

    assert loaded(path) == ([b"first", b"second"], 0)


def test_a_file_that_could_not_be_repaired_is_not_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: entries are written behind half an entry and acknowledged, and the next start refuses the file."""
    path = a_file(tmp_path, b"first")
    file = EntryFile(path, kind=b"t")

    def fails(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", fails)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(DataDirError, match="could not be taken back"):
            file.append(b"second")

    with pytest.raises(DataDirError, match="restart the broker"):
        file.append(b"third")


def test_a_rewrite_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: compaction on a full disk loses everything."""
    path = a_file(tmp_path, b"first")
    file = EntryFile(path, kind=b"t")

    def fails(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(DataDirError, match="cannot be rewritten: No space left on device"):
            file.rewrite([b"other"])
    assert loaded(path) == ([b"first"], 0)

    assert [child.name for child in tmp_path.iterdir()] == ["some.log"]
    file.rewrite([b"other", b"more"])
    file.append(b"next")
    file.close()
    assert loaded(path) == ([b"other", b"more", b"next"], 0)


def test_a_file_is_closed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not rename an open file: compaction would fail there, and the log only grow."""
    closed: list[int] = []
    close, replace = os.close, os.replace

    def note(fd: int) -> None:
        closed.append(fd)
        close(fd)

    def rename(*paths: Path) -> None:
        assert closed
        replace(*paths)

    file = EntryFile(tmp_path / "some.log", kind=b"t")
    monkeypatch.setattr(os, "close", note)
    monkeypatch.setattr(os, "replace", rename)

    file.rewrite([b"other"])

    assert loaded(tmp_path / "some.log") == ([b"other"], 0)


def test_a_path_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    """Broken: a folder of the wrong kind surfaces as an unknown OSError deep inside the broker."""
    (tmp_path / "a-file").write_bytes(b"")

    with pytest.raises(DataDirError, match="cannot be opened for writing"):
        EntryFile(tmp_path / "a-file" / "some.log", kind=b"t").append(b"x")
    with pytest.raises(DataDirError, match="cannot be read"):
        EntryFile(tmp_path, kind=b"t").load()


def test_the_layout_is_the_one_that_is_documented(tmp_path: Path) -> None:
    """Broken: folders written by an earlier release cannot be read."""
    path = a_file(tmp_path, b"abc")

    length = struct.pack(">I", 3)
    assert (
        path.read_bytes()
        == b"KIP848\x01t" + length + struct.pack(">II", zlib.crc32(length), zlib.crc32(b"abc")) + b"abc"
    )
