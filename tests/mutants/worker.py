"""One bug in one process: put it in, play, run the unit tests, and say what noticed it first. Started by `runner`.

Memory and processor time are limited: a bug cannot take the machine with it, and what never ends counts as noticed.
"""

from __future__ import annotations

import ast
import json
import resource
import sys
import time
from collections.abc import Iterable
from typing import Final

from tests.mutants.generated import mutate
from tests.mutants.plays import is_of_workers, judge, plays
from tests.mutants.sources import ROOT, ChangedModules

UNIT_TESTS: Final = {
    "member": ("tests/transcripts", "tests/member", "tests/spec"),
    "coordinator": ("tests/transcripts", "tests/coordinator", "tests/spec"),
    "worker": ("tests/worker",),
}
"""The tests of each core, the likelier ones first; neither core imports the other."""
CPU_S: Final = 300
"""Processor time of one process; it is killed then."""
_MEMORY_BYTES: Final = 3 * 2**30


def verdict(module: str, name: str, *, play_count: int) -> dict[str, object]:
    """Put the mutant in, and ask the simulation, then the unit tests. The process is of no use afterwards.

    Returns:
        ``caught_by``: an invariant, "assertion", "exception", "hang", "import", the id of a test, or "" if nothing
        noticed it; ``message``, ``play`` (number from 1; 0 if no play noticed it) and ``cpu_s``.
    """

    def change(changed: str, tree: ast.Module) -> ast.Module:
        return mutate(changed, tree, name)

    sys.meta_path.insert(0, ChangedModules([module], change))
    play, found = 0, ("", "")
    try:
        import tests.simulation.probes  # noqa: F401
    except Exception as error:
        found = ("import", repr(error))
    else:
        chosen = plays(play_count, of_workers=is_of_workers(module))
        noticed = ((number, heard) for number, one in enumerate(chosen, 1) if (heard := judge(one)))
        play, found = next(noticed, None) or (0, _unit_tests(UNIT_TESTS[module.split(".")[1]]))
    return {
        "caught_by": found[0],
        "message": found[1][:300],
        "play": play,
        "cpu_s": round(time.process_time(), 1),
    }


def _unit_tests(folders: Iterable[str]) -> tuple[str, str]:
    """The first unit test that fails, and why; two empty texts if all pass."""
    import pytest

    failed: list[tuple[str, str]] = []

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append((report.nodeid, str(report.longrepr).splitlines()[-1]))

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                failed.append((report.nodeid, str(report.longrepr).splitlines()[-1]))

    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--assert=plain", "--timeout=60"]
    # Plain assertions: the hook that rewrites them would load the modules itself, and without the mutant.
    status = pytest.main([*options, "--rootdir", str(ROOT), *(str(ROOT / path) for path in folders)], [Listener()])
    if failed:
        return failed[0]
    return ("", "") if status == pytest.ExitCode.OK else ("exception", f"pytest ended with {status}")


def main() -> None:
    """Read module, name and number of plays from standard input, write the verdict as the last line of output."""
    module, name, play_count = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    print("\n" + json.dumps(verdict(module, name, play_count=play_count)))


if __name__ == "__main__":
    main()
