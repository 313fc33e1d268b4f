"""Every folder of the package is a room that a reader can take in, and imports go one way between rooms."""

from __future__ import annotations

from pathlib import Path

from tests.source.rooms import FILES_MAX, PACKAGE, REASON, crowded, ordered_packages, unordered


def test_no_folder_has_more_files_than_a_reader_takes_in_without_a_reason() -> None:
    """A new line gets lost where fifty files stand side by side."""
    assert crowded(PACKAGE) == []


def test_the_folders_of_a_package_have_an_order() -> None:
    """Without one, the next import runs back up, and no room can be read alone."""
    assert unordered(PACKAGE, ordered_packages()) == []


def test_a_crowded_folder_and_one_without_order_are_found(tmp_path: Path) -> None:
    """A check that finds nothing would let every folder fill up again."""
    for name, count, text in (
        ("", 0, ""),
        ("room", FILES_MAX - 1, ""),
        ("hall", FILES_MAX, ""),
        ("row", FILES_MAX, f"{REASON}, one for each API."),
    ):
        folder = tmp_path / "package" / name
        folder.mkdir()
        (folder / "__init__.py").write_text(f'"""{text}"""', encoding="utf-8")
        for number in range(count):
            (folder / f"file_{number}.py").touch()
    assert crowded(tmp_path / "package") == ["hall"]
    assert unordered(tmp_path / "package", ordered=()) == [""]
    assert unordered(tmp_path / "package", ordered=("package",)) == []
