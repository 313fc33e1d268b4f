"""``kip848 broker`` and ``kip848 simulate``; `cli` lists them."""
