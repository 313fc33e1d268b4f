"""Generated mutants that are left out, because nothing that a core does can show them: ``equivalent.txt``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.mutants.generated import Mutation
from tests.mutants.sources import short


def _read(path: Path) -> dict[str, str]:
    found, reason = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            found[line.strip()] = reason
        elif not line.startswith("#"):
            reason = line
    return found


REASONS: Final[Mapping[str, str]] = _read(Path(__file__).with_suffix(".txt"))
"""Name of a mutant, of a function or of a module -> why it is left out."""


def reason_to_leave_out(mutation: Mutation) -> str | None:
    """Why a mutant is no target, or None if it is one."""
    function = mutation.name.split(": ", 1)[0]
    found = (REASONS.get(name) for name in (mutation.name, function, short(mutation.module)))
    return next((reason for reason in found if reason is not None), None)
