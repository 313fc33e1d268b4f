"""Shows event logs as pictures and numbers: who read which partition when, and what a rebalance cost.

The folder `timeline` turns events into the history of a group. From it `figures` computes numbers, `periods` compares
them, and `findings` says what went wrong, with `causes`. The folder `pictures` draws. Reads what client, broker and
simulation write (`kip848_client.journal`); opens no socket and reads no clock.
"""

from __future__ import annotations

from kip848_client.tools.report.figures import Figures, figures_of
from kip848_client.tools.report.timeline.lanes import build_timelines
from kip848_client.tools.report.timeline.timeline import Timeline

__all__ = ["Figures", "Timeline", "build_timelines", "figures_of"]
