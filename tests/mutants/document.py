"""docs/mutants.md: what the last whole run of `make mutants` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.mutants.equivalent import SURVIVORS
from tests.mutants.runner import REACHED_BY, Outcome, Targets
from tests.mutants.sources import ROOT

PATH: Final = ROOT / "docs" / "mutants.md"

WITHOUT_MUTANT: Final = {
    "C8 (threads, sockets)": "they belong to the shell around the member, not to the cores; `tests/threads`",
    "S12 (authorisation)": "it is the broker's, which asks before the coordinator hears of a request; `tests/broker`",
    "L9": "part of S10 and L1: an assignor that fails keeps the target, and the group must come to rest after it heals",
}
"""What the list of invariants has and no bug is put back for -> why."""

_HEAD: Final = """# Mutants

A green simulation proves something only if it turns red when the code is wrong. `make mutants` puts bugs into the
member and the coordinator, one at a time, and plays the [simulation](simulation.md) until an invariant breaks:

- every bug of a written list: what other implementations of this protocol got wrong, and at least one bug for every
  invariant;
- {sample} small changes, drawn with a seed from all that can be made to the functions of `kip848_client/member/` and
  `kip848_client/coordinator/`: a comparison flipped or off by one, `and` for `or`, a `not` or a filter dropped, a
  condition negated, a constant changed, arithmetic turned round, a statement deleted, a function emptied or returning
  nothing.

No file is changed: an import hook compiles the changed module in a process of its own. A mutant is caught if within
{plays:,} plays an invariant breaks, a core raises or asserts, or a play does not end. Plays are numbered; most are
seeds of `mixed`, one in ten a seed of another scenario, one in five with client-side assignors, one in ten with
listeners that hang, one in ten with what else is seldom, and all of them with probes (`--set probes=1`). A play that
does not execute the changed statement is the same as without the change and is passed over; its number counts.

```
make mutants                                         # all of it; rewrites this page
python -m tests.mutants --only member/heartbeat      # mutants whose name contains this
python -m tests.mutants --sample 50 --seed 7 --json  # other ones, as one JSON object
python -m tests.mutants --list                       # names only
```

Targets are statements that at least one play in {reached_by} executes without any mutant: what describes, lists or
deletes groups is never asked for in a simulation and has its own tests. Assertions, texts for people and type
annotations are not changed, nor is anything outside of functions (tables of error codes and transitions:
`tests/member`). The judge is the simulation alone: the unit tests are not asked.

Many checks were written while looking at what survived in a sample, so the share below flatters if the sample is one
of those (seeds 1 to 13, and 1,400 more of seeds 100 and 101). Samples that nobody had looked at tell how good the
simulation is at what nobody thought of: of seed 2, 158 of 200 were caught before anything was done about the others; of
seed 4, after that, 171 of 200; of seed 6, since members have twins (C10), 56 of the 60 that were tried; of seed 7, 169
of 200; of seed 8, since others walk through the groups of runs, 183 of 200; of seed 9, 182 of 200; of seed 10, since
somebody assigns partitions by hand, 193 of 200, and of the 112 of these that were in no sample before 105; of seed 11,
194 of 200; of seed 12, 196 of 200; of seed 13, 190 of 200. Many that survive change nothing that a member or
coordinator does (of the seven of seed 10, six). Such changes are left out of later samples, each with its reason
(below); now and then they are tried all the same, and what is caught is no exclusion any more.

