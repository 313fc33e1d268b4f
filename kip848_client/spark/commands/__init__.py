"""``kip848 sweep``, which `cli` lists, and the part of ``kip848 report`` that runs on Spark."""
