"""``kip848 groups serve``: a page for people that shows all groups of a cluster as they are, and what happened to them.

`follower` reads the cluster and fills `history`, a file of SQLite. `situation` says in a sentence what is wrong with a
group now, `analysis` what went wrong before, `web` serves both. Nothing is written to the cluster.
"""
