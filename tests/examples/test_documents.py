"""What the documentation shows works: its Python blocks are run, in order, as one test file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
TIMEOUT_S = 170
WITHOUT = [argument for name in ("randomly", "cacheprovider", "asyncio", "anyio") for argument in ("-p", f"no:{name}")]


def code_of(document: Path) -> str:
    """The Python blocks of a document."""
    return "\n\n".join(
        re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["testing.md", "client-side-assignors.md", "security.md"])
def test_the_examples_of_a_document_run(name: str, tmp_path: Path) -> None:
    """A reader copies them; one that does not work costs more trust than ten that do earn."""
    code = code_of(DOCS / name)
    (tmp_path / "test_document.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--timeout=120", *WITHOUT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{code.count('def test_')} passed" in done.stdout


@pytest.mark.parametrize("name", ["testing.md", "client-side-assignors.md", "security.md"])
def test_the_links_of_a_document_lead_somewhere(name: str) -> None:
    """A dead link sends a reader away."""
    text = (DOCS / name).read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    links = [target for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    assert links
    for target in links:
        path, _, anchor = target.partition("#")
        assert not path or (DOCS / path).exists(), target
        assert path or anchor in anchors, target