Samples overlap. Of the 311 of seeds 11 to 14 that were in none before them, at least 287 were caught (92 %), those that
change nothing counted as survivors.
"""


def write(known: Sequence[Outcome], generated: Sequence[Outcome], targets: Targets, *, seed: int, plays: int) -> None:
    """Write the document."""
    PATH.write_text(render(known, generated, targets, seed=seed, plays=plays))


def render(known: Sequence[Outcome], generated: Sequence[Outcome], targets: Targets, *, seed: int, plays: int) -> str:
    """The document as text."""
    head = _HEAD.format(sample=len(generated), plays=plays, reached_by=REACHED_BY)
    caught = [outcome for outcome in generated if outcome.caught]
    lines = [
        head,
        "## Last result",
        "",
        f"{_caught(known)} of {len(known)} bugs of the list, {len(caught)} of {len(generated)} generated mutants"
        f" ({percent(generated):.1f} %), seed {seed}, at most {plays:,} plays each.",
        "",
        f"{targets.all:,} changes are possible, {targets.reachable:,} of them in statements that are executed often"
        f" enough, of which {len(targets.left_out):,} are left out (below). Half of the mutants that were caught were"
        f" caught within {_median(outcome.verdict.play + 1 for outcome in caught)} plays.",
        "",
        "### Bugs of the list",
        "",
        "| bug | noticed by | play |",
        "| --- | --- | --- |",
        *(f"| {_cell(one.mutant.name)} | {_by(one)} | {_play(one)} |" for one in known),
        "",
        "### Which invariant noticed what",
        "",
        "`assertion` is one of the cores' own, `exception` anything that they raised, `hang` a play without an end.",
        "",
        "| noticed by | bugs of the list | generated |",
        "| --- | --- | --- |",
        *_by_invariant(known, generated),
        "",
        "No bug is put back for:",
        "",
        *(f"- {what}: {why}" for what, why in WITHOUT_MUTANT.items()),
        "",
        "### Generated mutants that survived",
        "",
        "Each is a hole, in what is checked or in what is played; 95 % caught is the goal.",
        "",
        *_survivors(generated),
        "",
        "### Generated mutants, by kind",
        "",
        "| change | made | caught |",
        "| --- | --- | --- |",
        *_by_kind(generated),
        "",
        "### All generated mutants of the sample",
        "",
        "| mutant | noticed by | play |",
        "| --- | --- | --- |",
        *(f"| {_code(one.mutant.name)} | {_by(one)} | {_play(one)} |" for one in generated),
        "",
        "### Left out",
        "",
        "These change nothing that a member or a coordinator does. They are no targets, in this sample or any other.",
        "",
        *_left_out(targets),
        "",
    ]
    return "\n".join(lines)


def percent(outcomes: Sequence[Outcome]) -> float:
    """Part of the mutants that were caught, in percent; 100 of none."""
    return 100.0 * _caught(outcomes) / len(outcomes) if outcomes else 100.0


def _caught(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.caught for outcome in outcomes)


def _median(numbers: Iterable[int]) -> int:
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else 0


def _by(outcome: Outcome) -> str:
    return outcome.verdict.caught_by or "**nobody**"


def _play(outcome: Outcome) -> str:
    return str(outcome.verdict.play + 1) if outcome.caught else "-"


def _by_invariant(known: Sequence[Outcome], generated: Sequence[Outcome]) -> list[str]:
    ours = Counter(outcome.verdict.caught_by for outcome in known if outcome.caught)
    theirs = Counter(outcome.verdict.caught_by for outcome in generated if outcome.caught)
    names = sorted(ours.keys() | theirs.keys(), key=lambda name: (len(name) > 3, name[0], len(name), name))
    return [f"| {name} | {ours[name] or ''} | {theirs[name] or ''} |" for name in names]


def _by_kind(generated: Sequence[Outcome]) -> list[str]:
    made = Counter(outcome.mutant.kind for outcome in generated)
    caught = Counter(outcome.mutant.kind for outcome in generated if outcome.caught)
    return [f"| {kind} | {count} | {caught[kind]} |" for kind, count in sorted(made.items())]


def _survivors(generated: Sequence[Outcome]) -> list[str]:
    lines = []
    for outcome in generated:
        if not outcome.caught:
            late = " (time ran out)" if outcome.verdict.ran_out else ""
            reason = SURVIVORS.get(outcome.mutant.name, "not explained yet")
            lines.append(f"- {_code(outcome.mutant.name)}{late}: {reason}")
    return lines or ["None."]


def _left_out(targets: Targets) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in targets.left_out.items():
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(names) > 3:
            places = Counter(name.split(": ", 1)[0].split(" ")[0] for name in names)
            lines.append(f"- {len(names)} in {', '.join(sorted(places))}: {reason}")
        else:
            lines += [f"- {_code(name)}: {reason}" for name in names]
    return lines or ["None."]


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
