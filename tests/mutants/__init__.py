"""Bugs that are put into the cores, to see whether the simulation finds them: `make mutants`.

- `known` and its neighbours: bugs that other implementations had, and one at least for every invariant
- `generated`: small changes to any function of `member/` and `coordinator/`, each made in memory
- `reach`: which play executes which statement; `plays`: what is played
- `worker`: one bug in a process of its own; `runner`: all of them; `document`: docs/mutants.md
- `equivalent`: changes that change nothing, each with the reason
"""
