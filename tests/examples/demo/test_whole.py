"""The demo as a person starts it: real processes, a real crash, an exact account at the end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import demo as demo_package
import pytest

from tests.support.waiting import wait_until

COMMAND = [sys.executable, "-m", "demo", "--flights", "3000", "--dwell", "0"]
DEADLINE_S = 150.0
EXAMPLES = Path(demo_package.__file__).parents[1]

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [*COMMAND, *options],
        cwd=EXAMPLES,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read(path: Path) -> str:
    """A file of /proc; empty if its process or thread has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Children of any thread of the demo."""
    return [
        int(pid)
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        for pid in read(task / "children").split()
        if "demo.worker" in read(Path(f"/proc/{pid}/cmdline"))
    ]


def runs(pid: int) -> bool:
    """Whether it is there, and not only waiting to be buried."""
    stat = read(Path(f"/proc/{pid}/stat"))
    return bool(stat) and stat.rpartition(")")[2].split()[0] != "Z"


def test_every_flight_is_counted_through_joins_a_leave_and_a_crash(tmp_path: Path) -> None:
    """The promise of the project, end to end: this failing means that the group loses or repeats records."""
    journal = tmp_path / "journal.jsonl"
    with demo("--json", "--journal", str(journal)) as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    result = json.loads(output)
    assert result["ok"] is True
    assert result["differences"] == []
    assert sum(counts["distinct"] for counts in result["counts"].values()) == 3000
    assert {member["name"]: member["fate"] for member in result["members"]} == {
        "counter-1": "left",
        "counter-2": "left",
        "counter-3": "removed",
        "counter-4": "left",
    }
    assert [rebalance["members"] for rebalance in result["rebalances"]][:6] == [1, 2, 3, 2, 1, 2]
    assert {duplicate["first_by"] for duplicate in result["duplicates"]} <= {"counter-3"}
    assert '"reason":"session_timeout"' in journal.read_text(encoding="utf-8")
    assert errors == ""


def test_ctrl_c_ends_the_demo_and_all_its_workers() -> None:
    """A person who has seen enough must get the prompt back, and no process must stay behind."""
    with demo() as process:
        wait_until(lambda: bool(workers_of(process)), DEADLINE_S, "the first worker to run")
        workers = workers_of(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Traceback" not in errors
    wait_until(lambda: not any(runs(pid) for pid in workers), DEADLINE_S, "the workers to end")


def test_workers_end_by_themselves_if_the_demo_is_killed() -> None:
    """No process is left to stop them: consumers of a broker that is gone would run for ever."""
    with demo() as process:
        wait_until(lambda: bool(workers_of(process)), DEADLINE_S, "the first worker to run")
        workers = workers_of(process)
        process.kill()
        process.communicate(timeout=DEADLINE_S)
    wait_until(lambda: not any(runs(pid) for pid in workers), DEADLINE_S, "the workers to end")


def test_the_demo_of_workers_ends_well() -> None:
    """Three processes, one killed and one drained: no feed ever runs twice."""
    with subprocess.Popen(
        [sys.executable, "-m", "demo", "--workers", "--json"], stdout=subprocess.PIPE, cwd=EXAMPLES
    ) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    result = json.loads(output)
    assert result["ok"]
    assert result["moves"] >= 18
