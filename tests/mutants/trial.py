"""One mutant in a process of its own: put it in, play, run the unit tests, and say what noticed it first.

Memory and processor time of the process are limited: a bug cannot take the machine with it, and what never ends counts
as noticed. A mistake of the harness itself never does: such a mutant counts as missed, and says why.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tests.mutants.generated import Mutation, mutate
from tests.mutants.plays import PLAYS, Play, judge, plays
from tests.mutants.sources import ROOT, ChangedModule, path_of

_OF_BROKER: Final = "tests/broker/test_transactions.py"
_OF_LOGS: Final = (
    "tests/test_partition_log.py",
    "tests/properties/test_log_machine.py",
    "tests/broker/storage/test_records_by_rule.py",
    _OF_BROKER,
)
UNIT_TESTS: Final = {
    "member": ("tests/transcripts", "tests/member", "tests/spec"),
    "coordinator": ("tests/transcripts", "tests/coordinator", "tests/spec", _OF_BROKER),
    "worker": ("tests/worker",),
    "transactions": ("tests/transactions", "tests/properties/test_transaction_machine.py", _OF_BROKER),
    "partition_log": _OF_LOGS,
    "producer_batches": _OF_LOGS,
    "broker": ("tests/broker/test_transaction_admission.py", _OF_BROKER),
}
"""The tests of each core, the likelier ones first; no core imports another."""
_FIRST_PLAYS: Final = 5
"""Plays before the unit tests: most changes break the first, and all unit tests cost as much as twenty plays."""
CPU_S: Final = 300
"""Processor time of one process; it is killed then."""
_MEMORY_BYTES: Final = 3 * 2**30


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant.

    Args:
        caught_by: an invariant, "assertion", "exception", "hang", "import", the id of a test, or "" if nothing did.
        message: what that said; or what went wrong with the trial.
        tests: number of unit tests that were run.
        cpu_s: processor time.
    """

    name: str
    caught_by: str = ""
    message: str = ""
    tests: int = 0
    cpu_s: float = 0.0

    @property
    def by_simulation(self) -> bool:
        """Whether a play noticed it, and not a unit test."""
        return bool(self.caught_by) and not self.caught_by.startswith("tests/")


def try_one(mutation: Mutation, *, play_count: int = PLAYS) -> Outcome:
    """Try one mutant in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([mutation.module, mutation.name, play_count]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
    if done.returncode < 0 or last.startswith("MemoryError"):
        # Killed for its processor time or memory, by what no handler in Python can stop.
        return Outcome(name=mutation.name, caught_by="hang", message=last, cpu_s=float(CPU_S))
    if done.returncode:
        return Outcome(name=mutation.name, message=last)
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Outcome)


# ------------------------------------------------------------------------------------------------------ in the process


def _verdict(module: str, name: str, *, play_count: int) -> Outcome:
    """Put the mutant in; ask a few plays, then the unit tests, which are quicker than all plays, then the other plays.

    The process is of no use afterwards.

    Raises:
        RuntimeError, KeyError: the mutant was not put in, or its tests were not run.
    """
    changed = mutate(module, ast.parse(path_of(module).read_bytes()), name)
    sys.meta_path.insert(0, ChangedModule(module, changed))
    try:
        import tests.simulation.probes  # noqa: F401
    except Exception as error:
        return Outcome(name=name, caught_by="import", message=repr(error))
    every_play = plays(module, play_count)
    if (noticed := _noticed_by(every_play[:_FIRST_PLAYS], name)) is not None:
        return noticed
    outcome = _unit_tests(name, UNIT_TESTS[module.split(".")[1]])
    if module not in sys.modules:
        raise RuntimeError(f"neither plays nor unit tests imported {module}")
    if outcome.caught_by:
        return outcome
    return _noticed_by(every_play[_FIRST_PLAYS:], name) or outcome


def _noticed_by(some: Sequence[Play], name: str) -> Outcome | None:
    """What the first of some plays that notices the mutant says."""
    for play in some:
        if (heard := judge(play)) is not None:
            return Outcome(name=name, caught_by=heard[0], message=heard[1][:300])
    return None


def _unit_tests(name: str, folders: tuple[str, ...]) -> Outcome:
    """The first unit test that fails, and why.

    Raises:
        RuntimeError: not all of the folders were run, although nothing failed.
    """
    import pytest

    failed: list[tuple[str, str]] = []
    ran: set[str] = set()

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            ran.add(report.nodeid)
            self.pytest_collectreport(report)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                failed.append((report.nodeid, str(report.longrepr).splitlines()[-1]))

    # Plain assertions: the hook that rewrites them would load the modules itself, and without the mutant.
    # A test that fails may leave a socket open; that is no news of its own.
    plugins = ["randomly", "cacheprovider", "unraisableexception"]
    options = ["-x", "-q", "--assert=plain", "--timeout=60", *(f"-pno:{name}" for name in plugins)]
    status = pytest.main([*options, "--rootdir", str(ROOT), *(str(ROOT / path) for path in folders)], [Listener()])
    if failed:
        return Outcome(name=name, caught_by=failed[0][0], message=failed[0][1][:300], tests=len(ran))
    if status == pytest.ExitCode.INTERNAL_ERROR:
        return Outcome(name=name, caught_by="exception", message="pytest broke off", tests=len(ran))
    unseen = [folder for folder in folders if not any(test.startswith(folder) for test in ran)]
    if status != pytest.ExitCode.OK or unseen:
        raise RuntimeError(f"pytest ended with {status!r} after {len(ran)} tests, and ran none of {unseen}")
    return Outcome(name=name, tests=len(ran))


def main() -> None:
    """Read module, name and number of plays from standard input, write the outcome as the last line of output."""
    module, name, play_count = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    outcome = _verdict(module, name, play_count=play_count)
    outcome = msgspec.structs.replace(outcome, cpu_s=round(time.process_time(), 1))
    print("\n" + msgspec.json.encode(outcome).decode(), flush=True)
    os._exit(0)  # a thread of a test that failed may never end


if __name__ == "__main__":
    main()
