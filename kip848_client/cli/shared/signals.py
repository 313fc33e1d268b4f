"""The signals that end a command in good order."""

from __future__ import annotations

import signal
import sys
from typing import Final

if sys.platform == "win32":  # Ctrl-Break is what another process can send
    STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
else:
    STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
