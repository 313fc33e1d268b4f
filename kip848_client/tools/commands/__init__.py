"""Subcommands of ``kip848`` that work with a cluster, one file each.

Each has ``add_arguments(parser)`` and ``run(arguments) -> int``; `cli` lists them. None imports another.
"""
