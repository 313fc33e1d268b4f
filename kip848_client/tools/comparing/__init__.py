"""Parts of ``kip848 report`` that compare: periods of a log, and a log with simulated runs of its groups."""
