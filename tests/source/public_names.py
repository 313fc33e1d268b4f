"""The public names: those that the modules on the page of public names export."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/reference/index.md"


def public_names() -> dict[str, list[str]]:
    """Public module -> its names."""
    modules = re.findall(r"^\| `(kip848_client[\w.]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {module: list(importlib.import_module(module).__all__) for module in modules}
