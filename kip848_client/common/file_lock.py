"""A lock on an open file that only one process has. It goes with the process."""

from __future__ import annotations

import os
import sys
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOCKED_BYTE: Final = 1 << 20
"""Far behind the content: on Windows a locked byte can be read by no other process."""

if sys.platform == "win32":

    def lock_file(fd: int) -> None:
        """Lock it; an OSError if another process has it."""
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def unlock_file(fd: int) -> None:
        """Let it go."""
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def lock_file(fd: int) -> None:
        """Lock it; an OSError if another process has it."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock_file(fd: int) -> None:
        """Let it go, also if a child that was forked meanwhile has it open."""
        fcntl.flock(fd, fcntl.LOCK_UN)
