"""Shows event logs as pictures and numbers: who read which partition when, and what a rebalance cost.

`lanes` turns events into a `timeline`, `figures` into numbers, `html` and `png` draw them. Reads what client, broker
and simulation write (`kip848_client.journal`); opens no socket and reads no clock.
"""

from __future__ import annotations

from kip848_client.tools.report.figures import Figures, figures_of
from kip848_client.tools.report.lanes import build_timelines
from kip848_client.tools.report.timeline import Timeline

__all__ = ["Figures", "Timeline", "build_timelines", "figures_of"]
