"""One bug in one process: put it in, play, and say on standard output what noticed it first. Started by `runner`.

A play that takes too much processor time is stopped, and counts as noticed: such a member would never answer. Memory is
limited, so that a bug cannot take the machine with it.
"""

from __future__ import annotations

import ast
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

import msgspec

from tests.mutants.generated import mutate
from tests.mutants.plays import Play
from tests.mutants.sources import ChangedModules

_MEMORY_BYTES: Final = 3 * 2**30


class Task(msgspec.Struct, frozen=True):
    """What one process is to do.

    Args:
        module: of a generated mutant; empty for a known one.
        name: of the mutant.
        plays: (number in the list, play).
        play_cpu_s: processor time after which a play hangs.
        cpu_s: processor time after which to stop playing.
    """

    module: str
    name: str
    plays: Sequence[tuple[int, Play]]
    play_cpu_s: float
    cpu_s: float


class Verdict(msgspec.Struct, frozen=True):
    """What came of it.

    Args:
        caught_by: an invariant, "assertion", "exception", "import" or "hang"; empty if nobody noticed.
        message: what was said.
        play: number of the play in the list, from 0; the last one that was played if nobody noticed.
        command: what plays it from a shell.
        played: how many were played; the others do not reach what was changed.
        cpu_s: processor time.
        ran_out: time was over before the plays were.
    """

    caught_by: str
    message: str
    play: int
    command: str
    played: int
    cpu_s: float
    ran_out: bool = False


class Hang(BaseException):
    """A play took too long."""


def judge(task: Task) -> Verdict:
    """Put the bug in and play until somebody notices.

    The process cannot be used for anything else afterwards.
    """
    began_s = time.process_time()
    try:
        run_one = _prepare(task)
    except Exception as error:
        return Verdict("import", repr(error), 0, "", 0, time.process_time() - began_s)
    number, played = 0, 0
    for number, play in task.plays:
        if time.process_time() - began_s > task.cpu_s:
            return Verdict("", "", number, "", played, time.process_time() - began_s, ran_out=True)
        played += 1
        found = run_one(play)
        if found is not None:
            return Verdict(found[0], found[1][:500], number, play.command, played, time.process_time() - began_s)
    return Verdict("", "", number, "", played, time.process_time() - began_s)


def _prepare(task: Task):  # type: ignore[no-untyped-def]
    if task.module:

        def change(module: str, tree: ast.Module) -> ast.Module:
            return mutate(module, tree, task.name)

        sys.meta_path.insert(0, ChangedModules([task.module], change))

    from kip848_client.simulation import run, scenario_of  # after the finder

    if not task.module:
        import pytest

        from tests.mutants.known import by_name

        by_name(task.name).put(pytest.MonkeyPatch())

    def run_one(play: Play) -> tuple[str, str] | None:
        try:
            with _limit(task.play_cpu_s):
                scenario = scenario_of(play.scenario, seed=play.seed, changes=play.changes)
                violation = run(scenario, seed=play.seed, keep_history=False).violation
        except Hang:
            return "hang", f"no end within {task.play_cpu_s:.0f} s of processor time"
        except BaseException as error:
            return "exception", repr(error)
        return None if violation is None else (violation.invariant, violation.message)

    return run_one


@contextmanager
def _limit(cpu_s: float) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, 0.5)  # again, should somebody catch the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> None:
    """Read a task from standard input, write the verdict to standard output."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(task.cpu_s + 2 * task.play_cpu_s + 60),) * 2)
    print(msgspec.json.encode(judge(task)).decode())


if __name__ == "__main__":
    main()
