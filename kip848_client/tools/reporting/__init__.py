"""Parts of ``kip848 report``: periods, what-if, Spark."""
