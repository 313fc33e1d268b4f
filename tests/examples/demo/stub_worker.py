"""Stands in for a counting worker: reports once, then does what its first argument says. Knows no Kafka."""

from __future__ import annotations

import os
import sys

from demo.reports import Left, Started, to_line

behaviour, name = sys.argv[1:]
os.write(2, f"{name} says hello\n".encode())
after = {"babbles": b"not a report\n", "half-writes": to_line(Left())[:-1]}
os.write(1, to_line(Started(os.getpid())) + after.get(behaviour, b""))
if behaviour == "fails":
    sys.exit(3)
os.read(0, 64)
os.write(1, to_line(Left()))
