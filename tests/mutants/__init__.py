"""Bugs that are put into the cores, to see whether simulation and unit tests find them.

- `generated`: small changes to any function of `member/` and `coordinator/`, each made in memory: `make mutants`
- `trial`: puts each into a process of its own, and asks unit tests and plays; `plays`: what is played
- `equivalent`: changes that change no decision, with the reasons
- `known` and its neighbours: bugs that other implementations had, and one at least for every invariant;
  `tests/simulation/test_checkers.py` puts them back
"""
