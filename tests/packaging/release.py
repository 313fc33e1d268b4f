"""Build what is published, check it, and try it in a clean environment of each Python that is supported.

Run by ``make release``. It uploads nothing: that is a person's decision (``twine upload dist/*``).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kip848_client.common.version import __version__
from tests.packaging.check_wheel import ROOT, inspect, try_out

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST = "confluent-kafka==2.12.0"
DIST = ROOT / "dist"


def main() -> int:
    """Return 0 if dist/ can be uploaded; raise SystemExit with what is wrong otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", metavar="URL", help="where the sources live: README's links become absolute")
    parser.add_argument(
        "--pythons", nargs="+", default=list(PYTHONS), metavar="X.Y", help="try it in these (3.11 to 3.14)"
    )
    arguments = parser.parse_args()
    interpreters = {version: shutil.which(f"python{version}") for version in arguments.pythons}
    missing = [version for version, path in interpreters.items() if path is None]
    if missing:
        raise SystemExit(f"release: Python {', '.join(missing)} is not on PATH; install it, or choose with --pythons")
    check_changelog((ROOT / "docs" / "changelog.md").read_text(encoding="utf-8"), __version__)
    wheel = build(arguments.repository)
    inspect(wheel)
    for number, (python_version, path) in enumerate(interpreters.items(), start=1):
        print(f"release: trying it in Python {python_version} ({number} of {len(interpreters)})", flush=True)
        assert path is not None
        try_out(wheel, path)
    print(f"release: trying it with the oldest {OLDEST}", flush=True)
    try_out(wheel, sys.executable, OLDEST)
    print(f"release: {DIST} can be uploaded: twine upload {DIST}/*")
    return 0


def check_changelog(changelog: str, version: str) -> None:
    """Raise SystemExit unless *changelog* has a dated section of *version*."""
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise SystemExit(
            f"release: docs/changelog.md has no section '## {version} - YYYY-MM-DD'; rename 'Unreleased' to that"
        )


def build(repository: str | None) -> Path:
    """Make sdist and wheel in dist/ and let twine check them; return the wheel.

    Args:
        repository: the address of the sources, or None: README keeps links that work in a checkout only.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kip848-release-") as folder:
        tree, tools = Path(folder) / "tree", Path(folder) / "tools"
        # What is committed, and nothing that lies about.
        _run("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(tree))
        if repository is not None:
            readme = tree / "README.md"
            readme.write_text(absolute_links(readme.read_text(encoding="utf-8"), repository), encoding="utf-8")
            project = tree / "pyproject.toml"
            project.write_text(with_urls(project.read_text(encoding="utf-8"), repository), encoding="utf-8")
        else:
            print("release: without --repository the links of README lead nowhere on a package index", flush=True)
        _run(sys.executable, "-m", "venv", str(tools))
        python = str(tools / "bin" / "python")
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "build>=1.2", "twine>=6")
        _run(python, "-m", "build", "--outdir", str(DIST), str(tree))
        _run(python, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    (wheel,) = DIST.glob("*.whl")
    return wheel


def absolute_links(markdown: str, repository: str) -> str:
    """Let relative links of *markdown* lead to *repository*; pictures are shown only from its raw files."""
    place = repository.rstrip("/")
    markdown = re.sub(r"(!\[[^\]]*\])\((?![a-z]+:)([^)]+)\)", rf"\1({place}/raw/main/\2)", markdown)
    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", rf"]({place}/blob/main/\1)", markdown)


def with_urls(pyproject: str, repository: str) -> str:
    """Add ``[project.urls]`` of *repository* to a pyproject.toml."""
    home = repository.rstrip("/")
    urls = {
        "Source": home,
        "Documentation": f"{home}/tree/main/docs",
        "Changelog": f"{home}/blob/main/docs/changelog.md",
        "Issues": f"{home}/issues",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return pyproject.replace("[project.scripts]", f"[project.urls]\n{lines}\n[project.scripts]", 1)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"release: {' '.join(command)} exited with {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    raise SystemExit(main())
