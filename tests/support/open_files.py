"""What one broker, consumer or folder holds open in this process.

Other tests leave clients and files in the same process, so a count of everything that is open proves nothing.
"""

from __future__ import annotations

from pathlib import Path


def files_under(folder: Path) -> int:
    """Open files below *folder*."""
    return sum(target.startswith(f"{folder}/") for target in _targets())


def sockets_of_port(port: int) -> int:
    """TCP sockets of this process with *port* at either end: a broker's listener, and both ends of its connections."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    end = f":{port:04X}"
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(end) or row[2].endswith(end)}
    return sum(target in sockets for target in _targets())


def _targets() -> list[str]:
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except FileNotFoundError:  # closed since it was listed, by another thread or as the listing itself
            continue
    return targets
