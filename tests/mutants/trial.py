"""Trials of mutants, each in a fork of one process that has imported and collected everything.

A first round runs every unit test once under coverage, and notes which lines of the cores it runs. A fork puts a mutant
in by giving the changed function its new code. It runs the tests that reach the changed line, the quickest first, then
the plays. Memory and processor time are limited: a bug cannot take the machine with it, and a trial that never ends
counts as noticed. A mistake of the harness counts as missed, and the outcome says what went wrong.
"""

from __future__ import annotations

import ast
import gc
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import coverage
import msgspec
import pytest

from tests.mutants.generated import Mutation, functions, mutate
from tests.mutants.plays import judge, plays
from tests.mutants.sources import ROOT, modules, path_of

UNIT_TESTS: Final = (
    "tests/transcripts",
    "tests/member",
    "tests/spec",
    "tests/coordinator",
    "tests/transactions",
    "tests/worker",
    "tests/properties",
    "tests/test_partition_log.py",
    "tests/broker/storage/test_records_by_rule.py",
    "tests/broker/test_transaction_admission.py",
    "tests/broker/test_transactions.py",
)
"""The tests of the cores."""
_Live = dict[tuple[str, str, int], list[FunctionType]]
"""(file, qualified name, line) -> the functions with that code."""
CPU_S: Final = 300
"""Processor time of one trial; its process is killed then."""
_MEMORY_BYTES: Final = 4 * 2**30


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant.

    Args:
        caught_by: an invariant, "assertion", "exception", "hang", the id of a test, or "" if nothing noticed it.
        message: what that said; or what went wrong with the trial.
        tests: number of unit tests that reach the changed line.
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


def try_all(
    mutations: Sequence[Mutation],
    *,
    unit_tests: Sequence[str] = UNIT_TESTS,
    play_count: int,
    jobs: int,
    tell: Callable[[Outcome], None],
) -> list[Outcome]:
    """Try each mutant in a process of its own, *jobs* at a time; *tell* hears of each when it is done.

    Raises:
        RuntimeError: the unit tests fail without any mutant.
    """
    trials = _Trials(mutations, play_count=play_count, jobs=jobs, tell=tell)
    options = ["-q", "-s", "--no-header", "--no-summary", "--assert=plain", "--timeout=30", "-mnot slow and not kafka"]
    # A test that fails may leave a socket open; that is no news of its own.
    plugins = [f"-pno:{name}" for name in ("randomly", "cacheprovider", "unraisableexception", "xdist")]
    status = pytest.main(
        [*options, *plugins, "--rootdir", str(ROOT), *(str(ROOT / path) for path in unit_tests)], [trials]
    )
    if trials.failed or status != pytest.ExitCode.OK:
        raise RuntimeError(f"the unit tests fail without any mutant: {status!r}, {trials.failed}")
    return trials.outcomes


