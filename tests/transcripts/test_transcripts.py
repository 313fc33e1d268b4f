"""Conversations of members with their coordinator, as text: what was sent, answered, and told to the listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.language import play, transcripts


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in transcripts()])
def test_the_conversation_still_reads_as_written(path: Path) -> None:
    """A message, its order, its fields or a callback changed; `make transcripts` shows the difference to read."""
    written = path.read_text(encoding="utf-8")

    played, _ = play(written)

    assert played == written
