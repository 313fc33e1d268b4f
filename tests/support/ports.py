"""Ports for servers that a test starts in another process, or starts again."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

_PORTS: Final = range(15_000, 32_000)
"""Below those that systems give to whoever asks for any port, so that none is taken before the server listens."""


def free_ports(count: int) -> tuple[int, ...]:
    """*count* different ports of 127.0.0.1 that nobody has."""
    chosen: list[int] = []
    with ExitStack() as held:
        while len(chosen) < count:
            port = random.SystemRandom().choice(_PORTS)  # seeded generators give the same to every process of xdist
            try:
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen.append(port)
    return tuple(chosen)