class _Trials:
    """A pytest plugin whose loop measures the tests, and then tries mutants instead of ending."""

    def __init__(
        self, mutations: Sequence[Mutation], *, play_count: int, jobs: int, tell: Callable[[Outcome], None]
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.failed: list[tuple[str, str]] = []
        self._mutations = mutations
        self._play_count = play_count
        self._jobs = jobs
        self._tell = tell
        self._reached: dict[tuple[str, int], list[pytest.Item]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._reached = self._measure(session.items)
        if not self.failed:
            self._try_all()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append((report.nodeid, str(report.longrepr).splitlines()[-1]))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append((report.nodeid, str(report.longrepr).splitlines()[-1]))

    def _measure(self, items: list[pytest.Item]) -> dict[tuple[str, int], list[pytest.Item]]:
        """(file, line) -> the tests that run it, the quickest first."""
        seconds: dict[pytest.Item, float] = {}
        measured = coverage.Coverage(data_file=None, include=[str(path_of(module)) for module in modules()])
        measured.start()
        for number, item in enumerate(items):
            measured.switch_context(str(number))
            began_s = time.perf_counter()
            _run(items[number : number + 2])
            seconds[item] = time.perf_counter() - began_s
        measured.stop()
        reached = {}
        data = measured.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                found = [items[int(context)] for context in contexts if context]
                reached[file, line] = sorted(found, key=lambda item: seconds[item])
        return reached

    def _try_all(self) -> None:
        import tests.simulation.probes  # noqa: F401  # what is played is imported once, before the forks

        live = _live_functions()
        gc.collect()
        gc.freeze()
        waiting = list(reversed(self._mutations))
        running: dict[int, Mutation] = {}
        with tempfile.TemporaryDirectory() as folder:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    mutation = waiting.pop()
                    running[self._fork(mutation, live, Path(folder))] = mutation
                pid, status, used = os.wait4(-1, 0)
                mutation = running.pop(pid)
                said = Path(folder, str(pid))
                if said.exists():
                    outcome = msgspec.json.decode(said.read_bytes(), type=Outcome)
                elif os.WIFSIGNALED(status):
                    # Killed for its processor time or memory, by what no handler in Python can stop.
                    outcome = Outcome(name=mutation.name, caught_by="hang", message=f"ended with status {status}")
                else:
                    outcome = Outcome(name=mutation.name, message=f"the trial ended with status {status}")
                outcome = msgspec.structs.replace(outcome, cpu_s=round(used.ru_utime + used.ru_stime, 1))
                self._tell(outcome)
                self.outcomes.append(outcome)

    def _fork(self, mutation: Mutation, live: _Live, folder: Path) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            outcome = self._verdict(mutation, live)
        except MemoryError as error:
            outcome = Outcome(name=mutation.name, caught_by="hang", message=repr(error))
        except BaseException as error:
            outcome = Outcome(name=mutation.name, message=f"the trial failed: {error!r}")
        (folder / f"{os.getpid()}.part").write_bytes(msgspec.json.encode(outcome))
        (folder / f"{os.getpid()}.part").rename(folder / str(os.getpid()))
        os._exit(0)  # a thread of a test that failed may never end

    def _verdict(self, mutation: Mutation, live: _Live) -> Outcome:
        """Put the mutant in, run the tests that reach it, then the plays. The process is of no use afterwards.

        Raises:
            KeyError: the mutant cannot be put in.
        """
        put(mutation, live)
        file = str(path_of(mutation.module))
        reaching = {
            item: None
            for line in range(mutation.line, mutation.last_line + 1)
            for item in self._reached.get((file, line), ())
        }
        items = list(reaching)
        for number in range(len(items)):
            _run(items[number : number + 2])
            if self.failed:
                return Outcome(name=mutation.name, caught_by=self.failed[0][0], message=self.failed[0][1][:300])
        for play in plays(mutation.module, self._play_count):
            if (heard := judge(play)) is not None:
                return Outcome(name=mutation.name, caught_by=heard[0], message=heard[1][:300], tests=len(items))
        return Outcome(name=mutation.name, tests=len(items))


def _run(items: Sequence[pytest.Item]) -> None:
    """Run the first of one or two tests; fixtures that the second one needs too are kept."""
    item, *following = items
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following[0] if following else None)


# ------------------------------------------------------------------------------------------------------ putting it in


def _live_functions() -> _Live:
    """The functions of all modules that may be mutated."""
    files = {str(path_of(module)) for module in modules()}
    found = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            found[_key(thing.__code__)].append(thing)
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def put(mutation: Mutation, live: _Live) -> None:
    """Give the changed function its new code, wherever it is already in use.

    Raises:
        KeyError: there is no such change.
    """
    file = path_of(mutation.module)
    before = {_key(code): code for code in _codes(_compile(ast.parse(file.read_bytes()), file))}
    tree = mutate(mutation.module, ast.parse(file.read_bytes()), mutation.name)
    for code in _codes(_compile(tree, file)):
        if code == before.get(_key(code)):
            continue
        for function in live.get(_key(code), ()):
            missing = set(function.__code__.co_freevars) - set(code.co_freevars)
            function.__code__ = _mentioning(missing, tree, code, file) if missing else code


def _mentioning(names: set[str], tree: ast.Module, code: CodeType, file: Path) -> CodeType:
    """*code* with those free variables, which the function had before the change: a function keeps its closure."""
    for _, node in functions(tree):
        if min([node.lineno, *(one.lineno for one in node.decorator_list)]) == code.co_firstlineno:
            mentions: list[ast.stmt] = [ast.Expr(ast.Name(name, ast.Load())) for name in sorted(names)]
            node.body.insert(0, ast.If(ast.Constant(False), mentions, []))
    return next(changed for changed in _codes(_compile(tree, file)) if _key(changed) == _key(code))


def _compile(tree: ast.Module, file: Path) -> CodeType:
    return compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions in it, not of those inside functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            if not inner.co_flags & 0x2:  # the body of a class: CO_NEWLOCALS is set in functions only
                yield from _codes(inner)
